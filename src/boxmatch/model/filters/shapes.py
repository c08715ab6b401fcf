"""Filters of one shape: parsed once, then only their constants are read.

The shape of a text is what remains when its strings and numbers are cut out. Texts of one shape
parse to the same expression but for the constants, so a cached template and the new constants
give the boxes without a parser. Constants inside of expressions, such as the 2 of `2 * price`, are
no such constants: there is a template for each of their values. Whatever is unusual (comments,
prefixed strings, quotes inside names) has no template and takes the full path; so does whatever
goes wrong, for its error message.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import tzinfo
from threading import Lock
from typing import Final

from boxmatch.errors import BoxmatchError
from boxmatch.model.filters.compiled import CompiledFilter
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Element,
    Like,
    Matches,
    Not,
    Or,
    Value,
    leaves,
    values_of,
    with_axes_moved,
)
from boxmatch.model.filters.plans import (
    Order,
    Plan,
    fill_value,
    open_axes,
    order_of,
    plan_of,
    read_values,
)
from boxmatch.model.filters.scope import Scope
from boxmatch.model.schema import Schema

# All repetition is possessive: these run over anything that anybody sends, and must not backtrack.
# For groups that is written (?>(?:…)*): Python before 3.11.5 errs where a possessive group fails
# half-way, as at the dot of "5. ".
_LITERAL: Final = re.compile(
    r"('[^']*+(?>(?:''[^']*+)*)'|(?<![\w.\"$@#])[0-9]++(?>(?:\.[0-9]++)?)"
    r"(?>(?:[eE][+-]?[0-9]++)?)(?![\w.]))"
)
# Between two constants the tokenizer is in no special state if there is nothing but names,
# operators and blanks. A minus sign before a minus sign would start a comment, as does a slash
# before an asterisk.
_PLAIN: Final = re.compile(
    r'(?>(?:[^\W0-9]\w*+|"[^"]*+"|[ \t\r\n(),=<>!+*%|.&\[\]]|-(?!-)|/(?![*/]))*)'
)
_MOST_SHAPES: Final = 512
_MOST_VARIANTS: Final = 32
"""Templates of one shape; beyond, the constants in its expressions are too various."""
_MOST_PLANS: Final = 256
"""Plans of one template; beyond, the constants of its filters are in too many orders."""
LONGEST: Final = 4_000  # characters; a longer text is hardly one of many, and would fill the cache

_Shape = tuple[tuple[str, ...], tuple[bool, ...]]
_Key = tuple[int, tzinfo | None, _Shape]
_FREE_KINDS: Final = ("number", "text", "timestamp", "date")


class Template:
    """The condition of a shape, waiting for constants."""

    def __init__(
        self,
        scope: Scope,
        condition: Condition,
        slots: dict[int, int],
        fixed: Collection[int] = (),
    ) -> None:
        self._schema = scope.schema
        self.fixed = fixed
        """The slots of constants that it is made for, and which are not open."""
        self._condition = condition
        self._slots = slots
        self._derived = tuple(scope.derived)
        self.axes = open_axes(scope, condition, slots)
        """Where constants go; None if they have to be compiled each time."""
        self._plans: dict[tuple[int, bool, Order], Plan | None] = {}

    def compile(self, constants: list[str], max_boxes: int, *, lists: bool) -> CompiledFilter:
        """Compile with these constants, as written; raises what the full path would, or less."""
        values = None if self.axes is None else read_values(self.axes, constants)
        if self.axes is None or values is None:
            return self._compile_in_full(constants, max_boxes, lists)
        key = max_boxes, lists, order_of(self.axes, values)
        plan = self._plans.get(key)
        if plan is not None:
            return plan.fill(values)
        return self._learn(key, values, constants)[0]

    def plan(self, constants: list[str], max_boxes: int, *, lists: bool) -> Plan | None:
        """What filters compile to whose constants are in the same order, if they have a plan."""
        values = None if self.axes is None else read_values(self.axes, constants)
        if self.axes is None or values is None:
            return None
        key = max_boxes, lists, order_of(self.axes, values)
        if key in self._plans:
            return self._plans[key]
        return self._learn(key, values, constants)[1]

    def _learn(
        self, key: tuple[int, bool, Order], values: list[int | str], constants: list[str]
    ) -> tuple[CompiledFilter, Plan | None]:
        max_boxes, lists, _ = key
        compiled = self._compile_in_full(constants, max_boxes, lists)
        plan = plan_of(len(self._schema), self.axes or (), values, compiled)
        if len(self._plans) < _MOST_PLANS:
            self._plans[key] = plan
        return compiled, plan

    def _compile_in_full(self, constants: list[str], max_boxes: int, lists: bool) -> CompiledFilter:
        scope = Scope(self._schema, self._derived)
        filled = self._fill(self._condition, constants)
        return compile_condition(scope, filled, max_boxes, lists=lists)

    def _fill(self, condition: Condition, constants: list[str]) -> Condition:
        match condition:
            case Not(operand):
                return Not(self._fill(operand, constants))
            case And(operands) | Or(operands):
                return type(condition)(tuple(self._fill(each, constants) for each in operands))
            case Compare(attribute, operator, value):
                return Compare(attribute, operator, self._constant(value, constants))
            case Among(attribute, values):
                return Among(attribute, tuple(self._constant(v, constants) for v in values))
            case Element(comparisons=comparisons):
                filled = (
                    replace(one, value=self._constant(one.value, constants)) for one in comparisons
                )
                return replace(condition, comparisons=tuple(filled))
            case Like(value=pattern) | Matches(value=pattern):
                return replace(condition, value=self._constant(pattern, constants))
            case _:
                return condition

    def _constant(self, template: Value, constants: list[str]) -> Value:
        slot = self._slots.get(-1 if template.position is None else template.position)
        if template.kind not in _FREE_KINDS or slot is None:
            return template
        return fill_value(template, constants[slot])


class _Family:
    """The templates of a shape, by the constants that are part of its expressions."""

    def __init__(self, fixed: tuple[int, ...]) -> None:
        self.fixed = fixed
        """The slots of those constants."""
        self.templates: dict[tuple[str, ...], Template | None] = {}

    def variant(self, constants: list[str]) -> tuple[str, ...]:
        return tuple([constants[slot] for slot in self.fixed])


class ShapeCache:
    """Templates by shape, the most recently used ones. Safe to share between threads."""

    def __init__(self, most: int = _MOST_SHAPES) -> None:
        self._most = most
        self._lock = Lock()
        # By identity of the schema, whose hash is slow. The entry keeps it alive, and its id taken.
        self._families: OrderedDict[_Key, tuple[Schema, _Family | None]]
        self._families = OrderedDict()

    def __len__(self) -> int:
        return len(self._families)

    def find(
        self, schema: Schema, text: str, zone: tzinfo | None = None
    ) -> tuple[Template, list[str]] | None:
        """The template for a text and the text's constants; None if it has to be parsed."""
        if len(text) > LONGEST or not (text.isascii() or _encodes(text)):
            return None
        pieces = _LITERAL.split(text)
        constants = pieces[1::2]
        shape = tuple(pieces[::2]), tuple([constant[0] == "'" for constant in constants])
        key = id(schema), zone, shape
        with self._lock:
            found = self._families.get(key)
            if found is not None:
                self._families.move_to_end(key)
        if found is None:
            found = schema, _family(schema, shape, constants, zone)
            with self._lock:
                self._families[key] = found
                if len(self._families) > self._most:
                    self._families.popitem(last=False)
        family = found[1]
        if family is None:
            return None
        variant = family.variant(constants) if family.fixed else ()
        template = family.templates.get(variant)
        if template is None and family.fixed:
            if variant in family.templates or len(family.templates) >= _MOST_VARIANTS:
                return None
            template, _ = _template(
                schema, shape, dict(zip(family.fixed, variant, strict=True)), zone
            )
            family.templates[variant] = template
        return None if template is None else (template, constants)


