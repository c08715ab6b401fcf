"""`count`: count each box's satisfied predicates; a box with all of them matches.

After the counting algorithm as the RAPIDMatch paper sees it, where it is called CountMatch.
Attribute by attribute, the predicates that the event satisfies are found, and the counters of
their boxes go on by one. Unlike a tree, this follows every predicate, also those of boxes that
have failed another one before.

Predicates that ask for one value, as all those on booleans do, are found at once: boxes are listed
by attribute and value. For other intervals the paper has nothing to offer, and neither has this
index: those of an attribute lie side by side and are tried one after the other.

Here counters run down, from the number of predicates to zero.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array
from boxmatch.indexes.papers.parts.counters import (
    Counters,
    grown,
    needs_at,
    reset,
    run_down,
    take_zeros,
)
from boxmatch.indexes.papers.parts.endpoints import owners
from boxmatch.indexes.papers.parts.portions import Items, OwnedPredicates, discard_items
from boxmatch.indexes.papers.parts.predicates import Predicates, find, no_predicates, number
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels import bucket_pool as buckets
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


class CountState(NamedTuple):
    """Boxes by what they ask for, and how many predicates each has.

    Bucket `i` of `equal` has the boxes with predicate `i` of `values`, bucket `a` of `low` and
    `high`, which are laid out alike, the endpoints of the other predicates on attribute `a`.
    """

    values: Predicates
    equal: Buckets
    low: Buckets
    high: Buckets
    need: Counters


class CountIndex(UpdatableIndex):
    """A counter for each box. Exact on any intervals, but quick only where they are values."""

    name = "count"
    _structure = CountState

    def _make(self, boxes: Boxes, positions: Int32Array) -> CountState:
        single, other = _by_kind(boxes, positions)
        values, numbers = number(no_predicates(), single.attribute, single.low, single.high)
        bucket = other.attribute.astype(np.int64)
        return CountState(
            values,
            buckets.fill(len(values.attribute), numbers.astype(np.int64), single.box, None),
            buckets.fill(boxes.dimensions, bucket, other.box, other.low),
            buckets.fill(boxes.dimensions, bucket, other.box, other.high),
            needs_at(np.diff(boxes.start), positions),
        )

    def _insert(self, boxes: Boxes, positions: Int32Array) -> CountState:
        values, equal, low, high, need = self._state
        single, other = _by_kind(boxes, positions)
        values, numbers = number(values, single.attribute, single.low, single.high)
        equal = buckets.extend(equal, len(values.attribute))
        bucket = other.attribute.astype(np.int64)
        return CountState(
            values,
            buckets.append(equal, numbers.astype(np.int64), single.box, None),
            buckets.append(low, bucket, other.box, other.low),
            buckets.append(high, bucket, other.box, other.high),
            grown(need, np.diff(boxes.start), int(positions[0])),
        )

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        values, equal, low, high, _ = self._state
        single, other = _by_kind(boxes, positions)
        _, numbers = number(values, single.attribute, single.low, single.high)
        _discard(equal, numbers.astype(np.int64), single.box)
        _discard(low, other.attribute.astype(np.int64), other.box)
        _discard(high, other.attribute.astype(np.int64), other.box)

    def _search(
        self,
        points: Int64Array,
        alive: BitLines,
        skipped: BoolArray,
        listing: bool,
        counts: Int64Array,
    ) -> Int32Array:
        return _search(self._state, points, alive, listing, counts)


def _by_kind(boxes: Boxes, positions: Int32Array) -> tuple[OwnedPredicates, OwnedPredicates]:
    """The predicates that ask for one value, and the others."""
    box = owners(boxes, positions)
    single = boxes.low == boxes.high
    of_one, of_more = (
        OwnedPredicates(boxes.attribute[kind], boxes.low[kind], boxes.high[kind], box[kind])
        for kind in (single, ~single)
    )
    return of_one, of_more


def _discard(some: Buckets, bucket: Int64Array, box: Int32Array) -> None:
    discard_items(some, lambda: iter([Items(bucket, box, None)]))


@kernel
def _search(
    state: CountState, points: Int64Array, alive: BitLines, listing: bool, counts: Int64Array
) -> Int32Array:
    values, equal, low, high, need = state
    counters = np.empty_like(need)
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)  # not a literal, for which kernels would be compiled twice
    for event in range(len(points)):
        reset(counters, need)
        for a in range(points.shape[1]):
            key = points[event, a]
            value = find(values, a, key, key)
            if value >= 0:
                start = equal.start[value]
                run_down(counters, equal.box, start, start + equal.size[value])
            for at in range(low.start[a], low.start[a] + low.size[a]):
                holds = (low.key[at] <= key) & (key <= high.key[at])
                counters[np.uint32(low.box[at])] -= np.uint8(holds)
        counts[event], found, end = take_zeros(counters, alive, listing, found, end)
    return found[:end]
