"""The dict form of filters: all of its entries must hold.

| entry                     | means                                              |
| ------------------------- | -------------------------------------------------- |
| `"IBM"`                   | equal to the value                                 |
| `{"low": 20, "high": 30}` | from 20 to 30, both included                       |
| `{"low": 20}`             | 20 or more; with `"low_open": True`: more than 20  |
| `(20, 30)`, `(20, None)`  | the same ranges; with None on both sides any value |
| `["IBM", "AAPL"]`         | any of the values (also a set)                     |
| `None`                    | the event has no such attribute                    |
| `{"like": "%.pdf"}`       | like a pattern                                     |

Other tests of text are `ilike`, `rlike`, `contains`, `starts_with` and `ends_with`. A range may
also be an `Interval`. A list may hold None, which then means what it means alone. What is named may
also be an expression, as in SQL: `{"price * volume": (1e6, None)}`. Of a list, one element must be
what is wanted.

A filter of attributes, values and ranges is one term (see `regions`): without lists it is one box,
and with lists the product of their values. So there is no condition in between, which would take
ten times as long.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Mapping
from itertools import product
from math import prod
from threading import Lock
from typing import Any, TypeGuard

from boxmatch.errors import (
    AttributeValueError,
    FilterError,
    UnknownAttributeError,
    did_you_mean,
)
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.expressions.functions import call
from boxmatch.model.expressions.nodes import STRING
from boxmatch.model.filters.axes import decimal_interval, narrow, string_interval, widen
from boxmatch.model.filters.compiled import EVERYTHING, NEVER, NULL, Bound, CompiledFilter, coalesce
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.conditions import (
    Among,
    And,
    Compare,
    Condition,
    Element,
    IsNull,
    Like,
    Matches,
    Not,
    Or,
    Value,
)
from boxmatch.model.filters.document_axes import document_at, named, text_axis
from boxmatch.model.filters.literals import keys_around
from boxmatch.model.filters.regions import Budget
from boxmatch.model.filters.scope import MOST_AXES, DerivedAxis, Scope
from boxmatch.model.interval import ends_of
from boxmatch.model.keys import check_string, float_key, key_range
from boxmatch.model.schema import Attribute, Schema

_LISTS = (list, set, frozenset)
_TESTS = frozenset(("like", "ilike", "rlike", "contains", "starts_with", "ends_with"))
_MOST_EXPRESSIONS = 1_024
_LONGEST = 1_000  # characters; a longer text is hardly one of many, and would fill the cache
_WORD = re.compile(r"[\w.]*")  # no expression is a single name


def compile_mapping(
    schema: Schema, filter: Mapping[str, Any], max_boxes: int, *, lists: bool = True
) -> CompiledFilter:
    """Compile a dict filter. For `lists` see `compile_filter`."""
    box: list[tuple[int, Bound, Bound]] = []
    choices: list[tuple[int, list[tuple[Bound, Bound]]]] = []
    axes: list[DerivedAxis] = []
    index, attributes = schema.index, schema.attributes
    never = False
    for name, wanted in filter.items():
        position = index.get(name)
        if position is None or attributes[position].type == "json":
            if document_at(schema, str(name)) is not None:
                return _compile_in_full(schema, filter, max_boxes, lists)
            axis = _EXPRESSIONS.find(schema, name)
            # An attribute or an expression that is there already; what may be more than a range.
            if isinstance(axis, int) or axis in axes or axis.is_of_texts or _is_text_test(wanted):
                return _compile_in_full(schema, filter, max_boxes, lists)
            if isinstance(wanted, _LISTS) or len(axes) == MOST_AXES:
                return _compile_in_full(schema, filter, max_boxes, lists)
            axes.append(axis)
            position, attribute = len(attributes) + len(axes) - 1, axis.attribute
        else:
            attribute = attributes[position]
            if attribute.repeated or (type(wanted) is not tuple and _is_text_test(wanted)):
                return _compile_in_full(schema, filter, max_boxes, lists)
        try:
            if isinstance(wanted, _LISTS):
                intervals = _intervals(attribute, wanted)
                never |= not intervals
                choices.append((position, intervals))
                continue
            interval = interval_of(attribute, wanted)
        except AttributeValueError as error:
            raise FilterError(str(error)) from error
        if interval is None:
            never = True  # go on all the same: every value must fit its attribute
        else:
            box.append((position, *interval))
    if never:
        return NEVER
    if choices:
        return _expand(box, choices, max_boxes)._replace(axes=tuple(axes))
    box.sort()
    return CompiledFilter((tuple(box),), True, tuple(axes))


def _compile_in_full(
    schema: Schema, filter: Mapping[str, Any], max_boxes: int, lists: bool
) -> CompiledFilter:
    """Compile a dict filter that names expressions or lists, or tests texts."""
    scope = Scope(schema)
    conditions = []
    for name, wanted in filter.items():
        try:
            conditions.append(_condition(scope, _position(scope, name), wanted))
        except AttributeValueError as error:
            raise FilterError(str(error)) from error
    return compile_condition(scope, And(tuple(conditions)), max_boxes, lists=lists)


def _position(scope: Scope, name: str) -> int:
    """The axis of an attribute or an expression."""
    if _WORD.fullmatch(name) or name in scope.schema.index:
        document = document_at(scope.schema, name)
        if document is not None:
            return text_axis(scope, document)
    position = scope.schema.index.get(name)
    if position is not None:
        return position
    found = _EXPRESSIONS.find(scope.schema, name)
    return found if isinstance(found, int) else scope.place(found)


class _Expressions:
    """The axes of expressions that were parsed lately. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        # By identity of the schema, whose hash is slow. The entry keeps it alive, and its id taken.
        self._known: OrderedDict[tuple[int, str], tuple[Schema, int | DerivedAxis]] = OrderedDict()

    def find(self, schema: Schema, text: str) -> int | DerivedAxis:
        """The axis of an expression, or the position of what turns out to be an attribute."""
        key = id(schema), text
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known[1]
        if _WORD.fullmatch(str(text)):
            raise _unknown(schema, text)
        from boxmatch.model.filters.sql import parse_expression

        scope = Scope(schema)
        position = parse_expression(scope, text)
        found = position if position < len(schema) else scope.derived[position - len(schema)]
        if len(text) <= _LONGEST:
            with self._lock:
                self._known[key] = schema, found
                if len(self._known) > _MOST_EXPRESSIONS:
                    self._known.popitem(last=False)
        return found


