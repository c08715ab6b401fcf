"""What a broker has: feeds and owners, by name and by number.

In the event loop, but for what says that it may be asked from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from heapq import nsmallest

from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.messages import FeedInfo, SubscriptionInfo
from boxmatch.broker.owners import Owner, Subscription
from boxmatch.broker.recovery import Feed, recover_feed, recover_owners
from boxmatch.broker.store import Store
from boxmatch.errors import UnknownFeedError, UnknownSubscriptionError


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
            self.last_sequence, *_adapted(feed), 0 if isinstance(feed, StateFeed) else feed.waiting,
        )  # fmt: skip


class Directory:
    """Feeds and owners."""

    def __init__(self, store: Store, clock: Callable[[], float]) -> None:
        self.by_number = recover_owners(store)
        self._owners = {owner.name: owner for owner in self.by_number.values()}
        self._feeds: dict[str, FeedEntry] = {}
        for number, spec in store.feeds():
            feed = recover_feed(store, spec, number, self.by_number, clock)
            self._feeds[spec.name] = FeedEntry(feed)
            self.know(feed, feed.slots.in_use())
            for logged in store.last_events(number, 1):
                self._feeds[spec.name].last_sequence = logged.sequence

    # Feeds

    def feed(self, name: str) -> FeedEntry:
        entry = self._feeds.get(name)
        if entry is None:
            raise UnknownFeedError(name)
        return entry

    def has_feed(self, name: str) -> bool:
        return name in self._feeds

    def feeds(self) -> list[FeedEntry]:
        """By name. From any thread."""
        feeds = self._feeds.copy()
        return [feeds[name] for name in sorted(feeds)]

    def add_feed(self, feed: Feed) -> FeedEntry:
        entry = self._feeds[feed.spec.name] = FeedEntry(feed)
        return entry

    def drop_feed(self, name: str) -> None:
        """Forget a feed and all subscriptions to it."""
        del self._feeds[name]
        for owner in self.by_number.values():
            for one in [s for s in owner.subscriptions.values() if s.wanted.feed == name]:
                del owner.subscriptions[one.id]

    # Owners

    def known(self) -> list[Owner]:
        """All, also those who listen and have not subscribed yet. From any thread."""
        return list(self._owners.values())

    def owner(self, name: str) -> Owner | None:
        return self._owners.get(name)

    def listener(self, name: str) -> Owner:
        """An owner who may not have subscribed yet, but listens already."""
        return self._owners.setdefault(name, Owner(0, name))

    def settle(self, name: str, number: int, newest: int) -> Owner:
        """The owner, who is on disk under this number."""
        owner = self.listener(name)
        if owner.number == 0:
            owner.number, owner.last = number, newest
        self.by_number[number] = owner
        return owner

    def let_go(self, owner: Owner) -> None:
        """Forget an owner who neither subscribed nor listens."""
        if owner.number == 0 and not owner.streams:
            self._owners.pop(owner.name, None)

    def numbers(self, names: Collection[str]) -> frozenset[int]:
        """The numbers of some owners, without those who have never subscribed."""
        known = (self._owners.get(name) for name in names)
        return frozenset(owner.number for owner in known if owner is not None and owner.number)

    def owners(self, after: str, limit: int) -> list[Owner]:
        """Those on disk by name, a page of them."""
        names = (name for name, owner in self._owners.items() if owner.number and name > after)
        return [self._owners[name] for name in nsmallest(limit, names)]

    # Subscriptions

    def know(self, feed: Feed, subscriptions: Iterable[Subscription]) -> None:
        """Owners have these subscriptions to a feed, as they were read from the disk."""
        if self.has_feed(feed.spec.name) and self.feed(feed.spec.name).feed is feed:
            for one in subscriptions:
                one.owner.subscriptions[one.id] = one

    def subscription(self, owner: str, subscription: str) -> Subscription:
        known = self._owners.get(owner)
        if known is None or subscription not in known.subscriptions:
            raise UnknownSubscriptionError(subscription)
        return known.subscriptions[subscription]

    def subscriptions(
        self, owner: str, after: str, limit: int, feed: str | None
    ) -> list[SubscriptionInfo]:
        known = self._owners.get(owner)
        if known is None:
            return []
        wanted = (
            one.id
            for one in known.subscriptions.values()
            if one.id > after and feed in (None, one.wanted.feed)
        )
        # Not sorted as a whole, for each page anew: an owner may have a million.
        return [known.subscriptions[name].info() for name in nsmallest(limit, wanted)]


def _adapted(feed: Feed) -> tuple[float, int, int]:
    """The rate, matches looked at again, and how many of them were false."""
    if isinstance(feed, StateFeed):
        return 0.0, 0, 0
    return feed.adapting.rate, feed.adapting.matches, feed.adapting.false
