"""Load on a broker that something happens to, and a record of what was asked and answered.

Everybody asks again until there is an answer: publishers under the same key. What was asked and
when, on one clock, says afterwards who had to be told of what.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx
import websockets
from broker_server import RunningBroker
from websockets.asyncio.client import connect

FEEDS = ("quotes", "trades")
SCHEMA = {"n": "int", "x": "int", "y": "int"}
STATE = "places"
END = 1_000
"""The `x` of the last event, which everybody hears of."""
_PAUSE = 0.02

Fault = Callable[["Load"], Awaitable[None]]


@dataclass
class Batch:
    """Events of one request: stored at some moment between `asked` and `done`."""

    feed: str
    rows: list[dict[str, int]]
    asked: float
    done: float
    first: int


@dataclass
class Life:
    """A subscription with one filter: it counts from a moment between `asked` and `there` to one
    between `going` and `gone`.
    """

    subscriber: str
    id: str
    feed: str
    wanted: Any
    """The filter, or for the state feed low and high."""
    asked: float
    there: float = math.inf
    going: float = math.inf
    gone: float = math.inf


@dataclass
class Inbox:
    """What a subscriber was told, by number. `wrong`: what must not be."""

    subscriber: str
    notifications: dict[int, dict[str, Any]] = field(default_factory=dict)
    again: int = 0
    wrong: list[str] = field(default_factory=list)

    def take(self, notifications: list[dict[str, Any]], after: int) -> int:
        """Notifications as they came over one connection. The last number."""
        for notification in notifications:
            number = notification["sequence"]
            if number <= after:
                self.wrong.append(f"{number} came after {after}")
            known = self.notifications.setdefault(number, notification)
            if known is not notification:
                self.again += 1
                if known != notification:
                    self.wrong.append(f"{number} was {known}, then {notification}")
            after = number
        return after


class Load:
    """Publishers, subscriptions that come and go, and subscribers of three kinds."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.random = random.Random(seed)
        self.batches: list[Batch] = []
        self.lives: list[Life] = []
        self.inboxes: dict[str, Inbox] = {}
        self.places: dict[str, tuple[int, int] | None] = {}
        """Publications as they are by the last answer."""
        self.refused = 0
        self._numbers = itertools.count()
        self._ending = False
        self._url = broker.url

    async def run(self, faults: list[Fault]) -> None:
        """All of it, with the faults one after the other, until everybody has heard of the end."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        async with httpx.AsyncClient(timeout=20, limits=limits) as self._http:
            await self._prepare()
            work = [self._publish(feed) for feed in FEEDS for _ in range(2)]
            work += [self._come_and_go(subscriber) for subscriber in self.inboxes]
            work += [self._move(f"p{number}") for number in range(4)]
            listeners = [
                asyncio.create_task(self._listener(number, inbox))
                for number, inbox in enumerate(self.inboxes.values())
            ]
            working = asyncio.gather(*work)
            try:
                for fault in faults:
                    await asyncio.sleep(self.random.uniform(0.2, 1.2))
                    await fault(self)
                await asyncio.sleep(0.2)
                self._ending = True
                await working
                end = await self._publish_one(FEEDS[0], [{"n": -1, "x": END, "y": 0}])
                await self._until(
                    lambda: all(end in i.notifications for i in self.inboxes.values())
                )
            finally:
                working.cancel()
                for task in listeners:
                    task.cancel()
                await asyncio.gather(working, *listeners, return_exceptions=True)

    async def ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        """Ask until there is an answer. Whoever has another broker's old port is not asked."""
        while True:
            try:
                answer = await self._http.request(method, await self._up() + path, **more)
            except httpx.TransportError:
                pass
            else:
                if answer.status_code not in (503, 507):
                    return answer
                self.refused += 1
            await asyncio.sleep(_PAUSE)

    async def end_broker(self, end: Callable[[], object]) -> None:
        """Have the broker end; nobody asks it until `begin_broker`."""
        self._url = ""
        await asyncio.to_thread(end)

    async def begin_broker(self) -> None:
        await asyncio.to_thread(self.broker.start)
        self._url = self.broker.url

    async def _up(self) -> str:
        while not self._url:
            await asyncio.sleep(_PAUSE)
        return self._url

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not true():
                await asyncio.sleep(_PAUSE)

    async def _prepare(self) -> None:
        for feed in FEEDS:
            await self._expect(201, "POST", "/feeds", json={"name": feed, "schema": SCHEMA})
        state = {"name": STATE, "kind": "state", "schema": {"x": "int"}}
        await self._expect(201, "POST", "/feeds", json=state)
        for subscriber in ("ann", "bob", "cleo", "dan", "eve", "fay"):
            self.inboxes[subscriber] = Inbox(subscriber)
            await self._put(subscriber, "end", FEEDS[0], f"x = {END}")
            await self._put(subscriber, "place", STATE, self._span())
            for feed in FEEDS:
                await self._put(
                    subscriber, f"many-{feed}", feed, f"x < {self.random.randrange(20, 80)}"
                )

    async def _expect(self, status: int, method: str, path: str, **more: Any) -> httpx.Response:
        answer = await self.ask(method, path, **more)
        if answer.status_code not in (status, 200):
            raise AssertionError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer

    # Those who ask

    async def _publish(self, feed: str) -> None:
        while not self._ending:
            rows = [
                {
                    "n": next(self._numbers),
                    "x": self.random.randrange(100),
                    "y": self.random.randrange(100),
                }
                for _ in range(self.random.choice((1, 1, 5, 40)))
            ]
            await self._publish_one(feed, rows)
            await asyncio.sleep(self.random.choice((0, 0, 0.01)))

    async def _publish_one(self, feed: str, rows: list[dict[str, int]]) -> int:
        asked = time.monotonic()
        key = f"{rows[0]['n']}-{self.random.random()}"
        answer = await self._expect(
            200, "POST", f"/feeds/{feed}/events", json=rows, headers={"Idempotency-Key": key}
        )
        first = int(answer.json()["first"])
        self.batches.append(Batch(feed, rows, asked, time.monotonic(), first))
        return first

    async def _put(self, subscriber: str, name: str, feed: str, wanted: Any) -> Life:
        life = Life(subscriber, name, feed, wanted, time.monotonic())
        self.lives.append(life)
        asked = {"region": {"x": list(wanted)}} if feed == STATE else {"filter": wanted}
        path = f"/subscribers/{subscriber}/subscriptions/{name}"
        await self._expect(201, "PUT", path, json={"feed": feed, **asked})
        life.there = time.monotonic()
        return life

    async def _come_and_go(self, subscriber: str) -> None:
        for number in itertools.count():
            if self._ending:
                return
            feed = self.random.choice((*FEEDS, STATE))
            make = self._span if feed == STATE else self._filter
            name = f"s{number}"
            life = await self._put(subscriber, name, feed, make())
            await asyncio.sleep(self.random.uniform(0, 0.3))
            if self.random.random() < 0.3:
                life.going = time.monotonic()
                following = await self._put(subscriber, name, feed, make())
                life.gone, life = following.there, following
                await asyncio.sleep(self.random.uniform(0, 0.3))
            if self.random.random() < 0.7:
                life.going = time.monotonic()
                answer = await self.ask("DELETE", f"/subscribers/{subscriber}/subscriptions/{name}")
                if answer.status_code not in (204, 404):  # 404: it was done, but not answered
                    raise AssertionError(answer.text)
                life.gone = time.monotonic()

    async def _move(self, publication: str) -> None:
        path = f"/feeds/{STATE}/publications/{publication}"
        self.places[publication] = None
        while not self._ending:
            if self.places[publication] is not None and self.random.random() < 0.3:
                answer = await self.ask("DELETE", path)
                if answer.status_code not in (200, 404):
                    raise AssertionError(answer.text)
                self.places[publication] = None
            else:
                new = self._span()
                method = "PUT" if self.places[publication] is None else "PATCH"
                await self._expect(200, method, path, json={"region": {"x": list(new)}})
                self.places[publication] = new
            await asyncio.sleep(self.random.uniform(0, 0.05))

    def _span(self) -> tuple[int, int]:
        low = self.random.randrange(100)
        return low, low + self.random.randrange(40)

    def _filter(self) -> str:
        (a, b), (c, d) = self._span(), self._span()
        return f"x >= {a} and x <= {b} and y >= {c} and y <= {d}"

    # Those who listen

    async def _listener(self, number: int, inbox: Inbox) -> None:
        listen: Callable[[Inbox], Coroutine[Any, Any, None]]
        listen = (self._by_socket, self._by_polling, self._by_stream)[number % 3]
        while True:
            try:
                await listen(inbox)
            except (OSError, TimeoutError, httpx.TransportError, websockets.WebSocketException):
                await asyncio.sleep(_PAUSE)

    async def _by_socket(self, inbox: Inbox) -> None:
        path = f"/subscribers/{inbox.subscriber}/notifications/socket?window=100"
        async with connect("ws" + (await self._up()).removeprefix("http") + path) as socket:
            after = json.loads(await socket.recv())["cursor"]
            async for message in socket:
                after = inbox.take(json.loads(message)["notifications"], after)
                await socket.send(json.dumps({"type": "acknowledge", "sequence": after}))

    async def _by_polling(self, inbox: Inbox) -> None:
        path = f"/subscribers/{inbox.subscriber}"
        while True:
            asked = {"limit": 500, "wait": 0.5}
            answer = await self._expect(200, "GET", f"{path}/notifications", params=asked)
            notifications = answer.json()["notifications"]
            last = inbox.take(notifications, answer.json()["cursor"])
            if notifications and self.random.random() < 0.7:
                await self._expect(200, "POST", f"{path}/acknowledge", json={"sequence": last})

    async def _by_stream(self, inbox: Inbox) -> None:
        after = 0
        while True:
            url = f"{await self._up()}/subscribers/{inbox.subscriber}/notifications/stream"
            more = {"Last-Event-ID": str(after)} if after else {}
            async with self._http.stream("GET", url, headers=more) as answer:
                if answer.status_code != 200:
                    return
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        after = inbox.take([json.loads(line.removeprefix("data: "))], after)
