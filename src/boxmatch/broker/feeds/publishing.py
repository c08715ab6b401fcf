"""The way of an event: received, matched, made durable, delivered.

Receiving and delivering happen in the event loop, matching in a thread of its own, and the store
has another one for the disk. Between them are queues; what is in them all together is bounded.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import Protocol, TypeVar

import structlog

from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.slots import Inboxes
from boxmatch.broker.messages import Events, Receipt
from boxmatch.broker.store import Appended, Store, Transaction
from boxmatch.errors import BoxmatchError, OverloadError

T = TypeVar("T")
log = structlog.get_logger(__name__)

_MOST_EVENTS = 4_096
_MOST_SECONDS = 0.02
"""Events that are matched together, and for how long: more do not make it faster, but everybody
waits longer."""

_MOST_WORK = 2.0
"""Seconds of matching that may be queued: so much later, at most, a load is felt that is over."""

_RECENT = 0.2
"""What the last batch counts in how long a feed's events take."""
_SLOWEST = 0.1
"""Seconds that an event is believed to take; more, and the machine was busy with something else."""


@dataclass(eq=False)
class Publication:
    """Events of one request on their way."""

    feed: EventFeed
    events: Events
    key: str | None
    wait: bool
    """Whether the publisher wants to hear when they are durable."""
    answer: asyncio.Future[Receipt]
    at: float
    received: float = field(default_factory=time.perf_counter)
    matched: float = 0.0
    inboxes: Inboxes = field(default_factory=dict)
    matches: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    """That it is expected to take."""
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = self.events.nbytes


class Observer(Protocol):
    """Is told of times; see `boxmatch.broker.monitoring.metrics`."""

    def stage(self, feed: str, name: str, seconds: float) -> None: ...
    def events_received(self, feed: str, events: int) -> None: ...
    def matched(self, feed: str, events: int, matches: int) -> None: ...
    def committed(self, feed: str, events: int) -> None: ...
    def refused(self, reason: str) -> None: ...


