"""Subscribers that share their notifications, in a broker without a network."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from webhook_receiver import SECRET, Receiver

from boxmatch.broker.broker import Broker
from boxmatch.broker.delivery.shared_inbox import SharedStream
from boxmatch.broker.delivery.webhook_targets import Webhook
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention, Settings
from boxmatch.broker.store import Store
from boxmatch.broker.store.progress import Progress
from boxmatch.errors import BrokerError, StorageError
from boxmatch.model.schema import Schema
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.requests import Sharing, Wanted

Main = Callable[[], Coroutine[Any, Any, None]]


def run(main: Main) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


class Clock:
    """Of leases: it stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def running(folder: Path, clock: Clock | None = None, **more: Any) -> AsyncIterator[Broker]:
    settings = Settings(data=folder, sync="normal", allow_private_webhooks=True, **more)
    store = Store.open(folder, sync="normal", pace=0.0)
    broker = Broker(settings, store, monotonic=clock or Clock())
    broker.load()
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()


async def prepare(broker: Broker, count: int, **settings: Any) -> None:
    """Feed, subscription and so many events; ann shares them."""
    schema = Schema({"price": "int"})
    await broker.feeds.create(FeedSpec(name="ticks", spaces={"ticks": schema}))
    await broker.subscriptions.put("ann", "all", Wanted(feed="ticks", filter="price >= 0"))
    await broker.shared.share("ann", Sharing(**settings))
    await publish(broker, count)


async def publish(broker: Broker, count: int) -> None:
    rows = [{"price": 1}] * count
    if rows:
        await broker.pipeline.publish("ticks", Events(rows, [orjson.dumps(row) for row in rows]))


def stream_of(broker: Broker, window: int = 100) -> SharedStream:
    stream = broker.notifications.stream("ann")
    assert isinstance(stream, SharedStream)
    stream.window = window
    return stream


async def take(stream: SharedStream, most: int = 100) -> list[tuple[int, int]]:
    """Numbers, with how many times they were handed out."""
    return [(one.sequence, one.deliveries) for one in await stream.take(most)]


async def poll(broker: Broker, limit: int = 100) -> list[tuple[int, int]]:
    found = await broker.notifications.poll("ann", after=None, limit=limit)
    return [(one.sequence, one.deliveries) for one in found]


async def letters(broker: Broker) -> list[tuple[int, int, int, str]]:
    found = await broker.webhooks.dead_letters("ann")
    return [(one.first, one.last, one.attempts, one.reason) for one in found]


def test_connections_share_notifications(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 5)
            async with stream_of(broker) as first, stream_of(broker) as second:
                assert await take(first, 2) == [(1, 1), (2, 1)]
                assert await take(second, 2) == [(3, 1), (4, 1)]
                assert await broker.shared.acknowledge("ann", [2, 3]) == 2
                assert await broker.shared.acknowledge("ann", [2, 99]) == 0
                described = await broker.subscribers.describe("ann")
                assert (described.mode, described.cursor, described.in_flight) == ("shared", 0, 2)
                assert (described.sessions, described.backlog) == (2, 3)
                assert described.sharing == Sharing()
                first.acknowledge([1])
                assert broker.subscribers.get("ann").cursor == 3
                assert await take(second) == [(5, 1)]
            # What was not acknowledged is there for whoever comes.
            assert await poll(broker) == [(4, 2), (5, 2)]
            assert await poll(broker) == []

    run(main)


def test_who_waits_gets_what_is_new_in_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 0)
            streams = [stream_of(broker) for _ in range(3)]
            for stream in streams:
                await stream.__aenter__()
            takers = [asyncio.create_task(take(stream, 1)) for stream in streams]
            await asyncio.sleep(0)
            await publish(broker, 3)
            found = await asyncio.gather(*takers)
            assert sorted(found) == [[(1, 1)], [(2, 1)], [(3, 1)]]
            waiting = asyncio.create_task(take(streams[2]))
            await asyncio.sleep(0)
            streams[0].close()  # what it had goes to the one that waits
            assert await waiting == [(found[0][0][0], 2)]
            for stream in streams:
                stream.close()

    run(main)


