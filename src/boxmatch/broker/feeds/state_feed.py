"""A state feed: publications stay and change, and subscribers are notified of transitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store.recipients import NOBODY, Recipients
from boxmatch.broker.subscribers.subscribers import Slots, Subscriber, Subscription
from boxmatch.errors import (
    BrokerError,
    RegionError,
    UnknownMemberError,
    UnknownSubscriptionError,
)
from boxmatch.model.interval import Interval
from boxmatch.spaces.dimensions import UNCHANGED, RegionSpec, Stored, Unchanged
from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import KINDS, Transitions
from boxmatch.wire.requests import Wanted


class StateChanges(NamedTuple):
    """What an operation results in: changes as JSON, and whom they concern."""

    bodies: list[bytes]
    recipients: Recipients


class Expired(NamedTuple):
    """Publications and subscriptions whose time is over, and the changes that result."""

    changes: StateChanges
    publications: list[str]
    subscriptions: list[Subscription]


@dataclass
class FrozenClock:
    """The time of a feed: it stands still while an operation takes place."""

    now: float


class StateFeed:
    """Publications and subscriptions, both kept in memory. For the thread of the feed alone.

    Time passes in `expire` only, which comes before every operation and is complete by itself: an
    operation that fails after it takes nothing of it back. One that is refused (`BoxmatchError`)
    has changed nothing.
    """

    def __init__(self, spec: FeedSpec, number: int, clock: Callable[[], float] = time.time) -> None:
        self.spec = spec
        self.number = number
        self.slots = Slots(spec.name)
        self.epoch = 0
        """How often it was read from the disk again, since an operation could not be stored."""
        self.failed = -1
        """The epoch in which that happened: what was done in it since is not stored either."""
        self._known: dict[tuple[int, str], Subscription] = {}
        """Subscriptions by their subscriber's number and their id."""
        self._clock = clock
        self._frozen = frozen = FrozenClock(clock())
        # Transitions are in the broker's log.
        self.spaces = Spaces(spec.spaces, leave=spec.leave, remember=0, clock=lambda: frozen.now)

    def adopt(self, other: StateFeed) -> None:
        """Have what another has; operations before this are of another epoch."""
        self.slots, self.spaces, self._frozen = other.slots, other.spaces, other._frozen
        self._known = other._known
        self.epoch += 1

    def load(
        self, publications: Mapping[str, Stored], subscriptions: Iterable[Subscription]
    ) -> None:
        """Take over what was stored."""
        wanted = {self._add(one): self._stored(one) for one in subscriptions}
        self.spaces.load(publications=publications, subscriptions=wanted)

    def expire(self) -> Expired | None:
        """Let it be now, and forget what is past its time; None if nothing is."""
        self._frozen.now = self._clock()
        due = self.spaces.due()
        if not due:
            return None
        slots = [int(member) for which, member in due if which == "subscription"]
        # Subscribers are notified of a publication that goes with its last regions.
        gone = {
            str(member): self.spaces.get_publication(member).regions
            for which, member in due
            if which == "publication"
        }
        changes = self._describe(self.spaces.expire(), gone)
        return Expired(changes, list(gone), [self._remove(slot) for slot in slots])

    def has_expired(self) -> bool:
        """Whether something is past its time. From any thread."""
        return bool(self.spaces.due(self._clock()))

    def put_publication(
        self,
        publication: str,
        regions: Mapping[str, RegionSpec],
        filter: str | None,
        ttl: float | None,
    ) -> StateChanges:
        """Publish, or put other regions in the place of all that were there."""
        try:
            before = self.spaces.get_publication(publication).regions
        except UnknownMemberError:
            new = self.spaces.publish(publication, regions=regions, region_filter=filter, ttl=ttl)
            return self._describe(new)
        return self.patch_publication(publication, _replace(before, regions), filter, ttl)

    def patch_publication(
        self,
        publication: str,
        regions: Mapping[str, RegionSpec | None],
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> StateChanges:
        return self._describe(
            self.spaces.update_publication(
                publication, regions=regions, region_filter=filter, ttl=ttl
            )
        )

    def retract(self, publication: str) -> StateChanges:
        gone = {publication: self.spaces.get_publication(publication).regions}
        return self._describe(self.spaces.retract(publication), gone)

    def put(self, subscription: Subscription) -> StateChanges:
        """Add a subscription, or put it in the place of that of the same subscriber and id."""
        wanted = subscription.wanted
        regions = regions_of(self.spec, wanted)
        before = self._known.get((subscription.subscriber.number, subscription.id))
        if before is None:
            entered = self.spaces.subscribe(
                self.slots.next, regions=regions, region_filter=wanted.region_filter, ttl=wanted.ttl
            )
            self._add(subscription)
            return self._describe(entered)
        known = self.spaces.get_subscription(before.slot).regions
        changed = self.spaces.update_subscription(
            before.slot,
            regions=_replace(known, regions),
            region_filter=wanted.region_filter,
            ttl=wanted.ttl,
        )
        subscription.created = before.created
        self.slots.replace(before.slot, subscription)
        self._known[subscription.subscriber.number, subscription.id] = subscription
        return self._describe(changed)

    def remove(self, subscriber: Subscriber, id: str) -> StateChanges:
        """Forget a subscription; its subscriber is not notified."""
        known = self._known.get((subscriber.number, id))
        if known is None:
            raise UnknownSubscriptionError(id)
        changes = self._describe(self.spaces.unsubscribe(known.slot))
        self._remove(known.slot)
        return changes

    def _stored(self, subscription: Subscription) -> Stored:
        wanted = subscription.wanted
        expires = None if wanted.ttl is None else subscription.updated + wanted.ttl
        return Stored("", regions_of(self.spec, wanted), wanted.region_filter, expires)

    def _add(self, subscription: Subscription) -> int:
        self._known[subscription.subscriber.number, subscription.id] = subscription
        return self.slots.add(subscription)

    def _remove(self, slot: int) -> Subscription:
        gone = self.slots.remove(slot)
        del self._known[gone.subscriber.number, gone.id]
        return gone

    def _describe(
        self, transitions: Transitions, gone: Mapping[str, Any] | None = None
    ) -> StateChanges:
        """One change for each publication and kind, and whom it concerns."""
        if not transitions:
            return StateChanges([], NOBODY)
        publications, which = np.unique(transitions.publication.astype(str), return_inverse=True)
        pair = which.astype(np.int64) * len(KINDS) + transitions.code
        # In the order of the transitions.
        _, first, number = np.unique(pair, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        bodies = [b""] * len(first)
        for at, place in zip(first.tolist(), rank.tolist(), strict=True):
            publication = str(publications[which[at]])
            bodies[place] = orjson.dumps(
                {
                    "kind": KINDS[transitions.code[at]],
                    "publication": publication,
                    "regions": self._regions(publication, gone or {}),
                }
            )
        slots = transitions.subscription.astype(np.int64)
        self.slots.count(slots)
        return StateChanges(bodies, self.slots.recipients(rank[number], slots))

    def _regions(self, publication: str, gone: Mapping[str, Any]) -> Any:
        try:
            regions = self.spaces.get_publication(publication).regions
        except UnknownMemberError:
            regions = gone.get(publication, {})
        return regions_to_json(regions)


@cache
def warm_up() -> None:
    """Have everything compiled, or read, that operations need: some seconds the first time."""
    Spaces({"probe": {"x": "int"}}).warmup()


def check_wanted(spec: FeedSpec, wanted: Wanted) -> None:
    """Raise `RegionError` if the regions do not make sense for this feed."""
    regions = regions_of(spec, wanted)
    Spaces(spec.spaces).subscribe(
        0, regions=regions, region_filter=wanted.region_filter, ttl=wanted.ttl
    )


def regions_of(spec: FeedSpec, wanted: Wanted) -> dict[str, RegionSpec]:
    """The regions as `Spaces` takes them."""
    if wanted.filter is not None or wanted.dialect is not None:
        raise BrokerError(f"feed {spec.name!r} is a state feed: give regions, not a filter")
    if not wanted.regions:
        raise RegionError("a subscription to a state feed needs regions")
    return regions_from_json(wanted.regions)


def regions_from_json(regions: Mapping[str, Any]) -> dict[str, Any]:
    """As `Spaces` takes them, except that in JSON a list may be low and high too."""
    return {name: _region_from_json(name, region) for name, region in regions.items()}


def _region_from_json(name: str, region: Any) -> Any:
    if region is None:
        return None
    if not isinstance(region, Mapping):
        raise RegionError(f"region {name!r} is an object of dimensions, not {region!r}")
    return {d: tuple(given) if isinstance(given, list) else given for d, given in region.items()}


def regions_to_json(regions: Mapping[str, Any]) -> dict[str, Any]:
    """The inverse of `regions_from_json`, for regions as they are stored."""
    return {
        name: {dimension: _interval_to_json(one) for dimension, one in region.items()}
        for name, region in regions.items()
    }


def publication_to_json(stored: Stored) -> bytes:
    return orjson.dumps(
        {"regions": regions_to_json(stored.regions), "filter": stored.region_filter}
    )


def publication_from_json(publication: str, text: bytes, expires: float | None) -> Stored:
    known = orjson.loads(text)
    return Stored(publication, regions_from_json(known["regions"]), known["filter"], expires)


def _interval_to_json(interval: Any) -> Any:
    if not isinstance(interval, Interval):
        return interval
    if interval.low_open or interval.high_open:
        return {
            "low": _plain(interval.low),
            "high": _plain(interval.high),
            "low_open": interval.low_open,
            "high_open": interval.high_open,
        }
    if interval.low is not None and interval.low == interval.high:
        return _plain(interval.low)
    return [_plain(interval.low), _plain(interval.high)]


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64):  # beyond the years that `datetime` has
        return f"{value}Z"
    return value.isoformat() if hasattr(value, "isoformat") else value


def _replace(
    before: Mapping[str, RegionSpec], after: Mapping[str, RegionSpec]
) -> dict[str, RegionSpec | None]:
    """The change that leaves nothing of what was there."""
    changes: dict[str, RegionSpec | None] = {name: None for name in before if name not in after}
    for name, region in after.items():
        freed = dict.fromkeys(before.get(name, {}))
        changes[name] = {**freed, **region}
    return changes
