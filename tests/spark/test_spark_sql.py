"""The functions of `register` in SQL, compared with `scan` on full sets of pairs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_spark_match import (
    ALERTS,
    BAD,
    MARKET,
    TICKS,
    alerts,
    events_of,
    pairs,
    scanned,
    subscriptions_of,
)

import boxmatch as bm
from boxmatch.spark import build_index, match, match_function, read_version, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ", ".join(MARKET.schema.names)


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    frame = events_of(spark).cache()
    frame.createOrReplaceTempView("sql_ticks")
    return frame


@pytest.fixture(scope="module")
def index(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("index"))
    table = subscriptions_of(spark, [*alerts().items(), *BAD.items()])
    build_index(table, path, schema=MARKET.schema, shards=3)
    return path


@pytest.mark.portable
def test_functions_equal_scan(spark: SparkSession, events: DataFrame, index: str) -> None:
    expected = scanned(alerts())
    register(spark)
    found = spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(sql_ticks), '{index}')")
    assert found.schema.simpleString() == "struct<event_id:bigint,subscription_id:string>"
    assert pairs(found) == expected
    arrays = spark.sql(f"""
        SELECT event_id AS tick, subscription_ids
        FROM boxmatch_arrays(index => '{index}', events => TABLE(sql_ticks))
    """).collect()
    assert len(arrays) == TICKS
    assert sorted((tick, one) for tick, some in arrays for one in some) == expected
    counts = spark.sql(f"""
        SELECT symbol, sum(matches) AS total
        FROM boxmatch_counts(TABLE(SELECT {NAMES}, event_id AS id FROM sql_ticks), '{index}',
                             event_id => 'id')
        JOIN sql_ticks USING (event_id) GROUP BY symbol
    """)
    assert sum(row["total"] for row in counts.collect()) == len(expected)
    struct = f"wanted_by('{index}', struct({NAMES}))"
    wanted = spark.sql(f"SELECT event_id, explode({struct}) AS subscription_id FROM sql_ticks")
    assert pairs(wanted) == expected


@pytest.mark.portable
def test_method_chains(events: DataFrame, index: str) -> None:
    from pyspark.sql import functions as f

    expected = scanned(alerts())
    assert pairs(events.transform(match, index)) == expected
    wanted_by = match_function(index)
    event = f.struct(*MARKET.schema.names)
    assert pairs(
        events.select("event_id", f.explode(wanted_by(event)).alias("subscription_id"))
    ) == expected  # fmt: skip


def test_partitions_are_matched_in_parallel(
    spark: SparkSession, events: DataFrame, index: str
) -> None:
    """Without PARTITION BY the events stay where they are, and each partition is a task."""
    register(spark)
    query = f"SELECT spark_partition_id() AS p FROM boxmatch_counts(TABLE(sql_ticks), '{index}')"
    sizes = [row["count"] for row in spark.sql(query).groupBy("p").count().collect()]
    assert len(sizes) == 3
    assert sum(sizes) == TICKS


@pytest.mark.portable
def test_types_of_ids_and_versions(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "index")
    schema = bm.Schema({"price": "float", "event_id": "int"})  # an attribute called like the ids
    table = spark.createDataFrame([(1, "price > 2")], "subscription_id int, filter string")
    build_index(table, path, schema=schema)
    more = spark.createDataFrame([(2, "event_id = 5")], table.schema)
    assert build_index(table.union(more), path, schema=schema).version == 2
    spark.createDataFrame(
        [("a", 1.0, 5), ("b", 3.0, 6)], "tick string, price double, event_id int"
    ).createOrReplaceTempView("typed_ticks")
    register(spark, event_id="string", subscription_id="long")
    call = f"boxmatch_pairs(TABLE(typed_ticks), '{path}', event_id => 'tick'"
    newest = spark.sql(f"SELECT * FROM {call})")
    assert newest.schema.simpleString() == "struct<event_id:string,subscription_id:bigint>"
    assert pairs(newest) == [("a", 2), ("b", 1)]
    assert pairs(spark.sql(f"SELECT * FROM {call}, version => 1)")) == [("b", 1)]
    register(spark, event_id="bigint", subscription_id="bigint")  # an int is a bigint too
    found = spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(typed_ticks), '{path}')")
    assert pairs(found) == [(5, 2), (6, 1)]


def test_bad_calls(spark: SparkSession, events: DataFrame, index: str, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    register(spark)
    assert read_version(index).subscriptions == ALERTS
    bad = {
        f"boxmatch_pairs(TABLE(sql_ticks), '{tmp_path}/none')": "there is no index at .*/none",
        f"boxmatch_pairs(TABLE(sql_ticks), '{index}', version => 7)": "has no version 7",
        f"boxmatch_counts(TABLE(SELECT event_id, symbol FROM sql_ticks), '{index}')": (
            "no column 'price', 'volume'.*they have: event_id, symbol"
        ),
        f"boxmatch_counts(TABLE(SELECT symbol FROM sql_ticks), '{index}')": "no column 'event_id'",
        f"boxmatch_counts(TABLE(sql_ticks), '{index}', event_id => 'symbol')": (
            "column 'symbol' of the events is string, not bigint: call boxmatch.spark.register "
            "with event_id='string'"
        ),
        f"boxmatch_counts(1, '{index}')": "the first argument is a table",
        "boxmatch_counts(TABLE(sql_ticks), 3)": "given by its path, as text, not by 3",
        f"(SELECT wanted_by('{index}', 3))": "an event is a struct with the attributes as fields",
        f"(SELECT wanted_by('{index}', struct(1 AS price)))": "no column 'symbol', 'volume'",
    }
    for query, message in bad.items():
        with pytest.raises(PySparkException, match=f"(?s){message}"):
            spark.sql(f"SELECT * FROM {query}").collect()
    register(spark, subscription_id="bigint")
    with pytest.raises(PySparkException, match="register with subscription_id='string'"):
        spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(sql_ticks), '{index}')").collect()
    wrong: Any = 3
    with pytest.raises(bm.SparkError, match="given as in SQL, such as 'bigint', not by 3"):
        register(spark, event_id=wrong)
    with pytest.raises(bm.SparkError, match="ids of subscriptions are bigint or string"):
        register(spark, subscription_id="double")
