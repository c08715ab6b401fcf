"""`transitions`: in batch and as a stream, what `bm.Spaces` tells for the same updates."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fake_state import FakeState  # in this folder

import boxmatch as bm
from boxmatch.spark import IndexVersion, ParquetSink, build_index, transitions
from boxmatch.spark.entry import scalar
from boxmatch.spark.publications.keeper import Keeper, pack, processor, unpack

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

SCHEMA = bm.Schema({"x": "float", "y": "int", "s": "string"})
KEYS = "publication_id string, sequence long"
UPDATE = f"{KEYS}, x double, y_low long, y_high long, s string, gone boolean"
FILTERS = "subscription_id string, filter string"
SUBSCRIPTION = (
    "subscription_id long, x_low double, x_high double, y_low long, y_high long, s string"
)
ARROW = pa.schema(
    {
        "publication_id": pa.string(),
        "sequence": pa.int64(),
        "x": pa.float64(),
        "y_low": pa.int64(),
        "y_high": pa.int64(),
        "s": pa.string(),
        "gone": pa.bool_(),
    }
)
Row = dict[str, Any]
Told = tuple[Any, Any, str, Any]


@pytest.fixture
def stateful(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the state store that transitions of streams need."""
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, ROCKSDB)
    yield spark
    spark.conf.set(PROVIDER, before)


def random_subscriptions(count: int, seed: int) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for n in range(count):
        x, y = chance.uniform(0, 80), chance.randrange(80)
        row: Row = {
            "subscription_id": n,
            "x_low": x if chance.random() < 0.7 else None,
            "x_high": x + 25 if chance.random() < 0.7 else None,
            "y_low": y if chance.random() < 0.5 else None,
            "y_high": y + 15 if chance.random() < 0.5 else None,
            "s": chance.choice([None, None, "a", "b"]),
        }
        if all(value is None for name, value in row.items() if name != "subscription_id"):
            row["s"] = "c"
        rows.append(row)
    return rows


def subscription_table(spark: SparkSession, rows: Sequence[Row]) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], SUBSCRIPTION)


def random_updates(count: int, seed: int, keys: int = 12) -> list[Row]:
    """Updates of some publications that move, now and then end, and begin again."""
    chance = random.Random(seed)
    rows = []
    for n in range(count):
        y = chance.randrange(90)
        row: Row = dict.fromkeys(ARROW.names)
        row |= {"publication_id": f"p{chance.randrange(keys)}", "sequence": n}
        if chance.random() < 0.6:
            row["x"] = chance.uniform(0, 100)
        if chance.random() < 0.4:
            row |= {"y_low": y, "y_high": y + chance.randrange(10)}
        if chance.random() < 0.2:
            row["s"] = chance.choice("abcd")
        row["gone"] = chance.choice([True, None, *[False] * 10])
        rows.append(row)
    return rows


class Model:
    """What has to be told, by `bm.Spaces`."""

    def __init__(self, subscriptions: Sequence[Row], *, leave: bool = True) -> None:
        self.spaces = bm.Spaces({"all": SCHEMA}, leave=leave)
        for row in subscriptions:
            self.spaces.subscribe(row["subscription_id"], self._region(row))
        self.last: dict[str, int] = {}
        self.told: list[Told] = []

    def take(self, updates: Sequence[Row]) -> None:
        """The updates of a micro-batch."""
        for row in sorted(updates, key=lambda row: row["sequence"]):
            key, order = row["publication_id"], row["sequence"]
            if order <= self.last.get(key, -1):
                continue
            self.last[key] = order
            region = self._region(row)
            if key not in set(self.spaces.publications()):
                if row["gone"] or not region:
                    continue
                said = self.spaces.publish(key, region)
            elif row["gone"]:
                said = self.spaces.retract(key)
            else:
                said = self.spaces.update_publication(key, region)
            self.told += [(key, one.subscription, one.kind, order) for one in said]

    @staticmethod
    def _region(row: Row) -> Row:
        region: Row = {name: row[name] for name in ("x", "s") if row.get(name) is not None}
        for name in ("x", "y"):
            ends = row.get(f"{name}_low"), row.get(f"{name}_high")
            if ends != (None, None):
                region[name] = ends
        return region


