"""A thousand subscribers in one process, and publishers that send requests when they are due.

Subscribers look only at the head of each notification. An event may have 616 attributes and go to
every subscriber: to parse it each time would take longer than the broker takes for all of it.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from array import array
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch_bench.broker.wire import HttpConnection, TextSocket, WireError
from boxmatch_bench.settings import Schedule, subscriber_name

_NOTIFICATION: Final = re.compile(
    rb'\{"sequence":(\d+),"feed":"[^"]*","at":[^,]*,"subscriptions":\[([^\]]*)\],'
    rb'"rate":([^,]*),"event":\{"a0":(\d+)'
)
_NOTIFICATIONS: Final = b'{"type":"notifications"'


class Received:
    """What was delivered, an entry for each notification, in the order of arrival."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.time, self.rate = array("d"), array("d")
        self.sequence = array("q")
        self.value = array("q")
        """The event's first value, which shows whether it is the right event."""
        self.ids: list[bytes] = []
        """Ids of the subscriptions of each notification, unparsed."""
        self.matches = 0
        self.disordered = 0
        """Notifications that did not have a higher number than the one before, for the same
        subscriber.
        """

    @property
    def notifications(self) -> int:
        return len(self.ids)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        counts = np.array([one.count(b",") + 1 for one in self.ids], np.int64)
        digits = b",".join(self.ids).replace(b'"', b"").decode()
        names = ("time", "sequence", "rate", "value")
        return {
            **{name: np.array(getattr(self, name)) for name in names},
            "matches": counts,
            "subscription": np.fromstring(digits, np.int64, sep=","),
        }


class Subscriber:
    """One socket. It acknowledges every `acknowledge` notifications, and on request."""

    def __init__(
        self,
        number: int,
        after: int,
        received: Received,
        acknowledge: int,
        failed: Callable[[Exception], None],
    ) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        path = f"/subscribers/{subscriber_name(number)}/notifications/socket?after={after}"
        self.socket = TextSocket(path, self._take, failed)
        self._received = received
        self._last = after
        self._acknowledged = after
        self._every = acknowledge
        self._pending = 0

    def _take(self, text: bytes) -> None:
        now = perf_counter()
        if not text.startswith(_NOTIFICATIONS):
            self._other(orjson.loads(text))
            return
        received, before = self._received, self._received.notifications
        for notification in _NOTIFICATION.finditer(text):
            head, ids, rate, value = notification.groups()
            sequence = int(head)
            if sequence <= self._last:
                received.disordered += 1
            self._last = sequence
            received.time.append(now)
            received.sequence.append(sequence)
            received.rate.append(float(rate))
            received.value.append(int(value))
            received.ids.append(ids)
            received.matches += ids.count(b",") + 1
        if received.notifications == before:
            raise WireError(f"a notification that is not understood: {text[:200]!r}")
        self._pending += received.notifications - before
        if self._pending >= self._every:
            self.acknowledge()

    def _other(self, message: dict[str, Any]) -> None:
        if message["type"] != "ready":
            raise WireError(f"a subscriber was told {message}")
        if not self.ready.done():
            self.ready.set_result(None)

    def acknowledge(self) -> None:
        """Acknowledge everything received."""
        self._pending = 0
        if self._last > self._acknowledged:
            self._acknowledged = self._last
            self.socket.send(b'{"type":"acknowledge","sequence":%d}' % self._last)


_NOTHING: Final = -1
_TICK: Final = 0.001
"""Requests are sent at most this late, if the system wakes us in time. It counts as latency.
The event loop rounds to milliseconds, so anything less would keep a core busy."""
_AGAIN: Final = 1.0
"""Seconds until a request that was refused is sent again: what the broker's Retry-After says."""
_IDLE: Final = 2.0
"""Connections idle for longer are not used again: the broker may close them."""

Connect = Callable[[], Awaitable[HttpConnection]]


