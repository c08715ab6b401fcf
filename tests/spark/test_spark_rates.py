"""`max_false_positive_rate` on Spark: nothing is missing, and the promise holds over all shards."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from boxmatch.errors import SparkError
from boxmatch.spark import build_index, explain, match, match_function
from boxmatch.spark.matching import METADATA
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
    assert (told.version, told.shards) == (2, index.shards), "only the figures are new"
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
