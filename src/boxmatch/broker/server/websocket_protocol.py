"""WebSockets as uvicorn speaks them, which in its hands may stay open for ever, or log errors.

Uvicorn waits for a handshake that its parser has given up, and for a client that reads nothing of
what is left when a connection is closed. Neither has an end without the limits here.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from boxmatch.broker.server.timeouts import Unread, refusal, timeouts_of

if TYPE_CHECKING:
    from asyncio.transports import BaseTransport

    from uvicorn._types import ASGISendEvent
    from uvicorn.config import Config
    from uvicorn.server import ServerState

_NOT_TEXT = 1007
_log = logging.getLogger("boxmatch.server")


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket with limits on time, where what a client does wrong is no fault of the server."""

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

    def pause_writing(self) -> None:
        self._unread.begin(self.transport, self.loop.time())
        super().pause_writing()

    def resume_writing(self) -> None:
        self._unread.end()
        super().resume_writing()

    def check_timeouts(self) -> None:
        """Called once a second: end the connection if the client, or the handshake, is too slow."""
        now = self.loop.time()
        self._unread.check(self.transport, now)
        if not self.handshake_complete and now - self._began > self._timeouts.header_seconds:
            self.transport.abort()

    def shutdown(self) -> None:
        if not self.transport.is_closing():  # what was said last has been said then
            super().shutdown()

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
