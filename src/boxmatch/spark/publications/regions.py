"""Subscriptions as tables and indexes have them: which regions they may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from boxmatch.errors import BoxmatchError, RegionError, SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.spaces.dimensions import ONLY_REGION
from boxmatch.spark.columns import Columns, End, check_types, column, ends_of
from boxmatch.spark.publications.search import require_boxes
from boxmatch.spark.publications.space_follower import Body, Space, load
from boxmatch.spark.segments import OpenShard
from boxmatch.spark.subscription_tables import id_type_of
from boxmatch.spark.versions import IdType
from boxmatch.spark.zones import instants, is_local

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def check_ends(ends: Mapping[str, tuple[str, End]], what: str) -> None:
    """Raise an error if a dimension has both a value and a range."""
    for dimension in {dimension for dimension, _ in ends.values()}:
        given = [name for name, (own, _) in ends.items() if own == dimension]
        if dimension in given and len(given) > 1:
            raise SparkError(
                f"the {what} have columns {', '.join(map(repr, given))}: give a value or a range"
            )


def check_regions(shard: OpenShard, *, ranges: bool) -> None:
    """Raise an error if a subscription asks for what no publication has, or for nothing at all.

    If they are `ranges`, rather than texts, also for one that holds nothing.
    """
    for segment, alive in zip(shard.segments, shard.alive, strict=True):
        require_boxes(segment, alive)
        if segment.matcher is None:
            continue
        for view in segment.matcher.snapshot.views:
            boxes, rows = view.store.boxes, np.asarray(view.store.ids)
            free = np.diff(boxes.start) == 0
            if free.any():
                one = _id(segment.ids, rows, int(free.argmax()))
                raise SparkError(f"subscription {one!r}: its filter constrains no dimension")
            absent = (boxes.low == ABSENT) & (boxes.high == ABSENT)
            empty = boxes.low > boxes.high
            wrong = absent | empty if ranges else absent
            if wrong.any():
                at = int(wrong.argmax())
                box = int(np.searchsorted(boxes.start, at, side="right")) - 1
                name = segment.matcher.schema.names[boxes.attribute[at]]
                reason = f"{name} IS NULL: a publication has a value or any value"
                if empty[at]:
                    reason = f"no value of {name} is in its range"
                raise SparkError(f"subscription {_id(segment.ids, rows, box)!r}: {reason}")


def _id(ids: Any, rows: Any, position: int) -> Any:
    return ids[int(rows[position])].as_py()


def file_of(
    table: DataFrame,
    space: Space,
    subscription_id: str,
    region: str,
    filter: str,
    time_zone: str,
) -> tuple[IdType, bytes]:
    """The type of the ids, and the subscriptions of several spaces as a file of Arrow.

    Rows with the same id are regions of one subscription. Local times are of the given zone.
    """
    columns = Columns(table, "subscriptions", nested=False)
    (own,) = columns.require([subscription_id])
    id_type = id_type_of(own)
    named, texts = columns.find(region), columns.find(filter)
    for field, name in ((named, region), (texts, filter)):
        if field is not None and field.type.simpleString() != "string":
            kind = field.type.simpleString()
            raise SparkError(f"column {name!r} of the subscriptions is {kind}, not text")
    others = (field.name for field in columns.top if field not in (own, named, texts))
    ends = ends_of(others, space.dimensions, case_sensitive=columns.case_sensitive)
    if not ends:
        raise SparkError(
            "the subscriptions have no columns of bounds (NAME, NAME_low, NAME_high of a "
            f"dimension; there are {', '.join(space.dimensions.names)}); they have: "
            f"{', '.join(table.columns)}"
        )
    check_ends(ends, "subscriptions")
    attributes = {name: space.dimensions[dimension] for name, (dimension, _) in ends.items()}
    check_types(table, attributes, "subscriptions")

    def given(name: str) -> Column:
        local = time_zone != "UTC" and is_local(table.schema[name].dataType)
        return instants(column(name), time_zone) if local else column(name)

    found = table.select(
        own.column.cast(id_type).alias("id"),
        (_no_text() if named is None else named.column).alias("region"),
        (_no_text() if texts is None else texts.column).alias("filter"),
        *(given(name).alias(f"c{place}") for place, name in enumerate(ends)),
    ).toArrow()
    bodies: dict[Any, Body] = {}
    for one, name, text, *values in zip(*(each.to_pylist() for each in found.columns), strict=True):
        if one is None:
            raise SparkError(f"column {subscription_id!r} of the subscriptions has a null")
        try:
            regions, known = bodies.get(one, Body({}))
            name = ONLY_REGION if name is None else name
            if name in regions:
                raise RegionError(f"there are two rows with region {name!r}")
            if text and known and text != known:
                raise RegionError(f"it has two filters: {known!r} and {text!r}")
            moved = space.move({}, ends.values(), values)
            bodies[one] = Body({**regions, name: moved}, text or known)
        except BoxmatchError as error:
            raise SparkError(f"subscription {one!r}: {error}") from None
    ids = sorted(bodies)
    kept = pa.table(
        {
            "id": pa.array(ids, pa.int64() if id_type == "long" else pa.large_string()),
            "body": pa.array([bodies[one].to_json() for one in ids], pa.large_string()),
        }
    )
    load(space, kept)  # says what is wrong here rather than on the workers
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, kept.schema) as writer:
        writer.write_table(kept)
    return id_type, sink.getvalue().to_pybytes()


def _no_text() -> Column:
    from pyspark.sql import functions as f

    return f.lit(None).cast("string")
