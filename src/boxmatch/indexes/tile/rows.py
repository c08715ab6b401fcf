"""One event against all tiles at once, where a good part of all boxes match.

Going tile by tile, every line and every end would come from somewhere else in memory. In rows,
the lines of the event's cell follow each other through all tiles, and so do the ends in it.
"""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.lines import (
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    count_bits,
    greater_items,
    load_line,
    store_line,
    trailing_zeros,
)
from boxmatch.indexes.parts.found import append, longer
from boxmatch.indexes.parts.marks import unmark
from boxmatch.indexes.tile.doubts import check, end_fails
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

ROWS_SHARE = 8
"""Rows pay if at least one tile in so many is live."""


@kernel
def search_rows(
    state: TileState,
    keys: Int64Array,
    cells: UInt8Array,
    exists: Lines,
    skipped: BoolArray,
    listing: bool,
    found: Int32Array,
    end: Whole,
) -> tuple[Int32Array, Whole]:
    """Write the boxes that hold one event to `found[end:]`, or only count them if not `listing`."""
    tiles = len(state.unlined)
    candidates = np.empty((tiles, LINE_WORDS), np.uint64)
    doubtful = np.empty((1, LINE_WORDS), np.uint64)
    _pass_rows(state, keys, cells, exists, candidates)
    matched: Whole = np.int64(0)
    doubts: Whole = np.int64(0)
    for tile in range(tiles):
        line = load_line(candidates, tile)
        matched += count_bits(line)
        doubts += count_bits(and_lines(line, load_line(state.unlined, tile)))
    if listing and end + matched > len(found):
        found = longer(found, 2 * (end + matched))
    doubt_box = np.empty(doubts, np.int32)
    certain = matched - doubts
    doubts = np.int64(0)
    for tile in range(tiles):
        line = load_line(candidates, tile)
        unlined = and_lines(line, load_line(state.unlined, tile))
        if any_bit(unlined):
            store_line(doubtful, 0, unlined)
            doubts = list_bits(doubtful, np.int64(0), tile, doubt_box, doubts)
            store_line(candidates, tile, and_not_line(line, unlined))
        if listing:
            end = list_bits(candidates, tile, tile, found, end)
    kept = check(state, keys, skipped, np.zeros(doubts, np.int32), doubt_box, doubts)
    if not listing:
        return found, end + certain + kept
    return append(found, end, doubt_box, kept)


@kernel
def _pass_rows(
    state: TileState, keys: Int64Array, cells: UInt8Array, exists: Lines, candidates: Lines
) -> None:
    """One line per tile: the boxes that hold the event, as far as slots can tell."""
    lines, row_tile = state.lines, state.row_tile
    end_start, end_key, end_box = state.end_start, state.end_key, state.end_box
    words = candidates.reshape(-1)
    for tile in range(len(candidates)):
        store_line(candidates, tile, load_line(exists, tile))
    for a in range(keys.shape[1]):
        key = keys[0, a]
        first = np.int64(state.row_start[a])
        step = np.int64(state.row_start[a + 1]) - first
        row = np.int64(state.row_line[a]) + np.int64(cells[0, a]) * step
        for i in range(step):
            place = np.int64(row_tile[first + i])
            line = and_lines(load_line(candidates, place), load_line(lines, row + i))
            store_line(candidates, place, line)
        # Only the ends on the wrong side of the key are touched, 64 compared at once.
        at, stop = end_start[row], end_start[row + step]
        while at + 64 <= stop:
            lower = greater_items(end_box, at, np.int32(-1))
            fail = ~(greater_items(end_key, at, key) ^ lower)
            while fail != 0:
                owner = end_box[at + trailing_zeros(fail)]
                box = owner ^ (owner >> 31)
                unmark(words, box)
                fail &= fail - np.uint64(1)
            at += 64
        for end in range(at, stop):
            box, fails = end_fails(end_box[end], end_key[end], key)
            if fails:
                unmark(words, box)
