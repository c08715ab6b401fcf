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
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

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
from boxmatch.broker.store.rows import Cause, Notification

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
COUNTERS = {
    "events_received": ("Events taken from publishers.", ("feed",)),
    "events_matched": ("Events that went through the matcher.", ("feed",)),
    "matches": ("Subscriptions that events matched.", ("feed",)),
    "events_committed": ("Events durable in the log.", ("feed",)),
    "notifications_delivered": ("Notifications handed to subscribers.", ("feed", "way")),
    "webhook_deliveries": ("Requests to webhooks.", ("outcome",)),
    "notifications_replayed": ("Notifications read in a replay.", ("feed",)),
    "shared_notifications": ("What became of shared notifications.", ("outcome",)),
    "notifications_dropped": ("Notifications that subscribers have lost.", ("cause",)),
    "events_removed": ("Events that retention has removed.", ("feed", "cause")),
    "refused": ("What was refused, and why.", ("reason",)),
    "http_requests": ("Requests answered.", ("method", "route", "status")),
}
_OF_FEEDS = ("events_received", "events_matched", "matches", "events_committed")
Outcome = Literal["acknowledged", "rejected", "expired", "redelivered", "dead"]
MOST_LABELS = 1000
MOST_SUBSCRIBERS = 100
MOST_HISTOGRAMS = 100
"""Feeds that have histograms of their own: each is many lines."""
_OTHERS = "(others)"
_log = logging.getLogger("boxmatch.metrics")


class FeedTallies(NamedTuple):
    """What was counted of a feed since the broker started."""

    received: int
    matched: int
    matches: int
    committed: int
    delivered: int
    stages: dict[str, list[int]]
    """By stage, how many took so long: up to each of `BUCKETS`, and beyond."""


