"""The broker without a network: what is published reaches those who asked for it, exactly."""

from __future__ import annotations

import asyncio
import random
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

import boxmatch as bm
from boxmatch.broker.broker import Broker
from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Limits, Settings
from boxmatch.broker.store import StoreTransaction
from boxmatch.broker.store.rows import Notification
from boxmatch.errors import StorageError
from boxmatch.model.filters import CompiledFilter, compile_filter
from boxmatch.model.schema import Schema
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.requests import Wanted

SCHEMA = Schema({"symbol": "string", "price": "float", "volume": "int"})
Main = Callable[[], Coroutine[Any, Any, None]]


def run(main: Main) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


@asynccontextmanager
async def running(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    broker = Broker.open(Settings(data=folder, sync="normal", **settings))
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


def events(*rows: dict[str, Any]) -> Events:
    return Events(list(rows), [orjson.dumps(row) for row in rows])


def ticks(name: str = "ticks", **more: Any) -> FeedSpec:
    return FeedSpec(name=name, spaces={name: SCHEMA}, **more)


def wanted(filter: Any, feed: str = "ticks") -> Wanted:
    return Wanted(feed=feed, filter=filter)


async def all_notifications(broker: Broker, subscriber: str, after: int = 0) -> list[Notification]:
    return await broker.notifications.poll(subscriber, after=after, limit=100_000)


def test_an_event_reaches_who_wants_it_once(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "cheap", wanted("price < 20"))
            await broker.subscriptions.put("ann", "ibm", wanted("symbol = 'IBM'"))
            await broker.subscriptions.put("bob", "big", wanted({"volume": {"low": 100}}))
            async with broker.notifications.stream("ann") as stream:
                receipt = await broker.pipeline.publish(
                    "ticks",
                    events(
                        {"symbol": "IBM", "price": 10.0, "volume": 5},
                        {"symbol": "T", "price": 30.0, "volume": 500},
                        {"symbol": "IBM", "price": 30.0},
                    ),
                )
                assert (receipt.first, receipt.last, receipt.count) == (1, 3, 3)
                assert receipt.durable
                assert not receipt.repeated
                notifications = await stream.take(10)
            assert [(one.sequence, sorted(one.subscriptions)) for one in notifications] == [
                (1, ["cheap", "ibm"]),
                (3, ["ibm"]),
            ]
            assert orjson.loads(notifications[1].to_json())["event"] == {
                "symbol": "IBM",
                "price": 30.0,
            }
            [big] = await all_notifications(broker, "bob")
            assert (big.sequence, big.subscriptions) == (2, ["big"])
            assert (await broker.subscribers.describe("ann")).backlog == 2
            assert await broker.notifications.acknowledge("ann", 1) == 1
            await broker.notifications.flush_cursors()
            assert (await broker.subscribers.describe("ann")).backlog == 1
            assert await broker.notifications.acknowledge("ann", 99) == 3
            assert await broker.notifications.acknowledge("ann", 2) == 3
            await broker.notifications.flush_cursors()
            assert (await broker.subscribers.describe("ann")).backlog == 0
            assert broker.feeds.get("ticks").matches == 4

    run(main)


def test_all_of_it_is_there_again(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "cheap", wanted("price < 20"))
            await broker.subscriptions.put("ann", "gone", wanted("price < 30"))
            await broker.subscriptions.delete("ann", "gone")
            await broker.pipeline.publish("ticks", events({"price": 1.0}, {"price": 2.0}))
            await broker.notifications.acknowledge("ann", 1)

    async def second() -> None:
        async with running(tmp_path) as broker:
            assert [info.spec for info in broker.feeds.list()] == [ticks()]
            assert [one.id for one in broker.subscriptions.list("ann")] == ["cheap"]
            assert (await broker.subscribers.describe("ann")).cursor == 1
            async with broker.notifications.stream("ann") as stream:
                assert [one.sequence for one in await stream.take(9)] == [2]
                await broker.pipeline.publish("ticks", events({"price": 3.0}, {"price": 25.0}))
                assert [one.sequence for one in await stream.take(9)] == [3]

    run(first)
    run(second)


def test_slow_matching_bounds_what_is_queued_and_matched_together(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            feed = broker.directory.feed("ticks").feed
            hold = threading.Event()
            blocked = asyncio.create_task(broker.pipeline.call(feed, hold.wait))
            sizes: list[int] = []
            match = feed.match

            def watched(rows: list[dict[str, Any]], waited: float) -> Any:
                sizes.append(len(rows))
                feed.pace = 0.005
                return match(rows, waited)

            feed.match = watched
            feed.pace = 0.005  # 4 events in 20 ms, 400 in two seconds
            sent = [
                asyncio.create_task(broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * 2)))
                for _ in range(250)
            ]
            await asyncio.sleep(0.05)
            queued = broker.pipeline.events
            hold.set()  # before anything can fail, or it would never end
            await asyncio.gather(blocked, *sent)
            assert 390 < queued <= 400
            assert sum(sizes) == 500
            assert set(sizes) <= {2, 4, 6}  # the pace is a guess, and may have changed in between
            assert (broker.pipeline.events, broker.pipeline.nbytes, feed.waiting) == (0, 0, 0)

    run(main)


