"""Hostile subscribers: messages that are none, acknowledgements of the future, and silence."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hostile_client import ImpatientBroker, Siege, check_answer, make_feeds, memory_mib
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

REFUSALS = (1002, 1003, 1007, 1008, 1009)
"""What a server says of a client that does wrong; 1011 would be its own fault."""
MOST = (1 << 63) - 1


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ImpatientBroker]:
    with ImpatientBroker(tmp_path_factory.mktemp("sockets") / "data") as running:
        yield running


@pytest.fixture(scope="module", autouse=True)
def siege(broker: ImpatientBroker) -> Siege:
    return Siege(broker)


@pytest.fixture
def http(broker: ImpatientBroker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=broker.url, timeout=20) as client:
        make_feeds(client)
        yield client


def path_of(subscriber: str, **query: Any) -> str:
    text = "&".join(f"{name}={value}" for name, value in query.items())
    return f"/subscribers/{subscriber}/notifications/socket" + (f"?{text}" if text else "")


@contextlib.contextmanager
def listening(broker: ImpatientBroker, subscriber: str, **query: Any) -> Iterator[ClientConnection]:
    url = "ws" + broker.url.removeprefix("http") + path_of(subscriber, **query)
    with connect(url, open_timeout=10, close_timeout=5) as connection:
        assert json.loads(connection.recv(10))["type"] == "ready"
        yield connection


def refusal(connection: ClientConnection) -> tuple[str | None, int]:
    """The error that the server sends before it closes, if it does, and the code of closing."""
    code = None
    try:
        while True:
            message = json.loads(connection.recv(10))
            if message["type"] == "error":
                code = message["code"]
                assert message["message"]
    except ConnectionClosed as closed:
        return code, closed.rcvd.code if closed.rcvd is not None else 1006


def subscribe(http: httpx.Client, subscriber: str) -> None:
    wanted = {"feed": "trades", "filter": f"symbol = '{subscriber}'"}
    answer = http.put(f"/subscribers/{subscriber}/subscriptions/all", json=wanted)
    assert check_answer(answer).status_code == 200


def publish(http: httpx.Client, subscriber: str, count: int = 1) -> list[int]:
    """The sequence numbers of events for a subscriber."""
    answer = http.post("/feeds/trades/events", json=[{"symbol": subscriber}] * count)
    receipt = check_answer(answer).json()
    return list(range(receipt["first"], receipt["last"] + 1))


MESSAGES: dict[str, str | bytes] = {
    "binary": b"\x00\x01",
    "binary json": b'{"type":"acknowledge","sequence":0}',
    "empty": "",
    "not json": "{",
    "nan": '{"type":"acknowledge","sequence":NaN}',
    "list": "[]",
    "text": '"acknowledge"',
    "null": "null",
    "no type": "{}",
    "type is a number": '{"type":1}',
    "type is a list": '{"type":["acknowledge"]}',
    "unknown type": '{"type":"subscribe"}',
    "long type": json.dumps({"type": "x" * 60_000}),
    "no sequence": '{"type":"acknowledge"}',
    "text for a sequence": '{"type":"acknowledge","sequence":"1"}',
    "fraction": '{"type":"acknowledge","sequence":1.0}',
    "true": '{"type":"acknowledge","sequence":true}',
    "negative": '{"type":"acknowledge","sequence":-1}',
    "future": '{"type":"acknowledge","sequence":1000000}',
    "huge": json.dumps({"type": "acknowledge", "sequence": 2**64 - 1}),
    "enormous": '{"type":"acknowledge","sequence":1' + "0" * 400 + "}",
    "nested": "[" * 60_000,
    "nested sequence": '{"type":"acknowledge","sequence":' + "[" * 500 + "]" * 500 + "}",
    "surrogate": '{"type":"\\ud800"}',
    "too large": "x" * 100_000,
    "too large binary": bytes(1 << 20),
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())
def test_messages_that_are_refused(
    broker: ImpatientBroker, http: httpx.Client, message: str | bytes
) -> None:
    with listening(broker, "mia") as connection:
        with contextlib.suppress(ConnectionClosed):  # it may be refused before all is sent
            connection.send(message)
        code, closed = refusal(connection)
    assert closed in REFUSALS
    assert code == "message" or closed in (1007, 1009)
    assert http.get("/subscribers/mia").json()["cursor"] == 0


def run_messages(broker: ImpatientBroker, examples: int) -> None:
    values = st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(2**64), 2**64)
        | st.text(max_size=5)
        | st.floats(),
        lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=4,
    )
    objects = st.fixed_dictionaries(
        {}, optional={"type": st.sampled_from(["acknowledge", "hello", "x"]), "sequence": values,
                      "key": values}
    )  # fmt: skip
    messages = objects.map(json.dumps) | st.text(max_size=20) | st.binary(max_size=20)

    @settings(
        max_examples=examples, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(st.lists(messages, min_size=1, max_size=5))
    def send(several: list[str | bytes]) -> None:
        with listening(broker, "max") as connection:
            try:
                for message in several:
                    connection.send(message)
                connection.send("{}")  # is refused for certain
            except ConnectionClosed:
                pass
            code, closed = refusal(connection)
            assert closed in REFUSALS
            assert code == "message"

    send()


def test_messages_of_all_kinds(broker: ImpatientBroker) -> None:
    run_messages(broker, 80)


@pytest.mark.slow
def test_messages_of_all_kinds_many_times(broker: ImpatientBroker) -> None:
    run_messages(broker, 4_000)


@pytest.mark.parametrize(
    "query",
    ["after=-1", "after=x", "after=", f"after={MOST + 1}", "after=%00", "after=1e3", "after=²",
     "window=0", "window=-5", "window=x", "window=9" * 50, "after=" + "1" * 5000],
)  # fmt: skip
def test_queries_that_are_refused(broker: ImpatientBroker, query: str) -> None:
    url = "ws" + broker.url.removeprefix("http") + path_of("quin")
    with pytest.raises(InvalidStatus) as refused:
        connect(f"{url}?{query.replace('²', '%C2%B2')}")
    answer = refused.value.response
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_acknowledgements_that_do_no_harm(broker: ImpatientBroker, http: httpx.Client) -> None:
    """The past, the same again, out of order; a flood of them does not stop notifications."""
    subscribe(http, "flo")
    with listening(broker, "flo", window=5) as connection:
        numbers = publish(http, "flo", 20)
        got: list[int] = []
        while len(got) < 20:
            got += [one["sequence"] for one in json.loads(connection.recv(10))["notifications"]]
            for sequence in (0, got[0], got[-1], got[0], got[-1]):
                connection.send(json.dumps({"type": "acknowledge", "sequence": sequence}))
        assert got == numbers
        for _ in range(5_000):
            connection.send(json.dumps({"type": "acknowledge", "sequence": got[-1]}))
        [last] = publish(http, "flo")
        assert json.loads(connection.recv(10))["notifications"][0]["sequence"] == last
        connection.send(json.dumps({"type": "acknowledge", "sequence": last}))
        connection.send(json.dumps({"type": "acknowledge", "sequence": last + 1}))
        assert refusal(connection) == ("message", 1008)
    assert http.get("/subscribers/flo").json()["cursor"] == last


def test_no_more_than_a_window_is_sent(broker: ImpatientBroker, http: httpx.Client) -> None:
    subscribe(http, "win")
    with listening(broker, "win", window=3) as connection:
        publish(http, "win", 50)
        got = json.loads(connection.recv(10))["notifications"]
        with contextlib.suppress(TimeoutError):
            while len(got) < 50:
                got += json.loads(connection.recv(0.5))["notifications"]
        assert len(got) == 3
    assert http.get("/subscribers/win").json()["cursor"] == 0


# Below the messages


def frame(opcode: int, payload: bytes = b"", *, final: bool = True, masked: bool = True) -> bytes:
    first = (0x80 if final else 0) | opcode
    size = len(payload)
    if size < 126:
        head = struct.pack("!BB", first, (0x80 if masked else 0) | size)
    elif size < 1 << 16:
        head = struct.pack("!BBH", first, (0x80 if masked else 0) | 126, size)
    else:
        head = struct.pack("!BBQ", first, (0x80 if masked else 0) | 127, size)
    return head + (b"\x00" * 4 if masked else b"") + payload


@contextlib.contextmanager
def raw_socket(broker: ImpatientBroker, subscriber: str) -> Iterator[socket.socket]:
    """A WebSocket after its handshake, without a client behind it."""
    key = base64.b64encode(bytes(16))
    request = (
        b"GET %b HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
        b"sec-websocket-version: 13\r\nsec-websocket-key: %b\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", broker.port), timeout=10) as connection:
        connection.sendall(request % (path_of(subscriber).encode(), key))
        seen = b""
        while b'"ready"' not in seen:
            seen += connection.recv(65536)
        yield connection


def ends(connection: socket.socket, seconds: float = 10.0) -> bytes:
    """What still comes until the server closes."""
    connection.settimeout(seconds)
    seen = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(65536):
            seen += piece
    return seen


FRAMES = {
    "unmasked": frame(1, b"{}", masked=False),
    "reserved opcode": frame(3, b"{}"),
    "reserved bits": bytes([0xF1, 0x80, 0, 0, 0, 0]),
    "continuation of nothing": frame(0, b"{}"),
    "new message in a message": frame(1, b"{", final=False) + frame(1, b"}"),
    "long ping": frame(9, bytes(200)),
    "ping in pieces": frame(9, b"a", final=False),
    "not utf-8": frame(1, b"\xff\xfe"),
    "huge length": struct.pack("!BBQ", 0x81, 0xFF, 1 << 62) + bytes(4),
    "negative length": struct.pack("!BBQ", 0x81, 0xFF, (1 << 64) - 1) + bytes(4),
    "large in pieces": frame(1, b"x" * 60_000, final=False) + frame(0, b"x" * 60_000, final=False),
    "close with a byte": frame(8, b"\x03"),
    "close with a bad code": frame(8, struct.pack("!H", 1005)),
    "close without utf-8": frame(8, struct.pack("!H", 1000) + b"\xff"),
    "no frames": b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n",
    "noise": bytes(range(255, -1, -1)) * 10,
}


@pytest.mark.parametrize("raw", FRAMES.values(), ids=FRAMES.keys())
def test_frames_that_are_refused(broker: ImpatientBroker, raw: bytes) -> None:
    with raw_socket(broker, "fred") as connection:
        connection.sendall(raw)
        answer = ends(connection)
    place = answer.find(b"\x88")
    if place >= 0 and len(answer) >= place + 4:
        assert struct.unpack_from("!H", answer, place + 2)[0] in REFUSALS


def test_refusals_are_no_errors_of_the_server(broker: ImpatientBroker) -> None:
    """Whoever can connect could fill the log otherwise."""
    before = len(broker.log())
    url = "ws" + broker.url.removeprefix("http")
    for path, status in (("/feeds", 404), ("/subscribers/a/notifications/socket?after=x", 422)):
        with pytest.raises(InvalidStatus) as refused:
            connect(url + path)
        answer = refused.value.response
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        assert json.loads(answer.body)["status"] == status
    with raw_socket(broker, "fred") as connection:
        connection.sendall(frame(1, b"\xff\xfe"))
        assert struct.pack("!H", 1007) in ends(connection)
    assert broker.log()[before:] == ""


def sessions(http: httpx.Client, subscriber: str) -> int:
    return int(http.get(f"/subscribers/{subscriber}").json()["sessions"])


def test_those_who_say_nothing_are_cut(broker: ImpatientBroker, http: httpx.Client) -> None:
    """Half-open: the connection is there, but nobody answers a ping."""
    with raw_socket(broker, "hal") as connection:
        assert sessions(http, "hal") == 1
        ends(connection)
        deadline = time.monotonic() + 5
        while sessions(http, "hal") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert sessions(http, "hal") == 0


def test_those_who_leave_without_a_word_are_forgotten(
    broker: ImpatientBroker, http: httpx.Client
) -> None:
    for _ in range(30):
        with raw_socket(broker, "leo") as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        with raw_socket(broker, "leo") as connection:
            connection.sendall(frame(1, b"{", final=False))
    deadline = time.monotonic() + 10
    while sessions(http, "leo") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sessions(http, "leo") == 0


def test_pings_do_not_fill_the_memory(broker: ImpatientBroker) -> None:
    """Every ping is answered, also to one who reads no answers."""
    before = memory_mib(broker.pid)
    flood = frame(9, bytes(125)) * 8_000
    with raw_socket(broker, "pia") as connection, contextlib.suppress(OSError):
        connection.settimeout(2)
        for _ in range(20):
            connection.sendall(flood)
    assert memory_mib(broker.pid) - before < 60


@pytest.mark.slow
def test_a_stream_that_nobody_reads_is_cut(broker: ImpatientBroker, http: httpx.Client) -> None:
    """Server-Sent Events to one who takes nothing: notifications wait on disk, not in memory."""
    subscribe(http, "sol")
    request = b"GET /subscribers/sol/notifications/stream HTTP/1.1\r\nhost: localhost\r\n\r\n"
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(10)
        connection.connect(("127.0.0.1", broker.port))
        connection.sendall(request)
        connection.recv(100)
        deadline = time.monotonic() + 15
        events = [{"symbol": "sol", "price": 1.5}] * 5_000
        while sessions(http, "sol") and time.monotonic() < deadline:
            http.post("/feeds/trades/events", json=events)
        assert sessions(http, "sol") == 0


def test_afterwards(siege: Siege) -> None:
    siege.check()
