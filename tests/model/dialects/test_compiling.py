"""Patterns through a matcher, one event and many, against their literal meaning."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from ipaddress import ip_network
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pattern_oracle import holds

import boxmatch as bm
from boxmatch.model.dialects import evaluation, registry
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
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Translation,
    Wildcard,
)
from property_examples import examples

_PATTERNS: dict[str, Pattern] = {}


@pytest.fixture(autouse=True)
def _own_dialect(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Filters are keys of `_PATTERNS`, in the place of a dialect."""
    monkeypatch.setattr(registry, "_translator", lambda _: lambda key: Translation(_PATTERNS[key]))
    registry._translated.cache_clear()
    evaluation.wants.cache_clear()
    yield
    registry._translated.cache_clear()
    evaluation.wants.cache_clear()


_TEXTS = st.sampled_from(
    [
        *("", "a", "b", "ab", "aab", "abc", "A", "Ab", "ba", "\0", "\0a", "\0b1", "ß", "K", "k"),
        *("1", "10.0.0.1", "10.0.1.1", "::1", "not"),
    ]
)
_NUMBERS = st.sampled_from(
    [0, 1, -1, 1.0, 0.5, -0.0, 2**53, 2**53 + 1, 2**60 + 1, 0.1, 1e300, -1e300, 10**40, -(10**40)]
)
_SCALARS = _TEXTS | _NUMBERS | st.booleans() | st.none()
_NAMES = st.sampled_from(["a", "b", "c"])
_PATHS = st.lists(_NAMES, min_size=1, max_size=3).map(tuple)


def _values(scalars: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "c", "d", "a.b", "b.c"])
    return st.recursive(
        scalars,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=8,
    )


def _events(scalars: st.SearchStrategy[Any] = _SCALARS) -> st.SearchStrategy[dict[str, Any]]:
    names = st.sampled_from(["a", "b", "c", "a.b"])
    return st.dictionaries(names, _values(scalars), max_size=3)


@st.composite
def _ranges(draw: st.DrawFn) -> Test:
    ends = draw(st.sampled_from([_TEXTS, _NUMBERS]))
    low, high = draw(st.none() | ends), draw(st.none() | ends)
    if low is None and high is None:
        low = draw(ends)
    return Range(low, high, draw(st.booleans()), draw(st.booleans()))


