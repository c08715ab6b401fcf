"""Filters of other systems and events of any structure on Spark, compared with a `Matcher`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import boxmatch as bm
from boxmatch.spark import (
    build_index,
    explain,
    follow_changes,
    match,
    match_function,
    match_stream,
    register,
    rejected,
    transitions,
    update_index,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Filter = tuple[str | None, str | None]
"""The text, and its dialect."""

FILTERS: dict[str, Filter] = {
    "stopped": ('{"detail": {"state": [{"anything-but": ["running", "pending"]}]}}', "eventbridge"),
    "one item": (
        '{"detail": {"items": {"sku": ["a"], "n": [{"numeric": [">", 1]}]}}}',
        "eventbridge",
    ),
    "or": ('{"$or": [{"source": ["aws.s3"]}, {"detail": {"n": [7]}}]}', "eventbridge"),
    "wild": ('{"source": [{"wildcard": "a*.*2"}]}', "eventbridge"),
    "missing": ('{"detail": {"n": [{"exists": false}]}}', "eventbridge"),
    "attributes": ('{"source": ["aws.ec2", {"prefix": "com."}]}', "sns"),
    "body": ('{"detail": {"n": [{"numeric": ["<=", 7.5]}]}}', "sns-body"),
    "selector": ("source LIKE 'aws.%' AND NOT source = 'aws.s3'", "jms"),
    "absent": ("source IS NULL OR region IS NULL", "jms"),
    "expression": ("source = 'aws.ec2' OR EXISTS region", "cesql"),
    "sql": ("detail.n > 3 AND detail.state <> 'running'", None),
    "also sql": ("source IN ('aws.s3', 'com.x')", "sql"),
    "any": ("'a' = ANY(detail.items.sku)", None),
}
WRONG: dict[str, tuple[Filter, str]] = {
    "no list": (('{"source": "aws.ec2"}', "eventbridge"), "takes a list of values"),
    "no JSON": (("source = 'x'", "sns"), "offset"),
    "half": (("source = ", "jms"), "offset"),
    "unknown": (("source = 'x'", "xpath"), "there is no dialect 'xpath' (known are sql, eventb"),
    "null": ((None, "jms"), "a filter of a dialect is a text"),
    "none": ((None, None), "there is no filter: it is null"),
}  # fmt: skip
EVENTS: list[dict[str, Any]] = [
    {"source": "aws.ec2", "region": "eu", "detail": {"state": "running", "n": 7}},
    {"source": "aws.ec2", "detail": {"state": "stopped", "n": 7.5}},
    {"source": "aws.s3", "detail": {"items": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]}},
    {"source": "com.x", "detail": {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]}},
    {"source": "com.x", "region": "us", "detail": {"state": "pending", "items": [], "n": 1e9}},
    {"detail": {"state": "Zoë", "n": 8, "items": [{"sku": "a", "n": 5}]}},
    {"source": None, "region": "eu", "detail": None},
    {"source": "", "region": "", "detail": {"state": ""}},
]
SUBSCRIPTIONS = "subscription_id string, filter string, dialect string"


def expected(
    filters: Mapping[str, Filter], events: Any, schema: Any = None
) -> list[tuple[int, str]]:
    matcher = bm.Matcher(schema, index="scan")
    for one, (text, dialect) in filters.items():
        assert text is not None
        matcher.subscribe(one, text, dialect=dialect)
    found = matcher.match_batch(events)
    return sorted(zip(found.event.tolist(), found.subscription.tolist(), strict=True))


def subscriptions(spark: SparkSession, filters: Mapping[str, Filter]) -> DataFrame:
    return spark.createDataFrame([(one, *filter) for one, filter in filters.items()], SUBSCRIPTIONS)


def pairs(matches: DataFrame) -> list[tuple[int, str]]:
    return sorted((row["event_id"], row["subscription_id"]) for row in matches.collect())


def topic(spark: SparkSession, events: Sequence[Any]) -> DataFrame:
    texts = [one if isinstance(one, str | None) else json.dumps(one) for one in events]
    return spark.createDataFrame(list(enumerate(texts)), "event_id long, value string")


@pytest.mark.portable
def test_events_as_json_texts(spark: SparkSession, tmp_path: Path) -> None:
    """Built, matched by all functions, updated, and merged."""
    from pyspark.sql import functions as f

    wrong = {one: filter for one, (filter, _) in WRONG.items()}
    path = str(tmp_path / "index")
    version = build_index(subscriptions(spark, {**FILTERS, **wrong}), path, shards=2)
    assert (version.schema, version.rejected) == (bm.Schema(), len(WRONG))
    told = {row["subscription_id"]: row for row in rejected(spark, path).collect()}
    assert {one: row["filter"] for one, row in told.items()} == {
        one: text for one, (text, _) in wrong.items()
    }
    for one, (_, says) in WRONG.items():
        assert says in told[one]["reason"], one
    assert "(at offset 11)" in told["no list"]["reason"]

    events = topic(spark, [*EVENTS, None]).cache()
    wanted = expected(FILTERS, [*EVENTS, {}])
    assert {one for _, one in wanted} == set(FILTERS)
    assert pairs(match(events, path, event="value", plan="sharded")) == wanted
    bytes_too = events.withColumn("value", f.col("value").cast("binary"))
    kept = match(bytes_too, path, event="VALUE", how="arrays", keep="all").collect()
    assert sorted((r["event_id"], one) for r in kept for one in r["subscription_ids"]) == wanted
    assert all(r["value"] is None or json.loads(r["value"]) for r in kept)
    found = match_function(path)(f.col("value"))
    assert pairs(events.select("event_id", f.explode(found).alias("subscription_id"))) == wanted

    register(spark)
    events.createOrReplaceTempView("dialect_events")
    table = f"TABLE(dialect_events), '{path}', event => 'value'"
    assert pairs(spark.sql(f"SELECT * FROM boxmatch_pairs({table})")) == wanted
    inside = f"SELECT event_id, explode(wanted_by('{path}', value)) AS subscription_id"
    assert pairs(spark.sql(f"{inside} FROM dialect_events")) == wanted

    # The same text in another dialect, a filter of another text, and one that is gone.
    changed = {
        "attributes": (FILTERS["attributes"][0], "eventbridge"),
        "sql": ("source LIKE 'a%'", "jms"),
        "also sql": (FILTERS["also sql"][0], None),  # nothing new
    }
    rows = [(one, *filter, False) for one, filter in changed.items()]
    changes = spark.createDataFrame(
        [*rows, ("wild", None, None, True), ("bad", "[", "sns", False)],
        f"{SUBSCRIPTIONS}, removed boolean",
    )
    before = sum(segment.rows for shard in version.shards for segment in shard.segments)
    version = update_index(changes, path)
    after = {**FILTERS, **changed}
    del after["wild"]
    assert version.rejected == len(WRONG) + 1
    assert before == len(FILTERS) + len(WRONG)
    assert pairs(match(events, version, event="value")) == expected(after, [*EVENTS, {}])
    assert update_index(changes, path) == version

    # Of one dialect, without the column; and an index that continues with another one.
    one_dialect = {
        one: (text, "eventbridge") for one, (text, name) in FILTERS.items() if name == "sns"
    }
    table = subscriptions(spark, one_dialect).drop("dialect")
    version = build_index(table, path, shards=2, dialect="eventbridge")
    assert pairs(match(events, version, event="value")) == expected(one_dialect, [*EVENTS, {}])
    again = build_index(subscriptions(spark, one_dialect), path, shards=2)
    assert again == version
    other = build_index(table, path, shards=2, dialect="sns-body")
    assert other.version == version.version + 1


ROWS: list[dict[str, Any]] = [
    {
        "source": "aws.ec2",
        "detail": {"state": "on", "n": 1.5, "items": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}]},
        "tags": {"tier": "gold", "zone": "x"},
        "price": Decimal("12.3456"),
        "at": dt.datetime(2026, 3, 1, 9, 30, tzinfo=dt.UTC),
        "payload": b"1",
    },
    {
        "source": "aws.s3",
        "detail": {"state": "off", "items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}]},
        "tags": {"tier": "tin"},
        "price": Decimal("100.0000"),
    },
    {"source": "x", "detail": {"n": 3.0, "items": []}, "tags": {}},
    {"detail": {"state": ""}, "price": Decimal("0.0001")},
    {},
]
COLUMNS = """event_id long, source string, tags map<string, string>, price decimal(20, 4),
    at timestamp, payload binary,
    detail struct<state: string, n: double, items: array<struct<sku: string, n: int>>>"""
OF_ROWS: dict[str, Filter] = {
    "one item": FILTERS["one item"],
    "gold": ('{"tags": {"tier": ["gold"]}}', "eventbridge"),
    "no tier": ('{"tags": {"tier": [{"exists": false}]}}', "eventbridge"),
    "state": ('{"detail": {"state": [{"anything-but": "on"}]}}', "sns-body"),
    "selector": ("source LIKE 'aws.%' OR price < 1", "jms"),
    "exact": ("price = 12.3456", None),
    "sql": ("detail.n >= 1.5 AND tags.zone IS NULL", "sql"),
}


def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [{"event_id": number, **one} for number, one in enumerate(ROWS)], COLUMNS
    )


@pytest.mark.portable
def test_rows_of_any_structure(spark: SparkSession, tmp_path: Path) -> None:
    events = rows(spark)
    filters = {
        **OF_ROWS,
        "time": ("at > TIMESTAMP '2026-03-01 09:00:00'", None),
        "id": ("event_id = 2 OR payload IS NOT NULL", None),  # bytes are payload
    }
    index = build_index(subscriptions(spark, filters), tmp_path / "index", shards=1)
    dicts = [{**one, "event_id": number, "payload": None} for number, one in enumerate(ROWS)]
    wanted = expected(filters, dicts)
    assert {one for _, one in wanted} == set(filters)
    assert pairs(match(events, index)) == wanted
    register(spark)
    events.drop("payload").createOrReplaceTempView("dialect_rows")
    assert (
        pairs(spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(dialect_rows), '{index.path}')"))
        == wanted
    )


@pytest.mark.portable
def test_columns_with_and_without_types(spark: SparkSession) -> None:
    """Attributes of type json, of structs and of texts, beside others and inside of structs."""
    from pyspark.sql import functions as f

    schema = bm.Schema(
        {"source": "string", "price": "decimal(20, 4)", "tags": "json", "event.detail": "json"}
    )

    def moved(text: str | None, dialect: str | None) -> Filter:
        assert text is not None
        if dialect in (None, "sql", "jms"):
            return text.replace("detail.", "event.detail."), dialect
        pattern = json.loads(text)
        return json.dumps({"event": pattern} if "detail" in pattern else pattern), dialect

    filters = {one: moved(*filter) for one, filter in OF_ROWS.items()}
    filters["number"] = ('{"price": [{"numeric": [">", 99]}]}', "eventbridge")
    dicts = [{**one, "event": {"detail": one.get("detail")}} for one in ROWS]
    wanted = expected(filters, dicts, schema)
    assert {one for _, one in wanted} == set(filters)
    table = subscriptions(spark, filters)
    events = rows(spark).withColumn("event", f.struct("detail"))
    assert pairs(match(events, table, schema=schema)) == wanted
    texts = events.withColumn("event", f.struct(f.to_json("detail").alias("detail")))
    assert pairs(match(texts, table, schema=schema)) == wanted


@pytest.mark.portable
def test_streams(spark: SparkSession, tmp_path: Path) -> None:
    """An index that follows changes with dialects, and a stream of JSON texts."""
    topic(spark, EVENTS).coalesce(1).write.parquet(str(tmp_path / "events"))
    changes = [(one, *filter, False) for one, filter in FILTERS.items()]
    kinds = f"{SUBSCRIPTIONS}, removed boolean"
    spark.createDataFrame(changes, kinds).coalesce(1).write.parquet(str(tmp_path / "changes"))
    now = {"availableNow": True}
    follow_changes(
        spark.readStream.schema(kinds).parquet(str(tmp_path / "changes")),
        tmp_path / "index",
        checkpoint=tmp_path / "changing",
        schema=bm.Schema(),
        shards=1,
        trigger=now,
    ).awaitTermination()
    match_stream(
        spark.readStream.schema("event_id long, value string").parquet(str(tmp_path / "events")),
        str(tmp_path / "index"),
        event="value",
        sink=str(tmp_path / "matches"),
        checkpoint=tmp_path / "matching",
        trigger=now,
    ).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "matches"))
    assert pairs(found) == expected(FILTERS, EVENTS)


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Nothing but the last calls runs a job."""
    from pyspark.sql import functions as f

    rules = subscriptions(spark, FILTERS)
    texts = rules.drop("dialect")
    bounds = spark.createDataFrame([("a", 1)], "subscription_id string, detail_low int")
    events = topic(spark, EVENTS)
    open_index = build_index(
        texts.where("subscription_id = 'selector'"), tmp_path / "index", dialect="jms", shards=1
    )
    typed = {"detail": "json"}
    calls: list[tuple[str, DataFrame, Any, dict[str, Any]]] = [
        (r"no dialect 'jmss' \(known.*\); did you mean 'jms'", events, texts, {"dialect": "jmss"}),
        ("have a column 'dialect', and all", events, rules, {"dialect": "jms"}),
        ("column 'dialect' of the subscriptions is int", events,
         texts.withColumn("dialect", f.lit(1)), {}),
        ("dialect 'jms', and the subscriptions have no column 'filter'", events, bounds,
         {"dialect": "jms", "schema": typed}),
        ("'detail_low' of the subscriptions gives bounds of 'detail', which is a json", events,
         bounds, {"schema": typed}),
        ("'jms' is that of filters of a table", events, open_index, {"dialect": "jms"}),
        ("the events have no column 'text'", events, texts, {"event": "text"}),
        (r"column 'value' of the events is of type struct<a:int>, not JSON text: to_json\(value\)",
         events.withColumn("value", f.struct(f.lit(1).alias("a"))), texts, {"event": "value"}),
        (r"'detail' of the events is of type variant, which is no json: pass to_json\(detail\)",
         events.select("event_id", f.parse_json("value").alias("detail")), texts,
         {"schema": typed}),
        ("column 'value' of the events is of type map<int,int>, parts of which no event can have",
         events.withColumn("value", f.create_map(f.lit(1), f.lit(2))), open_index, {}),
    ]  # fmt: skip
    for says, given, table, options in calls:
        with pytest.raises(bm.SparkError, match=says):
            explain(given, table, **{"event": None, **options})
    kinds = "publication_id string, sequence long, n double"
    updates = spark.createDataFrame([("p", 1, 2.0)], kinds)
    table = spark.createDataFrame([("n", "n > 1", "jms")], SUBSCRIPTIONS)
    with pytest.raises(bm.SparkError, match="'n' is of dialect 'jms', whose filters are no reg"):
        transitions(updates, table, schema={"n": "float"}, path=str(tmp_path / "regions"))
    for says, text in [("this is not JSON", "{"), ("is an object, not a list", "[]")]:
        with pytest.raises(Exception, match=f"column 'value' of the event 1: .*{says}"):
            match(topic(spark, [EVENTS[0], text]), open_index, event="value").collect()
