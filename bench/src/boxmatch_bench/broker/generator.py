"""The load generator: it loads subscriptions, publishes, and receives for all subscribers.

Publishers and subscribers are in one process so that one clock says how long a notification took.
"""

from __future__ import annotations

import asyncio
import gc
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch.broker.server.sockets import raise_file_limit
from boxmatch_bench.broker.clients import Publisher, Received, Subscriber
from boxmatch_bench.broker.wire import HttpConnection, WireError, request_bytes
from boxmatch_bench.options import BrokerOptions
from boxmatch_bench.settings import FEED, BrokerSetting, Schedule, subscriber_name

_HOST: Final = "127.0.0.1"
_AT_ONCE: Final = 50
"""Sockets that are opened at a time."""
_CHUNK: Final = 10_000
_PATIENCE: Final = 15.0
"""Seconds without a notification after which missing ones are given up."""
_QUIET: Final = 0.5
"""Seconds without a notification after the last true match; then no false one follows."""
_TELL: Final = 0.25
_TELL_LOADED: Final = 50


def main(pipe: Connection, port: int, setting: BrokerSetting, options: BrokerOptions) -> None:
    """Carry out commands that come through the pipe: (method, arguments), None at the end.

    Answers are ("progress", done, of), ("result", value) or ("error", text).
    """
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:  # there is none for Windows
        factory = None
    raise_file_limit(setting.subscribers + options.loaders + options.connections)
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(_obey(pipe, Generator(pipe, port, setting, options)))


async def _obey(pipe: Connection, generator: Generator) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            command = await loop.run_in_executor(None, pipe.recv)
        except EOFError:  # whoever started us has gone
            return
        if command is None:
            await generator.close()
            return
        name, arguments = command
        try:
            pipe.send(("result", await getattr(generator, name)(*arguments)))
        except Exception:
            pipe.send(("error", traceback.format_exc()))


