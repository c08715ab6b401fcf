"""Workers that start from a snapshot know what those know that have read the whole bucket."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from jetstream import SCHEMA, TICKS, RouteOnServer, on_route, running, until

from boxmatch.nats import session as session_module
from boxmatch.nats.operations import subscribe, unsubscribe
from boxmatch.nats.router import Router
from boxmatch.nats.settings import FeedSettings, RouteSettings


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_LOOK_SECONDS", 0.05)


async def written(on: RouteOnServer, count: int = 1) -> None:
    """Until there is a snapshot, or so many were written."""

    async def there() -> bool:
        info = await on.js.stream_info(f"OBJ_{on.names.snapshots}")
        return info.state.last_seq >= 2 * count

    await until(there)


async def known(on: RouteOnServer, worker: Router) -> dict[str, Any]:
    """What a worker knows, and whether it has read a snapshot."""
    session = worker._session
    assert session is not None
    its = session._subscriptions
    return {
        "ids": {feed: sorted(map(str, one.ids())) for feed, one in its.matchers.items()},
        "refused": set(its.refused),
        "snapshot": its.revision > 0,
    }


def test_a_worker_that_starts_from_a_snapshot_knows_all(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        chosen = random.Random(3)
        feeds = {"ticks": FeedSettings(schema=SCHEMA), "open": FeedSettings()}
        await on.create(RouteSettings(feeds=feeds, ack_seconds=2))
        bad = on.names.subscription("bob", "bad")
        await on.js.publish(bad, b'{"feed":"ticks","filter":"price <"}')
        for number in range(60):
            who, feed = f"s{number % 7}", chosen.choice(("ticks", "open"))
            filter = f"price > {number}" if number % 3 else f"symbol = 'a{number}'"
            await subscribe(on.connection, who, str(number), filter, feed=feed, route=on.route)
        async with on.workers(snapshot_changes=50) as (first,):
            await written(on)
            for number in range(0, 60, 4):
                await unsubscribe(on.connection, f"s{number % 7}", str(number), route=on.route)
            await subscribe(on.connection, "late", "x", "price > 5", feed="ticks", route=on.route)
            await on.publish({"price": 50.0})
            await on.drained()
            before = await known(on, first)
        async with on.workers() as (second,):
            after = await known(on, second)
            assert after == before | {"snapshot": True}
            sequence = await on.publish({"price": 30.0})
            await on.drained()
        fresh = Router(on.connection, on.route)
        fresh.distrusts_snapshots = True
        async with running(fresh):
            assert await known(on, fresh) == before
            assert before["refused"] == {"bob.bad"}
            again = await on.publish({"price": 30.0})
            await on.drained()
        found = await on.matched()
        by_sequence = [
            Counter((who, id) for who, at, _, id in found if at == one) for one in (sequence, again)
        ]
        assert by_sequence[0] == by_sequence[1] != Counter()

    on_route(url, test)


def test_snapshots_that_are_of_no_use(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        for number in range(40):
            await subscribe(on.connection, "ann", str(number), "price > 1", route=on.route)
        async with on.workers(snapshot_changes=30):
            await written(on)

        async def start() -> bool:
            async with on.workers() as (worker,):
                return bool((await known(on, worker))["snapshot"])

        assert await start()
        settings = RouteSettings(feeds={**TICKS.feeds, "more": FeedSettings()})
        await on.create(settings)  # which has other matchers
        assert not await start()
        await on.create()
        assert await start()
        store = await on.js.object_store(on.names.snapshots)
        await store.put(on.names.consumer(0, 1), b"damaged")
        assert not await start()
        await on.js.delete_stream(on.names.bucket)
        await on.create()
        await subscribe(on.connection, "bob", "1", "price > 1", route=on.route)
        async with on.workers() as (worker,):
            assert (await known(on, worker))["ids"] == {"ticks": ["bob.1"]}
        await on.js.delete_stream(f"OBJ_{on.names.snapshots}")
        assert not await start()

    on_route(url, test)


def test_a_snapshot_of_another_bucket(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        for number in range(40):
            await subscribe(on.connection, "ann", str(number), "price > 1", route=on.route)
        async with on.workers(snapshot_changes=30):
            await written(on)
        await on.js.delete_stream(on.names.bucket)
        await on.create()
        for number in range(60):
            await subscribe(on.connection, "bob", str(number), "price > 1", route=on.route)
        async with on.workers() as (worker,):
            found = await known(on, worker)
            assert not found["snapshot"]
            assert len(found["ids"]["ticks"]) == 60

    on_route(url, test)
