"""Feeds without a schema: events of any structure, in every form and through every question."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import orjson
import pyarrow as pa
import pytest
from broker_server import RunningBroker
from cloudevent_calls import BATCHED, STRUCTURED, post, post_binary
from test_broker_core import all_notifications, events, run, running

import boxmatch as bm
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.client import Client
from boxmatch.wire.requests import Adaptive, Wanted
from command_line import Command

OPEN = {"$": "json"}
FILTERS: dict[str, tuple[str | None, Any]] = {
    "price": (None, "price > 20"),
    "nested": (None, "order.state = 'new' OR order.id IN (7, 'seven')"),
    "any": (None, "'urgent' = ANY(tags)"),
    "missing": (None, "price IS NULL"),
    "length": (None, "LENGTH(note) > 3"),
    "dict": (None, {"price": {"low": 10, "high": 30}}),
    "rule": ("eventbridge", {"items": {"sku": ["a"], "n": [{"numeric": [">", 1]}]}}),
    "wild": ("eventbridge", {"note": [{"wildcard": "a*c"}]}),
    "jms": ("jms", "price + 1 > 20 AND note LIKE 'a%'"),
    "time": (None, "at >= TIMESTAMP '2026-03-04T00:00:00Z'"),
    "text": (None, "at LIKE '2026-03-04T%Z'"),
}
EVENTS: list[dict[str, Any]] = [
    {"price": 21, "order": {"state": "new"}, "note": "abc"},
    {"price": "21", "tags": ["urgent", 7], "order": {"id": "seven"}},
    {
        "price": 10.5,
        "items": [{"sku": "a", "n": 2}, {"sku": "b", "n": 1}],
        "at": "2026-03-04T09:00Z",
    },
    {"items": [{"sku": "a", "n": 1}, {"sku": "b", "n": 2}], "note": "abbc"},
    {"price": None, "tags": "urgent", "order": [{"id": 7}], "deep": {"a": [[1, [2]], {"b": None}]}},
    {},
]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Of this module alone: a test starts it again."""
    with RunningBroker(tmp_path_factory.mktemp("open-feeds") / "data") as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        yield client


def create(http: httpx.Client, name: str) -> str:
    """A feed without a schema, and a subscriber of the same name with all filters."""
    made = http.post("/feeds", json={"name": name})
    assert (made.status_code, made.json()["schema"]) == (201, OPEN)
    body = {
        "feed": name,
        "filters": {id: filter for id, (_, filter) in FILTERS.items()},
        "dialect": {id: dialect for id, (dialect, _) in FILTERS.items()},
    }
    answer = http.post(f"/subscribers/{name}/subscriptions", json=body)
    assert answer.status_code == 200, answer.text
    return f"/feeds/{name}/events"


def truth(event: Any) -> set[str]:
    matcher = bm.Matcher()
    for id, (dialect, filter) in FILTERS.items():
        matcher.subscribe(id, filter, dialect=dialect)
    return set(matcher.match(event))


def check(http: httpx.Client, name: str, receipt: httpx.Response | dict[str, Any]) -> list[Any]:
    """That the events of a receipt went to those who want what is stored. What is stored."""
    said = receipt if isinstance(receipt, dict) else receipt.json()
    assert "first" in said, said
    after = said["first"] - 1
    log = http.get(f"/feeds/{name}/events", params={"after": after}).json()["events"]
    page = http.get(f"/subscribers/{name}/notifications", params={"after": after}).json()
    got = {one["sequence"]: set(one["subscriptions"]) for one in page["notifications"]}
    for one in log:
        assert got.get(one["sequence"], set()) == truth(one["event"]), one
    # The same events, asked about instead of published.
    for id, (dialect, filter) in FILTERS.items():
        body = {"filter": filter, "dialect": dialect, "recent": len(log)}
        tried = http.post(f"/feeds/{name}/dry-run", json=body).json()
        wanted = [id in truth(one["event"]) for one in reversed(log)]
        assert [one["matches"] for one in tried["recent"]] == wanted, id
    return [one["event"] for one in log]


def test_events_of_any_structure_in_every_form_also_after_a_restart(broker: RunningBroker) -> None:
    lines = b"\n".join(map(orjson.dumps, EVENTS))
    ndjson = {"content-type": "application/x-ndjson"}
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        url = create(http, "forms")
        assert check(http, "forms", http.post(url, json=EVENTS)) == EVENTS
        assert check(http, "forms", http.post(url, content=lines, headers=ndjson)) == EVENTS
        assert truth(EVENTS[0]) == {"price", "nested", "dict", "jms", "wild"}
    broker.stop()
    broker.start()
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        assert check(http, "forms", http.post(url, json=EVENTS)) == EVENTS
        assert http.get("/feeds/forms").json()["schema"] == OPEN
    with Client(broker.url) as client:
        assert client.feed("forms").schema == bm.Schema()


