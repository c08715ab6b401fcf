"""A state feed: publications stay and change, and people hear when one comes to match or ceases."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import orjson

from boxmatch.broker.feeds.slots import Inboxes, Slots
from boxmatch.broker.messages import FeedSpec, Wanted
from boxmatch.broker.owners import Subscription
from boxmatch.errors import BrokerError, RegionError, UnknownMemberError
from boxmatch.model.interval import Interval
from boxmatch.model.schema import Schema
from boxmatch.spaces.dimensions import UNCHANGED, RegionSpec, Stored, Unchanged
from boxmatch.spaces.notifications import KINDS, Notifications
from boxmatch.spaces.spaces import Spaces


class Told(NamedTuple):
    """What an operation has to tell: changes as JSON, whom they concern, and what has expired."""

    bodies: list[bytes]
    inboxes: Inboxes
    expired: list[str]
    """Publications that are no more."""
    expired_subscriptions: list[Subscription]


@dataclass
class Moment:
    """The time at which an operation takes place: it stands still meanwhile."""

    now: float


class StateFeed:
    """Publications and subscriptions, both kept in memory. For the matching thread alone."""

    def __init__(self, spec: FeedSpec, number: int, clock: Callable[[], float] = time.time) -> None:
        self.spec = spec
        self.number = number
        self.slots = Slots()
        self.epoch = 0
        """How often it was read from the disk again, since an operation could not be stored."""
        self.failed = -1
        """The epoch in which that happened: what was done in it since is not stored either."""
        self._gone: dict[str, Mapping[str, RegionSpec]] = {}
        self._lost: list[int] = []
        self._time = clock
        self._moment = moment = Moment(clock())
        # What was told is in the broker's log.
        self.spaces = Spaces(spec.spaces, leave=spec.leave, remember=0, clock=lambda: moment.now)

    def adopt(self, other: StateFeed) -> None:
        """Have what another has; operations before this are of another epoch."""
        self.slots, self.spaces, self._moment = other.slots, other.spaces, other._moment
        self.epoch += 1

    def load(
        self, publications: Mapping[str, Stored], subscriptions: Iterable[Subscription]
    ) -> None:
        """Take over what was stored."""
        wanted = {self.slots.add(one): _stored(one.wanted, one.updated) for one in subscriptions}
        self.spaces.load(publications=publications, subscriptions=wanted)

    def put_publication(
        self,
        publication: str,
        regions: Mapping[str, RegionSpec],
        filter: str | None,
        ttl: float | None,
    ) -> Told:
        """Publish, or put other regions in the place of all that were there."""

        def operation() -> Notifications:
            try:
                before = self.spaces.get_publication(publication).regions
            except UnknownMemberError:
                return self.spaces.publish(publication, regions=regions, filter=filter, ttl=ttl)
            changed = _replacing(before, regions)
            return self.spaces.update_publication(
                publication, regions=changed, filter=filter, ttl=ttl
            )

        return self._operate(operation)

    def patch_publication(
        self,
        publication: str,
        regions: Mapping[str, RegionSpec | None],
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Told:
        return self._operate(
            lambda: self.spaces.update_publication(
                publication, regions=regions, filter=filter, ttl=ttl
            )
        )

    def retract(self, publication: str) -> Told:
        return self._operate(lambda: self.spaces.retract(publication), publication)

    def put(self, subscription: Subscription, before: Subscription | None) -> Told:
        """Add a subscription, or change it as a whole."""
        wanted = subscription.wanted
        regions = regions_of(wanted)
        if before is None:
            slot = self.slots.add(subscription)
            try:
                return self._operate(
                    lambda: self.spaces.subscribe(
                        slot, regions=regions, filter=wanted.region_filter, ttl=wanted.ttl
                    )
                )
            except BaseException:
                self.slots.remove(slot)
                raise
        known = self.spaces.get_subscription(before.slot).regions
        told = self._operate(
            lambda: self.spaces.update_subscription(
                before.slot,
                regions=_replacing(known, regions),
                filter=wanted.region_filter,
                ttl=wanted.ttl,
            )
        )
        self.slots.replace(before.slot, subscription)
        return told

    def remove(self, subscription: Subscription) -> Told:
        """Forget a subscription; it is told nothing."""
        told = self._operate(lambda: self.spaces.unsubscribe(subscription.slot))
        self.slots.remove(subscription.slot)
        return told

    def expire(self) -> Told:
        """Forget what is past its time."""
        return self._operate(self.spaces.expire)

    def has_expired(self) -> bool:
        """Whether something is past its time. From any thread."""
        return bool(self.spaces.due(self._time()))

    def _operate(self, operation: Callable[[], Notifications], leaving: str | None = None) -> Told:
        self._moment.now = self._time()
        # What is past its time goes with the operation, even if that fails: it is then told by
        # the next one. A publication that goes is told with what it was.
        for which, member in self.spaces.due():
            if which == "publication":
                self._gone[str(member)] = self.spaces.get_publication(member).regions
            else:
                self._lost.append(int(member))
        gone = dict(self._gone)
        if leaving is not None:
            gone[leaving] = self.spaces.get_publication(leaving).regions
        told = self._told(operation(), gone)
        expired, self._gone = list(self._gone), {}
        lost, self._lost = self._lost, []
        subscriptions = [one for slot in lost if (one := self.slots.subscriptions[slot])]
        for one in subscriptions:
            self.slots.remove(one.slot)
        return told._replace(expired=expired, expired_subscriptions=subscriptions)

    def _told(self, notifications: Notifications, gone: Mapping[Any, Any]) -> Told:
        """One change for each publication and kind, and whom it concerns."""
        if not notifications:
            return Told([], {}, [], [])
        publications, which = np.unique(notifications.publication.astype(str), return_inverse=True)
        pair = which.astype(np.int64) * len(KINDS) + notifications.code
        # In the order in which they were told.
        _, first, number = np.unique(pair, return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int64)
        rank[np.argsort(first)] = np.arange(len(first))
        bodies = [b""] * len(first)
        for at, place in zip(first.tolist(), rank.tolist(), strict=True):
            publication = str(publications[which[at]])
            bodies[place] = orjson.dumps(
                {
                    "kind": KINDS[notifications.code[at]],
                    "publication": publication,
                    "regions": self._regions(publication, gone),
                }
            )
        slots = notifications.subscription.astype(np.int64)
        self.slots.count(slots)
        return Told(bodies, self.slots.inboxes(rank[number], slots), [], [])

    def _regions(self, publication: str, gone: Mapping[Any, Any]) -> Any:
        try:
            regions = self.spaces.get_publication(publication).regions
        except UnknownMemberError:
            regions = gone.get(publication, {})
        return regions_to_json(regions)


@cache
def warm_up() -> None:
    """Have everything compiled, or read, that operations need: some seconds the first time."""
    spaces = Spaces({"probe": Schema({"x": "int", "s": "string"})}, remember=0)
    spaces.load(subscriptions={0: {"x": (1, 3)}})
    spaces.subscribe(1, {"x": (1, 3), "s": "a"})
    spaces.publish("p", {"x": 2})
    spaces.update_publication("p", {"x": 9})
    spaces.update_publication("p", {"s": "b"})
    spaces.retract("p")
    spaces.unsubscribe(1)


def check_wanted(spec: FeedSpec, wanted: Wanted) -> None:
    """Raise `RegionError` if the regions do not make sense for this feed."""
    if wanted.filter is not None:
        raise BrokerError(f"feed {spec.name!r} is a state feed: give regions, not a filter")
    probe = Spaces(spec.spaces)
    probe.subscribe(0, regions=regions_of(wanted), filter=wanted.region_filter, ttl=wanted.ttl)


def regions_of(wanted: Wanted) -> dict[str, RegionSpec]:
    """The regions as `Spaces` takes them."""
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


def _stored(wanted: Wanted, since: float) -> Stored:
    expires = None if wanted.ttl is None else since + wanted.ttl
    return Stored("", regions_of(wanted), wanted.region_filter, expires)


def _replacing(
    before: Mapping[str, RegionSpec], after: Mapping[str, RegionSpec]
) -> dict[str, RegionSpec | None]:
    """The change that leaves nothing of what was there."""
    changes: dict[str, RegionSpec | None] = {name: None for name in before if name not in after}
    for name, region in after.items():
        freed = dict.fromkeys(before.get(name, {}))
        changes[name] = {**freed, **region}
    return changes
