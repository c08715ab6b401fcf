"""Candidates: how those that the lines alone cannot tell are settled, and matches listed."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import INEXACT, RANK
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    load_line,
    store_line,
)
from boxmatch.kernels.box_lists import list_word, longer
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.box_kernels import holds

_AHEAD = 12
_ENDS_IN_LINE = 16
"""Predicates of which the ranks of both ends fill a cache line."""


@kernel
def list_bits(line: BitLines, row: Int, tile: Int, boxes: Int32Array, at: Int) -> Int:
    """Write the boxes whose bits are set to `boxes[at:]`; return where the list then ends."""
    for word in range(LINE_WORDS):
        at = list_word(line[row, word], tile * LINE_BITS + word * 64, boxes, at)
    return at


@kernel
def settle(
    state: TileState,
    tile: Int,
    events: Int64Array,
    at: Int,
    count: Int,
    candidates: BitLines,
    unverified_event: Int32Array,
    unverified_box: Int32Array,
    unverified: Int,
) -> tuple[Int, Int]:
    """Leave in the candidates of events `at … count` only boxes that are certain to hold them.

    The others are appended to the unverified ones. Stops when these are full; returns which event
    is next, and how many are unverified.
    """
    unsettled = load_line(state.unsettled, tile)
    scratch = np.empty((1, LINE_WORDS), np.uint64)
    while at < count and unverified + LINE_BITS <= len(unverified_box):
        line = load_line(candidates, at)
        unverified_line = and_lines(line, unsettled)
        if any_bit(unverified_line):
            store_line(scratch, 0, unverified_line)
            before = unverified
            unverified = list_bits(scratch, np.int64(0), tile, unverified_box, unverified)
            unverified_event[before:unverified] = events[at]
            store_line(candidates, at, and_not_line(line, unverified_line))
        at += 1
    return at, unverified


@kernel
def check(
    state: TileState,
    keys: Int64Array,
    ranks: UInt16Array,
    skipped: BoolArray,
    unverified_event: Int32Array,
    unverified_box: Int32Array,
    unverified: Int,
) -> Int:
    """Compare every predicate of the unverified boxes; keep those that hold, return how many."""
    start, attribute, ends = state.box_start, state.box_attribute, state.box_ranks
    kept = 0
    for d in range(unverified):
        # Ranks come from far away: ask for those of those ahead.
        if d + 2 * _AHEAD < unverified:
            prefetch(start, np.int64(unverified_box[d + 2 * _AHEAD]))
        if d + _AHEAD < unverified:
            p = start[unverified_box[d + _AHEAD]]
            last = start[unverified_box[d + _AHEAD] + 1] - 1
            prefetch(attribute, p)
            prefetch(attribute, last)
            while p < last:
                prefetch(ends, p)
                p += _ENDS_IN_LINE
            prefetch(ends, last)
        box, e = unverified_box[d], unverified_event[d]
        unverified_box[kept], unverified_event[kept] = box, e
        held = True
        doubtful = False
        # Places are unsigned: for others Numba asks each time whether they count from the end.
        at = np.uint64(e)
        for p in range(np.uint64(start[box]), np.uint64(start[box + 1])):
            a = attribute[p]
            rank = ranks[at, a]
            low, high = ends[p, 0], ends[p, 1]
            if rank < (low & RANK) or rank > (high & RANK):
                held = len(skipped) > 0 and skipped[a]
                if not held:
                    break
            doubtful |= (low == rank | INEXACT) | (high == rank | INEXACT)
        if held and doubtful:
            bounds = start, attribute, state.box_low, state.box_high
            held = holds(*bounds, box, keys, e, skipped)
        kept += held
    return kept


@kernel
def add_counts(event: Int32Array, size: Int, counts: Int64Array) -> None:
    """Add matches to the counts of their events."""
    for i in range(size):
        counts[event[i]] += 1


@kernel
def collect(
    event: Int32Array,
    box: Int32Array,
    size: Int,
    found_event: Int32Array,
    found_box: Int32Array,
    found: Int,
) -> tuple[Int32Array, Int32Array, Int]:
    """Add matches to those that were found."""
    if found + size > len(found_box):
        found_event = longer(found_event, 2 * found + size)
        found_box = longer(found_box, 2 * found + size)
    for i in range(size):
        found_event[found + i] = event[i]
        found_box[found + i] = box[i]
    return found_event, found_box, found + size


@kernel
def append_by_event(
    result: Int32Array, event: Int32Array, box: Int32Array, counts: Int64Array
) -> Int32Array:
    """`result` followed by the boxes, grouped by event."""
    cursor = np.empty(len(counts), np.int64)
    end = len(result)
    for e in range(len(counts)):
        cursor[e] = end
        end += counts[e]
    grown = longer(result, end)
    for i in range(len(box)):
        grown[cursor[event[i]]] = box[i]
        cursor[event[i]] += 1
    return grown
