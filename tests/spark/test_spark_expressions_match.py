"""Filters over any expression, matched on Spark: Spark SQL's WHERE is the reference."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import boxmatch as bm
from boxmatch.spark import (
    build_index,
    match,
    match_function,
    match_stream,
    register,
    rejected,
    transitions,
    update_index,
)
from boxmatch.spark.columns import infer_schema
from boxmatch.spark.pipeline import Pipeline, PipelineConfig
from boxmatch.spark.versions import FORMAT, IndexVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ZONE = "Europe/Zurich"

COLUMNS = """
    event_id BIGINT, symbol STRING, city STRING, title STRING, price DOUBLE, bid DOUBLE, ask DOUBLE,
    volume BIGINT, quantity INT, amount DECIMAL(10, 2), open BOOLEAN, at TIMESTAMP, due TIMESTAMP,
    `order` STRUCT<id: BIGINT, customer: STRUCT<tier: STRING, age: INT, since: TIMESTAMP>>,
    `a.b` INT, tags ARRAY<STRING>, prices ARRAY<DOUBLE>, counts ARRAY<BIGINT>,
    times ARRAY<TIMESTAMP>, flags ARRAY<BOOLEAN>, amounts ARRAY<DECIMAL(10, 2)>,
    items ARRAY<STRUCT<price: DOUBLE, kind: STRING, n: INT, made: STRUCT<at: TIMESTAMP>>>