def test_one_that_is_cancelled_while_it_waits_holds_nobody_up(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 0)
            async with stream_of(broker) as first, stream_of(broker) as second:
                for _ in range(20):
                    impatient = asyncio.create_task(take(first, 1))
                    patient = asyncio.create_task(take(second, 1))
                    await asyncio.sleep(0)
                    publishing = asyncio.create_task(publish(broker, 1))
                    await asyncio.sleep(0)
                    impatient.cancel()
                    ended = await asyncio.gather(impatient, return_exceptions=True)
                    await publishing
                    if isinstance(ended[0], list):  # it got the event before that
                        patient.cancel()
                    else:
                        assert len(await patient) == 1

    run(main)


def test_a_window_and_the_subscriber_bound_what_is_handed_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 9, max_in_flight=4)
            async with stream_of(broker, window=3) as first, stream_of(broker) as second:
                assert len(await take(first)) == 3
                full = asyncio.create_task(take(first))
                assert await take(second) == [(4, 1)]
                waiting = asyncio.create_task(take(second))
                await asyncio.sleep(0)
                assert not full.done()
                assert not waiting.done()
                second.acknowledge([4])
                assert await waiting == [(5, 1)]
                assert not full.done()
                second.acknowledge([1])  # whoever has it
                assert await full == [(6, 1)]

    run(main)


