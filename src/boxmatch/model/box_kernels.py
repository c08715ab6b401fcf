"""Kernels over batches of boxes."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int64Array, UInt16Array
from boxmatch.kernels.jit import kernel


@kernel
def count_attributes(attribute: UInt16Array, dimensions: int) -> Int64Array:
    """Predicates per attribute (`np.bincount` would first copy to int64)."""
    counts = np.zeros(dimensions, np.int64)
    for p in range(len(attribute)):
        counts[attribute[p]] += 1
    return counts
