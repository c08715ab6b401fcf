"""Filters of one shape: parsed once, then only their constants are read.

The shape of a text is what remains when its strings and numbers are cut out. Texts of one shape
parse to the same expression but for the constants, so a cached template and the new constants
give the boxes without a parser. Whatever is unusual (comments, prefixed strings, quotes inside
names) has no template and takes the full path; so does whatever goes wrong, for its error message.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace
from datetime import tzinfo
from threading import Lock
from typing import Final, NamedTuple

from boxmatch.errors import AttributeValueError, FilterError
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.filters.axes import decimal_interval, narrow, string_interval, widen
from boxmatch.model.filters.compiled import NEVER, Bound, CompiledFilter
from boxmatch.model.filters.compiler import compile_expression
from boxmatch.model.filters.expressions import (
    Among,
    And,
    Compare,
    Expression,
    Like,
    Not,
    Operator,
    Or,
    Value,
    leaves,
    values_of,
)
from boxmatch.model.filters.literals import is_short_number, keys_around
from boxmatch.model.keys import check_string, float_key, key_range
from boxmatch.model.schema import Attribute, Schema

# All repetition is possessive: these run over anything that anybody sends, and must not backtrack.
# For groups that is written (?>(?:…)*): Python before 3.11.5 errs where a possessive group fails
# half-way, as at the dot of "5. ".
_LITERAL: Final = re.compile(
    r"('[^']*+(?>(?:''[^']*+)*)'|(?<![\w.\"$@#])[0-9]++(?>(?:\.[0-9]++)?)"
    r"(?>(?:[eE][+-]?[0-9]++)?)(?![\w.]))"
)
# Between two constants the tokenizer is in no special state if there is nothing but names,
# operators and blanks. A minus sign before a minus sign would start a comment.
_PLAIN: Final = re.compile(r'(?>(?:[^\W0-9]\w*+|"[^"]*+"|[ \t\r\n(),=<>!]|-(?!-))*)')
_MOST_SHAPES: Final = 512
_LONGEST: Final = 4_000  # characters; a longer text is hardly one of many, and would fill the cache

_Shape = tuple[tuple[str, ...], tuple[bool, ...]]
_Key = tuple[int, tzinfo | None, _Shape]


class _Test(NamedTuple):
    """One comparison of a conjunction: its constant is the one cut out at `slot`."""

    operator: Operator
    slot: int
    template: Value
    sign: float


class Template:
    """The expression of a shape, waiting for constants."""

    def __init__(self, schema: Schema, expression: Expression, slots: dict[int, int]) -> None:
        self.schema = schema
        self._expression = expression
        self._slots = slots
        self._tests = _conjunction(schema, expression, slots)

    def compile(self, constants: list[str], max_boxes: int) -> CompiledFilter:
        """Compile with these constants, as written; raises what the full path would, or less."""
        if self._tests is None:
            return compile_expression(
                self.schema, self._fill(self._expression, constants), max_boxes
            )
        box: list[tuple[int, Bound, Bound]] = []
        never = False
        for position, attribute, tests in self._tests:
            interval = (
                _string_interval(attribute, tests[0], constants)
                if attribute.type == "string"
                else _interval(attribute, tests, constants)
            )
            if interval is None:
                never = True  # go on all the same: every constant must fit its attribute
            else:
                box.append((position, *interval))
        return NEVER if never else CompiledFilter((tuple(box),), True)

    def _fill(self, expression: Expression, constants: list[str]) -> Expression:
        match expression:
            case Not(operand):
                return Not(self._fill(operand, constants))
            case And(operands) | Or(operands):
                return type(expression)(tuple(self._fill(each, constants) for each in operands))
            case Compare(attribute, operator, value):
                return Compare(attribute, operator, self._constant(value, constants))
            case Among(attribute, values):
                return Among(attribute, tuple(self._constant(v, constants) for v in values))
            case Like(attribute, pattern):
                return Like(attribute, self._constant(pattern, constants))
            case _:
                return expression

    def _constant(self, template: Value, constants: list[str]) -> Value:
        if template.kind in ("truth", "null") or template.position is None:
            return template
        return _value(template, constants[self._slots[template.position]])


class ShapeCache:
    """Templates by shape, the most recently used ones. Safe to share between threads."""

    def __init__(self, most: int = _MOST_SHAPES) -> None:
        self._most = most
        self._lock = Lock()
        # By identity of the schema, whose hash is slow. The entry keeps it alive, and its id taken.
        self._templates: OrderedDict[_Key, tuple[Schema, Template | None]]
        self._templates = OrderedDict()

    def __len__(self) -> int:
        return len(self._templates)

    def find(
        self, schema: Schema, text: str, zone: tzinfo | None = None
    ) -> tuple[Template, list[str]] | None:
        """The template for a text and the text's constants; None if it has to be parsed."""
        if len(text) > _LONGEST:
            return None
        pieces = _LITERAL.split(text)
        constants = pieces[1::2]
        shape = tuple(pieces[::2]), tuple([constant[0] == "'" for constant in constants])
        key = id(schema), zone, shape
        with self._lock:
            found = self._templates.get(key)
            if found is not None:
                self._templates.move_to_end(key)
        if found is None:
            found = schema, _template(schema, shape, zone)
            with self._lock:
                self._templates[key] = found
                if len(self._templates) > self._most:
                    self._templates.popitem(last=False)
        template = found[1]
        return None if template is None else (template, constants)


