"""`match`: every event of a DataFrame with every subscription that wants it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.model.documents import ROOT
from boxmatch.model.schema import Attribute, Schema, SchemaSpec
from boxmatch.spark.build import IndexSettings
from boxmatch.spark.columns import (
    Columns,
    Field,
    Keep,
    Transport,
    column,
    require_frame,
    row_column,
    schema_of,
)
from boxmatch.spark.entry import task
from boxmatch.spark.plans import (
    REPLICATED_BYTES,
    How,
    MatchOptions,
    MatchPlan,
    OnNullId,
    PlanChoice,
    PlannedIndex,
    Subscriptions,
    plan_index,
    plan_match,
    refuse_dialect,
    require_schema,
)
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IndexVersion, read_version, version_numbers
from boxmatch.spark.zones import sent_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation
    from pyspark.sql.types import DataType

METADATA = "boxmatch"
"""The key, in the metadata of the column with what was found, under which our own is."""

_SHARD = "__boxmatch_shard"


def match(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    schema: SchemaSpec | None = None,
    how: How = "pairs",
    event: str | None = None,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    keep: Keep = (),
    plan: PlanChoice = "auto",
    path: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    replicate_up_to: int = REPLICATED_BYTES,
    max_false_positive_rate: float | None = None,
    on_null_id: OnNullId | Observation = "fail",
    format: str = "parquet",
    options: Mapping[str, Any] | None = None,
) -> DataFrame:
    """Find, for each event, every subscription that wants it.

    Subscriptions are a table (see `build_index`), the path of one (with `format` and `options` as
    for `spark.read`), a function from a session to one, the path of an index, or one of its
    versions. An index of a table is built at once, and kept at `path`, or until the end of the
    process where driver and workers share this machine. If it leaves out rows of the table, a
    warning is logged. `schema` is that of the events unless given; an index has its own. A table's
    filters are of one `dialect`, or of that in a column `dialect`.

    `event` names a column with the whole event as a JSON text; else attributes are columns, or
    fields of structs. Without a schema such events may have any structure. With the schema
    `boxmatch.Schema()` so may rows: filters name whatever columns there are.

    `how` is `"pairs"` (a row for each match: `event_id`, `subscription_id`), `"arrays"` (a row for
    each event: `event_id`, `subscription_ids`, in no particular order) or `"counts"` (`event_id`,
    `matches`). The columns in `keep` (or `"all"`) come between. The plan is chosen by size,
    `replicate_up_to` bytes, and can be given; `explain` shows it. With the sharded plan, arrays and
    counts need ids that no two events share.

    With a `max_false_positive_rate` above 0, and below 1, the result may have that many false
    matches for each true one, in expectation over many events, and never lacks one: predicates on
    rare attributes are not checked. The index must be one that is faster for it, such as `rein`;
    others stay exact. The metadata of the column with what was found says what was skipped.

    An event whose id is null fails the job, or with `on_null_id="skip"` is left out. To count such
    events, pass a `pyspark.sql.Observation` instead of `"skip"`: after the first action, its `get`
    has their number as `null_ids`. In the progress of a stream it is in `observedMetrics`, under
    `boxmatch_null_ids`.

    Streams of events are matched too, with the version of the index that is there now; see
    `match_stream` for subscriptions that change.
    """
    wanted = MatchOptions(
        how, event_id, subscription_id, keep, plan, replicate_up_to, max_false_positive_rate,
        on_null_id, event,
    )  # fmt: skip
    subscriptions = _read(events, subscriptions, format, options)
    return run_plan(
        _plan(events, subscriptions, wanted, schema, filter, dialect, path, shards), events
    )


def explain(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    schema: SchemaSpec | None = None,
    how: How = "pairs",
    event: str | None = None,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    keep: Keep = (),
    plan: PlanChoice = "auto",
    path: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    replicate_up_to: int = REPLICATED_BYTES,
    max_false_positive_rate: float | None = None,
    on_null_id: OnNullId | Observation = "fail",
    format: str = "parquet",
    options: Mapping[str, Any] | None = None,
) -> MatchPlan:
    """What `match` would do with the same arguments; nothing is built, and no job is run.

    For a table of subscriptions the plan says where its index would be built. What depends on how
    large the index turns out, it leaves open.
    """
    wanted = MatchOptions(
        how, event_id, subscription_id, keep, plan, replicate_up_to, max_false_positive_rate,
        on_null_id, event,
    )  # fmt: skip
    subscriptions = _read(events, subscriptions, format, options)
    return _plan(events, subscriptions, wanted, schema, filter, dialect, path, shards)


def _read(
    events: DataFrame, given: Subscriptions, format: str, options: Mapping[str, Any] | None
) -> DataFrame | IndexVersion:
    """Subscriptions, or the index that is at a path."""
    require_frame(events, "events")
    if callable(given):
        return given(events.sparkSession)
    if not isinstance(given, (str, os.PathLike)):
        return given
    if version_numbers(given) or not Folder.at(given).files():
        return read_version(given)
    return events.sparkSession.read.format(format).options(**(options or {})).load(os.fspath(given))


def _plan(
    events: DataFrame,
    subscriptions: DataFrame | IndexVersion,
    options: MatchOptions,
    schema: SchemaSpec | None,
    filter: str,
    dialect: str | None,
    path: str | os.PathLike[str] | None,
    shards: int | None,
) -> MatchPlan:
    schema = None if schema is None else Schema(schema)
    if isinstance(subscriptions, IndexVersion):
        require_schema(subscriptions, schema)
        refuse_dialect(subscriptions, dialect)
        return plan_match(events, subscriptions, options)
    schema = schema or schema_of(events, options.event_id, options.event)
    settings = IndexSettings(schema, shards, options.subscription_id, filter, dialect=dialect)
    return plan_match(events, plan_index(subscriptions, path, settings), options)


def run_plan(plan: MatchPlan, events: DataFrame) -> DataFrame:
    """The matches, by a plan that was made for these events."""
    index, options = plan.index, plan.options
    if isinstance(index, PlannedIndex):
        index = index.build()
        plan = plan_match(events, index, options)
    if plan.plan == "sharded" and options.how != "pairs" and events.isStreaming:
        raise SparkError(f"{options.how} of a stream by the sharded plan need match_stream")
    if options.skips_null_ids:
        events = skip_null_ids(events, options)
    inside = _Inside.of(plan, index, events)
    if plan.plan == "replicated":
        return _noted(plan, inside.rename(_search(plan, index, inside, inside.events, None)))
    from pyspark.sql import functions as f

    shards = len(index.shards)
    bucket = f.pmod(f.xxhash64(column(inside.event_id)), f.lit(plan.buckets))
    number = f.explode(f.sequence(f.lit(0), f.lit(shards - 1)))
    everywhere = inside.events.withColumn(_SHARD, number)
    cell = (column(_SHARD) * plan.buckets + bucket).cast("int")
    cells = everywhere.repartitionById(shards * plan.buckets, cell)
    found = _search(plan, index, inside, cells, _SHARD)
    if options.how != "pairs":
        found = _join_shards(plan, inside, shards, found)
    return _noted(plan, inside.rename(found))


def skip_null_ids(events: DataFrame, options: MatchOptions) -> DataFrame:
    """The events that have an id. The others are counted where somebody can see it."""
    from pyspark.sql import functions as f

    (field,) = Columns(events, "events").require([options.event_id])
    number = f.count_if(field.column.isNull()).alias("null_ids")
    if options.observation is not None:
        if events.isStreaming:
            raise SparkError(
                "an Observation does not work on a stream: pass on_null_id='skip', and look at "
                "observedMetrics['boxmatch_null_ids'] in the progress of the query"
            )
        events = events.observe(options.observation, number)
    elif events.isStreaming:
        events = events.observe("boxmatch_null_ids", number)
    return events.where(field.column.isNotNull())


def _noted(plan: MatchPlan, found: DataFrame) -> DataFrame:
    """The matches, with a note of what was skipped in the metadata of their column."""
    if plan.skipping is None:
        return found
    note = {METADATA: plan.skipping.metadata}
    return found.select(
        *(
            column(name).alias(name, metadata=note) if name == plan.options.found else column(name)
            for name in found.columns
        )
    )


@dataclass(frozen=True)
class _Inside:
    """The events as workers get them: only what is needed, under names that Spark can handle."""

    events: DataFrame
    event_id: str
    keep: tuple[str, ...]
    attributes: Mapping[str, str]
    """The column of each attribute, by the attribute's name."""
    event: str | None
    """The column with all of them as JSON text."""
    names: tuple[str, ...]
    """What the columns of the result are called."""

    @classmethod
    def of(cls, plan: MatchPlan, index: IndexVersion, events: DataFrame) -> _Inside:
        columns = Columns(events, "events")
        transport = Transport()

        def send(name: str, field: Field) -> str:
            return transport.add(name, field.column, field)

        def send_value(attribute: Attribute, field: Field) -> str:
            column = sent_column(events, field, attribute, index.time_zone)
            if column is None:
                return send(attribute.name, field)
            return transport.add(attribute.name, column, (field, "values"))

        shown = (plan.options.event_id, *plan.keep)
        event_id, *keep = map(send, shown, columns.require(shown))
        attributes, event = {}, None
        if plan.options.event is not None:
            event = send(plan.options.event, *columns.require([plan.options.event]))
        else:
            known = [name for name in index.attributes if name != ROOT]
            for name, field in zip(known, columns.require(known), strict=True):
                attributes[name] = send_value(index.schema[name], field)
            if ROOT in index.attributes:
                attributes[ROOT] = transport.add(ROOT, row_column(events), ROOT)
        names = (*shown, plan.options.found)
        return cls(transport.select(events), event_id, tuple(keep), attributes, event, names)

    def rename(self, found: DataFrame) -> DataFrame:
        """The result, with the names that its columns should have."""
        inside = (self.event_id, *self.keep, self.names[-1])
        return found if inside == self.names else found.toDF(*self.names)


