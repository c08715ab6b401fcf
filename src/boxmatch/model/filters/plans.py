"""Boxes of filters with the constants left open, for all filters of one shape and order.

What a condition compiles to depends on how its constants compare with each other on each axis, and
on nothing else about them: between is a program that compares keys, and takes the next one or the
one before. So filters of one shape whose constants are in one order, as near to each other, have
the same boxes but for the constants. They are compiled once, to a plan.

Constants that are unusual have no plan: numbers between two keys or at the ends of their type, and
what has no keys of its own to compare, such as long decimals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.filters.compiled import NEVER, Bound, CompiledFilter
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Element,
    HasPart,
    Holds,
    InTexts,
    IsTruth,
    Leaf,
    Like,
    Matches,
    Not,
    Operator,
    Or,
    Value,
    leaves,
    values_of,
)
from boxmatch.model.filters.literals import is_short_number, keys_around
from boxmatch.model.filters.scope import DerivedAxis, Scope
from boxmatch.model.keys import INFINITY_KEY, float_key, key_range
from boxmatch.model.schema import Attribute
from boxmatch.model.text_ranges import prefix_end

NEAR: Final = 4
"""Keys that are farther apart do not touch, nor do their neighbours."""

_FREE: Final = ("number", "text", "timestamp", "date")
_ENDS: Final = (ABSENT, FIRST, LAST)
_OPEN_ENDS: Final = {
    "int": (FIRST + NEAR, LAST - NEAR),
    "timestamp": (FIRST + NEAR, LAST - NEAR),
    "float": (NEAR - INFINITY_KEY, INFINITY_KEY - NEAR),
}
"""Between which keys a constant is far from the ends of its type."""

Order: TypeAlias = tuple[int, ...]


class Operand(NamedTuple):
    """A constant that is left open: the one cut out at `slot`."""

    slot: int
    value: Value
    operator: Operator
    negative: bool
    like: Like | None = None
    among: int | None = None
    """The number of the list that it is in."""


class OpenAxis:
    """The open constants of one axis.

    Each has one value, or, if it is a pattern, two: a text, and the end of the range of those that
    start with it.
    """

    __slots__ = (
        "alike", "attribute", "ends", "first", "is_ascending", "is_text", "needles", "operands",
        "own", "patterns", "stop",
    )  # fmt: skip

    def __init__(self, scope: Scope, position: int, operands: list[Operand], first: int) -> None:
        self.attribute = scope.attributes[position]
        self.is_text = self.attribute.type == "string"
        self.operands = operands
        self.first = first
        """Where its values are among those of all axes, up to `stop`."""
        self.stop = first
        self.patterns: list[int] = []
        """Where the texts of patterns are: the longest of several comes first when compiled."""
        lists: dict[int, list[int]] = {}
        for operand in operands:
            if operand.like is not None:
                self.patterns.append(self.stop)
                self.stop += 1
            elif operand.among is not None:
                lists.setdefault(operand.among, []).append(self.stop)
            self.stop += 1
        self.alike = [slice(some[0], some[-1] + 1) for some in lists.values() if len(some) > 1]
        """Values of an `IN`, of which the order says nothing."""
        self.ends: tuple[int | str, ...] = ("",)
        """What constants may be near to, apart from each other."""
        if not self.is_text:
            open_ended = self.attribute.type in _OPEN_ENDS
            self.ends = () if open_ended else key_range(self.attribute)
        listed = self.alike == [slice(first, self.stop)]
        self.is_ascending = listed and (self.is_text or not self.ends)
        """All values are those of one `IN`, and compared with each other alone, or with ""."""
        self.own: int | DerivedAxis = position
        """The axis itself: a position in the schema, or an expression."""
        if position >= len(scope.schema):
            self.own = scope.derived[position - len(scope.schema)]
        self.needles: DerivedAxis | None = None
        if self.patterns:
            self.needles = DerivedAxis("needles", scope.node(position))


def open_axes(scope: Scope, condition: Condition, slots: dict[int, int]) -> list[OpenAxis] | None:
    """The axes of a condition that have open constants; None if it cannot have plans.

    `slots` has the places of constants by their offsets in the text.
    """
    found: dict[int, list[Operand]] = {}
    fixed: set[int] = set()
    if _has_residual(condition):
        return None
    for number, leaf in enumerate(leaves(condition)):
        if isinstance(leaf, Matches | HasPart | InTexts):
            return None
        position = leaf.attribute
        if scope.is_of_texts(position):
            return None
        attribute = scope.attributes[position]
        like = leaf if isinstance(leaf, Like) else None
        if like is not None and (attribute.type != "string" or attribute.repeated):
            return None
        among = number if isinstance(leaf, Among) else None
        if isinstance(leaf, IsTruth):
            fixed.add(position)
        for value, operator in _compared(leaf):
            slot = slots.get(-1 if value.position is None else value.position)
            if value.kind not in _FREE:
                if value.kind != "null" or like is not None:
                    fixed.add(position)
            elif slot is None:
                return None
            else:
                negative = str(value.content).startswith("-")
                operand = Operand(slot, value, operator, negative, like, among)
                found.setdefault(position, []).append(operand)
    axes: list[OpenAxis] = []
    for position, operands in sorted(found.items()):
        axis = OpenAxis(scope, position, operands, axes[-1].stop if axes else 0)
        is_wrong = axis.is_text and any(one.value.kind != "text" for one in operands)
        if position in fixed or is_wrong or (axis.attribute.labelled and not axis.is_text):
            return None
        axes.append(axis)
    return axes


def _has_residual(condition: Condition) -> bool:
    """Whether some of the condition is on no axis."""
    if isinstance(condition, Not):
        return _has_residual(condition.operand)
    if isinstance(condition, And | Or):
        return any(map(_has_residual, condition.operands))
    return isinstance(condition, Holds)


def _compared(leaf: Leaf) -> Iterator[tuple[Value, Operator]]:
    """The constants of a leaf, and how they are compared."""
    if isinstance(leaf, Compare):
        yield leaf.value, leaf.operator
    elif isinstance(leaf, Element):
        for one in leaf.comparisons:
            yield one.value, one.operator
    else:
        for value in values_of(leaf):
            yield value, "="


def read_values(axes: Sequence[OpenAxis], constants: Sequence[str]) -> list[int | str] | None:
    """The values of constants as they are written; None if one is unusual."""
    values: list[int | str] = []
    for axis in axes:
        if axis.is_text:
            for operand in axis.operands:
                text = constants[operand.slot][1:-1].replace("''", "'")
                if operand.like is None:
                    values.append(text)
                else:
                    part = read_pattern(operand.like, text)
                    if part is None:
                        return None
                    values += part
        else:
            for operand in axis.operands:
                key = read_key(axis.attribute, operand, constants[operand.slot])
                if key is None:
                    return None
                values.append(key)
        for some in axis.alike:
            values[some] = sorted(values[some])
    return values


def read_key(attribute: Attribute, operand: Operand, constant: str) -> int | None:
    """The key of a constant; None if it is unusual."""
    kind = attribute.type
    if operand.value.kind == "number":
        if kind == "float" and is_short_number(constant):
            key = float_key(float(constant))
            return -key if operand.negative else key
        if kind == "int" and len(constant) <= 18 and constant.isdecimal():
            return -int(constant) if operand.negative else int(constant)
    try:
        floor, ceil = keys_around(attribute, fill_value(operand.value, constant), operand.operator)
    except (AttributeValueError, ValueError):
        return None
    low, high = _OPEN_ENDS.get(kind) or key_range(attribute)
    return floor if floor == ceil and low <= floor <= high else None


def read_pattern(like: Like, text: str) -> tuple[str, str] | None:
    """The text that a pattern looks for at the start or anywhere, and the end of those that start
    with it, or "" if it may be anywhere; None for other patterns.
    """
    if like.around is not None:
        before, after = like.around
        if like.fold:
            text = text.lower()
    else:
        escape = like.escape
        if like.fold:
            text, escape = text.lower(), escape.lower()
        before, after = text[:1], text[1:][-1:]
        text = text[1:-1] if before == "%" else text[:-1]
        if "%" in text or "_" in text or (escape and escape in text):
            return None
    if after != "%" or not text:
        return None
    if before == "%":
        return text, ""
    end = prefix_end(text)
    return None if end is None else (text, end)


def fill_value(template: Value, constant: str) -> Value:
    """The constant of a template as it is written in a text."""
    if template.kind == "number":
        sign = "-" if str(template.content).startswith("-") else ""
        content = sign + constant
    else:
        content = constant[1:-1].replace("''", "'")
    return Value(template.kind, content, template.position, template.zone)


def order_of(axes: Sequence[OpenAxis], values: Sequence[int | str]) -> Order:
    """How the values compare with each other on every axis; equal for filters of one plan."""
    order: list[int] = []
    for axis in axes:
        some = values[axis.first : axis.stop]
        if len(some) == 1:
            if axis.is_text:
                order.append(not some[0])
            elif axis.ends:
                order += _compare((*some, *axis.ends))
        elif len(some) == 2 and not axis.ends:
            apart: int = some[1] - some[0]  # type: ignore[operator]
            order.append(max(-NEAR, min(apart, NEAR)))
        elif axis.is_ascending:
            order += _distances(some)
            if axis.is_text:
                order.append(not some[0])
        else:
            order += _compare((*some, *axis.ends))
            if len(axis.patterns) > 1:
                order += _compare([len(str(values[place])) for place in axis.patterns])
    return tuple(order)


def _compare(values: Sequence[int | str]) -> list[int]:
    """The places of values in ascending order, and how far each is from the next."""
    order = sorted(range(len(values)), key=values.__getitem__)
    return order + _distances([values[place] for place in order])


def _distances(ascending: Sequence[int | str]) -> list[int]:
    """How far each value is from the next; texts are equal or far."""
    if isinstance(ascending[0], str):
        return [low != high for low, high in pairwise(ascending)]
    return [min(high - low, NEAR) for low, high in pairwise(ascending)]  # type: ignore[operator]


Reference: TypeAlias = tuple[int, int]
"""A bound: the number of a value and what to add to it; or -1 and a key."""


Predicate: TypeAlias = tuple[int, bool, int, int, int, int]
"""Position, whether it is one of texts, and two references."""


class Plan(NamedTuple):
    """A compiled filter without its constants."""

    predicates: tuple[Predicate, ...]
    """Those of all boxes, each once."""
    boxes: tuple[tuple[int, ...], ...]
    """The numbers of their predicates."""
    disjoint: bool
    axes: tuple[DerivedAxis, ...]
    pick: tuple[Callable[[Sequence[Any]], tuple[Any, ...]], ...]
    """What takes the predicates of each box out of all of them."""

    @classmethod
    def of(
        cls,
        boxes: Iterable[Sequence[Predicate]],
        disjoint: bool,
        axes: tuple[DerivedAxis, ...],
    ) -> Plan:
        numbers: dict[Predicate, int] = {}
        numbered = tuple(
            tuple([numbers.setdefault(one, len(numbers)) for one in box]) for box in boxes
        )
        pick = tuple(itemgetter(*box) if len(box) > 1 else _few_of(box) for box in numbered)
        return cls(tuple(numbers), numbered, disjoint, axes, pick)

    @property
    def values(self) -> set[int]:
        """The numbers of the values that it refers to."""
        numbers = {i for _, _, *bounds in self.predicates for i in bounds[::2]}
        return numbers - {-1}

    def fill(self, values: Sequence[int | str] | Mapping[int, int | str]) -> CompiledFilter:
        """The filter with these values."""
        if not self.boxes:
            return NEVER
        filled: list[tuple[int, Bound, Bound]] = []
        for position, is_text, i, low, j, high in self.predicates:
            if not is_text:
                filled.append(
                    (
                        position,
                        low if i < 0 else values[i] + low,  # type: ignore[operator]
                        high if j < 0 else values[j] + high,  # type: ignore[operator]
                    )
                )
            elif i == j and low == high:
                bound: Bound = low if i < 0 else (values[i], low)  # type: ignore[assignment]
                filled.append((position, bound, bound))
            else:
                filled.append(
                    (
                        position,
                        low if i < 0 else (values[i], low),  # type: ignore[arg-type]
                        high if j < 0 else (values[j], high),
                    )
                )
        return CompiledFilter(tuple([pick(filled) for pick in self.pick]), self.disjoint, self.axes)


def _few_of(numbers: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    return lambda items: tuple([items[number] for number in numbers])


def plan_of(
    width: int, axes: Sequence[OpenAxis], values: Sequence[int | str], compiled: CompiledFilter
) -> Plan | None:
    """What a compiled filter is but for its values; None if its bounds do not say.

    `width` is the number of attributes, after which the filter's own axes follow.
    """
    if compiled.residual:
        return None
    known = {one.own: one for one in axes}
    known.update({one.needles: one for one in axes if one.needles is not None})
    boxes = []
    for box in compiled.boxes:
        plan = []
        for position, low, high in box:
            own = position if position < width else compiled.axes[position - width]
            axis = known.get(own)
            is_text = axis is not None and axis.is_text
            i, from_low = _reference(axis, values, low)
            j, from_high = _reference(axis, values, high)
            if _LOST in (i, j):
                return None
            plan.append((position, is_text, i, from_low, j, from_high))
        boxes.append(plan)
    return Plan.of(boxes, compiled.disjoint, compiled.axes)


_LOST: Final = -2


def _reference(axis: OpenAxis | None, values: Sequence[int | str], bound: Bound) -> Reference:
    if isinstance(bound, tuple):
        text, offset = bound
        if axis is not None:
            for place in range(axis.first, axis.stop):
                if values[place] == text:
                    return place, offset
        return _LOST, 0
    if axis is None or bound in _ENDS:
        return -1, bound
    for offset in (0, 1, -1):
        for place in range(axis.first, axis.stop):
            if values[place] == bound - offset:
                return place, offset
    return (-1, bound) if bound in axis.ends else (_LOST, 0)
