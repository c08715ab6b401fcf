"""Hostile bytes on the wire: what is no HTTP, what is a trick, and what never ends.

The server has little patience here, so that what takes minutes with the defaults takes moments.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from hostile_client import (
    ImpatientBroker,
    Siege,
    check_answer,
    exchange,
    make_feeds,
    memory_mib,
    status_of,
)
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

HEAD = b"POST /feeds/trades/events HTTP/1.1\r\nhost: localhost\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
UPGRADE = b"host: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
SOCKET = UPGRADE + b"sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
MOST_SECONDS = 6.0
"""Timeouts is 0.4 s, the look at the clock every 0.1 s and the farewell 1 s; the rest is for a
machine that is busy."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImpatientBroker]:
    with ImpatientBroker(tmp_path_factory.mktemp("wire") / "data") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def siege(broker: ImpatientBroker) -> Siege:
    return Siege(broker)


@pytest.fixture
def http(broker: ImpatientBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=10) as client:
        make_feeds(client)
        yield client


NONSENSE = {
    "nothing": b"\r\n\r\n",
    "zeros": bytes(1000),
    "noise": bytes(range(256)) * 8,
    "tls": bytes.fromhex("160301020001fc0303") + bytes(500),
    "http 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "http 3": b"GET /healthz HTTP/3.0\r\n\r\n",
    "version": b"GET /healthz HTTP/1.1.1\r\n\r\n",
    "no method": b" /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no such method": b"FETCH /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "small method": b"get /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "no colon": b"GET /healthz HTTP/1.1\r\nhost localhost\r\n\r\n",
    "space in name": b"GET /healthz HTTP/1.1\r\nhost : localhost\r\n\r\n",
    "zero in value": b"GET /healthz HTTP/1.1\r\nhost: local\x00host\r\n\r\n",
    "zero in path": b"GET /heal\x00thz HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "delete in value": HEAD + b"idempotency-key: \x7f\r\ncontent-length: 2\r\n\r\n{}",
    "folded": b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n folded: yes\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
    "length and chunks": HEAD + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "negative length": HEAD + b"content-length: -2\r\n\r\n{}",
    "length with plus": HEAD + b"content-length: +2\r\n\r\n{}",
    "length in hex": HEAD + b"content-length: 0x2\r\n\r\n{}",
    "huge length": HEAD + b"content-length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "length is text": HEAD + b"content-length: \xb2\r\n\r\n{}",
    "chunk size": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "chunk size that was not asked for": HEAD
    + b"expect: 100-continue\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "huge chunk": CHUNKED + b"f" * 40 + b"\r\n{}",
    "negative chunk": CHUNKED + b"-2\r\n{}\r\n0\r\n\r\n",
    "chunk is longer": CHUNKED + b"1\r\n{}\r\n0\r\n\r\n",
    "encoding twice": HEAD + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "encoding unknown": HEAD + b"transfer-encoding: gzip\r\n\r\n{}",
    "connect": b"CONNECT example.com:443 HTTP/1.1\r\nhost: example.com\r\n\r\n",
    "trace": b"TRACE / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    "options *": b"OPTIONS * HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    "proxy": b"GET http://example.com/x HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n",
    "upgrade": b"GET /feeds HTTP/1.1\r\nhost: a\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n",
    "bare socket": b"GET /subscribers/a/notifications/socket HTTP/1.1\r\n" + UPGRADE + b"\r\n",
    "socket elsewhere": b"GET /feeds HTTP/1.1\r\n" + SOCKET + b"\r\n",
    "socket with a body": b"POST /feeds HTTP/1.1\r\n" + SOCKET + b"content-length: 2\r\n\r\n{}",
    "socket with headers": b"GET /feeds HTTP/1.1\r\n" + SOCKET + b"a: b\r\n" * 200 + b"\r\n",
    "long url": b"GET /" + b"a" * 60_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
}  # fmt: skip


