"""A filter is tried: what is wrong is marked where it is, what is right shows what it matches."""

from __future__ import annotations

import httpx
import pytest
from broker_server import RunningBroker  # in ../broker
from dashboard_page import Dashboard, Pages
from playwright.sync_api import Route, expect

SCHEMA = {"symbol": "string", "price": "float", "volume": "int"}
EVENTS = [
    {"symbol": "IBM", "price": 25.0, "volume": 10},
    {"symbol": "SAP", "price": 95.0, "volume": 20},
    {"symbol": "IBM", "price": 40.0},
]
ROCKETS = "🚀" * 3
# A filter, the part that is wrong, and what is said of it.
WRONG = [
    ("prize < 30", "prize", "There is no attribute 'prize'; did you mean 'price'?"),
    ("volume > 10\n  AND price < 5\n  AND prize < 30", "prize", "did you mean 'price'?"),
    (f"symbol = '{ROCKETS}' AND prize < 30", "prize", "did you mean 'price'?"),
    (f"symbol = '{ROCKETS}'\nOR symbol = 'ä👩‍👩‍👧'\nOR prize < 30", "prize", "'price'?"),
    ('{"symbol": "🚀", "price": {"low" 20}}', "20", "Invalid JSON from here on."),
]


@pytest.fixture(scope="module", autouse=True)
def tried(broker: RunningBroker) -> None:
    """The feed that filters are tried on."""
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        http.post("/feeds", json={"name": "tried", "schema": SCHEMA}).raise_for_status()
        http.post("/feeds/tried/events", json=EVENTS).raise_for_status()


@pytest.fixture
def dashboard(broker: RunningBroker, pages: Pages) -> Dashboard:
    dashboard = pages.new(broker.url)
    dashboard.expect_failures("422")
    dashboard.open_live("playground")
    dashboard.at("#filter-feed").select_option("tried")
    expect(dashboard.at("#filter-text")).not_to_have_value("")
    expect(dashboard.at("#filter-recent > li")).to_have_count(len(EVENTS))
    return dashboard


def test_what_is_wrong_is_marked_at_its_place(dashboard: Dashboard) -> None:
    for text, wrong, message in WRONG:
        dashboard.at("#filter-text").fill(text)
        is_marked(dashboard, text, wrong, message)
        dashboard.at("#filter-text").fill("price < 30")
        is_mended(dashboard)


def is_marked(dashboard: Dashboard, text: str, wrong: str, message: str) -> None:
    error, area = dashboard.at("#filter-error"), dashboard.at("#filter-text")
    expect(error).to_contain_text(message)
    expect(error).to_have_attribute("role", "alert")
    expect(area).to_have_attribute("aria-invalid", "true")
    before = text[: text.rindex(wrong)]
    line = text.splitlines()[before.count("\n")]
    expect(error.locator("mark")).to_have_text(wrong)
    assert error.locator("pre").text_content() == line
    # Below the text field is the same text, with a mark: at the same place, if all is the same.
    underlay = dashboard.at("#filter-editor .underlay")
    expect(underlay.locator("mark")).to_have_text(wrong)
    assert underlay.text_content() == text
    assert underlay.evaluate("node => node.firstChild.data ?? ''") == before
    places = dashboard.at("#filter-editor").evaluate(
        """editor => [...editor.children].map((one) => {
          const style = getComputedStyle(one);
          const { x, y } = one.getBoundingClientRect();
          return JSON.stringify([x, y, one.clientWidth, one.scrollTop, ...["font", "lineHeight",
            "letterSpacing", "whiteSpace", "overflowWrap", "padding", "borderWidth", "tabSize"]
            .map((name) => style[name])]);
        })"""
    )
    assert len(set(places)) == 1, places
    expect(dashboard.at("#filter-boxes > li")).to_have_count(0)
    expect(dashboard.at("#filter-recent > li")).to_have_count(0)


def is_mended(dashboard: Dashboard) -> None:
    expect(dashboard.at("#filter-error")).to_be_hidden()
    expect(dashboard.at("#filter-editor mark")).to_have_count(0)
    expect(dashboard.at("#filter-text")).not_to_have_attribute("aria-invalid", "true")
    expect(dashboard.at("#filter-boxes > li")).to_have_text(["price < 30"])


def test_what_is_missing_is_marked_where_it_should_be(dashboard: Dashboard) -> None:
    text = '{"price": {"low": 20}'
    dashboard.at("#filter-text").fill(text)
    expect(dashboard.at("#filter-error")).to_contain_text("The JSON is incomplete.")
    expect(dashboard.at("#filter-error mark.missing")).to_be_visible()
    assert dashboard.at("#filter-editor .underlay").text_content() == f"{text}\N{NO-BREAK SPACE}"


def test_errors_come_while_one_types(dashboard: Dashboard) -> None:
    area, error = dashboard.at("#filter-text"), dashboard.at("#filter-error")
    area.fill("")
    expect(dashboard.at("#filter-summary")).to_contain_text("Type a filter")
    area.press_sequentially("volum < 9")
    expect(error.locator("mark")).to_have_text("volum")
    for _ in range(4):
        area.press("ArrowLeft")
    area.press_sequentially("e")
    expect(error).to_be_hidden()
    expect(area).to_have_value("volume < 9")
    expect(dashboard.at("#filter-boxes > li")).to_have_text(["volume <= 8"])


