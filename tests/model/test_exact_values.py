"""Values at the edges of what types hold: they compare as at their source, or they are refused."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from math import inf
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import boxmatch as bm

OPERATORS = ("=", "<>", "<", "<=", ">", ">=")


def decimals(kind: Any, *texts: str) -> pa.Array[Any]:
    return pa.array([None, *map(Decimal, texts)], kind)


# An attribute's type, a column of values that it holds, and constants to compare them with.
HELD: dict[str, tuple[str, pa.Array[Any], list[str]]] = {
    "itself": (
        "decimal(10, 2)",
        decimals(pa.decimal128(10, 2), "20.30", "20.29", "0.10", "-0.10", "99999999.99", "0"),
        ["20.3", "20.300", "20.299999999999997", "0.1", "-0.1", "99999999.99", "1e8", "0"],
    ),
    "itself, long": (
        "decimal(20, 0)",
        decimals(pa.decimal128(20, 0), "9007199254740992", "9007199254740993", "9" * 20, "-1"),
        ["9007199254740992", "9007199254740993", "9007199254740992.5", "9" * 20, "-1"],
    ),
    "itself, of all places": (
        "decimal(38, 38)",
        decimals(pa.decimal128(38, 38), "0." + "9" * 38, "0.3000000000000000001", "0.3", "-0.3"),
        ["0.3", "0.3000000000000000001", "-0.3", "0.29", "0.1"],
    ),
    "fewer places": (
        "decimal(12, 4)",
        decimals(pa.decimal128(10, 2), "20.30", "-20.3", "99999999.99", "0"),
        ["20.3", "20.3001", "20.30009", "99999999.99", "-20.3"],
    ),
    "more places": (
        "decimal(12, 1)",
        decimals(pa.decimal128(38, 20), "20.30", "-20.3", "99999999999.9", "0"),
        ["20.3", "20.3001", "20.30009", "99999999999.9", "-20.3"],
    ),
    "decimal32": (
        "decimal(9, 3)",
        decimals(pa.decimal32(9, 3), "20.300", "-999999.999", "0"),
        ["20.3", "-999999.999", "0", "0.0001"],
    ),
    "decimal64": (
        "decimal(18, 3)",
        decimals(pa.decimal64(18, 3), "20.300", "-999999999999999.999", "0"),
        ["20.3", "-999999999999999.999", "0", "0.0001"],
    ),
    "decimal256 as decimal": (
        "decimal(20, 4)",
        decimals(pa.decimal256(60, 10), "20.3", "-9999999999999999.9999", "0"),
        ["20.3", "-9999999999999999.9999", "0", "0.00001"],
    ),
    "int64 as decimal": (
        "decimal(18, 1)",
        pa.array([None, 5, -5, 10**17 - 1]),
        ["5", "4.9", "-5", "99999999999999999"],
    ),
    "uint64 as long decimal": (
        "decimal(22, 1)",
        pa.array([None, 5, 2**64 - 1], pa.uint64()),
        ["5", "4.9", "18446744073709551615", "18446744073709551614.9"],
    ),
    "float64 as decimal": (
        "decimal(18, 4)",
        pa.array([None, 0.1, 0.3, -1.25, 99999999999.9999, 1e13, 0.0001]),
        ["0.1", "0.3", "-1.25", "99999999999.9999", "10000000000000", "0.0001"],
    ),
    "float64 as long decimal": (
        "decimal(30, 17)",
        pa.array([None, 0.1, 0.30000000000000004, 1e12]),
        ["0.1", "0.30000000000000004", "0.3", "1e12"],
    ),
    "decimal(10, 2)": (
        "float",
        decimals(pa.decimal128(10, 2), "20.30", "20.29", "0.10", "-0.10", "99999999.99", "0"),
        ["20.3", "20.300", "20.299999999999997", "0.1", "-0.1", "99999999.99", "1e8", "0"],
    ),
    "decimal(20, 0)": (
        "float",
        decimals(
            pa.decimal128(20, 0), "9007199254740992", "9007199254740994", "1152921504606847000"
        ),
        ["9007199254740991", "9007199254740992", "9007199254740994", "1152921504606847000"],
    ),
    "decimal(38, 19)": (
        "float",
        decimals(pa.decimal128(38, 19), "0.3", "0.30000000000000004", "-0.3", "1234567890.12345"),
        ["0.3", "0.30000000000000004", "-0.3", "0.299999999999999", "1234567890.12345"],
    ),
    "decimal(38, 0)": (
        "float",
        decimals(pa.decimal128(38, 0), "1e22", "1e23", "123456789012345e20"),
        ["1e22", "100000000000000000000000", "12345678901234500000000000000000000"],
    ),
    "decimal(38, 0) as int": (
        "int",
        decimals(pa.decimal128(38, 0), "9007199254740993", "9223372036854775807"),
        ["9007199254740992", "9007199254740993", "9223372036854775807"],
    ),
    "decimal(20, 2) as int": (
        "int",
        decimals(pa.decimal128(20, 2), "9007199254740993.00", "-1"),
        ["9007199254740992", "9007199254740993", "9007199254740993.0", "-1"],
    ),
    "int64 as float": (
        "float",
        pa.array([None, 2**53, -(2**53), 2**53 - 1, 1152921504606847000, 10**18]),
        ["9007199254740992", "-9007199254740992", "9007199254740991", "1152921504606847000", "0.5"],
    ),
    "uint64 as int": (
        "int",
        pa.array([None, 2**63 - 1, 2**53 + 1], pa.uint64()),
        ["9223372036854775807", "9223372036854775806", "9007199254740992"],
    ),
    "float32": (
        "float",
        pa.array([None, 0.1, 0.5, 16777216.0], pa.float32()),
        ["0.1", "0.5", "0.10000000149011612", "16777217"],
    ),
    "float64": (
        "float",
        pa.array([None, 0.1, 0.3, 0.1 + 0.2, 2.0**53, 2.0**60, 5e-324, 1e308]),
        ["0.1", "0.3", "0.30000000000000004", "9007199254740992", "1152921504606847000", "5e-324"],
    ),
    "timestamp[s]": (
        "timestamp",
        pa.array([None, 0, -1, 86_400], pa.timestamp("s")),
        ["'1970-01-01 00:00:00'", "'1969-12-31 23:59:59.999999'", "DATE '1970-01-02'"],
    ),
    "timestamp[ms]": (
        "timestamp",
        pa.array([None, 1, -1], pa.timestamp("ms")),
        ["'1970-01-01 00:00:00.001'", "'1969-12-31 23:59:59.999'", "'1970-01-01 00:00:00.000999'"],
    ),
    "timestamp[us]": (
        "timestamp",
        pa.array([None, 0, 1, -1], pa.timestamp("us")),
        ["'1970-01-01 00:00:00'", "'1970-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"],
    ),
    "timestamp[ns]": (
        "timestamp",
        pa.array([None, 0, 1_000, -1_000], pa.timestamp("ns")),
        ["'1970-01-01 00:00:00'", "'1970-01-01 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"],
    ),
    "date32": (
        "timestamp",
        pa.array([None, date(2024, 2, 29), date(1, 1, 1)]),
        ["DATE '2024-02-29'", "TIMESTAMP '2024-02-29 00:00:00.000001'", "DATE '0001-01-01'"],
    ),
}


def frames(name: str, column: pa.Array[Any]) -> dict[str, Any]:
    """A column as the kinds of batches have it, as far as they can."""
    values: list[Any] = column.to_pylist()
    objects = np.empty((len(values), 1), object)
    objects[:, 0] = values
    table = pa.table({name: column})
    found = {
        "arrow": table,
        "chunks": pa.table({name: pa.chunked_array([column.slice(0, 1), column.slice(1)])}),
        "dicts": [{name: value} for value in values],
        "many dicts": [{name: value} for value in values + [None] * 64],
        "objects": objects,
        "pandas objects": pd.DataFrame({name: pd.Series(values, dtype=object)}),
        "pandas of Arrow": pd.DataFrame(
            {name: pd.Series(values, dtype=pd.ArrowDtype(column.type))}
        ),
    }
    if column.type not in (pa.decimal32(9, 3), pa.decimal64(18, 3)):  # Arrow does not encode them
        found["dictionary"] = pa.table({name: column.dictionary_encode()})
    if not pa.types.is_decimal256(column.type):
        found["polars"] = pl.DataFrame(pl.Series(name, pl.from_arrow(column)))
    if pa.types.is_integer(column.type):
        kind = "UInt64" if pa.types.is_unsigned_integer(column.type) else "Int64"
        found["pandas"] = pd.DataFrame({name: pd.Series(values, dtype=kind)})
        found["polars, 128 bits"] = pl.DataFrame({name: pl.Series(values, dtype=pl.Int128)})
    return found


@pytest.mark.parametrize("case", HELD)
def test_what_is_held_compares_as_at_its_source(case: str) -> None:
    kind, column, constants = HELD[case]
    tests = [f"v {operator} {c}" for operator in OPERATORS for c in constants]
    tests += [f"v BETWEEN {low} AND {high}" for low, high in pairwise(constants)]
    tests += [f"v IN ({', '.join(constants[::2])})", f"NOT v BETWEEN {constants[0]} AND 7"]
    if kind in ("timestamp", "decimal(38, 38)"):
        tests = [test for test in tests if not test.endswith("7")]
    table = pa.table({"v": column, "row": range(len(column))})
    connection = duckdb.connect()
    if case == "float32":  # there constants are rounded to 32 bits
        table = table.cast(pa.schema({"v": pa.float64(), "row": pa.int64()}))
    if pa.types.is_decimal(column.type):  # it does not know all of them
        table = table.set_column(0, "v", column.cast(pa.decimal128(38, column.type.scale)))
    if case.startswith("float64 as"):  # there decimals are rounded to floats
        written = [None if v is None else Decimal(repr(v)) for v in column.to_pylist()]
        table = pa.table({"v": pa.array(written), "row": table["row"]})
    connection.register("source", table)
    wanted = {
        (row, test)
        for test in tests
        for (row,) in connection.sql(
            f"SELECT row FROM source WHERE {_timestamps(test, kind)}"
        ).fetchall()
    }
    matcher = bm.Matcher({"v": kind}, index="scan")
    matcher.subscribe_many([{"id": test, "filter": test} for test in tests])
    for name, frame in frames("v", column).items():
        result = matcher.match_batch(frame)
        found = zip(result.event.tolist(), result.subscription.tolist(), strict=True)
        assert set(found) == wanted, name
    # The values as bounds of subscriptions, in columns.
    ids = np.arange(len(column))
    bounds = bm.Matcher({"v": kind}, index="scan")
    bounds.subscribe_many(pa.table({"id": ids, "v_low": column, "v_high": column}).slice(1))
    result = bounds.match_batch(table)
    assert result.event.tolist() == result.subscription.tolist() == ids[1:].tolist()


def _timestamps(test: str, kind: str) -> str:
    """The test as DuckDB takes it: text that stands beside a date is not a timestamp there."""
    if kind != "timestamp":
        return test
    return (
        test.replace("TIMESTAMP '", "'")
        .replace("DATE '", "'")
        .replace(" '", " TIMESTAMP '")
        .replace("('", "(TIMESTAMP '")
    )


FLOAT_ONLY = "cannot be held exactly by a float .*round it yourself, as CAST.v AS DOUBLE. does"
FINER = "has a fraction of a microsecond, which a timestamp cannot hold: round it yourself"

# An attribute's type, and a column whose last value it does not hold.
REFUSED: dict[str, tuple[str, pa.Array[Any], str]] = {
    "decimal(20, 0)": (
        "float",
        decimals(pa.decimal128(20, 0), "1", "9007199254740993"),
        FLOAT_ONLY,
    ),
    "decimal(38, 19)": (
        "float",
        decimals(pa.decimal128(38, 19), "0.3", "0.3000000000000000001"),
        FLOAT_ONLY,
    ),
    "decimal(38, 0)": ("float", decimals(pa.decimal128(38, 0), "1", "9" * 38), FLOAT_ONLY),
    "a decimal that is a float, but not written as it": (
        "float",
        decimals(pa.decimal128(20, 0), "1", str(2**60)),
        FLOAT_ONLY,
    ),
    "decimal(76, 40)": (
        "float",
        decimals(pa.decimal256(76, 40), "0.1", "0.10000000000000001"),
        FLOAT_ONLY,
    ),
    "a fraction as int": (
        "int",
        decimals(pa.decimal128(38, 19), "1", "1.0000000000000000001"),
        "is not an int",
    ),
    "decimal(38, 0) as int": (
        "int",
        decimals(pa.decimal128(38, 0), "1", "9223372036854775808"),
        "is outside the range of int64",
    ),
    "int64 as float": ("float", pa.array([None, 1, 2**53 + 1]), FLOAT_ONLY),
    "negative int64 as float": ("float", pa.array([None, 1, -(2**53) - 1]), FLOAT_ONLY),
    "uint64 as float": ("float", pa.array([None, 1, 2**64 - 1], pa.uint64()), FLOAT_ONLY),
    "uint64 as int": (
        "int",
        pa.array([None, 1, 2**63], pa.uint64()),
        "is outside the range of int64",
    ),
    "timestamp[ns]": ("timestamp", pa.array([None, 1_000, 1_001], pa.timestamp("ns")), FINER),
    "timestamp[ns, UTC]": (
        "timestamp",
        pa.array([None, -1_000, -1], pa.timestamp("ns", "UTC")),
        FINER,
    ),
    "text": (
        "timestamp",
        pa.array([None, "2024-01-01T00:00:00.123456000", "2024-01-01T00:00:00.1234567"]),
        FINER,
    ),
    "decimal(10, 3)": (
        "decimal(10, 2)",
        decimals(pa.decimal128(10, 3), "0.1", "0.101"),
        r"has more than the 2 decimal places of a decimal\(10, 2\), and values are never rounded",
    ),
    "a long decimal of more places": (
        "decimal(20, 2)",
        decimals(pa.decimal128(38, 19), "0.1", "0.1000000000000000001"),
        r"has more than the 2 decimal places of a decimal\(20, 2\)",
    ),
    "too large a decimal": (
        "decimal(4, 2)",
        decimals(pa.decimal128(10, 2), "99.99", "100"),
        r"is outside the range of decimal\(4, 2\)",
    ),
    "an unscaled number beyond int64": (
        "decimal(18, 0)",
        decimals(pa.decimal128(38, 0), "1", "9223372036854775808"),
        r"is outside the range of decimal\(18, 0\)",
    ),
    "int64 as decimal": (
        "decimal(4, 2)",
        pa.array([None, 99, 100]),
        r"is outside the range of decimal\(4, 2\)",
    ),
    "float64 as decimal": (
        "decimal(4, 2)",
        pa.array([None, 0.3, 0.1 + 0.2]),
        "has more than the 2 decimal places",
    ),
    "text as decimal": ("decimal(4, 2)", pa.array([None, "1.50", "1,5"]), "is not a decimal"),
    "bool as decimal": ("decimal(20, 2)", pa.array([None, None, True]), "is not a decimal"),
    "duration": ("int", pa.array([None, None, 1], pa.duration("us")), "is not an int"),
    "duration as float": ("float", pa.array([None, None, 1], pa.duration("us")), "is not a float"),
    "time": ("timestamp", pa.array([None, None, 1], pa.time64("us")), "is not a timestamp"),
}


def present(name: str, kind: str) -> bm.Matcher:
    """A matcher that looks at the attribute: others leave it unread."""
    matcher = bm.Matcher({name: kind}, index="scan")
    matcher.subscribe("present", f"{name} IS NOT NULL")
    return matcher


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_held_is_refused_by_name_row_and_value(case: str) -> None:
    kind, column, reason = REFUSED[case]
    matcher = present("v", kind)
    shown = column[2].as_py()
    for name, frame in frames("v", column).items():
        with pytest.raises(
            bm.AttributeValueError, match=f"attribute 'v': .*in row 2 .*{reason}"
        ) as e:
            matcher.match_batch(frame)
        assert e.value.value == shown, name
    bounds = pa.table({"id": ["0", "1", "2"], "v_low": column, "v_high": column})
    if isinstance(shown, (int, float, Decimal)) and shown is not True:
        # As a constant it is between two values, or beyond all of them.
        assert matcher.subscribe("one", {"v": (shown, shown)}).never == 1
        assert matcher.subscribe_many(bounds).never == 1
        assert matcher.filter_of("2") == "FALSE"
        return
    with pytest.raises(bm.AttributeValueError, match=f"attribute 'v_low': .*in row 2 .*{reason}"):
        matcher.subscribe_many(bounds)
    skipped = matcher.subscribe_many(bounds, on_error="skip").rejected
    assert [one.row for one in skipped] == [2]
    with pytest.raises(bm.FilterError, match=f"attribute 'v': .*{reason}"):
        matcher.subscribe("one", {"v": (shown, None)})


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("float", np.longdouble(1) / 3, FLOAT_ONLY),
        ("float", 2**53 + 1, FLOAT_ONLY),
        ("timestamp", np.datetime64(1, "ps"), FINER),
        ("timestamp", pd.Timestamp(1, tz="Asia/Tokyo"), FINER),
        ("timestamp", pd.Period("2024-01"), "is not a timestamp"),
        ("int", np.timedelta64(1, "s"), "is not an int"),
    ],
)
def test_values_of_other_libraries_that_are_not_held(kind: str, value: object, reason: str) -> None:
    matcher = present("v", kind)
    with pytest.raises(bm.AttributeValueError, match=reason):
        matcher.match({"v": value})
    with pytest.raises(bm.AttributeValueError, match=f"in row 1 .*{reason}"):
        matcher.match_batch(pd.DataFrame({"v": pd.Series([None, value], dtype=object)}))
    with pytest.raises(bm.FilterError, match=f"{reason}|more digits than a float holds"):
        matcher.subscribe("one", {"v": [value]})


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_arrays_of_integers_that_no_float_holds(dtype: str) -> None:
    schema = bm.Schema({"n": "int", "x": "float"})
    matcher = bm.Matcher(schema, index="scan")
    matcher.subscribe("all", "n IS NOT NULL AND x IS NOT NULL")
    values = np.array([[2**53 + 1, 2**53], [2**53 + 1, 2**53 + 1]], dtype)
    matcher.match_batch(values[:1])
    with pytest.raises(bm.AttributeValueError, match="'x': 9007199254740993 in row 1 cannot be"):
        matcher.match_batch(values)
    with pytest.raises(bm.AttributeValueError, match="'x': 9007199254740993 in row 1 cannot be"):
        matcher.match_batch(np.ascontiguousarray(values[:, ::-1])[:, ::-1])
    floats = present("x", "float")
    with pytest.raises(bm.AttributeValueError, match="'x': 9007199254740993 in row 1 cannot be"):
        floats.match_batch(values[:, 1:])


@pytest.mark.parametrize(
    ("constant", "reason"),
    [
        (
            "9007199254740993",
            "more digits than a float holds; the nearest float is 900719925474099",
        ),
        (
            "-9007199254740993.0",
            "more digits than a float holds; the nearest float is -90071992547",
        ),
        ("0.3000000000000000001", "more digits than a float holds; the nearest float is 0.3 "),
        ("0.29999999999999999", "more digits than a float holds; the nearest float is 0.3 "),
        ("3.14159265358979323846", "the nearest float is 3.141592653589793 "),
        ("1152921504606846976", r"the nearest float is 1.152921504606847e\+18 "),
        ("1e-400", "the nearest float is 0.0 "),
        ("1e400", "outside the range of float64 .infinity is written 1e999."),
        ("-1e99999999999999999999", "outside the range of float64"),
    ],
)
def test_constants_that_no_float_holds(constant: str, reason: str) -> None:
    schema = bm.Schema({"x": "float", "s": "string"})
    texts = [
        f"x = {constant}",
        f"x <> {constant}",
        f"x IN (1, {constant})",
        f"NOT (x = {constant} OR s = 'a')",
        f"x = {constant} AND s = 'a'",
    ]
    for text in texts * 2:  # the second time from the cache of shapes
        with pytest.raises(bm.FilterError, match=reason) as caught:
            bm.Matcher(schema).subscribe("one", text)
        assert "attribute 'x'" in str(caught.value)


@pytest.mark.parametrize(
    ("constant", "below", "above"),
    [
        ("9007199254740993", 2.0**53, 2.0**53 + 2),
        ("-9007199254740993.0", -(2.0**53) - 2, -(2.0**53)),
        ("0.3000000000000000001", 0.3, 0.30000000000000004),
        ("0.29999999999999999", 0.29999999999999993, 0.3),
        ("1e-400", 0.0, 5e-324),
        ("1e400", 1.7976931348623157e308, inf),
        ("-1e99999999999999999999", -inf, -1.7976931348623157e308),
    ],
)
def test_constants_between_two_floats(constant: str, below: float, above: float) -> None:
    matcher = bm.Matcher({"x": "float"}, index="scan")
    for operator in ("<", "<=", ">", ">="):
        matcher.subscribe(operator, f"x {operator} {constant}")
    matcher.subscribe("between", f"x BETWEEN {constant} AND {constant}")
    assert sorted(matcher.match({"x": below})) == ["<", "<="]
    assert sorted(matcher.match({"x": above})) == [">", ">="]
    assert matcher.subscribe("dict", {"x": (Decimal(above), None)}).never == 0


def test_times_in_filters_are_no_finer_than_microseconds() -> None:
    matcher = bm.Matcher({"t": "timestamp"})
    matcher.subscribe("a", "t >= '2024-01-01T00:00:00.123456000Z'")
    for text in ("'2024-01-01 00:00:00.1234567'", "TIMESTAMP '2024-01-01 00:00:00.123456001'"):
        with pytest.raises(bm.FilterError, match="fraction of a microsecond"):
            matcher.subscribe("b", f"t >= {text}")
    assert matcher.match({"t": datetime(2024, 1, 1, 0, 0, 0, 123456)}) == ["a"]


def test_bounds_that_no_float_holds() -> None:
    lows = np.array([[1], [2**53 + 1], [2**53 + 1]])
    matcher = bm.Matcher({"x": "float"})
    matcher.subscribe_boxes([1, 2, 3], lows, lows + np.array([[0], [0], [1]]))
    assert [matcher.filter_of(id) for id in (1, 2, 3)] == ["x = 1", "FALSE", f"x = {2.0**53 + 2}"]


def test_a_wide_decimal_column_is_checked_without_losing_nulls() -> None:
    texts = [None, "0.30000000000000004", "1e-19", "-1e18", None, "1234567890.1234567"]
    column = pa.array([t and Decimal(t) for t in texts], pa.decimal128(38, 19))
    matcher = bm.Matcher({"x": "float"}, index="scan")
    for text in filter(None, texts):
        matcher.subscribe(text, f"x = {text}")
    result = matcher.match_batch(pa.table({"x": column}))
    assert [texts[event] for event in result.event] == result.subscription.tolist()
    assert result.event.tolist() == [1, 2, 3, 5]
