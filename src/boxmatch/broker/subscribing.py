"""Subscriptions come, change and go; what is acknowledged is on disk, and matched from then on."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from boxmatch.broker.core import Core
from boxmatch.broker.feeds import event_feed, state_feed
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.messages import SubscriptionInfo, Wanted
from boxmatch.broker.owners import Owner, Subscription
from boxmatch.broker.recovery import wanted_to_json
from boxmatch.broker.state import StateOperations
from boxmatch.broker.store import Transaction
from boxmatch.errors import BrokerError, LimitError


class Subscribing:
    """Changes of one owner's subscriptions take turns; those of different owners do not wait."""

    def __init__(self, core: Core, state: StateOperations) -> None:
        self._core = core
        self._state = state
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def put(self, owner: str, subscription: str, wanted: Wanted) -> SubscriptionInfo:
        """Add a subscription, or put it in the place of the one that has this id."""
        feed = self._core.directory.feed(wanted.feed).feed
        if isinstance(feed, EventFeed):
            event_feed.check_wanted(feed.spec, wanted)
        else:
            state_feed.check_wanted(feed.spec, wanted)
        async with self._turns[owner]:
            before = self._before(owner, subscription, wanted)
            known = await self._settled(owner)
            now = self._core.clock()
            created = now if before is None else before.created
            new = Subscription(known, subscription, wanted, created, now)
            if isinstance(feed, EventFeed):
                await self._core.write(lambda transaction: _store(transaction, new, feed.number))
                await self._core.flow.call(lambda: feed.put(new, before))
            else:
                await self._put_state(feed, new, before)
            known.subscriptions[subscription] = new
            return new.info()

    async def delete(self, owner: str, subscription: str) -> None:
        """Forget a subscription."""
        async with self._turns[owner]:
            known = self._core.directory.subscription(owner, subscription)
            feed = self._core.directory.feed(known.wanted.feed).feed

            def forget(transaction: Transaction) -> None:
                transaction.delete_subscription(known.owner.number, subscription)

            if isinstance(feed, EventFeed):
                await self._core.write(forget)
                await self._core.flow.call(lambda: feed.remove(known))
            else:
                await self._state.operate(feed, lambda: feed.remove(known), lambda: forget)
            known.owner.subscriptions.pop(subscription, None)

    def _before(self, owner: str, subscription: str, wanted: Wanted) -> Subscription | None:
        known = self._core.directory.owner(owner)
        if known is None:
            return None
        before = known.subscriptions.get(subscription)
        if before is not None and before.wanted.feed != wanted.feed:
            raise BrokerError(
                f"subscription {subscription!r} is one to feed {before.wanted.feed!r}; delete it "
                f"before it is one to {wanted.feed!r}"
            )
        most = self._core.settings.limits.subscriptions
        if before is None and len(known.subscriptions) >= most:
            raise LimitError(f"owner {owner!r} has {most:,} subscriptions already")
        return before

    async def _settled(self, name: str) -> Owner:
        known = self._core.directory.owner(name)
        if known is not None and known.number:
            return known
        number = await self._core.write(lambda transaction: transaction.put_owner(name))
        return self._core.directory.settle(name, number, self._core.store.next_sequence - 1)

    async def _put_state(
        self, feed: StateFeed, new: Subscription, before: Subscription | None
    ) -> None:
        await self._state.operate(
            feed,
            lambda: feed.put(new, before),
            lambda: lambda transaction: _store(transaction, new, feed.number),
        )


def _store(transaction: Transaction, new: Subscription, feed: int) -> None:
    transaction.put_subscription(
        new.owner.number, new.id, feed, wanted_to_json(new.wanted), new.updated
    )
