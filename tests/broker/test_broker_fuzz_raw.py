"""Conversations in raw bytes, many at once: HTTP and WebSockets that lie about lengths, are split
anywhere, follow each other without waiting, and end early. Beside them somebody behaves.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import httpx
import pytest
from hostile_client import ImpatientBroker, Siege, make_feeds
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.sync.client import connect

AT_ONCE = 20
PATIENCE = 20.0
"""Seconds until a silent server counts as one that hangs: its own timeouts are about one."""
SERVER_ERROR = struct.pack("!H", 1011)
SILENCE = SERVER_ERROR + b"keepalive ping timeout"
"""What the WebSocket library says to a client that does not answer pings."""
EVENT = b'{"symbol":"raw","price":1.5}'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImpatientBroker]:
    with ImpatientBroker(tmp_path_factory.mktemp("raw") / "data") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def siege(broker: ImpatientBroker) -> Siege:
    return Siege(broker)


# What is said


class Conversation(NamedTuple):
    pieces: list[bytes]
    """Sent one after the other, so that the server reads them one by one."""
    end: str
    """`close`, `reset`, or `half`: close the sending side; or `wait` for the server to close."""


lies = st.sampled_from([0] * 6 + [-1, 1, 1000])
"""What a length is wrong by; mostly it is right."""


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    """A body in chunks, some of them longer or shorter than they say, perhaps without an end."""
    size = draw(st.integers(1, 12))
    extension = draw(st.sampled_from([b"", b"", b";a=b", b";" + b"x" * 100]))
    raw = b""
    for start in range(0, len(body), size):
        piece = body[start : start + size]
        raw += b"%x%b\r\n%b\r\n" % (max(0, len(piece) + draw(lies)), extension, piece)
    ends = [b"0\r\n\r\n"] * 4 + [b"0\r\na: b\r\n\r\n", b"0\r\n", b""]
    return raw + draw(st.sampled_from(ends))


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """A request whose body is framed in one way or two, rightly or wrongly."""
    line = draw(
        st.sampled_from(
            [b"POST /feeds/trades/events", b"POST /feeds/loose/events", b"GET /healthz",
             b"GET /feeds", b"GET /feeds/trades/events?limit=5", b"POST /feeds/trades/dry-run",
             b"PUT /subscribers/raw/subscriptions/a", b"GET /subscribers/raw/notifications",
             b"POST /subscribers/raw/acknowledge", b"HEAD /feeds", b"OPTIONS /feeds",
             b"PUT /feeds/places/publications/p", b"POST /nowhere"]
        )
    )  # fmt: skip
    headers = [b"host: localhost"]
    headers += draw(
        st.lists(
            st.sampled_from(
                [b"connection: close", b"connection: keep-alive", b"expect: 100-continue",
                 b"content-type: application/json", b"content-encoding: gzip", b"te: trailers",
                 b"content-type: application/vnd.apache.arrow.stream", b"upgrade: h2c"]
            ),
            max_size=2,
        )
    )  # fmt: skip
    body = draw(st.sampled_from([b"", EVENT, b"[" + EVENT + b"," + EVENT + b"]", b"{"]))
    framing = draw(st.sampled_from(["length", "length", "chunks", "chunks", "both", "none"]))
    if framing in ("length", "both"):
        headers.append(b"content-length: %d" % max(0, len(body) + draw(lies)))
    if framing in ("chunks", "both"):
        headers.append(b"transfer-encoding: chunked")
        body = draw(chunked(body))
    return line + b" HTTP/1.1\r\n" + b"\r\n".join(headers) + b"\r\n\r\n" + body


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame of a WebSocket, in one of the three forms of its length, right or wrong."""
    payloads = [
        b"",
        b'{"type":"acknowledge","sequence":0}',
        b"{}",
        b"\x03\xe8",
        b"\xff",
        bytes(200),
    ]
    payload = draw(st.sampled_from(payloads))
    first = draw(st.sampled_from([0x81, 0x81, 0x81, 0x01, 0x80, 0x82, 0x88, 0x89, 0x8A, 0xC1]))
    masked = draw(st.sampled_from([0x80, 0x80, 0x80, 0]))
    size = max(0, len(payload) + draw(lies))
    if size < 126:
        head = bytes([first, masked | size])
    elif draw(st.booleans()):
        head = struct.pack("!BBH", first, masked | 126, size)
    else:
        head = struct.pack("!BBQ", first, masked | 127, size)
    return head + (bytes(4) if masked else b"") + payload


@st.composite
def upgrades(draw: st.DrawFn) -> bytes:
    """A handshake, perhaps with something missing, and frames that do not wait for its answer."""
    lines = [
        b"GET /subscribers/raw/notifications/socket HTTP/1.1", b"host: localhost",
        b"upgrade: websocket", b"connection: upgrade", b"sec-websocket-version: 13",
        b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
    ]  # fmt: skip
    missing = draw(st.sampled_from([None] * 8 + [2, 3, 4, 5]))
    if missing is not None:
        del lines[missing]
    after = draw(st.lists(frames() | requests(), max_size=4))
    return b"\r\n".join(lines) + b"\r\n\r\n" + b"".join(after)


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    raw = b"".join(draw(st.lists(requests(), max_size=3)))
    if not raw or draw(st.booleans()):
        raw += draw(upgrades())
    if draw(st.integers(0, 3)) == 0:
        raw = raw[: draw(st.integers(0, len(raw)))]
    cuts = draw(st.lists(st.integers(0, len(raw)), max_size=6))
    places = sorted({0, *cuts, len(raw)})
    pieces = [raw[a:b] for a, b in itertools.pairwise(places)]
    end = draw(st.sampled_from(["close", "reset", "half", "wait"]))
    return Conversation(pieces, end)


