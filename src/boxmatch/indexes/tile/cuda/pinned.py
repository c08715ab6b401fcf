"""Pinned memory for results: the card writes them where they stay.

Fresh memory takes longer to write than the bus takes to bring what belongs there, and pinning takes
as long. So memory is kept, and lent again once nobody has the result any more.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import cuda

from boxmatch.arrays import Int32Array

_MOST: Final = 1 << 32
_SHARE: Final = 8
"""No more bytes are pinned at a time than so many, or one in so many of the machine's memory, with
those of results that are still in use.
"""

_STEP: Final = 1 << 20
_ROOM: Final = 4
"""A result may take a block of up to so many times its size."""


class PinnedResults:
    """Arrays of pinned memory that is used again. Any number of threads may ask."""

    def __init__(self, most: int | None = None) -> None:
        self._most = _most() if most is None else most
        self._pinned = 0
        self._free: list[npt.NDArray[np.uint8]] = []
        self._asking = threading.Lock()

    def array(self, size: int) -> Int32Array | None:
        """Room for so many numbers; None if that would be too much pinned memory."""
        wanted = 4 * size
        with self._asking:
            block = self._block(wanted)
        if block is None:
            return None
        # Slices of an array refer to it, and it to the lender: the last of them gives it back.
        lender: Any = (ctypes.c_byte * wanted).from_address(block.ctypes.data)
        weakref.finalize(lender, self._free.append, block).atexit = False
        array: Int32Array = np.frombuffer(lender, np.int32)
        return array

    def _block(self, wanted: int) -> npt.NDArray[np.uint8] | None:
        # Others may append meanwhile, but only here are blocks taken.
        fitting = [
            (block.nbytes, i)
            for i, block in enumerate(list(self._free))
            if wanted <= block.nbytes <= _ROOM * max(wanted, _STEP)
        ]
        if fitting:
            return self._free.pop(min(fitting)[1])
        size = -(-wanted * 5 // 4 // _STEP) * _STEP
        while self._free and self._pinned + size > self._most:
            self._pinned -= self._free.pop(0).nbytes
        if self._pinned + size > self._most:
            return None
        try:
            block: npt.NDArray[np.uint8] = cuda.pinned_array(size, np.uint8)
        except Exception:
            return None  # not so much can be pinned; if the card is lost, the next copy says so
        self._pinned += size
        return block


def _most() -> int:
    if not hasattr(os, "sysconf"):
        return _MOST
    return min(_MOST, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _SHARE)
