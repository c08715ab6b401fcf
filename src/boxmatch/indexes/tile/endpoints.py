"""The endpoints of predicates, cell by cell: what settles every doubt that lines leave, in rows.

Tiles are taken in blocks whose candidates stay in the second-level cache. Within a cell and a
block, lower ends lie by rank, and then upper ends. So for one event, those on the wrong side of its
rank lie together, and only those of its own rank are compared with its key.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from boxmatch.indexes.tile.layout import BLOCK_TILES, RankedPredicates
from boxmatch.indexes.tile.ranks import RANK, cell_of
from boxmatch.indexes.tile.slots import Rows, TileSlots
from boxmatch.kernels.bit_lines import LINE_BITS, and_not_line, any_bit, load_line
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.large_pages import large_zeros
from boxmatch.kernels.threads import each, split
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

LINES_RULE: Final = 1
"""What rules boxes out: lines in which they lack their bits."""
ENDPOINTS_RULE: Final = 2
"""Endpoints in the cell."""

BLOCK_BOXES: Final = BLOCK_TILES * LINE_BITS


class Endpoints(NamedTuple):
    """See `TileState`."""

    base: Int64Array
    start: Int64Array
    key: Int64Array
    box: Int32Array


def no_endpoints() -> Endpoints:
    keys = np.zeros(0, np.int64)
    return Endpoints(keys, np.zeros(1, np.int64), keys, np.zeros(0, np.int32))


def collect_endpoints(
    boxes: Boxes, predicates: RankedPredicates, slots: TileSlots, threads: int | None
) -> Endpoints:
    """The endpoints of all predicates that have lines."""
    tiles = len(slots.start) - 1
    blocks = (tiles + BLOCK_TILES - 1) // BLOCK_TILES
    groups = slots.cell_count * blocks * 2 << slots.cell_shift
    base = np.cumsum(groups) - groups
    # Counted at the next place but one, so that filling in moves them to where they begin.
    start = large_zeros((int(groups.sum()) + 2,), np.int64)
    ruled = predicates, slots, base, blocks
    bounds = boxes.low, boxes.high
    # Groups of different blocks are counted by different threads.
    parts = split(tiles, threads, least=BLOCK_TILES, multiple=BLOCK_TILES)
    each(lambda part: _count(*ruled, bounds, *part, start), parts)
    np.cumsum(start, out=start)
    keys = large_zeros((int(start[-1]),), np.int64)
    owner = large_zeros((int(start[-1]),), np.int32)
    each(lambda part: _fill(*ruled, bounds, *part, start, keys, owner), parts)
    return Endpoints(base, start[:-1], keys, owner)


class RareEndpoints(NamedTuple):
    """Those of predicates without lines, of each attribute in the order of keys."""

    start: Int64Array
    low: Int64Array
    low_box: Int32Array
    high: Int64Array
    high_box: Int32Array


def no_rare_endpoints() -> RareEndpoints:
    keys, owner = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return RareEndpoints(keys, keys, owner, keys, owner)


def collect_rare_endpoints(
    boxes: Boxes, predicates: RankedPredicates, slots: TileSlots
) -> RareEndpoints:
    """The endpoints of the predicates that have no lines."""
    rare = np.ones(len(boxes.attribute), bool)
    _find_lined(predicates, slots, rare)
    places = np.flatnonzero(rare)
    attribute = boxes.attribute[places]
    box = np.searchsorted(boxes.start, places, side="right") - 1
    start = np.concatenate([[0], np.cumsum(np.bincount(attribute, minlength=boxes.dimensions))])
    low, high = boxes.low[places], boxes.high[places]
    by_low, by_high = np.lexsort((low, attribute)), np.lexsort((high, attribute))
    owner = box.astype(np.int32)
    return RareEndpoints(start, low[by_low], owner[by_low], high[by_high], owner[by_high])


@kernel
def _find_lined(predicates: RankedPredicates, slots: TileSlots, rare: BoolArray) -> None:
    """Unmark the predicates that have lines."""
    lined = np.zeros(len(slots.cell_count), np.bool_)
    for tile in range(len(slots.start) - 1):
        begin, end = _enter_tile(slots, predicates, tile, lined)
        for p in range(begin, end):
            rare[p] = not lined[predicates.attribute[p]]


@kernel
def _group(base: Int, cell: Int, rank: Int, shift: Int, block: Int, blocks: Int) -> Int:
    """The group of lower ends of a rank, given the cell that it is in; that of upper ends is a cell
    of ranks further.
    """
    # Rank 0, "absent", is alone in its cell, and the others begin with rank 1.
    within = (np.int64(rank) - 1) & ((1 << shift) - 1)
    return base + (((cell * blocks + block) * 2) << shift) + within


@kernel
def _count(
    predicates: RankedPredicates,
    slots: TileSlots,
    base: Int64Array,
    blocks: Int,
    bounds: tuple[Int64Array, Int64Array],
    first_tile: Int,
    last_tile: Int,
    start: Int64Array,
) -> None:
    """Count the endpoints of some tiles by group, two places further."""
    low, high = bounds
    lined = np.zeros(len(base), np.bool_)
    for tile in range(first_tile, last_tile):
        block = tile // BLOCK_TILES
        begin, end = _enter_tile(slots, predicates, tile, lined)
        for p in range(begin, end):
            a = predicates.attribute[p]
            if not lined[a]:
                continue
            shift = np.int64(slots.cell_shift[a])
            if low[p] != ABSENT:
                rank = np.int64(predicates.low[p] & RANK)
                group = _group(base[a], cell_of(rank, shift), rank, shift, block, blocks)
                start[group + 2] += 1
            if high[p] != LAST:
                rank = np.int64(predicates.high[p] & RANK)
                group = _group(base[a], cell_of(rank, shift), rank, shift, block, blocks)
                start[group + (1 << shift) + 2] += 1


@kernel
def _fill(
    predicates: RankedPredicates,
    slots: TileSlots,
    base: Int64Array,
    blocks: Int,
    bounds: tuple[Int64Array, Int64Array],
    first_tile: Int,
    last_tile: Int,
    start: Int64Array,
    keys: Int64Array,
    owner: Int32Array,
) -> None:
    """Write the endpoints of some tiles, and move `start` to where each group begins."""
    low, high = bounds
    lined = np.zeros(len(base), np.bool_)
    for tile in range(first_tile, last_tile):
        block = tile // BLOCK_TILES
        _enter_tile(slots, predicates, tile, lined)
        first_box = tile * LINE_BITS
        last_box = min(len(predicates.start) - 1, first_box + LINE_BITS)
        for box in range(first_box, last_box):
            for p in range(predicates.start[box], predicates.start[box + 1]):
                a = predicates.attribute[p]
                if not lined[a]:
                    continue
                shift = np.int64(slots.cell_shift[a])
                if low[p] != ABSENT:
                    rank = np.int64(predicates.low[p] & RANK)
                    group = _group(base[a], cell_of(rank, shift), rank, shift, block, blocks)
                    at = start[group + 1]
                    keys[at], owner[at] = low[p], box - block * BLOCK_BOXES
                    start[group + 1] = at + 1
                if high[p] != LAST:
                    rank = np.int64(predicates.high[p] & RANK)
                    group = _group(base[a], cell_of(rank, shift), rank, shift, block, blocks)
                    group += 1 << shift
                    at = start[group + 1]
                    keys[at], owner[at] = high[p], box - block * BLOCK_BOXES
                    start[group + 1] = at + 1


@kernel
def _enter_tile(
    slots: TileSlots, predicates: RankedPredicates, tile: Int, lined: BoolArray
) -> tuple[Int, Int]:
    """Mark the attributes that have lines in a tile; returns where its predicates lie."""
    lined[:] = False
    for s in range(slots.start[tile], slots.start[tile + 1]):
        lined[slots.attribute[s]] = True
    last = min(len(predicates.start) - 1, (tile + 1) * LINE_BITS)
    return np.int64(predicates.start[tile * LINE_BITS]), np.int64(predicates.start[last])


@kernel
def find_ruling(
    slots: TileSlots,
    rows: Rows,
    endpoints: Endpoints,
    lines: BitLines,
    filled: BitLines,
    rules: UInt8Array,
) -> None:
    """Set what rules boxes out, by cell and block of tiles."""
    blocks = len(rows.block) // len(slots.cell_count) - 1
    at = 0
    for a in range(len(slots.cell_count)):
        begin = np.int64(rows.start[a])
        step = np.int64(rows.start[a + 1]) - begin
        ranks = np.int64(2) << np.int64(slots.cell_shift[a])
        group = endpoints.base[a]
        for cell in range(slots.cell_count[a]):
            row = rows.line[a] + cell * step - begin
            for block in range(blocks):
                if endpoints.start[group] < endpoints.start[group + ranks]:
                    rules[at] |= ENDPOINTS_RULE
                first = np.int64(rows.block[a * (blocks + 1) + block])
                for i in range(first, np.int64(rows.block[a * (blocks + 1) + block + 1])):
                    there = load_line(filled, np.int64(rows.tile[i]))
                    if any_bit(and_not_line(there, load_line(lines, row + i))):
                        rules[at] |= LINES_RULE
                        break
                at += 1
                group += ranks
