"""What a filter would do, and why: answered from the log, without touching what is stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store import LoggedEvent, Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.engine.matcher import Matcher
from boxmatch.errors import BrokerError, UnknownEventError
from boxmatch.model.explanation import Explanation
from boxmatch.wire.requests import Filter

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
    boxes: list[list[tuple[str, str]]]
    """What the filter compiles to, the first of it: attributes, and what is wanted of each."""
    box_count: int
    recent: list[Recent]
    """Newest first."""


class Preview:
    """Questions about feeds of events."""

    def __init__(self, store: Store, directory: Directory, recent_events: int) -> None:
        self._store = store
        self._directory = directory
        self._recent_events = recent_events

    async def dry_run(self, name: str, filter: Filter, recent: int = 0) -> DryRun:
        """What a subscription would have got of the last events, `recent` of them explained."""
        feed = event_feed(self._directory, name)

        def run() -> DryRun:
            matcher = _matcher(feed.spec, filter)
            logged = self._store.reader.last_events(feed.number, self._recent_events)
            rows = [orjson.loads(event.body) for event in logged]
            counts = matcher.count_batch(rows, threads=1).tolist()
            found = [event for event, count in zip(logged, counts, strict=True) if count]
            explainer = matcher.explainer("filter")
            newest = list(zip(logged, rows, strict=True))[: -recent - 1 : -1]
            return DryRun(
                len(logged), len(found), found[-_EXAMPLES:], explainer.wanted(_BOXES),
                len(explainer), [Recent(one, explainer.nearest(row)) for one, row in _some(newest)],
            )  # fmt: skip

        return await asyncio.to_thread(run)

    async def explain(
        self,
        name: str,
        *,
        event: dict[str, Any] | None = None,
        sequence: int | None = None,
        filter: Filter | None = None,
        subscriber: str | None = None,
        subscription: str | None = None,
    ) -> Explanation:
        """Why a filter, or a stored subscription, does or does not want an event."""
        feed = event_feed(self._directory, name)
        if (event is None) == (sequence is None):
            raise BrokerError("give an event, or the sequence number of one")
        if (filter is None) == (subscriber is None or subscription is None):
            raise BrokerError("give a filter, or the subscriber and id of a subscription")
        if filter is None:
            known = self._directory.subscription(subscriber or "", subscription or "")
            if known.wanted.feed != name:
                raise BrokerError(f"subscription {subscription!r} is not one to feed {name!r}")
            filter = known.wanted.filter or ""
        matcher = await asyncio.to_thread(_matcher, feed.spec, filter)
        if event is None:
            event = await asyncio.to_thread(self._logged, feed, sequence or 0)
        return replace(matcher.explain(event, "filter"), subscription=subscription or "filter")

    def _logged(self, feed: EventFeed, sequence: int) -> dict[str, Any]:
        found = self._store.reader.event(sequence)
        if found is None or found[0] != feed.number:
            raise UnknownEventError(feed.spec.name, sequence)
        event: dict[str, Any] = orjson.loads(found[1].body)
        return event


def event_feed(directory: Directory, name: str) -> EventFeed:
    """A feed of events; others are not asked in this way."""
    feed = directory.feed(name).feed
    if not isinstance(feed, EventFeed):
        raise BrokerError(f"feed {name!r} is a state feed: ask for its publications instead")
    return feed


def _some(newest: list[tuple[LoggedEvent, Any]]) -> list[tuple[LoggedEvent, Any]]:
    """As many as are not too large together, and at least one."""
    room = _RECENT_BYTES
    for place, (event, _) in enumerate(newest):
        room -= len(event.body)
        if room < 0:
            return newest[: max(place, 1)]
    return newest


def _matcher(spec: FeedSpec, filter: Filter) -> Matcher:
    matcher = Matcher(spec.schema)
    matcher.subscribe("filter", filter)
    return matcher
