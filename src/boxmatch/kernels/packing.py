"""Many arrays handed to a kernel as one small array of numbers.

Handing some thirty arrays from Python to a kernel takes longer than matching one event against a
hundred thousand subscriptions. Their addresses travel in one array instead, of which the kernel
makes the arrays again. How, is generated from the annotations of a NamedTuple, and `pack` checks
every array against them: a kernel that is handed an address takes the type on trust.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, TypeVar, get_args, get_type_hints

import numba
import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic, overload

from boxmatch.arrays import AnyArray, Int64Array
from boxmatch.kernels.jit import kernel

State = TypeVar("State", bound=tuple[Any, ...])


def packing(
    layout: type[State],
) -> tuple[Callable[[State], Int64Array], Callable[[Int64Array], State]]:
    """Two functions for a NamedTuple of arrays: `pack` it, and the kernel that will `unpack` it.

    Fields are annotated as arrays of one dimension, as tables (two), `int`, `bool`, or as other
    such NamedTuples. What was packed must outlive the result. `ValueError`: an array is of another
    type, or not contiguous.
    """
    # Now, and not by threads that load: evaluating annotations is not safe there in Python 3.11.
    hints = _hints_of(layout)

    def pack(state: State) -> Int64Array:
        return np.array(list(_rows(state, hints)), np.int64)

    return pack, _make_unpack(layout, hints)


def array_at(address: Any, shape: Any, dtype: Any) -> AnyArray:
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
def _column_at(place: Int64Array, dtype: Any) -> AnyArray:
    return array_at(place[0], (place[1],), dtype)


@kernel
def _table_at(place: Int64Array, dtype: Any) -> AnyArray:
    return array_at(place[0], (place[1], place[2]), dtype)


def _hints_of(layout: type) -> dict[str, Any]:
    """By field: the hints of a NamedTuple, `int`, `bool`, or an array's type and dimensions."""
    found: dict[str, Any] = {}
    for name, hint in get_type_hints(layout).items():
        if hasattr(hint, "_fields"):
            found[name] = _hints_of(hint)
        elif hint in (int, bool):
            found[name] = hint
        else:
            # From NumPy 2.5 on, `NDArray[X]` is an alias with X alone.
            *shape, item = get_args(hint)
            [scalar] = get_args(item) or [item]
            found[name] = np.dtype(scalar), 2 if shape == [tuple[int, int]] else 1
    return found


def _rows(state: Any, hints: dict[str, Any]) -> Iterator[tuple[int, int, int]]:
    """Address, rows and columns of each array; a number is itself."""
    for name, value in zip(state._fields, state, strict=True):
        match hints[name]:
            case dict(inner):
                yield from _rows(value, inner)
            case (dtype, dimensions):
                if value.dtype != dtype or value.ndim != dimensions or not value.flags.c_contiguous:
                    raise ValueError(
                        f"{name} is not a contiguous {dimensions}-dimensional array of {dtype}"
                    )
                yield value.ctypes.data, len(value), value.shape[-1]
            case _:
                yield int(value), 0, 0


def _make_unpack(layout: type[State], hints: dict[str, Any]) -> Callable[[Int64Array], State]:
    names: dict[str, Any] = {"column_at": _column_at, "table_at": _table_at, "__name__": __name__}
    # A name of its own: kernels from the cache bring the functions that they call along, and two of
    # one name and signature would be taken for the same.
    name = f"unpack_{layout.__name__}"
    source = f"def {name}(packed):\n    return {_construction(layout, hints, count(), names)}\n"
    exec(compile(source, f"<unpack {layout.__name__}>", "exec"), names)
    # Not cached: it has no file. It becomes part of the kernels that call it, which are.
    compiled: Callable[[Int64Array], State] = numba.njit(nogil=True, error_model="numpy")(
        names[name]
    )
    return compiled


def _construction(
    layout: Any, hints: dict[str, Any], rows: Iterator[int], names: dict[str, Any]
) -> str:
    """The expression that makes a NamedTuple of the next rows; `names` are what it refers to."""
    names[layout.__name__] = layout
    types_of = get_type_hints(layout)
    parts = []
    for name, hint in hints.items():
        match hint:
            case dict(inner):
                parts.append(_construction(types_of[name], inner, rows, names))
            case (dtype, dimensions):
                names[dtype.name] = dtype.type
                function = "table_at" if dimensions == 2 else "column_at"
                parts.append(f"{function}(packed[{next(rows)}], {dtype.name})")
            case _:
                row = f"packed[{next(rows)}, 0]"
                parts.append(f"{row} != 0" if hint is bool else row)
    return f"{layout.__name__}({', '.join(parts)})"
