"""Cells: each attribute's axis cut into even pieces, as the bucket lists of the papers need it.

Keys have no domain of their own, so the cells are spread over the ends that an index is built
with; keys beyond go into the first and the last cell. Cell 0 is for absent values alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int64Array, UInt16Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes


class Cells(NamedTuple):
    """Cells 1 to `number[0]` of attribute `a` start at `first[a]` and are `width[a]` keys wide."""

    first: Int64Array
    width: UInt64Array
    number: Int64Array


def fit_cells(boxes: Boxes, count: int) -> Cells:
    """Spread `count` cells over the ends of each attribute's predicates."""
    least, most = _span(boxes.attribute, boxes.low, boxes.high, boxes.dimensions)
    distance = most.astype(np.uint64) - least.astype(np.uint64)
    width = distance // np.uint64(count) + np.uint64(1)
    return Cells(least, width, np.array([count], np.int64))


@kernel
def _span(
    attribute: UInt16Array, low: Int64Array, high: Int64Array, dimensions: int
) -> tuple[Int64Array, Int64Array]:
    """The least and the greatest end of each attribute, open sides apart."""
    least = np.full(dimensions, LAST, np.int64)
    most = np.full(dimensions, FIRST, np.int64)
    for p in range(len(attribute)):
        a = attribute[p]
        for end in (low[p], high[p]):
            if FIRST < end < LAST:
                least[a] = min(least[a], end)
                most[a] = max(most[a], end)
    for a in range(dimensions):
        if least[a] > most[a]:
            least[a] = 0
            most[a] = 0
    return least, most


@kernel
def cell_of(cells: Cells, attribute: int, key: int) -> int:
    """The cell of a key: 0 if it is absent, else 1 to `number[0]`."""
    if key == ABSENT:
        return 0
    first = cells.first[attribute]
    if key <= first:
        return 1
    # The distance of two keys may exceed int64, and with narrow cells so may its quotient.
    cell = (np.uint64(key) - np.uint64(first)) // cells.width[attribute]
    if cell >= np.uint64(cells.number[0]):
        return int(cells.number[0])
    return int(cell) + 1


@kernel
def cells_of(cells: Cells, attribute: UInt16Array, key: Int64Array) -> Int64Array:
    """The cell of each key on its attribute."""
    found = np.empty(len(key), np.int64)
    for p in range(len(key)):
        found[p] = cell_of(cells, attribute[p], key[p])
    return found
