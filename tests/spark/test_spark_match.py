"""`build_index` and `match` on a real Spark, compared with `scan` on full sets of pairs."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

import boxmatch as bm
from boxmatch.spark import (
    build_index,
    explain,
    local_session,
    match,
    read_version,
    register_broker,
    rejected,
)
from boxmatch.spark.build import number_of_shards
from boxmatch.spark.versions import forget, version_numbers
from boxmatch.workloads import MarketWorkload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKET = MarketWorkload(symbols=20)
TICKS = 1_500
ALERTS = 600
BAD = {
    "bad1": "prize > 3",
    "bad2": "price >",
    "bad3": None,
}


def ticks() -> pa.Table:
    """Ticks with some values missing."""
    table = MARKET.ticks(0, TICKS)
    rng = random.Random(1)
    for place, name in enumerate(table.column_names):
        values = [None if rng.random() < 0.03 else v for v in table[name].to_pylist()]
        table = table.set_column(place, name, pa.array(values, table.schema.field(name).type))
    return table


def alerts() -> dict[str, str]:
    texts = MARKET.alert_texts(0, ALERTS // 2).to_pylist()
    texts += MARKET.odd_texts(ALERTS // 2, ALERTS).to_pylist()
    return {f"s{row['id']}": row["filter"] for row in texts}


def events_of(spark: SparkSession, table: pa.Table | None = None, parts: int = 3) -> DataFrame:
    table = ticks() if table is None else table
    numbered = table.append_column("event_id", pa.array(range(table.num_rows)))
    schema = (
        "symbol string, price double, volume long, spread double, side string, halted boolean, "
        "at timestamp, event_id long"
    )
    return spark.createDataFrame(numbered.to_pylist(), schema).repartition(parts)


def subscriptions_of(spark: SparkSession, filters: Iterable[tuple[Any, Any]]) -> DataFrame:
    return spark.createDataFrame(list(filters), "subscription_id string, filter string")


def scanned(filters: dict[str, str]) -> list[tuple[int, str]]:
    matcher = bm.Matcher(MARKET.schema, index="scan")
    matcher.subscribe_many([{"id": one, "filter": text} for one, text in filters.items()])
    result = matcher.match_batch(ticks())
    return sorted(zip(result.event.tolist(), result.subscription.tolist(), strict=True))


def pairs(matches: DataFrame) -> list[tuple[Any, Any]]:
    return sorted((row["event_id"], row["subscription_id"]) for row in matches.collect())


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    return events_of(spark).cache()


@pytest.fixture(scope="module")
def index(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("index"))
    table = subscriptions_of(spark, [*alerts().items(), *BAD.items()])
    build_index(table, path, schema=MARKET.schema, shards=3)
    return path


@pytest.mark.portable
@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_both_plans_equal_scan(events: DataFrame, index: str, plan: Any) -> None:
    expected = scanned(alerts())
    assert len(expected) > 1_000
    assert pairs(match(events, index, plan=plan)) == expected
    arrays = match(events, index, plan=plan, how="arrays", keep=["symbol", "at"]).collect()
    assert len(arrays) == TICKS
    assert sorted((r["event_id"], one) for r in arrays for one in r["subscription_ids"]) == expected
    symbols = ticks()["symbol"].to_pylist()
    assert all(row["symbol"] == symbols[row["event_id"]] for row in arrays)
    counts = match(events, index, plan=plan, how="counts").collect()
    assert {row["event_id"]: row["matches"] for row in counts} == {
        event: sum(one == event for one, _ in expected) for event in range(TICKS)
    }


@pytest.mark.portable
def test_rejected_filters_do_not_stop_the_job(spark: SparkSession, index: str) -> None:
    version = read_version(index)
    assert (version.subscriptions, version.rejected, len(version.shards)) == (ALERTS, 3, 3)
    told = {row["subscription_id"]: row for row in rejected(spark, index).collect()}
    assert {one: row["filter"] for one, row in told.items()} == BAD
    assert told["bad1"]["reason"].startswith("there is no attribute 'prize'")
    assert told["bad3"]["reason"] == "there is no filter: it is null"


@pytest.mark.portable
def test_from_tables_alone(spark: SparkSession, events: DataFrame) -> None:
    """Schema inferred, index in a folder of its own, all columns kept, columns of other names."""
    filters = {one: text for one, text in alerts().items() if "side" not in text}
    table = subscriptions_of(spark, filters.items()).toDF("who", "what")
    renamed = events.withColumnRenamed("event_id", "tick")
    result = match(
        renamed, table, event_id="tick", subscription_id="who", filter="what", keep="all"
    )
    assert result.columns == [
        "tick", "symbol", "price", "volume", "spread", "side", "halted", "at", "who",
    ]  # fmt: skip
    rows = result.collect()
    assert sorted((row["tick"], row["who"]) for row in rows) == scanned(filters)
    prices = ticks()["price"].to_pylist()
    assert all(row["price"] == prices[row["tick"]] for row in rows)


@pytest.mark.portable
def test_a_table_with_rejected_filters_is_warned_of(
    spark: SparkSession, events: DataFrame, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    good = {"cheap": "price < 25", "dear": "price > 100"}
    match(events, subscriptions_of(spark, good.items()), path=tmp_path / "good")
    assert not caplog.records
    path = str(tmp_path / "bad")
    match(events, subscriptions_of(spark, [*good.items(), *BAD.items()]), path=path)
    said = f"3 of 5 subscriptions are rejected; boxmatch.spark.rejected(spark, {path!r}) says why"
    assert caplog.messages == [said]
    match(events, path)
    assert caplog.messages == [said]


@pytest.mark.portable
def test_a_table_at_a_path_or_of_a_function(
    spark: SparkSession, events: DataFrame, tmp_path: Path
) -> None:
    filters = {one: text for one, text in list(alerts().items())[:50] if "side" not in text}
    table = subscriptions_of(spark, filters.items())
    table.write.parquet(str(tmp_path / "table"))
    table.write.json(str(tmp_path / "json"))
    expected = scanned(filters)
    assert pairs(match(events, tmp_path / "table")) == expected
    assert pairs(match(events, str(tmp_path / "json"), format="json")) == expected
    assert pairs(match(events, lambda spark: subscriptions_of(spark, filters.items()))) == expected
    assert "to be built" in str(explain(events, tmp_path / "table"))


@pytest.mark.portable
def test_events_without_an_id_are_skipped_and_counted(events: DataFrame, index: str) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    some = events.withColumn("event_id", f.when(f.col("event_id") % 5 != 0, f.col("event_id")))
    expected = [pair for pair in scanned(alerts()) if pair[0] % 5]
    assert pairs(match(some, index, on_null_id="skip")) == expected
    observation = Observation()
    counts = match(some, index, how="counts", plan="sharded", on_null_id=observation).collect()
    assert sum(row["matches"] for row in counts) == len(expected)
    assert observation.get["null_ids"] == TICKS // 5


@pytest.mark.portable
def test_columns_of_bounds_and_integer_ids(spark: SparkSession, events: DataFrame) -> None:
    table = MARKET.alerts(0, 300)
    rows = table.rename_columns(["subscription_id", *table.column_names[1:]]).to_pylist()
    frame = spark.createDataFrame(
        rows,
        "subscription_id int, symbol string, side string, halted boolean, price_low double, "
        "price_high double, volume_low long, spread_high double, at_low timestamp, "
        "at_high timestamp",
    )
    matcher = bm.Matcher(MARKET.schema, index="scan")
    matcher.subscribe_many(table)
    result = matcher.match_batch(ticks())
    expected = sorted(zip(result.event.tolist(), result.subscription.tolist(), strict=True))
    matches = match(events, frame, schema=MARKET.schema, shards=2)
    assert matches.schema["subscription_id"].dataType.simpleString() == "bigint"
    assert pairs(matches) == expected


def test_the_next_version_is_incremental(
    spark: SparkSession, events: DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filters = alerts()
    first = build_index(
        subscriptions_of(spark, filters.items()), tmp_path, schema=MARKET.schema, shards=2
    )
    assert build_index(
        subscriptions_of(spark, reversed(filters.items())), tmp_path, schema=MARKET.schema
    ) == first  # fmt: skip
    changed = {**filters, "s3": "price > 0", "new": "halted = TRUE"}
    del changed["s4"]
    second = build_index(subscriptions_of(spark, changed.items()), tmp_path, schema=MARKET.schema)
    assert (second.version, second.subscriptions) == (2, ALERTS)
    kept = {segment.name for shard in first.shards for segment in shard.segments}
    segments = [segment for shard in second.shards for segment in shard.segments]
    assert kept < {segment.name for segment in segments}
    assert sum(segment.rows for segment in segments if segment.name not in kept) == 2
    assert pairs(match(events, tmp_path)) == scanned(changed)
    assert pairs(match(events, first)) == scanned(filters)

    # Another number of shards, and the empty table, are written afresh.
    build_index(subscriptions_of(spark, filters.items()), tmp_path, schema=MARKET.schema, shards=1)
    assert pairs(match(events, tmp_path)) == scanned(filters)
    none = build_index(subscriptions_of(spark, []), tmp_path, schema=MARKET.schema)
    assert (none.version, none.subscriptions) == (4, 0)
    assert pairs(match(events, tmp_path)) == []
    counts = match(events, none, how="counts").agg({"matches": "sum", "event_id": "count"})
    assert sorted(counts.collect()[0].asDict().values()) == [0, TICKS]
    assert version_numbers(tmp_path) == [1, 2, 3, 4]
    last = build_index(
        subscriptions_of(spark, filters.items()),
        tmp_path,
        schema=MARKET.schema,
        keep_versions=2,
    )
    assert version_numbers(tmp_path) == [4, 5]
    monkeypatch.setattr("boxmatch.spark.versions._GRACE_SECONDS", -1)
    forget(tmp_path, before=5)
    left = {segment.name for shard in last.shards for segment in shard.segments}
    assert {folder.name for folder in (tmp_path / "segments").iterdir()} == left
    assert pairs(match(events, tmp_path)) == scanned(filters)
    with pytest.raises(bm.SparkError, match="no version 2"):
        read_version(tmp_path, 2)


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_only_columns_with_conditions_are_read(
    spark: SparkSession, events: DataFrame, tmp_path: Path, plan: Any
) -> None:
    from pyspark.sql import functions as f

    filters = {"a": "volume > 5000", "b": "price < 40 OR volume < 200"}
    first = build_index(subscriptions_of(spark, filters.items()), tmp_path, schema=MARKET.schema)
    assert first.attributes == ("price", "volume")
    # A worker that reads the symbol fails: the column that it would get does.
    symbol = f.when(f.col("event_id") >= 0, f.raise_error(f.lit("read"))).cast("string")
    told = events.withColumn("symbol", symbol)
    assert pairs(match(told, first, plan=plan)) == scanned(filters)
    filters |= {"c": "symbol < 'M'"}
    second = build_index(subscriptions_of(spark, filters.items()), tmp_path, schema=MARKET.schema)
    assert second.attributes == ("symbol", "price", "volume")
    assert pairs(match(events, second, plan=plan)) == scanned(filters)


def test_events_with_very_many_matches(spark: SparkSession, tmp_path: Path) -> None:
    """More events than a worker begins with, more matches than it has in memory at a time."""
    from pyspark.sql import functions as f

    table = spark.range(500).select(
        f.col("id").alias("subscription_id"), f.lit("price > 0").alias("filter")
    )
    frame = spark.range(1_300).select(f.col("id").alias("event_id"), f.lit(1.5).alias("price"))
    schema = bm.Schema({"price": "float"})
    index = build_index(table, tmp_path, schema=schema, shards=2)
    for plan in ("replicated", "sharded"):
        found = match(frame, index, plan=plan).toArrow()
        event, subscription = (np.asarray(found[name]) for name in found.column_names)
        assert np.array_equal(np.sort(500 * event + subscription), np.arange(650_000))
    arrays = match(frame, index, how="arrays").select(f.size("subscription_ids").alias("n"))
    assert {row["n"] for row in arrays.distinct().collect()} == {500}


def test_explain(events: DataFrame, index: str) -> None:
    plan = explain(events, index)
    assert plan.plan == "replicated"
    assert "600 subscriptions in 3 shards" in str(plan)
    small = explain(events, index, replicate_up_to=10, how="counts", keep=["price"])
    assert small.plan == "sharded"
    assert "more than" in small.reason
    assert "tasks; each opens one shard" in str(small)
    assert "counts, with columns event_id, price, matches" in str(small)
    assert explain(events, index, plan="sharded").reason == "as asked"


def test_explain_builds_nothing(spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
    """A table that no job can read: what `explain` says comes from its columns alone."""
    unreadable = spark.range(1).selectExpr(
        "id as subscription_id", "cast(raise_error('read') as string) as filter"
    )
    path = tmp_path / "index"
    plan = explain(events, unreadable, schema=MARKET.schema, path=path)
    assert plan.plan is None
    assert "sharded if the index takes more than 8,192.0 MiB once it is built" in str(plan)
    assert f"to be built at {path}, in as many shards as" in str(plan)
    one = explain(events, unreadable, schema=MARKET.schema, shards=1)
    assert (one.plan, one.reason) == ("replicated", "the index will be one shard")
    assert "to be built at a temporary folder, in 1 shard\n" in str(one)
    three = explain(events, unreadable, schema=MARKET.schema, shards=3, plan="sharded")
    assert "x 3 = " in str(three)
    open_number = explain(events, unreadable, schema=MARKET.schema, plan="sharded")
    assert "events: sent to every shard; each task opens one\n" in str(open_number)
    assert not path.exists()
    with pytest.raises(bm.SparkError, match="shards must be at least 1"):
        explain(events, unreadable, schema=MARKET.schema, shards=0)

    table = subscriptions_of(spark, [("a", "price > 1")])
    match(events, table, schema=MARKET.schema, path=path, shards=2)
    again = explain(events, table, schema=MARKET.schema, path=path)
    assert f"to be built at {path}, in 2 shards\n" in str(again)
    assert version_numbers(path) == [1]


def test_shards_are_of_like_size(spark: SparkSession, tmp_path: Path) -> None:
    table = spark.range(20_000).selectExpr(
        "id as subscription_id", "'price > ' || (id % 7) as filter"
    )
    version = build_index(table, tmp_path, schema=bm.Schema({"price": "float"}), shards=8)
    sizes = [shard.subscriptions for shard in version.shards]
    assert sum(sizes) == 20_000
    assert max(sizes) < 1.1 * min(sizes)


@pytest.mark.parametrize(("rows", "shards"), [(0, 1), (10, 1), (11, 2), (80, 2), (90, 3)])
def test_number_of_shards(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, rows: int, shards: int
) -> None:
    """As many as there are slots, which are two here, but neither too small nor too large."""
    monkeypatch.setattr("boxmatch.spark.build._SMALL_SHARD", 10)
    monkeypatch.setattr("boxmatch.spark.build._LARGE_SHARD", 40)
    assert number_of_shards(spark.range(rows)) == shards


class TestBadInput:
    """Each is found on the driver, before any job, where that can be."""

    def test_a_spark_that_is_too_old(
        self, spark: SparkSession, events: DataFrame, index: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("pyspark.__version__", "4.1.2")
        older = "needs PySpark 4.2 or later, and this is 4.1.2"
        with pytest.raises(bm.SparkError, match=older):
            match(events, index)
        with pytest.raises(bm.SparkError, match=older):
            local_session()
        with pytest.raises(bm.SparkError, match=older):
            register_broker(spark)

    def test_events(self, spark: SparkSession, events: DataFrame, index: str) -> None:
        pandas, not_spark = events.toPandas(), "are not a Spark DataFrame but of type pandas"
        with pytest.raises(bm.SparkError, match=f"the events {not_spark}"):
            match(pandas, subscriptions_of(spark, [("a", "price > 1")]))
        with pytest.raises(bm.SparkError, match=f"the subscriptions {not_spark}"):
            match(events, pandas, schema={"price": "float"})
        with pytest.raises(bm.SparkError, match=f"the subscriptions {not_spark}"):
            explain(events, pandas, schema={"price": "float"})
        wrong: Any = []
        with pytest.raises(bm.SparkError, match=r"but of type list: spark\.createDataFrame makes"):
            build_index(wrong, "somewhere", schema={"price": "float"})
        with pytest.raises(bm.SparkError, match="no column 'event_id'"):
            match(events.drop("event_id"), index)
        with pytest.raises(bm.SparkError, match=r"no column 'price', which the schema"):
            match(events.drop("price"), index)
        with pytest.raises(bm.SparkError, match="column 'price' of the events is of type string"):
            match(events.withColumn("price", events["price"].cast("string")), index)
        with pytest.raises(bm.SparkError, match="no column of the events can be an attribute"):
            match(events.select("event_id"), subscriptions_of(spark, [("a", "x > 1")]))

    def test_options(self, events: DataFrame, index: str) -> None:
        with pytest.raises(bm.SparkError, match="how is one of pairs, arrays, counts"):
            match(events, index, how="pears")  # type: ignore[arg-type]
        with pytest.raises(bm.SparkError, match="plan is one of"):
            match(events, index, plan="any")  # type: ignore[arg-type]
        with pytest.raises(bm.SparkError, match="on_null_id is one of fail, skip, not 'drop'"):
            match(events, index, on_null_id="drop")  # type: ignore[arg-type]
        with pytest.raises(bm.SparkError, match="replicate_up_to is a whole number, not '8G'"):
            match(events, index, replicate_up_to="8G")  # type: ignore[arg-type]
        with pytest.raises(bm.SparkError, match="no column 'colour'"):
            match(events, index, keep=["colour"])
        with pytest.raises(bm.SparkError, match="keep is a list"):
            match(events, index, keep="some")  # type: ignore[arg-type]
        clash = events.withColumnRenamed("spread", "subscription_id")
        with pytest.raises(bm.SparkError, match="and so would the result"):
            match(clash, index, keep="all")

    def test_subscriptions(self, spark: SparkSession, events: DataFrame, tmp_path: Path) -> None:
        good = subscriptions_of(spark, [("a", "price > 1")])
        schema = MARKET.schema
        with pytest.raises(bm.SparkError, match="no column 'subscription_id'"):
            build_index(good.drop("subscription_id"), tmp_path, schema=schema)
        with pytest.raises(bm.SparkError, match="neither a column 'filter' nor columns of bounds"):
            build_index(good.drop("filter"), tmp_path, schema=schema)
        with pytest.raises(bm.SparkError, match="is double; an id is a string or an integer"):
            build_index(
                good.selectExpr("1.5D as subscription_id", "filter"), tmp_path, schema=schema
            )
        with pytest.raises(bm.SparkError, match="column 'filter' of the subscriptions is int"):
            build_index(good.selectExpr("subscription_id", "1 as filter"), tmp_path, schema=schema)
        bounds = good.selectExpr("subscription_id", "'x' as price_low")
        with pytest.raises(
            bm.SparkError, match="'price_low' of the subscriptions is of type string"
        ):
            build_index(bounds, tmp_path, schema=schema)
        with pytest.raises(bm.SparkError, match="shards must be at least 1"):
            build_index(good, tmp_path, schema=schema, shards=0)
        with pytest.raises(bm.SparkError, match="shards is a whole number, not 'x'"):
            build_index(good, tmp_path, schema=schema, shards="x")  # type: ignore[arg-type]
        with pytest.raises(bm.IndexConfigError):
            build_index(good, tmp_path, schema=schema, index_options={"colour": 1})
        assert version_numbers(tmp_path) == []

    def test_paths(
        self, spark: SparkSession, events: DataFrame, index: str, tmp_path: Path
    ) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(bm.SparkError, match="cannot write to"):
            build_index(
                subscriptions_of(spark, [("a", "price > 1")]),
                tmp_path / "file" / "index",
                schema=MARKET.schema,
            )
        with pytest.raises(bm.SparkError, match="there is no index at"):
            match(events, tmp_path / "nothing")
        with pytest.raises(bm.SparkError, match="built for another schema"):
            match(events, index, schema=bm.Schema({"price": "float"}))

    def test_null_and_shared_event_ids(
        self, spark: SparkSession, events: DataFrame, index: str
    ) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        null = events.withColumn("event_id", f.when(f.col("event_id") != 7, f.col("event_id")))
        with pytest.raises(PySparkException, match="'event_id' is null in 1 of"):
            match(null, index).collect()
        shared = events.withColumn("event_id", f.col("event_id") % 1_000)
        assert match(shared, index, how="counts").count() == TICKS
        with pytest.raises(PySparkException, match="more than one event has the id"):
            match(shared, index, how="counts", plan="sharded").collect()

    def test_a_value_that_is_none_of_the_enumeration(self, events: DataFrame, index: str) -> None:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as f

        odd = events.withColumn("side", f.lit("hold"))
        with pytest.raises(PySparkException, match=r"attribute 'side': 'hold'"):
            match(odd, index).collect()

    def test_two_writers(self, spark: SparkSession, tmp_path: Path) -> None:
        from boxmatch.spark.versions import publish

        table = subscriptions_of(spark, [("a", "price > 1")])
        version = build_index(table, tmp_path, schema=MARKET.schema)
        with pytest.raises(bm.SparkError, match="another writer has just made version 1"):
            publish(version)


def test_a_failed_task_leaves_no_version(spark: SparkSession, tmp_path: Path) -> None:
    """Half-built shards are there, but no version names them, and building again works."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    table = subscriptions_of(spark, [(f"s{n}", "price > 1") for n in range(100)])
    fails = table.withColumn(
        "filter",
        f.when(f.col("subscription_id") == "s50", f.raise_error(f.lit("disk on fire"))).otherwise(
            f.col("filter")
        ),
    )
    with pytest.raises(PySparkException, match="disk on fire"):
        build_index(fails, tmp_path, schema=MARKET.schema, shards=2)
    assert version_numbers(tmp_path) == []
    assert build_index(table, tmp_path, schema=MARKET.schema, shards=2).subscriptions == 100


