"""Regions of publications and subscriptions as tables, files and JSON have them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from boxmatch.errors import BoxmatchError, FilterError, SparkError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import decimal_of
from boxmatch.model.filters import Bound, Box, compile_filter
from boxmatch.model.interval import Interval
from boxmatch.model.keys import (
    check_string,
    is_absent,
    key_of,
    key_range,
    unscaled_of,
    value_of,
    value_of_text,
)
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spaces.spaces import Spaces
from boxmatch.spark.columns import End, column, ends_of, subscription_columns
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IdType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Plain = Any
"""A value that JSON takes: timestamps are microseconds since 1970."""

Region = dict[str, list[Plain]]
"""Low and high of each dimension that is not free."""

_SPACE = "space"


def check_ends(ends: Mapping[str, tuple[str, End]], what: str) -> None:
    """Raise an error if a dimension has both a value and a range."""
    for dimension in {dimension for dimension, _ in ends.values()}:
        given = [name for name, (own, _) in ends.items() if own == dimension]
        if dimension in given and len(given) > 1:
            raise SparkError(
                f"the {what} have columns {', '.join(map(repr, given))}: give a value or a range"
            )


def move_region(
    schema: Schema, region: Region, ends: Sequence[tuple[str, End]], values: Sequence[Any]
) -> Region:
    """The region with other ends where there is a value."""
    result = dict(region)
    for (dimension, end), value in zip(ends, values, strict=True):
        plain = _plain(schema[dimension], value)
        if plain is None:
            continue
        low, high = result.get(dimension, (None, None))
        result[dimension] = [low if end == "high" else plain, high if end == "low" else plain]
    return result


def _plain(attribute: Attribute, value: Any) -> Plain:
    """A value as JSON keeps it."""
    if is_absent(value):
        return None
    if attribute.type == "string":
        return check_string(attribute, value)
    if attribute.type == "decimal":
        return str(decimal_of(unscaled_of(attribute, value), attribute.scale))
    if attribute.type == "timestamp":
        return value if isinstance(value, int) else key_of(attribute, value)
    return value_of(attribute, key_of(attribute, value))


def spec(schema: Schema, region: Mapping[str, Sequence[Any]]) -> dict[str, Interval]:
    """A region as `Spaces` takes it."""
    return {name: _interval(schema[name], *span) for name, span in region.items()}


def _interval(attribute: Attribute, low: Plain, high: Plain, opened: int = 0) -> Interval:
    if attribute.type == "timestamp":
        low, high = (None if end is None else value_of(attribute, end) for end in (low, high))
    return Interval(low, high, bool(opened & 1), bool(opened & 2))


def file_of(
    table: DataFrame, schema: Schema, subscription_id: str, filter: str
) -> tuple[IdType, bytes]:
    """The type of the ids, and the subscriptions as a file of Arrow: ids, and regions as JSON."""
    id_type, wanted = subscription_columns(table, schema, subscription_id, filter)
    by_text = filter in table.columns
    ends = {} if by_text else ends_of(wanted, schema)
    check_ends(ends, "subscriptions")
    columns = [column(name).alias(f"c{place}") for place, name in enumerate(wanted.values())]
    rows = table.select(column(subscription_id).cast(id_type).alias("id"), *columns).toArrow()
    ids: list[Any] = rows.column(0).to_pylist()
    values = zip(
        *(rows.column(place + 1).to_pylist() for place in range(len(columns))), strict=True
    )
    regions: list[list[dict[str, list[Any]]]] = []
    for one, row in zip(ids, values, strict=True):
        if one is None:
            raise SparkError(f"column {subscription_id!r} of the subscriptions has a null")
        try:
            if by_text:
                regions.append([_region_of_box(schema, box) for box in _boxes(schema, row[0])])
            else:
                region = move_region(schema, {}, list(ends.values()), row)
                regions.append([{name: [*span, 0] for name, span in region.items()}])
        except BoxmatchError as error:
            raise SparkError(f"subscription {one!r}: {error}") from None
    kept = pa.table(
        {
            "id": pa.array(ids, pa.int64() if id_type == "long" else pa.large_string()),
            "regions": pa.array(map(json.dumps, regions), pa.large_string()),
        }
    ).sort_by("id")
    _load(kept, schema)  # says what is wrong here rather than on the workers
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, kept.schema) as writer:
        writer.write_table(kept)
    return id_type, sink.getvalue().to_pybytes()


def _boxes(schema: Schema, text: str | None) -> tuple[Box, ...]:
    if text is None:
        raise FilterError("there is no filter: it is null")
    return compile_filter(schema, text).boxes


def _region_of_box(schema: Schema, box: Box) -> dict[str, list[Any]]:
    """A box of a filter as low, high and which ends are open, by dimension."""
    region = {}
    for position, low, high in box:
        attribute = schema.attributes[position]
        if high == ABSENT:
            raise FilterError(f"{attribute.name} IS NULL: a publication has a value or any value")
        (first, low_open), (last, high_open) = _bound(attribute, low), _bound(attribute, high)
        region[attribute.name] = [first, last, low_open | high_open << 1]
    return region


def _bound(attribute: Attribute, bound: Bound) -> tuple[Plain, int]:
    if isinstance(bound, tuple):
        return _plain(attribute, value_of_text(attribute, bound[0])), int(bound[1] != 0)
    if attribute.labelled:
        return None, 0  # its only keys are the ends of the axis
    least, most = key_range(attribute)
    if bound in (FIRST, LAST) or not least <= bound <= most:
        return None, 0
    return _plain(attribute, value_of(attribute, bound)), 0


@lru_cache(maxsize=4)
def open_subscriptions(folder: str, name: str, schema: str) -> Spaces:
    """The subscriptions, once for each worker process."""
    content = Folder.at(folder).read(name)
    if content is None:
        raise SparkError(
            f"{folder} has no {name}: is it a folder that driver and workers see (path=)?"
        )
    return _load(pa.ipc.open_file(pa.BufferReader(content)).read_all(), Schema.from_json(schema))


def _load(table: pa.Table, schema: Schema) -> Spaces:
    spaces = Spaces({_SPACE: schema})
    ids: list[Any] = table["id"].to_pylist()
    texts: list[Any] = table["regions"].to_pylist()
    for one, text in zip(ids, texts, strict=True):
        regions = {f"r{n}": spec(schema, given) for n, given in enumerate(json.loads(text))}
        if not regions:
            continue  # a filter that nothing can match
        either = " OR ".join(regions) if len(regions) > 1 else None  # none is faster than one
        try:
            spaces.subscribe(one, regions=regions, filter=either)
        except BoxmatchError as error:
            raise SparkError(f"subscription {one!r}: {error}") from None
    return spaces
