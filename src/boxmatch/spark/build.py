"""`build_index`: a table of subscriptions becomes an index, on the executors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.indexes.registry import index_class
from boxmatch.model.dialects.registry import SQL
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.columns import column, require_frame
from boxmatch.spark.entry import task
from boxmatch.spark.metrics import described
from boxmatch.spark.skipping import check_selectivity
from boxmatch.spark.store import Folder
from boxmatch.spark.subscription_tables import DIALECT, require_dialect, subscription_columns
from boxmatch.spark.versions import (
    SEGMENTS,
    IdType,
    IndexVersion,
    Shard,
    forget,
    newest,
    publish,
    shard_of,
)
from boxmatch.spark.zones import session_zone, value_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)

_SMALL_SHARD, _LARGE_SHARD = 500_000, 2_000_000
"""Between these is the size of shards whose number is not given. Larger ones match faster (one of a
million takes a tenth less than two halves), smaller ones are built faster and in less memory."""


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    schema: SchemaSpec | None = None,
    shards: int | None = None,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    index: str = "tile",
    index_options: Mapping[str, Any] | None = None,
    keep_versions: int = 10,
    selectivity: Mapping[str, float] | None = None,
) -> IndexVersion:
    """Write an index of the subscriptions to `path`, which driver and workers must see.

    The table has ids and filter texts, or ids and, per attribute, columns `NAME` (equal to),
    `NAME_low` and `NAME_high` (from, up to, both included; null is no condition). Filters are of
    one `dialect`, or of that in a column `dialect`, where null is SQL. Rows that cannot be
    subscriptions are left out; `rejected` shows them. Without a schema, the index is for events of
    any structure.

    Where there is an index already, this makes its next version: only what changed is compiled,
    and readers of older versions are not disturbed. Subscriptions go to shards by a hash of their
    id, so shards differ little in size. Unless `shards` says otherwise there are as many as can be
    built at once, of half a million to two million subscriptions each, or as many as before. The
    last `keep_versions` stay.

    `selectivity`, the share of events that satisfy a predicate, by attribute, is for matching with
    a `max_false_positive_rate`. What it does not name is estimated from the subscriptions.
    """
    settings = IndexSettings(
        Schema(schema),
        shards,
        subscription_id,
        filter,
        index,
        index_options or {},
        keep_versions,
        selectivity or {},
        dialect,
    )
    return next_version(subscriptions, path, settings)


@dataclass(frozen=True)
class IndexSettings:
    """How an index is built, whatever table it is built from."""

    schema: Schema
    shards: int | None = None
    """None for as many as before, or as the number of subscriptions asks for."""
    subscription_id: str = "subscription_id"
    filter: str = "filter"
    index: str = "tile"
    index_options: Mapping[str, Any] = field(default_factory=dict)
    keep_versions: int = 10
    selectivity: Mapping[str, float] = field(default_factory=dict)
    dialect: str | None = None
    """Of all filters; None for that in a column `dialect`, or SQL."""

    def __post_init__(self) -> None:
        require_dialect(self.dialect)
        index_class(self.index)(len(self.schema), **self.index_options)  # refuses bad options
        for name, given in (("shards", self.shards), ("keep_versions", self.keep_versions)):
            if given is not None:
                check_number(name, given, 1)
        check_selectivity(self.schema, self.selectivity)

    def check(self, subscriptions: DataFrame) -> tuple[IdType, dict[str, str]]:
        """The type of the table's ids, and its columns by their names inside; no job is run."""
        require_frame(subscriptions, "subscriptions")
        return subscription_columns(
            subscriptions, self.schema, self.subscription_id, self.filter, self.dialect
        )

    def continues(self, before: IndexVersion, id_type: IdType, time_zone: str) -> bool:
        """Can the older version's segments be built upon?"""
        return (
            before.schema == self.schema
            and before.index == self.index
            and before.index_options == self.index_options
            and before.id_type == id_type
            and before.time_zone == time_zone
            and self.shards in (None, len(before.shards))
        )

    def known_shards(self, before: IndexVersion | None) -> int | None:
        """The number of shards, if it does not depend on the number of subscriptions."""
        return len(before.shards) if self.shards is None and before else self.shards


def check_number(name: str, given: object, least: int) -> None:
    """Raise an error unless an option is a whole number that is large enough."""
    if not isinstance(given, int) or isinstance(given, bool):
        raise SparkError(f"{name} is a whole number, not {given!r}")
    if given < least:
        raise SparkError(f"{name} must be at least {least}, not {given}")


