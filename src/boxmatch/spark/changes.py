"""`update_index` and `follow_changes`: an index kept up to date by a table or stream of changes.

`build_index` reads the whole table of subscriptions and finds what is new. Where the changes are
known, as from a change data feed or a topic, only they are read, and only the shards that they are
in get new segments.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.build import (
    IndexSettings,
    by_shard,
    number_of_shards,
    warn_of_rejected,
)
from boxmatch.spark.columns import Columns, column, require_frame
from boxmatch.spark.entry import task
from boxmatch.spark.metrics import described
from boxmatch.spark.plans import require_schema
from boxmatch.spark.shard_updates import ORDER, REMOVED
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
from boxmatch.spark.zones import session_zone

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


def update_index(
    changes: DataFrame,
    path: str | os.PathLike[str],
    *,
    removed: str | None = "removed",
    order: str | None = None,
    schema: SchemaSpec | None = None,
    shards: int | None = None,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    keep_versions: int = 10,
) -> IndexVersion:
    """Apply a table of changes to the newest version of an index; returns the next version.

    A change is the id of a subscription and what it now wants, as `build_index` takes it, or true
    in the column `removed`; pass `removed=None` if nothing is ever removed. `order` names a column
    that tells which of several changes of one subscription is the last. Without it, or if two have
    the same order, changes that contradict each other remove the subscription, and `rejected` shows
    them. A later call takes the place of an earlier one, whatever its order. A change without an id
    is rejected too, and shown until `build_index` reads the whole table.

    Without an index at `path`, this makes the first version, for which it needs a `schema`, in as
    many shards as `build_index` would choose. If nothing changes, there is no new version. Times in
    filters are in the time zone of the index.
    """
    feed = _Feed(
        path, removed, order, schema, shards, subscription_id, filter, dialect, keep_versions
    )
    return feed.apply(changes)


def follow_changes(
    changes: DataFrame,
    path: str | os.PathLike[str],
    *,
    checkpoint: str | os.PathLike[str],
    removed: str | None = "removed",
    order: str | None = None,
    schema: SchemaSpec | None = None,
    shards: int | None = None,
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    keep_versions: int = 10,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Apply a stream of changes to an index, each micro-batch as `update_index`; returns the query.

    Versions record the last batch of the stream that they hold, so that a batch that is run again
    after a failure is applied once. `match_stream` of the same path uses each version as it comes.
    Rejected filters are logged, and `rejected` shows them.
    """
    require_frame(changes, "changes")
    if not changes.isStreaming:
        raise SparkError("follow_changes takes a streaming DataFrame; use update_index for a table")
    stream = str(Folder.at(checkpoint))
    feed = _Feed(
        str(Folder.at(path)), removed, order, schema, shards, subscription_id, filter, dialect,
        keep_versions, stream,
    )  # fmt: skip
    feed.check(changes, newest(path))
    writer = changes.writeStream.foreachBatch(feed).option("checkpointLocation", stream)
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


