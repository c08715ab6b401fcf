"""`htree`: put similar boxes into the same buckets, and check those that an event's values reach.

After "H-Tree: An Efficient Index Structure for Event Matching in Content-Based Publish/Subscribe
Systems" (Qian et al., TPDS 2015). Some attributes are indexed, one on each level of a tree; each
is cut into cells. A box goes from a node to every cell that its predicate touches, or to one
branch for boxes that do not constrain the attribute, and ends in as many leaves as there are
ways. An event goes to the cell of its value and to that one branch, on every level, so it finds a
box once at most. The boxes in the leaves that it reaches are compared in full.

Leaves are numbered rather than linked. A wide predicate touches most cells, and each level
multiplies: memory grows with the power of the indexed attributes. What it would take is therefore
worked out before anything is built.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import NO_MARKS, Query
from boxmatch.indexes.papers.parts.cells import Cells, cell_of, fit_cells
from boxmatch.indexes.papers.parts.portions import (
    PORTION,
    Items,
    discard_items,
    insert_items,
    no_items,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.box_lists import is_alive, longer
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.box_kernels import holds
from boxmatch.model.boxes import Boxes

_LEAF_BYTES = 24
_ITEM_BYTES = 4
_AHEAD = 8  # boxes whose predicates are fetched before they are compared


class HTreeState(NamedTuple):
    """The leaves, by the digits of their numbers: one for each of the `indexed` attributes.

    A digit is a cell, 0 for absent values, or `number + 1` for boxes without a predicate.
    """

    cells: Cells
    indexed: Int64Array
    leaves: Buckets


class Branches(NamedTuple):
    """Box `i` goes to digits `low[i, level] … high[i, level]`, `leaves[i]` leaves in all."""

    low: Int32Array
    high: Int32Array
    leaves: Int64Array


class HTreeIndex(UpdatableIndex):
    """Leaves by the cells of a few attributes.

    `cells`: cells of an attribute (c in the REIN paper). `indexed`: attributes with a level of
    their own (l), the most frequent ones when the index is built. `memory_limit`: bytes that the
    leaves may take; `build` and `add` raise `IndexTooLargeError` before they exceed it.
    """

    name = "htree"
    parameters = {"cells": 6, "indexed": 6, "memory_limit": 4 << 30}
    _structure = HTreeState
    _limits = {"cells": (1, 10_000), "indexed": (1, 30), "memory_limit": (1, 2**50)}

    def build(self, boxes: Boxes) -> None:
        with self._all_or_nothing():
            super().build(boxes)

    def add(self, boxes: Boxes) -> Int64Array:
        with self._all_or_nothing():
            return super().add(boxes)

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """If the structure refuses boxes, be as before."""
        kept = vars(self).copy()
        if "_boxes" in kept:
            kept |= {"_boxes": copy(self._boxes), "_living": self._living.copy()}
        try:
            yield
        except IndexTooLargeError:
            vars(self).clear()
            vars(self).update(kept)
            raise

    def _empty(self, boxes: Boxes) -> HTreeState:
        frequency = np.bincount(boxes.attribute, minlength=boxes.dimensions)
        frequent = np.argsort(-frequency, kind="stable")[: self.chosen["indexed"]]
        leaves = (self.chosen["cells"] + 2) ** len(frequent)
        self._check_memory(leaves, items=0)
        return HTreeState(fit_cells(boxes, self.chosen["cells"]), frequent, no_items(leaves))

    def _insert(self, boxes: Boxes, positions: Int32Array) -> HTreeState:
        cells, indexed, leaves = self._state
        branches = _branches(cells, indexed, boxes)
        # More than int64 holds, in the worst case.
        items = int(leaves.size.sum()) + int(branches.leaves.sum(dtype=np.float64))
        if leaves.used[0] > 0:
            # Buckets that grow keep room in each, behind them all, and for the largest to move.
            largest = int(leaves.size.max()) + boxes.count
            items = items * 3 // 2 + 2 * len(leaves.size) + 2 * largest
        self._check_memory(len(leaves.size), items)
        leaves = insert_items(leaves, partial(_items, cells, branches, positions))
        return HTreeState(cells, indexed, leaves)

    def _check_memory(self, leaves: int, items: int) -> None:
        estimate = leaves * _LEAF_BYTES + items * _ITEM_BYTES
        limit = self.chosen["memory_limit"]
        if estimate > limit:
            raise IndexTooLargeError(
                f"index 'htree' would take about {estimate:,} bytes, and its memory_limit is "
                f"{limit:,}; fewer cells or indexed attributes take less"
            )

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        cells, indexed, leaves = self._state
        branches = _branches(cells, indexed, boxes)
        discard_items(leaves, partial(_items, cells, branches, positions))

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, *self.boxes[1:], query)


def _branches(cells: Cells, indexed: Int64Array, boxes: Boxes) -> Branches:
    level = np.full(boxes.dimensions, -1, np.int64)
    level[indexed] = np.arange(len(indexed))
    low = np.full((boxes.count, len(indexed)), cells.number[0] + 1, np.int32)
    high = low.copy()
    _find_branches(cells, level, *boxes[1:], low, high)
    return Branches(low, high, np.prod(np.maximum(high - low + 1, 0), axis=1, dtype=np.int64))


def _items(cells: Cells, branches: Branches, positions: Int32Array) -> Iterator[Items]:
    reached = np.cumsum(branches.leaves)
    ends = np.flatnonzero(np.diff(reached // PORTION)) + 1
    first = 0
    for last in [*ends.tolist(), len(positions)]:
        size = int(branches.leaves[first:last].sum())
        bucket, box = np.empty(size, np.int64), np.empty(size, np.int32)
        _list_leaves(cells.number[0] + 2, branches, first, last, positions, bucket, box)
        yield Items(bucket, box, None)
        first = last


@kernel
def _find_branches(
    cells: Cells,
    level: Int64Array,
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    low_digit: Int32Array,
    high_digit: Int32Array,
) -> None:
    """Set the digits of boxes on the levels of those attributes that they constrain."""
    for row in range(len(low_digit)):
        for p in range(start[row], start[row + 1]):
            at = level[attribute[p]]
            if at >= 0 and (low[p] > ABSENT or high[p] < LAST):
                low_digit[row, at] = cell_of(cells, attribute[p], low[p])
                high_digit[row, at] = cell_of(cells, attribute[p], high[p])


@kernel
def _list_leaves(
    radix: int,
    branches: Branches,
    first: int,
    last: int,
    positions: Int32Array,
    bucket: Int64Array,
    box: Int32Array,
) -> None:
    """Write the leaves of boxes `first` to `last`: every combination of their digits."""
    end = 0
    for row in range(first, last):
        for way in range(branches.leaves[row]):
            leaf = 0
            for level in range(branches.low.shape[1]):
                ways = branches.high[row, level] - branches.low[row, level] + 1
                leaf = leaf * radix + branches.low[row, level] + way % ways
                way //= ways
            bucket[end] = leaf
            box[end] = positions[row]
            end += 1


@kernel
def _search(
    state: HTreeState,
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    query: Query,
) -> Int32Array:
    points, alive, _, listing, counts = query
    cells, indexed, leaves = state
    radix = cells.number[0] + 2
    own = np.empty(len(indexed), np.int64)
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)  # not a literal, for which kernels would be compiled twice
    for event in range(len(points)):
        for level in range(len(indexed)):
            own[level] = cell_of(cells, indexed[level], points[event, indexed[level]])
        count = 0
        for choice in range(1 << len(indexed)):
            leaf = 0
            for level in range(len(indexed)):
                leaf = leaf * radix + (own[level] if (choice >> level) & 1 else radix - 1)
            begin = leaves.start[leaf]
            beyond = begin + leaves.size[leaf]
            for at in range(begin, beyond):
                if at + 2 * _AHEAD < beyond:
                    prefetch(start, leaves.box[at + 2 * _AHEAD])
                if at + _AHEAD < beyond:
                    ahead = start[leaves.box[at + _AHEAD]]
                    prefetch(attribute, ahead)
                    prefetch(low, ahead)
                    prefetch(high, ahead)
                box = leaves.box[at]
                if is_alive(alive, box) and holds(
                    start, attribute, low, high, box, points, event, NO_MARKS
                ):
                    count += 1
                    if listing:
                        if end == len(found):
                            found = longer(found, 2 * end)
                        found[end] = box
                        end += 1
        counts[event] = count
    return found[:end]
