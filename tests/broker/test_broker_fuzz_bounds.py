"""What one request may cost all others: time in which nobody is served, and memory."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from broker_server import RunningBroker
from hostile_client import TRADES, Siege, check_answer, make_feeds, memory_mib

pytestmark = pytest.mark.slow

MIB = 1 << 20
LARGE = {"symbol": "big", "side": "buy", "remark": "x" * MIB}
COUNT = 80


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with RunningBroker(tmp_path_factory.mktemp("bounds") / "data") as running:
        with httpx.Client(base_url=running.url, timeout=30) as http:
            make_feeds(http)
            feed = {"name": "large", "schema": TRADES, "unknown": "carry"}
            assert http.post("/feeds", json=feed).status_code == 201
            wanted = {"feed": "large", "filter": "symbol = 'big'"}
            for subscriber in ("lara", "lars"):
                answer = http.put(f"/subscribers/{subscriber}/subscriptions/s", json=wanted)
                assert answer.status_code == 200
            publish_large(http)
        yield running


@pytest.fixture
def http(broker: RunningBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=30) as client:
        yield client


def publish_large(http: httpx.Client) -> None:
    body = json.dumps([LARGE] * 10)
    for _ in range(COUNT // 10):
        kind = {"content-type": "application/json"}
        answer = http.post("/feeds/large/events", content=body, headers=kind)
        assert answer.status_code == 200, answer.text


@contextlib.contextmanager
def watched(broker: RunningBroker) -> Iterator[list[float]]:
    """Afterwards: by how many MiB it grew, and the longest that it kept somebody waiting."""
    before = memory_mib(broker.pid)
    found = [0.0, 0.0]
    stop = threading.Event()

    def watch() -> None:
        with httpx.Client(base_url=broker.url, timeout=60) as client:
            while not stop.wait(0.02):
                began = time.monotonic()
                client.get("/healthz")
                found[1] = max(found[1], time.monotonic() - began)
                found[0] = max(found[0], memory_mib(broker.pid) - before)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield found
    finally:
        stop.set()
        watching.join()


FILTERS = {
    "alternatives": " AND ".join(f"(price < {n} OR size > {n})" for n in range(1_800)),
    "chain": "price < 1 OR " * 4_600 + "ok",
    "sum": "size = " + "1+" * 30_000 + "1",
}


@pytest.mark.parametrize("text", FILTERS.values(), ids=FILTERS.keys())
def test_a_filter_does_not_keep_others_waiting(
    broker: RunningBroker, http: httpx.Client, text: str
) -> None:
    assert len(text) <= 64 * 1024
    with watched(broker) as found:
        answer = http.post("/feeds/trades/dry-run", json={"filter": text})
    check_answer(answer)
    assert found[1] < 0.5


def test_an_answer_with_notifications_is_not_much_larger_than_its_limit(http: httpx.Client) -> None:
    answer = http.get("/subscribers/lara/notifications", params={"limit": 1_000})
    assert len(answer.content) < 20 * MIB
    assert answer.json()["next"] == answer.json()["notifications"][-1]["sequence"]


def test_an_answer_with_events_is_not_much_larger_than_its_limit(http: httpx.Client) -> None:
    answer = http.get("/feeds/large/events", params={"limit": 1_000})
    assert answer.json()["next"] == answer.json()["events"][-1]["sequence"]
    assert len(answer.content) < 20 * MIB


def test_a_socket_that_nobody_reads_holds_little(broker: RunningBroker, http: httpx.Client) -> None:
    request = (
        b"GET /subscribers/lars/notifications/socket HTTP/1.1\r\nhost: localhost\r\n"
        b"upgrade: websocket\r\n"
        b"connection: upgrade\r\nsec-websocket-version: 13\r\n"
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    last = http.get("/feeds/large").json()["last_sequence"]
    http.post("/subscribers/lars/acknowledge", json={"sequence": last})
    publish_large(http)  # once without a reader, so that caches are full
    last = http.get("/feeds/large").json()["last_sequence"]
    http.post("/subscribers/lars/acknowledge", json={"sequence": last})
    before = memory_mib(broker.pid)
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
        connection.sendall(request)
        connection.recv(100)
        publish_large(http)
        publish_large(http)
        grown = memory_mib(broker.pid) - before
    assert grown < COUNT


def test_bodies_of_very_many_values(http: httpx.Client, broker: RunningBroker) -> None:
    """Megabytes of brackets become gigabytes of objects if nobody stops them."""
    before = memory_mib(broker.pid)
    for body in (b"[" + b"[]," * 1_000_000 + b"[]]", b"[" + b"{}," * 1_000_000 + b"{}]"):
        answer = http.post("/feeds/trades/events", content=body)
        assert check_answer(answer).status_code == 413
    assert memory_mib(broker.pid) - before < 200


def test_many_large_bodies_at_once(http: httpx.Client, broker: RunningBroker) -> None:
    before = memory_mib(broker.pid)
    head = b"POST /feeds/trades/events HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    with contextlib.ExitStack() as stack:
        for _ in range(20):
            address = ("127.0.0.1", broker.port)
            connection = stack.enter_context(socket.create_connection(address, timeout=0.5))
            with contextlib.suppress(OSError):
                connection.sendall(head % (15 * MIB) + b" " * (14 * MIB))
        grown = memory_mib(broker.pid) - before
        assert http.get("/healthz").status_code == 200
    assert grown < 130


def test_lines_of_nothing(http: httpx.Client, broker: RunningBroker) -> None:
    kind = {"content-type": "application/x-ndjson"}
    with watched(broker) as found:
        answer = http.post("/feeds/trades/events", content=b"\n" * (15 * MIB), headers=kind)
    assert check_answer(answer).status_code == 413
    assert found[0] < 100


def test_afterwards(broker: RunningBroker) -> None:
    Siege(broker).check()