class Place:
    """Files of updates, each a micro-batch, and where a stream puts what comes of them."""

    def __init__(self, folder: Path) -> None:
        self.updates = folder / "updates"
        self.updates.mkdir()
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"
        self.count = 0

    def arrive(self, rows: Sequence[Row]) -> None:
        self.count += 1
        path = self.updates / f"{self.count:04}.parquet"
        pq.write_table(pa.Table.from_pylist(list(rows), ARROW), path.with_suffix(".draft"))
        # Spark takes files in the order of their times.
        os.utime(path.with_suffix(".draft"), (1_700_000_000 + self.count,) * 2)
        path.with_suffix(".draft").rename(path)

    def stream(self, spark: SparkSession) -> DataFrame:
        options = {"maxFilesPerTrigger": "1", "pathGlobFilter": "*.parquet"}
        return spark.readStream.schema(UPDATE).options(**options).parquet(str(self.updates))

    def run(self, told: DataFrame, sink: Callable[[DataFrame, int], None] | None = None) -> None:
        writer = told.writeStream.option("checkpointLocation", str(self.checkpoint))
        if sink is None:
            writer = writer.format("parquet").option("path", str(self.out))
        else:
            writer = writer.foreachBatch(sink)
        writer.trigger(availableNow=True).start().awaitTermination()

    def rows(self) -> list[Told]:
        return listed(pq.read_table(self.out).to_pylist())


def listed(rows: Sequence[Any]) -> list[Told]:
    names = ("publication_id", "subscription_id", "kind", "sequence")
    return sorted(tuple(row[name] for name in names) for row in rows)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


@pytest.mark.portable
def test_a_stream_tells_what_spaces_tell(stateful: SparkSession, place: Place) -> None:
    """With updates in disorder within a batch, repeated ones, and some that come too late."""
    subscriptions = random_subscriptions(60, 1)
    updates = random_updates(150, 2)
    batches = [updates[at : at + 50] for at in range(0, 150, 50)]
    batches[2] += [batches[1].pop(row) for row in (30, 20, 10)]
    batches[1] += batches[0][::7] + batches[1][::5]
    chance = random.Random(3)
    model = Model(subscriptions)
    for batch in batches:
        chance.shuffle(batch)
        place.arrive(batch)
        model.take(batch)
    table = subscription_table(stateful, subscriptions)
    told = transitions(place.stream(stateful), table, schema=SCHEMA, removed="gone")
    place.run(told)
    assert {kind for _, _, kind, _ in model.told} == {"enter", "leave", "deleted"}
    assert place.rows() == sorted(model.told)


@pytest.mark.portable
def test_a_batch_tells_the_same(spark: SparkSession) -> None:
    subscriptions = random_subscriptions(60, 4)
    updates = random_updates(300, 5, keys=25)
    model = Model(subscriptions)
    model.take(updates)
    mixed = updates + updates[::9]
    random.Random(6).shuffle(mixed)
    frame = spark.createDataFrame([tuple(row.values()) for row in mixed], UPDATE)
    table = subscription_table(spark, subscriptions)
    told = transitions(frame, table, schema=SCHEMA, removed="gone")
    assert told.columns == ["publication_id", "subscription_id", "kind", "sequence"]
    assert listed(told.collect()) == sorted(model.told)


@pytest.mark.portable
def test_a_stream_follows_an_index(stateful: SparkSession, place: Place, tmp_path: Path) -> None:
    """Stored publications meet new versions first; then come the updates of the micro-batch."""
    index = tmp_path / "index"
    nothing: Row = dict.fromkeys(ARROW.names)

    def subscribe(*filters: tuple[str, str]) -> None:
        build_index(stateful.createDataFrame(filters, FILTERS), index, schema=SCHEMA)

    def run(*points: tuple[str, int, float]) -> set[Told]:
        before = set(place.rows()) if place.out.exists() else set()
        if points:
            rows = [{"publication_id": p, "sequence": n, "x": x} for p, n, x in points]
            place.arrive([nothing | row for row in rows])
        place.run(transitions(place.stream(stateful), index))
        return set(place.rows()) - before

    subscribe(("s", "x < 5"), ("t", "x > 2"))
    assert run(("p", 1, 3.0), ("q", 1, 8.0)) == {
        ("p", "s", "enter", 1), ("p", "t", "enter", 1), ("q", "t", "enter", 1),
    }  # fmt: skip
    subscribe(("s", "x < 9"), ("u", "x > 4"))  # t is gone
    assert run() == {("q", "s", "enter", 1), ("q", "u", "enter", 1)}
    assert run() == set()
    subscribe(("s", "x < 5"), ("u", "x > 4"))
    assert run(("p", 2, 6.0), ("r", 1, 6.0)) == {
        ("q", "s", "leave", 1), ("p", "s", "leave", 2), ("p", "u", "enter", 2),
        ("r", "u", "enter", 1),
    }  # fmt: skip
    assert len(place.rows()) == 9


