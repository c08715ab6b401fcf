"""Who gets an event, and why not the others: asked of the index, beside the matching thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.preview import event_feed
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Subscription
from boxmatch.engine.ids import IdArray
from boxmatch.engine.nearest import Miss
from boxmatch.model.explanation import Predicate


class Missed(NamedTuple):
    """A subscription that does not get an event, and what there is to it."""

    subscription: Subscription
    failed: int
    predicates: tuple[Predicate, ...]


class Trace(NamedTuple):
    """What becomes of an event."""

    rate: float
    """Of false matches that the feed tolerates at the moment; there are none in this answer."""
    matched: int
    gets: list[Subscription]
    missed: int
    misses: list[Missed]
    """Nearest first."""


class Tracer:
    """Traces events through feeds of events, on snapshots: matching does not wait for it."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self._turn = asyncio.Lock()

    async def trace(
        self, name: str, event: dict[str, Any], *, subscribers: Collection[str] | None, limit: int
    ) -> Trace:
        """Of the subscriptions of some subscribers, or of all (None): how many want the event and
        how many do not, and up to `limit` of either. Nothing is published or counted.
        """
        feed = event_feed(self._directory, name)
        numbers = None if subscribers is None else self._directory.numbers(subscribers)
        async with self._turn:  # each takes a core for a moment, and others need one too
            return await asyncio.to_thread(_trace, feed, event, numbers, limit)


def _trace(
    feed: EventFeed, event: dict[str, Any], numbers: frozenset[int] | None, limit: int
) -> Trace:
    feed.check([event])
    before = feed.slots.subscriptions.copy()
    among = None if numbers is None else _among(feed.slots.held_by(numbers))
    found = [
        matcher.nearest(event, limit=limit, among=among) for matcher in (feed.matcher, feed.exact)
    ]
    after = feed.slots.subscriptions

    def at(slot: int) -> Subscription | None:
        # A number that has another subscriber by now must not show one's subscription as the
        # other's.
        if slot >= min(len(before), len(after)) or before[slot] is not after[slot]:
            return None
        one = before[slot]
        return one if one and (numbers is None or one.subscriber.number in numbers) else None

    slots = np.sort(np.concatenate([one.matched.astype(np.int64) for one in found]))
    near = sorted((miss for one in found for miss in one.misses), key=_distance)[:limit]
    return Trace(
        feed.adapting.rate,
        len(slots),
        [one for slot in slots[:limit].tolist() if (one := at(slot))],
        sum(one.missed for one in found),
        [
            Missed(one, miss.failed, miss.predicates)
            for miss in near
            if (one := at(int(miss.subscription)))
        ],
    )


def _distance(miss: Miss) -> tuple[int, int]:
    return miss.failed, -len(miss.predicates)


def _among(owned: BoolArray) -> Callable[[IdArray], BoolArray]:
    def choose(ids: IdArray) -> BoolArray:
        slots = ids.astype(np.int64)
        known = slots < len(owned)  # some may have come since
        chosen = np.zeros(len(slots), bool)
        chosen[known] = owned[slots[known]]
        return chosen

    return choose