def test_a_key_makes_retries_safe(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            sent = events({"price": 1.0})
            first, again = await asyncio.gather(
                broker.pipeline.publish("ticks", sent, key="k"),
                broker.pipeline.publish("ticks", sent, key="k"),
            )
            assert (first.first, again.first) == (1, 1)
            assert (first.repeated, again.repeated) == (False, True)
            assert len(await all_notifications(broker, "ann")) == 1

    run(main)


def test_a_bad_request_does_not_hurt_those_beside_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            requests = [
                broker.pipeline.publish("ticks", events({"price": 1.0})),
                broker.pipeline.publish("ticks", events({"price": 1.0}, {"price": "much"})),
                broker.pipeline.publish("ticks", events({"colour": "red"})),
                broker.pipeline.publish("ticks", events({"price": 2.0}), wait=False),
            ]
            results = await asyncio.gather(*requests, return_exceptions=True)
            assert isinstance(results[1], bm.AttributeValueError)
            assert "row 1" in str(results[1])
            assert isinstance(results[2], bm.EventError)
            assert "'colour' in row 0" in str(results[2])
            bodies = [one.body for one in await broker.feeds.read_log("ticks", 0, 10)]
            while len(bodies) < 2:  # the last one did not wait to be durable
                await asyncio.sleep(0.01)
                bodies = [one.body for one in await broker.feeds.read_log("ticks", 0, 10)]
            assert bodies == [b'{"price":1.0}', b'{"price":2.0}']

    run(main)


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            with pytest.raises(bm.FeedExistsError):
                await broker.feeds.create(ticks())
            with pytest.raises(bm.UnknownFeedError, match="'tocks'"):
                await broker.pipeline.publish("tocks", events({"price": 1.0}))
            with pytest.raises(bm.FilterError) as error:
                await broker.subscriptions.put("ann", "s", wanted("price >"))
            assert error.value.position is not None
            with pytest.raises(bm.FilterError, match=r"write \{'low': 1\}"):
                await broker.subscriptions.put("ann", "s", wanted({"price": {"from": 1}}))
            with pytest.raises(bm.UnknownSubscriptionError):
                await broker.subscriptions.delete("ann", "s")
            assert (await broker.subscribers.describe("ann")).subscriptions == 0
            await broker.feeds.create(ticks("other"))
            await broker.subscriptions.put("ann", "s", wanted("price > 1"))
            with pytest.raises(bm.BrokerError, match="one to feed 'ticks'"):
                await broker.subscriptions.put("ann", "s", wanted("price > 1", "other"))
            with pytest.raises(bm.SchemaError, match="'price' already"):
                await broker.feeds.extend("ticks", {"price": "int"})

    run(main)


def test_a_feed_gains_attributes_and_goes(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "cheap", wanted("price < 20"))
            await broker.feeds.extend("ticks", {"halted": "bool"})
            await broker.subscriptions.put("ann", "halted", wanted("halted"))
            await broker.pipeline.publish("ticks", events({"price": 1.0, "halted": True}))
            [notification] = await all_notifications(broker, "ann")
            assert sorted(notification.subscriptions) == ["cheap", "halted"]
            await broker.feeds.drop("ticks")
            assert broker.subscriptions.list("ann") == []
            assert await all_notifications(broker, "ann") == []
            with pytest.raises(bm.UnknownFeedError):
                broker.feeds.get("ticks")
            await broker.feeds.create(ticks())
            await broker.pipeline.publish("ticks", events({"price": 1.0}))
            assert await all_notifications(broker, "ann") == []

    run(main)


def test_dry_run_and_explain(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.pipeline.publish(
                "ticks", events(*({"price": float(n)} for n in range(100)))
            )
            dry = await broker.preview.dry_run("ticks", "price BETWEEN 10 AND 19")
            assert (dry.events, dry.matches) == (100, 10)
            assert [one.sequence for one in dry.examples] == [16, 17, 18, 19, 20]
            await broker.subscriptions.put("ann", "cheap", wanted("price < 20"))
            told = await broker.preview.explain(
                "ticks", sequence=50, subscriber="ann", subscription="cheap"
            )
            assert not told.matched
            told = await broker.preview.explain("ticks", event={"price": 5.0}, filter="price < 20")
            assert told.matched
            with pytest.raises(bm.BrokerError, match="no event 9999"):
                await broker.preview.explain("ticks", sequence=9999, filter="price < 20")

    run(main)


def test_a_slow_listener_does_not_hold_up_the_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            for subscriber in ("slow", "quick"):
                await broker.subscriptions.put(subscriber, "all", wanted("price > 0"))
            async with (
                broker.notifications.stream("slow") as slow,
                broker.notifications.stream("quick") as quick,
            ):
                got: list[int] = []
                for _ in range(30):
                    await broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * 100))
                    got += [one.sequence for one in await quick.take(1_000)]
                assert got == list(range(1, 3_001))
                late: list[int] = []
                while len(late) < 3_000:
                    late += [one.sequence for one in await slow.take(700)]
                assert late == got

    run(main)


