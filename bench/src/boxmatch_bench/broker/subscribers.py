"""A thousand subscribers in one process: their sockets, and all that came in through them.

They look only at the head of each notification. An event may have 616 attributes and go to every
subscriber: to parse it each time would take longer than the broker takes for all of it.
"""

from __future__ import annotations

import asyncio
import re
from array import array
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import orjson

from boxmatch_bench.broker.wire import TextSocket, WireError
from boxmatch_bench.settings import subscriber_name

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
        """Of the subscriptions, as they came; many are put together at times."""
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
    """One socket. It acknowledges after every so many notifications, and when it is told to."""

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
        """Acknowledge all that came."""
        self._pending = 0
        if self._last > self._acknowledged:
            self._acknowledged = self._last
            self.socket.send(b'{"type":"acknowledge","sequence":%d}' % self._last)
