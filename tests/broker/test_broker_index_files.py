"""The files of an index beside the data: a start with them has what a start without them has."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from test_broker_core import events, run, running, ticks, wanted  # in this folder

from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.index_files import FOLDER
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.subscribers import Subscription
from boxmatch.wire.requests import Wanted

COUNT = 600
PROBES = [{"price": float(n), "symbol": "ab"[n % 2], "volume": n % 5} for n in range(0, 60, 3)]


def filter_at(number: int) -> Any:
    rng = random.Random(number)
    low = rng.randrange(50)
    return rng.choice(
        [
            f"price BETWEEN {low} AND {low + 9} OR symbol = '{rng.choice('ab')}'",
            {"price": {"low": low}, "volume": low % 5},
            f"symbol LIKE '%{rng.choice('ab')}%' AND price * 2 > {low}",
            "volume > 10",
        ]
    )


def index_folder(data: Path) -> Path:
    return data / FOLDER / "1"


def found(broker: Broker, name: str = "ticks") -> list[list[str]]:
    """Who wants each probe, by the index; and slots have what subscribers have."""
    feed = broker.directory.feed(name).feed
    assert isinstance(feed, EventFeed)
    known = {one.slot: one for one in feed.slots.in_use()}
    assert len(known) == len(feed.slots)
    for one in known.values():
        assert one.subscriber.subscriptions[one.id] is one
    matches = feed.match(PROBES)
    told: list[list[str]] = [[] for _ in PROBES]
    for event, slot in zip(matches.event.tolist(), matches.slots.tolist(), strict=True):
        told[event].append(f"{known[slot].subscriber.name}/{known[slot].id}")
    return [sorted(one) for one in told]


async def fill(broker: Broker) -> None:
    await broker.feeds.create(ticks())
    for name in ("ann", "bob"):
        many = {f"s{number}": wanted(filter_at(number)) for number in range(COUNT // 2)}
        await broker.subscriptions.put_many(name, many)
    for number in range(20):
        exact = Wanted(feed="ticks", filter=f"price > {number}", exact=True)
        await broker.subscriptions.put("eve", f"e{number}", exact)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A broker that was stopped; do not change it."""
    data = tmp_path_factory.mktemp("filled") / "data"

    async def main() -> None:
        async with running(data) as broker:
            await fill(broker)

    run(main)
    assert (index_folder(data) / "index.json").exists()
    return data


@pytest.fixture
def data(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "data"))


class Compiled:
    """The subscriptions that a start has compiled, since the files did not have them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ids: list[str] = []
        subscribe = EventFeed._subscribe_stored

        def watched(feed: EventFeed, subscriptions: list[Subscription]) -> None:
            self.ids += [one.id for one in subscriptions]
            subscribe(feed, subscriptions)

        patch.setattr(EventFeed, "_subscribe_stored", watched)


def starts(data: Path, check: Callable[[Broker], None] = lambda _: None) -> list[list[str]]:
    """What a broker on the folder finds. The folder stays as it is."""
    told: list[list[str]] = []

    async def main() -> None:
        async with running(data) as broker:
            told.extend(found(broker))
            check(broker)

    run(main)
    return told


def without_files(data: Path) -> list[list[str]]:
    shutil.rmtree(data / FOLDER)
    return starts(data)


def test_a_start_with_files_compiles_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = Compiled(monkeypatch)

    def shown(broker: Broker) -> None:
        for one in broker.subscriptions.list("ann", limit=1_000):
            assert one.filter == filter_at(int(one.id[1:]))

    with_files = starts(data, shown)
    assert compiled.ids == []
    assert with_files == without_files(data)
    assert len(compiled.ids) == COUNT + 20
    assert any(with_files)


def test_what_has_changed_since_is_applied(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def change() -> None:
        async with running(data) as broker:
            saved = broker.directory.feed("ticks").feed
            monkeypatch.setattr(saved, "is_to_save", lambda _quiet: False)
            for number in range(0, 40, 2):
                await broker.subscriptions.delete("ann", f"s{number}")
            for number in range(1, 20, 2):
                await broker.subscriptions.put("ann", f"s{number}", wanted("price < 30"))
            await broker.subscriptions.put("eve", "e0", wanted("price < 9"))  # exact no longer
            await broker.subscriptions.put("zoe", "new", wanted("price < 30"))
            await broker.subscriptions.delete("ann", "s3")
            await broker.subscriptions.put("ann", "s3", wanted("price < 3"))

    run(change)
    compiled = Compiled(monkeypatch)
    with_files = starts(data)
    assert sorted(compiled.ids) == sorted(
        [f"s{number}" for number in range(1, 20, 2)] + ["e0", "new"]
    )
    assert with_files == without_files(data)


def test_changes_after_a_start_with_files(data: Path) -> None:
    """Slots that are free by then are given to others, and the next files have it all."""

    async def change() -> None:
        async with running(data) as broker:
            for number in range(280):
                await broker.subscriptions.delete("bob", f"s{number}")
            many = {f"t{number}": wanted(filter_at(number)) for number in range(300)}
            await broker.subscriptions.put_many("zoe", many)
            await broker.pipeline.publish("ticks", events(*PROBES))
            after.extend(found(broker))

    after: list[list[str]] = []
    run(change)
    assert starts(data) == after
    assert without_files(data) == after


FILES = ["index.json", "checksums.npy", "matcher/manifest.json", "exact/manifest.json", "box_low"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "missing"])
def test_damaged_files_are_not_used(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: str
) -> None:
    folder = index_folder(data)
    path = folder / name
    if name == "box_low":
        path = max(folder.rglob("*box_low*"), key=lambda one: one.stat().st_size)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0x10
        path.write_bytes({"flipped": content, "cut": content[:-5], "empty": b""}[damage])
    compiled = Compiled(monkeypatch)
    told = starts(data)
    assert len(compiled.ids) == COUNT + 20
    assert told == without_files(data)


@pytest.mark.parametrize("name", ["format", "version"])
def test_files_of_another_version_are_not_used(
    data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = index_folder(data) / "index.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: "0.0.1"}))
    compiled = Compiled(monkeypatch)
    starts(data)
    assert len(compiled.ids) == COUNT + 20


def test_every_file_counts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any one of them, the index is built again."""
    paths = [one for one in index_folder(data).rglob("*") if one.is_file()]
    assert len(paths) > 10
    for path in random.Random(3).sample(paths, 6):
        copy = Path(shutil.copytree(data, data.with_name(path.name)))
        (copy / path.relative_to(data)).unlink()
        with pytest.MonkeyPatch.context() as patch:
            compiled = Compiled(patch)
            starts(copy)
            assert len(compiled.ids) == COUNT + 20, path


