"""The two clients but for how they wait.

What they do is written once, as coroutines. Those of the blocking client never suspend, since all
that they call blocks, so they are run to their end at once (`exchange.finish`).
"""

from __future__ import annotations

import threading
from asyncio import Event as AsyncEvent
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Generic, NoReturn, Protocol, SupportsIndex, TypeVar

import httpx

from boxmatch.client.connection import LOSSES, Address, Verify, lost, unanswered
from boxmatch.client.exchange import Operation, Response, RetryPolicy, Sleep, retrying
from boxmatch.client.listener import (
    Connect,
    Follower,
    Outcome,
    Receive,
    Send,
    SharedFollower,
    Step,
    TimedOut,
)
from boxmatch.client.operations import Operations
from boxmatch.errors import ClientError
from boxmatch.wire.responses import Notification

_MOST_REASON = 1_000

T = TypeVar("T")
L = TypeVar("L", bound="BaseListener[Any, Any]")
W = TypeVar("W", bound="BaseListener[Any, Any]")


class _Connection(Protocol):
    """A WebSocket of either kind."""

    def send(self, message: str) -> Awaitable[None] | None: ...
    def close(self) -> Awaitable[None] | None: ...


C = TypeVar("C", bound=_Connection)
E = TypeVar("E", bound=threading.Event | AsyncEvent)


async def settle(result: T | Awaitable[T]) -> T:
    """What a call of either kind returns: at once, or when it is awaited."""
    return await result if isinstance(result, Awaitable) else result


class BaseClient(Operations, Generic[L, W]):
    """What the two clients share."""

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
        self._listeners: set[L | W] = set()
        self._http: Any = self._open()

    def _open(self) -> httpx.Client | httpx.AsyncClient:
        """What requests are sent with."""
        raise NotImplementedError

    def _make_listener(self, follower: Follower) -> L:
        raise NotImplementedError

    def _make_worker(self, follower: SharedFollower) -> W:
        raise NotImplementedError

    def _sleep(self, seconds: float) -> Awaitable[None] | None:
        raise NotImplementedError

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
    ) -> L:
        """The subscriber's notifications as they come: iterate, best inside `with`. With
        `AsyncClient` that is `async for` and `async with`, and waiting for a notification can be
        cancelled and taken up again.

        Begins after the number `after`, or where the broker's cursor for this subscriber is. A
        connection that breaks is opened again for as long as it takes, and no notification comes
        twice. A notification is acknowledged once the next one is asked for, or when the `with`
        block ends without an error. With `acknowledge=False` that is up to you
        (`Listener.acknowledge`); the broker sends no more than `window` notifications before it
        hears of them. The iteration ends if no notification comes for `idle` seconds.
        """
        listener = self._make_listener(
            Follower(
                subscriber,
                after=after,
                acknowledge=acknowledge,
                window=window,
                idle=idle,
                retries=self._retries,
            )
        )
        self._listeners.add(listener)
        return listener

    def work(
        self,
        subscriber: str,
        *,
        acknowledge: bool = True,
        window: int = 10,
        idle: float | None = None,
    ) -> W:
        """What this connection gets of the notifications that the subscriber shares (`share`):
        iterate, best inside `with`. With `AsyncClient` that is `async for` and `async with`.

        A notification is acknowledged once the next one is asked for, or when the `with` block ends
        without an error; an error that leaves the block rejects it. `Worker.acknowledge` and
        `Worker.reject` do so by hand, and `acknowledge=False` leaves all of it to them. Up to
        `window` notifications are here at a time, and their deadlines count from then on; those
        that have not been begun when it is closed go to others. The iteration ends if no
        notification comes for `idle` seconds.
        """
        worker = self._make_worker(
            SharedFollower(
                subscriber,
                after=None,
                acknowledge=acknowledge,
                window=window,
                idle=idle,
                retries=self._retries,
            )
        )
        self._listeners.add(worker)
        return worker

    async def _carry_out(self, operation: Operation[T], retries: RetryPolicy | None = None) -> T:
        if self._http.is_closed:
            raise ClientError("the client is closed")
        exchange = retrying(operation, retries or self._retries)
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Sleep):
                    await settle(self._sleep(step.seconds))
                    step = exchange.send(None)
                    continue
                try:
                    sent = self._http.request(**self._address.request_options(step))
                    response: httpx.Response = await settle(sent)
                except httpx.TransportError as error:
                    step = exchange.send(unanswered(error))
                else:
                    answer = Response(response.status_code, response.headers, response.content)
                    step = exchange.send(answer)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            exchange.close()

    async def _forget(self, listener: L | W, subscriber: str, done: int | None) -> None:
        """A listener was closed; `done` is what is left to be acknowledged."""
        self._listeners.discard(listener)
        if done is not None:
            with suppress(ClientError):  # then it comes again the next time
                acknowledgement = Operations.acknowledge(subscriber, done)
                await self._carry_out(acknowledgement, RetryPolicy(seconds=0))


