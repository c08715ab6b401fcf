"""State feeds: enter, leave and deleted, as the library tells them, and durable."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from test_broker_core import all_notifications, run, running  # in this folder

import boxmatch as bm
from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscribers import Slots, Subscriber, Subscription
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Wanted

ZONES = FeedSpec(name="zones", kind="state", spaces={"map": Schema({"x": "int", "y": "int"})})


def inside(x: tuple[int, int], y: tuple[int, int], **more: Any) -> Wanted:
    return Wanted(feed="zones", regions={"region": {"x": list(x), "y": list(y)}}, **more)


def told(notifications: list[Notification]) -> list[tuple[int, str, str, list[str]]]:
    listed = []
    for notification in notifications:
        change = orjson.loads(notification.to_json())["change"]
        listed.append(
            (
                notification.sequence,
                change["kind"],
                change["publication"],
                sorted(notification.subscriptions),
            )
        )
    return listed


async def put(broker: Broker, publication: str, x: int, y: int, **more: Any) -> None:
    regions = {"region": {"x": x, "y": y}}
    await broker.state.put_publication("zones", publication, regions=regions, **more)


def test_transitions_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
            await broker.subscriptions.put("ann", "west", inside((0, 5), (0, 99)))
            async with broker.notifications.stream("ann") as stream:
                await put(broker, "car", 3, 3)
                await put(broker, "car", 4, 3)  # nothing begins or ceases to match
                await put(broker, "car", 7, 3)
                changes = {"region": {"x": 50}}
                await broker.state.patch_publication("zones", "car", regions=changes)
                await broker.state.retract("zones", "car")
                await put(broker, "van", 1, 1)
                await broker.state.retract("zones", "van")
                got: list[Notification] = []
                while len(got) < 5:
                    got += await stream.take(10)
            assert told(got) == [
                (1, "enter", "car", ["home", "west"]),
                (2, "leave", "car", ["west"]),
                (3, "leave", "car", ["home"]),
                (4, "enter", "van", ["home", "west"]),
                (5, "deleted", "van", ["home", "west"]),
            ]
            last = orjson.loads(got[-1].body)
            assert last["regions"] == {"region": {"x": 1, "y": 1}}
            with pytest.raises(bm.UnknownMemberError):
                broker.state.publication("zones", "car")
            with pytest.raises(bm.BrokerError, match="give regions, not a filter"):
                await broker.subscriptions.put("ann", "s", Wanted(feed="zones", filter="x > 1"))
            with pytest.raises(bm.RegionError, match="'z'"):
                await broker.state.put_publication("zones", "p", regions={"r": {"z": 1}})

    run(main)


def test_all_of_it_is_there_again(tmp_path: Path) -> None:
    async def first() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
            await put(broker, "car", 3, 3)
            await put(broker, "van", 30, 3, ttl=3600.0)

    async def second() -> None:
        async with running(tmp_path) as broker:
            assert broker.feeds.get("zones").publications == 2
            assert broker.state.publication("zones", "van").expires is not None
            await put(broker, "car", 4, 4)
            await put(broker, "van", 5, 5)
            await put(broker, "car", 20, 4)
            assert told(await all_notifications(broker, "ann")) == [
                (1, "enter", "car", ["home"]),
                (2, "enter", "van", ["home"]),
                (3, "leave", "car", ["home"]),
            ]
            await broker.subscriptions.put("bob", "all", inside((0, 99), (0, 99)))
            assert [one[1:3] for one in sorted(told(await all_notifications(broker, "bob")))] == [
                ("enter", "car"),
                ("enter", "van"),
            ]

    run(first)
    run(second)


def test_what_expires_is_told_once(tmp_path: Path) -> None:
    now = [1_000.0]

    async def main(kinds: list[str]) -> None:
        async with running(tmp_path) as broker:
            broker.state._clock = broker.subscriptions._clock = lambda: now[0]
            feed = broker.state.feed("zones") if broker.feeds.list() else None
            if feed is None:
                await broker.feeds.create(ZONES)
                feed = broker.state.feed("zones")
                feed._clock = lambda: now[0]
                await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
                await broker.subscriptions.put("ann", "brief", inside((0, 10), (0, 10), ttl=5.0))
                await put(broker, "car", 3, 3, ttl=10.0)
                now[0] += 20
            feed._clock = lambda: now[0]
            feed._frozen.now = now[0]
            await broker.state.expire()
            notifications = told(await all_notifications(broker, "ann"))
            assert [one[1] for one in notifications] == kinds
            assert [one.id for one in broker.subscriptions.list("ann")] == ["home"]
            assert broker.feeds.get("zones").publications == 0

    kinds = ["enter", "leave", "deleted"]
    run(lambda: main(kinds))
    run(lambda: main(kinds))


def test_many_operations_against_the_library(tmp_path: Path) -> None:
    rng = random.Random(3)

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            truth = bm.Spaces(ZONES.spaces)
            expected: list[tuple[str, str, str]] = []
            for _ in range(200):
                id = f"{rng.choice('abc')}"
                x, y = rng.randrange(20), rng.randrange(20)
                act = rng.random()
                if act < 0.5:
                    known = id in set(truth.publications())
                    operation = truth.update_publication if known else truth.publish
                    expected += [one[1:] for one in operation(id, {"x": x, "y": y})]
                    await put(broker, id, x, y)
                elif act < 0.6 and id in set(truth.publications()):
                    expected += [one[1:] for one in truth.retract(id)]
                    await broker.state.retract("zones", id)
                elif act < 0.9:
                    spec = {"x": (x, x + 8), "y": (y, y + 8)}
                    known = id in set(truth.subscriptions())
                    operation = truth.update_subscription if known else truth.subscribe
                    expected += [one[1:] for one in operation(id, spec)]
                    await broker.subscriptions.put("ann", id, inside((x, x + 8), (y, y + 8)))
                elif id in set(truth.subscriptions()):
                    truth.unsubscribe(id)
                    await broker.subscriptions.delete("ann", id)
            got = told(await all_notifications(broker, "ann"))
            flat = [(kind, publication, one) for _, kind, publication, ids in got for one in ids]
            assert sorted(flat) == sorted(expected)
            assert len(expected) > 50

    run(main)


def test_a_failed_commit_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
            await put(broker, "car", 3, 3)

            def fail(*_: Any, **__: Any) -> None:
                raise bm.StorageError("the disk is full")

            with monkeypatch.context() as patch:
                patch.setattr("boxmatch.broker.store.StoreTransaction.put_member", fail)
                with pytest.raises(bm.StorageError, match="full"):
                    await put(broker, "car", 30, 3)
            assert broker.state.publication("zones", "car").regions["region"]["x"].low == 3
            await put(broker, "car", 31, 3)
            await asyncio.sleep(0)
            assert [one[1] for one in told(await all_notifications(broker, "ann"))] == [
                "enter",
                "leave",
            ]

    run(main)


def test_time_passes_by_itself(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
            async with broker.notifications.stream("ann") as stream:
                await put(broker, "car", 3, 3, ttl=0.2)
                got: list[Notification] = []
                while len(got) < 2:
                    got += await stream.take(10)
            assert [one[1] for one in told(got)] == ["enter", "deleted"]
            assert orjson.loads(got[1].body)["regions"] == {"region": {"x": 3, "y": 3}}
            assert broker.feeds.get("zones").publications == 0

    run(main)


def test_what_expires_in_an_operation_that_fails_is_told_by_the_next(tmp_path: Path) -> None:
    now = [1_000.0]

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            broker.state.feed("zones")._clock = lambda: now[0]
            await broker.subscriptions.put("ann", "home", inside((0, 10), (0, 10)))
            await put(broker, "car", 3, 3, ttl=10.0)
            now[0] += 20
            with pytest.raises(bm.UnknownMemberError):
                await broker.state.retract("zones", "nothing")
            await put(broker, "van", 50, 50)
            changes = [orjson.loads(one.body) for one in await all_notifications(broker, "ann")]
            assert [one["kind"] for one in changes] == ["enter", "deleted"]
            assert changes[1]["regions"] == {"region": {"x": 3, "y": 3}}

    run(main)

    async def again() -> None:
        async with running(tmp_path) as broker:
            assert broker.feeds.get("zones").publications == 1

    run(again)


def test_what_expires_before_operations_that_fail_is_let_go_once(tmp_path: Path) -> None:
    """Else its slot would be given to two."""
    now = [1_000.0]

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            broker.state.feed("zones")._clock = lambda: now[0]
            for turn in range(4):
                await broker.subscriptions.put("ann", f"t{turn}", inside((0, 9), (0, 9), ttl=5.0))
                now[0] += 10
                with pytest.raises(bm.UnknownMemberError):
                    await broker.state.retract("zones", "none")
            for subscriber in ("ann", "bob"):
                for number in range(4):
                    await broker.subscriptions.put(subscriber, f"s{number}", inside((0, 9), (0, 9)))
            await put(broker, "car", 3, 3)
            ids = [f"s{number}" for number in range(4)]
            for subscriber in ("ann", "bob"):
                assert [one[1:] for one in told(await all_notifications(broker, subscriber))] == [
                    ("enter", "car", ids)
                ]
                assert [one.id for one in broker.subscriptions.list(subscriber)] == ids

    run(main)


def test_a_subscription_that_has_expired_can_be_put_again(tmp_path: Path) -> None:
    """It is a new one, also if nobody has noticed yet that its time is over."""
    now = [1_000.0]

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            broker.state.feed("zones")._clock = lambda: now[0]
            await broker.subscriptions.put("ann", "brief", inside((0, 9), (0, 9), ttl=5.0))
            await put(broker, "car", 3, 3)
            now[0] += 10
            await broker.subscriptions.put("ann", "brief", inside((0, 9), (0, 9)))
            kinds = [one[1] for one in told(await all_notifications(broker, "ann"))]
            assert kinds == ["enter", "leave", "enter"]
            now[0] += 10
            await broker.subscriptions.delete("ann", "brief")

    run(main)


def test_a_subscription_that_was_just_put_is_known_after_a_step_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the commit and the answer an operation fails, and all is read from the disk again."""

    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ZONES)
            feed = broker.state.feed("zones")
            land = broker.pipeline.call_in_loop
            held: list[Callable[[], None]] = []
            monkeypatch.setattr(broker.pipeline, "call_in_loop", held.append)
            putting = asyncio.ensure_future(
                broker.subscriptions.put("ann", "home", inside((0, 9), (0, 9)))
            )
            while not held:
                await asyncio.sleep(0.01)
            feed.failed = feed.epoch  # as if one could not be stored
            failing = asyncio.ensure_future(put(broker, "car", 3, 3))
            while not feed.epoch:
                await asyncio.sleep(0.01)
            await broker.pipeline.call(feed, lambda: None)
            monkeypatch.undo()
            for call in held:
                land(call)
            with pytest.raises(bm.StorageError):
                await failing
            await putting
            await broker.subscriptions.put("ann", "home", inside((0, 5), (0, 5)))
            assert broker.feeds.get("zones").subscriptions == 1
            await put(broker, "car", 3, 3)
            assert [one[1:] for one in told(await all_notifications(broker, "ann"))] == [
                ("enter", "car", ["home"])
            ]
            await broker.subscriptions.delete("ann", "home")
            assert broker.feeds.get("zones").subscriptions == 0

    run(main)


def test_a_slot_is_freed_once() -> None:
    slots = Slots("zones")
    slot = slots.add(Subscription(Subscriber(1, "ann"), "s", inside((0, 9), (0, 9)), 0.0, 0.0))
    assert slots.remove(slot).id == "s"
    with pytest.raises(bm.BrokerError, match="no subscription has slot 0"):
        slots.remove(slot)
    assert len(slots) == 0
