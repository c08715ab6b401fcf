"""The dict form of filters: all of its entries must hold.

| entry                     | means                                              |
| ------------------------- | -------------------------------------------------- |
| `"IBM"`                   | equal to the value                                 |
| `{"low": 20, "high": 30}` | from 20 to 30, both included                       |
| `{"low": 20}`             | 20 or more; with `"low_open": True`: more than 20  |
| `(20, 30)`, `(20, None)`  | the same ranges; with None on both sides any value |
| `["IBM", "AAPL"]`         | any of the values (also a set)                     |
| `None`                    | the event has no such attribute                    |

A range may also be an `Interval`. A list may hold None, which then means what it means alone.

Such a filter is one term (see `regions`): without lists it is one box, and with lists the product
of their values. So there is no expression in between, which would take ten times as long.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from itertools import product
from math import prod
from typing import Any

from boxmatch.errors import AttributeValueError, FilterError, UnknownAttributeError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.filters.axes import narrow, string_interval, widen
from boxmatch.model.filters.compiled import EVERYTHING, NEVER, NULL, Bound, CompiledFilter, coalesce
from boxmatch.model.filters.expressions import Value
from boxmatch.model.filters.literals import key_of_value
from boxmatch.model.filters.regions import Budget
from boxmatch.model.interval import ends_of
from boxmatch.model.keys import check_string, float_key
from boxmatch.model.schema import Attribute, Schema

_LISTS = (list, set, frozenset)


def compile_mapping(schema: Schema, filter: Mapping[str, Any], max_boxes: int) -> CompiledFilter:
    """Compile a dict filter."""
    box: list[tuple[int, Bound, Bound]] = []
    lists: list[tuple[int, list[tuple[Bound, Bound]]]] = []
    index, attributes = schema.index, schema.attributes
    never = False
    for name, wanted in filter.items():
        position = index.get(name)
        if position is None:
            raise _unknown(schema, name)
        try:
            if isinstance(wanted, _LISTS):
                intervals = _intervals(attributes[position], wanted)
                never |= not intervals
                lists.append((position, intervals))
                continue
            interval = _interval(attributes[position], wanted)
        except AttributeValueError as error:
            raise FilterError(str(error)) from error
        if interval is None:
            never = True  # go on all the same: every value must fit its attribute
        else:
            box.append((position, *interval))
    if never:
        return NEVER
    if lists:
        return _expand(box, lists, max_boxes)
    box.sort()
    return CompiledFilter((tuple(box),), True)


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
        keys = (_key(attribute, value) for value in values)
        found = coalesce([*null, *(widen(attribute, key, key) for key in keys)])
        return [one if one == EVERYTHING[0] else narrow(attribute, *one) for one in found]
    texts = sorted({check_string(attribute, value) for value in values})
    points: list[tuple[Bound, Bound]] = [
        ((text, 0) if text else FIRST, (text, 0)) for text in texts
    ]
    if null and texts[:1] == [""]:  # the first value, and so next to absent
        return [(ABSENT, ("", 0)), *points[1:]]
    return [*null, *points]


def _interval(attribute: Attribute, wanted: object) -> tuple[Bound, Bound] | None:
    """The interval of an entry that is no list; None if it is empty."""
    if wanted is None:
        return ABSENT, ABSENT
    ends = ends_of(attribute.name, wanted)
    if ends is None:
        if attribute.type == "string":
            text = check_string(attribute, wanted)
            return string_interval(text, text, False, False)
        key = _key(attribute, wanted)
        return narrow(attribute, *widen(attribute, key, key))
    low, high, low_open, high_open = ends
    if attribute.type == "string":
        start = None if low is None else check_string(attribute, low)
        end = None if high is None else check_string(attribute, high)
        return string_interval(start, end, low_open, high_open)
    first = FIRST if low is None else _key(attribute, low) + low_open
    last = LAST if high is None else _key(attribute, high) - high_open
    first, last = widen(attribute, first, last)
    return narrow(attribute, first, last) if first <= last else None


def _key(attribute: Attribute, value: object) -> int:
    # The common cases first: this is what a subscription of ten ranges spends its time on.
    if type(value) is int and attribute.type == "int" and FIRST <= value <= LAST:
        return value
    if type(value) is float and attribute.type == "float" and value == value:
        return float_key(value)
    return key_of_value(attribute, Value("object", value))


def _unknown(schema: Schema, name: object) -> UnknownAttributeError:
    close = difflib.get_close_matches(str(name), schema.names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    return UnknownAttributeError(f"there is no attribute {name!r}{hint}")
