"""Boxes from arrays of bounds, n × d in schema order."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.boxes import Boxes
from boxmatch.model.keys import int_keys, without_float
from boxmatch.model.numeric_arrays import check_numbers, check_shape, number_error
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
        found = schema.attributes[position]
        ends = low[row, position].item(), high[row, position].item()
        raise number_error(found, next(end for end in ends if not _fits(found, end)), row)
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
            row, position = map(int, np.unravel_index(int(refused.argmax()), refused.shape))
            name, value = schema.names[position], array[row, position].item()
            raise AttributeValueError(name, value, "is outside the range of int64", row=row)
    for position, attribute in enumerate(schema):
        refused = without_float(array[:, position]) if attribute.type == "float" else None
        if refused is not None:
            row = int(refused.argmax())
            raise number_error(attribute, array[row, position].item(), row)
    return np.ascontiguousarray(array, np.int64)


def _fits(attribute: Attribute, end: int | float) -> bool:
    """Whether a number is an end of a range of whole values; NaN and infinities are no end."""
    if attribute.type in ("string", "enum"):
        return end != end
    if attribute.type == "bool":
        return end != end or end in (0, 1)
    return not isfinite(end) or (end == int(end) and -(2**63) <= end < 2**63)
