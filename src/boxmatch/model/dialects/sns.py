"""Filter policies of Amazon SNS, for message attributes or for message bodies.

Both scopes are event patterns of EventBridge with fewer operators, and with limits:

- There are `prefix`, `suffix`, `equals-ignore-case`, `wildcard`, `cidr`, `numeric`, `exists`, and
  `anything-but` of values, a `prefix` or a `wildcard`.
- `exists` is true of what is neither null nor an empty string.
- Numbers that are compared are between -1e9 and 1e9, with five decimal places.
- A policy names five fields and has 150 combinations of values, in 256 KiB. What is nested in a
  field is no further field, but counts for its combinations as often as it is deep. A wildcard has
  three stars, and all of them have a complexity of 100.

In an event that stands for message attributes, a `String` is a string, a `Number` a number and a
`String.Array` a list. `Binary` attributes are left out. If there is no attribute at all, nothing
matches, not even `{"exists": false}`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from math import prod
from typing import Any, Final

from boxmatch.errors import FilterTooLargeError
from boxmatch.model.dialects import match_values as values
from boxmatch.model.dialects.eventbridge import (
    OR,
    Alternative,
    Leaf,
    alternatives,
    is_choice,
    pattern_of,
)
from boxmatch.model.dialects.json_places import Located, Place, read_filter
from boxmatch.model.dialects.match_values import Grammar, exact
from boxmatch.model.dialects.patterns import (
    AllTests,
    Equal,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Pattern,
    Test,
    Translation,
)

MOST_FIELDS: Final = 5
MOST_COMBINATIONS: Final = 150
MOST_BYTES: Final = 256 * 1024
MOST_STARS: Final = 3
MOST_COMPLEX: Final = 100

_LARGEST: Final = 10**9
_PLACES: Final = 5


def translate(filter: object) -> Translation:
    """What a policy for message attributes wants of events. Raises `FilterError`."""
    found = _alternatives(filter)
    for leaf in _leaves(found):
        if leaf.depth > 1:
            raise leaf.values.named.error("a policy for message attributes has no nested fields")
    pattern = pattern_of(found)
    if _holds_of_nothing(pattern):
        return Translation(pattern, _has_attributes, ((),))
    return Translation(pattern)


def translate_body(filter: object) -> Translation:
    """What a policy for message bodies wants of events. Raises `FilterError`."""
    return Translation(pattern_of(_alternatives(filter)))


def _holds_of_nothing(pattern: Pattern) -> bool:
    if isinstance(pattern, (Field, Missing)):
        return isinstance(pattern, Missing)
    every = isinstance(pattern, Every)
    return (all if every else any)(map(_holds_of_nothing, pattern.patterns))


def _has_attributes(event: Any) -> bool:
    return bool(event)


# --- operators ---------------------------------------------------------------------------------


def _like(operand: Located, grammar: Grammar) -> Test:
    if len(values.wildcard_parts(operand)) > MOST_STARS + 1:
        raise operand.error(f"'wildcard' takes at most {MOST_STARS} '*'", FilterTooLargeError)
    return values.like(operand, grammar)


def _check_number(item: Located) -> None:
    assert isinstance(item.value, (int, float, Decimal))  # as callers found
    number = exact(item.value)
    if abs(number) > _LARGEST:
        raise item.error("numbers are compared between -1e9 and 1e9")
    if number != round(number, _PLACES):
        raise item.error(f"numbers are compared with at most {_PLACES} decimal places")


GRAMMAR: Final = Grammar(
    operators={
        "prefix": values.starts,
        "suffix": values.ends,
        "equals-ignore-case": values.equals_fold,
        "wildcard": _like,
        "anything-but": values.anything_but,
        "numeric": values.numeric,
        "cidr": values.cidr,
        "exists": values.exists,
    },
    anything_but={"prefix": values.but_starts, "wildcard": _like},
    folds_ends=False,
    check_number=_check_number,
    present=AllTests((Other(OfKind("null")), Other(Equal("")))),
)


# --- limits ------------------------------------------------------------------------------------


def _alternatives(filter: object) -> list[Alternative]:
    """The alternatives of a policy that is not too large."""
    root = read_filter(filter)
    if isinstance(filter, str) and len(filter.encode()) > MOST_BYTES:
        raise root.error("a policy has at most 256 KiB", FilterTooLargeError)
    found = alternatives(root, GRAMMAR)
    _check_fields(root)
    combinations = sum(prod(map(_combinations, one.values())) for one in found)
    if combinations > MOST_COMBINATIONS:
        raise root.error(
            f"a policy has at most {MOST_COMBINATIONS} combinations of values, not {combinations}",
            FilterTooLargeError,
        )
    complexity = sum(map(_complexity, _leaves(found)))
    if complexity > MOST_COMPLEX:
        raise root.error(
            f"the wildcards have a complexity of {complexity}, above {MOST_COMPLEX}",
            FilterTooLargeError,
        )
    return found


def _check_fields(root: Located) -> None:
    known: set[str] = set()
    for name, place in _fields(root):
        known.add(name)
        if len(known) > MOST_FIELDS:
            raise place.error(f"a policy names at most {MOST_FIELDS} fields", FilterTooLargeError)


def _fields(mapping: Located) -> Iterator[tuple[str, Place]]:
    """The names outside of other fields."""
    assert isinstance(mapping.value, tuple)  # as it was read
    for name, below in mapping.value:
        if name == OR and is_choice(below, GRAMMAR):
            for option in below.value if isinstance(below.value, list) else ():
                yield from _fields(option)
        else:
            yield name, below.named


def _leaves(found: Iterable[Alternative]) -> Iterable[Leaf]:
    """Each leaf once, however many alternatives it is in."""
    return {id(leaf): leaf for one in found for leaf in one.values()}.values()


def _combinations(leaf: Leaf) -> int:
    assert isinstance(leaf.values.value, list)  # as it was read
    return len(leaf.values.value) * leaf.depth


def _complexity(leaf: Leaf) -> int:
    """The points of all wildcards of a field, as often as there are some."""
    stars = [len(values.wildcard_parts(one)) - 1 for one in _wildcards(leaf.values)]
    return len(stars) * sum(3 * number if number > 1 else number for number in stars)


def _wildcards(found: Located) -> Iterator[Located]:
    """The texts of 'wildcard', in 'anything-but', too."""
    if isinstance(found.value, list):
        for item in found.value:
            yield from _wildcards(item)
    elif isinstance(found.value, tuple):
        for name, operand in found.value:
            if name == "anything-but":
                yield from _wildcards(operand)
            elif name == "wildcard":
                yield from operand.value if isinstance(operand.value, list) else [operand]
