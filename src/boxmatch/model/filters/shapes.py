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
from collections.abc import Mapping
from dataclasses import replace
from datetime import tzinfo
from operator import itemgetter
from threading import Lock
from typing import Final, NamedTuple

from boxmatch.errors import AttributeValueError, BoxmatchError
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.filters.axes import decimal_interval, narrow, string_interval, widen
from boxmatch.model.filters.compiled import NEVER, Bound, CompiledFilter
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
    Operator,
    Or,
    Value,
    leaves,
    values_of,
    with_axes_moved,
)
from boxmatch.model.filters.literals import is_short_number, keys_around, prefix_end
from boxmatch.model.filters.scope import DerivedAxis, Scope
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
# operators and blanks. A minus sign before a minus sign would start a comment, as does a slash
# before an asterisk.
_PLAIN: Final = re.compile(
    r'(?>(?:[^\W0-9]\w*+|"[^"]*+"|[ \t\r\n(),=<>!+*%|.&\[\]]|-(?!-)|/(?![*/]))*)'
)
_MOST_SHAPES: Final = 512
_MOST_VARIANTS: Final = 32
"""Templates of one shape; beyond, the constants in its expressions are too various."""
_LONGEST: Final = 4_000  # characters; a longer text is hardly one of many, and would fill the cache

_Shape = tuple[tuple[str, ...], tuple[bool, ...]]
_Key = tuple[int, tzinfo | None, _Shape]
_FREE_KINDS: Final = ("number", "text", "timestamp", "date")


class _Test(NamedTuple):
    """One comparison of a conjunction: its constant is the one cut out at `slot`."""

    operator: Operator
    slot: int
    """Negative if the constant is always the same."""
    template: Value
    sign: float


class _TextTest(NamedTuple):
    """A LIKE of a conjunction: of a prefix it is on the text's axis, else on that of needles."""

    slot: int
    escape: str
    fold: bool
    around: tuple[str, str] | None
    position: int
    needles: int


class _Conjunction(NamedTuple):
    """Comparisons by axis, and tests of texts on other axes, all of which must hold."""

    scope: Scope
    comparisons: list[tuple[int, Attribute, list[_Test]]]
    texts: list[_TextTest]


class Template:
    """The condition of a shape, waiting for constants."""

    def __init__(self, scope: Scope, condition: Condition, slots: dict[int, int]) -> None:
        self._schema = scope.schema
        self._condition = condition
        self._slots = slots
        self._axes = tuple(scope.derived)
        self._tests = _conjunction(scope, condition, slots)
        self._moves: dict[tuple[int, ...], tuple[dict[int, int], tuple[DerivedAxis, ...]]] = {}

    def compile(self, constants: list[str], max_boxes: int, *, lists: bool) -> CompiledFilter:
        """Compile with these constants, as written; raises what the full path would, or less."""
        tests = self._tests
        parts: list[tuple[int, Bound, Bound]] | None = []
        if tests is not None and tests.texts:
            parts = _parts(tests.texts, constants) if lists else None
        if tests is None or parts is None:
            scope = Scope(self._schema, self._axes)
            filled = self._fill(self._condition, constants)
            return compile_condition(scope, filled, max_boxes, lists=lists)
        box: list[tuple[int, Bound, Bound]] = []
        never = False
        for position, attribute, some in tests.comparisons:
            interval = (
                _string_interval(attribute, some[0], constants)
                if attribute.type == "string"
                else _interval(attribute, some, constants)
            )
            if interval is None:
                never = True  # go on all the same: every constant must fit its attribute
            else:
                box.append((position, *interval))
        if never:
            return NEVER
        if parts:
            box = sorted(box + parts)
        if not tests.scope.derived:
            return CompiledFilter((tuple(box),), True)
        return self._with_axes(tests.scope, box)

    def _with_axes(self, scope: Scope, box: list[tuple[int, Bound, Bound]]) -> CompiledFilter:
        """A box with the axes of expressions that it uses, and no others."""
        first = len(self._schema)
        used = tuple([position for position, _, _ in box if position >= first])
        found = self._moves.get(used)
        if found is None:
            moved = {position: first + place for place, position in enumerate(used)}
            axes = tuple(scope.derived[position - first] for position in used)
            found = self._moves[used] = moved, axes
        moved, axes = found
        # They ascend, and are at the end.
        own = len(box) - len(used)
        box[own:] = [(moved[position], low, high) for position, low, high in box[own:]]
        return CompiledFilter((tuple(box),), True, axes)

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
        return _value(template, constants[slot])


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
        if len(text) > _LONGEST or not (text.isascii() or _encodes(text)):
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
    return Template(scope, condition, slots), free


