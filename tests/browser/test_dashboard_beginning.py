"""No section opens on emptiness: something is chosen already, or a command makes something."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
from broker_server import RunningBroker  # in ../broker
from dashboard_page import Pages
from playwright.sync_api import expect

EVENT = {"price": 2.5}


def test_sections_open_with_something_chosen(pages: Pages, tmp_path: Path) -> None:
    with (
        RunningBroker(tmp_path / "data") as broker,
        httpx.Client(base_url=broker.url, timeout=30) as http,
    ):
        for feed in ("a-empty", "busy", "watched"):
            body = {"name": feed, "schema": {"price": "float"}}
            http.post("/feeds", json=body).raise_for_status()
        for feed in ("busy", "watched"):
            events = [{"price": 1.5}] * (20 if feed == "busy" else 1)
            http.post(f"/feeds/{feed}/events", json=[*events, EVENT]).raise_for_status()
        body = {"feed": "watched", "filter": "price > 2"}
        http.put("/subscribers/ann/subscriptions/dear", json=body).raise_for_status()

        dashboard = pages.new(broker.url).open_live("trace")
        expect(dashboard.at("#trace-feed")).to_have_value("busy")
        expect(dashboard.at("#trace-event")).to_have_value(json.dumps(EVENT, indent=2))
        expect(dashboard.at("#trace-summary")).to_contain_text("There are no subscriptions yet.")
        expect(dashboard.at("#trace-none pre")).to_contain_text('"filter":"price >= 0"')
        dashboard.at("#trace-feed").select_option("watched")
        expect(dashboard.at("#trace-misses > li, #trace-gets > li")).to_have_count(1)
        expect(dashboard.at("#trace-none")).to_be_hidden()
        dashboard.at("#trace-feed").select_option("a-empty")
        expect(dashboard.at("#trace-made-up")).to_contain_text("The feed has no events yet")
        dashboard.at("#tabs a[data-section=playground]").click()
        expect(dashboard.at("#filter-feed")).to_have_value("busy")
        expect(dashboard.at("#filter-recent > li")).to_have_count(21)
        expect(dashboard.at("#playground-none")).to_be_hidden()
        dashboard.at("#filter-feed").select_option("a-empty")
        expect(dashboard.at("#playground-none pre")).to_contain_text("/feeds/a-empty/events")
        dashboard.at("#tabs a[data-section=subscriptions]").click()
        expect(dashboard.at("#subscriptions-feed")).to_have_value("watched")
        expect(dashboard.at("#dead-table tbody tr").first).to_contain_text("ann")


def test_without_feeds_each_section_has_the_command(pages: Pages, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        dashboard = pages.new(broker.url).open_live("feeds")
        for section in ("feeds", "subscriptions", "playground", "trace"):
            dashboard.at(f"#tabs a[data-section={section}]").click()
            command = dashboard.at(f"#{section}-empty pre")
            expect(command).to_contain_text(f"curl {broker.url}/feeds --json")
            expect(dashboard.at(f"#{section}-empty p")).to_have_count(1)
