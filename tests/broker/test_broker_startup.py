"""What a broker says and does before it is ready."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from broker_server import RunningBroker
from structlog.testing import capture_logs
from test_broker_core import (
    all_notifications,
    events,
    run,
    running,
    ticks,
    wanted,
)  # in this folder

from boxmatch.broker.access import Keys
from boxmatch.broker.broker import Broker
from boxmatch.broker.http import make_app
from boxmatch.broker.settings import Limits, Settings
from boxmatch.broker.startup import Startup, Step
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.errors import StorageError
from boxmatch.wire.requests import Wanted


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_steps_are_told_now_and_then_and_timed() -> None:
    clock = Clock()
    startup = Startup(clock)
    clock.now += 1
    startup.begin("reading", "ticks", 4_000)
    for done in (0, 1_000, 2_000, 3_000):
        startup.advance(done)
        assert startup.step == Step("reading", "ticks", done, 4_000)
        clock.now += 1
    assert str(startup.step) == "reading of feed 'ticks': 3,000 of 4,000"
    startup.begin("reading", "other")
    assert str(startup.step) == "reading of feed 'other'"
    clock.now += 2
    startup.finish()
    assert {name: round(seconds, 6) for name, seconds in startup.seconds.items()} == {
        "opening the data": 1.0, "reading": 6.0,
    }  # fmt: skip
    assert round(startup.elapsed, 6) == 7.0


def test_the_log_hears_of_a_step_that_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boxmatch.broker.startup._EVERY", 0.001)
    clock = Clock()
    startup = Startup(clock)
    heard = threading.Event()
    tell = startup._tell

    def told_again() -> None:
        tell()
        heard.set()

    monkeypatch.setattr(startup, "_tell", told_again)

    def load() -> None:
        for step in (("reading subscriptions", "ticks", 7), ("loading kernels",)):
            startup.begin(*step)
            clock.now += 3
            for _ in range(2):  # the first may be of what came before
                heard.clear()
                assert heard.wait(30)
        raise StorageError("it ends here")

    with capture_logs() as told, pytest.raises(StorageError, match="ends here"):
        asyncio.run(startup.follow(load))
    line = next(line for line in told if line["step"] == "reading subscriptions")
    line["seconds"] = 3.0
    assert line == {
        "event": "starting", "log_level": "info", "step": "reading subscriptions",
        "feed": "ticks", "done": 0, "total": 7, "seconds": 3.0,
    }  # fmt: skip
    assert told[-1]["event"] == "starting"
    assert (told[-1]["step"], told[-1]["seconds"]) == ("loading kernels", 6.0)


@pytest.fixture
def keys(tmp_path: Path) -> Any:
    with Keys.open(tmp_path / "keys", limits=Limits()) as keys:
        yield keys


def test_others_have_to_come_again_while_a_broker_starts(
    tmp_path: Path, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Probes say what is done; all other routes, known or not, are answered with 503."""
    gate, reached = threading.Event(), threading.Event()
    read_feed = Directory.read_feed

    def held(self: Directory, spec: Any, number: int, startup: Startup) -> Any:
        startup.begin("reading subscriptions", spec.name, 7)
        startup.advance(3)
        reached.set()
        assert gate.wait(30)
        return read_feed(self, spec, number, startup)

    async def fill() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "a", wanted("price > 1"))

    async def main() -> None:
        store = Store.open(tmp_path, sync="normal")
        broker = Broker(Settings(data=tmp_path), store)
        transport = httpx.ASGITransport(make_app(broker, keys))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            monkeypatch.setattr(Directory, "read_feed", held)
            loading = asyncio.create_task(asyncio.to_thread(broker.load))
            await asyncio.to_thread(reached.wait)
            assert (await http.get("/healthz")).status_code == 200
            answer = await http.get("/readyz")
            assert answer.status_code == 503
            progress = answer.json()["progress"]
            assert progress.pop("seconds") >= 0
            step = {"step": "reading subscriptions", "feed": "ticks", "done": 3, "total": 7}
            assert progress == step
            assert "reading subscriptions of feed 'ticks': 3 of 7" in answer.json()["detail"]
            for method, path in (
                ("GET", "/feeds"), ("POST", "/feeds/ticks/events"), ("GET", "/nowhere"),
                ("GET", "/"), ("GET", "/metrics"),
            ):  # fmt: skip
                answer = await http.request(method, path, json={})
                assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
                assert answer.json()["type"] == "urn:boxmatch:problem:not-ready"
            gate.set()
            await loading
            await broker.start()
            assert (await http.get("/readyz")).json() == {"status": "ready"}
            published = await http.post("/feeds/ticks/events", json={"price": 2.0})
            assert published.json()["first"] == 1
        await broker.stop()

    run(fill)
    run(main)


def test_the_log_of_a_start(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        told = [json.loads(line) for line in broker.log().splitlines() if line.startswith("{")]
        events = [line["event"] for line in told if line["event"] != "starting"]
        assert events == ["listening", "ready"]
        steps = told[-1]["steps"]
        assert list(steps) == ["opening the data", "reading subscribers", "loading kernels"]
        metrics = httpx.get(f"{broker.url}/metrics").text
        for step in steps:
            assert f'boxmatch_start_seconds{{step="{step}"}}' in metrics


def test_many_stored_filters_are_what_they_were(tmp_path: Path) -> None:
    """Read in pieces: texts, objects, dialects, exact ones, and one that is wrong by now."""
    filters: list[Any] = [f"price > {number}" for number in range(20)]
    filters += [{"price": {"low": number}} for number in range(20)]
    filters += ["symbol LIKE '%A%'", "price * 2 > 7", "volume = 2.5", "price > 3 OR volume < 2"]

    async def first() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            many = {f"s{number}": wanted(one) for number, one in enumerate(filters)}
            await broker.subscriptions.put_many("ann", many)
            prefix: Any = {"symbol": [{"prefix": "B"}]}
            pattern = Wanted(feed="ticks", filter=prefix, dialect="eventbridge")
            await broker.subscriptions.put("ann", "pattern", pattern)
            exact = Wanted(feed="ticks", filter="price < 5", exact=True)
            await broker.subscriptions.put("ann", "exact", exact)
            await publish(broker)

    async def second() -> None:
        async with running(tmp_path) as broker:
            await publish(broker)
            found = await all_notifications(broker, "ann")
            told = [sorted(one.subscriptions) for one in found]
            assert len(told) == 8
            assert told[:4] == told[4:]

    async def publish(broker: Broker) -> None:
        rows = [{"price": 4.5}, {"symbol": "BAB", "volume": 1}, {"price": 30.0}, {"price": 0.5}]
        await broker.pipeline.publish("ticks", events(*rows))

    run(first)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("boxmatch.broker.feeds.event_feed._AT_ONCE", 7)
        run(second)
