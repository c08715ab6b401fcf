"""The client that is awaited, for programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Self, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect

from boxmatch.client.connection import (
    LOSSES,
    Address,
    BaseClient,
    BaseListener,
    answer_of,
    lost,
    unanswered,
)
from boxmatch.client.exchange import Operation, RetryPolicy, Sleep, retrying
from boxmatch.client.listener import (
    Connect,
    Follower,
    Outcome,
    Receive,
    Send,
    Step,
    TimedOut,
)
from boxmatch.client.operations import Operations
from boxmatch.errors import ClientError
from boxmatch.wire.answers import Notification

T = TypeVar("T")
_OnClose = Callable[["AsyncListener", int | None], Awaitable[None]]


class AsyncClient(BaseClient["AsyncListener"]):
    """A connection to a broker, for one event loop. The options are those of `Client`."""

    def _open(self) -> None:
        self._http = httpx.AsyncClient(**self._address.http_options())

    def _listener(self, subscriber: str, follower: Follower) -> AsyncListener:
        async def on_close(listener: AsyncListener, done: int | None) -> None:
            self._listeners.discard(listener)
            if done is not None:
                with contextlib.suppress(ClientError):  # then it comes again the next time
                    await self._carry_out(
                        Operations.acknowledge(subscriber, done), RetryPolicy(seconds=0)
                    )

        return AsyncListener(self._address, follower, on_close)

    async def close(self) -> None:
        """Close all connections; whoever is listening gets to the end."""
        for listener in list(self._listeners):
            await listener.close()
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _carry_out(self, operation: Operation[T], retries: RetryPolicy | None = None) -> T:
        if self._http.is_closed:
            raise ClientError("the client is closed")
        exchange = retrying(operation, retries or self._retries)
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Sleep):
                    await asyncio.sleep(step.seconds)
                    step = exchange.send(None)
                    continue
                try:
                    response = await self._http.request(**self._address.request_options(step))
                except httpx.TransportError as error:
                    step = exchange.send(unanswered(error))
                else:
                    step = exchange.send(answer_of(response))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            exchange.close()


class AsyncListener(BaseListener[_OnClose]):
    """A subscriber's notifications, one by one. One task iterates; any task may close it."""

    def __init__(self, address: Address, follower: Follower, on_close: _OnClose) -> None:
        super().__init__(address, follower, on_close)
        self._connection: ClientConnection | None = None
        self._closed = asyncio.Event()

    async def acknowledge(self, sequence: int) -> None:
        """Say that all up to this number is done with; if not now, then when connected again."""
        text = self._follower.acknowledge(sequence)
        if text is not None:
            await self._perform(Send(text))

    async def close(self) -> None:
        """End the iteration, in whichever task it is. The last notification is not acknowledged."""
        await self._close(finished=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: object, *_: object) -> None:
        await self._close(finished=kind is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Notification:
        try:
            if not self._closed.is_set():
                self._run.take_back()
            while not self._closed.is_set() and (step := self._run.step) is not None:
                notification = self._run.hand_over()
                if notification is not None:
                    return notification
                self._run.answer(await self._perform(step))
        except ClientError:
            await self.close()
            raise
        await self.close()
        raise StopAsyncIteration

    async def _perform(self, step: Step) -> Outcome:
        try:
            if isinstance(step, Connect):
                await self._connect(step)
                return None
            if isinstance(step, Sleep):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._closed.wait(), step.seconds)
                return None
            connection = self._connection
            if connection is None:
                return lost(ConnectionError("not connected"))
            if isinstance(step, Send):
                await connection.send(step.text)
            elif isinstance(step, Receive):
                try:
                    async with asyncio.timeout(step.seconds):
                        return await connection.recv()
                except TimeoutError:
                    return TimedOut()
        except LOSSES as error:
            return lost(error)
        return None

    async def _connect(self, step: Connect) -> None:
        await self._drop()
        connection = await connect(**self._address.socket_options(step))
        if self._closed.is_set():
            await connection.close()
        else:
            self._connection = connection

    async def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _close(self, *, finished: bool) -> None:
        if self._closed.is_set():
            return
        self._closed.set()
        connected = self._connection is not None
        await self._drop()
        await self._on_close(
            self, self._follower.last_number(finished=finished) if connected else None
        )
