"""Filters of other systems in the playground, and where subscriptions are shown."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from broker_server import RunningBroker  # in ../broker
from dashboard_page import Dashboard, Pages
from playwright.sync_api import expect

SCHEMA = {
    "plan": "string",
    "amount": "float",
    "paid": "bool",
    "order.state": ["new", "done"],
    "at": "timestamp",
}
EVENTS: list[dict[str, Any]] = [
    {"plan": "gold", "amount": 120.0, "order": {"state": "new"}},
    {"plan": "silver", "amount": 20.0, "paid": True},
]
OPEN_EVENTS: list[dict[str, Any]] = [
    {"detail-type": "EC2 state", "amount": 7, "detail": {"state": "stopped", "tags": ["a"]}},
    {"source": "aws.ec2", "detail-type": "x", "amount": 3, "tags": ["a"], "detail": {"ok": False}},
]
# A filter that is right, how many of the events it wants, one that is wrong, and the place.
TRIED = {
    "eventbridge": ('{"plan": [{"wildcard": "g*d"}]}', 1, '{"plan": [{"prefx": "🚀"}]}', '"prefx"'),
    "sns": ('{"amount": [{"numeric": [">", 9]}]}', 2, '{\n  "plan": "gold"\n}', '"gold"'),
    "sns-body": ('{"order": {"state": ["new"]}}', 1, '{"plan": [tru]}', "tru"),
    "jms": ("plan LIKE 'g%' AND amount + 1 > 100", 1, "plan = '🚀'\nAND amount >> 3", ">"),
    "cesql": ("EXISTS plan AND amount > 3", 2, "plan = 'a' AND paid OR amount = 3", "OR"),
}


@pytest.fixture(scope="module", autouse=True)
def feeds(broker: RunningBroker) -> None:
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        for name, schema, events in (("bills", SCHEMA, EVENTS), ("rules", None, OPEN_EVENTS)):
            http.post("/feeds", json={"name": name, "schema": schema}).raise_for_status()
            http.post(f"/feeds/{name}/events", json=events).raise_for_status()


@pytest.fixture
def dashboard(broker: RunningBroker, pages: Pages) -> Dashboard:
    dashboard = pages.new(broker.url)
    dashboard.expect_failures("422")
    return dashboard.open_live("playground")


def choose(dashboard: Dashboard, feed: str, dialect: str) -> None:
    dashboard.at("#filter-feed").select_option(feed)
    dashboard.at("#filter-dialect").select_option(dialect)
    expect(dashboard.at("#filter-summary")).to_contain_text("of the last 2 events")


@pytest.mark.parametrize("dialect", TRIED)
def test_what_is_right_is_counted_and_what_is_wrong_is_marked(
    dashboard: Dashboard, dialect: str
) -> None:
    right, count, wrong, place = TRIED[dialect]
    choose(dashboard, "bills", dialect)
    area, error = dashboard.at("#filter-text"), dashboard.at("#filter-error")
    area.fill(right)
    expect(dashboard.at("#filter-summary")).to_contain_text(f"Matches {count} of the last 2 events")
    expect(dashboard.at("#filter-recent > li")).to_have_count(2)
    if dialect == "eventbridge":
        expect(dashboard.at("#filter-residual > li")).to_have_text(["the filter as a whole"])
    area.fill(wrong)
    expect(area).to_have_attribute("aria-invalid", "true")
    expect(error.locator("mark")).to_have_text(place)
    underlay = dashboard.at("#filter-editor .underlay")
    assert underlay.text_content() == wrong
    assert underlay.evaluate("node => node.firstChild.data") == wrong[: wrong.rindex(place)]
    area.fill(right)
    expect(error).to_be_hidden()


@pytest.mark.parametrize("feed", ["bills", "rules"])
def test_every_example_of_every_dialect_is_valid(dashboard: Dashboard, feed: str) -> None:
    for dialect in ("sql", *TRIED):
        choose(dashboard, feed, dialect)
        examples = dashboard.at("#filter-examples .chip").all_inner_texts()
        assert len(examples) >= 3
        expect(dashboard.at("#filter-text")).to_have_value(examples[0])
        for text in examples:
            dashboard.at("#filter-text").fill(text)
            expect(dashboard.at("#filter-summary")).to_contain_text("of the last 2 events")
            expect(dashboard.at("#filter-error")).to_be_hidden()


def test_the_events_of_a_feed_without_a_schema_give_its_attributes(dashboard: Dashboard) -> None:
    choose(dashboard, "rules", "sql")
    chips = dashboard.at("#filter-attributes .chip")
    expect(chips).to_contain_text(["source", "detail-type", "amount", "tags", "detail.ok"])
    area = dashboard.at("#filter-text")
    area.fill("")
    chips.filter(has_text="detail-type").click()
    area.press_sequentially("= 'x'")
    expect(area).to_have_value("\"detail-type\" = 'x'")
    expect(dashboard.at("#filter-summary")).to_contain_text("Matches 1 of the last 2 events")
    choose(dashboard, "rules", "eventbridge")
    area.fill("{")
    chips.filter(has_text="detail-type").click()
    area.press_sequentially(': ["EC2 state"]}')
    expect(area).to_have_value('{ "detail-type" : ["EC2 state"]}')
    expect(dashboard.at("#filter-summary")).to_contain_text("Matches 1 of the last 2 events")


def test_a_text_stays_with_its_dialect_and_feed(dashboard: Dashboard) -> None:
    area = dashboard.at("#filter-text")
    for feed in ("bills", "rules"):
        for dialect, text in (("sql", f"amount > {len(feed)}"), ("jms", f"amount < {len(feed)}")):
            choose(dashboard, feed, dialect)
            area.fill(text)
    for feed in ("rules", "bills"):
        for dialect, text in (("jms", f"amount < {len(feed)}"), ("sql", f"amount > {len(feed)}")):
            choose(dashboard, feed, dialect)
            expect(area).to_have_value(text)
    choose(dashboard, "bills", "jms")
    dashboard.open_live("playground")
    dashboard.page.reload()
    dashboard.is_said("live")
    expect(dashboard.at("#filter-dialect")).to_have_value("jms")
    expect(dashboard.at("#filter-form")).to_contain_text("Jakarta Messaging")


def test_subscriptions_and_traces_show_the_dialect(
    broker: RunningBroker, pages: Pages, http: httpx.Client
) -> None:
    http.post("/feeds", json={"name": "shown-dialects"}).raise_for_status()
    filters = {"rule": '{"plan": ["gold"]}', "sql": "plan = 'gold'"}
    body = {"feed": "shown-dialects", "filters": filters, "dialect": {"rule": "eventbridge"}}
    http.post("/subscribers/dia/subscriptions", json=body).raise_for_status()
    http.post("/feeds/shown-dialects/events", json=EVENTS[0]).raise_for_status()
    dashboard = pages.new(broker.url).open_live("subscriptions")
    dashboard.at("#subscriptions-feed").select_option("shown-dialects")
    row = dashboard.at("#busiest-table tbody tr").filter(has_text="rule")
    expect(row.locator('[data-label="dialect"]')).to_have_text("eventbridge")
    other = dashboard.at("#busiest-table tbody tr").filter(has_text="plan = ")
    expect(other.locator('[data-label="dialect"]')).to_have_text("")
    dashboard.open_live("trace")
    dashboard.at("#trace-feed").select_option("shown-dialects")
    expect(dashboard.at("#trace-summary")).to_contain_text("Not published.")
    dashboard.at("#trace-send").click()
    got = dashboard.at('#trace-gets > li[data-id="rule"]')
    expect(got.locator(".tag")).to_have_text("eventbridge")
    expect(got.locator(".filter-line")).to_have_text('{"plan": ["gold"]}')