def hold(port: int, conversation: Conversation) -> bytes:
    """Say it, and return what was answered. The server must end it."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in conversation.pieces:
                connection.sendall(piece)
                time.sleep(0.002)
            if conversation.end == "reset":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if conversation.end in ("close", "reset"):
                return answer
            if conversation.end == "half":
                connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                answer += piece
        except TimeoutError:
            raise AssertionError(f"{conversation} is not ended: {answer!r}") from None
        except OSError:  # it has been refused already, and the connection is gone
            pass
    return answer


def check(answer: bytes) -> None:
    """No response is a 5xx, and no WebSocket ends because of an error of the server."""
    assert answer == b"" or answer.startswith(b"HTTP/1.1 "), answer[:300]
    assert b"HTTP/1.1 5" not in answer, answer
    _, upgraded, rest = answer.partition(b"HTTP/1.1 101 ")
    if upgraded:
        for opcode, payload in frames_in(rest.partition(b"\r\n\r\n")[2]):
            if opcode == 8 and payload != SILENCE:
                assert not payload.startswith(SERVER_ERROR), payload


def frames_in(raw: bytes) -> Iterator[tuple[int, bytes]]:
    """Opcode and payload of what a server sent, which does not mask."""
    while len(raw) >= 2:
        size, start = raw[1], 2
        if size >= 126:
            start = 4 if size == 126 else 10
            size = int.from_bytes(raw[2:start], "big")
        yield raw[0] & 15, raw[start : start + size]
        raw = raw[start + size :]


def test_an_error_of_the_server_would_be_noticed() -> None:
    check(b"")
    check(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    upgraded = b"HTTP/1.1 101 Switching Protocols\r\n\r\n\x81\x7e\x00\xc8" + bytes(200)
    check(upgraded + b"\x88\x02" + struct.pack("!H", 1002))
    check(upgraded + bytes([0x88, len(SILENCE)]) + SILENCE)
    for wrong in (
        b"nonsense",
        b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 500 Internal Server Error\r\n\r\n",
        upgraded + b"\x88\x02" + SERVER_ERROR,
    ):
        with pytest.raises(AssertionError):
            check(wrong)


# Somebody who behaves


class Neighbour:
    """Publishes events one after the other, and receives each before the next, until the end."""

    def __init__(self, broker: ImpatientBroker) -> None:
        self._url = broker.url
        self._stop = threading.Event()
        self.rounds = 0
        with httpx.Client(base_url=broker.url, timeout=30) as http:
            make_feeds(http)
            wanted = {"feed": "trades", "filter": "symbol = 'neighbour'"}
            http.put("/subscribers/neighbour/subscriptions/all", json=wanted).raise_for_status()

    def live(self) -> None:
        path = "/subscribers/neighbour/notifications/socket"
        with connect("ws" + self._url.removeprefix("http") + path) as inbox:
            assert json.loads(inbox.recv(PATIENCE))["type"] == "ready"
            while not self._stop.is_set():
                sequence = self._publish()["first"]
                [told] = json.loads(inbox.recv(PATIENCE))["notifications"]
                assert told["sequence"] == sequence
                assert told["event"]["size"] == self.rounds
                inbox.send(json.dumps({"type": "acknowledge", "sequence": sequence}))
                self.rounds += 1

    def stop(self) -> None:
        self._stop.set()

    def _publish(self) -> dict[str, Any]:
        body = json.dumps({"symbol": "neighbour", "size": self.rounds}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._url}/feeds/trades/events", body, headers)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            receipt: dict[str, Any] = json.load(answer)
        return receipt


def run_conversations(broker: ImpatientBroker, examples: int) -> None:
    neighbour = Neighbour(broker)
    rounds = []
    with ThreadPoolExecutor(1) as beside, ThreadPoolExecutor(AT_ONCE) as pool:
        living = beside.submit(neighbour.live)

        @settings(
            max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )  # fmt: skip
        @given(st.lists(conversations(), min_size=AT_ONCE, max_size=AT_ONCE))
        def all_at_once(several: list[Conversation]) -> None:
            for answer in pool.map(lambda one: hold(broker.port, one), several):
                check(answer)
            rounds.append(neighbour.rounds)

        try:
            all_at_once()
        finally:
            neighbour.stop()
            living.result(2 * PATIENCE)
    assert neighbour.rounds > rounds[0]


def test_conversations_of_all_kinds(broker: ImpatientBroker) -> None:
    run_conversations(broker, 6)


@pytest.mark.slow
def test_conversations_of_all_kinds_many_times(broker: ImpatientBroker) -> None:
    run_conversations(broker, 200)


def test_afterwards(siege: Siege) -> None:
    siege.check()
