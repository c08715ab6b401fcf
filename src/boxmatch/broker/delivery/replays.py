"""Events of the log that subscribers get again, matched against their subscriptions as they are.

Nothing is copied: what a replay delivers is matched when it is read, a slice of the log at a time,
beside the threads of the feeds. So a replay goes at the pace of its reader, below a rate that all
have together, and all that is stored of it is how far it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import orjson

from boxmatch.broker.changes import Changes, uninterrupted
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.store import LoggedEvent, Store
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Replay, Subscriber, Subscription
from boxmatch.errors import BoxmatchError, BrokerError

_log = logging.getLogger(__name__)

_SLICE: Final = 1_000
"""Events that are matched at a time."""
_SLICE_BYTES: Final = 1 << 20
_READINGS: Final = 64
"""Replays of which the slice that is being read stays in memory."""


class Slice(NamedTuple):
    """What follows a number, and how far: there is nothing else up to `reached`."""

    after: int
    reached: int
    notifications: list[Notification]
    events: int
    """That were matched for it."""


_NOTHING: Final = Slice(0, 0, [], 0)


@dataclass(eq=False)
class _Reading:
    """What is known of a replay that is being read."""

    changes: int
    """Of the subscriber's subscriptions, when this was begun."""
    wanted: Mapping[EventFeed, Sequence[Subscription]] | None = None
    """The subscriptions that are replayed, by feed; None: nobody has looked yet."""
    feeds: dict[int, EventFeed] = field(default_factory=dict)
    """Feeds with these subscriptions alone, as they are needed."""
    slice: Slice = _NOTHING
    gap: int = 0
    """There is nothing after this number, up to where the slice reaches."""

    def load(self, number: int, spec: FeedSpec, subscriptions: Sequence[Subscription]) -> EventFeed:
        """A feed with the subscriptions that are replayed. Takes a moment the first time."""
        known = self.feeds.get(number)
        if known is None or known.spec.spaces is not spec.spaces:  # it has more attributes now
            known = self.feeds[number] = _load(spec, subscriptions)
        return known

    def keep(self, slice: Slice) -> None:
        if slice.notifications:
            self.gap = slice.notifications[-1].sequence
        elif not self.gap <= slice.after <= self.slice.reached:
            self.gap = slice.after
        self.slice = slice


