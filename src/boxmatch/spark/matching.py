"""`match`: every event of a DataFrame with every subscription that wants it.

Two plans. *Replicated*: each worker has the whole index open, and events stay where they are.
*Sharded*: every event goes to every shard, as cells of a grid, and a worker has one shard open at
a time, for an index that is larger than a machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.build import build_index, warn_of_rejected
from boxmatch.spark.columns import (
    Keep,
    check_events,
    column,
    infer_schema,
    kept_columns,
    require_frame,
)
from boxmatch.spark.entry import scalar, task
from boxmatch.spark.store import scratch_folder
from boxmatch.spark.versions import IndexVersion, read_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql._typing import UserDefinedFunctionLike
    from pyspark.sql.types import DataType

How = Literal["pairs", "arrays", "counts"]
Plan = Literal["replicated", "sharded"]
PlanChoice = Literal["auto", "replicated", "sharded"]

_REPLICATED_BYTES = 8 * 2**30
"""How large an index may be that every machine holds whole, unless told otherwise."""

_SHARD = "__boxmatch_shard"
_CELLS_PER_SLOT = 2
"""Cells of the grid for each task that can run at once: enough to even out, few to shuffle."""


@dataclass(frozen=True)
class MatchPlan:
    """How `match` goes about it."""

    plan: Plan
    reason: str
    index: IndexVersion
    how: How
    event_id: str
    keep: tuple[str, ...]
    made: str
    """The column with what was found."""
    buckets: int
    """Into how many parts events are cut, for each shard; 0 if they stay where they are."""

    def __str__(self) -> str:
        lines = [f"{self.plan}: {self.reason}", f"index: {self.index}"]
        if self.plan == "replicated":
            lines.append("events: stay in their partitions; each worker opens all shards")
        else:
            cells = self.buckets * len(self.index.shards)
            lines.append(
                f"events: sent to every shard, {self.buckets} x {len(self.index.shards)} = "
                f"{cells} tasks; each opens one shard"
            )
        columns = ", ".join((self.event_id, *self.keep, self.made))
        lines.append(f"result: {self.how}, with columns {columns}")
        return "\n".join(lines)


def match(
    events: DataFrame,
    subscriptions: DataFrame | IndexVersion | str | os.PathLike[str],
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
) -> DataFrame:
    """Find, for each event, every subscription that wants it.

    Subscriptions are a table (see `build_index`), the path of an index, or one of its versions. An
    index of a table is built at once, and kept at `path`, or until the end of the process where
    driver and workers share this machine. If it leaves out rows of the table, a warning is logged.
    `schema` is that of the events unless given; an index has its own.

    `how` is `"pairs"` (a row for each match: `event_id`, `subscription_id`), `"arrays"` (a row for
    each event: `event_id`, `subscription_ids`) or `"counts"` (`event_id`, `matches`). The columns
    in `keep` (or `"all"`) come between. The plan is chosen by size, `replicate_up_to` bytes, and
    can be given; `explain` tells. With the sharded plan, arrays and counts need ids that no two
    events share.

    Streams of events are matched too, with the version of the index that is there now; see
    `match_stream` for subscriptions that change.
    """
    chosen = explain(
        events, subscriptions, schema=schema, how=how, event_id=event_id,
        subscription_id=subscription_id, filter=filter, keep=keep, plan=plan, path=path,
        shards=shards, replicate_up_to=replicate_up_to,
    )  # fmt: skip
    if chosen.plan == "sharded" and how != "pairs" and events.isStreaming:
        raise SparkError(f"{how} of a stream by the sharded plan need match_stream")
    return carry_out(chosen, events)


def match_function(index: IndexVersion | str | os.PathLike[str]) -> UserDefinedFunctionLike:
    """A column function from a struct of attributes to the array of ids that want such an event.

    For SQL: `spark.udf.register("wanted_by", match_function(path))`, and then
    `SELECT event_id, explode(wanted_by(struct(*))) FROM events`. It keeps to the version of the
    index that there is now, and always replicates it.
    """
    import pyarrow as pa
    from pyspark.sql.pandas.functions import arrow_udf
    from pyspark.sql.types import ArrayType

    if not isinstance(index, IndexVersion):
        index = read_version(index)
    work = scalar(
        "boxmatch.spark.worker:wanted_by",
        f"boxmatch_v{index.version}",
        path=index.path,
        shards=_names(index),
        id_type=index.id_type,
        attributes=list(index.schema.names),
    )
    work.__annotations__ = {"given": pa.Array, "return": pa.Array}  # what kind of function it is
    make: Any = arrow_udf  # typed for functions that are written out
    made: UserDefinedFunctionLike = make(work, ArrayType(_id_kind(index), False))
    return made


def explain(
    events: DataFrame,
    subscriptions: DataFrame | IndexVersion | str | os.PathLike[str],
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
) -> MatchPlan:
    """What `match` would do with the same arguments. Builds the index, if there is none yet."""
    if how not in get_args(How):
        raise SparkError(f"how is one of {', '.join(get_args(How))}, not {how!r}")
    if plan not in get_args(PlanChoice):
        raise SparkError(f"plan is one of {', '.join(get_args(PlanChoice))}, not {plan!r}")
    require_frame(events, "events")
    schema = None if schema is None else Schema(schema)
    # Only pairs name a column after the subscriptions' own.
    made = {"pairs": subscription_id, "arrays": "subscription_ids", "counts": "matches"}[how]
    kept = kept_columns(events, keep, event_id, made)
    if isinstance(subscriptions, (str, os.PathLike)):
        index = read_version(subscriptions)
    elif isinstance(subscriptions, IndexVersion):
        index = subscriptions
    else:
        schema = schema or infer_schema(events, event_id)
        check_events(events, schema, event_id)
        index = build_index(
            subscriptions,
            path or scratch_folder(events.sparkSession, "the index"),
            schema=schema,
            shards=shards,
            subscription_id=subscription_id,
            filter=filter,
        )
        warn_of_rejected(index)
    if schema is not None and schema != index.schema:
        raise SparkError(
            f"the index at {index.path} was built for another schema:\n{index.schema}\n"
            f"and not for\n{schema}"
        )
    check_events(events, index.schema, event_id)
    sharded, reason = _choose(index, plan, replicate_up_to)
    return MatchPlan(
        "sharded" if sharded else "replicated",
        reason,
        index,
        how,
        event_id,
        tuple(kept),
        made,
        _buckets(events.sparkSession, len(index.shards)) if sharded else 0,
    )


def carry_out(plan: MatchPlan, events: DataFrame) -> DataFrame:
    """The matches, by a plan that was made for these events."""
    needed = dict.fromkeys([plan.event_id, *plan.keep, *plan.index.schema.names])
    events = events.select(*map(column, needed))
    if plan.plan == "replicated":
        return _searched(plan, events, None)
    from pyspark.sql import functions as f

    shards = len(plan.index.shards)
    bucket = f.pmod(f.xxhash64(column(plan.event_id)), f.lit(plan.buckets))
    everywhere = events.withColumn(_SHARD, f.explode(f.sequence(f.lit(0), f.lit(shards - 1))))
    cell = (column(_SHARD) * plan.buckets + bucket).cast("int")
    cells = everywhere.repartitionById(shards * plan.buckets, cell)
    found = _searched(plan, cells, _SHARD)
    return found if plan.how == "pairs" else _joined(plan, found)


def _joined(plan: MatchPlan, found: DataFrame) -> DataFrame:
    """One row for each event, from a row for each event and shard."""
    from pyspark.sql import functions as f

    made = column(plan.made)
    whole = f.sum(made) if plan.how == "counts" else f.flatten(f.collect_list(made))
    twice = f.concat(
        f.lit("more than one event has the id "),
        column(plan.event_id).cast("string"),
        f.lit(": arrays and counts by the sharded plan need ids of their own"),
    )
    once = f.count(made) == len(plan.index.shards)
    return found.groupBy(column(plan.event_id)).agg(
        *(f.first(column(name)).alias(name) for name in plan.keep),
        f.when(once, whole).otherwise(f.raise_error(twice)).alias(plan.made),
    )


def _searched(plan: MatchPlan, events: DataFrame, shard_column: str | None) -> DataFrame:
    from pyspark.sql.types import ArrayType, LongType, StructField, StructType

    index = plan.index
    id_kind = _id_kind(index)
    kinds: dict[str, Any] = {
        "pairs": id_kind,
        "arrays": ArrayType(id_kind, False),
        "counts": LongType(),
    }
    shown = [plan.event_id, *plan.keep]
    work = task(
        "boxmatch.spark.worker:match",
        f"boxmatch_{plan.plan}_v{index.version}",
        how=plan.how,
        path=index.path,
        shards=_names(index),
        id_type=index.id_type,
        attributes=list(index.schema.names),
        event_id=plan.event_id,
        keep=list(plan.keep),
        made=plan.made,
        shard_column=shard_column,
    )
    fields = [events.schema[name] for name in shown]
    result = StructType([*fields, StructField(plan.made, kinds[plan.how], False)])
    return events.mapInArrow(work, result)


def _names(index: IndexVersion) -> list[list[str]]:
    """The segments of each shard."""
    return [[segment.name for segment in shard.segments] for shard in index.shards]


def _id_kind(index: IndexVersion) -> DataType:
    from pyspark.sql.types import LongType, StringType

    return LongType() if index.id_type == "long" else StringType()


def _choose(index: IndexVersion, plan: PlanChoice, most: int) -> tuple[bool, str]:
    if plan != "auto":
        return plan == "sharded", "as asked"
    size = f"{index.nbytes / 2**20:,.1f} MiB"
    if index.nbytes <= most:
        return False, f"the index takes {size}, within {most / 2**20:,.1f} MiB"
    if len(index.shards) == 1:
        return False, f"the index takes {size}, but is one shard: build it with more"
    return True, f"the index takes {size}, more than {most / 2**20:,.1f} MiB"


def _buckets(spark: SparkSession, shards: int) -> int:
    slots = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    return -(-_CELLS_PER_SLOT * slots // shards)
