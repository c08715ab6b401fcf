"""Boxes from arrays of bounds, n × d in schema order."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.boxes import Boxes
from boxmatch.model.keys import int_keys, no_float, without_float
from boxmatch.model.numeric_arrays import check_numbers, check_shape
from boxmatch.model.schema import Attribute, Schema


def boxes_from_bounds(schema: Schema, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Boxes:
    """One box per row of closed bounds.

    NaN is unbounded, and NaN on both sides is no predicate at all. Bools are 0 or 1, timestamps
    whole microseconds since 1970 in UTC. An infinity is a value to a float and unbounded to an
    int or a timestamp, and so is the smallest int64. Strings and enums must be NaN. Domains do
    not apply. A row whose low is above its high is a box that holds nothing.
    """
    from boxmatch.model import bounds_kernels as kernels

    low, high = _numbers(schema, lows), _numbers(schema, highs)
    if low.shape != high.shape:
        raise EventError(f"lows have {len(low):,} rows, but highs have {len(high):,}")
    kind_of = {"float": kernels.FLOAT, "bool": kernels.BOOL, "string": kernels.TEXT}
    kind_of["enum"] = kernels.TEXT
    kinds = np.array([kind_of.get(a.type, kernels.INT) for a in schema], np.uint8)
    start = np.zeros(len(low) + 1, np.int64)
    kernels.count_predicates(low, high, start)
    total = int(start[-1])
    attribute = np.empty(total, np.uint16)
    low_keys, high_keys = np.empty(total, np.int64), np.empty(total, np.int64)
    exact = low.dtype == np.int64, high.dtype == np.int64
    row, position = kernels.fill_predicates(low, high, exact, kinds, attribute, low_keys, high_keys)
    if row != kernels.NO_ROW:
        ends = low[row, position].item(), high[row, position].item()
        raise _refusal(schema.attributes[position], row, ends)
    return Boxes(len(schema), start, attribute, low_keys, high_keys)


def _numbers(schema: Schema, bounds: npt.ArrayLike) -> npt.NDArray[np.float64] | Int64Array:
    """The bounds as float64 or int64, whichever holds them exactly."""
    array: npt.NDArray[Any] = np.asarray(bounds)
    check_shape(schema, array)
    check_numbers(schema, array)
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "u":
        _, refused = int_keys(array)
        if refused is not None:
            row, position = np.unravel_index(int(refused.argmax()), refused.shape)
            raise AttributeValueError(
                schema.attributes[position].name,
                array[row, position].item(),
                "is outside the range of int64",
                row=int(row),
            )
    _check_floats(schema, array)
    return np.ascontiguousarray(array, np.int64)


def _check_floats(schema: Schema, array: npt.NDArray[Any]) -> None:
    for position, attribute in enumerate(schema):
        if attribute.type == "float":
            refused = without_float(array[:, position])
            if refused is not None:
                row = int(refused.argmax())
                value = array[row, position].item()
                reason = no_float(attribute, value)
                raise AttributeValueError(attribute.name, value, reason, row=row)


def _refusal(
    attribute: Attribute, row: int, ends: tuple[int | float, int | float]
) -> AttributeValueError:
    if attribute.type in ("string", "enum"):
        value = ends[0] if ends[0] == ends[0] else ends[1]
        reason = f"is a number, but the attribute is of type {attribute.type}; leave it NaN"
        return AttributeValueError(attribute.name, value, reason, row=row)
    value = next(end for end in ends if not _is_whole(attribute, end))
    if attribute.type == "bool":
        reason = "is neither 0 nor 1"
    elif isinstance(value, float) and not value.is_integer():
        unit = "int" if attribute.type == "int" else "whole number of microseconds"
        reason = f"is not {'an' if unit == 'int' else 'a'} {unit}"
    else:
        reason = "is outside the range of int64"
    return AttributeValueError(attribute.name, value, reason, row=row)


def _is_whole(attribute: Attribute, value: int | float) -> bool:
    if value != value:
        return True
    if attribute.type == "bool":
        return value in (0, 1)
    if value in (float("inf"), float("-inf")):
        return True
    return value == int(value) and -(2**63) <= value < 2**63
