"""Large arrays on large pages of memory.

What is looked at in no order waits for its page to be found more than for anything else. NumPy asks
for large pages as well, but memory that was used before has small ones already, so that whether an
array gets them is luck: the same small update of spaces took 59 µs in one run and 65 in another.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
import numpy.typing as npt

_PAGE = 2 << 20
_ADVICE = getattr(mmap, "MADV_HUGEPAGE", None)  # of Linux alone


def large_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Zeros, which begin where a large page does if they fill one."""
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if _ADVICE is None or size < _PAGE or kind.hasobject:
        return np.zeros(shape, kind)
    try:
        area = mmap.mmap(-1, size + _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        area.madvise(_ADVICE)
    except OSError:  # a kernel without them, or no room, which NumPy has words for
        return np.zeros(shape, kind)
    buffer = np.frombuffer(area, np.uint8)  # which keeps the area
    first = -buffer.ctypes.data % _PAGE
    return buffer[first : first + size].view(kind).reshape(shape)
