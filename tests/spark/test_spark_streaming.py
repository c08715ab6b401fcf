"""`match_stream`: what comes out equals `scan` with the subscriptions of each batch's time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boxmatch as bm
from boxmatch.spark import (
    ParquetSink,
    SparkSink,
    TableSink,
    build_index,
    match,
    match_stream,
    stream_metrics,
)
from boxmatch.spark.build import IndexSettings
from boxmatch.spark.streaming import FollowedIndex, SubscriptionTable
from boxmatch.spark.versions import version_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVENT = "event_id long, price double, symbol string"
SCHEMA = bm.Schema({"price": "float", "symbol": "string"})
NOW = {"availableNow": True}
Filters = dict[str, str]


class Place:
    """Files of events and a table of subscriptions, and what has to come out of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.events.mkdir()
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"
        self.table = folder / "subscriptions"
        self.count = 0
        self.arrived: list[list[dict[str, Any]]] = []

    def arrive(self, count: int = 40) -> None:
        """One more file of events, which is one more batch."""
        events = [
            {"event_id": n, "price": float(n * 7 % 23), "symbol": "ABC"[n % 3]}
            for n in range(self.count, self.count + count)
        ]
        self.count += count
        self.arrived.append(events)
        number = len(self.arrived)
        draft = self.folder / "draft"
        pq.write_table(pa.Table.from_pylist(events), draft)
        draft.rename(self.events / f"{number:04}.parquet")
        # Spark takes files in the order of their times.
        os.utime(self.events / f"{number:04}.parquet", (1_700_000_000 + number,) * 2)

    def subscribe(self, filters: Filters) -> None:
        """Put another table in the place of the one that there is."""
        self.table.mkdir(exist_ok=True)
        rows = [{"subscription_id": one, "filter": text} for one, text in filters.items()]
        for old in self.table.iterdir():
            old.unlink()
        pq.write_table(pa.Table.from_pylist(rows), self.table / f"{time.time_ns()}.parquet")

    def stream(self, spark: SparkSession) -> DataFrame:
        return (
            spark.readStream.schema(EVENT).option("maxFilesPerTrigger", 1).parquet(str(self.events))
        )

    def run(self, spark: SparkSession, sink: Any = None, **options: Any) -> None:
        query = match_stream(
            self.stream(spark),
            self.table,
            sink=self.out if sink is None else sink,
            checkpoint=self.checkpoint,
            trigger=NOW,
            **options,
        )
        query.awaitTermination()

    def rows(self) -> list[tuple[int, int, str]]:
        """Version, event and subscription, of all that came out."""
        if not self.out.exists():
            return []
        found = pq.read_table(self.out).to_pylist()
        return sorted((r["index_version"], r["event_id"], r["subscription_id"]) for r in found)

    def expected(self, *times: tuple[int, Filters]) -> list[tuple[int, int, str]]:
        """For each batch the version and the filters that it had."""
        result = []
        for events, (version, filters) in zip(self.arrived, times, strict=True):
            matcher = bm.Matcher(SCHEMA, index="scan")
            for one, text in filters.items():
                matcher.subscribe(one, text)
            for event in events:
                result += [(version, event["event_id"], str(one)) for one in matcher.match(event)]
        return sorted(result)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


FIRST = {f"s{n}": f"price > {n} AND symbol = '{'ABC'[n % 3]}'" for n in range(20)}
SECOND = {**FIRST, "s3": "price < 3", "new": "symbol <> 'B'"}
del SECOND["s4"]


@pytest.mark.portable
def test_changes_take_effect_at_the_next_batch(spark: SparkSession, place: Place) -> None:
    place.subscribe(FIRST)
    place.arrive()
    place.run(spark)
    place.subscribe({**SECOND, "bad": "prise > 1"})
    place.arrive()
    place.arrive()
    place.run(spark)
    place.arrive()
    place.run(spark)
    second = (2, SECOND)
    expected = place.expected((1, FIRST), second, second, second)
    assert place.rows() == expected
    told = stream_metrics(spark, place.checkpoint).orderBy("batch").collect()
    shown = [(r.batch, r.events, r.index_version, r.subscriptions, r.rejected) for r in told]
    assert shown == [(0, 40, 1, 20, 0), *((batch, 40, 2, 20, 1) for batch in (1, 2, 3))]
    batches = [{event["event_id"] for event in events} for events in place.arrived]
    assert [row.matches for row in told] == [
        sum(event in events for _, event, _ in expected) for events in batches
    ]
    assert all(0 < row.index_seconds < row.seconds for row in told)


