"""The limits of a key hold at a real server, everywhere that they should, and for it alone."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker
from hostile_client import ARROW, PLACES, TRADES, arrow_stream
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from boxmatch.broker.access import Keys

LIMITED: dict[str, dict[str, Any]] = {
    "small bodies": {"body_bytes": 2_000},
    "small filters": {"filter_bytes": 50},
    "few subscriptions": {"subscriptions": 2},
    "small batches": {"events_per_request": 3},
    "few events": {"events_per_second": 5},
    "no events": {"events_per_second": 0},
    "few requests": {"requests_per_second": 3},
    "free": {},
}


class Limited:
    """A broker, and somebody with each of the limits. All may publish, read and subscribe."""

    def __init__(self, broker: RunningBroker, keys: dict[str, str]) -> None:
        self.broker = broker
        self.keys = keys
        self.http = httpx.Client(base_url=broker.url, timeout=120)

    def headers(self, label: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.keys[label]}"}

    def call(self, label: str, method: str, path: str, **options: Any) -> httpx.Response:
        headers = {**self.headers(label), **options.pop("headers", {})}
        return self.http.request(method, path, headers=headers, **options)

    def publish(self, label: str, body: Any) -> httpx.Response:
        return self.call(label, "POST", "/feeds/trades/events", json=body)


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Limited]:
    data = tmp_path_factory.mktemp("limited") / "data"
    data.mkdir()
    everything = {"publish": ["*"], "read": ["*"], "subscribe": ["*"]}
    with Keys.open(data) as keys:
        made = {
            label: keys.create(label, limits=limits, **everything)[1]
            for label, limits in LIMITED.items()
        }
        made["admin"] = keys.create("admin", admin=True)[1]
    with RunningBroker(data) as broker:
        limited = Limited(broker, made)
        with contextlib.closing(limited.http):
            for feed in (
                {"name": "trades", "schema": TRADES},
                {"name": "places", "kind": "state", "spaces": PLACES},
            ):
                assert limited.call("admin", "POST", "/feeds", json=feed).status_code == 201
            yield limited


def told(answer: httpx.Response) -> tuple[int, str]:
    kind: str = answer.json()["type"].removeprefix("urn:boxmatch:problem:")
    return answer.status_code, kind


def test_bodies(limited: Limited) -> None:
    event = {"symbol": "x" * 3_000}
    assert limited.publish("free", event).status_code == 200
    assert told(limited.publish("small bodies", event)) == (413, "body-size")
    assert limited.publish("small bodies", {"symbol": "x"}).status_code == 200

    def pieces() -> Iterator[bytes]:
        yield b'{"symbol":"'
        for _ in range(100):
            yield b"x" * 100
        yield b'"}'

    chunked = limited.call("small bodies", "POST", "/feeds/trades/events", content=pieces())
    assert told(chunked) == (413, "body-size")
    for method, path in (
        ("PUT", "/subscribers/a/subscriptions/s"),
        ("POST", "/subscribers/a/subscriptions"),
        ("POST", "/feeds/trades/dry-run"),
        ("POST", "/feeds/trades/explain"),
        ("POST", "/feeds/trades/trace"),
        ("PUT", "/feeds/places/publications/p"),
        ("PATCH", "/feeds/places/publications/p"),
        ("PUT", "/subscribers/a/webhook"),
        ("POST", "/subscribers/a/acknowledge"),
        ("POST", "/subscribers/a/dead-letters/replay"),
    ):
        answer = limited.call("small bodies", method, path, json={"x": "y" * 3_000})
        assert told(answer) == (413, "body-size"), path


def test_filters(limited: Limited) -> None:
    long = "price < 1 OR price > 2 OR price = 1.5 OR price = 1.75"
    form = {"symbol": ["a" * 60]}
    for filter in (long, form):
        wanted = {"feed": "trades", "filter": filter}
        many = {"feed": "trades", "filters": {"s": filter}}
        question = {"event": {}, "filter": filter}
        for method, path, body in (
            ("PUT", "/subscribers/fil/subscriptions/s", wanted),
            ("POST", "/subscribers/fil/subscriptions", many),
            ("POST", "/feeds/trades/dry-run", {"filter": filter}),
            ("POST", "/feeds/trades/explain", question),
        ):
            assert limited.call("free", method, path, json=body).status_code == 200
            answer = limited.call("small filters", method, path, json=body)
            assert told(answer) == (413, "filter-size"), path


@pytest.mark.parametrize(
    "path", ["/feeds/places/publications/p", "/subscribers/reg/subscriptions/s"]
)
def test_filters_on_regions(limited: Limited, path: str) -> None:
    long = "region AND " * 10 + "region"
    name = "region_filter" if "subscribers" in path else "filter"
    body = {"region": {"x": 1}, name: long, **({"feed": "places"} if "subscribers" in path else {})}
    assert limited.call("free", "PUT", path, json=body).status_code == 200
    assert told(limited.call("small filters", "PUT", path, json=body)) == (413, "filter-size")


def test_subscriptions(limited: Limited) -> None:
    wanted = {"feed": "trades", "filter": "price < 1"}

    def put(label: str, id: str) -> httpx.Response:
        return limited.call(label, "PUT", f"/subscribers/sam/subscriptions/{id}", json=wanted)

    assert [put("few subscriptions", id).status_code for id in "aba"] == [200, 200, 200]
    assert told(put("few subscriptions", "c")) == (403, "limit")

    def put_many(ids: str) -> httpx.Response:
        many = {"feed": "trades", "filters": dict.fromkeys(ids, "price < 2")}
        return limited.call(
            "few subscriptions", "POST", "/subscribers/sam/subscriptions", json=many
        )

    assert told(put_many("de")) == (403, "limit")
    assert told(put_many("bd")) == (403, "limit")
    assert put_many("ab").json() == {"count": 2}  # in the place of those that are there
    assert limited.call("free", "DELETE", "/subscribers/sam/subscriptions/a").status_code == 204
    assert put("few subscriptions", "c").status_code == 200
    assert put("free", "d").status_code == 200
    listed = limited.call("free", "GET", "/subscribers/sam/subscriptions").json()["subscriptions"]
    assert [one["id"] for one in listed] == ["b", "c", "d"]


@pytest.mark.parametrize("kind", ["json", "ndjson", "arrow"])
def test_batches(limited: Limited, kind: str) -> None:
    import pyarrow as pa

    rows = [{"price": 1.0}] * 4
    body, media_type = {
        "json": (json.dumps(rows).encode(), "application/json"),
        "ndjson": (b"\n".join(json.dumps(row).encode() for row in rows), "application/x-ndjson"),
        "arrow": (arrow_stream(pa.Table.from_pylist(rows)), ARROW),
    }[kind]
    for label, status in (("free", 200), ("small batches", 413)):
        answer = limited.call(
            label, "POST", "/feeds/trades/events", content=body,
            headers={"content-type": media_type},
        )  # fmt: skip
        assert answer.status_code == status


def test_events_per_second(limited: Limited) -> None:
    assert limited.publish("few events", [{"price": 1}] * 5).status_code == 200
    answer = limited.publish("few events", [{"price": 1}] * 5)
    assert told(answer) == (429, "rate-limit")
    assert 1 <= int(answer.headers["retry-after"]) <= 2
    region = {"region": {"x": 1, "y": 1}}
    put = limited.call("few events", "PUT", "/feeds/places/publications/q", json=region)
    assert told(put) == (429, "rate-limit")
    assert limited.publish("free", [{"price": 1}] * 50).status_code == 200
    assert told(limited.publish("no events", {"price": 1})) == (403, "limit")
    trace = {"event": {"price": 1}, "publish": True}
    traced = limited.call("no events", "POST", "/feeds/trades/trace", json=trace)
    assert told(traced) == (403, "limit")
    time.sleep(answer.json()["retry_after"] + 0.3)
    assert limited.publish("few events", [{"price": 1}] * 5).status_code == 200


def test_requests_per_second(limited: Limited) -> None:
    """Also those that are refused for another reason count, and those for a WebSocket."""
    statuses = [limited.call("few requests", "GET", "/subscribers").status_code for _ in range(20)]
    assert statuses[:3] == [403, 403, 403]
    assert 429 in statuses
    while True:
        answer = limited.call("few requests", "GET", "/feeds")
        if answer.status_code == 429:
            break
    assert told(answer) == (429, "rate-limit")
    assert int(answer.headers["retry-after"]) >= 1
    url = f"{limited.broker.socket_url}/subscribers/req/notifications/socket"
    refused = 0
    for _ in range(8):
        try:
            with connect(url, additional_headers=limited.headers("few requests")):
                pass
        except InvalidStatus as error:
            refused += error.response.status_code == 429
    assert refused > 0
    assert limited.call("free", "GET", "/feeds").status_code == 200
    assert limited.http.get("/healthz").status_code == 200


def test_the_limits_of_the_broker_hold_for_all(tmp_path: Path) -> None:
    with (
        RunningBroker(tmp_path / "data", ["--body-mb", "0.01"]) as broker,
        httpx.Client(base_url=broker.url) as http,
    ):
        assert http.post("/feeds", json={"name": "f", "schema": TRADES}).status_code == 201
        answer = http.post("/feeds/f/events", json={"symbol": "x" * 20_000})
        assert answer.status_code == 413
