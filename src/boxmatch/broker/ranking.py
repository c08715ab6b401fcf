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


class Ranked(NamedTuple):
    """Some subscriptions of a feed, and how many there are."""

    subscriptions: list[SubscriptionInfo]
    total: int
    dead: int
    """Without a match since they were made, or the broker started."""


async def rank_subscriptions(
    core: Core, feed: str, owners: Collection[str] | None, order: Order, limit: int
) -> Ranked:
    """Those of some owners, or of all (None): most matches first, or without any the oldest."""
    slots = core.directory.feed(feed).feed.slots
    numbers = None if owners is None else core.directory.numbers(owners)
    return await asyncio.to_thread(_rank, slots, numbers, order, limit)


def _rank(slots: Slots, owners: frozenset[int] | None, order: Order, limit: int) -> Ranked:
    standing = slots.standing(owners)
    is_dead = standing.matches == 0
    chosen = np.flatnonzero(is_dead if order == "dead" else ~is_dead)
    key = standing.created if order == "dead" else -standing.matches
    first = chosen[np.argsort(key[chosen], kind="stable")[:limit]]
    known = [slots.subscriptions[slot] for slot in standing.slots[first].tolist()]
    # A number may have another owner by now.
    shown = [
        one.info()
        for one in known
        if one is not None and (owners is None or one.owner.number in owners)
    ]
    return Ranked(shown, len(is_dead), int(is_dead.sum()))
