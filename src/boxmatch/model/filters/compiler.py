"""Conditions to boxes, by SQL's three-valued logic, and what boxes cannot express to a residual.

NOT is pushed down to the leaves. Each leaf knows where it is true and where it is false; where its
value is absent it is mostly neither, so NOT never turns "unknown" into a match.

On the axis of a list a leaf is true if a key of the event is in its set. Of such sets the union has
a meaning, but neither the intersection (of two conditions on one axis, one is left to the
residual) nor the complement. What is left out of the boxes makes them larger, never smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from boxmatch.errors import AttributeValueError, FilterError, FilterTooLargeError
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.decimals import label_text
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import BOOL, Call, Literal, Node
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
    intersection,
)
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Constant,
    Element,
    HasPart,
    Holds,
    InTexts,
    IsNull,
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
    with_axes_moved,
)
from boxmatch.model.filters.cover import DenseBox, canonical
from boxmatch.model.filters.document_axes import with_text_ranges
from boxmatch.model.filters.literals import keys_around, text_of_value
from boxmatch.model.filters.regions import (
    ALWAYS,
    Budget,
    Term,
    conjunction,
    disjunction,
    expand,
    simplify,
)
from boxmatch.model.filters.residuals import any_in_keys, has_part, in_keys
from boxmatch.model.filters.scope import Scope
from boxmatch.model.schema import Attribute
from boxmatch.model.text_ranges import TextRanges, common, ends_of_ranges, others, prefix_end


def compile_condition(
    scope: Scope,
    condition: Condition,
    max_boxes: int,
    text: str | None = None,
    *,
    lists: bool = True,
) -> CompiledFilter:
    """The boxes and the residual of a condition. `text` is for error messages.

    Without `lists` what needs an axis of lists is left to the residual.
    """
    if any(isinstance(leaf, Like | Matches) for leaf in leaves(condition)):
        from boxmatch.model.filters.text_parts import split_text_tests

        try:
            condition = split_text_tests(scope, condition, text, lists=lists)
        except FilterTooLargeError as error:
            position = None if text is None else 0
            raise FilterTooLargeError(error.reason, text, position) from None
    if scope.derived:
        condition = with_text_ranges(scope, condition, text)
    positions = scope.sort()
    if positions is not None:
        condition = with_axes_moved(condition, positions)
    return _Compiler(scope, condition, max_boxes, text, lists).compile()


class Region(NamedTuple):
    """Where a condition is true, or a larger region if it is not `exact`."""

    terms: list[Term]
    exact: bool


_ALL = Region([ALWAYS], False)


def _between(operator: Operator, floor: int, ceil: int) -> KeyInterval:
    """The keys that compare so with a constant between two keys, which are equal if it has one.

    `<>` is no interval.
    """
    low = ceil if operator in ("=", ">=") else floor + 1 if operator == ">" else FIRST
    high = floor if operator in ("=", "<=") else ceil - 1 if operator == "<" else LAST
    return low, high


class _Compiler:
    def __init__(
        self, scope: Scope, condition: Condition, max_boxes: int, text: str | None, lists: bool
    ) -> None:
        self.scope = scope
        self.condition = condition
        self.text = text
        self.budget = Budget(max_boxes)
        self.axes = LocalAxes(scope, self._texts())
        self._lists = lists

    def compile(self) -> CompiledFilter:
        try:
            terms, residual = self._split(self.condition)
            found = self._boxes(terms)
        except FilterTooLargeError as error:
            # It is all of the filter that is too large: the place is where it starts.
            position = None if self.text is None else 0
            raise FilterTooLargeError(error.reason, self.text, position) from None
        if found.never or Literal(False, BOOL) in residual:
            return NEVER
        if self.scope.derived:
            found = self._with_axes(found)
        return found._replace(residual=residual) if residual else found

    def _boxes(self, terms: list[Term]) -> CompiledFilter:
        """The canonical boxes of a region."""
        if not terms:
            return NEVER
        positions = sorted({position for term in terms for position, _ in term})
        boxes, disjoint = expand(terms, positions, self.budget), True
        marks = [self.scope.attributes[position].repeated for position in positions]
        if len(terms) > 1:  # the boxes of one term are sorted and not to be merged
            # All pairs, but as arrays.
            self.budget.spend(len(boxes) ** 2 * len(positions) // 4_000)
            boxes, disjoint = canonical(boxes, self.budget.max_boxes, marks)
        elif len(boxes) > 1 and any(marks):
            sets = dict(terms[0])
            lists = zip(positions, marks, strict=True)
            disjoint = not any(mark and len(sets[position]) > 1 for position, mark in lists)
        if len(boxes) > self.budget.max_boxes:
            self.budget.fail(len(boxes))

        def outward(box: DenseBox) -> Iterator[tuple[int, Bound, Bound]]:
            for position, interval in zip(positions, box, strict=True):
                if interval != EVERYTHING[0]:
                    yield position, *self.axes.outward(position, interval)

        return CompiledFilter(tuple(tuple(outward(box)) for box in boxes), disjoint)

    def _with_axes(self, found: CompiledFilter) -> CompiledFilter:
        """The boxes with the axes of expressions that they use, and no others."""
        first = len(self.scope.schema)
        used = sorted({p for box in found.boxes for p, _, _ in box if p >= first})
        moved = {position: first + place for place, position in enumerate(used)}
        boxes = tuple(
            tuple((moved.get(position, position), low, high) for position, low, high in box)
            for box in found.boxes
        )
        axes = tuple(self.scope.derived[position - first] for position in used)
        return found._replace(boxes=boxes, axes=axes)

    def _texts(self) -> dict[int, list[str]]:
        """All texts that matter on each labelled axis."""
        texts: dict[int, list[str]] = {}
        for leaf in leaves(self.condition):
            attribute = self._attribute(leaf)
            if not attribute.labelled:
                continue
            known = texts.setdefault(leaf.attribute, [])
            if attribute.type == "decimal":
                for value in values_of(leaf):
                    if value.kind != "null":
                        known.extend(map(label_text, self._around(attribute, value)))
            elif isinstance(leaf, InTexts):
                known.extend(ends_of_ranges(leaf.ranges))
                known.extend(ends_of_ranges(leaf.within or ()))
            elif isinstance(leaf, HasPart):
                known.append(leaf.text)
                end = prefix_end(leaf.text) if leaf.part == "prefix" else None
                if end is not None:
                    known.append(end)
            else:
                known.extend(self._string(leaf, v) for v in values_of(leaf) if v.kind != "null")
        return texts

    # Regions

    def _split(self, condition: Condition) -> tuple[list[Term], tuple[Node, ...]]:
        """The region of a filter, and the conditions of it that the region does not settle."""
        conjuncts = sorted(_conjuncts(condition, True), key=_needle_length, reverse=True)
        regions = self._apart([self._region(*one) for one in conjuncts])
        residual: list[Node] = []
        for one, region in zip(conjuncts, regions, strict=True):
            if not region.exact:
                test = self._test(*one)
                joined = isinstance(test, Call) and test.function == "and"
                residual += test.arguments if joined and isinstance(test, Call) else (test,)
        terms = conjunction([region.terms for region in regions], self.budget)
        true = Literal(True, BOOL)
        return terms, tuple(dict.fromkeys(node for node in residual if node != true))

    def _apart(self, regions: list[Region]) -> list[Region]:
        """Regions that can be met: only one of them has conditions on any one axis of lists."""
        if not self.scope.has_lists():
            return regions
        taken: set[int] = set()
        apart: list[Region] = []
        for terms, exact in regions:
            own = {p for term in terms for p, _ in term if self.scope.attributes[p].repeated}
            shared = own & taken
            taken |= own
            if shared:
                terms = [tuple(one for one in term if one[0] not in shared) for term in terms]
                terms, exact = simplify(terms, self.budget), False
            apart.append(Region(terms, exact))
        return apart

    def _region(self, condition: Condition, wanted: bool) -> Region:
        """Where the condition is true, or (not wanted) where it is false."""
        match condition:
            case Not(operand):
                return self._region(operand, not wanted)
            case And(operands) | Or(operands):
                # Every operand is compiled, whatever the others are: all values get checked.
                regions = [self._region(operand, wanted) for operand in operands]
                if isinstance(condition, And) == wanted:
                    regions = self._apart(regions)
                    join = conjunction
                else:
                    join = disjunction
                terms = join([region.terms for region in regions], self.budget)
                # Of a region that is too large nothing is left out.
                return Region(terms, not terms or all(region.exact for region in regions))
            case Constant(truth):
                return Region([ALWAYS] if truth is wanted else [], True)
            case Holds():
                return _ALL
            case _:
                keys = self._leaf(condition, wanted)
                if keys is None:
                    return _ALL
                return Region([((condition.attribute, keys),)] if keys else [], True)

    def _leaf(self, leaf: Leaf, wanted: bool) -> IntervalSet | None:
        """The keys with which a leaf is true, or false; None if there is no such set."""
        if self._attribute(leaf).repeated and not (wanted and self._lists):
            return None
        return self._true(leaf) if wanted else self._false(leaf)

    def _true(self, leaf: Leaf) -> IntervalSet:
        match leaf:
            case IsNull():
                return NULL
            case IsTruth(_, truth):
                return coalesce([widen(self._attribute(leaf), int(truth), int(truth))])
            case Compare(_, operator, value):
                if value.kind == "null":
                    return NOTHING
                if operator == "<>":
                    return complement(self._true(Compare(leaf.attribute, "=", value)), PRESENT[0])
                return coalesce([self._interval(leaf, operator, value)])
            case Among(_, values):
                known = [value for value in values if value.kind != "null"]
                return coalesce(self._interval(leaf, "=", value) for value in known)
            case Element(_, comparisons):
                return intersection([PRESENT, *map(self._true, comparisons)])
            case HasPart():
                return self._part(leaf)
            case InTexts():
                return self._in_texts(leaf, leaf.ranges)
        raise TypeError(f"{leaf} has no keys")

    def _false(self, leaf: Leaf) -> IntervalSet:
        match leaf:
            case IsNull():
                return PRESENT
            case IsTruth() | InTexts(within=None):
                return complement(self._true(leaf))
            case InTexts(_, ranges, within) if within is not None:
                return self._in_texts(leaf, common(within, others(ranges)))
            case Compare(_, _, value) if value.kind == "null":
                return NOTHING
            case Among(_, values) if any(value.kind == "null" for value in values):
                return NOTHING  # it might equal the NULL
            case _:
                return complement(self._true(leaf), PRESENT[0])

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

    def _part(self, leaf: HasPart) -> IntervalSet:
        start = self.axes.label(leaf.attribute, leaf.text)
        if leaf.part != "prefix":
            return ((start, start),)
        end = prefix_end(leaf.text)
        return ((start, LAST if end is None else self.axes.label(leaf.attribute, end) - 1),)

    def _in_texts(self, leaf: InTexts, ranges: TextRanges) -> IntervalSet:
        """The keys of texts in some ranges, whose ends are those that the leaf mentions."""

        def key(end: str, right_after: int) -> int:
            text = end.removesuffix("\0")
            return self.axes.label(leaf.attribute, text) + (right_after if text != end else 0)

        return coalesce(
            (
                key(low, 1) if low else FIRST,
                LAST if high is None else key(high, 1) - 1,
            )
            for low, high in ranges
        )

    def _string(self, leaf: Leaf, value: Value) -> str:
        try:
            return text_of_value(self._attribute(leaf), value)
        except AttributeValueError as error:
            raise FilterError(str(error), self.text, value.position) from error

    def _attribute(self, leaf: Leaf) -> Attribute:
        return self.scope.attributes[leaf.attribute]

    # The residual

    def _test(self, condition: Condition, wanted: bool) -> Node:
        """The expression that is true where the condition is true, or (not wanted) false."""
        match condition:
            case Not(operand):
                return self._test(operand, not wanted)
            case And(operands) | Or(operands):
                tests = [self._test(operand, wanted) for operand in operands]
                name = "and" if isinstance(condition, And) == wanted else "or"
                return call(name, *tests)
            case Constant(truth):
                return Literal(truth is wanted, BOOL)
            case Holds(node):
                return node if wanted else call("not", node)
            case _:
                return self._test_of_leaf(condition, wanted)

    def _test_of_leaf(self, leaf: Leaf, wanted: bool) -> Node:
        position = leaf.attribute
        if isinstance(leaf, HasPart) and leaf.part != "prefix":
            found = has_part(self.scope.node(position), leaf)
            return found if wanted else call("not", found)
        if not self._attribute(leaf).repeated:
            keys = self._true(leaf) if wanted else self._false(leaf)
            return in_keys(self.axes, position, self.scope.node(position), keys)
        known = not any(value.kind == "null" for value in values_of(leaf))
        present = isinstance(leaf, Element) and leaf.present
        found = any_in_keys(self.axes, position, self._true(leaf), known=known, present=present)
        return found if wanted else call("not", found)


def _conjuncts(condition: Condition, wanted: bool) -> Iterator[tuple[Condition, bool]]:
    """Conditions all of which must be true, or (not wanted) false, for this one to be."""
    match condition:
        case Not(operand):
            yield from _conjuncts(operand, not wanted)
        case And(operands) if wanted:
            for operand in operands:
                yield from _conjuncts(operand, wanted)
        case Or(operands) if not wanted:
            for operand in operands:
                yield from _conjuncts(operand, wanted)
        case _:
            yield condition, wanted


def _needle_length(conjunct: tuple[Condition, bool]) -> int:
    """Of several needles in one text, the longest becomes the box: it occurs least."""
    condition, _ = conjunct
    return len(condition.text) if isinstance(condition, HasPart) else 0
