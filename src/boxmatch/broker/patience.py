"""Clients that take their time: how long the server waits for a request, and for a reader.

Uvicorn waits for ever for the rest of a request, and has no limit for the size of headers with the
fast parser. Both are looked at here, in the protocol: a request notes when it began and how much
has come, and once a second the server compares that with the clock. So a request that comes in
time pays for two assignments, not for timers.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from boxmatch.broker.handshakes import QuietSocketProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

TICKS_PER_SECOND = 10
"""Uvicorn's main loop."""
_LINGER = 1.0
"""Seconds that a client has to read why it was refused."""
_MOST_WAITING = 1_000
"""Requests of one connection that wait for an answer to those before them."""
_log = logging.getLogger("boxmatch.server")


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the server waits for clients."""

    header_seconds: float = 10.0
    """From the connection, or the first byte of the next request, to the end of the headers."""
    header_bytes: int = 64 * 1024
    """For the headers, and for what comes after them without being body, such as trailers."""
    body_seconds: float = 20.0
    """For the body, plus what it takes at `body_rate` bytes a second."""
    body_rate: float = 32 * 1024.0
    idle_seconds: float = 60.0
    """Between two requests. Longer than clients keep connections they do not use, as a rule:
    a connection that the server closes just as a request is sent is trouble for the client."""
    stalled_seconds: float = 60.0
    """For a reader that takes nothing of a response at all."""
    check_seconds: float = 1.0

    @property
    def ticks(self) -> int:
        return max(1, round(self.check_seconds * TICKS_PER_SECOND))


class PatientProtocol(HttpToolsProtocol):
    """HTTP/1.1 as uvicorn speaks it, with limits on time, on headers and on connections."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._patience: Patience = getattr(server_state, "patience", None) or Patience()
        self._most: int = getattr(server_state, "most", 1 << 30)
        self._began: float | None = None
        """When the request began that is being read."""
        self._in_headers = True
        self._header_bytes = 0
        """Since the headers or the request were complete, or the body grew."""
        self._advanced = False
        """Whether the last bytes did one of these."""
        self._body_bytes = 0
        self._stalled: float | None = None
        self._refused = False
        self._answering: RequestResponseCycle | None = None
        self.ws_protocol_class = QuietSocketProtocol

    def connection_made(  # type: ignore[override]  # uvicorn narrows it too: a socket's
        self, transport: asyncio.Transport
    ) -> None:
        super().connection_made(transport)
        self._began = self.loop.time()
        if len(self.connections) > self._most:
            _log.warning("too many connections: one was refused")
            self._refuse(b"503 Service Unavailable", "too many connections")

    def data_received(self, data: bytes) -> None:
        if self._refused or self.transport.is_closing():
            return  # what still comes after that
        if self._began is None and not self._busy():
            # Also for what the parser skips without calling it a request, such as empty lines.
            self._began = self.loop.time()
            self._in_headers = True
            self._header_bytes = 0
        self._advanced = False
        try:
            super().data_received(data)
        except Exception:  # such as a path for a WebSocket that is not ASCII
            _log.debug("a request that cannot be read", exc_info=True)
            self.transport.abort()
            return
        if self._refused:
            return
        if not self._advanced and (self._in_headers or self._began is not None):
            self._header_bytes += len(data)
            if self._header_bytes > self._patience.header_bytes:
                self._refuse(b"431 Request Header Fields Too Large", "the headers are too large")
        elif len(self.pipeline) > _MOST_WAITING:
            self._refuse(b"429 Too Many Requests", "too many requests without waiting for answers")

    def on_message_begin(self) -> None:
        super().on_message_begin()
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
        super().on_message_complete()

    def pause_writing(self) -> None:
        self._stalled = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled = None
        super().resume_writing()

    def check_patience(self) -> None:
        """Called once a second: end the connection if the client is too slow."""
        if self._refused or self.transport.is_closing():
            return
        now = self.loop.time()
        patience = self._patience
        if self._stalled is not None and now - self._stalled > patience.stalled_seconds:
            _log.info("a reader took nothing for too long: connection closed")
            self.transport.abort()  # closing would wait for the reader
        elif self._began is None or self.flow.read_paused:
            pass  # nothing is being read; or it is us who do not read on
        elif self._in_headers:
            if now - self._began > patience.header_seconds:
                self._refuse(b"408 Request Timeout", "the headers took too long")
        elif now - self._began > patience.body_seconds + self._body_bytes / patience.body_rate:
            self._refuse(b"408 Request Timeout", "the body took too long")

    def _busy(self) -> bool:
        # None until the first request, whatever uvicorn's types say.
        return bool(self.cycle) and not self.cycle.response_complete

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle  # `self.cycle` is the newest, which may wait behind it
        super()._start_asgi_task(cycle, app)

    def send_400_response(self, msg: str) -> None:
        self._refuse(b"400 Bad Request", "this is not a request in HTTP/1.1")

    def _refuse(self, status: bytes, reason: str) -> None:
        self._refused = True
        self.pipeline.clear()
        cycle = self._answering
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True  # whatever the application says now is too late
            cycle.message_event.set()
            if cycle.response_started:
                self.transport.abort()
                return
        self._say(status, reason)
        if self.transport.can_write_eof():
            # Closing at once, while the client still sends, would reset the connection, and the
            # client might never see the answer.
            self.transport.write_eof()
            self.loop.call_later(_LINGER, self.transport.abort)
        else:
            self.transport.close()

    def _say(self, status: bytes, reason: str) -> None:
        body = b'{"type":"about:blank","title":"%b","status":%b,"detail":"%b"}' % (
            status[4:],
            status[:3],
            reason.encode(),
        )
        head = (
            b"HTTP/1.1 %b\r\ncontent-type: application/problem+json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head % (status, len(body)) + body)
