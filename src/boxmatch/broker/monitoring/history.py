"""What there is to see of a running broker: as it is now, and over the last minutes.

Everything is counted from the start on, so that whoever looks takes differences, and nothing is
kept for each of them.
"""

from __future__ import annotations

import asyncio
import heapq
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple

import structlog

from boxmatch.broker.delivery.webhooks import Webhooks
from boxmatch.broker.feeds.event_feed import in_effect
from boxmatch.broker.feeds.pipeline import EventPipeline
from boxmatch.broker.feeds.spec import FeedInfo
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Sizes, Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.wire.codec import encode, stored
from boxmatch.wire.overview import (
    BrokerCounts,
    FeedCounts,
    Queue,
    Sample,
    WatchedFeed,
    WatchedSubscriber,
)

HISTORY: Final = 300
"""Samples that are kept, one a second."""
MOST_FEEDS: Final = 20
"""The busiest, in each sample."""
MOST_SUBSCRIBERS: Final = 50
_EVERY: Final = 1.0
_FRESH: Final = 0.9
"""Seconds for which what is added up over all subscribers will do."""
_SIZES_FRESH: Final = 10.0
"""To count what is on disk takes longer."""
_FADING: Final = 0.98
"""What of a feed's activity still counts a second later."""

log = structlog.get_logger(__name__)


class BrokerSummary(NamedTuple):
    """What is added up over all subscribers."""

    sessions: int
    backlog: int
    subscribers: list[WatchedSubscriber]
    """Those with errors first, then those that fall behind, then those that most waits for."""
    subscriber_count: int
    sizes: Sizes
    lacking_bytes: int
    """Of the disk; see `Store.lacking_bytes`."""