class Publisher:
    """One phase of publishing. Requests are taken in turn, from the start again at the end.

    Latency begins when a request is due, also if it cannot be sent then because all connections
    wait for answers: a broker that stalls does not hide that by holding up the load. One that is
    refused is sent again a second later, until time is up.
    """

    def __init__(self, requests: Sequence[bytes], schedule: Schedule, connect: Connect) -> None:
        self._requests = requests
        self._schedule = schedule
        self._moments = None if schedule.moments is None else schedule.moments.tolist()
        self._connect = connect
        self._connections: set[HttpConnection] = set()
        self._free: list[tuple[HttpConnection, float]] = []
        """With the time of their last use. The most recently used comes first."""
        self._opening: set[asyncio.Task[None]] = set()
        self._next = 0
        self._again: list[tuple[float, int]] = []
        self._under_way = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        count = len(self._moments or ())
        self.due, self.sent, self.answered = (array("d", bytes(8 * count)) for _ in range(3))
        self.first = array("q", bytes(8 * count))
        """The sequence number; 0 if it was never accepted."""
        self.refused = array("q", bytes(8 * count))

    async def run(self) -> None:
        """Returns when nothing is under way any more."""
        try:
            for _ in range(self._schedule.opened):
                self._add(await self._connect())
            self.began = perf_counter()
            self._end = self.began + self._schedule.seconds
            for place, moment in enumerate(self._moments or ()):
                self.due[place] = self.began + moment
            self._fill()
            await self._done
        finally:
            for task in self._opening:
                task.cancel()
            for connection in self._connections:
                connection.close()

    def fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("due", "sent", "answered", "first", "refused")
        return {name: np.array(getattr(self, name)) for name in names}

    def _fill(self) -> None:
        now = perf_counter()
        while now < self._end:
            due = self._next_due()
            if due is None:
                break
            if due > now:
                self._wait(min(due, self._end) - now)
                return
            connection = self._usable(now)
            if connection is None:
                self._open()
                return
            self._send(connection, self._take(now), now)
        is_over = now >= self._end or self._next_due() is None
        if is_over and not self._under_way and not self._done.done():
            self._done.set_result(None)

    def _usable(self, now: float) -> HttpConnection | None:
        if self._free and now - self._free[-1][1] > _IDLE:
            for connection, _ in self._free:
                connection.close()
                self._connections.remove(connection)
            self._free.clear()
        return self._free.pop()[0] if self._free else None

    def _open(self) -> None:
        """Open another connection if the limit allows; it is used as soon as it is ready."""
        if len(self._connections) + len(self._opening) < self._schedule.connections:
            task = self._loop.create_task(self._opened())
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _opened(self) -> None:
        try:
            connection = await self._connect()
        except Exception as error:
            self.fail(error)
            return
        self._add(connection)
        self._opening.discard(asyncio.current_task())
        self._fill()

    def _add(self, connection: HttpConnection) -> None:
        connection.index = _NOTHING
        connection.answered = self._answered
        connection.failed = partial(self._lost, connection)
        self._connections.add(connection)
        self._free.append((connection, perf_counter()))

    def _lost(self, connection: HttpConnection, error: Exception) -> None:
        """Only a connection with a request under way is missed."""
        if connection.index != _NOTHING:
            self.fail(error)
            return
        self._connections.discard(connection)
        self._free = [one for one in self._free if one[0] is not connection]

    def _next_due(self) -> float | None:
        if self._moments is None:
            return self.began
        fresh = self.due[self._next] if self._next < len(self.due) else None
        if self._again and (fresh is None or self._again[0][0] < fresh):
            return self._again[0][0]
        return fresh

    def _take(self, now: float) -> int:
        """The request that is due: those that were refused before go first."""
        if self._again and self._again[0][0] <= now:
            return heapq.heappop(self._again)[1]
        if self._moments is None:
            self.due.append(now)
            self.sent.append(0.0)
            self.answered.append(0.0)
            self.first.append(0)
            self.refused.append(0)
        self._next += 1
        return self._next - 1

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(max(_TICK, seconds), self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._fill()

    def _send(self, connection: HttpConnection, index: int, now: float) -> None:
        connection.index = index
        if not self.sent[index]:
            self.sent[index] = now
        self._under_way += 1
        connection.send(self._requests[index % len(self._requests)])

    def _answered(self, connection: HttpConnection, status: int, body: bytes) -> None:
        now = perf_counter()
        index, connection.index = connection.index, _NOTHING
        if index == _NOTHING:  # it is told that it was idle for too long, and will be closed
            return
        self._under_way -= 1
        self._free.append((connection, now))
        if status == 503 and self._schedule.retry:
            self.refused[index] += 1
            heapq.heappush(self._again, (now + _AGAIN, index))
        elif status == 200:
            receipt = orjson.loads(body)
            if receipt["count"] != self._schedule.batch or not receipt["durable"]:
                self.fail(WireError(f"an odd answer: {receipt}"))
                return
            self.answered[index] = now
            self.first[index] = receipt["first"]
        else:
            self.fail(WireError(f"an event was refused: {status} {body[:500]!r}"))
            return
        self._fill()
