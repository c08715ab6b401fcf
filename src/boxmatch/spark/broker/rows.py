"""Events and notifications as Arrow record batches of the columns that Spark was promised.

Columns are filled by name: an event from before its feed gained an attribute has a null there, and
what an event has beyond the columns is left out (`_body` has all of it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from boxmatch.errors import AttributeValueError, SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.model.decimals import decimal_of
from boxmatch.model.keys import key_of, unscaled_of
from boxmatch.model.nested import NotNestedError, Path, find_value, path_to
from boxmatch.model.repeated import is_list
from boxmatch.model.schema import Attribute

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

    from boxmatch.client import Feed, LoggedEvent, Notification

SEQUENCE, AT, BODY = "_sequence", "_at", "_body"
_SPARK_TYPES: Mapping[str, str] = {
    "int": "LongType", "float": "DoubleType", "bool": "BooleanType", "timestamp": "TimestampType",
    "string": "StringType", "enum": "StringType",
}  # fmt: skip


def feed_columns(feed: Feed, *, body: bool) -> StructType:
    """The columns of a feed: its attributes, then the number and the time of each event.

    A state feed has no attributes: what changed is in the body. So is what has no type.
    """
    from pyspark.sql.types import StructType

    columns = StructType()
    if feed.kind == "events":
        for attribute in feed.schema:
            if attribute.type == "json":
                body = True
            else:
                columns.add(attribute.name, spark_type(attribute))
    taken = {SEQUENCE, AT, BODY} & set(columns.fieldNames())
    if taken:
        raise SparkError(
            f"feed {feed.name!r} has an attribute {min(taken)!r}, which is the name of a column "
            "that every feed has: give a schema without it"
        )
    columns.add(SEQUENCE, "long").add(AT, "timestamp")
    if body or feed.kind != "events":
        columns.add(BODY, "string")
    return columns


def spark_type(attribute: Attribute) -> DataType:
    """The type of a column that holds an attribute."""
    from pyspark.sql import types

    kind: DataType
    if attribute.type == "struct":
        kind = types.StructType()
        for field in attribute.fields:
            kind.add(field.name, spark_type(field))
    elif attribute.type == "decimal":
        kind = types.DecimalType(attribute.precision, attribute.scale)
    else:
        kind = getattr(types, _SPARK_TYPES[attribute.type])()
    return types.ArrayType(kind) if attribute.repeated else kind


def notification_columns() -> StructType:
    """The columns of a subscriber's notifications."""
    from pyspark.sql.types import ArrayType, StringType, StructType

    columns = StructType().add("sequence", "long").add("feed", "string").add("at", "timestamp")
    return columns.add("subscriptions", ArrayType(StringType())).add("body", "string")


def arrow_columns(columns: StructType) -> pa.Schema:
    """The Arrow schema that Spark asks for, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(columns, timezone="UTC")


def event_batch(schema: pa.Schema, events: Sequence[LoggedEvent]) -> pa.RecordBatch:
    """Events of a feed as a record batch."""

    def column(name: str) -> list[Any]:
        if name == SEQUENCE:
            return [event.sequence for event in events]
        if name == AT:
            return [_microseconds(event.at) for event in events]
        if name == BODY:
            return [_json(event.event) for event in events]
        path = path_to(name)
        return [_find(event.event, path) for event in events]

    return _batch(schema, [event.sequence for event in events], column)


def _find(event: Mapping[str, Any], path: Path) -> Any:
    """The value behind a name, which may have dots; None if there is none."""
    try:
        return find_value(event, path)
    except NotNestedError:
        return None


def notification_batch(schema: pa.Schema, notifications: Sequence[Notification]) -> pa.RecordBatch:
    """Notifications of a subscriber as a record batch."""

    def column(name: str) -> list[Any]:
        match name:
            case "at":
                return [_microseconds(notification.at) for notification in notifications]
            case "subscriptions":
                return [list(notification.subscriptions) for notification in notifications]
            case "body":
                return [_json(notification.body) for notification in notifications]
            case "sequence" | "feed":
                return [getattr(notification, name) for notification in notifications]
        known = ", ".join(notification_columns().names)
        raise SparkError(f"notifications have no column {name!r} (they have: {known})")

    return _batch(schema, [notification.sequence for notification in notifications], column)


def _batch(
    schema: pa.Schema, sequences: Sequence[int], column: Callable[[str], list[Any]]
) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [_array(field, column(field.name), sequences) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(field: pa.Field[Any], values: list[Any], sequences: Sequence[int]) -> pa.Array[Any]:
    """Values of JSON as an array of the field's type."""
    import pyarrow as pa
    import pyarrow.types as t

    kind: Any = field.type
    try:
        if t.is_timestamp(kind):
            numbers: Any = [_instant(field.name, value) for value in values]
            instants: pa.Array[Any] = pa.array(numbers, pa.timestamp("us", "UTC")).cast(kind)
            return instants
        made: pa.Array[Any] = pa.array([_plain(field.name, kind, v) for v in values], kind)
        return made
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        found = _offender(kind, values)
        where = "" if found is None else f" (event {sequences[found]}: {values[found]!r:.60})"
        raise SparkError(
            f"column {field.name!r} cannot be read as {kind}{where}: {error}"
        ) from error


def _plain(name: str, kind: Any, value: Any) -> Any:
    """A value of JSON as Arrow takes it."""
    import pyarrow.types as t

    if value is None:
        return None
    if t.is_timestamp(kind):
        return _instant(name, value)
    if t.is_decimal(kind):
        return _decimal(name, kind, value)
    if (t.is_string(kind) or t.is_large_string(kind)) and not isinstance(value, str):
        return _json(value)
    if is_list(kind) and isinstance(value, list):
        return [_plain(name, kind.value_type, one) for one in value]
    if t.is_struct(kind) and isinstance(value, Mapping):
        return {
            field.name: _plain(field.name, field.type, _find(value, path_to(field.name)))
            for field in kind
        }
    return value


def _offender(kind: Any, values: list[Any]) -> int | None:
    """The first value that does not fit, if one alone does not."""
    import pyarrow as pa

    for place, value in enumerate(values):
        try:
            pa.array([value], kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return place
    return None


def _instant(name: str, value: Any) -> int | None:
    """Microseconds since 1970 in UTC, by the rules that the broker itself reads times by."""
    if type(value) is int:  # `_at`, which was not JSON
        return value
    try:
        key = key_of(Attribute(name, "timestamp"), value)
    except AttributeValueError as error:
        raise ValueError(str(error)) from None
    return None if key == ABSENT else key


def _decimal(name: str, kind: Any, value: Any) -> Decimal | None:
    """A decimal, by the rules that the broker itself reads them by."""
    if value is None:
        return None
    attribute = Attribute(name, "decimal", precision=kind.precision, scale=kind.scale)
    try:
        return decimal_of(unscaled_of(attribute, value), kind.scale)
    except AttributeValueError as error:
        raise ValueError(str(error)) from None


def _microseconds(at: float) -> int:
    return round(at * 1e6)


def _json(value: Any) -> str:
    import orjson

    return orjson.dumps(value).decode()
