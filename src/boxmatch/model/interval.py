"""Ranges of values, in all forms in which a filter or a region may give one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from boxmatch.errors import AttributeValueError

_ENDS = ("low", "high")
_OPEN = ("low_open", "high_open")
_ELSEWHERE = {
    **dict.fromkeys(("gt", ">"), ("low", True)),
    **dict.fromkeys(("gte", "ge", ">=", "min", "from", "start"), ("low", False)),
    **dict.fromkeys(("lt", "<"), ("high", True)),
    **dict.fromkeys(("lte", "le", "<=", "max", "to", "end"), ("high", False)),
}
"""What the ends of a range are called in other places, and whether they are open there."""
_NO_RANGE = (
    "is not a range: that is (low, high), or {'low': …, 'high': …}, which may lack an end and may "
    "have 'low_open' and 'high_open'"
)


@dataclass(frozen=True)
class Interval:
    """All values from `low` to `high`; None is no bound. An end belongs to it unless it is open.

    Wherever a range is given, a mapping stands for it too, with `low`, `high` or both and, where an
    end is open, `low_open` and `high_open`; that is what survives JSON. A tuple stands for a closed
    range: `(5, None)` for `Interval(5)`.
    """

    low: Any = None
    high: Any = None
    low_open: bool = False
    high_open: bool = False

    def __str__(self) -> str:
        left = "(" if self.low is None or self.low_open else "["
        right = ")" if self.high is None or self.high_open else "]"
        low = "-∞" if self.low is None else repr(self.low)
        high = "∞" if self.high is None else repr(self.high)
        return f"{left}{low}, {high}{right}"


def ends_of(attribute: str, given: object) -> tuple[Any, Any, bool, bool] | None:
    """Low and high of a range, and whether these are open; None for what is not a range.

    Raises `AttributeValueError` for a tuple or a mapping that makes no sense.
    """
    if isinstance(given, tuple):
        if len(given) == 2:
            return given[0], given[1], False, False
        raise AttributeValueError(attribute, given, _NO_RANGE)
    if isinstance(given, (str, int, float)):  # soon, since it is what most are
        return None
    if isinstance(given, Interval):
        return given.low, given.high, given.low_open, given.high_open
    if not isinstance(given, Mapping):
        return None
    if not any(end in given for end in _ENDS) or given.keys() - {*_ENDS, *_OPEN}:
        raise AttributeValueError(attribute, given, _translation(given) or _NO_RANGE)
    low_open, high_open = (given.get(name, False) for name in _OPEN)
    if not isinstance(low_open, bool) or not isinstance(high_open, bool):
        raise AttributeValueError(attribute, given, "must say True or False of an open end")
    return given.get("low"), given.get("high"), low_open, high_open


def _translation(given: Mapping[Any, object]) -> str | None:
    """How to write a range whose ends have names that are known from elsewhere."""
    found: dict[str, object] = {}
    for key, value in given.items():
        end, is_open = _ELSEWHERE.get(str(key).removeprefix("$"), ("", False))
        if not end or end in found:
            return None
        found |= {end: value} | ({f"{end}_open": True} if is_open else {})
    return f"is not a range; write {found!r}" if found else None


def as_mapping(attribute: str, given: object) -> object:
    """A range as a mapping, as which it survives JSON; anything else as it is."""
    ends = ends_of(attribute, given)
    if ends is None or isinstance(given, Mapping):
        return given
    low, high, *opened = ends
    return {"low": low, "high": high} | dict(zip(_OPEN, opened, strict=True) if any(opened) else ())