@pytest.mark.parametrize("raw", NONSENSE.values(), ids=NONSENSE.keys())
def test_nonsense_is_refused(broker: ImpatientBroker, raw: bytes) -> None:
    began = time.monotonic()
    status = status_of(exchange(broker.port, raw, seconds=2 * MOST_SECONDS))
    assert status == 0 or 400 <= status < 500
    assert time.monotonic() - began < MOST_SECONDS


def test_nonsense_is_refused_with_a_problem(broker: ImpatientBroker) -> None:
    answer = exchange(broker.port, NONSENSE["noise"], seconds=MOST_SECONDS)
    assert b"content-type: application/problem+json" in answer


def run_noise(broker: ImpatientBroker, examples: int) -> None:
    parts = st.sampled_from(
        [b"GET ", b"POST ", b"/feeds", b"/feeds/trades/events", b" HTTP/1.1", b"\r\n", b"\r\n\r\n",
         b"\n", b"host: localhost", b"host: [", b"content-length: 5", b"transfer-encoding: chunked",
         b"expect: 100-continue", b"connection: close", b"0\r\n\r\n", b"5\r\nabcde\r\n", b"{}",
         b"\x00", b"authorization: Bearer x", b"%00", b"?a=%ff", b"a: " + b"x" * 2000]
    )  # fmt: skip

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(parts | st.binary(max_size=8), max_size=12).map(b"".join))
    def send(raw: bytes) -> None:
        with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(65536):
                    answer += piece
            # Also of several requests in a row, none may end in a 5xx.
            assert b"HTTP/1.1 5" not in answer

    send()


def test_noise(broker: ImpatientBroker) -> None:
    run_noise(broker, 100)


@pytest.mark.slow
def test_noise_many_times(broker: ImpatientBroker) -> None:
    run_noise(broker, 5_000)


# Names and paths


@pytest.mark.parametrize(
    "path",
    [
        "/../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/docs/..%2f..%2fapp.py",
        "/docs/%2e%2e/app.py",
        "/docs//etc/passwd", "/feeds/../feeds", "/feeds/..%2f", "/feeds/%2e%2e", "/feeds/.",
        "/feeds/%00", "/feeds/trades%00", "/feeds/trades%0a",
        "/feeds/trades%0d%0aset-cookie:%20a=b",
        "/feeds/trades/", "//feeds", "/feeds//events", "/FEEDS",
        "/feeds/%e2%98%83", "/feeds/%ff%fe", "/feeds/%", "/feeds/%zz", "/feeds/%u0041",
        "/feeds/trades;x=1", "/feeds/trades%20", "/feeds/%20trades", "/feeds/-trades", "/feeds/*",
        "/feeds/" + "a" * 129, "/feeds/" + "a" * 5000, "/feeds/" + "%41" * 2000,
        "/feeds/trades%ef%bc%8fevents", "/feeds/tr%c3%a4des", "/feeds/%F0%9F%98%80",
        "/subscribers/a%2f..%2fb/notifications", "/subscribers/%00/notifications",
        "/subscribers/a/subscriptions/..",
        "/subscribers/a/../b",
        "/subscribers/a%0d%0a/notifications/stream", "/subscribers/a%00/notifications/socket",
    ],
)  # fmt: skip
def test_path_tricks(broker: ImpatientBroker, http: httpx.Client, path: str) -> None:
    """As they are, without a client that would put them in order."""
    for method in (b"GET", b"PUT", b"DELETE", b"POST"):
        head = method + b" " + path.encode() + b" HTTP/1.1\r\nhost: localhost\r\n"
        raw = exchange(broker.port, head + b"content-length: 2\r\nconnection: close\r\n\r\n{}")
        assert status_of(raw) in (400, 404, 405, 422), (method, path, raw[:300])
        headers, _, body = raw.partition(b"\r\n\r\n")
        assert b"set-cookie" not in headers.lower()
        assert b"root:" not in body
    assert check_answer(http.get("/feeds/trades")).status_code == 200  # nothing was dropped