def test_timestamps_without_zone_are_utc(spark: SparkSession, tmp_path: Path) -> None:
    schema = bm.Schema({"at": "timestamp"})
    table = subscriptions_of(spark, [("a", "at >= TIMESTAMP '2026-01-05 12:00:00'")])
    index = build_index(table, tmp_path, schema=schema)
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    with_zone = spark.createDataFrame([(1, noon)], "event_id long, at timestamp")
    without = spark.sql("SELECT 2L AS event_id, TIMESTAMP_NTZ '2026-01-05 12:00:00' AS at")
    date = spark.sql("SELECT 3L AS event_id, DATE '2026-01-06' AS at")
    for frame, event in ((with_zone, 1), (without, 2), (date, 3)):
        assert pairs(match(frame, index)) == [(event, "a")]


# Values at the edges of Spark's types, as SQL, and constants to compare them with.
EDGES: dict[str, tuple[str, list[str], list[str]]] = {
    "price": (
        "decimal(10, 2)",
        ["20.30", "20.29", "0.10", "-0.10", "99999999.99"],
        ["20.3", "20.300", "20.299999999999997", "0.1", "-0.1", "99999999.99"],
    ),
    "d": (
        "decimal(20, 0)",
        ["9007199254740991", "9007199254740992", "9007199254740994", "1152921504606847000"],
        ["9007199254740991", "9007199254740992", "9007199254740994", "1152921504606847000"],
    ),
    "q": (
        "decimal(38, 19)",
        ["0.3", "0.30000000000000004", "-0.3", "1234567890.12345", "0.0000000000000000001"],
        ["0.3", "0.30000000000000004", "-0.3", "1234567890.12345", "0.0000000000000000001"],
    ),
    "n": (
        "bigint",
        ["9007199254740993", "9223372036854775807", "-1"],
        ["9007199254740992", "9007199254740993", "9223372036854775807", "-1"],
    ),
    "wide": (
        "bigint",
        ["9007199254740992", "-9007199254740992", "1152921504606847000"],
        ["9007199254740992", "-9007199254740992", "1152921504606847000", "0.5"],
    ),
    "double": (
        "double",
        ["0.1", "0.3", "0.30000000000000004", "9007199254740992", "5e-324"],
        ["0.1", "0.3", "0.30000000000000004", "9007199254740992"],
    ),
    "real": ("float", ["0.1", "0.5"], ["0.1", "0.5", "0.10000000149011612"]),
    "at": (
        "timestamp",
        ["'2024-01-01 00:00:00'", "'2024-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"],
        ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'"],
    ),
    "local": (
        "timestamp_ntz",
        ["'2024-01-01 00:00:00'", "'2024-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"],
        ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '1969-12-31 23:59:59.999999'"],
    ),
    "day": (
        "date",
        ["'2024-01-01'", "'1969-12-31'"],
        ["TIMESTAMP '2024-01-01 00:00:00'", "TIMESTAMP '2024-01-01 00:00:00.000001'"],
    ),
}
EDGE_SCHEMA = bm.Schema(
    {
        **dict.fromkeys(("price", "d", "q", "wide", "double", "real"), "float"),
        "n": "int",
        **dict.fromkeys(("at", "local", "day"), "timestamp"),
    }
)


