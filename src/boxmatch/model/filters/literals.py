"""Constants in filters: from what was written to keys and strings of an attribute's type."""

from __future__ import annotations

import re
from datetime import date, datetime, tzinfo
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Final

import numpy as np

from boxmatch.errors import AttributeValueError, FilterError, UnsupportedFilterError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.filters.expressions import Value
from boxmatch.model.keys import NO_PLACE, check_string, datetime_key, exact_float, float_key, key_of
from boxmatch.model.schema import Attribute

_WHOLE: Final = re.compile(r"-?[0-9]+")
# Years outside 1 to 9999, which datetime cannot hold but an int64 of microseconds can.
_FAR_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,9}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,6}))?"
)
INFINITE: Final = "1e999"
"""How infinity is written: SQL has no other word for it that is a number."""
_SUPPORTED_PATTERNS: Final = "supported is a prefix followed by %, as in LIKE 'ab%'"


def key_of_value(attribute: Attribute, value: Value) -> int:
    """The key of a constant for any type but string; raises `AttributeValueError`."""
    content = value.content
    match value.kind:
        case "number":
            return _key_of_number(attribute, str(content))
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


def text_of_value(attribute: Attribute, value: Value) -> str:
    """The text of a constant for a string attribute; raises `AttributeValueError`."""
    if value.kind == "number":
        number = str(value.content)
        shown = int(number) if _short_whole(number) else float(number)
        raise AttributeValueError(attribute.name, shown, "is a number, not a string")
    if value.kind in ("timestamp", "date"):
        raise AttributeValueError(attribute.name, value.content, "is a timestamp, not a string")
    return check_string(attribute, value.content)


def pattern_of_value(value: Value, text: str | None) -> tuple[str, bool]:
    """The text of a `LIKE` pattern, and whether it is a prefix or a whole string.

    A backslash takes the next character as it is. `text` is the whole filter, for the message if
    the pattern is not a prefix.
    """
    if value.kind != "text":
        raise UnsupportedFilterError(
            f"LIKE needs a quoted pattern; {_SUPPORTED_PATTERNS}", text, value.position
        )
    pattern = str(value.content)
    plain: list[str] = []
    place = 0
    while place < len(pattern):
        character = pattern[place]
        if character == "\\":
            place += 1
            if place == len(pattern):
                raise FilterError("LIKE pattern ends in a lone backslash", text, value.position)
            plain.append(pattern[place])
        elif character == "%" and not pattern[place:].strip("%"):
            return "".join(plain), True
        elif character in "%_":
            raise UnsupportedFilterError(
                f"LIKE with {character} inside the pattern is not a range; {_SUPPORTED_PATTERNS} "
                f"(write \\{character} for the character itself)",
                text,
                value.position,
            )
        else:
            plain.append(character)
        place += 1
    return "".join(plain), False


def prefix_end(prefix: str) -> str | None:
    """The smallest string above all that start with `prefix`; None if there is none."""
    for last in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[last]) + 1
        if point == 0xD800:
            point = 0xE000  # surrogates are not characters
        if point <= 0x10FFFF:
            return prefix[:last] + chr(point)
    return None


def is_short_number(text: str) -> bool:
    """Whether a number has so few digits that a float holds it in any case."""
    return len(text) <= 15 and "e" not in text and "E" not in text


def _key_of_number(attribute: Attribute, text: str) -> int:
    if attribute.type == "float":
        return float_key(_float_of(attribute, text))
    if _WHOLE.fullmatch(text):
        if not _short_whole(text):
            reason = "is outside the range of int64"
            raise AttributeValueError(attribute.name, text, reason)
        return key_of(attribute, int(text))
    if attribute.type != "int":
        return key_of(attribute, float(text))
    # Never through a float, which would round 9007199254740993.0.
    try:
        return key_of(attribute, Decimal(text))
    except InvalidOperation:
        reason = "is outside the range of int64"
    except AttributeValueError as error:
        reason = error.reason
    raise AttributeValueError(attribute.name, float(text), reason)


def _float_of(attribute: Attribute, text: str) -> float:
    """The float that holds a number. Events may be decimals: one that no float holds is refused."""
    nearest = float(text)
    if is_short_number(text) or repr(nearest) == text or text.removeprefix("-") == INFINITE:
        return nearest
    try:
        held = exact_float(Decimal(text)) is not None
    except InvalidOperation:  # an exponent of very many digits
        held = False
    if held:
        return nearest
    if isinf(nearest):
        reason = f"is outside the range of float64 (infinity is written {INFINITE})"
    else:
        reason = f"has more digits than a float holds; the nearest float is {nearest!r}"
    raise AttributeValueError(attribute.name, text, reason)


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
