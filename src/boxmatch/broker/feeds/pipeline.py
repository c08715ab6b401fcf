"""The way of an event: received, matched, made durable, delivered.

Receiving and delivering happen in the event loop, matching in a thread for each feed, and the store
has another one for the disk. Between them are queues; what is in them all together is bounded, and
no feed can take all the room.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

import structlog

from boxmatch.arrays import Int64Array
from boxmatch.broker.delivery.notifications import Notifications
from boxmatch.broker.feeds.admission import Admission
from boxmatch.broker.feeds.event_feed import EventFeed, FeedMatches
from boxmatch.broker.feeds.feed_queue import FeedQueue
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.store import Appended, Store, StoreTransaction
from boxmatch.broker.store.recipients import NOBODY, Recipients
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.errors import BoxmatchError, BrokerError
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.responses import Receipt

if TYPE_CHECKING:
    from boxmatch.broker.subscribers.directory import Feed

T = TypeVar("T")
log = structlog.get_logger(__name__)

_MOST_EVENTS = 4_096
_MOST_SECONDS = 0.02
"""Events that are matched together, and for how long: more do not make it faster, but everybody
waits longer."""

_ALONE = 0.05
"""Seconds for which there was never more than one request on its way: then a publisher is alone."""

_RECENT = 0.2
"""What the last batch counts in how long a feed's events take."""
_SLOWEST = 0.1
"""Seconds that an event is believed to take; more, and the machine was busy with something else."""


@dataclass(eq=False)
class PublishRequest:
    """Events of one request on their way."""

    feed: EventFeed
    events: Events
    key: str | None
    wait: bool
    """Whether the publisher waits until they are durable."""
    answer: asyncio.Future[Receipt]
    at: float
    received: float = field(default_factory=time.perf_counter)
    matched: float = 0.0
    recipients: Recipients = NOBODY
    matches: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    """That it is expected to take."""
    nbytes: int = field(init=False)

    def __post_init__(self) -> None:
        self.nbytes = self.events.nbytes

    @property
    def size(self) -> tuple[int, int, float]:
        """As `Load` counts it."""
        return len(self.events.rows), self.nbytes, self.seconds


Item: TypeAlias = PublishRequest | Callable[[], None]
"""Events to be matched, or something else to be done in their order."""


