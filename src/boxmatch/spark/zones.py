"""The time zone that timestamps without one are in: that of the session, as in Spark SQL."""

from __future__ import annotations

import re
from datetime import timedelta, timezone, tzinfo
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from boxmatch.errors import SparkError
from boxmatch.model.schema import Attribute
from boxmatch.spark.columns import Field, column, element_fields

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SETTING = "spark.sql.session.timeZone"
_SAME_AS_UTC = ("UTC", "GMT", "UT", "Z", "Etc/UTC", "Etc/GMT")
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?")


def session_zone(spark: SparkSession) -> str:
    """The session's time zone, under one name if it is UTC; an error if Python has no such zone."""
    name = spark.conf.get(_SETTING) or "UTC"
    zone = zone_of(name)
    return "UTC" if zone is None else name


def zone_of(name: str) -> tzinfo | None:
    """The time zone of a name as Spark writes it; None for UTC."""
    if name in _SAME_AS_UTC:
        return None
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, *parts = offset.groups()
        hours, minutes, seconds = (int(part or 0) for part in parts)
        ahead = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-ahead if sign == "-" else ahead) if ahead else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SparkError(
            f"Python knows no time zone {name!r} ({_SETTING}): set one such as Europe/Zurich or "
            "+01:00; on a machine without a database of time zones, pip install tzdata"
        ) from None


def is_local(kind: DataType) -> bool:
    """Does a type of Spark hold times that are not instants?"""
    return kind.simpleString() in ("timestamp_ntz", "date")


def value_column(frame: DataFrame, name: str, zone: str) -> Column:
    """A column of values, of which local times are in a zone."""
    given = column(name)
    local = zone != "UTC" and is_local(frame.schema[name].dataType)
    return instants(given, zone) if local else given


def sent_column(frame: DataFrame, field: Field, attribute: Attribute, zone: str) -> Column | None:
    """The column of an attribute's values as workers read them; None if it is that already.

    Local times are of a zone, also in lists, and the elements of a list of structs have the fields
    that the attribute has, by its names.
    """
    from pyspark.sql import functions as f
    from pyspark.sql.types import StructType

    def is_moved(kind: DataType, one: Attribute) -> bool:
        return zone != "UTC" and one.type == "timestamp" and is_local(kind)

    element = field.element
    if not attribute.repeated or element is None:
        return instants(field.column, zone) if is_moved(field.type, attribute) else None
    if not isinstance(element, StructType):
        if not is_moved(element, attribute):
            return None
        return f.transform(field.column, lambda one: instants(one, zone))
    fields = element_fields(frame, field, attribute, "events")
    if field.arrow_type() is not None and all(
        one.name == inner.name and not is_moved(inner.type, one) for one, inner in fields
    ):
        return None

    def rebuilt(value: Column) -> Column:
        parts = []
        for one, inner in fields:
            part = value
            for name in inner.path:
                part = part.getField(name)
            if is_moved(inner.type, one):
                part = instants(part, zone)
            parts.append(part.alias(one.name))
        return f.when(value.isNotNull(), f.struct(*parts))

    return f.transform(field.column, rebuilt)


def instants(local: Column, zone: str) -> Column:
    """Local times of a zone as instants, which workers read as UTC."""
    from pyspark.sql import functions as f

    return f.convert_timezone(f.lit(zone), f.lit("UTC"), local.cast("timestamp_ntz"))