class BaseListener(Generic[C, E]):
    """What the listeners of the two clients share."""

    def __init__(self, client: BaseClient[Any, Any], follower: Follower, closed: E) -> None:
        self._client = client
        self._follower = follower
        self._closed = closed
        self._connection: C | None = None
        self._lock = threading.Lock()  # of `_connection` and the step from open to closed

    @property
    def dropped(self) -> int:
        """Notifications that the subscriber has lost because it did not read them in time."""
        return self._follower.dropped

    async def _dial(self, **options: Any) -> C:
        """Open a connection."""
        raise NotImplementedError

    async def _receive(self, connection: C, seconds: float | None) -> str | bytes:
        """The next message; `TimeoutError` if none comes in time."""
        raise NotImplementedError

    async def _pause(self, seconds: float) -> None:
        """Wait, but not for longer than the listener is open."""
        raise NotImplementedError

    async def _acknowledge(self, sequence: int) -> None:
        text = self._follower.acknowledge(sequence)
        if text is not None:
            await self._perform(Send(text))

    async def _next(self) -> Notification | None:
        """The next notification; None at the end."""
        try:
            if not self._closed.is_set():
                self._follower.take_back()
            while not self._closed.is_set() and (step := self._follower.step) is not None:
                notification = self._follower.hand_over()
                if notification is not None:
                    return notification
                self._follower.answer(await self._perform(step))
        except ClientError:
            await self._close()
            raise
        await self._close()
        return None

    async def _perform(self, step: Step) -> Outcome:
        try:
            if isinstance(step, Connect):
                await self._connect(step)
                return None
            if isinstance(step, Sleep):
                await self._pause(step.seconds)
                return None
            connection = self._connection
            if connection is None:
                return lost(ConnectionError("not connected"))
            if isinstance(step, Send):
                await settle(connection.send(step.text))
            elif isinstance(step, Receive):
                try:
                    return await self._receive(connection, step.seconds)
                except TimeoutError:
                    return TimedOut()
        except LOSSES as error:
            return lost(error)
        return None

    async def _connect(self, step: Connect) -> None:
        await self._drop()
        connection = await self._dial(**self._client._address.socket_options(step))
        with self._lock:
            if not self._closed.is_set():
                self._connection = connection
                return
        await settle(connection.close())  # closed in the meantime, by another thread or task

    async def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            await settle(connection.close())

    async def _exit(self, kind: type[BaseException] | None, error: BaseException | None) -> None:
        """At the end of a `with` block."""
        failure = "" if kind is None else f"{kind.__name__}: {error}".rstrip(": ")[:_MOST_REASON]
        await self._close(finished=kind is None, failure=failure)

    async def _close(self, *, finished: bool = False, failure: str = "") -> None:
        """End the iteration. `finished`: the user is done with the last notification too;
        `failure` is why not.
        """
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        for text in self._follower.farewell(finished=finished, failure=failure):
            await self._perform(Send(text))
        done = self._follower.last_number(finished=finished) if self._connection else None
        await self._drop()
        await self._client._forget(self, self._follower.subscriber, done)