def test_a_restart_neither_loses_nor_repeats(stateful: SparkSession, place: Place) -> None:
    """The second batch fails after its state and its rows were written, and runs again."""
    subscriptions = random_subscriptions(40, 7)
    updates = random_updates(90, 8)
    table = subscription_table(stateful, subscriptions)
    model = Model(subscriptions)
    for at in range(0, 90, 30):
        place.arrive(updates[at : at + 30])
        model.take(updates[at : at + 30])
    whole = ParquetSink(place.out)
    written: list[int] = []

    def sink(told: DataFrame, batch_id: int) -> None:
        whole(told, batch_id)
        written.append(batch_id)
        if written == [0, 1]:
            raise RuntimeError("the power is out")

    def run() -> None:
        frame = transitions(place.stream(stateful), table, schema=SCHEMA, removed="gone")
        place.run(frame, sink)

    with pytest.raises(Exception, match="the power is out"):
        run()
    run()
    assert written == [0, 1, 1, 2]
    assert place.rows() == sorted(model.told)


def test_publications_expire(stateful: SparkSession, place: Place) -> None:
    nothing: Row = dict.fromkeys(ARROW.names)
    place.arrive([{**nothing, "publication_id": "p", "sequence": 5, "x": 1.0}])
    table = stateful.createDataFrame([("s", "x < 2"), ("t", "x > 2")], FILTERS)
    told = transitions(place.stream(stateful), table, schema=SCHEMA, ttl=0.5)
    found: list[Told] = []

    def sink(batch: DataFrame, batch_id: int) -> None:
        found.extend(listed(batch.collect()))

    writer = told.writeStream.option("checkpointLocation", str(place.checkpoint))
    query = writer.foreachBatch(sink).trigger(processingTime="100 milliseconds").start()
    try:
        wait_for(lambda: len(found) == 2)
        # It is forgotten, the order of its updates too.
        place.arrive([{**nothing, "publication_id": "p", "sequence": 4, "x": 3.0}])
        wait_for(lambda: len(found) == 4)
    finally:
        query.stop()
    assert found == [
        ("p", "s", "enter", 5),
        ("p", "s", "deleted", 5),
        ("p", "t", "enter", 4),
        ("p", "t", "deleted", 4),
    ]


def wait_for(done: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.05)


class Clockwork:
    """A keeper of publications whose time is set by hand."""

    def __init__(self, index: IndexVersion) -> None:
        self.fake = FakeState()
        self.index = index
        self.keeper = self.make_keeper()

    def make_keeper(self, buckets: int = 4) -> Keeper:
        handle: Any = self.fake
        return Keeper(
            handle, ttl=1.0, buckets=buckets, path=self.index.path,
            shards=self.index.segment_names, id_type="string", schema=SCHEMA.to_json(),
            ends=[["x", ""]], leave=True,
        )  # fmt: skip

    def update(self, now: int, order: int, x: float | None, gone: bool = False) -> list[Any]:
        self.fake.now = now
        timers: Any = self.fake
        row = {"bucket": 3, "key": "p", "order": order, "removed": gone, "c0": x, "hash": 7}
        columns = ((name, pa.array([one])) for name, one in row.items())
        batch = pa.RecordBatch.from_pydict(dict(columns) | {"c0": pa.array([x], pa.float64())})
        (packs,) = pack(iter([batch]))
        assert packs["bucket"].to_pylist() == [3]
        return self._told(self.keeper.take(packs["pack"].to_pylist(), [], timers))

    def expire(self, at: int) -> list[Any]:
        return self._told(self.keeper.expire(at))

    @property
    def stored(self) -> dict[Any, Any]:
        return self.fake.maps["pages"]

    @staticmethod
    def _told(packs: Iterator[bytes]) -> list[Any]:
        batch = pa.RecordBatch.from_pydict({"pack": pa.array(list(packs), pa.binary())})
        rows = [row for one in unpack(iter([batch])) for row in one.to_pylist()]
        return [(row["ids"], row["kind"], row["order"]) for row in rows]


