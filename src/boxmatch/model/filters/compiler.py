"""Expressions to boxes, by SQL's three-valued logic.

NOT is pushed down to the leaves. Each leaf knows where it is true and where it is false; where its
attribute is absent it is mostly neither, so NOT never turns "unknown" into a match.
"""

from __future__ import annotations

from collections.abc import Iterator

from boxmatch.errors import AttributeValueError, FilterError, FilterTooLargeError
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.decimals import label_text
from boxmatch.model.filters.axes import LocalAxes, widen
from boxmatch.model.filters.compiled import (
    EVERYTHING,
    NEVER,
    NOTHING,
    NULL,
    PRESENT,
    Bound,
    CompiledFilter,
    IntervalSet,
    KeyInterval,
    coalesce,
    complement,
)
from boxmatch.model.filters.cover import DenseBox, canonical
from boxmatch.model.filters.expressions import (
    Among,
    And,
    Compare,
    Constant,
    Expression,
    IsNull,
    IsTruth,
    Leaf,
    Like,
    Not,
    Operator,
    Or,
    Value,
    leaves,
    values_of,
)
from boxmatch.model.filters.literals import (
    keys_around,
    pattern_of_value,
    prefix_end,
    text_of_value,
)
from boxmatch.model.filters.regions import (
    ALWAYS,
    Budget,
    Term,
    conjunction,
    disjunction,
    expand,
)
from boxmatch.model.schema import Attribute, Schema


def compile_expression(
    schema: Schema, expression: Expression, max_boxes: int, text: str | None = None
) -> CompiledFilter:
    """The union of boxes where the expression is true. `text` is for error messages."""
    return _Compiler(schema, expression, max_boxes, text).compile()


