"""The report of the pipeline, as people see it."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from boxmatch.spark.pipeline.report import as_html

HOUR, DAY = 3_600.0, 86_400.0


def subscription(name: str, matches: int) -> dict[str, Any]:
    return {
        "subscription_id": name,
        "filter": f"carrier = '{name}'",
        "matches": matches,
        "share": matches / 3_000_000,
    }


def histogram(*numbers: int) -> list[dict[str, int]]:
    return [
        {"from": (1 << size) >> 1, "to": max(0, (1 << size) - 1), "number": number}
        for size, number in enumerate(numbers)
    ]


FLIGHTS: dict[str, Any] = {
    "events": {"files": 36, "read": 3_000_417, "good": 3_000_000, "derived": [],
               "quarantined": {"delay is not an int": 301, "duplicate event_id": 116}},
    "subscriptions": {"usable": 20_000, "rejected": 1, "never": 2,
                      "rejected_shown": [{"subscription_id": "odd", "filter": None,
                                          "reason": "filter is null"}],
                      "index": {"version": 3, "bytes": 2_812_345, "shards": 2}},
    "matches": {"pairs": 32_712_345, "skipping": None,
                "by_date": {f"2001-{month:02}-{day:02}": 1_000 * day
                            for month in range(1, 13) for day in range(1, 29)},
                "per_event": histogram(12_000, 40_000, 160_000, 2_788_000),
                "per_subscription": histogram(7, 1_993, 18_000),
                "top": [subscription("AA", 450_000), subscription("UA", 3_210)],
                "dead": {"number": 7, "shown": [subscription("XX", 0)]},
                "too_broad": {"number": 1, "share": 0.05}},
    "attributes": [{"name": f"column_{n}", "type": "int", "subscriptions": 40 - n,
                    "predicates": 50 - n, "present": 0.998, "selectivity": 0.5**n}
                   for n in range(40)],
    "skipping": {"boxes": 21_000, "selectivity": 0.17319, "sample": 10_000},
    "latency": {"least": 9_447 * DAY, "p50": 9_500 * DAY, "most": 9_812 * DAY},
    "stages": [{"stage": "match", "seconds": 1843.123, "rows": 32_712_345,
                "rows_per_second": 17_748, "resumed": False},
               {"stage": "read", "seconds": 0.4, "rows": None, "rows_per_second": None,
                "resumed": True}],
    "provenance": {"processed": datetime(2026, 11, 16, 12, tzinfo=UTC).isoformat(),
                   "packages": {"pyspark": "4.3.0", "numba": None}, "boxmatch": "1", "spark": "4",
                   "python": "3", "machine": "a machine", "plan": "replicated: small\nindex: 1",
                   "config": {"events": {"path": "flights"}, "output": {"path": "out"},
                              "subscriptions": {"path": None, "table": "alerts"}}},
}  # fmt: skip


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Any:
    def show(summary: dict[str, Any], scheme: Any = "light") -> Page:
        file = tmp_path / "report.html"
        file.write_text(as_html(summary), encoding="utf-8")
        page = browser.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 600})
        failed: list[str] = []
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(file.as_uri())
        expect(page.locator(".chart svg.marks")).to_have_count(6)  # also those further down
        assert failed == []
        return page

    return show


def test_figures_are_on_top_and_told_once(show: Any) -> None:
    page = show(FLIGHTS)
    strip = page.locator(".figures div").all_inner_texts()
    assert [text.split("\n")[:2] for text in strip] == [
        ["3,000,000", "events"],
        ["20,000", "subscriptions"],
        ["32,712,345", "matches"],
        ["7", "subscriptions without a match"],
        ["30.7 minutes", "run time"],
    ]
    assert strip[2].endswith("10.9 per event")
    body = page.locator("body").inner_text()
    assert body.count("carrier = 'AA'") == body.count("carrier = 'UA'") == 1
    busiest = page.locator("#matches tbody tr").all_inner_texts()
    assert busiest[0].split("\t") == ["AA", "carrier = 'AA'", "450,000", "15.0%", "broad"]
    assert busiest[1].split("\t")[3:] == ["0.11%", ""]
    assert "in 2 shards (version 3)" in body
    assert "2.81 MB" in body
    assert "< 0.001%" in body  # the selectivity of the last attributes
    titles = page.locator(".chart .role-title-text").all_text_contents()
    assert len(titles) == len(set(titles)) == 6
    page.close()


def test_latency_is_shown_for_recent_events_only(show: Any) -> None:
    page = show(FLIGHTS)
    assert "between 2000-01-05 12:00 and 2001-01-04 12:00" in page.locator("#events").inner_text()
    assert "Latency" not in page.locator("body").inner_text()
    page.close()
    recent = copy.deepcopy(FLIGHTS)
    recent["latency"] = {"least": 0.25, "p50": 90.0, "most": 3 * HOUR}
    page = show(recent)
    rows = page.locator("#events table").first.locator("tbody tr").all_inner_texts()
    assert [row.split("\t")[1] for row in rows] == ["0.25 seconds", "90 seconds", "3 hours"]
    page.close()


def test_headers_stand_over_their_columns(show: Any) -> None:
    page = show(FLIGHTS)
    for table in page.locator("table").all():
        ends = "els => els.map((el) => getComputedStyle(el).textAlign)"
        head = table.locator("thead th").evaluate_all(ends)
        assert table.locator("tbody tr").first.locator("th, td").evaluate_all(ends) == head
    page.close()


def test_paper_is_light_and_complete(show: Any) -> None:
    page = show(FLIGHTS, "dark")
    ink = "el => getComputedStyle(el).fill"
    label = page.locator(".chart text").first
    assert label.evaluate(ink) == "rgb(227, 230, 234)"
    page.emulate_media(media="print")
    assert label.evaluate(ink) == "rgb(28, 31, 36)"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.get_by_text("carrier = 'XX'")).to_be_visible()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.get_by_text("carrier = 'XX'")).to_be_hidden()
    page.close()
