"""Replays: what is in the log is delivered again, in order, to those who want it now."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from broker_server import RunningBroker
from test_broker_core import all_notifications, events, run, running, ticks, wanted
from webhook_receiver import Receiver
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from boxmatch.broker.broker import Broker
from boxmatch.broker.delivery import replays
from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store.rows import Notification
from boxmatch.client import AsyncClient, Client
from boxmatch.errors import BrokerError, UnknownFeedError, UnknownSubscriptionError
from boxmatch.model.schema import Schema


def brief(notifications: list[Notification]) -> list[tuple[int, list[str]]]:
    return [(one.sequence, sorted(one.subscriptions)) for one in notifications]


async def publish(broker: Broker, *prices: float, feed: str = "ticks") -> None:
    await broker.pipeline.publish(feed, events(*({"price": price} for price in prices)))


async def waiting(broker: Broker, subscriber: str, limit: int = 10_000) -> list[Notification]:
    """What a subscriber gets from its cursor on, read and acknowledged page by page."""
    found: list[Notification] = []
    while page := await broker.notifications.poll(subscriber, after=None, limit=limit):
        found += page
        await broker.notifications.acknowledge(subscriber, page[-1].sequence, wait=False)
    return found


async def tidy(broker: Broker) -> None:
    await broker.notifications.flush_cursors()
    await asyncio.to_thread(broker.store.tidy, broker.clock(), Retention())


def test_what_was_acknowledged_and_deleted_comes_again_and_then_what_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "cheap", wanted("price < 10"))
            await publish(broker, 1, 20, 2, 3, 30)
            await broker.notifications.acknowledge("ann", 4)
            await tidy(broker)
            assert await all_notifications(broker, "ann") == []
            await broker.subscriptions.put("ann", "dear", wanted("price > 10"))
            await publish(broker, 4, 40)  # 6 and 7 wait

            begun = await broker.replays.start("ann", 2)
            assert (begun.position, begun.through) == (1, 7)
            assert (await broker.subscribers.describe("ann")).cursor == 1
            await publish(broker, 5)  # live, after it
            expected = [
                (2, ["dear"]), (3, ["cheap"]), (4, ["cheap"]), (5, ["dear"]), (6, ["cheap"]),
                (7, ["dear"]), (8, ["cheap"]),
            ]  # fmt: skip
            unread = await all_notifications(broker, "ann", after=1)
            assert brief(unread) == expected[: len(unread)]
            assert orjson.loads(unread[0].to_json()) == {
                "sequence": 2, "feed": "ticks", "at": unread[0].at, "subscriptions": ["dear"],
                "rate": 0.0, "event": {"price": 20},
            }  # fmt: skip
            assert brief(await waiting(broker, "ann")) == expected
            await broker.notifications.flush_cursors()
            described = await broker.subscribers.describe("ann")
            assert (described.cursor, described.replays, described.backlog) == (8, [], 0)
            assert broker.store.reader.replays() == []

    run(main)


def test_a_new_subscription_gets_the_log_without_gap_or_double(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "old", wanted("price >= 3"))
            await publish(broker, 1, 2, 3)
            publishing = asyncio.create_task(publish_many(broker))
            await broker.subscriptions.put("ann", "new", wanted("price >= 2"))
            begun = await broker.replays.start("ann", 2, subscription="new")
            await publishing
            assert begun.through >= 3
            found = brief(await waiting(broker, "ann", limit=7))
            assert found == [(2, ["new"]), *((n, ["new", "old"]) for n in range(3, 104))]

    async def publish_many(broker: Broker) -> None:
        for _ in range(100):
            await publish(broker, 5)

    run(main)


def test_many_new_subscriptions_get_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            for name in ("ticks", "more"):
                await broker.feeds.create(ticks(name))
            await broker.subscriptions.put("ann", "more", wanted("price > 0", "more"))
            await publish(broker, 1, 2, 3)
            await publish(broker, 1, feed="more")
            await broker.notifications.acknowledge("ann", 4)
            first = {f"above {n}": wanted(f"price > {n}") for n in range(3)}
            await broker.subscriptions.put_many("ann", first)
            await broker.replays.start_some("ann", 2, feed="ticks", subscriptions=first)
            [one] = broker.subscribers.get("ann").replays.values()  # there are no others to it
            assert (one.feed, one.subscription, one.position) == ("ticks", None, 1)
            assert brief(await waiting(broker, "ann")) == [
                (2, ["above 0", "above 1"]), (3, ["above 0", "above 1", "above 2"])
            ]  # fmt: skip
            second = {f"below {n}": wanted(f"price < {n}") for n in (2, 3)}
            await broker.subscriptions.put_many("ann", second)
            await broker.replays.start_some("ann", 1, feed="ticks", subscriptions=second)
            assert len(broker.subscribers.get("ann").replays) == 2
            found = brief(await waiting(broker, "ann"))
            assert found == [(1, ["below 2", "below 3"]), (2, ["below 3"])]
            assert broker.subscribers.get("ann").replays == {}
            await broker.replays.start_some("ann", 5, feed="ticks", subscriptions=second)
            assert broker.subscribers.get("ann").replays == {}

    run(main)


def test_only_a_feed_a_subscription_or_a_range(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            for name in ("ticks", "more"):
                await broker.feeds.create(ticks(name))
                await broker.subscriptions.put("ann", f"all {name}", wanted("price > 0", name))
                await broker.subscriptions.put("ann", f"big {name}", wanted("price > 5", name))
            for number in range(10):
                await publish(broker, number + 1, feed="ticks" if number % 2 else "more")
            await broker.notifications.acknowledge("ann", 10)

            await broker.replays.start("ann", 1, feed="more", through=7)
            both = ["all more", "big more"]
            assert brief(await waiting(broker, "ann")) == [
                (1, ["all more"]), (3, ["all more"]), (5, ["all more"]), (7, both),
            ]  # fmt: skip
            assert broker.subscribers.get("ann").position == 10

            await broker.replays.start("ann", 1, subscription="big ticks")
            found = brief(await waiting(broker, "ann"))
            assert found == [(number, ["big ticks"]) for number in (6, 8, 10)]

            # Two at once are put together, and what was acknowledged of one does not count for
            # the other.
            await broker.replays.start("ann", 8, feed="more")
            await broker.replays.start("ann", 5, subscription="big ticks", through=8)
            assert len(broker.subscribers.get("ann").replays) == 2
            found = brief(await waiting(broker, "ann", limit=1))
            assert found == [(6, ["big ticks"]), (8, ["big ticks"]), (9, both)]

    run(main)


def test_many_replays_against_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "_SLICE", 7)
    rng = random.Random(8)

    async def main() -> None:
        async with running(tmp_path, replay_rate=1e9) as broker:
            feeds = ["a", "b", "c"]
            for name in feeds:
                await broker.feeds.create(ticks(name))
            filters: dict[str, tuple[str, int]] = {}
            log: list[tuple[str, int]] = []
            for turn in range(12):
                for id in rng.sample(range(6), 2):
                    name = f"{feeds[id % 3]}{id}"
                    filters[name] = (feeds[id % 3], rng.randrange(10))
                    feed, low = filters[name]
                    await broker.subscriptions.put("ann", name, wanted(f"price >= {low}", feed))
                for _ in range(rng.randrange(30)):
                    feed = rng.choice(feeds)
                    prices = [rng.randrange(10) for _ in range(rng.randrange(1, 9))]
                    log += [(feed, price) for price in prices]
                    await publish(broker, *prices, feed=feed)
                await waiting(broker, "ann")
                if turn % 3 == 0:
                    await tidy(broker)
                first = rng.randrange(1, len(log) + 2)
                last = rng.choice([None, rng.randrange(first, len(log) + 2)])
                only = rng.choice([None, *feeds])
                try:
                    await broker.replays.start("ann", first, through=last, feed=only)
                except BrokerError:
                    assert not any(feed == only for feed, _ in filters.values())
                    continue
                expected = []
                for number, (feed, price) in enumerate(log[: last or len(log)], 1):
                    ids = [
                        id for id, (of, low) in filters.items()
                        if of == feed and only in (None, feed) and price >= low
                    ]  # fmt: skip
                    if number >= first and ids:
                        expected.append((number, sorted(ids)))
                found = await waiting(broker, "ann", rng.choice([1, 3, 1000]))
                assert brief(found) == expected
                assert not broker.subscribers.get("ann").replays

    run(main)


def test_it_survives_a_restart_with_what_is_acknowledged_of_it(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await publish(broker, *range(1, 21))
            await broker.notifications.acknowledge("ann", 20)
            await broker.replays.start("ann", 5)
            page = await broker.notifications.poll("ann", after=None, limit=4)
            assert [one.sequence for one in page] == [5, 6, 7, 8]
            assert await broker.notifications.acknowledge("ann", 6) == 6

    async def second() -> None:
        async with running(tmp_path) as broker:
            described = await broker.subscribers.describe("ann")
            assert described.cursor == 6
            assert [(one.after, one.through) for one in described.replays] == [(6, 20)]
            assert [n for n, _ in brief(await waiting(broker, "ann"))] == list(range(7, 21))

    async def third() -> None:
        async with running(tmp_path) as broker:
            assert (await broker.subscribers.describe("ann")).replays == []
            assert await waiting(broker, "ann") == []

    run(first)
    run(second)
    run(third)


def test_an_acknowledgement_of_what_came_before_does_not_end_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await publish(broker, *range(1, 11))
            async with broker.notifications.stream("ann") as stream:
                assert len(await stream.take(10)) == 10
                await broker.replays.start("ann", 3)
                assert await stream.take(10) == []  # it has to come again
            assert await broker.notifications.acknowledge("ann", 10) == 2
            async with broker.notifications.stream("ann", after=10) as stream:
                assert stream.position == 2
                assert [one.sequence for one in await stream.take(3)] == [3, 4, 5]
                assert await broker.notifications.acknowledge("ann", 10, wait=False) == 5
                await publish(broker, 11)
                rest: list[int] = []
                while len(rest) < 6:
                    rest += [one.sequence for one in await stream.take(3)]
                assert rest == [6, 7, 8, 9, 10, 11]
                assert await broker.notifications.acknowledge("ann", 11) == 11

    run(main)


@pytest.mark.parametrize("way", ["poll", "stream"])
@pytest.mark.parametrize("replaying", [False, True])
def test_what_was_being_read_when_it_began_is_not_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, replaying: bool
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await publish(broker, *range(1, 11))
            if replaying:
                await broker.notifications.acknowledge("ann", 10)
                await broker.replays.start("ann", 6)
            reading, go_on = threading.Event(), threading.Event()
            method = "log" if replaying else "inbox"
            read = getattr(broker.store.reader, method)

            def slow(*args: Any) -> Any:
                found = read(*args)
                reading.set()
                go_on.wait(20)
                return found

            monkeypatch.setattr(broker.store.reader, method, slow)
            if way == "poll":
                task = asyncio.create_task(broker.notifications.poll("ann", after=None, limit=99))
            else:
                task = asyncio.create_task(take(broker.notifications.stream("ann")))
            assert await asyncio.to_thread(reading.wait, 20)
            await broker.replays.start("ann", 2, feed="ticks")
            go_on.set()
            assert await task  # whatever it got was asked for before
            monkeypatch.undo()
            assert await broker.notifications.acknowledge("ann", 10) == 1
            numbers = [number for number, _ in brief(await waiting(broker, "ann"))]
            assert numbers == list(range(2, 11))

    async def take(stream: NotificationStream) -> list[Notification]:
        async with stream:
            return await stream.take(99)

    run(main)


def test_nothing_to_be_found_is_not_looked_for_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_SLICE", 10)

    async def main() -> None:
        async with running(tmp_path, replay_rate=1e9) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "rare", wanted("price = 30"))
            await publish(broker, *range(1, 101))
            await broker.notifications.acknowledge("ann", 100)
            await broker.replays.start("ann", 1)
            assert brief(await broker.notifications.poll("ann", after=None, limit=5)) == [
                (30, ["rare"])
            ]
            assert broker.subscribers.get("ann").position == 20  # two slices without any
            assert await broker.notifications.acknowledge("ann", 30) == 30
            assert await broker.notifications.poll("ann", after=None, limit=5) == []
            assert broker.subscribers.get("ann").position == 100

    run(main)


def test_times_and_ends_of_the_log(tmp_path: Path) -> None:
    times = iter(range(1_000, 100_000, 10))

    async def main() -> None:
        async with running(tmp_path) as broker:
            broker.pipeline._clock = lambda: float(next(times))
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            for price in range(1, 11):
                await publish(broker, price)  # at 1000, 1010, …
            await broker.notifications.acknowledge("ann", 10)

            def at(seconds: float) -> str:
                return f"1970-01-01T00:{seconds // 60:02.0f}:{seconds % 60:06.3f}Z"

            for begin, end, numbers in (
                (at(1020), None, range(3, 11)),
                (at(1020.001), None, range(4, 11)),
                (at(1000), at(1010), range(1, 2)),
                (at(0), at(1010.5), range(1, 3)),
                (at(2000), None, range(0)),
                (0, 3, range(1, 4)),
                (9, 99, range(9, 11)),
                (11, None, range(0)),
                ("1970-01-01T01:17:00+01:00", 4, range(3, 5)),
            ):
                await broker.replays.start("ann", begin, through=end)
                assert [n for n, _ in brief(await waiting(broker, "ann"))] == list(numbers)

            old = Retention(seconds=2000 - 1040)
            await asyncio.to_thread(broker.store.tidy, 2000.0, old)
            begun = await broker.replays.start("ann", 1)
            assert (begun.position, begun.through) == (4, 10)
            assert [n for n, _ in brief(await waiting(broker, "ann"))] == list(range(5, 11))
            with pytest.raises(BrokerError, match="neither a sequence number nor a time"):
                await broker.replays.start("ann", "yesterday")

    run(main)


def test_what_cannot_be_replayed(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            space = {"air": Schema({"celsius": "float"})}
            await broker.feeds.create(FeedSpec(name="rooms", kind="state", spaces=space))
            with pytest.raises(BrokerError, match="no subscriptions to feeds of events"):
                await broker.replays.start("ann", 1)
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            with pytest.raises(BrokerError, match="'rooms' is a state feed, which cannot be"):
                await broker.replays.start("ann", 1, feed="rooms")
            with pytest.raises(UnknownFeedError):
                await broker.replays.start("ann", 1, feed="none")
            with pytest.raises(UnknownSubscriptionError):
                await broker.replays.start("ann", 1, subscription="none")
            with pytest.raises(BrokerError, match="'all' is not one to feed 'rooms'"):
                await broker.replays.start("ann", 1, subscription="all", feed="rooms")

    run(main)


def test_subscriptions_and_schemas_that_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_SLICE", 2)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks(unknown="carry"))
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            rows = [{"price": 1.0, "size": size} for size in (1, 2, "large", 4, 5, 6)]
            await broker.pipeline.publish("ticks", events(*rows))
            await broker.notifications.acknowledge("ann", 6)
            await broker.replays.start("ann", 1)

            async def take() -> list[tuple[int, list[str]]]:
                page = await broker.notifications.poll("ann", after=None, limit=2)
                await broker.notifications.acknowledge("ann", page[-1].sequence)
                return brief(page)

            assert await take() == [(1, ["all"]), (2, ["all"])]
            await broker.feeds.extend("ticks", {"size": "int"})
            await broker.subscriptions.put("ann", "four", wanted("size = 4"))
            assert await take() == [(4, ["all", "four"])]  # 3 has no size any more
            await broker.subscriptions.delete("ann", "all")
            assert await waiting(broker, "ann") == []
            assert broker.subscribers.get("ann").position == 6

            await broker.replays.start("ann", 1, feed="ticks")
            await broker.feeds.drop("ticks")
            assert await waiting(broker, "ann") == []
            await broker.notifications.flush_cursors()
            assert broker.store.reader.replays() == []

    run(main)


def test_it_is_cancelled(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await publish(broker, *range(1, 11))
            await broker.notifications.acknowledge("ann", 8)
            await broker.replays.start("ann", 1)
            assert len(await broker.notifications.poll("ann", after=None, limit=3)) == 3
            assert await broker.replays.cancel("ann") == 8
            assert brief(await waiting(broker, "ann")) == [(9, ["all"]), (10, ["all"])]
            assert broker.store.reader.replays() == []
            assert await broker.replays.cancel("nobody") == 0

    run(main)


def test_all_replays_together_are_paced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replays, "_SLICE", 10)
    slept: list[float] = []
    sleep = asyncio.sleep

    async def main() -> None:
        async with running(tmp_path, replay_rate=100.0) as broker:
            await broker.feeds.create(ticks())
            for name in ("ann", "bob"):
                await broker.subscriptions.put(name, "all", wanted("price > 0"))
            await publish(broker, *range(1, 21))
            for name in ("ann", "bob"):
                await broker.notifications.acknowledge(name, 20)
                await broker.replays.start(name, 1)

            async def watched(seconds: float) -> None:
                if 0 < seconds <= 0.1:  # a slice: others sleep longer
                    slept.append(seconds)
                    assert broker.replays._turn.locked()
                    seconds = 0
                await sleep(seconds)

            monkeypatch.setattr(replays.asyncio, "sleep", watched)
            found = await asyncio.gather(waiting(broker, "ann"), waiting(broker, "bob"))
            monkeypatch.undo()
            assert [len(one) for one in found] == [20, 20]
            assert len(slept) == 4

    run(main)


def test_a_webhook_gets_a_replay(tmp_path: Path) -> None:
    async def main() -> None:
        async with (
            Receiver() as receiver,
            running(tmp_path, allow_private_webhooks=True) as broker,
        ):
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await broker.webhooks.put("ann", Webhook(url=receiver.url, secret="s" * 16))
            await publish(broker, *range(1, 6))
            await until(lambda: broker.subscribers.get("ann").cursor == 5)
            await broker.replays.start("ann", 3)
            await until(lambda: broker.subscribers.get("ann").position == 5)
            assert [number for one in receiver.sequences for number in one] == [
                1,
                2,
                3,
                4,
                5,
                3,
                4,
                5,
            ]

    run(main)


async def until(holds: Any) -> None:
    async with asyncio.timeout(30):
        while not holds():
            await asyncio.sleep(0.01)


# Over the network


def make(http: httpx.Client, name: str, events: int = 5) -> int:
    """A feed with events, all acknowledged by a subscriber of its name; the last number."""
    assert http.post("/feeds", json={"name": name, "schema": {"x": "int"}}).is_success
    path = f"/subscribers/{name}"
    wanted = {"feed": name, "filter": "x >= 0"}
    assert http.put(f"{path}/subscriptions/all", json=wanted).is_success
    rows = [{"x": number} for number in range(events)]
    last = int(http.post(f"/feeds/{name}/events", json=rows).json()["last"])
    http.post(f"{path}/acknowledge", json={"sequence": last}).raise_for_status()
    return last


def test_over_http(http: httpx.Client) -> None:
    last = make(http, "replay-http")
    path = "/subscribers/replay-http"
    answer = http.post(f"{path}/replay", json={"from": last - 1})
    assert answer.json() == {
        "feed": None, "subscription": None, "after": last - 2, "through": last,
    }  # fmt: skip
    page = http.get(f"{path}/notifications").json()
    assert page["cursor"] == last - 2
    assert [one["sequence"] for one in page["notifications"]] == [last - 1, last]
    described = http.get(path).json()
    assert described["replays"] == [answer.json()]
    assert http.delete(f"{path}/replay").json() == {"cursor": last}
    assert http.get(f"{path}/notifications").json()["notifications"] == []

    wanted = {"feed": "replay-http", "filter": "x < 2", "from": 1}
    made = http.put(f"{path}/subscriptions/low", json=wanted).json()
    assert "from" not in made
    assert "from" not in http.get(f"{path}/subscriptions/low").json()
    page = http.get(f"{path}/notifications").json()
    assert [one["event"]["x"] for one in page["notifications"]] == [0, 1]
    assert {tuple(one["subscriptions"]) for one in page["notifications"]} == {("low",)}
    metrics = http.get("/metrics").text
    assert 'boxmatch_notifications_replayed_total{feed="replay-http"} 4.0' in metrics
    assert "boxmatch_replaying 1.0" in metrics

    path = "/subscribers/replay-many"
    many = {"feed": "replay-http", "filters": {"a": "x < 1", "b": "x < 2"}, "from": "soon"}
    assert http.post(f"{path}/subscriptions", json=many).status_code == 409
    assert http.get(f"{path}/subscriptions").json()["subscriptions"] == []
    many["from"] = 1
    assert http.post(f"{path}/subscriptions", json=many).json() == {"count": 2}
    page = http.get(f"{path}/notifications").json()
    assert [one["subscriptions"] for one in page["notifications"]] == [["a", "b"], ["b"]]


@pytest.mark.parametrize("begin", [-1, 1.5, True, None, "soon"])
def test_a_start_that_makes_no_sense(http: httpx.Client, begin: Any) -> None:
    name = f"replay-{begin}"
    http.post("/feeds", json={"name": name, "schema": {"x": "int"}}).raise_for_status()
    path = f"/subscribers/{name}/subscriptions/s"
    answer = http.put(path, json={"feed": name, "filter": "x > 0", "from": begin})
    if begin is None:
        assert answer.is_success
        begin = {}
    else:
        assert answer.status_code in (409, 422)
        assert http.get(path).status_code == 404
    answer = http.post(f"/subscribers/{name}/replay", json={"from": begin})
    assert answer.status_code in (409, 422)


def test_a_socket_is_closed_and_goes_on_from_there(open_broker: RunningBroker) -> None:
    with httpx.Client(base_url=open_broker.url, timeout=30) as http:
        last = make(http, "replay-socket")
        url = f"{open_broker.socket_url}/subscribers/replay-socket/notifications/socket"
        with connect(url) as socket:
            assert json.loads(socket.recv(10))["after"] == last
            http.post("/subscribers/replay-socket/replay", json={"from": last}).raise_for_status()
            with pytest.raises(ConnectionClosed) as closed:
                socket.recv(10)
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        with connect(f"{url}?after={last}") as socket:
            ready = json.loads(socket.recv(10))
            assert (ready["cursor"], ready["after"]) == (last - 1, last - 1)
            [one] = json.loads(socket.recv(10))["notifications"]
            assert one["sequence"] == last


def test_an_event_source_that_comes_again_does_not_end_it(http: httpx.Client) -> None:
    last = make(http, "replay-sse")
    path = "/subscribers/replay-sse"
    http.post(f"{path}/replay", json={"from": last - 1}).raise_for_status()
    headers = {"Last-Event-ID": str(last)}
    with http.stream("GET", f"{path}/notifications/stream", headers=headers) as stream:
        lines = (line for line in stream.iter_lines() if line.startswith("id:"))
        assert [next(lines), next(lines)] == [f"id: {last - 1}", f"id: {last}"]


def test_a_listener_goes_on_by_itself(open_broker: RunningBroker) -> None:
    with httpx.Client(base_url=open_broker.url, timeout=30) as http:
        last = make(http, "replay-listener")
    name = "replay-listener"
    with Client(open_broker.url) as client, client.listen(name) as notifications:
        client.publish(name, [{"x": 7}])
        assert next(notifications).sequence == last + 1
        begun = client.replay_events(name, last, feed=name)
        assert (begun.feed, begun.after, begun.through) == (name, last - 1, last + 1)
        client.publish(name, [{"x": 8}])
        found = [next(notifications) for _ in range(3)]
        assert [one.sequence for one in found] == [last, last + 1, last + 2]
    with Client(open_broker.url) as client:
        known = client.subscriber(name)
        assert (known.cursor, known.replays) == (last + 2, [])


def test_the_asynchronous_client(open_broker: RunningBroker) -> None:
    name = "replay-async"

    async def main() -> None:
        async with AsyncClient(open_broker.url) as client:
            await client.create_feed(name, {"x": "int"})
            receipt = await client.publish(name, [{"x": 1}, {"x": 2}])
            await client.subscribe(name, "all", name, "x > 0", replay_from=receipt.last)
            page = await client.notifications(name)
            assert [one.event for one in page.notifications] == [{"x": 2}]
            assert await client.cancel_replay(name) == 0

    asyncio.run(main())


def test_a_replay_goes_on_after_a_kill(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data")
    with broker:
        with Client(broker.url) as client:
            client.create_feed("ticks", {"x": "int"})
            client.subscribe("ann", "all", "ticks", "x > 0")
            client.publish("ticks", [{"x": x} for x in range(1, 11)])
            client.acknowledge("ann", 10)
            client.replay_events("ann", 1)
            page = client.notifications("ann", limit=6)
            assert client.acknowledge("ann", page.notifications[2].sequence) == 3
        broker.kill()
        broker.start()
        with Client(broker.url) as client, client.listen("ann") as notifications:
            assert [next(notifications).sequence for _ in range(7)] == list(range(4, 11))