_EXPRESSIONS = _Expressions()


def _condition(scope: Scope, position: int, wanted: object) -> Condition:
    """What is wanted of the value on an axis."""
    attribute = scope.attributes[position]
    if wanted is not None and attribute.type == "struct":
        raise FilterError(
            f"attribute {attribute.name!r} is a {attribute.type_name}: write the filter as text"
        )
    if wanted is None:
        if attribute.repeated:
            position = scope.position(call("cardinality", scope.node(position)))
        return IsNull(position)
    if isinstance(wanted, _LISTS):
        values = tuple(Value("object", value) for value in wanted if value is not None)
        among = Among(position, values)
        if len(values) == len(wanted):
            return among
        return Or((among, _condition(scope, position, None)))
    if _is_text_test(wanted):
        ((test, text),) = wanted.items()
        return _text_test(scope, position, str(test), text)
    ends = ends_of(attribute.name, wanted)
    if ends is None:
        return Compare(position, "=", Value("object", wanted))
    low, high, low_open, high_open = ends
    tests = []
    if low is not None:
        tests.append(Compare(position, ">" if low_open else ">=", Value("object", low)))
    if high is not None:
        tests.append(Compare(position, "<" if high_open else "<=", Value("object", high)))
    if attribute.repeated:
        return Element(position, tuple(tests))
    return And(tuple(tests)) if tests else Not(IsNull(position))


def _is_text_test(wanted: object) -> TypeGuard[Mapping[str, object]]:
    return isinstance(wanted, Mapping) and len(wanted) == 1 and not _TESTS.isdisjoint(wanted)


def _text_test(scope: Scope, position: int, test: str, text: object) -> Condition:
    if scope.is_of_texts(position):
        position = scope.position(call("cast", named(scope.node(position)), type=STRING))
    attribute = scope.attributes[position]
    if attribute.type not in ("string", "enum"):
        raise FilterError(f"attribute {attribute.name!r} is no text, so it has no {test!r}")
    pattern = check_string(attribute, text)
    if test == "rlike":
        return Matches(position, Value("text", pattern))
    if test == "ilike" and not attribute.repeated:
        folded = scope.position(call("lower", scope.node(position)))
        return Like(folded, Value("text", pattern), fold=True)
    if test not in ("like", "ilike"):
        pattern = re.sub(r"([\\%_])", r"\\\1", pattern)
        pattern = "%" * (test != "starts_with") + pattern + "%" * (test != "ends_with")
    return Like(position, Value("text", pattern), fold=test == "ilike")