"""

SAME = [
    # Arithmetic and comparisons of attributes
    "price * volume > 1e6",
    "bid > ask",
    "NOT bid > ask",
    "bid <> ask",
    "ask - bid BETWEEN 0 AND 2",
    "volume % 7 = 3",
    "volume + quantity IN (10, 20, 30, 101)",
    "-price < -50",
    "amount * 2 >= 10.50",
    "amount + 0.005 > 10",
    "quantity IS DISTINCT FROM 3",
    "quantity IS NOT DISTINCT FROM NULL",
    "symbol IS NOT DISTINCT FROM city",
    "price > 50 AND volume - quantity < 40 OR bid = ask",
    "NOT (price > 50 AND volume % 2 = 0)",
    "(price > 50) = open",
    # Functions
    "abs(price - 50) < 10",
    "round(price) = 50",
    "round(price, 1) >= 99.5",
    "floor(price / 10) = 4",
    "ceil(bid) = ceil(ask)",
    "greatest(bid, ask) > 90",
    "least(bid, ask, price) < 5",
    "coalesce(price, bid, 0) = 0",
    "coalesce(quantity, 0) > 5",
    "nullif(quantity, 3) IS NULL",
    "sign(bid - ask) = -1",
    "if(open, bid, ask) > 80",
    "CASE WHEN price > 80 THEN 'high' WHEN price > 20 THEN 'middle' ELSE 'low' END = 'middle'",
    "CASE symbol WHEN 'acme' THEN volume WHEN 'Corp' THEN quantity END > 5",
    "CAST(price AS BIGINT) = 50",
    "CAST(volume AS STRING) LIKE '1%'",
    "CAST(quantity AS DOUBLE) / 2 = 1.5",
    # Text
    "symbol LIKE '%corp%'",
    "symbol NOT LIKE '%corp%'",
    "title LIKE '%.pdf'",
    "title LIKE 'a%b'",
    "title LIKE 'a%b%c'",
    "title LIKE '_b%'",
    "title LIKE '%!%%' ESCAPE '!'",
    "title ILIKE '%REPORT%'",
    "title NOT ILIKE 'rep%'",
    "city ILIKE 'Ber%'",
    "lower(city) = 'berlin'",
    "upper(city) IN ('BERLIN', 'PARIS')",
    "length(title) < 6",
    "substring(title, 2, 2) = 'bc'",
    "trim(city) = 'Paris'",
    "concat(symbol, '-', city) = 'acme-Paris'",
    "symbol || city LIKE '%pPa%'",
    "reverse(symbol) > 'p'",
    "startswith(title, 're')",
    "endswith(title, 'pdf')",
    "contains(title, 'port')",
    "title RLIKE '^[a-c]+$'",
    "NOT title RLIKE 'r.p'",
    "regexp_like(title, '(?i)REPORT|x')",
    "contains(title, 'port') AND contains(title, 'rep') AND price > 30",
    "title LIKE '%port%' OR city = 'Berlin'",
    "symbol = 'acme' AND title RLIKE '[0-9]'",
    # Times
    "hour(at) BETWEEN 9 AND 17",
    "year(at) = 2024 AND month(at) = 3",
    "dayofweek(at) IN (1, 7)",
    "extract(MINUTE FROM at) >= 30",
    "date_trunc('DAY', at) = TIMESTAMP '2024-03-31 00:00:00'",
    "date_trunc('HOUR', at) < date_trunc('HOUR', due)",
    "CAST(at AS DATE) = DATE '2024-10-27'",
    "due - INTERVAL 2 HOURS > at",
    "at + INTERVAL 90 MINUTES < TIMESTAMP '2024-06-01 00:00:00'",
    # Nested
    "order.customer.tier = 'gold'",
    "order.customer.tier IS NULL",
    "upper(order.customer.tier) LIKE 'G%' AND order.id > 5",
    "order.customer.age + order.id > 40",
    "year(order.customer.since) = 2024",
    # Lists
    "array_contains(tags, 'urgent')",
    "NOT array_contains(tags, 'urgent')",
    "array_contains(tags, 'urgent') AND array_contains(tags, 'late')",
    "arrays_overlap(tags, array('urgent', 'new'))",
    "cardinality(prices) > 2",
    "exists(prices, p -> p > 90 OR p < 5)",
    "forall(prices, p -> p > 20)",
    "exists(items, i -> i.price > 60 AND i.kind = 'a')",
    "forall(items, i -> i.n < 8)",
    "exists(items, i -> i.price > bid AND hour(i.made.at) < 12)",
    "exists(tags, t -> t LIKE '%ge%')",
    "exists(amounts, a -> a = 10.50)",
    "open AND exists(flags, x -> x)",
    "items IS NULL",
]

OTHERS = {
    # What Spark would raise for is NULL, as with its `try_` functions.
    "volume / quantity > 10": "try_divide(volume, quantity) > 10",
    "mod(volume, quantity) = 1": "try_mod(volume, quantity) = 1",
    "volume * 9223372036854775807 > 0": "try_multiply(volume, 9223372036854775807) > 0",
    "CAST(title AS BIGINT) = 12": "try_cast(title AS BIGINT) = 12",
    # What Spark writes in another way.
    "'urgent' = ANY(tags)": "exists(tags, t -> t = 'urgent')",
    "NOT 'urgent' = ANY(tags)": "NOT exists(tags, t -> t = 'urgent')",
    "'urgent' = ANY(tags) AND 'late' = ANY(tags)": (
        "array_contains(tags, 'urgent') AND array_contains(tags, 'late')"
    ),
    "tags && ARRAY['urgent', 'new']": "arrays_overlap(tags, array('urgent', 'new'))",
    "ANY(prices) > 90": "exists(prices, p -> p > 90)",
    "50 < ALL(prices)": "forall(prices, p -> 50 < p)",
    "ANY(counts) BETWEEN 3 AND 4": "exists(counts, c -> c BETWEEN 3 AND 4)",
    "TIMESTAMP '2024-10-27 01:30:00' = ANY(times)": (
        "exists(times, t -> t = TIMESTAMP '2024-10-27 01:30:00')"
    ),
    "city = 'berlin' COLLATE NOCASE": "lower(city) = 'berlin'",
    '"a.b" * 2 = 6': "`a.b` * 2 = 6",
    "position('port' IN title) = 3": "locate('port', title) = 3",
}  # fmt: skip

FILTERS = {text: text for text in SAME} | OTHERS

MOMENTS = [
    datetime(2024, 3, 31, 0, 30, tzinfo=UTC),
    datetime(2024, 3, 31, 1, 30, tzinfo=UTC),  # clocks in Zurich go from two to three between
    datetime(2024, 10, 27, 0, 30, tzinfo=UTC),
    datetime(2024, 10, 27, 1, 30, tzinfo=UTC),
    datetime(2024, 6, 15, 9, 45, 10, tzinfo=UTC),
    datetime(2023, 12, 31, 23, 15, tzinfo=UTC),
    datetime(1969, 7, 20, 20, 17, 40, tzinfo=UTC),
]
TITLES = [
    *("abc", "acb", "aXbXc", "report.pdf", "Report 7", "REPORT", "12", "50%", "b", "", "portrait"),
    *("rep port", "äöü.pdf", "xbc"),
]


class Maker:
    """Makes events, in which anything may be missing."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def one(self, values: list[Any]) -> Any:
        return None if self.random.random() < 0.12 else self.random.choice(values)

    def price(self) -> float | None:
        return self.one([0.0, 3.5, 49.6, 50.0, 50.5, 99.5, round(self.random.uniform(0, 100), 2)])

    def many(self, make: Any) -> list[Any] | None:
        return self.one([[make() for _ in range(self.random.randrange(5))]])

    def struct(self, *values: Any) -> tuple[Any, ...] | None:
        return self.one([values])

    def event(self, number: int) -> tuple[Any, ...]:
        def whole() -> Any:
            return self.one([0, 1, 2, 3, 5, 7, 10, 100])

        def text(*values: str) -> Any:
            return self.one(list(values))

        def moment() -> Any:
            return self.one(MOMENTS)

        def amount() -> Any:
            return self.one([Decimal("5.25"), Decimal("10.00"), Decimal("10.50"), Decimal("-1.00")])

        def item() -> Any:
            return self.struct(self.price(), text("a", "b"), whole(), self.struct(moment()))

        since = self.one([datetime(2024, 1, 1, tzinfo=UTC), datetime(2020, 5, 5, tzinfo=UTC)])
        customer = self.struct(text("gold", "silver", "Gold"), self.one([20, 40]), since)
        at = moment()
        due = self.one([at + timedelta(hours=h) for h in (1, 2, 3, 30)]) if at else moment()
        return (
            number,
            text("acme", "acmecorp", "Corp", "corps", "xp"),
            text("Berlin", "berlin", "BERLIN", "Paris", " Paris "),
            self.one(TITLES),
            self.price(), self.price(), self.price(),
            self.one([1, 10, 17, 101, 50_000]), whole(), amount(), self.one([True, False]),
            at, due, self.struct(whole(), customer), self.one([3, 4]),
            self.many(lambda: text("urgent", "late", "new", "page")),
            self.many(self.price), self.many(whole), self.many(moment),
            self.many(lambda: self.one([True, False])), self.many(amount), self.many(item),
        )  # fmt: skip


