"""A thousand subscribers in one process: their sockets, and all that came in through them."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch_bench.broker.settings import owner_name
from boxmatch_bench.broker.wire import TextSocket, WireError


class Received:
    """What was delivered, an entry for each event and subscription, in the order of arrival."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.time = array("d")
        self.sequence = array("q")
        self.subscription = array("q")
        self.value = array("q")
        """The event's first value, which shows whether it is the right event."""
        self.notes = 0
        self.disordered = 0
        """Notes that did not have a higher number than the one before, for the same subscriber."""

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        names = ("time", "sequence", "subscription", "value")
        return {name: np.array(getattr(self, name)) for name in names}


class Subscriber:
    """One socket. It acknowledges after every so many notes, and when it is told to."""

    def __init__(
        self,
        number: int,
        after: int,
        received: Received,
        acknowledge: int,
        failed: Callable[[Exception], None],
    ) -> None:
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        path = f"/owners/{owner_name(number)}/notes/socket?after={after}"
        self.socket = TextSocket(path, self._take, failed)
        self._received = received
        self._last = after
        self._acknowledged = after
        self._every = acknowledge
        self._pending = 0

    def _take(self, text: bytes) -> None:
        now = perf_counter()
        message = orjson.loads(text)
        if message["type"] != "notes":
            self._other(message)
            return
        received = self._received
        for note in message["notes"]:
            sequence = note["sequence"]
            if sequence <= self._last:
                received.disordered += 1
            self._last = sequence
            value = note["event"]["a0"]
            for subscription in note["subscriptions"]:
                received.time.append(now)
                received.sequence.append(sequence)
                received.subscription.append(int(subscription))
                received.value.append(value)
            received.notes += 1
            self._pending += 1
        if self._pending >= self._every:
            self.acknowledge()

    def _other(self, message: dict[str, Any]) -> None:
        if message["type"] != "ready":
            raise WireError(f"a subscriber was told {message}")
        if not self.ready.done():
            self.ready.set_result(None)

    def acknowledge(self) -> None:
        """Acknowledge all that came."""
        self._pending = 0
        if self._last > self._acknowledged:
            self._acknowledged = self._last
            self.socket.send(b'{"type":"acknowledge","sequence":%d}' % self._last)