def test_changing_subscriptions_against_brute_force(tmp_path: Path) -> None:
    """Events and subscriptions come and go; all that was told is compared with `scan`."""
    rng = random.Random(11)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            truth = bm.Matcher(SCHEMA, index="scan")
            expected: dict[str, list[tuple[int, list[str]]]] = {"ann": [], "bob": []}
            for _ in range(150):
                subscriber, number = rng.choice(["ann", "bob"]), rng.randrange(8)
                id = f"{subscriber}/{number}"
                if rng.random() < 0.4:
                    low = rng.randrange(50)
                    text = f"price BETWEEN {low} AND {low + 30} OR symbol = '{rng.choice('ab')}'"
                    await broker.subscriptions.put(subscriber, str(number), wanted(text))
                    truth.subscribe(id, text)
                elif rng.random() < 0.3 and id in truth:
                    await broker.subscriptions.delete(subscriber, str(number))
                    truth.unsubscribe(id)
                else:
                    rows = [
                        {"price": float(rng.randrange(80)), "symbol": rng.choice("abc")}
                        for _ in range(rng.randint(1, 5))
                    ]
                    receipt = await broker.pipeline.publish("ticks", events(*rows))
                    for place, row in enumerate(rows):
                        found = sorted(map(str, truth.match(row)))
                        for name, told in expected.items():
                            mine = [x.split("/")[1] for x in found if x.startswith(name)]
                            if mine:
                                told.append((receipt.first + place, mine))
            for name, told in expected.items():
                notifications = await all_notifications(broker, name)
                assert [(one.sequence, sorted(one.subscriptions)) for one in notifications] == told

    run(main)