def _conjunction(scope: Scope, condition: Condition, slots: dict[int, int]) -> _Conjunction | None:
    """The tests by axis, if the condition is nothing but tests of constants joined by AND."""
    tests: dict[int, list[_Test]] = {}
    likes: list[Like] = []
    pending = [condition]
    while pending:
        node = pending.pop()
        if isinstance(node, And):
            pending.extend(reversed(node.operands))
        elif isinstance(node, Compare) and node.operator != "<>":
            slot = slots.get(-1 if node.value.position is None else node.value.position, -1)
            if slot < 0 and node.value.kind not in ("truth", "object"):
                return None
            sign = -1.0 if str(node.value.content).startswith("-") else 1.0
            test = _Test(node.operator, slot, node.value, sign)
            tests.setdefault(node.attribute, []).append(test)
        elif isinstance(node, Like) and node.value.position in slots:
            likes.append(node)
        else:
            return None
    attributes = scope.attributes
    for i, some in tests.items():
        # Strings have no keys here to intersect. Of two comparisons with a list, one is left to
        # the residual.
        if attributes[i].repeated or (
            attributes[i].type == "string" and (len(some) > 1 or some[0].slot < 0)
        ):
            return None
    own = Scope(scope.schema, scope.derived)
    texts = []
    for like in likes:
        position = like.attribute
        if attributes[position].type != "string" or attributes[position].repeated:
            return None
        needles = own.position(own.node(position), "needles")
        slot = slots[like.value.position or 0]
        texts.append(_TextTest(slot, like.escape, like.fold, like.around, position, needles))
    taken = [*tests, *(text.position for text in texts)]
    if len(set(taken)) < len(taken):
        return None  # two tests of one text
    moved = own.sort() or {}  # as the compiler does it
    comparisons = [(moved.get(i, i), attributes[i], tests[i]) for i in tests]
    comparisons.sort(key=itemgetter(0))
    texts = [
        one._replace(
            position=moved.get(one.position, one.position),
            needles=moved.get(one.needles, one.needles),
        )
        for one in texts
    ]
    return _Conjunction(own, comparisons, texts)


def _parts(texts: list[_TextTest], constants: list[str]) -> list[tuple[int, Bound, Bound]] | None:
    """What LIKE asks for: prefixes and needles; None if a pattern is anything else."""
    found: list[tuple[int, Bound, Bound]] = []
    for slot, escape, fold, around, position, needles in texts:
        text = constants[slot][1:-1].replace("''", "'")
        if around is not None:
            before, after = around
        else:
            if fold:
                text, escape = text.lower(), escape.lower()
            before, after = text[:1], text[1:][-1:]
            text = text[1:-1] if before == "%" else text[:-1]
            if "%" in text or "_" in text or (escape and escape in text):
                return None
        is_needle = before == "%"
        if after != "%" or not text:
            return None
        if is_needle:
            found.append((needles, (text, 0), (text, 0)))
        else:
            end = prefix_end(text)
            found.append((position, (text, 0), LAST if end is None else (end, -1)))
    return found


def _interval(
    attribute: Attribute, tests: list[_Test], constants: list[str]
) -> tuple[Bound, Bound] | None:
    low, high = FIRST, LAST
    is_long = attribute.type == "decimal" and attribute.labelled
    if is_long:
        low, high = key_range(attribute)
    for operator, slot, template, sign in tests:
        constant = constants[slot] if slot >= 0 else ""
        kind = attribute.type if template.kind == "number" else ""
        if kind == "float" and is_short_number(constant):
            floor = ceil = float_key(sign * float(constant))
        elif kind == "int" and len(constant) <= 18 and constant.isdecimal():
            floor = ceil = int(constant) if sign > 0 else -int(constant)
        else:
            value = _value(template, constant) if slot >= 0 else template
            floor, ceil = keys_around(attribute, value, operator)
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


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
