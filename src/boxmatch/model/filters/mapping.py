"""The dict form of filters: all of its entries must hold.

| entry                     | means                                              |
| ------------------------- | -------------------------------------------------- |
| `"IBM"`                   | equal to the value                                 |
| `{"low": 20, "high": 30}` | from 20 to 30, both included                       |
| `{"low": 20}`             | 20 or more; with `"low_open": True`: more than 20  |
| `(20, 30)`, `(20, None)`  | the same ranges; with None on both sides any value |
| `["IBM", "AAPL"]`         | any of the values (also a set)                     |
| `None`                    | the event has no such attribute                    |

A range may also be an `Interval`. A list may hold None, which then means what it means alone. A
dict without lists is one box and is compiled directly, without an expression in between.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from boxmatch.errors import AttributeValueError, FilterError, UnknownAttributeError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.filters.axes import narrow, widen
from boxmatch.model.filters.box import NEVER, Bound, CompiledFilter
from boxmatch.model.filters.compiler import compile_expression
from boxmatch.model.filters.expressions import (
    Among,
    And,
    Compare,
    Expression,
    IsNull,
    Not,
    Operator,
    Or,
)
from boxmatch.model.filters.expressions import Value as Constant
from boxmatch.model.filters.literals import key_of_value
from boxmatch.model.interval import ends_of
from boxmatch.model.keys import check_string, float_key
from boxmatch.model.schema import Attribute, Schema

_LISTS = (list, set, frozenset)


def compile_mapping(schema: Schema, filter: Mapping[str, Any], max_boxes: int) -> CompiledFilter:
    """Compile a dict filter."""
    box: list[tuple[int, Bound, Bound]] = []
    index, attributes = schema.index, schema.attributes
    never = False
    for name, wanted in filter.items():
        position = index.get(name)
        if position is None:
            raise _unknown(schema, name)
        if isinstance(wanted, _LISTS):
            return compile_expression(schema, expression_of_mapping(schema, filter), max_boxes)
        try:
            interval = _interval(attributes[position], wanted)
        except AttributeValueError as error:
            raise FilterError(str(error)) from error
        if interval is None:
            never = True
        else:
            box.append((position, *interval))
    if never:
        return NEVER
    box.sort()
    return CompiledFilter((tuple(box),), True)


def expression_of_mapping(schema: Schema, filter: Mapping[str, Any]) -> Expression:
    """The same filter as an expression."""
    operands: list[Expression] = []
    for name, wanted in filter.items():
        position = schema.index.get(name)
        if position is None:
            raise _unknown(schema, name)
        ends = _ends(name, wanted)
        if ends is not None:
            low, high, low_open, high_open = ends
            if low is None and high is None:
                operands.append(Not(IsNull(position)))
            if low is not None:
                above: Operator = ">" if low_open else ">="
                operands.append(Compare(position, above, Constant("object", low)))
            if high is not None:
                below: Operator = "<" if high_open else "<="
                operands.append(Compare(position, below, Constant("object", high)))
        elif isinstance(wanted, _LISTS):
            values = tuple(Constant("object", value) for value in wanted if value is not None)
            listed: Expression = Among(position, values)
            operands.append(Or((listed, IsNull(position))) if None in wanted else listed)
        elif wanted is None:
            operands.append(IsNull(position))
        else:
            operands.append(Compare(position, "=", Constant("object", wanted)))
    return And(tuple(operands))


def _interval(attribute: Attribute, wanted: object) -> tuple[Bound, Bound] | None:
    """The interval of an entry that is no list; None if it is empty."""
    if wanted is None:
        return ABSENT, ABSENT
    ends = ends_of(attribute.name, wanted)
    if ends is None:
        if attribute.type == "string":
            text = check_string(attribute, wanted)
            return (text, 0) if text else FIRST, (text, 0)
        key = _key(attribute, wanted)
        return narrow(attribute, *widen(attribute, key, key))
    if attribute.type == "string":
        return _string_interval(attribute, *ends)
    low, high, low_open, high_open = ends
    first = FIRST if low is None else _key(attribute, low) + low_open
    last = LAST if high is None else _key(attribute, high) - high_open
    first, last = widen(attribute, first, last)
    return narrow(attribute, first, last) if first <= last else None


def _string_interval(
    attribute: Attribute, low: object, high: object, low_open: bool, high_open: bool
) -> tuple[Bound, Bound] | None:
    first: Bound = FIRST
    last: Bound = LAST
    if low is not None and ((start := check_string(attribute, low)) or low_open):
        first = (start, int(low_open))
    if high is not None:
        end = check_string(attribute, high)
        last = (end, -int(high_open))
        if last < first if isinstance(first, tuple) else high_open and not end:
            return None
    return first, last


def _key(attribute: Attribute, value: object) -> int:
    # The common cases first: this is what a subscription of ten ranges spends its time on.
    if type(value) is int and attribute.type == "int" and FIRST <= value <= LAST:
        return value
    if type(value) is float and attribute.type == "float" and value == value:
        return float_key(value)
    return key_of_value(attribute, Constant("object", value))


def _ends(name: str, wanted: object) -> tuple[Any, Any, bool, bool] | None:
    try:
        return ends_of(name, wanted)
    except AttributeValueError as error:
        raise FilterError(str(error)) from None


def _unknown(schema: Schema, name: object) -> UnknownAttributeError:
    close = difflib.get_close_matches(str(name), schema.names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    return UnknownAttributeError(f"there is no attribute {name!r}{hint}")
