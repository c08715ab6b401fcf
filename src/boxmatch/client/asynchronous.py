"""The client that is awaited, for programs with an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Concatenate, NoReturn, ParamSpec, Self, SupportsIndex, TypeVar

import httpx
from websockets.asyncio.client import ClientConnection, connect

from boxmatch.client import operations
from boxmatch.client.connection import (
    LOSSES,
    Address,
    Verify,
    answer_of,
    as_method,
    lost,
    unanswered,
)
from boxmatch.client.exchange import Operation, RetryPolicy, Sleep, retrying
from boxmatch.client.listener import (
    Connect,
    Follower,
    Outcome,
    Receive,
    Run,
    Send,
    Step,
    TimedOut,
)
from boxmatch.client.results import Notification
from boxmatch.errors import ClientError

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    operation: Callable[P, Operation[T]],
) -> Callable[Concatenate[AsyncClient, P], Awaitable[T]]:
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._carry_out(operation(*args, **kwargs))

    as_method(method, operation)
    return method


class AsyncClient:
    """A connection to a broker, for one event loop. The options are those of `Client`."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 30.0,
        retry_seconds: float = 60.0,
        verify: Verify = True,
    ) -> None:
        self._address = Address(url, key, timeout, verify)
        self._retries = RetryPolicy(seconds=retry_seconds)
        self._http = httpx.AsyncClient(**self._address.http_options())
        self._listeners: set[AsyncListener] = set()

    create_feed = _method(operations.create_feed)
    feeds = _method(operations.feeds)
    feed = _method(operations.feed)
    extend_feed = _method(operations.extend_feed)
    drop_feed = _method(operations.drop_feed)
    publish = _method(operations.publish)
    events = _method(operations.events)
    subscribe = _method(operations.subscribe)
    subscribe_many = _method(operations.subscribe_many)
    unsubscribe = _method(operations.unsubscribe)
    subscription = _method(operations.subscription)
    subscriptions = _method(operations.subscriptions)
    dry_run = _method(operations.dry_run)
    explain = _method(operations.explain)
    subscriber = _method(operations.subscriber)
    notifications = _method(operations.notifications)
    acknowledge = _method(operations.acknowledge)
    put_webhook = _method(operations.put_webhook)
    webhook = _method(operations.webhook)
    delete_webhook = _method(operations.delete_webhook)
    dead_letters = _method(operations.dead_letters)
    replay = _method(operations.replay)
    put_publication = _method(operations.put_publication)
    patch_publication = _method(operations.patch_publication)
    retract = _method(operations.retract)
    publication = _method(operations.publication)

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        # Of `copy` and `pickle`: a copy would share connections and close them for both.
        raise ClientError(
            "a client cannot be copied or pickled: make another with the same address"
        )

    def listen(
        self,
        subscriber: str,
        *,
        after: int | None = None,
        acknowledge: bool = True,
        window: int | None = None,
        idle: float | None = None,
    ) -> AsyncListener:
        """The subscriber's notifications as they come: `async for`, best inside `async with`.

        See `Client.listen`. Waiting for a notification can be cancelled and taken up again.
        """
        follower = Follower(
            subscriber,
            after=after,
            acknowledge=acknowledge,
            window=window,
            idle=idle,
            retries=self._retries,
        )

        async def on_close(listener: AsyncListener, done: int | None) -> None:
            self._listeners.discard(listener)
            if done is not None:
                with contextlib.suppress(ClientError):  # then it comes again the next time
                    await self._carry_out(
                        operations.acknowledge(subscriber, done), RetryPolicy(seconds=0)
                    )

        listener = AsyncListener(self._address, follower, on_close)
        self._listeners.add(listener)
        return listener

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


class AsyncListener:
    """A subscriber's notifications, one by one. One task iterates; any task may close it."""

    def __init__(
        self,
        address: Address,
        follower: Follower,
        on_close: Callable[[AsyncListener, int | None], Awaitable[None]],
    ) -> None:
        self._address = address
        self._follower = follower
        self._run = Run(follower)
        self._on_close = on_close
        self._connection: ClientConnection | None = None
        self._closed = asyncio.Event()

    @property
    def dropped(self) -> int:
        """Notifications that the subscriber has lost because it did not read them in time."""
        return self._follower.dropped

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
