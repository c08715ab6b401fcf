"""Kernels over batches of boxes."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BoolArray, Int, Int64Array, UInt16Array
from boxmatch.kernels.jit import kernel


@kernel
def count_attributes(attribute: UInt16Array, dimensions: int) -> Int64Array:
    """Predicates per attribute (`np.bincount` would first copy to int64)."""
    counts = np.zeros(dimensions, np.int64)
    for p in range(len(attribute)):
        counts[attribute[p]] += 1
    return counts


@kernel
def holds(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    box: Int,
    points: Int64Array,
    event: Int,
    skipped: BoolArray,
) -> bool:
    """Whether a box holds a point, apart from attributes that are skipped (empty: none)."""
    for p in range(start[box], start[box + 1]):
        key = points[event, attribute[p]]
        if (key < low[p] or key > high[p]) and not (len(skipped) and skipped[attribute[p]]):
            return False
    return True
