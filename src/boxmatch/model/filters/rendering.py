"""Boxes back to text that people can read and that compiles to the same boxes again."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import decimal_of, unscaled_of_label
from boxmatch.model.expressions.documents import part_of
from boxmatch.model.expressions.nodes import JSON, Call, Literal, Node
from boxmatch.model.expressions.rendering import render as render_node
from boxmatch.model.filters.axes import LocalAxes
from boxmatch.model.filters.compiled import (
    PRESENT,
    Box,
    IntervalSet,
    KeyInterval,
    coalesce,
    complement,
)
from boxmatch.model.filters.literals import INFINITE
from boxmatch.model.filters.names import quote_name
from boxmatch.model.filters.regions import Term, simplify
from boxmatch.model.filters.scope import DerivedAxis, Scope
from boxmatch.model.filters.text_rendering import range_of, render_texts
from boxmatch.model.keys import key_range, value_of
from boxmatch.model.schema import Attribute, Schema
from boxmatch.model.text_ranges import prefix_end, united

_OPERATORS: Final = frozenset(
    (
        *("and", "or", "not", "is_null", "is_true", "is_false", "in", "like", "rlike"),
        *("neg", "div", "concat"),
    )
)
"""Functions that are written as operators."""
RESIDUAL: Final = "/* residual: */"
ALL_RESIDUAL: Final = "/* residual, for every event: */"
_CONDITIONS: Final = frozenset(
    (
        *("and", "or", "not", "in", "is_null", "is_true"),
        *("exists", "forall", "array_contains", "arrays_overlap"),
    )
)
_PREDICATES: Final = frozenset(
    ("=", "<", "<=", "<=>", "like", "rlike", "contains", "starts_with", "ends_with")
)
"""Functions that are conditions on the axes of their arguments if one of these is a constant."""
_FEW_VALUES: Final = 8  # an enum's range of up to so many values is spelt out


def render(
    schema: Schema,
    boxes: Iterable[Box],
    axes: Sequence[DerivedAxis] = (),
    residual: Sequence[Node] = (),
) -> str:
    """Filter text for a union of boxes, over the schema and `axes` of expressions.

    Boxes as `compile_filter` gives them come back exactly when the text is compiled; other boxes
    may come back merged. No boxes are FALSE, the empty box is TRUE. A comment says where the
    `residual` begins, and if there is nothing before it.
    """
    found = _render_boxes(Scope(schema, axes), list(boxes))
    if not residual:
        return found.text
    tests = [_Text(render_node(node, quote_name), _word_of(node)) for node in residual]
    rest = _join("AND", [_Text("", "AND"), *tests]).text.removeprefix(" AND ")
    if found.text == "TRUE":
        return f"{ALL_RESIDUAL} {rest}"
    return f"{_join('AND', [found, _Text(RESIDUAL)]).text} {rest}"


def _render_boxes(scope: Scope, boxes: list[Box]) -> _Text:
    texts: dict[int, list[str]] = {}
    for box in boxes:
        for position, low, high in box:
            ends = [end[0] for end in (low, high) if isinstance(end, tuple)]
            if ends:
                texts.setdefault(position, []).extend(ends)
    axes = LocalAxes(scope, texts)
    terms: list[Term] = []
    for box in boxes:
        sets = [
            (position, coalesce([axes.inward(position, low, high)])) for position, low, high in box
        ]
        if all(keys for _, keys in sets):
            terms.append(tuple(sets))
    renderer = _Renderer(axes)
    conjunctions = [renderer.conjunction(term) for term in simplify(terms)]
    return _join("OR", conjunctions) if conjunctions else _Text("FALSE")


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
        if self.axes.scope.is_of_texts(position):
            return self._texts(position, keys)
        if self.axes.scope.kind(position) != "value":
            return self._parts(position, keys)
        name = self._name(position)
        absent = keys[0][0] == ABSENT
        present = coalesce((max(low, FIRST), high) for low, high in keys)
        alternatives = [_Text(f"{name} IS NULL")] if absent else []
        if present == PRESENT:
            alternatives.append(self._present(name, position))
        elif present:
            alternatives.extend(
                self._excluded(name, position, present) or self._included(name, position, present)
            )
        return _join("OR", alternatives)

    def _texts(self, position: int, keys: IntervalSet) -> _Text:
        """The predicate that a value of a document, or an element of it, has some texts."""
        scope = self.axes.scope
        part = part_of(scope.node(position))
        present = [(max(low, FIRST), high) for low, high in keys if high != ABSENT]
        ranges = united(range_of(*self.axes.outward(position, one)) for one in present)
        name = scope.attributes[position].name
        found = render_texts(
            f"ANY({name})" if scope.attributes[position].repeated else name,
            "" if part is None else part.form,
            ranges,
            absent=keys[0][0] == ABSENT,
        )
        return _join("OR", [_Text(one, "AND" if " AND " in one else "") for one in found])

    def _name(self, position: int) -> str:
        """What is compared, as a comparison writes it."""
        scope = self.axes.scope
        attribute = scope.attributes[position]
        if position >= len(scope.schema):
            return f"({attribute.name})" if _is_operator(scope.node(position)) else attribute.name
        name = quote_name(attribute.name)
        return f"ANY({name})" if attribute.repeated else name

    def _present(self, name: str, position: int) -> _Text:
        attribute = self.axes.scope.attributes[position]
        if attribute.repeated:
            return _Text(f"EXISTS({quote_name(attribute.name)}, x -> NOT x IS NULL)")
        return _Text(f"{name} IS NOT NULL")

    def _parts(self, position: int, keys: IntervalSet) -> _Text:
        """The predicate that a text has one of some parts."""
        name = self._name(position)
        points, _ = self._points(position, keys)
        form = "CONTAINS({}, {})" if self.axes.scope.kind(position) == "needles" else "{} RLIKE {}"
        return _join("OR", [_Text(form.format(name, point)) for point in points])

    def _included(self, name: str, position: int, keys: IntervalSet) -> list[_Text]:
        points, ranges = self._points(position, keys)
        found: list[_Text] = []
        attribute = self.axes.scope.attributes[position]
        if attribute.type == "bool" and not attribute.repeated:
            found = [self._truth(name, position, value == "TRUE") for value in points]
        elif len(points) == 1:
            found.append(_Text(f"{name} = {points[0]}"))
        elif points:
            found.append(_Text(f"{name} IN ({', '.join(points)})"))
        return found + [self._range(name, position, interval) for interval in ranges]

    def _truth(self, name: str, position: int, truth: bool) -> _Text:
        node = self.axes.scope.node(position)
        if isinstance(node, Call) and node.function == "is_null" and node.arguments[0].type == JSON:
            inner = render_node(node.arguments[0], quote_name)
            return _Text(f"{inner} IS {'' if truth else 'NOT '}NULL")
        if _is_condition(node):
            return _Text(f"{name} = {str(truth).upper()}")
        if not truth:
            return _Text(f"NOT {name}")
        if _is_operator(node):
            return _Text(self.axes.scope.attributes[position].name)
        return _Text(name)

    def _excluded(self, name: str, position: int, keys: IntervalSet) -> list[_Text]:
        """`<>` and its kind, if that is shorter: all that is present but for a few values."""
        gaps = complement(keys, PRESENT[0])
        attribute = self.axes.scope.attributes[position]
        if attribute.type == "bool" or attribute.repeated:
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
        attribute = self.axes.scope.attributes[position]
        write = self._constant(position)
        points: list[str] = []
        ranges: list[KeyInterval] = []
        for interval in keys:
            if attribute.type in ("bool", "enum"):
                first, last = key_range(attribute)
                low, high = max(first, interval[0]), min(last, interval[1])
                if high - low < _FEW_VALUES:
                    points.extend(map(write, range(low, high + 1)))
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
                    points.append(write(ends[0]))
                    continue
            elif interval[0] == interval[1]:
                points.append(write(interval[0]))
                continue
            ranges.append(interval)
        return points, ranges

    def _range(self, name: str, position: int, interval: KeyInterval) -> _Text:
        attribute = self.axes.scope.attributes[position]
        if attribute.type == "string":
            return self._string_range(name, position, interval)
        low, high = self._unscaled(position, interval) if attribute.labelled else interval
        write = self._constant(position)
        # One element must be between both ends, which only BETWEEN can say.
        closed = attribute.repeated and interval[0] != FIRST and interval[1] != LAST
        above = None if interval[0] == FIRST else _end(attribute, low, -1, write, closed)
        below = None if interval[1] == LAST else _end(attribute, high, +1, write, closed)
        return _comparisons(name, above, below)

    def _constant(self, position: int) -> Callable[[int], str]:
        """What writes the value of a key."""
        scope = self.axes.scope
        attribute = scope.attributes[position]
        if position >= len(scope.schema):
            type = scope.node(position).type
            if type.name in ("interval", "months"):
                return lambda key: render_node(Literal(key, type), quote_name)
        return lambda key: _constant(attribute, key)

    def _unscaled(self, position: int, interval: KeyInterval) -> KeyInterval:
        """The first and the last of the long decimals in an interval, as unscaled numbers."""
        low, high = self.axes.outward(position, interval)
        first, last = key_range(self.axes.scope.attributes[position])
        return (
            unscaled_of_label(low[0]) if isinstance(low, tuple) else first,
            unscaled_of_label(high[0]) if isinstance(high, tuple) else last,
        )

    def _prefix(self, name: str, position: int, prefix: str) -> _Text:
        node = self.axes.scope.node(position)
        if isinstance(node, Call) and node.function == "reverse":
            inner = node.arguments[0]
            text = render_node(inner, quote_name)
            name = f"({text})" if _is_operator(inner) else text
            return _Text(f"{name} LIKE {_quote_text('%' + _escape(prefix[::-1]))}")
        return _Text(f"{name} LIKE {_quote_text(_escape(prefix) + '%')}")

    def _string_range(self, name: str, position: int, interval: KeyInterval) -> _Text:
        low, high = self.axes.outward(position, interval)
        above = below = None
        if isinstance(low, tuple):
            if low[1] == 0 and high != LAST and high == (prefix_end(low[0]), -1):
                return self._prefix(name, position, low[0])
            above = (">" if low[1] else ">=", _quote_text(low[0]))
        if isinstance(high, tuple):
            below = ("<" if high[1] else "<=", _quote_text(high[0]))
        attribute = self.axes.scope.attributes[position]
        if attribute.repeated and above and below and (above[0], below[0]) != (">=", "<="):
            ends = " AND ".join(f"x {operator} {text}" for operator, text in (above, below))
            return _Text(f"EXISTS({quote_name(attribute.name)}, x -> {ends})")
        return _comparisons(name, above, below)


def _comparisons(name: str, above: tuple[str, str] | None, below: tuple[str, str] | None) -> _Text:
    if above and below and above[0] == ">=" and below[0] == "<=":
        return _Text(f"{name} BETWEEN {above[1]} AND {below[1]}")
    return _join("AND", [_Text(f"{name} {end[0]} {end[1]}") for end in (above, below) if end])


def _end(
    attribute: Attribute, key: int, outside: int, write: Callable[[int], str], closed: bool
) -> tuple[str, str]:
    """Operator and constant for one end: `< 30` reads better than `<= 29.999999999999996`."""
    inclusive = write(key)
    operator = ">" if outside < 0 else "<"
    first, last = key_range(attribute)
    finer = attribute.type in ("float", "timestamp", "decimal")
    if finer and not closed and first <= key + outside <= last:
        exclusive = write(key + outside)
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


def _escape(text: str) -> str:
    """A text as LIKE takes it."""
    return re.sub(r"([\\%_])", r"\\\1", text)


def _is_operator(node: Node) -> bool:
    """Whether the text of an expression is not one word or call."""
    if not isinstance(node, Call):
        return False
    return not node.function.isidentifier() or node.function in _OPERATORS


def _is_condition(node: Node) -> bool:
    """Whether a filter that is this expression has conditions on other axes, and not on its own."""
    if not isinstance(node, Call):
        return False
    return node.function in _CONDITIONS or (
        node.function in _PREDICATES and any(isinstance(one, Literal) for one in node.arguments)
    )


def _word_of(node: Node) -> str:
    """The word that joins an expression at its top, as far as parentheses depend on it."""
    if isinstance(node, Call) and node.function in ("and", "or"):
        return node.function.upper()
    return ""
