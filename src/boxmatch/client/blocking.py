"""The client that blocks, for scripts and threads."""

from __future__ import annotations

import threading
import time
from typing import Any, Self

import httpx
from websockets.sync.client import ClientConnection, connect

from boxmatch.client.base import BaseClient, BaseListener
from boxmatch.client.exchange import finish
from boxmatch.client.listener import Follower, Send, SharedFollower
from boxmatch.wire.responses import Notification


class Client(BaseClient["Listener", "Worker"], awaited=False):
    """A connection to a broker. Any number of threads may share it.

    What fails in passing (no connection, 429, 503) is tried again for up to `retry_seconds`;
    `timeout` is for one attempt. `verify` may be a file of certificates to trust, or False.
    """

    def _open(self) -> httpx.Client:
        return httpx.Client(**self._address.http_options())

    def _make_listener(self, follower: Follower) -> Listener:
        return Listener(self, follower, threading.Event())

    def _make_worker(self, follower: SharedFollower) -> Worker:
        return Worker(self, follower, threading.Event())

    def _sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def close(self) -> None:
        """Close all connections; whoever is listening gets to the end."""
        for listener in list(self._listeners):
            listener.close()
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Listener(BaseListener[ClientConnection, threading.Event]):
    """A subscriber's notifications, one after the other. One thread iterates; any thread may close
    it.
    """

    def acknowledge(self, sequence: int) -> None:
        """Say that all up to this number is done with; if not now, then when connected again."""
        finish(self._acknowledge(sequence))

    def close(self) -> None:
        """End the iteration, from any thread. The last notification is not acknowledged."""
        finish(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, *_: object
    ) -> None:
        finish(self._exit(kind, error))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Notification:
        notification = finish(self._next())
        if notification is None:
            raise StopIteration
        return notification

    async def _dial(self, **options: Any) -> ClientConnection:
        # Entered here and closed elsewhere: it is to outlive this call.
        connection: ClientConnection = connect(**options).__enter__()
        return connection

    async def _receive(self, connection: ClientConnection, seconds: float | None) -> str | bytes:
        return connection.recv(seconds)

    async def _pause(self, seconds: float) -> None:
        self._closed.wait(seconds)


class Worker(Listener):
    """What one connection gets of notifications that are shared, one after the other."""

    _follower: SharedFollower

    def acknowledge(self, sequence: int) -> None:
        """Say that this notification is done with; if not now, then when connected again."""
        super().acknowledge(sequence)

    def reject(self, sequence: int, reason: str = "", *, delay: float = 0.0) -> None:
        """Have this notification handed out again, after `delay` seconds, unless it was handed out
        too often already.
        """
        finish(self._perform(Send(self._follower.reject(sequence, reason, delay))))

    def extend(self, sequence: int, seconds: float | None = None) -> None:
        """Take longer for this notification: so many seconds from now, or the `ack_seconds`."""
        finish(self._perform(Send(self._follower.extend(sequence, seconds))))