_NETWORKS = st.sampled_from(["10.0.0.0/24", "10.0.0.0/8", "::/64", "0.0.0.0/0"]).map(ip_network)
_BASIC: st.SearchStrategy[Test] = st.one_of(
    st.builds(Equal, _SCALARS | st.just(Decimal("0.1"))),
    _ranges(),
    st.builds(OfKind, st.sampled_from(["null", "bool", "number", "string"])),
    st.builds(Prefix, _TEXTS, st.booleans()),
    st.builds(Suffix, _TEXTS, st.booleans()),
    st.builds(EqualFold, _TEXTS),
    st.builds(Wildcard, st.lists(_TEXTS, min_size=2, max_size=4).map(tuple)),
    st.builds(Address, _NETWORKS),
)
_TESTS = st.recursive(
    _BASIC,
    lambda inner: st.one_of(
        st.builds(Other, inner),
        st.builds(AnyTest, st.lists(inner, max_size=3).map(tuple)),
        st.builds(AllTests, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=4,
)
_FIELDS: st.SearchStrategy[Pattern] = st.builds(Field, _PATHS, _TESTS) | st.builds(
    Missing, _PATHS, st.integers(0, 3)
)
_ALL_PATTERNS = st.recursive(
    _FIELDS,
    lambda inner: st.one_of(
        st.builds(Every, st.lists(inner, max_size=3).map(tuple)),
        st.builds(Some, st.lists(inner, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


def _matcher(patterns: list[Pattern], schema: Any = None, index: str = "tile") -> bm.Matcher:
    matcher = bm.Matcher(schema, index=index)
    for number, pattern in enumerate(patterns):
        key = repr(pattern)
        _PATTERNS[key] = pattern
        matcher.subscribe(number, key, dialect="eventbridge")
    return matcher


def _wanted(patterns: list[Pattern], event: dict[str, Any]) -> list[int]:
    return [number for number, pattern in enumerate(patterns) if holds(pattern, event)]


def _check(matcher: bm.Matcher, patterns: list[Pattern], events: list[dict[str, Any]]) -> None:
    wanted = [_wanted(patterns, event) for event in events]
    assert [sorted(matcher.match(event)) for event in events] == wanted
    assert [matcher.count(event) for event in events] == [len(ids) for ids in wanted]
    assert [sorted(ids.tolist()) for _, ids in matcher.match_batch(events)] == wanted
    assert matcher.count_batch(events).tolist() == [len(ids) for ids in wanted]


_SETTINGS = settings(
    max_examples=examples(150),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@_SETTINGS
@given(st.lists(_ALL_PATTERNS, min_size=1, max_size=4), st.lists(_events(), min_size=1, max_size=4))
def test_matches_are_what_patterns_mean(
    patterns: list[Pattern], events: list[dict[str, Any]]
) -> None:
    _check(_matcher(patterns), patterns, events)


@_SETTINGS
@given(st.lists(_ALL_PATTERNS, min_size=1, max_size=4), st.lists(_events(), min_size=1, max_size=4))
def test_an_index_without_lists_finds_the_same(
    patterns: list[Pattern], events: list[dict[str, Any]]
) -> None:
    _check(_matcher(patterns, index="rein"), patterns, events)


_IN_JSON = _TEXTS | st.sampled_from([0, 1, 1.5, 2**53 + 1, -3]) | st.booleans() | st.none()


@_SETTINGS
@given(
    st.lists(_ALL_PATTERNS, min_size=1, max_size=4),
    st.lists(_events(_IN_JSON), min_size=1, max_size=4),
)
def test_events_may_be_json(patterns: list[Pattern], events: list[dict[str, Any]]) -> None:
    matcher = _matcher(patterns)
    texts = [json.dumps(event) for event in events]
    wanted = [_wanted(patterns, event) for event in events]
    assert [sorted(matcher.match(text.encode())) for text in texts] == wanted
    assert [sorted(ids.tolist()) for _, ids in matcher.match_batch(texts)] == wanted


@_SETTINGS
@given(st.lists(_ALL_PATTERNS, min_size=1, max_size=3), st.lists(_events(), min_size=1, max_size=3))
def test_explanations_agree(patterns: list[Pattern], events: list[dict[str, Any]]) -> None:
    matcher = _matcher(patterns)
    for event in events:
        wanted = _wanted(patterns, event)
        for number in range(len(patterns)):
            assert matcher.explain(event, number).matched == (number in wanted)
        assert sorted(matcher.nearest(event).matched.tolist()) == wanted


@_SETTINGS
@given(st.lists(_ALL_PATTERNS, min_size=2, max_size=5), st.lists(_events(), min_size=1, max_size=3))
def test_matches_follow_changes_and_files(
    patterns: list[Pattern], events: list[dict[str, Any]]
) -> None:
    matcher = bm.Matcher()
    wanted = [_wanted(patterns, event) for event in events]
    rows = []
    for number, pattern in enumerate(patterns):
        _PATTERNS[repr(pattern)] = pattern
        rows.append({"id": number, "filter": repr(pattern), "dialect": "eventbridge"})
    for row in rows[:2]:
        matcher.subscribe(row["id"], row["filter"], dialect="eventbridge")
        for event in events:
            matcher.match(event)  # what it remembers must not outlive the change
    matcher.subscribe_many(rows[1:])
    _check(matcher, patterns, events)
    matcher.unsubscribe(0)
    wanted = [[number for number in ids if number] for ids in wanted]
    assert [sorted(matcher.match(event)) for event in events] == wanted
    with tempfile.TemporaryDirectory() as folder:
        matcher.save(folder)
        loaded = bm.Matcher.load(folder)
        assert [sorted(loaded.match(event)) for event in events] == wanted
        assert [sorted(ids.tolist()) for _, ids in loaded.match_batch(events)] == wanted
        loaded.compact()
        assert [sorted(loaded.match(event)) for event in events] == wanted
