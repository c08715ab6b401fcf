"""Three servers, three replicas, three workers, of which any may be killed or suspended at any
time, under load, while subscriptions come and go: event by event, who must get it gets it once.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import nats.errors
import pytest
from cluster import Cluster, Process
from jetstream import READER

from boxmatch.errors import RouteError
from boxmatch.nats.connection import Connection
from boxmatch.nats.messages import read_notification
from boxmatch.nats.names import Names, decode_token
from boxmatch.nats.operations import subscribe, unsubscribe
from boxmatch.nats.routes import Storage, create_route
from boxmatch.nats.settings import FeedSettings, RouteSettings

T = TypeVar("T")

ROUTE = "killed"
GROUPS = 5
SUBSCRIBERS = 8
PASSING = (nats.errors.Error, RouteError, TimeoutError, OSError)
KILLS = int(os.environ.get("BOXMATCH_KILLS", "200"))


async def insist(work: Callable[[], Awaitable[T]], seconds: float = 120.0) -> T:
    """Do it until it succeeds."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return await work()
        except PASSING:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.05)


@dataclass(eq=False)
class Subscription:
    """One of a subscriber, and which events it must get, by their numbers."""

    subscriber: str
    id: str
    group: int
    must_from: int = 0
    must_to: int | None = None
    """None: it is still there."""
    never_from: int | None = None


@dataclass
class Load:
    """What was published and subscribed to."""

    begun: int = 0
    """Events whose publishing has begun."""
    acknowledged: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    """Of events that were acknowledged, by number."""
    subscriptions: list[Subscription] = field(default_factory=list)


def group_of(number: int) -> int:
    return number * 7919 % GROUPS


