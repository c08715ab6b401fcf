"""Integer axes for the length of one filter.

Interval algebra wants plain integers on every axis. Strings have none until they meet an index, so
each filter numbers its own: the strings it mentions get every second integer, in order, and the
integers between stand for all strings between. So do long decimals, but for neighbours, between
which there is nothing. Bounds go back to texts when the boxes are ready.

Inside, an interval that reaches the first or last value of its type reaches `FIRST` or `LAST`, so
that `halted OR NOT halted` is seen to be all that is present, and `NULL OR NOT halted` to be one
interval. Outside, the few values of a bool or enum keep their own keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import label_text, unscaled_of_label
from boxmatch.model.filters.compiled import Bound, KeyInterval
from boxmatch.model.filters.scope import Scope
from boxmatch.model.keys import INFINITY_KEY, key_range
from boxmatch.model.schema import Attribute


class LocalAxes:
    """The axes of one filter, given the texts that it mentions by position."""

    def __init__(self, scope: Scope, texts: Mapping[int, Iterable[str]]) -> None:
        self.scope = scope
        self._texts = {position: sorted(set(some)) for position, some in texts.items()}
        self._keys = {
            position: _number_texts(scope.attributes[position], some)
            for position, some in self._texts.items()
        }
        self._labels = {
            position: dict(zip(some, self._keys[position], strict=True))
            for position, some in self._texts.items()
        }

    def label(self, position: int, text: str) -> int:
        """The key, on this filter's axis, of a text that the filter mentions."""
        return self._labels[position][text]

    def widen(self, position: int, low: int, high: int) -> KeyInterval:
        """Stretch to `FIRST` or `LAST` what reaches the type's own ends; may come out empty."""
        attribute = self.scope.attributes[position]
        if attribute.type != "decimal" or not attribute.labelled:
            return widen(attribute, low, high)
        # The first decimal has the key `FIRST` already.
        last = self._labels.get(position, {}).get(label_text(key_range(attribute)[1]), LAST)
        if high < last:
            return low, high
        return (low, LAST) if low <= last else (LAST, FIRST)

    def inward(self, position: int, low: Bound, high: Bound) -> KeyInterval:
        """The interval of keys between two bounds of a compiled box."""
        if isinstance(low, tuple):
            low = self._shift(position, low, (0, 1))
        if isinstance(high, tuple):
            high = self._shift(position, high, (0, -1))
        return self.widen(position, low, high)

    def outward(self, position: int, interval: KeyInterval) -> tuple[Bound, Bound]:
        """The bounds, as a compiled box has them, of an interval of keys."""
        attribute = self.scope.attributes[position]
        if not attribute.labelled:
            return narrow(attribute, *interval)
        low: Bound
        high: Bound
        low, high = interval
        texts, keys = self._texts.get(position, []), self._keys.get(position, [])
        if low > FIRST:
            place = bisect_right(keys, low) - 1
            low = _bound(attribute, texts[place], int(keys[place] < low))
        if high not in (ABSENT, LAST):
            place = bisect_left(keys, high)
            high = _bound(attribute, texts[place], -int(keys[place] > high))
        return low, high

    def _shift(self, position: int, bound: tuple[str, int], offsets: tuple[int, int]) -> int:
        text, offset = bound
        if offset not in offsets:
            raise ValueError(f"{bound!r} is no bound of a filter on this side")
        return self.label(position, text) + offset


def _number_texts(attribute: Attribute, texts: list[str]) -> list[int]:
    """Keys for the sorted texts of one attribute, with one key more for all that is between two."""
    if attribute.type == "string":
        # No string is below the empty one: it takes the first key itself.
        base = FIRST if texts[:1] == [""] else FIRST + 2
        return [base + 2 * place for place in range(len(texts))]
    numbers = list(map(unscaled_of_label, texts))
    first = key_range(attribute)[0]
    keys: list[int] = []
    for place, number in enumerate(numbers):
        if place == 0:
            keys.append(FIRST + min(number - first, 2))  # -1, right below all of them, is `ABSENT`
        else:
            keys.append(keys[-1] + min(number - numbers[place - 1], 2))
    return keys


def _bound(attribute: Attribute, text: str, offset: int) -> tuple[str, int]:
    """A bound next to a text. Of decimals the one next to it is known, and is the bound itself."""
    if offset and attribute.type == "decimal":
        return label_text(unscaled_of_label(text) + offset), 0
    return text, offset


def decimal_interval(attribute: Attribute, low: int, high: int) -> tuple[Bound, Bound] | None:
    """The bounds of a range of unscaled numbers, of a labelled decimal; None if it is empty."""
    first, last = key_range(attribute)
    if max(low, first) > min(high, last):
        return None
    return (
        FIRST if low <= first else (label_text(low), 0),
        LAST if high >= last else (label_text(high), 0),
    )


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
