"""`match_stream`: a stream of events with subscriptions that change while it runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.build import IndexSettings
from boxmatch.spark.columns import Keep, check_events, infer_schema, require_frame
from boxmatch.spark.matching import (
    How,
    MatchOptions,
    PlanChoice,
    plan_match,
    require_schema,
    run_plan,
)
from boxmatch.spark.sinks import ParquetSink, Sink
from boxmatch.spark.sources import (
    FilesOfSubscriptions,
    FollowedIndex,
    IndexedSubscriptions,
    TableOfSubscriptions,
    is_index,
)
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IndexVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

Subscriptions = FollowedIndex | IndexedSubscriptions

VERSION_COLUMN = "index_version"

_OURS = "boxmatch"  # our folder in the checkpoint
_PINS = "batches"
_KEPT = 100
"""Batches whose version is remembered; Spark remembers as many."""
_KEPT_VERSIONS = 10
"""A batch that runs again is the last one, and needs no version but its own."""


def match_stream(
    events: DataFrame,
    subscriptions: str | os.PathLike[str] | Callable[[SparkSession], DataFrame],
    *,
    sink: Sink | str | os.PathLike[str],
    checkpoint: str | os.PathLike[str],
    schema: SchemaSpec | None = None,
    how: How = "pairs",
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    keep: Keep = (),
    plan: PlanChoice = "auto",
    shards: int | None = None,
    format: str = "parquet",
    options: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> StreamingQuery:
    """Match a stream of events with subscriptions that may change at any time; returns the query.

    Subscriptions are the path of a table (with `format` and `options` as for `spark.read`), the
    path of an index that others update with `build_index`, or a function from a session to a
    DataFrame. Before each micro-batch the table is looked at, and what changed is compiled: the
    batch sees the subscriptions as they were when it started. Every row says which version of the
    index it comes from, in `index_version`.

    `sink` is the path of a folder for Parquet, written exactly once, or any function of a DataFrame
    and a batch number (see `boxmatch.spark.sinks`). `checkpoint` is Spark's checkpoint location;
    the version of each batch is kept there too, so that a batch that is run again after a failure
    gives the same rows. `trigger` holds the arguments of Spark's own, such as
    `{"processingTime": "1 second"}` or `{"availableNow": True}`.

    Watermarks, deduplication and the like belong into `events`. For stateful operators behind the
    matching, use `match` on the stream: it keeps to one version of an index.
    """
    require_frame(events, "events")
    if not events.isStreaming:
        raise SparkError("match_stream takes a streaming DataFrame; use match for this one")
    if not callable(subscriptions) and not isinstance(subscriptions, (str, os.PathLike)):
        raise SparkError(
            "subscriptions of a stream are a path or a function from a session to a DataFrame, so "
            f"that they can be read again before each batch, not a {type(subscriptions).__name__}"
        )
    matching = MatchOptions(how, event_id, subscription_id, keep, plan)
    schema = None if schema is None else Schema(schema)
    folder = Folder.at(checkpoint) / _OURS
    folder.prepare()
    write = _claim(sink, str(Folder.at(checkpoint)))
    wanted: Subscriptions
    if not callable(subscriptions) and is_index(subscriptions):
        wanted = FollowedIndex(str(Folder.at(subscriptions)))
        require_schema(wanted.current(events.sparkSession), schema)
    else:
        schema = schema or infer_schema(events, event_id)
        source: FilesOfSubscriptions | TableOfSubscriptions
        if callable(subscriptions):
            source = TableOfSubscriptions(subscriptions)
        else:
            source = FilesOfSubscriptions(os.fspath(subscriptions), format, dict(options or {}))
        check_events(events, schema, event_id)
        settings = IndexSettings(
            schema, shards, subscription_id, filter, keep_versions=_KEPT_VERSIONS
        )
        wanted = IndexedSubscriptions(source, str(folder / "index"), settings)
    # What is wrong shows now, not in the first batch; and a stream that starts without
    # subscriptions would look as if nobody wanted anything.
    planned = plan_match(events, wanted.current(events.sparkSession), matching)
    if VERSION_COLUMN in (event_id, *planned.keep):
        raise SparkError(f"the result has a column {VERSION_COLUMN!r} of its own: rename yours")
    batches = _Batches(wanted, write, str(folder / _PINS), matching)
    writer = events.writeStream.foreachBatch(batches).option("checkpointLocation", str(checkpoint))
    if name is not None:
        writer = writer.queryName(name)
    if trigger is not None:
        writer = writer.trigger(**trigger)
    return writer.start()


def _claim(sink: Sink | str | os.PathLike[str], stream: str) -> Sink:
    """What writes the batches of a stream; a folder is from now on for this one alone."""
    if isinstance(sink, (str, os.PathLike)):
        sink = ParquetSink(os.fspath(sink))
    if isinstance(sink, ParquetSink):
        sink.claim(stream)
    if not callable(sink):
        raise SparkError(
            f"a sink is a path or a function of a DataFrame and a number, not {sink!r}"
        )
    return sink


@dataclass
class _Batches:
    """What is done with each micro-batch. Pickled as a whole where Spark Connect runs it."""

    subscriptions: Subscriptions
    sink: Sink
    pins: str
    options: MatchOptions

    def __call__(self, events: DataFrame, batch_id: int) -> None:
        from pyspark.sql import functions as f

        index = self._version(events.sparkSession, batch_id)
        matches = run_plan(plan_match(events, index, self.options), events)
        self.sink(matches.withColumn(VERSION_COLUMN, f.lit(index.version).cast("long")), batch_id)

    def _version(self, spark: SparkSession, batch_id: int) -> IndexVersion:
        """The version that this batch had the first time, or the one that there is now."""
        pins = Folder.at(self.pins)
        name = f"{batch_id}.json"
        pinned = pins.read(name)
        if pinned is not None:
            return self.subscriptions.at(json.loads(pinned)["version"])
        index = self.subscriptions.current(spark)
        if not pins.create(name, json.dumps({"version": index.version}).encode()):
            raise SparkError(f"another query runs from this checkpoint: it has made {pins}/{name}")
        pins.remove(f"{batch_id - _KEPT}.json")
        return index
