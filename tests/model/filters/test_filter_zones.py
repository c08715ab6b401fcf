"""Timestamps without a zone, in a zone that is given with the filter."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest

import boxmatch as bm
from boxmatch.errors import FilterError
from boxmatch.model.filters import compile_filter
from boxmatch.model.keys import datetime_key

SCHEMA = bm.Schema({"at": "timestamp", "price": "float"})
ZURICH = ZoneInfo("Europe/Zurich")
ZONES: list[tzinfo | None] = [None, ZURICH, timezone(timedelta(hours=-5)), ZoneInfo("Asia/Kolkata")]
# What is written, the same as a local time, and the ways in which a filter is compiled: a cached
# conjunction, a cached expression, and the parser alone.
MOMENTS = {
    "'2024-07-01 12:00:00'": datetime(2024, 7, 1, 12),
    "TIMESTAMP '2024-01-01T00:00:00.25'": datetime(2024, 1, 1, 0, 0, 0, 250_000),
    "DATE '2024-07-01'": datetime(2024, 7, 1),
    "'2024-07-01'": datetime(2024, 7, 1),
    "'0001-01-01'": datetime(1, 1, 1),
    "'9999-12-31 23:59:59'": datetime(9999, 12, 31, 23, 59, 59),
}
FORMS = [
    "at = {}",
    "at = {} AND price > 3",
    "price > 3 OR at = {}",
    "at IN ({})",
    "/* x */ at = {}",
]


@pytest.mark.parametrize("form", FORMS)
def test_local_times(form: str) -> None:
    for _ in range(2):  # the second time from the cache
        for zone in ZONES:
            for written, local in MOMENTS.items():
                compiled = compile_filter(SCHEMA, form.format(written), time_zone=zone)
                key = datetime_key(local.replace(tzinfo=zone or UTC))
                bounds = [(low, high) for box in compiled.boxes for i, low, high in box if i == 0]
                assert (key, key) in bounds, (form, written, zone)


def test_what_names_a_zone_keeps_it() -> None:
    for text in ("'2024-07-01T12:00:00Z'", "TIMESTAMP '2024-07-01 14:00:00+02:00'"):
        here = compile_filter(SCHEMA, f"at < {text}", time_zone=ZoneInfo("Asia/Kolkata"))
        assert here == compile_filter(SCHEMA, f"at < {text}")


def test_times_that_clocks_skip_or_repeat_are_as_before_the_change() -> None:
    for written, instant in {
        "'2024-03-31 02:30:00'": "'2024-03-31 01:30:00Z'",
        "'2024-10-27 02:30:00'": "'2024-10-27 00:30:00Z'",
    }.items():
        here = compile_filter(SCHEMA, f"at = {written}", time_zone=ZURICH)
        assert here == compile_filter(SCHEMA, f"at = {instant}")


def test_years_that_a_zone_does_not_reach() -> None:
    far = "at > TIMESTAMP '+12000-01-01 00:00:00'"
    assert compile_filter(SCHEMA, far).boxes
    with pytest.raises(FilterError, match="outside the years 1 to 9999: its time in Europe/Zurich"):
        compile_filter(SCHEMA, far, time_zone=ZURICH)


def test_many_at_once() -> None:
    matcher = bm.Matcher(SCHEMA)
    records = [{"id": 1, "filter": "at = '2024-07-01 12:00'"}]
    matcher.subscribe_many(records, time_zone=ZURICH)
    assert matcher.match({"at": datetime(2024, 7, 1, 10, tzinfo=UTC)}) == [1]
    matcher.subscribe_many(records)
    assert matcher.match({"at": datetime(2024, 7, 1, 10, tzinfo=UTC)}) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("at + INTERVAL 1 DAY > '2024-07-01'", "an INTERVAL of a day or more"),
        ("at - INTERVAL 24 HOURS > '2024-07-01'", "an INTERVAL of a day or more"),
        ("at + INTERVAL 1 MONTH > '2024-07-01'", "an INTERVAL of a day or more"),
        ("at - TIMESTAMP '2024-07-01' > INTERVAL 1 HOUR", "a difference of timestamps"),
        ("CAST(at AS STRING) LIKE '2024%'", "CAST between text and timestamps"),
    ],
)
def test_what_goes_by_the_local_clock_is_refused(text: str, reason: str) -> None:
    """A day is of 23 to 25 hours in Spark SQL; here it would be of 24."""
    compile_filter(SCHEMA, text)
    with pytest.raises(FilterError, match=f"{reason}.* in a time zone other than UTC"):
        compile_filter(SCHEMA, text, time_zone=ZURICH)


def test_hours_are_added_in_any_zone() -> None:
    text = "at + INTERVAL 23 HOURS > TIMESTAMP '2024-07-01 00:00:00Z'"
    assert compile_filter(SCHEMA, text, time_zone=ZURICH) == compile_filter(SCHEMA, text)
