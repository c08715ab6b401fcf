"""The page itself: pausing, themes, the keyboard, narrow screens, a broker that goes away."""

from __future__ import annotations

import re
from pathlib import Path

import httpx
import pytest
from broker_server import RunningBroker  # in ../broker
from dashboard_page import POSITIVE, SECTIONS, Dashboard, Pages
from event_load import Load
from playwright.sync_api import expect


@pytest.fixture(scope="module", autouse=True)
def used(broker: RunningBroker) -> None:
    """A feed and a subscription, with names as long as they may be."""
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        for feed in ("used", "w" * 128):
            body = {"name": feed, "schema": {"price": "float", "symbol": "string"}}
            http.post("/feeds", json=body).raise_for_status()
            for subscriber in ("used-one", "o" * 128):
                filter = f"price > 1 AND symbol <> '{'s' * 200}'"
                path = f"/subscribers/{subscriber}/subscriptions/{'i' * 100}-{feed[:9]}"
                http.put(path, json={"feed": feed, "filter": filter}).raise_for_status()
            event = {"price": 2.5, "symbol": "t" * 300}
            http.post(f"/feeds/{feed}/events", json=event).raise_for_status()


@pytest.fixture
def dashboard(broker: RunningBroker, pages: Pages) -> Dashboard:
    return pages.new(broker.url).unfold().open_live("feeds")


def theme(dashboard: Dashboard) -> str:
    ground = dashboard.at("html").evaluate("node => getComputedStyle(node).backgroundColor")
    red = int(re.findall(r"\d+", ground)[0])
    return "dark" if red < 100 else "light"


def test_pause_stops_requests_and_changes(
    dashboard: Dashboard, broker: RunningBroker, pages: Pages
) -> None:
    other = pages.new(broker.url)
    with Load(broker.url, "used", [{"price": 0.5}]):
        expect(dashboard.value("used", "received")).to_have_attribute("data-number", POSITIVE)
        dashboard.at("#pause").click()
        dashboard.is_said("paused")
        expect(dashboard.at("#pause")).to_have_attribute("aria-pressed", "true")
        other.open_live("feeds")  # meanwhile, what had been asked for is answered
        asked, shown = len(dashboard.requests), dashboard.at("main").inner_text()
        overviews = []
        other.page.on(
            "response", lambda one: overviews.append(one) if one.url.endswith("/overview") else None
        )
        other.until(lambda: len(overviews) >= 3, "a page that is not paused goes on")
        assert len(dashboard.requests) == asked
        assert dashboard.at("main").inner_text() == shown
        dashboard.press("p")
        dashboard.is_said("live")
        expect(dashboard.at("#pause")).to_have_attribute("aria-pressed", "false")
        dashboard.until(lambda: len(dashboard.requests) > asked + 1, "it goes on")


def test_light_and_dark(dashboard: Dashboard, broker: RunningBroker, pages: Pages) -> None:
    assert theme(dashboard) == "light"
    dashboard.at("#theme").click()
    assert theme(dashboard) == "dark"
    dashboard.page.reload()
    dashboard.is_said("live")
    assert theme(dashboard) == "dark"
    expect(dashboard.at("#theme")).to_have_text("Light")
    dashboard.press("t")
    assert theme(dashboard) == "light"

    dark = pages.new(broker.url, color_scheme="dark").open_live("feeds")
    assert theme(dark) == "dark"
    dark.page.emulate_media(color_scheme="light")
    assert theme(dark) == "light"


def test_with_the_keyboard_alone(dashboard: Dashboard) -> None:
    dashboard.page.reload()
    dashboard.is_said("live")
    dashboard.press("Tab")
    expect(dashboard.at(".skip")).to_be_focused()
    expect(dashboard.at(".skip")).to_be_in_viewport()
    dashboard.press("Enter")
    expect(dashboard.at("#main")).to_be_focused()
    expect(dashboard.at("#feeds")).to_be_visible()
    dashboard.press("Tab")
    expect(dashboard.at("#feeds-search")).to_be_focused()
    dashboard.press("5")  # typed, not obeyed
    expect(dashboard.at("#feeds-search")).to_have_value("5")
    expect(dashboard.at("#feeds")).to_be_visible()
    dashboard.press("Backspace", "Escape")

    for number, section in enumerate(SECTIONS, 1):
        dashboard.press(str(number))
        expect(dashboard.at(f"#{section}")).to_be_visible()
        expect(dashboard.at(f"#{section}-title")).to_be_focused()
        expect(dashboard.at("#tabs [aria-current=page]")).to_have_attribute("data-section", section)
        expect(dashboard.at("main > section:visible")).to_have_count(1)
    dashboard.press("/")
    expect(dashboard.at("#trace-event")).to_be_focused()
    dashboard.press("Escape")
    dashboard.page.go_back()
    expect(dashboard.at("#playground")).to_be_visible()

    dashboard.press("?")
    expect(dashboard.at("#help")).to_be_visible()
    dashboard.press("1")
    expect(dashboard.at("#playground")).to_be_visible()
    dashboard.press("Escape")
    expect(dashboard.at("#help")).to_be_hidden()

    dashboard.press("1", "j")
    first = dashboard.at(".feed-toggle").first
    expect(first).to_be_focused()
    was = first.get_attribute("aria-expanded")
    dashboard.press("Enter")
    expect(first).not_to_have_attribute("aria-expanded", str(was))
    dashboard.press("j")
    expect(dashboard.at(".feed-toggle").nth(1)).to_be_focused()
    dashboard.press("k")
    expect(first).to_be_focused()


