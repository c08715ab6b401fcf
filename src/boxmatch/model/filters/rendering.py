"""Boxes back to text that people can read and that compiles to the same boxes again."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final, NamedTuple

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import decimal_of, unscaled_of_label
from boxmatch.model.filters.axes import LocalAxes
from boxmatch.model.filters.compiled import (
    PRESENT,
    Box,
    IntervalSet,
    KeyInterval,
    coalesce,
    complement,
)
from boxmatch.model.filters.literals import INFINITE, prefix_end
from boxmatch.model.filters.regions import Term, simplify
from boxmatch.model.keys import key_range, value_of
from boxmatch.model.schema import Attribute, Schema

_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FEW_VALUES: Final = 8  # an enum's range of up to so many values is spelt out


def render(schema: Schema, boxes: Iterable[Box]) -> str:
    """Filter text for a union of boxes.

    Boxes as `compile_filter` gives them come back exactly when the text is compiled; other boxes
    may come back merged. No boxes are FALSE, the empty box is TRUE.
    """
    boxes = list(boxes)
    texts: dict[int, list[str]] = {}
    for box in boxes:
        for position, low, high in box:
            ends = [end[0] for end in (low, high) if isinstance(end, tuple)]
            if ends:
                texts.setdefault(position, []).extend(ends)
    axes = LocalAxes(schema, texts)
    terms: list[Term] = []
    for box in boxes:
        sets = [
            (position, coalesce([axes.inward(position, low, high)])) for position, low, high in box
        ]
        if all(keys for _, keys in sets):
            terms.append(tuple(sets))
    renderer = _Renderer(axes)
    conjunctions = [renderer.conjunction(term) for term in simplify(terms)]
    return _join("OR", conjunctions).text if conjunctions else "FALSE"


class _Text(NamedTuple):
    """A rendered condition, and the word that joins it at its top, if one does."""

    text: str
    word: str = ""


class _Renderer:
    def __init__(self, axes: LocalAxes) -> None:
        self.axes = axes

    def conjunction(self, term: Term) -> _Text:
        if not term:
            return _Text("TRUE")
        return _join("AND", [self._any_of(position, keys) for position, keys in term])

    def _any_of(self, position: int, keys: IntervalSet) -> _Text:
        """The predicate that one attribute's key is in a set."""
        name = _quote_name(self.axes.schema.names[position])
        absent = keys[0][0] == ABSENT
        present = coalesce((max(low, FIRST), high) for low, high in keys)
        alternatives = [_Text(f"{name} IS NULL")] if absent else []
        if present == PRESENT:
            alternatives.append(_Text(f"{name} IS NOT NULL"))
        elif present:
            alternatives.extend(
                self._excluded(name, position, present) or self._included(name, position, present)
            )
        return _join("OR", alternatives)

    def _included(self, name: str, position: int, keys: IntervalSet) -> list[_Text]:
        points, ranges = self._points(position, keys)
        found: list[_Text] = []
        attribute = self.axes.schema.attributes[position]
        if attribute.type == "bool":
            found = [_Text(name if value == "TRUE" else f"NOT {name}") for value in points]
        elif len(points) == 1:
            found.append(_Text(f"{name} = {points[0]}"))
        elif points:
            found.append(_Text(f"{name} IN ({', '.join(points)})"))
        return found + [self._range(name, position, interval) for interval in ranges]

    def _excluded(self, name: str, position: int, keys: IntervalSet) -> list[_Text]:
        """`<>` and its kind, if that is shorter: all that is present but for a few values."""
        gaps = complement(keys, PRESENT[0])
        attribute = self.axes.schema.attributes[position]
        if attribute.type == "bool":
            return []
        if attribute.type == "enum":
            points, ranges = self._points(position, gaps)
            wanted, _ = self._points(position, keys)
            if ranges or (wanted and len(points) >= len(wanted)):
                return []
        else:
            if keys[0][0] != FIRST or keys[-1][1] != LAST:
                return []
            points, ranges = self._points(position, gaps)
        if points and not ranges:
            if len(points) == 1:
                return [_Text(f"{name} <> {points[0]}")]
            return [_Text(f"{name} NOT IN ({', '.join(points)})")]
        if ranges and not points and len(ranges) == 1:
            inside = self._range(name, position, ranges[0]).text.removeprefix(name)
            if inside.startswith((" BETWEEN ", " LIKE ")):
                return [_Text(f"{name} NOT{inside}")]
        return []

    def _points(self, position: int, keys: IntervalSet) -> tuple[list[str], list[KeyInterval]]:
        """Single values, as constants, and the intervals that hold more than one."""
        attribute = self.axes.schema.attributes[position]
        points: list[str] = []
        ranges: list[KeyInterval] = []
        for interval in keys:
            if attribute.type in ("bool", "enum"):
                first, last = key_range(attribute)
                low, high = max(first, interval[0]), min(last, interval[1])
                if high - low < _FEW_VALUES:
                    points.extend(_constant(attribute, key) for key in range(low, high + 1))
                    continue
            elif attribute.type == "string":
                low_bound, high_bound = self.axes.outward(position, interval)
                if isinstance(high_bound, tuple) and (
                    low_bound == high_bound or (interval[0] == FIRST and high_bound == ("", 0))
                ):
                    points.append(_quote_text(high_bound[0]))
                    continue
            elif attribute.labelled:
                ends = self._unscaled(position, interval)
                if ends[0] == ends[1]:
                    points.append(_constant(attribute, ends[0]))
                    continue
            elif interval[0] == interval[1]:
                points.append(_constant(attribute, interval[0]))
                continue
            ranges.append(interval)
        return points, ranges

    def _range(self, name: str, position: int, interval: KeyInterval) -> _Text:
        attribute = self.axes.schema.attributes[position]
        if attribute.type == "string":
            return self._string_range(name, position, interval)
        low, high = self._unscaled(position, interval) if attribute.labelled else interval
        above = None if interval[0] == FIRST else _end(attribute, low, -1)
        below = None if interval[1] == LAST else _end(attribute, high, +1)
        return _comparisons(name, above, below)

    def _unscaled(self, position: int, interval: KeyInterval) -> KeyInterval:
        """The first and the last of the long decimals in an interval, as unscaled numbers."""
        low, high = self.axes.outward(position, interval)
        first, last = key_range(self.axes.schema.attributes[position])
        return (
            unscaled_of_label(low[0]) if isinstance(low, tuple) else first,
            unscaled_of_label(high[0]) if isinstance(high, tuple) else last,
        )

    def _string_range(self, name: str, position: int, interval: KeyInterval) -> _Text:
        low, high = self.axes.outward(position, interval)
        above = below = None
        if isinstance(low, tuple):
            if low[1] == 0 and high != LAST and high == (prefix_end(low[0]), -1):
                pattern = re.sub(r"([\\%_])", r"\\\1", low[0])
                return _Text(f"{name} LIKE {_quote_text(pattern + '%')}")
            above = (">" if low[1] else ">=", _quote_text(low[0]))
        if isinstance(high, tuple):
            below = ("<" if high[1] else "<=", _quote_text(high[0]))
        return _comparisons(name, above, below)


