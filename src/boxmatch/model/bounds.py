"""Boxes from arrays of bounds, n × d in schema order."""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.errors import AttributeValueError, EventError, SchemaError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.decimals import unscaled_numbers
from boxmatch.model.numeric_arrays import check_numbers, check_shape, number_error
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.typed_arrays import int_keys, without_float


def boxes_from_bounds(schema: Schema, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Boxes:
    """One box per row of closed bounds.

    NaN is unbounded, and NaN on both sides is no predicate at all. Bools are 0 or 1, timestamps
    whole microseconds since 1970 in UTC. A float stands for the decimal that it is written as. An
    infinity is a value to a float and unbounded to the other types, and so is the smallest int64.
    Strings, enums and decimals of more than 18 digits must be NaN. Domains do not apply. A row
    whose low is above its high is a box that holds nothing.
    """
    from boxmatch.model import bounds_kernels as kernels

    for one in schema:
        if one.repeated:
            raise SchemaError(f"attribute {one.name!r} is a list: use a filter")
    low, high = _numbers(schema, lows), _numbers(schema, highs)
    if low.shape != high.shape:
        raise EventError(f"lows have {len(low):,} rows, but highs have {len(high):,}")
    kind_of = {"float": kernels.FLOAT, "bool": kernels.BOOL, "string": kernels.TEXT}
    kind_of["enum"] = kernels.TEXT
    kinds = np.array(
        [kernels.TEXT if a.labelled else kind_of.get(a.type, kernels.INT) for a in schema], np.uint8
    )
    decimals = [p for p, a in enumerate(schema) if a.type == "decimal" and not a.labelled]
    given = low, high
    if decimals:
        low, high = _without_columns(low, decimals), _without_columns(high, decimals)
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
        wrong = next(end for end in ends if not _fits(found, end))
        if found.type == "decimal":
            reason = f"cannot be a bound of a {found.type_name} in an array; pass a table"
            raise AttributeValueError(found.name, wrong, reason, row=row)
        raise number_error(found, wrong, row)
    for position in decimals:
        here = np.flatnonzero(attribute == position)
        rows = np.searchsorted(start, here, side="right") - 1
        firsts, lasts = (
            _decimal_ends(schema.attributes[position], end[:, position]) for end in given
        )
        first = np.where(firsts == ABSENT, FIRST, firsts)[rows]
        unbounded = np.isnan(given[1][:, position]) | (given[1][:, position] == np.inf)
        last = np.where(unbounded, LAST, lasts)[rows]
        empty = last == ABSENT
        low_keys[here] = np.where(empty, LAST, first)
        high_keys[here] = np.where(empty, FIRST, last)
    return Boxes(len(schema), start, attribute, low_keys, high_keys)


def _without_columns(
    bounds: npt.NDArray[np.float64] | Int64Array, positions: list[int]
) -> npt.NDArray[np.float64] | Int64Array:
    """The bounds with zeros for those of some columns, but for NaN."""
    plain = bounds.copy()
    plain[:, positions] = (
        np.where(np.isnan(bounds[:, positions]), np.nan, 0) if (bounds.dtype.kind == "f") else 0
    )
    return plain


def _decimal_ends(attribute: Attribute, ends: npt.NDArray[np.float64] | Int64Array) -> Int64Array:
    """The keys of one column of bounds: below all of them `ABSENT`, above all of them `LAST`."""
    above = ends == np.inf
    if ends.dtype.kind == "f":
        ends = np.where(np.isinf(ends), np.nan, ends)
        keys, refused = unscaled_numbers(ends, attribute.precision, attribute.scale)
    else:
        below = ends == ABSENT
        keys, refused = unscaled_numbers(
            np.where(below, 0, ends), attribute.precision, attribute.scale
        )
        keys[below] = ABSENT
    if refused is not None:
        row = int(refused.argmax())
        raise number_error(attribute, ends[row].item(), row)
    keys[above] = LAST
    return keys


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
    if attribute.labelled or attribute.type == "enum":
        return end != end
    if attribute.type == "bool":
        return end != end or end in (0, 1)
    return not isfinite(end) or (end == int(end) and -(2**63) <= end < 2**63)
