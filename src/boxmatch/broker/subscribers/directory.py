"""What a broker has: feeds and subscribers, by name and by number.

In the event loop, but for what says that it may be asked from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import nsmallest

import orjson
import structlog

from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed, publication_from_json
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.subscribers import Replay, Subscriber, Subscription
from boxmatch.errors import UnknownFeedError, UnknownSubscriptionError
from boxmatch.wire.requests import Wanted

Feed = EventFeed | StateFeed

log = structlog.get_logger(__name__)


@dataclass(eq=False)
class FeedEntry:
    """A feed and what is counted of it since the broker started."""

    feed: Feed
    events: int = 0
    matches: int = 0
    last_sequence: int = 0

    def info(self) -> FeedInfo:
        feed = self.feed
        publications = feed.spaces.publication_count if isinstance(feed, StateFeed) else 0
        return FeedInfo(
            feed.spec, feed.number, len(feed.slots), publications, self.events, self.matches,
            self.last_sequence, *_adaptation(feed),
            0 if isinstance(feed, StateFeed) else feed.waiting,
        )  # fmt: skip


class Directory:
    """Feeds and subscribers."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        # What they have not read is on disk, however new it is.
        newest = store.next_sequence - 1
        self.by_number = {
            row.number: Subscriber(
                row.number,
                row.name,
                cursor=row.cursor,
                stored=row.cursor,
                last=newest,
                dropped=row.dropped,
                dropped_through=row.dropped_through,
            )
            for row in store.reader.subscribers()
        }
        self._subscribers = {subscriber.name: subscriber for subscriber in self.by_number.values()}
        self._feeds: dict[str, FeedEntry] = {}
        for number, spec in store.reader.feeds():
            feed = self.read_feed(spec, number)
            entry = self.add_feed(feed)
            self.restore_subscriptions(feed, feed.slots.in_use())
            for logged in store.reader.last_events(number, 1):
                entry.last_sequence = logged.sequence
        self._restore_replays()

    # Feeds

    def feed(self, name: str) -> FeedEntry:
        entry = self._feeds.get(name)
        if entry is None:
            raise UnknownFeedError(name)
        return entry

    def entry_of(self, feed: Feed) -> FeedEntry | None:
        """The entry of a feed; None if it was dropped."""
        entry = self._feeds.get(feed.spec.name)
        return entry if entry is not None and entry.feed is feed else None

    def has_feed(self, name: str) -> bool:
        return name in self._feeds

    def feeds(self) -> list[FeedEntry]:
        """By name. From any thread."""
        feeds = self._feeds.copy()
        return [feeds[name] for name in sorted(feeds)]

    def add_feed(self, feed: Feed) -> FeedEntry:
        entry = self._feeds[feed.spec.name] = FeedEntry(feed)
        return entry

    def read_feed(self, spec: FeedSpec, number: int) -> Feed:
        """A feed as it is on disk, with its subscriptions; that their subscribers know them too is
        up to the caller. From any thread.
        """
        reader = self._store.reader
        subscriptions = []
        for row in reader.subscriptions(number):
            subscriber = self.by_number.get(row.subscriber)
            if subscriber is None:
                log.error("a subscription has no subscriber: damaged", number=row.number, id=row.id)
                continue
            wanted = Wanted(**orjson.loads(row.wanted))
            subscriptions.append(Subscription(subscriber, row.id, wanted, row.created, row.updated))
        if spec.kind == "events":
            events = EventFeed(spec, number)
            events.load(subscriptions)
            return events
        state = StateFeed(spec, number, self._clock)
        publications = {
            row.id: publication_from_json(row.id, row.body, row.expires)
            for row in reader.members(number)
        }
        state.load(publications, subscriptions)
        return state

    def drop_feed(self, name: str) -> None:
        """Forget a feed and all subscriptions to it."""
        del self._feeds[name]
        for subscriber in self.by_number.values():
            for one in [s for s in subscriber.subscriptions.values() if s.wanted.feed == name]:
                subscriber.forget(one.id)
            subscriber.replays = {
                key: one for key, one in subscriber.replays.items() if one.feed != name
            }

    # Subscribers

    def all_subscribers(self) -> list[Subscriber]:
        """All, also those who listen and have not subscribed yet. From any thread."""
        return list(self._subscribers.values())

    def subscriber(self, name: str) -> Subscriber | None:
        return self._subscribers.get(name)

    def listener(self, name: str) -> Subscriber:
        """A subscriber who may not have subscribed yet, but listens already."""
        return self._subscribers.setdefault(name, Subscriber(0, name))

    def register(self, name: str, number: int, newest: int) -> Subscriber:
        """The subscriber, who is on disk under this number."""
        subscriber = self.listener(name)
        if subscriber.number == 0:
            subscriber.number, subscriber.last = number, newest
        self.by_number[number] = subscriber
        return subscriber

    def forget_idle(self, subscriber: Subscriber) -> None:
        """Forget a subscriber who neither subscribed nor listens."""
        if subscriber.number == 0 and not subscriber.streams:
            self._subscribers.pop(subscriber.name, None)

    def numbers(self, names: Collection[str]) -> frozenset[int]:
        """The numbers of some subscribers, without those who have never subscribed."""
        known = (self._subscribers.get(name) for name in names)
        return frozenset(
            subscriber.number
            for subscriber in known
            if subscriber is not None and subscriber.number
        )

    def subscribers(self, after: str, limit: int) -> list[Subscriber]:
        """Those on disk by name, a page of them."""
        names = (
            name
            for name, subscriber in self._subscribers.items()
            if subscriber.number and name > after
        )
        return [self._subscribers[name] for name in nsmallest(limit, names)]

    def _restore_replays(self) -> None:
        names = {entry.feed.number: name for name, entry in self._feeds.items()}
        for row in self._store.reader.replays():
            subscriber = self.by_number.get(row.subscriber)
            if subscriber is not None and (row.feed == 0 or row.feed in names):
                feed = names.get(row.feed)
                subscriber.start_replay(
                    Replay(row.number, feed, row.subscription or None, row.position, row.through)
                )

    # Subscriptions

    def restore_subscriptions(self, feed: Feed, subscriptions: Iterable[Subscription]) -> None:
        """Subscribers have these subscriptions to a feed, as they were read from the disk."""
        if self.entry_of(feed) is not None:
            for one in subscriptions:
                one.subscriber.add([one])

    def subscription(self, subscriber: str, subscription: str) -> Subscription:
        known = self._subscribers.get(subscriber)
        if known is None or subscription not in known.subscriptions:
            raise UnknownSubscriptionError(subscription)
        return known.subscriptions[subscription]


def _adaptation(feed: Feed) -> tuple[float, int, int]:
    """The rate, matches looked at again, and how many of them were false."""
    if isinstance(feed, StateFeed):
        return 0.0, 0, 0
    return feed.adapting.rate, feed.adapting.matches, feed.adapting.false
