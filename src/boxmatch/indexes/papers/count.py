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

from boxmatch.arrays import Int, Int32Array
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.counters import (
    NO_NEEDS,
    Counters,
    reset,
    run_down,
    take_zeros,
    with_needs,
)
from boxmatch.indexes.papers.parts.portions import (
    Listing,
    discard_items,
    insert_items,
    listed,
    no_items,
    owners,
)
from boxmatch.indexes.papers.parts.predicates import (
    NumberedPredicates,
    find,
    no_predicates,
    number,
)
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

    values: NumberedPredicates
    equal: Buckets
    low: Buckets
    high: Buckets
    need: Counters


class CountIndex(UpdatableIndex):
    """A counter for each box. Exact on any intervals, but quick only where they are values."""

    name = "count"
    _structure = CountState

    def _empty(self, boxes: Boxes) -> CountState:
        others = no_items(boxes.dimensions)
        return CountState(no_predicates(), no_items(1), others, others, NO_NEEDS)

    def _insert(self, boxes: Boxes, positions: Int32Array) -> CountState:
        values, equal, low, high, need = self._state
        values, *lists = _lists(values, boxes, positions)
        equal = buckets.extend(equal, len(values.attribute))
        need = with_needs(need, np.diff(boxes.start), positions)
        equal, low, high = map(insert_items, (equal, low, high), lists)
        return CountState(values, equal, low, high, need)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        values, *held, _ = self._state
        _, *lists = _lists(values, boxes, positions)
        for some, gone in zip(held, lists, strict=True):
            discard_items(some, gone)

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


def _lists(
    values: NumberedPredicates, boxes: Boxes, positions: Int32Array
) -> tuple[NumberedPredicates, Listing, Listing, Listing]:
    """The values with those that boxes ask for, and what goes into `equal`, `low` and `high`."""
    box = owners(boxes, positions)
    single = boxes.low == boxes.high
    values, numbers = number(values, boxes.attribute[single], boxes.low[single], boxes.high[single])
    bucket, owner = boxes.attribute[~single].astype(np.int64), box[~single]
    return (
        values,
        listed(numbers.astype(np.int64), box[single]),
        listed(bucket, owner, boxes.low[~single]),
        listed(bucket, owner, boxes.high[~single]),
    )


@kernel
def _search(state: CountState, query: Query) -> Int32Array:
    points, alive, _, listing, counts = query
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
