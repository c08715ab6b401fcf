"""What expressions of constants are, by example."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sql_reader import read

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.casts import float_text, timestamp_of, timestamp_text
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import FLOAT, Literal

LAST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (f"{LAST} + 1", None),
        (f"-{LAST} - 1", None),
        ("-7 DIV 2", -3),
        ("-7 % 3", -1),
        ("7 % 0", None),
        ("1 / 0", None),
        ("7 / 2", 3.5),
        ("1e308 * 10e0", float("inf")),
        ("CAST('inf' AS DOUBLE) - CAST('inf' AS DOUBLE)", None),
        ("SQRT(-1)", None),
        ("POWER(0, -1)", float("inf")),
        ("POWER(-8, 0.5)", None),
        ("ROUND(2.5e0)", 3.0),
        ("ROUND(-2.5e0)", -3.0),
        ("ROUND(2.675e0, 2)", 2.68),
        ("ROUND(1250, -2)", 1300),
        ("FLOOR(-1.5e0)", -2),
        ("CEIL(1e300)", None),
        ("SIGN(-3)", -1.0),
        ("0.1 + 0.2 = 0.3", True),
        ("1e-1 + 2e-1 = 3e-1", False),
        ("1.5 * 1.5", Decimal("2.25")),
        ("1.00 / 3.00", Decimal("0.333333")),
        ("CAST('12345.678' AS DECIMAL(7, 2))", Decimal("12345.68")),
        ("CAST('123456.78' AS DECIMAL(7, 2))", None),
        (f"CAST('{'9' * 38}' AS DECIMAL(38, 0))", Decimal("9" * 38)),
        (f"CAST('{'9' * 39}' AS DECIMAL(38, 0))", None),
        (f"CAST('0.{'9' * 38}' AS DECIMAL(38, 38))", Decimal(f"0.{'9' * 38}")),
        (f"{'9' * 38} + 0", Decimal("9" * 38)),
        (f"-{'9' * 38}", Decimal("-" + "9" * 38)),
        ("CAST('1.5' AS BIGINT)", None),
        ("CAST(' 15 ' AS BIGINT)", 15),
        ("CAST(-1.9e0 AS BIGINT)", -1),
        ("CAST('Yes' AS BOOLEAN)", True),
        ("CAST('2024-02-30' AS TIMESTAMP)", None),
        ("CAST('2024-01-01 12:00:00 Europe/Berlin' AS TIMESTAMP)", 1_704_106_800_000_000),
        ("CAST('2024-03-31 02:30:00 Europe/Berlin' AS TIMESTAMP)", 1_711_848_600_000_000),
        ("CAST('2024-10-27 02:30:00 Europe/Berlin' AS TIMESTAMP)", 1_729_989_000_000_000),
        ("CAST('2024-05-31 10:05 Europe/Berlin' AS TIMESTAMP)", None),
        ("NULL AND FALSE", False),
        ("NULL OR FALSE", None),
        ("NULL <=> NULL", True),
        ("2 IN (1, NULL)", None),
        ("1 IN (1, NULL)", True),
        ("GREATEST(1, NULL, 3)", 3),
        ("NULLIF(1, 1)", None),
        ("LOWER('İ')", "i̇"),
        ("LOWER('ΑΣ')", "ας"),
        ("UPPER('ß')", "SS"),
        ("TRIM('\t x ')", "\t x"),
        ("TRIM('xxaxx', 'x')", "a"),
        ("LENGTH('😀é')", 2),
        ("SUBSTRING('Spark SQL', -3)", "SQL"),
        ("SUBSTRING('Spark SQL', 0, 2)", "Sp"),
        ("SUBSTRING('abc', -5, 3)", "a"),
        ("POSITION('', 'abc')", 1),
        ("REPLACE('abc', '', 'x')", "abc"),
        ("REVERSE('a😀')", "😀a"),
        ("'a\nb' LIKE 'a_b'", True),
        ("'100%' LIKE '100\\%'", True),
        ("'100%' LIKE '100!%' ESCAPE '!'", True),
        ("'xabcx' RLIKE 'a.c'", True),
        ("DAYOFWEEK(TIMESTAMP '2009-07-30')", 5),
        ("WEEK(TIMESTAMP '2008-02-20')", 8),
        ("WEEK(TIMESTAMP '2021-01-03')", 53),
        ("TIMESTAMP '2024-01-31' + INTERVAL '1' MONTH = TIMESTAMP '2024-02-29'", True),
        ("TIMESTAMP '2024-01-02' - TIMESTAMP '2024-01-01' = INTERVAL '1' DAY", True),
        ("ELEMENT_AT(ARRAY(1, 2), -1)", 2),
        ("ELEMENT_AT(ARRAY(1, 2), 3)", None),
        ("ARRAY_CONTAINS(ARRAY(1, NULL), 2)", None),
        ("ARRAYS_OVERLAP(ARRAY(1, NULL), ARRAY(1))", True),
        ("ARRAYS_OVERLAP(ARRAY(1, NULL), ARRAY(2))", None),
    ],
)
def test_constants(text: str, value: Any) -> None:
    node = read(text, {})
    assert isinstance(node, Literal)
    assert (node.value, type(node.value)) == (value, type(value))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        *((1.0, "1.0"), (1e7, "1.0E7"), (9999999.0, "9999999.0"), (1e-3, "0.001")),
        *((1.5e-4, "1.5E-4"), (5e-324, "4.9E-324"), (-0.0, "0.0"), (-123456.789, "-123456.789")),
        (float("-inf"), "-Infinity"),
    ],
)
def test_floats_are_written_as_by_java(number: float, text: str) -> None:
    assert float_text(number) == text


@given(st.integers(-LAST, LAST))
def test_timestamps_are_read_back(micros: int) -> None:
    assert timestamp_of(timestamp_text(micros)) == micros


ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo")
TIMES = st.datetimes(datetime(1850, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@given(TIMES, st.sampled_from(ZONES))
def test_parts_are_those_of_datetimes(moment: datetime, zone: str) -> None:
    micros = (moment - EPOCH) // timedelta(microseconds=1)
    local = moment.astimezone(ZoneInfo(zone))
    found = {part: temporal.part_function(part, zone)(micros) for part in temporal.PARTS}
    assert found == {
        **{part: getattr(local, part) for part in ("year", "month", "day")},
        **{part: getattr(local, part) for part in ("hour", "minute", "second")},
        "quarter": (local.month + 2) // 3,
        "dayofweek": local.isoweekday() % 7 + 1,
        "dayofyear": local.timetuple().tm_yday,
        "week": local.isocalendar().week,
    }


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-3, 8))
def test_rounding_by_written_digits(number: float, digits: int) -> None:
    node = call("round", Literal(number, FLOAT), read(str(digits), {}))
    assert isinstance(node, Literal)
    with localcontext(prec=1000):
        unit = Decimal(1).scaleb(-digits)
        exact = (Decimal(repr(number)) / unit).quantize(Decimal(1), "ROUND_HALF_UP") * unit
    assert node.value == float(exact)