class Metrics(Collector):
    """Counters and histograms of one broker. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._watched: Broker | None = None
        self._tallies = {name: _Tally(name, *told) for name, told in COUNTERS.items()}
        self._delivered = self._tallies["notifications_delivered"]
        self._stages = _Stages()
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    # Called on the hot paths, once for a batch.

    def events_received(self, feed: str, events: int) -> None:
        self._tallies["events_received"].add((feed,), events)

    def matched(self, feed: str, events: int, matches: int) -> None:
        self._tallies["events_matched"].add((feed,), events)
        self._tallies["matches"].add((feed,), matches)

    def committed(self, feed: str, events: int) -> None:
        self._tallies["events_committed"].add((feed,), events)

    def delivered(self, way: str, notifications: Sequence[Notification]) -> None:
        """`way` is one of `WAYS`. How old notifications are is taken from the newest."""
        now = time.time()
        newest = {notification.feed: notification.at for notification in notifications}
        several = Counter(one.feed for one in notifications) if len(newest) > 1 else None
        for feed, at in newest.items():
            count = len(notifications) if several is None else several[feed]
            self._delivered.add((feed, way), count)
            self._stages.add(feed, "end_to_end", now - at, count)

    def replayed(self, feed: str, notifications: int) -> None:
        self._tallies["notifications_replayed"].add((feed,), notifications)

    def dropped(self, cause: str, notifications: int) -> None:
        """`cause` is that of events which were removed, or `backlog`."""
        self._tallies["notifications_dropped"].add((cause,), notifications)

    def removed(self, feed: str, cause: str, events: int) -> None:
        self._tallies["events_removed"].add((feed, cause), events)

    def refused(self, reason: str) -> None:
        """`reason` is one of a few words, such as "rate" or "unknown key": it becomes a label."""
        self._tallies["refused"].add((reason,), 1)

    def webhook(self, outcome: str) -> None:
        self._tallies["webhook_deliveries"].add((outcome,), 1)

    def shared(self, outcome: Outcome, count: int) -> None:
        """What became of notifications that a subscriber shares."""
        if count:
            self._tallies["shared_notifications"].add((outcome,), count)

    def request(self, method: str, route: str, status: int) -> None:
        """`route` as a template: /feeds/{feed}."""
        self._tallies["http_requests"].add((method, route, str(status)), 1)

    def stage(self, feed: str, name: str, seconds: float, count: int = 1) -> None:
        """One of `STAGES`: `count` events, or notifications, took so long each."""
        self._stages.add(feed, name, seconds, count)

    # Called now and then.

    def watch(self, broker: Broker) -> None:
        """Read queue, sessions, feeds, backlogs and sizes of this broker from now on."""
        self._watched = broker

    def forget_feed(self, feed: str) -> None:
        """A feed was dropped: no more of it."""
        for name in _OF_FEEDS:
            self._tallies[name].forget((feed,))
        self._tallies["notifications_replayed"].forget((feed,))
        for cause in get_args(Cause):
            self._tallies["events_removed"].forget((feed, cause))
        for way in WAYS:
            self._delivered.forget((feed, way), into=(_OTHERS, way))
        self._stages.forget(feed)

    def counts(self, feed: str) -> FeedTallies:
        """What was counted of a feed."""
        received, matched, matches, committed = (
            self._tallies[name].count((feed,)) for name in _OF_FEEDS
        )
        delivered = sum(self._delivered.count((feed, way)) for way in WAYS)
        stages = self._stages.counts(feed)
        return FeedTallies(received, matched, matches, committed, delivered, stages)

    def removed_by_cause(self, feed: str) -> dict[str, int]:
        """Events of a feed that retention has removed."""
        tally = self._tallies["events_removed"]
        counts = {cause: tally.count((feed, cause)) for cause in get_args(Cause)}
        return {cause: count for cause, count in counts.items() if count}

    def activity(self) -> dict[str, int]:
        """Events and notifications that went through each feed, so far."""
        total: Counter[str] = Counter()
        for tally in (self._tallies["events_received"], self._delivered):
            for (feed, *_), count in tally.counts().items():
                total[feed] += count
        return total

    def delivered_by_way(self) -> dict[str, int]:
        total = dict.fromkeys(WAYS, 0)
        for (_, way), count in self._delivered.counts().items():
            total[way] = total.get(way, 0) + count
        return total

    def refused_by_reason(self) -> dict[str, int]:
        return {reason: count for (reason,), count in self._tallies["refused"].counts().items()}

    @property
    def dropped_notifications(self) -> int:
        return sum(self._tallies["notifications_dropped"].counts().values())

    def render(self) -> bytes:
        """All of it, in Prometheus' text format (`CONTENT_TYPE`). Reads the database: a moment."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """For the registry."""
        yield InfoMetricFamily("boxmatch", "Which Boxmatch this is.", {"version": __version__})
        yield from (tally.family() for tally in self._tallies.values())
        yield self._stages.family()
        failed = 0
        if self._watched is not None:
            try:
                yield from list(_gauges(self._watched))
            except Exception:  # while the broker stops: what was counted is still of use
                _log.warning("the state of the broker could not be read", exc_info=True)
                failed = 1
        yield _gauge("scrape_failed", "Whether the state of the broker could not be read.", failed)


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
    """A histogram: how many took so long, by bucket and beyond the last, and all of it together."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0


class _Stages:
    """Histograms of all stages, by feed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._feeds: dict[str, dict[str, _Durations]] = {}

    def add(self, feed: str, stage: str, seconds: float, count: int) -> None:
        bucket = bisect_left(BUCKETS, seconds)
        with self._lock:
            known = self._feeds.get(feed)
            if known is None:
                name = feed if len(self._feeds) < MOST_HISTOGRAMS else _OTHERS
                known = self._feeds.setdefault(name, {one: _Durations() for one in STAGES})
            durations = known[stage]
            durations.counts[bucket] += count
            durations.total += seconds * count

    def forget(self, feed: str) -> None:
        with self._lock:
            self._feeds.pop(feed, None)

    def counts(self, feed: str) -> dict[str, list[int]]:
        """By stage, how many there are in each bucket, and beyond the last."""
        with self._lock:
            known = self._feeds.get(feed) or {stage: _Durations() for stage in STAGES}
            return {stage: durations.counts.copy() for stage, durations in known.items()}

    def family(self) -> HistogramMetricFamily:
        family = HistogramMetricFamily(
            "boxmatch_stage_seconds",
            "How long events take in each stage; end_to_end is from receiving to delivery.",
            labels=("feed", "stage"),
        )
        bounds = (*map(str, BUCKETS), "+Inf")
        with self._lock:
            for feed, known in self._feeds.items():
                for stage, one in known.items():
                    below = accumulate(one.counts)  # each bucket has all that is below it
                    family.add_metric(
                        [feed, stage], list(zip(bounds, below, strict=True)), one.total
                    )
        return family


