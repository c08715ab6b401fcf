"""Arrays of numbers, n × d in schema order, to keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import Refused, check_domain, object_keys
from boxmatch.model.decimals import unscaled_numbers
from boxmatch.model.keys import why_refused
from boxmatch.model.points import FloatPoints, FloatTable
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import float_keys, int_keys

# Numbers converted at a time: the temporaries of one block stay in the second-level cache.
_BLOCK: Final = 16_384


def array_keys(
    schema: Schema,
    axes: Sequence[StringAxis | None],
    values: npt.NDArray[Any],
    needed: BoolArray | None = None,
) -> Int64Array:
    """Keys of an n × d array; NaN is absent. Columns that are not `needed` are left absent
    where that saves time: of an array of numbers all are as quick as some.

    Bools are 0 or 1, timestamps whole microseconds since 1970 in UTC. A float stands for the
    decimal that it is written as. Columns of strings and
    enums must be all NaN, except in arrays of Python objects, which hold values of any type.
    """
    check_shape(schema, values)
    for attribute in schema:
        if attribute.repeated or attribute.type == "json":
            kind = "list" if attribute.repeated else attribute.type
            raise EventError(
                f"attribute {attribute.name!r} is a {kind}, which an array has no place for; "
                "pass dicts or a table"
            )
    keys = np.empty(values.shape, np.int64)
    if values.dtype == object:
        for position, attribute in enumerate(schema):
            if needed is not None and not needed[position]:
                keys[:, position] = ABSENT
                continue
            column = values[:, position].tolist()
            try:
                keys[:, position] = object_keys(attribute, axes[position], column)
            except Refused as error:
                raise error.at(attribute) from None
        return keys
    check_numbers(schema, values)
    floats = _positions(schema, "float")
    others = _positions(schema, "int", "bool", "timestamp")
    text = _positions(schema, "string", "enum")
    rows = max(1, _BLOCK // len(schema))
    for start in range(0, len(values), rows):
        block = values[start : start + rows]
        out = keys[start : start + rows]
        if len(floats):
            if len(floats) == len(schema):
                _, refused = float_keys(block, out)
            else:
                out[:, floats], refused = float_keys(block[:, floats])
            _check(schema, floats, block, start, refused)
        if len(others):
            whole = slice(None) if len(others) == len(schema) else others
            out[:, whole], refused = int_keys(block[:, whole])
            _check(schema, others, block, start, refused)
        if len(text):
            _check(schema, text, block, start, ~np.isnan(block[:, text]))
            out[:, text] = ABSENT
    for position, attribute in enumerate(schema):
        column = keys[:, position]
        if attribute.type == "bool":
            refused = (column != 0) & (column != 1) & (column != ABSENT)
            if refused.any():
                row = int(refused.argmax())
                raise number_error(attribute, values[row, position].item(), row)
        elif attribute.type == "decimal":
            if attribute.labelled and needed is not None and not needed[position]:
                keys[:, position] = ABSENT
                continue
            keys[:, position] = decimal_keys(attribute, axes[position], values[:, position])
        try:
            check_domain(attribute, column)
        except Refused as error:
            raise error.at(attribute) from None
    return keys


def float_points(
    schema: Schema, values: npt.NDArray[Any], make: Callable[[], Int64Array]
) -> FloatPoints | None:
    """The events of an array as they are, if their keys need not be known; `make` makes them."""
    if values.dtype != np.float64 or values.shape[1:] != (len(schema),):
        return None
    for attribute in schema:
        if attribute.type not in ("float", "int") or attribute.repeated or attribute.domain:
            return None
    whole = np.array([attribute.type == "int" for attribute in schema], np.uint8)
    return FloatPoints(FloatTable(np.ascontiguousarray(values), whole), make)


def decimal_keys(
    attribute: Attribute, axis: StringAxis | None, numbers: npt.NDArray[Any]
) -> Int64Array:
    """Keys of one column of numbers; NaN is absent."""
    if attribute.labelled:
        try:
            return object_keys(attribute, axis, numbers.tolist())
        except Refused as error:
            raise error.at(attribute) from None
    keys, refused = unscaled_numbers(numbers, attribute.precision, attribute.scale)
    if refused is not None:
        row = int(refused.argmax())
        raise number_error(attribute, numbers[row].item(), row)
    return keys


def check_shape(schema: Schema, values: npt.NDArray[Any]) -> None:
    """Refuse arrays that are not n × d."""
    if values.dtype.names is not None:
        raise EventError("structured arrays are not read; pass a table or an n × d array")
    if values.ndim != 2 or values.shape[1] != len(schema):
        raise EventError(
            f"expected an array of shape n × {len(schema)}, one column per attribute in schema "
            f"order, not {' × '.join(map(str, values.shape)) or 'a scalar'}"
        )


def check_numbers(schema: Schema, values: npt.NDArray[Any]) -> None:
    """Refuse arrays whose numbers cannot be read exactly."""
    kind = values.dtype.kind
    if kind == "b":
        wrong = [attribute for attribute in schema if attribute.type != "bool"]
        if wrong:
            raise EventError(f"attribute {wrong[0].name!r} is not a bool, but the array is of bool")
    elif kind not in "iuf" or values.dtype.itemsize > 8:
        raise EventError(f"an array of {values.dtype} cannot be read; pass float64 or int64")


def _positions(schema: Schema, *types: str) -> npt.NDArray[np.intp]:
    return np.array([p for p, a in enumerate(schema) if a.type in types], np.intp)


def number_error(attribute: Attribute, number: int | float, row: int) -> AttributeValueError:
    """The error for a number in an array that the attribute cannot take."""
    match attribute.type:
        case "string" | "enum":
            reason = f"is a number, but the attribute is of type {attribute.type}; leave it NaN"
        case "bool":
            reason = "is neither 0 nor 1"
        case "timestamp":
            reason = "is not a whole number of microseconds in int64"
        case _:
            reason = why_refused(attribute, number)
    return AttributeValueError(attribute.name, number, reason, row=row)


def _check(
    schema: Schema,
    positions: npt.NDArray[np.intp],
    block: npt.NDArray[Any],
    start: int,
    refused: BoolArray | None,
) -> None:
    """Raise an error for the first value of these columns that is refused."""
    if refused is not None and refused.any():
        row, place = map(int, np.unravel_index(int(refused.argmax()), refused.shape))
        position = positions[place]
        raise number_error(schema.attributes[position], block[row, position].item(), start + row)
