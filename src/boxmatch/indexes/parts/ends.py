"""Both ends of every predicate, in bucket lists by attribute and cell.

One list per attribute holds the low ends, another the high ends. Within a bucket the order means
nothing, so that boxes come and go cheaply.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.indexes.base import Int32Array
from boxmatch.indexes.parts import buckets
from boxmatch.indexes.parts.buckets import Buckets
from boxmatch.indexes.parts.cells import Cells, cells_of, fit_cells
from boxmatch.model.boxes import Boxes, Int64Array


class Ends(NamedTuple):
    """The bucket of cell `c` of attribute `a` has number `a * (number + 1) + c` in both lists."""

    cells: Cells
    low: Buckets
    high: Buckets


def make_ends(boxes: Boxes, positions: Int32Array, cells: int) -> Ends:
    """Bucket lists of `cells` cells for each attribute."""
    fitted = fit_cells(boxes, cells)
    number = boxes.dimensions * (cells + 1)
    box = owners(boxes, positions)
    low = buckets.fill(number, bucket_of(fitted, boxes, boxes.low), box, boxes.low)
    high = buckets.fill(number, bucket_of(fitted, boxes, boxes.high), box, boxes.high)
    return Ends(fitted, low, high)


def insert_ends(ends: Ends, boxes: Boxes, positions: Int32Array) -> Ends:
    """The lists with more boxes. What was given must not be used any more."""
    cells, low, high = ends
    box = owners(boxes, positions)
    low = buckets.append(low, bucket_of(cells, boxes, boxes.low), box, boxes.low)
    high = buckets.append(high, bucket_of(cells, boxes, boxes.high), box, boxes.high)
    return Ends(cells, low, high)


def delete_ends(ends: Ends, boxes: Boxes, positions: Int32Array) -> None:
    """Take the ends of boxes out of the lists."""
    box = owners(boxes, positions)
    buckets.discard(ends.low, bucket_of(ends.cells, boxes, boxes.low), box)
    buckets.discard(ends.high, bucket_of(ends.cells, boxes, boxes.high), box)


def owners(boxes: Boxes, positions: Int32Array) -> Int32Array:
    """The position of the box that each predicate belongs to."""
    return np.repeat(positions, np.diff(boxes.start))


def bucket_of(cells: Cells, boxes: Boxes, key: Int64Array) -> Int64Array:
    """The bucket for one end of each predicate."""
    first = boxes.attribute.astype(np.int64) * int(cells.number[0] + 1)
    return first + cells_of(cells, boxes.attribute, key)
