"""No connection stays open for ever, or keeps a server from stopping, whatever its client does."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_server import IMPATIENT, Served, in_server

from boxmatch.broker.server.protocols import Timeouts, Unread

POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /echo HTTP/1.1\r\nHost: x\r\n"
UPGRADE = b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
SOCKET = UPGRADE + (b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n")
CLOSE = bytes.fromhex("8880 00000000")


def socket_at(path: str) -> bytes:
    return b"GET %b HTTP/1.1\r\nHost: x\r\n" % path.encode() + SOCKET + b"\r\n"


HELD = {
    "silence": [],
    "idle": [GET + b"\r\n"],
    "answered, then the body": [
        b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n", b"{}",
    ],
    "expects to continue": [POST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"],
    "unread": [b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n"],
    "unread, closing": [b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"],
    "unread, then half a request": [
        b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n" + POST + b"Content-Length: 2\r\n\r\n{",
    ],
    "unread, pipelined": [b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n" + GET + b"\r\n"],
    "upgrade of a POST": [POST + SOCKET + b"\r\n"],
    "upgrade of a POST with a body": [POST + SOCKET + b"Content-Length: 2\r\n\r\n{}"],
    "upgrade with a body": [GET + SOCKET + b"Content-Length: 2\r\n\r\n{}"],
    "upgrade with half a body": [GET + SOCKET + b"Content-Length: 2\r\n\r\n{"],
    "upgrade with chunks": [
        GET + SOCKET + b"Transfer-Encoding: chunked\r\n\r\n", b"2\r\n{}\r\n", b"0\r\n\r\n",
    ],
    "upgrade that expects to continue": [GET + SOCKET + b"Expect: 100-continue\r\n\r\n"],
    "upgrade without a key": [GET + UPGRADE + b"Sec-WebSocket-Version: 13\r\n\r\n"],
    "upgrade with a bad key": [GET + SOCKET.replace(b"dGhl", b"????") + b"\r\n"],
    "upgrade of another version": [GET + SOCKET.replace(b"13", b"8") + b"\r\n"],
    "upgrade of HTTP/1.0": [GET.replace(b"1.1", b"1.0") + SOCKET + b"\r\n"],
    "upgrade with a long path": [socket_at("/" + "a" * 8_200)],
    "upgrade with a long header": [GET + SOCKET + b"X: %b\r\n\r\n" % (b"a" * 8_200)],
    "upgrade with many headers": [GET + SOCKET + b"X: a\r\n" * 200 + b"\r\n"],
    "upgrade behind another request": [GET + b"\r\n" + socket_at("/echo")],
    "upgrade behind another answer": [GET + b"\r\n", socket_at("/echo")],
    "upgrade with frames": [socket_at("/echo") + b"\xff" * 20],
    "upgrade, frames before the answer": [socket_at("/undecided"), b"\xff" * 20],
    "upgrade, close before the answer": [socket_at("/undecided"), CLOSE],
    "upgrade without an answer": [socket_at("/undecided")],
    "upgrade that is denied": [socket_at("/denied")],
    "upgrade to HTTP/2": [GET + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n"],
    "upgrade to HTTP/2 with a body": [
        POST + b"Upgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\n{}"
    ],
    "connect": [b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01"],
    "connect to a path": [b"CONNECT /echo HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01"],
    "socket that does not answer pings": [socket_at("/echo")],
    "socket that does not answer a close": [socket_at("/closed")],
    "socket that reads nothing": [socket_at("/flood")],
    "socket that reads nothing and closes": [socket_at("/flood"), CLOSE],
    "socket with a bad frame": [socket_at("/echo"), b"\xff" * 20],
    "socket with a bad text and a close": [
        socket_at("/echo"), bytes.fromhex("8181 00000000 ff") + CLOSE,
    ],
}  # fmt: skip


class Holding:
    """Clients that do all of `HELD` at once, read nothing, and close nothing."""

    def __init__(self, port: int, *, half_closed: bool = False) -> None:
        self._port = port
        self._half_closed = half_closed
        self._clients: dict[str, socket.socket] = {}

    async def __aenter__(self) -> Holding:
        for name in HELD:
            self._clients[name] = socket.create_connection(("127.0.0.1", self._port))
        self.names = {one.getsockname()[1]: name for name, one in self._clients.items()}
        for step in range(max(map(len, HELD.values()))):
            for name, parts in HELD.items():
                with suppress(OSError):  # it has been closed already
                    self._clients[name].sendall(parts[step] if step < len(parts) else b"")
            await asyncio.sleep(0.1)  # so that every part arrives by itself
        if self._half_closed:
            for client in self._clients.values():
                with suppress(OSError):
                    client.shutdown(socket.SHUT_WR)
        return self

    async def __aexit__(self, *_: object) -> None:
        for client in self._clients.values():
            client.close()


@pytest.mark.parametrize("half_closed", [False, True], ids=["open", "half closed"])
def test_connections_end_whatever_a_client_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, half_closed: bool
) -> None:
    async def scenario(server: Served) -> None:
        async with Holding(server.listening.port, half_closed=half_closed) as holding:
            assert [holding.names.get(port) for port in await server.held()] == []
            assert (await server.get("/echo")).status_code == 200

    timeouts = replace(IMPATIENT, idle_seconds=1.0, header_bytes=16 * 1024)
    in_server(tmp_path, scenario, timeouts=timeouts, ping_seconds=0.3)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_closing_waits_for_a_reader_but_not_for_ever() -> None:
    """Also for less than what makes a transport say that it is full."""
    unread = Unread(Timeouts(stalled_seconds=10.0, body_rate=100.0))
    transport = Mock(spec=asyncio.Transport)
    transport.get_write_buffer_size.return_value = 500
    transport.is_closing.return_value = False
    unread.check(transport, 1_000.0)
    transport.is_closing.return_value = True
    unread.check(transport, 2_000.0)
    unread.check(transport, 2_014.0)
    assert not transport.abort.called
    unread.check(transport, 2_016.0)
    assert transport.abort.called


@pytest.mark.parametrize("signals", [1, 2])
def test_no_connection_keeps_a_server_from_stopping(tmp_path: Path, signals: int) -> None:
    async def scenario(server: Served) -> None:
        async with Holding(server.listening.port):
            for _ in range(signals):
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(server.task, 10)
            assert await server.held() == set()

    seconds = 1.0 if signals == 1 else 60.0
    in_server(tmp_path, scenario, timeouts=Timeouts(), shutdown_seconds=seconds)


@pytest.mark.parametrize(
    ("parts", "statuses"),
    [
        ([GET + b"\r\n" + socket_at("/echo")], [200, 200]),
        ([GET + b"Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n" + GET + b"\r\n"], [200, 200]),
        ([POST + b"Content-Length: 2\r\n" + SOCKET + b"\r\n{}"], [400]),
        ([POST + b"Content-Length: 2\r\n" + SOCKET + b"\r\n" + GET + b"\r\n"], [400]),
        ([POST + b"Upgrade: x\r\nConnection: upgrade\r\nContent-Length: 29\r\n\r\n" + GET], [400]),
        ([socket_at("/" + "a" * 8_200)], [414]),
        ([GET + SOCKET + b"X: a\r\n" * 200 + b"\r\n"], [431]),
        ([GET + SOCKET + b"X: %b\r\n\r\n" % (b"a" * 8_200)], [431]),
    ],
    ids=[
        "behind a request", "to what is not known", "with a body", "with a request as a body",
        "to what is not known, with a body", "long path", "many headers", "long header",
    ],
)  # fmt: skip
def test_upgrades_that_cannot_be_are_answered(
    tmp_path: Path, parts: list[bytes], statuses: list[int]
) -> None:
    async def scenario(server: Served) -> None:
        answer = await server.send(*parts)
        assert [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]] == statuses

    timeouts = replace(IMPATIENT, idle_seconds=1.0, header_bytes=16 * 1024)
    in_server(tmp_path, scenario, timeouts=timeouts)