@pytest.fixture(scope="module")
def clockwork_index(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> IndexVersion:
    table = spark.createDataFrame([("s", "x < 2"), ("t", "x >= 2")], FILTERS)
    return build_index(table, tmp_path_factory.mktemp("clockwork"), schema=SCHEMA)


@pytest.fixture
def clockwork(clockwork_index: IndexVersion) -> Clockwork:
    return Clockwork(clockwork_index)


def test_every_update_begins_the_time_anew(clockwork: Clockwork) -> None:
    assert clockwork.update(0, 1, 1.0) == [(["s"], "enter", 1)]
    assert clockwork.update(600, 2, None) == []  # says no more than that it is still there
    assert clockwork.fake.timers == {1000, 1600}
    assert clockwork.update(700, 2, 3.0) == []  # too late, as if it had not come
    assert clockwork.fake.timers == {1000, 1600}
    assert clockwork.expire(1000) == []  # of an update that is not its last
    assert clockwork.expire(1600) == [(["s"], "deleted", 2)]
    assert clockwork.stored == {}
    assert clockwork.fake.maps["expiring"] == {}


def test_the_memory_of_a_removed_publication_expires_too(clockwork: Clockwork) -> None:
    assert clockwork.update(0, 1, 1.0) == [(["s"], "enter", 1)]
    assert clockwork.update(10, 4, 9.0, gone=True) == [(["s"], "deleted", 4)]
    assert clockwork.update(20, 3, 9.0) == []  # does not bring it back
    assert clockwork.update(30, 5, 9.0) == [(["t"], "enter", 5)]
    assert clockwork.update(40, 6, None, gone=True) == [(["t"], "deleted", 6)]
    assert clockwork.fake.timers == {1000, 1010, 1030, 1040}
    assert [clockwork.expire(at) for at in (1000, 1010, 1030)] == [[], [], []]
    assert len(clockwork.stored) == 1
    assert clockwork.expire(1040) == []
    assert clockwork.stored == {}
    assert clockwork.expire(1040) == []


def test_the_number_of_buckets_stays(clockwork: Clockwork) -> None:
    clockwork.update(0, 1, 1.0)
    clockwork.keeper = clockwork.make_keeper(buckets=5)
    with pytest.raises(bm.SparkError, match="started with buckets=4"):
        clockwork.update(0, 2, 1.0)


def test_filters_mean_what_they_mean_to_a_matcher(spark: SparkSession) -> None:
    """For publications that have one value in every dimension."""
    schema = bm.Schema(
        [
            bm.Attribute("x", "float"),
            bm.Attribute("s", "string"),
            bm.Attribute("side", "enum", ("buy", "sell", "hold")),
            bm.Attribute("ok", "bool"),
            bm.Attribute("at", "timestamp"),
            bm.Attribute("d", "decimal(6, 2)"),
            bm.Attribute("w", "decimal(38, 20)"),
        ]
    )
    tiny = Decimal("0.00000000000000000001")
    filters = [
        "x > 3 AND x <= 7", "x = 5", "NOT x BETWEEN 2 AND 8", "s LIKE 'a%'", "s > 'ab' OR x < 1",
        "s <> 'b'", "s = '' OR s = 'b'", "side <> 'sell'", "side > 'buy' AND ok", "NOT ok",
        "at >= '2024-05-01' AND at < '2024-06-01 12:00:00'", "x > 5 AND x < 5", "x IS NOT NULL",
        "x IN (1, 5, 9) AND s IN ('a', 'b') AND at > '2024-01-01'", "x < 1e300 AND x > -1e300",
        "d > 1.005", "d BETWEEN 1.01 AND 2", "d <> 2", f"w > {1 + tiny:f}", f"w = {1 + tiny:f}",
        f"w >= {1 - tiny:f} AND w < {1 + tiny:f} AND d < 2", "w <= 0.999 OR w > 10",
    ]  # fmt: skip
    chance = random.Random(9)
    events = [
        {
            "x": chance.choice([0.5, 1.0, 3.0, 5.0, 7.0, 8.5, 9.0]),
            "s": chance.choice(["", "a", "ab", "abc", "b", "é"]),
            "side": chance.choice(["buy", "sell", "hold"]),
            "ok": chance.random() < 0.5,
            "at": datetime(2024, 4, 1, tzinfo=UTC) + timedelta(hours=chance.randrange(2400)),
            "d": Decimal(chance.choice(["1", "1.00", "1.01", "2", "-3.5"])),
            "w": 1 + tiny * chance.randint(-2, 2),
        }
        for _ in range(60)
    ]
    matcher = bm.Matcher(schema, index="scan")
    for n, text in enumerate(filters):
        matcher.subscribe(n, text)
    expected = [
        (n, one, "enter", 0) for n, event in enumerate(events) for one in matcher.match(event)
    ]
    rows = [
        (n, 0, Decimal(str(x)), *rest)
        for n, (x, *rest) in enumerate(list(event.values()) for event in events)
    ]
    kinds = "x decimal(10, 3), s string, side string, ok boolean, at timestamp"
    kinds += ", d decimal(10, 3), w decimal(38, 20)"
    frame = spark.createDataFrame(rows, f"publication_id int, sequence tinyint, {kinds}")
    table = spark.createDataFrame(list(enumerate(filters)), "subscription_id int, filter string")
    told = transitions(frame, table, schema=schema)
    assert dict(told.dtypes) == {
        "publication_id": "int", "subscription_id": "bigint", "kind": "string",
        "sequence": "tinyint",
    }  # fmt: skip
    assert listed(told.collect()) == sorted(expected)


def test_times_do_not_depend_on_the_time_zone(spark: SparkSession) -> None:
    schema = bm.Schema({"at": "timestamp"})
    noon = datetime(2024, 7, 1, 12, tzinfo=UTC)
    rows = [
        ("p", noon, noon, None),
        ("p", noon + timedelta(microseconds=1), None, noon + timedelta(hours=1)),
        ("p", noon - timedelta(hours=1), noon + timedelta(hours=3), None),
    ]
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.createDataFrame(
            rows, "name string, sent timestamp, at_low timestamp, at_high timestamp"
        )
        table = spark.createDataFrame(
            [("early", None, noon), ("late", noon + timedelta(hours=2), None)],
            "who string, at_low timestamp, at_high timestamp",
        )
        named = {"key": "name", "order": "sent", "subscription_id": "who"}
        told = transitions(frame, table, schema=schema, **named)
        found = told.selectExpr("name", "who", "kind", "unix_micros(sent)").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    start = int(noon.timestamp()) * 1_000_000
    # First from three hours later on; then from noon on, to which an end is added.
    assert sorted(map(tuple, found)) == [
        ("p", "early", "enter", start),
        ("p", "late", "enter", start - 3_600_000_000),
        ("p", "late", "leave", start + 1),
    ]


def test_leave_can_be_switched_off(spark: SparkSession) -> None:
    subscriptions = random_subscriptions(30, 10)
    updates = random_updates(60, 11, keys=4)
    model = Model(subscriptions, leave=False)
    model.take(updates)
    frame = spark.createDataFrame([tuple(row.values()) for row in updates], UPDATE)
    table = subscription_table(spark, subscriptions)
    told = transitions(frame, table, schema=SCHEMA, removed="gone", leave=False)
    assert listed(told.collect()) == sorted(model.told)


@pytest.mark.parametrize("filters", [[], [("never", "x > 1 AND x < 1")]])
def test_nobody_to_tell(spark: SparkSession, filters: list[Any]) -> None:
    frame = spark.createDataFrame([("p", 1, 5.0)], f"{KEYS}, x double")
    told = transitions(frame, spark.createDataFrame(filters, FILTERS), schema=SCHEMA)
    assert told.collect() == []


def test_subscriptions_at_a_path(spark: SparkSession, tmp_path: Path) -> None:
    table = pa.table({"subscription_id": ["s"], "filter": ["x > 3"]})
    pq.write_table(table, tmp_path / "subscriptions.parquet")
    frame = spark.createDataFrame([("p", 1, 5.0)], f"{KEYS}, x double")
    kept = tmp_path / "kept"
    for _ in range(2):
        told = transitions(frame, tmp_path / "subscriptions.parquet", schema=SCHEMA, path=kept)
        assert listed(told.collect()) == [("p", "s", "enter", 1)]
    assert len(list((kept / "versions").iterdir())) == 1  # the same subscriptions
    told = transitions(frame, kept)
    assert listed(told.collect()) == [("p", "s", "enter", 1)]
    other = bm.Schema({"x": "float", "z": "int"})  # so that no worker knows it yet
    told = transitions(frame, tmp_path / "subscriptions.parquet", schema=other, path=kept)
    shutil.rmtree(kept / "segments")
    with pytest.raises(Exception, match="is it a folder that driver and workers see"):
        told.collect()


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (f"{KEYS}, x double", {"key": "id"}, "the updates have no column 'id'"),
        (f"{KEYS}, x double", {"removed": "gone"}, "the updates have no column 'gone'"),
        (f"{KEYS}, x double", {"removed": "x"}, "'x' of the updates is double, not boolean"),
        (f"{KEYS}, x string", {}, "'x' of the updates is of type string, which is no float"),
        (f"{KEYS}, s array<string>", {}, "is of type array<string>, which is no string"),
        (f"{KEYS}, z double", {}, "no column of a dimension"),
        (f"{KEYS}, x double, x_low double", {}, "'x', 'x_low': give a value or a range"),
        ("publication_id double, sequence long, x double", {}, "a key is a string or an integer"),
        ("publication_id long, sequence string, x double", {}, "an order is an integer or a"),
        (f"{KEYS}, x double", {"subscription_id": "kind"}, "must differ from each other"),
        (f"{KEYS}, x double", {"ttl": 3}, "ttl is for streams"),
        (f"{KEYS}, x double", {"ttl": 0}, "ttl is a number of seconds above 0, not 0"),
    ],
)
def test_updates_that_do_not_serve(
    spark: SparkSession, columns: str, options: Row, message: str
) -> None:
    frame = spark.createDataFrame([], columns)
    subscriptions = spark.createDataFrame([("s", "x > 1")], FILTERS)
    with pytest.raises(bm.SparkError, match=message):
        transitions(frame, subscriptions, schema=SCHEMA, **options)