class EventPipeline:
    """Takes events in and hands out what became of them."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        notifications: Notifications,
        metrics: Metrics,
        clock: Callable[[], float],
        *,
        most_events: int,
        most_bytes: int,
    ) -> None:
        self._store = store
        self._directory = directory
        self._notifications = notifications
        self._metrics = metrics
        self._clock = clock
        self._admission = Admission(metrics, most_events, most_bytes)
        self._queues: WeakKeyDictionary[Feed, FeedQueue[Item]] = WeakKeyDictionary()
        self._making_queue = threading.Lock()
        self._shared_at = -math.inf
        """When there last was more than one request on its way."""
        self._loop_calls: deque[Callable[[], None]] = deque()
        self._scheduled = False
        self._loop = asyncio.get_running_loop()

    @property
    def events(self) -> int:
        """On their way at the moment."""
        return self._admission.load.events

    @property
    def nbytes(self) -> int:
        """Of these events, in memory."""
        return self._admission.load.nbytes

    @property
    def is_alive(self) -> bool:
        """Whether no thread that matches has ended."""
        return all(queue.is_alive for queue in self._all_queues())

    def _queue(self, feed: Feed) -> FeedQueue[Item]:
        """From any thread."""
        with self._making_queue:
            queue = self._queues.get(feed)
            if queue is None:
                name = f"matcher of {feed.spec.name}"
                queue = self._queues[feed] = FeedQueue(name, _take, self._carry_out)
            return queue

    def _all_queues(self) -> list[FeedQueue[Item]]:
        with self._making_queue:
            return list(self._queues.values())

    # In the event loop

    async def publish(
        self, feed: str, events: Events, *, wait: bool = True, key: str | None = None
    ) -> Receipt:
        """Publish events; all of them or, with an error, none.

        Returns when they are durable; with `wait=False` when they are known to be in order.
        """
        known = self._directory.feed(feed).feed
        if not isinstance(known, EventFeed):
            raise BrokerError(f"feed {feed!r} is a state feed: put publications into it")
        if not events.rows:
            return Receipt(0, 0, 0, True)
        request = PublishRequest(
            known, events, key, wait, self._loop.create_future(), self._clock()
        )
        await self._admission.enter(request)
        self._metrics.events_received(feed, len(events.rows))
        self._queue(known).put(request)
        return await request.answer

    def check_room(self, feed: Feed) -> None:
        """`OverloadError` if so many publishers to a feed wait for room that there is no use in
        reading the events of another.
        """
        self._admission.check(feed)

    async def call(self, feed: Feed, change: Callable[[], T]) -> T:
        """Run something in the thread of a feed, after what is queued for it."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(change())
            except BaseException as error:
                future.set_exception(error)

        self.call_soon(feed, run)
        return await asyncio.wrap_future(future)

    def call_soon(self, feed: Feed, change: Callable[[], None]) -> None:
        """The same from any thread, without waiting for it."""
        self._queue(feed).put(change)

    async def stop(self) -> None:
        """Finish what is queued, and end."""
        queues = self._all_queues()
        for queue in queues:
            queue.stop()
        for queue in queues:
            await asyncio.to_thread(queue.join)

    def call_in_loop(self, call: Callable[[], None]) -> None:
        """Run something in the event loop, from any thread: in the order of these calls.

        Notifications must go out in the order in which they became durable.
        """
        self._loop_calls.append(call)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon_threadsafe(self._run_loop_calls)

    def _run_loop_calls(self) -> None:
        self._scheduled = False
        while self._loop_calls:
            call = self._loop_calls.popleft()
            try:
                call()
            except Exception:  # the others are not to blame
                log.exception("in what follows a write")
        self._admission.admit()

    def _finish(self, request: PublishRequest, result: Appended | BaseException) -> None:
        """What is durable is answered and delivered."""
        self._admission.leave(request)
        if isinstance(result, BaseException):
            self._metrics.refused("storage")
            settle(request.answer, result)
            return
        name = request.feed.spec.name
        self._metrics.stage(name, "commit", time.perf_counter() - request.matched)
        # What was there already is counted as it was stored the first time.
        receipt = Receipt(result.first, result.last, result.size, True, result.repeated)
        settle(request.answer, receipt)
        if not result.repeated:
            self._metrics.committed(name, result.size)
            self._deliver(request, result)

    def _deliver(self, request: PublishRequest, stored: Appended) -> None:
        entry = self._directory.entry_of(request.feed)
        if entry is None:
            return
        bodies, recipients, matches = request.events.bodies, request.recipients, request.matches
        if stored.new is not None:
            bodies = [bodies[place] for place in stored.new]
            recipients = recipients.select(stored.new)
            matches = len(recipients.length)
        entry.events += len(bodies)
        entry.matches += matches
        self._notifications.dispatch(
            entry, request.at, stored.first, bodies, recipients, request.rate
        )

    def _refuse(self, request: PublishRequest, error: Exception) -> None:
        self._admission.leave(request)
        self._metrics.refused("event")
        settle(request.answer, error)

    # In the thread of a feed

    def _carry_out(self, items: list[Item]) -> None:
        for feed, group in groupby(items, _feed_of):
            try:
                if feed is None:
                    for call in group:
                        call()  # type: ignore[operator]  # it has no feed, so it is one
                else:
                    self._match(feed, list(group))  # type: ignore[arg-type]  # requests
            except Exception:  # the thread has to go on whatever happens
                log.exception("in the thread of a feed")

    def _match(self, feed: EventFeed, requests: Sequence[PublishRequest]) -> None:
        began = time.perf_counter()
        name = feed.spec.name
        for request in requests:
            self._metrics.stage(name, "wait", began - request.received)
        if len(requests) == 1:
            rows = requests[0].events.rows
        else:
            rows = [row for one in requests for row in one.events.rows]
        try:
            feed.check(rows)
            found = feed.match(rows, began - requests[0].received)
        except Exception as error:
            if len(requests) == 1:
                self.call_in_loop(partial(self._refuse, requests[0], error))
                return
            for request in requests:  # the others are not to blame
                self._match(feed, [request])
            return
        slots = found.slots
        feed.slots.count(slots)
        now = time.perf_counter()
        feed.pace += _RECENT * (min((now - began) / len(rows), _SLOWEST) - feed.pace)
        self._metrics.stage(name, "match", now - began)
        self._metrics.matched(name, len(rows), len(slots))
        for request, (places, mine) in zip(requests, _shares(found, requests), strict=True):
            request.recipients = feed.slots.recipients(places, mine)
            request.rate = found.rate
            request.matches = len(mine)
            request.matched = now
            self._commit(request)

    def _commit(self, request: PublishRequest) -> None:
        if not request.wait:
            rows = len(request.events.rows)
            self.call_in_loop(partial(settle, request.answer, Receipt(0, 0, rows, False)))

        def change(transaction: StoreTransaction) -> Appended:
            return transaction.append(
                request.feed.number,
                request.at,
                request.events.bodies,
                request.recipients,
                key=request.key,
                keys=request.events.keys,
                rate=request.rate,
            )

        def done(result: Appended | BaseException) -> None:
            self.call_in_loop(partial(self._finish, request, result))

        # Who is alone gains by not waiting for another thread. Of several, those that come during a
        # commit should be matched meanwhile, and share the next one.
        if self.events != len(request.events.rows):
            self._shared_at = request.matched
        is_alone = request.matched - self._shared_at > _ALONE
        try:
            self._store.enqueue(change, done, here=is_alone)
        except BoxmatchError as error:
            done(error)


def _shares(
    found: FeedMatches, requests: Sequence[PublishRequest]
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """The matches of each request: which of its events, and which slot."""
    if len(requests) == 1:
        yield found.event, found.slots
        return
    first_row = first_match = 0
    for request in requests:
        last_row = first_row + len(request.events.rows)
        last_match = first_match + int(found.counts[first_row:last_row].sum())
        here = slice(first_match, last_match)
        yield found.event[here] - first_row, found.slots[here]
        first_row, first_match = last_row, last_match


def _take(queue: deque[Item]) -> list[Item]:
    """The next items, up to so many events. The longer the queue, the larger the batch."""
    taken: list[Item] = []
    events, seconds = 0, 0.0
    while queue and events < _MOST_EVENTS and seconds < _MOST_SECONDS:
        item = queue.popleft()
        taken.append(item)
        if isinstance(item, PublishRequest):
            events += len(item.events.rows)
            seconds += len(item.events.rows) * item.feed.pace
    return taken


def _feed_of(item: Item) -> EventFeed | None:
    return item.feed if isinstance(item, PublishRequest) else None


def settle(answer: asyncio.Future[Receipt] | None, result: Receipt | BaseException) -> None:
    """Answer, unless nobody has asked, that was done early, or nobody waits any more."""
    if answer is None or answer.done():
        return
    if isinstance(result, BaseException):
        answer.set_exception(result)
    else:
        answer.set_result(result)