def _join_shards(plan: MatchPlan, inside: _Inside, shards: int, found: DataFrame) -> DataFrame:
    """One row for each event, from a row for each event and shard."""
    from pyspark.sql import functions as f

    options = plan.options
    values = column(options.found)
    whole = f.sum(values) if options.how == "counts" else f.flatten(f.collect_list(values))
    twice = f.concat(
        f.lit("more than one event has the id "),
        column(inside.event_id).cast("string"),
        f.lit(": arrays and counts by the sharded plan need ids of their own"),
    )
    once = f.count(values) == shards
    return found.groupBy(column(inside.event_id)).agg(
        *(f.first(column(name)).alias(name) for name in inside.keep),
        f.when(once, whole).otherwise(f.raise_error(twice)).alias(options.found),
    )


def _search(
    plan: MatchPlan,
    index: IndexVersion,
    inside: _Inside,
    events: DataFrame,
    shard_column: str | None,
) -> DataFrame:
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    options = plan.options
    ids = id_kind(index)
    kinds: dict[str, Any] = {
        "pairs": ids,
        "arrays": ArrayType(ids, False),
        "counts": LongType(),
    }
    work = task(
        "boxmatch.spark.worker:match",
        f"boxmatch_{plan.plan}_v{index.version}",
        how=options.how,
        path=index.path,
        shards=index.segment_names,
        id_type=index.id_type,
        attributes=dict(inside.attributes),
        event=inside.event,
        event_id=inside.event_id,
        keep=list(inside.keep),
        found=options.found,
        shard_column=shard_column,
        skipped=None if plan.skipping is None else list(plan.skipping.attributes),
    )
    fields = [events.schema[name] for name in (inside.event_id, *inside.keep)]
    result = StructType([*fields, StructField(options.found, kinds[options.how], False)])
    return events.mapInArrow(work, result)


def id_kind(index: IndexVersion) -> DataType:
    """The type of the ids of an index, in Spark."""
    from pyspark.sql.types import LongType, StringType

    return LongType() if index.id_type == "long" else StringType()
