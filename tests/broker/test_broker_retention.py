"""How long the log of each feed is kept, and what is said of what went."""

from __future__ import annotations

import asyncio
import shutil
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs
from test_broker_core import events, run, running, ticks, wanted

from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import MIB, Retention
from boxmatch.broker.store import Store
from boxmatch.broker.store.recipients import Recipients
from boxmatch.client import Client, ClientError
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import FeedRetention

DAY = 86_400.0
HALF = b"x" * (MIB // 2)
Usage = namedtuple("Usage", "total used free")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path) as store:
        yield store


def make_feed(store: Store, name: str) -> int:
    spec = FeedSpec(name=name, spaces={name: Schema({"x": "int"})})
    return store.write(lambda transaction: transaction.put_feed(spec)).result()


def append(store: Store, feed: int, at: float, *bodies: bytes, to: int | None = None) -> None:
    inboxes = {} if to is None else {to: [(place, ["s"]) for place in range(len(bodies))]}
    store.write(
        lambda transaction: transaction.append(feed, at, bodies, Recipients.of(inboxes))
    ).result()


def kept(store: Store, feed: int) -> list[int]:
    return [one.sequence for one in store.reader.events(feed, 0, 10_000)]


def test_days_of_a_feed_are_instead_of_those_of_all(store: Store) -> None:
    short, usual, long = (make_feed(store, name) for name in ("short", "usual", "long"))
    for day in range(10):
        for feed in (long, usual, short):
            append(store, feed, day * DAY, b"{}")
    limits = {short: FeedRetention(days=2), long: FeedRetention(days=100)}
    done = store.tidy(9.5 * DAY, Retention(seconds=5 * DAY), limits)
    assert done.events == {(short, "age"): 8, (usual, "age"): 5}
    assert [len(kept(store, feed)) for feed in (short, usual, long)] == [2, 5, 10]
    assert store.tidy(9.5 * DAY, Retention(seconds=5 * DAY), limits).events == {}


def test_the_newest_events_of_a_feed(store: Store) -> None:
    some, others = make_feed(store, "some"), make_feed(store, "others")
    for _ in range(40):
        append(store, some, 0.0, b"{}", b"{}", b"{}")
        append(store, others, 0.0, b"{}")
    done = store.tidy(0.0, Retention(), {some: FeedRetention(events=7)})
    assert done.events == {(some, "events"): 111}
    assert len(kept(store, some)) == 9  # in the batches in which they came
    assert len(kept(store, others)) == 40
    limits = {some: FeedRetention(events=100), others: FeedRetention(events=1)}
    assert store.tidy(0.0, Retention(), limits).events == {(others, "events"): 39}


def test_bytes_of_a_feed_and_of_all(store: Store) -> None:
    some, others = make_feed(store, "some"), make_feed(store, "others")
    for _ in range(6):
        append(store, others, 0.0, HALF)
        append(store, some, 0.0, HALF)
    done = store.tidy(0.0, Retention(), {some: FeedRetention(bytes=2 * MIB)})
    assert done.events == {(some, "bytes"): 3}
    done = store.tidy(0.0, Retention(nbytes=3 * MIB), {some: FeedRetention(bytes=2 * MIB)})
    assert done.events == {(others, "total"): 4}  # the oldest of all
    assert store.reader.sizes().log_bytes <= 3 * MIB


def test_on_a_short_disk_the_oldest_that_nobody_waits_for_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(store, "ticks")
    ann = store.write(lambda transaction: transaction.put_subscriber("ann")).result()
    for number in range(8):
        append(store, feed, 0.0, HALF, to=ann if number in (1, 2) else None)
    free = 100 * MIB

    def usage(folder: Path) -> Usage:
        assert folder == store.path
        return Usage(10_000 * MIB, 0, free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    retention = Retention(free_bytes=100 * MIB)
    assert store.tidy(0.0, retention).events == {}
    free = 99 * MIB
    assert 0 < store.lacking_bytes(retention.free_bytes) <= MIB
    done = store.tidy(0.0, retention)
    assert (done.events, done.dropped) == ({(feed, "disk"): 2}, {})
    assert kept(store, feed) == [2, 3, 5, 6, 7, 8]  # 2 and 3 are not read
    # What is free in the database is taken before the file grows.
    assert store.lacking_bytes(retention.free_bytes) <= 0
    assert store.tidy(0.0, retention).events == {}
    free = 0
    assert store.tidy(0.0, Retention(free_bytes=0)).events == {}
    assert store.tidy(0.0, retention).events == {(feed, "disk"): 4}
    assert kept(store, feed) == [2, 3]
    store.write(lambda transaction: transaction.move_cursor(ann, 3)).result()
    assert store.tidy(0.0, retention).events == {(feed, "disk"): 2}


def test_of_a_small_disk_a_sixteenth_is_kept_free(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = make_feed(store, "ticks")
    append(store, feed, 0.0, HALF)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(160 * MIB, 0, 11 * MIB))
    assert store.tidy(0.0, Retention()).events == {}
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(160 * MIB, 0, 9 * MIB))
    assert store.tidy(0.0, Retention()).events == {(feed, "disk"): 1}


