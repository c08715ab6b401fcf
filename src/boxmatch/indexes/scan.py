"""`scan`: compare every box with every point. The truth that all other indexes are held to."""

from __future__ import annotations

from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.base import NO_LINES, NO_MARKS, Capabilities, Index, Query
from boxmatch.indexes.plain_scan import scan_plainly
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.box_lists import append, is_alive, longer
from boxmatch.kernels.jit import kernel
from boxmatch.model.box_kernels import any_inside, holds, keep_holders, places_of_lists
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import ListKeys

# A rank is the number of predicates that fail, then of those that hold: the more the nearer.
FAILURE: Final = 1 << 16
NEVER: Final = (1 << 62) - 1

_NO_LISTS = ListKeys(np.zeros(0, np.int32), np.zeros(1, np.int64), np.zeros(0, np.int64))


class ScanIndex(Index):
    """Brute force. Exact by being obvious; fine up to a few thousand boxes."""

    name = "scan"
    capabilities = Capabilities(approximate=True, lists=True)

    def build(self, boxes: Boxes) -> None:
        self._boxes, self._rows = boxes, boxes.count

    def _search(self, query: Query) -> Int32Array:
        if not background.has(Stage.SCAN):
            return scan_plainly(self._boxes, self._rows, query, None)
        points, alive, skipped, listing, counts = query
        return _scan(*self._boxes[1:], self._rows, points, alive, skipped, listing, counts)

    def _search_lists(self, query: Query, lists: ListKeys) -> Int32Array:
        if not background.has(Stage.SCAN):
            return scan_plainly(self._boxes, self._rows, query, lists)
        return _scan_lists(*self._boxes[1:], self._rows, query, lists)

    def match_one(
        self,
        point: Int64Array,
        alive: BitLines | None = None,
        skipped: BoolArray | None = None,
        *,
        lists: ListKeys | None = None,
    ) -> Int32Array:
        if lists is not None or not background.has(Stage.SCAN):
            return super().match_one(point, alive, skipped, lists=lists)
        lines = NO_LINES if alive is None else alive
        marks = NO_MARKS if skipped is None else skipped
        counts = np.empty(1, np.int64)
        return _scan(*self._boxes[1:], self._rows, point, lines, marks, True, counts)

    @property
    def boxes(self) -> Boxes:
        return self._boxes

    @property
    def nbytes(self) -> dict[str, int]:
        return {"boxes": self._boxes.nbytes}

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return self._boxes.arrays

    @classmethod
    def from_arrays(
        cls, dimensions: int, parameters: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]
    ) -> Self:
        index = cls(dimensions, **parameters)
        index.build(Boxes(dimensions, **arrays))
        return index


class InterimIndex(ScanIndex):
    """In the place of an index whose kernels are being compiled."""

    interim = True


def scan_over(boxes: Boxes, rows: int) -> ScanIndex:
    """An index of the first `rows` boxes, whose arrays may be longer. Made in no time."""
    index = ScanIndex.__new__(ScanIndex)  # there are no parameters that could be wrong
    index.dimensions = boxes.dimensions
    index._boxes, index._rows = boxes, rows
    return index


@kernel
def _scan(
    start: Int64Array,
    attribute: npt.NDArray[np.uint16],
    low: Int64Array,
    high: Int64Array,
    rows: int,
    points: Int64Array,
    alive: BitLines,
    skipped: BoolArray,
    listing: bool,
    counts: Int64Array,
) -> Int32Array:
    """Set `counts` to each event's matches; if `listing`, return their boxes, event by event."""
    found = np.empty(64, np.int32)
    end = 0
    for event in range(len(points)):
        matched = 0
        for box in range(rows):
            if (len(alive) == 0 or is_alive(alive, box)) and holds(
                start, attribute, low, high, box, points, event, skipped
            ):
                matched += 1
                if listing:
                    if end == len(found):
                        found = longer(found, 2 * end)
                    found[end] = box
                    end += 1
        counts[event] = matched
    return found[:end]


@kernel
def _scan_lists(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    rows: int,
    query: Query,
    lists: ListKeys,
) -> Int32Array:
    """The same for points with sets of keys."""
    points, alive, skipped, listing, counts = query
    list_of = places_of_lists(lists.axes, points.shape[1])
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)
    box = np.empty(rows, np.int32)
    certain = np.full(rows, -1, np.int32)
    for e in range(len(points)):
        event = np.full(rows, e, np.int32)
        living = 0
        for b in range(rows):
            if len(alive) == 0 or is_alive(alive, b):
                box[living] = b
                living += 1
        counts[e] = keep_holders(
            start,
            attribute,
            low,
            high,
            points,
            lists,
            list_of,
            skipped,
            event,
            box,
            certain,
            living,
        )
        if listing:
            found, end = append(found, end, box, counts[e])
    return found[:end]


def rank_failures(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    point: Int64Array,
    ranks: Int64Array,
    lists: ListKeys | None = None,
) -> None:
    """Set the ranks of the first boxes: the lower, the nearer a box is to hold the point.

    `lists` has the sets of keys of this one point.
    """
    sets = _NO_LISTS if lists is None else lists
    _rank_failures(start, attribute, low, high, point, sets, ranks)


@kernel
def _rank_failures(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    point: Int64Array,
    lists: ListKeys,
    ranks: Int64Array,
) -> None:
    list_of = places_of_lists(lists.axes, len(point))
    list_start, list_keys = lists.start, lists.keys
    for box in range(len(ranks)):
        failed = 0
        never = False
        for p in range(start[box], start[box + 1]):
            place = list_of[attribute[p]]
            if place < 0:
                key = point[attribute[p]]
                failed += key < low[p] or key > high[p]
            else:
                failed += not any_inside(list_start, list_keys, place, low[p], high[p])
            never |= low[p] > high[p]
        satisfied = start[box + 1] - start[box] - failed
        ranks[box] = NEVER if never else failed * FAILURE + (FAILURE - 1 - satisfied)
