"""`tama`: store each predicate under the cells that it covers, coarse ones where they fit.

After "Towards Approximate Event Processing in a Large-Scale Content-Based Network" (Zhao and Wu,
ICDCS 2011), with the exactness that the HEM paper added. An attribute's span is halved again and
again, which gives layers of cells. A predicate stands in the fewest cells of any layers that make
up its interval, so a value, which has one cell in each layer, meets it in one place at most: all
boxes that are found in the cells of a value have one more predicate met.

Endpoints need not fall between two cells. The approximate table takes the whole cell for covered:
it finds every match, and some boxes whose endpoints are missed by less than a cell. The exact one
keeps such endpoints aside, in lists by finest cell, and compares them with the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array, UInt64Array
from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.cells import fit_cells
from boxmatch.indexes.papers.parts.counters import (
    NO_NEEDS,
    Counters,
    reset,
    run_down,
    run_down_between,
    take_zeros,
    with_needs,
)
from boxmatch.indexes.papers.parts.portions import (
    PORTION,
    ByAttribute,
    Items,
    OwnedPredicates,
    discard_items,
    insert_items,
    no_items,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes


class Layers(NamedTuple):
    """Attribute `a` has `2 ** level[a]` finest cells of `width[a]` keys from `first[a]` on.

    The first and the last cell also have all keys beyond. All cells of an attribute form a binary
    tree in an array, from `root[a]` on: 1 is the whole axis, `2 * i` and `2 * i + 1` are the halves
    of `i`, and 0, which the tree leaves free, is for the absent value. `exact[0]` says whether
    endpoints are kept aside.
    """

    first: Int64Array
    width: UInt64Array
    level: Int64Array
    root: Int64Array
    exact: npt.NDArray[np.bool_]


class TamaState(NamedTuple):
    """The boxes under each cell of the trees, the endpoints kept aside, and what each box needs.

    If exact, `endpoints` has a bucket of low endpoints for each finest cell, with the cell's own
    number, and one of high endpoints with the number of the cell minus `2 ** level`.
    """

    layers: Layers
    covered: Buckets
    endpoints: Buckets
    need: Counters


class TamaIndex(UpdatableIndex):
    """A tree of cells for each attribute, and a counter for each box.

    `level`: how often an attribute's span is halved (d in the REIN paper). An attribute that has no
    more than so many values, or, if exact, predicates, is halved less often. `exact`: whether the
    endpoints of predicates are compared; without that, there are matches that are none, and the
    index has not the capabilities that its class declares.
    """

    name = "tama"
    parameters = {"level": 13, "exact": True}
    _structure = TamaState
    _limits = {"level": (1, 24)}

    def __init__(self, dimensions: int, **parameters: Any) -> None:
        super().__init__(dimensions, **parameters)
        exact = self.chosen["exact"]
        if not isinstance(exact, bool):
            raise IndexConfigError(f"index 'tama': exact must be True or False, not {exact!r}")

    def _empty(self, boxes: Boxes) -> TamaState:
        layers = self._layers(boxes)
        count = int((2 << layers.level).sum())
        endpoints = no_items(count if self.chosen["exact"] else 0)
        return TamaState(layers, no_items(count), endpoints, NO_NEEDS)

    def _layers(self, boxes: Boxes) -> Layers:
        first, span, _ = fit_cells(boxes, 1)
        level = np.minimum(self.chosen["level"], np.ceil(np.log2(span)).astype(np.int64))
        if self.chosen["exact"]:
            # With as many cells as predicates, no more than a few endpoints are compared.
            predicates = np.bincount(boxes.attribute, minlength=boxes.dimensions)
            level = np.minimum(level, np.ceil(np.log2(predicates + 1)).astype(np.int64))
        width = (span - np.uint64(1) >> level.astype(np.uint64)) + np.uint64(1)
        root = np.cumsum(2 << level) - (2 << level)
        return Layers(first, width, level, root, np.array([self.chosen["exact"]]))

    def _insert(self, boxes: Boxes, positions: Int32Array) -> TamaState:
        layers, covered, endpoints, need = self._state
        predicates = ByAttribute(boxes, positions)
        return TamaState(
            layers,
            insert_items(covered, partial(_covered, layers, predicates)),
            insert_items(endpoints, partial(_endpoints, layers, predicates)),
            with_needs(need, _wanted(layers, *boxes[1:]), positions),
        )

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        layers, covered, endpoints, _ = self._state
        predicates = ByAttribute(boxes, positions)
        discard_items(covered, partial(_covered, layers, predicates))
        discard_items(endpoints, partial(_endpoints, layers, predicates))

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


def _covered(layers: Layers, predicates: ByAttribute) -> Iterator[Items]:
    """The cells that predicates cover."""
    most = 2 * int(layers.level.max()) + 2
    for part in predicates.portions(PORTION // most):
        size = most * len(part.box)
        bucket, box = np.empty(size, np.int64), np.empty(size, np.int32)
        end = _list_covered(layers, part, bucket, box)
        yield Items(bucket[:end], box[:end], None)


def _endpoints(layers: Layers, predicates: ByAttribute) -> Iterator[Items]:
    """The endpoints that are kept aside."""
    if layers.exact[0]:
        for part in predicates.portions(PORTION // 2):
            size = 2 * len(part.box)
            bucket, box = np.empty(size, np.int64), np.empty(size, np.int32)
            key = np.empty(size, np.int64)
            end = _list_endpoints(layers, part, bucket, box, key)
            yield Items(bucket[:end], box[:end], key[:end])


@kernel
def _cell(layers: Layers, attribute: int, key: int) -> int:
    """The finest cell, from 0 on, of a key that is not absent."""
    first = layers.first[attribute]
    if key <= first:
        return 0
    # The distance of two keys may exceed int64, and with narrow cells so may its quotient.
    cell = (np.uint64(key) - np.uint64(first)) // layers.width[attribute]
    last = np.uint64((1 << layers.level[attribute]) - 1)
    return int(np.int64(min(cell, last)))


@kernel
def _reach(layers: Layers, attribute: int, low: int, high: int) -> tuple[int, int, bool, bool]:
    """The cells of both endpoints of an interval, and whether each lies within its cell."""
    least = max(low, FIRST)
    left = _cell(layers, attribute, least)
    right = _cell(layers, attribute, high)
    low_within = layers.exact[0] and least > FIRST and _cell(layers, attribute, least - 1) == left
    high_within = layers.exact[0] and high < LAST and _cell(layers, attribute, high + 1) == right
    return left, right, low_within, high_within


@kernel
def _wanted(
    layers: Layers, start: Int64Array, attribute: UInt16Array, low: Int64Array, high: Int64Array
) -> Int64Array:
    """What each box needs: one for a predicate, two if both endpoints must be compared at once."""
    wanted = np.zeros(len(start) - 1, np.int64)
    for row in range(len(wanted)):
        for p in range(start[row], start[row + 1]):
            if low[p] == ABSENT and high[p] == LAST:
                continue
            wanted[row] += 1
            if high[p] >= max(low[p], FIRST):
                left, right, low_within, high_within = _reach(layers, attribute[p], low[p], high[p])
                wanted[row] += left == right and low_within and high_within
    return wanted


@kernel
def _list_covered(
    layers: Layers, predicates: OwnedPredicates, bucket: Int64Array, box: Int32Array
) -> int:
    """Write the buckets of all cells that are wholly covered; return how many."""
    end = 0
    for p in range(len(predicates.box)):
        low = predicates.low[p]
        high = predicates.high[p]
        if low == ABSENT and high == LAST:
            continue
        begin = end
        a = predicates.attribute[p]
        root = layers.root[a]
        if low == ABSENT:
            bucket[end] = root
            end += 1
        if high >= max(low, FIRST):
            left, right, low_within, high_within = _reach(layers, a, low, high)
            # Cells left to right - 1 of one layer after the other, from the finest on: what is not
            # half of a covered cell stands for itself.
            cells = 1 << layers.level[a]
            left += cells + low_within
            right += cells + 1 - high_within
            while left < right:
                if left & 1:
                    bucket[end] = root + left
                    end += 1
                    left += 1
                if right & 1:
                    right -= 1
                    bucket[end] = root + right
                    end += 1
                left >>= 1
                right >>= 1
        for i in range(begin, end):
            box[i] = predicates.box[p]
    return end


@kernel
def _list_endpoints(
    layers: Layers,
    predicates: OwnedPredicates,
    bucket: Int64Array,
    box: Int32Array,
    key: Int64Array,
) -> int:
    """Write the endpoints that have to be compared; return how many."""
    end = 0
    for p in range(len(predicates.box)):
        low = predicates.low[p]
        high = predicates.high[p]
        if high < max(low, FIRST):
            continue
        a = predicates.attribute[p]
        left, right, low_within, high_within = _reach(layers, a, low, high)
        if low_within:
            bucket[end] = layers.root[a] + (1 << layers.level[a]) + left
            box[end] = predicates.box[p]
            key[end] = low
            end += 1
        if high_within:
            bucket[end] = layers.root[a] + right
            box[end] = predicates.box[p]
            key[end] = high
            end += 1
    return end


@kernel
def _search(state: TamaState, query: Query) -> Int32Array:
    points, alive, _, listing, counts = query
    layers, covered, endpoints, need = state
    counters = np.empty_like(need)
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)  # not a literal, for which kernels would be compiled twice
    for event in range(len(points)):
        reset(counters, need)
        for a in range(points.shape[1]):
            key = points[event, a]
            root = layers.root[a]
            node = 0
            if key != ABSENT:
                cell = _cell(layers, a, key)
                node = cell + (1 << layers.level[a])
                if layers.exact[0]:
                    run_down_between(counters, endpoints, root + node, np.int64(ABSENT), key)
                    run_down_between(counters, endpoints, root + cell, key, np.int64(LAST))
            while True:
                first = covered.start[root + node]
                run_down(counters, covered.box, first, first + covered.size[root + node])
                if node <= 1:
                    break
                node >>= 1
        counts[event], found, end = take_zeros(counters, alive, listing, found, end)
    return found[:end]
