"""Buckets for boxes that take many items each: listed, counted and placed portion by portion.

A predicate may stand in a dozen buckets, a box in thousands. Their items are listed for a few of
them at a time, so that the lists stay small; to fill buckets they are listed twice, first for
their number. Boxes come in the order of their positions and go without disturbing it: the boxes
of a bucket ascend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.kernels import bucket_pool as pool
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes

PORTION = 1 << 18
"""About how many items are listed at a time."""


class Items(NamedTuple):
    """Box `box[i]` belongs into bucket `bucket[i]`, with a key if the buckets have any.

    A bucket has a box once at most.
    """

    bucket: Int64Array
    box: Int32Array
    key: Int64Array | None


Listing = Callable[[], Iterable[Items]]
"""Lists all items, portion by portion; those of one bucket by ascending boxes."""


def listed(bucket: Int64Array, box: Int32Array, key: Int64Array | None = None) -> Listing:
    """All items at once."""
    items = Items(bucket, box, key)
    return lambda: [items]


class OwnedPredicates(NamedTuple):
    """Predicates on their own, with the position of the box that each belongs to."""

    attribute: npt.NDArray[np.uint16]
    low: Int64Array
    high: Int64Array
    box: Int32Array


def no_items(count: int) -> Buckets:
    """`count` empty buckets, to which `insert_items` gives the room that they need."""
    return pool.allot(np.zeros(count, np.int64), keys=False)


def insert_items(buckets: Buckets, listing: Listing) -> Buckets:
    """The buckets with items of later boxes as well. What was given must not be used any more."""
    if buckets.used[0] == 0:
        keys = False
        room = np.zeros(len(buckets.room), np.int64)
        for items in listing():
            _count_items(room, items.bucket)
            keys = items.key is not None
        buckets = pool.allot(room, keys=keys)
        for bucket, box, key in listing():
            pool.put_all(buckets, bucket, box, pool.NO_KEYS if key is None else key)
        return buckets
    for items in listing():
        buckets = pool.append(buckets, *items)
    return buckets


def discard_items(buckets: Buckets, listing: Listing) -> None:
    """Take boxes out of their buckets; whether they ascend does not matter here."""
    for bucket, box, _ in listing():
        order = np.lexsort((box, bucket))
        _discard_ascending(buckets, bucket[order], box[order])


def owners(boxes: Boxes, positions: Int32Array) -> Int32Array:
    """The position of the box that each predicate belongs to."""
    return np.repeat(positions, np.diff(boxes.start))


def predicates_of(boxes: Boxes, positions: Int32Array) -> OwnedPredicates:
    """All predicates of boxes at positions, box by box."""
    return OwnedPredicates(boxes.attribute, boxes.low, boxes.high, owners(boxes, positions))


class ByAttribute:
    """The predicates of boxes, attribute by attribute.

    Buckets of one attribute lie together, and writing here and there among all of them at once
    would take most of the time that it takes to build an index.
    """

    def __init__(self, boxes: Boxes, positions: Int32Array) -> None:
        self._predicates = predicates_of(boxes, positions)
        self._order = np.argsort(boxes.attribute, kind="stable")

    def portions(self, size: int) -> Iterator[OwnedPredicates]:
        """Copies of `size` predicates at a time."""
        attribute, low, high, box = self._predicates
        for first in range(0, len(self._order), size):
            part = self._order[first : first + size]
            yield OwnedPredicates(attribute[part], low[part], high[part], box[part])


@kernel
def _count_items(room: Int64Array, bucket: Int64Array) -> None:
    for i in range(len(bucket)):
        room[bucket[i]] += 1


@kernel
def _discard_ascending(buckets: Buckets, bucket: Int64Array, box: Int32Array) -> None:
    """Take boxes out of buckets, both ascending."""
    i = 0
    while i < len(bucket):
        b = bucket[i]
        at = buckets.start[b]
        end = at + buckets.size[b]
        beyond = end
        while at < beyond:
            middle = (at + beyond) >> 1
            if buckets.box[middle] < box[i]:
                at = middle + 1
            else:
                beyond = middle
        to = at
        while at < end:
            if i < len(bucket) and bucket[i] == b and buckets.box[at] == box[i]:
                i += 1
            else:
                buckets.box[to] = buckets.box[at]
                if len(buckets.key) > 0:
                    buckets.key[to] = buckets.key[at]
                to += 1
            at += 1
        buckets.size[b] = to - buckets.start[b]