def _comparisons(name: str, above: tuple[str, str] | None, below: tuple[str, str] | None) -> _Text:
    if above and below and above[0] == ">=" and below[0] == "<=":
        return _Text(f"{name} BETWEEN {above[1]} AND {below[1]}")
    return _join("AND", [_Text(f"{name} {end[0]} {end[1]}") for end in (above, below) if end])


def _end(attribute: Attribute, key: int, outside: int) -> tuple[str, str]:
    """Operator and constant for one end: `< 30` reads better than `<= 29.999999999999996`."""
    inclusive = _constant(attribute, key)
    operator = ">" if outside < 0 else "<"
    first, last = key_range(attribute)
    if attribute.type in ("float", "timestamp", "decimal") and first <= key + outside <= last:
        exclusive = _constant(attribute, key + outside)
        # Of decimals both are short: `> 3` is worth more than `>= 3.01`, `> 0.5` is not.
        margin = 1 if attribute.type == "decimal" else 0
        if len(exclusive) + margin < len(inclusive):
            return operator, exclusive
    return operator + "=", inclusive


def _constant(attribute: Attribute, key: int) -> str:
    if attribute.type == "decimal":
        return f"{decimal_of(key, attribute.scale):f}"
    value = value_of(attribute, key)
    match attribute.type:
        case "bool":
            return "TRUE" if value else "FALSE"
        case "enum":
            return _quote_text(value)
        case "timestamp":
            if isinstance(value, datetime):
                return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
            return f"TIMESTAMP '{value}'"
        case "float" if value in (float("inf"), float("-inf")):
            return INFINITE if value > 0 else f"-{INFINITE}"
        case "float" if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case _:
            return repr(value)


def _join(word: str, parts: Sequence[_Text]) -> _Text:
    """Join with AND or OR, with parentheses around parts that the other one joins."""
    if len(parts) == 1:
        return parts[0]
    texts = (part.text if part.word in ("", word) else f"({part.text})" for part in parts)
    return _Text(f" {word} ".join(texts), word)


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=4096)
def _quote_name(name: str) -> str:
    """The name as it is, or in double quotes if it would not be read as a name."""
    from boxmatch.model.filters.parsing import is_reserved

    if _PLAIN_NAME.fullmatch(name) and not is_reserved(name):
        return name
    return '"' + name.replace('"', '""') + '"'
