"""A broker as source and sink: exact offsets, and rows that are published once."""

from __future__ import annotations

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from fake_log_broker import KEY, FakeBroker, running
from pyspark.errors import PySparkException
from pyspark.sql.types import ArrayType, StringType, StructType

from boxmatch.client import Client, LoggedEvent, Notification
from boxmatch.errors import ClientError, SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark import register_broker
from boxmatch.spark.broker import logs, rows
from boxmatch.spark.broker.format import BrokerDataSource
from boxmatch.spark.broker.logs import FeedLog, Inbox
from boxmatch.spark.broker.options import OPTIONS, Connection, number, place, switch
from boxmatch.spark.broker.sink import BrokerStreamWriter, Writing
from boxmatch.spark.broker.source import SourceReading
from boxmatch.spark.broker.staging import Manifest, StagedPart, Staging
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TICKS = {"symbol": "string", "price": "float", "volume": "int", "seen": "timestamp"}
NOW = {"availableNow": True}
AT = datetime(2023, 11, 14, 22, 13, 20, 250_000, UTC)  # 1,700,000,000.25


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with running(FakeBroker()) as broker:
        broker.create("ticks", TICKS)
        yield broker


def tick(n: int) -> dict[str, Any]:
    return {"symbol": "AB"[n % 2], "price": n / 2, "volume": n}


def columns_of(text: str) -> StructType:
    """Columns as SQL writes them, without asking Spark."""
    columns = StructType()
    for column in text.split(","):
        columns.add(*column.split())
    return columns


# Options


def test_options_that_make_no_sense() -> None:
    with pytest.raises(SparkError, match="needs option 'url'"):
        Connection.of({"feed": "ticks"})
    with pytest.raises(SparkError, match="no option 'maxpertriger'; did you mean 'maxPerTrigger'"):
        SourceReading.of({"url": "http://x", "feed": "a", "maxpertriger": "9"}, stream=True)
    with pytest.raises(SparkError, match="no option 'path'; it has url, key, "):
        Writing.of({"url": "http://x", "feed": "a", "path": "b"}, StructType(), False)
    with pytest.raises(SparkError, match="at least 1, not 'x'"):
        number({"partitions": "x"}, "partitions")
    with pytest.raises(SparkError, match="true or false, not 'maybe'"):
        switch({"acknowledge": "maybe"}, "acknowledge", True)
    with pytest.raises(SparkError, match="'earliest' or 'latest', not '-1'"):
        place({"startingSequence": "-1"}, "startingSequence", "earliest")
    for both in ({}, {"feed": "a", "subscriber": "b"}):
        with pytest.raises(SparkError, match="give one option"):
            SourceReading.of({"url": "http://x", **both}, stream=True)
    with pytest.raises(SparkError, match="a stream has no end"):
        SourceReading.of({"url": "http://x", "feed": "a", "endingSequence": "9"}, stream=True)


def test_every_option_is_explained() -> None:
    for option in OPTIONS:
        assert f"`{option}`" in str(BrokerDataSource.__doc__)


def test_key_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOXMATCH_KEY", "bm_from_environment")
    connection = Connection.of({"url": "http://x"})
    assert connection.key == "bm_from_environment"
    assert "bm_from" not in repr(connection)
    assert Connection.of({"url": "http://x", "key": "bm_given"}).key == "bm_given"


def test_ranges_cover_all_numbers_once() -> None:
    reading = SourceReading.of({"url": "http://x", "feed": "a", "partitions": "3"}, stream=False)
    for after, through in ((0, 0), (5, 6), (7, 1_006), (0, 2_500), (10, 100_001)):
        ranges = reading.split(after, through)
        assert [n for r in ranges for n in range(r.after, r.through)] == [*range(after, through)]
        assert len(ranges) <= 3


# Rows