def _expand(
    box: list[tuple[int, Bound, Bound]],
    lists: list[tuple[int, list[tuple[Bound, Bound]]]],
    max_boxes: int,
) -> CompiledFilter:
    """A box for each choice of one interval from every list."""
    lists = [(position, some) for position, some in lists if some != [EVERYTHING[0]]]
    count = prod(len(some) for _, some in lists)
    if count > max_boxes:
        Budget(max_boxes).fail(count)
    alternatives = [[one] for one in box]
    alternatives += [[(position, *ends) for ends in some] for position, some in lists]
    alternatives.sort(key=lambda some: some[0][0])
    return CompiledFilter(tuple(product(*alternatives)), True)


def _intervals(attribute: Attribute, listed: Collection[object]) -> list[tuple[Bound, Bound]]:
    """The intervals of a list, ascending; none of them touches another."""
    values = [value for value in listed if value is not None]
    null = NULL if len(values) < len(listed) else ()
    if attribute.type != "string":
        around = [_around(attribute, value) for value in values]
        if attribute.labelled:
            return _decimal_intervals(attribute, around, bool(null))
        found = coalesce([*null, *(widen(attribute, ceil, floor) for floor, ceil in around)])
        return [one if one == EVERYTHING[0] else narrow(attribute, *one) for one in found]
    texts = sorted({check_string(attribute, value) for value in values})
    points: list[tuple[Bound, Bound]] = [
        ((text, 0) if text else FIRST, (text, 0)) for text in texts
    ]
    if null and texts[:1] == [""]:  # the first value, and so next to absent
        return [(ABSENT, ("", 0)), *points[1:]]
    return [*null, *points]


def _decimal_intervals(
    attribute: Attribute, around: list[tuple[int, int]], null: bool
) -> list[tuple[Bound, Bound]]:
    """The same for long decimals."""
    merged = coalesce((ceil, floor) for floor, ceil in around)
    found = [one for ends in merged if (one := decimal_interval(attribute, *ends)) is not None]
    if null and found and found[0][0] == FIRST:
        return [(ABSENT, found[0][1]), *found[1:]]
    return [*NULL, *found] if null else found


def interval_of(attribute: Attribute, wanted: object) -> tuple[Bound, Bound] | None:
    """The interval of an entry that is no list; None if it is empty."""
    if wanted is None:
        return ABSENT, ABSENT
    ends = ends_of(attribute.name, wanted)
    if ends is None:
        if attribute.type == "string":
            text = check_string(attribute, wanted)
            return string_interval(text, text, False, False)
        low = high = wanted
        low_open = high_open = False
    else:
        low, high, low_open, high_open = ends
    if attribute.type == "string":
        start = None if low is None else check_string(attribute, low)
        end = None if high is None else check_string(attribute, high)
        return string_interval(start, end, low_open, high_open)
    first, last = FIRST, LAST
    is_long = attribute.type == "decimal" and attribute.labelled
    if is_long:
        first, last = key_range(attribute)
    if low is not None:
        key = _key(attribute, low)
        if key is None:
            floor, ceil = keys_around(attribute, Value("object", low), ">=" if ends else "=")
            first = floor + 1 if low_open else ceil
        else:
            first = key + low_open
    if high is not None:
        key = _key(attribute, high)
        if key is None:
            floor, ceil = keys_around(attribute, Value("object", high), "<=" if ends else "=")
            last = ceil - 1 if high_open else floor
        else:
            last = key - high_open
    if is_long:
        return decimal_interval(attribute, first, last)
    first, last = widen(attribute, first, last)
    return narrow(attribute, first, last) if first <= last else None


def _key(attribute: Attribute, value: object) -> int | None:
    """The key of a value in the common cases, which is what a subscription of ten ranges spends
    its time on.
    """
    if type(value) is int and attribute.type == "int" and FIRST <= value <= LAST:
        return value
    if type(value) is float and attribute.type == "float" and value == value:
        return float_key(value)
    return None


def _around(attribute: Attribute, value: object) -> tuple[int, int]:
    key = _key(attribute, value)
    if key is None:
        return keys_around(attribute, Value("object", value))
    return key, key


def _unknown(schema: Schema, name: object) -> UnknownAttributeError:
    hint = did_you_mean(name, schema.names)
    return UnknownAttributeError(f"there is no attribute {name!r}{hint}")