def _gauges(broker: Broker) -> Iterator[Metric]:
    subscribers = broker.directory.all_subscribers()
    waiting = [(one.backlog, one.name) for one in subscribers if one.backlog]
    feeds = broker.feeds.list()
    sizes = broker.store.reader.sizes()
    in_flight = sum(one.in_flight for one in subscribers)
    newest = max((info.last_sequence for info in feeds), default=0)
    start = GaugeMetricFamily(
        "boxmatch_start_seconds", "How long the steps of the start took.", labels=["step"]
    )
    for step, seconds in broker.startup.seconds.items():
        start.add_metric([step], seconds)
    yield start
    for name, text, value in (
        ("queue_events", "Events that wait for the matcher.", broker.pipeline.events),
        ("queue_bytes", "Bytes that wait for the matcher.", broker.pipeline.nbytes),
        ("sessions", "Subscribers that are connected.", sum(s.sessions for s in subscribers)),
        ("in_flight_notifications", "Shared notifications with a deadline.", in_flight),
        ("last_sequence", "The newest sequence number.", newest),
        (
            "backlog_notifications_all",
            "Notifications that wait, of all subscribers.",
            sum(count for count, _ in waiting),
        ),
        ("backlog_subscribers", "Subscribers that notifications wait for.", len(waiting)),
        ("storage_bytes", "Bytes on disk.", sizes.nbytes),
        ("log_bytes", "Bytes of events that are kept.", sizes.log_bytes),
        ("log_batches", "Batches of events that are kept.", sizes.batches),
        ("replaying", "Subscribers with a replay.", sum(bool(s.replays) for s in subscribers)),
        ("inbox_rows", "Batches that subscribers have not read yet, of all.", sizes.inbox_rows),
    ):
        yield _gauge(name, text, value)
    state = [info for info in feeds if info.spec.kind == "state"]
    adaptive = [info for info in feeds if info.spec.adaptive is not None]
    for name, text, some, field in (
        ("subscriptions", "Subscriptions of a feed.", feeds, "subscriptions"),
        ("publications", "Publications of a state feed.", state, "publications"),
        ("tolerated_rate", "Rate of false matches tolerated; 0 is exact.", adaptive, "rate"),
        (
            "sampled_matches",
            "Inexact matches that were looked at again.",
            adaptive,
            "sampled_matches",
        ),
        ("sampled_false_matches", "How many of those were false.", adaptive, "sampled_false"),
    ):
        family = GaugeMetricFamily(f"boxmatch_{name}", text, labels=["feed"])
        for info in some:
            family.add_metric([info.spec.name], getattr(info, field))
        yield family
    backlog = GaugeMetricFamily(
        "boxmatch_backlog_notifications",
        f"Notifications that wait for a subscriber, of the {MOST_SUBSCRIBERS} most.",
        labels=["subscriber"],
    )
    for count, subscriber in heapq.nlargest(MOST_SUBSCRIBERS, waiting):
        backlog.add_metric([subscriber], count)
    yield backlog


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"boxmatch_{name}", text, value=value)