def test_a_table_is_matched_as_it_is_stored(broker: RunningBroker, http: httpx.Client) -> None:
    """Times and decimals become texts and numbers of JSON before filters look at them."""
    create(http, "tables")
    at = datetime(2026, 3, 4, 9, 30, tzinfo=UTC)
    table = pa.table(
        {
            "price": pa.array([Decimal("20.50"), Decimal("0.3000000000000000001"), None],
                              pa.decimal128(38, 19)),
            "at": pa.array([at, None, at], pa.timestamp("us", "UTC")),
            "note": pa.array(["abc", "axxc", None]).dictionary_encode(),
            "day": pa.array([at.date()] * 3),
        }
    )  # fmt: skip
    nested = pa.Table.from_pylist([{"order": {"state": "new"}, "tags": ["urgent"], "price": 30}])
    with Client(broker.url) as client:
        first = client.publish("tables", table).first
        stored = check(http, "tables", {"first": first})
        assert stored[0] == {"price": 20.5, "at": "2026-03-04T09:30:00Z", "note": "abc",
                             "day": "2026-03-04"}  # fmt: skip
        assert truth(stored[0]) == {"price", "dict", "jms", "wild", "time", "text"}
        assert truth(stored[1]) == {"length", "wild"}
        again = check(http, "tables", {"first": client.publish("tables", nested).first})
        assert again == nested.to_pylist()


def test_cloudevents_as_they_are(http: httpx.Client) -> None:
    http.post("/feeds", json={"name": "ce"}).raise_for_status()
    filters = {
        "rule": '{"source": [{"prefix": "aws."}], "data": {"state": ["stopped"]}}',
        "cesql": "type = 'ec2' AND priority > 3",
        "sql": "source LIKE 'aws.%' AND data.state = 'stopped' AND NOT subject IS NULL",
        "number": "priority > 3",
    }
    dialects = {"rule": "eventbridge", "cesql": "cesql"}
    body = {"feed": "ce", "filters": filters, "dialect": dialects}
    http.post("/subscribers/ce/subscriptions", json=body).raise_for_status()
    event = {"specversion": "1.0", "id": "1", "source": "aws.ec2", "type": "ec2", "priority": 5,
             "subject": "i-1", "data": {"state": "stopped"}}  # fmt: skip
    url = "/feeds/ce/events"
    post(http, url, event)
    post(http, url, [{**event, "id": "2"}, {**event, "id": "3", "priority": 1}], BATCHED)
    own = {"id": "4", "source": "aws.ec2", "type": "ec2", "priority": "5", "subject": "i-1"}
    post_binary(http, url, b'{"state": "stopped"}', "application/json", **own)
    page = http.get("/subscribers/ce/notifications").json()["notifications"]
    everything = set(filters)
    assert [set(one["subscriptions"]) for one in page] == [
        everything,
        everything,
        {"rule", "sql"},
        # All attributes in headers are texts, which CloudEvents SQL casts.
        {"rule", "sql", "cesql"},
    ]
    again = http.post(url, content=json.dumps(event), headers={"content-type": STRUCTURED}).json()
    assert again["repeated"]


def test_questions_about_single_events(http: httpx.Client) -> None:
    url = create(http, "asked")
    for event in EVENTS:
        said = http.post(
            "/feeds/asked/trace", json={"event": event, "publish": True, "limit": 100}
        ).json()
        assert {one["id"] for one in said["gets"]} == truth(event)
        assert {one["id"] for one in said["misses"]} == set(FILTERS) - truth(event)
        check(http, "asked", {"first": said["sequence"]})
        for id in FILTERS:
            stored = {"sequence": said["sequence"], "subscriber": "asked", "subscription": id}
            why = http.post("/feeds/asked/explain", json=stored).json()
            assert why["matched"] == (id in truth(event)), (id, event)
    overview = http.get("/overview").json()
    assert [one["matched"] for one in overview["feeds"] if one["name"] == "asked"] == [len(EVENTS)]
    assert http.post(url, json={"note": "x" * 10_000}).status_code == 200


def test_what_is_no_event_and_too_many_choices_are_refused(http: httpx.Client) -> None:
    url = create(http, "refused")
    many = {"items": [{"sku": "a", "n": n} for n in range(10_001)]}
    answer = http.post(url, json=[{}, many])
    assert (answer.status_code, answer.json()["index"]) == (422, 1)
    assert "'items'" in answer.json()["detail"]
    assert http.post(url, json=[[]]).status_code == 422
    nothing = http.get(url).json()["events"]
    assert nothing == []
    more = http.patch("/feeds/refused", json={"attributes": {"price": "float"}})
    assert (more.status_code, "'price' already, of any type" in more.json()["detail"]) == (
        422,
        True,
    )


