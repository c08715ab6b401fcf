"""`match_stream`: a stream of events with subscriptions that change while it runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema, SchemaSpec
from boxmatch.spark.adapting import BatchRates, plan_rates
from boxmatch.spark.build import IndexSettings, next_version, warn_of_rejected
from boxmatch.spark.columns import Keep, check_events, require_frame, schema_of
from boxmatch.spark.matching import run_plan, skip_null_ids
from boxmatch.spark.metrics import METRICS, BatchMetrics, Watch, described
from boxmatch.spark.plans import (
    How,
    MatchOptions,
    OnNullId,
    PlanChoice,
    plan_match,
    refuse_dialect,
    require_schema,
)
from boxmatch.spark.sinks import ParquetSink, Sink, SparkSink, TableSink
from boxmatch.spark.skipping import skipping_pays
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IndexVersion, newest, read_version, version_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logging.getLogger(__name__)

VERSION_COLUMN = "index_version"
RATE_COLUMN = "false_positive_rate"

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
    event: str | None = None,
    event_id: str = "event_id",
    subscription_id: str = "subscription_id",
    filter: str = "filter",
    dialect: str | None = None,
    keep: Keep = (),
    plan: PlanChoice = "auto",
    shards: int | None = None,
    on_null_id: OnNullId = "fail",
    format: str = "parquet",
    options: Mapping[str, Any] | None = None,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    index: str | None = None,
    max_false_positive_rate: float | None = None,
    adjuster: Adjuster | None = None,
    arrived: str | None = None,
) -> StreamingQuery:
    """Match a stream of events with subscriptions that may change at any time; returns the query.

    Subscriptions are the path of a table (with `format` and `options` as for `spark.read`), the
    path of an index that others update with `build_index`, or a function from a session to a
    DataFrame. Before each micro-batch the table is looked at, and what changed is compiled: the
    batch sees the subscriptions as they were when it started. Every row says which version of the
    index it comes from, in `index_version`. For `event`, `schema` and `dialect` see `match`.

    `sink` is the path of a folder for Parquet, written exactly once, or any function of a DataFrame
    and a batch number (see `boxmatch.spark.sinks`). `checkpoint` is Spark's checkpoint location;
    the version of each batch is kept there too, so that a batch that is run again after a failure
    gives the same rows. `trigger` holds the arguments of Spark's own, such as
    `{"processingTime": "1 second"}` or `{"availableNow": True}`.

    With a `max_false_positive_rate` batches are matched at this rate (see `match`). With an
    `adjuster` each batch has a rate of its own, from exact up to the adjuster's maximum: it grows
    while batches wait for the adjuster's threshold or longer, and shrinks when they do not, by one
    step for each batch. How long a batch waited is how late it begins against the trigger, or,
    with `arrived`, the age of its oldest event by this column. Every row then says at which rate
    it was found, in `false_positive_rate`, 0 where nothing was skipped. `index` is the kind of
    index that is built of a table, `tile` by default; see `boxmatch.spark.build_index`.

    An event whose id is null fails the query; with `on_null_id="skip"` it is left out, and the
    query's progress has the number of such events: `observedMetrics["boxmatch_null_ids"]`.

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
    matching = MatchOptions(
        how,
        event_id,
        subscription_id,
        keep,
        plan,
        max_false_positive_rate=max_false_positive_rate,
        on_null_id=on_null_id,
        event=event,
    )
    rates = None
    if adjuster is not None:
        if max_false_positive_rate is not None:
            raise SparkError(
                "give max_false_positive_rate, for all batches, or an adjuster, which has a "
                "maximum of its own, not both"
            )
        rates = plan_rates(events, adjuster, trigger, arrived)
    elif arrived is not None:
        raise SparkError("arrived says how long events wait, which only an adjuster looks at")
    schema = None if schema is None else Schema(schema)
    folder = Folder.at(checkpoint) / _OURS
    folder.prepare()
    write = _claim(sink, str(Folder.at(checkpoint)))
    if not callable(subscriptions) and version_numbers(subscriptions):
        wanted = FollowedIndex(str(Folder.at(subscriptions)))
        found = wanted.current(events.sparkSession)
        require_schema(found, schema)
        refuse_dialect(found, dialect)
        if index not in (None, found.index):
            raise SparkError(
                f"the index at {found.path} is of the kind {found.index!r}, not {index!r}"
            )
    else:
        schema = schema or schema_of(events, event_id, event)
        check_events(events, schema, event_id, event)
        settings = IndexSettings(
            schema,
            shards,
            subscription_id,
            filter,
            index or "tile",
            keep_versions=_KEPT_VERSIONS,
            dialect=dialect,
        )
        table = (
            SubscriptionTable(subscriptions, settings)
            if callable(subscriptions)
            else SubscriptionTable.of_files(os.fspath(subscriptions), settings, format, options)
        )
        wanted = FollowedIndex(str(folder / "index"), table)
    # What is wrong shows now, not in the first batch; and a stream that starts without
    # subscriptions would look as if nobody wanted anything.
    planned_index = wanted.current(events.sparkSession)
    planned = plan_match(events, planned_index, matching)
    rated = rates is not None or max_false_positive_rate is not None
    for own in (VERSION_COLUMN, *([RATE_COLUMN] if rated else [])):
        if own in (event_id, *planned.keep):
            raise SparkError(f"the result has a column {own!r} of its own: rename yours")
    if rates is not None and not skipping_pays(planned_index.index):
        log.warning(
            "the index %r is not faster for skipping predicates: the stream stays exact",
            planned_index.index,
        )
    if matching.skips_null_ids:
        events = skip_null_ids(events, matching)
    batches = _Batches(wanted, write, str(folder / _PINS), str(folder / METRICS), matching, rates)
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


