"""Arrays at addresses: how a kernel is handed many arrays as one small array of numbers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, overload

from boxmatch.jit import kernel
from boxmatch.model.boxes import Int64Array


def addresses_of(arrays: Iterable[npt.NDArray[Any]]) -> Int64Array:
    """Address, rows and columns of each array. The arrays must outlive what is made of this."""
    return np.array(
        [(array.ctypes.data, len(array), array.size // max(1, len(array))) for array in arrays],
        np.int64,
    )


def array_at(address: Any, shape: Any, dtype: Any) -> npt.NDArray[Any]:
    """The array that lies at an address. Whoever owns it must keep it meanwhile."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    buffer = (ctypes.c_char * size).from_address(int(address))
    return np.frombuffer(buffer, dtype).reshape(shape)


@intrinsic
def _pointer(typing_context: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return types.voidptr(types.int64), generate


overload(array_at, strict=False)(
    lambda address, shape, dtype: (
        lambda address, shape, dtype: carray(_pointer(address), shape, dtype)
    )
)


@kernel
def column_at(place: Int64Array, dtype: Any) -> npt.NDArray[Any]:
    """The array of one dimension that a row of `addresses_of` tells of."""
    return array_at(place[0], (place[1],), dtype)


@kernel
def table_at(place: Int64Array, dtype: Any) -> npt.NDArray[Any]:
    """The same for two dimensions."""
    return array_at(place[0], (place[1], place[2]), dtype)
