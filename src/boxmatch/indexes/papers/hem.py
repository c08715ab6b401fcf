"""`hem`: `rein`, with the marks of whole groups of cells made in advance.

After "HEM: A Hardware-aware Event Matching Algorithm for Content-based Pub/Sub Systems" (Shi and
Qian). The cells of each bucket list are put into groups: group i of the low endpoints has the last
i/g of the cells, group i of the high endpoints the first i/g. Each group keeps a bit set of the
boxes that have an end in it. To match an event is then, per attribute and side, to take the largest
group that leaves out the event's own cell, to OR its bit set into the result, and to walk only the
few buckets between that group and the cell.

With one group (g = 1) its bit sets cover half of the cells, as the paper suggests. An event that
lacks an attribute falls into cell 0, which no group of low endpoints has: with two groups or more,
the largest of them marks every predicate on that attribute at once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array, UInt64Array
from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import Capabilities, Query
from boxmatch.indexes.papers.parts.cells import cell_of, cells_of
from boxmatch.indexes.papers.parts.portions import owners
from boxmatch.indexes.papers.rein import (
    EndpointLists,
    compare_high,
    compare_low,
    delete_endpoints,
    insert_endpoints,
    no_endpoints,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, load_line, or_lines, store_line
from boxmatch.kernels.bit_sets import mark, mark_all_but, mark_buckets, take_unmarked, unmark
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes

_BLOCK = 64  # lines ORed before going on: they stay in the first level of cache


class HemState(NamedTuple):
    """Bucket lists, and a bit set for each attribute, side and group.

    `reach[i]` is how many cells group `i` has (none for `i = 0`, which is no group), and
    `largest[m]` the largest group with at most `m` cells. The bit set of attribute `a` and group
    `i` is row `a * g + i - 1` of `low_marks` and `high_marks`.
    """

    endpoints: EndpointLists
    reach: Int64Array
    largest: Int64Array
    low_marks: UInt64Array
    high_marks: UInt64Array


class HemIndex(UpdatableIndex):
    """Bucket lists with pre-marked bit sets.

    `cells`: buckets in a list (c in the paper). `groups`: bit sets for each list (g). Twice the
    groups leave half as many boxes to mark one by one, and take twice the memory.
    """

    name = "hem"
    parameters = {"cells": 1_000, "groups": 32}
    capabilities = Capabilities(updates=True, approximate=True)
    _structure = HemState
    _limits = {"cells": (1, 1_000_000), "groups": (1, 1_000_000)}

    def __init__(self, dimensions: int, **parameters: Any) -> None:
        super().__init__(dimensions, **parameters)
        cells, groups = self.chosen["cells"], self.chosen["groups"]
        if groups > cells:
            raise IndexConfigError(f"index 'hem': {groups} groups of {cells} cells")

    def _empty(self, boxes: Boxes) -> HemState:
        cells, groups = self.chosen["cells"], self.chosen["groups"]
        reach = np.arange(groups + 1) * cells // groups
        if groups == 1:
            reach[1] = (cells + 1) // 2
        largest = np.searchsorted(reach, np.arange(cells + 1), "right") - 1
        marks = np.zeros((boxes.dimensions * groups, 0), np.uint64)
        return HemState(no_endpoints(boxes, cells), reach, largest, marks, marks)

    def _insert(self, boxes: Boxes, positions: Int32Array) -> HemState:
        state: HemState = self._state
        low_marks, high_marks = state.low_marks, state.high_marks
        words = (int(positions[-1]) // LINE_BITS + 1) * LINE_WORDS
        is_first = low_marks.shape[1] == 0
        if words > low_marks.shape[1]:
            if not is_first:
                # A quarter more, in whole lines: the bit sets are most of the memory.
                words = (words + words // 4 + LINE_WORDS - 1) // LINE_WORDS * LINE_WORDS
            low_marks, high_marks = _wider(low_marks, words), _wider(high_marks, words)
        endpoints = insert_endpoints(state.endpoints, boxes, positions)
        state = state._replace(endpoints=endpoints, low_marks=low_marks, high_marks=high_marks)
        self._set_marks(state, boxes, positions, True, one_by_one=not is_first)
        return state

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        delete_endpoints(self._state.endpoints, boxes, positions)
        self._set_marks(self._state, boxes, positions, False)

    def _set_marks(
        self,
        state: HemState,
        boxes: Boxes,
        positions: Int32Array,
        value: bool,
        one_by_one: bool = True,
    ) -> None:
        """Set or clear the bits of boxes in all groups that have their endpoints."""
        cells, groups = state.endpoints.cells, self.chosen["groups"]
        low = cells_of(cells, boxes.attribute, boxes.low)
        high = cells_of(cells, boxes.attribute, boxes.high)
        box = owners(boxes, positions)
        reached_from = cells.number[0] - low + 1, np.maximum(high, 1)
        for marks, reached in zip((state.low_marks, state.high_marks), reached_from, strict=True):
            first = np.searchsorted(state.reach, reached).astype(np.int64)
            _set_groups(marks, boxes.attribute, first, groups, one_by_one, box, value)
            if not one_by_one:
                # A group has all that the group before it has.
                by_group = marks.reshape(boxes.dimensions, groups, marks.shape[1])
                np.bitwise_or.accumulate(by_group, axis=1, out=by_group)

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


def mark_only(index: HemIndex, points: Int64Array) -> int:
    """Only mark, box after box, what the groups leave; return how many marks that took.

    This is the part of matching that groups are there to shorten, for measuring it alone.
    """
    return int(_mark_only(index._state, points, np.zeros(index._living.size, np.uint64)))


def _wider(marks: UInt64Array, words: int) -> UInt64Array:
    wider = np.zeros((len(marks), words), np.uint64)
    wider[:, : marks.shape[1]] = marks
    return wider


@kernel
def _set_groups(
    marks: UInt64Array,
    attribute: UInt16Array,
    first: Int64Array,
    groups: int,
    one_by_one: bool,
    box: Int32Array,
    value: bool,
) -> None:
    """Set or clear the bit of each predicate's box in group `first[p]`, or in all from there on."""
    for p in range(len(attribute)):
        last = groups if one_by_one else min(first[p], groups)
        for group in range(first[p], last + 1):
            row = marks[attribute[p] * groups + group - 1]
            if value:
                mark(row, box[p])
            else:
                unmark(row, box[p])


