from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from boxmatch import Matcher, Schema, SparkError
from boxmatch.adaptive.skipping import SkipPlan
from boxmatch.spark import build_index, match
from boxmatch.spark.pipeline import (
    clean,
    clean_subscriptions,
    dead_subscriptions,
    derive,
    extend_schema,
    latency,
    matches_per_event,
    matches_per_subscription,
    measure_selectivities,
    notifications,
    read,
    too_broad_subscriptions,
)
from boxmatch.spark.pipeline.config import Source
from boxmatch.spark.pipeline.failures import cause_of
from boxmatch.spark.pipeline.notify import drop_rejected, rejections
from boxmatch.spark.pipeline.read import MALFORMED, input_files
from boxmatch.spark.pipeline.statistics import power_buckets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = Schema(
    {
        "symbol": "string",
        "price": {"type": "float", "domain": [0, 1000]},
        "volume": "int",
        "side": ["buy", "sell"],
        "halted": "bool",
        "at": {"type": "timestamp", "domain": ["2026-01-01", "2026-12-31"]},
    }
)
NAMES = ("event_id", *SCHEMA.names, "note")
NOON = "2026-01-05T12:00:00Z"

# What is asked of cleaning: a row of text, and the reason why it is not good, if it is not.
ROWS: list[tuple[tuple[str | None, ...], str | None]] = [
    (("1", "A", "10.5", "100", "buy", "true", NOON, "n"), None),
    (("2", None, None, None, None, None, NOON, None), None),
    (("3", "A", "NaN", "100", "buy", "false", NOON, None), None),
    ((None, "A", "x", "100", "buy", "true", NOON, None), "event_id is null"),
    (("4", "A", "x", "100", "buy", "true", NOON, None), "price is not a float"),
    (("5", "A", "1000.5", "100", "buy", "true", NOON, None), "price is outside its domain"),
    (("6", "A", "10.5", "100.5", "buy", "true", NOON, None), "volume is not an int"),
    (("7", "A", "10.5", str(-(2**63)), "buy", "true", NOON, None), "volume is outside its domain"),
    (("8", "A", "10.5", "100", "hold", "true", NOON, None), "side is not one of its values"),
    (("9", "A", "10.5", "100", "buy", "maybe", NOON, None), "halted is not a bool"),
    (("10", "A", "10.5", "100", "buy", "true", "noon", None), "at is not a timestamp"),
    (("11", "A", "10.5", "100", "buy", "true", "2027-01-05", None), "at is outside its domain"),
    (("12", "A", "10.5", "100", "buy", "true", None, None), "at is null"),
    # Of three with one id the earliest stays; the bad one does not count.
    (("13", "B", "x", "100", "buy", "true", "2026-01-01T00:00:00Z", None), "price is not a float"),
    (("13", "B", "10.5", "100", "buy", "true", NOON, "later"), "duplicate event_id"),
    (("13", "C", "10.5", "100", "buy", "true", "2026-01-05T11:00:00Z", "first"), None),
    # Of two at the same time the one with smaller columns.
    (("14", "B", "10.5", "100", "buy", "true", NOON, None), "duplicate event_id"),
    (("14", "A", "10.5", "100", "buy", "true", NOON, None), None),
]  # fmt: skip


def frame(spark: SparkSession, rows: list[tuple[str | None, ...]]) -> DataFrame:
    return spark.createDataFrame(rows, ", ".join(f"{name} string" for name in NAMES))


