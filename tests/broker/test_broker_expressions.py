"""Filters of any expression over events with nested and repeated values, through the broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from broker_server import RunningBroker
from test_broker_core import all_notifications, events, run, running  # in this folder

import boxmatch as bm
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.client import Client
from boxmatch.model import axis_table
from boxmatch.wire.requests import Adaptive, Wanted

SCHEMA = {
    "title": "string",
    "price": "float",
    "volume": "int",
    "bid": "decimal(10, 2)",
    "at": "timestamp",
    "side": ["buy", "sell"],
    "tags": "list of string",
    "prices": "list of int",
    "order": {
        "type": "struct",
        "fields": {
            "id": "int",
            "customer": {"type": "struct", "fields": {"tier": "string", "since": "timestamp"}},
        },
    },
    "items": {"type": "list of struct", "fields": {"price": "float", "kind": ["a", "b"]}},
}
GOLD = {
    "title": "ACME corp.pdf",
    "price": 10.0,
    "volume": 200_000,
    "bid": "3.50",
    "at": "2026-03-04T12:30:00Z",
    "side": "buy",
    "tags": ["urgent", "new"],
    "prices": [5, 15],
    "order": {"id": 7, "customer": {"tier": "gold", "since": "2020-01-01T00:00:00Z"}},
    "items": [{"price": 11, "kind": "a"}, {"price": 3, "kind": "b"}],
}
PLAIN = {
    "title": "letter",
    "price": 1.0,
    "volume": 0,
    "tags": [],
    "order": {"customer": {"tier": "silver"}},
    "items": [{"price": 11, "kind": "b"}, {"price": 3, "kind": "a"}],
}
EVENTS: list[dict[str, Any]] = [GOLD, PLAIN, {}, {"order": None, "items": None, "title": "a-b-c"}]
# Filters, and which of the events they want.
FILTERS: dict[str, tuple[str | dict[str, Any], set[int]]] = {
    "product": ("price * volume > 1e6", {0}),
    "quotient": ("price / volume < 1", {0}),  # division by zero is NULL
    "attributes": ("price > bid", {0}),
    "folded": ("LOWER(title) = 'acme corp.pdf'", {0}),
    "suffix": ("title ILIKE '%.PDF'", {0}),
    "contains": ("title LIKE '%corp%'", {0}),
    "pattern": ("title LIKE 'a%b%c'", {3}),
    "regex": ("title RLIKE '^[a-z]+$'", {1}),
    "not-regex": ("NOT title RLIKE '^[a-z]+$'", {0, 3}),
    "clock": ("hour(at) BETWEEN 9 AND 17 AND at < TIMESTAMP '2027-01-01'", {0}),
    "case": ("CASE WHEN side = 'buy' THEN price ELSE -price END = 10", {0}),
    "nested": ("order.customer.tier = 'gold' AND order.id = 7", {0}),
    "missing": ("order.customer.tier IS NULL", {2, 3}),
    "any": ("'urgent' = ANY(tags)", {0}),
    "both": ("'urgent' = ANY(tags) AND 'new' = ANY(tags)", {0}),
    "not-any": ("NOT 'urgent' = ANY(tags)", {1}),
    "overlap": ("tags && ARRAY['x', 'new']", {0}),
    "size": ("CARDINALITY(tags) = 0", {1}),
    "range-of-any": ("ANY(prices) > 10", {0}),
    "exists": ("EXISTS(items, i -> i.price > 10 AND i.kind = 'a')", {0}),
    "exists-either": ("EXISTS(items, i -> i.price > 10)", {0, 1}),
    "dict": ({"price * volume": {"low": 1e6}, "title": {"contains": "corp"}}, {0}),
    "dict-nested": ({"order.customer.tier": ["gold", "silver"], "tags": "urgent"}, {0}),
    "dict-text": ({"title": {"ilike": "LETTER"}}, {1}),
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """Of this module alone: a test starts it again."""
    with RunningBroker(tmp_path_factory.mktemp("expressions") / "data") as running:
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        yield client


def create(http: httpx.Client, name: str, **more: Any) -> Any:
    answer = http.post("/feeds", json={"name": name, "schema": SCHEMA, **more})
    assert answer.status_code == 201, answer.text
    return answer.json()


def put(http: httpx.Client, subscriber: str, id: str, feed: str, filter: Any) -> httpx.Response:
    body = {"feed": feed, "filter": filter}
    return http.put(f"/subscribers/{subscriber}/subscriptions/{id}", json=body)


def published(http: httpx.Client, feed: str, subscriber: str) -> dict[str, set[int]]:
    """Which of the events each subscription got."""
    receipt = http.post(f"/feeds/{feed}/events", json=EVENTS)
    assert receipt.status_code == 200, receipt.text
    first = receipt.json()["first"]
    path = f"/subscribers/{subscriber}/notifications"
    page = http.get(path, params={"after": first - 1, "limit": 100}).json()
    found: dict[str, set[int]] = {}
    for one in page["notifications"]:
        assert one["event"] == EVENTS[one["sequence"] - first]
        for id in one["subscriptions"]:
            found.setdefault(id, set()).add(one["sequence"] - first)
    return found


def test_every_kind_of_filter_also_after_a_restart(
    broker: RunningBroker, http: httpx.Client
) -> None:
    made = create(http, "orders")
    assert made["schema"]["order.customer.tier"] == "string"
    assert made["schema"]["items"] == SCHEMA["items"]
    for id, (filter, _) in list(FILTERS.items())[::2]:
        answer = put(http, "ann", id, "orders", filter)
        assert answer.status_code == 200, answer.text
        assert answer.json()["filter"] == filter
    rest = {id: filter for id, (filter, _) in list(FILTERS.items())[1::2]}
    many = {"feed": "orders", "filters": rest}
    assert http.post("/subscribers/ann/subscriptions", json=many).json() == {"count": len(rest)}
    wanted = {id: rows for id, (_, rows) in FILTERS.items()}
    assert published(http, "orders", "ann") == wanted
    assert broker.stop() == 0
    broker.start()
    with httpx.Client(base_url=broker.url, timeout=30) as again:
        assert published(again, "orders", "ann") == wanted
        assert again.get("/feeds/orders").json()["schema"] == made["schema"]
    assert "not understood" not in broker.log()


def test_names_that_the_schema_lacks(http: httpx.Client) -> None:
    create(http, "strict")
    create(http, "loose", unknown="carry")
    for event, unknown in [
        ({"ordr": 1}, "ordr"),
        ({"order": {"custmer": {"tier": "gold"}}}, "order.custmer"),
        ({"order": {"customer": {"tier": "gold", "teer": 1}}}, "order.customer.teer"),
        ({"order.customer": {"teer": 1}}, "order.customer.teer"),
        ({"items": [{"price": 1}, {"prize": 1}]}, "items.prize"),
    ]:
        answer = http.post("/feeds/strict/events", json=[{}, event])
        assert answer.status_code == 422, answer.text
        assert f"attribute {unknown!r} in row 1 is not in the schema" in answer.json()["detail"]
        assert http.post("/feeds/loose/events", json=event).status_code == 200
    for good in (
        {"order": {"customer": {"tier": "gold"}}},
        {"order.customer.tier": "gold"},
        {"order.customer": {"tier": "gold"}, "order": None},
        {"order": {}, "items": [None, {}], "tags": [None, "a"]},
    ):
        answer = http.post("/feeds/strict/events", json=good)
        assert answer.status_code == 200, answer.text
    for bad, said in [
        ({"order": 3}, "is not a mapping"),
        ({"order": {"id": "x"}}, "attribute 'order.id'"),
        ({"tags": "urgent"}, "is not a list"),
        ({"prices": [1, "x"]}, "attribute 'prices'"),
        ({"items": [{"kind": "c"}]}, "attribute 'items.kind'"),
    ]:
        answer = http.post("/feeds/loose/events", json=bad)
        assert answer.status_code == 422
        assert said in answer.json()["detail"]


def test_schemas_that_make_no_sense(http: httpx.Client) -> None:
    for schema, said in [
        ({"x": "list of list of int"}, "a list of lists"),
        ({"x": "list of"}, "unknown type"),
        ({"x": {"type": "struct"}}, "the fields of a struct"),
        ({"x": {"type": "struct", "fields": {}}}, "length >= 1"),
        ({"x": {"type": "int", "fields": {"y": "int"}}}, "only a struct has fields"),
        ({"x": {"type": "struct", "fields": {"y": 3}}}, "x/fields/y: unknown type"),
        ({"x.y": "int", "x": {"type": "struct", "fields": {"y": "int"}}}, "appears twice"),
    ]:
        answer = http.post("/feeds", json={"name": "wrong", "schema": schema})
        assert answer.status_code == 422, answer.text
        assert said in answer.json()["detail"], answer.text


def test_a_feed_gains_nested_and_repeated_attributes(http: httpx.Client) -> None:
    http.post("/feeds", json={"name": "grows", "schema": {"x": "int"}}).raise_for_status()
    put(http, "eve", "before", "grows", "x * 2 > 4").raise_for_status()
    more = {
        "a": {"type": "struct", "fields": {"b": "string"}},
        "tags": {"type": "list of enum", "values": ["u", "v"]},
    }
    answer = http.patch("/feeds/grows", json={"attributes": more})
    assert answer.json()["schema"] == {
        "x": "int",
        "a.b": "string",
        "tags": {"type": "list of enum", "values": ["u", "v"]},
    }
    put(http, "eve", "after", "grows", "'v' = ANY(tags) AND upper(a.b) = 'Q'").raise_for_status()
    http.post("/feeds/grows/events", json={"x": 3, "a": {"b": "q"}, "tags": ["v"]})
    [found] = http.get("/subscribers/eve/notifications").json()["notifications"]
    assert sorted(found["subscriptions"]) == ["after", "before"]


def test_state_feeds_have_neither_lists_nor_expressions(http: httpx.Client) -> None:
    new = {"name": "map", "kind": "state", "spaces": {"s": {"tags": "list of string"}}}
    answer = http.post("/feeds", json=new)
    assert answer.status_code == 422
    assert "dimension 'tags' of space 's' is a list of string" in answer.json()["detail"]
    spaces = {"s": {"pos": {"type": "struct", "fields": {"x": "int", "y": "int"}}}}
    http.post("/feeds", json={**new, "spaces": spaces}).raise_for_status()
    path = "/subscribers/sam/subscriptions/here"
    good = {"feed": "map", "region": {"pos.x": [0, 10]}}
    assert http.put(path, json=good).status_code == 200
    for wrong in (
        {"feed": "map", "filter": "pos.x * 2 > 3"},
        {"feed": "map", "region": {"pos.x * 2": 3}},
        {"feed": "map", "region": {"pos.x": {"contains": "a"}}},
        {"feed": "map", "region": {"pos": {"x": 3}}},
    ):
        assert http.put(path, json=wrong).status_code in (409, 422), wrong
    moved = http.put("/feeds/map/publications/car", json={"region": {"pos.x": 3}})
    assert moved.status_code == 200, moved.text
    [found] = http.get("/subscribers/sam/notifications").json()["notifications"]
    assert found["change"]["kind"] == "enter"


def test_previews_say_what_is_boxes_and_what_is_residual(http: httpx.Client) -> None:
    create(http, "shown")
    http.post("/feeds/shown/events", json=EVENTS).raise_for_status()
    filter = "price * volume > 1e6 AND side = 'buy' AND NOT title RLIKE 'x'"
    found = http.post("/feeds/shown/dry-run", json={"filter": filter, "recent": 4}).json()
    assert (found["matches"], found["cost"], found["warning"]) == (1, "residual", None)
    [box] = found["boxes"]
    assert {(one["wanted"], one["cost"]) for one in box} == {
        ("side = 'buy'", "box"),
        ("(price * CAST(volume AS DOUBLE)) > 1000000", "axis"),
    }
    assert found["residual"] == ["title NOT RLIKE 'x'"]
    gold = found["recent"][-1]["predicates"]
    assert [(one["got"], one["satisfied"], one["residual"]) for one in gold] == [
        ("buy", True, False),
        (2e6, True, False),
        (True, True, True),
    ]

    everything = {"filter": "EXISTS(items, i -> i.price > 10)"}
    warned = http.post("/feeds/shown/dry-run", json=everything).json()
    assert (warned["matches"], warned["boxes"]) == (2, [[]])
    assert "every event is checked with EXISTS(items" in warned["warning"]
    answer = put(http, "wim", "slow", "shown", everything["filter"]).json()
    assert answer["warning"] == warned["warning"]
    assert put(http, "wim", "fast", "shown", filter).json()["warning"] is None
    assert "warning" not in http.get("/subscribers/wim/subscriptions/slow").json()
    never = put(http, "wim", "never", "shown", "volume = 2.5").json()
    assert never["warning"] == "no event can match the filter"

    asked = {"event": PLAIN, "subscriber": "wim", "subscription": "slow"}
    why = http.post("/feeds/shown/explain", json=asked).json()
    assert why["matched"]
    assert why["alternatives"][0][0]["residual"]
    needle = http.post("/feeds/shown/dry-run", json={"filter": "title LIKE '%corp%'"}).json()
    assert [one["cost"] for one in needle["boxes"][0]] == ["axis"]
    assert needle["cost"] == "axis"
    traced = http.post("/feeds/shown/trace", json={"event": PLAIN}).json()
    assert [one["id"] for one in traced["gets"]] == ["slow"]


def test_the_client_sends_filters_as_dicts(broker: RunningBroker) -> None:
    with Client(broker.url) as client:
        made = client.create_feed("sent", SCHEMA)
        assert made.schema == bm.Schema(SCHEMA)
        for id, (filter, _) in FILTERS.items():
            if isinstance(filter, dict):
                client.subscribe("cleo", id, "sent", filter)
        client.subscribe("cleo", "range", "sent", {"price * volume": (1e6, None)})
        slow = client.subscribe("cleo", "slow", "sent", "NOT title LIKE '%x%'")
        assert slow.warning is not None
        client.publish("sent", EVENTS)
        with client.listen("cleo", idle=5) as notifications:
            gold = next(notifications)
        assert set(gold.subscriptions) == {"dict", "dict-nested", "range", "slow"}
        # A table with nested columns goes as JSON.
        table = pa.Table.from_pylist([{"title": "letter", "order": {"id": 7}, "tags": ["urgent"]}])
        before = client.publish("sent", table)
        [logged] = client.events("sent", after=(before.first or 1) - 1).events
        assert logged.event == table.to_pylist()[0]
        why = client.explain("sent", filter={"length(title)": {"low": 10}}, event=PLAIN)
        assert (why.predicates[0].attribute, why.predicates[0].got) == ("LENGTH(title)", 6)
        with pytest.raises(bm.ClientError, match="is not a range"):
            client.subscribe("cleo", "wrong", "sent", {"title": {"contain": "x"}})


HOSTILE: list[tuple[str, int]] = [
    ("(" * 30_000 + "price > 1" + ")" * 30_000, 422),
    ("NOT " * 15_000 + "price > 1", 422),
    ("abs(" * 8_000 + "price" + ")" * 8_000 + " > 1", 422),
    ("title" + " || title" * 6_000 + " = 'x'", 422),
    ("title = '" + "x" * 10_000_000 + "'", 413),
    ("length(" + "replace(" * 30 + "title" + ", 'a', 'aaaaaaaaaa')" * 30 + ") > 3", 422),
    ("title RLIKE '(a*)*b'", 200),
    ("title RLIKE '((a{100}){100}){100}'", 422),
    ("title RLIKE '(((('", 422),
    ("title LIKE '" + "%a" * 30_000 + "'", 422),
    ("title LIKE '" + "%a" * 1_000 + "'", 200),
    (" AND ".join(f"(price > {i} OR bid > {i} OR title > '{i}')" for i in range(1_200)), 200),
    (" AND ".join(f"(title = '{i}' OR volume = {i} OR side = 'buy')" for i in range(900)), 200),
    (" AND ".join(f"(price % {i + 2} = 1 OR volume % {i + 2} = 1)" for i in range(1_000)), 422),
    ("volume * 2 IN (" + ", ".join(map(str, range(0, 20_000, 2))) + ")", 422),
]


def test_hostile_filters_hold_up_nobody(http: httpx.Client, broker: RunningBroker) -> None:
    create(http, "hostile")
    slowest = 0.0
    ended = threading.Event()

    def watch() -> None:
        nonlocal slowest
        with httpx.Client(base_url=broker.url, timeout=30) as other:
            while not ended.is_set():
                began = time.perf_counter()
                other.post("/feeds/hostile/events", json={"price": 1.5, "title": "a" * 500})
                slowest = max(slowest, time.perf_counter() - began)
                time.sleep(0.01)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        for number, (filter, status) in enumerate(HOSTILE):
            began = time.perf_counter()
            answer = put(http, "mallory", str(number), "hostile", filter)
            took = time.perf_counter() - began
            assert answer.status_code == status, (filter[:60], answer.text[:300])
            assert took < 5, (filter[:60], took)  # on a busy machine; alone it is below 1
    finally:
        ended.set()
        watching.join()
    assert slowest < 2
    answer = http.post("/feeds/hostile/events", json={"title": "a" * 10_000})
    assert answer.status_code == 200


def test_too_many_expressions_are_refused_before_they_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(axis_table, "MOST_EXPRESSIONS", 6)
    spec = FeedSpec(name="f", spaces={"f": bm.Schema({"x": "int"})})

    def divisible(by: int, exact: bool = False) -> Wanted:
        return Wanted(feed="f", filter=f"x % {by} = 0", exact=exact)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(spec)
            await broker.subscriptions.put_many("ann", {f"{n}": divisible(n) for n in range(2, 6)})
            many = {f"{n}": divisible(n) for n in range(2, 9)}
            with pytest.raises(bm.FilterTooLargeError, match="6 different expressions"):
                await broker.subscriptions.put_many("bob", many)
            assert broker.subscriptions.list("bob") == []
            # At once, and of those that have not reached the matcher yet, too.
            done = await asyncio.gather(
                *(broker.subscriptions.put(f"s{n}", "one", divisible(n)) for n in range(6, 12)),
                return_exceptions=True,
            )
            refused = [one for one in done if isinstance(one, bm.FilterTooLargeError)]
            assert len(refused) == 4
            await broker.subscriptions.put("eve", "exact", divisible(99, exact=True))
            await broker.subscriptions.delete("ann", "2")
            await broker.subscriptions.put("eve", "late", divisible(100))
            feed = broker.directory.feed("f").feed
            assert isinstance(feed, EventFeed)
            await broker.pipeline.call(feed, lambda: None)
            assert feed._reserved == []
        async with running(tmp_path) as broker:
            assert broker.feeds.get("f").subscriptions == 3 + 2 + 2
            await broker.pipeline.publish("f", events({"x": 9_900}))
            [found] = await all_notifications(broker, "eve")
            assert sorted(found.subscriptions) == ["exact", "late"]
            [found] = await all_notifications(broker, "ann")
            assert sorted(found.subscriptions) == ["3", "4", "5"]

    run(main)


@pytest.mark.parametrize("index", ["tile", "rein"])
def test_a_feed_that_gives_up_precision_checks_expressions_all_the_same(
    tmp_path: Path, index: str
) -> None:
    names = [f"x{n}" for n in range(40)]
    schema = bm.Schema({**dict.fromkeys(names, "int"), "tags": "list of string", "t": "string"})
    rare = [f"{name} > 50" for name in names]
    expressions = ["x0 + x1 > 100", "'a' = ANY(tags)", "NOT 'a' = ANY(tags)", "t LIKE '%q%'"]
    filters = [f"x0 > 20 AND {one}" for one in rare for _ in range(3)] + expressions
    rows = [
        {**{name: (7 * row + 13 * n) % 100 for n, name in enumerate(names)},
         "tags": ["a", "b"][: row % 3], "t": "pqr"[: row % 4]}
        for row in range(60)
    ]  # fmt: skip
    truth = bm.Matcher(schema, index="scan")
    for number, text in enumerate(filters):
        truth.subscribe(number, text)
    exact = range(len(filters) - len(expressions), len(filters))

    async def main() -> None:
        async with running(tmp_path) as broker:
            adaptive = Adaptive(threshold=0.01, step=0.02, maximum=0.3)
            spec = FeedSpec(name="f", spaces={"f": schema}, index=index, adaptive=adaptive)
            await broker.feeds.create(spec)
            for who, is_exact in (("loose", False), ("strict", True)):
                many = {
                    str(number): Wanted(feed="f", filter=text, exact=is_exact)
                    for number, text in enumerate(filters)
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
                right = set(truth.match(row))
                got = set(map(int, loose[place].subscriptions)) if place in loose else set()
                assert right <= got
                assert got.intersection(exact) == right.intersection(exact)
                kept = set(map(int, strict[place].subscriptions)) if place in strict else set()
                assert kept == right
            assert loose[1].rate == 0.3

    run(main)