def test_publishers_wait_for_room_and_are_sent_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmatch.broker.feeds.admission._ROOM_TIMEOUT", 0.05)

    async def main() -> None:
        async with running(tmp_path, queue_events=10) as broker:
            await broker.feeds.create(ticks())
            hold, feed = asyncio.Event(), broker.directory.feed("ticks").feed
            loop = asyncio.get_running_loop()

            def block() -> None:
                asyncio.run_coroutine_threadsafe(hold.wait(), loop).result()

            blocked = asyncio.create_task(broker.pipeline.call(feed, block))
            first = asyncio.create_task(
                broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * 8))
            )
            await asyncio.sleep(0.01)
            with pytest.raises(bm.OverloadError, match="8 events are waiting"):
                await broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * 8))
            hold.set()
            await blocked
            assert (await first).count == 8
            assert (broker.pipeline.events, broker.pipeline.nbytes) == (0, 0)
            assert (
                await broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * 80))
            ).count == 80

    run(main)


def test_what_waits_for_room_is_bounded(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, queue_bytes=20_000) as broker:
            await broker.feeds.create(ticks())
            hold, feed = threading.Event(), broker.directory.feed("ticks").feed
            blocked = asyncio.create_task(broker.pipeline.call(feed, hold.wait))
            large = events(*[{"price": 1.0}] * 100)  # about 8,000 bytes
            sent = [asyncio.create_task(broker.pipeline.publish("ticks", large)) for _ in range(4)]
            await asyncio.sleep(0.05)  # two are in, and two wait
            found = []
            for ask in (broker.pipeline.publish("ticks", large), asyncio.to_thread(int)):
                try:
                    await ask
                    broker.pipeline.check_room(feed)
                except bm.OverloadError as error:
                    found.append(str(error))
            hold.set()
            await asyncio.gather(blocked, *sent)
            assert found == ["200 events are waiting to be matched"] * 2
            broker.pipeline.check_room(feed)
            assert (await broker.pipeline.publish("ticks", large)).first == 401

    run(main)


def test_publishers_are_let_in_as_they_came(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, queue_events=10) as broker:
            await broker.feeds.create(ticks())
            hold, feed = threading.Event(), broker.directory.feed("ticks").feed
            blocked = asyncio.create_task(broker.pipeline.call(feed, hold.wait))
            sizes = [10, 6, 3, 9, 1, 1]
            sent = [
                asyncio.create_task(
                    broker.pipeline.publish("ticks", events(*[{"price": 1.0}] * size))
                )
                for size in sizes
            ]
            await asyncio.sleep(0.05)
            sent[3].cancel()  # who has gone stands in nobody's way, and takes no room
            hold.set()
            await blocked
            receipts = await asyncio.gather(*sent, return_exceptions=True)
            assert isinstance(receipts.pop(3), asyncio.CancelledError)
            assert [one.first for one in receipts] == [1, 11, 17, 20, 21]
            assert (broker.pipeline.events, broker.pipeline.nbytes) == (0, 0)

    run(main)


def test_many_subscriptions_at_once_are_all_or_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "s1", wanted("price > 100"))
            many = {f"s{n}": wanted(f"price < {n}") for n in range(5)}
            infos = await broker.subscriptions.put_many("ann", many)
            assert [one.id for one in infos] == list(many)
            with pytest.raises(bm.FilterError, match="subscription 't1'"):
                await broker.subscriptions.put_many(
                    "ann", {"t0": wanted("price > 1"), "t1": wanted("price >")}
                )
            assert len(broker.subscriptions.list("ann")) == 5
            await broker.pipeline.publish("ticks", events({"price": 2.5}, {"price": 200.0}))
            [notification] = await all_notifications(broker, "ann")
            assert sorted(notification.subscriptions) == ["s3", "s4"]
            assert [one.matches for one in broker.subscriptions.list("ann")] == [0, 0, 0, 1, 1]
            await broker.feeds.create(ticks("other"))
            with pytest.raises(bm.BrokerError, match="one feed"):
                await broker.subscriptions.put_many(
                    "bob", {"a": wanted("price > 1"), "b": wanted("price > 1", "other")}
                )

    run(main)


