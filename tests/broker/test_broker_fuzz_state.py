"""Hostile regions and filters on them, for state feeds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hostile_client import check_answer
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

SPACES = {
    "plane": {
        "x": "int",
        "y": "float",
        "s": "string",
        "t": "timestamp",
        "b": "bool",
        "e": ["u", "v"],
    }
}
MOST_SECONDS = 10.0


@pytest.fixture
def feed(http: httpx.Client) -> Iterator[str]:
    made = http.post("/feeds", json={"name": "hostile.places", "kind": "state", "spaces": SPACES})
    assert made.status_code == 201, made.text
    yield "hostile.places"
    assert http.delete("/feeds/hostile.places").status_code == 204


def everywhere(http: httpx.Client, feed: str, body: dict[str, Any]) -> list[int]:
    """The statuses of publishing, changing and subscribing to something."""
    publication = f"/feeds/{feed}/publications/p"
    named = {"region_filter" if name == "filter" else name: body[name] for name in body}
    answers = [
        http.put(publication, json=body),
        http.put("/subscribers/hostile.stan/subscriptions/s", json={"feed": feed, **named}),
        http.patch(publication, json=body),
        http.get(publication),
    ]
    return [check_answer(answer).status_code for answer in answers]


_values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([0, -1, 2**53, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]),
    st.sampled_from([1.5, 1e308, -1e308, 5e-324, -0.0]),
    st.sampled_from(["", "a", "u", "x" * 2000, "\x00", "é", "\U0001f600", "nan"]),
    st.sampled_from(["2026-01-01", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "24:00", "T"]),
)
_bounds = (
    _values
    | st.lists(_values, max_size=3)
    | st.fixed_dictionaries(
        {}, optional={"low": _values, "high": _values, "low_open": _values, "high_open": _values}
    )
)
_regions = st.dictionaries(st.sampled_from(["x", "y", "s", "t", "b", "e", "z", ""]), _bounds)


def run_regions(http: httpx.Client, feed: str, examples: int) -> None:
    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(_regions)
    def put(region: dict[str, Any]) -> None:
        published, subscribed, _, _ = everywhere(http, feed, {"region": region})
        assert published in (200, 422)
        assert subscribed == published

    put()


def test_regions_of_all_kinds(http: httpx.Client, feed: str) -> None:
    run_regions(http, feed, 120)


@pytest.mark.slow
def test_regions_of_all_kinds_many_times(http: httpx.Client, feed: str) -> None:
    run_regions(http, feed, 3_000)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_times_at_the_ends_of_the_calendar(http: httpx.Client, feed: str, time: str) -> None:
    everywhere(http, feed, {"region": {"x": 1}})
    assert everywhere(http, feed, {"region": {"t": time}})[0] in (200, 422)


TEXTS = {
    "empty": "",
    "white": " " * 5_000,
    "unbalanced": "((region",
    "not closed": "(" * 100,
    "zero": "\x00",
    "unicode": "\U0001f600 AND region",
    "quotes": '"' * 1_001,
    "statement": "region; DROP TABLE batch",
    "comment": "region /* a */",
    "subquery": "(SELECT 1)",
    "long name": "a" * 60_000,
    "many": "region AND " * 5_000 + "region",
    "white at the end": "region AND " * 5_000 + "region ",
    "always": "NOT region",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_filters_on_regions(http: httpx.Client, feed: str, text: str) -> None:
    began = time.monotonic()
    published, subscribed, _, _ = everywhere(http, feed, {"region": {"x": 1}, "filter": text})
    assert published in (200, 422)
    assert subscribed == published
    assert time.monotonic() - began < MOST_SECONDS


@pytest.mark.parametrize(
    "text", ["(" * 3_000 + "region" + ")" * 3_000, "NOT " * 6_000 + "region"], ids=["(", "NOT"]
)
def test_filters_on_regions_that_are_deep(http: httpx.Client, feed: str, text: str) -> None:
    assert everywhere(http, feed, {"region": {"x": 1}, "filter": text})[0] in (200, 422)
