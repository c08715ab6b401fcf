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
from boxmatch.model.filters.axes import decimal_interval, narrow, string_interval, widen
from boxmatch.model.filters.compiled import EVERYTHING, NEVER, NULL, Bound, CompiledFilter, coalesce
from boxmatch.model.filters.expressions import Value
from boxmatch.model.filters.literals import keys_around
from boxmatch.model.filters.regions import Budget
from boxmatch.model.interval import ends_of
from boxmatch.model.keys import check_string, float_key, key_range
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


def _interval(attribute: Attribute, wanted: object) -> tuple[Bound, Bound] | None:
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
    close = difflib.get_close_matches(str(name), schema.names, n=3)
    hint = f"; did you mean {' or '.join(map(repr, close))}?" if close else ""
    return UnknownAttributeError(f"there is no attribute {name!r}{hint}")