def _template(schema: Schema, shape: _Shape, zone: tzinfo | None) -> Template | None:
    from boxmatch.model.filters.sql import parse_text

    pieces, quoted = shape
    if not all(_PLAIN.fullmatch(piece) for piece in pieces):
        return None
    text = pieces[0]
    places: dict[int, int] = {}
    for slot, piece in enumerate(pieces[1:]):
        # A name right before a quote is a prefix such as N'…'; two constants are never neighbours.
        if text and (text[-1].isalnum() or text[-1] in "_'\""):
            return None
        places[len(text)] = slot
        text += ("'0'" if quoted[slot] else "0") + piece
    try:
        expression = parse_text(schema, text, zone)
    except FilterError:
        return None
    found = sorted(
        value.position
        for leaf in leaves(expression)
        for value in values_of(leaf)
        if value.kind not in ("truth", "null") and value.position is not None
    )
    if found != sorted(places):
        return None
    return Template(schema, expression, places)


def _conjunction(
    schema: Schema, expression: Expression, slots: dict[int, int]
) -> list[tuple[int, Attribute, list[_Test]]] | None:
    """The comparisons by attribute, if the expression is nothing but comparisons joined by AND."""
    tests: dict[int, list[_Test]] = {}
    pending = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, And):
            pending.extend(node.operands)
        elif (
            isinstance(node, Compare)
            and node.operator != "<>"
            and node.value.kind not in ("truth", "null")
            and node.value.position in slots
        ):
            sign = -1.0 if str(node.value.content).startswith("-") else 1.0
            test = _Test(node.operator, slots[node.value.position], node.value, sign)
            tests.setdefault(node.attribute, []).append(test)
        else:
            return None
    attributes = schema.attributes
    if any(len(some) > 1 and attributes[i].type == "string" for i, some in tests.items()):
        return None  # strings have no keys here to intersect
    return [(i, attributes[i], tests[i]) for i in sorted(tests)]


def _interval(
    attribute: Attribute, tests: list[_Test], constants: list[str]
) -> tuple[Bound, Bound] | None:
    low, high = FIRST, LAST
    is_long = attribute.type == "decimal" and attribute.labelled
    if is_long:
        low, high = key_range(attribute)
    for operator, slot, template, sign in tests:
        constant = constants[slot]
        kind = attribute.type if template.kind == "number" else ""
        if kind == "float" and is_short_number(constant):
            floor = ceil = float_key(sign * float(constant))
        elif kind == "int" and len(constant) <= 18 and constant.isdecimal():
            floor = ceil = int(constant) if sign > 0 else -int(constant)
        else:
            floor, ceil = keys_around(attribute, _value(template, constant), operator)
        if operator == "=" or operator == ">=":
            low = max(low, ceil)
        elif operator == ">":
            low = max(low, floor + 1)
        if operator == "=" or operator == "<=":
            high = min(high, floor)
        elif operator == "<":
            high = min(high, ceil - 1)
    if is_long:
        return decimal_interval(attribute, low, high)
    low, high = widen(attribute, low, high)
    return narrow(attribute, low, high) if low <= high else None


def _string_interval(
    attribute: Attribute, test: _Test, constants: list[str]
) -> tuple[Bound, Bound] | None:
    constant = constants[test.slot]
    if test.template.kind != "text":
        raise AttributeValueError(attribute.name, constant, "is not a string")
    text = check_string(attribute, constant[1:-1].replace("''", "'"))
    operator = test.operator
    low = text if operator in ("=", ">=", ">") else None
    high = text if operator in ("=", "<=", "<") else None
    return string_interval(low, high, operator == ">", operator == "<")


def _value(template: Value, constant: str) -> Value:
    if template.kind == "number":
        sign = "-" if str(template.content).startswith("-") else ""
        return replace(template, content=sign + constant)
    return replace(template, content=constant[1:-1].replace("''", "'"))
