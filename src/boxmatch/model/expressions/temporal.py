"""Calendar arithmetic on microseconds since 1970, for single values and for arrays.

The calendar is the proleptic Gregorian one for all of int64, where the datetimes of the standard
library end at the years 1 and 9999. Before the year 2 a zone has its first offset; from 9900 on its
rules are those of 400 years before, when the calendar is the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.expressions.nodes import ExpressionError

SECOND: Final = 1_000_000
DAY: Final = 86_400
"""In seconds, as is everything below."""
_CYCLE: Final = 146_097 * DAY
_EARLIEST: Final = -62_104_060_800  # in the year 2
_LATEST: Final = 250_244_380_800  # in the year 9900
_FIRST_SECOND: Final = -(-FIRST // SECOND)
_LAST_SECOND: Final = LAST // SECOND
_MOST_MONTHS: Final = 12 * 1_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?", re.ASCII)

PARTS: Final = (
    "year",
    "quarter",
    "month",
    "day",
    "dayofweek",
    "dayofyear",
    "week",
    "hour",
    "minute",
    "second",
)
UNITS: Final = (
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
)
_FIXED: Final = {"SECOND": SECOND, "MILLISECOND": 1_000, "MICROSECOND": 1}
_TIMES: Final = {"MINUTE": 60, "HOUR": 3_600, "DAY": DAY}


@lru_cache(maxsize=1024)
def zone(name: str) -> tzinfo:
    """The zone of this name, or of an offset as in +02:00. Raises `ExpressionError` otherwise."""
    found = _OFFSET.fullmatch(name)
    if found:
        hours, minutes, seconds = (int(part or 0) for part in found.groups()[1:])
        ahead = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and ahead <= timedelta(hours=18):
            return timezone(ahead if found[1] == "+" else -ahead)
    elif name in ("Z", "UTC"):
        return UTC
    else:
        try:
            return ZoneInfo(name)
        except (KeyError, ValueError, OSError):  # OSError: the name of a folder
            pass
    raise ExpressionError(f"there is no time zone {name!r}")


def offset(seconds: int, zone: tzinfo) -> int:
    """The seconds that local time is ahead of UTC at a time in UTC."""
    change, before, after = _offsets_of_day(seconds // DAY, zone)
    return before if seconds < change else after


def offsets(seconds: Int64Array, zone: tzinfo) -> Int64Array:
    """`offset` of many times."""
    days, index = np.unique(seconds // DAY, return_inverse=True)
    found = np.array([_offsets_of_day(day, zone) for day in days.tolist()], np.int64)
    change, before, after = found.reshape(-1, 3)[index].T
    result: Int64Array = np.where(seconds < change, before, after)
    return result


@lru_cache(maxsize=65_536)
def _offsets_of_day(day: int, zone: tzinfo) -> tuple[int, int, int]:
    """When clocks change on a day in UTC, if they do, and the offsets before and after."""
    first, last = day * DAY, day * DAY + DAY - 1
    before, after = _looked_up(first, zone), _looked_up(last, zone)
    if before == after:
        return first, before, after
    while last - first > 1:
        middle = (first + last) // 2
        if _looked_up(middle, zone) == before:
            first = middle
        else:
            last = middle
    return last, before, after


def _looked_up(seconds: int, zone: tzinfo) -> int:
    if seconds < _EARLIEST:
        seconds = _EARLIEST
    elif seconds > _LATEST:
        seconds = _LATEST - _CYCLE + (seconds - _LATEST) % _CYCLE
    ahead = (_EPOCH + timedelta(seconds=seconds)).astimezone(zone).utcoffset()
    return 0 if ahead is None else round(ahead.total_seconds())


def civil(days: int) -> tuple[int, int, int]:
    """Year, month and day of a day since 1970."""
    cycle, day = divmod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    return year + 400 * cycle + (month >= 10), month + 3 if month < 10 else month - 9, day + 1


def day_number(year: int, month: int, day: int) -> int:
    """The day since 1970 of a date: the inverse of `civil`."""
    year -= month <= 2
    cycle, year = divmod(year, 400)
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return cycle * 146_097 + year * 365 + year // 4 - year // 100 + of_year - 719_468


def month_length(year: int, month: int) -> int:
    """The number of days of a month."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _week(days: int) -> int:
    thursday = days - (days + 3) % 7 + 3
    return (thursday - day_number(civil(thursday)[0], 1, 1)) // 7 + 1


