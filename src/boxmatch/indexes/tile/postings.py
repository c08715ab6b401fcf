"""Postings: which boxes ask for exactly a key, on axes where points have sets of keys.

The cells of a slot are the same in all tiles. Where an axis has thousands of keys that boxes ask
for, a tile that is clustered by it lies within one cell, and lines tell none of its boxes apart. A
point with one key there has one such tile to check; a point with many keys has many. Such tiles are
left out of the search by lines, and their boxes are looked up by key instead. Tiles that are
clustered by another axis stay: that one rules most of them out.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
    UInt16Array,
)
from boxmatch.indexes.tile.layout import TileState
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, filled_lines
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.packing import packing
from boxmatch.model.box_kernels import count_attributes

_LEAST_KEYS = 16
"""Distinct keys in a tile from which on looking its boxes up is cheaper than passing its lines."""


class ListPlan(NamedTuple):
    """How to search for points that have sets of keys on certain axes.

    `list_of[a]` is the place of axis `a` among them, or -1; -1 too if no box constrains it.
    The boxes of the tiles in `posted` are found by key: entry `i` has those in
    `entry_start[i]:entry_start[i + 1]` of `entry_box`, which ask for `entry_key[i]` on the axis of
    place `entry_place[i]`. They are `entry_certain` if they ask for nothing else. `table` is a hash
    table of entries, with -1 where it is empty.
    """

    list_of: Int32Array
    posted: BitLines
    table: Int32Array
    entry_key: Int64Array
    entry_place: UInt16Array
    entry_certain: BoolArray
    entry_start: Int32Array
    entry_box: Int32Array


pack_plan, unpack_plan = packing(ListPlan)


def plan_lists(state: TileState, axes: Int32Array) -> ListPlan | None:
    """The plan for points with sets of keys on these axes; None if no box constrains them."""
    dimensions = len(state.cell_shift)
    used = count_attributes(state.box_attribute, dimensions)[axes] > 0
    if not used.any():
        return None
    list_of = np.full(dimensions, -1, np.int32)
    list_of[axes[used]] = np.flatnonzero(used)
    equal = [_equalities(state, axis) if u else _NONE for axis, u in zip(axes, used, strict=True)]
    distinct = np.array([_distinct_keys(state, *pairs) for pairs in equal])
    chosen = np.argmax(distinct, axis=0)
    posted = _worth_posting(state, distinct.max(axis=0))
    if posted.any():
        posted &= _best_axis(state) == axes[chosen]
    keys, places, boxes = [], [], []
    for place, (key, box) in enumerate(equal):
        tile = box // LINE_BITS
        kept = posted[tile] & (chosen[tile] == place)
        keys.append(key[kept])
        boxes.append(box[kept])
        places.append(np.full(len(boxes[-1]), place, np.uint16))
    marks = np.packbits(posted, bitorder="little")
    lines = np.zeros_like(filled_lines(len(posted)))
    lines.view(np.uint8).reshape(-1)[: len(marks)] = marks
    return ListPlan(list_of, lines, *_entries(state, *map(np.concatenate, (keys, places, boxes))))


_NONE = np.zeros(0, np.int64), np.zeros(0, np.int64)


def _equalities(state: TileState, axis: int) -> tuple[Int64Array, Int64Array]:
    """The keys that boxes ask for on an axis, and the boxes, in ascending order."""
    at = np.flatnonzero((state.box_attribute == axis) & (state.box_low == state.box_high))
    return state.box_low[at], np.searchsorted(state.box_start, at, side="right") - 1


def _distinct_keys(state: TileState, key: Int64Array, box: Int64Array) -> Int64Array:
    """How many keys the boxes of each tile ask for; 0 if one of them does not ask for any."""
    tile = box // LINE_BITS
    tiles = len(state.unsettled)
    complete = np.bincount(tile, minlength=tiles) == _sizes(state)
    kept = complete[tile]
    order = np.lexsort((key[kept], tile[kept]))
    key, tile = key[kept][order], tile[kept][order]
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (tile[1:] != tile[:-1])
    return np.bincount(tile[new], minlength=tiles)


def _sizes(state: TileState) -> Int64Array:
    """Boxes per tile."""
    sizes = np.full(len(state.unsettled), LINE_BITS)
    sizes[-1:] = len(state.box_start) - 1 - (len(sizes) - 1) * LINE_BITS
    return sizes


def _worth_posting(state: TileState, distinct: Int64Array) -> BoolArray:
    """Tiles that lines cannot settle and whose boxes are few per key, or ask for nothing else."""
    first = np.arange(len(distinct)) * LINE_BITS
    predicates = state.box_start[first + _sizes(state)] - state.box_start[first]
    alone = predicates == _sizes(state)
    return (distinct >= np.where(alone, 1, _LEAST_KEYS)) & state.unsettled.any(axis=1)


def _best_axis(state: TileState) -> Int64Array:
    """The axis by which the directory rules each tile out most often: that of its cluster."""
    tiles = len(state.unsettled)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    rows = state.top.reshape(-1, width * LINE_WORDS)
    ends = np.append(state.top_row[1:], len(rows))
    best = np.full(tiles, -1)
    least = np.ones(tiles)
    for axis, first, end in zip(state.top_attribute, state.top_row, ends, strict=True):
        live = np.unpackbits(rows[first:end].view(np.uint8), axis=1, bitorder="little")
        share = live[:, :tiles].mean(axis=0)
        best[share < least] = axis
        least = np.minimum(least, share)
    return best


def _entries(
    state: TileState, key: Int64Array, place: UInt16Array, box: Int64Array
) -> tuple[Int32Array, Int64Array, UInt16Array, BoolArray, Int32Array, Int32Array]:
    order = np.lexsort((box, key, place))
    key, place, box = key[order], place[order], box[order]
    new = np.ones(len(key), bool)
    new[1:] = (key[1:] != key[:-1]) | (place[1:] != place[:-1])
    first = np.flatnonzero(new)
    start = np.append(first, len(key)).astype(np.int32)
    others = np.append(0, np.cumsum(state.box_start[box + 1] - state.box_start[box] > 1))
    certain = others[start[1:]] == others[start[:-1]]
    table = np.full(1 << int(2 * len(first) + 1).bit_length(), -1, np.int32)
    _fill_table(table, key[first], place[first])
    return table, key[first], place[first], certain, start, box.astype(np.int32)


@kernel
def _hash(key: Int, place: Int, size: Int) -> Int:
    """Where in a table of `size`, a power of two, to look first."""
    mixed = (np.uint64(key) + np.uint64(place)) * np.uint64(0x9E3779B97F4A7C15)
    return np.int64((mixed ^ (mixed >> np.uint64(29))) >> np.uint64(20)) & (size - 1)


@kernel
def _fill_table(table: Int32Array, key: Int64Array, place: UInt16Array) -> None:
    size = np.int64(len(table))
    for entry in range(len(key)):
        at = _hash(key[entry], place[entry], size)
        while table[at] >= 0:
            at = (at + 1) & (size - 1)
        table[at] = entry


@kernel
def find_entry(plan: ListPlan, key: Int, place: Int) -> Int:
    """The entry of a key, or -1."""
    size = np.int64(len(plan.table))
    at = _hash(key, place, size)
    while True:
        entry = np.int64(plan.table[at])
        if entry < 0 or (plan.entry_key[entry] == key and plan.entry_place[entry] == place):
            return entry
        at = (at + 1) & (size - 1)
