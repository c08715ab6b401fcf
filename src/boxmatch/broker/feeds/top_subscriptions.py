"""The subscriptions of a feed by what they get: the busiest, and those that never match."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Literal, NamedTuple

import numpy as np

from boxmatch.broker.core import Core
from boxmatch.broker.feeds.slots import Slots
from boxmatch.broker.messages import SubscriptionInfo

Order = Literal["busiest", "dead"]


class TopSubscriptions(NamedTuple):
    """Some subscriptions of a feed, and how many there are."""

    subscriptions: list[SubscriptionInfo]
    total: int
    dead: int
    """Without a match since they were made, or the broker started."""


async def top_subscriptions(
    core: Core, feed: str, subscribers: Collection[str] | None, order: Order, limit: int
) -> TopSubscriptions:
    """Those of some subscribers, or of all: most matches first, or without any the oldest."""
    slots = core.directory.feed(feed).feed.slots
    numbers = None if subscribers is None else core.directory.numbers(subscribers)
    return await asyncio.to_thread(_rank, slots, numbers, order, limit)


def _rank(
    slots: Slots, subscribers: frozenset[int] | None, order: Order, limit: int
) -> TopSubscriptions:
    standing = slots.standing(subscribers)
    is_dead = standing.matches == 0
    chosen = np.flatnonzero(is_dead if order == "dead" else ~is_dead)
    key = standing.created if order == "dead" else -standing.matches
    first = chosen[np.argsort(key[chosen], kind="stable")[:limit]]
    known = [slots.subscriptions[slot] for slot in standing.slots[first].tolist()]
    # A number may have another subscriber by now.
    shown = [
        one.info()
        for one in known
        if one is not None and (subscribers is None or one.subscriber.number in subscribers)
    ]
    return TopSubscriptions(shown, len(is_dead), int(is_dead.sum()))