def test_indexes_are_made_tidy_when_it_is_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmatch.broker.housekeeping._QUIET", 0.05)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            many = {f"s{n}": wanted(f"price < {n}") for n in range(300)}
            await broker.subscriptions.put_many("ann", many)
            feed = broker.directory.feed("ticks").feed
            while feed.changes:
                await asyncio.sleep(0.02)
            await broker.pipeline.publish("ticks", events({"price": 100.5}))
            [notification] = await all_notifications(broker, "ann")
            assert len(notification.subscriptions) == 199

    run(main)


def test_of_two_who_make_a_feed_at_once_one_is_told_that_it_is_there(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            first, second = broker.feeds.create(ticks()), broker.feeds.create(ticks())
            made, refused = await asyncio.gather(first, second, return_exceptions=True)
            assert isinstance(refused, bm.FeedExistsError)
            assert [info.number for info in broker.feeds.list()] == [made.number]

    run(main)


def test_who_polls_is_seen_to_get_notifications_whether_or_not_it_waits(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted("price > 0"))
            await broker.pipeline.publish("ticks", events({"price": 1.0}, {"price": 2.0}))
            await broker.notifications.poll("ann", after=None, limit=10)
            assert (await broker.subscribers.describe("ann")).delivered == 2
            await broker.notifications.poll("ann", after=1, limit=10, wait=5.0)
            assert (await broker.subscribers.describe("ann")).delivered == 3

    run(main)


def test_who_listens_before_subscribing_is_counted_and_not_left_waiting(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker, broker.notifications.stream("nobody") as stream:
            waiting = asyncio.create_task(stream.take(1))
            await asyncio.sleep(0)
            assert b"\nboxmatch_sessions 1.0\n" in await asyncio.to_thread(broker.metrics.render)
            assert (await broker.history.summary()).sessions == 1
            assert (await broker.history.summary()).subscriber_count == 0
            await broker.stop()
            assert await waiting == []

    run(main)


def test_what_is_watched_may_be_read_while_subscribers_come(tmp_path: Path) -> None:
    """Metrics are put together in a thread of their own."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            directory = broker.directory
            for number in range(1, 20_000):
                directory.register(f"subscriber{number}", number, 0)
            reading = asyncio.create_task(asyncio.to_thread(read, broker))
            number = 20_000
            while not reading.done():
                for _ in range(100):
                    number += 1
                    directory.register(f"subscriber{number}", number, 0)
                await asyncio.sleep(0)
            await reading

    def read(broker: Broker) -> None:
        for _ in range(20):
            found = broker.metrics.render()
            assert b"\nboxmatch_sessions 0.0\n" in found
            assert b"\nboxmatch_backlog_subscribers 0.0\n" in found

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        run(main)
    finally:
        sys.setswitchinterval(interval)


HOOK = Webhook(url="http://[fd00::410]/hook", secret="s" * 16)
HOOK_OUTSIDE = Webhook(url="https://example.com/hook", secret="s" * 16, paused=True)


def test_a_webhook_that_may_not_be_posted_to_now_may_be_later(tmp_path: Path) -> None:
    async def main(allowed: bool) -> Webhook | None:
        async with running(tmp_path, allow_private_webhooks=allowed) as broker:
            if allowed:
                await broker.webhooks.put("ann", HOOK)
            while not allowed and broker.webhooks.last_error("ann") is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            return broker.webhooks.get("ann")

    for allowed in (True, False):
        assert asyncio.run(asyncio.wait_for(main(allowed), 60)) == HOOK


def test_webhooks_that_are_set_and_taken_away_at_once_take_turns(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, allow_private_webhooks=True) as broker:
            await broker.webhooks.put("ann", HOOK)
            for _ in range(20):
                changes = (broker.webhooks.put("ann", HOOK), broker.webhooks.delete("ann"))
                assert await asyncio.gather(*changes) == [None, None]
                assert broker.webhooks.get("ann") is None
                assert await asyncio.to_thread(broker.store.reader.webhooks) == []
                await broker.webhooks.put("ann", HOOK)

    run(main)


def test_the_number_of_subscriptions_is_limited_from_the_first_ones_on(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path, limits=Limits(subscriptions=2)) as broker:
            await broker.feeds.create(ticks())
            with pytest.raises(bm.LimitError, match="can have 2"):
                await broker.subscriptions.put_many(
                    "ann", dict.fromkeys("abc", wanted("price > 1"))
                )
            for _ in range(2):  # the second time in their own place
                await broker.subscriptions.put_many("ann", dict.fromkeys("ab", wanted("price > 1")))
            with pytest.raises(bm.LimitError):
                await broker.subscriptions.put("ann", "c", wanted("price > 1"))
        async with running(tmp_path, limits=Limits(subscriptions=1)) as broker:
            await broker.subscriptions.put("ann", "a", wanted("price > 2"))
            with pytest.raises(bm.LimitError):
                await broker.subscriptions.put("ann", "c", wanted("price > 1"))

    run(main)


def test_a_new_subscriber_costs_one_transaction_and_one_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[object] = []

    def count(schema: Schema, filter: Any, **more: Any) -> CompiledFilter:
        compiled.append(filter)
        return compile_filter(schema, filter, **more)

    for module in ("broker.feeds.event_feed", "engine.subscriptions", "model.filters"):
        monkeypatch.setattr(f"boxmatch.{module}.compile_filter", count)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await asyncio.gather(*map(cancel, broker.housekeeping.tasks), return_exceptions=True)
            write, written = broker.store.write, list[object]()

            def counted(change: Any, *args: Any, **more: Any) -> Any:
                written.append(change)
                return write(change, *args, **more)

            monkeypatch.setattr(broker.store, "write", counted)
            compiled.clear()  # of the warm-up
            await broker.subscriptions.put("ann", "a", wanted("price > 1"))
            assert (len(written), len(compiled)) == (1, 1)
            await broker.subscriptions.put_many(
                "bob", {"b": wanted("price > 2"), "c": wanted({"price": 3.0})}
            )
            assert (len(written), len(compiled)) == (2, 3)
            await broker.webhooks.put("eve", HOOK_OUTSIDE)
            assert len(written) == 3
            await broker.pipeline.publish("ticks", events({"price": 3.0}))
            for subscriber, ids in (("ann", ["a"]), ("bob", ["b", "c"])):
                [notification] = await all_notifications(broker, subscriber)
                assert sorted(notification.subscriptions) == ids

    run(main)


def cancel(task: asyncio.Task[None]) -> asyncio.Task[None]:
    task.cancel()
    return task


def test_a_subscription_is_put_while_its_feed_is_extended(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            held, hold, feed = (
                threading.Event(),
                threading.Event(),
                broker.directory.feed("ticks").feed,
            )

            def wait() -> None:
                held.set()
                hold.wait(30)

            broker.pipeline.call_soon(feed, wait)
            queue = broker.pipeline._queue(feed)._queue
            await asyncio.to_thread(held.wait)
            extending = asyncio.create_task(broker.feeds.extend("ticks", {"venue": "string"}))
            while not queue:
                await asyncio.sleep(0.001)
            putting = asyncio.create_task(broker.subscriptions.put("ann", "a", wanted("price > 1")))
            while len(queue) < 2:  # compiled for the schema of before
                await asyncio.sleep(0.001)
            hold.set()
            await asyncio.gather(extending, putting)
            await broker.pipeline.publish("ticks", events({"price": 2.0, "venue": "X"}))
            assert len(await all_notifications(broker, "ann")) == 1

    run(main)


def test_a_broker_whose_writer_thread_has_ended_can_be_stopped(tmp_path: Path) -> None:
    def end_thread(transaction: StoreTransaction) -> None:
        raise SystemExit

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "all", wanted({}))
            await broker.pipeline.publish("ticks", events({"price": 1.0}))
            await broker.notifications.acknowledge("ann", 1, wait=False)
            with pytest.raises(StorageError, match="has ended"):
                await broker.store.commit(end_thread)
            with pytest.raises(StorageError, match="has ended"):
                await broker.pipeline.publish("ticks", events({"price": 1.0}))
            while broker.failure is None:  # the thread has told us, and is about to end
                await asyncio.sleep(0)
            assert broker.failure == "the thread that writes to the disk has ended"

    run(main)
