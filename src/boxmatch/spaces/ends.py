"""Where the ends of all regions of one side lie, dimension by dimension, in order.

The paper keeps them in two skip lists for each dimension, one of low and one of high ends. Here
they are in buckets: a dimension's axis is cut at quantiles of the ends, so that buckets are of like
size, and within one the order means nothing. So an end moves in the time that it takes to look
through a bucket, and the ends between two values are a run of buckets and parts of two more. Ends
at infinity are not kept.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.indexes.base import Int32Array
from boxmatch.indexes.lines import fetch
from boxmatch.indexes.parts import buckets
from boxmatch.indexes.parts.buckets import Buckets, try_put, with_room_for
from boxmatch.jit import kernel
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.boxes import Int64Array

UInt16Array = npt.NDArray[np.uint16]

_LEAST_CELLS, _MOST_CELLS = 8, 1_024
_ENDS_PER_CELL = 64
_BOXES_PER_LINE = 16  # of the cache


class Ends(NamedTuple):
    """Cell `c` of dimension `d` is bucket `d * cells + c`; cells begin at `edges[d, 1:]`."""

    edges: Int64Array
    low: Buckets
    high: Buckets


def make_ends(
    dimensions: int, dimension: Int64Array, slot: Int32Array, low: Int64Array, high: Int64Array
) -> Ends:
    """The ends of these constraints, in cells that suit them."""
    most = max(np.bincount(dimension, minlength=1).max(initial=0), 1)
    cells = int(np.clip(most // _ENDS_PER_CELL, _LEAST_CELLS, _MOST_CELLS))
    edges = np.full((dimensions, cells), LAST)
    most_cuts = 0
    has_low, has_high = low != FIRST, high != LAST
    for d in range(dimensions):
        here = dimension == d
        ends = np.concatenate([low[here & has_low], high[here & has_high]])
        if len(ends):
            ends.sort()
            # Where many ends are at one value there are fewer cells.
            cuts = np.unique(ends[np.arange(1, cells) * len(ends) // cells])
            edges[d, 1 : 1 + len(cuts)] = cuts
            most_cuts = max(most_cuts, len(cuts))
    edges[:, 0] = FIRST
    cells = 1 + most_cuts
    edges = np.ascontiguousarray(edges[:, :cells])
    lists = []
    for key, kept in ((low, has_low), (high, has_high)):
        bucket = _buckets_of(edges, dimension[kept], key[kept])
        lists.append(buckets.fill(dimensions * cells, bucket, slot[kept], key[kept], roomy=True))
    return Ends(edges, *lists)


def move_ends(
    ends: Ends,
    first: int,
    start: Int64Array,
    dimension: UInt16Array,
    old: tuple[Int64Array, Int64Array],
    new: tuple[Int64Array, Int64Array],
) -> Ends:
    """The ends after constraints have changed; what was given must not be used any more.

    Region `first` + i has the constraints `start[i] : start[i + 1]`. `old` and `new` are low and
    high ends; what is not bounded is `FIRST` or `LAST`, so this inserts and removes regions too.
    """
    done = 0
    while True:
        done = _move_ends(ends, first, start, dimension, *old, *new, done)
        if done == 2 * len(dimension):
            return ends
        place, is_high = divmod(done, 2)
        here = slice(place, place + 1)
        wanted = dimension[here].astype(np.int64)
        bucket = int(_buckets_of(ends.edges, wanted, new[is_high][here])[0])
        if is_high:
            ends = ends._replace(high=with_room_for(ends.high, bucket, keys=True))
        else:
            ends = ends._replace(low=with_room_for(ends.low, bucket, keys=True))


@kernel
def _move_ends(
    ends: Ends,
    first: int,
    start: Int64Array,
    dimension: UInt16Array,
    old_low: Int64Array,
    old_high: Int64Array,
    new_low: Int64Array,
    new_high: Int64Array,
    done: int,
) -> int:
    """Move ends from number `done` on, low and high by turns; return where pool was wanting."""
    edges, low, high = ends
    region = 0
    for i in range(done >> 1, len(dimension)):
        # To look for an end takes less time than to wait for the bucket to look in.
        _fetch_bucket(edges, low, dimension[i], old_low[i])
        _fetch_bucket(edges, high, dimension[i], old_high[i])
    for step in range(done, 2 * len(dimension)):
        i = step >> 1
        while start[region + 1] <= i:
            region += 1
        slot, d = first + region, dimension[i]
        if step & 1:
            if not _move_end(edges, high, slot, d, old_high[i], new_high[i], LAST):
                return step
        elif not _move_end(edges, low, slot, d, old_low[i], new_low[i], FIRST):
            return step
    return 2 * len(dimension)


@kernel
def _fetch_bucket(edges: Int64Array, pool: Buckets, d: int, key: int) -> None:
    bucket = d * edges.shape[1] + cell_of(edges, d, key)
    first = pool.start[bucket]
    for at in range(first, first + pool.size[bucket], _BOXES_PER_LINE):
        fetch(pool.box, at)


@kernel
def _move_end(
    edges: Int64Array, pool: Buckets, slot: int, d: int, old: int, new: int, unbounded: int
) -> bool:
    if old == new:
        return True
    cells = edges.shape[1]
    before = d * cells + cell_of(edges, d, old)
    after = d * cells + cell_of(edges, d, new)
    if old != unbounded and new != unbounded and before == after:
        pool.key[_place(pool, before, slot)] = new
        return True
    if new != unbounded and not try_put(pool, after, slot, new):
        return False
    if old != unbounded:
        last = pool.start[before] + pool.size[before] - 1
        at = _place(pool, before, slot)
        pool.box[at], pool.key[at] = pool.box[last], pool.key[last]
        pool.size[before] -= 1
    return True


@kernel
def _place(pool: Buckets, bucket: int, slot: int) -> int:
    """Where a region is in a bucket that it is in."""
    at: int = pool.start[bucket]
    while pool.box[at] != slot:
        at += 1
    return at


@kernel
def cell_of(edges: Int64Array, d: int, key: int) -> int:
    """The last cell that begins at the key or before it."""
    low, high = 1, edges.shape[1]
    while low < high:
        middle = (low + high) >> 1
        if edges[d, middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


@kernel
def _buckets_of(edges: Int64Array, dimension: Int64Array, key: Int64Array) -> Int64Array:
    found = np.empty(len(dimension), np.int64)
    for i in range(len(dimension)):
        found[i] = dimension[i] * edges.shape[1] + cell_of(edges, dimension[i], key[i])
    return found
