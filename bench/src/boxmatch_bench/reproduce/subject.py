"""What is measured: an index, with what has to be passed to it at every call."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import Matches
from boxmatch.indexes.registry import index_class
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes
from boxmatch_bench.reproduce.experiment import NUMPY, Series

_LARGEST_COLUMNS = 2 * 1024**3


class Subject:
    """An index, or NumPy in its place, searched always with the same attributes skipped.

    Some series leave attributes out by an argument to every search, `skipped`, others by the
    index's own `rate`.
    """

    def __init__(self, series: Series, dimensions: int, skipped: BoolArray | None = None) -> None:
        self.series = series
        self.skipped = skipped
        self.order: Int64Array | None = None
        self.index: Any = (
            BruteForce()
            if series.index == NUMPY.index
            else index_class(series.index)(dimensions, **series.parameters)
        )
        # Only what can skip gets the argument: brute force has none.
        self._extra = {} if skipped is None else {"skipped": skipped}

    @property
    def rate(self) -> float:
        """The tolerated rate of false matches."""
        own: float = self.index.own_rate
        return own if self.series.skipping is None else self.series.skipping

    def build(self, boxes: Boxes) -> None:
        self.order = self.index.build(boxes)

    def match(self, points: Int64Array) -> Matches:
        found: Matches = self.index.match(points, **self._extra)
        return found

    def count(self, points: Int64Array) -> Int64Array:
        counts: Int64Array = self.index.count(points, **self._extra)
        return counts

    def match_one(self, point: Int64Array) -> npt.NDArray[np.integer]:
        found: npt.NDArray[np.integer] = self.index.match_one(point, **self._extra)
        return found


class BruteForce:
    """NumPy as one writes it: whole columns of int64, attribute by attribute."""

    chosen: dict[str, Any] = {}  # noqa: RUF012 - has no parameters

    def build(self, boxes: Boxes) -> None:
        size = 2 * 8 * boxes.count * boxes.dimensions
        if size > _LARGEST_COLUMNS:
            raise IndexTooLargeError(f"dense columns would take {size / 1e9:.1f} GB")
        shape = boxes.dimensions, boxes.count
        self._low, self._high = np.full(shape, ABSENT), np.full(shape, LAST)
        row = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
        self._low[boxes.attribute, row] = boxes.low
        self._high[boxes.attribute, row] = boxes.high

    def match_one(self, point: Int64Array) -> Int64Array:
        mask = np.ones(self._low.shape[1], bool)
        for value, low, high in zip(point[0], self._low, self._high, strict=True):
            mask &= (low <= value) & (value <= high)
        return np.flatnonzero(mask)

    def match(self, points: Int64Array) -> Matches:
        rows = [self.match_one(points[i : i + 1]) for i in range(len(points))]
        counts = np.array([len(found) for found in rows], np.int64)
        return Matches(counts, np.concatenate(rows).astype(np.int32))

    def count(self, points: Int64Array) -> Int64Array:
        return self.match(points).counts

    @property
    def nbytes(self) -> dict[str, int]:
        return {"columns": self._low.nbytes + self._high.nbytes}
