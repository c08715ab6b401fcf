"""A key sees what it may see, and the page gets no more than it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker  # in ../broker
from dashboard_page import SECTIONS, Dashboard, Pages
from playwright.sync_api import expect

from boxmatch.broker.access import Keys

GIVEN: dict[str, dict[str, Any]] = {
    "admin": {"admin": True},
    "ann": {"subscribe": ["ann"]},
    "reader": {"read": ["shared"]},
    "publisher": {"publish": ["shared"]},
    "ann-reads": {"subscribe": ["ann"], "read": ["shared"]},
}
# Subscriber, id, feed, filter. Each has a word that stands nowhere else.
OWN = [
    ("ann", "own-cheap", "shared", "price < 20.125"),
    ("ann", "own-dear", "shared", "price > 90"),
]
OTHERS = [
    ("walrus", "wanted-by-walrus", "shared", "price > 31.0625"),
    ("walrus", "hoarded", "vault", "price > 53.4375"),
    ("heron", "silent", "vault", "price < -71.875"),
]
SECRETS = ("walrus", "heron", "hoarded", "silent", "vault", "31.0625", "53.4375", "71.875")
EVENT = '{"price": 42.5}'


class Locked:
    """A broker with keys, of two feeds and three subscribers."""

    def __init__(self, broker: RunningBroker, keys: dict[str, str]) -> None:
        self.url = broker.url
        self.keys = keys


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    data: Path = tmp_path_factory.mktemp("locked") / "data"
    data.mkdir()
    with Keys.open(data) as keys:
        texts = {role: keys.create(role, **given)[1] for role, given in GIVEN.items()}
    headers = {"authorization": f"Bearer {texts['admin']}"}
    with (
        RunningBroker(data) as broker,
        httpx.Client(base_url=broker.url, timeout=30, headers=headers) as http,
    ):
        for feed in ("shared", "vault"):
            body: dict[str, Any] = {"name": feed, "schema": {"price": "float"}}
            http.post("/feeds", json=body).raise_for_status()
        for subscriber, id, feed, filter in (*OWN, *OTHERS):
            body = {"feed": feed, "filter": filter}
            http.put(f"/subscribers/{subscriber}/subscriptions/{id}", json=body).raise_for_status()
        for feed in ("shared", "vault"):
            events = [{"price": 10.5}, {"price": 55.5}, {"price": 95.5}]
            http.post(f"/feeds/{feed}/events", json=events).raise_for_status()
        yield Locked(broker, texts)


def enter(dashboard: Dashboard, key: str) -> None:
    expect(dashboard.at("#key-form")).to_be_visible()
    dashboard.at("#key").fill(key)
    dashboard.press("Enter")


def opened(pages: Pages, locked: Locked, role: str) -> Dashboard:
    dashboard = pages.new(locked.url)
    dashboard.expect_failures("401")
    dashboard.record_bodies()
    dashboard.open()
    enter(dashboard, locked.keys[role])
    dashboard.is_said("live")
    return dashboard


def tabs(dashboard: Dashboard) -> list[str]:
    shown = dashboard.at("#tabs a:visible").all()
    return [str(one.get_attribute("data-section")) for one in shown]


def use_everything(dashboard: Dashboard, *, reads: bool = True) -> str:
    """Goes through all sections that there are, tries a filter, whose matches are counted for those
    who may read, and traces an event.

    Returns all that was to be seen meanwhile, or came over the network.
    """
    seen = []
    for section in tabs(dashboard):
        dashboard.at(f'#tabs a[data-section="{section}"]').click()
        expect(dashboard.at(f"#{section}")).to_be_visible()
        if section == "subscriptions":
            expect(dashboard.at("#subscriptions-count")).not_to_have_text("")
        if section == "playground":
            expect(dashboard.at("#filter-summary")).not_to_have_text("")  # an example was tried
            dashboard.at("#filter-text").fill("price > 0")
            summary = "Matches 3 of the last 3" if reads else "The filter is valid."
            expect(dashboard.at("#filter-summary")).to_contain_text(summary)
            expect(dashboard.at("#filter-boxes")).to_contain_text("price > 0")
        if section == "trace":
            expect(dashboard.at("#trace-summary")).to_contain_text("Not published.")
            dashboard.at("#trace-event").fill(EVENT)
            with dashboard.page.expect_response(lambda answer: answer.url.endswith("/trace")):
                dashboard.at("#trace-send").click()
            expect(dashboard.at("#trace-summary")).to_contain_text("Not published.")
        seen.append(dashboard.everything())
    return "\n".join([*seen, *dashboard.bodies])


def told(text: str) -> list[str]:
    return [one for one in SECRETS if one in text]


def test_a_subscriber_sees_nothing_of_others(pages: Pages, locked: Locked) -> None:
    dashboard = opened(pages, locked, "ann")
    assert tabs(dashboard) == list(SECTIONS)
    seen = use_everything(dashboard, reads=False)
    assert told(seen) == []
    assert any("/overview\n" in body for body in dashboard.bodies)
    for word in ("own-cheap", "20.125"):
        assert word in seen
    assert "55.5" not in seen  # what was published, which it may not read
    dashboard.press("1")
    expect(dashboard.at("#feeds-empty")).to_contain_text("This key may not see any feed")
    dashboard.press("2")
    expect(dashboard.at("#subscribers-table tbody tr")).to_have_count(1)
    dashboard.press("5")
    expect(dashboard.at("#trace-misses > li")).to_have_count(2)
    expect(dashboard.at("#trace-publish")).to_be_hidden()


@pytest.mark.parametrize("role", ["reader", "publisher"])
def test_who_reads_or_publishes_sees_its_feed(pages: Pages, locked: Locked, role: str) -> None:
    dashboard = opened(pages, locked, role)
    assert tabs(dashboard) == ["feeds", "playground", "trace"]
    expect(dashboard.at("[data-feed]")).to_have_count(1)
    seen = use_everything(dashboard, reads=role == "reader")
    assert told(seen) == []
    assert "own-cheap" not in seen
    assert "20.125" not in seen
    assert ("55.5" in seen) == (role == "reader")
    expect(dashboard.at("#trace-summary")).to_contain_text("1 of 3 subscriptions matches")
    expect(dashboard.at("#gets-hint")).to_contain_text("this key may not see which")
    assert dashboard.at("#trace-publish").is_visible() == (role == "publisher")
    expect(dashboard.at("#totals [data-total=backlog]")).to_have_count(0)


def test_two_roles_see_both(pages: Pages, locked: Locked) -> None:
    dashboard = opened(pages, locked, "ann-reads")
    expect(dashboard.at("[data-feed]")).to_have_count(1)
    seen = use_everything(dashboard)
    assert told(seen) == []
    assert "own-cheap" in seen
    assert "55.5" in seen


def test_an_admin_sees_all(pages: Pages, locked: Locked) -> None:
    dashboard = opened(pages, locked, "admin")
    expect(dashboard.at("[data-feed]")).to_have_count(2)
    seen = use_everything(dashboard)
    assert set(told(seen)) >= {"walrus", "heron", "vault", "31.0625"}
    dashboard.press("2")
    subscribers = dashboard.at("#subscribers-table tbody th")
    expect(subscribers).to_have_text(["ann", "heron", "walrus"])
    dashboard.press("3")
    dashboard.at("#subscriptions-feed").select_option("vault")
    expect(dashboard.at("#dead-table")).to_contain_text("price < -71.875")
    expect(dashboard.at("#busiest-table")).to_contain_text("price > 53.4375")


def test_a_key_is_asked_for_and_forgotten(pages: Pages, locked: Locked) -> None:
    dashboard = pages.new(locked.url)
    dashboard.expect_failures("401")
    dashboard.open("trace")
    dashboard.is_said("key needed")
    expect(dashboard.at("#key")).to_be_focused()
    for section in SECTIONS:
        expect(dashboard.at(f"#{section}")).to_be_hidden()
    enter(dashboard, "bm_wrongkey_" + "x" * 43)
    expect(dashboard.at("#key-error")).to_contain_text("Key not accepted")
    expect(dashboard.at("#key")).to_have_value("")
    key = locked.keys["admin"]
    enter(dashboard, f"  {key} ")
    dashboard.is_said("live")
    expect(dashboard.at("#trace")).to_be_visible()
    expect(dashboard.at("#key-form")).to_be_hidden()
    assert key not in dashboard.everything()
    assert not any(key in url for url in dashboard.requests)

    dashboard.page.reload()
    dashboard.is_said("live")
    other = dashboard.context.new_page()  # another tab has to ask again
    other.goto(dashboard.url)
    expect(other.locator("#key-form")).to_be_visible()
    other.close()

    dashboard.at("#forget-key").click()
    dashboard.is_said("key needed")
    expect(dashboard.at("#forget-key")).to_be_hidden()
    stored = dashboard.page.evaluate("JSON.stringify([{...sessionStorage}, {...localStorage}])")
    assert key not in stored
    enter(dashboard, locked.keys["reader"])
    dashboard.is_said("live")
    assert told(dashboard.everything()) == []
