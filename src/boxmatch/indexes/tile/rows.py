"""One event against all tiles at once, where a good part of all boxes match.

Going tile by tile, every line and every end would come from somewhere else in memory. In rows,
the lines of the event's cell follow each other through all tiles, and so do the endpoints in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from boxmatch.indexes.tile.endpoints import LINES_RULE
from boxmatch.indexes.tile.layout import BLOCK_TILES, TileState
from boxmatch.indexes.tile.ranks import cell_of
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    count_bits,
    load_line,
    store_line,
)
from boxmatch.kernels.box_lists import SPARE, list_line, longer
from boxmatch.kernels.jit import inlined, kernel
from boxmatch.kernels.prefetch import prefetch

ROWS_SHARE = 8
"""Rows pay if at least one tile in so many is live."""

_STEPS_AHEAD = 2
_BOXES_AHEAD = 128
_BOXES_IN_LINE = 16
"""Steps whose data is fetched ahead, and how many boxes of each side; boxes in a cache line."""


@kernel
def search_rows(
    state: TileState,
    keys: Int64Array,
    ranks: UInt16Array,
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
    _pass_rows(state, keys, ranks, cells, exists, candidates)
    _take_out_rare(state, keys, skipped, candidates.reshape(-1))
    matched: Int = np.int64(0)
    for tile in range(tiles):
        matched += count_bits(load_line(candidates, tile))
    if not listing:
        return found, end + matched
    if end + matched + SPARE > len(found):
        found = longer(found, 2 * (end + matched) + SPARE)
    for tile in range(tiles):
        end = list_line(candidates, tile, tile * LINE_BITS, found, end)
    return found, end


@kernel
def _pass_rows(
    state: TileState,
    keys: Int64Array,
    ranks: UInt16Array,
    cells: UInt8Array,
    exists: BitLines,
    candidates: BitLines,
) -> None:
    """One line per tile: the boxes that hold the event, as far as slots can tell.

    A block of tiles at a time, whose candidates stay in the second-level cache.
    """
    lines, row_tile, row_block = state.lines, state.row_tile, state.row_block
    tiles, attributes = len(candidates), keys.shape[1]
    blocks = (tiles + BLOCK_TILES - 1) // BLOCK_TILES
    words = candidates.reshape(-1)
    for tile in range(tiles):
        store_line(candidates, tile, load_line(exists, tile))
    # By attribute: the first line of the event's cell less where its tiles begin, the first group
    # of the cell in the first block, and the rank within the cell.
    row = np.empty(attributes, np.int64)
    group = np.empty(attributes, np.int64)
    own = np.empty(attributes, np.int64)
    # Block by block, the attributes that rule boxes out.
    steps = np.zeros(attributes * blocks + _STEPS_AHEAD, np.int64)
    ruling = np.zeros((blocks, attributes), np.uint8)
    cells_before: Int = np.int64(0)
    for a in range(attributes):
        cell, start = np.int64(cells[0, a]), np.int64(state.row_start[a])
        row[a] = state.row_line[a] + cell * (np.int64(state.row_start[a + 1]) - start) - start
        shift = np.int64(state.cell_shift[a])
        own[a] = (np.int64(ranks[0, a]) - 1) & ((1 << shift) - 1)
        group[a] = state.endpoint_base[a] + ((cell * blocks * 2) << shift)
        for block in range(blocks):
            ruling[block, a] = state.row_rules[(cells_before + cell) * blocks + block]
        cells_before += cell_of(state.cut_start[a + 1] - state.cut_start[a], shift) + 1
    count = 0
    for block in range(blocks):
        for a in range(attributes):
            steps[count] = block * attributes + a
            count += ruling[block, a] > 0
    for step in range(count):
        # What comes next is far away: ask for it in time.
        block, a = divmod(steps[step + 2], attributes)
        shift = np.int64(state.cell_shift[a])
        _fetch_starts(state, group[a] + ((2 * block) << shift), shift)
        block, a = divmod(steps[step + 1], attributes)
        shift = np.int64(state.cell_shift[a])
        _fetch_ends(state, group[a] + ((2 * block) << shift), own[a], shift)
        ahead = row[a] + np.int64(row_block[a * (blocks + 1) + block])
        stride = np.int64(ruling[block, a] & LINES_RULE)
        block, a = divmod(steps[step], attributes)
        begin = np.int64(row_block[a * (blocks + 1) + block])
        end = begin
        if ruling[block, a] & LINES_RULE:
            end = np.int64(row_block[a * (blocks + 1) + block + 1])
        for i in range(begin, end):
            prefetch(lines, ahead + (i - begin) * stride)
            place = np.int64(row_tile[i])
            line = and_lines(load_line(candidates, place), load_line(lines, row[a] + i))
            store_line(candidates, place, line)
        shift = np.int64(state.cell_shift[a])
        here = group[a] + ((2 * block) << shift)
        first_word = block * BLOCK_TILES * LINE_WORDS
        _take_out(state, here, own[a], shift, keys[0, a], words, first_word)


@kernel
def _fetch_starts(state: TileState, group: Int, shift: Int) -> None:
    """Ask for what says where the endpoints of a cell are."""
    prefetch(state.endpoint_start, group)
    prefetch(state.endpoint_start, group + (1 << shift))
    prefetch(state.endpoint_start, group + (2 << shift))


@kernel
def _fetch_ends(state: TileState, group: Int, own: Int, shift: Int) -> None:
    """Ask for the endpoints of a rank, and for boxes on the wrong side of it."""
    starts = state.endpoint_start
    lower, upper = starts[group + own], starts[group + own + (1 << shift)]
    prefetch(state.endpoint_key, lower)
    prefetch(state.endpoint_key, lower + 8)
    prefetch(state.endpoint_key, upper)
    prefetch(state.endpoint_key, upper + 8)
    for i in range(0, _BOXES_AHEAD, _BOXES_IN_LINE):
        prefetch(state.endpoint_box, lower + i)
        prefetch(state.endpoint_box, upper - i)


@kernel
def _take_out(
    state: TileState,
    group: Int,
    own: Int,
    shift: Int,
    key: Int,
    words: UInt64Array,
    first_word: Int,
) -> None:
    """Clear the boxes of a block of which an endpoint in the cell is on the wrong side.

    `group` has the lower ends of the cell's first rank, and the event's is the `own`-th.
    """
    starts, ends, owner = state.endpoint_start, state.endpoint_key, state.endpoint_box
    # Lower ends of the event's rank, if they are above it, and of all higher ranks.
    here, after = np.uint64(starts[group + own]), np.uint64(starts[group + own + 1])
    last = np.uint64(starts[group + (1 << shift)])
    for i in range(here, after):
        _clear(words, first_word, owner[i], ends[i] > key)
    for i in range(after, last):
        _clear(words, first_word, owner[i], True)
    group += 1 << shift
    here, after = np.uint64(starts[group + own]), np.uint64(starts[group + own + 1])
    for i in range(np.uint64(starts[group]), here):
        _clear(words, first_word, owner[i], True)
    for i in range(here, after):
        _clear(words, first_word, owner[i], ends[i] < key)


@kernel
def _take_out_rare(
    state: TileState, keys: Int64Array, skipped: BoolArray, words: UInt64Array
) -> None:
    """Clear the boxes of which a predicate without lines does not hold."""
    start, low, high = state.rare_start, state.rare_low, state.rare_high
    low_box, high_box = state.rare_low_box, state.rare_high_box
    for a in range(len(start) - 1):
        begin, end = start[a], start[a + 1]
        if begin == end or (len(skipped) > 0 and skipped[a]):
            continue
        key = keys[0, a]
        above = begin + np.searchsorted(low[begin:end], key, side="right")
        for i in range(np.uint64(above), np.uint64(end)):
            _clear(words, 0, low_box[i], True)
        below = begin + np.searchsorted(high[begin:end], key, side="left")
        for i in range(np.uint64(begin), np.uint64(below)):
            _clear(words, 0, high_box[i], True)


@inlined
def _clear(words: Any, first_word: Any, box: Any, fails: Any) -> None:
    word = np.uint64(first_word) + (np.uint64(box) >> np.uint64(6))
    words[word] &= ~(np.uint64(fails) << (np.uint64(box) & np.uint64(63)))
