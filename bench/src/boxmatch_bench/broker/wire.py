"""HTTP and WebSocket, just enough of them to load a broker from one process.

A thousand sockets with ten thousand notifications a second leave a client little time for each.
Libraries take several times as long as the broker does, and would be what is measured.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable
from typing import Final

_TEXT: Final = 1
_CLOSE: Final = 8
_PING: Final = 9
_PONG: Final = 10


class WireError(Exception):
    """The broker answered in a way that the benchmark does not expect."""


def request_bytes(method: str, path: str, body: bytes = b"") -> bytes:
    """A request with a JSON body."""
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class HttpConnection(asyncio.Protocol):
    """A keep-alive connection; one request at a time. `answered` gets status and body."""

    def __init__(self) -> None:
        self.answered: Callable[[HttpConnection, int, bytes], None] = _nobody
        self.failed: Callable[[Exception], None] = _raise
        self.index = 0
        """For the caller: which request is under way."""
        self._buffer = b""
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # of a socket

    def send(self, request: bytes) -> None:
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data if self._buffer else data
        end = data.find(b"\r\n\r\n")
        if end >= 0:
            head = data[:end].lower()
            place = head.find(b"content-length:")
            stop = head.find(b"\r\n", place)
            length = int(head[place + 15 : stop if stop >= 0 else end]) if place >= 0 else 0
            if len(data) >= end + 4 + length:
                self._buffer = b""
                self.answered(self, int(data[9:12]), data[end + 4 : end + 4 + length])
                return
        self._buffer = data

    def connection_lost(self, error: Exception | None) -> None:
        if not self._closing:
            self.failed(WireError(f"the broker closed a connection: {error or 'without a reason'}"))

    def close(self) -> None:
        self._closing = True
        self._transport.close()

    async def answer_to(self, request: bytes) -> tuple[int, bytes]:
        """Status and body."""
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self.answered = lambda _, status, text: answer.set_result((status, text))
        self.failed = answer.set_exception
        self.send(request)
        return await answer


def _nobody(connection: HttpConnection, status: int, body: bytes) -> None:
    raise WireError(f"an answer to nothing: {status} {body[:200]!r}")


def _raise(error: Exception) -> None:
    raise error


class TextSocket(asyncio.Protocol):
    """A WebSocket that receives text; `received` gets each message."""

    def __init__(
        self,
        path: str,
        received: Callable[[bytes], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._path = path
        self._received = received
        self._failed = failed
        self._rest = b""
        self._open = False
        self._closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # of a socket
        key = base64.b64encode(os.urandom(16)).decode()
        self._transport.write(
            f"GET {self._path} HTTP/1.1\r\nhost: 127.0.0.1\r\nupgrade: websocket\r\n"
            f"connection: Upgrade\r\nsec-websocket-version: 13\r\n"
            f"sec-websocket-key: {key}\r\n\r\n".encode()
        )

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data = self._rest + data
        at, size = 0, len(data)
        if not self._open:
            at = self._handshake(data)
            if not at:
                self._rest = data
                return
        while at + 2 <= size:
            length, begin = data[at + 1], at + 2
            if length >= 126:
                begin += 2 if length == 126 else 8
                if begin > size:
                    break
                length = int.from_bytes(data[at + 2 : begin], "big")
            end = begin + length
            if end > size:
                break
            kind = data[at]
            if kind == 0x80 | _TEXT:
                self._received(data[begin:end])
            else:
                self._control(kind, data[begin:end])
            at = end
        self._rest = data[at:]

    def _handshake(self, data: bytes) -> int:
        """Where the frames begin."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return 0
        if not data.startswith(b"HTTP/1.1 101"):
            self._closing = True
            self._failed(WireError(f"no WebSocket at {self._path}: {data[:500]!r}"))
            self._transport.close()
            return len(data)
        self._open = True
        return end + 4

    def _control(self, kind: int, payload: bytes) -> None:
        if kind == 0x80 | _PING:
            self._write(_PONG, payload)
        elif kind == 0x80 | _CLOSE:
            self._lost(f"code {int.from_bytes(payload[:2], 'big')}, {payload[2:]!r}")
        elif kind != 0x80 | _PONG:
            self._lost(f"a frame that begins with {kind:#x}")

    def _lost(self, reason: str) -> None:
        if not self._closing:
            self._closing = True
            self._failed(WireError(f"{self._path} was closed: {reason}"))

    def connection_lost(self, error: Exception | None) -> None:
        self._lost(str(error or "without a reason"))

    def send(self, text: bytes) -> None:
        """Send a short message."""
        self._write(_TEXT, text)

    def _write(self, kind: int, payload: bytes) -> None:
        if len(payload) > 125:
            raise WireError("only short messages can be sent")
        # A client has to mask what it sends; the mask of zeros changes nothing.
        self._transport.write(bytes((0x80 | kind, 0x80 | len(payload), 0, 0, 0, 0)) + payload)

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._write(_CLOSE, (1000).to_bytes(2, "big"))
        self._transport.close()
