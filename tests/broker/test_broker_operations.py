from __future__ import annotations

import io
import json
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from small_server import (
    lines,
)

from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.monitoring.metrics import (
    BUCKETS,
    MOST_HISTOGRAMS,
    MOST_LABELS,
    MOST_SUBSCRIBERS,
    STAGES,
    Metrics,
)
from boxmatch.broker.store import Sizes
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.logs import LogSettings, configure_logs
from boxmatch.model.schema import Schema

KEY = "bm_abcd1234_" + "s3cret" * 7 + "x"


class FakeBroker:
    """What the metrics read of a broker."""

    def __init__(self, subscribers: int = 3) -> None:
        self.broken = False
        self.pipeline = SimpleNamespace(events=7, nbytes=700)
        self.startup = SimpleNamespace(seconds={"reading subscriptions": 1.5})
        known = [
            Subscriber(number + 1, f"subscriber{number}", backlog=number)
            for number in range(subscribers)
        ]
        known[0].streams = known[1].streams = {object()}
        self.directory = SimpleNamespace(all_subscribers=lambda: known)
        plain = FeedSpec(name="trades", spaces={"trades": Schema({"price": "float"})})
        state = FeedSpec(name="fleet", kind="state", spaces={"place": Schema({"x": "float"})})
        feeds = [FeedInfo(plain, 1, 11, 0, 5, 6, 42), FeedInfo(state, 2, 4, 9, 0, 0, 40)]
        self.feeds = SimpleNamespace(list=lambda: feeds)
        self.store = SimpleNamespace(reader=SimpleNamespace(sizes=self._sizes))

    def _sizes(self) -> Sizes:
        if self.broken:
            raise RuntimeError("stopped")
        return Sizes(nbytes=4096, log_bytes=1024, batches=3, inbox_rows=5, free_pages=0)


def notifications(feed: str, count: int) -> list[Notification]:
    return [Notification(number, feed, 1.0, ["s"], b"{}") for number in range(count)]


def test_metrics_count() -> None:
    metrics = Metrics()
    metrics.events_received("trades", 100)
    metrics.events_received("trades", 20)
    metrics.matched("trades", 120, 30)
    metrics.committed("trades", 120)
    metrics.delivered("socket", notifications("trades", 25))
    metrics.delivered("poll", [*notifications("trades", 2), *notifications("other", 3)])
    metrics.dropped("backlog", 4)
    metrics.refused("overload")
    metrics.webhook("delivered")
    metrics.shared("rejected", 3)
    metrics.shared("dead", 0)
    metrics.request("GET", "/feeds/{feed}", 200)
    found = lines(metrics)
    assert found['boxmatch_events_received_total{feed="trades"}'] == 120
    assert found['boxmatch_events_matched_total{feed="trades"}'] == 120
    assert found['boxmatch_matches_total{feed="trades"}'] == 30
    assert found['boxmatch_events_committed_total{feed="trades"}'] == 120
    delivered = "boxmatch_notifications_delivered_total"
    assert found[delivered + '{feed="trades",way="socket"}'] == 25
    assert found[delivered + '{feed="trades",way="poll"}'] == 2
    assert found[delivered + '{feed="other",way="poll"}'] == 3
    assert metrics.delivered_by_way() == {"socket": 25, "sse": 0, "poll": 5, "webhook": 0}
    assert metrics.counts("trades")[:5] == (120, 120, 30, 120, 27)
    assert sum(metrics.counts("trades").stages["end_to_end"]) == 27
    assert sum(metrics.counts("other").stages["end_to_end"]) == 3
    assert found['boxmatch_notifications_dropped_total{cause="backlog"}'] == 4
    assert found['boxmatch_refused_total{reason="overload"}'] == 1
    assert found['boxmatch_webhook_deliveries_total{outcome="delivered"}'] == 1
    assert found['boxmatch_shared_notifications_total{outcome="rejected"}'] == 3
    assert 'boxmatch_shared_notifications_total{outcome="dead"}' not in found
    route = '{method="GET",route="/feeds/{feed}",status="200"}'
    assert found["boxmatch_http_requests_total" + route] == 1
    assert found["process_resident_memory_bytes"] > 0
    metrics.forget_feed("trades")
    found = lines(metrics)
    assert not [name for name in found if 'feed="trades"' in name]
    assert found[delivered + '{feed="(others)",way="socket"}'] == 25  # a sum does not shrink
    assert metrics.counts("trades") == Metrics().counts("trades")


def test_stages_are_histograms() -> None:
    metrics = Metrics()
    metrics.stage("trades", "match", 0.0001)
    metrics.stage("trades", "match", 0.003, 100)
    metrics.stage("trades", "match", 60.0)
    metrics.stage("other", "match", 60.0)
    found = lines(metrics)
    name = "boxmatch_stage_seconds"
    assert found[name + '_bucket{feed="trades",le="0.0001",stage="match"}'] == 1
    assert found[name + '_bucket{feed="trades",le="0.0025",stage="match"}'] == 1
    assert found[name + '_bucket{feed="trades",le="0.005",stage="match"}'] == 101
    assert found[name + '_bucket{feed="trades",le="10.0",stage="match"}'] == 101
    assert found[name + '_bucket{feed="trades",le="+Inf",stage="match"}'] == 102
    assert found[name + '_count{feed="trades",stage="match"}'] == 102
    assert found[name + '_sum{feed="trades",stage="match"}'] == pytest.approx(60.3001)
    assert found[name + '_count{feed="trades",stage="commit"}'] == 0
    counts = metrics.counts("trades").stages
    assert list(counts) == list(STAGES)
    assert {len(one) for one in counts.values()} == {len(BUCKETS) + 1}
    assert (counts["match"][0], counts["match"][5], counts["match"][-1]) == (1, 100, 1)


