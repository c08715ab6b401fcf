"""In which order a card takes tiles, and the boxes within a tile.

The 64 boxes of a warp should want the same attributes at near-by values: then few events of those
for which a tile is live are passed by all of its eight warps.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from boxmatch.arrays import (
    Float64Array,
    Int,
    Int16Array,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
)
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import RANK
from boxmatch.kernels.bit_lines import LINE_BITS
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.threads import each, split

_PART: Final = 64
"""Boxes of a warp."""

_TILES: Final = 16
_SAMPLED: Final = 64
"""Cells of an attribute by which it is estimated how many events a tile is live for."""

_NONE: Final = 0x7FFF


def busiest_first(state: TileState) -> Int32Array:
    """The tiles, those first that are live for the most cells, so that a batch ends with others."""
    tiles = len(state.unsettled)
    live = np.ones(tiles)
    top = state.top.reshape(-1, (tiles + 511) // 512 * 8)
    for first, last in pairwise([*state.top_row.tolist(), len(top)]):
        some = top[first : last : max(1, (last - first) // _SAMPLED)]
        bits = np.unpackbits(some.view(np.uint8), axis=1, count=tiles, bitorder="little")
        live *= bits.mean(axis=0)
    return np.argsort(-live, kind="stable").astype(np.int32)


def arrange_boxes(
    state: TileState, depth: UInt8Array, attribute: UInt16Array, threads: int | None = None
) -> UInt16Array:
    """The boxes of each tile in another order: counted from the tile's first, by place.

    `attribute` has those by which a tile is divided, the first `depth`.
    """
    ranks = np.diff(state.cut_start).astype(np.float64)
    boxes = state.box_start, state.box_attribute, state.box_ranks
    order = np.tile(np.arange(LINE_BITS, dtype=np.uint16), len(state.unsettled))
    each(
        lambda part: _arrange(*boxes, ranks, depth, attribute, *part, order),
        split(len(state.unsettled), threads, least=_TILES),
    )
    return order


@kernel
def _arrange(
    start: Int64Array,
    box_attribute: UInt16Array,
    box_ranks: UInt16Array,
    ranks: Float64Array,
    depth: UInt8Array,
    attribute: UInt16Array,
    first_tile: Int,
    last_tile: Int,
    order: UInt16Array,
) -> None:
    """Halve each tile, its halves, and so on, so that the parts are live for the fewest events."""
    slot_of = np.full(len(ranks), -1, np.int64)
    low = np.empty((attribute.shape[1], LINE_BITS), np.int16)
    high = np.empty((attribute.shape[1], LINE_BITS), np.int16)
    for tile in range(first_tile, last_tile):
        first = tile * LINE_BITS
        if first + LINE_BITS > len(start) - 1:
            continue
        slots = depth[tile]
        for s in range(slots):
            slot_of[attribute[tile, s]] = s
            low[s] = _NONE
            high[s] = -1
        for i in range(LINE_BITS):
            for p in range(start[first + i], start[first + i + 1]):
                s = slot_of[box_attribute[p]]
                if s >= 0:
                    low[s, i] = box_ranks[p, 0] & RANK
                    high[s, i] = box_ranks[p, 1] & RANK
        size = LINE_BITS
        while size > _PART:
            for begin in range(first, first + LINE_BITS, size):
                _halve(low, high, ranks, attribute[tile, :slots], order[begin : begin + size])
            size //= 2
        for s in range(slots):
            slot_of[attribute[tile, s]] = -1


@kernel
def _halve(
    low: Int16Array,
    high: Int16Array,
    ranks: Float64Array,
    attribute: UInt16Array,
    members: UInt16Array,
) -> None:
    """Order boxes by where they begin along one attribute, that which serves both halves best.

    Boxes without the attribute come last.
    """
    half = len(members) // 2
    best = 2.0
    chosen = members.copy()
    for s in range(len(attribute)):
        wanted = 0
        for i in members:
            wanted += high[s, i] >= 0
        if wanted < half:
            continue  # neither half would be without boxes that do not care
        tried = members[np.argsort(low[s][members], kind="mergesort")]
        live = _live_share(low, high, ranks, attribute, tried[:half])
        live += _live_share(low, high, ranks, attribute, tried[half:])
        if live < best:
            best = live
            chosen = tried
    members[:] = chosen


@kernel
def _live_share(
    low: Int16Array,
    high: Int16Array,
    ranks: Float64Array,
    attribute: UInt16Array,
    members: UInt16Array,
) -> float:
    """Which share of events boxes are live for, by the attributes that all of them want."""
    share = 1.0
    for s in range(len(attribute)):
        lowest, highest = np.int16(_NONE), np.int16(-1)
        for i in members:
            if high[s, i] < 0:
                highest = np.int16(-1)
                break
            lowest, highest = min(lowest, low[s, i]), max(highest, high[s, i])
        if highest >= 0:
            share *= (highest - lowest + 1) / ranks[attribute[s]]
    return share
