"""The client that is awaited, for programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from typing import Any, Self

import httpx
from websockets.asyncio.client import ClientConnection, connect

from boxmatch.client.base import BaseClient, BaseListener
from boxmatch.client.listener import Follower, Send, SharedFollower
from boxmatch.wire.responses import Notification


class AsyncClient(BaseClient["AsyncListener", "AsyncWorker"], awaited=True):
    """A connection to a broker, for one event loop. The options are those of `Client`."""

    def _open(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(**self._address.http_options())

    def _make_listener(self, follower: Follower) -> AsyncListener:
        return AsyncListener(self, follower, asyncio.Event())

    def _make_worker(self, follower: SharedFollower) -> AsyncWorker:
        return AsyncWorker(self, follower, asyncio.Event())

    def _sleep(self, seconds: float) -> Awaitable[None]:
        return asyncio.sleep(seconds)

    async def close(self) -> None:
        """Close all connections; whoever is listening gets to the end."""
        for listener in list(self._listeners):
            await listener.close()
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncListener(BaseListener[ClientConnection, asyncio.Event]):
    """A subscriber's notifications, one by one. One task iterates; any task may close it."""

    async def acknowledge(self, sequence: int) -> None:
        """Say that all up to this number is done with; if not now, then when connected again."""
        await self._acknowledge(sequence)

    async def close(self) -> None:
        """End the iteration, in whichever task it is. The last notification is not acknowledged."""
        await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        await self._exit(kind, error)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        notification = await self._next()
        if notification is None:
            raise StopAsyncIteration
        return notification

    async def _dial(self, **options: Any) -> ClientConnection:
        return await connect(**options)

    async def _receive(self, connection: ClientConnection, seconds: float | None) -> str | bytes:
        async with asyncio.timeout(seconds):
            return await connection.recv()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._closed.wait(), seconds)


class AsyncWorker(AsyncListener):
    """What one connection gets of notifications that are shared, one by one."""

    _follower: SharedFollower

    async def acknowledge(self, sequence: int) -> None:
        """Say that this notification is done with; if not now, then when connected again."""
        await super().acknowledge(sequence)

    async def reject(self, sequence: int, reason: str = "", *, delay: float = 0.0) -> None:
        """Have this notification handed out again, after `delay` seconds, unless it was handed out
        too often already.
        """
        await self._perform(Send(self._follower.reject(sequence, reason, delay)))

    async def extend(self, sequence: int, seconds: float | None = None) -> None:
        """Take longer for this notification: so many seconds from now, or the `ack_seconds`."""
        await self._perform(Send(self._follower.extend(sequence, seconds)))
