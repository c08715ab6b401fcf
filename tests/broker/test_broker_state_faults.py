"""State feeds whose publications expire while the broker is killed: nothing that is over matches,
and each transition is told once.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker

FEED = "places"
SPANS = {"low": (0, 59), "high": (40, 99), "all": (0, 99)}
"""What each of the subscribers wants, who are there from the beginning."""
BURST = (0.4, 0.4, 0.4, 0.4, 0.4, 2.0)
"""Times to live of publications that expire around each kill; the last one does while the broker is
down.
"""
_PAUSE = 0.02


@dataclass
class Life:
    """A publication under an id of its own: what may have become of it.

    `moves` are the places that it was given, one after the other. The last is `doubtful` if there
    was no answer: it was carried out, or not.
    """

    id: str
    ttl: float | None
    asked: float
    done: float = 0.0
    moves: list[int] = field(default_factory=list)
    doubtful: bool = False
    retracted: float = float("inf")
    """When its retraction was asked for."""

    @property
    def ends(self) -> tuple[float, float]:
        """It ends at some moment between these, on the clock of the machine."""
        if self.ttl is None:
            return self.retracted, self.retracted
        return self.asked + self.ttl, self.done + self.ttl

    def histories(self) -> list[list[int]]:
        """The places that it may have had."""
        return [self.moves, self.moves[:-1]] if self.doubtful else [self.moves]


def told_of(history: Sequence[int], span: tuple[int, int]) -> list[str]:
    """What a subscriber must be told of a publication that was at these places, and then ended."""
    kinds, was = [], False
    for x in history:
        now = span[0] <= x <= span[1]
        if now != was:
            kinds.append("enter" if now else "leave")
        was = now
    return [*kinds, "deleted"] if was else kinds


class Fleet:
    """Publications that come, move and expire, on a broker that is killed meanwhile."""

    def __init__(self, broker: RunningBroker, seed: int) -> None:
        self.broker = broker
        self.random = random.Random(seed)
        self.lives: list[Life] = []
        self.late: dict[str, tuple[float, float]] = {}
        """Subscribers who came after a start: when they asked, and when they were answered."""
        self.expired_while_down = 0
        self._ids = itertools.count()
        self._url = broker.url
        self._ending = False

    async def run(self, kills: int) -> None:
        async with httpx.AsyncClient(timeout=30) as self._http:
            feed = {"name": FEED, "kind": "state", "schema": {"x": "int"}}
            made(await self._ask("POST", "/feeds", json=feed))
            for subscriber, span in SPANS.items():
                await self._subscribe(subscriber, span)
            staying = [await self._publish(None) for _ in range(3)]
            for life in staying:
                assert await self._move(life)
            async with asyncio.TaskGroup() as group:
                for _ in range(4):
                    group.create_task(self._come_and_go())
                for _ in range(kills):
                    await self._kill()
                self._ending = True
            for life in staying:
                assert await self._move(life)
                life.retracted = time.time()
                made(await self._ask("DELETE", f"/feeds/{FEED}/publications/{life.id}"))
            await self._until_all_expired()

    async def _kill(self) -> None:
        """While publications expire; some more do before the broker is there again."""
        soon = await asyncio.gather(*(self._publish(ttl) for ttl in BURST))
        await asyncio.sleep(self.random.uniform(0, 0.3))
        self._url = ""
        killed = time.time()
        await asyncio.to_thread(self.broker.kill)
        await asyncio.sleep(max(0.0, max(life.ends[1] for life in soon) - time.time()))
        self.expired_while_down += sum(life.ends[0] > killed for life in soon)
        await asyncio.to_thread(self.broker.start)
        self._url = self.broker.url
        name = f"late{len(self.late)}"
        asked = time.time()
        await self._subscribe(name, SPANS["all"])
        self.late[name] = asked, time.time()

    async def _come_and_go(self) -> None:
        while not self._ending:
            life = await self._publish(self.random.uniform(0.05, 0.8))
            while not life.doubtful and self.random.random() < 0.7:
                await asyncio.sleep(self.random.uniform(0, 0.3))
                if not await self._move(life):
                    break

    async def _publish(self, ttl: float | None) -> Life:
        url = await self._up()
        life = Life(f"p{next(self._ids)}", ttl, time.time(), moves=[self.random.randrange(100)])
        self.lives.append(life)
        wanted: dict[str, Any] = {"region": {"x": life.moves[0]}}
        if ttl is not None:
            wanted["ttl"] = ttl
        try:
            made(await self._http.put(f"{url}/feeds/{FEED}/publications/{life.id}", json=wanted))
        except httpx.TransportError:
            life.doubtful = True
        life.done = time.time()
        return life

    async def _move(self, life: Life) -> bool:
        """False: it is over, or whether it was moved is not known."""
        url, x, asked = await self._up(), self.random.randrange(100), time.time()
        path = f"{url}/feeds/{FEED}/publications/{life.id}"
        try:
            answer = await self._http.patch(path, json={"region": {"x": x}})
        except httpx.TransportError:
            life.moves.append(x)
            life.doubtful = True
            return False
        if answer.status_code == 404:
            assert time.time() >= life.ends[0], f"{life.id} was forgotten before its time"
            return False
        made(answer)
        assert asked <= life.ends[1], f"{life.id} was moved after its time"
        life.moves.append(x)
        return True

    async def _subscribe(self, subscriber: str, span: tuple[int, int]) -> None:
        path = f"/subscribers/{subscriber}/subscriptions/one"
        made(await self._ask("PUT", path, json={"feed": FEED, "region": {"x": list(span)}}))

    async def _ask(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self._http.request(method, await self._up() + path, **more)

    async def _up(self) -> str:
        while not self._url:
            await asyncio.sleep(_PAUSE)
        return self._url

    async def _until_all_expired(self) -> None:
        async with asyncio.timeout(60):
            while made(await self._ask("GET", f"/feeds/{FEED}"))["publications"]:
                await asyncio.sleep(_PAUSE)


def made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201), (answer.status_code, answer.text)
    return answer.json()


def heard(broker: RunningBroker, subscriber: str) -> dict[str, list[str]]:
    """What a subscriber was told of each publication, in the order of the numbers."""
    found: dict[str, list[str]] = {}
    after = 0
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        while True:
            path = f"/subscribers/{subscriber}/notifications"
            answer = made(http.get(path, params={"after": after, "limit": 1000}))
            if not answer["notifications"]:
                return found
            for one in answer["notifications"]:
                assert one["sequence"] > after
                after = one["sequence"]
                change = one["change"]
                found.setdefault(change["publication"], []).append(change["kind"])


def check(fleet: Fleet) -> None:
    told = {name: heard(fleet.broker, name) for name in (*SPANS, *fleet.late)}
    known = {life.id for life in fleet.lives}
    for name, publications in told.items():
        assert publications.keys() <= known, name
    for life in fleet.lives:
        got = {name: told[name].get(life.id, []) for name in SPANS}
        possible = [
            {name: told_of(history, span) for name, span in SPANS.items()}
            for history in life.histories()
        ]
        assert got in possible, (life, got, possible)
        for name, (asked, answered) in fleet.late.items():
            check_late(life, told[name].get(life.id, []), asked, answered)


def check_late(life: Life, got: list[str], asked: float, answered: float) -> None:
    """A subscriber to all places hears of what was there then, or came later, and of no other."""
    first, last = life.ends
    if last < asked:
        assert got == [], (life, got, "it was over when the subscription came")
    elif not life.doubtful and (life.asked > answered or (life.done < asked and first > answered)):
        assert got == ["enter", "deleted"], (life, got, "it was there")
    else:
        assert got in ([], ["enter", "deleted"]), (life, got)


def run_kills(data: Path, seed: int, kills: int) -> None:
    with RunningBroker(data) as broker:
        fleet = Fleet(broker, seed)
        asyncio.run(fleet.run(kills))
        check(fleet)
    assert fleet.expired_while_down > 0


def test_what_expires_while_the_broker_is_killed_is_told_once(tmp_path: Path) -> None:
    run_kills(tmp_path / "data", 1, 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_expires_while_the_broker_is_killed_is_told_once_often(
    tmp_path: Path, seed: int
) -> None:
    run_kills(tmp_path / "data", seed, 15)


def test_the_model_says_what_must_be_told() -> None:
    """Otherwise nothing above could fail."""
    assert told_of([5], (0, 9)) == ["enter", "deleted"]
    assert told_of([5, 20], (0, 9)) == ["enter", "leave"]
    assert told_of([20, 5, 6, 20, 7], (0, 9)) == ["enter", "leave", "enter", "deleted"]
    assert told_of([], (0, 9)) == told_of([20], (0, 9)) == []
    life = Life("p", 1.0, asked=10.0, done=10.1, moves=[5])
    check_late(life, [], 11.2, 11.3)
    check_late(life, ["enter", "deleted"], 10.2, 10.3)
    for got, asked, answered in (
        (["enter", "deleted"], 11.2, 11.3),
        ([], 10.2, 10.3),
        (["enter"], 10.2, 10.3),
        (["enter", "enter", "deleted"], 10.05, 10.3),
    ):
        with pytest.raises(AssertionError):
            check_late(life, got, asked, answered)