def test_values_get_the_types_of_their_columns() -> None:
    columns = columns_of(
        "symbol string, price double, volume long, ok boolean, seen timestamp, day timestamp_ntz,"
        " extra string, _sequence long, _at timestamp, _body string"
    ).add("tags", ArrayType(StringType()))
    seen = "2024-05-31T09:30:00+02:00"
    event = {"symbol": "Ä", "price": 3, "volume": 2**62, "ok": True, "seen": seen, "day": seen}
    event |= {"tags": ["a"], "extra": {"x": [1]}, "ignored": 1}
    batch = rows.event_batch(
        rows.arrow_columns(columns),
        [LoggedEvent(7, 1_700_000_000.25, event), LoggedEvent(9, 0.0, {})],
    )
    full, empty = batch.to_pylist()
    instant = datetime(2024, 5, 31, 7, 30, tzinfo=UTC)
    assert full == {
        **{"symbol": "Ä", "price": 3.0, "volume": 2**62, "ok": True, "tags": ["a"]},
        **{"seen": instant, "day": instant.replace(tzinfo=None), "extra": '{"x":[1]}'},
        **{"_sequence": 7, "_at": AT, "_body": full["_body"]},
    }
    assert full["_body"].startswith('{"symbol":"Ä"')
    assert empty["_sequence"] == 9
    assert {empty[name] for name in ("symbol", "price", "volume", "ok", "seen")} == {None}


def test_value_that_does_not_fit_its_column_is_named() -> None:
    schema = rows.arrow_columns(columns_of("volume integer"))
    with pytest.raises(SparkError, match=r"'volume' cannot be read as int32 \(event 8: 4294967296"):
        rows.event_batch(
            schema, [LoggedEvent(7, 0, {"volume": 1}), LoggedEvent(8, 0, {"volume": 2**32})]
        )
    seen = rows.arrow_columns(columns_of("seen timestamp"))
    with pytest.raises(SparkError, match="is not a timestamp"):
        rows.event_batch(seen, [LoggedEvent(7, 0, {"seen": "yesterday"})])


def test_decimals_are_read_as_the_broker_reads_them() -> None:
    feed: Any = SimpleNamespace(name="f", kind="events", schema=Schema({"sum": "decimal(20, 2)"}))
    columns = rows.feed_columns(feed, body=False)
    assert columns["sum"].dataType.simpleString() == "decimal(20,2)"
    schema = rows.arrow_columns(columns)
    events = [LoggedEvent(n, 0, {"sum": v}) for n, v in enumerate([0.1, "-7.50", 3, None])]
    found = rows.event_batch(schema, events).column("sum").to_pylist()
    assert found == [Decimal("0.10"), Decimal("-7.50"), Decimal(3), None]
    with pytest.raises(SparkError, match=r"'sum' cannot be read as decimal128\(20, 2\).*more than"):
        rows.event_batch(schema, [LoggedEvent(7, 0, {"sum": "0.001"})])


def test_notifications_have_fixed_columns() -> None:
    schema = rows.arrow_columns(rows.notification_columns())
    notification = Notification(3, "ticks", 1_700_000_000.25, ("a", "b"), event={"price": 1})
    assert rows.notification_batch(schema, [notification]).to_pylist() == [
        {"sequence": 3, "feed": "ticks", "at": AT, "subscriptions": ["a", "b"]}
        | {"body": '{"price":1}'}
    ]
    with pytest.raises(SparkError, match="no column 'price'"):
        rows.notification_batch(rows.arrow_columns(columns_of("price double")), [notification])


# Places in the log


