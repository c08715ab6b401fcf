"""Every row of "Where Boxmatch differs from Spark SQL" in the guide, in both of them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_spark_match import pairs, subscriptions_of

import boxmatch as bm
from boxmatch.spark import build_index, match, rejected

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GUIDE = Path(__file__).parent.parent.parent / "docs" / "spark.md"
TYPES = {
    "price": "double", "symbol": "string", "volume": "bigint", "day": "date",
    "local": "timestamp_ntz",
}  # fmt: skip
SCHEMA = bm.Schema(
    {"price": "float", "symbol": "string", "volume": "int", "day": "timestamp",
     "local": "timestamp"}
)  # fmt: skip
# By the first words of the row in the guide: a value of a column, a filter, what Spark says, and
# what Boxmatch says, or a part of the reason for which it rejects the filter.
CASES: list[tuple[str, str, str, str, bool, bool | str]] = [
    ("NaN", "price", "'NaN'", "price > 3", True, False),
    ("NaN", "price", "'NaN'", "price IS NULL", False, True),
    ("Double quotes", "symbol", "'IBM'", 'symbol = "IBM"', True, "double quotes hold a name"),
    ("Backticks", "price", "4", "`price` > 3", True, "unexpected price"),
    ("A backslash", "symbol", "'a' || char(9) || 'b'", r"symbol = 'a\tb'", True, False),
    ("Text for a number", "volume", "10", "volume = '10'", True, "is not an int"),
    ("A date and a text", "day", "'2024-07-01'", "day = '2024-07-01 10:00:00'", True, False),
    ("A local time and a text", "local", "'2024-07-01 12:00:00'",
     "local = '2024-07-01 12:00:00+05:00'", True, False),
    ("A local time that", "local", "'2024-03-31 02:30:00'",
     "local = TIMESTAMP '2024-03-31 03:30:00'", False, True),
    ("The smallest", "volume", "-9223372036854775808L", "volume = -9223372036854775808", True,
     False),
    ("A constant that no double", "price", "0.3", "price >= 0.3000000000000000001", True, False),
    ("Regular expressions", "symbol", "'IBM'", "symbol RLIKE '^(?=I)'", True, "(?="),
    ("Days, months", "local", "'2024-07-01 12:00:00'",
     "local + INTERVAL 1 DAY > TIMESTAMP '2024-07-01 00:00:00'", True,
     "in a time zone other than UTC"),
    ("Casts between", "local", "'2024-07-01 12:00:00'", "CAST(local AS STRING) LIKE '2024%'", True,
     "in a time zone other than UTC"),
    ("Subqueries", "price", "4", "price > (SELECT 3)", True, "a subquery"),
    ("A constant beyond a type", "volume", "NULL", "volume < 9223372036854775808", True, False),
]  # fmt: skip
ELSEWHERE = {
    "A `char",
    "A string with a collation",
    "Decimals without a common type",
    "Names in another case",
    "What raises an error",
}


def test_every_row_has_a_case() -> None:
    section = GUIDE.read_text().partition("### Where Boxmatch differs from Spark SQL")[2]
    rows = re.findall(r"^\| ([^|]+) \|", section.partition("\n#")[0], re.MULTILINE)[2:]
    known = {case[0] for case in CASES} | ELSEWHERE
    assert {row for row in rows if not any(map(row.startswith, known))} == set()
    assert {one for one in known if not any(row.startswith(one) for row in rows)} == set()


def test_both_do_what_the_guide_says(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import PySparkException

    rows = " UNION ALL ".join(
        f"SELECT {number}L AS event_id, "
        + ", ".join(
            f"CAST({value if name == column else 'NULL'} AS {kind}) AS {name}"
            for name, kind in TYPES.items()
        )
        for number, (_, column, value, *_) in enumerate(CASES)
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Zurich")
    try:
        events = spark.sql(rows).coalesce(1).cache()
        for number, (_, _, _, filter, said, _) in enumerate(CASES):
            one = events.where(f"event_id = {number}").selectExpr(f"{filter} AS found")
            assert one.collect()[0]["found"] is said, filter
        wanted = [(str(number), case[3]) for number, case in enumerate(CASES)]
        table = subscriptions_of(spark, [*wanted, ("reads the volume", "volume > 0")])
        build_index(table, tmp_path, schema=SCHEMA)
        smallest = "coalesce(volume, 0) = -9223372036854775808L"
        found = set(pairs(match(events.where(f"NOT ({smallest})"), tmp_path)))
        with pytest.raises(PySparkException, match="the smallest int64 is reserved"):
            match(events.where(smallest), tmp_path).collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    told = {r["subscription_id"]: r["reason"] for r in rejected(spark, tmp_path).collect()}
    for number, (*_, filter, _, says) in enumerate(CASES):
        if isinstance(says, str):
            assert says in told[str(number)], filter
        else:
            assert ((number, str(number)) in found) is says, filter


def test_char_and_names(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE padded (event_id BIGINT, code CHAR(5)) USING parquet "
        f"LOCATION '{tmp_path}/padded'"
    )
    try:
        spark.sql("INSERT INTO padded VALUES (1, 'ab')")
        events = spark.table("padded")
        assert events.where("code = 'ab'").count() == 1
        filters = {"plain": "code = 'ab'", "spaces": "code = 'ab   '", "end": "code LIKE '%b'"}
        path = tmp_path / "index"
        table = subscriptions_of(spark, filters.items())
        assert pairs(match(events, table, path=path)) == [(1, "spaces")]
    finally:
        spark.sql("DROP TABLE padded")
    named = spark.sql("SELECT 1 AS event_id, 4.0D AS price")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        from pyspark.errors import AnalysisException

        with pytest.raises(AnalysisException):
            named.where("PRICE > 3").collect()
        assert pairs(match(named, subscriptions_of(spark, [("a", "PRICE > 3")]))) == [(1, "a")]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
