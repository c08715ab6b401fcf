"""Questions about feeds of events: what a filter would do, who gets an event, and why not others.

Answered from the log and from the index, beside the threads that match; nothing is published or
stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import orjson

from boxmatch.arrays import BoolArray
from boxmatch.broker.feeds.event_feed import EventFeed, GivenFilter, filter_of
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store import LoggedEvent, Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Subscription
from boxmatch.engine.explain import Miss, Wanted
from boxmatch.engine.ids import IdArray
from boxmatch.engine.matcher import Matcher
from boxmatch.errors import BrokerError, UnknownEventError
from boxmatch.model.explanation import Explanation, Predicate
from boxmatch.model.filters import CompiledFilter, compile_filter

_EXAMPLES = 5
"""Events that matched, which are shown."""
_BOXES = 64
"""That are shown of a filter."""
_RECENT_BYTES = 1 << 20
"""Of events that are explained; the newest is in any case."""


class Recent(NamedTuple):
    """One of the last events, and why a filter wants it or not."""

    event: LoggedEvent
    explanation: Explanation


class DryRun(NamedTuple):
    """How many of the last events a filter would have matched, and the newest of those."""

    events: int
    matches: int
    examples: list[LoggedEvent]
    compiled: CompiledFilter
    boxes: list[list[Wanted]]
    """What the filter compiles to, the first of it."""
    box_count: int
    recent: list[Recent]
    """Newest first."""


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


class Preview:
    """Questions about feeds of events."""

    def __init__(self, store: Store, directory: Directory, recent_events: int) -> None:
        self._store = store
        self._directory = directory
        self._recent_events = recent_events
        self._tracing = asyncio.Lock()

    async def dry_run(
        self, name: str, filter: GivenFilter, recent: int = 0, *, may_read: bool = True
    ) -> DryRun:
        """What a subscription would have got of the last events, `recent` of them explained.

        Who may not read them is told what the filter compiles to alone: by counts for one filter
        after the other, values can be found out.
        """
        feed = self._feed(name)

        def run() -> DryRun:
            compiled = compile_filter(feed.spec.schema, filter)
            matcher = _matcher(feed.spec, compiled)
            logged: list[LoggedEvent] = []
            if may_read:
                logged = self._store.reader.last_events(feed.number, self._recent_events)
            rows = [orjson.loads(event.body) for event in logged]
            counts = matcher.count_batch(rows, threads=1).tolist()
            found = [event for event, count in zip(logged, counts, strict=True) if count]
            explainer = matcher.explainer("filter")
            newest = list(zip(logged, rows, strict=True))[: -recent - 1 : -1]
            return DryRun(
                len(logged), len(found), found[-_EXAMPLES:], compiled, explainer.wanted(_BOXES),
                len(explainer), [Recent(one, explainer.nearest(row)) for one, row in _some(newest)],
            )  # fmt: skip

        return await asyncio.to_thread(run)

    async def explain(
        self,
        name: str,
        *,
        event: dict[str, Any] | None = None,
        sequence: int | None = None,
        filter: GivenFilter | None = None,
        subscriber: str | None = None,
        subscription: str | None = None,
    ) -> Explanation:
        """Why a filter, or a stored subscription, does or does not want an event."""
        feed = self._feed(name)
        if (event is None) == (sequence is None):
            raise BrokerError("give an event, or the sequence number of one")
        if (filter is None) == (subscriber is None or subscription is None):
            raise BrokerError("give a filter, or the subscriber and id of a subscription")
        if filter is None:
            known = self._directory.subscription(subscriber or "", subscription or "")
            if known.feed != name:
                raise BrokerError(f"subscription {subscription!r} is not one to feed {name!r}")
            filter = filter_of(known.wanted)

        def run() -> Explanation:
            matcher = _matcher(feed.spec, compile_filter(feed.spec.schema, filter))
            given = self._logged(feed, sequence or 0) if event is None else event
            return matcher.explain(given, "filter")

        return replace(await asyncio.to_thread(run), subscription=subscription or "filter")

    async def trace(
        self, name: str, event: dict[str, Any], *, subscribers: Collection[str] | None, limit: int
    ) -> Trace:
        """Of the subscriptions of some subscribers, or of all (None): how many want the event and
        how many do not, and up to `limit` of either. Nothing is published or counted.
        """
        feed = self._feed(name)
        numbers = None if subscribers is None else self._directory.numbers(subscribers)
        async with self._tracing:  # each takes a core for a moment, and others need one too
            return await asyncio.to_thread(_trace, feed, event, numbers, limit)

    def _feed(self, name: str) -> EventFeed:
        feed = self._directory.feed(name).feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"feed {name!r} is a state feed: ask for its publications instead")
        return feed

    def _logged(self, feed: EventFeed, sequence: int) -> dict[str, Any]:
        found = self._store.reader.event(sequence)
        if found is None or found[0] != feed.number:
            raise UnknownEventError(feed.spec.name, sequence)
        event: dict[str, Any] = orjson.loads(found[1].body)
        return event


def _some(newest: list[tuple[LoggedEvent, Any]]) -> list[tuple[LoggedEvent, Any]]:
    """As many as are not too large together, and at least one."""
    room = _RECENT_BYTES
    for place, (event, _) in enumerate(newest):
        room -= len(event.body)
        if room < 0:
            return newest[: max(place, 1)]
    return newest


def _matcher(spec: FeedSpec, compiled: CompiledFilter) -> Matcher:
    matcher = Matcher(spec.schema)
    matcher.subscribe_compiled(["filter"], [compiled])
    return matcher


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
