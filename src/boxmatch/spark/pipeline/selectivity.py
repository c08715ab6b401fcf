"""Which attributes subscriptions ask about, and how many events satisfy what they ask.

These are the figures that predicate skipping needs (`boxmatch.adaptive.skipping`): how often each
attribute is constrained, and the share of events that satisfy a predicate on it (w in the Ada-REIN
paper). Filters are compiled on the executors; shares are measured, by each worker for its own
subscriptions, on the same sample of events.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.columns import Columns, column
from boxmatch.spark.entry import task
from boxmatch.spark.subscription_tables import DIALECT, subscription_columns
from boxmatch.spark.zones import session_zone, value_column, zone_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_MAX_BOXES = 1024
_ALL = -1
"""Stands for no attribute in particular in what workers report."""


@dataclass(frozen=True)
class AttributeStatistics:
    """One attribute, in subscriptions and in events."""

    name: str
    type: str
    subscriptions: int
    """How many of them constrain it."""
    predicates: int
    """How many boxes of theirs do; an OR makes several."""
    present: float
    """The share of events that have it."""
    selectivity: float | None
    """The share of events that satisfy a predicate on it, on average; None without predicates, and
    of lists."""


@dataclass(frozen=True)
class Selectivities:
    """All attributes in the schema's order, and what they come to together."""

    attributes: tuple[AttributeStatistics, ...]
    subscriptions: int
    never: int
    """Subscriptions that no event can match; they count nowhere else."""
    boxes: int
    selectivity: float
    """The share of events that satisfy a predicate, on average over all predicates."""
    sample: int
    """The events that this was measured on."""

    @property
    def shares(self) -> dict[str, float]:
        """The selectivities by attribute, as `boxmatch.spark.build_index` takes them."""
        found = {attribute.name: attribute.selectivity for attribute in self.attributes}
        return {name: share for name, share in found.items() if share is not None}

    @property
    def frequency(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Predicates by attribute, as `SkipPlan.of_frequency` takes them."""
        return np.array([attribute.predicates for attribute in self.attributes], np.int64)


def measure_selectivities(
    events: DataFrame,
    subscriptions: DataFrame,
    schema: Schema,
    *,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    sample: int = 10_000,
) -> Selectivities:
    """Measure them on clean events. Subscriptions whose filter cannot be compiled are passed over.

    The sample are the events whose ids have the smallest hashes: the same ones every time. A share
    s measured on m events is off by about √(s (1 - s) / m).
    """
    from pyspark.sql import functions as f

    _, wanted = subscription_columns(subscriptions, schema, subscription_id, filter, dialect)
    chosen = sample_events(events, event_id, sample)
    fields = Columns(events, "events").require(schema.names)
    shown = zip(schema.names, fields, strict=True)
    some = chosen.select(*(field.column.alias(name) for name, field in shown)).toArrow()
    zone = session_zone(subscriptions.sparkSession)
    asked = subscriptions.select(
        column(subscription_id).alias("id"),
        *(value_column(subscriptions, name, zone).alias(alias) for alias, name in wanted.items()),
        *([] if dialect is None else [f.lit(dialect).alias(DIALECT)]),
    )
    work = task(
        "boxmatch.spark.pipeline.selectivity:count_predicates", "selectivities",
        schema=schema.to_json(), events=_pack(some), time_zone=zone,
    )  # fmt: skip
    kinds = "attribute int, subscriptions bigint, predicates bigint, satisfied double"
    counted = (
        asked.mapInArrow(work, kinds)
        .groupBy("attribute")
        .agg(*(f.sum(name).alias(name) for name in ("subscriptions", "predicates", "satisfied")))
        .collect()
    )
    by_attribute = {row["attribute"]: row for row in counted}
    return _assemble(schema, by_attribute, _measure_presence(events, schema), some.num_rows)


def sample_events(events: DataFrame, event_id: str, sample: int) -> DataFrame:
    """The events whose ids have the smallest hashes."""
    from pyspark.sql import functions as f

    return events.orderBy(f.xxhash64(column(event_id)), column(event_id)).limit(sample)


def attributes_table(spark: SparkSession, measured: Selectivities) -> DataFrame:
    """The attributes as a small DataFrame."""
    return spark.createDataFrame(
        [astuple(attribute) for attribute in measured.attributes],
        "attribute string, type string, subscriptions bigint, predicates bigint, present double, "
        "selectivity double",
    )


def _assemble(
    schema: Schema, counted: dict[int, Any], present: dict[str, float], sample: int
) -> Selectivities:
    none = {"subscriptions": 0, "predicates": 0, "satisfied": 0.0}
    attributes = []
    for position, attribute in enumerate(schema):
        row = counted.get(position, none)
        predicates = row["predicates"]
        measured = predicates and not attribute.repeated
        share = row["satisfied"] / predicates if measured else None
        kind = attribute.type_name if attribute.repeated else attribute.type
        attributes.append(
            AttributeStatistics(
                attribute.name, kind, row["subscriptions"], predicates,
                present[attribute.name], share,
            )
        )  # fmt: skip
    whole = counted.get(_ALL, none)
    single = [p for p, attribute in enumerate(schema) if not attribute.repeated]
    predicates = sum(attributes[p].predicates for p in single)
    satisfied = sum(counted[p]["satisfied"] for p in single if p in counted)
    return Selectivities(
        tuple(attributes),
        subscriptions=whole["subscriptions"],
        never=int(whole["satisfied"]),
        boxes=whole["predicates"],
        selectivity=satisfied / predicates if predicates else 0.0,
        sample=sample,
    )


def _measure_presence(events: DataFrame, schema: Schema) -> dict[str, float]:
    """The share of all events that have each attribute."""
    from pyspark.sql import functions as f

    def there(value: Any, attribute: Attribute) -> Any:
        has_nan = attribute.type == "float" and not attribute.repeated
        return f.count(f.when(~f.isnan(value), value) if has_nan else value)

    fields = Columns(events, "events").require(schema.names)
    each = zip(fields, schema, strict=True)
    counts = [there(one.column, a).alias(str(i)) for i, (one, a) in enumerate(each)]
    row = events.agg(f.count(f.lit(1)).alias("all"), *counts).collect()[0]
    return {a.name: row[str(i)] / max(1, row["all"]) for i, a in enumerate(schema)}


def _pack(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def count_predicates(
    batches: Iterator[pa.RecordBatch], *, schema: str, events: bytes, time_zone: str
) -> Iterator[pa.RecordBatch]:
    """On a worker: predicates by attribute, and how many of them an event satisfies on average.

    The row for no attribute has subscriptions, boxes, and subscriptions that never match.
    """
    import pyarrow as pa

    known = Schema.from_json(schema)
    sample = pa.ipc.open_stream(events).read_all()
    for batch in batches:
        if batch.num_rows:
            yield _count(known, pa.table(batch), sample, zone_of(time_zone))


def _count(
    schema: Schema, asked: pa.Table, sample: pa.Table, zone: tzinfo | None
) -> pa.RecordBatch:
    import pyarrow as pa

    from boxmatch.adaptive.selectivity import measure_by_attribute
    from boxmatch.engine.bulk import read_table, without_bad_rows
    from boxmatch.errors import AttributeValueError, EventError
    from boxmatch.model.axis_table import AxisTable
    from boxmatch.model.box_kernels import count_attributes
    from boxmatch.model.events import EventEncoder

    axes = AxisTable(schema)
    try:
        read = read_table(schema, asked, _MAX_BOXES, skip=True, time_zone=zone).place(axes)
    except (AttributeValueError, EventError):
        good, _ = without_bad_rows(schema, asked)
        read = read_table(schema, good, _MAX_BOXES).place(axes)
    d = len(schema)
    of_predicate = np.repeat(np.arange(read.boxes.count), np.diff(read.boxes.start))
    possible = np.ones(read.boxes.count, bool)
    possible[of_predicate[read.boxes.low > read.boxes.high]] = False
    kept = np.flatnonzero(possible)
    # Predicates of expressions are not among those that can be skipped.
    boxes, owner = read.boxes.take(kept).within(d), read.owner[kept]
    owners = np.repeat(owner, np.diff(boxes.start))
    each = np.unique(owners * d + boxes.attribute)
    askers = np.bincount(each % d, minlength=d)
    frequency = count_attributes(boxes.attribute, d)
    points = EventEncoder(schema, axes.strings).batch(sample)
    satisfied = measure_by_attribute(boxes, points) * frequency
    columns: list[pa.Array[Any]] = [
        pa.array([*range(d), _ALL], pa.int32()),
        pa.array([*askers.tolist(), len(read.ids)], pa.int64()),
        pa.array([*frequency.tolist(), boxes.count], pa.int64()),
        pa.array([*satisfied.tolist(), float(len(read.ids) - len(np.unique(owner)))], pa.float64()),
    ]
    return pa.RecordBatch.from_arrays(
        columns, ["attribute", "subscriptions", "predicates", "satisfied"]
    )