class TestRead:
    def test_csv(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text('id,price,note\n1,2.50,"x, ""y"""\n2,,\n3,4\n5,6,7,8\n')
        rows = read(spark, Source(path=str(tmp_path / "*.csv"), format="csv")).collect()
        assert [row["price"] for row in rows] == ["2.50", None, "4", "6"]
        assert rows[0]["note"] == 'x, "y"'
        assert [row[MALFORMED] for row in rows] == [None, None, "3,4", "5,6,7,8"]

    def test_files_with_columns_in_another_order(self, spark: SparkSession, tmp_path: Path) -> None:
        (tmp_path / "a.csv").write_text("id,price\n1,2\n")
        (tmp_path / "b.csv").write_text("price,id\n2,1\n")
        with pytest.raises(Exception, match=r"(?i)header"):
            read(spark, Source(path=str(tmp_path), format="csv")).collect()

    def test_json(self, spark: SparkSession, tmp_path: Path) -> None:
        lines = ['{"id": 1, "price": 2.50, "on": true}', '{"id": "2"', '{"id": "3", "more": [1]}']
        (tmp_path / "a.json").write_text("\n".join(lines))
        rows = read(spark, Source(path=str(tmp_path), format="json")).collect()
        assert [(r["id"], r["price"], r["on"], r[MALFORMED]) for r in rows] == [
            ("1", "2.50", "true", None), (None, None, None, '{"id": "2"'), ("3", None, None, None),
        ]  # fmt: skip

    def test_parquet_and_tables(self, spark: SparkSession, tmp_path: Path) -> None:
        spark.range(3).write.parquet(str(tmp_path / "p"))
        parquet = Source(path=str(tmp_path / "p"))
        assert read(spark, parquet).count() == 3
        assert len(input_files(parquet) or []) >= 3
        read(spark, parquet).createOrReplaceTempView("pipeline_rows")
        view = Source(table="pipeline_rows")
        assert read(spark, view).count() == 3
        files = input_files(view, spark)
        assert {name for name, *_ in files or []} <= {n for n, *_ in input_files(parquet) or []}
        assert files

    @pytest.mark.portable
    @pytest.mark.parametrize(
        ("source", "message"),
        [
            (Source(table="no_such_table"), "cannot read table no_such_table: .*TABLE_OR_VIEW_NOT"),
            (Source(path="/nowhere"), "cannot read /nowhere: .*does not exist"),
            (Source(path="/nowhere", format="csv"), "cannot read /nowhere: .*does not exist"),
        ],
    )
    def test_errors(self, spark: SparkSession, source: Source, message: str) -> None:
        with pytest.raises(SparkError, match=message):
            _ = read(spark, source).columns
        if source.path:
            with pytest.raises(SparkError, match="there are no files at /nowhere"):
                input_files(source)


class TestClean:
    @pytest.mark.parametrize("turned", [False, True])
    def test_every_reason(self, spark: SparkSession, turned: bool) -> None:
        events = frame(spark, [row for row, _ in (ROWS[::-1] if turned else ROWS)])
        if turned:
            events = events.repartition(3)
        good, quarantined = clean(events, SCHEMA, event_time="at")
        expected = Counter((row[0], reason) for row, reason in ROWS if reason)
        found = quarantined.collect()
        assert Counter((row["event_id"], row["reason"]) for row in found) == expected
        assert {row["event_id"]: row["note"] for row in good.collect()} == {
            row[0]: row[-1] for row, reason in ROWS if reason is None
        }
        kept = {row["event_id"]: row for row in good.collect()}
        assert kept["1"].asDict() == {
            "event_id": "1", "symbol": "A", "price": 10.5, "volume": 100, "side": "buy",
            "halted": True, "at": kept["1"]["at"], "note": "n",
        }  # fmt: skip
        assert kept["14"]["symbol"] == "A"
        assert dict(good.dtypes)["at"] == "timestamp"
        (bad,) = (row for row in found if row["event_id"] == "8")
        assert json.loads(bad["row"])["side"] == "hold"

    def test_names_in_another_case(self, spark: SparkSession) -> None:
        events = spark.createDataFrame([(1, "1.5"), (2, "x")], "EVENT_ID int, Price string")
        good, quarantined = clean(events, Schema({"price": "float"}))
        assert [tuple(row) for row in good.select("event_id", "price").collect()] == [(1, 1.5)]
        assert good.columns == ["event_id", "price"]
        assert [row["reason"] for row in quarantined.collect()] == ["price is not a float"]
        table = spark.createDataFrame([("a", "price > 2")], "Subscription_Id string, FILTER string")
        assert clean_subscriptions(table).good.columns == ["subscription_id", "filter"]

    def test_typed_columns(self, spark: SparkSession) -> None:
        rows = [(1, 1.0, 2), (2, 1.5, 3), (3, None, 4)]
        events = spark.createDataFrame(rows, "event_id int, volume double, price int")
        schema = Schema({"volume": "int", "price": "float"})
        good, quarantined = clean(events, schema)
        rows = [(r["event_id"], r["volume"], r["price"]) for r in good.collect()]
        assert sorted(rows) == [(1, 1, 2.0), (3, None, 4.0)]
        assert [(r["event_id"], r["reason"]) for r in quarantined.collect()] == [
            ("2", "volume is not an int")
        ]

    def test_numbers_that_no_float_holds(self, spark: SparkSession) -> None:
        exact = [("-0.300", 10**18), ("12345678901234.5", None)]
        rounded = [("9007199254740993", 1), ("-0.3000000000000000001", 1), ("1", 2**53 + 1)]
        rows = [(n, Decimal(d), b) for n, (d, b) in enumerate([*exact, *rounded])]
        events = spark.createDataFrame(rows, "event_id int, d decimal(38, 19), b long")
        good, quarantined = clean(events, Schema({"d": "float", "b": "float"}))
        assert sorted(good.collect()) == [(0, -0.3, 1e18), (1, 12345678901234.5, None)]
        assert {(row["event_id"], row["reason"]) for row in quarantined.collect()} == {
            ("2", "d has more digits than a float holds"),
            ("3", "d has more digits than a float holds"),
            ("4", "b has more digits than a float holds"),
        }

    def test_decimals_are_not_rounded(self, spark: SparkSession) -> None:
        events = spark.createDataFrame(
            [
                ("1", "1.50", 0.1, Decimal("5.000"), 7),
                ("2", " -99.9900 ", None, None, None),
                ("text", "1.005", None, None, None),
                ("long text", "0.010000000000000000000000000000000000000001", None, None, None),
                ("large text", "100", None, None, None),
                ("word", "x", None, None, None),
                ("float", None, 0.125, None, None),
                ("NaN", None, float("nan"), None, None),
                ("decimal", None, None, Decimal("5.001"), None),
                ("int", None, None, None, 100),
            ],
            "event_id string, s string, f double, d decimal(38, 3), n long",
        )
        names = ("s", "f", "d", "n")
        good, quarantined = clean(events, Schema(dict.fromkeys(names, "decimal(4, 2)")))
        assert {kind for name, kind in good.dtypes if name != "event_id"} == {"decimal(4,2)"}
        assert {row["event_id"]: row[1:5] for row in good.collect()} == {
            "1": (Decimal("1.50"), Decimal("0.10"), Decimal(5), Decimal(7)),
            "2": (Decimal("-99.99"), None, None, None),
        }
        assert {row["event_id"]: row["reason"] for row in quarantined.collect()} == {
            **dict.fromkeys(
                ("text", "long text", "large text", "word"), "s is not a decimal(4, 2)"
            ),
            **dict.fromkeys(("float", "NaN"), "f is not a decimal(4, 2)"),
            "decimal": "d is not a decimal(4, 2)",
            "int": "n is not a decimal(4, 2)",
        }

    def test_other_keys_and_none(self, spark: SparkSession) -> None:
        events = spark.createDataFrame(
            [("1", "A", {"k": 1}), ("2", "A", {"k": 0}), ("2", "B", {"k": 2})],
            "event_id string, symbol string, more map<string, int>",
        )
        schema = Schema({"symbol": "string"})
        by_symbol = clean(events, schema, duplicates=["symbol"])
        assert [r["reason"] for r in by_symbol.quarantined.collect()] == ["duplicate symbol"]
        assert clean(events, schema, duplicates=[]).good.count() == 3

    @pytest.mark.parametrize(
        ("kinds", "message"),
        [
            ("event_id string", "the events have no column 'price' .they have: event_id."),
            ("id string, price double", "no column 'event_id'"),
            ("event_id string, price array<double>", "'price' is of Spark type array<double>"),
            ("event_id string, price boolean", "does not become an attribute of type float"),
            ("event_id string, price double, _row int", "'_row', which is kept for cleaning"),
        ],
    )
    def test_errors_before_any_job(self, spark: SparkSession, kinds: str, message: str) -> None:
        with pytest.raises(SparkError, match=message):
            clean(spark.createDataFrame([], kinds), Schema({"price": "float"}))

    def test_subscriptions(self, spark: SparkSession) -> None:
        rows = [
            ("a", "price > 2", None), ("a", "price > 1", None), (None, "price > 3", None),
            ("b", None, None), ("c", "price > 4", None), ("c", "price > 4", None),
            ("c", None, None), ("d", "price > 4", "jms"), ("d", "price > 4", None),
        ]  # fmt: skip
        kinds = "subscription_id string, filter string, Dialect string"
        good, quarantined = clean_subscriptions(spark.createDataFrame(rows, kinds))
        assert [tuple(row) for row in good.collect()] == [("c", "price > 4", None)]
        assert sorted(row["reason"] for row in quarantined.collect()) == [
            "duplicate subscription_id", *["duplicate subscription_id, with different content"] * 4,
            "filter is null", "filter is null", "subscription_id is null",
        ]  # fmt: skip


class TestDerive:
    def test_expressions(self, spark: SparkSession) -> None:
        events = spark.createDataFrame(
            [("1", 2.0, 3, datetime(2026, 1, 5, 14, 30, tzinfo=UTC))],
            "event_id string, price double, volume int, at timestamp",
        )
        expressions = {
            "worth": "price * volume",
            "double worth": "CAST(2 * worth AS DECIMAL(10, 2))",
            "hour": "hour(at)",
            "label": "concat(event_id, '!')",
            "large": "worth > 5",
            "day": "to_date(at)",
        }
        derived = derive(events, expressions)
        schema = extend_schema(Schema({"price": "float"}), derived, expressions)
        assert [(a.name, a.type) for a in schema] == [
            ("price", "float"), ("worth", "float"), ("double worth", "decimal"), ("hour", "int"),
            ("label", "string"), ("large", "bool"), ("day", "timestamp"),
        ]  # fmt: skip
        row = derived.collect()[0]
        assert [row[name] for name in list(expressions)[:5]] == [6.0, 12.0, 14, "1!", True]

    @pytest.mark.parametrize(
        ("name", "expression", "message"),
        [
            ("x", "nosuch + 1", r"derive: x = 'nosuch \+ 1': .*nosuch"),
            ("x", "price +", r"derive: x = 'price \+': .*PARSE_SYNTAX_ERROR"),
            ("x", "sum(price)", r"derive: x = 'sum\(price\)'"),
            ("x", "array(price)", "is of Spark type array<double>, which no attribute has"),
            ("price", "1", "the events have a column 'price' already"),
        ],
    )
    def test_errors_before_any_job(
        self, spark: SparkSession, name: str, expression: str, message: str
    ) -> None:
        events = spark.createDataFrame([], "event_id string, price double")
        with pytest.raises(SparkError, match=message):
            derive(events, {name: expression})


EVENTS: list[dict[str, Any]] = [
    {"event_id": f"e{i}", "price": None if i == 5 else float(i), "side": ["buy", "sell"][i % 2],
     "symbol": "ABC"[i % 3]}
    for i in range(12)
]  # fmt: skip
SUBSCRIPTIONS = [
    ("cheap", "price < 3"),
    ("bought", "side = 'buy' AND price >= 2"),
    ("either", "symbol = 'A' OR symbol = 'C'"),
    ("never", "price > 5 AND price < 4"),
    ("bad", "colour = 'red'"),
    ("dead", "price > 100"),
    ("all", "side IN ('buy', 'sell')"),
]
SMALL = Schema({"price": "float", "side": ["buy", "sell"], "symbol": "string"})


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    rows = [(*event.values(), datetime(2026, 1, 5 + i // 8, tzinfo=UTC)) for i, event in
            enumerate(EVENTS)]  # fmt: skip
    kinds = "event_id string, price double, side string, symbol string, at timestamp"
    return spark.createDataFrame(rows, kinds).repartition(2)


@pytest.fixture(scope="module")
def subscriptions(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SUBSCRIPTIONS, "subscription_id string, filter string")


@pytest.fixture(scope="module")
def pairs() -> set[tuple[str, str]]:
    """What brute force finds."""
    matcher = Matcher(SMALL, index="scan")
    matcher.subscribe_many([{"id": i, "filter": t} for i, t in SUBSCRIPTIONS], on_error="skip")
    return {(e["event_id"], str(s)) for e in EVENTS for s in matcher.match(e)}


@pytest.fixture(scope="module")
def matches(spark: SparkSession, pairs: set[tuple[str, str]]) -> DataFrame:
    return spark.createDataFrame(sorted(pairs), "event_id string, subscription_id string")


class TestMatch:
    def test_is_what_brute_force_finds(
        self,
        events: DataFrame,
        subscriptions: DataFrame,
        pairs: set[tuple[str, str]],
        tmp_path: Path,
    ) -> None:
        cleaned = clean_subscriptions(subscriptions.union(subscriptions.limit(1)))
        index = build_index(cleaned.good, tmp_path / "index", schema=SMALL)
        found = match(events, index, keep=["price"])
        assert found.columns == ["event_id", "price", "subscription_id"]
        rows = found.collect()
        assert len(rows) == len(pairs)
        assert {(row["event_id"], row["subscription_id"]) for row in rows} == pairs
        left_out = {r["subscription_id"]: r["reason"] for r in rejections(index, cleaned).collect()}
        assert set(left_out) == {"cheap", "bad"}
        assert left_out["cheap"] == "duplicate subscription_id"
        usable = drop_rejected(cleaned.good, index).collect()
        assert {r["subscription_id"] for r in usable} == {i for i, _ in SUBSCRIPTIONS} - {"bad"}


class TestNotify:
    def test_joins_what_matches_lack(
        self, events: DataFrame, matches: DataFrame, pairs: set[tuple[str, str]]
    ) -> None:
        told = notifications(matches, events, event_time="at", columns=["price", "at"])
        assert told.columns == ["event_id", "subscription_id", "at", "price", "date"]
        by_id = {event["event_id"]: (i, event) for i, event in enumerate(EVENTS)}
        rows = told.collect()
        assert len(rows) == len(pairs)
        for row in rows:
            place, event = by_id[row["event_id"]]
            assert row["price"] == event["price"]
            assert row["date"] == date(2026, 1, 5 + place // 8)

    def test_date_without_a_time(self, matches: DataFrame) -> None:
        told = notifications(matches, on=date(2026, 2, 3))
        assert {row["date"] for row in told.collect()} == {date(2026, 2, 3)}
        with pytest.raises(SparkError, match="need a date"):
            notifications(matches)

    def test_an_event_time_called_date(self, events: DataFrame, matches: DataFrame) -> None:
        dated = events.withColumnRenamed("at", "DATE")
        told = notifications(matches, dated, event_time="DATE", columns=["DATE", "price"])
        assert told.columns[2] == "DATE"
        assert told.columns[-1] == "event_date"
        assert all(row["event_date"] == row["DATE"].date() for row in told.collect())
        both = told.withColumnRenamed("event_date", "notification_date")
        assert notifications(both, on=date(2026, 2, 3)).columns[-1] == "event_date"
        with pytest.raises(SparkError, match="date, event_date, notification_date, one of which"):
            notifications(both.selectExpr("*", "1 AS event_date"), on=date(2026, 2, 3))


class TestStatistics:
    def test_matches(
        self,
        events: DataFrame,
        subscriptions: DataFrame,
        matches: DataFrame,
        pairs: set[tuple[str, str]],
    ) -> None:
        per_subscription = matches_per_subscription(matches, subscriptions, events=len(EVENTS))
        counts = Counter(subscription for _, subscription in pairs)
        found = {row["subscription_id"]: row for row in per_subscription.collect()}
        assert {i: row["matches"] for i, row in found.items()} == {
            i: counts[i] for i, _ in SUBSCRIPTIONS
        }
        assert found["all"]["share"] == 1.0
        assert found["all"]["filter"] == "side IN ('buy', 'sell')"
        dead = {row["subscription_id"] for row in dead_subscriptions(per_subscription).collect()}
        assert dead == {"never", "bad", "dead"}
        broad = too_broad_subscriptions(per_subscription, counts["bought"] / len(EVENTS)).collect()
        assert {row["subscription_id"] for row in broad} == {
            i for i, number in counts.items() if number > counts["bought"]
        }
        per_event = Counter(Counter(event for event, _ in pairs).values())
        histogram = matches_per_event(matches.where("subscription_id <> 'all'"), events)
        rest = Counter(e for e, s in pairs if s != "all")
        assert {row["matches"]: row["events"] for row in histogram.collect()} == Counter(
            rest[event["event_id"]] for event in EVENTS
        )
        everyone = power_buckets(matches_per_event(matches, events), "matches", "events")
        assert everyone[1] == {"from": 1, "to": 1, "number": per_event[1]}
        assert everyone[2] == {"from": 2, "to": 3, "number": per_event[2] + per_event[3]}

    @pytest.mark.portable
    def test_attributes(self, events: DataFrame, subscriptions: DataFrame) -> None:
        measured = measure_selectivities(events, subscriptions, SMALL)
        prices = [event["price"] for event in EVENTS if event["price"] is not None]
        n = len(EVENTS)
        # A predicate of each attribute, as plain Python; `never` has none that count.
        tests: dict[str, list[tuple[list[Any], Callable[[Any], bool]]]] = {
            "price": [
                (prices, lambda v: v < 3),
                (prices, lambda v: v >= 2),
                (prices, lambda v: v > 100),
            ],
            "side": [
                ([e["side"] for e in EVENTS], lambda v: v == "buy"),
                ([e["side"] for e in EVENTS], lambda v: True),
            ],
            "symbol": [
                ([e["symbol"] for e in EVENTS], lambda v: v == "A"),
                ([e["symbol"] for e in EVENTS], lambda v: v == "C"),
            ],
        }
        satisfied = {
            name: [sum(map(test, values)) / n for values, test in asked]
            for name, asked in tests.items()
        }
        for attribute in measured.attributes:
            shares = satisfied[attribute.name]
            assert attribute.predicates == len(shares)
            assert attribute.selectivity == pytest.approx(np.mean(shares))
        assert [a.subscriptions for a in measured.attributes] == [3, 2, 1]
        assert [a.present for a in measured.attributes] == [11 / 12, 1.0, 1.0]
        assert (measured.subscriptions, measured.never, measured.sample) == (6, 1, n)
        everything = [share for shares in satisfied.values() for share in shares]
        assert measured.boxes == 6  # two of `either`, none of `never`
        assert measured.selectivity == pytest.approx(np.mean(everything))
        plan = SkipPlan.of_frequency(measured.frequency, measured.boxes, measured.selectivity)
        assert plan.skipped(1e9).all()

    def test_attributes_of_columns_and_of_nothing(
        self, spark: SparkSession, events: DataFrame
    ) -> None:
        table = spark.createDataFrame(
            [(1, 2.0, None), (2, None, "A")], "subscription_id int, price_low double, symbol string"
        )
        price, side, symbol = measure_selectivities(events, table, SMALL, sample=5).attributes
        assert (price.subscriptions, side.subscriptions, symbol.subscriptions) == (1, 0, 1)
        assert side.selectivity is None
        nothing = measure_selectivities(events.limit(0), table, SMALL)
        assert [a.present for a in nothing.attributes] == [0, 0, 0]
        assert nothing.selectivity == 0

    def test_latency(self, events: DataFrame) -> None:
        found = latency(events, "at", processed=datetime(2026, 1, 7, tzinfo=UTC))
        day = 86_400.0
        assert found == {"least": day, "p50": 2 * day, "p95": 2 * day, "p99": 2 * day,
                         "most": 2 * day}  # fmt: skip
        assert latency(events.limit(0), "at", processed=datetime.now(UTC)) is None


def test_causes_are_found_in_what_spark_says() -> None:
    worker = "An exception was thrown:\nTraceback (most recent call last):\n  File x\nOSError: full"
    java = "An error occurred while calling o1.parquet.\n: java.io.IOException: full\n\tat x"
    assert cause_of(Exception(worker)) == "OSError: full"
    assert cause_of(Exception(java)) == "java.io.IOException: full"
    assert cause_of(Exception("[A] b\n== SQL ==")) == "[A] b"
    assert cause_of(ValueError()) == "ValueError"
