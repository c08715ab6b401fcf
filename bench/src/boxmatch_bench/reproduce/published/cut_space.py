"""`rapid-cut`: RAPIDMatch on ranges, by cutting the content space into partitions.

The RAPIDMatch paper says in a paragraph (section 4) how its booleans come from any content: each
partition of the space is a property, which an event has if it falls into it. As partitions do not
overlap, an event has one of them, and is as light as can be. A subscription is interested in every
partition that it overlaps, so it is listed once for each. What the trees find are candidates, which
are compared with the event.

The paper leaves open how to cut. Here the attributes that most boxes constrain are cut into even
cells, and absent values are a cell of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array, UInt16Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.papers.parts.cells import cell_of, cells_of, fit_cells
from boxmatch.indexes.papers.rapid import RapidIndex
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes
from boxmatch_bench.reproduce.published.candidates import CandidateIndex

_BYTES_OF_A_COPY = 20
"""At the most, while they are sorted."""


class CutSpaceIndex(CandidateIndex):
    """RAPIDMatch over partitions of the space.

    `cells`: pieces of an attribute. `indexed`: attributes that are cut; with each, a box is stored
    as many more times as it overlaps cells, all of them where it leaves the attribute open.
    `memory_limit`: bytes that the lists may take; `build` raises `IndexTooLargeError` before.
    """

    name = "rapid-cut"
    parameters = {"cells": 4, "indexed": 2, "memory_limit": 2 << 30}  # noqa: RUF012
    _limits = {"cells": (1, 64), "indexed": (1, 3), "memory_limit": (1, 2**36)}  # noqa: RUF012

    def build(self, boxes: Boxes) -> None:
        super().build(boxes)
        cells, indexed = self.chosen["cells"], min(self.chosen["indexed"], boxes.dimensions)
        frequency = np.bincount(boxes.attribute, minlength=boxes.dimensions)
        self._cut = np.argsort(-frequency, kind="stable")[:indexed].astype(np.int64)
        self._cells = fit_cells(boxes, cells)
        low = cells_of(self._cells, boxes.attribute, boxes.low)
        high = cells_of(self._cells, boxes.attribute, boxes.high)
        first = np.zeros((boxes.count, indexed), np.int64)
        last = np.full((boxes.count, indexed), cells, np.int64)
        _spans(boxes.start, boxes.attribute, low, high, self._cut, first, last)
        copies = np.maximum(last - first + 1, 0).prod(axis=1)
        total = int(copies.sum())
        if total * _BYTES_OF_A_COPY > self.chosen["memory_limit"]:
            raise IndexTooLargeError(
                f"index {self.name!r} would store {total:,} copies of {boxes.count:,} boxes, and "
                f"its memory_limit is {self.chosen['memory_limit']:,}; fewer cells take less"
            )
        box, partition = np.empty(total, np.int32), np.empty(total, np.uint16)
        _list_copies(first, last, copies, cells + 1, box, partition)
        self._properties = (cells + 1) ** indexed
        # Equal subscriptions are one in the trees, with a list of who they are.
        self._box = box[np.argsort(partition, kind="stable")]
        self._ends = np.bincount(partition, minlength=self._properties).cumsum()
        start = np.arange(self._properties + 1, dtype=np.int64)
        one = np.ones(self._properties, np.int64)
        properties = np.arange(self._properties, dtype=np.uint16)
        self._trees = RapidIndex(self._properties, most_ones=1)
        self._trees.build(Boxes(self._properties, start, properties, one, one))

    def _candidates(self, point: Int64Array) -> Int32Array:
        event = np.zeros((1, self._properties), np.int64)
        number = 0
        for attribute in self._cut.tolist():
            cell = cell_of(self._cells, attribute, point[0, attribute])
            number = number * (self.chosen["cells"] + 1) + cell
        event[0, number] = 1
        found = [
            self._box[self._ends[one - 1] if one else 0 : self._ends[one]]
            for one in self._trees.match_one(event).tolist()
        ]
        return np.concatenate(found) if found else np.zeros(0, np.int32)

    @property
    def nbytes(self) -> dict[str, int]:
        trees: dict[str, Any] = self._trees.nbytes
        return {
            **super().nbytes,
            "lists": self._box.nbytes + self._ends.nbytes,
            "trees": sum(trees.values()),
        }


@kernel
def _spans(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    cut: Int64Array,
    first: Int64Array,
    last: Int64Array,
) -> None:
    """The first and the last cell of each box on the attributes that are cut."""
    for box in range(len(start) - 1):
        for p in range(start[box], start[box + 1]):
            for i in range(len(cut)):
                if attribute[p] == cut[i]:
                    first[box, i] = max(first[box, i], low[p])
                    last[box, i] = min(last[box, i], high[p])


@kernel
def _list_copies(
    first: Int64Array,
    last: Int64Array,
    copies: Int64Array,
    base: int,
    box: Int32Array,
    partition: UInt16Array,
) -> None:
    """Write out each box for each partition that it overlaps."""
    at = 0
    dimensions = first.shape[1]
    place = np.empty(dimensions, np.int64)
    for row in range(len(first)):
        for i in range(dimensions):
            place[i] = first[row, i]
        for _ in range(copies[row]):
            number = 0
            for i in range(dimensions):
                number = number * base + place[i]
            box[at] = row
            partition[at] = number
            at += 1
            i = dimensions - 1
            while i >= 0:
                place[i] += 1
                if place[i] <= last[row, i]:
                    break
                place[i] = first[row, i]
                i -= 1