@pytest.fixture
def zoned(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", ZONE)
    yield spark
    spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    maker = Maker(7)
    return spark.createDataFrame([maker.event(number) for number in range(200)], COLUMNS).cache()


def subscriptions_of(spark: SparkSession, *filters: str) -> DataFrame:
    return spark.createDataFrame(
        [(text, text) for text in filters], "subscription_id string, filter string"
    )


def wanted(events: DataFrame, filters: dict[str, str]) -> set[tuple[int, str]]:
    """What Spark SQL finds, with all filters in one query."""
    columns = (f"({text}) AS c{place}" for place, text in enumerate(filters.values()))
    rows = events.selectExpr("event_id", *columns).collect()
    return {
        (row[0], text)
        for row in rows
        for text, truth in zip(filters, row[1:], strict=True)
        if truth
    }


def pairs(found: DataFrame) -> set[tuple[Any, ...]]:
    rows = [tuple(row) for row in found.collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


@pytest.fixture(scope="module")
def index(
    spark: SparkSession, events: DataFrame, tmp_path_factory: pytest.TempPathFactory
) -> IndexVersion:
    path = tmp_path_factory.mktemp("expressions") / "index"
    schema = infer_schema(events, "event_id")
    version = build_index(subscriptions_of(spark, *FILTERS), path, schema=schema, shards=2)
    assert rejected(spark, path).collect() == []
    return version


@pytest.fixture(scope="module")
def truth(events: DataFrame) -> set[tuple[int, str]]:
    found = wanted(events, FILTERS)
    counts = {text: sum(one == text for _, one in found) for text in FILTERS}
    assert {text for text, count in counts.items() if not 0 < count < 200} == set()
    return found


def test_the_schema_has_lists_and_nested_values(index: IndexVersion) -> None:
    schema = index.schema
    assert schema["order.customer.tier"].type_name == "string"
    assert schema["tags"].type_name == "list of string"
    assert schema["amounts"].type_name == "list of decimal(10, 2)"
    assert [field.name for field in schema["items"].fields] == ["price", "kind", "n", "made.at"]
    assert set(index.attributes) == set(schema.names)


@pytest.mark.parametrize("plan", ["replicated", "sharded"])
def test_match_finds_what_where_finds(
    events: DataFrame, index: IndexVersion, truth: set[tuple[int, str]], plan: Any
) -> None:
    found = pairs(match(events, index, plan=plan))
    wrong = {text for _, text in found ^ truth}
    assert wrong == set()


def test_counts_and_functions_of_sql(
    spark: SparkSession, events: DataFrame, index: IndexVersion, truth: set[tuple[int, str]]
) -> None:
    # Names of columns, and of fields of elements, in another case.
    items = "transform(items, i -> named_struct('Kind', i.kind, 'PRICE', i.price, 'n', i.n, "
    items += "'Made', named_struct('AT', i.made.at))) AS Items"
    others = [name for name in events.columns if name != "items"]
    renamed = events.selectExpr(*(f"`{name}`" for name in others), items)
    counted = {row[0]: row[1] for row in match(renamed, index, how="counts").collect()}
    assert counted == {n: sum(one == n for one, _ in truth) for n in range(200)}
    register(spark)
    renamed.createOrReplaceTempView("expression_ticks")
    found = spark.sql(f"SELECT * FROM boxmatch_pairs(TABLE(expression_ticks), '{index.path}')")
    assert pairs(found) == truth
    from pyspark.sql import functions as f

    event = f.struct(*(f"`{name}`" for name in renamed.columns))
    arrays = renamed.select("event_id", match_function(index)(event).alias("ids")).collect()
    assert {(row[0], one) for row in arrays for one in row[1]} == truth


LOCAL = {
    text: text
    for text in (
        "hour(at) = 3",
        "dayofweek(at) = 1 AND hour(at) < 3",
        "date_trunc('DAY', at) = TIMESTAMP '2024-10-27 00:00:00'",
        "date_trunc('HOUR', local) = TIMESTAMP '2024-10-27 02:00:00'",
        "CAST(at AS DATE) = DATE '2024-03-31'",
        "year(day) = 2024",
        "at + INTERVAL 2 HOURS > TIMESTAMP '2024-10-27 02:30:00'",
        "exists(locals, t -> t = TIMESTAMP '2024-10-27 02:30:00')",
        "exists(locals, t -> hour(t) = 1)",
        "exists(days, d -> d >= DATE '2024-06-15')",
        "exists(items, i -> hour(i.made.at) = 2 AND i.n > 0)",
        "exists(times, t -> hour(t) = 1)",
    )
}


def test_times_are_those_of_the_session(zoned: SparkSession, events: DataFrame) -> None:
    """Also local times in lists and structs."""
    made = "named_struct('AT', cast(i.made.at AS TIMESTAMP_NTZ))"
    some = events.where("at <> TIMESTAMP '2024-03-31 00:30:00Z'").selectExpr(
        "event_id",
        "at",
        "times",
        "cast(at AS TIMESTAMP_NTZ) AS local",
        "cast(at AS DATE) AS day",
        "transform(times, t -> cast(t AS TIMESTAMP_NTZ)) AS locals",
        "transform(times, t -> cast(t AS DATE)) AS days",
        f"transform(items, i -> named_struct('N', i.n, 'Made', {made})) AS items",
    )
    kinds = {"at": "timestamp", "local": "timestamp", "day": "timestamp"}
    lists = dict.fromkeys(("times", "locals", "days"), "list of timestamp")
    element = {"type": "list of struct", "fields": {"n": "int", "made.at": "timestamp"}}
    schema = bm.Schema({**kinds, **lists, "items": element})
    found = pairs(match(some, subscriptions_of(zoned, *LOCAL), schema=schema))
    expected = wanted(some, LOCAL)
    assert {text for _, text in expected} == set(LOCAL)
    assert {text for _, text in found ^ expected} == set()


def test_sql_functions_refuse_local_times_in_lists(zoned: SparkSession, tmp_path: Path) -> None:
    table = subscriptions_of(zoned, "exists(times, t -> hour(t) = 1)")
    index = build_index(table, tmp_path / "index", schema={"times": "list of timestamp"})
    register(zoned)
    local = "array(TIMESTAMP_NTZ '2024-01-01 01:00:00')"
    query = f"SELECT wanted_by('{index.path}', named_struct('times', {{}})) AS ids"
    with pytest.raises(Exception, match=r"'times' is of type .*CAST\(times AS ARRAY<TIMESTAMP>"):
        zoned.sql(query.format(local)).collect()
    (row,) = zoned.sql(query.format(f"CAST({local} AS ARRAY<TIMESTAMP>)")).collect()
    assert row["ids"] == ["exists(times, t -> hour(t) = 1)"]


FEW = ["contains(title, 'port')", "'urgent' = ANY(tags)", "price * 2 > 100", "price > 90"]
FEW_SCHEMA = {"title": "string", "price": "float", "tags": "list of string"}
FEW_KINDS = "event_id long, title string, price double, tags array<string>"


def few_events(count: int) -> list[dict[str, Any]]:
    tags = [["urgent", None], ["new"], [], None]
    return [
        {"event_id": n, "title": TITLES[n % len(TITLES)], "price": n * 7 % 100 + 0.5,
         "tags": tags[n % 4]}
        for n in range(count)
    ]  # fmt: skip


def by_engine(filters: list[str], events: list[dict[str, Any]]) -> set[tuple[int, str]]:
    matcher = bm.Matcher(FEW_SCHEMA, index="scan")
    for text in filters:
        matcher.subscribe(text, text)
    return {(one["event_id"], str(found)) for one in events for found in matcher.match(one)}


def test_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "events"
    folder.mkdir()
    rows = few_events(60)
    lists = pa.schema(
        {"event_id": pa.int64(), "title": pa.string(), "price": pa.float64(),
         "tags": pa.list_(pa.string())}
    )  # fmt: skip
    for number in range(2):
        part = pa.Table.from_pylist(rows[30 * number : 30 * number + 30], lists)
        pq.write_table(part, folder / f"{number}.parquet")
    index = build_index(
        subscriptions_of(spark, *FEW), tmp_path / "index", schema=FEW_SCHEMA, shards=2
    )
    stream = spark.readStream.schema(FEW_KINDS).option("maxFilesPerTrigger", 1)
    query = match_stream(
        stream.parquet(str(folder)), index.path, sink=tmp_path / "out",
        checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True},
    )  # fmt: skip
    query.awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).select("event_id", "subscription_id")
    assert pairs(found) == by_engine(FEW, rows)


