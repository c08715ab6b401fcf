"""The subscriptions of one feed by number, and matches put together by owner."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.broker.owners import Subscription
from boxmatch.errors import BrokerError

Inboxes = dict[int, list[tuple[int, list[str]]]]
"""By owner's number: which of some events concern it, and which of its subscriptions they match."""

_FEW = 64
_NOBODY = -1


class Standing(NamedTuple):
    """Some subscriptions: their numbers, how often each matched, and when it was made."""

    slots: Int64Array
    matches: Int64Array
    created: Float64Array


class Slots:
    """Subscriptions by a small number, so that matches can be handled as arrays."""

    def __init__(self) -> None:
        self.subscriptions: list[Subscription | None] = []
        self._free: list[int] = []
        self._owner: Int64Array = np.full(_FEW, _NOBODY)
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
            if slot == len(self._owner):
                self._owner = np.concatenate([self._owner, np.full_like(self._owner, _NOBODY)])
                self._id = np.concatenate([self._id, np.empty_like(self._id)])
                self._matches = np.concatenate([self._matches, np.zeros_like(self._matches)])
                self._created = np.concatenate([self._created, np.zeros_like(self._created)])
        self._owner[slot], self._id[slot] = subscription.owner.number, subscription.id
        self._matches[slot], self._created[slot] = 0, subscription.created
        self.replace(slot, subscription)
        return slot

    def replace(self, slot: int, subscription: Subscription) -> None:
        """Put a subscription of the same owner and id in the place of another."""
        self.subscriptions[slot] = subscription
        subscription.slot, subscription.slots = slot, self

    def remove(self, slot: int) -> Subscription:
        """The number is free from now on. Which subscription had it."""
        known = self.subscriptions[slot]
        if known is None:  # freed twice, it would be given to two
            raise BrokerError(f"no subscription has slot {slot}")
        self.subscriptions[slot] = None
        self._owner[slot], self._id[slot] = _NOBODY, None
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

    def standing(self, owners: Collection[int] | None = None) -> Standing:
        """Those of some owners, or all that are in use. From any thread, as of about now."""
        owner, matches, created = self._owner, self._matches, self._created
        used = owner[: min(len(matches), len(created), len(self.subscriptions))]
        chosen = used != _NOBODY if owners is None else np.isin(used, list(owners))
        slots = np.flatnonzero(chosen)
        return Standing(slots, matches[slots], created[slots])

    def owned_by(self, owners: Collection[int]) -> BoolArray:
        """By slot: does it belong to one of these owners? From any thread."""
        return np.isin(self._owner, list(owners))

    def inboxes(self, event: Int64Array, slots: Int64Array) -> Inboxes:
        """Matches (which event, which subscription), put together by owner and event."""
        made: Inboxes = {}
        if len(slots) == 0:
            return made
        owners = self._owner[slots]
        order = np.lexsort((event, owners))
        owners, events = owners[order], event[order]
        ids: list[Any] = self._id[slots[order]].tolist()
        new = (np.diff(owners) != 0) | (np.diff(events) != 0)
        starts = np.concatenate([[0], np.flatnonzero(new) + 1])
        begins = starts.tolist()
        for owner, number, begin, end in zip(
            owners[starts].tolist(),
            events[starts].tolist(),
            begins,
            [*begins[1:], len(ids)],
            strict=True,
        ):
            made.setdefault(owner, []).append((number, ids[begin:end]))
        return made
