"""`build_index`: a table of subscriptions becomes an index, on the executors."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.indexes.registry import index_class
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.columns import column, require_frame, subscription_columns
from boxmatch.spark.entry import task
from boxmatch.spark.store import Folder
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

_SMALL_SHARD, _LARGE_SHARD = 500_000, 2_000_000
"""Between these is the size of shards whose number is not given. Larger ones match faster (one of a
million takes a tenth less than two halves), smaller ones are built faster and in less memory."""


def build_index(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    *,
    schema: SchemaSpec,
    shards: int | None = None,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    index: str = "tile",
    index_options: Mapping[str, Any] | None = None,
    keep_versions: int = 10,
) -> IndexVersion:
    """Write an index of the subscriptions to `path`, which driver and workers must see.

    The table has ids and filter texts, or ids and, per attribute, columns `NAME` (equal to),
    `NAME_low` and `NAME_high` (from, up to, both included; null is no condition). Rows that cannot
    be subscriptions are left out; `rejected` shows them.

    Where there is an index already, this makes its next version: only what changed is compiled,
    and readers of older versions are not disturbed. Subscriptions go to shards by a hash of their
    id, so shards differ little in size. Unless `shards` says otherwise there are as many as can be
    built at once, of half a million to two million subscriptions each, or as many as before. The
    last `keep_versions` stay.
    """
    require_frame(subscriptions, "subscriptions")
    return next_version(
        subscriptions, path, Schema(schema), shards, subscription_id, filter, index,
        index_options or {}, keep_versions,
    )  # fmt: skip


def next_version(
    subscriptions: DataFrame,
    path: str | os.PathLike[str],
    schema: Schema,
    shards: int | None,
    subscription_id: str,
    filter: str,
    index: str = "tile",
    index_options: Mapping[str, Any] = MappingProxyType({}),
    keep_versions: int = 10,
    unless: Callable[[], bool] = lambda: False,
) -> IndexVersion:
    """What `build_index` does. If `unless` says so at the end, there is an error instead."""
    options = dict(index_options)
    index_class(index)(len(schema), **options)  # complains about what it does not take
    id_type, wanted = subscription_columns(subscriptions, schema, subscription_id, filter)
    for name, given in (("shards", shards), ("keep_versions", keep_versions)):
        if given is not None and given < 1:
            raise SparkError(f"{name} must be at least 1, not {given}")
    folder = Folder.at(path)
    (folder / SEGMENTS).prepare()
    before = newest(path)
    if before is not None and not _continues(before, schema, index, options, id_type, shards):
        number, before = before.version, None
    else:
        number = before.version if before else 0
    if shards is None:
        shards = len(before.shards) if before else _number_of_shards(subscriptions)
    made = _update(
        _by_shard(subscriptions, subscription_id, id_type, wanted, shards),
        shards,
        path=str(folder),
        schema=schema.to_json(),
        index=index,
        index_options=options,
        id_type=id_type,
        old=[shard.segments for shard in before.shards] if before else [()] * shards,
    )
    if before is not None and before.shards == made:
        return before
    if unless():
        raise SparkError("the table of subscriptions changed while it was read")
    version = IndexVersion(str(folder), number + 1, schema, index, options, id_type, made)
    publish(version)
    forget(path, before=version.version - keep_versions + 1)
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


def _continues(
    before: IndexVersion,
    schema: Schema,
    index: str,
    options: Mapping[str, Any],
    id_type: IdType,
    shards: int | None,
) -> bool:
    """Can the older version's segments be built upon?"""
    return (
        before.schema == schema
        and before.index == index
        and before.index_options == options
        and before.id_type == id_type
        and shards in (None, len(before.shards))
    )


def _number_of_shards(subscriptions: DataFrame) -> int:
    count = subscriptions.count()
    slots = int(subscriptions.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    return max(-(-count // _LARGE_SHARD), min(slots, -(-count // _SMALL_SHARD)), 1)


def _by_shard(
    table: DataFrame, subscription_id: str, id_type: IdType, wanted: Mapping[str, str], shards: int
) -> DataFrame:
    """The table as tasks take it, each partition a shard."""
    from pyspark.sql import functions as f

    inside = [column(name).alias(alias) for alias, name in wanted.items()]
    # A hash passes over nulls: whether there is one has to be said.
    marks = [part for name in wanted.values() for part in (column(name), column(name).isNull())]
    own = column(subscription_id).cast(id_type)
    shard = f.pmod(f.xxhash64(own), f.lit(shards)).cast("int")
    rows = table.select(
        shard.alias("shard"), own.alias("id"), f.xxhash64(*marks).alias("fingerprint"), *inside
    )
    return rows.repartitionById(shards, "shard")


def _update(rows: DataFrame, shards: int, **arguments: Any) -> tuple[Shard, ...]:
    made = rows.mapInArrow(
        task("boxmatch.spark.worker:update", "build_index", **arguments),
        "shard int, entry string",
    ).collect()
    found = {row["shard"]: shard_of(*json.loads(row["entry"])) for row in made}
    return tuple(found.get(number, Shard()) for number in range(shards))