def test_shortcuts_can_be_switched_off(dashboard: Dashboard) -> None:
    dashboard.at("#open-help").click()
    dashboard.at("#single-keys").uncheck()
    dashboard.at("#help button").click()
    dashboard.press("3", "p", "?")
    expect(dashboard.at("#feeds")).to_be_visible()
    expect(dashboard.at("#help")).to_be_hidden()
    dashboard.is_said("live")


def test_on_a_phone_nothing_scrolls_sideways(broker: RunningBroker, pages: Pages) -> None:
    phone = pages.new(
        broker.url, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True
    )
    phone.expect_failures("422")
    phone.open_live("feeds")
    for section in SECTIONS:
        phone.at(f'#tabs a[data-section="{section}"]').click()
        expect(phone.at(f"#{section}")).to_be_visible()
        if section == "subscriptions":
            phone.at("#subscriptions-feed").select_option("w" * 128)
            expect(phone.at("#busiest-table tbody tr")).to_have_count(2)
        if section == "playground":
            phone.at("#filter-feed").select_option("w" * 128)
            expect(phone.at("#filter-recent > li")).to_have_count(1)
            phone.at("#filter-text").fill(f"price > 1 AND {'x' * 120} < 2")
            expect(phone.at("#filter-error mark")).to_be_visible()
        if section == "trace":
            phone.at("#trace-feed").select_option("w" * 128)
            expect(phone.at("#trace-misses > li, #trace-gets > li")).to_have_count(2)
            phone.at("#trace-event").fill('{"price": 0}')
            phone.at("#trace-send").click()
            expect(phone.at("#trace-misses > li")).to_have_count(2)
        wide = phone.page.evaluate(
            """() => [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
              && one.getBoundingClientRect().right > innerWidth + 0.5
              && !one.closest(".unseen, .skip, pre, .tabs"))
              .map((one) => one.outerHTML.slice(0, 100))"""
        )
        widths = phone.page.evaluate(
            "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        )
        assert widths[0] <= widths[1], (section, widths, wide[:5])
        assert phone.page.evaluate("innerWidth") == 360


def test_a_broker_that_goes_and_comes_back(pages: Pages, tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        with httpx.Client(base_url=broker.url, timeout=30) as http:
            body = {"name": "kept", "schema": {"price": "float"}}
            http.post("/feeds", json=body).raise_for_status()
        dashboard = pages.new(broker.url)
        dashboard.expect_failures("ERR_", "503")
        dashboard.open_live("feeds")
        expect(dashboard.at("#trouble")).to_be_hidden()
        broker.options = ["--port", str(broker.port)]
        broker.stop()
        dashboard.is_said("no connection")
        expect(dashboard.at("#trouble")).to_contain_text("The broker does not respond")
        expect(dashboard.feed("kept")).to_be_visible()
        broker.start()
        dashboard.is_said("live")
        expect(dashboard.at("#trouble")).to_be_hidden()
        expect(dashboard.value("kept", "received")).to_have_attribute("data-number", "0")


def test_scripts_from_elsewhere_do_not_run(dashboard: Dashboard) -> None:
    dashboard.page.evaluate(
        """() => {
          const script = document.createElement("script");
          script.textContent = "window.hasRun = true";
          document.body.append(script);
        }"""
    )
    assert not dashboard.page.evaluate("window.hasRun")
    dashboard.until(lambda: dashboard.complaints, "the browser complains, and it is noticed")
    assert "Content Security Policy" in dashboard.complaints.pop()


def test_the_description_of_the_routes(broker: RunningBroker, pages: Pages) -> None:
    page = pages.new(broker.url).open(path="/docs")
    expect(page.at(".opblock-summary").first).to_be_visible()
    page.at("#operations-overview-overview_overview_get .opblock-summary").click()
    expect(page.at("#operations-overview-overview_overview_get .responses-inner")).to_be_visible()
