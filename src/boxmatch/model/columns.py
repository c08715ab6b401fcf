"""Whole columns to keys, without a Python loop over rows where the column has a type.

Each function either gives the keys of all rows or raises `Refused` at the first row that the
attribute cannot take, with the same reason that a single value would get.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from itertools import repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.errors import AttributeValueError
from boxmatch.kernels.pieces import from_texts, listed, pieces
from boxmatch.model.axis import ABSENT
from boxmatch.model.decimals import MAX_PRECISION, unscaled_numbers
from boxmatch.model.keys import (
    axis_text,
    is_absent,
    key_of,
    null_key,
    value_of,
    why_refused,
)
from boxmatch.model.schema import Attribute
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import (
    float_keys,
    nulls_of,
    packed_decimals,
    python_value,
    typed_keys,
    values_of,
    widen,
)

if TYPE_CHECKING:
    import pyarrow as pa


_MOST_DIGITS: Final = {32: 9, 64: 18, 128: 38, 256: 76}
"""Of Arrow's decimals by width. With a larger scale Arrow has such types, but cannot read them."""

PYTHON_TYPES: Final = {"int": int, "float": float, "bool": bool}
"""Types of attributes whose values are nearly always of one type of Python."""


class Refused(Exception):  # never leaves the package
    """The value in a row does not fit; `at` says which row and why.

    `name` is that of a field, if the attribute has fields.
    """

    def __init__(self, row: int, value: object, reason: str, name: str | None = None) -> None:
        super().__init__(row, value, reason, name)
        self.row = row
        self.value = value
        self.reason = reason
        self.name = name

    def at(self, attribute: Attribute, first_row: int = 0) -> AttributeValueError:
        row = self.row + first_row
        name = self.name or attribute.name
        return AttributeValueError(name, self.value, self.reason, row=row)


def scalar_key(attribute: Attribute, axis: StringAxis | None, value: object) -> int:
    """The key of one value of an event, of any type, with the attribute's domain checked."""
    if attribute.labelled:
        if is_absent(value):
            return null_key(attribute, value)
        text = axis_text(attribute, value)
        check_text_domain(attribute, value, text)
        return 0 if axis is None else axis.key(text)
    key = key_of(attribute, value)
    if attribute.domain is not None and key != ABSENT:
        low, high = attribute.domain_keys or (key, key)
        if not low <= key <= high:
            raise AttributeValueError(attribute.name, value, outside(attribute))
    return key


def check_text_domain(attribute: Attribute, value: object, text: str) -> None:
    """Refuse the text of a long decimal outside the attribute's domain, if it has one."""
    if attribute.domain is not None:
        low, high = (axis_text(attribute, end) for end in attribute.domain)
        if not low <= text <= high:
            raise AttributeValueError(attribute.name, value, outside(attribute))


def outside(attribute: Attribute) -> str:
    """The reason for refusing a value beyond the attribute's domain."""
    low, high = attribute.domain or (None, None)
    return f"is outside the domain {low} to {high}"


def object_keys(
    attribute: Attribute,
    axis: StringAxis | None,
    values: Sequence[object],
    *,
    nan_is_null: bool = True,
) -> Int64Array:
    """Keys of Python values of whatever type.

    In a column of a table NaN and NaT are how a NULL looks; `nan_is_null=False` refuses them, for
    values that were given one by one.
    """
    typed = _typed_values(attribute, values, nan_is_null)
    if typed is not None:
        check_domain(attribute, typed)
        return typed
    keys = np.full(len(values), ABSENT)
    places: Sequence[int] = range(len(values))
    if attribute.type in ("string", "enum"):
        labels = attribute.positions if axis is None else axis.labels
        try:
            keys = _find(labels, values)
            places = np.flatnonzero(keys == ABSENT).tolist()
            if places and axis is not None:
                # Strings that no filter names: once for each, not once for each row.
                unknown = {values[place] for place in places}
                texts = [text for text in unknown if type(text) is str]
                between = dict(zip(texts, axis.between(texts), strict=True))
                keys[places] = _find(between, [values[place] for place in places])
                places = [place for place in places if type(values[place]) is not str]
        except (TypeError, ValueError):
            # Something that cannot be hashed, or is not text: it is found and named below.
            places = range(len(values))
    for place in places:
        if nan_is_null and is_absent(values[place]):
            keys[place] = ABSENT
            continue
        try:
            keys[place] = scalar_key(attribute, axis, values[place])
        except AttributeValueError as error:
            raise Refused(place, values[place], error.reason) from None
    return keys


