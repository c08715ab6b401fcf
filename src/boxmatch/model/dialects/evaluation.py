"""Filters of dialects evaluated literally, for the events that texts alone do not decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any, Final

from boxmatch.model.dialects.patterns import (
    Address,
    AllTests,
    AnyTest,
    Every,
    Field,
    Missing,
    Other,
    Path,
    Pattern,
    Some,
    Test,
    Wildcard,
)
from boxmatch.model.dialects.registry import translate
from boxmatch.model.dialects.text_sets import text_test
from boxmatch.model.documents import find, members
from boxmatch.model.expressions.documents import text_function
from boxmatch.model.text_ranges import TextRanges

Check = Callable[[Any], bool]

_NOTHING: Final = object()


@lru_cache(maxsize=4096)
def wants(dialect: str, text: str) -> Check:
    """What tells whether a filter wants an event, in which elements of lists were chosen."""
    pattern, more, paths = translate(dialect, text)
    holds = _holds(pattern)
    if more is None:
        return holds

    def run(event: Any) -> bool:
        return holds(event) and more(*[find(event, path) for path in paths])

    return run


def _holds(pattern: Pattern) -> Check:
    match pattern:
        case Every(patterns):
            every = [_holds(one) for one in patterns]
            return lambda event: all(holds(event) for holds in every)
        case Some(patterns):
            some = [_holds(one) for one in patterns]
            return lambda event: any(holds(event) for holds in some)
        case Missing(path, within, scalar):
            if scalar:
                return lambda event: _value(event, path) is _NOTHING
            return lambda event: not any(True for _ in members(event, path, within))
        case Field(path, test, scalar):
            passes = _passes(test)
            if scalar:
                return lambda event: (
                    (value := _value(event, path)) is not _NOTHING and passes(value)
                )
            return lambda event: any(map(passes, members(event, path)))


def _value(event: Any, path: Path) -> Any:
    """The value at a path that is no list and no mapping."""
    value = find(event, path, _NOTHING)
    return _NOTHING if isinstance(value, (list, tuple, Mapping)) else value


def _passes(test: Test) -> Check:
    match test:
        case Other(inner):
            fails = _passes(inner)
            return lambda value: not fails(value)
        case AnyTest(tests):
            some = [_passes(one) for one in tests]
            return lambda value: any(passes(value) for passes in some)
        case AllTests(tests):
            every = [_passes(one) for one in tests]
            return lambda value: all(passes(value) for passes in every)
        case Wildcard(parts):
            return lambda value: isinstance(value, str) and _is_like(value, parts)
        case Address(network):
            return lambda value: isinstance(value, str) and _is_in(value, network)
    [(form, ranges)] = text_test(test).sets[0].items()
    text = text_function(form)
    return lambda value: (found := text(value)) is not None and _is_among(found, ranges)


def _is_among(text: str, ranges: TextRanges) -> bool:
    return any(low <= text and (high is None or text < high) for low, high in ranges)


def _is_in(text: str, network: Any) -> bool:
    try:
        return "%" not in text and ip_address(text) in network
    except ValueError:
        return False


def _is_like(text: str, parts: tuple[str, ...]) -> bool:
    """Whether a text is made of parts with any text between each two of them."""
    first, *inner, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first):
        return False
    place, end = len(first), len(text) - len(last)
    for part in inner:
        place = text.find(part, place, end)
        if place < 0:
            return False
        place += len(part)
    return text.endswith(last)
