"""Arrays of numbers, n × d in schema order, to keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import Refused, check_domain, object_keys
from boxmatch.model.keys import float_keys, int_keys, key_of
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import StringAxis

# Numbers converted at a time: the temporaries of one block stay in the second-level cache.
_BLOCK: Final = 16_384


def array_keys(
    schema: Schema, axes: Sequence[StringAxis | None], values: npt.NDArray[Any]
) -> Int64Array:
    """Keys of an n × d array; NaN is absent.

    Bools are 0 or 1, timestamps whole microseconds since 1970 in UTC. Columns of strings and
    enums must be all NaN, except in arrays of Python objects, which hold values of any type.
    """
    check_shape(schema, values)
    keys = np.empty(values.shape, np.int64)
    if values.dtype == object:
        for position, attribute in enumerate(schema):
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
            _check_no_text(schema, text, block, start)
            out[:, text] = ABSENT
    for position, attribute in enumerate(schema):
        if attribute.type == "bool" or attribute.domain is not None:
            _check_column(attribute, keys[:, position], values[:, position])
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


def _first(refused: BoolArray) -> tuple[int, int]:
    row, place = np.unravel_index(int(refused.argmax()), refused.shape)
    return int(row), int(place)


def _check(
    schema: Schema,
    positions: npt.NDArray[np.intp],
    block: npt.NDArray[Any],
    start: int,
    refused: BoolArray | None,
) -> None:
    """Raise an error for the first value of these columns that is refused."""
    if refused is not None:
        row, place = _first(refused)
        attribute = schema.attributes[positions[place]]
        raise _refusal(attribute, block[row, positions[place]]).at(attribute, start + row)


def _refusal(attribute: Attribute, value: Any) -> Refused:
    number = value.item()
    if attribute.type == "bool":
        return Refused(0, number, "is neither 0 nor 1")
    if attribute.type == "timestamp":
        return Refused(0, number, "is not a whole number of microseconds in int64")
    try:
        key_of(attribute, number)
    except AttributeValueError as error:
        return Refused(0, number, error.reason)
    return Refused(0, number, f"is not a valid {attribute.type}")


def _check_no_text(
    schema: Schema, text: npt.NDArray[np.intp], block: npt.NDArray[Any], start: int
) -> None:
    given = ~np.isnan(block[:, text])
    if given.any():
        row, place = _first(given)
        attribute = schema.attributes[text[place]]
        reason = f"is a number, but the attribute is of type {attribute.type}; leave it NaN"
        raise Refused(row, block[row, text[place]].item(), reason).at(attribute, start)


def _check_column(attribute: Attribute, keys: Int64Array, values: npt.NDArray[Any]) -> None:
    if attribute.type == "bool":
        refused = (keys != 0) & (keys != 1) & (keys != ABSENT)
        if refused.any():
            row = int(refused.argmax())
            raise Refused(row, values[row].item(), "is neither 0 nor 1").at(attribute)
    try:
        check_domain(attribute, keys)
    except Refused as error:
        raise error.at(attribute) from None