@dataclass(frozen=True)
class _Feed:
    """How changes are read and applied. Pickled as a whole where Spark Connect runs it."""

    path: str | os.PathLike[str]
    removed: str | None
    order: str | None
    schema: SchemaSpec | None
    shards: int | None
    subscription_id: str
    filter: str
    dialect: str | None
    keep_versions: int
    stream: str = ""
    """The checkpoint of the stream that the changes come from."""

    def __call__(self, changes: DataFrame, batch_id: int) -> None:
        """Apply a micro-batch, unless that was done before."""
        last = newest(self.path)
        if last is not None and last.feeds.get(self.stream, -1) >= batch_id:
            return
        version = self.apply(changes, {self.stream: batch_id})
        if last is None or version.version != last.version:
            warn_of_rejected(version)

    def check(
        self, changes: DataFrame, before: IndexVersion | None
    ) -> tuple[IdType, dict[str, str], IndexSettings]:
        """The type of the ids, the columns that say what is wanted, and how the index is built."""
        require_frame(changes, "changes")
        settings = self._settings(before)
        columns = Columns(changes, "changes", nested=False)
        if self.order is not None:
            columns.require([self.order])
        if self.removed is not None:
            advice = " (they have: {}); pass removed=None if nothing is ever removed"
            (gone,) = columns.require([self.removed], advice)
            if gone.type.simpleString() != "boolean":
                raise SparkError(
                    f"column {self.removed!r} of the changes is {gone.type.simpleString()}, "
                    "not boolean"
                )
        columns.require([self.subscription_id])
        ours = [name for name in (self.removed, self.order) if name is not None]
        id_type, wanted = settings.check(changes.drop(*map(column, ours)))
        if before is not None and before.id_type != id_type:
            raise SparkError(
                f"column {self.subscription_id!r} of the changes has ids of type {id_type}, the "
                f"index at {self.path} of type {before.id_type}: cast them"
            )
        return id_type, wanted, settings

    def _settings(self, before: IndexVersion | None) -> IndexSettings:
        schema = None if self.schema is None else Schema(self.schema)
        if before is None:
            if schema is None:
                raise SparkError(
                    f"there is no index at {Folder.at(self.path)}: pass a schema to begin one, or "
                    "make one with build_index"
                )
            return IndexSettings(
                schema,
                self.shards,
                self.subscription_id,
                self.filter,
                keep_versions=self.keep_versions,
                dialect=self.dialect,
            )
        require_schema(before, schema)
        if self.shards not in (None, len(before.shards)):
            raise SparkError(
                f"the index at {before.path} has {len(before.shards)} shards, not {self.shards}: "
                "changes cannot change that, build_index can"
            )
        return IndexSettings(
            before.schema,
            len(before.shards),
            self.subscription_id,
            self.filter,
            before.index,
            before.index_options,
            self.keep_versions,
            before.selectivity,
            self.dialect,
        )

    def apply(self, changes: DataFrame, batch: Mapping[str, int] | None = None) -> IndexVersion:
        """Make the next version. `batch` says which one of which stream this is."""
        before = newest(self.path)
        id_type, wanted, settings = self.check(changes, before)
        folder = Folder.at(self.path)
        (folder / SEGMENTS).prepare()
        shards = settings.shards or number_of_shards(changes)
        old = before.shards if before else (Shard(),) * shards
        # Texts of filters mean in an index what they meant when it was begun.
        time_zone = before.time_zone if before else session_zone(changes.sparkSession)
        made = self._change(changes, id_type, wanted, settings, time_zone, old)
        feeds = {**(before.feeds if before else {}), **(batch or {})}
        if before is not None and before.shards == made:
            return before
        version = IndexVersion(
            str(folder),
            before.version + 1 if before else 1,
            settings.schema,
            settings.index,
            dict(settings.index_options),
            id_type,
            made,
            dict(settings.selectivity),
            time_zone=time_zone,
            feeds=feeds,
        )
        publish(version)
        forget(self.path, before=version.version - self.keep_versions + 1)
        return version

    def _change(
        self,
        changes: DataFrame,
        id_type: IdType,
        wanted: Mapping[str, str],
        settings: IndexSettings,
        time_zone: str,
        old: tuple[Shard, ...],
    ) -> tuple[Shard, ...]:
        shards, more = len(old), self._more_columns()
        rows, names = by_shard(changes, settings, id_type, wanted, shards, time_zone, *more)
        work = task(
            "boxmatch.spark.worker:update",
            "update_index",
            changes=True,
            path=str(Folder.at(self.path)),
            schema=settings.schema.to_json(),
            index=settings.index,
            index_options=dict(settings.index_options),
            id_type=id_type,
            selectivity=dict(settings.selectivity),
            names=names,
            time_zone=time_zone,
            old=[shard.segments for shard in old],
        )
        with described(changes.sparkSession, f"update_index {Folder.at(self.path)}"):
            made = rows.mapInArrow(work, "shard int, entry string").collect()
        found = {row["shard"]: shard_of(*json.loads(row["entry"])) for row in made}
        return tuple(found.get(number, shard) for number, shard in enumerate(old))

    def _more_columns(self) -> list[Column]:
        from pyspark.sql import functions as f

        gone = f.lit(False)
        if self.removed is not None:
            gone = f.coalesce(column(self.removed), f.lit(False))
        more = [gone.alias(REMOVED)]
        if self.order is not None:
            more.append(column(self.order).alias(ORDER))
        return more
