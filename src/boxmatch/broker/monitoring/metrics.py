"""What the broker counts and measures, for Prometheus.

Counting is on the hot paths, in three threads: it is an addition under a lock, once for a batch.
What Prometheus makes of it is put together only when it asks. Sizes that the broker knows anyway,
such as the length of its queue, are not counted at all but read at that time.
"""

from __future__ import annotations

import heapq
import logging
import threading
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from boxmatch import __version__
from boxmatch.broker.store.rows import Notification

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STAGES = ("wait", "match", "commit", "end_to_end")
"""In the queue; in the index; to the disk; from a publisher to a subscriber."""
WAYS = ("socket", "sse", "poll", "webhook")
BUCKETS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.02, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
MOST_LABELS = 1000
MOST_SUBSCRIBERS = 100
MOST_HISTOGRAMS = 100
"""Feeds that have histograms of their own: each is many lines."""
_OTHERS = "(others)"
_log = logging.getLogger("boxmatch.metrics")


class FeedCounts(NamedTuple):
    """What was counted of a feed since the broker started."""

    received: int
    matched: int
    matches: int
    committed: int
    delivered: int
    stages: dict[str, list[int]]
    """By stage, how many took so long: up to each of `BUCKETS`, and beyond."""


class Metrics:
    """Counters and histograms of one broker. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._watched: Broker | None = None
        feed = ("feed",)
        self._received = _Tally("events_received", "Events taken from publishers.", feed)
        self._matched = _Tally("events_matched", "Events that went through the matcher.", feed)
        self._matches = _Tally("matches", "Subscriptions that events matched.", feed)
        self._committed = _Tally("events_committed", "Events durable in the log.", feed)
        self._delivered = _Tally(
            "notifications_delivered", "Notifications handed to subscribers.", ("feed", "way")
        )
        self._webhooks = _Tally("webhook_deliveries", "Requests to webhooks.", ("outcome",))
        self._dropped = _Tally(
            "notifications_dropped", "Notifications that subscribers have lost.", ()
        )
        self._refused = _Tally("refused", "What was refused, and why.", ("reason",))
        self._requests = _Tally(
            "http_requests", "Requests answered.", ("method", "route", "status")
        )
        self._stages = _Stages()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Counted(self))
        ProcessCollector(registry=self.registry)

    # Called on the hot paths, once for a batch.

    def events_received(self, feed: str, events: int) -> None:
        self._received.add((feed,), events)

    def matched(self, feed: str, events: int, matches: int) -> None:
        self._matched.add((feed,), events)
        self._matches.add((feed,), matches)

    def committed(self, feed: str, events: int) -> None:
        self._committed.add((feed,), events)

    def delivered(self, way: str, notifications: Sequence[Notification]) -> None:
        """`way` is one of `WAYS`. How old notifications are is taken from the newest."""
        now = time.time()
        feed = notifications[0].feed
        if (
            len(notifications) == 1
            or len({notification.feed for notification in notifications}) == 1
        ):
            self._delivered.add((feed, way), len(notifications))
            self._stages.add(feed, "end_to_end", now - notifications[-1].at, len(notifications))
            return
        newest = {notification.feed: notification.at for notification in notifications}
        for feed, count in Counter(notification.feed for notification in notifications).items():
            self._delivered.add((feed, way), count)
            self._stages.add(feed, "end_to_end", now - newest[feed], count)

    def dropped(self, notifications: int) -> None:
        self._dropped.add((), notifications)

    def refused(self, reason: str) -> None:
        """`reason` is one of a few words, such as "rate" or "unknown key": it becomes a label."""
        self._refused.add((reason,), 1)

    def webhook(self, outcome: str) -> None:
        self._webhooks.add((outcome,), 1)

    def request(self, method: str, route: str, status: int) -> None:
        """`route` as a template: /feeds/{feed}."""
        self._requests.add((method, route, str(status)), 1)

    def stage(self, feed: str, name: str, seconds: float, count: int = 1) -> None:
        """One of `STAGES`: `count` events, or notifications, took so long each."""
        self._stages.add(feed, name, seconds, count)

    # Called now and then.

    def watch(self, broker: Broker) -> None:
        """Read queue, sessions, feeds, backlogs and sizes of this broker from now on."""
        self._watched = broker

    def forget_feed(self, feed: str) -> None:
        """A feed was dropped: no more of it."""
        for tally in (self._received, self._matched, self._matches, self._committed):
            tally.forget((feed,))
        for way in WAYS:
            self._delivered.forget((feed, way), into=(_OTHERS, way))
        self._stages.forget(feed)

    def counts(self, feed: str) -> FeedCounts:
        """What was counted of a feed."""
        key = (feed,)
        return FeedCounts(
            self._received.count(key),
            self._matched.count(key),
            self._matches.count(key),
            self._committed.count(key),
            sum(self._delivered.count((feed, way)) for way in WAYS),
            self._stages.counts(feed),
        )

    def activity(self) -> dict[str, int]:
        """Events and notifications that went through each feed, so far."""
        total: dict[str, int] = {}
        for tally in (self._received, self._delivered):
            for (feed, *_), count in tally.counts().items():
                total[feed] = total.get(feed, 0) + count
        return total

    def delivered_by_way(self) -> dict[str, int]:
        total = dict.fromkeys(WAYS, 0)
        for (_, way), count in self._delivered.counts().items():
            total[way] = total.get(way, 0) + count
        return total

    def refused_by_reason(self) -> dict[str, int]:
        return {reason: count for (reason,), count in self._refused.counts().items()}

    @property
    def dropped_notifications(self) -> int:
        return self._dropped.count(())

    def render(self) -> bytes:
        """All of it, in Prometheus' text format (`CONTENT_TYPE`). Reads the database: a moment."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield InfoMetricFamily("boxmatch", "Which Boxmatch this is.", {"version": __version__})
        yield from (
            tally.family()
            for tally in (
                *(self._received, self._matched, self._matches, self._committed),
                *(self._delivered, self._webhooks, self._dropped, self._refused, self._requests),
            )
        )
        stages = HistogramMetricFamily(
            "boxmatch_stage_seconds",
            "How long events take in each stage; end_to_end is from receiving to delivery.",
            labels=("feed", "stage"),
        )
        for feed, name, durations in self._stages.all():
            buckets, total = durations.snapshot()
            stages.add_metric([feed, name], buckets, total)
        yield stages
        failed = 0
        if self._watched is not None:
            try:
                yield from list(_gauges(self._watched))
            except Exception:  # while the broker stops: what was counted is still of use
                _log.warning("the state of the broker could not be read", exc_info=True)
                failed = 1
        yield _gauge("scrape_failed", "Whether the state of the broker could not be read.", failed)


