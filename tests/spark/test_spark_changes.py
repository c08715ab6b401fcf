from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.spark import (
    IndexVersion,
    build_index,
    follow_changes,
    match,
    match_stream,
    read_version,
    rejected,
    update_index,
)
from boxmatch.spark.segments import Recipe, Search, open_segment, open_shards
from boxmatch.spark.segments import rejected as rejected_of
from boxmatch.spark.shard_updates import REMOVED, change_shard
from boxmatch.spark.versions import Shard, version_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = bm.Schema({"symbol": "string", "price": "float", "halted": "bool"})
GOOD = [
    "symbol = 'IBM'",
    "symbol IN ('SAP', 'KO', 'Zoé') AND price < 40",
    "symbol > 'M' OR price > 90",
    "symbol LIKE 'S%' AND NOT halted",
    "price BETWEEN 20 AND 60",
    "price < 10 AND price > 20",
    "symbol IS NULL",
    "halted OR symbol = 'A' OR price < 30 AND symbol < 'L'",
]
BAD = ["price >", "prize < 3", None]
SYMBOLS = ["A", "IBM", "KO", "SAP", "T", "Zoé", None]
EVENTS = [
    {
        "event_id": n,
        "symbol": SYMBOLS[n % 7],
        "price": n * 1.7 % 100 if n % 5 else None,
        "halted": n % 3 == 0,
    }
    for n in range(120)
]
Subscriptions = Mapping[Any, str | None]


def expected(wanted: Subscriptions) -> list[tuple[int, Any]]:
    matcher = bm.Matcher(SCHEMA, index="scan")
    good = [{"id": one, "filter": text} for one, text in wanted.items() if text not in BAD]
    matcher.subscribe_many(good)
    result = matcher.match_batch(EVENTS)
    return sorted(zip(result.event.tolist(), result.subscription.tolist(), strict=True))


def bad_of(wanted: Subscriptions) -> dict[str, str | None]:
    return {str(one): text for one, text in wanted.items() if text in BAD}


@pytest.mark.parametrize("make_id", [lambda n: n, lambda n: f"s{n}"], ids=["int", "string"])
def test_changes_of_a_shard(tmp_path: Path, make_id: Callable[[int], Any]) -> None:
    rng = random.Random(8)
    recipe = Recipe(SCHEMA, "tile", {})
    path = str(tmp_path)
    wanted: dict[Any, str | None] = {}
    shard = Shard()
    pieces = []
    for step in range(40):
        count = rng.choice([0, 1, 2, 5, 30] if step else [60])
        changes: dict[Any, tuple[bool, str | None]] = {}
        for n in rng.sample(range(90), count):
            gone = rng.random() < 0.35
            changes[make_id(n)] = gone, rng.choice(GOOD * 4 + BAD)
        if step == 30:
            changes = dict.fromkeys(wanted, (True, None))
        kind = pa.int64() if make_id(0) == 0 else pa.large_string()
        rows = pa.table(
            {
                "id": pa.array(changes, kind),
                "fingerprint": pa.array([hash(x) for x in changes.values()], pa.int64()),
                REMOVED: pa.array([gone for gone, _ in changes.values()], pa.bool_()),
                "filter": pa.array([text for _, text in changes.values()], pa.string()),
            }
        )
        before, then = shard, dict(wanted)
        shard = change_shard(path, recipe, before.segments, rows)
        for one, (gone, text) in changes.items():
            wanted.pop(one, None) if gone else wanted.update({one: text})
        assert found_in(path, shard) == expected(wanted)
        assert found_in(path, before) == expected(then)
        assert (shard.subscriptions, shard.rejected) == (
            len(wanted) - len(bad_of(wanted)), len(bad_of(wanted)),
        )  # fmt: skip
        segments = [open_segment(path, entry.name) for entry in shard.segments]
        told = rejected_of(segments).to_pylist()
        assert {row["subscription_id"]: row["filter"] for row in told} == bad_of(wanted)
        assert change_shard(path, recipe, shard.segments, rows) == shard
        pieces.append(len(shard.segments))
    assert 1 in pieces[5:]  # merged
    assert max(pieces) > 4


def found_in(path: str, shard: Shard) -> list[tuple[int, Any]]:
    (opened,) = open_shards(path, [[entry.name for entry in shard.segments]])
    events = pa.RecordBatch.from_pylist(EVENTS).select(SCHEMA.names)
    return sorted(
        (row, one)
        for rows, ids in opened.find(events, Search())
        for row, one in zip(rows.tolist(), ids.to_pylist(), strict=True)
    )


def pairs(matches: DataFrame) -> list[tuple[int, Any]]:
    return sorted((row["event_id"], row["subscription_id"]) for row in matches.collect())


CHANGES = "subscription_id string, filter string, gone boolean, at long"
Change = tuple[str | None, str | None, bool | None, int | None]


@pytest.fixture
def events(spark: SparkSession) -> DataFrame:
    kinds = "event_id long, symbol string, price double, halted boolean"
    return spark.createDataFrame([tuple(one.values()) for one in EVENTS], kinds)


