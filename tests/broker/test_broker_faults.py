from __future__ import annotations

import asyncio
import json
import random
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from broker_server import RunningBroker
from fault_checks import check
from fault_load import Load
from fault_places import (
    fill,
    flip,
    limit_files,
    overwrite,
    read_only,
    serve_in_vain,
    small_disk,
)
from websockets.sync.client import connect

from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.settings import Settings
from boxmatch.broker.store.writer import RESERVE
from boxmatch.errors import StorageError
from boxmatch.model.schema import Schema
from boxmatch.wire import responses
from boxmatch.wire.requests import Wanted

DATABASE = "broker.sqlite"
WAL = "broker.sqlite-wal"


def run_load(load: Load, faults: list[Any]) -> None:
    async def run() -> None:
        async with asyncio.timeout(60 + 20 * len(faults)):
            await load.run(faults)

    asyncio.run(run())


# Ends of the process, under load


async def kill(load: Load) -> None:
    await load.end_broker(load.broker.kill)
    await load.begin_broker()


async def kill_twice(load: Load) -> None:
    """The second time somewhere while it starts, or right after."""
    await load.end_broker(load.broker.kill)

    def start_and_kill() -> None:
        try:
            load.broker.start(timeout=load.random.uniform(0.2, 2.5))
        except RuntimeError as error:
            if "not ready" not in str(error):
                raise
        load.broker.kill()

    await asyncio.to_thread(start_and_kill)
    await load.begin_broker()


async def stop(load: Load) -> None:
    def stop_well() -> None:
        assert load.broker.stop() == 0

    await load.end_broker(stop_well)
    await load.begin_broker()


async def have_no_room(load: Load) -> None:
    files = [file for file in load.broker.data.iterdir() if file.name != RESERVE]
    longest = max(file.stat().st_size for file in files)
    limit_files(load.broker.pid, max(longest, 1 << 16))
    before = load.refused
    for _ in range(100):
        await asyncio.sleep(0.05)
        if load.refused > before + 5:
            break
    limit_files(load.broker.pid, -1)


def test_what_was_acknowledged_comes_true(tmp_path: Path) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        load = Load(broker, 1)
        run_load(load, [kill, have_no_room, stop])
        check(load, broker.url)
        assert load.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param([kill] * 20, id="killed"),
        pytest.param([kill_twice] * 10, id="killed-twice"),
        pytest.param([stop] * 10, id="stopped"),
        pytest.param([have_no_room] * 20, id="without-room"),
        pytest.param([kill, have_no_room, stop, kill_twice] * 5, id="all"),
    ],
)
def test_what_was_acknowledged_comes_true_often(tmp_path: Path, faults: list[Any]) -> None:
    with RunningBroker(tmp_path / "data") as broker:
        load = Load(broker, 2)
        run_load(load, faults)
        check(load, broker.url)


# A small broker that the rest is tried on

TEXTS = [f"event number {number} of a few" for number in range(6)]


def prepare(url: str) -> list[int]:
    """A feed, a state feed and three subscribers who want all; the numbers of the events."""
    with httpx.Client(base_url=url, timeout=30) as http:
        made(http.post("/feeds", json={"name": "f", "schema": {"text": "string", "x": "int"}}))
        made(http.post("/feeds", json={"name": "s", "kind": "state", "schema": {"x": "int"}}))
        for subscriber in ("ann", "bob", "cleo"):
            path = f"/subscribers/{subscriber}/subscriptions"
            made(http.put(f"{path}/all-of-{subscriber}", json={"feed": "f", "filter": "x >= 0"}))
            made(
                http.put(f"{path}/near-{subscriber}", json={"feed": "s", "region": {"x": [0, 10]}})
            )
        numbers = [publish(http, text) for text in TEXTS]
        made(http.put("/feeds/s/publications/here", json={"region": {"x": 3}}))
    return numbers


def made(answer: httpx.Response) -> Any:
    assert answer.status_code in (200, 201), (answer.status_code, answer.text)
    return answer.json()


def publish(http: httpx.Client, text: str, **more: Any) -> int:
    return int(made(http.post("/feeds/f/events", json={"text": text, "x": 1}, **more))["first"])


def logged(http: httpx.Client) -> list[str]:
    answer = made(http.get("/feeds/f/events", params={"limit": 10_000}))
    return [event["event"]["text"] for event in answer["events"]]


