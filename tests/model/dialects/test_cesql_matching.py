"""CloudEvents SQL through a matcher, compared with evaluation as whole sets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from test_cesql_properties import EVENTS, LITERALS, VALUES, checked, exact, expressions

import boxmatch as bm
from boxmatch.model.dialects.cesql_evaluation import evaluate
from boxmatch.model.dialects.cesql_syntax import parse
from property_examples import examples

FORMS = [
    *(f"x {sign} LITERAL" for sign in ("=", "!=", "<", ">=")),
    *("NOT (x = LITERAL)", "INT(x) < LITERAL", "x NOT IN ('a', LITERAL)"),
    "x = LITERAL OR EXISTS x",
]


def _check(texts: Sequence[str], events: Sequence[dict[str, Any]]) -> None:
    matcher = bm.Matcher()
    matcher.subscribe_many(
        [{"id": number, "filter": text} for number, text in enumerate(texts)], dialect="cesql"
    )
    found = matcher.match_batch(events)
    roots = [parse(text) for text in texts]
    for place, event in enumerate(events):
        results = [evaluate(root, event) for root in roots]
        wanted = [n for n, (value, errors) in enumerate(results) if value is True and not errors]
        assert sorted(found[place].tolist()) == wanted, event
        assert sorted(matcher.match(event)) == wanted, event


def test_comparisons_of_all_values() -> None:
    texts = [form.replace("LITERAL", literal) for form, literal in product(FORMS, LITERALS)]
    _check(texts, [{}, *({"x": value} for value in VALUES)])


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(st.one_of(expressions(exact), expressions(checked)), min_size=1, max_size=4))
def test_logic_for_all_events(texts: list[str]) -> None:
    _check(texts, EVENTS)
