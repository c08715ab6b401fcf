"""Event patterns of EventBridge: tables, a property against an oracle, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from eventbridge_oracle import matches
from eventbridge_table import MATCHES, NAMES, REFUSED
from hypothesis import given, settings
from hypothesis import strategies as st
from pattern_oracle import holds
from pattern_strategies import events, patterns

from boxmatch.errors import FilterError, FilterTooLargeError
from boxmatch.model.dialects.eventbridge import translate
from boxmatch.model.dialects.patterns import (
    AnyTest,
    Equal,
    EqualFold,
    Every,
    Field,
    Missing,
    Other,
    Prefix,
    Some,
    Translation,
)
from property_examples import examples

Events = list[dict[str, Any]]


@pytest.mark.parametrize(("pattern", "yes", "no"), MATCHES + NAMES)
def test_matches(pattern: str, yes: Events, no: Events) -> None:
    found = translate(pattern).pattern
    assert [event for event in yes if not holds(found, event)] == []
    assert [event for event in no if holds(found, event)] == []


@pytest.mark.parametrize(("pattern", "yes", "no"), MATCHES)
def test_the_oracle_matches(pattern: str, yes: Events, no: Events) -> None:
    read = json.loads(pattern, parse_float=Decimal)
    assert [event for event in yes if not matches(read, event)] == []
    assert [event for event in no if matches(read, event)] == []


@pytest.mark.parametrize(("marked", "message"), REFUSED)
def test_refused(marked: str, message: str) -> None:
    position = marked.index("^")
    text = marked[:position] + marked[position + 1 :]
    with pytest.raises(FilterError) as refused:
        translate(text)
    assert message in refused.value.reason
    assert refused.value.position == position


def test_patterns_are_small() -> None:
    pattern = {
        "a": ["x", {"prefix": "y"}],
        "b": {"c": [{"anything-but": {"equals-ignore-case": "z"}}], "d.e": [{"exists": False}]},
    }
    assert translate(pattern) == Translation(
        Every(
            (
                Field(("a",), AnyTest((Equal("x"), Prefix("y")))),
                Field(("b", "c"), Other(EqualFold("z"))),
                Missing(("b", "d", "e"), within=1),
            )
        )
    )


def test_alternatives_are_multiplied_out_where_missing_paths_depend_on_them() -> None:
    optional = [1, {"exists": False}]
    flat = translate(dict.fromkeys("abcdefghijklmnopqrstuvwxyz", optional)).pattern
    assert isinstance(flat, Every)
    assert len(flat.patterns) == 26
    nested = translate({"x": dict.fromkeys("abcdefghijklmnopqrstuvwxyz", optional)}).pattern
    assert isinstance(nested, Some)
    assert holds(nested, {"x": [{"b": 1}, {"a": 1}]})
    assert not holds(nested, {"x": [{"b": 2}, {"c": 1}]})


# --- filters that are mappings -----------------------------------------------------------------


def test_mappings_say_the_same_as_texts() -> None:
    for pattern, _, _ in MATCHES:
        assert translate(json.loads(pattern, parse_float=Decimal)) == translate(pattern)


MAPPINGS_REFUSED: list[tuple[object, str]] = [
    ({"a": {"b": [{"numeric": [">", "1"]}]}}, "operator (at a.b[0].numeric[1])"),
    ({"a": [1, {"prefix": 2}]}, "'prefix' takes a string (at a[1].prefix)"),
    ({"a": [1, {"prefx": 2}]}, "known are 'exactly'"),
    ({"a": []}, "should not be empty (at a)"),
    ({}, "a mapping of names should not be empty"),
    ({"a": [b"x"]}, "b'x' is no value of JSON (at a[0])"),
    ({"a": [float("nan")]}, "nan is no value of JSON (at a[0])"),
    ({"a": [Decimal("Infinity")]}, "is no value of JSON (at a[0])"),
    ({"a": ["\ud800"]}, "half of a surrogate pair (at a[0])"),
    ({"a": [10**10_000]}, "a number is between"),
    ({1: [2]}, "the name 1 is no string"),
    ([1], "a JSON text or a mapping, not list"),
    (None, "a JSON text or a mapping, not NoneType"),
]


@pytest.mark.parametrize(("pattern", "message"), MAPPINGS_REFUSED)
def test_mappings_refused(pattern: object, message: str) -> None:
    with pytest.raises(FilterError) as refused:
        translate(pattern)
    assert message in str(refused.value)
    assert refused.value.position is None


def test_a_mapping_inside_itself_is_refused() -> None:
    pattern: dict[str, Any] = {}
    pattern["a"] = pattern
    with pytest.raises(FilterError, match="more than 100 mappings and lists"):
        translate(pattern)


def test_patterns_of_many_fields() -> None:
    many = {str(number): [number] for number in range(2_000)}
    assert len(translate(json.dumps(many)).pattern.patterns) == 2_000  # type: ignore[union-attr]
    optional: Any = {name: [1, {"exists": False}] for name in many}
    assert len(translate(optional).pattern.patterns) == 2_000  # type: ignore[union-attr]
    with pytest.raises(FilterTooLargeError, match="too many fields that others depend on"):
        translate({"x": optional})


def test_too_many_alternatives_are_refused() -> None:
    choice = [{"a": [1]}, {"b": [1]}]
    many = {str(number): {"$or": choice} for number in range(10)}
    with pytest.raises(FilterTooLargeError, match="more than 1,000 alternatives"):
        translate(many)
    del many["0"]
    assert len(translate(many).pattern.patterns) == 512  # type: ignore[union-attr]


# --- any pattern and any event -----------------------------------------------------------------


@settings(max_examples=examples(2_000), deadline=None)
@given(patterns, st.lists(events, min_size=1, max_size=5))
def test_any_pattern_matches_as_the_oracle_says(pattern: dict[str, Any], some: Events) -> None:
    found = translate(json.dumps(pattern)).pattern
    for event in some:
        assert holds(found, event) == matches(pattern, event)


def translated(text: str) -> Translation | FilterError:
    try:
        return translate(text)
    except FilterError as refused:
        return refused


@settings(max_examples=examples(500), deadline=None)
@given(patterns, st.data())
def test_texts_that_are_cut_or_changed_are_refused_or_read(
    pattern: dict[str, Any], data: st.DataObject
) -> None:
    text = json.dumps(pattern)
    start = data.draw(st.integers(0, len(text)))
    middle = data.draw(st.sampled_from(("", '"', "{", "}", "[", "]", ",", ":", "\\", "*", "1e9")))
    changed = text[:start] + middle + text[start + data.draw(st.integers(0, 3)) :]
    found = translated(changed)
    if isinstance(found, FilterError):
        assert found.position is not None
        assert 0 <= found.position <= len(changed)