def test_what_is_overdue_is_handed_out_again(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with running(tmp_path, clock) as broker:
            await prepare(broker, 2, ack_seconds=10)
            async with stream_of(broker) as first, stream_of(broker) as second:
                assert await take(first) == [(1, 1), (2, 1)]
                clock.now += 9
                first.extend([2], None)
                clock.now += 1
                waiting = asyncio.create_task(take(second))
                await asyncio.sleep(0)
                await broker.shared.sweep()
                assert await waiting == [(1, 2)]
                first.reject([1, 2], "busy", 30.0)  # it does not have 1 any more
                clock.now += 5
                await broker.shared.sweep()
                waiting = asyncio.create_task(take(first))
                await asyncio.sleep(0)
                assert not waiting.done()
                clock.now += 25
                await broker.shared.sweep()
                # 1 ran out in the meantime, and 2 has waited long enough.
                assert await waiting == [(1, 3), (2, 2)]
                assert (await broker.subscribers.describe("ann")).redelivered == 3

    run(main)


def test_after_so_many_deliveries_it_is_a_dead_letter(tmp_path: Path) -> None:
    async def main() -> None:
        clock = Clock()
        async with running(tmp_path, clock) as broker:
            await prepare(broker, 3, max_deliveries=2, ack_seconds=10)
            assert await poll(broker) == [(1, 1), (2, 1), (3, 1)]
            inbox = broker.shared.get("ann")
            inbox.reject([1, 2], "cannot", 0.0)
            assert await poll(broker) == [(1, 2), (2, 2)]
            inbox.reject([1], "cannot at all", 0.0)
            assert await poll(broker) == []
            clock.now += 10
            await broker.shared.sweep()
            assert await letters(broker) == [
                (1, 1, 2, "cannot at all"),
                (2, 2, 2, "not acknowledged in time"),
            ]
            assert broker.subscribers.get("ann").cursor == 2
            assert await poll(broker) == [(3, 2)]
            assert await broker.shared.acknowledge("ann", [1]) == 0
            assert await broker.shared.replay("ann", [1]) == 1
            assert await broker.shared.replay("ann") == 1  # 1 is on its way
            assert await poll(broker) == [(1, 1), (2, 1)]
            assert len(await letters(broker)) == 2
            assert await broker.shared.acknowledge("ann", [1]) == 1
            assert [first for first, *_ in await letters(broker)] == [2]
            # The other one fails once more, and is the dead letter that it was.
            for _ in range(2):
                inbox.reject([2], "never", 0.0)
                await poll(broker)
            inbox.reject([2], "never", 0.0)
            await broker.shared.sweep()
            assert await poll(broker) == []
            assert await letters(broker) == [(2, 2, 2, "not acknowledged in time")]
            assert broker.subscribers.get("ann").cursor == 2
            assert await broker.shared.replay("ann") == 1
            broker.shared.discard("ann", None)
            assert await poll(broker) == []

    run(main)


def test_what_is_acknowledged_survives_a_crash_and_nothing_else(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path / "data") as broker:
            await prepare(broker, 6)
            assert len(await poll(broker, 4)) == 4
            broker.shared.get("ann").reject([2], "no")
            assert await broker.shared.acknowledge("ann", [3]) == 1
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        async with running(tmp_path / "crashed") as broker:
            described = await broker.subscribers.describe("ann")
            assert (described.mode, described.backlog, described.in_flight) == ("shared", 5, 0)
            assert await poll(broker) == [(1, 2), (2, 2), (4, 2)]
            assert await poll(broker) == [(5, 1), (6, 1)]

    run(main)


def test_a_dead_letter_is_stored_together_with_what_is_done(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path / "data") as broker:
            await prepare(broker, 2, max_deliveries=1)
            await poll(broker)
            inbox = broker.shared.get("ann")
            inbox.reject([1], "no")
            await inbox.bury()
            shutil.copytree(tmp_path / "data", tmp_path / "crashed")
        async with running(tmp_path / "crashed") as broker:
            assert broker.subscribers.get("ann").cursor == 1
            await broker.shared.sweep()
            assert [first for first, *_ in await letters(broker)] == [1, 2]

    run(main)


def test_the_last_delivery_is_the_last_after_a_restart_too(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 2, max_deliveries=1)
            assert await poll(broker, 1) == [(1, 1)]
        async with running(tmp_path) as broker:
            assert await poll(broker) == [(2, 1)]
            await broker.shared.sweep()
            assert await letters(broker) == [(1, 1, 1, "the broker was stopped")]

    run(main)


def test_from_a_cursor_to_sharing_and_back(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 6)
            await broker.shared.unshare("ann")
            await broker.shared.unshare("ann")  # again does nothing
            async with broker.notifications.stream("ann") as stream:
                assert [one.sequence for one in await stream.take(3)] == [1, 2, 3]
                await broker.notifications.acknowledge("ann", 2, wait=False)
                with pytest.raises(BrokerError, match="does not share"):
                    await broker.shared.acknowledge("ann", [1])
                await broker.shared.share("ann", Sharing())
                assert stream.closed
            assert await poll(broker) == [(3, 1), (4, 1), (5, 1), (6, 1)]
            with pytest.raises(BrokerError, match="one by one"):
                await broker.notifications.acknowledge("ann", 6)
            with pytest.raises(BrokerError, match="after which number"):
                broker.notifications.stream("ann", after=1)
            await broker.shared.acknowledge("ann", [3, 5])
            async with stream_of(broker) as stream:
                taking = asyncio.create_task(take(stream))
                await broker.shared.share("ann", Sharing(ack_seconds=5))  # only other settings
                assert not stream.closed
                await broker.shared.unshare("ann")
                assert await taking == []
            assert [
                one.sequence for one in await broker.notifications.poll("ann", after=None, limit=9)
            ] == [4, 5, 6]  # 5 comes again
            assert broker.store.reader.sharing() == []
        async with running(tmp_path) as broker:
            described = await broker.subscribers.describe("ann")
            assert (described.mode, described.cursor, described.backlog) == ("cursor", 3, 3)

    run(main)


def test_what_retention_took_is_not_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 3, max_deliveries=2)
            assert len(await poll(broker)) == 3
            inbox = broker.shared.get("ann")
            inbox.reject([1, 2], "")
            removed = broker.store.tidy(broker.clock() + 60, Retention(seconds=1))
            assert list(removed.dropped.values()) == [3]
            assert await poll(broker) == []
            assert broker.subscribers.get("ann").cursor == 2
            inbox.reject([3], "")
            inbox.book.settings = Sharing(max_deliveries=1)
            await broker.shared.sweep()
            assert await letters(broker) == []
            assert inbox.book.progress == Progress(3, {})

    run(main)


