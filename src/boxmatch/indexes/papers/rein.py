"""`rein`: find what cannot match, mark it in a bit set, and what is left matches.

After "REIN: A Fast Event Matching Approach for Content-based Publish/Subscribe Systems" (Qian et
al., INFOCOM 2014). For each attribute there are two bucket lists, one of low endpoints and one of
high endpoints. An event's value falls into one cell: predicates in the buckets after it whose low
end is there start too late, predicates in the buckets before it whose high end is there stop too
early. Only within that cell are values compared. The paper doubles values to turn a point into a
cube; with closed intervals on both sides that amounts to comparing with `<` and `>`, as is done
here.

An event that lacks an attribute falls into cell 0, before all others: every predicate on it that
does not take absent values starts too late.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt64Array
from boxmatch.indexes.base import Capabilities, Query
from boxmatch.indexes.papers.parts.cells import Cells, cell_of, cells_of, fit_cells
from boxmatch.indexes.papers.parts.portions import (
    Listing,
    discard_items,
    insert_items,
    listed,
    no_items,
    owners,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.bit_sets import mark, mark_all_but, mark_buckets, take_unmarked
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


class EndpointLists(NamedTuple):
    """The bucket of cell `c` of attribute `a` has number `a * (number + 1) + c` in both lists."""

    cells: Cells
    low: Buckets
    high: Buckets


def no_endpoints(boxes: Boxes, cells: int) -> EndpointLists:
    """Empty lists of `cells` cells for each attribute, spread over the endpoints of `boxes`."""
    count = boxes.dimensions * (cells + 1)
    return EndpointLists(fit_cells(boxes, cells), no_items(count), no_items(count))


def insert_endpoints(lists: EndpointLists, boxes: Boxes, positions: Int32Array) -> EndpointLists:
    """The lists with more boxes. What was given must not be used any more."""
    cells, low, high = lists
    low = insert_items(low, _ends(cells, boxes, boxes.low, positions))
    high = insert_items(high, _ends(cells, boxes, boxes.high, positions))
    return EndpointLists(cells, low, high)


def delete_endpoints(lists: EndpointLists, boxes: Boxes, positions: Int32Array) -> None:
    """Take the endpoints of boxes out of the lists."""
    cells, low, high = lists
    discard_items(low, _ends(cells, boxes, boxes.low, positions))
    discard_items(high, _ends(cells, boxes, boxes.high, positions))


def _ends(cells: Cells, boxes: Boxes, key: Int64Array, positions: Int32Array) -> Listing:
    """One end of each predicate."""
    first = boxes.attribute.astype(np.int64) * int(cells.number[0] + 1)
    return listed(first + cells_of(cells, boxes.attribute, key), owners(boxes, positions), key)


class ReinIndex(UpdatableIndex):
    """Two bucket lists for each attribute, and a bit set for each event.

    `cells`: buckets in a list (b in the paper). More leave less to compare and more to walk.
    """

    name = "rein"
    parameters = {"cells": 1_000}
    capabilities = Capabilities(updates=True, approximate=True)
    _structure = EndpointLists
    _limits = {"cells": (1, 1_000_000)}

    def _empty(self, boxes: Boxes) -> EndpointLists:
        return no_endpoints(boxes, self.chosen["cells"])

    def _insert(self, boxes: Boxes, positions: Int32Array) -> EndpointLists:
        return insert_endpoints(self._state, boxes, positions)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        delete_endpoints(self._state, boxes, positions)

    def _search(self, query: Query) -> Int32Array:
        return _search(self._state, query)


@kernel
def _search(lists: EndpointLists, query: Query) -> Int32Array:
    points, alive, skipped, listing, counts = query
    words = np.empty(alive.size, np.uint64)
    found = np.empty(64, np.int32)
    end: Int = 0
    dimensions = points.shape[1]
    row = lists.cells.number[0] + 1  # buckets of one attribute
    for event in range(len(points)):
        mark_all_but(words, alive)
        for a in range(dimensions):
            if len(skipped) > 0 and skipped[a]:
                continue
            key = points[event, a]
            here = a * row + cell_of(lists.cells, a, key)
            compare_low(words, lists, here, key)
            mark_buckets(words, lists.low, here + 1, (a + 1) * row)
            compare_high(words, lists, here, key)
            mark_buckets(words, lists.high, a * row, here)
        counts[event], found, end = take_unmarked(words, listing, found, end)
    return found[:end]


@kernel
def compare_low(words: UInt64Array, lists: EndpointLists, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose low end is beyond the key."""
    start = lists.low.start[bucket]
    for at in range(start, start + lists.low.size[bucket]):
        if lists.low.key[at] > key:
            mark(words, lists.low.box[at])


@kernel
def compare_high(words: UInt64Array, lists: EndpointLists, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose high end is short of the key."""
    start = lists.high.start[bucket]
    for at in range(start, start + lists.high.size[bucket]):
        if lists.high.key[at] < key:
            mark(words, lists.high.box[at])
