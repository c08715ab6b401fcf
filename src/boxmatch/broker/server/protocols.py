"""The protocols that the server speaks, HTTP and WebSockets, with limits on how long it waits for a
request, for a handshake and for a reader.

Uvicorn waits for ever for the rest of a request, and has no limit for the size of headers with the
fast parser. A request notes when it began and how much has come, and once a second the server
compares that with the clock. So a request that comes in time pays for two assignments, not for
timers. WebSockets are asked in the same way: no connection is left out.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import OPEN

if TYPE_CHECKING:
    from asyncio.transports import BaseTransport

    from uvicorn._types import ASGI3Application, ASGISendEvent, HTTPResponseStartEvent
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

WHOLE = "boxmatch.whole_response"
"""The extension of ASGI by which a response is written at once, given its head and its body."""
TEXT = "boxmatch.websocket_text"
"""The extension by which a message of text is sent over a WebSocket, given its bytes."""
TICKS_PER_SECOND = 10
"""Uvicorn's main loop."""
_LINGER = 1.0
"""Seconds that a client has to read why it was refused."""
_MOST_WAITING = 1_000
"""Requests of one connection that wait for an answer to those before them."""
_NOT_TEXT = 1007
_TEXT_FRAME = 0x81
_MEDIUM_HEAD, _LARGE_HEAD = struct.Struct("!BBH"), struct.Struct("!BBQ")
_OF_CONNECTIONS = (b"connection", b"transfer-encoding")
_log = logging.getLogger("boxmatch.server")


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long the server waits for clients."""

    header_seconds: float = 10.0
    """From the connection, or the first byte of the next request, to the end of the headers."""
    header_bytes: int = 64 * 1024
    """For the headers, and for what comes after them without being body, such as trailers."""
    body_seconds: float = 20.0
    """For the body, plus what it takes at `body_rate` bytes a second."""
    body_rate: float = 32 * 1024.0
    """Also of a client that reads."""
    idle_seconds: float = 60.0
    """Between two requests. Longer than clients keep connections they do not use, as a rule:
    a connection that the server closes just as a request is sent is trouble for the client."""
    stalled_seconds: float = 60.0
    """For a client that leaves unread what was written, plus what that takes at `body_rate`."""
    check_seconds: float = 1.0

    @property
    def ticks(self) -> int:
        return max(1, round(self.check_seconds * TICKS_PER_SECOND))


class Unread:
    """What was written to a client and not taken by it: when that has been so for too long.

    A transport that is closing waits for its reader too, and for ever.
    """

    def __init__(self, timeouts: Timeouts) -> None:
        self._timeouts = timeouts
        self._until: float | None = None

    def begin(self, transport: asyncio.Transport, now: float) -> None:
        timeouts = self._timeouts
        size = transport.get_write_buffer_size()
        self._until = now + timeouts.stalled_seconds + size / timeouts.body_rate

    def end(self) -> None:
        self._until = None

    def check(self, transport: asyncio.Transport, now: float) -> None:
        """End a connection whose client takes nothing."""
        if self._until is None and transport.is_closing():
            self.begin(transport, now)
        if self._until is not None and now > self._until:
            _log.info("a reader took too long: connection closed")
            transport.abort()  # closing would wait for the reader


class _ReadByClient(asyncio.Protocol):
    """The part of both protocols that notes when a client stops reading."""

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _unread: Unread

    def pause_writing(self) -> None:
        self._unread.begin(self.transport, self.loop.time())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        super().resume_writing()


def timeouts_of(server_state: ServerState) -> Timeouts:
    """Where protocols find it: uvicorn makes one of them for every connection."""
    return getattr(server_state, "timeouts", None) or Timeouts()


def refusal(status: bytes, reason: str) -> bytes:
    """A whole response that says why there is no other, before the connection is closed."""
    body = b'{"type":"about:blank","title":"%b","status":%b,"detail":"%b"}\n' % (
        status[4:],
        status[:3],
        reason.encode(),
    )
    head = (
        b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\n"
        b"content-length: %d\r\nconnection: close\r\n\r\n"
    )
    return head % (status, len(body)) + body


class TimeoutProtocol(_ReadByClient, HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it, with limits on time, on headers and on connections."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timeouts = timeouts_of(server_state)
        self._most: int = getattr(server_state, "most", 1 << 30)
        self._began: float | None = None
        """When the request began that is being read."""
        self._in_headers = True
        self._header_bytes = 0
        """Since the headers or the request were complete, or the body grew."""
        self._advanced = False
        """Whether the last bytes did one of these."""
        self._body_bytes = 0
        self._unread = Unread(self._timeouts)
        self._refused = False
        self._answering: RequestResponseCycle | None = None
        self._pipelined = False
        """Whether the request being read came before the answer to the one before it."""

    def connection_made(  # type: ignore[override]  # uvicorn narrows it too: a socket's
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        if len(self.connections) > self._most:
            _log.warning("too many connections: one was refused")
            self._refuse(b"503 Service Unavailable", "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._abandon()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return  # what still comes after that
        if self._began is None and not self._busy():
            # Also for what the parser skips without calling it a request, such as empty lines.
            self._began = self.loop.time()
            self._in_headers = True
            self._header_bytes = 0
        self._advanced = False
        self._unset_keepalive_if_required()
        self._parse(data)
        if self._is_done():
            return
        if not self._advanced and (self._in_headers or self._began is not None):
            self._header_bytes += len(data)
            if self._header_bytes > self._timeouts.header_bytes:
                self._refuse(b"431 Request Header Fields Too Large", "the headers are too large")
        elif len(self.pipeline) > _MOST_WAITING:
            self._refuse(b"429 Too Many Requests", "too many requests without waiting for answers")
        elif self._began is None and not self._busy():
            # The rest of a request that was answered before: nothing else waits for the next one.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _parse(self, data: bytes) -> None:
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as upgrade:
                if self._refused:
                    return
                if self._should_upgrade():
                    self.handle_websocket_upgrade()
                    return
                data = data[upgrade.args[0] :]  # to what we do not speak: a request like others
            except httptools.HttpParserError:
                self.send_400_response("")
                return

    def _should_upgrade(self) -> bool:
        # The answer to the request before would be written between the frames of a WebSocket.
        return not self._pipelined and super()._should_upgrade()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._pipelined = self._busy()
        if self._began is None:
            self._began = self.loop.time()
        self._in_headers = True
        self._body_bytes = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_headers:  # a trailer would pass for a header, of which nobody asks for any
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._advanced = True
        self._began = self.loop.time()
        if self.parser.should_upgrade() and self._has_body():
            # The parser ends such a request here, and would take its body for the next one.
            self._refuse(b"400 Bad Request", "a request for an upgrade cannot have a body")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._header_bytes = 0
        self._advanced = True
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._began = None
        self._header_bytes = 0
        self._advanced = True
        if not self._refused:
            super().on_message_complete()

    def check_timeouts(self) -> None:
        """Called once a second: end the connection if the client is too slow."""
        now = self.loop.time()
        timeouts = self._timeouts
        self._unread.check(self.transport, now)
        if self._refused or self.transport.is_closing():
            return
        if self._began is None or self.flow.read_paused:
            pass  # nothing is being read; or it is us who do not read on
        elif self._in_headers:
            if now - self._began > timeouts.header_seconds:
                self._refuse(b"408 Request Timeout", "the headers took too long")
        elif now - self._began > timeouts.body_seconds + self._body_bytes / timeouts.body_rate:
            self._refuse(b"408 Request Timeout", "the body took too long")

    def _is_done(self) -> bool:
        # Uvicorn takes what has become a WebSocket out of the set.
        return self._refused or self not in self.connections

    def _has_body(self) -> bool:
        return any(
            name == b"transfer-encoding" or (name == b"content-length" and value != b"0")
            for name, value in self.headers
        )

    def _busy(self) -> bool:
        # None until the first request, whatever uvicorn's types say.
        return bool(self.cycle) and not self.cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle  # `self.cycle` is the newest, which may wait behind it
        extensions: Any = {WHOLE: self._write_whole}
        cycle.scope["extensions"] = extensions
        super()._start_asgi_task(cycle, app)

    def _write_whole(self, head: HTTPResponseStartEvent, body: bytes) -> bool:
        """Write a response as one. Uvicorn writes its head and its body one after the other, each
        by a system call that wakes the client. False if the response is for uvicorn.
        """
        cycle = self._answering
        if cycle is None or cycle.disconnected or self.flow.write_paused or not cycle.keep_alive:
            return False
        length = None
        parts = [STATUS_LINE[head["status"]]]
        for name, value in (*cycle.default_headers, *head["headers"]):
            if name == b"content-length":
                length = int(value)
            elif name in _OF_CONNECTIONS or b"\n" in value or b"\r" in value:
                return False
            parts += (name, b": ", value, b"\r\n")
        if length != len(body) or cycle.scope["method"] == "HEAD":
            return False
        parts += (b"\r\n", body)
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        self.transport.write(b"".join(parts))
        cycle.message_event.set()
        cycle.on_response()
        return True

    def send_400_response(self, msg: str) -> None:
        self._refuse(b"400 Bad Request", "this is not a request in HTTP/1.1")

    def _refuse(self, status: bytes, reason: str) -> None:
        self._refused = True
        cycle = self._abandon()
        if cycle is not None and cycle.response_started:
            self.transport.abort()
            return
        self.transport.write(refusal(status, reason))
        if self.transport.can_write_eof():
            # Closing at once, while the client still sends, would reset the connection, and the
            # client might never see the answer.
            self.transport.write_eof()
            self.loop.call_later(_LINGER, self.transport.abort)
        else:
            self.transport.close()

    def _abandon(self) -> RequestResponseCycle | None:
        """Tell the application that nobody waits for an answer; the one that it is working on.

        Uvicorn notifies only the newest request of a connection, which may not even have begun.
        """
        self.pipeline.clear()
        cycle = self._answering
        if cycle is None or cycle.response_complete:
            return None
        cycle.disconnected = True  # whatever the application says now is too late
        cycle.waiting_for_100_continue = False  # nor is it told to send its body
        cycle.message_event.set()
        return cycle


class QuietSocketProtocol(_ReadByClient, WebSocketsSansIOProtocol):
    """A WebSocket with limits on time, where what a client does wrong is no fault of the server.

    Uvicorn waits for ever for a handshake that its parser has given up, and for a client that reads
    nothing of what is left when a connection is closed.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._timeouts = timeouts_of(server_state)
        self._unread = Unread(self._timeouts)
        self._began = self.loop.time()
        self.close_timeout = self._timeouts.header_seconds  # for the client's answer to a close

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        try:
            super().data_received(data)
        except Exception:  # such as assertions about frames that come before the handshake is over
            _log.debug("a WebSocket that cannot be read", exc_info=True)
            self.transport.abort()
            return
        if self.conn.handshake_exc is not None and not self.transport.is_closing():
            self._refuse()

    def _refuse(self) -> None:
        """Answer a handshake that the parser has given up, which uvicorn does not notice."""
        said = b"".join(self.conn.data_to_send())
        self.transport.write(
            said or refusal(b"400 Bad Request", "this is not a handshake of a WebSocket")
        )
        self.close_sent = self.handshake_complete = True
        self.transport.close()

    def check_timeouts(self) -> None:
        """Called once a second: end the connection if the client, or the handshake, is too slow."""
        now = self.loop.time()
        self._unread.check(self.transport, now)
        if not self.handshake_complete and now - self._began > self._timeouts.header_seconds:
            self.transport.abort()

    def shutdown(self) -> None:
        if not self.transport.is_closing():  # what was said last has been said then
            super().shutdown()

    async def run_asgi(self) -> None:
        extensions: Any = self.scope["extensions"]
        extensions[TEXT] = self.write_text
        await super().run_asgi()

    async def write_text(self, text: bytes) -> None:
        """Send a message of text in UTF-8 once the handshake is over. Uvicorn makes several objects
        of each, and there is one for every subscriber of an event.
        """
        await self.writable.wait()
        if self.disconnected or self.close_sent or self.conn.state is not OPEN:
            raise ClientDisconnected
        size = len(text)
        if size < 126:
            head = bytes((_TEXT_FRAME, size))
        elif size < 1 << 16:
            head = _MEDIUM_HEAD.pack(_TEXT_FRAME, 126, size)
        else:
            head = _LARGE_HEAD.pack(_TEXT_FRAME, 127, size)
        self.transport.write(head + text)

    async def send(self, message: ASGISendEvent) -> None:
        if self.transport.is_closing() and not self.handshake_complete:
            raise ClientDisconnected
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Uvicorn leaves this to those that are accepted, and misses it at the end.
            self.handshake_complete = True

    def send_500_response(self) -> None:
        if not self.transport.is_closing():
            super().send_500_response()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:  # uvicorn would do the same, and log a traceback
                self.frames = []
                self.conn.send_close(_NOT_TEXT)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()
