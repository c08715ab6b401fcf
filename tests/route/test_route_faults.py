"""What goes wrong: an error in the log and in a metric, and the rest goes on."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from pathlib import Path

import nats
import orjson
import pytest
from jetstream import TICKS, RouteOnServer, on_route, running, until, until_true
from nats.js import api

from boxmatch.errors import RouteError
from boxmatch.nats.connection import Connection
from boxmatch.nats.local import LocalServer
from boxmatch.nats.messages import read_notification
from boxmatch.nats.operations import subscribe
from boxmatch.nats.router import Router
from boxmatch.nats.settings import FeedSettings, RouteSettings
from boxmatch.wire.http import CLOUDEVENT

BAD = {
    b"": "empty",
    b"{": "is not JSON",
    b'{"price": 1, "price": 2}': "twice",
    b"[1]": "an event is an object",
    b'[{"price": 1.0}, {"price": "cheap"}]': "price",
    b'{"prize": 1.0}': "prize",
    b'{"price": NaN}': "is not JSON",
    b"\xff\xfe": "is not JSON",
    b"[" * 100_000: "JSON",
}


def test_bad_messages_go_to_the_dead_letters(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        good, bad = [], {}
        async with on.workers() as (worker,):
            for body, reason in BAD.items():
                good.append(await on.publish({"price": 1.0}))
                bad[await on.publish(body)] = body, reason
            unread = await on.publish(b"{}", Content_Type=CLOUDEVENT)
            bad[unread] = b"{}", "specversion"
            bad[await on.publish(b"x", Content_Type="text/plain")] = b"x", "media"
            good.append(await on.publish({"price": 1.0}))
            await on.drained()
            counted = sum(
                sample.value
                for metric in worker.metrics.dead.collect()
                for sample in metric.samples
                if sample.name.endswith("_total")
            )
        assert counted == len(bad)
        assert await on.matched() == Counter(("ann", one, 0, "one") for one in good)
        dead = await on.stored(on.names.dead)
        assert len(dead) == len(bad)
        for message in dead:
            assert message.headers is not None
            body, reason = bad[int(message.headers["Boxmatch-Sequence"])]
            assert message.data == body
            if reason != "media":
                assert reason in message.headers["Boxmatch-Reason"]
            assert message.subject == on.names.dead_letters("ticks")

    on_route(url, test)


def test_a_subscription_that_is_none_is_left_out(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        await subscribe(on.connection, "ann", "two", "price > 0", route=on.route)
        bad = {
            "sub.bob.a": b'{"feed":"ticks","filter":"price <"}',
            "sub.bob.b": b'{"feed":"tocks","filter":"price < 1"}',
            "sub.bob.c": b'{"feed":"ticks"}',
            "sub.bob.d": b"price < 1",
            "sub.bob": b'{"feed":"ticks","filter":"price < 1"}',
            "sub.b=b.e": b'{"feed":"ticks","filter":"price < 1"}',
            "sub.bob.f": b'{"feed":"ticks","filter":"price < 1","dialect":"perl"}',
            "sub.bob.g": b'{"feed":"ticks","filter":"prize < 1"}',
            "sub.ann.two": b'{"feed":"ticks","filter":"price <"}',
        }
        async with on.workers() as (worker,):
            for key, value in bad.items():
                await on.js.publish(on.names.keys + key, value)
            first = await on.publish({"price": 0.5})
            await on.drained()
            assert worker.metrics.look("refused_subscriptions") == len(bad)
            assert worker.metrics.look("errors_total", reason="filter") == len(bad)
            assert worker.metrics.look("subscriptions") == 1
            await subscribe(on.connection, "bob", "a", "price < 1", route=on.route)
            second = await on.publish({"price": 0.5})
            await on.drained()
            assert worker.metrics.look("refused_subscriptions") == len(bad) - 1
        expected = [("ann", first, 0, "one"), ("ann", second, 0, "one"), ("bob", second, 0, "a")]
        assert await on.matched() == Counter(expected)

    on_route(url, test)


@pytest.mark.parametrize("ordered", [False, True])
def test_workers_that_are_cut_off_lose_and_repeat_nothing(url: str, ordered: bool) -> None:
    """Cancelled anywhere: between storing and acknowledging, too."""

    async def test(on: RouteOnServer) -> None:
        chosen = random.Random(1)
        # Whoever is cut off forty times cannot tell what a message has to do with it.
        settings = RouteSettings(
            feeds=TICKS.feeds, ordered=ordered, ack_seconds=1, max_deliver=1000
        )
        await on.create(settings)
        for who in range(5):
            await subscribe(on.connection, f"s{who}", "id", "price >= 0", route=on.route)
        sequences = []
        for _ in range(40):
            worker = Router(on.connection, on.route, batch=7)
            task = asyncio.ensure_future(worker.run())
            await worker.wait_ready()
            sequences += [await on.publish({"price": float(n)}) for n in range(5)]
            await asyncio.sleep(chosen.random() / 100)
            while not task.done():  # one that nats-py waits with may be lost before Python 3.12
                task.cancel()
                await asyncio.wait([task], timeout=0.2)
        async with on.workers():
            await on.drained()
        expected = Counter((f"s{who}", one, 0, "id") for who in range(5) for one in sequences)
        assert await on.matched() == expected
        if ordered:
            for who in range(5):
                received = await on.received()
                its = [
                    one.sequence
                    for name, one in zip(on.subscribers, received, strict=True)
                    if name == f"s{who}"
                ]
                assert its == sorted(its)

    on_route(url, test)


def test_what_was_stored_and_not_acknowledged_is_not_stored_again(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        await on.publish({"price": 1.0})
        async with on.workers():
            await on.drained()
        # The same message again, as after an acknowledgement that was lost.
        await on.js.delete_consumer(on.names.events, on.names.consumer(0, 1))
        await on.create(start="all")
        async with on.workers() as (worker,):
            await on.drained()
            await until_true(lambda: worker.metrics.look("duplicates_total") == 1)
        assert sum((await on.matched()).values()) == 1

    on_route(url, test)


def test_a_bucket_or_a_consumer_that_is_deleted(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers() as (worker,):
            await on.js.delete_stream(on.names.bucket)
            await on.publish({"price": 1.0})
            await until_true(lambda: "there is no route" in str(worker.health.reason))
            await until_true(lambda: worker.metrics.look("errors_total", reason="route") > 0)
            await on.create()
            await subscribe(on.connection, "bob", "two", "price > 0", route=on.route)
            await until_true(lambda: worker.health.reason is None)
            second = await on.publish({"price": 2.0})
            await on.drained()
            # The event came when nobody was subscribed, or after bob: both are right.
            assert ("bob", second, 0, "two") in await on.matched()
            assert not any(who == "ann" for who, *_ in await on.matched())

            await on.js.delete_consumer(on.names.events, on.names.consumer(0, 1))
            await until_true(lambda: "is gone" in str(worker.health.reason))
            await on.create()
            await until_true(lambda: worker.health.reason is None)
            third = await on.publish({"price": 3.0})
            await on.drained()
            assert ("bob", third, 0, "two") in await on.matched()

            await on.js.delete_stream(on.names.notifications)
            fourth = await on.publish({"price": 4.0})
            await until_true(lambda: worker.metrics.look("errors_total", reason="publish") > 0)
            await on.create()
            await on.drained()
            assert ("bob", fourth, 0, "two") in await on.matched()

    on_route(url, test)


def test_another_bucket_of_the_same_name_is_noticed(url: str) -> None:
    """Also if it has more in it than the one before."""

    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers() as (worker,):
            await on.publish({"price": 1.0})
            await on.drained()
            await on.js.delete_stream(on.names.bucket)
            await on.create()
            for number in range(20):
                await subscribe(on.connection, "bob", str(number), "price > 0", route=on.route)
            second = await on.publish({"price": 2.0})
            await on.drained()
            assert worker.metrics.look("subscriptions") == 20
        found = await on.matched()
        assert {(who, id) for who, sequence, _, id in found if sequence == second} == {
            ("bob", str(number)) for number in range(20)
        }

    on_route(url, test)


def test_a_full_stream_holds_events_back(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create(most_bytes=20_000, when_full="wait")
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers(batch=10) as (worker,):
            sequences = [await on.publish({"price": 1.0}) for _ in range(100)]
            await until_true(lambda: worker.metrics.look("errors_total", reason="stream-full") > 0)
            found: set[int] = set()

            async def all_read() -> bool:
                messages = await on.stored(on.names.notifications)
                if messages:
                    found.update(read_notification(one.data).sequence for one in messages)
                    last = messages[-1].metadata.sequence.stream
                    await on.js.purge_stream(on.names.notifications, seq=last + 1)
                return len(found) == len(sequences)

            await until(all_read)
        assert found == set(sequences)

    on_route(url, test)


def test_a_notification_that_is_too_large_is_a_dead_letter(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create(RouteSettings(feeds={"ticks": FeedSettings()}))
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers() as (worker,):
            first = await on.publish({"price": 1.0, "text": "x" * ((1 << 20) - 60)})
            second = await on.publish({"price": 2.0})
            await on.drained()
            assert worker.metrics.look("dead_letters_total", reason="too-large") == 1
        assert await on.matched() == Counter([("ann", second, 0, "one")])
        (dead,) = await on.stored(on.names.dead)
        assert dead.headers is not None
        assert dead.headers["Boxmatch-Sequence"] == str(first)
        assert dead.headers["Boxmatch-Reason"] == "the message is larger than the server takes"

    on_route(url, test)


def test_a_clock_that_jumps_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        true = time.time
        sequences = []
        async with on.workers():
            for jump in (86_400.0, -86_400.0, 0.0):
                monkeypatch.setattr(time, "time", lambda jump=jump: true() + jump)
                sequences.append(await on.publish({"price": 1.0}))
                await on.drained()
        assert await on.matched() == Counter(("ann", one, 0, "one") for one in sequences)

    on_route(url, test)


def test_a_server_that_comes_back(tmp_path: Path) -> None:
    """Its data are still there; the worker connects again by itself."""
    server = LocalServer(tmp_path / "data").start()
    port = int(server.url.rpartition(":")[2])

    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        worker = Router(Connection(servers=(server.url,)), on.route)
        async with running(worker):
            first = await on.publish({"price": 1.0})
            await on.drained()
            await asyncio.to_thread(server.stop)
            await until_true(lambda: not on.connection.is_connected)
            again = LocalServer(tmp_path / "data", port)
            await asyncio.to_thread(again.start)
            try:
                await until_true(lambda: on.connection.is_connected)
                second = await on.publish({"price": 2.0})
                await on.drained()
                assert await on.matched() == Counter(
                    ("ann", one, 0, "one") for one in (first, second)
                )
                worker.stop()
                await until_true(lambda: worker.health.reason == "stopped")
            finally:
                await on.connection.close()
                await asyncio.to_thread(again.stop)

    try:
        on_route(server.url, test)
    finally:
        server.stop()


def test_a_worker_that_was_suspended_leaves_its_messages_to_others(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has them in hand for longer than the server waits."""

    async def test(on: RouteOnServer) -> None:
        await on.create(RouteSettings(feeds=TICKS.feeds, ack_seconds=1))
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        slow, quick = (Router(on.connection, on.route) for _ in range(2))
        held = threading.Event()

        async with running(slow):
            session = slow._session
            assert session is not None
            match = session._matcher.match

            def suspended(batch: object, revision: int) -> None:
                batch.held -= 10  # type: ignore[attr-defined]  # as if it had slept for that long
                match(batch, revision)  # type: ignore[arg-type]
                held.set()

            monkeypatch.setattr(session._matcher, "match", suspended)
            sequence = await on.publish({"price": 1.0})
            await until_true(held.is_set)
            monkeypatch.setattr(session._matcher, "match", match)
            await until_true(lambda: slow.metrics.look("errors_total", reason="late") > 0)
            async with running(quick):
                await on.drained()
        assert await on.matched() == Counter([("ann", sequence, 0, "one")])

    on_route(url, test)