def test_changes_of_an_index(spark: SparkSession, tmp_path: Path) -> None:
    """New segments, and one that takes over the axes and residuals of others."""
    rows = few_events(60)
    events = spark.createDataFrame([tuple(row.values()) for row in rows], FEW_KINDS)
    filters = {f"s{n}": f"contains(title, '{n}') OR price * {n} > 500" for n in range(40)}
    filters |= {"lists": "'urgent' = ANY(tags) AND 'new' = ANY(tags)", "plain": "price > 90"}

    def table(some: dict[str, str | None]) -> DataFrame:
        return spark.createDataFrame(
            [(one, text, text is None) for one, text in some.items()],
            "subscription_id string, filter string, removed boolean",
        )

    def check() -> None:
        matcher = bm.Matcher(FEW_SCHEMA, index="scan")
        for one, text in filters.items():
            matcher.subscribe(one, text)
        expected = {(row["event_id"], one) for row in rows for one in matcher.match(row)}
        assert pairs(match(events, path)) == expected

    path = str(tmp_path / "index")
    build_index(table(dict(filters)), path, schema=FEW_SCHEMA, shards=1)
    few: dict[str, str | None] = {
        "s1": None,
        "s2": "title RLIKE '^r.p'",
        "lists": "cardinality(tags) = 2",
        "new": "lower(title) = 'report' AND NOT 'urgent' = ANY(tags)",
    }
    many = {f"m{n}": f"length(title) > {n} AND title LIKE '%p{n % 2}%t'" for n in range(20)}
    sizes = []
    for changes in (few, {**many, "s3": "tags && ARRAY['new']"}):
        version = update_index(table(changes), path)
        sizes.append(len(version.shards[0].segments))
        for one, text in changes.items():
            filters.pop(one, None)
            if text is not None:
                filters[one] = text
        check()
    assert sizes == [2, 1]  # the second changes were too many for a segment of their own