def edges_of(spark: SparkSession, more: Mapping[str, str] | None = None) -> DataFrame:
    """A row for every value, the other columns null, and one with the values of `more`."""
    rows = [{name: value} for name, (_, values, _) in EDGES.items() for value in values]
    if more is not None:
        rows = [dict(more)]
    selects = []
    for number, row in enumerate(rows):
        columns = [
            f"CAST({row.get(name, 'NULL')} AS {kind}) AS {name}"
            for name, (kind, _, _) in EDGES.items()
        ]
        selects.append(f"SELECT {number}L AS event_id, {', '.join(columns)}")
    return spark.sql(" UNION ALL ".join(selects))


def test_values_compare_as_in_spark(spark: SparkSession) -> None:
    """Decimals above all: Spark compares them exactly."""
    events = edges_of(spark).coalesce(1).cache()
    tests = [
        f"{name} {operator} {constant}"
        for name, (_, _, constants) in EDGES.items()
        for operator in ("=", "<>", "<", "<=", ">", ">=")
        for constant in constants
    ]
    tests += [
        f"{name} BETWEEN {low} AND {high}"
        for name, (_, _, constants) in EDGES.items()
        for low, high in pairwise(constants)
    ]
    answers = events.selectExpr(
        "event_id", *(f"coalesce({test}, FALSE) AS t{n}" for n, test in enumerate(tests))
    ).collect()
    wanted = sorted(
        (row["event_id"], test) for row in answers for n, test in enumerate(tests) if row[f"t{n}"]
    )
    assert len(wanted) > 100
    found = match(events, subscriptions_of(spark, ((t, t) for t in tests)), schema=EDGE_SCHEMA)
    assert pairs(found) == wanted
    # The same values as bounds of subscriptions.
    bounds = events.selectExpr(
        "CAST(event_id AS string) AS subscription_id",
        *(f"{name} AS {name}_{end}" for name in EDGES for end in ("low", "high")),
    )
    same = pairs(match(events, bounds, schema=EDGE_SCHEMA))
    assert same == sorted((row["event_id"], str(row["event_id"])) for row in answers)