def _typed_values(
    attribute: Attribute, values: Sequence[object], nan_is_null: bool
) -> Int64Array | None:
    """Keys of values that all have the very type of the attribute, as they mostly do."""
    if attribute.type == "decimal" and not attribute.labelled:
        return _typed_decimals(attribute, values, nan_is_null)
    wanted = PYTHON_TYPES.get(attribute.type)
    if wanted is None or set(map(type, values)) != {wanted}:
        return None
    if wanted is float:
        keys, _ = float_keys(np.array(values, np.float64))
        if nan_is_null:
            return keys
    else:
        try:
            keys = np.array(values, np.int64)
        except OverflowError:
            return None
    return None if (keys == ABSENT).any() else keys


def _typed_decimals(
    attribute: Attribute, values: Sequence[object], nan_is_null: bool
) -> Int64Array | None:
    """Keys of numbers that are all of one type; None if one of them may be refused."""
    import pyarrow as pa

    types = set(map(type, values))
    if types == {Decimal}:
        try:
            array = pa.array(values, pa.decimal128(MAX_PRECISION, attribute.scale))
        except pa.ArrowInvalid:
            return None
        if array.null_count:  # NaN
            return None
        keys, refused = typed_keys(attribute, array)
    elif types in ({int}, {float}):
        try:
            numbers = np.array(values, np.float64 if types == {float} else np.int64)
        except OverflowError:
            return None
        keys, refused = unscaled_numbers(numbers, attribute.precision, attribute.scale)
        if not nan_is_null and (keys == ABSENT).any():
            return None
    else:
        return None
    return keys if refused is None else None


def arrow_keys(attribute: Attribute, axis: StringAxis | None, array: pa.Array[Any]) -> Int64Array:
    """Keys of an Arrow array of any type that the attribute can be read from."""
    import pyarrow.types as t

    check_type(attribute, array)
    kind: Any = array.type
    if t.is_null(kind) or array.null_count == len(array):
        return np.full(len(array), ABSENT)
    if t.is_run_end_encoded(kind):
        import pyarrow.compute as pc

        decode: Any = pc.run_end_decode  # type: ignore[attr-defined]  # missing in the stubs
        return arrow_keys(attribute, axis, decode(array))
    if t.is_dictionary(kind):
        return _dictionary_keys(attribute, axis, array)
    if is_text(kind):
        if t.is_string_view(kind):
            import pyarrow as pa

            array = array.cast(pa.large_string())
        return _dictionary_keys(attribute, axis, array.dictionary_encode())
    if attribute.labelled:
        return _long_decimal_keys(attribute, axis, array)
    nulls = nulls_of(array)
    keys, refused = typed_keys(attribute, array)
    if nulls is not None:
        keys[nulls] = ABSENT
        if refused is not None:
            refused &= ~nulls
    if refused is not None and refused.any():
        row = int(refused.argmax())
        value = python_value(array, row)
        raise Refused(row, value, why_refused(attribute, None if is_absent(value) else value))
    check_domain(attribute, keys)
    return keys


def check_type(attribute: Attribute, array: pa.Array[Any]) -> None:
    """Refuse an array of a type that the attribute cannot be read from, unless it is all null."""
    kind: Any = array.type
    if not readable(attribute.type, kind) and array.null_count < len(array):
        nulls = nulls_of(array)
        row = 0 if nulls is None else int((~nulls).argmax())
        value = python_value(array, row)
        try:
            key_of(attribute, None if is_absent(value) else value)
            reason = f"cannot be read as {attribute.type_name}"
        except AttributeValueError as error:
            reason = error.reason
        except TypeError:
            reason = f"is not a {attribute.type_name}"
        raise Refused(row, value, f"(Arrow type {kind}) {reason}")


def check_domain(attribute: Attribute, keys: Int64Array) -> None:
    """Refuse keys outside the attribute's domain, if it has one."""
    ends = attribute.domain_keys
    if ends is not None:
        refused = (keys > ends[1]) | ((keys < ends[0]) & (keys != ABSENT))
        if refused.any():
            row = int(refused.argmax())
            raise Refused(row, value_of(attribute, int(keys[row])), outside(attribute))