class TestRefused:
    def test_columns_that_do_not_fit(self, spark: SparkSession) -> None:
        frame = spark.sql(
            "SELECT 1L AS event_id, array('a') AS tags, 'a' AS tag, array(array(1)) AS deep, "
            "array(named_struct('n', 1)) AS items, array('a' COLLATE UTF8_LCASE) AS folded"
        )
        struct = {"type": "list of struct"}
        for schema, message in [
            ({"tags": "list of int"}, "'tags' of the events is of type array<string>, which is no "
             "list of int"),
            ({"tags": "string"}, "'tags' .* is no string"),
            ({"tag": "list of string"}, "'tag' .* is of type string, which is no list of string"),
            ({"deep": "list of int"}, "'deep' .* is no list of int"),
            ({"items": "list of int"}, "'items' .* is no list of int"),
            ({"tags": {**struct, "fields": {"n": "int"}}}, "'tags' .* is no list of struct"),
            ({"items": {**struct, "fields": {"n": "bool"}}}, "'items' .* is no list of struct"),
            ({"items": {**struct, "fields": {"m": "int"}}}, "the elements of column 'items' of the "
             "events have no field 'm'"),
            ({"folded": "list of string"}, "'folded' .*compare strings by their bytes"),
        ]:  # fmt: skip
            with pytest.raises(bm.SparkError, match=message):
                match(frame, subscriptions_of(spark, "TRUE"), schema=schema)
        table = spark.sql("SELECT 'a' AS subscription_id, 'b' AS tags")
        with pytest.raises(bm.SparkError, match="bounds of 'tags', which is a list of string"):
            match(frame, table, schema={"tags": "list of string"})

    def test_an_index_of_an_earlier_format(self, spark: SparkSession, tmp_path: Path) -> None:
        table, path = subscriptions_of(spark, "price > 1"), tmp_path / "index"
        index = build_index(table, path, schema={"price": "float"})
        (file,) = (path / "versions").iterdir()
        plain = {**json.loads(index.to_json()), "format": FORMAT - 1}
        file.write_text(json.dumps(plain), encoding="utf-8")
        advice = "delete the folder, or choose another, and build the index anew with build_index"
        events = spark.sql("SELECT 1L AS event_id, 5.0D AS price")
        for work in (
            lambda: match(events, str(path)),
            lambda: build_index(table, path, schema={"price": "float"}),
        ):
            with pytest.raises(bm.SparkError, match=f"has format {FORMAT - 1}; .*{advice}"):
                work()

    @pytest.mark.parametrize(
        ("filter", "reason"),
        [
            ("price * 2 > 10", r"its filter is \(price \* 2"),
            ("contains(title, 'a') AND price > 1", "its filter is .*title"),
            ("'a' = ANY(tags)", "tags is a list of string"),
            ("NOT 'a' = ANY(tags)", r"its filter is .*NOT"),
        ],
    )
    def test_transitions_with_more_than_boxes(
        self, spark: SparkSession, tmp_path: Path, filter: str, reason: str
    ) -> None:
        updates = spark.sql("SELECT 'p' AS publication_id, 1L AS sequence, 5.0D AS price")
        table = subscriptions_of(spark, "price > 3", filter)
        message = f"{reason}.*, which no region of a publication can be compared with"
        with pytest.raises(bm.SparkError, match=message):
            transitions(updates, table, schema=FEW_SCHEMA)
        index = build_index(table, tmp_path / "index", schema=FEW_SCHEMA)
        with pytest.raises(Exception, match=message):
            transitions(updates, index).collect()

    def test_transitions_after_such_a_subscription_is_gone(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        table = spark.range(30).selectExpr(
            "concat('s', id) AS subscription_id", "concat('price > ', id) AS filter"
        )
        odd = spark.sql("SELECT 'odd' AS subscription_id, 'price * 2 > 4' AS filter")
        path = tmp_path / "index"
        build_index(table.unionAll(odd), path, schema=FEW_SCHEMA, shards=1)
        index = update_index(odd.selectExpr("*", "true AS removed"), path)
        assert len(index.shards[0].segments) == 2
        for column in ("5.0D AS price", "5.0D AS price_low, 5.5D AS price_high"):
            updates = spark.sql(f"SELECT 'p' AS publication_id, 1L AS sequence, {column}")
            told = transitions(updates, index).collect()
            last = 5 if "_low" not in column else 6
            assert {row["subscription_id"] for row in told} == {f"s{n}" for n in range(last)}

    def test_updates_with_lists(self, spark: SparkSession) -> None:
        updates = spark.sql("SELECT 'p' AS publication_id, 1L AS sequence, array('a') AS tags")
        with pytest.raises(bm.SparkError, match="of dimension 'tags', a list of string"):
            transitions(updates, subscriptions_of(spark, "price > 3"), schema=FEW_SCHEMA)


@pytest.mark.slow
def test_a_pipeline(spark: SparkSession, tmp_path: Path) -> None:
    """Nested attributes and lists are cleaned, matched and counted."""
    lines = [
        {"id": 1, "order": {"tier": "gold", "n": "7"}, "tags": ["a", "b"],
         "items": [{"price": "5", "kind": "x"}]},
        {"id": 2, "order": {"tier": "gold", "n": "many"}, "tags": ["a"], "items": []},
        {"id": 3, "order": None, "tags": None, "items": [{"price": "cheap", "kind": "x"}]},
        {"id": 4, "order": {"tier": "tin", "n": "2"}, "tags": [], "items": [{"price": "50"}, None]},
    ]  # fmt: skip
    wants = {
        "gold": "order.tier = 'gold' AND order.n * 2 > 10",
        "list": "'a' = ANY(tags)",
        "item": "exists(items, i -> i.price > 10)",
        "text": "order.tier LIKE '%i%'",
    }
    (tmp_path / "events.json").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    rows = ({"subscription_id": one, "filter": text} for one, text in wants.items())
    (tmp_path / "wanted.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    items = {"type": "list of struct", "fields": {"price": "float"}}
    attributes = {"order.tier": "string", "order.n": "int", "tags": "list of string",
                  "items": items}  # fmt: skip
    config = PipelineConfig.parse(
        {
            "events": {"path": "events.json", "format": "json", "event_id": "id",
                       "attributes": attributes},
            "subscriptions": {"path": "wanted.json", "format": "json"},
            "output": {"path": "out"},
        },
        folder=tmp_path,
    )  # fmt: skip
    summary = Pipeline(config).run(spark).summary
    assert summary["events"]["quarantined"] == {
        "items.price is not a float": 1, "order.n is not an int": 1,
    }  # fmt: skip
    told = spark.read.parquet(str(tmp_path / "out" / "notifications"))
    assert pairs(told.select("id", "subscription_id")) == {
        ("1", "gold"), ("1", "list"), ("4", "item"), ("4", "text"),
    }  # fmt: skip
    measured = {one["name"]: one for one in summary["attributes"]}
    assert measured["tags"]["type"] == "list of string"
    assert measured["tags"]["selectivity"] is None
    assert measured["order.tier"]["present"] == 1
