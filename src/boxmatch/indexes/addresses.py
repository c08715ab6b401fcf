"""Arrays at addresses: how a kernel is handed many arrays as one small array of numbers."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, overload


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
