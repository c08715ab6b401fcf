"""Names of columns as Spark resolves them: in any case, with dots, and of fields in structs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_spark_match import pairs, subscriptions_of

import boxmatch as bm
from boxmatch.spark import build_index, explain, match, register, rejected

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = bm.Schema({"Price": "float", "pos.lat": "float", "pos.at.hour": "int", "a.b": "int"})
FILTERS = {
    "price": "PRICE > 3",
    "nested": "pos.LAT >= 47 AND Pos.At.Hour < 12",
    "dotted": "a.b = 1",
    "null": "pos.lat IS NULL",
}
WANTED = [(1, "price"), (2, "dotted"), (2, "nested"), (3, "null"), (3, "price")]


def events_of(spark: SparkSession) -> DataFrame:
    return spark.sql("""
        SELECT * FROM VALUES
            (1, 4.0D, named_struct('Lat', 46.0D, 'at', named_struct('hour', 8)), 2),
            (2, 1.0D, named_struct('Lat', 47.0D, 'at', named_struct('hour', 9)), 1),
            (3, 5.0D, NULL, 0)
        AS t(EVENT_ID, price, pos, `a.b`)
    """)


@pytest.mark.portable
def test_names_resolve_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    events = events_of(spark)
    table = subscriptions_of(spark, FILTERS.items()).toDF("Subscription_ID", "FILTER")
    path = str(tmp_path / "texts")
    build_index(table, path, schema=SCHEMA)
    assert rejected(spark, path).collect() == []
    for plan in ("replicated", "sharded"):
        found = match(events, path, plan=plan, keep=["PRICE", "a.b", "pos.lat", "pos"])
        assert found.columns == ["event_id", "PRICE", "a.b", "pos.lat", "pos", "subscription_id"]
        assert pairs(found) == WANTED
        rows = {row["event_id"]: row for row in found.collect()}
        assert (rows[1]["PRICE"], rows[1]["a.b"], rows[1]["pos.lat"]) == (4.0, 2, 46.0)
        assert rows[2]["pos"]["at"]["hour"] == 9
        assert (rows[3]["pos.lat"], rows[3]["pos"]) == (None, None)
        arrays = match(events, path, plan=plan, how="arrays", keep="all")
        assert arrays.columns == ["event_id", "price", "pos", "a.b", "subscription_ids"]
        assert sorted((r[0], one) for r in arrays.collect() for one in r[-1]) == WANTED
    inferred = match(events, table, subscription_id="subscription_id")
    assert pairs(inferred) == WANTED

    bounds = spark.sql("""
        SELECT 'price' AS subscription_id, 3.5D AS PRICE_Low, NULL AS `pos.lat_high`, NULL AS `A.B`
        UNION ALL SELECT 'nested', NULL, 46.5D, NULL UNION ALL SELECT 'dotted', NULL, NULL, 1
    """)
    wanted = [(1, "nested"), (1, "price"), (2, "dotted"), (3, "price")]
    assert pairs(match(events, bounds, schema=SCHEMA)) == wanted

    events.createOrReplaceTempView("named_ticks")
    register(spark, event_id="int")
    found = spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(named_ticks), '{path}')")
    assert pairs(found) == WANTED
    event = "struct(price AS PRICE, pos, `a.b`)"
    found = spark.sql(f"""
        SELECT event_id, explode(wanted_by('{path}', {event})) AS subscription_id FROM named_ticks
    """)
    assert pairs(found) == WANTED


def test_names_that_cannot_be_told_apart(spark: SparkSession, tmp_path: Path) -> None:
    events = events_of(spark)
    table = subscriptions_of(spark, [("a", "price > 3")])
    twice = events.selectExpr("EVENT_ID", "price", "price AS Price")
    message = r"the events have more than one column 'price' \(`price`, `Price`\): rename"
    with pytest.raises(bm.SparkError, match=message):
        match(twice, table, schema={"price": "float"})
    both = events.selectExpr("EVENT_ID", "pos", "1 AS `POS.lat`")
    message = r"more than one column 'pos.lat' \(`POS.lat`, `pos`.`Lat`\)"
    with pytest.raises(bm.SparkError, match=message):
        match(both, table, schema={"pos.lat": "float"})
    with pytest.raises(bm.SparkError, match="attributes 'x' and 'X', which Spark does not tell"):
        match(events, table, schema={"x": "float", "X": "float"})
    with pytest.raises(bm.SparkError, match="attributes 'x' and 'X', which Spark does not tell"):
        build_index(table, tmp_path, schema={"x": "float", "X": "float"})
    ends = spark.sql("SELECT 'a' AS subscription_id, 1.0D AS price_low, 2.0D AS PRICE_LOW")
    with pytest.raises(bm.SparkError, match="have more than one column 'price_low'"):
        build_index(ends, tmp_path, schema={"price": "float"})
    with pytest.raises(bm.SparkError, match="a column 'subscription_id', and so would the result"):
        match(events.withColumnRenamed("pos", "SUBSCRIPTION_ID"), table, keep="all")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(bm.SparkError, match="the events have no column 'event_id'"):
            match(events, table)
        assert explain(twice, table, event_id="EVENT_ID").keep == ()
        cased = match(twice, table, event_id="EVENT_ID", path=tmp_path / "cased")
        assert sorted(row["EVENT_ID"] for row in cased.collect()) == [1, 3]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


def test_types_that_have_no_place(spark: SparkSession) -> None:
    odd = spark.sql("""
        SELECT 1 AS event_id, 1.5D AS price, INTERVAL '2' MONTH AS months, INTERVAL '2' DAY AS days,
               'Ä' COLLATE UTF8_LCASE AS word
    """)
    table = subscriptions_of(spark, [("a", "price > 1")])
    with pytest.raises(bm.SparkError, match="'months' of the events is of type interval month, wh"):
        match(odd, table, keep="all", schema={"price": "float"})
    with pytest.raises(bm.SparkError, match="is of type interval month, which is no int: cast it"):
        match(odd, table, schema={"months": "int"})
    with pytest.raises(bm.SparkError, match="is of type interval day, which is no int: cast it"):
        match(odd, table, schema={"days": "int"})
    with pytest.raises(bm.SparkError, match="compare strings by their bytes: cast it to string"):
        match(odd, table, schema={"word": "string"})
    assert pairs(match(odd, table, keep=["days"])) == [(1, "a")]
