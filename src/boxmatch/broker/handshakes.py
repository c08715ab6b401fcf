"""WebSockets as uvicorn speaks them, without an error in the log for what clients do wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

_NOT_TEXT = 1007


class QuietSocketProtocol(WebSocketsSansIOProtocol):
    """A handshake that is refused with an answer is done; text that is not UTF-8 is no fault."""

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            # Uvicorn leaves this to those that are accepted, and misses it at the end.
            self.handshake_complete = True

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
