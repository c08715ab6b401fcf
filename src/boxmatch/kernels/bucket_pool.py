"""Buckets: many lists of boxes in one pool, filled in bulk, then changed item by item.

A full bucket moves to the end of the pool, with twice the room. When the pool is used up, all
buckets are laid out afresh, each with some room to grow.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.kernels.jit import inlined, kernel
from boxmatch.kernels.large_pages import large_zeros

NO_KEYS = np.zeros(0, np.int64)


class Buckets(NamedTuple):
    """Bucket `b` holds `box[start[b] : start[b] + size[b]]`, and as many keys if it has any.

    `room` is how many items fit before a bucket must move; `used[0]` is where the pool ends.
    """

    start: Int64Array
    size: Int64Array
    room: Int64Array
    used: Int64Array
    box: Int32Array
    key: Int64Array


def allot(room: Int64Array, *, keys: bool, spare: int = 0) -> Buckets:
    """Empty buckets with the given room each, and `spare` items of pool behind them."""
    start = np.zeros(len(room), np.int64)
    np.cumsum(room[:-1], out=start[1:])
    used = int(room.sum())
    box = large_zeros((used + spare,), np.int32)
    key = large_zeros((used + spare if keys else 0,), np.int64)
    return Buckets(start, np.zeros_like(room), room.copy(), np.array([used]), box, key)


def fill(
    count: int, bucket: Int64Array, box: Int32Array, key: Int64Array | None, *, roomy: bool = False
) -> Buckets:
    """`count` buckets with item `i` in bucket `bucket[i]`, in order.

    If they are `roomy`, the first changes need not move them, nor the next ones all of them.
    """
    room = np.bincount(bucket, minlength=count)
    if roomy:
        room += room // 8 + 2
    spare = int(room.sum()) // 8 if roomy else 0
    buckets = allot(room, keys=key is not None, spare=spare)
    put_all(buckets, bucket, box, NO_KEYS if key is None else key)
    return buckets


def append(
    buckets: Buckets, bucket: Int64Array, box: Int32Array, key: Int64Array | None
) -> Buckets:
    """Put each item into its bucket. What was given must not be used any more."""
    keys = NO_KEYS if key is None else key
    done = 0
    while True:
        done = _append(buckets, bucket, box, keys, done)
        if done == len(bucket):
            return buckets
        # Whether there are keys does not show in a pool without room.
        buckets = with_room_for(buckets, int(bucket[done]), keys=key is not None)


def extend(buckets: Buckets, count: int) -> Buckets:
    """The buckets, followed by empty ones if there are fewer than `count`."""
    if count <= len(buckets.size):
        return buckets
    empty = np.zeros(count - len(buckets.size), np.int64)
    start, size, room = (np.concatenate([column, empty]) for column in buckets[:3])
    return buckets._replace(start=start, size=size, room=room)


def with_room_for(buckets: Buckets, bucket: int, *, keys: bool) -> Buckets:
    """The buckets laid out afresh, with room for one of them to double, whatever its size."""
    size = buckets.size
    spare = 2 * int(size[bucket]) + 64
    total = int(size.sum())
    fresh = allot(size + size // 4 + 2, keys=keys, spare=total // 4 + spare)
    _move_all(buckets, fresh)
    return fresh


@inlined
def put(buckets: Buckets, bucket: int, box: int, key: int) -> None:
    """Put one item into a bucket that has room."""
    at = buckets.start[bucket] + buckets.size[bucket]
    buckets.box[at] = box
    if len(buckets.key) > 0:
        buckets.key[at] = key
    buckets.size[bucket] += 1


@kernel
def put_all(buckets: Buckets, bucket: Int64Array, box: Int32Array, key: Int64Array) -> None:
    """Put each item into its bucket, which has room."""
    for i in range(len(bucket)):
        put(buckets, bucket[i], box[i], key[i] if len(key) > 0 else 0)


@kernel
def _append(
    buckets: Buckets, bucket: Int64Array, box: Int32Array, key: Int64Array, done: int
) -> int:
    """Put items from `done` on; return where it had to stop for want of pool."""
    for i in range(done, len(bucket)):
        if not try_put(buckets, bucket[i], box[i], key[i] if len(key) > 0 else 0):
            return i
    return len(bucket)


@inlined
def try_put(buckets: Buckets, bucket: int, box: int, key: int) -> bool:
    """Put one item into a bucket, which moves if it is full; False for want of pool."""
    if buckets.size[bucket] == buckets.room[bucket]:
        room = 2 * buckets.room[bucket] + 2
        start = buckets.used[0]
        if start + room > len(buckets.box):
            return False
        _move(buckets, bucket, buckets, start)
        buckets.start[bucket] = start
        buckets.room[bucket] = room
        buckets.used[0] = start + room
    put(buckets, bucket, box, key)
    return True


@kernel
def _move(source: Buckets, bucket: int, target: Buckets, start: int) -> None:
    for i in range(source.size[bucket]):
        target.box[start + i] = source.box[source.start[bucket] + i]
        if len(source.key) > 0:
            target.key[start + i] = source.key[source.start[bucket] + i]


@kernel
def _move_all(source: Buckets, target: Buckets) -> None:
    for b in range(len(source.size)):
        _move(source, b, target, target.start[b])
        target.size[b] = source.size[b]