@pytest.mark.parametrize(
    "header",
    [
        b"host: [", b"host: [::1", b"host: \xff", b"host: a b", b"host: localhost:99999999",
        b"host:", b"host: localhost\r\nhost: evil.example", b"host: localhost/..",
        b"host: user@localhost",
        b"origin: null", b"origin: [", b"origin: http://[", b"origin: http://localhost.evil.example",
        b"authorization: ", b"authorization: Bearer", b"authorization: Bearer \xff",
        b"authorization: Basic YTpi", b"authorization: Bearer " + b"x" * 8000,
        b"last-event-id: x", b"last-event-id: 99999999999999999999", b"last-event-id: -1",
        b"content-type: \xff", b"accept: \xff", b"cookie: " + b"a=b;" * 2000, b"range: bytes=0-",
        b"x-forwarded-for: 127.0.0.1", b"x-forwarded-host: evil", b"x-http-method-override: DELETE",
    ],
)  # fmt: skip
def test_header_tricks(broker: ImpatientBroker, header: bytes) -> None:
    host = b"" if header.startswith(b"host") else b"host: localhost\r\n"
    for line in (
        b"GET /feeds",
        b"GET /nowhere",
        b"PUT /feeds",
        b"GET /subscribers/a/notifications",
    ):
        raw = exchange(
            broker.port, line + b" HTTP/1.1\r\n" + host + header + b"\r\nconnection: close\r\n\r\n"
        )
        assert status_of(raw) in (200, 400, 401, 403, 404, 405, 422), raw[:300]
        assert b"evil" not in raw.partition(b"\r\n\r\n")[0]


# What never ends


def drip(head: bytes, piece: bytes, port: int) -> tuple[bytes, float]:
    """Send a head, and then a piece from time to time, until the server has had enough."""
    began = time.monotonic()
    answer = exchange(port, head, *[piece] * 400, gap=0.03, seconds=MOST_SECONDS)
    return answer, time.monotonic() - began


SLOW = {
    "request line": (b"G", b"E"),
    "empty lines": (b"\r\n", b"\r\n"),
    "path": (b"GET /", b"a"),
    "header name": (b"GET /healthz HTTP/1.1\r\n", b"a"),
    "headers": (b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n", b"a: b\r\n"),
    "body": (HEAD + b"content-length: 1000\r\n\r\n", b" "),
    "chunks": (CHUNKED, b"1\r\n \r\n"),
    "chunk size": (CHUNKED, b"0"),
    "chunk extension": (CHUNKED + b"1;", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "silence": (HEAD + b"content-length: 10\r\n\r\n", b""),
    "body of another route": (
        b"PUT /subscribers/a/webhook HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n",
        b" ",
    ),
    "body of nobody": (
        b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n", b" ",
    ),
    "second request": (
        b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n", b"a: b\r\n",
    ),
    "websocket": (
        b"GET /subscribers/a/notifications/socket HTTP/1.1\r\n" + UPGRADE, b"a: b\r\n",
    ),
}  # fmt: skip


def test_what_comes_byte_by_byte_is_cut(broker: ImpatientBroker) -> None:
    """All at once, since each of them takes its time."""
    with ThreadPoolExecutor(len(SLOW)) as pool:
        ended = pool.map(lambda parts: drip(*parts, broker.port), SLOW.values())
        found = dict(zip(SLOW, ended, strict=True))
    assert [name for name, (answer, _) in found.items() if b"<open>" in answer] == []
    assert [name for name, (_, took) in found.items() if took >= MOST_SECONDS] == []
    assert [name for name, (answer, _) in found.items() if b"HTTP/1.1 5" in answer] == []


def test_many_slow_clients_do_not_keep_others_out(
    broker: ImpatientBroker, http: httpx.Client
) -> None:
    with contextlib.ExitStack() as stack:
        for number in range(80):
            slow = socket.create_connection(("127.0.0.1", broker.port), timeout=5)
            stack.enter_context(slow)
            slow.sendall(b"GET /" if number % 2 else HEAD + b"content-length: 10\r\n\r\n{")
        answer = http.post("/feeds/trades/events", json={"symbol": "quick"})
        assert answer.status_code == 200
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:  # more than the server takes at a time is fine afterwards
        with contextlib.suppress(httpx.HTTPError):
            if http.get("/healthz").status_code == 200:
                return
    pytest.fail("slow clients keep their places")


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /feeds HTTP/1.1\r\n" + SOCKET + b"content-length: 2\r\n\r\n{}",
        b"GET /subscribers/a/notifications/socket HTTP/1.1\r\n"
        + SOCKET
        + b"a: b\r\n" * 200
        + b"\r\n",
        b"GET /subscribers/a/notifications/socket HTTP/1.1\r\n" + SOCKET + b"\r\n",
    ],
    ids=["with a body", "with many headers", "without a sign of life"],
)
def test_many_sockets_do_not_keep_their_places(broker: ImpatientBroker, raw: bytes) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(120):  # more than there are places
            held = socket.create_connection(("127.0.0.1", broker.port), timeout=5)
            stack.enter_context(held)
            held.sendall(raw)
        deadline = time.monotonic() + MOST_SECONDS
        answered = False
        while not answered and time.monotonic() < deadline:
            with contextlib.suppress(httpx.HTTPError):
                answered = httpx.get(broker.url + "/healthz").status_code == 200
        assert answered


