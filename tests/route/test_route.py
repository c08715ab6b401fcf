"""What subscribers of a route get: compared with a scan over all subscriptions."""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Any

import nats
import orjson
import pytest
from jetstream import SCHEMA, TICKS, RouteOnServer, brute_force, on_route, running, until_true

from boxmatch.errors import FilterError, RouteError
from boxmatch.nats import session as session_module
from boxmatch.nats.bucket import Change
from boxmatch.nats.connection import Connection
from boxmatch.nats.operations import publish, status, subscribe, unsubscribe
from boxmatch.nats.router import Router
from boxmatch.nats.settings import FeedSettings, RouteSettings
from boxmatch.nats.subscriptions import RouteSubscriptions, shard_of
from boxmatch.wire.http import ARROW, CLOUDEVENT, CLOUDEVENTS, NDJSON

SYMBOLS = ("IBM", "ACME", "NATS")


def random_filter(random: random.Random) -> str:
    low = random.randrange(100)
    kinds = (
        f"price BETWEEN {low} AND {low + 20}",
        f"symbol = '{random.choice(SYMBOLS)}'",
        f"symbol = '{random.choice(SYMBOLS)}' AND price < {low}",
        f"symbol IS NULL OR price > {low}",
    )
    return random.choice(kinds)


def random_event(random: random.Random) -> dict[str, Any]:
    event: dict[str, Any] = {"price": random.randrange(1000) / 8}
    if random.random() < 0.8:
        event["symbol"] = random.choice(SYMBOLS)
    return event


@pytest.mark.parametrize(
    ("workers", "ordered", "shards"), [(1, False, 1), (2, True, 1), (1, False, 2)]
)
def test_subscribers_get_what_a_scan_finds(
    url: str, workers: int, ordered: bool, shards: int
) -> None:
    async def test(on: RouteOnServer) -> None:
        chosen = random.Random(f"{workers}{ordered}{shards}")
        settings = RouteSettings(feeds=TICKS.feeds, ordered=ordered, shards=shards)
        await on.create(settings)
        wanted = {
            (f"who {number % 40}", f"id.{number}"): random_filter(chosen) for number in range(200)
        }
        for (who, id), filter in wanted.items():
            await subscribe(on.connection, who, id, filter, route=on.route)
        routers = [
            Router(on.connection, on.route, shard=shard, batch=50)
            for shard in range(shards)
            for _ in range(workers)
        ]
        async with running(*routers):
            events = []
            for _ in range(60):
                some = [random_event(chosen) for _ in range(chosen.choice((1, 1, 3)))]
                body = orjson.dumps(some[0] if len(some) == 1 else some)
                sequence = await on.publish(body)
                events += [(sequence, index, event) for index, event in enumerate(some)]
            for shard in range(shards):
                await on.drained(shard, shards)
        assert await on.matched() == brute_force(SCHEMA, wanted, events)
        if workers == 1 or ordered:
            by_subscriber: dict[str, list[tuple[int, int]]] = {}
            received = await on.received()
            for who, one in zip(on.subscribers, received, strict=True):
                by_subscriber.setdefault(who, []).append((one.sequence, one.index))
            assert all(places == sorted(places) for places in by_subscriber.values())
        for one in await on.received():
            assert one.feed == "ticks"
            assert one.stream == on.names.events
            assert one.revision >= len(wanted)

    on_route(url, test)


def test_what_was_acknowledged_before_an_event_counts_for_it(url: str) -> None:
    """Whichever worker gets it, and however quickly the event follows."""

    async def test(on: RouteOnServer) -> None:
        await on.create()
        expected: Counter[tuple[str, int, int, str]] = Counter()
        other = await nats.connect(url)
        async with on.workers(3):
            for number in range(150):
                filter = f"price = {number}"
                await subscribe(other, "ann", str(number), filter, route=on.route)
                sequence = await on.publish({"price": float(number)})
                expected["ann", sequence, 0, str(number)] += 1
            await on.drained()
            assert await on.matched() == expected
            for number in range(30):
                await unsubscribe(other, "ann", str(number), route=on.route)
                await on.publish({"price": float(number)})
            await on.drained()
        await other.close()
        assert await on.matched() == expected

    on_route(url, test)


