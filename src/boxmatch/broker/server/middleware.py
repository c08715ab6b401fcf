"""What surrounds the HTTP application: counting and logging requests, and ending reads at the end.

Long polls and event streams would hold up a shutdown until its time is over. They change nothing,
so they are ended at once; requests that change something are waited for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from boxmatch.broker.server.protocols import WHOLE

if TYPE_CHECKING:
    from boxmatch.broker.monitoring.metrics import Metrics

_READS = ("GET", "HEAD")
_STOPPING = (
    b'{"type":"about:blank","title":"Service Unavailable","status":503,"detail":"stopping"}\n'
)


class Middleware:
    """An ASGI application around another."""

    def __init__(self, app: ASGIApp, metrics: Metrics, *, log_requests: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests
        self._log = structlog.get_logger("boxmatch.http")
        self._reads: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def end_reads(self) -> None:
        """End all GET requests under way, and answer 503 to those to come."""
        self._stopping = True
        for task in self._reads:
            task.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        response = _Response(send, scope.get("extensions", {}).get(WHOLE))
        began = time.perf_counter()
        try:
            if scope["method"] in _READS:
                await self._read(scope, receive, response)
            else:
                await self._app(scope, receive, response.send)
        finally:
            self._record(scope, response.status, time.perf_counter() - began)

    async def _read(self, scope: Scope, receive: Receive, response: _Response) -> None:
        task = asyncio.current_task()
        if task is None or self._stopping:
            await response.finish()
            return
        self._reads.add(task)
        try:
            await self._app(scope, receive, response.send)
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            task.uncancel()
            await response.finish()
        finally:
            self._reads.discard(task)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        # The template, such as /feeds/{feed}: paths as they came would be labels without end.
        route = getattr(scope.get("route"), "path", "")
        self._metrics.request(scope["method"], route, status)
        # A probe is told that the broker is not ready as often as it asks.
        is_failure = status >= 500 and scope["path"] != "/readyz"
        if not self._log_requests and not is_failure:
            return
        client = scope.get("client")
        write = self._log.warning if is_failure else self._log.info
        # No query string, no headers, no body: keys and what is published are nobody's business.
        write(
            "request",
            method=scope["method"],
            path=scope["path"],
            status=status,
            milliseconds=round(seconds * 1e3, 2),
            client=client[0] if client else None,
        )


class _Response:
    """How far a response is, and how it is brought to an end."""

    def __init__(self, send: Send, write_whole: Callable[[Message, bytes], bool] | None) -> None:
        self._send = send
        self._write_whole = write_whole
        self._head: Message | None = None
        """Until the body begins, with which it may be written at once."""
        self.status = 0
        """0: none was sent, the client has left."""
        self._complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            if self._write_whole is not None:
                self._head = message
                return
        elif message["type"] == "http.response.body":
            self._complete = not message.get("more_body", False)
            head, self._head = self._head, None
            if head is not None and self._write_whole is not None:
                if self._complete and self._write_whole(head, message["body"]):
                    return
                await self._send(head)
        await self._send(message)

    async def finish(self) -> None:
        if self._complete:
            return
        body = b""
        if self.status == 0 or self._head is not None:
            body = _STOPPING
            headers = [
                (b"content-type", b"application/problem+json"),
                (b"content-length", str(len(body)).encode()),
                (b"retry-after", b"1"),
                (b"connection", b"close"),
            ]
            await self.send({"type": "http.response.start", "status": 503, "headers": headers})
        await self.send({"type": "http.response.body", "body": body, "more_body": False})
