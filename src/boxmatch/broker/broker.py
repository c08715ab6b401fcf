"""`Broker`: feeds, subscriptions and delivery, behind whatever protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from boxmatch.broker.core import Core, dispatch, with_exact_rate
from boxmatch.broker.delivery.stream import CAPACITY_BYTES, NotificationStream
from boxmatch.broker.delivery.webhooks import Webhooks
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.changes import FeedChanges
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.preview import DryRun, Filter, Preview
from boxmatch.broker.feeds.publishing import Flow, Publication
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.feeds.state_operations import StateOperations
from boxmatch.broker.feeds.top_subscriptions import Order, TopSubscriptions, top_subscriptions
from boxmatch.broker.feeds.tracing import Trace, Tracer
from boxmatch.broker.housekeeping import Housekeeping
from boxmatch.broker.messages import (
    Adaptive,
    DeadLetter,
    Events,
    FeedInfo,
    FeedSpec,
    Notification,
    Receipt,
    Standing,
    SubscriberInfo,
    SubscriptionInfo,
    Wanted,
    Webhook,
)
from boxmatch.broker.monitoring.history import History
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import LoggedEvent, Sizes, Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscriber import Subscriber
from boxmatch.broker.subscribers.subscriptions import SubscriptionChanges
from boxmatch.errors import BrokerError
from boxmatch.model.explanation import Explanation
from boxmatch.model.schema import Schema
from boxmatch.spaces.dimensions import UNCHANGED, RegionSpec, Stored, Unchanged

T = TypeVar("T")

_ROOM_TIMEOUT = 5.0
"""How long a publisher waits for room in the queue before it is sent away."""

_MOST_BYTES = 8 << 20
"""Of notifications that are read at once for somebody who polls."""


class Broker:
    """All methods are for the event loop in which it was started.

    What is acknowledged is durable, together with who gets it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.ready = False
        self.failure: str | None = None
        """Why it can do nothing more, if so."""
        self._changes: set[asyncio.Task[Any]] = set()
        self._clock = clock
        self._store = store
        self._directory = Directory(store, clock)

    @classmethod
    def open(cls, settings: Settings, metrics: Metrics | None = None) -> Broker:
        """A broker with all that its directory holds; takes as long as there is much of it."""
        store = Store.open(settings.data, sync=settings.sync)
        try:
            broker = cls(settings, store, metrics)
            broker.warm_up()
            return broker
        except BaseException:
            store.close()
            raise

    def warm_up(self) -> None:
        """Have everything compiled before the first event comes."""
        probe = Schema({"x": "int", "s": "string"})
        EventFeed(FeedSpec(name="probe", spaces={"probe": probe}), 0).matcher.warmup()
        if any(isinstance(entry.feed, StateFeed) for entry in self._directory.feeds()):
            state_feed.warm_up()

    async def start(self) -> None:
        """Begin to work in the running event loop."""
        settings = self.settings
        flow = Flow(
            self._store,
            self._deliver,
            self.metrics,
            most_events=settings.queue_events,
            most_bytes=settings.queue_bytes,
        )
        self._core = Core(settings, self._store, self._directory, flow, self._clock)
        self._flow = flow
        self._feeds = FeedChanges(self._core)
        self._state = StateOperations(self._core)
        self._subscriptions = SubscriptionChanges(self._core, self._state)
        self._preview = Preview(self._core)
        self._tracer = Tracer(self._core)
        self._housekeeping = Housekeeping(self._core, self._state, self.metrics.dropped)
        self._webhooks = Webhooks(
            self._core, self.stream, partial(self.acknowledge, wait=False), self.metrics
        )
        self.history = History(self._core, self.metrics, self._webhooks)
        self.metrics.watch(self)
        self.ready = True

    @property
    def write_failure(self) -> str | None:
        """Why nothing can be stored, while that is so."""
        return self._store.failure

    async def stop(self) -> None:
        """Finish what was accepted, and close what is on disk."""
        self.ready = False
        await asyncio.gather(*self._changes, return_exceptions=True)
        await self.history.stop()
        await self._webhooks.close()
        for subscriber in self._directory.known():
            for stream in tuple(subscriber.streams):
                stream.close()
        await self._flow.stop()
        await self._housekeeping.stop()
        await asyncio.to_thread(self._store.close)
        await asyncio.sleep(0)  # what became durable last is answered

    async def _finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Carry out all steps of a change, also if whoever asked for it has gone meanwhile."""
        task = asyncio.create_task(work)
        self._changes.add(task)
        task.add_done_callback(self._changes.discard)
        return await asyncio.shield(task)

    # Feeds

    def feeds(self) -> list[FeedInfo]:
        return [entry.info() for entry in self._directory.feeds()]

    def feed(self, name: str) -> FeedInfo:
        return self._directory.feed(name).info()

    async def create_feed(self, spec: FeedSpec) -> FeedInfo:
        return await self._finish(self._feeds.create(spec))

    async def extend_feed(self, name: str, attributes: Mapping[str, Any]) -> FeedInfo:
        return await self._finish(self._feeds.extend(name, attributes))

    async def adapt_feed(self, name: str, adaptive: Adaptive | None) -> FeedInfo:
        return await self._finish(self._feeds.adapt(name, adaptive))

    async def drop_feed(self, name: str) -> None:
        await self._finish(self._drop_feed(name))

    async def _drop_feed(self, name: str) -> None:
        await self._feeds.drop(name)
        self.metrics.forget_feed(name)
        self.history.forget_feed(name)

    # Events

    async def publish(
        self, feed: str, events: Events, *, wait: bool = True, key: str | None = None
    ) -> Receipt:
        """Take events in; all of them or, with an error, none.

        Returns when they are durable; with `wait=False` when they are known to be in order.
        """
        known = self._directory.feed(feed).feed
        if not isinstance(known, EventFeed):
            raise BrokerError(f"feed {feed!r} is a state feed: put publications into it")
        if not events.rows:
            return Receipt(0, 0, 0, True)
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        publication = Publication(known, events, key, wait, answer, self._clock())
        return await self._flow.publish(publication, _ROOM_TIMEOUT)

    def check_room(self) -> None:
        """`OverloadError` if there is no use in sending events now."""
        self._flow.check_room()

    def _deliver(self, publication: Publication, first: int) -> None:
        name = publication.feed.spec.name
        if not self._directory.has_feed(name):
            return
        entry = self._directory.feed(name)
        entry.events += len(publication.events.rows)
        entry.matches += publication.matches
        dispatch(
            self._directory, entry, publication.at, first, publication.events.bodies,
            publication.inboxes, publication.rate,
        )  # fmt: skip

    async def read_events(
        self, feed: str, after: int, limit: int, through: int | None = None
    ) -> list[LoggedEvent]:
        """What was published to a feed, from the log."""
        number = self._directory.feed(feed).feed.number
        return await asyncio.to_thread(self._store.events, number, after, limit, through)

    def first_sequence(self, feed: str) -> int:
        return self._store.first_sequence(self._directory.feed(feed).feed.number)

    @property
    def last_sequence(self) -> int:
        return self._store.next_sequence - 1

    # Subscriptions

    async def put_subscription(
        self, subscriber: str, subscription: str, wanted: Wanted
    ) -> SubscriptionInfo:
        return await self._finish(self._subscriptions.put(subscriber, subscription, wanted))

    async def put_subscriptions(
        self, subscriber: str, wanted: Mapping[str, Wanted]
    ) -> list[SubscriptionInfo]:
        """Many at once, to one feed of events: all of them, or with an error none."""
        return await self._finish(self._subscriptions.put_many(subscriber, wanted))

    async def delete_subscription(self, subscriber: str, subscription: str) -> None:
        await self._finish(self._subscriptions.delete(subscriber, subscription))

    def subscription(self, subscriber: str, subscription: str) -> SubscriptionInfo:
        return self._directory.subscription(subscriber, subscription).info()

    def subscriptions(
        self, subscriber: str, *, after: str = "", limit: int = 100, feed: str | None = None
    ) -> list[SubscriptionInfo]:
        return self._directory.subscriptions(subscriber, after, limit, feed)

    async def top_subscriptions(
        self, feed: str, subscribers: Collection[str] | None, order: Order, limit: int
    ) -> TopSubscriptions:
        return await top_subscriptions(self._core, feed, subscribers, order, limit)

    async def dry_run(self, feed: str, filter: Filter, recent: int = 0) -> DryRun:
        return await self._preview.dry_run(feed, filter, recent)

    async def trace(
        self, feed: str, event: dict[str, Any], *, subscribers: Collection[str] | None, limit: int
    ) -> Trace:
        return await self._tracer.trace(feed, event, subscribers=subscribers, limit=limit)

    async def explain(
        self,
        feed: str,
        *,
        event: dict[str, Any] | None = None,
        sequence: int | None = None,
        filter: Filter | None = None,
        subscriber: str | None = None,
        subscription: str | None = None,
    ) -> Explanation:
        return await self._preview.explain(
            feed, event=event, sequence=sequence, filter=filter, subscriber=subscriber,
            subscription=subscription,
        )  # fmt: skip

    # Delivery

    async def subscriber(self, name: str) -> SubscriberInfo:
        """A subscriber; one that nobody has heard of has nothing."""
        known = self._directory.subscriber(name) or Subscriber(0, name)
        [info] = await self.history.described([known])
        return info

    def standing(self, name: str) -> Standing:
        """What can be said of a subscriber at no cost."""
        subscriber = self._directory.subscriber(name) or Subscriber(0, name)
        return Standing(subscriber.cursor, subscriber.dropped, len(subscriber.subscriptions))

    async def subscribers(self, *, after: str = "", limit: int = 100) -> list[SubscriberInfo]:
        return await self.history.described(self._directory.subscribers(after, limit))

    async def notifications(
        self, subscriber: str, *, after: int | None, limit: int, wait: float = 0.0
    ) -> list[Notification]:
        """The next notifications after a number, or the cursor; waits so long for the first."""
        try:
            deadline = asyncio.timeout(wait if wait > 0 else None)
            async with deadline, self.stream(subscriber, after=after) as stream:
                if wait > 0:
                    return await stream.take(limit)
                known, position = stream.subscriber, stream.position
                notifications = await self._read(known.number, position, limit, _MOST_BYTES)
                known.delivered += len(notifications)
                return notifications
        except TimeoutError:
            return []

    async def acknowledge(self, subscriber: str, sequence: int, *, wait: bool = True) -> int:
        """All up to this number is done with. Returns the cursor, which never goes back.

        It is then on disk; with `wait=False` it gets there soon, together with those of others.
        """
        known = self._directory.subscriber(subscriber)
        if known is None or not known.number:  # there is nothing to acknowledge
            return 0
        reached = max(known.cursor, min(sequence, self.last_sequence))
        if reached > known.stored and wait:
            await self._core.write(
                lambda transaction: transaction.move_cursor(known.number, reached), frees=True
            )
            known.stored = max(known.stored, reached)
        if reached > known.cursor:
            known.cursor = reached
            if not wait:
                self._housekeeping.moved(known)
        return reached

    def stream(self, subscriber: str, *, after: int | None = None) -> NotificationStream:
        """The notifications of a subscriber from the cursor, or another number, on; for use in
        `async with`.
        """
        known = self._directory.listener(subscriber)
        position = known.cursor if after is None else after
        return NotificationStream(known, self._read, position, let_go=self._directory.let_go)

    async def _read(
        self, subscriber: int, after: int, limit: int, most_bytes: int = CAPACITY_BYTES
    ) -> list[Notification]:
        notifications = await asyncio.to_thread(
            self._store.inbox, subscriber, after, limit, most_bytes=most_bytes
        )
        known = self._directory.by_number.get(subscriber)
        if known is None or not any(notification.rate for notification in notifications):
            return notifications
        return [with_exact_rate(notification, known) for notification in notifications]

    # Webhooks

    async def put_webhook(self, subscriber: str, webhook: Webhook) -> None:
        await self._webhooks.put(subscriber, webhook)

    def webhook(self, subscriber: str) -> Webhook | None:
        return self._webhooks.webhook(subscriber)

    def webhook_error(self, subscriber: str) -> str | None:
        """Why the webhook did not take what was last posted to it."""
        return self._webhooks.last_error(subscriber)

    async def delete_webhook(self, subscriber: str) -> None:
        await self._webhooks.delete(subscriber)

    async def dead_letters(
        self, subscriber: str, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        return await self._webhooks.dead_letters(subscriber, after, limit)

    async def replay(self, subscriber: str, numbers: Sequence[int] | None = None) -> int:
        return await self._webhooks.replay(subscriber, numbers)

    async def discard(self, subscriber: str, numbers: Sequence[int] | None = None) -> int:
        return await self._webhooks.discard(subscriber, numbers)

    # State feeds

    async def put_publication(
        self,
        feed: str,
        publication: str,
        *,
        regions: Mapping[str, RegionSpec],
        filter: str | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        return await self._state.put_publication(feed, publication, regions, filter, ttl)

    async def patch_publication(
        self,
        feed: str,
        publication: str,
        *,
        regions: Mapping[str, RegionSpec | None],
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Receipt:
        return await self._state.patch_publication(feed, publication, regions, filter, ttl)

    async def retract(self, feed: str, publication: str) -> Receipt:
        return await self._state.retract(feed, publication)

    def publication(self, feed: str, publication: str) -> Stored:
        return self._state.publication(feed, publication)

    # What is watched, from any thread

    def queue_depth(self) -> tuple[int, int]:
        """Events and bytes that are on their way."""
        return self._flow.events, self._flow.nbytes

    def session_count(self) -> int:
        return sum(len(subscriber.streams) for subscriber in self._directory.known())

    def backlogs(self) -> dict[str, int]:
        """Notifications that wait, by subscriber, as of the last count."""
        return {
            subscriber.name: subscriber.backlog
            for subscriber in self._directory.known()
            if subscriber.backlog
        }

    def sizes(self) -> Sizes:
        return self._store.sizes()
