"""The client that blocks, for scripts and threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import Self, TypeVar

import httpx
from websockets.sync.client import ClientConnection, connect

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
_OnClose = Callable[["Listener", int | None], None]


class Client(BaseClient["Listener"]):
    """A connection to a broker. Any number of threads may share it.

    What fails in passing (no connection, 429, 503) is tried again for up to `retry_seconds`;
    `timeout` is for one attempt. `verify` may be a file of certificates to trust, or False.
    """

    def _open(self) -> None:
        self._http = httpx.Client(**self._address.http_options())

    def _listener(self, subscriber: str, follower: Follower) -> Listener:
        def on_close(listener: Listener, done: int | None) -> None:
            self._listeners.discard(listener)
            if done is not None:
                with contextlib.suppress(ClientError):  # then it comes again the next time
                    self._carry_out(
                        Operations.acknowledge(subscriber, done), RetryPolicy(seconds=0)
                    )

        return Listener(self._address, follower, on_close)

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


class Listener(BaseListener[_OnClose]):
    """A subscriber's notifications, one after the other. One thread iterates; any thread may close
    it.
    """

    def __init__(self, address: Address, follower: Follower, on_close: _OnClose) -> None:
        super().__init__(address, follower, on_close)
        self._connection: ClientConnection | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()  # of `_connection` and the step from open to closed

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
