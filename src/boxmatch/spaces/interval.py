"""What a region says about one dimension: from ranges of values to keys, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

from boxmatch.errors import AttributeValueError, RegionError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.interval import Interval, ends_of
from boxmatch.model.keys import (
    NO_PLACE,
    axis_text,
    is_absent,
    key_of,
    key_range,
    value_of,
    value_of_text,
)
from boxmatch.model.schema import Attribute
from boxmatch.model.strings import StringAxis


class KeyInterval(NamedTuple):
    """An interval as closed interval of keys, and which of its endpoints were open."""

    low: int
    high: int
    open: int
    """Bit 0: the low end was open, bit 1: the high end."""


def bounds_of(attribute: Attribute, given: Any) -> tuple[Any, Any, bool, bool]:
    """Low and high of a range or of a single value, and whether these endpoints are open."""
    try:
        return ends_of(attribute.name, given) or (given, given, False, False)
    except AttributeValueError as error:
        raise _refused(error) from None


def keys_of(attribute: Attribute, given: Any, axis: StringAxis | None) -> KeyInterval:
    """The keys of an interval on a dimension. `axis` is that of a dimension of strings.

    To be stored, an interval must have endpoints that the axis knows.

    Raises `RegionError` if no value is in it: such a region could never match.
    """
    # The common case first: loading many spends its time here.
    if type(given) is int and attribute.type == "int" and FIRST <= given <= LAST:
        return KeyInterval(given, given, 0)
    interval = Interval(*bounds_of(attribute, given))
    try:
        low, low_open = _end(attribute, interval.low, interval.low_open, axis)
        high, high_open = _end(attribute, interval.high, interval.high_open, axis)
    except AttributeValueError as error:
        raise _refused(error) from None
    first = FIRST if low is None else low + low_open
    last = LAST if high is None else high - high_open
    least, most = (FIRST, LAST) if attribute.labelled else key_range(attribute)
    if max(first, least) > min(last, most) or (interval.high == "" and interval.high_open):
        raise RegionError(f"dimension {attribute.name!r}: no value is in {interval}")
    return KeyInterval(first, last, low_open | high_open << 1)


def _refused(error: AttributeValueError) -> RegionError:
    return RegionError(f"dimension {error.attribute!r}: {error.value!r} {error.reason}")


def _end(
    attribute: Attribute, value: Any, is_open: bool, axis: StringAxis | None
) -> tuple[int | None, int]:
    if value is None:
        return None, 0
    if axis is None:
        key = key_of(attribute, value)
        if key == ABSENT:  # of pandas' NA
            raise AttributeValueError(attribute.name, value, NO_PLACE)
        return key, int(is_open)
    if is_absent(value):
        raise AttributeValueError(attribute.name, value, NO_PLACE)
    text = axis_text(attribute, value)
    if text in axis:
        return axis.label(text), int(is_open)
    # Nothing that is stored ends there, so it makes no difference whether this end is open.
    return axis.key(text), 0


def interval_from(attribute: Attribute, keys: KeyInterval, axis: StringAxis | None) -> Interval:
    """The interval that these are the keys of."""
    low_open, high_open = bool(keys.open & 1), bool(keys.open & 2)
    low = None if keys.low == FIRST else _value(attribute, keys.low - low_open, axis)
    high = None if keys.high == LAST else _value(attribute, keys.high + high_open, axis)
    return Interval(low, high, low_open, high_open)


def _value(attribute: Attribute, key: int, axis: StringAxis | None) -> Any:
    if axis is None:
        return value_of(attribute, key)
    bound = axis.bound(key)
    return value_of_text(attribute, bound[0]) if isinstance(bound, tuple) else bound