def test_files_of_an_extended_feed(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the schema before are not used; those of a clean stop have the new one."""

    async def extend() -> None:
        async with running(data) as broker:
            await broker.feeds.extend("ticks", {"venue": "string"})
            await broker.subscriptions.put("zoe", "venue", wanted("venue = 'X' OR price < 5"))
            after.extend(found(broker))
            shutil.copytree(data / FOLDER, old)

    after: list[list[str]] = []
    old = data.with_name("old")
    run(extend)
    compiled = Compiled(monkeypatch)
    assert starts(data) == after
    assert compiled.ids == []
    shutil.rmtree(data / FOLDER)
    shutil.copytree(old, data / FOLDER)
    assert starts(data) == after
    assert len(compiled.ids) == COUNT + 21


def test_a_dropped_feed_takes_its_files_with_it(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with running(data) as broker:
            await broker.feeds.drop("ticks")
            await broker.feeds.create(ticks())
        assert not index_folder(data).exists()
        async with running(data) as broker:
            assert not any(found(broker))

    run(main)


def test_few_subscriptions_have_no_files(tmp_path: Path) -> None:
    async def main() -> None:
        async with running(tmp_path) as broker:
            await broker.feeds.create(ticks())
            await broker.subscriptions.put("ann", "a", wanted("price > 1"))

    run(main)
    assert not (tmp_path / FOLDER).exists()


def test_files_are_written_while_a_broker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that is killed has them too."""
    monkeypatch.setattr("boxmatch.broker.housekeeping._SAVING", 0.05)
    monkeypatch.setattr("boxmatch.broker.housekeeping._QUIET", 0.0)
    data, copy = tmp_path / "data", tmp_path / "copy"

    async def main() -> None:
        async with running(data) as broker:
            await fill(broker)
            while not (index_folder(data) / "index.json").exists():
                await asyncio.sleep(0.02)
            while broker.directory.feed("ticks").feed.unsaved > 256:
                await asyncio.sleep(0.02)
            after.extend(found(broker))
            await asyncio.gather(*map(stop, broker.housekeeping.tasks), return_exceptions=True)
            broker.store.backup(copy / "broker.sqlite")
            shutil.copytree(data / FOLDER, copy / FOLDER)

    def stop(task: Any) -> Any:
        task.cancel()
        return task

    after: list[list[str]] = []
    copy.mkdir()
    run(main)
    compiled = Compiled(monkeypatch)
    assert starts(copy) == after
    assert len(compiled.ids) <= 256


def test_rows_count_more_than_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that was written by somebody else, or is damaged, is what the database says."""
    with Store.open(data) as store:
        [row] = [one for one in store.reader.subscriptions(1) if one.id == "s7"][:1]
        wanted_now = b'{"feed":"ticks","filter":"price < 1000"}'
        store.write(lambda t: t.put_subscription(row.subscriber, "s7", 1, wanted_now, 5.0)).result()
        store.write(
            lambda t: t.execute("UPDATE subscription SET wanted = x'00' WHERE id = 's8'").rowcount
        ).result()
    reported: list[str] = []

    async def start() -> None:
        async with running(data) as broker:
            told.extend(found(broker))
            while len(broker.store.reader.damage) < 2:
                await asyncio.sleep(0.01)
            reported.extend(broker.store.reader.damage)

    told: list[list[str]] = []
    run(start)
    assert all("ann/s7" in one for one in told)
    assert len(reported) == 2
    assert all(one.startswith("subscription ") for one in reported)
    rebuilt = without_files(data)
    assert rebuilt == [[id for id in one if not id.endswith("/s8")] for one in told]
