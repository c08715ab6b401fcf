"""Tables of subscriptions: which of their columns say what is wanted, and in which dialect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from boxmatch.errors import FilterError, SparkError
from boxmatch.model.dialects.registry import SQL, check_dialect
from boxmatch.model.schema import Schema
from boxmatch.spark.columns import (
    INTEGERS,
    Columns,
    Field,
    check_types,
    column,
    ends_of,
)
from boxmatch.spark.versions import IdType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DIALECT: Final = "dialect"
"""The column of dialects."""


def require_dialect(name: str | None) -> None:
    """Raise an error unless there is a dialect of this name."""
    try:
        check_dialect(name)
    except FilterError as error:
        raise SparkError(error.reason) from None


def subscription_columns(
    table: DataFrame, schema: Schema, subscription_id: str, filter: str, dialect: str | None = None
) -> tuple[IdType, dict[str, str]]:
    """The type of the ids, and which columns say what is wanted, by the names they go by inside.

    With filters, a column of dialects is among them, unless all filters are of one `dialect`.
    """
    columns = Columns(table, "subscriptions", nested=False)
    columns.check_schema(schema)
    (own,) = columns.require([subscription_id])
    id_type = id_type_of(own)
    texts = columns.find(filter)
    if texts is not None:
        _require_text(texts)
        found = columns.find(DIALECT)
        if found is None or found in (own, texts):
            return id_type, {"filter": texts.name}
        _require_text(found)
        if dialect is not None:
            raise SparkError(
                f"the subscriptions have a column {found.name!r}, and all filters are to be of "
                f"dialect {dialect!r}: leave one of the two out"
            )
        return id_type, {"filter": texts.name, DIALECT: found.name}
    if dialect is not None:
        raise SparkError(
            f"the filters are of dialect {dialect!r}, and the subscriptions have no column "
            f"{filter!r} (they have: {', '.join(table.columns)})"
        )
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
        if attribute.repeated or attribute.type == "json":
            raise SparkError(
                f"column {name!r} of the subscriptions gives bounds of {attribute.name!r}, which "
                f"is a {attribute.type_name}: write what is wanted of it in a column {filter!r}"
            )
    check_types(table, attributes, "subscriptions")
    wanted = {f"{dim}_{end}" if end else dim: name for name, (dim, end) in bounds.items()}
    return id_type, wanted


def _require_text(field: Field) -> None:
    kind = field.type.simpleString()
    if kind.partition(" collate ")[0] != "string":
        raise SparkError(f"column {field.name!r} of the subscriptions is {kind}, not text")


def require_sql(table: DataFrame, subscription_id: str, dialect: str) -> None:
    """Raise an error if a filter is of another dialect than SQL, as a column says."""
    other = table.where(column(dialect) != SQL).select(column(subscription_id), column(dialect))
    for one, found in other.head(1):
        raise SparkError(
            f"subscription {one!r} is of dialect {found!r}, whose filters are no regions: "
            "transitions take filters in SQL, or columns of bounds; match takes the rest"
        )


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