class Generator:
    """The load on one broker."""

    def __init__(
        self, pipe: Connection, port: int, setting: BrokerSetting, options: BrokerOptions
    ) -> None:
        self._pipe = pipe
        self._port = port
        self._setting = setting
        self._options = options
        self._received = Received()
        self._subscribers: list[Subscriber] = []
        self._failure: Exception | None = None
        self._fail: Callable[[Exception], None] = lambda _: None
        self._requests: dict[tuple[int, str], list[bytes]] = {}
        self._expected: npt.NDArray[np.int64] = np.empty(0, np.int64)

    async def load(self) -> float:
        """Make the feed and all subscriptions, many at a time. Returns how long it took."""
        await self.create(FEED)
        requests = list(self._subscriptions())
        waiting = enumerate(requests, 1)

        async def put() -> None:
            connection = await self._connect()
            for number, request in waiting:  # shared: each takes the next
                status, text = await connection.answer_to(request)
                if status != 200:
                    raise WireError(f"a subscription was refused: {status} {text[:500]!r}")
                if number % _TELL_LOADED == 0:
                    self.tell(number, len(requests))
            connection.close()

        began = perf_counter()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._options.loaders, len(requests))):
                group.create_task(put())
        return perf_counter() - began

    async def create(self, feed: str) -> None:
        """Make a feed for the workload's events."""
        schema = dict.fromkeys(self._setting.workload.names, "int")
        body = orjson.dumps({"name": feed, "schema": schema, "index": self._setting.index})
        await self._ask("the feed was refused", "POST", "/feeds", body)

    def _subscriptions(self) -> Iterator[bytes]:
        """Requests, those of one subscriber far apart: it has to wait for the one before."""
        workload, subscribers = self._setting.workload, self._setting.subscribers
        wanted = [
            {name: {"low": low, "high": high} for name, (low, high) in ranges.items()}
            for ranges in workload.filters(0, workload.subscriptions)
        ]
        span = self._options.put * subscribers
        for first in range(0, len(wanted), span):
            for number in range(min(subscribers, len(wanted) - first)):
                rows = range(first + number, min(first + span, len(wanted)), subscribers)
                path = f"/subscribers/{subscriber_name(number)}/subscriptions"
                if self._options.put == 1:
                    body = orjson.dumps({"feed": FEED, "filter": wanted[rows[0]]})
                    yield request_bytes("PUT", f"{path}/{rows[0]}", body)
                else:
                    filters = {str(row): wanted[row] for row in rows}
                    body = orjson.dumps({"feed": FEED, "filters": filters})
                    yield request_bytes("POST", path, body)

    async def connect(self, expected: npt.NDArray[np.int64]) -> float:
        """Open the sockets of all subscribers. `expected`: matches of each event of the pool."""
        self._expected = expected
        feed = await self._ask("there is no feed", "GET", f"/feeds/{FEED}")
        after = orjson.loads(feed)["last_sequence"]
        began = perf_counter()
        for start in range(0, self._setting.subscribers, _AT_ONCE):
            stop = min(start + _AT_ONCE, self._setting.subscribers)
            opened = [
                Subscriber(
                    number, after, self._received, self._options.acknowledge, self._subscriber_lost
                )
                for number in range(start, stop)
            ]
            self._subscribers += opened
            await asyncio.gather(*(self._open(one) for one in opened))
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(one.ready for one in opened))
            self.tell(stop, self._setting.subscribers)
        return perf_counter() - began

    async def _open(self, subscriber: Subscriber) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: subscriber.socket, _HOST, self._port)

    def _subscriber_lost(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._fail(error)

    async def adapt(self, wanted: dict[str, float] | None) -> None:
        """Give the feed an adjuster with these parameters, or none."""
        path = f"/feeds/{FEED}/adaptive"
        body = b"" if wanted is None else orjson.dumps(wanted)
        method = "DELETE" if wanted is None else "PUT"
        await self._ask("the adjuster was refused", method, path, body)

    async def publish(self, schedule: Schedule) -> dict[str, Any]:
        """Publish as scheduled, wait for all notifications; return what was sent and what came."""
        requests = await self._prepared(schedule.batch, FEED)
        received = self._received
        received.clear()
        publishing = Publisher(requests, schedule, self._connect)
        self._fail = publishing.fail
        # What is made here is arrays and texts: nothing for the collector to find.
        gc.collect()
        gc.freeze()
        gc.disable()
        telling = asyncio.create_task(self._tell_time(schedule.planned_seconds))
        try:
            if self._failure is not None:
                raise self._failure
            await publishing.run()
            ended = perf_counter()
            published = publishing.arrays()
            await self._wait_for_matches(self._expected_of(published["first"], schedule.batch))
        finally:
            gc.enable()
            telling.cancel()
        for subscriber in self._subscribers:
            subscriber.acknowledge()
        return {
            "began": publishing.began,
            "ended": ended,
            "published": published,
            "received": received.arrays(),
            "notifications": received.notifications,
            "disordered": received.disordered,
        }

    async def publish_only(self, feed: str, schedule: Schedule) -> dict[str, Any]:
        """Publish as scheduled, while nobody is connected; return what was sent."""
        publishing = Publisher(await self._prepared(schedule.batch, feed), schedule, self._connect)
        self._fail = publishing.fail
        await publishing.run()
        return {
            "began": publishing.began, "ended": perf_counter(), "published": publishing.arrays()
        }  # fmt: skip

    async def _prepared(self, batch: int, feed: str) -> list[bytes]:
        """Requests with the pool's events, made before the clock runs."""
        if (batch, feed) not in self._requests:
            self._requests.clear()  # they are large
            workload, pool = self._setting.workload, self._options.pool
            path = f"/feeds/{feed}/events?wait=durable"
            made: list[bytes] = []
            step = batch * max(1, _CHUNK // batch)
            for start in range(0, pool, step):
                events = workload.event_dicts(start, min(start + step, pool))
                for first in range(0, len(events), batch):
                    body = orjson.dumps(
                        events[first : first + batch] if batch > 1 else events[first]
                    )
                    made.append(request_bytes("POST", path, body))
                await asyncio.sleep(0)  # the broker wants to know whether we are there
            self._requests[batch, feed] = made
        return self._requests[batch, feed]

    def _expected_of(self, first: npt.NDArray[np.int64], batch: int) -> int:
        """How many matches the requests have that were accepted."""
        by_request = self._expected.reshape(-1, batch).sum(axis=1)
        return int(by_request[first.nonzero()[0] % len(by_request)].sum())

    async def _wait_for_matches(self, total: int) -> None:
        """Wait for notifications under way; the comparison finds what never came."""
        arrived, since = -1, perf_counter()
        while True:
            matches = self._received.matches
            if matches != arrived:
                arrived, since = matches, perf_counter()
            if perf_counter() - since > (_QUIET if matches >= total else _PATIENCE):
                return
            if self._failure is not None:
                raise self._failure
            await asyncio.sleep(0.005)

    async def _tell_time(self, seconds: float) -> None:
        began = perf_counter()
        while True:
            await asyncio.sleep(_TELL)
            self.tell(min(perf_counter() - began, seconds), seconds)

    def tell(self, done: float, total: float) -> None:
        self._pipe.send(("progress", done, total))

    async def _connect(self) -> HttpConnection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(HttpConnection, _HOST, self._port)
        return connection

    async def _ask(self, complaint: str, method: str, path: str, body: bytes = b"") -> bytes:
        connection = await self._connect()
        status, text = await connection.answer_to(request_bytes(method, path, body))
        connection.close()
        if status not in (200, 201):
            raise WireError(f"{complaint}: {status} {text[:500]!r}")
        return text

    async def close(self) -> None:
        for subscriber in self._subscribers:
            subscriber.socket.close()
        await asyncio.sleep(0.1)