def test_an_acknowledgement_that_is_not_stored_is_refused_and_stored_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 2)
            await poll(broker)

            async def fail(*_: object, **__: object) -> None:
                raise StorageError("the disk is full")

            with monkeypatch.context() as patched:
                patched.setattr(broker.store, "commit", fail)
                with pytest.raises(StorageError):
                    await broker.shared.acknowledge("ann", [1])
            assert await broker.shared.acknowledge("ann", [1]) == 0  # it is tried again
            [row] = broker.store.reader.sharing()
            assert row.progress == Progress(2, {2: 1})

    run(main)


def test_a_letter_of_many_is_handed_out_one_by_one(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await prepare(broker, 3)
            await broker.shared.unshare("ann")
            async with Receiver(lambda request: 500) as receiver:
                webhook = Webhook(url=receiver.url, secret=SECRET, attempts=1)
                await broker.webhooks.put("ann", webhook)
                while not await letters(broker):
                    await asyncio.sleep(0.01)
                await broker.webhooks.delete("ann")
            assert [one[:3] for one in await letters(broker)] == [(1, 3, 1)]
            await broker.notifications.acknowledge("ann", 3)
            await broker.shared.share("ann", Sharing(max_in_flight=2))
            assert await broker.shared.replay("ann") == 2
            assert await poll(broker) == [(1, 1), (2, 1)]
            await broker.shared.acknowledge("ann", [1])
            assert [one[:3] for one in await letters(broker)] == [(2, 2, 1), (3, 3, 1)]

    run(main)


def test_a_webhook_takes_several_requests_at_a_time(tmp_path: Path) -> None:
    async def main() -> None:
        all_there = asyncio.Event()

        async def answer(request: dict[str, Any]) -> int:
            if receiver.now == 3:
                all_there.set()
            await all_there.wait()
            return 200

        async with Receiver(answer) as receiver, running(tmp_path) as broker:
            await prepare(broker, 3)
            await broker.webhooks.put("ann", Webhook(url=receiver.url, secret=SECRET, batch=1))
            await all_there.wait()
            while broker.subscribers.get("ann").cursor < 3:
                await asyncio.sleep(0.01)
            assert sorted(receiver.sequences) == [[1], [2], [3]]

    run(main)


def test_what_a_webhook_does_not_take_is_posted_alone_until_it_is_dead(tmp_path: Path) -> None:
    async def main() -> None:
        def answer(request: dict[str, Any]) -> int:
            numbers = [one["sequence"] for one in orjson.loads(request["body"])["notifications"]]
            return 500 if 2 in numbers else 200

        clock = Clock()
        async with Receiver(answer) as receiver, running(tmp_path, clock) as broker:
            await prepare(broker, 3, max_deliveries=3)
            await broker.webhooks.put("ann", Webhook(url=receiver.url, secret=SECRET))
            while not await letters(broker):
                clock.now += 1.0
                await asyncio.sleep(0.01)
            assert await letters(broker) == [(2, 2, 3, "answered 500")]
            assert receiver.sequences[0] == [1, 2, 3]
            assert sorted(receiver.sequences[1:]) == [[1], [2], [2], [3]]
            attempts = [
                one["headers"]["boxmatch-attempt"]
                for one, numbers in zip(receiver.requests, receiver.sequences, strict=True)
                if 2 in numbers
            ]
            assert attempts == ["1", "2", "3"]
            assert broker.subscribers.get("ann").cursor == 3

    run(main)


def test_a_receiver_that_is_gone_gives_back_what_it_had(tmp_path: Path) -> None:
    async def main() -> None:
        async with Receiver(lambda request: 410) as receiver, running(tmp_path) as broker:
            await prepare(broker, 3)
            await broker.webhooks.put("ann", Webhook(url=receiver.url, secret=SECRET))
            while (webhook := broker.webhooks.get("ann")) is None or not webhook.paused:
                await asyncio.sleep(0.01)
            assert await poll(broker) == [(1, 2), (2, 2), (3, 2)]
            assert len(receiver.requests) == 1

    run(main)