class Flow:
    """Takes events in and hands out what became of them."""

    def __init__(
        self,
        store: Store,
        deliver: Callable[[Publication, int], None],
        observer: Observer,
        *,
        most_events: int,
        most_bytes: int,
    ) -> None:
        self._store = store
        self._deliver = deliver
        self._observer = observer
        self._most_events, self._most_bytes = most_events, most_bytes
        self.events = 0
        """On their way at the moment."""
        self.nbytes = 0
        self._seconds = 0.0
        self._outside: deque[tuple[Publication, asyncio.Future[None]]] = deque()
        self._outside_bytes = 0
        self._queue: deque[Publication | Callable[[], None]] = deque()
        self._changed = threading.Condition(threading.Lock())
        self._stopping = False
        self._landed: deque[Callable[[], None]] = deque()
        self._landing = False
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._match_all, name="matcher", daemon=True)
        self._thread.start()

    # In the event loop

    async def publish(self, publication: Publication, timeout: float) -> Receipt:
        """Send events on their way; returns when they are durable, or if so wanted, matched."""
        self._let_in()
        if self._outside or not self._has_room(publication):
            await self._wait_for_room(publication, timeout)
        else:
            self._enter(publication)
        name, events = publication.feed.spec.name, len(publication.events.rows)
        self._observer.events_received(name, events)
        self._put(publication)
        return await asyncio.shield(publication.answer)

    def check_room(self) -> None:
        """Send a publisher away before its events are read, if many wait for room already."""
        self._let_in()
        if 2 * self._outside_bytes > self._most_bytes:
            raise self._overload()

    def _has_room(self, publication: Publication) -> bool:
        events = len(publication.events.rows)
        return self.events == 0 or (
            self.events + events <= self._most_events
            and self.nbytes + publication.nbytes <= self._most_bytes
            and self._seconds + events * publication.feed.pace <= _MOST_WORK
        )

    async def _wait_for_room(self, publication: Publication, timeout: float) -> None:
        """Publishers are let in as they came, each when its turn has come and there is room.

        What they hold meanwhile counts too: if it is as much as may be queued, the next ones are
        sent away at once.
        """
        if self._outside and self._outside_bytes + publication.nbytes > self._most_bytes:
            raise self._overload()
        turn: asyncio.Future[None] = self._loop.create_future()
        self._outside.append((publication, turn))
        self._outside_bytes += publication.nbytes
        try:
            async with asyncio.timeout(timeout):
                await turn
        except TimeoutError:
            if turn.cancelled():  # else it was let in at the last moment
                raise self._overload() from None
        except asyncio.CancelledError:
            if not turn.cancelled():
                self._leave(publication)
            raise
        finally:
            self._outside_bytes -= publication.nbytes

    def _overload(self) -> OverloadError:
        self._observer.refused("overload")
        text = f"{self.events:,} events are waiting to be matched"
        return OverloadError(text, retry_after=1.0)

    def _let_in(self) -> None:
        """Not all at once, who would then find that there is room for a few of them."""
        while self._outside:
            publication, turn = self._outside[0]
            if not turn.cancelled():
                if not self._has_room(publication):
                    return
                self._enter(publication)
                turn.set_result(None)
            self._outside.popleft()

    def _enter(self, publication: Publication) -> None:
        events = len(publication.events.rows)
        publication.seconds = events * publication.feed.pace
        self.events += events
        self.nbytes += publication.nbytes
        self._seconds += publication.seconds
        publication.feed.waiting += events

    async def call(self, change: Callable[[], T]) -> T:
        """Run something in the matching thread, after what is queued."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(change())
            except BaseException as error:
                future.set_exception(error)

        self._put(run)
        return await asyncio.wrap_future(future)

    def call_soon(self, change: Callable[[], None]) -> None:
        """The same from any thread, without waiting for it."""
        self._put(change)

    async def stop(self) -> None:
        """Finish what is queued, and end."""
        with self._changed:
            self._stopping = True
            self._changed.notify()
        await asyncio.to_thread(self._thread.join)

    def _put(self, item: Publication | Callable[[], None]) -> None:
        with self._changed:
            self._queue.append(item)
            self._changed.notify()

    def land(self, call: Callable[[], None]) -> None:
        """Have something done in the event loop, from any thread: in the order of these calls.

        Notifications must go out in the order in which they became durable.
        """
        self._landed.append(call)
        if not self._landing:
            self._landing = True
            self._loop.call_soon_threadsafe(self._land)

    def _land(self) -> None:
        self._landing = False
        while self._landed:
            call = self._landed.popleft()
            try:
                call()
            except Exception:  # the others are not to blame
                log.exception("in what follows a write")
        self._let_in()

    def _finish(self, publication: Publication, result: Appended | BaseException) -> None:
        """What is durable is answered and delivered."""
        events = self._leave(publication)
        if isinstance(result, BaseException):
            self._observer.refused("storage")
            settle(publication.answer, result)
            return
        name = publication.feed.spec.name
        self._observer.stage(name, "commit", time.perf_counter() - publication.matched)
        number = result.last - result.first + 1  # of the first time, if this was a repetition
        receipt = Receipt(result.first, result.last, number, True, result.repeated)
        settle(publication.answer, receipt)
        if not result.repeated:
            self._observer.committed(name, events)
            self._deliver(publication, result.first)

    def _refuse(self, publication: Publication, error: Exception) -> None:
        self._leave(publication)
        self._observer.refused("event")
        settle(publication.answer, error)

    def _leave(self, publication: Publication) -> int:
        events = len(publication.events.rows)
        self.events -= events
        self.nbytes -= publication.nbytes
        self._seconds = self._seconds - publication.seconds if self.events else 0.0
        publication.feed.waiting -= events
        return events

    # In the matching thread

    def _match_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._stopping)
                if not self._queue:
                    return
                items = self._take()
            for feed, group in groupby(items, _feed_of):
                try:
                    if feed is None:
                        for call in group:
                            call()  # type: ignore[operator]  # it has no feed, so it is one
                    else:
                        self._match(feed, list(group))  # type: ignore[arg-type]  # publications
                except Exception:  # the thread has to go on whatever happens
                    log.exception("in the matching thread")

    def _take(self) -> list[Publication | Callable[[], None]]:
        """The next items, up to so many events. The longer the queue, the larger the batch."""
        taken: list[Publication | Callable[[], None]] = []
        events, seconds = 0, 0.0
        while self._queue and events < _MOST_EVENTS and seconds < _MOST_SECONDS:
            item = self._queue.popleft()
            taken.append(item)
            if isinstance(item, Publication):
                events += len(item.events.rows)
                seconds += len(item.events.rows) * item.feed.pace
        return taken

    def _match(self, feed: EventFeed, publications: Sequence[Publication]) -> None:
        began = time.perf_counter()
        name = feed.spec.name
        for publication in publications:
            self._observer.stage(name, "wait", began - publication.received)
        if len(publications) == 1:
            rows = publications[0].events.rows
        else:
            rows = [row for one in publications for row in one.events.rows]
        try:
            feed.check(rows)
            found = feed.match(rows, began - publications[0].received)
        except Exception as error:
            if len(publications) == 1:
                self.land(partial(self._refuse, publications[0], error))
                return
            for publication in publications:  # the others are not to blame
                self._match(feed, [publication])
            return
        slots = found.slots
        feed.slots.count(slots)
        now = time.perf_counter()
        feed.pace += _RECENT * (min((now - began) / len(rows), _SLOWEST) - feed.pace)
        self._observer.stage(name, "match", now - began)
        self._observer.matched(name, len(rows), len(slots))
        first_row = first_match = 0
        for publication in publications:
            last_row = first_row + len(publication.events.rows)
            last_match = first_match + int(found.counts[first_row:last_row].sum())
            here = slice(first_match, last_match)
            publication.inboxes = feed.slots.inboxes(found.event[here] - first_row, slots[here])
            publication.rate = found.rate
            publication.matches = last_match - first_match
            publication.matched = now
            first_row, first_match = last_row, last_match
            self._commit(publication)

    def _commit(self, publication: Publication) -> None:
        if not publication.wait:
            rows = len(publication.events.rows)
            self.land(partial(settle, publication.answer, Receipt(0, 0, rows, False)))

        def change(transaction: Transaction) -> Appended:
            return transaction.append(
                publication.feed.number,
                publication.at,
                publication.events.bodies,
                publication.inboxes,
                key=publication.key,
                rate=publication.rate,
            )

        def done(result: Appended | BaseException) -> None:
            self.land(partial(self._finish, publication, result))

        try:
            self._store.write(change, done)
        except BoxmatchError as error:
            done(error)


def _feed_of(item: Publication | Callable[[], None]) -> EventFeed | None:
    return item.feed if isinstance(item, Publication) else None


def settle(answer: asyncio.Future[Receipt] | None, result: Receipt | BaseException) -> None:
    """Answer, unless nobody has asked, that was done early, or nobody waits any more."""
    if answer is None or answer.done():
        return
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)