def test_updates_equal_rebuilding(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    rng = random.Random(3)
    path, rebuilt = tmp_path / "index", tmp_path / "rebuilt"
    wanted: dict[str, str | None] = {}

    def update(rows: Sequence[Change], **options: Any) -> IndexVersion:
        frame = spark.createDataFrame(list(rows), CHANGES)
        return update_index(frame, path, removed="gone", **options)

    with pytest.raises(bm.SparkError, match="no index at"):
        update([("a", GOOD[0], False, 1)])
    for step in range(4):
        rows: list[Change] = []
        for at in range(60 if step == 0 else 12):
            one, text, gone = (
                f"s{rng.randrange(50)}",
                rng.choice(GOOD * 3 + BAD),
                rng.random() < 0.3,
            )
            rows.append((one, text, gone or None, at))
            wanted.pop(one, None) if gone else wanted.update({one: text})
        rows += rows[:3]  # repeated, with their order
        rng.shuffle(rows)
        version = update(rows, order="at", schema=SCHEMA, shards=2)
        assert version.version == step + 1
        assert pairs(match(events, path)) == expected(wanted)
        assert update(rows, order="at") == version  # applied already
    table = spark.createDataFrame(list(wanted.items()), "subscription_id string, filter string")
    again = build_index(table, rebuilt, schema=SCHEMA)
    assert (again.subscriptions, again.rejected) == (version.subscriptions, version.rejected)
    shown = ("subscription_id", "filter", "reason")
    assert sorted(rejected(spark, path).select(*shown).collect(), key=str) == sorted(
        rejected(spark, rebuilt).select(*shown).collect(), key=str
    )
    assert build_index(table, path, schema=SCHEMA).shards == version.shards  # nothing is new

    # A shard of a whole table and of changes, merged.
    other = {one: rng.choice(GOOD) for one in list(wanted)[::2]}
    rows = [(one, text, None, None) for one, text in other.items()]
    frame = spark.createDataFrame(rows, CHANGES)
    merged = update_index(frame, rebuilt, removed="gone")
    assert [len(shard.segments) for shard in merged.shards] == [1]
    assert pairs(match(events, rebuilt)) == expected({**wanted, **other})

    # Without an order, contradictions and null ids are rejected until something is said of them.
    update([("x", GOOD[0], None, 1), ("x", GOOD[1], None, 2), (None, GOOD[0], None, 3)])
    assert pairs(match(events, path)) == expected(wanted)
    reasons = {row["reason"] for row in rejected(spark, path).collect()}
    assert {
        "the id occurs 2 times with different filters; none was kept",
        "the id is null",
    } < reasons
    wanted["x"] = GOOD[1]
    last = update([("x", GOOD[1], None, 4), ("x", GOOD[1], None, 5), (None, GOOD[0], None, 3)])
    assert pairs(match(events, path)) == expected(wanted)
    told = rejected(spark, path).collect()
    assert len(told) == last.rejected == len(bad_of(wanted)) + 1
    assert {row["subscription_id"]: row["filter"] for row in told} == {
        **bad_of(wanted), None: GOOD[0]
    }  # fmt: skip

    numbers = spark.createDataFrame([(1, "price > 1")], "subscription_id long, filter string")
    for says, frame, options in [
        ("pass removed=None", numbers, {}),
        ("ids of type long", numbers, {"removed": None}),
        ("is string, not boolean", numbers, {"removed": "filter"}),
        ("another schema", numbers, {"removed": None, "schema": {"price": "int"}}),
        ("has 2 shards, not 3", numbers, {"removed": None, "shards": 3}),
        ("no column 'when'", numbers, {"removed": None, "order": "when"}),
    ]:
        with pytest.raises(bm.SparkError, match=says):
            update_index(frame, path, **options)


def test_a_stream_of_changes(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    path, feed = tmp_path / "index", tmp_path / "feed"
    wanted: dict[str, str | None] = {}

    def change(number: int, rows: Sequence[Change]) -> None:
        spark.createDataFrame(list(rows), CHANGES).coalesce(1).write.parquet(
            str(feed / f"{number}"), mode="error"
        )
        for one, text, gone, _ in rows:
            assert one is not None
            wanted.pop(one, None) if gone else wanted.update({one: text})

    def follow() -> None:
        stream = spark.readStream.schema(CHANGES).option("maxFilesPerTrigger", 1)
        query = follow_changes(
            stream.option("recursiveFileLookup", "true").parquet(str(feed)),
            path,
            checkpoint=tmp_path / "checkpoint",
            removed="gone",
            order="at",
            schema=SCHEMA,
            trigger={"availableNow": True},
        )
        query.awaitTermination()

    def run() -> list[tuple[int, str, int]]:
        query = match_stream(
            spark.readStream.schema(events.schema).parquet(str(tmp_path / "events")),
            path,
            sink=str(tmp_path / "matches"),
            checkpoint=tmp_path / "matching",
            trigger={"availableNow": True},
        )
        query.awaitTermination()
        found = spark.read.parquet(str(tmp_path / "matches")).collect()
        return sorted((r["event_id"], r["subscription_id"], r["index_version"]) for r in found)

    change(0, [(f"s{n}", GOOD[n % len(GOOD)], None, n) for n in range(30)])
    follow()
    events.where("event_id < 60").write.parquet(str(tmp_path / "events"))
    first = [(event, one, 1) for event, one in expected(wanted) if event < 60]
    assert run() == first
    change(1, [("s1", None, True, 1), ("s2", GOOD[0], False, 2), ("s2", "price >", False, 3)])
    follow()
    version = read_version(path)
    assert (version.version, version.rejected) == (2, 1)
    assert list(version.feeds.values()) == [1]
    events.where("event_id >= 60").write.parquet(str(tmp_path / "events"), mode="append")
    assert run() == sorted(first + [(e, one, 2) for e, one in expected(wanted) if e >= 60])

    # The last batch once more, as after a crash, when somebody else has changed its subscription.
    later = spark.createDataFrame([("s1", GOOD[0], False, 9)], CHANGES)
    update_index(later, path, removed="gone")
    wanted["s1"] = GOOD[0]
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        file.unlink()
    follow()
    assert version_numbers(path) == [1, 2, 3]
    assert pairs(match(events, path)) == expected(wanted)
    with pytest.raises(bm.SparkError, match="use update_index"):
        follow_changes(later, path, checkpoint=tmp_path / "other")
