"""Columns of Arrow batches by name: what `columns.Columns` is for DataFrames, on workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.errors import SparkError
from boxmatch.model.columns import is_text
from boxmatch.model.documents import ROOT
from boxmatch.model.repeated import is_list
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.segments import Array


def find_fields(
    events: pa.RecordBatch, names: Sequence[str], case_sensitive: bool
) -> Sequence[Array]:
    """The columns of these names, or the fields of structs, as `columns.Columns` finds them."""
    found = _find_paths(list(events.schema), names, case_sensitive, "events")
    return [
        pc.struct_field(events.column(top), inner) if inner else events.column(top)
        for top, *inner in found
    ]


def _find_paths(
    fields: Sequence[pa.Field[Any]], names: Sequence[str], case_sensitive: bool, what: str
) -> list[tuple[int, ...]]:
    """Where the fields of these names are: their places in structs inside structs."""
    paths: dict[str, list[tuple[int, ...]]] = {}

    def visit(name: str, kind: pa.DataType, path: tuple[int, ...]) -> None:
        paths.setdefault(name if case_sensitive else name.lower(), []).append(path)
        if isinstance(kind, pa.StructType):
            for place in range(kind.num_fields):
                inner = kind.field(place)
                visit(f"{name}.{inner.name}", inner.type, (*path, place))

    for place, field in enumerate(fields):
        visit(field.name, field.type, (place,))
    found = [paths.get(name if case_sensitive else name.lower(), []) for name in names]
    shown = ", ".join(field.name for field in fields)
    missing = [name for name, some in zip(names, found, strict=True) if not some]
    if missing:
        raise SparkError(
            f"the {what} have no column {', '.join(map(repr, missing))}, which the schema of the "
            f"subscriptions has (they have: {shown})"
        )
    twice = [name for name, some in zip(names, found, strict=True) if len(some) > 1]
    if twice:
        raise SparkError(f"the {what} have more than one column {twice[0]!r} (they have: {shown})")
    return [path for (path,) in found]


def is_json(kind: pa.DataType) -> bool:
    """Whether a column of a type can hold JSON texts."""
    return is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def attribute_columns(
    events: pa.RecordBatch, schema: Schema, case_sensitive: bool, time_zone: str
) -> list[Array]:
    """The columns of the attributes, whose filters are in a time zone, as a matcher takes them; of
    the whole event, if there is such an attribute, a struct.
    """
    named = [name for name in schema.names if name != ROOT]
    found = dict(zip(named, find_fields(events, named, case_sensitive), strict=True))
    read: list[Array] = []
    for attribute in schema:
        if attribute.name == ROOT:
            read.append(events.to_struct_array())
            continue
        column = found[attribute.name]
        kind: Any = column.type
        if not (attribute.repeated and is_list(kind)):
            _require_instants(attribute, kind, time_zone, attribute.name)
        elif attribute.type == "struct":
            column = _read_structs(attribute, column, case_sensitive, time_zone)
        else:
            _require_instants(attribute, kind.value_type, time_zone, attribute.name)
        read.append(column)
    return read


def _require_instants(attribute: Attribute, kind: Any, time_zone: str, name: str) -> None:
    """Raise an error for local times where filters of another zone than UTC need instants."""
    if attribute.type == "timestamp" and time_zone != "UTC" and getattr(kind, "tz", None) is None:
        target = "ARRAY<TIMESTAMP>" if attribute.repeated else "TIMESTAMP"
        raise SparkError(
            f"{name!r} is of type {kind}, and the filters of this index are in the time zone "
            f"{time_zone}: write CAST({name} AS {target})"
        )


def _read_structs(
    attribute: Attribute, lists: Array, case_sensitive: bool, time_zone: str
) -> Array:
    """Lists of structs, whose fields have the names that the attribute has."""
    kind: Any = lists.type
    element: Any = kind.value_type
    if not pa.types.is_struct(element):
        return lists  # for the matcher to refuse
    wanted = [field.name for field in attribute.fields]
    what = f"elements of {attribute.name!r}"
    paths = _find_paths(list(element), wanted, case_sensitive, what)
    names: dict[tuple[int, ...], str] = {}
    for field, path in zip(attribute.fields, paths, strict=True):
        inner, rest = element, field.name
        for depth, place in enumerate(path, 1):
            own = inner.field(place)
            names[path[:depth]] = rest[: len(own.name)]
            inner, rest = own.type, rest[len(own.name) + 1 :]
        _require_instants(field, inner, time_zone, f"{attribute.name}.{field.name}")
    named = _with_names(element, names)
    if named == element:
        return lists
    large = pa.types.is_large_list(kind)
    renamed: Any = _Retyped(lists, pa.large_list(named) if large else pa.list_(named))
    column: Array = pa.array(renamed)
    return column


def _with_names(kind: Any, names: Mapping[tuple[int, ...], str], at: tuple[int, ...] = ()) -> Any:
    """A type of structs with other names for some fields, by their places."""
    if not pa.types.is_struct(kind):
        return kind
    return pa.struct(
        [
            pa.field(
                names.get((*at, place), field.name),
                _with_names(field.type, names, (*at, place)),
                field.nullable,
            )
            for place, field in enumerate(kind)
        ]
    )


class _Retyped:
    """An array under a type that differs in names only."""

    def __init__(self, array: Array, kind: Any) -> None:
        self._array: Any = array
        self._kind = kind

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._kind.__arrow_c_schema__(), self._array.__arrow_c_array__()[1]