def _family(
    schema: Schema, shape: _Shape, constants: list[str], zone: tzinfo | None
) -> _Family | None:
    pieces, _ = shape
    if not all(_PLAIN.fullmatch(piece) for piece in pieces):
        return None
    for before in pieces[:-1]:
        # A name right before a quote is a prefix such as N'…'; two constants are never neighbours.
        if before and (before[-1].isalnum() or before[-1] in "_'\""):
            return None
    if any(not between for between in pieces[1:-1]):
        return None
    template, free = _template(schema, shape, {}, zone)
    fixed: tuple[int, ...] = ()
    if template is None:
        if not free:  # with all constants as they are, to see which of them are free
            _, free = _template(schema, shape, dict(enumerate(constants)), zone)
        fixed = tuple(slot for slot in range(len(constants)) if slot not in free)
        if not free or not fixed:
            return None
        chosen = {slot: constants[slot] for slot in fixed}
        template, _ = _template(schema, shape, chosen, zone)
        if template is None:
            return None
    family = _Family(fixed)
    family.templates[family.variant(constants)] = template
    return family


def _template(
    schema: Schema, shape: _Shape, fixed: Mapping[int, str], zone: tzinfo | None
) -> tuple[Template | None, set[int]]:
    """The template with some constants as they are, if all others are free; which are free."""
    from boxmatch.model.filters.sql import parse_text

    pieces, quoted = shape
    text = pieces[0]
    places: dict[int, int] = {}
    for slot, piece in enumerate(pieces[1:]):
        places[len(text)] = slot
        # Each with a content of its own, by which it is recognised.
        text += fixed.get(slot, f"'{slot}'" if quoted[slot] else str(slot)) + piece
    scope = Scope(schema)
    try:
        condition = parse_text(scope, text, zone)
    except BoxmatchError:
        return None, set()
    found: list[int] = []
    for leaf in leaves(condition):
        for value in values_of(leaf):
            slot = places.get(-1 if value.position is None else value.position, -1)
            if value.kind in _FREE_KINDS and slot >= 0:
                content = fixed.get(slot, str(slot)).strip("'").replace("''", "'")
                if str(value.content).lstrip("-") == content:
                    found.append(slot)
    free = {slot for slot in found if found.count(slot) == 1}
    slots = {position: slot for position, slot in places.items() if slot in free - fixed.keys()}
    if len(slots) + len(fixed) < len(places):
        return None, free
    positions = scope.sort()
    if positions is not None:
        condition = with_axes_moved(condition, positions)
    return Template(scope, condition, slots, tuple(fixed)), free


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
