"""How `match` will run: what it was asked for, the index, and which plan.

Two plans. *Replicated*: each worker has the whole index open, and events stay where they are.
*Sharded*: every event goes to every shard, as cells of a grid, and a worker has one shard open at
a time, for an index that is larger than a machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.build import IndexSettings, check_number, next_version, warn_of_rejected
from boxmatch.spark.columns import (
    Keep,
    check_events,
    columns_to_keep,
    require_frame,
)
from boxmatch.spark.skipping import Skipping, check_rate, choose
from boxmatch.spark.store import Folder, require_one_machine, scratch_folder
from boxmatch.spark.versions import IndexVersion, newest
from boxmatch.spark.zones import session_zone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

How = Literal["pairs", "arrays", "counts"]
OnNullId = Literal["fail", "skip"]
Plan = Literal["replicated", "sharded"]
PlanChoice = Literal["auto", "replicated", "sharded"]
Subscriptions: TypeAlias = (
    "DataFrame | IndexVersion | str | os.PathLike[str] | Callable[[SparkSession], DataFrame]"
)

REPLICATED_BYTES = 8 * 2**30
"""How large an index may be that every machine holds whole, by default."""

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
    replicate_up_to: int = REPLICATED_BYTES
    max_false_positive_rate: float | None = None
    on_null_id: OnNullId | Observation = "fail"
    event: str | None = None
    """The column that holds the events as JSON texts; None if their attributes are columns."""

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
            shards = number_of_shards(self.index)
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


def plan_match(
    events: DataFrame, index: IndexVersion | PlannedIndex, options: MatchOptions
) -> MatchPlan:
    """The plan for these events and an index that there is, or will be."""
    require_frame(events, "events")
    schema = index.settings.schema if isinstance(index, PlannedIndex) else index.schema
    keep = columns_to_keep(events, options.keep, options.event_id, options.found)
    check_events(events, schema, options.event_id, options.event)
    plan, reason = _choose(index, options)
    shards = number_of_shards(index)
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


def plan_index(
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


def refuse_dialect(index: IndexVersion, dialect: str | None) -> None:
    """Raise an error if a dialect is given for filters that have been compiled already."""
    if dialect is not None:
        raise SparkError(
            f"the dialect {dialect!r} is that of filters of a table; those of the index at "
            f"{index.path} were compiled when it was built"
        )


def number_of_shards(index: IndexVersion | PlannedIndex) -> int | None:
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
