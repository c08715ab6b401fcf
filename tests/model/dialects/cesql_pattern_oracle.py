"""Patterns read literally, for the nodes that CloudEvents SQL is translated to.

Paths have one name. The oracle shares nothing with the translation.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from boxmatch.model.dialects.patterns import (
    AllTests,
    AnyTest,
    Equal,
    EqualFold,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Wildcard,
)


def holds(pattern: Pattern, event: Mapping[str, Any]) -> bool:
    match pattern:
        case Every(patterns):
            return all(holds(one, event) for one in patterns)
        case Some(patterns):
            return any(holds(one, event) for one in patterns)
        case Field(path, test, scalar):
            return any(passes(test, member) for member in members(event, path, scalar))
        case Missing(path, _, scalar):
            return not members(event, path, scalar)
    raise AssertionError(pattern)


def members(event: Mapping[str, Any], path: tuple[str, ...], scalar: bool) -> list[Any]:
    (name,) = path
    if name not in event or isinstance(event[name], Mapping):
        return []
    value = event[name]
    if isinstance(value, list):
        return [] if scalar else [one for one in value if not isinstance(one, (list, Mapping))]
    return [value]


def passes(test: Test, member: Any) -> bool:
    match test:
        case AnyTest(tests):
            return any(passes(one, member) for one in tests)
        case AllTests(tests):
            return all(passes(one, member) for one in tests)
        case Other(inner):
            return not passes(inner, member)
        case OfKind(kind):
            return kind_of(member) == kind
        case Equal(value):
            return kind_of(member) == kind_of(value) and member == value
        case Range():
            return in_range(test, member)
    if not isinstance(member, str):
        return False
    match test:
        case Prefix(text, fold=False):
            return member.startswith(text)
        case Suffix(text, fold=False):
            return member.endswith(text)
        case EqualFold(text):
            return member.lower() == text.lower()
        case Wildcard(parts):
            return like_wildcard(parts, member)
    raise AssertionError(test)


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, (int, float, Decimal)) else "string"


def in_range(test: Range, member: Any) -> bool:
    for end, is_open, strict, loose in (
        (test.low, test.low_open, operator.gt, operator.ge),
        (test.high, test.high_open, operator.lt, operator.le),
    ):
        if end is None:
            continue
        if kind_of(member) != kind_of(end) or not (strict if is_open else loose)(member, end):
            return False
    return True


def like_wildcard(parts: tuple[str, ...], text: str) -> bool:
    first, *others = parts
    if not text.startswith(first):
        return False
    rest = text[len(first) :]
    if len(others) == 1:
        return rest.endswith(others[0])
    places = range(len(rest) + 1)
    return any(
        like_wildcard(("", *others[1:]), rest[at + len(others[0]) :])
        for at in places
        if rest.startswith(others[0], at)
    )