@pytest.mark.portable
@pytest.mark.parametrize("how", ["arrays", "counts"])
def test_jobs_are_described_and_matches_counted(
    spark: SparkSession, place: Place, how: Any
) -> None:
    place.subscribe({**FIRST, "never": "FALSE"})
    place.arrive()
    place.run(spark, how=how)
    (row,) = stream_metrics(spark, place.checkpoint).collect()
    assert (row.events, row.matches) == (40, len(place.expected((1, FIRST))))
    if os.environ.get("BOXMATCH_TEST_SPARK") == "connect":
        return

    descriptions = []

    def sink(matches: DataFrame, batch_id: int) -> None:
        descriptions.append(spark.sparkContext.getLocalProperty("spark.job.description"))

    place.arrive()
    place.run(spark, sink)
    assert descriptions[0].endswith("batch = 1<br/>boxmatch, index version 1")
    counts = stream_metrics(spark, place.checkpoint).where("batch = 1").collect()[0]
    assert (counts.events, counts.matches, counts.subscriptions) == (None, None, 21)
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


@pytest.mark.portable
def test_events_without_an_id_are_skipped_and_counted(spark: SparkSession, place: Place) -> None:
    place.subscribe(FIRST)
    place.arrive()
    null = pa.table({"event_id": pa.array([None] * 3, pa.int64()), "price": [1.0, 2.0, 3.0]})
    pq.write_table(null, place.events / "0002.parquet")
    stream = spark.readStream.schema(EVENT).parquet(str(place.events))
    query = match_stream(
        stream, place.table, sink=place.out, checkpoint=place.checkpoint, trigger=NOW,
        on_null_id="skip",
    )  # fmt: skip
    query.awaitTermination()
    assert place.rows() == place.expected((1, FIRST))
    seen = [p.observedMetrics["boxmatch_null_ids"] for p in query.recentProgress if p.numInputRows]
    assert [row[0] for row in seen] in ([3], [[3]])  # Connect has the values in a list of their own


@pytest.mark.portable
def test_changes_between_the_batches_of_one_run(spark: SparkSession, place: Place) -> None:
    """The sink changes the table, so the very next batch sees it."""
    place.subscribe(FIRST)
    place.arrive()
    place.arrive()
    whole = ParquetSink(str(place.out))
    whole.claim("test")
    table, rows = str(place.table), list(SECOND.items())

    def sink(matches: DataFrame, batch_id: int) -> None:
        whole(matches, batch_id)
        if batch_id == 0:
            frame = matches.sparkSession.createDataFrame(
                rows, "subscription_id string, filter string"
            )
            frame.coalesce(1).write.mode("overwrite").parquet(table)

    place.run(spark, sink)
    assert place.rows() == place.expected((1, FIRST), (2, SECOND))


def test_a_failed_batch_gives_the_same_rows_again(spark: SparkSession, place: Place) -> None:
    """Subscriptions change between failure and restart: the failed batch keeps its version."""
    place.subscribe(FIRST)
    place.arrive()
    place.arrive()
    whole = ParquetSink(place.out)
    whole.claim("test")
    seen: list[list[Any]] = []

    def sink(matches: DataFrame, batch_id: int) -> None:
        seen.append([batch_id, *sorted(map(tuple, matches.collect()))])
        whole(matches, batch_id)
        if batch_id == 1 and len(seen) == 2:
            raise OSError("the network is down")

    with pytest.raises(Exception, match="the network is down"):
        place.run(spark, sink)
    place.subscribe(SECOND)
    place.run(spark, sink)
    assert [batch for batch, *_ in seen] == [0, 1, 1]
    assert seen[1] == seen[2]
    place.arrive()
    place.run(spark, sink)
    assert place.rows() == place.expected((1, FIRST), (1, FIRST), (2, SECOND))