def test_a_connection_of_the_callers_that_is_closed_ends_the_worker(url: str) -> None:
    async def test() -> None:
        connection = await nats.connect(url)
        worker = Router(connection, "none")
        work = asyncio.ensure_future(worker.run())
        await until_true(lambda: "there is no route" in str(worker.health.reason))
        await connection.close()
        with pytest.raises((nats.errors.Error, RouteError)):
            await work

    asyncio.run(test())


def test_settings_of_another_program(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        for written in (b"{}", b'{"feeds":{"a":{}},"more":1}', b"x"):
            await on.js.publish(on.names.settings, written)
            with pytest.raises(RouteError, match=f"route '{on.route}': "):
                await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        with pytest.raises(RouteError, match=r"feed 'a'.*unknown type 'flaot'"):
            await on.create(RouteSettings(feeds={"a": FeedSettings(schema={"x": "flaot"})}))
        with pytest.raises(RouteError, match="1 to 64 letters"):
            await subscribe(on.connection, "ann", "one", "price > 0", route="a.b")

    on_route(url, test)


def test_storage_settings_are_those_of_the_streams(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create(window_seconds=77.0, days=2.0, most_bytes=1 << 20, when_full="wait")
        out = (await on.js.stream_info(on.names.notifications)).config
        assert (out.duplicate_window, out.max_age, out.max_bytes) == (77.0, 2 * 86_400, 1 << 20)
        assert out.discard == api.DiscardPolicy.NEW
        events = (await on.js.stream_info(on.names.events)).config
        assert (events.max_age, events.max_bytes) == (2 * 86_400, 1 << 20)
        await on.create(RouteSettings(feeds=TICKS.feeds, ordered=True, ack_seconds=9))
        consumer = await on.js.consumer_info(on.names.events, on.names.consumer(0, 1))
        assert (consumer.config.max_ack_pending, consumer.config.ack_wait) == (1, 9)
        assert orjson.loads((await on.stored(on.names.bucket))[-1].data)["ordered"] is True

    on_route(url, test)