def test_what_is_removed_is_counted_logged_and_shown(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks(retention=FeedRetention(events=2)))
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            for price in range(1, 6):
                await broker.pipeline.publish("ticks", events({"price": price}))
            await broker.notifications.acknowledge("ann", 1)
            await broker.housekeeping._tidy()
            with capture_logs() as logs:
                await broker.housekeeping.report_removed()
                await broker.housekeeping.report_removed()
            assert [{k: one[k] for k in one if k != "log_level"} for one in logs] == [
                {"event": "events removed", "feed": "ticks", "cause": "events", "events": 3},
                {"event": "unread notifications lost", "cause": "events", "notifications": 2},
            ]
            [shown] = broker.history.feeds(lambda name: True)
            assert shown.removed == {"events": 3}
            assert broker.metrics.dropped_notifications == 2
            text = broker.metrics.render().decode()
            assert 'boxmatch_events_removed_total{cause="events",feed="ticks"} 3.0' in text
            assert 'boxmatch_notifications_dropped_total{cause="events"} 2.0' in text
            assert (await broker.subscribers.describe("ann")).dropped == 2
            await broker.feeds.drop("ticks")
            assert "events_removed_total{" not in broker.metrics.render().decode()

    run(main)


def test_it_is_kept_and_changed(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks(retention=FeedRetention(days=3, events=10)))
            spaces = {"air": Schema({"celsius": "float"})}
            await broker.feeds.create(FeedSpec(name="rooms", kind="state", spaces=spaces))
            await broker.feeds.retain("rooms", FeedRetention(bytes=MIB))
            await asyncio.gather(
                broker.feeds.extend("ticks", {"venue": "string"}),
                broker.feeds.retain("ticks", FeedRetention(days=4)),
            )
            check(broker)

    async def second() -> None:
        async with running(tmp_path) as broker:
            check(broker)
            await broker.feeds.retain("ticks", None)
            assert broker.feeds.get("ticks").spec.retention is None

    def check(broker: Broker) -> None:
        assert broker.feeds.get("ticks").spec.retention == FeedRetention(days=4)
        assert "venue" in broker.feeds.get("ticks").spec.schema.names
        assert broker.feeds.get("rooms").spec.retention == FeedRetention(bytes=MIB)

    run(first)
    run(second)


def test_over_http(http: httpx.Client) -> None:
    limits = {"days": 1.5, "bytes": MIB, "events": 10}
    made = http.post("/feeds", json={"name": "retained", "retention": limits})
    assert made.json()["retention"] == limits
    shown = http.get("/feeds/retained").json()
    assert shown["retention"] == limits
    changed = http.patch("/feeds/retained", json={"retention": {"events": 5}}).json()
    assert changed["retention"] == {"days": None, "bytes": None, "events": 5}
    assert http.patch("/feeds/retained", json={"retention": None}).json()["retention"] is None
    assert http.patch("/feeds/none", json={"retention": None}).status_code == 404
    http.patch("/feeds/retained", json={"retention": {"events": 5}})
    found = {one["name"]: one for one in http.get("/overview").json()["feeds"]}
    assert found["retained"]["removed"] == {}
    assert found["retained"]["retention"] == {"days": None, "bytes": None, "events": 5}


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"retention": {"days": -1}},
        {"retention": {"bytes": 1000}},
        {"retention": {"events": 0}},
        {"retention": {"hours": 1}},
        {"retention": 7},
        {"attributes": {}},
        {"attributes": None},
    ],
)
def test_a_retention_that_makes_no_sense(http: httpx.Client, body: Any) -> None:
    http.post("/feeds", json={"name": "senseless", "schema": {"x": "int"}})
    assert http.patch("/feeds/senseless", json=body).status_code == 422


def test_with_the_client(http: httpx.Client) -> None:
    with Client(str(http.base_url)) as client:
        made = client.create_feed("kept", {"x": "int"}, retention={"days": 2})
        assert made.retention == FeedRetention(days=2)
        assert client.retain_feed("kept", {"events": 3}).retention == FeedRetention(events=3)
        assert client.retain_feed("kept", None).retention is None
        with pytest.raises(ClientError, match="there is no such field"):
            client.retain_feed("kept", {"weeks": 3})  # type: ignore[dict-item]
