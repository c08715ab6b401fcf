"""Subscriptions come, change and go; what is acknowledged is on disk, and matched from then on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from heapq import nsmallest
from typing import TypeVar

from msgspec.structs import replace

from boxmatch.broker.changes import Changes, uninterrupted
from boxmatch.broker.feeds import event_feed, state_feed
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.pipeline import EventPipeline
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.feeds.state_operations import StateOperations
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.rows import SubscriptionText
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import (
    Order,
    Subscriber,
    Subscription,
    TopSubscriptions,
)
from boxmatch.errors import BrokerError, FilterError, LimitError
from boxmatch.kernels.pieces import pieces
from boxmatch.model.filters import CompiledFilter
from boxmatch.wire import responses
from boxmatch.wire.codec import encode
from boxmatch.wire.requests import Wanted

T = TypeVar("T")


@dataclass(eq=False)
class Subscriptions:
    """All subscriptions of a broker. Changes of one subscriber's subscriptions take turns."""

    _store: Store
    _directory: Directory
    _pipeline: EventPipeline
    _state: StateOperations
    _changes: Changes
    _clock: Callable[[], float]
    _most: int
    """That one subscriber can have."""

    def list(
        self,
        subscriber: str,
        *,
        after: str = "",
        limit: int = 100,
        feeds: Collection[str] | None = None,
    ) -> Sequence[responses.Subscription]:
        """The subscriptions of a subscriber by id, a page of them: to all feeds, or to some. From
        any thread.
        """
        known = self._directory.subscriber(subscriber)
        if known is None:
            return []
        wanted = (
            one
            for one in list(known.subscriptions.values())  # which may change meanwhile
            if one.id > after and (feeds is None or one.feed in feeds)
        )
        # Not sorted as a whole, for each page anew: a subscriber may have a million.
        return [one.info() for one in nsmallest(limit, wanted, key=lambda one: one.id)]

    async def top(
        self, feed: str, subscribers: Collection[str] | None, order: Order, limit: int
    ) -> TopSubscriptions:
        """Subscriptions to a feed, of some subscribers or of all; see `Slots.top`."""
        slots = self._directory.feed(feed).feed.slots
        numbers = None if subscribers is None else self._directory.numbers(subscribers)
        return await asyncio.to_thread(slots.top, numbers, order, limit)

    @uninterrupted
    async def put(
        self, subscriber: str, subscription: str, wanted: Wanted
    ) -> responses.Subscription:
        """Add a subscription, or put it in the place of the one that has this id."""
        feed = self._directory.feed(wanted.feed).feed
        if isinstance(feed, EventFeed):
            [made], [filter] = await self._put_events(feed, subscriber, {subscription: wanted})
            return replace(made.info(), put_warning=filter.warning)
        async with self._changes.lock(subscriber):
            self._replaced(subscriber, {subscription: wanted})
            known = await self._store_subscriber(subscriber, feed, wanted)
            now = self._clock()
            # The feed knows when one before it was made.
            new = Subscription(known, subscription, wanted, now, now)
            text = encode(wanted)
            await self._state.operate(
                feed,
                lambda: feed.put(new),
                lambda: (
                    lambda transaction: transaction.put_subscription(
                        known.number, subscription, feed.number, text, now
                    )
                ),
                lambda: known.add([new]),
            )
            self._directory.feed(wanted.feed)  # it may have been dropped meanwhile
            return new.info()

    @uninterrupted
    async def put_many(
        self, subscriber: str, wanted: Mapping[str, Wanted]
    ) -> Sequence[Subscription]:
        """Add or replace many subscriptions to one feed of events: all, or with an error none."""
        names = {one.feed for one in wanted.values()}
        if len(names) != 1:
            raise BrokerError("subscriptions that are put together must be to one feed")
        feed = self._directory.feed(names.pop()).feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"subscriptions to {feed.spec.name!r}, a state feed, come one by one")
        return (await self._put_events(feed, subscriber, wanted))[0]

    async def _put_events(
        self, feed: EventFeed, subscriber: str, wanted: Mapping[str, Wanted]
    ) -> tuple[Sequence[Subscription], Sequence[CompiledFilter]]:
        schema = feed.spec.schema
        compiled = await _compile(feed, wanted)
        async with self._room_for(feed, wanted, compiled), self._changes.lock(subscriber):
            befores = self._replaced(subscriber, wanted)
            now = self._clock()
            number = await self._number_for(subscriber, len(wanted))

            def texts(number: int) -> list[SubscriptionText]:
                created = [None if before is None else before.created for before in befores]
                return [
                    SubscriptionText.of(number, feed.number, name, encode(one), first, now)
                    for (name, one), first in zip(wanted.items(), created, strict=True)
                ]

            rows = [] if number is None else await _aside(len(wanted), partial(texts, number))

            checksums: list[int] = []

            def store(transaction: StoreTransaction) -> int:
                stored = transaction.put_subscriber(subscriber)
                used = rows or texts(stored)
                transaction.put_subscriptions(stored, feed.number, used, now)
                checksums[:] = [one.checksum for one in used]
                return stored

            number = await self._store.commit(store)
            known = self._directory.register(subscriber, number, self._store.next_sequence - 1)

            def change() -> list[Subscription]:
                new = [
                    Subscription(
                        known, name, one, now if before is None else before.created, now,
                        checksum=checksum,
                    )
                    for (name, one), before, checksum in zip(
                        wanted.items(), befores, checksums, strict=True
                    )
                ]  # fmt: skip
                feed.put(new, befores, compiled, schema)
                return new

            new = await self._pipeline.call(feed, change)
            self._directory.feed(feed.spec.name)  # it may have been dropped meanwhile
            known.add(new)
            return new, compiled

    async def _number_for(self, subscriber: str, wanted: int) -> int | None:
        """The number of a subscriber; None if it is to get one together with its subscriptions.

        Who puts many gets one before, so that they are prepared before their transaction, for which
        others wait.
        """
        known = self._directory.subscriber(subscriber)
        if known is not None and known.number:
            return known.number
        if wanted <= _FEW:
            return None
        return await self._store.commit(lambda transaction: transaction.put_subscriber(subscriber))

    @asynccontextmanager
    async def _room_for(
        self, feed: EventFeed, wanted: Mapping[str, Wanted], compiled: Sequence[CompiledFilter]
    ) -> AsyncIterator[None]:
        """Refuse subscriptions that compare more expressions than a feed can have, before they are
        on disk.
        """
        if not any(one.axes for one in compiled):
            yield
            return
        reservation = await self._pipeline.call(
            feed, lambda: feed.reserve(wanted.values(), compiled)
        )
        try:
            yield
        finally:
            self._pipeline.call_soon(feed, lambda: feed.release(reservation))

    @uninterrupted
    async def delete(self, subscriber: str, subscription: str) -> None:
        """Forget a subscription."""
        async with self._changes.lock(subscriber):
            known = self._directory.subscription(subscriber, subscription)
            feed = self._directory.feed(known.feed).feed

            def forget(transaction: StoreTransaction) -> None:
                transaction.delete_subscription(known.subscriber.number, subscription)

            if isinstance(feed, EventFeed):
                await self._store.commit(forget, frees=True)
                await self._pipeline.call(feed, lambda: feed.remove(known))
                known.subscriber.forget(subscription)
            else:
                await self._state.operate(
                    feed,
                    lambda: feed.remove(known.subscriber, subscription),
                    lambda: forget,
                    lambda: known.subscriber.forget(subscription),
                    frees=True,
                )

    def _replaced(
        self, subscriber: str, wanted: Mapping[str, Wanted]
    ) -> Sequence[Subscription | None]:
        """What new subscriptions take the place of. Raises if that has another feed, or if the
        subscriber would have too many.
        """
        known = self._directory.subscriber(subscriber)
        there = {} if known is None else known.subscriptions
        befores = [there.get(name) for name in wanted]
        for before, (name, one) in zip(befores, wanted.items(), strict=True):
            if before is not None and before.feed != one.feed:
                raise BrokerError(
                    f"subscription {name!r} is one to feed {before.feed!r}; delete it "
                    f"before it is one to {one.feed!r}"
                )
        more, most = befores.count(None), self._most
        if more and len(there) + more > most:  # to put one in its own place is fine
            raise LimitError(f"subscriber {subscriber!r} can have {most:,} subscriptions, not more")
        return befores

    async def _store_subscriber(self, name: str, feed: StateFeed, wanted: Wanted) -> Subscriber:
        """The subscriber, with a number; a new one is stored if the feed can take what it wants."""
        known = self._directory.subscriber(name)
        if known is not None and known.number:
            return known
        state_feed.check_wanted(feed.spec, wanted)
        number = await self._store.commit(lambda transaction: transaction.put_subscriber(name))
        return self._directory.register(name, number, self._store.next_sequence - 1)


_SMALL = 250
"""Characters of filters that are compiled in no time."""

_FEW = 250
"""Subscriptions that are looked through in no time."""

_BETWEEN_TURNS = 8
"""Filters that are compiled before other threads may have a turn."""


async def _aside(count: int, work: Callable[[], T]) -> T:
    """Do something with so many subscriptions: if they are many, without holding up others."""
    return work() if count <= _FEW else await asyncio.to_thread(work)


async def _compile(feed: EventFeed, wanted: Mapping[str, Wanted]) -> list[CompiledFilter]:
    """Compile all filters: where that may take long, without holding up others."""

    def compile_all() -> list[CompiledFilter]:
        compiled = []
        items = list(wanted.items())
        for piece in pieces(len(items), _BETWEEN_TURNS):
            for name, one in items[piece]:
                try:
                    compiled.append(event_feed.compile_wanted(feed.spec, one))
                except FilterError as error:
                    if len(wanted) == 1:
                        raise
                    reason = f"subscription {name!r}: {error.reason}"
                    raise FilterError(reason, error.text, error.position) from None
        return compiled

    if len(wanted) == 1 and all(len(str(one.filter)) < _SMALL for one in wanted.values()):
        return compile_all()
    return await asyncio.to_thread(compile_all)