class Replays:
    """All replays of a broker. In the event loop."""

    def __init__(
        self, store: Store, directory: Directory, changes: Changes, metrics: Metrics, rate: float
    ) -> None:
        self._store = store
        self._directory = directory
        self._changes = changes
        self._metrics = metrics
        self._rate = rate
        self._turn = asyncio.Lock()
        self._readings: OrderedDict[Subscriber, _Reading] = OrderedDict()
        self.moved: dict[int, int] = {}
        """Replays whose position is not on disk yet, by number."""

    # Begun and ended

    def check(self, subscriber: str, feed: str, first: int | str) -> None:
        """Raise what `start` would raise for a subscription to this feed."""
        self._check_not_shared(subscriber)
        self._feed_number(feed)
        if isinstance(first, str):
            _seconds(first)

    def _check_not_shared(self, subscriber: str) -> None:
        known = self._directory.subscriber(subscriber)
        if known is not None and known.shared is not None:
            raise BrokerError(
                f"subscriber {subscriber!r} shares its notifications, so nothing can be replayed "
                "to it: end the sharing first, or replay to another subscriber"
            )

    def _feed_number(self, feed: str) -> int:
        """The number of a feed that can be replayed."""
        known = self._directory.feed(feed).feed
        if not isinstance(known, EventFeed):
            raise BrokerError(
                f"feed {feed!r} is a state feed, which cannot be replayed: its log does not say "
                "whom a transition concerned; a new subscription hears of what matches now"
            )
        return known.number

    @uninterrupted
    async def start(
        self,
        subscriber: str,
        first: int | str,
        *,
        through: int | str | None = None,
        feed: str | None = None,
        subscription: str | None = None,
    ) -> Replay:
        """Deliver the events of the log from a number or a time on again, through another or all
        that there are now; see `ReplayRow`. On disk when this returns.

        Readers are sent away, and go on from there when they come again.
        """
        async with self._changes.lock(subscriber):
            self._check_not_shared(subscriber)
            known, feed, number = self._find(subscriber, feed, subscription)
            [replay] = await self._start(known, feed, number, [subscription], first, through)
            return replay

    @uninterrupted
    async def start_some(
        self, subscriber: str, first: int | str, *, feed: str, subscriptions: Collection[str]
    ) -> None:
        """The same for some subscriptions to a feed, all at once. If the subscriber has no others
        to it, it is one replay.
        """
        async with self._changes.lock(subscriber):
            self._check_not_shared(subscriber)
            known, _, number = self._find(subscriber, feed, None)
            wanted = frozenset(subscriptions)
            is_all = all(
                id in wanted or one.feed != feed for id, one in known.subscriptions.items()
            )
            ids = [None] if is_all else [id for id in subscriptions if id in known.subscriptions]
            await self._start(known, feed, number, ids, first, None)

    async def _start(
        self,
        known: Subscriber,
        feed: str | None,
        number: int,
        subscriptions: Sequence[str | None],
        first: int | str,
        through: int | str | None,
    ) -> list[Replay]:
        """Replay a feed of this number, or all of them, for each of some subscriptions; None: all
        of them together.
        """
        begin = await asyncio.to_thread(self._number_of, first)
        oldest = await asyncio.to_thread(self._store.first_sequence, number or None)
        last = None if through is None else await asyncio.to_thread(self._last_of, through)
        position = max(begin, oldest, 1) - 1
        rows = await self._store.commit(
            lambda transaction: [
                transaction.put_replay(known.number, number, id or "", position, last)
                for id in subscriptions
            ]
        )
        begun = [
            Replay(row.number, feed, id, row.position, row.through)
            for row, id in zip(rows, subscriptions, strict=True)
        ]
        for replay in begun:
            known.start_replay(replay)
        self._readings.pop(known, None)
        # There may be nothing.
        self._move(
            known, {one.number: one.position for one in begun if one.position >= one.through}
        )
        for stream in tuple(known.streams):
            stream.close()
        return begun

    @uninterrupted
    async def cancel(self, subscriber: str) -> int:
        """Replay no more; returns the cursor."""
        async with self._changes.lock(subscriber):
            known = self._directory.subscriber(subscriber)
            if known is None:
                return 0
            if known.replays:
                await self._store.commit(
                    lambda transaction: transaction.delete_replays(known.number), frees=True
                )
                known.replays.clear()
                self._readings.pop(known, None)
                for stream in tuple(known.streams):
                    stream.close()
            return known.position

    def _find(
        self, subscriber: str, feed: str | None, subscription: str | None
    ) -> tuple[Subscriber, str | None, int]:
        """The subscriber, the feed and its number (0 is all), if there is anything to match."""
        if subscription is not None:
            wanted = self._directory.subscription(subscriber, subscription).wanted.feed
            if feed not in (None, wanted):
                raise BrokerError(f"subscription {subscription!r} is not one to feed {feed!r}")
            feed = wanted
        number = 0 if feed is None else self._feed_number(feed)
        known = self._directory.subscriber(subscriber)
        if known is None or not any(
            feed == one.wanted.feed or (feed is None and self._is_of_events(one))
            for one in known.subscriptions.values()
        ):
            to = "feeds of events" if feed is None else f"feed {feed!r}"
            raise BrokerError(f"subscriber {subscriber!r} has no subscriptions to {to}")
        return known, feed, number

    def _is_of_events(self, subscription: Subscription) -> bool:
        return isinstance(self._directory.feed(subscription.wanted.feed).feed, EventFeed)

    def _number_of(self, first: int | str) -> int:
        """The number itself, or that of the first event since a time."""
        if isinstance(first, int):
            return first
        found = self._store.reader.first_since(_seconds(first))
        return self._store.next_sequence if found is None else found

    def _last_of(self, through: int | str) -> int:
        return through if isinstance(through, int) else self._number_of(through) - 1

    # Acknowledged

    def moves(self, known: Subscriber, sequence: int) -> dict[int, int]:
        """The replays that an acknowledgement moves, and how far. Not past what was handed out
        since they began: it may be one of what was delivered before.
        """
        handed = min(sequence, known.handed)
        positions = {
            one.number: self._skip_gap(known, max(one.position, handed))
            for one in known.replays.values()
        }
        return {
            one.number: positions[one.number]
            for one in known.replays.values()
            if positions[one.number] > one.position
        }

    def move(self, known: Subscriber, positions: Mapping[int, int]) -> None:
        """These replays are acknowledged so far."""
        for key, one in list(known.replays.items()):
            one.position = max(one.position, positions.get(one.number, 0))
            if one.position >= one.through:
                del known.replays[key]
        if not known.replays:
            self._readings.pop(known, None)

    def _move(self, known: Subscriber, positions: Mapping[int, int]) -> None:
        """The same, and soon on disk."""
        self.move(known, positions)
        self.moved.update(positions)

    def _skip_gap(self, known: Subscriber, position: int) -> int:
        reading = self._readings.get(known)
        if reading is not None and reading.gap <= position < reading.slice.reached:
            return reading.slice.reached
        return position

    # Read

    async def read(
        self, known: Subscriber, after: int, limit: int
    ) -> tuple[list[Notification], int]:
        """The next notifications of a subscriber's replays after a number, together with those of
        its inbox among them. None of either, and where the inbox goes on alone, at the end.
        """
        position = after
        while position < known.replayed_through:
            begun = known.replays_begun
            found = await self._slice(known, position)
            if begun != known.replays_begun:  # another one, which was not looked for
                position = after
                continue
            left = [one for one in found.notifications if one.sequence > position][:limit]
            if left:
                for feed, count in Counter(one.feed for one in left).items():
                    self._metrics.replayed(feed, count)
                return left, left[-1].sequence
            position = found.reached
            passed = {
                one.number: position
                for one in known.replays.values()
                if after <= one.position < position
            }
            if passed:  # nothing is there to be acknowledged
                self._move(known, passed)
        return [], position

    async def _slice(self, known: Subscriber, position: int) -> Slice:
        reading = self._reading(known)
        if reading.slice.after <= position < reading.slice.reached:
            return reading.slice
        loop = asyncio.get_running_loop()
        async with self._turn:
            began = loop.time()
            reading = self._reading(known)
            look = self._prepare(known, reading, position)
            found = await asyncio.to_thread(look)
            if self._readings.get(known) is reading:
                reading.keep(found)
            await asyncio.sleep(max(0.0, found.events / self._rate - (loop.time() - began)))
        return found

    def _reading(self, known: Subscriber) -> _Reading:
        reading = self._readings.get(known)
        if reading is None or reading.changes != known.changes:
            reading = self._readings[known] = _Reading(known.changes)
            if len(self._readings) > _READINGS:
                self._readings.popitem(last=False)
        self._readings.move_to_end(known)
        return reading

    def _prepare(self, known: Subscriber, reading: _Reading, position: int) -> partial[Slice]:
        """What is to be done in another thread for the slice after a position."""
        replays = {key: one.range for key, one in known.replays.items() if one.through > position}
        begin = min((first for first, _ in replays.values()), default=position)
        if position < begin:  # up to there, only what waits in the inbox
            return partial(self._look, known.number, known.floor, {}, {}, position, begin)
        if reading.wanted is None:
            reading.wanted = self._chosen(known)
        loads = {
            feed.number: partial(reading.load, feed.number, feed.spec, subscriptions)
            for feed, subscriptions in reading.wanted.items()
        }
        through = known.replayed_through
        return partial(self._look, known.number, known.floor, replays, loads, position, through)

    def _chosen(self, known: Subscriber) -> dict[EventFeed, list[Subscription]]:
        """The subscriptions to feeds of events that are replayed."""
        ids = [one.subscription for one in known.replays.values()]
        some: Iterable[str] = known.subscriptions if None in ids else filter(None, ids)
        wanted: dict[EventFeed, list[Subscription]] = {}
        for id in some:
            one = known.subscriptions.get(id)
            if one is not None and any(
                key in known.replays
                for key in ((None, None), (one.wanted.feed, None), (one.wanted.feed, id))
            ):
                feed = self._directory.feed(one.wanted.feed).feed
                if isinstance(feed, EventFeed):
                    wanted.setdefault(feed, []).append(one)
        return wanted

    def _look(
        self,
        subscriber: int,
        floor: int,
        replays: Ranges,
        loads: Mapping[int, partial[EventFeed]],
        position: int,
        through: int,
    ) -> Slice:
        reader = self._store.reader
        pieces, reached = reader.log(list(loads), position, through, _SLICE, _SLICE_BYTES)
        waiting: list[Notification] = []
        if reached > floor:
            waiting = reader.inbox(subscriber, max(position, floor), _SLICE, _SLICE_BYTES)
            if waiting:  # there may be more of them
                reached = min(reached, waiting[-1].sequence)
        found = {one.sequence: one for one in waiting if one.sequence <= reached}
        count = 0
        for number, events in pieces:
            count += len(events)
            for one in _match(loads[number](), events, replays):
                if one.sequence > reached:
                    break
                there = found.get(one.sequence)
                if there is not None:
                    more = [id for id in one.subscriptions if id not in there.subscriptions]
                    one = there._replace(subscriptions=[*there.subscriptions, *more])
                found[one.sequence] = one
        return Slice(position, reached, [found[number] for number in sorted(found)], count)


