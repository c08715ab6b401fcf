"""`max_false_positive_rate` on Spark: nothing is missing, and the promise holds over all shards."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.errors import SparkError
from boxmatch.spark import (
    build_index,
    explain,
    match,
    match_function,
    match_stream,
    read_version,
    update_index,
)
from boxmatch.spark.adapting import BatchRates, _seconds
from boxmatch.spark.matching import METADATA
from boxmatch.spark.pipeline import Pipeline, PipelineConfig
from boxmatch.spark.pipeline.report import as_html
from boxmatch.spark.sinks import ParquetSink
from boxmatch.spark.streaming import RATE_COLUMN
from boxmatch.spark.workloads import events, subscriptions
from boxmatch.workloads.ranges import RangeWorkload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WORKLOAD = RangeWorkload(
    subscriptions=3_000,
    attributes=40,
    predicates=4,
    event_size=40,
    width=0.5,
    attribute_choice="zipf",
    attribute_alpha=1.5,
)
EVENTS = 400


def pairs(found: DataFrame) -> set[tuple[int, int]]:
    rows = [(row["event_id"], row["subscription_id"]) for row in found.collect()]
    assert len(set(rows)) == len(rows), "no subscription is named twice for an event"
    return set(rows)


@pytest.fixture(scope="module")
def ticks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = str(tmp_path_factory.mktemp("events") / "events")
    events(spark, WORKLOAD, EVENTS, partitions=2).write.parquet(path)
    return spark.read.parquet(path)


@pytest.fixture(scope="module")
def path(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """An index of two shards in two segments each: some subscriptions changed, some went."""
    path = str(tmp_path_factory.mktemp("rates") / "index")
    wanted = subscriptions(spark, WORKLOAD, form="filters", partitions=1)
    build_index(wanted, path, schema=WORKLOAD.schema, index="rein", shards=2)
    names = WORKLOAD.schema.names
    rare = f"{names[-1]} < 500000 OR {names[0]} < 100000 AND {names[-2]} > 300000"
    changed = wanted.where("subscription_id % 15 <> 1").selectExpr(
        "subscription_id", f"IF(subscription_id % 15 = 2, '{rare}', filter) AS filter"
    )
    index = build_index(changed, path, schema=WORKLOAD.schema, index="rein")
    assert [len(shard.segments) for shard in index.shards] == [2, 2]
    return path


@pytest.mark.portable
def test_nothing_is_missing_and_the_promise_holds(ticks: DataFrame, path: str) -> None:
    exact = pairs(match(ticks, path))
    assert exact == pairs(match(ticks, path, max_false_positive_rate=0.0))
    skipped: tuple[str, ...] = ()
    for rate in (0.01, 0.1, 0.5):
        plan = explain(ticks, path, max_false_positive_rate=rate)
        assert plan.skipping is not None
        assert set(skipped) < set(plan.skipping.attributes)
        skipped = plan.skipping.attributes
        assert f"{rate:.3%} are allowed; not checked: " in str(plan)
        found = pairs(match(ticks, path, max_false_positive_rate=rate))
        assert exact < found
        assert len(found - exact) <= rate * len(exact)
        assert plan.skipping.expected <= rate


@pytest.mark.portable
def test_all_plans_and_results_skip_the_same(ticks: DataFrame, path: str, tmp_path: Path) -> None:
    rate = 0.3
    whole = pairs(match(ticks, path, max_false_positive_rate=rate))
    assert whole > pairs(match(ticks, path))
    written = tmp_path / "matches"
    sharded = match(ticks, path, max_false_positive_rate=rate, plan="sharded")
    sharded.write.parquet(str(written))
    read = ticks.sparkSession.read.parquet(str(written))
    assert pairs(read) == whole
    plan = explain(ticks, path, max_false_positive_rate=rate)
    assert plan.skipping is not None
    assert read.schema["subscription_id"].metadata[METADATA] == {
        "max_false_positive_rate": rate,
        "expected_false_positive_rate": plan.skipping.expected,
        "skipped_attributes": list(plan.skipping.attributes),
    }
    for plans in ("replicated", "sharded"):
        options: dict[str, Any] = {"max_false_positive_rate": rate, "plan": plans}
        arrays = match(ticks, path, how="arrays", **options)
        assert METADATA in arrays.schema["subscription_ids"].metadata
        listed = [(r["event_id"], one) for r in arrays.collect() for one in r["subscription_ids"]]
        assert sorted(listed) == sorted(whole)
        counts = match(ticks, path, how="counts", **options).collect()
        assert sum(row["matches"] for row in counts) == len(whole)
    wanted_by = match_function(path, max_false_positive_rate=rate)
    by_function = ticks.selectExpr("event_id", "struct(*) AS event").select(
        "event_id", wanted_by("event").alias("ids")
    )
    listed = [(r["event_id"], one) for r in by_function.collect() for one in r["ids"]]
    assert sorted(listed) == sorted(whole)


def test_measured_selectivities_choose(
    spark: SparkSession, ticks: DataFrame, tmp_path: Path
) -> None:
    """Ranges cover half of the domain: what is measured is less cautious than the estimate."""
    path = str(tmp_path / "index")
    wanted = subscriptions(spark, WORKLOAD, form="filters", partitions=1)
    index = build_index(wanted, path, schema=WORKLOAD.schema, index="rein", shards=2)
    known = dict.fromkeys(WORKLOAD.schema.names, 0.5)
    told = build_index(wanted, path, schema=WORKLOAD.schema, index="rein", selectivity=known)
    assert (told.version, told.segment_names) == (2, index.segment_names), "only figures are new"
    again = build_index(wanted, path, schema=WORKLOAD.schema, index="rein", selectivity=known)
    assert again.version == 2
    rate = 0.05
    guessed, measured = (
        explain(ticks, one, max_false_positive_rate=rate).skipping for one in (index, told)
    )
    assert guessed is not None
    assert measured is not None
    assert set(guessed.attributes) < set(measured.attributes)
    exact = pairs(match(ticks, told))
    found = pairs(match(ticks, told, max_false_positive_rate=rate))
    assert exact < found
    assert len(found - exact) <= rate * len(exact)
    gone = wanted.where("subscription_id % 15 = 3").selectExpr("*", "TRUE AS removed")
    changed = update_index(gone, path)
    rest = build_index(
        wanted.where("subscription_id % 15 <> 3"), tmp_path / "rest", schema=WORKLOAD.schema,
        index="rein", shards=2, selectivity=known,
    )  # fmt: skip
    assert changed.skipping is not None
    assert rest.skipping is not None
    assert changed.skipping.frequency == rest.skipping.frequency
    np.testing.assert_allclose(changed.skipping.added, rest.skipping.added)
    np.testing.assert_allclose(changed.skipping.true, rest.skipping.true)
    with pytest.raises(SparkError, match="no attribute 'nosuch'"):
        build_index(wanted, path, schema=WORKLOAD.schema, selectivity={"nosuch": 0.5})
    with pytest.raises(SparkError, match="share of events, not 2"):
        build_index(wanted, path, schema=WORKLOAD.schema, selectivity={"a0": 2})


def test_an_index_that_gains_nothing_stays_exact(spark: SparkSession, ticks: DataFrame) -> None:
    wanted = subscriptions(spark, WORKLOAD, 300, form="filters", partitions=1)
    plan = explain(ticks, wanted, schema=WORKLOAD.schema, max_false_positive_rate=0.5)
    assert "none, as the index 'tile' is not faster for skipping predicates" in str(plan)
    found = match(ticks, wanted, schema=WORKLOAD.schema, max_false_positive_rate=0.5)
    assert pairs(found) == pairs(match(ticks, wanted, schema=WORKLOAD.schema))
    assert found.schema["subscription_id"].metadata[METADATA]["skipped_attributes"] == []


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, float("nan"), True, "much"])
def test_bad_rates_are_refused(ticks: DataFrame, path: str, rate: Any) -> None:
    for call in (match, explain):
        with pytest.raises(SparkError, match="from 0 up to, but not, 1"):
            call(ticks, path, max_false_positive_rate=rate)
    with pytest.raises(SparkError, match="from 0 up to, but not, 1"):
        match_function(path, max_false_positive_rate=rate)


ADJUSTER = Adjuster(threshold=50, step=0.15, maximum=0.3)
AGES = (0, 100, 200, 300, 0, 0)
"""Seconds for which the oldest event of each batch has waited."""
RATES = [0.0, 0.15, 0.3, 0.3, 0.0, 0.0]
"""Of the batches: batch 1 fails and is run again, by a query whose adjuster takes larger steps."""


@pytest.mark.portable
def test_a_stream_adapts(ticks: DataFrame, path: str, tmp_path: Path) -> None:
    """Each batch has its rate, also when it is run again, by a query with another adjuster."""
    from pyspark.sql import functions as f

    spark = ticks.sparkSession
    files = tmp_path / "files"
    for batch, age in enumerate(AGES):
        mine = ticks.where(f"event_id % {len(AGES)} = {batch}").coalesce(1)
        arrived = f.current_timestamp() - f.expr(f"INTERVAL '{age}' SECOND")
        mine.withColumn("arrived", arrived).write.parquet(str(files / f"{batch}"))
        for file in (files / f"{batch}").iterdir():
            os.utime(file, (1_700_000_000 + batch,) * 2)
    schema = spark.read.parquet(str(files / "0")).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    broken = tmp_path / "broken"
    whole = ParquetSink(str(tmp_path / "out"))
    whole.claim("test")

    def sink(matches: DataFrame, batch_id: int) -> None:
        whole(matches, batch_id)
        if batch_id == 1 and not broken.exists():
            broken.touch()
            raise OSError("the network is down")

    def run(adjuster: Adjuster) -> None:
        match_stream(
            stream.parquet(str(files / "*")), path, sink=sink, checkpoint=tmp_path / "checkpoint",
            trigger={"availableNow": True}, adjuster=adjuster, arrived="arrived",
        ).awaitTermination()  # fmt: skip

    with pytest.raises(Exception, match="the network is down"):
        run(ADJUSTER)
    before = pairs(spark.read.parquet(f"{whole.path}/batch=1"))
    run(Adjuster(threshold=50, step=0.3, maximum=0.3))
    assert pairs(spark.read.parquet(f"{whole.path}/batch=1")) == before
    found = spark.read.parquet(str(whole.path)).cache()
    rates = {row[0]: row[1] for row in found.groupBy("batch").agg(f.max(RATE_COLUMN)).collect()}
    assert [rates[batch] for batch in range(len(AGES))] == RATES
    assert found.select("batch", RATE_COLUMN).distinct().count() == len(AGES)
    exact = pairs(match(ticks, path))
    assert pairs(found) > exact
    for rate in set(RATES):
        mine = pairs(found.where(f.col(RATE_COLUMN) == rate))
        true = {pair for pair in exact if rates[pair[0] % len(AGES)] == rate}
        assert mine >= true
        assert len(mine - true) <= rate * len(true)
        assert (mine > true) == (rate > 0)


def test_rates_by_how_far_batches_fall_behind() -> None:
    """Without a column that says when events arrived: by how late a batch begins."""
    now = 0.0
    rates = BatchRates(Adjuster(threshold=5, step=0.1, maximum=0.3), interval=10, clock=lambda: now)
    events: Any = None  # not looked at
    found = []
    #      begins, takes
    for begins, takes in (
        (0, 9),
        (10, 18),
        (28, 19),
        (47, 20),
        (67, 1),
        (70, 1),
        (200, 30),
        (230, 1),
    ):
        now = float(begins)
        found.append(round(rates.decide(events), 3))
        now += takes
        rates.note(float(begins))
    #            on time, late, later, most late, early, after a pause, late again
    assert found == [0.0, 0.0, 0.1, 0.2, 0.3, 0.2, 0.0, 0.1]


def test_intervals_of_triggers(spark: SparkSession) -> None:
    for text, seconds in {
        "1 second": 1,
        "interval 2 minutes": 120,
        "250 milliseconds": 0.25,
    }.items():
        assert _seconds(spark, text) == seconds
    with pytest.raises(SparkError, match="'often' is not an interval"):
        _seconds(spark, "often")


def test_bad_adjustments(spark: SparkSession, path: str, tmp_path: Path) -> None:
    stream = spark.readStream.format("rate").load()

    def refuse(says: str, **options: Any) -> None:
        with pytest.raises(SparkError, match=says):
            match_stream(stream, path, sink=tmp_path / "out", checkpoint=tmp_path / "c", **options)

    refuse("from 0 up to, but not, 1", max_false_positive_rate=2)
    refuse("not both", max_false_positive_rate=0.1, adjuster=ADJUSTER)
    refuse("only an adjuster", arrived="timestamp")
    refuse("no column 'when'", adjuster=ADJUSTER, arrived="when")
    refuse("is bigint and not a timestamp", adjuster=ADJUSTER, arrived="value")
    refuse("an Adjuster|Adjuster, not 0.1", adjuster=0.1)
    refuse("'often' is not an interval", adjuster=ADJUSTER, trigger={"processingTime": "often"})
    assert not (tmp_path / "c").exists(), "refused before anything is written"
    refuse("is of the kind 'rein', not 'hem'", index="hem", schema=WORKLOAD.schema)


def test_a_stream_at_one_rate_with_subscriptions_of_a_table(
    spark: SparkSession, ticks: DataFrame, tmp_path: Path
) -> None:
    table, files = str(tmp_path / "table"), str(tmp_path / "files")
    subscriptions(spark, WORKLOAD, form="filters", partitions=1).write.parquet(table)
    ticks.write.parquet(files)
    match_stream(
        spark.readStream.schema(ticks.schema).parquet(files), table, sink=tmp_path / "out",
        checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True},
        schema=WORKLOAD.schema, index="rein", max_false_positive_rate=0.3,
    ).awaitTermination()  # fmt: skip
    found = spark.read.parquet(str(tmp_path / "out"))
    assert found.select(RATE_COLUMN).distinct().collect() == [(0.3,)]
    exact = pairs(match(ticks, str(tmp_path / "checkpoint/boxmatch/index")))
    assert pairs(found) > exact
    assert len(pairs(found) - exact) <= 0.3 * len(exact)


@pytest.mark.slow
def test_a_pipeline_measures_selectivities_first(
    spark: SparkSession, ticks: DataFrame, tmp_path: Path
) -> None:
    ticks.write.parquet(str(tmp_path / "events"))
    wanted = subscriptions(spark, WORKLOAD, form="filters", partitions=1)
    wanted.write.parquet(str(tmp_path / "wanted"))
    settings: dict[str, Any] = {
        "events": {"path": "events", "attributes": dict.fromkeys(WORKLOAD.schema.names, "int")},
        "subscriptions": {"path": "wanted"},
        "output": {"path": "output", "columns": []},
        "match": {"index": "rein", "shards": 2, "max_false_positive_rate": 0.05},
    }
    result = Pipeline(PipelineConfig.parse(settings, folder=tmp_path)).run(spark)
    index = read_version(tmp_path / "output/index")
    known = {a["name"]: a["selectivity"] for a in result.summary["attributes"] if a["predicates"]}
    told = build_index(
        wanted, tmp_path / "told", schema=index.schema, index="rein", shards=2, selectivity=known
    )
    assert told.skipping == index.skipping, "what was measured is what was used"
    said = result.summary["matches"]["skipping"]
    found = spark.read.parquet(str(tmp_path / "output/notifications"))
    note = found.schema["subscription_id"].metadata[METADATA]
    assert note == {name: said[name] for name in note}
    assert note["skipped_attributes"]
    exact = pairs(match(ticks, index))
    false = len(pairs(found)) - len(exact)
    assert pairs(found) > exact
    assert false <= 0.05 * len(exact)
    assert said["sample"] == {"true": len(exact), "false": false}  # all events are in the sample
    page = Path(result.report).read_text(encoding="utf-8")
    assert f"({false:,} false, {len(exact):,} true). No match is missing." in page
    (derived,) = (one for one in result.summary["stages"] if one["stage"] == "derive")
    assert derived["rows_per_second"] is None, "it had nothing to do"
    said |= {"skipped_attributes": [], "reason": "as no attribute is rare"}
    assert "All matches are exact, as no attribute is rare." in as_html(dict(result.summary))