def grows_by(broker: ImpatientBroker, head: bytes, piece: bytes, mebibytes: int = 200) -> float:
    """By how much the server grows, at its largest, while it is sent very much."""
    before = largest = memory_mib(broker.pid)
    stop = threading.Event()

    def watch() -> None:
        nonlocal largest
        while not stop.wait(0.01):
            largest = max(largest, memory_mib(broker.pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", broker.port), timeout=3) as connection,
        ):
            connection.sendall(head)
            sent = 0
            while sent < mebibytes << 20:
                connection.sendall(piece)
                sent += len(piece)
    finally:
        stop.set()
        watching.join()
    return largest - before


FLOODS = {
    "body": (CHUNKED, b"100000\r\n" + b" " * 0x100000 + b"\r\n"),
    "body of nobody": (
        b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999999\r\n\r\n",
        bytes(1 << 20),
    ),
    "body of a GET": (
        b"GET /feeds HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999999\r\n\r\n",
        bytes(1 << 20),
    ),
    "chunk extension": (CHUNKED + b"1;", b"a" * (1 << 20)),
    "small chunks": (CHUNKED, b"1\r\n \r\n" * 100_000),
    "header": (b"GET / HTTP/1.1\r\na: ", b"a" * (1 << 20)),
    "path": (b"GET /", b"a" * (1 << 20)),
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n" * 100_000),
    "empty lines": (b"", b"\r\n" * 500_000),
}


@pytest.mark.parametrize(("head", "piece"), FLOODS.values(), ids=FLOODS.keys())
def test_floods_do_not_fill_the_memory(broker: ImpatientBroker, head: bytes, piece: bytes) -> None:
    size = 10 if piece.startswith(b"1\r") else 100  # that costs the server much time
    assert grows_by(broker, head, piece, size) < 60


def test_trailers_do_not_fill_the_memory(broker: ImpatientBroker) -> None:
    trailer = b"a: " + b"x" * 60_000 + b"\r\n"
    assert grows_by(broker, CHUNKED + b"0\r\n", trailer * 16) < 60


def test_a_pipeline_is_cut_without_an_error(tmp_path: Path) -> None:
    with ImpatientBroker(tmp_path / "data") as broker:
        requests = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 2_000
        assert grows_by(broker, b"", requests, 20) < 60
        assert "Exception in ASGI application" not in broker.log()


def test_afterwards(siege: Siege) -> None:
    siege.check()
