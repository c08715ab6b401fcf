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

import numpy as np

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array, UInt64Array
from boxmatch.indexes.base import Capabilities
from boxmatch.indexes.papers.parts.cells import cell_of
from boxmatch.indexes.papers.parts.endpoints import (
    Endpoints,
    delete_endpoints,
    insert_endpoints,
    make_endpoints,
)
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.bit_sets import mark, mark_all_but, mark_buckets, take_unmarked
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


class ReinIndex(UpdatableIndex):
    """Two bucket lists for each attribute, and a bit set for each event.

    `cells`: buckets in a list (b in the paper). More leave less to compare and more to walk.
    """

    name = "rein"
    parameters = {"cells": 1_000}
    capabilities = Capabilities(updates=True, approximate=True)
    _structure = Endpoints
    _limits = {"cells": (1, 1_000_000)}

    def _make(self, boxes: Boxes, positions: Int32Array) -> Endpoints:
        return make_endpoints(boxes, positions, self.chosen["cells"])

    def _insert(self, boxes: Boxes, positions: Int32Array) -> Endpoints:
        return insert_endpoints(self._state, boxes, positions)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        delete_endpoints(self._state, boxes, positions)

    def _search(
        self,
        points: Int64Array,
        alive: BitLines,
        skipped: BoolArray,
        listing: bool,
        counts: Int64Array,
    ) -> Int32Array:
        return _search(self._state, points, alive, skipped, listing, counts)


@kernel
def _search(
    endpoints: Endpoints,
    points: Int64Array,
    alive: BitLines,
    skipped: BoolArray,
    listing: bool,
    counts: Int64Array,
) -> Int32Array:
    words = np.empty(alive.size, np.uint64)
    found = np.empty(64, np.int32)
    end: Int = 0
    dimensions = points.shape[1]
    row = endpoints.cells.number[0] + 1  # buckets of one attribute
    for event in range(len(points)):
        mark_all_but(words, alive)
        for a in range(dimensions):
            if len(skipped) > 0 and skipped[a]:
                continue
            key = points[event, a]
            here = a * row + cell_of(endpoints.cells, a, key)
            compare_low(words, endpoints, here, key)
            mark_buckets(words, endpoints.low, here + 1, (a + 1) * row)
            compare_high(words, endpoints, here, key)
            mark_buckets(words, endpoints.high, a * row, here)
        counts[event], found, end = take_unmarked(words, listing, found, end)
    return found[:end]


@kernel
def compare_low(words: UInt64Array, endpoints: Endpoints, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose low end is beyond the key."""
    start = endpoints.low.start[bucket]
    for at in range(start, start + endpoints.low.size[bucket]):
        if endpoints.low.key[at] > key:
            mark(words, endpoints.low.box[at])


@kernel
def compare_high(words: UInt64Array, endpoints: Endpoints, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose high end is short of the key."""
    start = endpoints.high.start[bucket]
    for at in range(start, start + endpoints.high.size[bucket]):
        if endpoints.high.key[at] < key:
            mark(words, endpoints.high.box[at])
