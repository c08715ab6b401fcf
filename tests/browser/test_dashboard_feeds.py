"""What a feed does is seen while it does it: charts, numbers, precision."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from broker_server import RunningBroker  # in ../broker
from dashboard_page import POSITIVE, Dashboard, Pages
from event_load import Load
from playwright.sync_api import expect

from boxmatch.workloads import RangeWorkload


def test_retention_and_replays_are_shown(
    broker: RunningBroker, http: httpx.Client, pages: Pages
) -> None:
    feed = {"name": "kept", "schema": {"price": "float"}, "retention": {"days": 2, "events": 5000}}
    http.post("/feeds", json=feed).raise_for_status()
    subscribe(http, "again", "kept", all="price >= 0")
    first = http.post("/feeds/kept/events", json=EVENTS).json()["first"]
    http.post("/subscribers/again/replay", json={"from": first}).raise_for_status()
    dashboard = pages.new(broker.url).unfold().open_live("feeds")
    card = dashboard.feed("kept")
    if card.locator(".feed-toggle").get_attribute("aria-expanded") == "false":
        card.locator(".feed-toggle").click()
    expect(card.locator(".facts")).to_contain_text("2 days, 5,000 events; removed: none")
    dashboard.open_live("subscribers")
    row = dashboard.page.locator("#subscribers-table tbody tr", has_text="again")
    expect(row).to_contain_text("0 %")
    read = http.get("/subscribers/again/notifications?limit=25").json()["next"]
    http.post("/subscribers/again/acknowledge", json={"sequence": read}).raise_for_status()
    expect(row).to_contain_text("50 %")
    http.delete("/subscribers/again/replay").raise_for_status()
    expect(row).not_to_contain_text("%")


# What reaches highest in a chart: arrivals, the 99th percentile.
HIGHEST = {"rates": "--accent", "latency": "--ink"}
EVENTS = [{"price": float(price)} for price in range(50)]

# Pixels of a colour in the upper half of a chart: a line at 0 has none there.
PEAK = """(canvas, colour) => {
  const copy = document.createElement("canvas");
  copy.width = canvas.width;
  copy.height = canvas.height;
  const drawn = copy.getContext("2d", { willReadFrequently: true });
  drawn.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(colour);
  drawn.fillRect(0, 0, 1, 1);
  const wanted = drawn.getImageData(0, 0, 1, 1).data;
  drawn.clearRect(0, 0, 1, 1);
  drawn.drawImage(canvas, 0, 0);
  const { data } = drawn.getImageData(0, 0, canvas.width, Math.floor(canvas.height / 2));
  let found = 0;
  for (let at = 0; at < data.length; at += 4) {
    const away = [0, 1, 2].reduce((sum, part) => sum + Math.abs(data[at + part] - wanted[part]), 0);
    if (data[at + 3] > 100 && away < 30) found++;
  }
  return found;
}"""


def peak(dashboard: Dashboard, feed: str, chart: str) -> int:
    canvas = dashboard.feed(feed).locator(f'[data-chart="{chart}"] canvas')
    return int(canvas.evaluate(PEAK, HIGHEST[chart]))


def subscribe(http: httpx.Client, subscriber: str, feed: str, **filters: Any) -> None:
    body = {"feed": feed, "filters": filters}
    http.post(f"/subscribers/{subscriber}/subscriptions", json=body).raise_for_status()


def test_charts_move_under_load_and_remember_it(
    broker: RunningBroker, http: httpx.Client, pages: Pages
) -> None:
    feed = {"name": "load", "schema": {"price": "float"}}
    http.post("/feeds", json=feed).raise_for_status()
    subscribe(http, "load-taker", "load", all="price >= 0", some="price < 10")
    dashboard = pages.new(broker.url).unfold().open_live("feeds")
    card = dashboard.feed("load")
    if card.locator(".feed-toggle").get_attribute("aria-expanded") == "false":
        card.locator(".feed-toggle").click()
    for chart in ("rates", "latency", "queue", "precision"):
        expect(card.locator(f'[data-chart="{chart}"] canvas')).to_be_visible()
    expect(dashboard.value("load", "received")).to_have_attribute("data-number", "0")
    expect(dashboard.value("load", "subscriptions")).to_have_attribute("data-number", "2")
    expect(dashboard.value("load", "p50")).to_have_text("–")
    assert peak(dashboard, "load", "rates") == peak(dashboard, "load", "latency") == 0

    with Load(broker.url, "load", EVENTS, "load-taker"):
        for key in ("received", "matched", "delivered", "p50", "p99"):
            expect(dashboard.value("load", key)).to_have_attribute("data-number", POSITIVE)
        for chart in HIGHEST:
            dashboard.until(lambda one=chart: peak(dashboard, "load", one) > 0, f"{chart} move")
        assert dashboard.number("load", "p50") <= dashboard.number("load", "p99")
        expect(card).to_have_attribute("data-state", "exact")
        expect(dashboard.value("load", "rate")).to_have_attribute("data-number", "0")

    dashboard.page.reload()  # nothing arrives any more, so what is drawn was kept
    dashboard.is_said("live")
    expect(card.locator('[data-chart="rates"] canvas')).to_be_visible()
    dashboard.until(lambda: peak(dashboard, "load", "rates") > 0, "history is drawn")


def test_a_feed_that_gives_up_precision_says_so(
    broker: RunningBroker, http: httpx.Client, pages: Pages
) -> None:
    workload = RangeWorkload(
        subscriptions=1_000, attributes=60, predicates=4, event_size=60, width=0.7,
        attribute_choice="zipf", attribute_alpha=2.0,
    )  # fmt: skip
    maximum = 0.1
    feed: dict[str, Any] = {
        "name": "hasty",
        "schema": dict.fromkeys(workload.schema.names, "int"),
        "index": "rein",
        # Every wait is too long, so that any load will do.
        "adaptive": {"threshold": 1e-6, "step": 0.02, "maximum": maximum},
    }
    http.post("/feeds", json=feed).raise_for_status()
    filters = {
        str(number): {name: {"low": low, "high": high} for name, (low, high) in one.items()}
        for number, one in enumerate(workload.filters(0, workload.subscriptions))
    }
    subscribe(http, "hasty-one", "hasty", **filters)
    rows = [
        dict(zip(workload.schema.names, row, strict=True))
        for row in np.asarray(workload.events(0, 40)).astype(int).tolist()
    ]
    dashboard = pages.new(broker.url).unfold().open_live("feeds")
    card = dashboard.feed("hasty")
    badge = card.locator(".badge")
    expect(card).to_have_attribute("data-state", "exact")
    expect(badge).to_have_text("exact")
    expect(card.locator(".badge-more")).to_have_text("adaptive, up to 10 %")
    expect(dashboard.value("hasty", "precision")).to_have_text("–")

    with Load(broker.url, "hasty", rows):
        expect(card).to_have_attribute("data-state", "approximate")
        expect(badge).to_have_text("approximate, up to 10 %")
        expect(dashboard.value("hasty", "rate")).to_have_attribute("data-number", POSITIVE)
        assert dashboard.number("hasty", "rate") <= maximum
        expect(dashboard.at("#feeds-count")).to_contain_text("approximate")
        # New subscriptions are checked in full, until they have their place in the index.
        precision = dashboard.value("hasty", "precision")
        expect(precision).to_have_attribute("data-number", re.compile(r"^0\.9"))
        expect(precision).to_have_text(re.compile(r"^9\d\.\d"))
        assert 1 - maximum <= dashboard.number("hasty", "precision") < 1

    expect(card).to_have_attribute("data-state", "exact")
    expect(badge).to_have_text("exact")
    expect(dashboard.value("hasty", "rate")).to_have_attribute("data-number", "0")
    told = http.get("/feeds/hasty").json()
    measured = 1 - told["sampled_false"] / told["sampled_matches"]
    dashboard.until(
        lambda: abs(dashboard.number("hasty", "precision") - measured) < 1e-9,
        "the same as measured",
    )


def test_feeds_by_load_and_the_idle_ones_folded(pages: Pages, tmp_path: Path) -> None:
    names = ["a-idle", "b-slow", "c-idle", "d-idle", "e-fast"]
    with (
        RunningBroker(tmp_path / "data") as broker,
        httpx.Client(base_url=broker.url, timeout=30) as http,
    ):
        for name in names:
            body = {"name": name, "schema": {"price": "float"}}
            http.post("/feeds", json=body).raise_for_status()
        with Load(broker.url, "e-fast", EVENTS), Load(broker.url, "b-slow", EVENTS[:2]):
            # Before any feed is seen to be busy, the page opens charts of others, which stay.
            wait_for_samples(http, ["b-slow", "e-fast"])
            dashboard = pages.new(broker.url).open_live("feeds")
            dashboard.until(
                lambda: shown(dashboard) == ["e-fast", "b-slow"], "by load, not by name"
            )
            fold = dashboard.at(".fold")
            expect(fold).to_have_text("3 idle feeds")
            fold.press("Enter")
            everything = ["e-fast", "b-slow", "a-idle", "c-idle", "d-idle"]
            assert shown(dashboard) == everything
            expect(fold).to_have_attribute("aria-expanded", "true")
            dashboard.page.reload()
            dashboard.until(lambda: shown(dashboard) == everything, "unfolding is remembered")
            fold.press("Enter")
            fold.blur()
            assert shown(dashboard) == ["e-fast", "b-slow"]

            dashboard.at("#feeds-search").fill("c-")
            assert shown(dashboard) == ["c-idle"]  # what is searched for is not folded
            dashboard.at("#feeds-search").fill("")
            with Load(broker.url, "d-idle", EVENTS[:1]):
                expect(dashboard.feed("d-idle")).to_be_visible()
                expect(fold).to_have_text("2 idle feeds")


def wait_for_samples(http: httpx.Client, feeds: Sequence[str]) -> None:
    """Return when the broker's history shows that events came to all of these feeds."""
    for _ in range(300):
        samples = http.get("/overview/history").raise_for_status().json()["samples"]
        seen = {(one["name"], one["received"]) for sample in samples for one in sample["feeds"]}
        if all(sum(name == feed and count > 0 for name, count in seen) > 1 for feed in feeds):
            return
        time.sleep(0.1)
    raise AssertionError(f"no events in the history of {feeds}")


def shown(dashboard: Dashboard) -> list[str]:
    return [str(one.get_attribute("data-feed")) for one in dashboard.at("[data-feed]").all()]
