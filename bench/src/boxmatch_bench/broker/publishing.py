"""Requests sent in a closed loop, or when they are due; and what became of each."""

from __future__ import annotations

import asyncio
from array import array
from collections import deque
from collections.abc import Sequence
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch_bench.broker.settings import Load
from boxmatch_bench.broker.wire import HttpConnection, WireError

_TICK: Final = 0.001
"""Requests are sent this late at the most, if the system wakes us in time. It counts as latency.
The event loop rounds to milliseconds, so anything less would keep a core busy."""


class Publishing:
    """One phase of publishing. Requests are taken in turn, from the start again at the end.

    At a rate, latency begins when a request is due, also if it cannot be sent then because all
    connections wait for answers: a broker that stalls does not hide that by holding up the load.
    """

    def __init__(
        self, requests: Sequence[bytes], load: Load, connections: Sequence[HttpConnection]
    ) -> None:
        self._requests = requests
        self._load = load
        self._free = deque(connections)
        self._next = 0
        self._under_way = 0
        self._interval = 0.0 if load.rate is None else load.batch / load.rate
        self._timer: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self.due, self.sent, self.answered = array("d"), array("d"), array("d")
        self.first = array("q")
        for connection in connections:
            connection.answered = self._answered
            connection.failed = self.fail

    async def run(self) -> None:
        """Returns when all that was sent is answered."""
        self.began = perf_counter()
        self._end = self.began + self._load.seconds
        self._fill()
        await self._done

    def fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("due", "sent", "answered", "first")
        return {name: np.array(getattr(self, name)) for name in names}

    def _fill(self) -> None:
        now = perf_counter()
        while self._free:
            due = self.began + self._next * self._interval if self._interval else now
            if due >= self._end:
                if not self._under_way and not self._done.done():
                    self._done.set_result(None)
                return
            if due > now:
                if self._timer is None:
                    self._timer = self._loop.call_later(max(_TICK, due - now), self._wake)
                return
            self._send(self._free.popleft(), due, now)

    def _wake(self) -> None:
        self._timer = None
        self._fill()

    def _send(self, connection: HttpConnection, due: float, now: float) -> None:
        connection.index = self._next
        self.due.append(due)
        self.sent.append(now)
        self.answered.append(0.0)
        self.first.append(0)
        self._under_way += 1
        connection.send(self._requests[self._next % len(self._requests)])
        self._next += 1

    def _answered(self, connection: HttpConnection, status: int, body: bytes) -> None:
        if status != 200:
            self.fail(WireError(f"an event was refused: {status} {body[:500]!r}"))
            return
        receipt = orjson.loads(body)
        if receipt["count"] != self._load.batch or not receipt["durable"]:
            self.fail(WireError(f"an odd answer: {receipt}"))
            return
        self.answered[connection.index] = perf_counter()
        self.first[connection.index] = receipt["first"]
        self._under_way -= 1
        self._free.append(connection)
        self._fill()