def readable(attribute_type: str, kind: Any) -> bool:
    """Whether values of an Arrow type can be read as an attribute's type."""
    import pyarrow.types as t

    if t.is_null(kind):
        return True
    if t.is_dictionary(kind) or t.is_run_end_encoded(kind):
        return readable(attribute_type, kind.value_type)
    match attribute_type:
        case "decimal" if is_text(kind):
            return True
        case "int" | "float" | "decimal":
            if t.is_decimal(kind):
                return bool(abs(kind.scale) <= _MOST_DIGITS[kind.bit_width])
            return bool(t.is_integer(kind) or t.is_floating(kind))
        case "bool":
            return bool(t.is_boolean(kind))
        case "timestamp":
            return bool(t.is_timestamp(kind) or t.is_date(kind) or is_text(kind))
        case _:
            return is_text(kind)


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of strings."""
    import pyarrow.types as t

    return bool(t.is_string(kind) or t.is_large_string(kind) or t.is_string_view(kind))


def _dictionary_keys(
    attribute: Attribute, axis: StringAxis | None, array: pa.Array[Any]
) -> Int64Array:
    """Keys of the distinct values, handed out by index."""
    import pyarrow as pa

    if not isinstance(array, pa.DictionaryArray):
        raise TypeError(f"not a dictionary: {array.type}")
    dictionary: Any = array.dictionary
    nulls = nulls_of(array.indices)
    indices = values_of(array.indices).astype(np.int64)
    if nulls is not None:
        indices[nulls] = 0
    # Values that no row uses may be anything; they must neither be refused nor cost time.
    used = np.zeros(len(dictionary), np.bool_)
    used[indices if nulls is None else indices[~nulls]] = True
    places = np.flatnonzero(used)
    if len(places) < len(dictionary):
        dictionary = dictionary.take(pa.array(places))
    try:
        if is_text(dictionary.type):
            texts = listed(from_texts(pa.chunked_array([dictionary])))
            found = object_keys(attribute, axis, texts)
        else:
            found = arrow_keys(attribute, axis, dictionary)
    except Refused as refused:
        hits = indices == places[refused.row]
        if nulls is not None:
            hits &= ~nulls
        raise Refused(int(hits.argmax()), refused.value, refused.reason) from None
    by_index = np.full(len(used), ABSENT)
    by_index[places] = found
    keys = by_index[indices]
    if nulls is not None:
        keys[nulls] = ABSENT
    return keys


def _long_decimal_keys(
    attribute: Attribute, axis: StringAxis | None, array: pa.Array[Any]
) -> Int64Array:
    """Keys of numbers as decimals that are labelled."""
    import pyarrow.types as t

    if axis is not None and t.is_decimal(array.type):
        texts = packed_decimals(attribute, array)
        if texts is not None:
            keys = axis.packed_keys(texts)
            nulls = nulls_of(array)
            if nulls is not None:
                keys[nulls] = ABSENT
            return keys
    # Once for each that occurs.
    found: Any = (widen(array) if t.is_decimal(array.type) else array).dictionary_encode()
    values = found.dictionary.to_pylist()
    labels = np.full(len(values) + 1, ABSENT)
    try:
        labels[:-1] = object_keys(attribute, axis, values)
    except Refused as refused:
        row = int(np.argmax(found.indices.to_numpy(zero_copy_only=False) == refused.row))
        raise Refused(row, refused.value, refused.reason) from None
    places: Int64Array = found.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    return labels[places]


def axis_texts(attribute: Attribute, array: pa.Array[Any]) -> pa.Array[Any]:
    """A column of a labelled attribute as the texts by which axes know its values."""
    import pyarrow as pa
    import pyarrow.types as t

    if attribute.type == "string":
        return array
    found: Any = (widen(array) if t.is_decimal(array.type) else array).dictionary_encode()
    texts: list[str | None] = []
    for place, value in enumerate(found.dictionary.to_pylist()):
        try:
            text = None if is_absent(value) else axis_text(attribute, value)
            if text is not None:
                check_text_domain(attribute, value, text)
        except AttributeValueError as error:
            row = int(np.argmax(found.indices.to_numpy(zero_copy_only=False) == place))
            raise Refused(row, value, error.reason) from None
        texts.append(text)
    taken: pa.Array[Any] = pa.array(texts, pa.string()).take(found.indices)
    return taken


def _find(labels: Any, values: Sequence[object]) -> Int64Array:
    keys = np.empty(len(values), np.int64)
    for piece in pieces(len(values)):
        part = values[piece]
        keys[piece] = np.fromiter(map(labels.get, part, repeat(ABSENT)), np.int64, len(part))
    return keys
