"""An event is traced: who gets it, who nearly does; and published, if wanted."""

from __future__ import annotations

import json
import random
from typing import Any, NamedTuple

import httpx
import pytest
from broker_server import RunningBroker  # in ../broker
from dashboard_page import Dashboard, Pages
from playwright.sync_api import Locator, expect

import boxmatch as bm

SCHEMA = {"a": "int", "b": "int", "c": "int", "d": "int"}
SUBSCRIBERS = ("trace-ann", "trace-bob", "trace-cy")
SHOWN = 20
"""Of those that get it, and of those that do not."""
Event = dict[str, int]


class Range(NamedTuple):
    attribute: str
    low: int
    high: int

    def holds(self, event: Event) -> bool:
        value = event.get(self.attribute)
        return value is not None and self.low <= value <= self.high


class Random:
    """Subscriptions made at random, and what is true of them."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.ranges: dict[tuple[str, str], list[Range]] = {
            (subscriber, f"s{number}"): self._ranges()
            for subscriber in SUBSCRIBERS
            for number in range(12)
        }
        self._oracle = bm.Matcher(bm.Schema(SCHEMA), index="scan")
        for subscriber, id in self.ranges:
            self._oracle.subscribe(f"{subscriber}/{id}", self.filter((subscriber, id)))

    def _ranges(self) -> list[Range]:
        attributes = self._random.sample(list(SCHEMA), self._random.randint(1, 4))
        lows = [self._random.randint(0, 60) for _ in attributes]
        return [
            Range(one, low, low + self._random.randint(20, 60))
            for one, low in zip(attributes, lows, strict=True)
        ]

    def filter(self, key: tuple[str, str]) -> str:
        ranges = self.ranges[key]
        return " AND ".join(f"{one.attribute} BETWEEN {one.low} AND {one.high}" for one in ranges)

    def event(self) -> Event:
        """Now and then one lacks an attribute."""
        return {
            name: self._random.randint(0, 100) for name in SCHEMA if self._random.random() < 0.9
        }

    def getting(self, event: Event) -> set[tuple[str, str]]:
        found = (str(key).split("/") for key in self._oracle.match(event))
        return {(subscriber, id) for subscriber, id in found}

    def failing(self, key: tuple[str, str], event: Event) -> list[str]:
        return [one.attribute for one in self.ranges[key] if not one.holds(event)]


@pytest.fixture(scope="module")
def known(broker: RunningBroker) -> Random:
    """The feed `traced` with its subscriptions."""
    known = Random(7)
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        http.post("/feeds", json={"name": "traced", "schema": SCHEMA}).raise_for_status()
        for subscriber in SUBSCRIBERS:
            filters = {key[1]: known.filter(key) for key in known.ranges if key[0] == subscriber}
            body = {"feed": "traced", "filters": filters}
            http.post(f"/subscribers/{subscriber}/subscriptions", json=body).raise_for_status()
    return known


@pytest.fixture
def dashboard(broker: RunningBroker, known: Random, pages: Pages) -> Dashboard:
    dashboard = pages.new(broker.url).open_live("trace")
    dashboard.at("#trace-feed").select_option("traced")
    expect(dashboard.at("#trace-summary")).to_contain_text("Not published.")  # the example is
    return dashboard


def trace(dashboard: Dashboard, event: dict[str, Any], button: str = "#trace-send") -> None:
    dashboard.at("#trace-event").fill(json.dumps(event))
    with dashboard.page.expect_response(lambda answer: answer.url.endswith("/trace")):
        dashboard.at(button).click()
    expect(dashboard.at("#trace-send")).to_be_enabled()


def listed(items: Locator) -> list[tuple[str, str]]:
    found = items.evaluate_all("all => all.map((one) => [one.dataset.subscriber, one.dataset.id])")
    return [(subscriber, id) for subscriber, id in found]


def unmet(items: Locator) -> list[list[str]]:
    """Of each item, the attributes that it fails by."""
    wanted = items.evaluate_all(
        """all => all.map((one) => [...one.querySelectorAll('.predicates [data-satisfied="false"]')]
          .map((condition) => condition.querySelector(".wanted").textContent))"""
    )
    return [
        [next(name for name in SCHEMA if name in text.split()) for text in conditions]
        for conditions in wanted
    ]


def test_exactly_those_that_match_get_it(dashboard: Dashboard, known: Random) -> None:
    gets, misses = dashboard.at("#trace-gets > li"), dashboard.at("#trace-misses > li")
    sizes = set()
    for event in [{}, {"a": 50, "b": 50, "c": 50, "d": 50}, *(known.event() for _ in range(8))]:
        trace(dashboard, event)
        right = known.getting(event)
        sizes.add(len(right))
        said = f"Not published. {len(right)} of {len(known.ranges)} subscriptions "
        expect(dashboard.at("#trace-summary")).to_contain_text(said)
        found = listed(gets)
        assert len(found) == len(set(found)) == min(len(right), SHOWN)
        assert set(found) <= right
        if len(right) > SHOWN:
            expect(dashboard.at("#gets-hint")).to_have_text(f"and {len(right) - SHOWN} more")

        wrong = {key: known.failing(key, event) for key in known.ranges if key not in right}
        assert all(wrong.values())  # the oracle and the ranges agree
        missing = listed(misses)
        assert len(missing) == len(set(missing)) == min(len(wrong), SHOWN)
        assert set(missing) <= set(wrong)
        failed = [len(wrong[key]) for key in missing]
        assert failed == sorted(map(len, wrong.values()))[:SHOWN]
        assert [sorted(one) for one in unmet(misses)] == [sorted(wrong[key]) for key in missing]
    assert len(sizes) > 3  # or the events were too much alike


def test_to_publish_is_for_real(dashboard: Dashboard, known: Random, http: httpx.Client) -> None:
    before = http.get("/feeds/traced").json()["last_sequence"]
    event = {"a": 45, "b": 52, "c": 48, "d": 55}
    right = known.getting(event)
    assert right
    trace(dashboard, event)
    assert http.get("/feeds/traced").json()["last_sequence"] == before
    trace(dashboard, event, "#trace-publish")
    expect(dashboard.at("#trace-summary")).to_contain_text("Published with sequence")
    assert set(listed(dashboard.at("#trace-gets > li"))) <= right
    sequence = http.get("/feeds/traced").json()["last_sequence"]
    assert sequence > before
    got = set()
    for subscriber in SUBSCRIBERS:
        notifications = http.get(
            f"/subscribers/{subscriber}/notifications?after={sequence - 1}"
        ).json()["notifications"]
        for notification in notifications:
            assert (notification["sequence"], notification["event"]) == (sequence, event)
            got |= {(subscriber, id) for id in notification["subscriptions"]}
    assert got == right
    dashboard.at("#trace-example").click()
    area = dashboard.at("#trace-event")
    expect(area).to_have_value(json.dumps(event, indent=2))


def test_what_is_wrong_with_an_event(dashboard: Dashboard) -> None:
    dashboard.expect_failures("422")
    error = dashboard.at("#trace-error")
    for text, wrong, message in (
        ('{"a": 1,\n "b": 2,,}', ",", "Invalid JSON from here on."),
        ("[1, 2]", "[", "not an object"),
        ('{"c": 1, "a": "🚀",\n "b": 2}', '"a"', "is not a"),
        ('{"a": 1, "zz": 1}', '"zz"', "'zz'"),
    ):
        dashboard.at("#trace-event").fill(text)
        dashboard.at("#trace-send").click()
        expect(error).to_contain_text(message)
        expect(error.locator("mark")).to_have_text(wrong)
        expect(dashboard.at("#trace-gets > li")).to_have_count(0)
        trace(dashboard, {"a": 1})
        expect(error).to_be_hidden()
