"""Columns of CloudEvents in the JSON format."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from boxmatch.errors import SparkError
from boxmatch.model.schema import Attribute, AttributeSpec, Schema
from boxmatch.spark.broker.rows import spark_type
from boxmatch.spark.session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import StructType

_DATA: Final = "data"
_BYTES: Final = "data_base64"
_KIND: Final = "datacontenttype"
_MALFORMED: Final = "__malformed"  # no attribute has such a name
_REQUIRED: Final = ("id", "source", "type")
_OPTIONS: Final = {"columnNameOfCorruptRecord": _MALFORMED, "allowNonNumericNumbers": "false"}

_JSON_KIND: Final = "(?i)^[^;]*[/+]json[ \t]*(;.*)?$"
_INTEGER: Final = "^-?(0|[1-9][0-9]{0,9})$"
_BOOLEAN: Final = "^(true|false)$"
_TIME: Final = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$"
_WRITTEN: Final = {
    "int": _INTEGER,
    "float": _INTEGER,
    "decimal": _INTEGER,
    "bool": _BOOLEAN,
    "timestamp": _TIME,
}
"""How attributes beside the data are written, which may all be text."""


def cloudevents(column: Column | str, schema: Schema | Mapping[str, AttributeSpec]) -> Column:
    """A column of structs with the attributes of a schema, from a column of CloudEvents as JSON.

    The schema is one that a feed of the broker could have: `type`, `source`, extensions, and fields
    of the data with dots in their names, such as `data.temperature`, which come as a struct `data`.

    Spark's `from_json` reads them. A row is null if its text is no CloudEvent, if a value is not of
    the type that the schema says, or if it has JSON data as Base64, which is not read; so these
    rows can be counted. What the schema does not name is left out.
    """
    require_spark()
    from pyspark.sql import functions as f

    known = Schema(schema)
    for attribute in known:
        _check(attribute)
    parsed = f.from_json(column, _read_as(known), _OPTIONS)
    # Inside of a function, so that a text is parsed once and not for each of its attributes.
    return f.transform(f.array(parsed), lambda event: _attributes(event, known))[0]


def _check(attribute: Attribute) -> None:
    if attribute.type == "json":
        raise SparkError(
            f"attribute {attribute.name!r} is of type json, whose values no column of structs can "
            "hold: match the texts themselves, with event="
        )
    top, dot, _ = attribute.name.partition(".")
    if top == _DATA:
        return
    if dot or not (top.isascii() and top.isalnum() and top == top.lower()):
        raise SparkError(
            f"{attribute.name!r} is not in a CloudEvent: names of attributes consist of a to z and "
            "0 to 9, and fields of the data begin with 'data.'"
        )
    if attribute.repeated:
        raise SparkError(
            f"attribute {attribute.name!r} is a list, as only those in the data can be"
        )


def _read_as(schema: Schema) -> StructType:
    from pyspark.sql.types import StructType

    texts = {"specversion", _KIND, _BYTES, *_REQUIRED, *_beside_data(schema), _MALFORMED}
    read = StructType()
    for name in sorted(texts):
        read.add(name, "string")
    data = _nested([(one.name, one) for one in schema if one.name not in texts])
    return StructType([*read.fields, *data.fields])


def _beside_data(schema: Schema) -> list[str]:
    return [one.name for one in schema if one.name.partition(".")[0] != _DATA]


def _nested(attributes: Iterable[tuple[str, Attribute]]) -> StructType:
    """Structs inside of structs for attributes with dots in their names."""
    from pyspark.sql.types import ArrayType, StructType

    groups: dict[str, list[tuple[str, Attribute]]] = {}
    for name, attribute in attributes:
        top, _, rest = name.partition(".")
        groups.setdefault(top, []).append((rest, attribute))
    struct = StructType()
    for top, inner in groups.items():
        whole = [one for rest, one in inner if not rest]
        if not whole:
            struct.add(top, _nested(inner))
        elif len(inner) > 1:
            raise SparkError(f"attribute {whole[0].name!r} cannot be a value and have fields")
        elif whole[0].type == "struct":
            struct.add(top, ArrayType(_nested([(one.name, one) for one in whole[0].fields])))
        else:
            struct.add(top, spark_type(whole[0]))
    return struct


def _attributes(event: Column, schema: Schema) -> Column:
    from pyspark.sql import functions as f

    fields = []
    valid = event[_MALFORMED].isNull() & (event["specversion"] == "1.0")
    for name in _REQUIRED:
        valid &= event[name] != ""
    has_data = any(one.name.partition(".")[0] == _DATA for one in schema)
    both = event[_DATA].isNotNull() if has_data else f.lit(False)
    kind = f.coalesce(event[_KIND], f.lit(""))
    valid &= event[_BYTES].isNull() | ~(both | kind.rlike(_JSON_KIND))
    for name in _beside_data(schema):
        text, kind_of = event[name], schema[name]
        if kind_of.type in _WRITTEN:
            value = text.try_cast(spark_type(kind_of))
            valid &= text.isNull() | (text.rlike(_WRITTEN[kind_of.type]) & value.isNotNull())
        else:
            value = text
        fields.append(value.alias(name))
    if has_data:
        fields.append(event[_DATA].alias(_DATA))
    return f.when(valid, f.struct(*fields))
