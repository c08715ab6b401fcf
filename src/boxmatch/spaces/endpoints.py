"""Where the endpoints of all regions of one side lie, dimension by dimension, in order.

The paper keeps them in two skip lists for each dimension, one of low and one of high endpoints.
Here they are in buckets: a dimension's axis is cut into cells at quantiles of the endpoints, and a
cell has a few buckets, by the number of the region, so that they are small however many endpoints
are at one value. Within a bucket there is no order. To move an endpoint takes a scan of one bucket,
and the endpoints between two values are a run of cells and parts of two more. Endpoints at infinity
are not kept. Where all regions are points, as publications often are, low and high endpoints are
the same and kept once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, Int64Table, UInt16Array
from boxmatch.kernels import bucket_pool as buckets
from boxmatch.kernels.bucket_pool import Buckets, try_put, with_room_for
from boxmatch.kernels.jit import inlined, kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.axis import FIRST, LAST

_LEAST_CELLS, _MOST_CELLS = 8, 1_024
_ENDS_PER_CELL = 32
_ENDS_PER_BUCKET = 64
_BOXES_PER_LINE = 16  # of the cache


class EndpointCells(NamedTuple):
    """Cells of dimension `d` begin at `edges[d, 1:]`.

    Cell `c` has the buckets from `(d * cells + c) * shares` on.
    """

    edges: Int64Table
    shares: int
    points: bool
    """Every low end is a high end too, so that `low` and `high` are the same."""
    low: Buckets
    high: Buckets


def make_endpoints(
    dimensions: int,
    dimension: Int64Array,
    slot: Int32Array,
    low: Int64Array,
    high: Int64Array,
    *,
    points: bool,
) -> EndpointCells:
    """The endpoints of these constraints, in cells that fit them."""
    most = max(np.bincount(dimension, minlength=1).max(initial=0), 1)
    cells = int(np.clip(most // _ENDS_PER_CELL, _LEAST_CELLS, _MOST_CELLS))
    edges = np.full((dimensions, cells), LAST)
    most_cuts = 0
    has_low, has_high = low != FIRST, high != LAST
    for d in range(dimensions):
        here = dimension == d
        endpoints = np.concatenate([low[here & has_low], high[here & has_high]])
        if len(endpoints):
            endpoints.sort()
            # Where many endpoints are at one value there are fewer cells.
            cuts = np.unique(endpoints[np.arange(1, cells) * len(endpoints) // cells])
            edges[d, 1 : 1 + len(cuts)] = cuts
            most_cuts = max(most_cuts, len(cuts))
    edges[:, 0] = FIRST
    cells = 1 + most_cuts
    edges = np.ascontiguousarray(edges[:, :cells])
    # A power of two, which numbers are quickly divided by.
    shares = 1 << max(int(np.log2(most / (cells * _ENDS_PER_BUCKET) + 1)), 0)
    lists = []
    for key, kept in ((low, has_low), (high, has_high))[: 1 if points else 2]:
        bucket = _buckets_of(edges, shares, dimension[kept], slot[kept], key[kept])
        count = dimensions * cells * shares
        lists.append(buckets.fill(count, bucket, slot[kept], key[kept], roomy=True))
    return EndpointCells(edges, shares, points, lists[0], lists[-1])


@kernel
def are_points(low: Int64Array, high: Int64Array) -> bool:
    """Whether all endpoints can be kept once."""
    others = 0
    for i in range(len(low)):
        # The lowest of all keys is no low end, though it is a high end.
        others += (low[i] != high[i]) | (low[i] == FIRST)
    return others == 0


def move_endpoints(
    endpoints: EndpointCells,
    first: int,
    start: Int64Array,
    dimension: UInt16Array,
    old: tuple[Int64Array, Int64Array],
    new: tuple[Int64Array, Int64Array],
    done: int = 0,
) -> EndpointCells:
    """The endpoints after constraints have changed; those that were given must not be used again.

    Region `first` + i has the constraints `start[i] : start[i + 1]`. `old` and `new` are low and
    high endpoints; what is not bounded is `FIRST` or `LAST`, so this inserts and removes regions
    too. The first `done` endpoints have moved already.
    """
    while True:
        done = try_move(endpoints, first, start, dimension, *old, *new, done)
        if done == 2 * len(dimension):
            return endpoints
        is_high, place = divmod(done, len(dimension))
        slot = first + int(np.searchsorted(start, place, side="right")) - 1
        bucket = bucket_of(
            endpoints.edges, endpoints.shares, int(dimension[place]), slot, int(new[is_high][place])
        )
        full = endpoints.high if is_high else endpoints.low
        roomy = with_room_for(full, bucket, keys=True)
        if is_high or endpoints.points:
            endpoints = endpoints._replace(high=roomy)
        if not is_high:
            endpoints = endpoints._replace(low=roomy)


@kernel
def try_move(
    endpoints: EndpointCells,
    first: int,
    start: Int64Array,
    dimension: UInt16Array,
    old_low: Int64Array,
    old_high: Int64Array,
    new_low: Int64Array,
    new_high: Int64Array,
    done: Int,
) -> int:
    """Move all low endpoints, then all high ones, from number `done` on; return how many moved.

    It stops where the pool has no room. Points must go to points where they are kept as such.
    """
    count = len(dimension)
    where = endpoints.edges, endpoints.shares
    # Numbers that are literals would have it compiled twice.
    first_key, last_key = np.int64(FIRST), np.int64(LAST)
    if done < count:
        done = _move(
            endpoints.low, where, first, start, dimension, old_low, new_low, first_key, done
        )
        if done < count:
            return done
    if endpoints.points:
        return 2 * count
    done -= count
    done = _move(endpoints.high, where, first, start, dimension, old_high, new_high, last_key, done)
    return count + done


@kernel
def _move(
    pool: Buckets,
    where: tuple[Int64Array, int],
    first: int,
    start: Int64Array,
    dimension: UInt16Array,
    old: Int64Array,
    new: Int64Array,
    unbounded: Int,
    done: Int,
) -> int:
    """The same for low or for high endpoints."""
    edges, shares = where
    before = np.empty(len(dimension), np.int64)
    after = np.empty(len(dimension), np.int64)
    # Most of the time goes into waiting for memory, so everything is prefetched before any of it
    # is used: where the buckets are, then what is in them.
    for region in range(len(start) - 1):
        for i in range(start[region], start[region + 1]):
            before[i] = bucket_of(edges, shares, dimension[i], first + region, old[i])
            after[i] = bucket_of(edges, shares, dimension[i], first + region, new[i])
            for bucket in (before[i], after[i]):
                prefetch(pool.start, bucket)
                prefetch(pool.size, bucket)
                prefetch(pool.room, bucket)
    for i in range(done, len(dimension)):
        _prefetch_bucket(pool, before[i])
        _prefetch_end(pool, after[i])
    place = np.empty(len(dimension), np.int64)
    for region in range(len(start) - 1):
        # One by one, since a region may move what is in the bucket of another.
        begin, end = max(start[region], done), start[region + 1]
        for i in range(begin, end):
            place[i] = _place(pool, before[i], first + region)
        for i in range(begin, end):
            if not _move_end(
                pool, first + region, before[i], place[i], after[i], old[i], new[i], unbounded
            ):
                return i
    return len(dimension)


@inlined
def _prefetch_bucket(pool: Buckets, bucket: int) -> None:
    first = pool.start[bucket]
    for at in range(first, first + pool.size[bucket], _BOXES_PER_LINE):
        prefetch(pool.box, at)
    prefetch(pool.key, first + pool.size[bucket] - 1)


@inlined
def _prefetch_end(pool: Buckets, bucket: int) -> None:
    last = pool.start[bucket] + pool.size[bucket]
    prefetch(pool.box, last)
    prefetch(pool.key, last)


@inlined
def _move_end(
    pool: Buckets,
    slot: int,
    before: int,
    at: int,
    after: int,
    old: int,
    new: int,
    unbounded: Int,
) -> bool:
    """Move an end that is at a place of a bucket, if it is anywhere."""
    if old == new:
        return True
    if old != unbounded and new != unbounded and before == after:
        pool.key[at] = new
        return True
    if new != unbounded and not try_put(pool, after, slot, new):
        return False
    if old != unbounded:
        last = pool.start[before] + pool.size[before] - 1
        pool.box[at], pool.key[at] = pool.box[last], pool.key[last]
        pool.size[before] -= 1
    return True


@inlined
def _place(pool: Buckets, bucket: int, slot: int) -> int:
    """Where a region is in a bucket, if it is in it; prefetches its key."""
    first = pool.start[bucket]
    found, wanted = 0, np.int32(slot)
    boxes = pool.box[first : first + pool.size[bucket]]
    # All of them, since many are compared at once.
    for at in range(len(boxes)):
        if boxes[at] == wanted:
            found = at
    place: int = first + found
    prefetch(pool.key, place)
    return place


@kernel
def bucket_of(edges: Int64Array, shares: int, d: int, slot: int, key: int) -> int:
    """The bucket of an end of a region."""
    bucket: int = (d * edges.shape[1] + cell_of(edges, d, key)) * shares + (slot & (shares - 1))
    return bucket


@kernel
def cell_of(edges: Int64Array, d: int, key: int) -> int:
    """The last cell that begins at the key or before it."""
    cell, left = 0, edges.shape[1]
    while left > 1:
        # Without a branch, which could not be predicted.
        half = left >> 1
        cell += half * (edges[d, cell + half] <= key)
        left -= half
    return cell


@kernel
def _buckets_of(
    edges: Int64Array, shares: int, dimension: Int64Array, slot: Int32Array, key: Int64Array
) -> Int64Array:
    found = np.empty(len(dimension), np.int64)
    for i in range(len(dimension)):
        found[i] = bucket_of(edges, shares, dimension[i], slot[i], key[i])
    return found
