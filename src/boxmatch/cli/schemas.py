"""Schemas, filters and ids on the command line: from a file, as an option, or inferred."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from boxmatch.cli.files import FileError
from boxmatch.cli.help import filter_by_prefix
from boxmatch.errors import SchemaError

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.engine.matcher import Matcher
    from boxmatch.model.ids import SubscriptionId
    from boxmatch.model.schema import Attribute, Schema

_EXACT = 1 << 53
"""Up to here every integer is a float."""
_REASONS = 3
"""How many reasons a message lists."""


def attribute_types(incomplete: str) -> list[str]:
    """`price=` is completed with the types that there are."""
    name, equals, _ = incomplete.partition("=")
    kinds = ("int", "float", "decimal(", "string", "bool", "timestamp", "list of ")
    return filter_by_prefix([f"{name}={kind}" for kind in kinds], incomplete) if equals else []


SchemaFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", exists=True, dir_okay=False, help="Schema as a JSON file."),
]
Attributes = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=TYPE",
        help="An attribute of the schema; TYPE is int, float, decimal(p,s), string, bool, "
        "timestamp, 'list of' one of these, or the values of an enumeration separated by '|'. "
        "The NAME of a nested value has dots. Repeatable.",
        autocompletion=attribute_types,
    ),
]
Unknown = Annotated[
    Literal["refuse", "carry"],
    typer.Option(help="Refuse, or carry along, attributes that the schema lacks."),
]


def dialect_names(incomplete: str) -> list[str]:
    """The dialects of filters that a shell offers."""
    from boxmatch.model.dialects.registry import DIALECTS, SQL

    return filter_by_prefix((SQL, *DIALECTS), incomplete)


Dialect = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The language of the filter: sql (the default), eventbridge, sns, sns-body, cesql or "
        "jms.",
        autocompletion=dialect_names,
    ),
]


def given_filter(text: str, dialect: str | None = None) -> str | dict[str, Any]:
    """A filter as it is typed: SQL, an object of JSON, or what another dialect has."""
    if dialect not in (None, "sql") or not text.lstrip().startswith("{"):
        return text
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"the filter is neither SQL nor JSON: {error}") from None
    return found


def given_id(matcher: Matcher, text: str) -> SubscriptionId:
    """An id as it is typed: a number, if ids are numbers."""
    return text if text in matcher or not text.lstrip("-").isdigit() else int(text)


def given_schema(path: Path | None, attributes: list[str]) -> Schema | None:
    """The schema that the options describe; None if there are none."""
    from boxmatch.model.schema import Schema

    if path is not None:
        if attributes:
            raise typer.BadParameter("give --schema or --attribute, not both")
        try:
            return Schema.from_json(path.read_text(encoding="utf-8"))
        except (SchemaError, UnicodeDecodeError) as error:
            raise SchemaError(f"{path}: {error}") from None
    if not attributes:
        return None
    types: dict[str, str | list[str]] = {}
    for item in attributes:
        name, equals, kind = item.partition("=")
        if not equals:
            raise SchemaError(f"--attribute {item!r} is not NAME=TYPE")
        types[name] = kind.split("|") if "|" in kind else kind
    return Schema(types)


class Inferred(NamedTuple):
    """A schema of the columns that have a type of ours; others matter only if a filter uses one."""

    schema: Schema
    left_out: tuple[str, ...]
    """Why columns were left out."""
    remarks: tuple[str, ...] = ()
    """What may surprise about the types."""

    def __str__(self) -> str:
        names = ", ".join(f"{attribute.name}={attribute.type_name}" for attribute in self.schema)
        left_out = "".join(f" Left out: {reason}." for reason in self.left_out[:_REASONS])
        remarks = "".join(f" {remark}." for remark in self.remarks[:_REASONS])
        return (
            f"the schema was inferred from the events: {names}.{left_out}{remarks} "
            "Give another with --attribute or --schema."
        )


def infer_from_columns(columns: pa.Schema) -> Inferred:
    """The schema of a table."""
    import pyarrow as pa

    return _infer(pa.schema([field]) for field in columns)


def infer_from_events(events: list[Any]) -> Inferred:
    """The schema of some events.

    JSON has one kind of number, so whether the first few happen to be whole says nothing: they
    are floats, unless one of them is an integer that no float can hold.
    """
    columns: dict[str, list[Any]] = {}
    for row, event in enumerate(events):
        if not isinstance(event, Mapping):
            raise FileError(f"row {row}: an event is a JSON object, not {event!r:.80}")
        for name, value in event.items():
            columns.setdefault(name, []).append(value)
    return _infer([{name: value} for value in _widen(values)] for name, values in columns.items())


def _infer(columns: Iterable[Any]) -> Inferred:
    from boxmatch.model.inference import infer_attributes
    from boxmatch.model.schema import Schema

    found: list[Attribute] = []
    left_out: list[str] = []
    for column in columns:
        try:
            found += infer_attributes(column)
        except SchemaError as error:
            left_out.append(str(error))
    if not found:
        why = "; ".join(left_out[:_REASONS]) or "they are empty"
        raise FileError(f"no schema can be inferred: {why}. Give it with --attribute or --schema.")
    return Inferred(Schema(found), tuple(left_out))


def _widen(values: list[Any]) -> list[Any]:
    if any(abs(value) > _EXACT for value in _integers(values)):
        return values
    widened: list[Any] = _as_floats(values)
    return widened


def _integers(value: Any) -> Iterator[int]:
    if type(value) is int:
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _integers(inner)


def _as_floats(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_floats(inner) for inner in value]
    if isinstance(value, dict):
        return {name: _as_floats(inner) for name, inner in value.items()}
    return float(value) if type(value) is int else value
