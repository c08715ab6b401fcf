"""`opindex`: look only at boxes whose rarest attribute the event has, then count constraints.

After "An Efficient Publish/Subscribe Index for E-Commerce Databases" (Zhang, Chan and Tan, VLDB
2014). A box belongs to its pivot, the rarest of the attributes that it constrains. The constraints
of all boxes with one pivot are in lists by attribute and operator, in the order of their keys. An
event goes through the lists of the pivots that it has; in each, those that its value meets lie on
one side of it. A box matches when as many of its constraints are met as it has.

The paper presumes that an event must have every attribute that a box constrains. A predicate that
takes absent values is no reason to pass over a box, so it makes no pivot. Boxes with nothing else
form a group of their own that every event looks at.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.constraints import (
    ABSENT_OR_AT_MOST,
    AT_LEAST,
    EQUAL,
    GROUP_BITS,
    OPERATORS,
    Constraints,
    constraints_of,
    count_constraints,
)
from boxmatch.indexes.papers.parts.counters import (
    NO_NEEDS,
    Counters,
    reset,
    run_down,
    take_zeros,
    with_needs,
)
from boxmatch.indexes.papers.parts.portions import insert_items, listed, no_items, predicates_of
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels import bucket_pool as buckets
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

_FEW: Final = 64
"""So many late items, and the square root of a list's length, are looked at one by one: to move
half of a long list for each insertion would take longer."""


class OpIndexState(NamedTuple):
    """The lists that there are, and how many constraints each box has.

    `frequency` is the number of predicates on each attribute when the index was built. The codes of
    pivot, attribute and operator that occur ascend in `code`; the list of `code[i]` is bucket
    `place[i]`, of whose items the first `ordered[place[i]]` ascend by key, then by box. The others
    came later.
    """

    frequency: Int64Array
    code: Int64Array
    place: Int64Array
    lists: Buckets
    ordered: Int64Array
    need: Counters


class OpIndex(UpdatableIndex):
    """Lists of constraints by pivot, attribute and operator, and a counter for each box."""

    name = "opindex"
    _structure = OpIndexState

    def _empty(self, boxes: Boxes) -> OpIndexState:
        frequency = np.bincount(boxes.attribute, minlength=boxes.dimensions)
        none = np.zeros(0, np.int64)
        return OpIndexState(frequency, none, none, no_items(0), none, NO_NEEDS)

    def _insert(self, boxes: Boxes, positions: Int32Array) -> OpIndexState:
        frequency, code, place, lists, ordered, need = self._state
        constraints = _by_pivot(frequency, boxes, positions)
        is_first = len(code) == 0
        new = _distinct(constraints.code)
        new = new[np.append(code, -1)[np.searchsorted(code, new)] != new]
        at = np.searchsorted(code, new)
        place = np.insert(place, at, len(lists.size) + np.arange(len(new)))
        code = np.insert(code, at, new)
        # Put into their lists in the order of keys, they are in order there.
        order = np.argsort(constraints.key, kind="stable")
        bucket = place[np.searchsorted(code, constraints.code)][order]
        items = listed(bucket, constraints.box[order], constraints.key[order])
        lists = insert_items(buckets.extend(lists, len(code)), items)
        ordered = np.concatenate([ordered, np.zeros(len(code) - len(ordered), np.int64)])
        if is_first:
            ordered[:] = lists.size
        else:
            late = lists.size - ordered
            _put_in_order(lists, ordered, np.flatnonzero(late > _FEW + np.sqrt(lists.size)))
        need = with_needs(need, count_constraints(boxes.start, boxes.low, boxes.high), positions)
        return OpIndexState(frequency, code, place, lists, ordered, need)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        frequency, code, place, lists, ordered, _ = self._state
        gone = _by_pivot(frequency, boxes, positions)
        bucket = place[np.searchsorted(code, gone.code)]
        touched = _distinct(bucket)
        _put_in_order(lists, ordered, touched[ordered[touched] < lists.size[touched]])
        order = np.lexsort((gone.box, gone.key, bucket))
        _discard(lists, bucket[order], gone.box[order], gone.key[order])
        ordered[touched] = lists.size[touched]

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


def _by_pivot(frequency: Int64Array, boxes: Boxes, positions: Int32Array) -> Constraints:
    """The constraints of boxes, in the group of the box's pivot."""
    pivot = _pivots(frequency, boxes.start, boxes.attribute, boxes.low)
    return constraints_of(predicates_of(boxes, positions), np.repeat(pivot, np.diff(boxes.start)))


def _distinct(code: Int64Array) -> Int64Array:
    """What codes occur, ascending; faster than NumPy's where most of them are different."""
    ascending = np.sort(code)
    return ascending[np.flatnonzero(np.diff(ascending, prepend=-1))]


