"""`Router`: a worker that matches events of a JetStream stream and tells their subscribers."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

import nats.errors

from boxmatch.errors import RouteError
from boxmatch.nats.bucket import ReloadError
from boxmatch.nats.connection import Connection
from boxmatch.nats.monitoring import Health, Metrics
from boxmatch.nats.names import Names
from boxmatch.nats.routes import find_route
from boxmatch.nats.session import Session

if TYPE_CHECKING:
    from nats.aio.client import Client

_AGAIN_SECONDS: Final = 1.0
_QUIET_SECONDS: Final = 5.0
"""For which one kind of error is not logged again."""

log = logging.getLogger("boxmatch.route")


class Router:
    """A worker of a route. Any number of them share the work, on any number of machines.

    The connection may be the caller's, and is left open then. For one event loop; matching happens
    in a thread.
    """

    def __init__(
        self,
        connection: Client | Connection,
        route: str = "boxmatch",
        *,
        shard: int = 0,
        batch: int = 500,
        name: str | None = None,
        metrics: Metrics | None = None,
        snapshot_changes: int = 50_000,
    ) -> None:
        """`batch` is how many messages are fetched together. The `name` of a worker must not be
        that of another one; if none is given, one is made up. After so many `snapshot_changes` of
        the bucket a snapshot is written, from which others start.
        """
        if batch < 1:
            raise RouteError(f"batch must be at least 1, not {batch}")
        if snapshot_changes < 1:
            raise RouteError(f"snapshot_changes must be at least 1, not {snapshot_changes}")
        self.names = Names.of(route)
        self.name = name or f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(3)}"
        self.metrics = metrics or Metrics()
        self.health = Health(self.metrics)
        self._given = connection
        self.shard = shard
        self.batch = batch
        self.snapshot_changes = snapshot_changes
        self._stopping = asyncio.Event()
        self._ready = asyncio.Event()
        self._quiet: dict[str, float] = {}
        self._session: Session | None = None
        self.distrusts_snapshots = False
        """Whether the next session reads the whole bucket."""

    async def run(self) -> None:
        """Route until `stop` is called. What fails is tried again, after an error in the log.

        `RouteError`: there is no such shard, or the caller's connection was closed.
        """
        with ThreadPoolExecutor(1, "boxmatch-route") as thread:
            while not self._stopping.is_set():
                try:
                    await self._connect_and_route(thread)
                    self.distrusts_snapshots = False
                except ReloadError as error:
                    self.distrusts_snapshots = True
                    log.warning("reading subscriptions again: %s", error)
                except (RouteError, nats.errors.Error, TimeoutError, OSError) as error:
                    if isinstance(error, UnknownShardError) or self._is_closed:
                        raise
                    self.fail("route", error)
                    self._unready(str(error) or type(error).__name__)
                    await self._pause(_AGAIN_SECONDS)
        self.health.set("stopped")

    def stop(self) -> None:
        """Finish what is in hand, and end `run`."""
        self._stopping.set()
        if self._session is not None:
            self._session.wake()

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping.is_set()

    @property
    def is_ready(self) -> bool:
        """Whether events are being routed."""
        return self._ready.is_set()

    def now_ready(self) -> None:
        """Subscriptions are loaded."""
        self._ready.set()

    async def wait_ready(self) -> None:
        """Until events are being routed."""
        await self._ready.wait()

    @property
    def _is_closed(self) -> bool:
        return not isinstance(self._given, Connection) and self._given.is_closed

    async def _connect_and_route(self, thread: ThreadPoolExecutor) -> None:
        if not isinstance(self._given, Connection):
            return await self._route(self._given, thread)
        connection = await self._given.open(
            f"boxmatch route {self.name}", partial(self.fail, "connection")
        )
        try:
            await self._route(connection, thread)
        finally:
            with suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(5.0):
                    await connection.close()

    async def _route(self, connection: Client, thread: ThreadPoolExecutor) -> None:
        js = connection.jetstream()
        found = await find_route(js, self.names)
        if self.shard >= found.settings.shards:
            raise UnknownShardError(
                f"route {self.names.route!r} has shards 0 to {found.settings.shards - 1}, "
                f"so none is {self.shard}"
            )
        session = Session(self, connection, js, found.settings, found.incarnation, thread)
        self._session = session
        try:
            await session.run()
        finally:
            self._session = None
            session.close()
            self._ready.clear()
            if not self._stopping.is_set():
                self.health.set("starting again")

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    def _unready(self, reason: str) -> None:
        self._ready.clear()
        self.health.set(reason)

    def fail(self, reason: str, error: object) -> None:
        """Count an error, and log it unless the same was logged a moment ago."""
        self.metrics.errors.labels(reason).inc()
        now = time.monotonic()
        if now - self._quiet.get(reason, float("-inf")) > _QUIET_SECONDS:
            self._quiet[reason] = now
            said = str(error) or type(error).__name__
            log.error("failed: %s", said, extra={"reason": reason})


class UnknownShardError(RouteError):
    """The route has no such shard."""