def test_a_schema_may_have_documents(http: httpx.Client) -> None:
    schema = {"symbol": "string", "data": "json"}
    http.post("/feeds", json={"name": "mixed", "schema": schema}).raise_for_status()
    wanted = {"feed": "mixed", "filter": "symbol = 'IBM' AND data.level > 3"}
    http.put("/subscribers/mia/subscriptions/a", json=wanted).raise_for_status()
    url = "/feeds/mixed/events"
    assert http.post(url, json={"symbol": "IBM", "data": {"level": 4}}).status_code == 200
    unknown = http.post(url, json={"symbol": "IBM", "level": 4})
    assert (unknown.status_code, "'level'" in unknown.text) == (422, True)
    assert len(http.get("/subscribers/mia/notifications").json()["notifications"]) == 1
    for attributes, status in (
        ({"data.level": "int"}, 422),
        ({"price": "float"}, 200),
        ({"$": "json"}, 200),
        ({"size": "int"}, 422),
    ):
        answer = http.patch("/feeds/mixed", json={"attributes": attributes})
        assert answer.status_code == status, answer.text
    assert http.post(url, json={"level": 4}).status_code == 200


def test_commands(broker: RunningBroker, run_boxmatch: Command, tmp_path: Path) -> None:
    url = ("--url", broker.url)
    made = run_boxmatch("feeds", "create", "typed", *url, "--json")
    assert json.loads(made.out)["schema"] == OPEN
    file = tmp_path / "events.csv"
    file.write_text("code,price,at,note\n007,21.5,2026-03-04,a\n008,,2026-03-05 10:00:00,\n")
    done = run_boxmatch("publish", "typed", str(file), *url)
    assert (done.code, "2 events" in done.out) == (0, True), done.err
    with Client(broker.url) as client:
        first, second = [one.event for one in client.events("typed").events]
    assert (first["code"], first["price"], first["note"]) == ("007", 21.5, "a")
    assert set(second) == {"code", "at"}
    listed = run_boxmatch("feeds", "list", *url).out
    assert any(line.split()[0] == "typed" and line.endswith("any") for line in map(
        str.rstrip, listed.splitlines()))  # fmt: skip


@pytest.mark.parametrize("index", ["tile", "rein"])
def test_a_feed_that_gives_up_precision_misses_nothing(tmp_path: Path, index: str) -> None:
    names = [f"x{n}" for n in range(40)]
    filters: dict[str, tuple[str | None, Any]] = {
        f"{n}": (None, f"x0 > 20 AND {names[n]} > 50") for n in range(40)
    }
    filters |= {
        "rule": ("eventbridge", {"items": {"sku": ["a"], "n": [1]}, "x0": [{"numeric": [">", 9]}]}),
        "wild": ("eventbridge", {"t": [{"wildcard": "p*r"}]}),
        "part": (None, "t LIKE '%q%'"),
        "jms": ("jms", "x0 + x1 > 100"),
    }
    rows: list[dict[str, Any]] = [
        {**{name: (7 * row + 13 * n) % 100 for n, name in enumerate(names)},
         "items": [{"sku": "ab"[(row + n) % 2], "n": n % 3} for n in range(row % 4)],
         "t": "pqr"[: row % 4]}
        for row in range(60)
    ]  # fmt: skip
    matcher = bm.Matcher(index="scan")
    for id, (dialect, filter) in filters.items():
        matcher.subscribe(id, filter, dialect=dialect)

    async def main() -> None:
        async with running(tmp_path) as broker:
            adaptive = Adaptive(threshold=0.01, step=0.02, maximum=0.3)
            spec = FeedSpec(name="f", spaces={"f": bm.Schema()}, index=index, adaptive=adaptive)
            await broker.feeds.create(spec)
            for who, exact in (("loose", False), ("strict", True)):
                many = {
                    id: Wanted(feed="f", filter=filter, dialect=dialect, exact=exact)
                    for id, (dialect, filter) in filters.items()
                }
                await broker.subscriptions.put_many(who, many)
            feed = broker.directory.feed("f").feed
            assert isinstance(feed, EventFeed)
            await asyncio.to_thread(feed.tidy)
            feed.adapting.decide = lambda waited, events: 0.3  # type: ignore[method-assign]
            await broker.pipeline.publish("f", events(*rows))
            loose = {one.sequence: one for one in await all_notifications(broker, "loose")}
            strict = {one.sequence: one for one in await all_notifications(broker, "strict")}
            for place, row in enumerate(rows, 1):
                right = set(matcher.match(row))
                assert right <= set(loose[place].subscriptions if place in loose else ())
                assert right == set(strict[place].subscriptions if place in strict else ())

    run(main)