def boxes_of_terms(axes: LocalAxes, terms: list[Term], budget: Budget) -> CompiledFilter:
    """The canonical boxes of a region."""
    if not terms:
        return NEVER
    attributes = sorted({attribute for term in terms for attribute, _ in term})
    boxes, disjoint = expand(terms, attributes, budget), True
    if len(terms) > 1:  # the boxes of one term are sorted, disjoint and not to be merged
        budget.spend(len(boxes) ** 2 * len(attributes) // 4_000)  # all pairs, but as arrays
        boxes, disjoint = canonical(boxes, budget.max_boxes)
    if len(boxes) > budget.max_boxes:
        budget.fail(len(boxes))

    def outward(box: DenseBox) -> Iterator[tuple[int, Bound, Bound]]:
        for attribute, interval in zip(attributes, box, strict=True):
            if interval != EVERYTHING[0]:
                yield attribute, *axes.outward(attribute, interval)

    return CompiledFilter(tuple(tuple(outward(box)) for box in boxes), disjoint)


def _between(operator: Operator, floor: int, ceil: int) -> KeyInterval:
    """The keys that compare so with a constant between two keys, which are equal if it has one.

    `<>` is no interval.
    """
    low = ceil if operator in ("=", ">=") else floor + 1 if operator == ">" else FIRST
    high = floor if operator in ("=", "<=") else ceil - 1 if operator == "<" else LAST
    return low, high


class _Compiler:
    def __init__(
        self, schema: Schema, expression: Expression, max_boxes: int, text: str | None
    ) -> None:
        self.schema = schema
        self.expression = expression
        self.text = text
        self.budget = Budget(max_boxes)
        self.axes = LocalAxes(schema, self._texts())

    def compile(self) -> CompiledFilter:
        try:
            return boxes_of_terms(self.axes, self._region(self.expression, True), self.budget)
        except FilterTooLargeError as error:
            # It is all of the filter that is too large: the place is where it starts.
            position = None if self.text is None else 0
            raise FilterTooLargeError(error.reason, self.text, position) from None

    def _texts(self) -> dict[int, list[str]]:
        """All texts that matter on each labelled attribute."""
        texts: dict[int, list[str]] = {}
        for leaf in leaves(self.expression):
            attribute = self._attribute(leaf)
            if not attribute.labelled:
                continue
            known = texts.setdefault(leaf.attribute, [])
            if attribute.type == "decimal":
                for value in values_of(leaf):
                    if value.kind != "null":
                        known.extend(map(label_text, self._around(attribute, value)))
            elif isinstance(leaf, Like) and leaf.value.kind != "null":
                prefix, is_prefix = pattern_of_value(leaf.value, self.text)
                known.append(self._string(leaf, Value("text", prefix, leaf.value.position)))
                end = prefix_end(prefix) if is_prefix else None
                if end is not None:
                    known.append(end)
            else:
                known.extend(self._string(leaf, v) for v in values_of(leaf) if v.kind != "null")
        return texts

    def _region(self, expression: Expression, wanted: bool) -> list[Term]:
        """Where the expression is true, or (not wanted) where it is false."""
        match expression:
            case Not(operand):
                return self._region(operand, not wanted)
            case And(operands) | Or(operands):
                # Every operand is compiled, whatever the others are: all values get checked.
                regions = [self._region(operand, wanted) for operand in operands]
                if isinstance(expression, And) == wanted:
                    return conjunction(regions, self.budget)
                return disjunction(regions, self.budget)
            case Constant(truth):
                return [ALWAYS] if truth is wanted else []
            case _:
                keys = self._leaf(expression, wanted)
                return [((expression.attribute, keys),)] if keys else []

    def _leaf(self, leaf: Leaf, wanted: bool) -> IntervalSet:
        match leaf:
            case IsNull():
                return NULL if wanted else PRESENT
            case IsTruth(_, truth):
                held = coalesce([widen(self._attribute(leaf), int(truth), int(truth))])
                return held if wanted else complement(held)
            case Compare(_, operator, value):
                if value.kind == "null":
                    return NOTHING
                if operator == "<>":
                    operator, wanted = "=", not wanted
                held = coalesce([self._interval(leaf, operator, value)])
            case Among(_, values):
                known = [value for value in values if value.kind != "null"]
                held = coalesce(self._interval(leaf, "=", value) for value in known)
                if not wanted and len(known) < len(values):
                    return NOTHING  # it might equal the NULL
            case Like(_, pattern):
                if pattern.kind == "null":
                    return NOTHING
                held = self._like(leaf, pattern)
        return held if wanted else complement(held, PRESENT[0])

    def _interval(self, leaf: Leaf, operator: Operator, value: Value) -> KeyInterval:
        attribute = self._attribute(leaf)
        if attribute.type == "string":
            floor = ceil = self.axes.label(leaf.attribute, text_of_value(attribute, value))
        else:
            floor, ceil = self._around(attribute, value, operator)
            if attribute.labelled:
                floor, ceil = (
                    self.axes.label(leaf.attribute, label_text(number)) for number in (floor, ceil)
                )
        return self.axes.widen(leaf.attribute, *_between(operator, floor, ceil))

    def _around(
        self, attribute: Attribute, value: Value, operator: Operator = "="
    ) -> tuple[int, int]:
        try:
            return keys_around(attribute, value, operator)
        except AttributeValueError as error:
            raise FilterError(str(error), self.text, value.position) from error

    def _like(self, leaf: Leaf, pattern: Value) -> IntervalSet:
        attribute = self._attribute(leaf)
        text, is_prefix = pattern_of_value(pattern, self.text)
        if attribute.type == "enum":
            fits = str.startswith if is_prefix else str.__eq__
            keys = (key for key, value in enumerate(attribute.values) if fits(value, text))
            return coalesce(widen(attribute, key, key) for key in keys)
        start = self.axes.label(leaf.attribute, text)
        if not is_prefix:
            return ((start, start),)
        end = prefix_end(text)
        return ((start, LAST if end is None else self.axes.label(leaf.attribute, end) - 1),)

    def _string(self, leaf: Leaf, value: Value) -> str:
        try:
            return text_of_value(self._attribute(leaf), value)
        except AttributeValueError as error:
            raise FilterError(str(error), self.text, value.position) from error

    def _attribute(self, leaf: Leaf) -> Attribute:
        return self.schema.attributes[leaf.attribute]