def test_how_far_a_feed_is_read(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create("other", TICKS)
    broker.add("other", *[{}] * 10)
    broker.add("ticks", *map(tick, range(5)))  # 11 to 15
    broker.add("other", *[{}] * 10)  # up to 25
    log = FeedLog(Connection(broker.url, KEY), "ticks", True)
    with log.client() as client:
        assert log.find(client, "earliest") == 10
        assert log.find(client, "latest") == 25
        assert log.find(client, 12) == 11
        assert log.reach(client, 0, None, None) == 25
        assert log.reach(client, 0, 2, None) == 12  # the gap before is skipped
        assert log.reach(client, 12, 2, None) == 14
        assert log.reach(client, 14, 100, 20) == 20
        assert log.reach(client, 15, None, None) == 15  # nothing new: no empty batch
        assert log.reach(client, 15, None, 20, move_on=True) == 20
        assert log.reach(client, 20, None, 18) == 20  # never backwards
        monkeypatch.setattr(logs, "_IDLE", 10)
        assert log.reach(client, 15, None, None) == 25  # but it does not fall behind forever


def test_what_retention_removed_is_an_error(
    broker: FakeBroker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.add("ticks", *map(tick, range(9)))
    strict = FeedLog(Connection(broker.url, KEY), "ticks", True)
    lenient = FeedLog(strict.connection, "ticks", False)
    broker.forget(4)
    with strict.client() as client:
        assert strict.reach(client, 4, None, None) == 9
        strict.check(client, 4, 9)
        for fails in (strict.reach, lambda c, a, *_: strict.check(c, a, 9)):
            with pytest.raises(
                SparkError, match="after 3 were to be read, but the log starts at 5"
            ):
                fails(client, 3, None, None)
        with pytest.raises(SparkError, match="the log ends at 9, before 30"):
            strict.reach(client, 30, None, None)
        with pytest.raises(SparkError, match="the log ends at 9, before 30"):
            strict.check(client, 20, 30)
        assert not caplog.records
        assert lenient.reach(client, 3, None, None) == 9
        assert lenient.reach(client, 30, None, None) == 9
        assert "retention has removed" in caplog.text


def test_quiet_feed_has_lost_nothing(broker: FakeBroker) -> None:
    log = FeedLog(Connection(broker.url, KEY), "ticks", True)
    broker.create("other", TICKS)
    broker.add("other", *[{}] * 5)
    with log.client() as client:
        start = log.find(client, "earliest")  # there is nothing yet
        assert start == 5
        broker.add("other", *[{}] * 5)
        assert log.reach(client, start, None, None) == 5
        broker.add("ticks", tick(0))
        assert log.reach(client, start, None, None) == 11
        log.check(client, start, 11)
        broker.forget(7)  # of other feeds, but who knows
        with pytest.raises(SparkError, match="but the log starts at 11"):
            log.reach(client, start, None, None)


def test_how_far_an_inbox_is_read(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_PAGE", 2)
    broker.add("ticks", {})
    for n in range(5):
        broker.notify("alice", "ticks", tick(n), "s")
        broker.add("ticks", {})
    inbox = Inbox(Connection(broker.url, KEY), "alice", True, True)
    with inbox.client() as client:
        assert inbox.find(client, "earliest") == 0
        assert inbox.find(client, "latest") == 10
        assert inbox.find(client, 3) == 2
        assert inbox.reach(client, 0, 3, None) == 6
        assert inbox.reach(client, 0, None, 9) == 8
        assert inbox.reach(client, 10, None, None) == 10
        schema = rows.arrow_columns(rows.notification_columns())
        found = [b.column(0).to_pylist() for b in inbox.batches(client, schema, 2, 8)]
        assert [n for one in found for n in one] == [4, 6, 8]
        inbox.acknowledge(client, 4)
        assert broker.cursors == {"alice": 4}
        inbox.check(client, 4, 8)
        with pytest.raises(SparkError, match="somebody has acknowledged up to 4"):
            inbox.check(client, 2, 8)
        broker.dropped_through = 6
        with pytest.raises(SparkError, match="up to 6 some were dropped"):
            inbox.check(client, 4, 8)


# Staging

PUBLISHED = list[tuple[str, list[int]]]


def taking(published: PUBLISHED, fail_at: int | None = None) -> Callable[[Any, str], None]:
    """A broker that stores what it has not seen, and may fail after it has stored."""
    seen = {key for key, _ in published}

    def publish(batch: pa.RecordBatch, key: str) -> None:
        if key not in seen:
            published.append((key, batch.column(0).to_pylist()))
            seen.add(key)
        if len(published) - 1 == fail_at:
            raise ClientError("gone", status=None)

    return publish


def staged(staging: Staging, *requests: list[int]) -> StagedPart:
    part = staging.stage(pa.record_batch({"n": pa.array(one)}) for one in requests)
    assert part is not None
    return part


def numbers(published: PUBLISHED) -> list[int]:
    return [n for _, found in published for n in found]


def test_batch_that_runs_again_is_published_as_it_was_settled(tmp_path: Path) -> None:
    staging = Staging(Folder.at(tmp_path / "s"))
    published: PUBLISHED = []
    first = [staged(staging, [1, 2], [3]), staged(staging, [4])]
    with pytest.raises(ClientError):
        staging.settle("batch-0", first, "q", taking(published, fail_at=1))
    assert numbers(published) == [1, 2, 3]
    assert staging.is_begun("batch-0")
    # The same batch in another order and other parts, as after a shuffle.
    again = [staged(staging, [4, 3]), staged(staging, [2, 1])]
    staging.settle("batch-0", again, "q", taking(published))
    assert numbers(published) == [1, 2, 3, 4]
    staging.settle("batch-0", [staged(staging, [1, 2, 3, 4])], "q", taking([]))
    assert numbers(published) == [1, 2, 3, 4]
    assert (Folder.at(tmp_path / "s") / "staged").names() == []
    staging.settle("batch-1", [], "q", taking(published))
    assert not staging.is_begun("batch-1")
    staging.forget(lambda name: name == "batch-0")
    assert Folder.at(tmp_path / "s").names() == ["staged"]


def test_refused_batch_may_be_another_one_next_time(tmp_path: Path) -> None:
    staging = Staging(Folder.at(tmp_path))

    def refuse(batch: pa.RecordBatch, key: str) -> None:
        raise ClientError("no such attribute", status=422)

    with pytest.raises(ClientError, match="no such attribute"):
        staging.settle("batch-0", [staged(staging, [1])], None, refuse)
    published: PUBLISHED = []
    staging.settle("batch-0", [staged(staging, [2])], None, taking(published))
    assert numbers(published) == [2]


def test_staging_says_what_is_wrong(tmp_path: Path) -> None:
    staging = Staging(Folder.at(tmp_path))
    assert staging.stage(iter([])) is None
    with pytest.raises(SparkError, match="the driver does not see them"):
        staging.settle("batch-0", [StagedPart("elsewhere", 1, 1)], "q", taking([]))
    with pytest.raises(SparkError, match="is used by another query"):
        staging.settle("batch-0", [staged(staging, [1])], "other", taking([]))
    part = staged(staging, [5])
    old = Manifest("k", time.time() - 30 * 3600, "q", [part])
    staging.folder.create("batch-1.json", old.to_json())
    with pytest.raises(SparkError, match="left half published 30 hours ago"):
        staging.settle("batch-1", [], "q", taking([]))
    published: PUBLISHED = []
    Staging(staging.folder, True).settle("batch-1", [], "q", taking(published))
    assert published == [("k-0", [5])]


# What a feed takes


def test_rows_are_checked_before_anything_is_published(broker: FakeBroker) -> None:
    options = {"url": broker.url, "key": KEY, "feed": "ticks"}

    def writing(ddl: str, **more: str) -> Writing:
        return Writing.of({**options, **more}, columns_of(ddl), False)

    with pytest.raises(SparkError, match=r"no attribute '_sequence'.*drop the column"):
        writing("symbol string, _sequence long")
    with pytest.raises(SparkError, match=r"'volume' is of type string.*cannot read as int"):
        writing("volume string")
    with pytest.raises(SparkError, match=r"feed 'tocks' at .*no feed 'tocks'"):
        writing("volume long", feed="tocks")
    with pytest.raises(SparkError, match="unknown key"):
        writing("volume long", key="bm_other")
    with pytest.raises(SparkError, match="can only grow"):
        Writing.of(options, columns_of("volume long"), True)
    with pytest.raises(SparkError, match="a subscriber's notifications cannot be written"):
        writing("volume long", subscriber="alice")
    broker.create("space", {}, kind="state", spaces={"s": {"x": "float"}})
    with pytest.raises(SparkError, match="is a state feed"):
        writing("x double", feed="space")
    broker.create("sides", {"side": ["buy", "sell"], "n": {"type": "int", "domain": [0, 9]}})
    sides = writing("side string, n long", feed="sides")
    bad = pa.record_batch({"side": ["buy", "hold"], "n": pa.array([1, 2])})
    with pytest.raises(SparkError, match="attribute 'side': 'hold' in row 1"):
        [*sides.requests(iter([bad]))]
    bad = pa.record_batch({"side": ["buy"], "n": pa.array([10])})
    with pytest.raises(SparkError, match="outside the domain"):
        [*sides.requests(iter([bad]))]
    with pytest.raises(SparkError, match="needs option 'checkpointLocation'"):
        BrokerStreamWriter(sides, options)
    broker.create("loose", {"n": "int"}, unknown="carry")
    assert writing("n long, more string", feed="loose").schema.names == ("n",)


def test_requests_are_of_a_size_that_the_broker_takes(broker: FakeBroker) -> None:
    options = {"url": broker.url, "key": KEY, "feed": "ticks"}
    writing = Writing.of(options, columns_of("symbol string"), False)
    many = pa.record_batch({"symbol": ["x"] * 12_000})
    assert [r.num_rows for r in writing.requests(iter([many]))] == [5_000, 5_000, 2_000]
    large = pa.record_batch({"symbol": ["x" * 600_000] * 8})
    assert [r.num_rows for r in writing.requests(iter([large]))] == [2, 2, 2, 2]
    small = pa.record_batch({"symbol": ["x", "y"]})
    with Client(broker.url, KEY) as client:
        writing.publish(client, small, "k")
        writing.publish(client, small, "k")
        with pytest.raises(SparkError, match="came out differently when it ran again"):
            writing.publish(client, small.slice(1), "k")
    assert broker.events_of("ticks") == [{"symbol": "x"}, {"symbol": "y"}]


# Spark itself


def read(spark: SparkSession, broker: FakeBroker, **options: Any) -> Any:
    register_broker(spark)
    return spark.read.format("boxmatch").options(url=broker.url, key=KEY, **options)


def read_stream(spark: SparkSession, broker: FakeBroker, **options: Any) -> DataFrame:
    register_broker(spark)
    stream = spark.readStream.format("boxmatch")
    return stream.options(url=broker.url, key=KEY, **options).load()


def seen(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.select(*columns).collect())


def test_feed_as_a_table(spark: SparkSession, broker: FakeBroker) -> None:
    broker.add("ticks", {"symbol": "A", "volume": 1}, {"symbol": "B", "seen": "2024-01-01"})
    broker.create("ticks", {**TICKS, "venue": "string"})  # the feed has gained an attribute
    broker.add("other", {})
    broker.add("ticks", {"symbol": "C", "venue": "X", "price": 2.5})
    frame = read(spark, broker, feed="ticks", includeBody="true").load()
    assert frame.columns == [*TICKS, "venue", "_sequence", "_at", "_body"]
    # Instants are compared as numbers: a session may show them in any time zone.
    frame = frame.selectExpr("*", "unix_micros(_at) AS at", "unix_micros(seen) AS moment")
    got = [tuple(row) for row in frame.orderBy("_sequence").collect()]
    micros = 1_700_000_000_250_000
    assert [row[:3] + row[4:6] + row[8:] for row in got] == [
        ("A", None, 1, None, 1, micros, None),
        ("B", None, None, None, 2, micros, 1_704_067_200_000_000),
        ("C", 2.5, None, "X", 4, micros, None),
    ]
    assert got[0][7] == '{"symbol":"A","volume":1}'
    part = read(spark, broker, feed="ticks", startingSequence=2, endingSequence=3).load()
    assert seen(part, "symbol") == [("B",)]
    chosen = read(spark, broker, feed="ticks").schema("symbol string, venue string").load()
    assert seen(chosen, "symbol", "venue")[2] == ("C", "X")
    with pytest.raises(PySparkException, match="there is no feed 'tocks'"):
        _ = read(spark, broker, feed="tocks").load().schema


def test_stream_goes_on_where_it_was(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> int:
        stream = read_stream(spark, broker, feed="ticks", maxPerTrigger=6)
        query = (
            stream.writeStream.format("parquet")
            .option("checkpointLocation", checkpoint)
            .trigger(**NOW)
            .start(out)
        )
        query.awaitTermination()
        return len(query.recentProgress)

    broker.add("ticks", *map(tick, range(10)))
    assert run() >= 2  # batches of at most six
    broker.add("ticks", *map(tick, range(10, 13)))
    run()
    assert seen(spark.read.parquet(out), "_sequence", "volume") == [(n + 1, n) for n in range(13)]
    broker.add("ticks", *map(tick, range(13, 20)))
    broker.forget(15)
    with pytest.raises(PySparkException, match="retention has removed"):
        run()


@pytest.mark.slow
def test_stream_of_notifications_acknowledges_what_is_done(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path
) -> None:
    for n in range(5):
        broker.notify("alice", "ticks", tick(n), "cheap", "all")
    stream = read_stream(spark, broker, subscriber="alice", maxPerTrigger=2)
    assert stream.columns == ["sequence", "feed", "at", "subscriptions", "body"]
    query = (
        stream.writeStream.format("memory")
        .queryName("notifications")
        .option("checkpointLocation", str(tmp_path))
        .trigger(**NOW)
        .start()
    )
    query.awaitTermination()
    notifications = seen(spark.table("notifications"), "sequence", "subscriptions")
    assert notifications == [(n, ["cheap", "all"]) for n in range(1, 6)]
    assert broker.cursors["alice"] >= 4  # of a batch once the next begins


def test_stream_is_published_once(spark: SparkSession, broker: FakeBroker, tmp_path: Path) -> None:
    broker.create("copy", {"symbol": "string", "volume": "int"})
    broker.add("ticks", *map(tick, range(40)))

    def run(partitions: int) -> None:
        # A batch that runs again has other partitions, and rows in another order.
        query = (
            read_stream(spark, broker, feed="ticks")
            .select("symbol", "volume")
            .repartition(partitions)
            .writeStream.format("boxmatch")
            .options(url=broker.url, key=KEY, feed="copy")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(**NOW)
            .start()
        )
        query.awaitTermination()

    broker.lose_answer_of = {2}
    with pytest.raises(PySparkException, match="lost on the way"):
        run(3)
    assert 0 < len(broker.events_of("copy")) < 40
    run(2)
    assert sorted(event["volume"] for event in broker.events_of("copy")) == [*range(40)]
    assert not [*(tmp_path / "checkpoint" / "boxmatch" / "staged").iterdir()]


@pytest.mark.slow
def test_table_into_a_feed(spark: SparkSession, broker: FakeBroker, tmp_path: Path) -> None:
    register_broker(spark)
    frame = spark.range(10).selectExpr(
        "concat('s', id) AS symbol", "id AS volume", "timestamp_micros(id) AS seen", "NULL AS price"
    )

    def write(**options: Any) -> None:
        writer = frame.write.format("boxmatch").mode("append")
        writer.options(url=broker.url, key=KEY, feed="ticks", **options).save()

    write()
    events = sorted(broker.events_of("ticks"), key=lambda event: event["volume"])
    assert [event["volume"] for event in events] == [*range(10)]
    assert events[3] == {"symbol": "s3", "volume": 3, "seen": "1970-01-01 00:00:00.000003+00:00"}
    write(idempotencyKey="today", stagingLocation=str(tmp_path))
    assert len(broker.events_of("ticks")) == 20
    write(idempotencyKey="today", stagingLocation=str(tmp_path))
    assert len(broker.events_of("ticks")) == 20
    write(idempotencyKey="today too")
    write(idempotencyKey="today too")
    assert len(broker.events_of("ticks")) == 30
    write(stagingLocation=str(tmp_path))
    write(stagingLocation=str(tmp_path))
    assert len(broker.events_of("ticks")) == 50
    assert len([*tmp_path.iterdir()]) == 1
    with pytest.raises(PySparkException, match="can only grow"):
        frame.write.format("boxmatch").mode("overwrite").options(
            url=broker.url, key=KEY, feed="ticks"
        ).save()


# The real broker


def real_broker(folder: Path) -> Any:
    """What the tests of the broker itself start; a process with real sockets."""
    path = Path(__file__).parents[1] / "broker" / "broker_server.py"
    spec = importlib.util.spec_from_file_location("broker_server", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RunningBroker(folder)


@pytest.mark.slow
def test_from_feed_to_feed(spark: SparkSession, tmp_path: Path) -> None:
    register_broker(spark)
    checkpoint = str(tmp_path / "checkpoint")

    def run(url: str) -> None:
        source = spark.readStream.format("boxmatch").options(url=url, feed="ticks", maxPerTrigger=9)
        query = (
            source.load()
            .where("price >= 5")
            .selectExpr("symbol", "price AS value", "seen")
            .writeStream.format("boxmatch")
            .options(url=url, feed="dear")
            .option("checkpointLocation", checkpoint)
            .trigger(**NOW)
            .start()
        )
        query.awaitTermination()

    with real_broker(tmp_path / "data") as server:
        with Client(server.url) as client:
            client.create_feed("ticks", TICKS)
            client.create_feed("dear", {"symbol": "string", "value": "float", "seen": "timestamp"})
            client.subscribe("alice", "cheap", "ticks", "price < 2")
            client.publish("ticks", [tick(n) | {"seen": AT} for n in range(20)])
        run(server.url)
        server.kill()
        server.start()  # on another port
        with Client(server.url) as client:
            client.extend_feed("ticks", {"venue": "string"})
            client.publish("ticks", [tick(n) | {"venue": "X"} for n in range(20, 25)])
            run(server.url)
            events = [one.event for one in client.events("dear").events]
        assert [event["value"] for event in events] == [n / 2 for n in range(10, 25)]
        reader = spark.read.format("boxmatch").option("url", server.url)
        seconds = reader.option("feed", "dear").load().selectExpr("unix_micros(seen)")
        assert {row[0] for row in seconds.collect()} == {1_700_000_000_250_000, None}
        venues = reader.option("feed", "ticks").load().groupBy("venue").count()
        assert seen(venues.fillna("-"), "venue", "count") == [("-", 20), ("X", 5)]
        notifications = (
            spark.read.format("boxmatch").option("url", server.url).option("subscriber", "alice")
        )
        got = seen(notifications.load(), "sequence", "feed", "subscriptions", "body")
        assert [row[:3] for row in got] == [(n, "ticks", ["cheap"]) for n in (1, 2, 3, 4)]
        assert json.loads(got[3][3])["volume"] == 3


def test_lists_and_nested_values_have_columns() -> None:
    items = {"type": "list of struct", "fields": {"n": "int", "made.at": "timestamp"}}
    attributes = {"order.id": "int", "tags": "list of string", "at": "list of timestamp",
                  "sums": "list of decimal(5, 2)", "items": items}  # fmt: skip
    feed: Any = SimpleNamespace(name="f", kind="events", schema=Schema(attributes))
    columns = rows.feed_columns(feed, body=False)
    assert columns["tags"].dataType.simpleString() == "array<string>"
    assert columns["sums"].dataType.simpleString() == "array<decimal(5,2)>"
    event = {"order": {"id": 3}, "tags": ["a", None], "at": ["2024-05-31T09:30:00Z"],
             "sums": [1, "2.50"],
             "items": [{"n": 1, "made": {"at": "2024-05-31T09:30:00Z"}}, None]}  # fmt: skip
    schema = rows.arrow_columns(columns)
    found, nothing = rows.event_batch(
        schema, [LoggedEvent(1, 0, event), LoggedEvent(2, 0, {"order": 5})]
    ).to_pylist()
    moment = datetime(2024, 5, 31, 9, 30, tzinfo=UTC)
    assert found["order.id"] == 3
    assert found["tags"] == ["a", None]
    assert found["at"] == [moment]
    assert found["sums"] == [Decimal(1), Decimal("2.50")]
    assert found["items"] == [{"n": 1, "made.at": moment}, None]
    assert nothing["order.id"] is nothing["items"] is None


@pytest.mark.slow
def test_feeds_without_a_schema_are_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    register_broker(spark)
    with real_broker(tmp_path / "data") as server:
        with Client(server.url) as client:
            client.create_feed("any")
            client.create_feed("half", {"n": "int", "data": "json"})
            client.subscribe("alice", "two", "any", '{"order": {"n": [2]}}', dialect="eventbridge")
        frame = spark.sql("SELECT n, struct(n, 'x' AS state) AS order FROM VALUES (1), (2) AS t(n)")
        write = frame.write.format("boxmatch").mode("append").option("url", server.url)
        write.option("feed", "any").save()
        half = frame.selectExpr("n", "order AS data").write.format("boxmatch").mode("append")
        half.option("url", server.url).option("feed", "half").save()

        def reader(feed: str) -> Any:
            return spark.read.format("boxmatch").options(url=server.url, feed=feed)

        found = reader("any").load()
        assert found.columns == ["_sequence", "_at", "_body"]
        bodies = sorted(json.loads(row._body)["order"]["n"] for row in found.collect())
        assert bodies == [1, 2]
        named = reader("any").schema("`order.state` string, n int").load()
        assert seen(named, "`order.state`", "n") == [("x", 1), ("x", 2)]
        found = reader("half").load()
        assert found.columns == ["n", "_sequence", "_at", "_body"]
        with Client(server.url) as client:
            [notified] = client.notifications("alice").notifications
            assert notified.event == {"n": 2, "order": {"n": 2, "state": "x"}}