_PART: Final[dict[str, Callable[[int, int], int]]] = {
    "year": lambda days, _: civil(days)[0],
    "quarter": lambda days, _: (civil(days)[1] + 2) // 3,
    "month": lambda days, _: civil(days)[1],
    "day": lambda days, _: civil(days)[2],
    "dayofweek": lambda days, _: (days + 4) % 7 + 1,
    "dayofyear": lambda days, _: days - day_number(civil(days)[0], 1, 1) + 1,
    "week": lambda days, _: _week(days),
    "hour": lambda _, second: second // 3_600,
    "minute": lambda _, second: second // 60 % 60,
    "second": lambda _, second: second % 60,
}


def part_function(part: str, name: str | None) -> Callable[[int], int]:
    """The function from a timestamp to a part of its local date or time."""
    pick = _PART[part]
    if name is None:
        return lambda micros: pick(*divmod(micros // SECOND, DAY))
    place = zone(name)

    def run(micros: int) -> int:
        seconds = micros // SECOND
        return pick(*divmod(seconds + offset(seconds, place), DAY))

    return run


def parts(part: str, micros: Int64Array, name: str | None) -> Int64Array:
    """A part of many timestamps."""
    seconds = micros // SECOND
    if name is not None:
        seconds = seconds + offsets(seconds, zone(name))
    days, second = np.divmod(seconds, DAY)
    match part:
        case "hour":
            return second // 3_600
        case "minute":
            return second // 60 % 60
        case "second":
            return second % 60
        case "dayofweek":
            return (days + 4) % 7 + 1
        case "week":
            thursdays: Int64Array = days - (days + 3) % 7 + 3
            return (thursdays - _starts(thursdays, "Y")) // 7 + 1
        case "dayofyear":
            return days - _starts(days, "Y") + 1
        case "day":
            return days - _starts(days, "M") + 1
        case "year":
            return _counts(days, "Y") + 1970
    months = _counts(days, "M") % 12
    return months + 1 if part == "month" else months // 3 + 1


def _counts(days: Int64Array, unit: str) -> Int64Array:
    """Whole months or years since 1970."""
    counts: Int64Array = days.view("datetime64[D]").astype(f"datetime64[{unit}]").view(np.int64)
    return counts


def _days(counts: Int64Array, unit: str) -> Int64Array:
    days: Int64Array = counts.view(f"datetime64[{unit}]").astype("datetime64[D]").view(np.int64)
    return days


def _starts(days: Int64Array, unit: str) -> Int64Array:
    """The first days of the months or years of these days."""
    return _days(_counts(days, unit), unit)


def truncate_function(unit: str, name: str | None) -> Callable[[int], int | None]:
    """The function from a timestamp to the start of its unit in local time."""
    if unit in _FIXED:
        step = _FIXED[unit]
        return lambda micros: in_range(micros - micros % step)
    place = None if name is None else zone(name)

    def run(micros: int) -> int | None:
        seconds = micros // SECOND
        if place is None:
            return in_range(_truncate(seconds, unit) * SECOND)
        ahead = offset(seconds, place)
        local = _truncate(seconds + ahead, unit)
        if unit in _TIMES and offset(local - ahead, place) == ahead:
            return in_range((local - ahead) * SECOND)
        return in_range(instant(local, place) * SECOND)

    return run


def instant(local: int, zone: tzinfo) -> int:
    """The time in UTC of a local time: the earlier of two.

    One that the clocks skip is as long after the change as it would be, as in Java.
    """
    before, after = offset(local - DAY, zone), offset(local + DAY, zone)
    if offset(local - before, zone) != before and offset(local - after, zone) == after:
        return local - after
    return local - before


def _truncate(local: int, unit: str) -> int:
    if unit in _TIMES:
        return local - local % _TIMES[unit]
    days = local // DAY
    if unit == "WEEK":
        return (days - (days + 3) % 7) * DAY
    year, month, _ = civil(days)
    first = {"YEAR": 1, "QUARTER": month - (month - 1) % 3, "MONTH": month}[unit]
    return day_number(year, first, 1) * DAY


def truncate(unit: str, micros: Int64Array, name: str | None) -> tuple[Int64Array, BoolArray]:
    """The starts of the units of many timestamps, and which of them are out of range.

    A start is found as by `instant`, except that of a time after a change is not before it.
    """
    if unit in _FIXED:
        starts = micros - micros % _FIXED[unit]
        return starts, (starts > micros) | (starts < FIRST)
    seconds = micros // SECOND
    if name is None:
        return _in_micros(_truncated(seconds, unit))
    place = zone(name)
    ahead = offsets(seconds, place)
    local = _truncated(seconds + ahead, unit)
    before, after = offsets(local - DAY, place), offsets(local + DAY, place)
    fits_before = offsets(local - before, place) == before
    fits_after = offsets(local - after, place) == after
    used = np.where(~fits_before & fits_after, after, before)
    if unit in _TIMES:
        used = np.where(offsets(local - ahead, place) == ahead, ahead, used)
    return _in_micros(local - used)


def _truncated(local: Int64Array, unit: str) -> Int64Array:
    if unit in _TIMES:
        return local - local % _TIMES[unit]
    days = local // DAY
    if unit == "WEEK":
        return (days - (days + 3) % 7) * DAY
    if unit == "QUARTER":
        months = _counts(days, "M")
        return _days(months - months % 3, "M") * DAY
    return _starts(days, unit[0]) * DAY


def _in_micros(seconds: Int64Array) -> tuple[Int64Array, BoolArray]:
    return seconds * SECOND, (seconds < _FIRST_SECOND) | (seconds > _LAST_SECOND)


def in_range(micros: int) -> int | None:
    """The value, unless it is no timestamp."""
    return micros if FIRST <= micros <= LAST else None


def add_months(micros: int, months: int) -> int | None:
    """The same day and time so many months later; the last day of a month that lacks the day."""
    if abs(months) > _MOST_MONTHS:
        return None
    days, rest = divmod(micros, DAY * SECOND)
    year, month, day = civil(days)
    years, month = divmod(month - 1 + months, 12)
    year, month = year + years, month + 1
    moved = day_number(year, month, min(day, month_length(year, month)))
    return in_range(moved * DAY * SECOND + rest)


def months_added(micros: Int64Array, months: Any) -> tuple[Int64Array, BoolArray]:
    """`add_months` of many timestamps, and which of the results are out of range."""
    bad = np.abs(months) > _MOST_MONTHS
    days, rest = np.divmod(micros, DAY * SECOND)
    counts = _counts(days, "M")
    moved = counts + np.where(bad, 0, months)
    last = _days(moved + 1, "M") - 1
    day = np.minimum(_days(moved, "M") + (days - _days(counts, "M")), last)
    # The whole days of int64 and the days of which it has a part.
    edge = LAST // (DAY * SECOND)
    bad = bad | (day > edge) | (day < -edge - 1)
    result = np.where(bad, 0, day) * (DAY * SECOND) + rest
    wrapped = ((day == edge) & (result < 0)) | ((day < -edge) & (result >= 0))
    return result, bad | wrapped | (result < FIRST)
