from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import IntEnum
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.keys import (
    check_string,
    exact_float,
    is_absent,
    key_of,
    key_range,
    value_of,
)
from boxmatch.model.schema import Attribute
from boxmatch.model.typed_arrays import float_keys, int_keys

INT = Attribute("n", "int")
FLOAT = Attribute("x", "float")
BOOL = Attribute("b", "bool")
TIMESTAMP = Attribute("t", "timestamp")
ENUM = Attribute("e", "enum", ("low", "", "high"))
STRING = Attribute("s", "string")

integers = st.integers(FIRST, LAST) | st.sampled_from([0, 2**53, 2**53 + 1, FIRST, LAST])
floats = st.floats(allow_nan=False)
zones = st.none() | st.sampled_from(
    [UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/New_York"), timezone(timedelta(hours=-23))]
)
moments = st.datetimes(timezones=zones)


def order(a: object, b: object) -> int:
    return (a > b) - (a < b)  # type: ignore[operator]


def utc(moment: datetime) -> timedelta:
    """Since 1970; a naive datetime is UTC. Subtraction cannot overflow, conversion could."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return aware - datetime(1970, 1, 1, tzinfo=UTC)


@given(integers, integers)
def test_ints_keep_their_order(a: int, b: int) -> None:
    assert order(key_of(INT, a), key_of(INT, b)) == order(a, b)
    assert value_of(INT, key_of(INT, a)) == a


@given(floats, floats)
@example(-0.0, 0.0)
@example(5e-324, -5e-324)
@example(math.inf, 1.7976931348623157e308)
@example(-math.inf, -1.7976931348623157e308)
def test_floats_keep_their_order(a: float, b: float) -> None:
    assert order(key_of(FLOAT, a), key_of(FLOAT, b)) == order(a, b)
    assert value_of(FLOAT, key_of(FLOAT, a)) == a


@given(floats.filter(lambda x: x != math.inf))
def test_neighbouring_floats_have_neighbouring_keys(a: float) -> None:
    assert key_of(FLOAT, math.nextafter(a, math.inf)) == key_of(FLOAT, a) + 1


@given(moments, moments)
def test_timestamps_keep_their_order(a: datetime, b: datetime) -> None:
    assert order(key_of(TIMESTAMP, a), key_of(TIMESTAMP, b)) == order(utc(a), utc(b))
    assert key_of(TIMESTAMP, a) == utc(a) // timedelta(microseconds=1)
    assert key_of(TIMESTAMP, a.isoformat()) == key_of(TIMESTAMP, a)


@given(st.datetimes(timezones=st.just(UTC)))
def test_timestamps_come_back(a: datetime) -> None:
    assert value_of(TIMESTAMP, key_of(TIMESTAMP, a)) == a


@given(integers)
def test_every_int64_is_a_timestamp(key: int) -> None:
    assert key_of(TIMESTAMP, value_of(TIMESTAMP, key)) == key


def test_bools_and_enums_keep_their_order() -> None:
    assert [key_of(BOOL, v) for v in (False, True, np.True_)] == [0, 1, 1]
    assert [key_of(ENUM, v) for v in ("low", "", "high", np.str_("high"))] == [0, 1, 2, 2]
    assert [value_of(BOOL, k) for k in (0, 1)] == [False, True]
    assert [value_of(ENUM, k) for k in (0, 1, 2)] == ["low", "", "high"]


@pytest.mark.parametrize("attribute", [INT, FLOAT, BOOL, TIMESTAMP, ENUM])
@pytest.mark.parametrize(
    ("value", "is_null"),
    [
        (None, True),
        (pd.NA, True),
        (math.nan, False),
        (np.float32("nan"), False),
        (Decimal("nan"), False),
        (Decimal("sNaN"), False),
        (np.datetime64("NaT", "us"), False),
        (pd.NaT, False),
    ],
)
def test_absent(attribute: Attribute, value: object, is_null: bool) -> None:
    assert is_absent(value)
    assert value_of(attribute, ABSENT) is None
    if is_null:
        assert key_of(attribute, value) == ABSENT
    else:
        with pytest.raises(AttributeValueError, match=f"'{attribute.name}': .* no place in an"):
            key_of(attribute, value)


class Size(IntEnum):
    LARGE = 7


@pytest.mark.parametrize(
    ("attribute", "value", "key"),
    [
        (INT, 2**53 + 1, 2**53 + 1),
        (INT, 1.0, 1),
        (INT, -(2.0**62), -(2**62)),
        (INT, np.uint64(5), 5),
        (INT, np.float32(3), 3),
        (INT, Decimal(2**53 + 1), 2**53 + 1),
        (INT, Decimal("1E+3"), 1000),
        (INT, Size.LARGE, 7),
        (FLOAT, 1, key_of(FLOAT, 1.0)),
        (FLOAT, 2**53, key_of(FLOAT, 2.0**53)),
        (FLOAT, 10**23, key_of(FLOAT, 1e23)),
        (FLOAT, np.float32(0.1), key_of(FLOAT, float(np.float32(0.1)))),
        (FLOAT, np.float64(0.1), key_of(FLOAT, 0.1)),
        (FLOAT, Decimal("0.1"), key_of(FLOAT, 0.1)),
        (FLOAT, Decimal("0.30000000000000004"), key_of(FLOAT, 0.1 + 0.2)),
        (FLOAT, Decimal("5E-324"), key_of(FLOAT, 5e-324)),
        (FLOAT, np.longdouble(0.1), key_of(FLOAT, 0.1)),
        (FLOAT, np.longdouble("-inf"), key_of(FLOAT, -math.inf)),
        (FLOAT, Decimal("inf"), key_of(FLOAT, math.inf)),
        (TIMESTAMP, date(1970, 1, 2), 86_400_000_000),
        (TIMESTAMP, date(1, 1, 1), -62_135_596_800_000_000),
        (TIMESTAMP, "1970-01-01T00:00:00.000001Z", 1),
        (TIMESTAMP, "1970-01-01 01:00+01:00", 0),
        (TIMESTAMP, "1969-12-31T23:59:59.99999900", -1),
        (TIMESTAMP, np.datetime64(-1_000, "ns"), -1),
        (TIMESTAMP, np.datetime64(3 * 10**12, "as"), 3),
        (TIMESTAMP, np.datetime64("1969"), -365 * 86_400_000_000),
        (TIMESTAMP, np.datetime64("1970-02"), 31 * 86_400_000_000),
        (TIMESTAMP, np.datetime64(1, "W"), 7 * 86_400_000_000),
        (TIMESTAMP, np.datetime64(1, "25s"), 25_000_000),
        (TIMESTAMP, pd.Timestamp("1969-12-31T23:59:59.999999000"), -1),
        (TIMESTAMP, pd.Timestamp("1970-01-01T09:00", tz="Asia/Tokyo"), 0),
        (TIMESTAMP, pd.Timestamp("1970-01-01").as_unit("s"), 0),
        (TIMESTAMP, datetime(9999, 12, 31, 23, 59, 59, 999999), 253_402_300_799_999_999),
        (
            TIMESTAMP,
            datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=10))),
            -62_135_596_800_000_000 - 36_000_000_000,
        ),
    ],
)
def test_keys_of_values(attribute: Attribute, value: object, key: int) -> None:
    assert key_of(attribute, value) == key
    assert type(key_of(attribute, value)) is int


def test_a_repeated_hour_is_told_apart() -> None:
    first = datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"))
    hour = key_of(TIMESTAMP, first.replace(fold=1)) - key_of(TIMESTAMP, first)
    assert hour == 3_600_000_000


@pytest.mark.parametrize(
    ("attribute", "value", "reason"),
    [
        (INT, True, "not an int"),
        (INT, np.True_, "not an int"),
        (INT, 1.5, "not an int"),
        (INT, math.inf, "not an int"),
        (INT, "1", "not an int"),
        (INT, np.timedelta64(1, "s"), "not an int"),
        (INT, Decimal("1.5"), "not an int"),
        (INT, Decimal("inf"), "not an int"),
        (INT, [1], "not an int"),
        (INT, 2**63, "outside the range of int64"),
        (INT, -(2**63) - 1, "outside the range of int64"),
        (INT, -(2**63), "reserved to mean absent"),
        (INT, 2.0**63, "outside the range of int64"),
        (INT, np.uint64(2**63), "outside the range of int64"),
        (INT, Decimal("1E+999999"), "outside the range of int64"),
        (FLOAT, True, "not a float"),
        (FLOAT, np.False_, "not a float"),
        (FLOAT, "1.5", "not a float"),
        (FLOAT, 1j, "not a float"),
        (FLOAT, np.timedelta64(1, "s"), "not a float"),
        (FLOAT, 10**400, "outside the range of float64"),
        (FLOAT, Decimal("1E+400"), "outside the range of float64"),
        (FLOAT, np.longdouble("1e400"), "outside the range of float64"),
        (FLOAT, 2**53 + 1, "exactly by a float .the nearest is 9007199254740992.0"),
        (FLOAT, 2**60, "exactly by a float"),  # 1152921504606847000 is the number that is held
        (FLOAT, np.int64(-(2**53) - 1), "exactly by a float"),
        (FLOAT, np.uint64(2**64 - 1), "exactly by a float"),
        (FLOAT, Decimal(2**53 + 1), r"exactly by a float .*CAST\(x AS DOUBLE\)"),
        (FLOAT, Decimal("0.3000000000000000001"), "exactly by a float .the nearest is 0.3"),
        (FLOAT, Decimal("1E-400"), "exactly by a float .the nearest is 0.0"),
        (FLOAT, np.longdouble("0.1"), "exactly by a float"),
        (BOOL, 1, "not a bool"),
        (BOOL, 0.0, "not a bool"),
        (BOOL, "true", "not a bool"),
        (TIMESTAMP, 0, "not a timestamp"),
        (TIMESTAMP, 1.5, "not a timestamp"),
        (TIMESTAMP, "yesterday", "ISO 8601"),
        (TIMESTAMP, "", "ISO 8601"),
        (TIMESTAMP, timedelta(1), "not a timestamp"),
        (TIMESTAMP, "1969-12-31T23:59:59.9999999", "fraction of a microsecond"),
        (TIMESTAMP, "19691231T235959,9999990001Z", "fraction of a microsecond"),
        (TIMESTAMP, np.datetime64(-1, "ns"), "fraction of a microsecond"),
        (TIMESTAMP, np.datetime64(1_999, "ns"), "fraction of a microsecond"),
        (TIMESTAMP, np.datetime64(1, "ps"), "fraction of a microsecond"),
        (TIMESTAMP, np.datetime64(1, "as"), "fraction of a microsecond"),
        (TIMESTAMP, pd.Timestamp("1969-12-31T23:59:59.999999999"), "fraction of a microsecond"),
        (TIMESTAMP, pd.Timestamp(1, tz="Asia/Tokyo"), "fraction of a microsecond"),
        (TIMESTAMP, np.datetime64(2**62, "s"), "too far from 1970"),
        (TIMESTAMP, np.datetime64(2**62, "Y"), "too far from 1970"),
        (ENUM, "Low", "'low', '', 'high'"),
        (ENUM, 0, "is not one of"),
        (ENUM, ["low"], "is not one of"),
    ],
)
def test_refused_values_are_named(attribute: Attribute, value: object, reason: str) -> None:
    with pytest.raises(AttributeValueError, match=reason) as caught:
        key_of(attribute, value)
    assert repr(attribute.name) in str(caught.value)
    assert caught.value.value is value
    assert caught.value.attribute == attribute.name


def test_long_lists_of_enum_values_are_cut() -> None:
    attribute = Attribute("e", "enum", tuple(map(str, range(1000))))
    with pytest.raises(AttributeValueError) as caught:
        key_of(attribute, "x")
    assert len(str(caught.value)) < 200


def test_key_ranges() -> None:
    assert key_range(INT) == key_range(TIMESTAMP) == (FIRST, LAST)
    assert key_range(FLOAT) == (key_of(FLOAT, -math.inf), key_of(FLOAT, math.inf))
    assert key_range(BOOL) == (0, 1)
    assert key_range(ENUM) == (0, 2)
    for attribute in (FLOAT, BOOL, ENUM):
        for key in (key_range(attribute)[0] - 1, key_range(attribute)[1] + 1, LAST, FIRST):
            with pytest.raises(ValueError, match=attribute.name):
                value_of(attribute, key)
    with pytest.raises(ValueError, match="StringAxis"):
        key_range(STRING)
    with pytest.raises(TypeError, match="StringAxis"):
        key_of(STRING, "x")


def test_check_string() -> None:
    assert check_string(STRING, "") == ""
    assert check_string(STRING, "\U0001f600") == "\U0001f600"
    assert type(check_string(STRING, np.str_("x"))) is str
    for value in (b"x", 3, None):
        with pytest.raises(AttributeValueError, match=r"'s'.*not a string"):
            check_string(STRING, value)
    with pytest.raises(AttributeValueError, match="surrogate at offset 1"):
        check_string(STRING, "a\ud800")


numbers = (
    integers
    | st.integers(-(10**17), 10**17).map(lambda n: n * 1000)
    | st.builds(
        lambda digits, exponent: Decimal((0, digits, exponent)),
        st.lists(st.integers(0, 9), min_size=1, max_size=20).map(tuple),
        st.integers(-345, 320),
    )
    | floats.map(lambda x: Decimal(repr(x)))
)


@given(numbers, numbers)
@example(Decimal("0.3"), Decimal("0.3000000000000000001"))
@example(2**60, 1152921504606847000)
@example(Decimal("1E-400"), 0)
@example(Decimal("4.94E-324"), Decimal("5E-324"))
def test_numbers_that_floats_hold_compare_as_their_floats(
    a: int | Decimal, b: int | Decimal
) -> None:
    one, other = exact_float(a), exact_float(b)
    if one is not None and other is not None:
        assert order(one, other) == order(Decimal(a), Decimal(b))


@given(st.integers(1, 10**15 - 1), st.integers(-307, 293))
@example(1, -307)
@example(10**15 - 1, 293)
def test_floats_hold_fifteen_digits(digits: int, exponent: int) -> None:
    number = Decimal(digits).scaleb(exponent)
    assert exact_float(number) == float(number)


@given(st.integers(-(2**53), 2**53))
def test_floats_hold_integers_up_to_2_to_the_53(number: int) -> None:
    assert exact_float(number) == number


@given(floats)
def test_floats_hold_what_they_are_written_as(number: float) -> None:
    assert exact_float(Decimal(repr(number))) == number


def key_in_column(attribute: Attribute, value: float) -> int:
    """NaN is how a column shows a null."""
    return ABSENT if math.isnan(value) else key_of(attribute, value)


@given(st.lists(st.floats(width=64) | integers.map(float)))
def test_float_keys_agree_with_key_of(values: list[float]) -> None:
    array = np.array(values, np.float64)
    for part in (array, array[::2]):
        keys, refused = float_keys(part)
        assert keys.tolist() == [key_in_column(FLOAT, v) for v in part.tolist()]
        assert refused is None


@given(st.lists(integers | st.integers(-(10**15), 10**15).map(lambda n: n * 1000)))
@pytest.mark.parametrize("dtype", ["i8", ">i8", "u8"])
def test_float_keys_of_ints_agree_with_key_of(dtype: str, values: list[int]) -> None:
    array = np.array([abs(v) if dtype == "u8" else v for v in values], dtype)
    keys, refused = float_keys(array)
    held = [exact_float(v) is not None for v in array.tolist()]
    assert ([True] * len(held) if refused is None else (~refused).tolist()) == held
    assert keys[held].tolist() == [key_of(FLOAT, v) for v in array[held].tolist()]


def expected_int(value: float) -> int | None:
    try:
        return key_in_column(INT, value)
    except AttributeValueError:
        return None


@given(
    st.lists(
        st.floats()
        | st.integers(-(2**63), 2**63).map(float)
        | st.sampled_from([2.0**63, -(2.0**63), math.nextafter(2.0**63, 0)])
    )
)
def test_int_keys_of_floats_agree_with_key_of(values: list[float]) -> None:
    keys, refused = int_keys(np.array(values, np.float64))
    expected = [expected_int(v) for v in values]
    assert ([False] * len(values) if refused is None else refused.tolist()) == (
        [e is None for e in expected]
    )
    assert [k for k, e in zip(keys.tolist(), expected, strict=True) if e is not None] == (
        [e for e in expected if e is not None]
    )


@pytest.mark.parametrize("dtype", ["i1", "u1", "i4", "i8", "u8", ">i8", ">u8", ">u4"])
def test_int_keys_of_integer_types(dtype: str) -> None:
    limits = np.iinfo(dtype)
    array = np.array([limits.min, 0, 1, limits.max], dtype)
    keys, refused = int_keys(array)
    expected = [expected_int(int(v)) for v in array]
    assert ([False] * 4 if refused is None else refused.tolist()) == [e is None for e in expected]
    assert [k for k, e in zip(keys.tolist(), expected, strict=True) if e is not None] == (
        [e for e in expected if e is not None]
    )
