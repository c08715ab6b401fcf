"""Derive: attributes that events do not carry but filters may name, as SQL expressions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.model.schema import Attribute, AttributeType, Schema
from boxmatch.spark.columns import column
from boxmatch.spark.pipeline.clean import SPARK_TYPES
from boxmatch.spark.pipeline.failures import explained

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTRIBUTE_TYPES: Final[Mapping[str, AttributeType]] = {
    "tinyint": "int", "smallint": "int", "int": "int", "bigint": "int",
    "float": "float", "double": "float", "decimal": "float",
    "string": "string", "varchar": "string", "char": "string",
    "boolean": "bool",
    "date": "timestamp", "timestamp": "timestamp", "timestamp_ntz": "timestamp",
}  # fmt: skip


def derive(events: DataFrame, expressions: Mapping[str, str]) -> DataFrame:
    """Add a column for each expression, in order; one may use those before it.

    Everything is checked before any row is read: an expression that Spark does not understand, or
    whose type no attribute has, is a `SparkError` that names it.
    """
    from pyspark.sql import functions as f

    for name, expression in expressions.items():
        if name in events.columns:
            raise SparkError(f"derive: the events have a column {name!r} already")
        with explained(f"derive: {name} = {expression!r}"):
            derived = events.withColumn(name, f.expr(expression))
            kind = derived.schema[name].dataType.simpleString()
        wanted = _ATTRIBUTE_TYPES.get(kind.partition("(")[0])
        if wanted is None:
            raise SparkError(
                f"derive: {name} = {expression!r} is of Spark type {kind}, which no attribute has"
            )
        events = derived.withColumn(name, column(name).cast(SPARK_TYPES[wanted]))
    return events


def derived_schema(schema: Schema, events: DataFrame, names: Iterable[str]) -> Schema:
    """The schema with the derived columns as attributes."""
    added = [
        Attribute(name, _ATTRIBUTE_TYPES[events.schema[name].dataType.simpleString()])
        for name in names
    ]
    return Schema([*schema.attributes, *added])
