"""Types of arrays, for annotations. Without Numba, so that a `Schema` is cheap to import."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
Int16Array = npt.NDArray[np.int16]
Int32Array = npt.NDArray[np.int32]
Int64Array = npt.NDArray[np.int64]
UInt8Array = npt.NDArray[np.uint8]
UInt16Array = npt.NDArray[np.uint16]
UInt64Array = npt.NDArray[np.uint64]
Float64Array = npt.NDArray[np.float64]
ObjectArray = npt.NDArray[np.object_]

Int64Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]
UInt16Table = np.ndarray[tuple[int, int], np.dtype[np.uint16]]

BitLines = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
"""Rows of eight words, 512 bits each."""

Int = int | np.integer[Any]
"""A number in a kernel, where Python's integers and NumPy's are the same."""