@pytest.mark.parametrize(
    ("columns", "rows", "message"),
    [
        ("subscription_id string", [("s",)], "neither a column 'filter' nor columns of bounds"),
        ("filter string", [("x > 1",)], "the subscriptions have no column 'subscription_id'"),
        (FILTERS, [(None, "x > 1")], "subscription: the id is null"),
        (FILTERS, [("s", None)], "subscription 's': there is no filter: it is null"),
        (FILTERS, [("s", "x >")], "subscription 's': the condition is incomplete"),
        (FILTERS, [("s", "x IS NULL")], "subscription 's': x IS NULL: a publication has"),
        (FILTERS, [("s", "TRUE")], "subscription 's': .* constrains no dimension"),
        (FILTERS, [("s", "x > 1"), ("s", "x > 2")], "subscription 's': the id occurs 2 times"),
        ("subscription_id int, x_low int, x_high int", [(1, 5, 4)], "subscription 1: .*no value"),
        ("subscription_id int, x int", [(1, None)], "subscription 1: .* constrains no dimension"),
        ("subscription_id int, x int, x_low int", [(1, 1, 1)], "give a value or a range"),
    ],
)
def test_subscriptions_that_do_not_serve(
    spark: SparkSession, columns: str, rows: list[Any], message: str
) -> None:
    frame = spark.createDataFrame([], f"{KEYS}, x double")
    subscriptions = spark.createDataFrame(rows, columns)
    with pytest.raises(bm.SparkError, match=message):
        transitions(frame, subscriptions, schema=SCHEMA)