def test_boxes_and_recent_events_with_the_reason(dashboard: Dashboard) -> None:
    dashboard.at("#filter-text").fill("symbol = 'IBM' AND price < 30 OR symbol = 'SAP'")
    boxes = dashboard.at("#filter-boxes > li")
    expect(boxes).to_have_count(2)
    assert {tuple(box.locator("code").all_inner_texts()) for box in boxes.all()} == {
        ("symbol = 'SAP'",),
        ("symbol = 'IBM'", "price < 30"),
    }
    expect(dashboard.at("#filter-summary")).to_contain_text("Matches 2 of the last 3 events")
    recent = dashboard.at("#filter-recent > li")
    judged = [one.get_attribute("data-matches") for one in recent.all()]
    assert judged == ["false", "true", "true"]  # newest first
    expect(recent.nth(0).locator(".event-line")).to_have_text("symbol 'IBM', price 40")
    unmet = recent.nth(0).locator('.predicates li[data-satisfied="false"]')
    expect(unmet.filter(has_text="price < 30").locator(".got")).to_have_text("got 40")
    met = recent.nth(2).locator('.predicates li[data-satisfied="true"]')
    expect(met.filter(has_text="symbol = 'IBM'").locator(".got")).to_have_text("got 'IBM'")

    dashboard.at("#only-matching").check()
    expect(recent).to_have_count(2)
    dashboard.at("#filter-text").fill("price > 1000")
    expect(dashboard.at("#recent-empty")).to_have_text("None of the last 3 events matches.")
    dashboard.at("#filter-text").fill("price > 10 AND price < 5")
    expect(boxes).to_have_text(["No boxes: the filter never matches."])


def test_expressions_residuals_and_the_warning(
    broker: RunningBroker, pages: Pages, http: httpx.Client
) -> None:
    schema = {
        "title": "string",
        "price": "float",
        "volume": "int",
        "tags": "list of string",
        "items": {"type": "list of struct", "fields": {"price": "float"}},
        "order": {"type": "struct", "fields": {"tier": "string"}},
    }
    http.post("/feeds", json={"name": "any-where", "schema": schema}).raise_for_status()
    event = {"title": "crude oil", "price": 20.0, "volume": 10, "order": {"tier": "gold"}}
    http.post("/feeds/any-where/events", json=event).raise_for_status()
    dashboard = pages.new(broker.url)
    dashboard.open_live("playground")
    dashboard.at("#filter-feed").select_option("any-where")
    expect(dashboard.at("#filter-recent > li")).to_have_count(1)
    warning, residual = dashboard.at("#filter-warning"), dashboard.at("#filter-residual > li")

    dashboard.at("#filter-text").fill(
        "length(title) > 3 AND order.tier = 'gold' AND title NOT LIKE '%oil%'"
    )
    expect(residual).to_have_text(["NOT CONTAINS(title, 'oil')"])
    expect(dashboard.at("#filter-boxes .axis")).to_have_text(["LENGTH(title) >= 4"])
    expect(dashboard.at("#filter-boxes code:not(.axis)")).to_have_text(["order.tier = 'gold'"])
    expect(dashboard.at("#boxes-axis")).to_be_visible()
    expect(warning).to_be_hidden()
    predicates = dashboard.at("#filter-recent .predicates li")
    expect(predicates.filter(has_text="LENGTH").locator(".got")).to_have_text("got 9")
    unmet = predicates.filter(has=dashboard.page.locator(".tag", has_text="residual"))
    expect(unmet).to_have_attribute("data-satisfied", "false")
    expect(unmet.locator(".got")).to_have_text("is false")

    dashboard.at("#filter-examples .chip").filter(has_text="EXISTS").click()
    expect(dashboard.at("#filter-text")).to_have_value("EXISTS(items, i -> i.price > 10)")
    expect(warning).to_contain_text(
        "every event is checked with EXISTS(items, element -> element.price > 10"
    )
    expect(dashboard.at("#filter-boxes > li")).to_have_text(["everything"])
    examples = dashboard.at("#filter-examples .chip").all_inner_texts()
    for text in examples:
        dashboard.at("#filter-text").fill(text)
        expect(dashboard.at("#filter-error")).to_be_hidden()
        expect(dashboard.at("#filter-summary")).to_contain_text("of the last 1 event")
    dashboard.at("#filter-text").fill("price < 30")
    expect(dashboard.at("#residual-part")).to_be_hidden()
    expect(dashboard.at("#boxes-axis")).to_be_hidden()
    expect(warning).to_be_hidden()


def test_markup_in_data_is_only_text(
    dashboard: Dashboard, broker: RunningBroker, http: httpx.Client
) -> None:
    nasty = "<img src=x onerror=alert(1)>"
    http.post("/feeds", json={"name": "nasty", "schema": SCHEMA}).raise_for_status()
    http.post("/feeds/nasty/events", json={"symbol": nasty}).raise_for_status()
    dashboard.open_live("playground")
    dashboard.at("#filter-feed").select_option("nasty")
    expect(dashboard.at("#filter-recent > li")).to_have_count(1)
    dashboard.at("#filter-text").fill(f"symbol = '{nasty}' AND prize < 3")
    expect(dashboard.at("#filter-error mark")).to_have_text("prize")
    dashboard.at("#filter-text").fill(f"symbol = '{nasty}'")
    expect(dashboard.at("#filter-recent > li")).to_contain_text(nasty)
    assert dashboard.at("main img").count() == 0


def test_what_is_typed_while_a_feed_is_looked_up_stays(dashboard: Dashboard) -> None:
    held: list[Route] = []
    dashboard.page.route("**/feeds/tried", lambda route: held.append(route))
    dashboard.at("#filter-feed").select_option("tried")
    dashboard.until(lambda: held, "the feed is asked for")
    dashboard.at("#filter-text").fill("price < 30")
    with dashboard.page.expect_response("**/feeds/tried"):
        held[0].continue_()
    expect(dashboard.at("#filter-boxes > li")).to_have_text(["price < 30"])
    expect(dashboard.at("#filter-text")).to_have_value("price < 30")
