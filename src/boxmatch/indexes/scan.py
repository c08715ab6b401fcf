"""`scan`: compare every box with every point. The truth that all other indexes are held to."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, BoolArray, Int, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.base import (
    NO_IDS,
    NO_LINES,
    NO_MARKS,
    NO_OWNERS,
    Capabilities,
    Index,
    Query,
    Search,
    returned,
)
from boxmatch.indexes.plain_scan import scan_plainly
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.box_lists import append, hand_over, is_alive, longer, once_per_owner
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
        points, alive, skipped, listing, counts = query
        search = self.prepare(alive, skipped)
        if search is None:
            return scan_plainly(self._boxes, self._rows, query, None)
        return returned(search(points, listing, counts))

    def _search_lists(self, query: Query, lists: ListKeys) -> Int32Array:
        if not background.has(Stage.SCAN):
            return scan_plainly(self._boxes, self._rows, query, lists)
        return _scan_lists(*self._boxes[1:], self._rows, query, lists)

    def prepare(
        self,
        alive: BitLines = NO_LINES,
        skipped: BoolArray = NO_MARKS,
        ids: Int64Array = NO_IDS,
        owners: Int32Array = NO_OWNERS,
    ) -> Search | None:
        if not background.has(Stage.SCAN):
            return None
        return partial(_scan, *self._boxes[1:], self._rows, alive, skipped, ids, owners)

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
    alive: BitLines,
    skipped: BoolArray,
    ids: Int64Array,
    owners: Int32Array,
    points: Int64Array,
    listing: bool,
    room: Int64Array,
) -> Int32Array | None:
    """Compare every box with every point; see `Search`."""
    found = np.empty(64, np.int32)
    end: Int = np.int64(0)
    for event in range(len(points)):
        after = end
        for box in range(rows):
            if (len(alive) == 0 or is_alive(alive, box)) and holds(
                start, attribute, low, high, box, points, event, skipped
            ):
                if listing or len(owners):
                    if after == len(found):
                        found = longer(found, 2 * after)
                    found[after] = box
                after += 1
        after = once_per_owner(owners, found, end, after)
        room[event] = after - end
        end = after if listing else np.int64(0)
    if hand_over(found, end, ids, room, len(points)):
        return None
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
