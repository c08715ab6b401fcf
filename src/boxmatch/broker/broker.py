"""`Broker`: feeds, subscriptions and delivery, behind whatever protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from boxmatch.broker.core import Core, hand_out, said_rightly
from boxmatch.broker.delivery.stream import CAPACITY_BYTES, NoteStream
from boxmatch.broker.directory import Directory
from boxmatch.broker.feed_changes import FeedChanges
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.flow import Flow, Publication
from boxmatch.broker.housekeeping import Housekeeping
from boxmatch.broker.looking import DryRun, Filter, Looking
from boxmatch.broker.messages import (
    Adaptive,
    DeadLetter,
    Events,
    FeedInfo,
    FeedSpec,
    Note,
    OwnerInfo,
    Receipt,
    Standing,
    SubscriptionInfo,
    Wanted,
    Webhook,
)
from boxmatch.broker.metrics import Metrics
from boxmatch.broker.owners import Owner
from boxmatch.broker.posting import Posting
from boxmatch.broker.ranking import Order, Ranked, rank_subscriptions
from boxmatch.broker.settings import Settings
from boxmatch.broker.state import StateOperations
from boxmatch.broker.store import LoggedEvent, Sizes, Store
from boxmatch.broker.subscribing import Subscribing
from boxmatch.broker.tracing import Trace, Tracing
from boxmatch.broker.watching import Watching
from boxmatch.engine.explain import Explanation
from boxmatch.errors import BrokerError
from boxmatch.model.schema import Schema
from boxmatch.spaces.dimensions import UNCHANGED, RegionSpec, Stored, Unchanged

T = TypeVar("T")

_PATIENCE = 5.0
"""How long a publisher waits for room in the queue before it is sent away."""

_MOST_BYTES = 8 << 20
"""Of notes that are read at once for somebody who polls."""


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
        self._subscribing = Subscribing(self._core, self._state)
        self._looking = Looking(self._core)
        self._tracing = Tracing(self._core)
        self._housekeeping = Housekeeping(self._core, self._state, self.metrics.dropped)
        self._posting = Posting(
            self._core, self.stream, partial(self.acknowledge, wait=False), self.metrics
        )
        self.watching = Watching(self._core, self.metrics, self._posting)
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
        await self.watching.stop()
        await self._posting.close()
        for owner in self._directory.known():
            for stream in tuple(owner.streams):
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
        self.watching.forget_feed(name)

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
        return await self._flow.publish(publication, _PATIENCE)

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
        hand_out(
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
        self, owner: str, subscription: str, wanted: Wanted
    ) -> SubscriptionInfo:
        return await self._finish(self._subscribing.put(owner, subscription, wanted))

    async def put_subscriptions(
        self, owner: str, wanted: Mapping[str, Wanted]
    ) -> list[SubscriptionInfo]:
        """Many at once, to one feed of events: all of them, or with an error none."""
        return await self._finish(self._subscribing.put_many(owner, wanted))

    async def delete_subscription(self, owner: str, subscription: str) -> None:
        await self._finish(self._subscribing.delete(owner, subscription))

    def subscription(self, owner: str, subscription: str) -> SubscriptionInfo:
        return self._directory.subscription(owner, subscription).info()

    def subscriptions(
        self, owner: str, *, after: str = "", limit: int = 100, feed: str | None = None
    ) -> list[SubscriptionInfo]:
        return self._directory.subscriptions(owner, after, limit, feed)

    async def rank_subscriptions(
        self, feed: str, owners: Collection[str] | None, order: Order, limit: int
    ) -> Ranked:
        return await rank_subscriptions(self._core, feed, owners, order, limit)

    async def dry_run(self, feed: str, filter: Filter, recent: int = 0) -> DryRun:
        return await self._looking.dry_run(feed, filter, recent)

    async def trace(
        self, feed: str, event: dict[str, Any], *, owners: Collection[str] | None, limit: int
    ) -> Trace:
        return await self._tracing.trace(feed, event, owners=owners, limit=limit)

    async def explain(
        self,
        feed: str,
        *,
        event: dict[str, Any] | None = None,
        sequence: int | None = None,
        filter: Filter | None = None,
        owner: str | None = None,
        subscription: str | None = None,
    ) -> Explanation:
        return await self._looking.explain(
            feed, event=event, sequence=sequence, filter=filter, owner=owner,
            subscription=subscription,
        )  # fmt: skip

    # Delivery

    async def owner(self, name: str) -> OwnerInfo:
        """A subscriber; one that nobody has heard of has nothing."""
        known = self._directory.owner(name) or Owner(0, name)
        [info] = await self.watching.described([known])
        return info

    def standing(self, name: str) -> Standing:
        """What can be said of a subscriber at no cost."""
        owner = self._directory.owner(name) or Owner(0, name)
        return Standing(owner.cursor, owner.dropped, len(owner.subscriptions))

    async def owners(self, *, after: str = "", limit: int = 100) -> list[OwnerInfo]:
        return await self.watching.described(self._directory.owners(after, limit))

    async def notes(
        self, owner: str, *, after: int | None, limit: int, wait: float = 0.0
    ) -> list[Note]:
        """The next notes after a number, or after the cursor; waits so long for the first."""
        try:
            patience = asyncio.timeout(wait if wait > 0 else None)
            async with patience, self.stream(owner, after=after) as stream:
                if wait > 0:
                    return await stream.take(limit)
                known, position = stream.owner, stream.position
                notes = await self._read(known.number, position, limit, _MOST_BYTES)
                known.delivered += len(notes)
                return notes
        except TimeoutError:
            return []

    async def acknowledge(self, owner: str, sequence: int, *, wait: bool = True) -> int:
        """All up to this number is done with. Returns the cursor, which never goes back.

        It is then on disk; with `wait=False` it gets there soon, together with those of others.
        """
        known = self._directory.owner(owner)
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

    def stream(self, owner: str, *, after: int | None = None) -> NoteStream:
        """The notes of an owner from the cursor, or another number, on; for use in `async with`."""
        known = self._directory.listener(owner)
        position = known.cursor if after is None else after
        return NoteStream(known, self._read, position, let_go=self._directory.let_go)

    async def _read(
        self, owner: int, after: int, limit: int, most_bytes: int = CAPACITY_BYTES
    ) -> list[Note]:
        notes = await asyncio.to_thread(
            self._store.inbox, owner, after, limit, most_bytes=most_bytes
        )
        known = self._directory.by_number.get(owner)
        if known is None or not any(note.rate for note in notes):
            return notes
        return [said_rightly(note, known) for note in notes]

    # Webhooks

    async def put_webhook(self, owner: str, webhook: Webhook) -> None:
        await self._posting.put(owner, webhook)

    def webhook(self, owner: str) -> Webhook | None:
        return self._posting.webhook(owner)

    def webhook_error(self, owner: str) -> str | None:
        """Why the webhook did not take what was last posted to it."""
        return self._posting.last_error(owner)

    async def delete_webhook(self, owner: str) -> None:
        await self._posting.delete(owner)

    async def dead_letters(self, owner: str, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        return await self._posting.dead_letters(owner, after, limit)

    async def replay(self, owner: str, numbers: Sequence[int] | None = None) -> int:
        return await self._posting.replay(owner, numbers)

    async def discard(self, owner: str, numbers: Sequence[int] | None = None) -> int:
        return await self._posting.discard(owner, numbers)

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
        return sum(len(owner.streams) for owner in self._directory.known())

    def backlogs(self) -> dict[str, int]:
        """Notes that wait, by owner, as of the last count."""
        return {owner.name: owner.backlog for owner in self._directory.known() if owner.backlog}

    def sizes(self) -> Sizes:
        return self._store.sizes()
