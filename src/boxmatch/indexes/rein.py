"""`rein`: find what cannot match, mark it in a bit set, and what is left matches.

After "REIN: A Fast Event Matching Approach for Content-based Publish/Subscribe Systems" (Qian et
al., INFOCOM 2014). For each attribute there are two bucket lists, one of low ends and one of high
ends. An event's value falls into one cell: predicates in the buckets after it whose low end is
there start too late, predicates in the buckets before it whose high end is there stop too early.
Only within that cell are values compared. The paper doubles values to turn a point into a cube;
with closed intervals on both sides that amounts to comparing with `<` and `>`, as is done here.

An event that lacks an attribute falls into cell 0, before all others: every predicate on it that
does not take absent values starts too late.
"""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.base import BoolArray, Capabilities, Int32Array, Lines, Whole
from boxmatch.indexes.parts.cells import cell_of
from boxmatch.indexes.parts.ends import Ends, delete_ends, insert_ends, make_ends
from boxmatch.indexes.parts.marks import Words, mark, mark_all_but, mark_buckets, take_unmarked
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.jit import kernel
from boxmatch.model.boxes import Boxes, Int64Array


class ReinIndex(UpdatableIndex):
    """Two bucket lists for each attribute, and a bit set for each event.

    `cells`: buckets in a list (b in the paper). More leave less to compare and more to walk.
    """

    name = "rein"
    parameters = {"cells": 1_000}
    capabilities = Capabilities(updates=True, approximate=True)
    _structure = Ends
    _limits = {"cells": (1, 1_000_000)}

    def _make(self, boxes: Boxes, positions: Int32Array) -> Ends:
        return make_ends(boxes, positions, self.chosen["cells"])

    def _insert(self, boxes: Boxes, positions: Int32Array) -> Ends:
        return insert_ends(self._state, boxes, positions)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        delete_ends(self._state, boxes, positions)

    def _search(
        self,
        points: Int64Array,
        alive: Lines,
        skipped: BoolArray,
        listing: bool,
        counts: Int64Array,
    ) -> Int32Array:
        return _search(self._state, points, alive, skipped, listing, counts)


@kernel
def _search(
    ends: Ends,
    points: Int64Array,
    alive: Lines,
    skipped: BoolArray,
    listing: bool,
    counts: Int64Array,
) -> Int32Array:
    words = np.empty(alive.size, np.uint64)
    found = np.empty(64, np.int32)
    end: Whole = 0
    dimensions = points.shape[1]
    row = ends.cells.number[0] + 1  # buckets of one attribute
    for event in range(len(points)):
        mark_all_but(words, alive)
        for a in range(dimensions):
            if len(skipped) > 0 and skipped[a]:
                continue
            key = points[event, a]
            here = a * row + cell_of(ends.cells, a, key)
            compare_low(words, ends, here, key)
            mark_buckets(words, ends.low, here + 1, (a + 1) * row)
            compare_high(words, ends, here, key)
            mark_buckets(words, ends.high, a * row, here)
        counts[event], found, end = take_unmarked(words, listing, found, end)
    return found[:end]


@kernel
def compare_low(words: Words, ends: Ends, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose low end is beyond the key."""
    start = ends.low.start[bucket]
    for at in range(start, start + ends.low.size[bucket]):
        if ends.low.key[at] > key:
            mark(words, ends.low.box[at])


@kernel
def compare_high(words: Words, ends: Ends, bucket: int, key: int) -> None:
    """Mark the boxes of the event's own bucket whose high end is short of the key."""
    start = ends.high.start[bucket]
    for at in range(start, start + ends.high.size[bucket]):
        if ends.high.key[at] < key:
            mark(words, ends.high.box[at])
