"""What is done to one feed, however long it takes, does not keep another one waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from boxmatch.broker.access.grant import OPEN
from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.http import bodies
from boxmatch.broker.settings import Settings
from boxmatch.errors import OverloadError
from boxmatch.model.schema import Schema
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.requests import Wanted


def run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), 60))


def events(*rows: dict[str, Any]) -> Events:
    return Events(list(rows), [orjson.dumps(row) for row in rows])


def spec(name: str, **more: Any) -> FeedSpec:
    return FeedSpec(name=name, spaces={name: Schema({"price": "float"})}, **more)


@asynccontextmanager
async def two_feeds(folder: Path, **settings: Any) -> AsyncIterator[Broker]:
    """A broker with the feeds `busy` and `quiet`, each with a subscription of ann's."""
    broker = Broker.open(Settings(data=folder, sync="normal", **settings))
    await broker.start()
    try:
        for name in ("busy", "quiet"):
            await broker.feeds.create(spec(name))
            await broker.subscriptions.put("ann", name, Wanted(feed=name, filter="price > 0"))
        yield broker
    finally:
        await broker.stop()


class Gate:
    """Holds whoever passes it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def hold(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def held(*args: Any, **more: Any) -> Any:
            self.reached.set()
            assert self.opened.wait(30)
            return method(*args, **more)

        return held


async def check_quiet(broker: Broker) -> None:
    """The quiet feed does all that a feed does."""
    receipt = await broker.pipeline.publish("quiet", events({"price": 1.0}))
    assert receipt.count == 1
    await broker.subscriptions.put("bob", "one", Wanted(feed="quiet", filter="price > 1"))
    many = {f"s{n}": Wanted(feed="quiet", filter=f"price > {n}") for n in range(20)}
    assert len(await broker.subscriptions.put_many("bob", many)) == 20
    assert (await broker.pipeline.publish("quiet", events({"price": 2.5}))).count == 1
    await broker.subscriptions.delete("bob", "one")
    assert (await broker.preview.dry_run("quiet", "price > 2")).matches == 1


WORK: dict[str, Callable[[Broker], Coroutine[Any, Any, object]]] = {
    "extend": lambda broker: broker.feeds.extend("busy", {"venue": "string"}),
    "match": lambda broker: broker.pipeline.publish("busy", events({"price": 1.0})),
    "put": lambda broker: broker.subscriptions.put("eve", "e", Wanted(feed="busy", filter={})),
    "remove": lambda broker: broker.subscriptions.delete("ann", "busy"),
}


@pytest.mark.parametrize("method", WORK)
def test_a_feed_whose_work_does_not_end_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    async def main() -> None:
        async with two_feeds(tmp_path) as broker:
            busy = broker.directory.feed("busy").feed
            gate = Gate()
            monkeypatch.setattr(busy, method, gate.hold(getattr(busy, method)))
            work = asyncio.create_task(WORK[method](broker))
            await asyncio.to_thread(gate.reached.wait)
            await check_quiet(broker)
            assert not work.done()
            gate.opened.set()
            await work

    run(main)


def test_operations_of_a_state_feed_delay_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with two_feeds(tmp_path) as broker:
            places = {"s": Schema({"x": "int"})}
            await broker.feeds.create(FeedSpec(name="s", kind="state", spaces=places))
            feed, gate = broker.state.feed("s"), Gate()
            monkeypatch.setattr(feed, "put_publication", gate.hold(feed.put_publication))
            work = asyncio.create_task(
                broker.state.put_publication("s", "p", regions={"region": {"x": 1}})
            )
            await asyncio.to_thread(gate.reached.wait)
            await check_quiet(broker)
            assert not work.done()
            gate.opened.set()
            await work

    run(main)


def test_a_feed_whose_queue_is_full_leaves_room_to_others(tmp_path: Path) -> None:
    async def main() -> None:
        async with two_feeds(tmp_path, queue_events=10) as broker:
            busy, gate = broker.directory.feed("busy").feed, threading.Event()
            broker.pipeline.call_soon(busy, lambda: gate.wait(30) and None)
            ten = events(*[{"price": 1.0}] * 10)
            sent = [asyncio.create_task(broker.pipeline.publish("busy", ten)) for _ in range(3)]
            while broker.pipeline.events < 10:
                await asyncio.sleep(0)
            assert (await broker.pipeline.publish("quiet", events({"price": 1.0}))).count == 1
            assert (await broker.pipeline.publish("quiet", ten)).count == 10
            assert busy.waiting == 10
            gate.set()
            await asyncio.gather(*sent)
            assert (broker.pipeline.events, broker.pipeline.nbytes) == (0, 0)

    run(main)


def test_all_feeds_together_have_the_room_of_two(tmp_path: Path) -> None:
    """Each feed may take as much as it leaves to the others."""

    async def main() -> None:
        async with two_feeds(tmp_path, queue_events=8) as broker:
            await broker.feeds.create(spec("third"))
            gate = threading.Event()
            for name in ("busy", "quiet", "third"):
                feed = broker.directory.feed(name).feed
                broker.pipeline.call_soon(feed, lambda: gate.wait(30) and None)
            one = events({"price": 1.0})
            sent = []
            for name, room in (("busy", 8), ("quiet", 4), ("third", 2)):
                sent += [asyncio.create_task(broker.pipeline.publish(name, one)) for _ in range(12)]
                await asyncio.sleep(0.01)
                assert broker.directory.feed(name).feed.waiting == room
            gate.set()
            await asyncio.gather(*sent)
            assert broker.pipeline.events == 0

    run(main)


def test_the_thread_of_a_feed_ends_when_it_is_idle_and_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("boxmatch.broker.feeds.feed_queue._IDLE", 0.01)

    async def main() -> None:
        async with two_feeds(tmp_path) as broker:
            for number in range(3):
                assert (await broker.pipeline.publish("busy", events({"price": 1.0}))).count == 1
                while any(thread.name == "matcher of busy" for thread in threading.enumerate()):
                    await asyncio.sleep(0.005)
                assert broker.pipeline.is_alive, number

    run(main)


def test_bodies_of_one_key_leave_room_to_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.05)

    async def main() -> None:
        budget = bodies.BodyBudget(40)
        scopes: list[dict[str, Any]] = [{} for _ in range(4)]
        await budget.take(scopes[0], 10, "ann")
        await budget.take(scopes[1], 10, "ann")
        with pytest.raises(OverloadError):
            await budget.take({}, 10, "ann")
        await budget.take(scopes[2], 10, "bob")
        waiting = asyncio.create_task(budget.take(scopes[3], 10, "bob"))
        await asyncio.sleep(0)
        assert not waiting.done()
        for scope in scopes[:3]:
            budget.give_back(scope)
        await waiting
        budget.give_back(scopes[3])
        everybody: list[dict[str, Any]] = [{} for _ in range(4)]
        for scope in everybody:  # without keys, nobody is another
            await budget.take(scope, 10, OPEN.id)

    run(main)


def test_what_belongs_to_a_feed_is_known_without_reading_it(tmp_path: Path) -> None:
    """Lists of large subscribers decode what they show, and nothing else."""

    async def main() -> None:
        async with two_feeds(tmp_path) as broker:
            many = {f"s{n:03}": Wanted(feed="quiet", filter=f"price > {n}") for n in range(300)}
            await broker.subscriptions.put_many("bob", many)
        broker = Broker.open(Settings(data=tmp_path, sync="normal"))
        await broker.start()
        try:
            page = broker.subscriptions.list("bob", after="s010", limit=3, feeds=["quiet"])
            assert [one.filter for one in page] == ["price > 11", "price > 12", "price > 13"]
            assert (await broker.subscribers.describe("bob")).feeds == ["quiet"]
            known = broker.subscribers.get("bob").subscriptions
            undecoded = [one for one in known.values() if isinstance(one.given, bytes)]
            assert len(undecoded) == 297
            await broker.feeds.drop("quiet")
            assert known == {}
            assert "busy" in broker.subscribers.get("ann").subscriptions
        finally:
            await broker.stop()

    run(main)