def told(http: httpx.Client, subscriber: str) -> list[str]:
    answer = made(
        http.get(f"/subscribers/{subscriber}/notifications", params={"after": 0, "limit": 1000})
    )
    return [
        notification["event"]["text"]
        for notification in answer["notifications"]
        if notification["feed"] == "f"
    ]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders of a broker that has `TEXTS`: `killed`, with a log ahead, and then `stopped`."""
    folder = tmp_path_factory.mktemp("ended")
    broker = RunningBroker(folder / "stopped").start()
    numbers = prepare(broker.url)
    broker.kill()
    shutil.copytree(broker.data, folder / "killed")
    with broker, httpx.Client(base_url=broker.url, timeout=30) as http:
        assert made(http.post("/subscribers/cleo/acknowledge", json={"sequence": numbers[1]}))
    assert not (broker.data / WAL).exists()
    return folder


@pytest.fixture
def stopped(ended: Path, tmp_path: Path) -> RunningBroker:
    """A broker that is not running; all of it is in the database file."""
    return RunningBroker(Path(shutil.copytree(ended / "stopped", tmp_path / "data")))


# No room


@pytest.fixture
def tight(tmp_path: Path) -> Iterator[RunningBroker]:
    """A broker on a file system of its own, where its log file is too."""
    with (
        small_disk(tmp_path / "disk", 16) as disk,
        RunningBroker(disk / "data", ["--log-requests"]) as broker,
    ):
        yield broker


def test_a_full_disk_refuses_and_goes_on(tight: RunningBroker) -> None:
    with httpx.Client(base_url=tight.url, timeout=30) as http:
        prepare(tight.url)
        filling = fill(tight.data.parent)
        texts = list(TEXTS)
        for number in range(1000):
            key = {"Idempotency-Key": f"key-{number}"}
            text = f"more {number} " + "x" * 1000
            answer = http.post("/feeds/f/events", json={"text": text, "x": 1}, headers=key)
            if answer.status_code != 200:
                break
            texts.append(text)
        check_refused(answer)
        check_refused(http.post("/feeds/f/events", json=[{"text": "y" * 5000, "x": 1}] * 9))
        one = {"feed": "f", "filter": "x = 1"}
        check_refused(http.put("/subscribers/ann/subscriptions/one", json=one))
        assert http.get("/subscribers/ann/subscriptions/one").status_code == 404
        check_refused(http.put("/subscribers/new/subscriptions/one", json=one))
        check_refused(http.put("/feeds/s/publications/there", json={"region": {"x": 4}}))
        assert http.get("/feeds/s/publications/there").status_code == 404
        check_refused(http.post("/feeds", json={"name": "g", "schema": {"x": "int"}}))
        check_refused(http.patch("/feeds/f", json={"attributes": {"more": "int"}}))
        assert [feed["name"] for feed in made(http.get("/feeds"))["feeds"]] == ["f", "s"]
        assert made(http.get("/feeds/f"))["schema"] == {"text": "string", "x": "int"}
        # Reading goes on.
        assert logged(http) == texts
        assert told(http, "ann") == told(http, "bob") == texts
        made(http.get("/healthz"))
        check_refused(http.get("/readyz"))
        with connect(f"{tight.socket_url}/subscribers/ann/notifications/socket") as socket:
            assert json.loads(socket.recv())["type"] == "ready"
            assert json.loads(socket.recv())["notifications"][0]["event"]["text"] == TEXTS[0]
        made(http.post("/subscribers/ann/acknowledge", json={"sequence": 2}))
        # And with room, so does writing, without a restart.
        filling.unlink()
        assert publish(http, text, headers=key) > 0
        texts.append(text)
        made(http.put("/feeds/s/publications/there", json={"region": {"x": 4}}))
        made(http.put("/subscribers/new/subscriptions/one", json=one))
        publish(http, "last")
        texts.append("last")
        assert logged(http) == told(http, "bob") == texts
        assert told(http, "new") == ["last"]
        wait_ready(http)
    check_again(tight, texts)


def test_on_a_full_disk_one_can_delete_and_acknowledge(tight: RunningBroker) -> None:
    with httpx.Client(base_url=tight.url, timeout=30) as http:
        prepare(tight.url)
        filling = fill(tight.data.parent)
        use_up(http)
        assert http.delete("/subscribers/ann/subscriptions/near-ann").status_code == 204
        made(http.delete("/feeds/s/publications/here"))
        made(http.post("/subscribers/bob/acknowledge", json={"sequence": 3}))
        # Not that there was room now: what is in reserve is not for this.
        use_up(http)
        check_refused(http.get("/readyz"))
    tight.kill()
    fill_log(tight)
    tight.wait_ready = False  # it starts, but the disk is full
    tight.start()
    with httpx.Client(base_url=tight.url, timeout=30) as http:
        assert made(http.get("/subscribers/bob"))["cursor"] == 3
        assert http.get("/subscribers/ann/subscriptions/near-ann").status_code == 404
        assert http.get("/feeds/s/publications/here").status_code == 404
        use_up(http)
        assert http.delete("/feeds/f").status_code == 204
        filling.unlink()
        wait_ready(http)
        made(http.put("/feeds/s/publications/there", json={"region": {"x": 4}}))
        changes = [
            (notification["change"]["kind"], notification["change"]["publication"])
            for notification in made(
                http.get("/subscribers/cleo/notifications", params={"after": 0})
            )["notifications"]
        ]
        assert changes == [("enter", "here"), ("deleted", "here"), ("enter", "there")]


def use_up(http: httpx.Client) -> None:
    """Publish until there is no room for more."""
    for _ in range(10_000):
        answer = http.post("/feeds/f/events", json={"text": "x" * 20_000, "x": -1})
        if answer.status_code != 200:
            break
    check_refused(answer)


def fill_log(broker: RunningBroker) -> None:
    """Take what room is left in the last block of the log file."""
    with broker._log.open("ab", buffering=0) as log, suppress(OSError):
        while log.write(b"\n" * 100):
            pass


def wait_ready(http: httpx.Client) -> None:
    deadline = time.monotonic() + 20
    while (answer := http.get("/readyz")).status_code != 200:
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)


def test_an_acknowledgement_that_was_answered_survives(stopped: RunningBroker) -> None:
    stopped.start()
    answer = httpx.post(f"{stopped.url}/subscribers/ann/acknowledge", json={"sequence": 4})
    stopped.kill()
    assert made(answer) == {"cursor": 4}
    with stopped, httpx.Client(base_url=stopped.url, timeout=30) as http:
        assert made(http.get("/subscribers/ann"))["cursor"] == 4


def check_refused(answer: httpx.Response) -> None:
    assert answer.status_code in (503, 507), (answer.status_code, answer.text)
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:boxmatch:problem:storage"
    assert "full" in problem["detail"]


def check_again(broker: RunningBroker, texts: list[str]) -> None:
    """All is there after a restart too, although when it was stopped there was no room again."""
    limit_files(broker.pid, 1)
    httpx.post(f"{broker.url}/subscribers/ann/acknowledge", json={"sequence": 3})
    assert broker.stop() == 0
    broker.start()
    with httpx.Client(base_url=broker.url, timeout=30) as http:
        assert logged(http) == told(http, "bob") == texts
        numbers = [e["sequence"] for e in made(http.get("/feeds/f/events"))["events"]]
        numbers += [e["sequence"] for e in made(http.get("/feeds/s/events"))["events"]]
        assert sorted(numbers) == list(range(1, len(numbers) + 1))
        changes = [
            (notification["change"]["kind"], notification["change"]["publication"])
            for notification in made(
                http.get("/subscribers/bob/notifications", params={"after": 0})
            )["notifications"]
            if notification["feed"] == "s"
        ]
        assert changes == [("enter", "here"), ("enter", "there")]


def test_a_full_disk_at_start_is_said(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        (disk / "data").mkdir()
        filling = fill(disk)
        said = serve_in_vain(disk / "data")
        assert said.count("\n") == 1
        assert str(disk / "data") in said
        filling.unlink()
        with RunningBroker(disk / "data") as broker:
            prepare(broker.url)


# Nothing may be written


def test_a_read_only_directory_is_refused(stopped: RunningBroker) -> None:
    before = (stopped.data / DATABASE).read_bytes()
    with read_only(stopped.data):
        said = serve_in_vain(stopped.data)
    assert said.startswith("boxmatch: ")
    assert said.count("\n") == 1
    assert f"{stopped.data} cannot be written, its file system is read-only" in said
    assert (stopped.data / DATABASE).read_bytes() == before


def test_a_new_broker_in_a_read_only_directory_is_refused(tmp_path: Path) -> None:
    with read_only(tmp_path):
        for data in (tmp_path, tmp_path / "new"):
            said = serve_in_vain(data)
            assert said.startswith("boxmatch: ")
            assert said.count("\n") == 1
            assert str(data) in said


# What is on disk is not what was written


def test_damaged_events_and_recipients_are_left_out(stopped: RunningBroker) -> None:
    file = stopped.data / DATABASE
    flip(file, b"number 3 of")
    ids = b"all-of-annall-of-bob"  # of one event, and of more if rows were put together
    overwrite(file, file.read_bytes().index(ids) + ids.index(b"ann"), b"zzz")
    rest = [text for text in TEXTS if "number 3" not in text]
    with stopped, httpx.Client(base_url=stopped.url, timeout=30) as http:
        assert logged(http) == rest
        left = told(http, "bob")
        assert told(http, "ann") == left
        assert left == [text for text in rest if text in left] != rest
        assert made(http.get("/subscribers/cleo"))["cursor"] == 2
        new = publish(http, "new")
        assert logged(http) == [*rest, "new"]
        assert told(http, "bob") == [*left, "new"]
        with connect(f"{stopped.socket_url}/subscribers/ann/notifications/socket") as socket:
            assert json.loads(socket.recv())["type"] == "ready"
            received = [
                notification["sequence"]
                for notification in json.loads(socket.recv())["notifications"]
            ]
            assert received == sorted(set(received))
            assert received[-1] == new
    assert "damaged: batch 4" in stopped.log()
    assert "damaged: who gets events from" in stopped.log()


def test_rubbish_behind_the_log_ahead_is_left_out(ended: Path, tmp_path: Path) -> None:
    broker = RunningBroker(Path(shutil.copytree(ended / "killed", tmp_path / "data")))
    with (broker.data / WAL).open("ab") as file:
        file.write(random.Random(0).randbytes(10_000))
    with broker, httpx.Client(base_url=broker.url, timeout=30) as http:
        assert logged(http) == told(http, "ann") == TEXTS
        publish(http, "new")
        assert logged(http) == told(http, "bob") == [*TEXTS, "new"]


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0, 20, 100, 5_000, 20_000, 50_000, 100_000])
def test_of_a_log_ahead_that_was_cut_the_rest_counts(ended: Path, tmp_path: Path, cut: int) -> None:
    """No disk that keeps its word does that. What is left is what was there at some moment."""
    broker = RunningBroker(Path(shutil.copytree(ended / "killed", tmp_path / "data")))
    length = (broker.data / WAL).stat().st_size
    with (broker.data / WAL).open("r+b") as file:
        file.truncate(max(length - cut, 0))
    with broker, httpx.Client(base_url=broker.url, timeout=30) as http:
        names = [feed["name"] for feed in made(http.get("/feeds"))["feeds"]]
        if "f" not in names:
            return
        texts = logged(http)
        assert texts == TEXTS[: len(texts)]
        if cut < 5_000:
            assert texts == TEXTS
        if http.get("/subscribers/bob/subscriptions/all-of-bob").status_code == 200:
            publish(http, "new")
            assert told(http, "bob") == [*texts, "new"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_damaged_it_is_said_and_nothing_breaks(
    stopped: RunningBroker, seed: int
) -> None:
    """Some bytes anywhere: either it says why it does not start, or all requests are answered."""
    chance = random.Random(seed)
    file = stopped.data / DATABASE
    size = file.stat().st_size
    for _ in range(chance.choice((1, 3, 20))):
        where = chance.randrange(size) if seed % 5 else chance.randrange(size // 4096) * 4096
        overwrite(file, where, chance.randbytes(chance.choice((1, 4, 64))))
    try:
        stopped.start()
    except RuntimeError as error:
        said = str(error)
        assert said.startswith("ended with 2:")
        last = [line for line in said.splitlines() if line][-1]
        assert last.startswith("boxmatch: ")
        assert "Traceback" not in said
        return
    try:
        with httpx.Client(base_url=stopped.url, timeout=30) as http:
            for answer in ask_everything(http):
                assert answer.status_code in (200, 201, 404, 503, 507), answer.text
                if answer.status_code in (200, 201):
                    answer.json()
    finally:
        stopped.stop()


def ask_everything(http: httpx.Client) -> Iterator[httpx.Response]:
    for path in (
        "/healthz",
        "/readyz",
        "/feeds",
        "/feeds/f/events",
        "/feeds/s/events",
        "/subscribers",
    ):
        yield http.get(path)
    for subscriber in ("ann", "bob"):
        yield http.get(f"/subscribers/{subscriber}")
        yield http.get(f"/subscribers/{subscriber}/subscriptions")
        for wait in (0, 0.1):
            yield http.get(
                f"/subscribers/{subscriber}/notifications", params={"after": 0, "wait": wait}
            )
        yield http.get(f"/subscribers/{subscriber}/dead-letters")
    yield http.post("/feeds/f/dry-run", json={"filter": "x = 1"})
    yield http.post("/feeds/f/events", json={"text": "new", "x": 1})
    yield http.put("/feeds/s/publications/here", json={"region": {"x": 4}})
    yield http.put("/subscribers/ann/subscriptions/more", json={"feed": "f", "filter": "x = 1"})
    yield http.post("/subscribers/bob/acknowledge", json={"sequence": 3})


# Two at once


def test_a_second_server_is_refused(open_broker: RunningBroker, http: httpx.Client) -> None:
    address = (open_broker.data / "address.json").read_bytes()
    said = serve_in_vain(open_broker.data)
    assert said.startswith("boxmatch: ")
    assert said.count("\n") == 1
    assert "open already" in said
    assert (open_broker.data / "address.json").read_bytes() == address
    made(http.post("/feeds", json={"name": "of-the-first", "schema": {"x": "int"}}))


# In one process, where the moment can be chosen


def test_subscriptions_change_while_memory_steps_back(tmp_path: Path) -> None:
    """What cannot be stored is undone by reading all again; what was asked for before that is
    meant for the subscription of that name, wherever it is by then.
    """

    async def main() -> None:
        broker = Broker.open(Settings(data=tmp_path))
        await broker.start()
        places = {"places": Schema({"x": "int"})}
        await broker.feeds.create(FeedSpec(name="s", kind="state", spaces=places))
        for name, x in {"gone": 1, "changed": 2, "next": 3, "other": 4}.items():
            await broker.subscriptions.put("ann", name, at(x))
        await broker.subscriptions.delete("ann", "gone")  # so that the others have other places
        feed = broker.directory.feed("s").feed
        assert isinstance(feed, StateFeed)
        feed.failed = feed.epoch  # as if one could not be stored
        held, gate = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            gate.wait(30)

        refused = broker.state.put_publication("s", "p", regions={"region": {"x": 4}})
        tasks: list[asyncio.Future[Any]] = [asyncio.ensure_future(refused)]
        await asyncio.sleep(0)
        broker.pipeline.call_soon(feed, hold)
        queue = broker.pipeline._queue(feed)._queue
        while not (held.is_set() and queue):  # it is known, and waits to be undone
            await asyncio.sleep(0.01)
        tasks.append(asyncio.ensure_future(broker.subscriptions.put("ann", "changed", at(5))))
        while len(queue) < 2:
            await asyncio.sleep(0.01)
        gate.set()
        failure, changed = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(failure, StorageError)
        assert isinstance(changed, responses.Subscription)
        for x in range(1, 6):
            await broker.state.put_publication("s", f"p{x}", regions={"region": {"x": x}})
        notifications = await broker.notifications.poll("ann", after=0, limit=100)
        heard = [
            (orjson.loads(notification.body)["publication"], notification.subscriptions)
            for notification in notifications
        ]
        assert heard == [("p3", ["next"]), ("p4", ["other"]), ("p5", ["changed"])]
        await broker.stop()

    def at(x: int) -> Wanted:
        return Wanted(feed="s", regions={"region": {"x": x}})

    asyncio.run(main())


def test_two_who_extend_a_feed_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        broker = Broker.open(Settings(data=tmp_path))
        await broker.start()
        await broker.feeds.create(FeedSpec(name="f", spaces={"f": Schema({"x": "int"})}))
        await asyncio.gather(*(broker.feeds.extend("f", {name: "int"}) for name in "abc"))
        assert sorted(broker.feeds.get("f").spec.schema.names) == ["a", "b", "c", "x"]
        await broker.stop()

    asyncio.run(main())
