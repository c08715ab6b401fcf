"""What DataFrames must look like, checked on the driver before any job starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from boxmatch.errors import SchemaError, SparkError
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.session import require_spark
from boxmatch.spark.versions import IdType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Keep = Literal["all"] | Sequence[str]

End = Literal["", "low", "high"]
"""What a column gives: one end of a range, or a value, which is both."""

INTEGERS = ("tinyint", "smallint", "int", "bigint")


def quote(name: str) -> str:
    """A column's name as SQL takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def column(name: str) -> Column:
    """A top-level column, even if its name has a dot."""
    from pyspark.sql import functions as f

    return f.col(quote(name))


def require_frame(given: object, what: str) -> None:
    """Raise an error unless it is a DataFrame of Spark."""
    require_spark()
    from pyspark.sql import DataFrame

    if not isinstance(given, DataFrame):
        kind = f"{type(given).__module__}.{type(given).__qualname__}".removeprefix("builtins.")
        raise SparkError(
            f"the {what} are not a Spark DataFrame but of type {kind}: "
            "spark.createDataFrame makes one"
        )


def require_columns(frame: DataFrame, names: Iterable[str], what: str) -> None:
    """Raise an error that names the columns which the DataFrame lacks."""
    missing = [name for name in names if name not in frame.columns]
    if missing:
        raise SparkError(
            f"the {what} have no column {', '.join(map(repr, missing))} "
            f"(they have: {', '.join(frame.columns)})"
        )


def arrow_types(frame: DataFrame) -> dict[str, pa.DataType]:
    """The columns that Arrow has a type for, and that type."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_type

    types = {}
    for field in frame.schema:
        try:
            types[field.name] = to_arrow_type(field.dataType, timezone="UTC")
        except PySparkException:
            continue
    return types


def infer_schema(events: DataFrame, event_id: str) -> Schema:
    """An attribute for every column of the events that can be one, but for their id."""
    import pyarrow as pa

    attributes: list[Attribute] = []
    for name, kind in arrow_types(events).items():
        if name == event_id:
            continue
        try:
            attributes += Schema.from_arrow(pa.schema([pa.field(name, kind)])).attributes
        except SchemaError:
            continue  # arrays, maps and the like are payload
    if not attributes:
        raise SparkError(
            f"no column of the events can be an attribute (they have: {', '.join(events.columns)})"
        )
    return Schema(attributes)


def check_events(events: DataFrame, schema: Schema, event_id: str) -> None:
    """Raise an error unless the events have an id and the attributes, with types that fit."""
    require_columns(events, [event_id], "events")
    missing = [name for name in schema.names if name not in events.columns]
    if missing:
        raise SparkError(
            f"the events have no column {', '.join(map(repr, missing))}, which the schema of the "
            f"subscriptions has (they have: {', '.join(events.columns)}); add a column of nulls "
            "if no event has the attribute"
        )
    check_types(events, {attribute.name: attribute for attribute in schema}, "events")


def check_types(frame: DataFrame, attributes: Mapping[str, Attribute], what: str) -> None:
    """Raise an error unless columns hold values of the attributes, given by the columns' names."""
    from boxmatch.model.columns import readable

    types = arrow_types(frame)
    for name, attribute in attributes.items():
        kind = types.get(name)
        if kind is None or not readable(attribute.type, kind):
            raise SparkError(
                f"column {name!r} of the {what} is of type "
                f"{frame.schema[name].dataType.simpleString()}, which is no {attribute.type}: "
                "cast it first"
            )


def columns_to_keep(events: DataFrame, keep: Keep, event_id: str, found: str) -> list[str]:
    """The columns of the events that the result has too, besides the id."""
    if isinstance(keep, str):
        if keep != "all":
            raise SparkError(f"keep is a list of columns or 'all', not {keep!r}")
        names = [name for name in events.columns if name != event_id]
    else:
        require_columns(events, keep, "events")
        names = [name for name in dict.fromkeys(keep) if name != event_id]
    if found in (event_id, *names):
        raise SparkError(
            f"the events have a column {found!r}, and so would the result: rename it, or leave it "
            "out of keep"
        )
    return names


def ends_of(names: Iterable[str], schema: Schema) -> dict[str, tuple[str, End]]:
    """What columns say: of which dimension, and which end of it or ("") both."""
    found: dict[str, tuple[str, End]] = {}
    for name in names:
        stem, _, end = name.rpartition("_")
        if name in schema:
            found[name] = name, ""
        elif stem in schema and end in ("low", "high"):
            found[name] = stem, "low" if end == "low" else "high"
    return found


def subscription_columns(
    table: DataFrame, schema: Schema, subscription_id: str, filter: str
) -> tuple[IdType, dict[str, str]]:
    """The type of the ids, and which columns say what is wanted, by the names they go by inside."""
    require_columns(table, [subscription_id], "subscriptions")
    id_type = _id_type(table, subscription_id)
    if filter in table.columns:
        kind = table.schema[filter].dataType.simpleString()
        if kind != "string":
            raise SparkError(f"column {filter!r} of the subscriptions is {kind}, not text")
        return id_type, {"filter": filter}
    bounds = ends_of((name for name in table.columns if name != subscription_id), schema)
    if not bounds:
        raise SparkError(
            f"the subscriptions have neither a column {filter!r} nor columns of bounds (NAME, "
            f"NAME_low, NAME_high of an attribute); they have: {', '.join(table.columns)}"
        )
    attributes = {name: schema[dimension] for name, (dimension, _) in bounds.items()}
    check_types(table, attributes, "subscriptions")
    return id_type, {name: name for name in bounds}


def _id_type(table: DataFrame, name: str) -> IdType:
    kind = table.schema[name].dataType.simpleString()
    if kind in INTEGERS:
        return "long"
    if kind == "string":
        return "string"
    raise SparkError(
        f"column {name!r} of the subscriptions is {kind}; an id is a string or an integer: cast it"
    )
