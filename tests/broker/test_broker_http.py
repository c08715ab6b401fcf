"""The HTTP API of a real server: what is asked, what is answered, and what is refused."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import httpx
import pyarrow as pa
import pytest
from broker_server import RunningBroker

TRADES = {"symbol": "string", "price": "float", "side": ["buy", "sell"], "size": "int"}


def make_feed(http: httpx.Client, name: str, **more: Any) -> str:
    answer = http.post("/feeds", json={"name": name, "schema": TRADES, **more})
    assert answer.status_code == 201, answer.text
    return name


def publish(http: httpx.Client, feed: str, *events: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(f"/feeds/{feed}/events", json=list(events))
    assert answer.status_code == 200, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["status"] == status
    assert told["type"] == f"urn:boxmatch:problem:{kind}"
    assert told["title"]
    assert told["detail"]
    return told


def test_a_feed_is_made_shown_extended_and_dropped(http: httpx.Client) -> None:
    make_feed(http, "f.life", unknown="carry")
    shown = http.get("/feeds/f.life").json()
    assert shown["schema"] == TRADES
    assert (shown["kind"], shown["unknown"], shown["events"]) == ("events", "carry", 0)
    assert shown in http.get("/feeds").json()["feeds"]
    more = {"venue": {"type": "string"}, "fee": {"type": "float", "domain": [0, 1]}}
    extended = http.patch("/feeds/f.life", json={"attributes": more}).json()
    assert list(extended["schema"]) == [*TRADES, "venue", "fee"]
    problem(http.patch("/feeds/f.life", json={"attributes": {"price": "int"}}), 422, "invalid")
    problem(http.post("/feeds", json={"name": "f.life", "schema": TRADES}), 409, "feed-exists")
    assert http.delete("/feeds/f.life").status_code == 204
    problem(http.get("/feeds/f.life"), 404, "unknown-feed")
    problem(http.delete("/feeds/f.life"), 404, "unknown-feed")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"name": "bad name", "schema": TRADES}, "body/name"),
        ({"name": "x", "schema": {"a": "number"}}, "'a': unknown type 'number'; known types are"),
        ({"name": "x", "schema": {"a": "decimal"}}, "write a decimal with its digits"),
        ({"name": "x", "schema": {"a": "decimal(39, 0)"}}, "a decimal has 1 to 38 digits"),
        ({"name": "x", "schema": {"a": 3}}, "body/schema/a: unknown type; known types are"),
        ({"name": "x", "schema": {}}, "at least one"),
        ({"name": "x", "kind": "state"}, "a state feed needs spaces"),
        ({"name": "x", "schema": TRADES, "spaces": {"s": TRADES}}, "give a schema, or"),
        (
            {"name": "x", "kind": "state", "spaces": {"s": {"$": "json"}}},
            "'$' of space 's' is a json",
        ),
        ({"name": "x", "schema": TRADES, "extra": 1}, "body/extra"),
        ({"name": "x", "spaces": {"s": TRADES}}, "spaces are for state feeds"),
        ({"name": "x", "schema": {"a": {"type": "int", "domain": [5, 1]}}}, "domain"),
        ({"name": "x", "schema": {"a": {"type": "int", "values": ["a"]}}}, "enum"),
        ({"name": "x", "schema": {"": "int"}}, "empty"),
        ([], "body"),
        (5, "body"),
    ],
)
def test_a_feed_that_makes_no_sense(http: httpx.Client, body: Any, said: str) -> None:
    answer = http.post("/feeds", json=body)
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_events_come_in_four_forms_and_out_of_the_log(http: httpx.Client) -> None:
    feed = make_feed(http, "f.forms")
    rows = [{"symbol": "A", "price": 1.5}, {"symbol": "ä", "size": 7}]
    url = f"/feeds/{feed}/events"
    first = http.post(url, json=rows[0]).json()
    assert first == {**first, "count": 1, "durable": True, "repeated": False}
    assert first["first"] == first["last"]
    publish(http, feed, *rows)
    lines = "\n".join(map(json.dumps, rows)) + "\n"
    kinds = {"content-type": "application/x-ndjson; charset=utf-8"}
    assert http.post(url, content=lines, headers=kinds).json()["count"] == 2
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, schema=pa.schema({"symbol": "string", "size": "int64"}))
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    kinds = {"content-type": "application/vnd.apache.arrow.stream"}
    last = http.post(url, content=sink.getvalue().to_pybytes(), headers=kinds).json()
    assert (last["last"] - last["first"], last["count"]) == (1, 2)

    log = http.get(url).json()
    assert [one["event"] for one in log["events"]] == [
        rows[0], *rows, *rows, {"symbol": "A"}, rows[1],
    ]  # fmt: skip
    numbers = [one["sequence"] for one in log["events"]]
    assert numbers == sorted(set(numbers))
    assert (numbers[0], numbers[-1]) == (first["first"], last["last"])
    assert log["last"] == log["next"] >= last["last"]
    page = http.get(url, params={"after": numbers[1], "limit": 2}).json()
    assert [one["sequence"] for one in page["events"]] == numbers[2:4]
    assert page["next"] == numbers[3]
    part = http.get(url, params={"after": numbers[1], "through": numbers[3]}).json()
    assert [one["sequence"] for one in part["events"]] == numbers[2:4]
    for after in (last["last"], (1 << 53) - 1):
        assert http.get(url, params={"after": after}).json()["events"] == []


def test_a_key_makes_a_retry_safe(http: httpx.Client) -> None:
    url = f"/feeds/{make_feed(http, 'f.again')}/events"
    key = {"Idempotency-Key": "7c9e-1"}
    first = http.post(url, json=[{"size": 1}, {"size": 2}], headers=key).json()
    again = http.post(url, json=[{"size": 1}, {"size": 2}], headers=key).json()
    assert again == {**first, "repeated": True}
    assert len(http.get(url).json()["events"]) == 2
    for bad in ("", "a b", "x" * 257, "ä".encode()):
        answer = http.post(url, json={"size": 1}, headers={"Idempotency-Key": bad})
        problem(answer, 422, "parameters")


def test_a_publisher_need_not_wait(http: httpx.Client) -> None:
    feed = make_feed(http, "f.quick")
    answer = http.post(f"/feeds/{feed}/events?wait=received", json={"size": 1})
    assert answer.status_code == 202
    assert answer.json()["durable"] is False
    problem(http.post(f"/feeds/{feed}/events?wait=no", json={"size": 1}), 422, "parameters")
    publish(http, feed, {"size": 2})  # after the first, in order
    log = http.get(f"/feeds/{feed}/events").json()
    assert [one["event"]["size"] for one in log["events"]] == [1, 2]


@pytest.mark.parametrize(
    ("events", "index", "attribute"),
    [
        ([{"size": 1}, {"size": 1.5}], 1, "size"),
        ([{"size": 1}, {"size": 1}, {"side": "hold"}], 2, "side"),
        ([{"price": "3"}], 0, "price"),
        ([{"size": 10**30}], 0, "size"),
        ([{"size": True}], 0, "size"),
        ([{"symbol": {"a": 1}}], 0, "symbol"),
        ([{"size": 1}, {"colour": 1}], 1, None),
    ],
)
def test_a_wrong_event_is_located(
    http: httpx.Client, events: list[Any], index: int, attribute: str | None
) -> None:
    if http.get("/feeds/f.wrong").status_code == 404:
        make_feed(http, "f.wrong")
    answer = http.post("/feeds/f.wrong/events", json=events)
    assert answer.status_code == 422
    told = answer.json()
    assert told["index"] == index
    assert told.get("attribute") == attribute
    assert http.get("/feeds/f.wrong/events").json()["events"] == []  # none of them


def test_bodies_that_are_refused(http: httpx.Client) -> None:
    feed = make_feed(http, "f.bodies")
    url = f"/feeds/{feed}/events"
    problem(http.post(url, content=b""), 400, "json")
    problem(http.post(url, content=b'{"size": 1, "size": 2}'), 400, "json")
    problem(http.post(url, content=b'{"size": NaN}'), 400, "json")
    plain = {"content-type": "text/plain"}
    problem(http.post(url, content=b"{}", headers=plain), 415, "media-type")
    packed = {"content-encoding": "gzip"}
    problem(http.post(url, content=b"{}", headers=packed), 415, "encoding")
    problem(http.post("/feeds", content=b"{}", headers=plain), 415, "media-type")
    problem(http.post("/feeds/f.nowhere/events", json={"size": 1}), 404, "unknown-feed")
    problem(http.post("/feeds/bad name/events", json={"size": 1}), 422, "parameters")
    problem(http.get("/feeds/bad name"), 422, "parameters")
    assert problem(http.put("/feeds"), 405, "method")
    assert http.put("/feeds").headers["allow"] == "GET, POST"
    problem(http.get("/feeds/a/b/c"), 404, "no-such-path")


def test_a_body_is_only_read_up_to_its_limit(open_broker: RunningBroker) -> None:
    """Neither a length that is too much nor a body without a length fills the memory."""
    with httpx.Client(base_url=open_broker.url, timeout=30) as http:
        make_feed(http, "f.large")
        head = b"POST /feeds/f.large/events HTTP/1.1\r\nhost: localhost\r\n"
        declared = head + b"content-length: 99999999999\r\n\r\n"
        assert _raw(open_broker, declared).startswith(b"HTTP/1.1 413 ")
        chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
        endless = head + b"transfer-encoding: chunked\r\n\r\n" + chunk * 40
        assert _raw(open_broker, endless).startswith(b"HTTP/1.1 413 ")


def _raw(broker: RunningBroker, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", broker.port), timeout=20) as connection:

        def send() -> None:
            with contextlib.suppress(OSError):  # the server does not read on
                connection.sendall(request)

        sender = threading.Thread(target=send)
        sender.start()
        try:
            return connection.recv(65536)
        finally:
            sender.join(20)


def test_precision_under_load_is_chosen_and_shown(http: httpx.Client) -> None:
    feed = make_feed(http, "f.adaptive")
    assert http.get(f"/feeds/{feed}").json()["adaptive"] is None
    changed = http.put(f"/feeds/{feed}/adaptive", json={"threshold": 0.01, "maximum": 0.002})
    assert changed.json()["adaptive"] == {"threshold": 0.01, "step": 0.0001, "maximum": 0.002}
    assert changed.json()["rate"] == 0.0
    problem(http.put(f"/feeds/{feed}/adaptive", json={"maximum": 1}), 422, "body")
    problem(http.put(f"/feeds/{feed}/adaptive", json={"step": 0.4}), 409, "conflict")
    assert f'boxmatch_tolerated_rate{{feed="{feed}"}} 0.0' in http.get("/metrics").text
    assert http.delete(f"/feeds/{feed}/adaptive").json()["adaptive"] is None
    new = {"name": "f.rein", "schema": {"price": "float"}, "index": "rein", "adaptive": {}}
    made = http.post("/feeds", json=new)
    assert (made.status_code, made.json()["index"]) == (201, "rein")
    assert made.json()["adaptive"]["maximum"] == 0.001
    problem(http.post("/feeds", json={**new, "name": "f.x", "index": "none"}), 422, "invalid")


def test_many_subscriptions_in_one_request(http: httpx.Client) -> None:
    feed = make_feed(http, "f.many")
    base = "/subscribers/max/subscriptions"
    filters = {f"s{number}": f"price < {number}" for number in range(50)}
    made = http.post(base, json={"feed": feed, "filters": filters})
    assert (made.status_code, made.json()) == (200, {"count": 50})
    bad = {"feed": feed, "filters": {"t": "price < 1", "u": "price <"}}
    told = problem(http.post(base, json=bad), 422, "filter")
    assert "'u'" in told["detail"]
    problem(
        http.post(base, json={"feed": feed, "filters": {"a/b": "price < 1"}}), 422, "parameters"
    )
    problem(http.post(base, json={"feed": feed, "filters": {}}), 422, "body")
    assert http.get("/subscribers/max").json()["subscriptions"] == 50
    http.post(f"/feeds/{feed}/events", json={"price": 47.5}).raise_for_status()
    [notification] = http.get("/subscribers/max/notifications").json()["notifications"]
    assert sorted(notification["subscriptions"]) == ["s48", "s49"]


def test_subscriptions_are_put_listed_and_deleted(http: httpx.Client) -> None:
    feed = make_feed(http, "f.subs")
    other = make_feed(http, "f.subs2")
    base = "/subscribers/sue/subscriptions"
    for number in range(5):
        wanted = {"feed": feed if number else other, "filter": f"price < {number}"}
        assert http.put(f"{base}/s{number}", json=wanted).status_code == 200
    shown = http.get(f"{base}/s3").json()
    assert (shown["subscriber"], shown["id"], shown["filter"]) == ("sue", "s3", "price < 3")
    changed = http.put(f"{base}/s3", json={"feed": feed, "filter": {"price": {"low": 9}}}).json()
    assert changed["filter"] == {"price": {"low": 9}}
    half_open = {"price": {"low": 9, "low_open": True, "high": None}}
    changed = http.put(f"{base}/s3", json={"feed": feed, "filter": half_open}).json()
    assert changed["filter"] == half_open
    assert changed["created"] == shown["created"] <= changed["updated"]
    page = http.get(base, params={"limit": 3}).json()
    assert [one["id"] for one in page["subscriptions"]] == ["s0", "s1", "s2"]
    rest = http.get(base, params={"limit": 3, "after": page["next"]}).json()
    assert [one["id"] for one in rest["subscriptions"]] == ["s3", "s4"]
    assert rest["next"] is None
    mine = http.get(base, params={"feed": other}).json()
    assert [one["id"] for one in mine["subscriptions"]] == ["s0"]
    assert http.delete(f"{base}/s3").status_code == 204
    problem(http.delete(f"{base}/s3"), 404, "unknown-subscription")
    problem(http.get(f"{base}/s3"), 404, "unknown-subscription")
    assert http.get("/subscribers/sue").json()["subscriptions"] == 4
    assert "sue" in [
        one["subscriber"] for one in http.get("/subscribers?limit=1000").json()["subscribers"]
    ]


def test_a_filter_that_makes_no_sense_is_located(http: httpx.Client) -> None:
    make_feed(http, "f.filters")

    def put(wanted: dict[str, Any]) -> httpx.Response:
        return http.put("/subscribers/sue/subscriptions/x", json={"feed": "f.filters", **wanted})

    told = problem(put({"filter": "price < 5 AND colour = 'red'"}), 422, "filter")
    assert told["position"] == 14
    assert "colour" in told["detail"]
    assert "position" in problem(put({"filter": "price <"}), 422, "filter")
    problem(put({}), 422, "filter")
    problem(put({"filter": {"colour": 1}}), 422, "filter")
    for wrong in ({}, {"from": 1}, {"low": 1, "top": 2}, {"low": 1, "low_open": "yes"}):
        told = problem(put({"filter": {"price": wrong}}), 422, "filter")
        assert "attribute 'price': {" in told["detail"]
    problem(put({"filter": 5}), 422, "body")
    problem(put({"filter": "price < 5", "regions": {"r": {"x": 1}}}), 409, "conflict")
    problem(put({"filter": "price < 1", "feed": "f.nowhere"}), 404, "unknown-feed")
    problem(put({"filter": "price < 1 OR " * 9000 + "price < 2"}), 413, "filter-size")


def test_notifications_are_polled_from_the_cursor(http: httpx.Client) -> None:
    feed = make_feed(http, "f.poll")
    for id, text in (("cheap", "price < 10"), ("a", "symbol = 'A'")):
        http.put(f"/subscribers/pol/subscriptions/{id}", json={"feed": feed, "filter": text})
    receipt = publish(http, feed, {"price": 5, "symbol": "A"}, {"price": 50}, {"price": 6})
    told = http.get("/subscribers/pol/notifications").json()
    first, second = told["notifications"]
    assert sorted(first["subscriptions"]) == ["a", "cheap"]
    assert (first["feed"], first["event"]) == (feed, {"price": 5, "symbol": "A"})
    assert (first["sequence"], second["sequence"]) == (receipt["first"], receipt["last"])
    assert told["next"] == receipt["last"]
    assert (
        http.get("/subscribers/pol/notifications").json() == told
    )  # nothing is acknowledged by looking
    assert http.get("/subscribers/pol/notifications?limit=1").json()["next"] == receipt["first"]
    cursor = http.post("/subscribers/pol/acknowledge", json={"sequence": receipt["first"]}).json()
    assert cursor == {"cursor": receipt["first"]}
    assert http.post("/subscribers/pol/acknowledge", json={"sequence": 0}).json() == cursor
    assert [
        one["sequence"]
        for one in http.get("/subscribers/pol/notifications").json()["notifications"]
    ] == [receipt["last"]]
    late = http.get(
        "/subscribers/pol/notifications", params={"after": receipt["last"], "wait": 0.2}
    ).json()
    assert (late["notifications"], late["next"]) == ([], receipt["last"])
    for bad in ({"sequence": -1}, {"sequence": 1.5}, {"sequence": 1 << 63}, {}, {"sequence": "1"}):
        problem(http.post("/subscribers/pol/acknowledge", json=bad), 422, "body")


def test_a_poll_waits_for_the_next_notification(
    http: httpx.Client, open_broker: RunningBroker
) -> None:
    feed = make_feed(http, "f.wait")
    http.put("/subscribers/will/subscriptions/all", json={"feed": feed, "filter": "price > 0"})
    found: list[Any] = []

    def wait() -> None:
        with httpx.Client(base_url=open_broker.url, timeout=30) as other:
            found.extend(
                other.get("/subscribers/will/notifications?wait=20").json()["notifications"]
            )

    waiting = threading.Thread(target=wait)
    waiting.start()
    while http.get("/subscribers/will").json()["sessions"] == 0:
        pass
    publish(http, feed, {"price": 1})
    waiting.join(20)
    assert [one["event"] for one in found] == [{"price": 1}]


def test_dry_run_and_explain(http: httpx.Client) -> None:
    feed = make_feed(http, "f.ask")
    receipt = publish(http, feed, *({"price": price} for price in range(10)))
    result = http.post(f"/feeds/{feed}/dry-run", json={"filter": "price >= 7"}).json()
    assert (result["events"], result["matches"]) == (10, 3)
    assert result["examples"][-1]["event"] == {"price": 9}
    assert result["recent"] == []
    ask = f"/feeds/{feed}/explain"
    told = http.post(ask, json={"sequence": receipt["first"], "filter": "price > 3"}).json()
    assert told["matched"] is False
    assert told["alternatives"][0][0]["got"] == 0
    http.put("/subscribers/ask/subscriptions/s", json={"feed": feed, "filter": "price > 3"})
    stored = {"event": {"price": 4}, "subscriber": "ask", "subscription": "s"}
    assert http.post(ask, json=stored).json()["matched"] is True
    for bad in ({}, {"event": {}}, {**stored, "sequence": 1}, {**stored, "filter": "price > 1"}):
        problem(http.post(ask, json=bad), 422, "body")
    deep: Any = 1
    for _ in range(300):
        deep = [deep]
    problem(http.post(ask, json={"event": {"price": deep}, "filter": "price > 1"}), 400, "json")
    problem(http.post(ask, json={"event": {}, "filter": {"price": deep}}), 400, "json")
    half = {"event": {}, "subscriber": "ask", "filter": "price > 1"}
    problem(http.post(ask, json=half), 422, "body")
    unknown = {**stored, "subscription": "none"}
    problem(http.post(ask, json=unknown), 404, "unknown-subscription")
    unknown = {"sequence": receipt["last"] + 1_000_000, "filter": "price > 3"}
    problem(http.post(ask, json=unknown), 404, "unknown-event")
    problem(http.post(f"/feeds/{feed}/dry-run", json={"filter": "price >"}), 422, "filter")
    problem(http.post(ask, json={"event": {"price": "x"}, "filter": "price > 1"}), 422, "value")


def test_a_dry_run_shows_boxes_and_explains_recent_events(http: httpx.Client) -> None:
    feed = make_feed(http, "f.recent")
    receipt = publish(http, feed, *({"price": price, "size": 1} for price in range(60)))

    def ask(filter: Any, **more: Any) -> dict[str, Any]:
        answer = http.post(f"/feeds/{feed}/dry-run", json={"filter": filter, **more})
        assert answer.status_code == 200, answer.text
        told: dict[str, Any] = answer.json()
        return told

    filter = "price >= 58 AND side = 'buy' OR price = 57"
    told = ask(filter, recent=4)
    assert told["boxes"] == [
        [{"attribute": "price", "wanted": "price = 57", "cost": "box"}],
        [
            {"attribute": "price", "wanted": "price >= 58", "cost": "box"},
            {"attribute": "side", "wanted": "side = 'buy'", "cost": "box"},
        ],
    ]
    assert (told["residual"], told["cost"], told["warning"]) == ([], "box", None)
    assert told["box_count"] == 2
    last = receipt["last"]
    assert [one["sequence"] for one in told["recent"]] == [last, last - 1, last - 2, last - 3]
    assert [one["matches"] for one in told["recent"]] == [False, False, True, False]
    assert told["recent"][0]["event"] == {"price": 59, "size": 1}
    assert told["recent"][2]["predicates"] == [
        {
            "attribute": "price",
            "wanted": "price = 57",
            "got": 57,
            "satisfied": True,
            "residual": False,
        }
    ]
    for one in told["recent"]:
        why = {"sequence": one["sequence"], "filter": filter}
        explained = http.post(f"/feeds/{feed}/explain", json=why).json()
        assert one["matches"] == explained["matched"]
        assert one["predicates"] in explained["alternatives"]
    assert len(ask("price > 5", recent=50)["recent"]) == 50
    for given, boxes in (("FALSE", []), ("TRUE", [[]]), ({}, [[]])):
        told = ask(given, recent=1)
        assert told["boxes"] == boxes
        assert told["recent"][0]["matches"] == bool(boxes)
        assert told["recent"][0]["predicates"] == []
    told = ask(" OR ".join(f"size = {2 * number}" for number in range(100)))
    assert (len(told["boxes"]), told["box_count"], told["recent"]) == (64, 100, [])
    assert ask("price > 5", recent=50)["recent"]
    for recent in (-1, 51, "5", 1.5, None):
        body = {"filter": "price > 5", "recent": recent}
        problem(http.post(f"/feeds/{feed}/dry-run", json=body), 422, "body")
    empty = make_feed(http, "f.recent.empty")
    body = {"filter": "price > 5", "recent": 5}
    assert http.post(f"/feeds/{empty}/dry-run", json=body).json()["recent"] == []


def test_recent_events_that_are_large_are_not_all_shown(http: httpx.Client) -> None:
    feed = make_feed(http, "f.recent.large")
    for price in range(4):
        publish(http, feed, {"price": price, "symbol": "x" * 700_000})
    ask = {"filter": "price >= 0", "recent": 4}
    told = http.post(f"/feeds/{feed}/dry-run", json=ask).json()
    assert [one["event"]["price"] for one in told["recent"]] == [3]


def test_a_state_feed_tells_of_changes(http: httpx.Client) -> None:
    spaces = {"plane": {"x": "float", "y": "float"}}
    made = http.post("/feeds", json={"name": "f.state", "kind": "state", "spaces": spaces})
    assert made.json()["spaces"] == spaces
    region = {"x": [0, 10], "y": {"low": 0, "high": 10, "high_open": True}}
    wanted = {"feed": "f.state", "region": region}
    put = http.put("/subscribers/stan/subscriptions/box", json=wanted)
    assert put.status_code == 200, put.text
    url = "/feeds/f.state/publications/car"
    assert http.put(url, json={"region": {"x": 5, "y": 5}}).json()["count"] == 1
    assert http.get(url).json()["regions"] == {"region": {"x": 5, "y": 5}}
    assert http.patch(url, json={"region": {"y": 10}}).json()["count"] == 1
    assert http.patch(url, json={"region": {"y": 9}}).json()["count"] == 1
    assert http.delete(url).json()["count"] == 1
    changes = [
        one["change"] for one in http.get("/subscribers/stan/notifications").json()["notifications"]
    ]
    assert [one["kind"] for one in changes] == ["enter", "leave", "enter", "deleted"]
    assert {one["publication"] for one in changes} == {"car"}
    problem(http.get(url), 404, "unknown-publication")
    problem(http.patch(url, json={"region": {"x": 1}}), 404, "unknown-publication")
    for bad in (
        {},
        {"region": {"x": [1, 2, 3]}},
        {"region": {"x": {"low": 1, "top": 2}}},
        {"region": {"x": {"low": 1, "low_open": "yes"}}},
        {"region": {"x": 1}, "regions": {"r": {"x": 1}}},
        {"region": {"x": 1, "y": 1}, "ttl": -1},
        {"region": {"x": 1, "y": 1}, "ttl": "soon"},
    ):
        problem(http.put(url, json=bad), 422, "body")
    problem(http.put(url, json={"region": {"z": 1}}), 422, "invalid")
    problem(http.put(url, json={"region": {"x": {}}}), 422, "invalid")
    problem(http.put(url, json={"region": {"x": [2, 1]}}), 422, "invalid")
    problem(http.post("/feeds/f.state/events", json={"x": 1}), 409, "conflict")
    make_feed(http, "f.nostate")
    other = "/feeds/f.nostate/publications/car"
    problem(http.put(other, json={"region": {"x": 1}}), 409, "conflict")


def test_a_webhook_is_put_and_its_secret_shown_once(http: httpx.Client) -> None:
    url = "/subscribers/wes/webhook"
    problem(http.get(url), 404, "unknown-webhook")
    problem(http.delete(url), 404, "unknown-webhook")
    made = http.put(url, json={"url": "https://example.com/hook", "paused": True})
    assert made.status_code == 200, made.text
    assert len(made.json()["secret"]) > 30
    shown = http.get(url).json()
    assert (shown["url"], shown["paused"]) == ("https://example.com/hook", True)
    assert "secret" not in shown
    assert "secret" not in http.get("/subscribers/wes").json()["webhook"]
    own = {"url": "https://example.com/hook", "secret": "s" * 20, "paused": True}
    assert http.put(url, json=own).json()["secret"] is None
    for bad in ({}, {**own, "secret": "short"}, {**own, "timeout": 0}, {**own, "attempts": 1000}):
        problem(http.put(url, json=bad), 422, "body")
    problem(http.put(url, json={**own, "url": "ftp://example.com"}), 422, "webhook")
    problem(http.put(url, json={**own, "url": "http://127.0.0.1/hook"}), 422, "webhook")
    assert http.get("/subscribers/wes/dead-letters").json() == {"dead_letters": [], "next": None}
    assert http.post("/subscribers/wes/dead-letters/replay", json={}).json() == {"replayed": 0}
    assert http.delete("/subscribers/wes/dead-letters?number=1&number=2").json() == {"discarded": 0}
    assert http.delete(url).status_code == 204
    problem(http.get(url), 404, "unknown-webhook")


@pytest.mark.parametrize(
    "query", ["after=-1", "after=x", f"after={1 << 53}", "limit=0", "limit=100001", "wait=1e9"]
)
def test_parameters_out_of_range(http: httpx.Client, query: str) -> None:
    told = problem(http.get(f"/subscribers/pol/notifications?{query}"), 422, "parameters")
    assert told["errors"][0]["in"] == f"query.{query.partition('=')[0]}"


def test_only_this_machine_may_call_a_broker_without_keys(http: httpx.Client) -> None:
    problem(http.get("/feeds", headers={"host": "evil.example"}), 403, "forbidden")
    foreign = {"origin": "https://evil.example"}
    problem(http.get("/feeds", headers=foreign), 403, "forbidden")
    assert http.get("/feeds", headers={"origin": "http://localhost:9"}).status_code == 200


def test_health_and_metrics(http: httpx.Client) -> None:
    assert http.get("/healthz").json() == {"status": "ok"}
    assert http.get("/readyz").json() == {"status": "ready"}
    measured = http.get("/metrics")
    assert measured.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert "boxmatch_events_received_total" in measured.text


def test_answers_end_with_a_newline(http: httpx.Client, open_broker: RunningBroker) -> None:
    feed = make_feed(http, "newline")
    path = "/subscribers/newline/notifications"
    for answer in (
        http.get(f"/feeds/{feed}"),
        http.get("/openapi.json"),
        http.post(f"/feeds/{feed}/events", json={"price": 1}),
        http.post(f"/feeds/{feed}/events", json={"price": "dear"}),
        http.post(f"/feeds/{feed}/events", content=b"{"),
        http.get("/feeds/none"),
        http.get("/nowhere"),
        http.get(f"/feeds/{feed}/events?after=-1"),
        http.get(path),
        http.get(path, params={"format": "cloudevents"}),
    ):
        answer.json()
        assert answer.content.endswith((b"}\n", b"]\n"))
        assert int(answer.headers["content-length"]) == len(answer.content)
    head, _, body = _raw(open_broker, b"nonsense\r\n\r\n").partition(b"\r\n\r\n")
    assert body.endswith(b"}\n")
    assert f"content-length: {len(body)}".encode() in head
