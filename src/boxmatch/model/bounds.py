"""Boxes from bounds: arrays of n × d numbers in schema order, and columns of tables.

A bound may lie between two values of its attribute, or beyond all of them: 2.5 as the low end of an
int is 3. A column that is all values of its attribute is read as one of events would be. For other
numbers `interval_of` decides, which does the same for filters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError, EventError, SchemaError
from boxmatch.kernels.threads import each, split
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.columns import Refused, arrow_keys, object_keys, readable
from boxmatch.model.decimals import unscaled_numbers
from boxmatch.model.filters.mapping import interval_of
from boxmatch.model.keys import is_absent
from boxmatch.model.nested import by_chunk
from boxmatch.model.numeric_arrays import check_numbers, check_shape, number_error
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.strings import StringAxis
from boxmatch.model.tables import ColumnTable, strings_of
from boxmatch.model.typed_arrays import (
    float_keys,
    int_keys,
    nulls_of,
    values_of,
    widen,
    without_float,
)
from boxmatch.model.values import plain_array

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.filters import Bound
    from boxmatch.model.nested import Column

End = Literal["equal", "low", "high"]
"""What a column says of an attribute: its value, or an end of its range."""

Ends = tuple[Int64Array, Int64Array]
"""Low and high key of a closed interval for each row; the whole axis is no condition."""

_NUMERIC = ("int", "float", "decimal")
_ROWS = 4_096
"""Rows of a table to have uncompressed at a time, and of an array for each thread, at least."""

_CONVERTED = 65_536
"""Rows of an array to have as float64 or int64 at a time, if it is of another type or order."""


def boxes_from_bounds(schema: Schema, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Boxes:
    """One box per row of closed bounds.

    NaN is unbounded, and NaN on both sides is no predicate at all. Bools are 0 or 1, timestamps
    whole microseconds since 1970 in UTC. A float stands for the decimal that it is written as. An
    infinity is a value to a float and unbounded to the other types, and so is the smallest int64.
    Strings, enums and decimals of more than 18 digits must be NaN. Domains do not apply. A row
    whose low is above its high is a box that holds nothing.
    """
    for one in schema:
        if one.repeated or one.type == "json":
            kind = "list" if one.repeated else one.type
            raise SchemaError(f"attribute {one.name!r} is a {kind}: use a filter")
    low, high = np.asarray(lows), np.asarray(highs)
    if low.ndim != 2 or low.shape != high.shape or (_is_plain(low) and _is_plain(high)):
        return _boxes(schema, low, high)
    starts = range(0, len(low), _CONVERTED)
    slices = [slice(first, first + _CONVERTED) for first in starts]
    try:
        parts = (_boxes(schema, low[some], high[some]) for some in slices)
        return Boxes.joined(parts, len(schema), len(low))
    except AttributeValueError:
        # For the error with the row among all of them.
        return _boxes(schema, low, high)


def _is_plain(bounds: npt.NDArray[Any]) -> bool:
    """Whether the bounds are read where they are."""
    return bounds.dtype in (np.float64, np.int64) and bounds.flags.c_contiguous


def _boxes(schema: Schema, lows: npt.NDArray[Any], highs: npt.NDArray[Any]) -> Boxes:
    from boxmatch.model import bounds_kernels as kernels

    given = _numbers(schema, lows), _numbers(schema, highs)
    if given[0].shape != given[1].shape:
        raise EventError(f"lows have {len(given[0]):,} rows, but highs have {len(given[1]):,}")
    kind_of = {"float": kernels.FLOAT, "int": kernels.INT, "bool": kernels.BOOL}
    kind_of |= {"timestamp": kernels.TIME, "decimal": kernels.INT}
    kinds = np.array(
        [kernels.TEXT if a.labelled else kind_of.get(a.type, kernels.TEXT) for a in schema],
        np.uint8,
    )
    apart = [p for p, a in enumerate(schema) if any(_is_apart(a, end[:, p]) for end in given)]
    low, high = (_plain(end, apart) for end in given)
    start = np.zeros(len(low) + 1, np.int64)
    kernels.count_predicates(low, high, start)
    total = int(start[-1])
    attribute = np.empty(total, np.uint16)
    low_keys, high_keys = np.empty(total, np.int64), np.empty(total, np.int64)
    exact = low.dtype == np.int64, high.dtype == np.int64
    refused = each(
        lambda part: kernels.fill_predicates(
            low, high, exact, kinds, start, part[0], part[1], attribute, low_keys, high_keys
        ),
        split(len(low), None, least=_ROWS),
    )
    row, position = map(int, next((p for p in refused if p[0] != kernels.NO_ROW), refused[0]))
    if row != kernels.NO_ROW:
        found = schema.attributes[position]
        ends = low[row, position].item(), high[row, position].item()
        wrong = next(end for end in ends if not _fits(found, end))
        if found.type == "decimal":
            reason = f"cannot be a bound of a {found.type_name} in an array; pass a table"
            raise AttributeValueError(found.name, wrong, reason, row=row)
        raise number_error(found, wrong, row)
    for position in apart:
        here = np.flatnonzero(attribute == position)
        rows = np.searchsorted(start, here, side="right") - 1
        one = schema.attributes[position]
        first = _number_ends(one, given[0][:, position], "low")
        last = _number_ends(one, given[1][:, position], "high")
        low_keys[here] = np.maximum(np.maximum(first[0], last[0]), FIRST)[rows]
        high_keys[here] = np.minimum(first[1], last[1])[rows]
    return Boxes(len(schema), start, attribute, low_keys, high_keys)


def _numbers(schema: Schema, bounds: npt.ArrayLike) -> npt.NDArray[Any]:
    """The bounds as float64, int64 or uint64, whichever holds them exactly."""
    array: npt.NDArray[Any] = np.asarray(bounds)
    check_shape(schema, array)
    check_numbers(schema, array)
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, np.float64)
    if array.dtype.kind == "u" and int(array.max(initial=0)) > LAST:
        for position, attribute in enumerate(schema):
            refused = array[:, position] > np.uint64(LAST)
            if attribute.type not in _NUMERIC and refused.any():
                row = int(refused.argmax())
                value, reason = array[row, position].item(), "is outside the range of int64"
                raise AttributeValueError(attribute.name, value, reason, row=row)
        return array.astype(np.uint64)
    return np.ascontiguousarray(array, np.int64)


def _is_apart(attribute: Attribute, ends: npt.NDArray[Any]) -> bool:
    """Whether the compiled code cannot read these bounds."""
    if attribute.labelled or attribute.type not in _NUMERIC:
        return False
    if attribute.type == "decimal" or ends.dtype.kind == "u":
        return True
    return attribute.type == "float" and without_float(ends) is not None


def _plain(bounds: npt.NDArray[Any], apart: list[int]) -> npt.NDArray[Any]:
    """The bounds as the compiled code reads them: zeros, or NaN, in the columns that it cannot."""
    if apart:
        bounds = bounds.copy()
        bounds[:, apart] = np.where(np.isnan(bounds[:, apart]), bounds[:, apart], 0)
    return bounds.astype(np.int64) if bounds.dtype.kind == "u" else bounds


def _fits(attribute: Attribute, end: int | float) -> bool:
    """Whether a number is an end of a range of whole values; NaN and infinities are no end."""
    if attribute.labelled or attribute.type == "enum":
        return end != end
    if attribute.type == "bool":
        return end != end or end in (0, 1)
    return not isfinite(end) or (end == int(end) and -(2**63) <= end < 2**63)


def boxes_from_columns(
    schema: Schema, axes: Mapping[int, StringAxis], columns: ColumnTable
) -> Boxes:
    """One box per row, from columns `NAME` (equal), `NAME_low` and `NAME_high` (closed).

    Strings are added to the axes, whose room may not be enough (`AxisFullError`).
    """
    meaning = _meaning(schema, columns.names)
    readers = [
        replace(schema.attributes[position], name=name, domain=None)
        for name, (position, _) in meaning.items()
    ]
    for reader, (position, _) in zip(readers, meaning.values(), strict=True):
        if position in axes:
            axes[position].add(strings_of(columns, reader))
    places = {name: place for place, name in enumerate(columns.names)}
    wanted: list[tuple[int, Ends]] = []
    for reader, (position, end) in zip(readers, meaning.values(), strict=True):
        column = columns.column(places[reader.name])
        try:
            wanted.append((position, _column_ends(reader, axes.get(position), column, end)))
        except Refused as refused:
            raise refused.at(reader) from None
    parts = (
        _boxes_of_rows(wanted, slice(first, first + _ROWS), columns.length, len(schema))
        for first in range(0, columns.length, _ROWS)
    )
    return Boxes.joined(parts, len(schema), columns.length)


def _meaning(schema: Schema, names: Sequence[object]) -> dict[str, tuple[int, End]]:
    """What the columns of a table of subscriptions are about, but for `id`."""
    positions = schema.index
    meaning: dict[str, tuple[int, End]] = {}
    for name in names:
        if name == "id":  # the subscription's, even if an attribute is called so
            continue
        stem, _, end = str(name).rpartition("_")
        if not isinstance(name, str) or not (
            name in positions or (end in ("low", "high") and stem in positions)
        ):
            raise SchemaError(
                f"column {name!r} is neither an attribute nor one with _low or _high behind it; "
                "a table of subscriptions has 'id' and 'filter', or 'id' and such columns"
            )
        if name in meaning:
            raise EventError(f"the table has two columns named {name!r}")
        if name in positions:
            meaning[name] = positions[name], "equal"
        else:
            meaning[name] = positions[stem], "low" if end == "low" else "high"
        position = meaning[name][0]
        if schema.attributes[position].type == "json":
            raise SchemaError(
                f"column {name!r}: attribute {schema.names[position]!r} is a json: use a filter"
            )
        if schema.attributes[position].repeated:
            raise SchemaError(
                f"column {name!r}: attribute {schema.names[position]!r} is a list: use a filter"
            )
    if not meaning:
        raise EventError("the table of subscriptions has no column besides 'id'")
    return meaning


def _boxes_of_rows(
    wanted: Sequence[tuple[int, Ends]], rows: slice, length: int, dimensions: int
) -> Boxes:
    count = len(range(length)[rows])
    low = np.full((count, dimensions), ABSENT)
    high = np.full((count, dimensions), LAST)
    for position, (lows, highs) in wanted:
        np.maximum(low[:, position], lows[rows], out=low[:, position])
        np.minimum(high[:, position], highs[rows], out=high[:, position])
    return Boxes.from_dense(low, high)


def _column_ends(attribute: Attribute, axis: StringAxis | None, column: Column, end: End) -> Ends:
    """The intervals that a column of a table asks for. Raises `Refused`."""
    if not isinstance(column, tuple):
        try:
            return _ends_of_keys(object_keys(attribute, axis, column), end)
        except Refused:
            if attribute.type not in _NUMERIC:
                raise
            return _ends_by_value(attribute, axis, column, end)
    chunks = by_chunk(column, lambda chunk: _chunk_ends(attribute, axis, chunk, end))
    if len(chunks) == 1:
        return chunks[0]
    nothing = np.empty(0, np.int64)
    lows, highs = ([one[side] for one in chunks] for side in (0, 1))
    return np.concatenate([nothing, *lows]), np.concatenate([nothing, *highs])


def _chunk_ends(
    attribute: Attribute, axis: StringAxis | None, chunk: pa.Array[Any], end: End
) -> Ends:
    import pyarrow.types as t

    kind: Any = chunk.type
    has_keys = attribute.type in _NUMERIC and not attribute.labelled
    if has_keys and (t.is_integer(kind) or t.is_floating(kind)):
        return _number_ends(attribute, values_of(chunk), end, nulls_of(chunk))
    try:
        return _ends_of_keys(arrow_keys(attribute, axis, chunk), end)
    except Refused:
        if attribute.type not in _NUMERIC or not readable(attribute.type, kind):
            raise
    # Once for each value that occurs.
    plain = plain_array(chunk)
    found: Any = (widen(plain) if t.is_decimal(plain.type) else plain).dictionary_encode()
    values = found.dictionary.to_pylist()
    rows = found.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    try:
        lows, highs = _ends_by_value(attribute, axis, [*values, None], end)
    except Refused as refused:
        row = int(np.argmax(rows == refused.row))
        raise Refused(row, refused.value, refused.reason) from None
    return lows[rows], highs[rows]


def _number_ends(
    attribute: Attribute, numbers: npt.NDArray[Any], end: End, nulls: BoolArray | None = None
) -> Ends:
    """The same for an array of numbers, of an attribute of numbers that is not labelled."""
    if attribute.type == "float":
        keys, refused = float_keys(numbers)
    elif attribute.type == "decimal":
        keys, refused = unscaled_numbers(numbers, attribute.precision, attribute.scale)
    else:
        if numbers.dtype.kind == "f" and end != "equal":
            numbers = np.ceil(numbers) if end == "low" else np.floor(numbers)
        keys, refused = int_keys(numbers)
    if nulls is not None:
        keys[nulls] = ABSENT
    lows, highs = _ends_of_keys(keys, end)
    if refused is not None:
        if nulls is not None:
            refused &= ~nulls
        rows = np.flatnonzero(refused)
        distinct, first, places = np.unique(numbers[rows], return_index=True, return_inverse=True)
        try:
            few = _ends_by_value(attribute, None, distinct.tolist(), end)
        except Refused as error:
            row = int(rows[first[error.row]])
            raise Refused(row, error.value, error.reason) from None
        highs = highs.copy()
        lows[rows], highs[rows] = few[0][places], few[1][places]
    return lows, highs


def _ends_of_keys(keys: Int64Array, end: End) -> Ends:
    if end == "low":
        return keys, np.broadcast_to(np.int64(LAST), keys.shape)  # which takes no memory
    given = keys != ABSENT
    highs = np.where(given, keys, LAST)
    # With an upper bound alone, the attribute must still be present.
    return (keys if end == "equal" else np.where(given, FIRST, ABSENT)), highs


def _ends_by_value(
    attribute: Attribute, axis: StringAxis | None, values: Sequence[object], end: End
) -> Ends:
    """The same for values of any type, of an attribute of numbers."""
    found: list[tuple[Bound, Bound]] = []
    for row, value in enumerate(values):
        if is_absent(value):
            found.append((ABSENT, LAST))
            continue
        wanted = value if end == "equal" else (value, None) if end == "low" else (None, value)
        try:
            found.append(interval_of(attribute, wanted) or (LAST, FIRST))
        except AttributeValueError as error:
            raise Refused(row, value, error.reason) from None
    if axis is not None:
        axis.add({one[0] for ends in found for one in ends if isinstance(one, tuple)})
    keys = [
        axis.label(one[0]) if axis is not None and isinstance(one, tuple) else one
        for ends in found
        for one in ends
    ]
    lows, highs = np.array(keys, np.int64).reshape(-1, 2).T
    return lows, highs
