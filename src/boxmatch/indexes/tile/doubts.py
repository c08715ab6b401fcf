"""Doubts: candidates that the lines alone cannot tell, and how they are settled."""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    count_bits,
    fetch,
    load_line,
    store_line,
)
from boxmatch.indexes.tile.found import list_bits
from boxmatch.indexes.tile.layout import (
    BoolArray,
    Int32Array,
    Int64Array,
    Lines,
    TileState,
    UInt8Array,
    Whole,
)
from boxmatch.jit import kernel

_DOUBTS_AHEAD = 12

_FEW_DOUBTS = 3
"""Up to so many doubtful boxes are checked one by one, even where ends could settle all."""


@kernel
def end_fails(owner: Whole, end: Whole, key: Whole) -> tuple[Whole, bool]:
    """The box that an end belongs to, and whether the key is on the wrong side of it."""
    return owner ^ (owner >> 31), (key >= end) == (owner < 0)


@kernel
def settle(
    state: TileState,
    tile: Whole,
    cells: UInt8Array,
    keys: Int64Array,
    events: Int64Array,
    at: Whole,
    count: Whole,
    candidates: Lines,
    exact: bool,
    doubt_event: Int32Array,
    doubt_box: Int32Array,
    doubts: Whole,
) -> tuple[Whole, Whole]:
    """Leave in the candidates of events `at … count` only boxes that are certain to hold them.

    The others are appended to the doubts. Stops when these are full; returns which event is next,
    and the number of doubts. If the lines are `exact`, only predicates without a slot are in doubt.
    """
    slot_line, slot_attribute = state.slot_line, state.slot_attribute
    line_step = state.line_step
    end_start, end_key, end_box = state.end_start, state.end_key, state.end_box
    unlined = load_line(state.unlined, tile)
    unsettled = unlined if exact else load_line(state.unsettled, tile)
    scratch = np.empty((1, LINE_WORDS), np.uint64)
    while at < count and doubts + LINE_BITS <= len(doubt_box):
        line = load_line(candidates, at)
        doubtful = and_lines(line, unsettled)
        if any_bit(doubtful):
            e = events[at]
            if not exact and len(end_key) > 0 and count_bits(doubtful) > _FEW_DOUBTS:
                # A line's ends come from far away too.
                for s in range(state.slot_start[tile], state.slot_start[tile + 1]):
                    step = np.int64(line_step[slot_attribute[s]])
                    row = slot_line[s] + np.int64(cells[e, slot_attribute[s]]) * step
                    fetch(end_key, end_start[row])
                    fetch(end_key, end_start[row] + 8)
                    fetch(end_box, end_start[row])
                for s in range(state.slot_start[tile], state.slot_start[tile + 1]):
                    key = keys[e, slot_attribute[s]]
                    step = np.int64(line_step[slot_attribute[s]])
                    row = slot_line[s] + np.int64(cells[e, slot_attribute[s]]) * step
                    for end in range(end_start[row], end_start[row + 1]):
                        box, fails = end_fails(end_box[end], end_key[end], key)
                        word = (box >> 6) & (LINE_WORDS - 1)
                        candidates[at, word] &= ~(np.uint64(fails) << np.uint64(box & 63))
                line = load_line(candidates, at)
                doubtful = and_lines(line, unlined)
            store_line(scratch, 0, doubtful)
            before = doubts
            doubts = list_bits(scratch, np.int64(0), tile, doubt_box, doubts)
            doubt_event[before:doubts] = e
            store_line(candidates, at, and_not_line(line, doubtful))
        at += 1
    return at, doubts


@kernel
def check(
    state: TileState,
    keys: Int64Array,
    skipped: BoolArray,
    doubt_event: Int32Array,
    doubt_box: Int32Array,
    doubts: Whole,
) -> Whole:
    """Compare every predicate of the doubtful boxes; keep those that hold, return their number."""
    start, attribute = state.box_start, state.box_attribute
    low, high = state.box_low, state.box_high
    kept = 0
    for d in range(doubts):
        # Bounds come from far away: ask for those of the doubts ahead.
        if d + 2 * _DOUBTS_AHEAD < doubts:
            fetch(start, np.int64(doubt_box[d + 2 * _DOUBTS_AHEAD]))
        if d + _DOUBTS_AHEAD < doubts:
            p = start[doubt_box[d + _DOUBTS_AHEAD]]
            fetch(attribute, p)
            fetch(low, p)
            fetch(low, p + 7)
            fetch(high, p)
            fetch(high, p + 7)
        box, e = doubt_box[d], doubt_event[d]
        holds = True
        for p in range(start[box], start[box + 1]):
            key = keys[e, attribute[p]]
            if (key < low[p] or key > high[p]) and not (len(skipped) and skipped[attribute[p]]):
                holds = False
                break
        doubt_box[kept], doubt_event[kept] = box, e
        kept += holds
    return kept
