"""Numbers of Arrow arrays as NumPy vectors, and arithmetic on them that makes NULL of failures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute

from boxmatch.arrays import BoolArray
from boxmatch.model.axis import ABSENT
from boxmatch.model.expressions.nodes import Type

pc: Any = pyarrow.compute  # The stubs know few of its overloads.

Value = Any
"""A `pa.Array`, or a `pa.Scalar` that stands for as many equal values."""

KEYED_DIGITS: Final = 18
"""Decimals of so many digits are calculated as int64."""
FLOAT_DIGITS: Final = 15
"""Whole numbers of so many digits are floats."""
_SURE: Final = 9.2e18
"""Products below this are far enough from 2**63 for the rounding of floats not to matter."""

_ARROW: Final[dict[str, Any]] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "string": pa.large_string(),
    "bool": pa.bool_(),
    "timestamp": pa.int64(),
    "interval": pa.int64(),
    "months": pa.int64(),
    "null": pa.null(),
}


def arrow_type(type: Type) -> pa.DataType:
    """The Arrow type of a type's values, as `nodes` lists them."""
    match type.name:
        case "decimal":
            return pa.decimal128(type.precision, type.scale)
        case "list":
            assert type.element is not None  # only while a list is being made
            return pa.large_list(arrow_type(type.element))
        case "struct":
            return pa.struct([(name, arrow_type(one)) for name, one in type.fields])
    made: pa.DataType = _ARROW[type.name]
    return made


class Vector(NamedTuple):
    """Values, or one value for all, and where they are NULL."""

    values: Any
    nulls: BoolArray | None


def nulls_of(array: Value) -> BoolArray | None:
    """Where an array is NULL; None if it is nowhere."""
    if not array.null_count:
        return None
    nulls: BoolArray = array.is_null().to_numpy(zero_copy_only=False)
    return nulls


def vector(value: Value) -> Vector:
    """The vector of ints or floats. What stands where an array is NULL is arbitrary."""
    if isinstance(value, pa.Scalar):
        return Vector(value.as_py(), None)
    dtype = value.type.to_pandas_dtype()
    data = value.buffers()[1]
    if data is None:
        return Vector(np.zeros(len(value), dtype), nulls_of(value))
    values = np.frombuffer(data, dtype, len(value), value.offset * np.dtype(dtype).itemsize)
    return Vector(values, nulls_of(value))


def unscaled(value: Value, type: Type, scale: int) -> Vector:
    """Decimals of up to 18 digits as whole numbers of the place `scale`, which is not coarser."""
    factor = 10 ** (scale - type.scale)
    if isinstance(value, pa.Scalar):
        return Vector(int(value.as_py().scaleb(type.scale)) * factor, None)
    data = value.buffers()[1]
    if data is None:
        return Vector(np.zeros(len(value), np.int64), nulls_of(value))
    words = np.frombuffer(data, np.int64, 2 * len(value), 16 * value.offset)
    return Vector(words[::2] * factor, nulls_of(value))


def decimals(values: Any, nulls: BoolArray | None, type: Type) -> Value:
    """The decimals of unscaled int64."""
    words = np.empty((len(values), 2), np.int64)
    words[:, 0] = values
    words[:, 1] = values >> 63
    buffers = [None, pa.py_buffer(words.data)]
    made: Value = pa.Array.from_buffers(arrow_type(type), len(values), buffers)
    if nulls is None:
        return made
    return pc.if_else(pa.array(nulls), pa.scalar(None, made.type), made)


def array(values: Any, *nulls: BoolArray | None) -> Value:
    """The array of a NumPy vector, NULL wherever one of the masks says so."""
    return pa.array(values, mask=either(*nulls))


def either(*masks: BoolArray | None) -> BoolArray | None:
    """Where any of some masks is set; None if there is none."""
    result: BoolArray | None = None
    for mask in masks:
        if mask is not None:
            result = mask if result is None else result | mask
    return result


def _added(left: Any, right: Any) -> tuple[Any, Any]:
    result = np.add(left, right)
    return result, ((left ^ result) & (right ^ result)) < 0


def _subtracted(left: Any, right: Any) -> tuple[Any, Any]:
    result = np.subtract(left, right)
    return result, ((left ^ right) & (left ^ result)) < 0


def _multiplied(left: Any, right: Any) -> tuple[Any, Any]:
    result = np.multiply(left, right)
    size = np.abs(np.multiply(left, right, dtype=np.float64))
    bad = size > _SURE
    for row in np.flatnonzero(bad & (size < 2 * _SURE)):  # the rest is sure
        one, other = (int(np.broadcast_to(side, bad.shape)[row]) for side in (left, right))
        bad[row] = one * other != result[row]
    return result, bad


def _divided(left: Any, right: Any) -> tuple[Any, Any]:
    zero = np.equal(right, 0)
    right = np.where(zero, 1, right)
    result = np.floor_divide(left, right)
    result = result + ((result < 0) & (result * right != left))
    return result, zero


def _rest(left: Any, right: Any) -> tuple[Any, Any]:
    zero = np.equal(right, 0)
    return np.fmod(left, np.where(zero, 1, right)), zero


INT_ARITHMETIC: Final[dict[str, Callable[[Any, Any], tuple[Any, Any]]]] = {
    "+": _added,
    "-": _subtracted,
    "*": _multiplied,
    "div": _divided,
    "%": _rest,
}


def ints(function: str, left: Vector, right: Vector) -> Value:
    """Arithmetic on int64; the smallest number is none of ours, so it is NULL too."""
    with np.errstate(all="ignore"):
        one, other = _int64(left.values), _int64(right.values)
        result, bad = INT_ARITHMETIC[function](one, other)
    return array(result, left.nulls, right.nulls, bad | (result == ABSENT))


def _int64(values: Any) -> Any:
    return np.int64(values) if isinstance(values, int) else values


_FLOAT_ARITHMETIC: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
}


def floats(function: str, left: Vector, right: Vector) -> Value:
    """Arithmetic on float64; a NaN and a division by zero are NULL."""
    with np.errstate(all="ignore"):
        result = _FLOAT_ARITHMETIC[function](left.values, right.values)
    zero = np.equal(right.values, 0.0) if function in ("/", "%") else None
    return array(result, left.nulls, right.nulls, np.isnan(result), zero)


def rounded(value: Vector, digits: int) -> tuple[Any, BoolArray]:
    """Floats rounded half up, and where the digits they are written with have to decide."""
    if not 0 <= digits <= 15:
        return value.values, np.ones(len(value.values), bool)
    with np.errstate(all="ignore"):
        scaled = value.values * 10.0**digits
        below = np.floor(scaled)
        unsure = ~(np.abs(scaled) < 1e14) | (np.abs(scaled - below - 0.5) < 1e-1)
        result = np.rint(scaled) / 10.0**digits
    return np.where(unsure, 0.0, result), unsure