def next_version(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    settings: IndexSettings,
    unless: Callable[[], bool] = lambda: False,
) -> IndexVersion:
    """What `build_index` does. If `unless` is true at the end, there is an error instead."""
    id_type, wanted = settings.check(subscriptions)
    time_zone = session_zone(subscriptions.sparkSession)
    folder = Folder.at(path)
    (folder / SEGMENTS).prepare()
    last = newest(path)
    number = last.version if last else 0
    before = last if last and settings.continues(last, id_type, time_zone) else None
    shards = settings.known_shards(before) or number_of_shards(subscriptions)
    options = dict(settings.index_options)
    rows, names = by_shard(subscriptions, settings, id_type, wanted, shards, time_zone)
    made = _update(
        rows,
        shards,
        names=names,
        changes=False,
        path=str(folder),
        schema=settings.schema.to_json(),
        index=settings.index,
        index_options=options,
        id_type=id_type,
        selectivity=dict(settings.selectivity),
        time_zone=time_zone,
        old=[shard.segments for shard in before.shards] if before else [()] * shards,
    )
    if before is not None and before.shards == made:
        return before
    if unless():
        raise SparkError("the table of subscriptions changed while it was read")
    version = IndexVersion(
        str(folder),
        number + 1,
        settings.schema,
        settings.index,
        options,
        id_type,
        made,
        dict(settings.selectivity),
        time_zone,
        last.feeds if last else {},
    )
    publish(version)
    forget(path, before=version.version - settings.keep_versions + 1)
    return version


def warn_of_rejected(version: IndexVersion) -> None:
    """Log that rows are left out, where the caller gets matches rather than the version."""
    if version.rejected:
        log.warning(
            "%d of %d subscriptions are rejected; boxmatch.spark.rejected(spark, %r) says why",
            version.rejected,
            version.rejected + version.subscriptions,
            version.path,
        )


def number_of_shards(subscriptions: DataFrame) -> int:
    with described(subscriptions.sparkSession, "build_index: number of subscriptions"):
        count = subscriptions.count()
    slots = int(subscriptions.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(-(-count // _LARGE_SHARD), min(slots, -(-count // _SMALL_SHARD)), 1)


def by_shard(
    table: DataFrame,
    settings: IndexSettings,
    id_type: IdType,
    wanted: Mapping[str, str],
    shards: int,
    time_zone: str,
    *more: Column,
) -> tuple[DataFrame, dict[str, str]]:
    """The table as tasks take it, each partition a shard; and what its columns are called.

    They have other names on the way, since `mapInArrow` does not take names with dots. `more`
    columns may come along.
    """
    from pyspark.sql import functions as f

    values = {name: value_column(table, own, time_zone) for name, own in wanted.items()}
    if settings.dialect not in (None, SQL):
        values[DIALECT] = f.lit(settings.dialect)
    names = {f"c{number}": name for number, name in enumerate(values)}
    inside = [values[name].alias(alias) for alias, name in names.items()]
    has_filters = "filter" in wanted
    given = [column(own) for name, own in wanted.items() if name == "filter" or not has_filters]
    # A hash passes over nulls: whether there is one is hashed too. Of dialects it is not, so that
    # filters in SQL are the same with a column of dialects and without it.
    marks = [part for one in given for part in (one, one.isNull())]
    if has_filters and DIALECT in values:
        marks.append(f.nullif(values[DIALECT], f.lit(SQL)))
    own = column(settings.subscription_id).cast(id_type)
    shard = f.pmod(f.xxhash64(own), f.lit(shards)).cast("int")
    rows = table.select(
        shard.alias("shard"),
        own.alias("id"),
        f.xxhash64(*marks).alias("fingerprint"),
        *inside,
        *more,
    )
    return rows.repartitionById(shards, "shard"), names


def _update(rows: DataFrame, shards: int, **arguments: Any) -> tuple[Shard, ...]:
    work = task("boxmatch.spark.worker:update", "build_index", **arguments)
    with described(rows.sparkSession, f"build_index {arguments['path']}"):
        made = rows.mapInArrow(work, "shard int, entry string").collect()
    found = {row["shard"]: shard_of(*json.loads(row["entry"])) for row in made}
    return tuple(found.get(number, Shard()) for number in range(shards))
