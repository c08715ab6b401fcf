"""Integer axes for the length of one filter.

Interval algebra wants plain integers on every axis. Strings have none until they meet an index, so
each filter numbers its own: the strings it mentions get every second integer, in order, and the
integers between stand for all strings between. Bounds go back to texts when the boxes are ready.

Inside, an interval that reaches the first or last value of its type reaches `FIRST` or `LAST`, so
that `halted OR NOT halted` is seen to be all that is present, and `NULL OR NOT halted` to be one
interval. Outside, the few values of a bool or enum keep their own keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.filters.compiled import Bound, KeyInterval
from boxmatch.model.keys import INFINITY_KEY, key_range
from boxmatch.model.schema import Attribute, Schema


class LocalAxes:
    """The axes of one filter, given the strings that it mentions by attribute position."""

    def __init__(self, schema: Schema, texts: Mapping[int, Iterable[str]]) -> None:
        self.schema = schema
        self._texts = {position: sorted(set(some)) for position, some in texts.items()}
        self._bases = {
            # No string is below the empty one: it takes the first key itself.
            position: FIRST if some[:1] == [""] else FIRST + 2
            for position, some in self._texts.items()
        }
        self._labels = {
            position: {text: self._bases[position] + 2 * i for i, text in enumerate(some)}
            for position, some in self._texts.items()
        }

    def label(self, position: int, text: str) -> int:
        """The key, on this filter's axis, of a string that the filter mentions."""
        return self._labels[position][text]

    def inward(self, position: int, low: Bound, high: Bound) -> KeyInterval:
        """The interval of keys between two bounds of a compiled box."""
        if isinstance(low, tuple):
            low = self._shift(position, low, (0, 1))
        if isinstance(high, tuple):
            high = self._shift(position, high, (0, -1))
        return widen(self.schema.attributes[position], low, high)

    def outward(self, position: int, interval: KeyInterval) -> tuple[Bound, Bound]:
        """The bounds, as a compiled box has them, of an interval of keys."""
        attribute = self.schema.attributes[position]
        if attribute.type != "string":
            return narrow(attribute, *interval)
        low: Bound
        high: Bound
        low, high = interval
        texts, base = self._texts.get(position, []), self._bases.get(position, FIRST)
        if low > FIRST:
            place, above = divmod(low - base, 2)
            low = (texts[place], above)
        if high not in (ABSENT, LAST):
            place, below = divmod(high - base, 2)
            high = (texts[place + below], -below)
        return low, high

    def _shift(self, position: int, bound: tuple[str, int], offsets: tuple[int, int]) -> int:
        text, offset = bound
        if offset not in offsets:
            raise ValueError(f"{bound!r} is no bound of a filter on this side")
        return self.label(position, text) + offset


def widen(attribute: Attribute, low: int, high: int) -> KeyInterval:
    """Stretch to `FIRST` or `LAST` what reaches the type's own ends; may come out empty."""
    kind = attribute.type
    if kind in ("int", "string", "timestamp") or (
        kind == "float" and -INFINITY_KEY < low <= high < INFINITY_KEY
    ):
        return low, high
    first, last = key_range(attribute)
    if ABSENT < low <= first:
        low = FIRST
    if high >= last:
        # Beyond the last value there is nothing; keep such an interval empty.
        return (low, LAST) if low <= last else (LAST, FIRST)
    if ABSENT < high < first:
        high = ABSENT  # nothing lies between absent and the first value
    return low, high


def narrow(attribute: Attribute, low: int, high: int) -> KeyInterval:
    """The inverse of `widen`, except that all present values stay `FIRST` to `LAST`."""
    if attribute.type not in ("bool", "enum") or (low, high) == (FIRST, LAST):
        return low, high
    first, last = key_range(attribute)
    return (first if low == FIRST else low), (last if high == LAST else high)


def string_interval(
    low: str | None, high: str | None, low_open: bool, high_open: bool
) -> tuple[Bound, Bound] | None:
    """The bounds of a range of strings; None for a range that is seen to be empty."""
    first: Bound = FIRST
    last: Bound = LAST
    if low is not None and (low or low_open):
        first = (low, int(low_open))
    if high is not None:
        last = (high, -int(high_open))
        if last < first if isinstance(first, tuple) else high_open and not high:
            return None
    return first, last
