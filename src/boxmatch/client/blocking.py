"""The client that blocks, for scripts and threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Concatenate, NoReturn, ParamSpec, Self, SupportsIndex, TypeVar

import httpx
from websockets.sync.client import ClientConnection, connect

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


def _method(operation: Callable[P, Operation[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._carry_out(operation(*args, **kwargs))

    as_method(method, operation)
    return method


class Client:
    """A connection to a broker. Any number of threads may share it.

    What fails in passing (no connection, 429, 503) is tried again for up to `retry_seconds`;
    `timeout` is for one attempt. `verify` may be a file of certificates to trust, or False.
    """

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
        self._http = httpx.Client(**self._address.http_options())
        self._listeners: set[Listener] = set()

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
    ) -> Listener:
        """The subscriber's notifications as they come: iterate, best inside `with`.

        Begins after the number `after`, or where the broker's cursor for this subscriber is. A
        connection that breaks is opened again for as long as it takes, and no notification comes
        twice. A notification is acknowledged once the next one is asked for, or when the `with`
        block ends without an error. With `acknowledge=False` that is up to you
        (`Listener.acknowledge`); the broker sends no more than `window` notifications before it
        hears of them. The iteration ends if no notification comes for `idle` seconds.
        """
        follower = Follower(
            subscriber,
            after=after,
            acknowledge=acknowledge,
            window=window,
            idle=idle,
            retries=self._retries,
        )

        def on_close(listener: Listener, done: int | None) -> None:
            self._listeners.discard(listener)
            if done is not None:
                with contextlib.suppress(ClientError):  # then it comes again the next time
                    self._carry_out(
                        operations.acknowledge(subscriber, done), RetryPolicy(seconds=0)
                    )

        listener = Listener(self._address, follower, on_close)
        self._listeners.add(listener)
        return listener

    def close(self) -> None:
        """Close all connections; whoever is listening gets to the end."""
        for listener in list(self._listeners):
            listener.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _carry_out(self, operation: Operation[T], retries: RetryPolicy | None = None) -> T:
        if self._http.is_closed:
            raise ClientError("the client is closed")
        exchange = retrying(operation, retries or self._retries)
        try:
            step = next(exchange)
            while True:
                if isinstance(step, Sleep):
                    time.sleep(step.seconds)
                    step = exchange.send(None)
                    continue
                try:
                    response = self._http.request(**self._address.request_options(step))
                except httpx.TransportError as error:
                    step = exchange.send(unanswered(error))
                else:
                    step = exchange.send(answer_of(response))
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            exchange.close()


class Listener:
    """A subscriber's notifications, one after the other. One thread iterates; any thread may close
    it.
    """

    def __init__(
        self,
        address: Address,
        follower: Follower,
        on_close: Callable[[Listener, int | None], None],
    ) -> None:
        self._address = address
        self._follower = follower
        self._run = Run(follower)
        self._on_close = on_close
        self._connection: ClientConnection | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()  # of `_connection` and the step from open to closed

    @property
    def dropped(self) -> int:
        """Notifications that the subscriber has lost because it did not read them in time."""
        return self._follower.dropped

    def acknowledge(self, sequence: int) -> None:
        """Say that all up to this number is done with; if not now, then when connected again."""
        text = self._follower.acknowledge(sequence)
        if text is not None:
            self._perform(Send(text))

    def close(self) -> None:
        """End the iteration, from any thread. The last notification is not acknowledged."""
        self._close(finished=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._close(finished=kind is None)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notification:
        try:
            if not self._closed.is_set():
                self._run.take_back()
            while not self._closed.is_set() and (step := self._run.step) is not None:
                notification = self._run.hand_over()
                if notification is not None:
                    return notification
                self._run.answer(self._perform(step))
        except ClientError:
            self.close()
            raise
        self.close()
        raise StopIteration

    def _perform(self, step: Step) -> Outcome:
        try:
            if isinstance(step, Connect):
                self._connect(step)
                return None
            if isinstance(step, Sleep):
                self._closed.wait(step.seconds)
                return None
            connection = self._connection
            if connection is None:
                return lost(ConnectionError("not connected"))
            if isinstance(step, Send):
                connection.send(step.text)
            elif isinstance(step, Receive):
                try:
                    return connection.recv(step.seconds)
                except TimeoutError:
                    return TimedOut()
        except LOSSES as error:
            return lost(error)
        return None

    def _connect(self, step: Connect) -> None:
        self._drop()
        # Entered here and closed elsewhere: it is to outlive this call.
        connection = connect(**self._address.socket_options(step)).__enter__()
        with self._lock:
            if not self._closed.is_set():
                self._connection = connection
                return
        connection.close()  # closed by another thread in the meantime

    def _drop(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _close(self, *, finished: bool) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._closed.set()
        connected = self._connection is not None
        self._drop()
        self._on_close(self, self._follower.last_number(finished=finished) if connected else None)
