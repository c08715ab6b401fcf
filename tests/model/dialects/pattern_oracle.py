"""Patterns evaluated literally: by trying each choice of one element for each list of mappings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from ipaddress import ip_address
from itertools import product
from typing import Any

from boxmatch.model.dialects.patterns import (
    Address,
    AllTests,
    AnyTest,
    Equal,
    EqualFold,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Path,
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Wildcard,
)

Where = tuple[str | int, ...]
Choice = dict[Where, int]
"""Which element is chosen of the list at a place of an event."""


def holds(pattern: Pattern, event: Mapping[str, Any]) -> bool:
    """Whether a pattern holds of an event."""
    names = {name for path in paths_of(pattern) for name in path}
    return any(_holds(pattern, event, choice) for choice in _choices(event, (), names))


def paths_of(pattern: Pattern) -> Iterator[Path]:
    if isinstance(pattern, (Field, Missing)):
        yield pattern.path
    else:
        for one in pattern.patterns:
            yield from paths_of(one)


def _holds(pattern: Pattern, event: Mapping[str, Any], choice: Choice) -> bool:
    match pattern:
        case Field(path, test):
            found = _members(event, path, choice, len(path))
            return any(passes(test, value) for value in found)
        case Missing(path, within):
            return not list(_members(event, path, choice, within))
        case Every(patterns):
            return all(_holds(one, event, choice) for one in patterns)
        case Some(patterns):
            return any(_holds(one, event, choice) for one in patterns)


# --- events ------------------------------------------------------------------------------------


def _choices(value: Any, where: Where, names: set[str]) -> Iterator[Choice]:
    if isinstance(value, Mapping):
        below = [
            list(_choices(one, (*where, name), names))
            for name, one in value.items()
            if names.issuperset(name.split("."))
        ]
        for parts in product(*below):
            yield {at: index for part in parts for at, index in part.items()}
    elif isinstance(value, list) and any(isinstance(one, Mapping) for one in flat(value)):
        for index, one in enumerate(flat(value)):
            if isinstance(one, Mapping):
                for choice in _choices(one, (*where, index), names):
                    yield {where: index, **choice}
    else:
        yield {}


def flat(value: list[Any]) -> list[Any]:
    """The elements of a list, those of lists in it among them."""
    return [one for part in value for one in (flat(part) if isinstance(part, list) else [part])]


def _members(
    value: Any, path: Path, choice: Choice, within: int, where: Where = (), depth: int = 0
) -> Iterator[Any]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            parts = tuple(name.split("."))
            end = depth + len(parts)
            if path[depth:end] == parts:
                yield from _members(one, path, choice, within, (*where, name), end)
    elif isinstance(value, list):
        for index, one in enumerate(flat(value)):
            if not isinstance(one, Mapping) or depth > within or choice[where] == index:
                yield from _members(one, path, choice, within, (*where, index), depth)
    elif depth == len(path):
        yield value


# --- tests -------------------------------------------------------------------------------------


def passes(test: Test, value: Any) -> bool:
    """Whether a member passes a test."""
    match test:
        case Equal(wanted):
            return kind_of(wanted) == kind_of(value) and exact(wanted) == exact(value)
        case Range(low, high, low_open, high_open):
            if kind_of(value) != kind_of(high if low is None else low):
                return False
            found = exact(value)
            above = low is None or found > exact(low) or (found == exact(low) and not low_open)
            below = high is None or found < exact(high) or (found == exact(high) and not high_open)
            return above and below
        case OfKind(kind):
            return kind_of(value) == kind
        case Other(inner):
            return not passes(inner, value)
        case AnyTest(tests):
            return any(passes(one, value) for one in tests)
        case AllTests(tests):
            return all(passes(one, value) for one in tests)
    return isinstance(value, str) and _passes_text(test, value)


def _passes_text(test: Test, value: str) -> bool:
    match test:
        case Prefix(text, fold):
            return _same(value[: len(text)], text, fold)
        case Suffix(text, fold):
            return _same(value[len(value) - len(text) :] if text else "", text, fold)
        case EqualFold(text):
            return _same(value, text, fold=True)
        case Wildcard(parts):
            return _is_like(value, parts)
        case Address(network):
            try:
                return "%" not in value and ip_address(value) in network
            except ValueError:
                return False
    raise TypeError(test)


def _same(value: str, text: str, fold: bool) -> bool:
    if len(value) != len(text):
        return False
    pairs = zip(value, text, strict=True)
    return all(one == two or (fold and _cases(one, two)) for one, two in pairs)


def _cases(one: str, two: str) -> bool:
    return (one.lower() == two and two.upper() == one) or (
        two.lower() == one and one.upper() == two
    )


def _is_like(value: str, parts: tuple[str, ...]) -> bool:
    if len(parts) == 1:
        return value == parts[0]
    if not value.startswith(parts[0]):
        return False
    rest = value[len(parts[0]) :]
    return any(_is_like(rest[start:], parts[1:]) for start in range(len(rest) + 1))


def kind_of(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return "string" if isinstance(value, str) else "number"


def exact(value: Any) -> Any:
    """A number as it is written; other values as they are."""
    return Decimal(repr(value)) if isinstance(value, float) else value
