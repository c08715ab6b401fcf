"""When publications and subscriptions expire."""

from __future__ import annotations

import heapq
from collections.abc import Iterator

from boxmatch.errors import RegionError
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.records import Which


def check_ttl(ttl: float | None) -> None:
    """Raise `RegionError` unless it is a time to live, or None for ever."""
    if ttl is not None and (type(ttl) not in (int, float) or not ttl > 0):
        raise RegionError(f"ttl is a number of seconds above 0, not {ttl!r}")


class Expiry:
    """The times at which members expire, if they do."""

    def __init__(self) -> None:
        self._times: dict[tuple[Which, SubscriptionId], float] = {}
        self._queue: list[tuple[float, int, Which, SubscriptionId]] = []
        self._entries = 0  # tells entries of the same time apart

    def set(self, which: Which, member_id: SubscriptionId, now: float, ttl: float | None) -> None:
        """Let it expire `ttl` seconds from now, or never."""
        if ttl is None:
            self.forget(which, member_id)
            return
        check_ttl(ttl)
        self.set_time(which, member_id, now + ttl)

    def set_time(self, which: Which, member_id: SubscriptionId, time: float) -> None:
        """Let it expire at this time."""
        self._times[which, member_id] = time
        self._entries += 1
        heapq.heappush(self._queue, (time, self._entries, which, member_id))

    def time_of(self, which: Which, member_id: SubscriptionId) -> float | None:
        """When it expires, if it does."""
        return self._times.get((which, member_id))

    def forget(self, which: Which, member_id: SubscriptionId) -> None:
        """It does not expire any more."""
        self._times.pop((which, member_id), None)  # its entry in the queue is then passed over

    def expired(self, now: float) -> list[tuple[Which, SubscriptionId]]:
        """Those whose time has come, without removing them."""
        if not self._queue or self._queue[0][0] > now:
            return []
        return [key for key, time in self._times.items() if time <= now]

    def due(self, now: float) -> Iterator[tuple[Which, SubscriptionId]]:
        """Those whose time has come, the earliest first. The caller must `forget` each before it
        asks for the next; one that could not be removed is still due.
        """
        while self._queue and self._queue[0][0] <= now:
            time, _, which, member_id = self._queue[0]
            if self._times.get((which, member_id)) == time:
                yield which, member_id
            heapq.heappop(self._queue)