PLANT = {
    "map": bm.Schema({"x": "float", "y": "float"}),
    "engine": bm.Schema({"temperature": "float", "rpm": "int"}),
}
BUS = (
    "publication_id string, sequence int, region string, filter string, x double, y double, "
    "temperature double, off boolean"
)
ZONES = (
    "subscription_id string, region string, filter string, x_low double, x_high double, "
    "y_low double, y_high double, temperature_low double"
)


@pytest.mark.portable
def test_several_spaces_and_regions(stateful: SparkSession, tmp_path: Path) -> None:
    """The example of the guide to spaces, in batch and as a stream."""
    zones = [
        ("overheating", "hot", "hot AND (centre OR station)", None, None, None, None, 100.0),
        ("overheating", "centre", None, 4.0, 6.0, 4.0, 6.0, None),
        ("overheating", "station", None, 8.0, 9.0, 4.0, 5.0, None),
        ("near the station", None, None, 7.0, 10.0, 3.0, 6.0, None),
    ]
    rows = [
        ("bus", 1, "position", "position OR motor", 1.0, 5.0, None, None),
        ("bus", 1, "motor", None, None, None, 80.0, None),
        ("bus", 2, "motor", None, None, None, 105.0, None),
        ("bus", 3, "position", None, 8.5, None, None, None),
        ("bus", 4, "motor", "position", None, None, None, True),
        ("bus", 5, None, None, None, None, None, True),
    ]
    expected = [
        ("bus", "near the station", "deleted", 5),
        ("bus", "near the station", "enter", 3),
        ("bus", "overheating", "enter", 3),
        ("bus", "overheating", "leave", 4),
    ]
    subscriptions = stateful.createDataFrame(zones, ZONES)
    updates = stateful.createDataFrame(rows, BUS)
    options: Row = {"spaces": PLANT, "removed": "off"}
    told = transitions(updates, subscriptions, **options)
    assert dict(told.dtypes)["sequence"] == "int"
    assert listed(told.collect()) == expected
    place = Place(tmp_path)
    for last in (2, 5):
        some = updates.where(f"sequence between {last - 2} and {last}")  # number 2 comes twice
        some.coalesce(1).write.mode("append").parquet(str(place.updates))
        stream = stateful.readStream.schema(BUS).parquet(str(place.updates))
        place.run(transitions(stream, subscriptions, **options))
    assert place.rows() == expected


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([("s", "a", "a AND c", 1.0), ("s", "b", None, 1.0)], {}, "'s': no region is named 'c'"),
        ([("s", "a", "a", 1.0), ("s", "b", "b", 1.0)], {}, "'s': it has two filters: 'a' and 'b'"),
        ([("s", "a", None, 1.0), ("s", "a", None, 2.0)], {}, "two rows with region 'a'"),
        ([("s", None, None, None)], {}, "subscription 's': it constrains no dimension"),
        ([(None, None, None, 1.0)], {}, "'subscription_id' of the subscriptions has a null"),
        ([("s", None, None, 1.0)], {"schema": SCHEMA}, "spaces are for a table"),
        ([("s", None, None, 1.0)], {"shards": 2}, "spaces are for a table"),
    ],
)
def test_subscriptions_of_spaces_that_do_not_serve(
    spark: SparkSession, rows: list[Any], options: Row, message: str
) -> None:
    frame = spark.createDataFrame([], f"{KEYS}, x double")
    columns = "subscription_id string, region string, filter string, x double"
    with pytest.raises(bm.SparkError, match=message):
        transitions(frame, spark.createDataFrame(rows, columns), spaces=PLANT, **options)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ((None, 1, 1, 1), "an update has no publication_id: it is null"),
        (("p", None, 1, 1), "an update has no sequence: it is null"),
        (("p", 7, 3, 2), "publication 'p', update 7: dimension 'y': no value is in"),
    ],
)
def test_updates_that_make_no_sense_end_the_job(
    spark: SparkSession, row: tuple[Any, ...], message: str
) -> None:
    frame = spark.createDataFrame([("o", 1, 1, 1), row], f"{KEYS}, y_low int, y_high int")
    subscriptions = spark.createDataFrame([("s", "y > 1")], FILTERS)
    told = transitions(frame, subscriptions, schema=SCHEMA)
    with pytest.raises(Exception, match=message):
        told.collect()


def test_streams_that_do_not_serve(spark: SparkSession, place: Place) -> None:
    subscriptions = spark.createDataFrame([("s", "x > 1")], FILTERS)
    with pytest.raises(bm.SparkError, match=rf'spark.conf.set\("{PROVIDER}", "{ROCKSDB}"\)'):
        transitions(place.stream(spark), subscriptions, schema=SCHEMA)
    frame = spark.createDataFrame([], f"{KEYS}, x double")
    with pytest.raises(bm.SparkError, match="the subscriptions are a stream"):
        transitions(frame, place.stream(spark), schema=SCHEMA)


WITHOUT_PACKAGE = """
import pickle, sys
sys.modules["boxmatch"] = None  # as if it were not installed
with open(sys.argv[1], "rb") as file:
    processor = pickle.load(file)
processor.init(None)
"""


def test_a_worker_without_the_package_says_so(tmp_path: Path) -> None:
    from pyspark import cloudpickle

    made = processor(scalar("boxmatch.spark.publications.keeper:Keeper", ttl=None))
    (tmp_path / "processor").write_bytes(cloudpickle.dumps(made))
    command = [sys.executable, "-c", WITHOUT_PACKAGE, str(tmp_path / "processor")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "has no package boxmatch: install it" in done.stderr