class History:
    """Numbers of feeds and subscribers. In the event loop, for as long as the broker runs."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        pipeline: EventPipeline,
        webhooks: Webhooks,
        metrics: Metrics,
        clock: Callable[[], float],
        settings: Settings,
    ) -> None:
        self.started = clock()
        self.now = clock
        self._store = store
        self._directory = directory
        self._pipeline = pipeline
        self._webhooks = webhooks
        self._metrics = metrics
        self._settings = settings
        self._samples: deque[tuple[float, dict[str, bytes]]] = deque(maxlen=HISTORY)
        self._totals: dict[str, int] = {}
        self._activity: dict[str, float] = {}
        self._summing = asyncio.Lock()
        self._summary: tuple[float, BrokerSummary] | None = None
        self._sizes: tuple[float, Sizes, int] | None = None
        self._task = asyncio.create_task(self._sample_all())

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    # As it is now

    def feeds(self, sees: Callable[[str], bool]) -> list[WatchedFeed]:
        """Every feed that somebody may see."""
        entries = self._directory.feeds()
        return [self._feed(entry.info()) for entry in entries if sees(entry.feed.spec.name)]

    def _feed(self, info: FeedInfo) -> WatchedFeed:
        spec = info.spec
        return WatchedFeed(
            kind=spec.kind,
            index=spec.index,
            adaptive=in_effect(spec),
            subscriptions=info.subscriptions,
            publications=info.publications,
            last_sequence=info.last_sequence,
            removed=self._metrics.removed_by_cause(spec.name),
            retention=spec.retention,
            **self._moving(info),
        )

    def _moving(self, info: FeedInfo) -> dict[str, Any]:
        """What charts are made of."""
        counts = self._metrics.counts(info.spec.name)
        if info.spec.kind == "state":  # its operations are not counted, but the changes
            counts = counts._replace(committed=info.events)
        return {
            "name": info.spec.name,
            "rate": info.rate,
            "sampled_matches": info.sampled_matches,
            "sampled_false": info.sampled_false,
            "waiting": info.waiting,
            **counts._asdict(),
        }

    def broker(self, summary: BrokerSummary) -> BrokerCounts:
        """The broker as a whole."""
        pipeline, settings = self._pipeline, self._settings
        return BrokerCounts(
            queue=Queue(
                pipeline.events, pipeline.nbytes, settings.queue_events, settings.queue_bytes
            ),
            sessions=summary.sessions,
            delivered=self._metrics.delivered_by_way(),
            dropped=self._metrics.dropped_notifications,
            refused=self._metrics.refused_by_reason(),
            storage_bytes=summary.sizes.nbytes,
            log_bytes=summary.sizes.log_bytes,
            backlog=summary.backlog,
            failure=self._store.failure,
            lacking_bytes=summary.lacking_bytes,
        )

    async def summary(self) -> BrokerSummary:
        """Added up at most once a second, whoever asks, and not in the event loop."""
        async with self._summing:
            now = time.monotonic()
            if self._summary is None or now - self._summary[0] > _FRESH:
                known = self._directory.all_subscribers()
                self._summary = now, await asyncio.to_thread(self._sum_up, known, now)
            return self._summary[1]

    def _sum_up(self, known: list[Subscriber], now: float) -> BrokerSummary:
        subscribers = [one for one in known if one.number]  # the others only listen
        if self._sizes is None or now - self._sizes[0] > _SIZES_FRESH:
            wanted = self._settings.retention.free_bytes
            lacking = max(0, self._store.lacking_bytes(wanted))
            self._sizes = now, self._store.reader.sizes(), lacking
        return BrokerSummary(
            sum(one.sessions for one in known),
            sum(one.backlog for one in subscribers),
            self._rank(subscribers),
            len(subscribers),
            *self._sizes[1:],
        )

    def subscribers(self, names: Collection[str]) -> tuple[list[WatchedSubscriber], int]:
        """Some subscribers by name, the first of them by rank, and how many there are."""
        known = [subscriber for name in names if (subscriber := self._directory.subscriber(name))]
        return self._rank(known), len(known)

    def _rank(self, subscribers: Iterable[Subscriber]) -> list[WatchedSubscriber]:
        failing = self._webhooks.failing()

        def rank(one: Subscriber) -> tuple[bool, bool, int, int, int, str]:
            failed = one.dead_letters > 0 or one.name in failing
            return failed, one.falls_behind, one.backlog, one.dropped, one.delivered, one.name

        return [self._brief(one) for one in heapq.nlargest(MOST_SUBSCRIBERS, subscribers, key=rank)]

    def _brief(self, subscriber: Subscriber) -> WatchedSubscriber:
        webhook = self._webhooks.get(subscriber.name)
        return WatchedSubscriber(
            subscriber=subscriber.name,
            backlog=subscriber.backlog,
            falls_behind=subscriber.falls_behind,
            sessions=subscriber.sessions,
            delivered=subscriber.delivered,
            dropped=subscriber.dropped,
            subscriptions=len(subscriber.subscriptions),
            webhook=None if webhook is None else "paused" if webhook.paused else "active",
            dead_letters=subscriber.dead_letters,
            last_error=self._webhooks.last_error(subscriber.name),
            mode=subscriber.mode,
            in_flight=subscriber.in_flight,
            redelivered=subscriber.redelivered,
            replayed=subscriber.replayed,
        )

    # Over the last minutes

    def history(self, sees: Callable[[str], bool]) -> list[Sample]:
        """The samples, with the feeds that somebody may see."""
        return [
            Sample(at, [stored(text) for name, text in feeds.items() if sees(name)])
            for at, feeds in self._samples
        ]

    def forget_feed(self, name: str) -> None:
        """A feed was dropped: another of this name has nothing to do with it."""
        for _, feeds in self._samples:
            feeds.pop(name, None)
        self._totals.pop(name, None)
        self._activity.pop(name, None)

    def sample(self) -> None:
        """Keep the numbers of the busiest feeds."""
        entries = {entry.feed.spec.name: entry for entry in self._directory.feeds()}
        totals = self._metrics.activity()
        self._activity = {
            name: self._activity.get(name, 0.0) * _FADING
            + totals.get(name, 0)
            - self._totals.get(name, 0)
            for name in entries
        }
        self._totals = totals
        busiest = heapq.nlargest(MOST_FEEDS, entries, key=self._activity.__getitem__)
        feeds = {
            name: encode(FeedCounts(**self._moving(entries[name].info())))
            for name in sorted(busiest)
        }
        self._samples.append((self.now(), feeds))

    async def _sample_all(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                self.sample()
            except Exception:  # a gap in a chart is no reason to end
                log.exception("a sample is missing")