def _put_in_order(lists: Buckets, ordered: Int64Array, some: Int64Array) -> None:
    """Bring into order what was appended to some of the lists."""
    for bucket in some.tolist():
        first = lists.start[bucket] + ordered[bucket]
        late = slice(first, lists.start[bucket] + lists.size[bucket])
        # Where keys are equal the boxes ascend already: they came in that order.
        order = np.argsort(lists.key[late], kind="stable")
        box, key = lists.box[late][order], lists.key[late][order]
        _merge(lists, bucket, ordered[bucket], box, key)
    ordered[some] = lists.size[some]


@kernel
def _pivots(
    frequency: Int64Array, start: Int64Array, attribute: UInt16Array, low: Int64Array
) -> Int64Array:
    """The rarest attribute that an event must have to match each box; their number if none."""
    pivots = np.full(len(start) - 1, len(frequency), np.int64)
    for row in range(len(pivots)):
        for p in range(start[row], start[row + 1]):
            best = pivots[row]
            if low[p] != ABSENT and (
                best == len(frequency) or frequency[attribute[p]] < frequency[best]
            ):
                pivots[row] = attribute[p]
    return pivots


@kernel
def _bound(keys: Int64Array, first: Int, last: Int, key: Int) -> Int:
    """The first place from `first` on whose key is not below `key`; `last` if there is none."""
    while first < last:
        middle = (first + last) >> 1
        if keys[middle] < key:
            first = middle + 1
        else:
            last = middle
    return first


@kernel
def _search(state: OpIndexState, query: Query) -> Int32Array:
    points, alive, _, listing, counts = query
    code = state.code
    counters = np.empty_like(state.need)
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)  # not a literal, for which kernels would be compiled twice
    dimensions = points.shape[1]
    for event in range(len(points)):
        reset(counters, state.need)
        for pivot in range(dimensions + 1):
            if pivot < dimensions and points[event, pivot] == ABSENT:
                continue
            at = _bound(code, np.int64(0), len(code), pivot << GROUP_BITS)
            while at < len(code) and code[at] >> GROUP_BITS == pivot:
                attribute = (code[at] & ((1 << GROUP_BITS) - 1)) // OPERATORS
                operator = code[at] % OPERATORS
                key = points[event, attribute]
                if key != ABSENT or operator == ABSENT_OR_AT_MOST:
                    place = state.place[at]
                    _meet(counters, state.lists, place, state.ordered[place], operator, key)
                at += 1
        counts[event], found, end = take_zeros(counters, alive, listing, found, end)
    return found[:end]


@kernel
def _meet(
    counters: Counters, lists: Buckets, number: int, ordered: int, operator: int, key: int
) -> None:
    """Count the constraints of one list that a key meets."""
    begin = lists.start[number]
    first, last = begin, begin + ordered
    if operator in (AT_LEAST, EQUAL) and key < LAST:
        last = _bound(lists.key, first, last, key + 1)
    if operator != AT_LEAST:
        first = _bound(lists.key, first, last, key)
    run_down(counters, lists.box, first, last)
    for at in range(begin + ordered, begin + lists.size[number]):
        other = lists.key[at]
        if (operator not in (AT_LEAST, EQUAL) or other <= key) and (
            operator == AT_LEAST or other >= key
        ):
            run_down(counters, lists.box, at, at + 1)


@kernel
def _merge(lists: Buckets, bucket: int, ordered: int, box: Int32Array, key: Int64Array) -> None:
    """Write items that are in order into the first ones of a list, which are, too."""
    begin = lists.start[bucket]
    old = begin + ordered
    to = old + len(key)
    # From the back. Where keys are equal the new box comes last, being of a higher position.
    i = len(key)
    while i > 0:
        to -= 1
        if old > begin and lists.key[old - 1] > key[i - 1]:
            old -= 1
            lists.box[to] = lists.box[old]
            lists.key[to] = lists.key[old]
        else:
            i -= 1
            lists.box[to] = box[i]
            lists.key[to] = key[i]


@kernel
def _discard(lists: Buckets, bucket: Int64Array, box: Int32Array, key: Int64Array) -> None:
    """Take items out of lists, both in order."""
    i = 0
    while i < len(bucket):
        b = bucket[i]
        end = lists.start[b] + lists.size[b]
        at = _bound(lists.key, lists.start[b], end, key[i])
        to = at
        while at < end:
            same = i < len(bucket) and bucket[i] == b
            if same and lists.box[at] == box[i] and lists.key[at] == key[i]:
                i += 1
            else:
                lists.box[to] = lists.box[at]
                lists.key[to] = lists.key[at]
                to += 1
            at += 1
        lists.size[b] = to - lists.start[b]