INEXACT = {
    "d": "9007199254740993",
    "q": "0.3000000000000000001",
    "wide": "9007199254740993",
}


def test_what_no_float_holds_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    tests = [(name, f"{name} IS NOT NULL") for name in EDGES]
    build_index(subscriptions_of(spark, tests), tmp_path, schema=EDGE_SCHEMA)
    for name, value in INEXACT.items():
        reason = (
            rf"attribute '{name}': .*{value}.* in row 0 cannot be held exactly by a float .*"
            rf"round it yourself, as CAST\({name} AS DOUBLE\) does"
        )
        with pytest.raises(PySparkException, match=reason):
            match(edges_of(spark, {name: value}), tmp_path).collect()
    # Subscriptions are set apart instead, be they text or columns.
    texts = [(name, f"{name} = {value}") for name, value in INEXACT.items()]
    build_index(subscriptions_of(spark, texts), tmp_path / "texts", schema=EDGE_SCHEMA)
    told = {
        r["subscription_id"]: r["reason"] for r in rejected(spark, tmp_path / "texts").collect()
    }
    for name, value in INEXACT.items():
        assert f"'{value}' has more digits than a float holds" in told[name]
    bounds = edges_of(spark, INEXACT).selectExpr("event_id AS subscription_id", "d")
    build_index(bounds, tmp_path / "bounds", schema=EDGE_SCHEMA)
    ((reason,),) = rejected(spark, tmp_path / "bounds").select("reason").collect()
    assert "attribute 'd': Decimal('9007199254740993') has more digits than a float" in reason