class Torture:
    def __init__(self, cluster: Cluster, seed: int, ordered: bool) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.ordered = ordered
        self.names = Names.of(ROUTE)
        self.load = Load()
        self.ended = asyncio.Event()
        self.done: Counter[str] = Counter()

    async def run(self, kills: int) -> None:
        self.cluster.wait_listening()
        self.connection = await Connection(servers=tuple(self.cluster.urls), seconds=60).open()
        self.js = self.connection.jetstream(timeout=3)
        settings = RouteSettings(
            feeds={"e": FeedSettings(schema={"n": "int", "group": "int"})},
            ordered=self.ordered,
            ack_seconds=5,
        )
        storage = Storage(replicas=3, window_seconds=1800)
        await insist(lambda: create_route(self.js, ROUTE, settings, storage))
        for one in self.cluster.workers:
            one.start()
        tasks = [
            asyncio.create_task(work)
            for work in (self.publish(), self.come_and_go(), self.come_and_go())
        ]
        killing = asyncio.create_task(self.kill(kills))
        await asyncio.wait([killing, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self.ended.set()
        await killing
        await asyncio.gather(*tasks)
        await self.drained(self.load.begun - 1)
        await self.check()
        await self.connection.close()

    async def publish(self) -> None:
        load = self.load
        while not self.ended.is_set():
            number = load.begun
            load.begun += 1
            body = b'{"n":%d,"group":%d}' % (number, group_of(number))
            headers = {"Nats-Msg-Id": f"event {number}"}
            ack = await insist(
                lambda body=body, headers=headers: self.js.publish(  # type: ignore[misc]
                    self.names.feed("e"), body, headers=headers
                )
            )
            load.sequences[number] = ack.seq
            load.acknowledged = number + 1
            await asyncio.sleep(self.random.random() / 100)

    async def come_and_go(self) -> None:
        mine: list[Subscription] = []
        while not self.ended.is_set():
            if len(mine) < 6 or self.random.random() < 0.5:
                number = len(self.load.subscriptions)
                one = Subscription(
                    f"sub.{number % SUBSCRIBERS}", str(number), self.random.randrange(GROUPS)
                )
                self.load.subscriptions.append(one)
                filter = f"group = {one.group}"
                await insist(
                    lambda one=one, filter=filter: subscribe(  # type: ignore[misc]
                        self.connection, one.subscriber, one.id, filter, route=ROUTE
                    )
                )
                one.must_from = self.load.begun
                mine.append(one)
            else:
                one = mine.pop(self.random.randrange(len(mine)))
                last = self.load.acknowledged - 1
                await self.drained(last)
                one.must_to = last
                await insist(
                    lambda one=one: unsubscribe(  # type: ignore[misc]
                        self.connection, one.subscriber, one.id, route=ROUTE
                    )
                )
                one.never_from = self.load.begun
            await asyncio.sleep(self.random.random() / 5)

    async def kill(self, kills: int) -> None:
        for _ in range(kills):
            await asyncio.sleep(self.random.random())
            some: list[Process] = [*self.cluster.servers, *self.cluster.workers]
            one = self.random.choice(some)
            kind = self.random.choice(("kill", "suspend"))
            self.done[f"{kind} {one.name.split()[0]}"] += 1
            if kind == "kill":
                one.kill()
                await asyncio.sleep(self.random.random())
                one.start()
            else:
                one.suspend()
                await asyncio.sleep(self.random.choice((0.1, 0.5, 2.0, 8.0)) * self.random.random())
                one.resume()

    async def drained(self, number: int) -> None:
        """Until workers have acknowledged all events up to a number."""
        if number < 0:
            return
        last = self.load.sequences[number]
        deadline = time.monotonic() + 300
        while True:
            info = await insist(
                lambda: self.js.consumer_info(self.names.events, self.names.consumer(0, 1))
            )
            if info.ack_floor is not None and info.ack_floor.stream_seq >= last:
                return
            assert time.monotonic() < deadline, f"{info} does not reach {last}"
            await asyncio.sleep(0.1)

    async def check(self) -> None:
        by_sequence = {sequence: number for number, sequence in self.load.sequences.items()}
        assert len(by_sequence) == self.load.begun
        got: Counter[tuple[str, str, int]] = Counter()
        order: dict[str, list[int]] = defaultdict(list)
        for subscriber, subscriptions, sequence in await insist(self.read):
            number = by_sequence[sequence]
            order[subscriber].append(number)
            for id in subscriptions:
                got[subscriber, id, number] += 1
        messages = Counter((who, number) for who, its in order.items() for number in its)
        assert [one for one, count in messages.items() if count > 1] == []
        missing, wrong, due = [], [], 0
        for one in self.load.subscriptions:
            to = self.load.begun - 1 if one.must_to is None else one.must_to
            never = self.load.begun if one.never_from is None else one.never_from
            for number in range(self.load.begun):
                has = got.pop((one.subscriber, one.id, number), 0)
                matches = group_of(number) == one.group
                if matches and one.must_from <= number <= to:
                    due += 1
                    if not has:
                        missing.append((one, number))
                elif has and (not matches or number >= never):
                    wrong.append((one, number))
        inversions = sum(b < a for its in order.values() for a, b in pairwise(its))
        print(
            f"{self.load.begun} events, {len(self.load.subscriptions)} subscriptions, {due} due, "
            f"{sum(messages.values())} messages, {inversions} out of order, {dict(self.done)}"
        )
        assert (missing, wrong, dict(got)) == ([], [], {})
        assert due > 0
        if self.ordered:
            assert inversions == 0

    async def read(self) -> list[tuple[str, tuple[str, ...], int]]:
        stream = self.names.notifications
        state = (await self.js.stream_info(stream)).state
        pull = await self.js.pull_subscribe("", stream=stream, config=READER)
        found = []
        while len(found) < state.messages:
            for message in await pull.fetch(1000, timeout=10):
                one = read_notification(message.data)
                who = decode_token(message.subject.removeprefix(self.names.out("")))
                found.append((who, one.subscriptions, one.sequence))
        await pull.unsubscribe()
        return found


@pytest.mark.slow
@pytest.mark.parametrize(("ordered", "kills"), [(False, KILLS), (True, KILLS // 4)])
def test_who_must_get_an_event_gets_it_once(tmp_path: Path, ordered: bool, kills: int) -> None:
    with Cluster(tmp_path, 3, ROUTE) as cluster:
        asyncio.run(Torture(cluster, seed=1, ordered=ordered).run(kills))
