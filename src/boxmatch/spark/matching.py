"""`match`: every event of a DataFrame with every subscription that wants it.

Two plans. *Replicated*: each worker has the whole index open, and events stay where they are.
*Sharded*: every event goes to every shard, as cells of a grid, and a worker has one shard open at
a time, for an index that is larger than a machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from boxmatch.errors import SparkError
from boxmatch.model.schema import Attribute, Schema, SchemaSpec
from boxmatch.spark.build import IndexSettings, check_number, next_version, warn_of_rejected
from boxmatch.spark.columns import (
    Columns,
    Field,
    Keep,
    Transport,
    check_events,
    column,
    columns_to_keep,
    infer_schema,
    require_frame,
)
from boxmatch.spark.entry import task
from boxmatch.spark.skipping import Skipping, check_rate, choose
from boxmatch.spark.store import Folder, require_one_machine, scratch_folder
from boxmatch.spark.versions import IndexVersion, newest, read_version, version_numbers
from boxmatch.spark.zones import instants, is_local, session_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession
    from pyspark.sql.types import DataType

How = Literal["pairs", "arrays", "counts"]
OnNullId = Literal["fail", "skip"]
Plan = Literal["replicated", "sharded"]
PlanChoice = Literal["auto", "replicated", "sharded"]
Subscriptions: TypeAlias = (
    "DataFrame | IndexVersion | str | os.PathLike[str] | Callable[[SparkSession], DataFrame]"
)

_REPLICATED_BYTES = 8 * 2**30
"""How large an index may be that every machine holds whole, by default."""

METADATA = "boxmatch"
"""The key, in the metadata of the column with what was found, under which our own is."""

_SHARD = "__boxmatch_shard"
_CELLS_PER_SLOT = 2
"""Cells of the grid for each task that can run at once: enough to even out, few to shuffle."""


@dataclass(frozen=True)
class MatchOptions:
    """What `match`, `explain`, `match_stream` and the pipeline can all be asked for."""

    how: How = "pairs"
    event_id: str = "event_id"
    subscription_id: str = "subscription_id"
    keep: Keep = ()
    plan: PlanChoice = "auto"
    replicate_up_to: int = _REPLICATED_BYTES
    max_false_positive_rate: float | None = None
    on_null_id: OnNullId | Observation = "fail"

    def __post_init__(self) -> None:
        check_rate(self.max_false_positive_rate)
        check_number("replicate_up_to", self.replicate_up_to, 0)
        for name, given, choices in (
            ("how", self.how, How),
            ("plan", self.plan, PlanChoice),
            ("on_null_id", "skip" if self.skips_null_ids else self.on_null_id, OnNullId),
        ):
            if given not in get_args(choices):
                raise SparkError(f"{name} is one of {', '.join(get_args(choices))}, not {given!r}")

    @property
    def skips_null_ids(self) -> bool:
        """Are events without an id left out?"""
        return self.on_null_id == "skip" or self.observation is not None

    @property
    def observation(self) -> Observation | None:
        """What counts events without an id, if the caller has given it."""
        # By name, since Spark Connect has a class of its own.
        given: Any = self.on_null_id
        return given if type(given).__name__ == "Observation" else None

    @property
    def found(self) -> str:
        """The column of the result that holds what was found."""
        # Only pairs name a column after the subscriptions' own.
        own = {"pairs": self.subscription_id, "arrays": "subscription_ids", "counts": "matches"}
        return own[self.how]


@dataclass(frozen=True)
class PlannedIndex:
    """An index of a table that `match` builds before it matches."""

    subscriptions: DataFrame
    path: str | None
    """None for a temporary folder of this machine."""
    settings: IndexSettings
    shards: int | None
    """None if that depends on the number of subscriptions, which nobody has counted yet."""

    def __str__(self) -> str:
        number = "as many shards as the number of subscriptions asks for"
        if self.shards is not None:
            number = f"{self.shards:,} {'shard' if self.shards == 1 else 'shards'}"
        return f"to be built at {self.path or 'a temporary folder'}, in {number}"

    def build(self) -> IndexVersion:
        """Build it; a warning is logged if rows of the table are left out."""
        path = self.path or scratch_folder(self.subscriptions.sparkSession, "the index")
        version = next_version(self.subscriptions, path, self.settings)
        warn_of_rejected(version)
        return version


@dataclass(frozen=True)
class MatchPlan:
    """How `match` will run."""

    plan: Plan | None
    """None if that depends on the size of an index that is not built yet."""
    reason: str
    index: IndexVersion | PlannedIndex
    options: MatchOptions
    keep: tuple[str, ...]
    """The columns of the events, besides their id, that the result has too."""
    buckets: int
    """Into how many parts events are cut, for each shard; 0 if they stay where they are, or if
    the number of shards is not known yet."""
    skipping: Skipping | None = None
    """What is not checked; None if no rate of false matches was given."""

    def __str__(self) -> str:
        lines = [f"{self.plan or 'replicated or sharded'}: {self.reason}", f"index: {self.index}"]
        if self.plan == "replicated":
            lines.append("events: stay in their partitions; each worker opens all shards")
        elif self.buckets:
            shards = _number_of_shards(self.index)
            lines.append(
                f"events: sent to every shard, {self.buckets} x {shards} = "
                f"{self.buckets * (shards or 0)} tasks; each opens one shard"
            )
        elif self.plan == "sharded":
            lines.append("events: sent to every shard; each task opens one")
        if self.skipping is not None:
            lines.append(str(self.skipping))
        columns = ", ".join((self.options.event_id, *self.keep, self.options.found))
        lines.append(f"result: {self.options.how}, with columns {columns}")
        return "\n".join(lines)


def match(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    schema: SchemaSpec | None = None,
    how: How = "pairs",
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    keep: Keep = (),
    plan: PlanChoice = "auto",
    path: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    replicate_up_to: int = _REPLICATED_BYTES,
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
    warning is logged. `schema` is that of the events unless given; an index has its own.

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
        on_null_id,
    )  # fmt: skip
    subscriptions = _read(events, subscriptions, format, options)
    return run_plan(_plan(events, subscriptions, wanted, schema, filter, path, shards), events)


def explain(
    events: DataFrame,
    subscriptions: Subscriptions,
    *,
    schema: SchemaSpec | None = None,
    how: How = "pairs",
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    keep: Keep = (),
    plan: PlanChoice = "auto",
    path: str | os.PathLike[str] | None = None,
    shards: int | None = None,
    replicate_up_to: int = _REPLICATED_BYTES,
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
        on_null_id,
    )  # fmt: skip
    subscriptions = _read(events, subscriptions, format, options)
    return _plan(events, subscriptions, wanted, schema, filter, path, shards)


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
    path: str | os.PathLike[str] | None,
    shards: int | None,
) -> MatchPlan:
    schema = None if schema is None else Schema(schema)
    if isinstance(subscriptions, IndexVersion):
        require_schema(subscriptions, schema)
        return plan_match(events, subscriptions, options)
    schema = schema or infer_schema(events, options.event_id)
    settings = IndexSettings(schema, shards, options.subscription_id, filter)
    return plan_match(events, _plan_index(subscriptions, path, settings), options)


def _plan_index(
    subscriptions: DataFrame, path: str | os.PathLike[str] | None, settings: IndexSettings
) -> PlannedIndex:
    id_type, _ = settings.check(subscriptions)
    if path is None:
        require_one_machine(subscriptions.sparkSession, "the index")
        return PlannedIndex(subscriptions, None, settings, settings.shards)
    last = newest(path)
    zone = session_zone(subscriptions.sparkSession)
    before = last if last and settings.continues(last, id_type, zone) else None
    folder = str(Folder.at(path))
    return PlannedIndex(subscriptions, folder, settings, settings.known_shards(before))


def require_schema(index: IndexVersion, schema: Schema | None) -> None:
    """Raise an error if a schema is given and the index was built for another."""
    if schema is not None and schema != index.schema:
        raise SparkError(
            f"the index at {index.path} was built for another schema:\n{index.schema}\n"
            f"and not for\n{schema}"
        )


def plan_match(
    events: DataFrame, index: IndexVersion | PlannedIndex, options: MatchOptions
) -> MatchPlan:
    """The plan for these events and an index that there is, or will be."""
    require_frame(events, "events")
    schema = index.settings.schema if isinstance(index, PlannedIndex) else index.schema
    keep = columns_to_keep(events, options.keep, options.event_id, options.found)
    check_events(events, schema, options.event_id)
    plan, reason = _choose(index, options)
    shards = _number_of_shards(index)
    buckets = _buckets(events.sparkSession, shards) if plan == "sharded" and shards else 0
    skipping = skipping_of(index, options.max_false_positive_rate)
    return MatchPlan(plan, reason, index, options, tuple(keep), buckets, skipping)


def skipping_of(index: IndexVersion | PlannedIndex, rate: float | None) -> Skipping | None:
    """What is not checked at a rate of false matches; None without a rate."""
    check_rate(rate)
    if rate is None:
        return None
    if isinstance(index, PlannedIndex):
        return choose(index.settings.index, index.settings.schema, None, rate)
    return choose(index.index, index.schema, index.skipping, rate)


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
    names: tuple[str, ...]
    """What the columns of the result are called."""

    @classmethod
    def of(cls, plan: MatchPlan, index: IndexVersion, events: DataFrame) -> _Inside:
        columns = Columns(events, "events")
        transport = Transport()

        def send(name: str, field: Field) -> str:
            return transport.add(name, field.column, field)

        def send_value(attribute: Attribute, field: Field) -> str:
            local = attribute.type == "timestamp" and is_local(field.type)
            if not local or index.time_zone == "UTC":
                return send(attribute.name, field)
            column = instants(field.column, index.time_zone)
            return transport.add(attribute.name, column, (field, "instants"))

        shown = (plan.options.event_id, *plan.keep)
        event_id, *keep = map(send, shown, columns.require(shown))
        fields = columns.require(index.attributes)
        attributes = {
            name: send_value(index.schema[name], field)
            for name, field in zip(index.attributes, fields, strict=True)
        }
        names = (*shown, plan.options.found)
        return cls(transport.select(events), event_id, tuple(keep), attributes, names)

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


def _number_of_shards(index: IndexVersion | PlannedIndex) -> int | None:
    return index.shards if isinstance(index, PlannedIndex) else len(index.shards)


def _choose(index: IndexVersion | PlannedIndex, options: MatchOptions) -> tuple[Plan | None, str]:
    if options.plan != "auto":
        return options.plan, "as asked"
    most = f"{options.replicate_up_to / 2**20:,.1f} MiB"
    if isinstance(index, PlannedIndex):
        if index.shards == 1:
            return "replicated", "the index will be one shard"
        return None, f"sharded if the index takes more than {most} once it is built"
    size = f"{index.nbytes / 2**20:,.1f} MiB"
    if index.nbytes <= options.replicate_up_to:
        return "replicated", f"the index takes {size}, within {most}"
    if len(index.shards) == 1:
        return "replicated", f"the index takes {size}, but is one shard: build it with more"
    return "sharded", f"the index takes {size}, more than {most}"


def _buckets(spark: SparkSession, shards: int) -> int:
    slots = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return -(-_CELLS_PER_SLOT * slots // shards)
