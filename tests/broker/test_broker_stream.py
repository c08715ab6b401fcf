"""A stream of notifications: in order, each once, from memory or from disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscribers import Subscriber

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(main, 20))


def notification(sequence: int, size: int = 2) -> Notification:
    return Notification(sequence, "ticks", 0.0, ["s"], b"{" + b" " * (size - 2) + b"}")


class Disk:
    """Notifications that are stored; reading takes a moment, in which more may come."""

    def __init__(self, rng: random.Random | None = None) -> None:
        self.notifications: list[Notification] = []
        self.reads = 0
        self._rng = rng

    async def read(self, subscriber: int, after: int, limit: int) -> list[Notification]:
        self.reads += 1
        if self._rng is not None and self._rng.random() < 0.5:
            await asyncio.sleep(0)
        found = [one for one in self.notifications if one.sequence > after][:limit]
        if self._rng is not None and self._rng.random() < 0.5:
            await asyncio.sleep(0)
        return found


def commit(subscriber: Subscriber, disk: Disk, *sequences: int, size: int = 2) -> None:
    notifications = [notification(sequence, size) for sequence in sequences]
    disk.notifications += notifications
    subscriber.place(sequences[-1])
    for stream in tuple(subscriber.streams):
        stream.offer(notifications)


def test_who_keeps_up_is_served_from_memory() -> None:
    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk()
        async with NotificationStream(subscriber, disk.read, 0) as stream:
            commit(subscriber, disk, 1, 2)
            commit(subscriber, disk, 5)
            assert [one.sequence for one in await stream.take(2)] == [1, 2]
            assert [one.sequence for one in await stream.take(9)] == [5]
            assert disk.reads == 0
            assert subscriber.delivered == 3
        assert subscriber.streams == set()

    run(main())


def test_who_is_slow_reads_from_disk_and_catches_up() -> None:
    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk()
        async with NotificationStream(subscriber, disk.read, 0, capacity=3) as stream:
            commit(subscriber, disk, 1, 2)
            commit(subscriber, disk, 3, 4)
            commit(subscriber, disk, 5)
            assert [one.sequence for one in await stream.take(3)] == [1, 2]
            assert [one.sequence for one in await stream.take(3)] == [3, 4, 5]
            waiting = asyncio.create_task(stream.take(3))
            await asyncio.sleep(0.01)
            reads = disk.reads
            commit(subscriber, disk, 6)
            assert [one.sequence for one in await waiting] == [6]
            assert disk.reads == reads  # from memory again

    run(main())


def test_large_notifications_wait_on_disk() -> None:
    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk()
        async with NotificationStream(subscriber, disk.read, 0, capacity_bytes=100) as stream:
            commit(subscriber, disk, 1, 2, size=50)
            assert [one.sequence for one in await stream.take(1)] == [1]
            commit(subscriber, disk, 3, size=50)
            assert [one.sequence for one in await stream.take(9)] == [2, 3]
            commit(subscriber, disk, 4, size=100)
            assert [one.sequence for one in await stream.take(9)] == [4]
            assert disk.reads == 0  # there was room for these
            commit(subscriber, disk, 5, size=60)
            commit(subscriber, disk, 6, size=60)
            assert [one.sequence for one in await stream.take(9)] == [5]
            assert [one.sequence for one in await stream.take(9)] == [6]
            commit(subscriber, disk, 7, size=101)
            assert [one.sequence for one in await stream.take(9)] == [7]
            assert disk.reads >= 2

    run(main())


def test_what_was_there_before_is_read_first() -> None:
    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk()
        subscriber.place(3)
        disk.notifications = [notification(1), notification(2), notification(3)]
        async with NotificationStream(subscriber, disk.read, 1) as stream:
            commit(subscriber, disk, 4)
            got: list[int] = []
            while len(got) < 3:
                got += [one.sequence for one in await stream.take(1)]
            assert got == [2, 3, 4]

    run(main())


def test_closing_wakes_the_reader() -> None:
    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk()
        async with NotificationStream(subscriber, disk.read, 0) as stream:
            waiting = asyncio.create_task(stream.take(1))
            await asyncio.sleep(0)
            stream.close()
            assert await waiting == []
            assert await stream.take(1) == []

    run(main())


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_or_told_twice_whatever_the_order(seed: int) -> None:
    rng = random.Random(seed)

    async def main() -> None:
        subscriber, disk = Subscriber(1, "o"), Disk(rng)
        total, sequence = 60, 0
        got: list[int] = []

        async def produce() -> None:
            nonlocal sequence
            while sequence < total:
                fresh = list(range(sequence + 1, min(sequence + rng.randint(1, 5), total) + 1))
                sequence = fresh[-1]
                if rng.random() < 0.3:  # durable a moment before anybody is told
                    notifications = [notification(one) for one in fresh]
                    disk.notifications += notifications
                    await asyncio.sleep(0)
                    subscriber.place(sequence)
                    for stream in tuple(subscriber.streams):
                        stream.offer(notifications)
                else:
                    commit(subscriber, disk, *fresh)
                if rng.random() < 0.7:
                    await asyncio.sleep(0)

        async def consume() -> None:
            async with NotificationStream(
                subscriber, disk.read, 0, capacity=rng.randint(1, 10)
            ) as stream:
                while len(got) < total:
                    got.extend(one.sequence for one in await stream.take(rng.randint(1, 7)))
                    if rng.random() < 0.4:
                        await asyncio.sleep(0)

        await asyncio.gather(produce(), consume())
        assert got == list(range(1, total + 1))

    run(main())
