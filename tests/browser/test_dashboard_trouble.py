"""What is wrong comes first, worst first; and what is not wrong is not said to be."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from broker_server import RunningBroker  # in ../broker
from dashboard_page import Dashboard, Pages
from playwright.sync_api import Locator, Route, expect

Change = Callable[[dict[str, Any]], None]
WORST_FIRST = [
    "failure", "disk", "dropped", "behind", "letters", "webhook", "overload", "waiting",
]  # fmt: skip


def subscriber(name: str, **wrong: Any) -> dict[str, Any]:
    return {
        "subscriber": name, "backlog": 0, "falls_behind": False, "sessions": 0, "delivered": 0,
        "dropped": 0, "subscriptions": 1, "webhook": None, "dead_letters": 0, "last_error": None,
        "mode": "cursor", "in_flight": 0, "redelivered": 0, "replayed": None, **wrong,
    }  # fmt: skip


class Overview:
    """What the broker tells the page, with changes; a broker of which nothing is wrong."""

    def __init__(self, dashboard: Dashboard) -> None:
        self.change: Change = lambda told: None
        self.looks = 0
        dashboard.page.route("**/overview", self._answer)

    def _answer(self, route: Route) -> None:
        answer = route.fetch()
        told = answer.json()
        told["subscribers"] = []
        told["broker"] |= {"failure": None, "lacking_bytes": 0, "dropped": 0, "refused": {}}
        for feed in told["feeds"]:
            feed["waiting"] = 0
        self.change(told)
        self.looks += 1
        route.fulfill(response=answer, body=json.dumps(told))


def lines(dashboard: Dashboard) -> Locator:
    return dashboard.at("#wrong > li")


def test_worst_first_with_what_to_do(
    broker: RunningBroker, http: httpx.Client, pages: Pages
) -> None:
    body = {"name": "troubled", "schema": {"price": "float"}}
    http.post("/feeds", json=body).raise_for_status()
    dashboard = pages.new(broker.url)
    overview = Overview(dashboard)
    dashboard.open_live("feeds")
    expect(lines(dashboard)).to_have_text(["Nothing is wrong."])

    def everything(told: dict[str, Any]) -> None:
        whole = told["broker"]
        whole |= {"failure": "disk full", "lacking_bytes": 3_000_000}
        whole |= {"dropped": overview.looks, "refused": {"overload": overview.looks, "rate": 9}}
        told["subscribers"] = [
            subscriber("ann", last_error="answered 500", webhook="active"),
            subscriber("bob", dead_letters=2),
            *(subscriber(f"late-{one}", falls_behind=True, backlog=7) for one in range(5)),
        ]
        for feed in told["feeds"]:
            if feed["name"] == "troubled":
                feed["waiting"] = 4

    overview.change = everything
    expect(lines(dashboard)).to_have_count(len(WORST_FIRST))
    found = lines(dashboard).evaluate_all("all => all.map((one) => one.dataset.wrong)")
    assert found == WORST_FIRST
    for kind, text in (
        ("failure", "Nothing can be stored: disk full."),
        ("disk", "it lacks 3 MB"),
        ("behind", "late-0, late-1, late-2 and 2 more, with 35 waiting"),
        ("letters", "2 dead letters: bob"),
        ("webhook", "ann. answered 500."),
        ("waiting", "Events wait: troubled."),
    ):
        expect(dashboard.at(f'[data-wrong="{kind}"]')).to_contain_text(text)
    first = dashboard.at("#feeds > :not(.section-head)").first
    expect(first).to_have_id("wrong")
    dashboard.at('[data-wrong="letters"] a').click()
    expect(dashboard.at("#subscribers")).to_be_visible()
    dashboard.press("1")

    overview.change = lambda told: None
    expect(lines(dashboard)).to_have_count(2)  # what was lost and refused is told for a while
    expect(dashboard.at('[data-wrong="overload"]')).to_be_visible()


def test_sizes_alone_are_no_trouble(
    broker: RunningBroker, http: httpx.Client, pages: Pages
) -> None:
    body = {"name": "untroubled", "schema": {"price": "float"}}
    http.post("/feeds", json=body).raise_for_status()
    dashboard = pages.new(broker.url)
    overview = Overview(dashboard)

    def large(told: dict[str, Any]) -> None:
        """Much waits, was lost, and was refused; none of it now, or for long."""
        told["broker"] |= {"dropped": 70, "refused": {"overload": 8}}
        told["subscribers"] = [subscriber("away", backlog=5_000_000)]
        for feed in told["feeds"]:
            feed["waiting"] = 1_000 * (overview.looks % 3)

    overview.change = large
    dashboard.open_live("feeds")
    dashboard.until(lambda: overview.looks > 12, "it has looked often enough")
    expect(lines(dashboard)).to_have_text(["Nothing is wrong."])


def test_dead_letters_and_a_failing_webhook_are_seen(pages: Pages, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data", ["--allow-private-webhooks"]) as broker:
        with httpx.Client(base_url=broker.url, timeout=30) as http:
            body = {"name": "posted", "schema": {"price": "float"}}
            http.post("/feeds", json=body).raise_for_status()
            path = "/subscribers/nobody-there"
            body = {"feed": "posted", "filter": "price > 0"}
            http.put(f"{path}/subscriptions/all", json=body).raise_for_status()
            hook = {"url": "http://127.0.0.1:9/", "attempts": 1}
            http.put(f"{path}/webhook", json=hook).raise_for_status()
            http.post("/feeds/posted/events", json={"price": 1.5}).raise_for_status()
        dashboard = pages.new(broker.url).open_live("feeds")
        expect(dashboard.at('[data-wrong="letters"]')).to_contain_text(
            "1 dead letter: nobody-there"
        )
        expect(dashboard.at('[data-wrong="webhook"]')).to_contain_text("nobody-there. ConnectError")