def test_histograms_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MOST_HISTOGRAMS + 5):
        metrics.stage(f"feed{number}", "match", 0.1)
    found = lines(metrics)
    name = "boxmatch_stage_seconds_count"
    assert len([one for one in found if one.startswith(name)]) == 4 * (MOST_HISTOGRAMS + 1)
    assert found[name + '{feed="(others)",stage="match"}'] == 5
    metrics.forget_feed("feed0")
    metrics.stage("new", "match", 0.1)
    assert lines(metrics)[name + '{feed="(others)",stage="match"}'] == 6
    metrics.forget_feed("feed1")
    metrics.stage("newer", "match", 0.1)
    assert lines(metrics)[name + '{feed="newer",stage="match"}'] == 1


def test_gauges_are_read_when_asked_for() -> None:
    metrics = Metrics()
    broker = FakeBroker(subscribers=3 * MOST_SUBSCRIBERS)
    metrics.watch(broker)
    found = lines(metrics)
    assert found["boxmatch_queue_events"] == 7
    assert found["boxmatch_queue_bytes"] == 700
    assert found["boxmatch_sessions"] == 2
    assert found['boxmatch_subscriptions{feed="trades"}'] == 11
    assert found['boxmatch_publications{feed="fleet"}'] == 9
    assert 'boxmatch_publications{feed="trades"}' not in found
    assert found["boxmatch_last_sequence"] == 42
    shown = [name for name in found if name.startswith("boxmatch_backlog_notifications{")]
    assert len(shown) == MOST_SUBSCRIBERS
    assert found['boxmatch_backlog_notifications{subscriber="subscriber299"}'] == 299
    assert found["boxmatch_backlog_notifications_all"] == sum(range(300))
    assert found["boxmatch_backlog_subscribers"] == 299
    assert found["boxmatch_storage_bytes"] == 4096
    assert found["boxmatch_scrape_failed"] == 0

    broker.broken = True
    metrics.dropped("age", 1)
    found = lines(metrics)
    assert found["boxmatch_scrape_failed"] == 1
    assert found['boxmatch_notifications_dropped_total{cause="age"}'] == 1
    assert "boxmatch_sessions" not in found


def test_labels_are_bounded() -> None:
    metrics = Metrics()
    for number in range(MOST_LABELS + 50):
        metrics.refused(f"reason {number}")
    found = [name for name in lines(metrics) if name.startswith("boxmatch_refused")]
    assert len(found) == MOST_LABELS + 1
    assert lines(metrics)['boxmatch_refused_total{reason="(others)"}'] == 50


def test_counting_from_many_threads_loses_nothing() -> None:
    metrics = Metrics()

    def count() -> None:
        for _ in range(2000):
            metrics.committed("trades", 1)
            metrics.stage("trades", "commit", 0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = lines(metrics)
    assert found['boxmatch_events_committed_total{feed="trades"}'] == 8000
    assert found['boxmatch_stage_seconds_count{feed="trades",stage="commit"}'] == 8000


@pytest.mark.usefixtures("quiet_logs")
def test_logs_are_json_lines_without_secrets() -> None:
    stream = io.StringIO()
    configure_logs(LogSettings(), stream)
    structlog.get_logger("boxmatch.test").info("hello", path=f"/x?key={KEY}", secret="s", n=1)
    logging.getLogger("boxmatch.other").warning("with %s", KEY)
    logging.getLogger("uvicorn.error").info("not shown")
    structlog.get_logger("boxmatch.test").debug("not shown")
    try:
        raise ValueError(f"bad {KEY}")
    except ValueError:
        structlog.get_logger("boxmatch.test").exception("failed")
    text = stream.getvalue()
    assert "s3cret" not in text
    first, second, third = map(json.loads, text.splitlines())
    assert first["event"] == "hello"
    assert first["logger"] == "boxmatch.test"
    assert first["level"] == "info"
    assert first["path"] == "/x?key=bm_abcd1234_…"
    assert first["secret"] == "…"
    assert first["n"] == 1
    assert first["timestamp"].endswith("Z")
    assert second["event"] == "with bm_abcd1234_…"
    assert "ValueError: bad bm_abcd1234_…" in third["exception"]


@pytest.mark.usefixtures("quiet_logs")
@pytest.mark.parametrize("level", ["debug", "error"])
def test_logs_as_text(level: Any) -> None:
    stream = io.StringIO()
    configure_logs(LogSettings(format="text", level=level), stream)
    structlog.get_logger("boxmatch.test").warning("hello", key=KEY)
    try:
        raise ValueError(f"bad {KEY}")
    except ValueError:
        structlog.get_logger("boxmatch.test").exception("failed")
    text = stream.getvalue()
    assert ("hello" in text) == (level == "debug")
    assert "failed" in text
    assert "ValueError" in text
    assert "s3cret" not in text