@dataclass(frozen=True)
class SubscriptionTable:
    """The table that a stream's subscriptions come from, and how an index is built of it."""

    read: Callable[[SparkSession], DataFrame]
    """The table as it is now."""
    settings: IndexSettings
    files: str | None = None
    """Where its files are; None if it has none that we know of."""
    name: str = "of a function"
    """For messages."""

    @classmethod
    def of_files(
        cls,
        path: str,
        settings: IndexSettings,
        format: str = "parquet",
        options: Mapping[str, Any] | None = None,
    ) -> SubscriptionTable:
        """A folder of files of one of Spark's formats."""
        given = dict(options or {})

        def read(spark: SparkSession) -> DataFrame:
            return spark.read.format(format).options(**given).load(path)

        return cls(read, settings, path, f"{format} at {path}")

    def state(self) -> str | None:
        """What changes when the table does; None while it is away, or somebody writes to it.

        These are the names, sizes and times of its files. Without files there is no cheap way to
        see whether it has changed: its state is always new, so that it is read for every batch.
        """
        if self.files is None:
            return os.urandom(16).hex()
        files = Folder.at(self.files).files()
        if not files or any("/_temporary/" in path for path, *_ in files):
            return None
        return hashlib.sha256(repr(files).encode()).hexdigest()


@dataclass
class FollowedIndex:
    """An index that follows a table, or one that others update with `build_index`."""

    path: str
    table: SubscriptionTable | None = None
    _seen: tuple[str, int] | None = None
    """The state of the table that was looked at last, and the version that goes with it."""

    def current(self, spark: SparkSession) -> IndexVersion:
        """The version of the index that holds what the table says now.

        While the table is away or being written, the version that there is stays: subscriptions do
        not go because their table is replaced.
        """
        table = self.table
        if table is None:
            return read_version(self.path)
        before = newest(self.path)
        state = table.state()
        if before is not None and self._seen == (state, before.version):
            return before
        if state is not None:
            try:
                version = next_version(
                    table.read(spark),
                    self.path,
                    table.settings,
                    unless=lambda: table.files is not None and table.state() != state,
                )
            except Exception:
                if before is None or table.state() == state:
                    raise
            else:
                if self._seen is None or self._seen[1] != version.version:
                    warn_of_rejected(version)
                self._seen = (state, version.version)
                return version
        if before is None:
            raise SparkError(
                f"there is no table of subscriptions, or it is being written: {table.name}"
            )
        log.warning("the subscriptions are being written; still at %s", before)
        return before


@dataclass
class _Batches:
    """What is done with each micro-batch. Pickled as a whole where Spark Connect runs it."""

    index: FollowedIndex
    sink: Sink
    pins: str
    metrics: str
    options: MatchOptions
    rates: BatchRates | None = None
    """None if all batches are matched at the rate of the options."""

    def __call__(self, events: DataFrame, batch_id: int) -> None:
        from pyspark.sql import functions as f

        began = 0.0 if self.rates is None else self.rates.clock()
        started = time.monotonic()
        index, rate = self._pinned(events, batch_id)
        ready = time.monotonic()
        # A sink of ours reads the matches once, so that they can be counted on the way.
        watch = Watch() if isinstance(self.sink, (ParquetSink, SparkSink, TableSink)) else None
        if watch is not None:
            events = watch.see_events(events)
        plan = plan_match(events, index, replace(self.options, max_false_positive_rate=rate))
        found = run_plan(plan, events)
        if watch is not None:
            found = watch.see_matches(found, self.options.how, self.options.found)
        found = found.withColumn(VERSION_COLUMN, f.lit(index.version).cast("long"))
        if plan.skipping is not None:
            effective = plan.skipping.rate if plan.skipping.attributes else 0.0
            found = found.withColumn(RATE_COLUMN, f.lit(float(effective)))
        with described(events.sparkSession, f"boxmatch, index version {index.version}"):
            self.sink(found, batch_id)
        if self.rates is not None:
            self.rates.note(began)
        number_of_events, matches = (None, None) if watch is None else watch.counted()
        BatchMetrics(
            batch_id,
            number_of_events,
            matches,
            index.version,
            index.subscriptions,
            index.rejected,
            ready - started,
            time.monotonic() - started,
        ).write(Folder.at(self.metrics), _KEPT)

    def _pinned(self, events: DataFrame, batch_id: int) -> tuple[IndexVersion, float | None]:
        """The version and the rate that this batch had the first time, or those of now."""
        pins = Folder.at(self.pins)
        name = f"{batch_id}.json"
        pinned = pins.read(name)
        if pinned is not None:
            known = json.loads(pinned)
            asked = self.rates is not None or self.options.max_false_positive_rate is not None
            # A batch that was exact before anybody asked for a rate stays exact.
            rate = known.get("rate", 0.0 if asked else None)
            return read_version(self.index.path, known["version"]), rate
        index = self.index.current(events.sparkSession)
        rate = self.options.max_false_positive_rate
        if self.rates is not None:
            rate = self.rates.decide(events)
        pin = {"version": index.version, **({} if rate is None else {"rate": rate})}
        if not pins.create(name, json.dumps(pin).encode()):
            raise SparkError(f"another query runs from this checkpoint: it has made {pins}/{name}")
        pins.remove(f"{batch_id - _KEPT}.json")
        return index, rate
