"""Every type of Spark that can be an attribute: at its edges, filters select what Spark selects."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

import boxmatch as bm
from boxmatch.spark import match

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")
NINES = "9" * 38

# Values as SQL writes them, and constants to compare them with.
TYPES: dict[str, tuple[str, list[str], list[str]]] = {
    "byte": ("tinyint", ["-128", "127", "0"], ["-128", "127", "128", "-129", "0.5", "0"]),
    "short": ("smallint", ["-32768", "32767", "0"], ["-32768", "32767", "32767.5", "1e9"]),
    "int": (
        "int",
        ["-2147483648", "2147483647", "0"],
        ["-2147483648", "2147483647", "2147483648", "-0.0000001", "0"],
    ),
    "long": (
        "bigint",
        ["-9223372036854775807", "9223372036854775807", "9007199254740993", "-1", "0"],
        [
            *("-9223372036854775807", "9223372036854775807", "9223372036854775808", "1e30"),
            *("-9223372036854775808", "9007199254740992", "9007199254740992.5", "-0.5", "-1e30"),
        ],
    ),
    "real": (
        "float",
        ["0.1", "0.5", "'inf'", "'-inf'", "-0.0", "1.4e-45", "3.4028235e38", "16777216"],
        ["0.1", "0.5", "0.10000000149011612", "0", "-0.0", "16777217", "1e39", "-1e300"],
    ),
    "double": (
        "double",
        [
            *("0.1", "0.3", "0.30000000000000004", "'inf'", "'-inf'", "-0.0", "4.9e-324"),
            *("9007199254740992", "9007199254740994", "1.7976931348623157e308"),
        ],
        [
            *("0.1", "0.3", "0.30000000000000004", "0", "-0.0", "4.9e-324", "1e999", "-1e999"),
            *("9007199254740992", "9007199254740994", "1.7976931348623157e308"),
        ],
    ),
    "cents": (
        "decimal(5, 2)",
        ["-999.99", "999.99", "0", "0.01", "-0.01", "20.30"],
        ["-999.99", "999.99", "1000", "-1e9", "0.005", "0.01", "20.3", "20.300", "1e-3"],
    ),
    "places": (
        "decimal(18, 18)",
        ["0.999999999999999999", "-0.999999999999999999", "0.000000000000000001", "0", "0.3"],
        ["0.999999999999999999", "0.000000000000000001", "0.3", "0.2999", "5", "-1"],
    ),
    "whole": (
        "decimal(18, 0)",
        ["999999999999999999", "-999999999999999999", "9007199254740993", "0"],
        ["999999999999999999", "9007199254740992", "9007199254740993", "9007199254740992.5"],
    ),
    "longer": (
        "decimal(19, 0)",
        ["9999999999999999999", "-9999999999999999999", "9223372036854775808", "0"],
        ["9999999999999999999", "9223372036854775807", "9223372036854775808", "0.5", "0"],
    ),
    "twenty": (
        "decimal(20, 0)",
        ["9007199254740991", "9007199254740992", "9007199254740993", "1152921504606846976"],
        ["9007199254740991", "9007199254740992", "9007199254740993", "1152921504606846976"],
    ),
    "half": (
        "decimal(38, 19)",
        ["0.3", "0.3000000000000000001", "-0.3", "1234567890.12345", "0.0000000000000000001"],
        ["0.3", "0.3000000000000000001", "-0.3", "1234567890.12345", "0.0000000000000000001"],
    ),
    "longest": ("decimal(38, 0)", [NINES, f"-{NINES}", "0", "1"], [NINES, f"-{NINES}", "0", "2"]),
    "tiny": (
        "decimal(38, 38)",
        [f"0.{NINES}", f"-0.{NINES}", "0", "1e-38"],
        [f"0.{NINES}", f"-0.{NINES}", "0", "0.00000000000000000000000000000000000001"],
    ),
    "text": (
        "string",
        [
            *("''", "'a'", "'A'", "'ab'", "'a '", "'z'", "'é'", "'e\u0301'", "'ÿ'", "'\uffee'"),
            *("'\ue000'", "'😀'", "'\U0010ffff'", f"'{'x' * 5000}'", "'NULL'", "'5'"),
        ],
        ["''", "'a'", "'A'", "'é'", "'\ue000'", "'\uffee'", "'😀'", f"'{'x' * 4999}'", "'5'"],
    ),
    "flag": ("boolean", ["TRUE", "FALSE"], ["TRUE", "FALSE"]),
    "day": (
        "date",
        ["'0001-01-01'", "'1582-10-04'", "'1582-10-15'", "'1969-12-31'", "'9999-12-31'"],
        [
            *("DATE '0001-01-01'", "DATE '1582-10-15'", "DATE '1970-01-01'", "DATE '9999-12-31'"),
            *("TIMESTAMP '1582-10-04 00:00:00'", "TIMESTAMP '1969-12-31 00:00:00.000001'"),
        ],
    ),
    "at": (
        "timestamp",
        [
            *("'0001-01-01 00:00:00'", "'1582-10-04 23:59:59.999999'", "'1582-10-15 00:00:00'"),
            *("'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'"),
        ],
        [
            *("TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '1582-10-15 00:00:00'"),
            *("TIMESTAMP '9999-12-31 23:59:59.999999'", "DATE '1582-10-05'", "DATE '1970-01-01'"),
        ],
    ),
    "local": (
        "timestamp_ntz",
        [
            *("'0001-01-01 00:00:00'", "'1582-10-04 23:59:59.999999'", "'1582-10-15 00:00:00'"),
            *("'1969-12-31 23:59:59.999999'", "'9999-12-31 23:59:59.999999'"),
        ],
        [
            *("TIMESTAMP_NTZ '0001-01-01 00:00:00'", "TIMESTAMP_NTZ '1582-10-15 00:00:00'"),
            *("TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'", "DATE '1582-10-05'"),
        ],
    ),
}  # fmt: skip


def filters_of(name: str) -> list[str]:
    """Comparisons, ranges, lists and their negations."""
    constants = TYPES[name][2]
    tests = [f"{name} {operator} {constant}" for operator in OPERATORS for constant in constants]
    tests += [f"{name} BETWEEN {low} AND {high}" for low, high in pairwise(constants)]
    tests += [f"{name} IN ({', '.join(constants[:2])})", f"{name} NOT IN ({constants[0]})"]
    return [*tests, f"{name} IS NULL", f"NOT {name} < {constants[-1]}"]


def in_spark(test: str) -> str:
    """The filter as Spark takes it, which has no number for infinity."""
    return test.replace("-1e999", "double('-inf')").replace("1e999", "double('inf')")


def test_every_type_compares_as_in_spark(spark: SparkSession) -> None:
    rows = [(name, value) for name, (_, values, _) in TYPES.items() for value in values]
    events = spark.sql(
        " UNION ALL ".join(
            f"SELECT {number}L AS event_id, "
            + ", ".join(
                f"CAST({value if name == own else 'NULL'} AS {kind}) AS `{name}`"
                for name, (kind, _, _) in TYPES.items()
            )
            for number, (own, value) in enumerate(rows)
        )
    ).coalesce(1)
    tests = [test for name in TYPES for test in filters_of(name)]
    answers = events.selectExpr(
        "event_id",
        *(f"({in_spark(test)}) IS TRUE AS t{n}" for n, test in enumerate(tests)),
    ).collect()
    wanted = {
        (row["event_id"], test) for row in answers for n, test in enumerate(tests) if row[f"t{n}"]
    }
    assert len(wanted) > 1_000
    subscriptions = spark.createDataFrame(
        [(test, test) for test in tests], "subscription_id string, filter string"
    )
    found = {tuple(row) for row in match(events, subscriptions).collect()}
    # Where two decimals have no common type of 38 digits, Spark drops the last digits of one.
    smallest = next(n for n, row in enumerate(rows) if row == ("tiny", "1e-38"))
    rounded = {(n, test) for n, test in found ^ wanted if n == smallest and test.endswith(" 0")}
    assert len(rounded) == 5
    # Spark 4.3 takes null for less than a constant beyond the type, in `where` too.
    beyond = {"long < 9223372036854775808", "long <= 9223372036854775808"}
    nulls = {(n, test) for n, row in enumerate(rows) if row[0] != "long" for test in beyond}
    assert {(rows[n], test) for n, test in (found ^ wanted) - rounded - nulls} == set()
    assert not found & nulls


def test_types_that_cannot_be_an_attribute(spark: SparkSession) -> None:
    """They are payload; as an attribute they are refused before any job."""
    events = spark.sql(
        """
        SELECT 1L AS event_id, 5 AS n, X'00' AS binary, TIME '12:00:00' AS clock,
            INTERVAL '1' DAY AS days, INTERVAL '1' MONTH AS months, parse_json('{}') AS variant,
            'a' COLLATE UTF8_LCASE AS folded, array(1) AS list, map('a', 1) AS map,
            named_struct('x', 1) AS record, NULL AS void
        """
    )
    subscriptions = spark.createDataFrame([("a", "n = 5")], "subscription_id string, filter string")
    assert [tuple(row) for row in match(events, subscriptions).collect()] == [(1, "a")]
    for name in events.columns[2:]:
        for kind in ("string", "int", "timestamp", "decimal(10, 2)"):
            if name == "void":
                continue  # it can be anything
            with pytest.raises(
                bm.SparkError, match=f"column '{name}' of the events is of type .*cast"
            ):
                match(events, subscriptions, schema=bm.Schema({"n": "int", name: kind}))


def test_values_that_spark_has_and_an_index_has_not(spark: SparkSession) -> None:
    """NaN is no value at all, and the smallest long is refused."""
    events = spark.sql(
        "SELECT 1L AS event_id, double('NaN') AS x, float('NaN') AS y, 1L AS n UNION ALL "
        "SELECT 2L, 1.0D, float(1), -9223372036854775807L"
    )
    tests = ["x IS NULL", "x > 0", "NOT x > 0", "y IS NULL", "y > 0", "n < 0", "n <> 1"]
    subscriptions = spark.createDataFrame(
        [(test, test) for test in tests], "subscription_id string, filter string"
    )
    found = {tuple(row) for row in match(events, subscriptions).collect()}
    assert found == {
        (1, "x IS NULL"), (1, "y IS NULL"), (2, "x > 0"), (2, "y > 0"), (2, "n < 0"), (2, "n <> 1"),
    }  # fmt: skip
    smallest = spark.sql("SELECT 1L AS event_id, -1L - 9223372036854775807L AS n, 1D AS x, 1D AS y")
    with pytest.raises(Exception, match="the smallest int64 is reserved to mean absent"):
        match(smallest, subscriptions).collect()


def test_decimals_of_other_digits(spark: SparkSession) -> None:
    """A column is read as the attribute that a schema declares, if that holds its values."""
    events = spark.sql(
        "SELECT 1L AS event_id, CAST(5 AS decimal(20, 3)) AS d UNION ALL SELECT 2L, 7.5BD"
    )
    for kind, wanted in [
        ("float", [1]),
        ("decimal(10, 2)", [1]),
        ("decimal(38, 1)", [1]),
        ("decimal(18, 17)", [1]),
    ]:
        subscriptions = spark.createDataFrame(
            [("a", "d < 7.4999"), ("bounds", "d BETWEEN 1 AND 6")],
            "subscription_id string, filter string",
        )
        found = match(events, subscriptions, schema=bm.Schema({"d": kind})).collect()
        assert sorted(map(tuple, found)) == [(n, s) for n in wanted for s in ("a", "bounds")]
    with pytest.raises(
        Exception, match=r"7\.5.* has more than the 0 decimal places of a decimal\(5, 0\)"
    ):
        match(events, subscriptions, schema=bm.Schema({"d": "decimal(5)"})).collect()