@kernel
def _search(state: HemState, query: Query) -> Int32Array:
    points, alive, skipped, listing, counts = query
    endpoints = state.endpoints
    words = np.empty(alive.size, np.uint64)
    low_rows = np.empty(points.shape[1], np.int64)
    high_rows = np.empty(points.shape[1], np.int64)
    found = np.empty(64, np.int32)
    end: Int = 0
    groups = len(state.reach) - 1
    for event in range(len(points)):
        mark_all_but(words, alive)
        lows = 0
        highs = 0
        for a in range(points.shape[1]):
            if len(skipped) > 0 and skipped[a]:
                continue
            low_group, high_group = _choose_groups(state, a, points[event, a])
            if low_group > 0:
                low_rows[lows] = a * groups + low_group - 1
                lows += 1
            if high_group > 0:
                high_rows[highs] = a * groups + high_group - 1
                highs += 1
        _or_rows(words, state.low_marks, low_rows, lows)
        _or_rows(words, state.high_marks, high_rows, highs)
        for a in range(points.shape[1]):
            if len(skipped) > 0 and skipped[a]:
                continue
            key = points[event, a]
            bucket = a * (endpoints.cells.number[0] + 1) + cell_of(endpoints.cells, a, key)
            compare_low(words, endpoints, bucket, key)
            compare_high(words, endpoints, bucket, key)
            _mark_between(words, state, a, key)
        counts[event], found, end = take_unmarked(words, listing, found, end)
    return found[:end]


@kernel
def _choose_groups(state: HemState, attribute: int, key: int) -> tuple[int, int]:
    """The largest groups of low and of high endpoints without the key's own cell; 0 for none."""
    cell = cell_of(state.endpoints.cells, attribute, key)
    after = state.endpoints.cells.number[0] - cell
    return state.largest[after], state.largest[max(cell - 1, 0)]


@kernel
def _mark_between(words: UInt64Array, state: HemState, attribute: int, key: int) -> int:
    """Mark the boxes between the groups and the key's own cell; return how many."""
    endpoints = state.endpoints
    count = endpoints.cells.number[0]
    first = attribute * (count + 1)
    cell = cell_of(endpoints.cells, attribute, key)
    low_group, high_group = _choose_groups(state, attribute, key)
    after = first + count + 1 - state.reach[low_group]
    marks = mark_buckets(words, endpoints.low, first + cell + 1, after)
    # Cell 0 belongs to every group of high endpoints.
    begin = state.reach[high_group] + 1 if high_group > 0 else 0
    return marks + mark_buckets(words, endpoints.high, first + begin, first + cell)


@kernel
def _or_rows(words: UInt64Array, marks: UInt64Array, rows: Int64Array, count: int) -> None:
    """OR the first `count` of `rows` into `words`."""
    lines = len(words) // LINE_WORDS
    stride = marks.shape[1] // LINE_WORDS
    for first in range(0, lines, _BLOCK):
        last = min(first + _BLOCK, lines)
        for i in range(count):
            offset = rows[i] * stride
            for line in range(first, last):
                both = or_lines(load_line(words, line), load_line(marks, offset + line))
                store_line(words, line, both)


@kernel
def _mark_only(state: HemState, points: Int64Array, words: UInt64Array) -> int:
    marks = 0
    for event in range(len(points)):
        for a in range(points.shape[1]):
            marks += _mark_between(words, state, a, points[event, a])
    return marks
