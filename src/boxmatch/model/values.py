"""Values as expressions see them, as Arrow columns and one by one.

`expressions.nodes` has the table of types. Where keys are known, values are made of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import (
    Refused,
    arrow_keys,
    check_text_domain,
    check_type,
    object_keys,
)
from boxmatch.model.decimals import exact_decimal
from boxmatch.model.keys import (
    axis_text,
    check_string,
    is_absent,
    key_of,
    null_key,
    unscaled_of,
    value_of,
)
from boxmatch.model.nested import by_chunk
from boxmatch.model.schema import Attribute
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import widen

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.nested import Column


def column_keys(
    attribute: Attribute, axis: StringAxis | None, column: Column, *, nan_is_null: bool = True
) -> Int64Array:
    """The keys of a column of single values. Raises `Refused`."""
    if not isinstance(column, tuple):
        return object_keys(attribute, axis, column, nan_is_null=nan_is_null)
    parts = by_chunk(column, lambda chunk: arrow_keys(attribute, axis, chunk))
    return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.int64), *parts])


def check_column(attribute: Attribute, column: Column) -> None:
    """Refuse a column of a type that the attribute cannot be read from."""
    if isinstance(column, tuple):
        by_chunk(column, lambda chunk: check_type(attribute, chunk))


def check_texts(attribute: Attribute, values: Sequence[Any], *, nan_is_null: bool = False) -> None:
    """Refuse what is not text. Quicker than to look for keys."""
    if set(map(type, values)) <= {str, type(None)}:
        try:
            "".join(filter(None, values)).encode()
            return
        except UnicodeEncodeError:
            pass  # in which row is seen below
    for row, value in enumerate(values):
        try:
            if is_absent(value):
                if not nan_is_null:
                    null_key(attribute, value)
            else:
                check_string(attribute, value)
        except AttributeValueError as error:
            raise Refused(row, value, error.reason) from None


def arrow_column(
    attribute: Attribute, axis: StringAxis | None, column: Column, keys: Int64Array | None
) -> pa.Array[Any]:
    """The values of a column, of whose keys some may be known. Raises `Refused`."""
    if attribute.type == "string":
        return arrow_texts(attribute, column)
    if attribute.labelled:
        return arrow_decimals(attribute, column)
    if keys is None:
        keys = column_keys(attribute, axis, column)
    return arrow_values(attribute, keys)


def arrow_values(attribute: Attribute, keys: Int64Array) -> pa.Array[Any]:
    """The values that have these keys, of an attribute that is not labelled."""
    import pyarrow as pa

    keys = np.ascontiguousarray(keys)
    nulls: BoolArray | None = keys == ABSENT
    if not np.any(nulls):
        nulls = None
    match attribute.type:
        case "float":
            floats = np.copysign(np.abs(keys).view(np.float64), keys)
            return _array(pa.float64(), floats, nulls)
        case "bool":
            bools: pa.Array[Any] = pa.array(keys == 1, mask=nulls)
            return bools
        case "enum":
            values = pa.array(attribute.values, pa.large_string())
            places: Any = pa.array(keys, mask=nulls)
            taken: pa.Array[Any] = values.take(places)
            return taken
        case "decimal":
            words = np.empty((len(keys), 2), np.int64)
            words[:, 0] = keys
            words[:, 1] = keys >> 63
            return _array(pa.decimal128(attribute.precision, attribute.scale), words, nulls)
        case _:
            return _array(pa.int64(), keys, nulls)


def plain_value(attribute: Attribute, value: object) -> Any:
    """One value, of any type that the attribute takes, as expressions see it."""
    if value is None or is_absent(value):
        return None
    if attribute.type == "string":
        return check_string(attribute, value)
    if attribute.labelled:
        return exact_decimal(unscaled_of(attribute, value), attribute.scale)
    return value_of_key(attribute, key_of(attribute, value))


def value_of_key(attribute: Attribute, key: int) -> Any:
    """The same of the value that has a key, of an attribute that is not labelled."""
    if key == ABSENT:
        return None
    match attribute.type:
        case "int" | "timestamp":
            return key
        case "decimal":
            return exact_decimal(key, attribute.scale)
        case _:
            return value_of(attribute, key)


def _array(kind: pa.DataType, values: Any, nulls: BoolArray | None) -> pa.Array[Any]:
    import pyarrow as pa

    bits: Any = None if nulls is None else np.packbits(~nulls, bitorder="little")
    validity = None if bits is None else pa.py_buffer(bits)
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(values)])


def arrow_texts(attribute: Attribute, column: Column) -> pa.Array[Any]:
    """A column of strings. Raises `Refused`."""
    import pyarrow as pa

    kind = pa.large_string()
    if not isinstance(column, tuple):
        values = [None if is_absent(value) else value for value in column]
        check_texts(attribute, values)
        return pa.array(values, kind)

    def cast(chunk: pa.Array[Any]) -> Any:
        check_type(attribute, chunk)
        if chunk.null_count == len(chunk):  # of any type
            return pa.nulls(len(chunk), kind)
        return plain_array(chunk).cast(kind)

    return _joined(by_chunk(column, cast), kind)


def arrow_decimals(attribute: Attribute, column: Column) -> pa.Array[Any]:
    """A column of decimals that are labelled. Raises `Refused`."""
    import pyarrow as pa

    kind = pa.decimal128(attribute.precision, attribute.scale)
    if not isinstance(column, tuple):
        return pa.array(_exact(attribute, column), kind)

    def cast(chunk: pa.Array[Any]) -> Any:
        check_type(attribute, chunk)
        plain = plain_array(chunk)
        if pa.types.is_decimal(plain.type) and attribute.domain is None:
            try:
                return widen(plain).cast(kind)
            except pa.ArrowInvalid:
                pass  # in which row is seen below
        return pa.array(_exact(attribute, plain.to_pylist()), kind)

    return _joined(by_chunk(column, cast), kind)


def _exact(attribute: Attribute, values: Iterable[object]) -> list[Decimal | None]:
    found: list[Decimal | None] = []
    for row, value in enumerate(values):
        if is_absent(value):
            found.append(None)
            continue
        try:
            check_text_domain(attribute, value, axis_text(attribute, value))
            found.append(exact_decimal(unscaled_of(attribute, value), attribute.scale))
        except AttributeValueError as error:
            raise Refused(row, value, error.reason) from None
    return found


def plain_array(array: pa.Array[Any]) -> Any:
    """An array without dictionaries and run ends."""
    import pyarrow.compute as pc
    import pyarrow.types as t

    kind: Any = array.type
    if t.is_run_end_encoded(kind):
        decode: Any = pc.run_end_decode  # type: ignore[attr-defined]  # missing in the stubs
        return plain_array(decode(array))
    if t.is_dictionary(kind):
        return plain_array(array.cast(kind.value_type))
    return array


def _joined(chunks: tuple[pa.Array[Any], ...], kind: pa.DataType) -> pa.Array[Any]:
    import pyarrow as pa

    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], kind)