def test_killed_in_the_middle(spark: SparkSession, place: Place) -> None:
    """A process of its own is killed while a batch is in hand; this one goes on where it was."""
    place.subscribe(FIRST)
    for _ in range(3):
        place.arrive()
    job = [sys.executable, str(Path(__file__).with_name("streaming_job.py")), str(place.folder)]
    running = subprocess.Popen(
        job,
        start_new_session=True,  # to be killed with the Java process that it starts
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until = time.monotonic() + 120
        while not (place.folder / "in the middle").exists():
            assert running.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
    finally:
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert len(place.rows()) > 0
    place.subscribe(SECOND)
    sink = ParquetSink(str(place.out))
    sink.claim(str(place.checkpoint))
    place.run(spark, sink)
    assert place.rows() == place.expected((1, FIRST), (1, FIRST), (2, SECOND))


@pytest.mark.portable
def test_watermark_and_duplicates_are_the_users(spark: SparkSession, place: Place) -> None:
    from pyspark.sql import functions as f

    place.subscribe(FIRST)
    place.arrive()
    place.arrive()
    once = (
        place.stream(spark)
        .withColumn("at", f.timestamp_seconds(f.col("event_id") + 1_000_000))
        .withColumn("event_id", f.col("event_id") % 60)
        .withWatermark("at", "1 hour")
        .dropDuplicatesWithinWatermark(["event_id"])
    )
    query = match_stream(
        once, place.table, sink=place.out, checkpoint=place.checkpoint, schema=SCHEMA,
        trigger=NOW, keep=["at"],
    )  # fmt: skip
    query.awaitTermination()
    expected = [row for row in place.expected((1, FIRST), (1, FIRST)) if row[1] < 60]
    assert place.rows() == expected
    assert pq.read_table(place.out).schema.names[:3] == ["event_id", "at", "subscription_id"]


def test_arrays_and_counts_by_both_plans(spark: SparkSession, place: Place) -> None:
    place.subscribe(FIRST)
    place.arrive()
    got: dict[int, Any] = {}

    def sink(matches: DataFrame, batch_id: int) -> None:
        got.update({row["event_id"]: row[matches.columns[1]] for row in matches.collect()})

    expected = place.expected((1, FIRST))
    for number, (how, plan) in enumerate(
        [("arrays", "sharded"), ("counts", "sharded"), ("counts", "replicated")]
    ):
        query = match_stream(
            place.stream(spark), place.table, sink=sink, trigger=NOW, how=how, plan=plan,
            checkpoint=place.folder / f"checkpoint {number}", shards=2,
        )  # fmt: skip
        query.awaitTermination()
        for event in range(40):
            ids = {one for _, number, one in expected if number == event}
            assert (set(got[event]) == ids) if how == "arrays" else (got[event] == len(ids))
        got.clear()


def test_an_index_that_others_update(spark: SparkSession, place: Place) -> None:
    def update(filters: Filters) -> None:
        frame = spark.createDataFrame(
            list(filters.items()), "subscription_id string, filter string"
        )
        build_index(frame, place.folder / "index", schema=SCHEMA)

    update(FIRST)
    place.table = place.folder / "index"
    place.arrive()
    place.run(spark)
    update(SECOND)
    place.arrive()
    place.run(spark)
    assert place.rows() == place.expected((1, FIRST), (2, SECOND))


def test_subscriptions_from_a_function_into_a_table(spark: SparkSession, place: Place) -> None:
    place.arrive()
    rows = [*FIRST.items()]

    def subscriptions(session: SparkSession) -> DataFrame:
        return session.createDataFrame(rows, "subscription_id string, filter string")

    name = "matches_of_a_stream"
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    query = match_stream(
        place.stream(spark), subscriptions, sink=TableSink(name), checkpoint=place.checkpoint,
        trigger=NOW, name="from a function",
    )  # fmt: skip
    query.awaitTermination()
    found = spark.table(name).collect()
    spark.sql(f"DROP TABLE {name}")
    assert sorted(
        (row["index_version"], row["event_id"], row["subscription_id"]) for row in found
    ) == place.expected((1, FIRST))


def test_any_format_of_spark(spark: SparkSession, place: Place) -> None:
    place.subscribe(FIRST)
    place.arrive()
    place.run(spark, SparkSink("json", {"path": str(place.folder / "json")}))
    found = spark.read.json(str(place.folder / "json")).collect()
    assert sorted(
        (row["index_version"], row["event_id"], row["subscription_id"]) for row in found
    ) == place.expected((1, FIRST))


@pytest.mark.portable
def test_match_of_a_stream_is_a_stream(spark: SparkSession, place: Place) -> None:
    """With one version of an index, into any sink of Spark's."""
    frame = spark.createDataFrame(list(FIRST.items()), "subscription_id string, filter string")
    index = build_index(frame, place.folder / "index", schema=SCHEMA)
    place.arrive()
    matches = match(place.stream(spark), index)
    assert matches.isStreaming
    query = (
        matches.writeStream.format("parquet")
        .option("checkpointLocation", str(place.checkpoint))
        .trigger(availableNow=True)
        .start(str(place.out))
    )
    query.awaitTermination()
    found = spark.read.parquet(str(place.out)).collect()
    assert sorted((1, *row) for row in found) == place.expected((1, FIRST))


def test_bad_arguments(spark: SparkSession, place: Place) -> None:
    place.arrive()
    stream = place.stream(spark)

    def refuse(says: str, **changes: Any) -> None:
        arguments = {"sink": place.out, "checkpoint": place.checkpoint, "trigger": NOW}
        events = changes.pop("events", stream)
        table = changes.pop("subscriptions", place.table)
        with pytest.raises(bm.SparkError, match=says):
            match_stream(events, table, **{**arguments, **changes})

    refuse(f"there is no table of subscriptions, .*: parquet at {place.table}$")
    place.subscribe(FIRST)
    refuse("takes a streaming DataFrame", events=spark.read.parquet(str(place.events)))
    refuse("no column 'price'", events=stream.drop("price"), schema=SCHEMA)
    refuse("how is one of", how="some")
    refuse("a sink is a path or a function", sink=7)
    refuse("a path or a function from a session", subscriptions=spark.range(3))
    refuse("'index_version' of its own", event_id="index_version",
           events=stream.withColumnRenamed("event_id", "index_version"))  # fmt: skip
    place.run(spark)
    refuse("holds the output of the stream with checkpoint", checkpoint=place.folder / "other")
    assert place.rows() == place.expected((1, FIRST))


def test_old_batches_and_versions_are_forgotten(
    spark: SparkSession, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmatch.spark.streaming._KEPT", 2)
    monkeypatch.setattr("boxmatch.spark.streaming._KEPT_VERSIONS", 3)
    monkeypatch.setattr("boxmatch.spark.versions._GRACE_SECONDS", -1)
    times = []
    for number in range(5):
        filters = {f"s{n}": f"price > {n + number}" for n in range(10)}
        place.subscribe(filters)
        place.arrive(10)
        place.run(spark)
        times.append((number + 1, filters))
    index = place.checkpoint / "boxmatch" / "index"
    assert version_numbers(index) == [3, 4, 5]
    pins = {file.name for file in (place.checkpoint / "boxmatch" / "batches").iterdir()}
    assert pins == {"3.json", "4.json"}
    assert place.rows() == place.expected(*times)


def test_rejected_filters_are_warned_of_once(
    spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.subscribe({**FIRST, "bad": "prize > 3"})
    for _ in range(2):
        place.arrive(10)
    place.run(spark)
    index = str(place.checkpoint / "boxmatch" / "index")
    said = f"1 of 21 subscriptions are rejected; boxmatch.spark.rejected(spark, {index!r}) says why"
    assert caplog.messages == [said]
    assert place.rows() == place.expected((1, FIRST), (1, FIRST))


class TestTableInMotion:
    """While a table is replaced, its subscriptions stay."""

    @pytest.fixture
    def follow(self, place: Place) -> Callable[[], Any]:
        place.subscribe(FIRST)
        table = SubscriptionTable.of_files(str(place.table), IndexSettings(SCHEMA, 1))
        return lambda: FollowedIndex(str(place.folder / "index"), table)

    def test_unchanged(self, spark: SparkSession, follow: Callable[[], Any]) -> None:
        one = follow()
        first = one.current(spark)
        assert one.current(spark) == first
        assert follow().current(spark) == first

    def test_away(self, spark: SparkSession, place: Place, follow: Callable[[], Any]) -> None:
        first = follow().current(spark)
        for file in place.table.iterdir():
            file.unlink()
        assert follow().current(spark) == first

    def test_being_written(
        self, spark: SparkSession, place: Place, follow: Callable[[], Any]
    ) -> None:
        first = follow().current(spark)
        place.subscribe(SECOND)
        (place.table / "_temporary" / "0").mkdir(parents=True)
        (place.table / "_temporary" / "0" / "part").touch()
        assert follow().current(spark) == first

    def test_changed_while_it_is_read(
        self, spark: SparkSession, place: Place, follow: Callable[[], Any]
    ) -> None:
        first = follow().current(spark)
        place.subscribe(SECOND)
        one = follow()
        table = one.table

        def and_change(session: SparkSession) -> DataFrame:
            frame: DataFrame = table.read(session)
            place.subscribe(FIRST)
            return frame

        one.table = replace(table, read=and_change)
        assert one.current(spark) == first
        one.table = table
        assert one.current(spark).subscriptions == len(FIRST)

    def test_wrong(self, spark: SparkSession, place: Place, follow: Callable[[], Any]) -> None:
        follow().current(spark)
        for file in place.table.iterdir():
            file.unlink()
        pq.write_table(pa.table({"who": ["a"]}), place.table / "x.parquet")
        with pytest.raises(bm.SparkError, match="no column 'subscription_id'"):
            follow().current(spark)
