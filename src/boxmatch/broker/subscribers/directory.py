"""What a broker has: feeds and subscribers, by name and by number.

In the event loop, but for what says that it may be asked from any thread.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import nsmallest
from itertools import groupby
from operator import attrgetter
from weakref import WeakKeyDictionary

import numpy as np
import structlog

from boxmatch.arrays import Int64Array
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.index_files import FOLDER as INDEXES
from boxmatch.broker.feeds.index_files import IndexFiles, LoadedIndex
from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed, publication_from_json
from boxmatch.broker.startup import Startup
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.subscribers import Readers, Replay, Subscriber, Subscription
from boxmatch.errors import UnknownFeedError, UnknownSubscriptionError

Feed = EventFeed | StateFeed

_AT_ONCE = 5_000
"""Subscriptions that are forgotten before others have a turn."""

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
        self.readers = Readers()
        self.by_number: dict[int, Subscriber] = {}
        self._subscribers: dict[str, Subscriber] = {}
        self._feeds: dict[str, FeedEntry] = {}
        self._index_files: WeakKeyDictionary[EventFeed, IndexFiles] = WeakKeyDictionary()
        self._unchecked: list[int] = []
        """Feeds whose rows are yet to be looked at."""

    def load(self, startup: Startup) -> None:
        """Read all that is stored."""
        store = self._store
        startup.begin("reading subscribers")
        # What they have not read is on disk, however new it is.
        newest = store.next_sequence - 1
        self.by_number = {
            row.number: Subscriber(
                row.number,
                row.name,
                cursor=row.cursor,
                stored=row.cursor,
                readers=self.readers,
                dropped=row.dropped,
                dropped_through=row.dropped_through,
            )
            for row in store.reader.subscribers()
        }
        for subscriber in self.by_number.values():
            subscriber.place(newest)
        self._subscribers = {subscriber.name: subscriber for subscriber in self.by_number.values()}
        for number, spec in store.reader.feeds():
            feed = self.read_feed(spec, number, startup)
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

    def read_feed(self, spec: FeedSpec, number: int, startup: Startup | None = None) -> Feed:
        """A feed as it is on disk, with its subscriptions; that their subscribers know them too is
        up to the caller. From any thread.
        """
        reader, startup = self._store.reader, startup or Startup()
        events = EventFeed(spec, number) if spec.kind == "events" else None
        index = None
        if events is not None:
            startup.begin("opening the index", spec.name)
            index = self.index_files(events).load(spec)
            if index is not None:
                self._unchecked.append(number)
        startup.begin("reading subscriptions", spec.name, reader.subscription_count(number))
        subscriptions, checksums, slots = self._read_subscriptions(number, index, startup)
        if events is not None:
            startup.begin("building the index", spec.name, len(subscriptions))
            events.load(subscriptions, checksums, slots, index, startup.advance)
            return events
        startup.begin("reading publications", spec.name)
        state = StateFeed(spec, number, self._clock)
        publications = {
            row.id: publication_from_json(row.id, row.body, row.expires)
            for row in reader.members(number)
        }
        state.load(publications, subscriptions)
        return state

    def _read_subscriptions(
        self, number: int, index: LoadedIndex | None, startup: Startup
    ) -> tuple[list[Subscription], Int64Array, Int64Array]:
        """The subscriptions of a feed, their checksums, and the slots that an index has for them.

        Rows that the index has are only compared with it; `check_rows` looks at them later.
        """
        reader, by_number = self._store.reader, self.by_number
        subscriptions: list[Subscription] = []
        all_checksums, all_slots = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        for page in reader.subscription_pages(number):
            checksums = np.fromiter((row[-1] for row in page), np.int64, len(page))
            slots = np.full(len(page), -1) if index is None else index.find(checksums)
            is_usable = np.ones(len(page), bool)
            for place in np.flatnonzero(slots < 0).tolist():
                is_usable[place] = reader.is_whole(page[place])
            for place, row in enumerate(page):
                if row[1] not in by_number:
                    log.error("a subscription has no subscriber: damaged", number=row[0], id=row[2])
                    is_usable[place] = False
            if not is_usable.all():
                page = [row for row, usable in zip(page, is_usable, strict=True) if usable]
            subscriptions += [
                Subscription(by_number[owner], id, wanted, created, updated)
                for _, owner, id, _, wanted, created, updated, _ in page
            ]
            all_checksums.append(checksums[is_usable])
            all_slots.append(slots[is_usable])
            startup.advance(len(subscriptions))
        return subscriptions, np.concatenate(all_checksums), np.concatenate(all_slots)

    def check_rows(self) -> None:
        """Report damage in the rows that were only compared with an index. From any thread."""
        while self._unchecked:
            for page in self._store.reader.subscription_pages(self._unchecked.pop()):
                for row in page:
                    self._store.reader.is_whole(row)

    def index_files(self, feed: EventFeed) -> IndexFiles:
        """The files that the index of a feed is saved to."""
        if feed not in self._index_files:
            folder = self._store.path / INDEXES / str(feed.number)
            self._index_files[feed] = IndexFiles(folder)
        return self._index_files[feed]

    def remove_unused_files(self) -> None:
        """Remove the files of indexes whose feeds are not there any more. From any thread."""
        folder = self._store.path / INDEXES
        numbers = {str(entry.feed.number) for entry in self.feeds()}
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name not in numbers:
                shutil.rmtree(path, ignore_errors=True)

    async def drop_feed(self, name: str) -> None:
        """Forget all subscriptions to a feed, with turns for others, and then the feed: there can
        be none of its name before.
        """
        subscriptions = self._feeds[name].feed.slots.in_use()
        for first in range(0, len(subscriptions), _AT_ONCE):
            for one in subscriptions[first : first + _AT_ONCE]:
                if one.subscriber.subscriptions.get(one.id) is one:
                    one.subscriber.forget(one.id)
            await asyncio.sleep(0)
        for subscriber in [one for one in self.by_number.values() if one.replays]:
            subscriber.end_replays(name)
        del self._feeds[name]

    # Subscribers

    def all_subscribers(self) -> list[Subscriber]:
        """All, also those who listen and have not subscribed yet. From any thread."""
        return list(self._subscribers.values())

    def subscriber(self, name: str) -> Subscriber | None:
        return self._subscribers.get(name)

    def listener(self, name: str) -> Subscriber:
        """A subscriber who may not have subscribed yet, but listens already."""
        return self._subscribers.setdefault(name, Subscriber(0, name, readers=self.readers))

    def register(self, name: str, number: int, newest: int) -> Subscriber:
        """The subscriber, who is on disk under this number."""
        subscriber = self.listener(name)
        if subscriber.number == 0:
            subscriber.number = number
            subscriber.place(newest)
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
            for subscriber, some in groupby(subscriptions, key=attrgetter("subscriber")):
                subscriber.add(some)

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
