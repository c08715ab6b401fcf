"""One event against all tiles at once, where a good part of all boxes match.

Going tile by tile, every line and every end would come from somewhere else in memory. In rows,
the lines of the event's cell follow each other through all tiles, and so do the endpoints in it.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array, UInt8Array
from boxmatch.indexes.tile.candidates import check, endpoint_fails, list_bits
from boxmatch.indexes.tile.layout import TileState
from boxmatch.kernels.bit_lines import (
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
from boxmatch.kernels.bit_sets import unmark
from boxmatch.kernels.box_lists import append, longer
from boxmatch.kernels.jit import kernel

ROWS_SHARE = 8
"""Rows pay if at least one tile in so many is live."""


@kernel
def search_rows(
    state: TileState,
    keys: Int64Array,
    cells: UInt8Array,
    exists: BitLines,
    skipped: BoolArray,
    listing: bool,
    found: Int32Array,
    end: Int,
) -> tuple[Int32Array, Int]:
    """Write the boxes that hold one event to `found[end:]`, or only count them if not `listing`."""
    tiles = len(state.unlined)
    candidates = np.empty((tiles, LINE_WORDS), np.uint64)
    unverified_line = np.empty((1, LINE_WORDS), np.uint64)
    _pass_rows(state, keys, cells, exists, candidates)
    matched: Int = np.int64(0)
    unverified: Int = np.int64(0)
    for tile in range(tiles):
        line = load_line(candidates, tile)
        matched += count_bits(line)
        unverified += count_bits(and_lines(line, load_line(state.unlined, tile)))
    if listing and end + matched > len(found):
        found = longer(found, 2 * (end + matched))
    unverified_box = np.empty(unverified, np.int32)
    certain = matched - unverified
    unverified = np.int64(0)
    for tile in range(tiles):
        line = load_line(candidates, tile)
        unlined = and_lines(line, load_line(state.unlined, tile))
        if any_bit(unlined):
            store_line(unverified_line, 0, unlined)
            unverified = list_bits(unverified_line, np.int64(0), tile, unverified_box, unverified)
            store_line(candidates, tile, and_not_line(line, unlined))
        if listing:
            end = list_bits(candidates, tile, tile, found, end)
    kept = check(state, keys, skipped, np.zeros(unverified, np.int32), unverified_box, unverified)
    if not listing:
        return found, end + certain + kept
    return append(found, end, unverified_box, kept)


@kernel
def _pass_rows(
    state: TileState, keys: Int64Array, cells: UInt8Array, exists: BitLines, candidates: BitLines
) -> None:
    """One line per tile: the boxes that hold the event, as far as slots can tell."""
    lines, row_tile = state.lines, state.row_tile
    endpoint_start = state.endpoint_start
    endpoint_key, endpoint_box = state.endpoint_key, state.endpoint_box
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
        # Only the endpoints on the wrong side of the key are touched, 64 compared at once.
        at, stop = endpoint_start[row], endpoint_start[row + step]
        while at + 64 <= stop:
            lower = greater_items(endpoint_box, at, np.int32(-1))
            fail = ~(greater_items(endpoint_key, at, key) ^ lower)
            while fail != 0:
                owner = endpoint_box[at + trailing_zeros(fail)]
                box = owner ^ (owner >> 31)
                unmark(words, box)
                fail &= fail - np.uint64(1)
            at += 64
        for end in range(at, stop):
            box, fails = endpoint_fails(endpoint_box[end], endpoint_key[end], key)
            if fails:
                unmark(words, box)
