"""The subscriptions of one feed by number, and matches put together by subscriber."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.broker.subscribers.subscriber import Subscription
from boxmatch.errors import BrokerError
from boxmatch.wire import answers

Inboxes = dict[int, list[tuple[int, list[str]]]]
"""By subscriber's number: which of some events concern it, and which of its subscriptions they
match.
"""

Order = Literal["busiest", "dead"]

_FEW = 64
_NOBODY = -1


class TopSubscriptions(NamedTuple):
    """Some subscriptions of a feed, and how many there are."""

    subscriptions: list[answers.Subscription]
    total: int
    dead: int
    """Without a match since they were made, or the broker started."""


class Slots:
    """Subscriptions by a small number, so that matches can be handled as arrays."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription | None] = []
        self._free: list[int] = []
        self._subscriber: Int64Array = np.full(_FEW, _NOBODY)
        self._id: npt.NDArray[np.object_] = np.empty(_FEW, object)
        self._matches: Int64Array = np.zeros(_FEW, np.int64)
        self._created: Float64Array = np.zeros(_FEW)

    def __len__(self) -> int:
        return len(self.subscriptions) - len(self._free)

    @property
    def next(self) -> int:
        """The number of the one that is added next."""
        return self._free[-1] if self._free else len(self.subscriptions)

    def add(self, subscription: Subscription) -> int:
        """Give a subscription its number."""
        slot = self.next
        if self._free:
            self._free.pop()
        else:
            self.subscriptions.append(None)
            if slot == len(self._subscriber):
                self._subscriber = np.concatenate(
                    [self._subscriber, np.full_like(self._subscriber, _NOBODY)]
                )
                self._id = np.concatenate([self._id, np.empty_like(self._id)])
                self._matches = np.concatenate([self._matches, np.zeros_like(self._matches)])
                self._created = np.concatenate([self._created, np.zeros_like(self._created)])
        self._subscriber[slot], self._id[slot] = subscription.subscriber.number, subscription.id
        self._matches[slot], self._created[slot] = 0, subscription.created
        self.replace(slot, subscription)
        return slot

    def replace(self, slot: int, subscription: Subscription) -> None:
        """Put a subscription of the same subscriber and id in the place of another."""
        self.subscriptions[slot] = subscription
        subscription.slot, subscription.slots = slot, self

    def remove(self, slot: int) -> Subscription:
        """The number is free from now on. Which subscription had it."""
        known = self.subscriptions[slot]
        if known is None:  # freed twice, it would be given to two
            raise BrokerError(f"no subscription has slot {slot}")
        self.subscriptions[slot] = None
        self._subscriber[slot], self._id[slot] = _NOBODY, None
        self._free.append(slot)
        return known

    def in_use(self) -> list[Subscription]:
        """All subscriptions, as they are now."""
        return [one for one in self.subscriptions if one is not None]

    def count(self, slots: Int64Array) -> None:
        """Count matches of subscriptions."""
        np.add.at(self._matches, slots, 1)

    def matches(self, slot: int) -> int:
        """How often a subscription matched since it came, or the broker started."""
        return int(self._matches[slot])

    def top(
        self, subscribers: Collection[int] | None, order: Order, limit: int
    ) -> TopSubscriptions:
        """Those of some subscribers, or of all: most matches first, or without any the oldest.
        From any thread, as of about now.
        """
        subscriber, matches, created = self._subscriber, self._matches, self._created
        used = subscriber[: min(len(matches), len(created), len(self.subscriptions))]
        chosen = used != _NOBODY if subscribers is None else np.isin(used, list(subscribers))
        slots = np.flatnonzero(chosen)
        is_dead = matches[slots] == 0
        key = created if order == "dead" else -matches
        ranked = slots[is_dead if order == "dead" else ~is_dead]
        first = ranked[np.argsort(key[ranked], kind="stable")[:limit]]
        known = [self.subscriptions[slot] for slot in first.tolist()]
        # A number may have another subscriber by now.
        shown = [
            one.info()
            for one in known
            if one is not None and (subscribers is None or one.subscriber.number in subscribers)
        ]
        return TopSubscriptions(shown, len(slots), int(is_dead.sum()))

    def held_by(self, subscribers: Collection[int]) -> BoolArray:
        """By slot: does it belong to one of these subscribers? From any thread."""
        return np.isin(self._subscriber, list(subscribers))

    def inboxes(self, event: Int64Array, slots: Int64Array) -> Inboxes:
        """Matches (which event, which subscription), put together by subscriber and event."""
        made: Inboxes = {}
        if len(slots) == 0:
            return made
        subscribers = self._subscriber[slots]
        order = np.lexsort((event, subscribers))
        subscribers, events = subscribers[order], event[order]
        ids: list[Any] = self._id[slots[order]].tolist()
        new = (np.diff(subscribers) != 0) | (np.diff(events) != 0)
        starts = np.concatenate([[0], np.flatnonzero(new) + 1])
        begins = starts.tolist()
        for subscriber, number, begin, end in zip(
            subscribers[starts].tolist(),
            events[starts].tolist(),
            begins,
            [*begins[1:], len(ids)],
            strict=True,
        ):
            made.setdefault(subscriber, []).append((number, ids[begin:end]))
        return made
