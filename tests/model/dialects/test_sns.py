"""Filter policies of SNS: tables, a property against an oracle, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from eventbridge_oracle import matches
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pattern_oracle import holds
from pattern_strategies import (
    common,
    doubles,
    events,
    filled,
    names,
    one_or_more,
    operators,
    patterns_of,
    scalars,
    texts,
    wildcards,
)
from sns_table import ATTRIBUTES, BODIES, REFUSED

from boxmatch.errors import FilterError
from boxmatch.model.dialects.patterns import Missing, Translation
from boxmatch.model.dialects.sns import translate, translate_body
from property_examples import examples

Events = list[dict[str, Any]]


def wants(found: Translation, event: dict[str, Any]) -> bool:
    """Whether a translation wants an event."""
    if not holds(found.pattern, event):
        return False
    if found.wants is None:
        return True
    assert found.paths == ((),)  # the whole event
    return found.wants(event)


def allows(policy: dict[str, Any], event: dict[str, Any]) -> bool:
    """Whether a policy for bodies allows an event."""
    return matches(policy, event, exists=lambda value: value not in (None, ""))


@pytest.mark.parametrize(("policy", "yes", "no"), ATTRIBUTES)
def test_attributes(policy: str, yes: Events, no: Events) -> None:
    found = translate(policy)
    assert [event for event in yes if not wants(found, event)] == []
    assert [event for event in no if wants(found, event)] == []


@pytest.mark.parametrize(("policy", "yes", "no"), ATTRIBUTES + BODIES)
def test_bodies(policy: str, yes: Events, no: Events) -> None:
    found = translate_body(policy)
    assert [event for event in yes if not wants(found, event)] == []
    assert [event for event in no if wants(found, event)] == []


@pytest.mark.parametrize(("policy", "yes", "no"), ATTRIBUTES + BODIES)
def test_the_oracle(policy: str, yes: Events, no: Events) -> None:
    assert [event for event in yes if not allows(json.loads(policy), event)] == []
    assert [event for event in no if allows(json.loads(policy), event)] == []


@pytest.mark.parametrize(("marked", "message"), REFUSED)
def test_refused(marked: str, message: str) -> None:
    position = marked.index("^")
    text = marked[:position] + marked[position + 1 :]
    for translator in (translate, translate_body):
        with pytest.raises(FilterError) as refused:
            translator(text)
        assert message in refused.value.reason
        assert refused.value.position == position


def test_attributes_are_not_nested() -> None:
    with pytest.raises(FilterError, match="no nested fields") as refused:
        translate('{"a": [1], "b": {"c": [1]}}')
    assert refused.value.position == 17
    with pytest.raises(FilterError, match=r"no nested fields \(at b.c\)"):
        translate({"a": [1], "b": {"c": [1]}})
    assert translate_body({"b": {"c": [1]}}) == translate({"b.c": [1]})


def test_without_attributes_nothing_matches() -> None:
    absent = {"x": [{"exists": False}]}
    assert wants(translate(absent), {"y": 1})
    assert not wants(translate(absent), {})
    assert wants(translate_body(absent), {})
    assert translate_body(absent) == Translation(Missing(("x",)))
    # No question where an attribute is wanted anyway.
    assert translate({**absent, "y": [1]}).wants is None
    assert translate({"$or": [{"y": [1]}, absent]}).wants is not None


def test_nested_fields_have_more_combinations() -> None:
    policy: dict[str, Any] = {
        "a": {"b": {"c": [1, 2, 3, 4]}},
        "d": {"e": [1, 2, 3]},
    }
    translate_body(policy)  # 3 * 4 * 2 * 3
    with pytest.raises(FilterError, match="at most 150 combinations of values, not 216"):
        translate_body({**policy, "f": [1, 2, 3]})


def test_a_policy_of_as_many_combinations_as_there_may_be() -> None:
    translate(
        {
            "source": [1, 2, 3],
            "$or": [
                {"name": [1, 2, 3, 4, 5, 6]},
                {
                    "type": [1, 2, 3, 4],
                    "$or": [{"id": [1, 2, 3, 4]}, {"space": [1, 2, 3, 4, 5, 6, 7]}],
                },
            ],
        }
    )


# --- any policy and any event ------------------------------------------------------------------

but = st.one_of(
    *(one_or_more(kind) for kind in (texts, doubles)),
    operators("prefix", one_or_more(filled)),
    operators("wildcard", one_or_more(wildcards)),
)
elements = common | operators("anything-but", but)
policies = patterns_of(elements)
flat = st.dictionaries(names, st.lists(elements, min_size=1, max_size=3), min_size=1, max_size=3)
attributes = st.dictionaries(names, scalars | st.lists(scalars, max_size=3), max_size=3)


def translated(policy: dict[str, Any]) -> Translation | FilterError:
    try:
        return translate_body(json.dumps(policy))
    except FilterError as refused:
        return refused


@settings(max_examples=examples(1_000), deadline=None)
@given(policies, st.lists(events, min_size=1, max_size=5))
def test_any_policy_allows_what_the_oracle_says(policy: dict[str, Any], some: Events) -> None:
    found = translated(policy)
    if isinstance(found, FilterError):
        assert any(part in found.reason for part in LIMITS), found.reason
        reject()
    for event in some:
        assert wants(found, event) == allows(policy, event)


LIMITS = ("is there already", "are compared", "combinations", "fields", "'*'", "complexity")


@settings(max_examples=examples(500), deadline=None)
@given(flat, st.lists(attributes, min_size=1, max_size=5))
def test_both_scopes_say_the_same_of_attributes(policy: dict[str, Any], some: Events) -> None:
    if isinstance(translated(policy), FilterError):
        reject()
    for event in some:
        assert wants(translate(policy), event) == (bool(event) and allows(policy, event))
