"""A batch of boxes that more can be appended to."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from boxmatch.model.boxes import Boxes

Array = TypeVar("Array", bound=npt.NDArray[Any])


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
