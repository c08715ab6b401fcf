"""Constants in filters: from what was written to keys and strings of an attribute's type."""

from __future__ import annotations

import re
from datetime import date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Final

import numpy as np

from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import neighbours, number_of
from boxmatch.model.filters.conditions import Operator, Value
from boxmatch.model.keys import (
    NO_PLACE,
    check_string,
    datetime_key,
    float_keys_around,
    is_absent,
    key_of,
    key_range,
    unscaled_of,
)
from boxmatch.model.schema import Attribute

_WHOLE: Final = re.compile(r"-?[0-9]+")
# Years outside 1 to 9999, which datetime cannot hold but an int64 of microseconds can.
_FAR_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,9}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?"
)
INFINITE: Final = "1e999"
"""How infinity is written: SQL has no other word for it that is a number."""
_MOST_EXPONENT: Final = 999_999_999


def key_of_value(attribute: Attribute, value: Value) -> int:
    """The key of a constant that is no number; raises `AttributeValueError`."""
    content = value.content
    match value.kind:
        case "number":
            number = str(content)
            return key_of(attribute, int(number) if _short_whole(number) else float(number))
        case "text" if attribute.type == "timestamp":
            return _key_of_timestamp(attribute, str(content), value.zone)
        case "timestamp" | "date":
            text = str(content)
            if attribute.type != "timestamp":
                reason = f"is a timestamp, but the attribute's type is {attribute.type}"
                raise AttributeValueError(attribute.name, text, reason)
            if value.kind == "timestamp":
                return _key_of_timestamp(attribute, text, value.zone)
            try:
                day = date.fromisoformat(text)
            except ValueError:
                reason = "is not a date; write it as in 2024-05-31"
                raise AttributeValueError(attribute.name, text, reason) from None
            return datetime_key(datetime(day.year, day.month, day.day, tzinfo=value.zone))
        case _:
            key = key_of(attribute, content)
            if key == ABSENT:  # of pandas' NA
                raise AttributeValueError(attribute.name, content, NO_PLACE)
            return key


def keys_around(attribute: Attribute, value: Value, operator: Operator = "=") -> tuple[int, int]:
    """The keys of the nearest values that are not above, and not below, a constant.

    They are equal if the constant is a value of the attribute. A number may lie between two
    values, as 2.5 does between ints, or beyond the first or the last one, next to which it then
    gets the key that no value has. For a long decimal these are unscaled numbers.

    Raises `AttributeValueError`, also for a float that is to equal what no float holds: whoever
    writes that does not mean "never".
    """
    if attribute.type in ("int", "float", "decimal"):
        number = _number(attribute, value)
        if number is not None:
            floor, ceil = around_number(attribute, number)
            if floor != ceil and operator == "=" and attribute.type == "float":
                raise AttributeValueError(attribute.name, value.content, _no_float(number))
            return floor, ceil
        if attribute.labelled:  # not a number: refused, with the reason that an event's value gets
            key = unscaled_of(attribute, value.content)
            return key, key
    key = key_of_value(attribute, value)
    return key, key


def around_number(attribute: Attribute, number: Decimal) -> tuple[int, int]:
    """The keys around a number; see `keys_around`."""
    if attribute.type == "float":
        return float_keys_around(number)
    floor, ceil = neighbours(number, attribute.scale)
    first, last = key_range(attribute)
    if ceil < first:
        return first - 1, first
    if floor > last:
        return last, last + 1
    return floor, ceil


def _no_float(number: Decimal) -> str:
    """Why nothing equals a number."""
    nearest = float(number)
    if isinf(nearest):
        return f"is outside the range of float64 (infinity is written {INFINITE})"
    return f"has more digits than a float holds; the nearest float is {nearest!r}"


def _number(attribute: Attribute, value: Value) -> Decimal | None:
    """The number that a constant is, if it is one."""
    content = value.content
    if value.kind == "number":
        text = str(content)
        if attribute.type == "float" and text.removeprefix("-") == INFINITE:
            return Decimal("-Infinity" if text[0] == "-" else "Infinity")
        return decimal_of_text(text)
    if value.kind not in ("object", "text") or is_absent(content):
        return None
    if isinstance(content, str) and attribute.type != "decimal":
        return None
    if attribute.type == "int" and isinstance(content, (float, np.floating)):
        # Of an int's values a float is the whole number that it holds, in events too.
        return Decimal(float(content)) if float(content) == content else None
    return number_of(content)


def decimal_of_text(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent beyond all that Decimal takes
        mantissa, _, exponent = text.lower().partition("e")
        sign, digits, _ = Decimal(mantissa).as_tuple()
        if not any(digits):
            return Decimal(0)
        return Decimal((sign, (1,), -_MOST_EXPONENT if exponent[0] == "-" else _MOST_EXPONENT))


def text_of_value(attribute: Attribute, value: Value) -> str:
    """The text of a constant for a string attribute; raises `AttributeValueError`."""
    if value.kind == "number":
        number = str(value.content)
        shown = int(number) if _short_whole(number) else float(number)
        raise AttributeValueError(attribute.name, shown, "is a number, not a string")
    if value.kind in ("timestamp", "date"):
        raise AttributeValueError(attribute.name, value.content, "is a timestamp, not a string")
    return check_string(attribute, value.content)


def is_short_number(text: str) -> bool:
    """Whether a number has so few digits that a float holds it in any case."""
    return len(text) <= 15 and "e" not in text and "E" not in text


def _short_whole(text: str) -> bool:
    """A whole number short enough for `int`, which refuses thousands of digits."""
    return len(text) <= 400 and bool(_WHOLE.fullmatch(text))


def _key_of_timestamp(attribute: Attribute, text: str, zone: tzinfo | None) -> int:
    try:
        key = key_of(attribute, text)
    except AttributeValueError:
        far = _FAR_TIMESTAMP.fullmatch(text)
        if far is None:
            raise
        if zone is not None:
            reason = f"is outside the years 1 to 9999: its time in {zone} is not known"
            raise AttributeValueError(attribute.name, text, reason) from None
        day, time, fraction = far.groups()
        try:
            seconds = int(np.datetime64(f"{day}T{time}", "s").astype(np.int64))
        except ValueError:
            seconds = LAST
        key = seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))
        if not FIRST <= key <= LAST:
            raise
        return key
    if zone is None:
        return key
    # A time that the clocks skip, or show twice, is taken as it was before they changed; Java does
    # the same.
    moment = datetime.fromisoformat(text)
    return key if moment.tzinfo is not None else datetime_key(moment.replace(tzinfo=zone))