class _Counted(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()


class _Tally:
    """A counter with labels: one dict, one lock."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], int] = {} if labels else {(): 0}

    def add(self, labels: tuple[str, ...], count: int) -> None:
        with self._lock:
            counts = self._counts
            if labels in counts:
                counts[labels] += count
            else:
                self._add_new(labels, count)

    def _add_new(self, labels: tuple[str, ...], count: int) -> None:
        # Whoever finds a way to make up labels must not fill the memory with them.
        if len(self._counts) >= MOST_LABELS:
            labels = (_OTHERS,) * len(labels)
        self._counts[labels] = self._counts.get(labels, 0) + count

    def forget(self, labels: tuple[str, ...], into: tuple[str, ...] | None = None) -> None:
        """No more of this; what was counted may go to another, so that a sum stays what it is."""
        with self._lock:
            count = self._counts.pop(labels, None)
            if count is not None and into is not None:
                self._counts[into] = self._counts.get(into, 0) + count

    def count(self, labels: tuple[str, ...]) -> int:
        return self._counts.get(labels, 0)

    def counts(self) -> dict[tuple[str, ...], int]:
        with self._lock:
            return dict(self._counts)

    def family(self) -> CounterMetricFamily:
        counts = self.counts()
        family = CounterMetricFamily(f"boxmatch_{self._name}", self._text, labels=self._labels)
        for labels, count in counts.items():
            family.add_metric(labels, count)
        return family


class _Durations:
    """A histogram with fixed buckets."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts = [0] * (len(BUCKETS) + 1)
        self._total = 0.0

    def add(self, seconds: float, count: int) -> None:
        bucket = bisect_left(BUCKETS, seconds)
        with self._lock:
            self._counts[bucket] += count
            self._total += seconds * count

    def counts(self) -> list[int]:
        """How many there are in each bucket, and beyond the last."""
        with self._lock:
            return self._counts.copy()

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Buckets as Prometheus wants them, each with all that is below."""
        with self._lock:
            counts, total = self._counts.copy(), self._total
        buckets: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), counts, strict=True):
            running += count
            buckets.append((bound, running))
        return buckets, total


class _Stages:
    """Histograms of all stages, by feed. What is counted of a known feed takes no lock for all."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._feeds: dict[str, dict[str, _Durations]] = {}

    def add(self, feed: str, stage: str, seconds: float, count: int) -> None:
        known = self._feeds.get(feed)
        if known is None:
            known = self._new(feed)
        known[stage].add(seconds, count)

    def _new(self, feed: str) -> dict[str, _Durations]:
        with self._lock:
            name = feed if len(self._feeds) < MOST_HISTOGRAMS else _OTHERS
            return self._feeds.setdefault(name, {stage: _Durations() for stage in STAGES})

    def forget(self, feed: str) -> None:
        with self._lock:
            self._feeds.pop(feed, None)

    def counts(self, feed: str) -> dict[str, list[int]]:
        known = self._feeds.get(feed)
        if known is None:
            return {stage: [0] * (len(BUCKETS) + 1) for stage in STAGES}
        return {stage: durations.counts() for stage, durations in known.items()}

    def all(self) -> list[tuple[str, str, _Durations]]:
        with self._lock:
            feeds = list(self._feeds.items())
        return [(feed, stage, one) for feed, known in feeds for stage, one in known.items()]


def _gauges(broker: Broker) -> Iterator[Metric]:
    subscribers = broker.directory.all_subscribers()
    sessions = sum(len(subscriber.streams) for subscriber in subscribers)
    yield _gauge("queue_events", "Events that wait for the matcher.", broker.pipeline.events)
    yield _gauge("queue_bytes", "Bytes that wait for the matcher.", broker.pipeline.nbytes)
    yield _gauge("sessions", "Subscribers that are connected.", sessions)

    subscriptions = _gauges_of("subscriptions", "Subscriptions of a feed.", "feed")
    publications = _gauges_of("publications", "Publications of a state feed.", "feed")
    rate = _gauges_of("tolerated_rate", "Rate of false matches tolerated; 0 is exact.", "feed")
    sampled = _gauges_of("sampled_matches", "Inexact matches that were looked at again.", "feed")
    false = _gauges_of("sampled_false_matches", "How many of those were false.", "feed")
    feeds = broker.feeds.list()
    for info in feeds:
        subscriptions.add_metric([info.spec.name], info.subscriptions)
        if info.spec.adaptive is not None:
            rate.add_metric([info.spec.name], info.rate)
            sampled.add_metric([info.spec.name], info.sampled_matches)
            false.add_metric([info.spec.name], info.sampled_false)
        if info.spec.kind == "state":
            publications.add_metric([info.spec.name], info.publications)
    yield from (subscriptions, publications, rate, sampled, false)
    yield _gauge(
        "last_sequence",
        "The newest sequence number.",
        max((info.last_sequence for info in feeds), default=0),
    )

    waiting = [(one.backlog, one.name) for one in subscribers if one.backlog]
    backlog = _gauges_of(
        "backlog_notifications",
        f"Notifications that wait for a subscriber, of the {MOST_SUBSCRIBERS} most.",
        "subscriber",
    )
    for count, subscriber in heapq.nlargest(MOST_SUBSCRIBERS, waiting):
        backlog.add_metric([subscriber], count)
    yield backlog
    yield _gauge(
        "backlog_notifications_all",
        "Notifications that wait, of all subscribers.",
        sum(count for count, _ in waiting),
    )
    yield _gauge(
        "backlog_subscribers",
        "Subscribers that notifications wait for.",
        len(waiting),
    )
    yield from _sizes(broker)


def _sizes(broker: Broker) -> Iterator[Metric]:
    sizes = broker.store.reader.sizes()
    yield _gauge("storage_bytes", "Bytes on disk.", sizes.nbytes)
    yield _gauge("log_bytes", "Bytes of events that are kept.", sizes.log_bytes)
    yield _gauge("log_batches", "Batches of events that are kept.", sizes.batches)
    yield _gauge(
        "inbox_rows", "Batches that subscribers have not read yet, of all.", sizes.inbox_rows
    )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"boxmatch_{name}", text, value=value)


def _gauges_of(name: str, text: str, label: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"boxmatch_{name}", text, labels=[label])
