"""Batches of boxes, as columns, and one that more can be appended to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.kernels.pieces import repeat
from boxmatch.model.axis import ABSENT, LAST

Array = TypeVar("Array", bound=npt.NDArray[Any])


class Boxes(NamedTuple):
    """Boxes as compressed rows: only the attributes that a box constrains are stored.

    Predicate `p` in `start[i]:start[i + 1]` says that box `i` needs attribute `attribute[p]` to
    have a key in the closed interval `low[p] … high[p]`. Within a box the attributes ascend and
    none is repeated.
    """

    dimensions: int
    start: Int64Array
    attribute: npt.NDArray[np.uint16]
    low: Int64Array
    high: Int64Array

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple's `count` is of no use here
        """Number of boxes."""
        return len(self.start) - 1

    @property
    def nbytes(self) -> int:
        return self.start.nbytes + self.attribute.nbytes + self.low.nbytes + self.high.nbytes

    @property
    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All but the number of dimensions, by name."""
        return dict(zip(self._fields[1:], self[1:], strict=True))

    @classmethod
    def empty(cls, dimensions: int) -> Boxes:
        return cls.of(dimensions, [])

    @classmethod
    def of(cls, dimensions: int, rows: Sequence[Sequence[tuple[int, int, int]]]) -> Boxes:
        """From rows of `(attribute, low, high)`, each row sorted by attribute."""
        start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=start[1:])
        flat = [predicate for row in rows for predicate in row]
        # By generators: the conversion of a long list would hold the GIL.
        return cls(
            dimensions,
            start,
            np.fromiter((p[0] for p in flat), np.uint16, len(flat)),
            np.fromiter((p[1] for p in flat), np.int64, len(flat)),
            np.fromiter((p[2] for p in flat), np.int64, len(flat)),
        )

    @classmethod
    def from_dense(cls, low: Int64Array, high: Int64Array) -> Boxes:
        """From n × d arrays of keys; an interval over the whole axis is no predicate."""
        dimensions = low.shape[1]
        constrained = (low != ABSENT) | (high != LAST)
        start = np.zeros(len(low) + 1, np.int64)
        np.cumsum(np.count_nonzero(constrained, axis=1), out=start[1:])
        attribute = np.nonzero(constrained)[1].astype(np.uint16)
        return cls(dimensions, start, attribute, low[constrained], high[constrained])

    def row(self, index: int) -> list[tuple[int, int, int]]:
        """Box `index` as `(attribute, low, high)` triples."""
        span = slice(self.start[index], self.start[index + 1])
        return list(
            zip(
                self.attribute[span].tolist(),
                self.low[span].tolist(),
                self.high[span].tolist(),
                strict=True,
            )
        )

    def take(self, rows: npt.NDArray[np.integer]) -> Boxes:
        """The boxes at `rows`, in that order."""
        lengths = np.diff(self.start)[rows]
        start = np.zeros(len(rows) + 1, np.int64)
        np.cumsum(lengths, out=start[1:])
        source = np.arange(start[-1]) + repeat(self.start[rows] - start[:-1], lengths)
        return Boxes(
            self.dimensions, start, self.attribute[source], self.low[source], self.high[source]
        )

    def within(self, dimensions: int) -> Boxes:
        """Their predicates of the first so many attributes."""
        if dimensions >= self.dimensions:
            return self._replace(dimensions=dimensions)
        kept = self.attribute < dimensions
        before = np.zeros(len(kept) + 1, np.int64)
        np.cumsum(kept, out=before[1:])
        return Boxes(
            dimensions, before[self.start], self.attribute[kept], self.low[kept], self.high[kept]
        )

    def with_attributes(self, attribute: Int64Array) -> Boxes:
        """The same predicates of other attributes, in ascending order again."""
        row = np.repeat(np.arange(self.count), np.diff(self.start))
        order = np.lexsort((attribute, row))
        return Boxes(
            max(self.dimensions, int(attribute.max(initial=-1)) + 1),
            self.start,
            attribute[order].astype(np.uint16),
            self.low[order],
            self.high[order],
        )

    @staticmethod
    def concatenate(parts: Sequence[Boxes]) -> Boxes:
        """All boxes of `parts`, one after the other, over as many dimensions as one of them has."""
        starts = [parts[0].start[:1]]
        total = 0
        for part in parts:
            starts.append(part.start[1:] + total)
            total += int(part.start[-1])
        return Boxes(
            max(part.dimensions for part in parts),
            np.concatenate(starts),
            np.concatenate([part.attribute for part in parts]),
            np.concatenate([part.low for part in parts]),
            np.concatenate([part.high for part in parts]),
        )

    @staticmethod
    def joined(parts: Iterable[Boxes], dimensions: int, count: int) -> Boxes:
        """The `count` boxes of `parts`, which are made one by one, and let go of as they come."""
        start = np.zeros(count + 1, np.int64)
        columns: list[npt.NDArray[Any]] = [np.empty(0, t) for t in (np.uint16, np.int64, np.int64)]
        rows = used = 0
        for part in parts:
            end = used + len(part.attribute)
            start[rows + 1 : rows + part.count + 1] = part.start[1:] + used
            rows += part.count
            if end > len(columns[0]):
                # Enough if the others are like these; what is not used is never touched.
                room = end * count // rows + end // 32
                columns = [longer(column, room) for column in columns]
            for column, more in zip(columns, part[2:], strict=True):
                column[used:end] = more
            used = end
        attribute, low, high = (column[:used] for column in columns)
        return Boxes(dimensions, start, attribute, low, high)


class GrowingBoxes:
    """Boxes in arrays with room to spare. What was seen of them before an append never changes."""

    def __init__(self, boxes: Boxes) -> None:
        self._held = boxes
        self._rows = boxes.count
        self._predicates = len(boxes.attribute)

    @property
    def boxes(self) -> Boxes:
        """All boxes so far. Shares memory."""
        dimensions, start, attribute, low, high = self._held
        used = slice(0, self._predicates)
        return Boxes(dimensions, start[: self._rows + 1], attribute[used], low[used], high[used])

    def append(self, boxes: Boxes) -> None:
        """Add boxes after those that are here."""
        rows = self._rows + boxes.count
        predicates = self._predicates + len(boxes.attribute)
        start, attribute, low, high = self._held[1:]
        if rows + 1 > len(start):
            start = longer(start, 2 * rows + 1)
        if predicates > len(attribute):
            size = 2 * predicates
            attribute, low, high = longer(attribute, size), longer(low, size), longer(high, size)
        start[self._rows + 1 : rows + 1] = boxes.start[1:] + self._predicates
        span = slice(self._predicates, predicates)
        attribute[span], low[span], high[span] = boxes.attribute, boxes.low, boxes.high
        self._held = Boxes(self._held.dimensions, start, attribute, low, high)
        self._rows, self._predicates = rows, predicates


def longer(array: Array, size: int) -> Array:
    """A copy with room for `size` items in the first axis; what is new is not set."""
    copy = np.empty((size, *array.shape[1:]), array.dtype)
    copy[: len(array)] = array
    return cast(Array, copy)
