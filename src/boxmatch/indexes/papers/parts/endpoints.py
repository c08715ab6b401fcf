"""Both endpoints of every predicate, in bucket lists by attribute and cell.

One list per attribute holds the low endpoints, another the high endpoints. Within a bucket the
order means nothing, so that boxes come and go cheaply.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.indexes.papers.parts.cells import Cells, cells_of, fit_cells
from boxmatch.kernels import bucket_pool as buckets
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.model.boxes import Boxes


class Endpoints(NamedTuple):
    """The bucket of cell `c` of attribute `a` has number `a * (number + 1) + c` in both lists."""

    cells: Cells
    low: Buckets
    high: Buckets


def make_endpoints(boxes: Boxes, positions: Int32Array, cells: int) -> Endpoints:
    """Bucket lists of `cells` cells for each attribute."""
    fitted = fit_cells(boxes, cells)
    number = boxes.dimensions * (cells + 1)
    box = owners(boxes, positions)
    low = buckets.fill(number, bucket_of(fitted, boxes, boxes.low), box, boxes.low)
    high = buckets.fill(number, bucket_of(fitted, boxes, boxes.high), box, boxes.high)
    return Endpoints(fitted, low, high)


def insert_endpoints(endpoints: Endpoints, boxes: Boxes, positions: Int32Array) -> Endpoints:
    """The lists with more boxes. What was given must not be used any more."""
    cells, low, high = endpoints
    box = owners(boxes, positions)
    low = buckets.append(low, bucket_of(cells, boxes, boxes.low), box, boxes.low)
    high = buckets.append(high, bucket_of(cells, boxes, boxes.high), box, boxes.high)
    return Endpoints(cells, low, high)


def delete_endpoints(endpoints: Endpoints, boxes: Boxes, positions: Int32Array) -> None:
    """Take the endpoints of boxes out of the lists."""
    box = owners(boxes, positions)
    buckets.discard(endpoints.low, bucket_of(endpoints.cells, boxes, boxes.low), box)
    buckets.discard(endpoints.high, bucket_of(endpoints.cells, boxes, boxes.high), box)


def owners(boxes: Boxes, positions: Int32Array) -> Int32Array:
    """The position of the box that each predicate belongs to."""
    return np.repeat(positions, np.diff(boxes.start))


def bucket_of(cells: Cells, boxes: Boxes, key: Int64Array) -> Int64Array:
    """The bucket for one end of each predicate."""
    first = boxes.attribute.astype(np.int64) * int(cells.number[0] + 1)
    return first + cells_of(cells, boxes.attribute, key)
