"""A route on a real NATS server, and what tests do with it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import nats
import orjson
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from boxmatch.engine.matcher import Matcher
from boxmatch.nats.messages import Notification, read_notification
from boxmatch.nats.names import Names, decode_token
from boxmatch.nats.router import Router
from boxmatch.nats.routes import Storage, create_route
from boxmatch.nats.settings import FeedSettings, RouteSettings

PATIENCE = 60.0
SCHEMA = {"symbol": "string", "price": "float"}
TICKS = RouteSettings(feeds={"ticks": FeedSettings(schema=SCHEMA)}, ack_seconds=2)
READER = ConsumerConfig(ack_policy=AckPolicy.NONE, inactive_threshold=60)
_numbers = itertools.count()


class RouteOnServer:
    """A route of its own, over a connection."""

    def __init__(self, connection: Client, names: Names) -> None:
        self.connection = connection
        self.js: JetStreamContext = connection.jetstream(timeout=PATIENCE)
        self.names = names
        self.route = names.route

    async def create(self, settings: RouteSettings = TICKS, **storage: Any) -> None:
        await create_route(self.js, self.route, settings, Storage(**storage))

    async def publish(
        self, body: bytes | Mapping[str, Any], feed: str = "ticks", **headers: str
    ) -> int:
        """A message of events; its sequence."""
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        ack = await self.js.publish(self.names.feed(feed), data, headers=given or None)
        return ack.seq

    @asynccontextmanager
    async def workers(self, count: int = 1, **options: Any) -> AsyncIterator[list[Router]]:
        """That many, ready; stopped at the end."""
        made = [Router(self.connection, self.route, **options) for _ in range(count)]
        async with running(*made):
            yield made

    async def received(self) -> list[Notification]:
        """All notifications that are stored, in their order. Their subjects are looked at."""
        found = []
        for message in await self.stored(self.names.notifications):
            one = read_notification(message.data or b"")
            subscriber = decode_token(message.subject.removeprefix(self.names.out("")))
            found.append((subscriber, one))
        self.subscribers = [subscriber for subscriber, _ in found]
        return [one for _, one in found]

    async def matched(self) -> Counter[tuple[str, int, int, str]]:
        """Subscriber, sequence, index and subscription of all that is stored."""
        its = await self.received()
        return Counter(
            (subscriber, one.sequence, one.index, id)
            for subscriber, one in zip(self.subscribers, its, strict=True)
            for id in one.subscriptions
        )

    async def stored(self, stream: str) -> list[Msg]:
        """The messages of a stream, read as any client reads them."""
        state = (await self.js.stream_info(stream)).state
        found: list[Msg] = []
        pull = await self.js.pull_subscribe("", stream=stream, config=READER)
        while len(found) < state.messages:
            found += await pull.fetch(1000, timeout=PATIENCE)
        await pull.unsubscribe()
        return found

    async def drained(
        self, shard: int = 0, shards: int = 1, stream: str = "", through: int | None = None
    ) -> None:
        """Until workers have acknowledged all messages, or those up to a sequence."""
        consumer = self.names.consumer(shard, shards)
        name = stream or self.names.events
        last = (await self.js.stream_info(name)).state.last_seq if through is None else through

        async def done() -> bool:
            info = await self.js.consumer_info(name, consumer)
            # A moment after a message is stored, the consumer does not count it yet.
            floor = info.ack_floor.stream_seq if info.ack_floor else 0
            return floor >= last and not info.num_pending and not info.num_ack_pending

        await until(done)


async def until(true: Callable[[], Awaitable[bool]], what: str = "") -> None:
    """Wait for a condition."""
    async with asyncio.timeout(PATIENCE):
        while not await true():
            await asyncio.sleep(0.02)


async def until_true(true: Callable[[], Any]) -> None:
    async def look() -> bool:
        return bool(true())

    await until(look)


@asynccontextmanager
async def running(*workers: Router) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(one.run()) for one in workers]
    try:
        async with asyncio.timeout(PATIENCE):
            for one in workers:
                await one.wait_ready()
        yield
    finally:
        for one in workers:
            one.stop()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*tasks)


def on_route(url: str, test: Callable[[RouteOnServer], Coroutine[Any, Any, None]]) -> None:
    """Run a test over a connection, with a route that no other test has."""

    async def connected() -> None:
        connection = await nats.connect(url, connect_timeout=PATIENCE, reconnect_time_wait=0.1)
        try:
            await test(RouteOnServer(connection, Names.of(f"test{next(_numbers)}")))
        finally:
            await connection.close()

    asyncio.run(connected())


def brute_force(
    schema: Mapping[str, Any],
    subscriptions: Mapping[tuple[str, str], Any],
    events: Iterable[tuple[int, int, Mapping[str, Any]]],
) -> Counter[tuple[str, int, int, str]]:
    """What `matched` should be, by a scan over all subscriptions."""
    matcher = Matcher(schema, index="scan")
    keys = list(subscriptions)
    for number, filter in enumerate(subscriptions.values()):
        matcher.subscribe(number, filter)
    return Counter(
        (keys[int(number)][0], sequence, index, keys[int(number)][1])
        for sequence, index, event in events
        for number in matcher.match(event)
    )
