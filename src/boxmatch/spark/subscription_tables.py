"""Tables of subscriptions: which of their columns say what is wanted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.columns import INTEGERS, Columns, Field, check_types, ends_of
from boxmatch.spark.versions import IdType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def subscription_columns(
    table: DataFrame, schema: Schema, subscription_id: str, filter: str
) -> tuple[IdType, dict[str, str]]:
    """The type of the ids, and which columns say what is wanted, by the names they go by inside."""
    columns = Columns(table, "subscriptions", nested=False)
    columns.check_schema(schema)
    (own,) = columns.require([subscription_id])
    id_type = id_type_of(own)
    texts = columns.find(filter)
    if texts is not None:
        kind = texts.type.simpleString()
        if kind.partition(" collate ")[0] != "string":
            raise SparkError(f"column {filter!r} of the subscriptions is {kind}, not text")
        return id_type, {"filter": texts.name}
    bounds = ends_of(
        (field.name for field in columns.top if field != own),
        schema,
        case_sensitive=columns.case_sensitive,
    )
    if not bounds:
        raise SparkError(
            f"the subscriptions have neither a column {filter!r} nor columns of bounds (NAME, "
            f"NAME_low, NAME_high of an attribute); they have: {', '.join(table.columns)}"
        )
    attributes = {name: schema[dimension] for name, (dimension, _) in bounds.items()}
    for name, attribute in attributes.items():
        if attribute.repeated:
            raise SparkError(
                f"column {name!r} of the subscriptions gives bounds of {attribute.name!r}, which "
                f"is a {attribute.type_name}: write what is wanted of it in a column {filter!r}"
            )
    check_types(table, attributes, "subscriptions")
    wanted = {f"{dim}_{end}" if end else dim: name for name, (dim, end) in bounds.items()}
    return id_type, wanted


def id_type_of(field: Field) -> IdType:
    """The type of a column of ids, which are strings or integers."""
    kind = field.type.simpleString()
    if kind in INTEGERS:
        return "long"
    if kind == "string":
        return "string"
    raise SparkError(
        f"column {field.name!r} of the subscriptions is {kind}; an id is a string or an integer: "
        "cast it"
    )