def test_messages_may_hold_events_in_every_format(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        import pyarrow as pa

        event = {"specversion": "1.0", "id": "1", "source": "/a", "type": "tick"}
        rows = [{"symbol": "IBM", "price": 1.0}, {"symbol": None, "price": 200.0}]
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        arrow = sink.getvalue().to_pybytes()
        feeds = {
            "ticks": FeedSettings(schema=SCHEMA),
            "lines": FeedSettings(schema=SCHEMA, format="ndjson"),
            "clouds": FeedSettings(schema={"type": "string", "data.price": "float"}),
            "open": FeedSettings(),
        }
        await on.create(RouteSettings(feeds=feeds))
        for feed in ("ticks", "lines", "open"):
            filter = "price > 100"
            await subscribe(on.connection, feed, "high", filter, feed=feed, route=on.route)
        await subscribe(
            on.connection, "clouds", "high", "data.price > 100", feed="clouds", route=on.route
        )
        lines = b'{"price": 1.0}\n{"price": 300.0}\r\n'
        cloud = orjson.dumps({**event, "data": {"price": 400.0}})
        two_clouds = b"[%b,%b]" % (cloud, cloud)
        async with on.workers():
            sent = [
                ("ticks", await on.publish(arrow, Content_Type=ARROW), 1),
                ("ticks", await on.publish(lines, Content_Type=NDJSON), 1),
                ("lines", await on.publish(lines, "lines"), 1),
                ("open", await on.publish({"price": 500, "more": {"deep": [1]}}, "open"), 0),
                ("clouds", await on.publish(cloud, "clouds", Content_Type=CLOUDEVENT), 0),
                (
                    "clouds",
                    await on.publish(
                        b'{"price": 600.0}', "clouds", Content_Type="application/json",
                        ce_specversion="1.0", ce_id="2", ce_source="/a", ce_type="tick",
                    ),
                    0,
                ),
                (
                    "clouds",
                    await on.publish(two_clouds, "clouds", Content_Type=CLOUDEVENTS),
                    0,
                ),
            ]  # fmt: skip
            sent.append(("clouds", sent[-1][1], 1))
            await on.drained()
        assert await on.matched() == Counter((who, *place, "high") for who, *place in sent)
        bodies = {(one.sequence, one.index): one.event for one in await on.received()}
        assert bodies[sent[0][1], 1] == {"price": 200.0}
        assert bodies[sent[3][1], 0] == {"price": 500, "more": {"deep": [1]}}
        assert bodies[sent[5][1], 0]["data"] == {"price": 600.0}

    on_route(url, test)


def test_names_of_subscribers_and_ids_may_be_anything(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        names = ["a b.c", "*", ">", "Zoë", "日本", "=41", "x" * 100]
        for name in names:
            await subscribe(on.connection, name, name, "price > 0", route=on.route)
        async with on.workers():
            sequence = await on.publish({"price": 1.0})
            await on.drained()
        assert await on.matched() == Counter((name, sequence, 0, name) for name in names)
        for bad in ("", "x" * 201, "\ud800"):
            with pytest.raises(RouteError, match="name"):
                await subscribe(on.connection, bad, "id", "price > 0", route=on.route)

    on_route(url, test)


def test_subscribing_checks_before_it_writes(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        with pytest.raises(RouteError, match="there is no route 'test"):
            await subscribe(on.connection, "ann", "one", "price > 1", route=on.route)
        two = {"ticks": FeedSettings(schema=SCHEMA), "more": FeedSettings()}
        await on.create(RouteSettings(feeds=two))
        with pytest.raises(RouteError, match=r"several feeds.* ticks, more"):
            await subscribe(on.connection, "ann", "one", "price > 1", route=on.route)
        with pytest.raises(RouteError, match=r"no feed 'tick'; there are 'ticks', 'more'"):
            await subscribe(on.connection, "ann", "one", "price > 1", feed="tick", route=on.route)
        with pytest.raises(FilterError, match="prize"):
            await subscribe(on.connection, "ann", "one", "prize > 1", feed="ticks", route=on.route)
        found = await status(on.connection, route=on.route)
        assert (found.keys, found.revision) == (0, 1)
        with pytest.raises(RouteError, match="a mapping, not 3"):
            await publish(on.connection, [3], feed="ticks", route=on.route)  # type: ignore[list-item]
        events = [{"price": float(n)} for n in range(5)]
        ids = list("aabbc")
        stored = await publish(on.connection, events, feed="ticks", ids=ids, route=on.route)
        assert stored == 3
        assert (await status(on.connection, route=on.route)).events == 3

    on_route(url, test)


def test_settings_that_change_reach_workers(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers(2) as workers:
            feeds = {**TICKS.feeds, "more": FeedSettings(schema={"size": "int"})}
            await on.create(RouteSettings(feeds=feeds))
            await subscribe(on.connection, "bob", "two", "size > 0", feed="more", route=on.route)
            first = await on.publish({"price": 1.0})
            second = await on.publish({"size": 3}, "more")
            await on.drained()
            # A worker that got none of these events reads the bucket a moment later.
            await until_true(lambda: all(one.metrics.look("subscriptions") == 2 for one in workers))
        expected = [("ann", first, 0, "one"), ("bob", second, 0, "two")]
        assert await on.matched() == Counter(expected)

    on_route(url, test)


def test_a_subscription_may_move_to_another_feed(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        feeds = {name: FeedSettings(schema=SCHEMA) for name in ("a", "b")}
        await on.create(RouteSettings(feeds=feeds))
        async with on.workers():
            await subscribe(on.connection, "ann", "one", "price > 0", feed="a", route=on.route)
            first = await on.publish({"price": 1.0}, "a")
            await on.drained()
            await subscribe(on.connection, "ann", "one", "price > 0", feed="b", route=on.route)
            await on.publish({"price": 1.0}, "a")
            third = await on.publish({"price": 1.0}, "b")
            await on.drained()
        assert await on.matched() == Counter([("ann", first, 0, "one"), ("ann", third, 0, "one")])

    on_route(url, test)


def test_another_number_of_shards_goes_on_where_the_old_ones_are(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        who = [f"s{number}" for number in range(20)]
        for one in who:
            await subscribe(on.connection, one, "id", "price > 0", route=on.route)
        first = await on.publish({"price": 1.0})
        async with on.workers():
            await on.drained()
        second = await on.publish({"price": 1.0})
        await on.create(RouteSettings(feeds=TICKS.feeds, shards=3))
        with pytest.raises(RouteError, match="has shards 0 to 2, so none is 3"):
            await Router(on.connection, on.route, shard=3).run()
        routers = [Router(on.connection, on.route, shard=shard) for shard in range(3)]
        async with running(*routers):
            for shard in range(3):
                await on.drained(shard, 3)
            held = [router.metrics.look("subscriptions") for router in routers]
        assert sum(held) == 20
        assert held == [sum(shard_of(one, 3) == shard for one in who) for shard in range(3)]
        sequences = (first, second)
        assert await on.matched() == Counter((one, n, 0, "id") for one in who for n in sequences)

    on_route(url, test)


def test_a_stream_of_others_is_read_from_where_it_is_said(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        stream = f"{on.route}-theirs"
        feeds = {"orders": FeedSettings(subject=f"{on.route}.orders.*.new", schema=SCHEMA)}
        with pytest.raises(RouteError, match="there is no stream"):
            await on.create(RouteSettings(feeds=feeds, stream=stream))
        await on.js.add_stream(name=stream, subjects=[f"{on.route}.orders.>"])
        for end in ("1.new", "1.old"):
            await on.js.publish(f"{on.route}.orders.{end}", b'{"price": 1.0}')
        await on.create(RouteSettings(feeds=feeds, stream=stream), start="all")
        await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
        async with on.workers():
            await on.drained(stream=stream, through=1)
            ack = await on.js.publish(f"{on.route}.orders.2.new", b'{"price": 1.0}')
            await on.drained(stream=stream)
        assert await on.matched() == Counter([("ann", n, 0, "one") for n in (1, ack.seq)])
        with pytest.raises(RouteError, match="many subjects"):
            await publish(on.connection, [{"price": 1.0}], route=on.route)

    on_route(url, test)


def test_a_worker_may_have_a_connection_of_its_own(url: str) -> None:
    async def test(on: RouteOnServer) -> None:
        await on.create()
        worker = Router(Connection(servers=(url,)), on.route)
        async with running(worker):
            await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
            sequence = await on.publish({"price": 1.0})
            await on.drained()
            document = worker.health.document()
            assert document["status"] == "ready"
            await until_true(lambda: worker.metrics.look("notifications_total") == 1)
        assert worker.health.document() | {"known_at": 0} == document | {
            "known_at": 0,
            "status": "not-ready",
            "reason": "stopped",
        }
        assert await on.matched() == Counter([("ann", sequence, 0, "one")])

    on_route(url, test)


def test_metrics_say_how_far_workers_are(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "_LOOK_SECONDS", 0.05)

    async def test(on: RouteOnServer) -> None:
        await on.create(RouteSettings(feeds=TICKS.feeds, ordered=True))
        started = time.time()
        async with on.workers() as (worker,):
            look = worker.metrics.look
            revision = await subscribe(on.connection, "ann", "one", "price > 0", route=on.route)
            session = worker._session
            assert session is not None
            async with session._reading:  # without which nothing is matched
                for _ in range(3):
                    await on.publish({"price": 1.0})
                await until_true(lambda: (look("lag_messages"), look("in_hand_messages")) == (2, 1))
            await on.drained()
            await until_true(lambda: (look("lag_messages"), look("in_hand_messages")) == (0, 0))
            await until_true(lambda: look("messages_total") == look("notifications_total") == 3)
            assert look("events_total", feed="ticks") == look("matches_total", feed="ticks") == 3
            assert look("revision") >= revision
            assert started <= look("known_timestamp_seconds") <= time.time()

    on_route(url, test)


def test_many_changes_at_once_are_what_they_are_one_by_one() -> None:
    """The last one of a key counts, however changes are cut into parts."""
    chosen = random.Random(7)
    changes = []
    for revision in range(1, 600):
        key = f"sub.s{chosen.randrange(9)}.{chosen.randrange(20)}"
        body = orjson.dumps({"feed": "ticks", "filter": random_filter(chosen)})
        value = chosen.choice((body, body, body, None, b'{"feed":"ticks","filter":"price <"}'))
        changes.append(Change(key, value, revision))
    events = [random_event(chosen) for _ in range(60)]

    def found(sizes: int) -> tuple[list[list[str]], set[str]]:
        made = RouteSubscriptions(TICKS)
        for first in range(0, len(changes), sizes):
            made.apply(changes[first : first + sizes])
        result = made.match("ticks", events)
        return [sorted(ids) for _, ids in result], set(made.refused)

    expected = found(1)
    assert any(expected[0])
    assert expected[1]
    assert all(found(sizes) == expected for sizes in (7, 100, 600))
