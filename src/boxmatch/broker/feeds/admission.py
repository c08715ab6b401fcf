"""Which events are let in, and which publishers have to wait for room, or are sent away.

What is on its way, received and not yet durable, is bounded for each feed and for all together, and
no feed can take all the room. In the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.errors import OverloadError

if TYPE_CHECKING:
    from boxmatch.broker.feeds.pipeline import PublishRequest
    from boxmatch.broker.subscribers.directory import Feed

_ROOM_TIMEOUT = 5.0
"""How long a publisher waits for room in the queue before it is sent away."""

_MOST_WORK = 2.0
"""Seconds of matching that may be queued for a feed: so much later, at most, a load is felt that is
over.
"""

_SHARED = 2
"""All feeds together have so many times the room of one. A feed may take as much as it leaves to
the others: one alone all that a feed may have, a second one half of that, and so on.
"""


@dataclass(eq=False)
class Load:
    """Events that are on their way: received, and not yet durable."""

    events: int = 0
    nbytes: int = 0
    seconds: float = 0.0
    """That matching them is expected to take."""

    def add(self, events: int, nbytes: int, seconds: float) -> None:
        self.events += events
        self.nbytes += nbytes
        self.seconds += seconds

    def remove(self, events: int, nbytes: int, seconds: float) -> None:
        self.events -= events
        self.nbytes -= nbytes
        self.seconds = self.seconds - seconds if self.events else 0.0


@dataclass(eq=False)
class _Share:
    """What a feed has on its way, and its publishers that wait for room."""

    load: Load = field(default_factory=Load)
    waiting: deque[tuple[PublishRequest, asyncio.Future[None]]] = field(default_factory=deque)
    waiting_bytes: int = 0


class Admission:
    """Lets events in."""

    def __init__(self, metrics: Metrics, most_events: int, most_bytes: int) -> None:
        self._metrics = metrics
        self._most_events, self._most_bytes = most_events, most_bytes
        self.load = Load()
        """Of all feeds."""
        self._shares: WeakKeyDictionary[Feed, _Share] = WeakKeyDictionary()
        self._crowded: dict[_Share, None] = {}
        """Those with publishers that wait."""

    def check(self, feed: Feed) -> None:
        """`OverloadError` if so many publishers to a feed wait that another would be sent away."""
        self.admit()
        share = self._share(feed)
        if 2 * share.waiting_bytes > self._most_bytes:
            raise self._overload(share)

    async def enter(self, request: PublishRequest) -> None:
        """Return when there is room; `OverloadError` if there is none for long."""
        share = self._share(request.feed)
        self.admit()
        if share.waiting or not self._has_room(share, request):
            await self._wait(share, request)
        else:
            self._add(share, request)

    def leave(self, request: PublishRequest) -> None:
        """The request is answered."""
        share = self._share(request.feed)
        for load in (share.load, self.load):
            load.remove(*request.size)
        request.feed.waiting = share.load.events

    def admit(self) -> None:
        """Admit publishers for which there is room, one by one: all at once would overfill it."""
        for share in list(self._crowded):
            while share.waiting:
                request, turn = share.waiting[0]
                if not turn.cancelled():
                    if not self._has_room(share, request):
                        break
                    self._add(share, request)
                    turn.set_result(None)
                share.waiting.popleft()
            else:
                del self._crowded[share]

    def _share(self, feed: Feed) -> _Share:
        share = self._shares.get(feed)
        if share is None:
            share = self._shares[feed] = _Share()
        return share

    def _has_room(self, share: _Share, request: PublishRequest) -> bool:
        own, total = share.load, self.load
        events, nbytes = len(request.events.rows), request.nbytes
        return own.events == 0 or (
            own.events + events <= _SHARED * self._most_events - total.events - events
            and own.nbytes + nbytes <= _SHARED * self._most_bytes - total.nbytes - nbytes
            and own.seconds + events * request.feed.pace <= _MOST_WORK
        )

    def _add(self, share: _Share, request: PublishRequest) -> None:
        request.seconds = len(request.events.rows) * request.feed.pace
        for load in (share.load, self.load):
            load.add(*request.size)
        request.feed.waiting = share.load.events

    async def _wait(self, share: _Share, request: PublishRequest) -> None:
        """Publishers are let in as they came, each when its turn has come and there is room.

        What they hold meanwhile counts too: if it is as much as may be queued, the next ones are
        sent away at once.
        """
        if share.waiting and share.waiting_bytes + request.nbytes > self._most_bytes:
            raise self._overload(share)
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        share.waiting.append((request, turn))
        share.waiting_bytes += request.nbytes
        self._crowded[share] = None
        try:
            async with asyncio.timeout(_ROOM_TIMEOUT):
                await turn
        except TimeoutError:
            if turn.cancelled():  # else it was let in at the last moment
                raise self._overload(share) from None
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.leave(request)
            raise
        finally:
            share.waiting_bytes -= request.nbytes

    def _overload(self, share: _Share) -> OverloadError:
        self._metrics.refused("overload")
        text = f"{share.load.events:,} events are waiting to be matched"
        return OverloadError(text, retry_after=1.0)