Ranges = Mapping[tuple[str | None, str | None], tuple[int, int]]
"""Of replays, by feed and subscription, where None is all: after which number, and up to which."""


def _seconds(time: str) -> float:
    try:
        moment = datetime.fromisoformat(time)
    except ValueError:
        raise BrokerError(
            f"{time!r} is neither a sequence number nor a time such as 2026-03-01T09:30:00Z"
        ) from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _covering(replays: Ranges, feed: str, id: str) -> list[tuple[int, int]]:
    """The ranges in which a subscription is replayed."""
    return [replays[key] for key in ((None, None), (feed, None), (feed, id)) if key in replays]


def _load(spec: FeedSpec, subscriptions: Sequence[Subscription]) -> EventFeed:
    """A feed with some subscriptions alone, which is always exact."""
    feed = EventFeed(replace(spec, adaptive=None), 0)
    count = len(subscriptions)
    copies = [replace(one) for one in subscriptions]  # each has its place in the real feed
    checksums, slots = np.zeros(count, np.int64), np.full(count, -1)
    feed.load(copies, checksums, slots, None, lambda done: None)
    return feed


def _match(feed: EventFeed, events: Sequence[LoggedEvent], replays: Ranges) -> list[Notification]:
    name = feed.spec.name
    try:
        result = feed.match([orjson.loads(one.body) for one in events])
    except BoxmatchError as error:
        if len(events) > 1:
            return [found for one in events for found in _match(feed, [one], replays)]
        # What was carried along may not be a value of an attribute that was added since.
        _log.warning("event %d of %r is not replayed: %s", events[0].sequence, name, error)
        return []
    found: dict[int, list[str]] = {}
    for place, slot in zip(result.event.tolist(), result.slots.tolist(), strict=True):
        one = feed.slots.subscriptions[slot]
        number = events[place].sequence
        if one and any(low < number <= high for low, high in _covering(replays, name, one.id)):
            found.setdefault(place, []).append(one.id)
    return [
        Notification(event.sequence, name, event.at, found[place], event.body)
        for place, event in enumerate(events)
        if place in found
    ]
