"""JSON texts as documents: events that are text, and columns of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from boxmatch.errors import EventError
from boxmatch.model.columns import Refused
from boxmatch.model.keys import is_absent

if TYPE_CHECKING:
    from boxmatch.model.nested import Column
    from boxmatch.model.tables import ColumnTable

TEXTS: Final = (str, bytes, bytearray, memoryview)


Event: TypeAlias = Mapping[str, Any] | str | bytes
"""One event, which may be a JSON text."""


def read_event(event: Any, row: int | None = None) -> Mapping[str, Any]:
    """An event that may be a JSON text.

    Numbers are those that 64 bits hold: of longer ones the nearest float, as most readers have it.
    """
    if not isinstance(event, TEXTS):
        return event  # type: ignore[no-any-return]  # as it was given
    place = "" if row is None else f"row {row}: "
    try:
        document = orjson.loads(event)
    except ValueError as error:
        raise EventError(f"{place}this is not JSON: {error}", row=row) from None
    if not isinstance(document, dict):
        kind = type(document).__name__
        raise EventError(f"{place}an event in JSON is an object, not a {kind}", row=row)
    return document


def read_events(events: list[Any]) -> list[Any]:
    """Events some of which may be JSON texts."""
    if not any(isinstance(one, TEXTS) for one in events):
        return events
    try:
        read = [orjson.loads(one) if isinstance(one, TEXTS) else one for one in events]
    except ValueError:
        read = []
    if not read or not all(type(one) is dict for one in read):
        return [read_event(one, row) for row, one in enumerate(events)]
    return read


def document_values(column: Column) -> Sequence[Any]:
    """The documents of a column: JSON texts in one of strings, else the values themselves.

    Raises `Refused`.
    """
    if not isinstance(column, tuple):
        return [None if is_absent(one) else one for one in column]
    values = _values_of(column)
    if not any(isinstance(value, str) for value in values):
        return [_without_nulls(value) for value in values]
    documents = []
    for row, value in enumerate(values):
        try:
            documents.append(orjson.loads(value) if isinstance(value, str) else value)
        except ValueError as error:
            raise Refused(row, value, f"is not JSON: {error}") from None
    return documents


def table_rows(table: ColumnTable) -> list[dict[str, Any]]:
    """The rows of a table as mappings, in which there is nothing where the table has a null."""
    rows: list[dict[str, Any]] = [{} for _ in range(table.length)]
    for place, name in enumerate(table.names):
        column = table.column(place)
        values: Sequence[Any] = column if isinstance(column, list) else _values_of(column)
        for row, value in zip(rows, values, strict=True):
            if not is_absent(value):
                row[str(name)] = _without_nulls(value)
    return rows


def _values_of(chunks: tuple[Any, ...]) -> list[Any]:
    return [value for chunk in chunks for value in chunk.to_pylist()]


def _without_nulls(value: Any) -> Any:
    """A value of Arrow without the fields of structs that are null, as NaN is; maps as mappings."""
    if isinstance(value, dict):
        plain = ((name, _without_nulls(one)) for name, one in value.items())
        return {name: one for name, one in plain if one is not None}
    if isinstance(value, list):
        if value and type(value[0]) is tuple:  # only the entries of a map are
            return _without_nulls(dict(value))
        return [_without_nulls(one) for one in value]
    return None if isinstance(value, float) and value != value else value
