"""Matchers in directories: what has returned is on disk, whatever happens, and readers follow."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import boxmatch as bm
from boxmatch.engine import durable
from boxmatch.engine.journal import DATABASE
from boxmatch.engine.saved_files import SavedFolder

SCHEMA = {"symbol": "string", "price": "float", "n": "int", "tags": "list of string"}
FILTERS = [
    "symbol = 'A' AND price < 50",
    "n > 3 OR price BETWEEN 1 AND 2",
    "symbol LIKE '%x%' AND n = 1",
    "NOT symbol LIKE '%x%'",
    "'a' = ANY(tags) AND 'b' = ANY(tags)",
    "price * n > 10",
    "n = 1 AND n = 2",
    "TRUE",
]
EVENTS: list[dict[str, Any]] = [
    {"symbol": "A", "price": 20.0, "n": 1, "tags": ["a", "b"]},
    {"symbol": "xyz", "price": 1.5, "n": 1},
    {"n": 7, "price": 3.0, "tags": ["a"]},
    {},
]
SOON = 10.0  # seconds; nothing here should come near it


def answers(m: bm.Matcher) -> list[list[Any]]:
    return [sorted(m.match(event)) for event in EVENTS]


def expect_same(one: bm.Matcher, other: bm.Matcher) -> None:
    assert len(one) == len(other)
    assert answers(one) == answers(other)
    assert sorted(one.items()) == sorted(other.items())


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not done():
        assert time.monotonic() < end
        time.sleep(0.01)


def open_fast(path: Path, schema: Any = SCHEMA, **options: Any) -> bm.Matcher:
    """Not the safest way, which keeps the disk busy."""
    return bm.Matcher.open(path, schema, sync="normal", **options)


@pytest.mark.parametrize("ids", [str, int])
@pytest.mark.parametrize("closed", [True, False])
def test_is_there_again(tmp_path: Path, ids: type, closed: bool) -> None:
    plain = bm.Matcher(SCHEMA)
    with open_fast(tmp_path / "m") as kept:
        for m in (plain, kept):
            for number in range(40):
                m.subscribe(ids(number), FILTERS[number % len(FILTERS)])
            m.unsubscribe(ids(3))
            m.subscribe(ids(4), {"price": (1, 30), "n": 1})
            m.unsubscribe_many([ids(5), ids(6), ids(5)])
            m.subscribe_many([{"id": ids(n), "filter": FILTERS[n % 3]} for n in range(50, 60)])
        expect_same(kept, plain)
        if not closed:
            kept._disk.abandon()  # type: ignore[union-attr]  # as a process that is killed
    with open_fast(tmp_path / "m", None) as again:
        expect_same(again, plain)
        assert again.info().pending == (0 if closed else 54)
        again.subscribe(ids(7), "n = 4")
    assert bm.Matcher.load(tmp_path / "m").filter_of(ids(7)) == "n = 4"


def test_many_at_once_go_into_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_FEW_LOADED", 10)
    kept = open_fast(tmp_path / "m")
    kept.subscribe_many(pa.table({"id": range(30), "n": range(30)}))
    assert kept.info().pending == 0
    kept.subscribe(3, "price = 1")
    other = bm.Matcher(SCHEMA)
    other.subscribe(5, "n = 5 OR n = 7")
    kept.subscribe_from([(other, np.arange(200, 220))])
    loaded = bm.Matcher.load(tmp_path / "m")
    expect_same(loaded, kept)
    assert loaded.filter_of(205) == "n = 5 OR n = 7"
    assert len(loaded) == 31


def test_files_take_over_from_a_long_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_FEWEST", 20)
    kept = open_fast(tmp_path / "m")
    for number in range(200):
        kept.subscribe(number, FILTERS[number % len(FILTERS)])
        if number % 3 == 0:
            kept.unsubscribe(number)
    wait_until(lambda: (kept.info().pending or 0) <= 20)
    expect_same(bm.Matcher.load(tmp_path / "m"), kept)


def test_segments_are_written_once(tmp_path: Path) -> None:
    with open_fast(tmp_path / "m") as kept:
        kept.subscribe_many(pa.table({"id": range(5000), "n": range(5000)}))
        before = {path: path.stat().st_ino for path in (tmp_path / "m").rglob("segment-*")}
        kept.subscribe(9999, "n = 1")
        kept.unsubscribe(7)
        kept._disk.write_files()  # type: ignore[union-attr]
        after = {path: path.stat().st_ino for path in (tmp_path / "m").rglob("segment-*")}
        unchanged = [path for path in before if before[path] == after.get(path)]
        assert len(unchanged) >= len(before) - 1  # what is removed is written anew
    expect_same(bm.Matcher.load(tmp_path / "m"), kept)


def test_one_writes_and_others_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(durable, "_FEW_LOADED", 10)
    with pytest.raises(bm.StorageError, match=r"no matcher at .*: say with which schema"):
        bm.Matcher.open(tmp_path / "m", SCHEMA, read_only=True)
    kept = open_fast(tmp_path / "m")
    reader = bm.Matcher.open(tmp_path / "m", read_only=True)
    kept.subscribe("a", FILTERS[0])
    wait_until(lambda: "a" in reader)
    with pytest.raises(bm.StorageError, match="opened to read"):
        reader.subscribe("b", "TRUE")
    with pytest.raises(bm.StorageError, match="is open already"):
        bm.Matcher.open(tmp_path / "m")
    for number in range(20):
        kept.subscribe(f"s{number}", FILTERS[number % len(FILTERS)])
    kept.subscribe_many([{"id": f"m{n}", "filter": FILTERS[n % 8]} for n in range(40)])
    kept.unsubscribe("s3")
    reader.refresh()
    expect_same(reader, kept)
    kept._disk.write_files()  # type: ignore[union-attr]
    kept.subscribe("last", "TRUE")
    reader.refresh()
    expect_same(reader, kept)
    reader.close()
    kept.subscribe("after", "TRUE")
    assert "after" not in reader
    reader.refresh()
    assert "after" not in reader


def test_a_reader_that_fell_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has not seen is no longer in the journal."""
    monkeypatch.setattr(durable, "_LOOK_AGAIN", 1000.0)
    kept = open_fast(tmp_path / "m")
    reader = bm.Matcher.open(tmp_path / "m", read_only=True)
    for number in range(30):
        kept.subscribe(number, FILTERS[number % len(FILTERS)])
    kept._disk.write_files()  # type: ignore[union-attr]
    kept.unsubscribe(3)
    assert len(reader) == 0
    reader.refresh()
    expect_same(reader, kept)


class Durable(RuleBasedStateMachine):
    """A durable matcher, one that reads, and one in memory."""

    def __init__(self) -> None:
        super().__init__()
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "m"
        self.kept = open_fast(self.path)
        self.reader = bm.Matcher.open(self.path, read_only=True)
        self.plain = bm.Matcher(SCHEMA)

    ids = st.integers(0, 12)

    @rule(id=ids, filter=st.sampled_from(FILTERS))
    def subscribe(self, id: int, filter: str) -> None:
        assert self.kept.subscribe(id, filter) == self.plain.subscribe(id, filter)

    @rule(ids=st.sets(ids, max_size=5), filter=st.sampled_from(FILTERS), large=st.booleans())
    def subscribe_many(self, ids: set[int], filter: str, large: bool) -> None:
        rows = [{"id": id, "filter": filter} for id in ids]
        durable._FEW_LOADED = 0 if large else 1_000  # type: ignore[misc]
        assert self.kept.subscribe_many(rows) == self.plain.subscribe_many(rows)

    @rule(ids=st.sets(ids, max_size=5))
    def unsubscribe_many(self, ids: set[int]) -> None:
        gone = self.plain.unsubscribe_many(list(ids), missing_ok=True) if ids else 0
        assert gone == (self.kept.unsubscribe_many(list(ids), missing_ok=True) if ids else 0)

    @rule()
    def compact(self) -> None:
        self.kept.compact()

    @rule()
    def write_files(self) -> None:
        self.kept._disk.write_files()  # type: ignore[union-attr]

    @rule(killed=st.booleans())
    def reopen(self, killed: bool) -> None:
        if killed:
            self.kept._disk.abandon()  # type: ignore[union-attr]
        else:
            self.kept.close()
        self.kept = open_fast(self.path, None)

    @precondition(lambda self: len(self.plain) > 0)
    @rule()
    def read(self) -> None:
        self.reader.refresh()
        expect_same(self.reader, self.plain)

    @invariant()
    def same(self) -> None:
        expect_same(self.kept, self.plain)

    def teardown(self) -> None:
        durable._FEW_LOADED = 1_000  # type: ignore[misc]
        self.kept.close()
        self.reader.close()
        self.folder.cleanup()


TestDurable = Durable.TestCase
TestDurable.settings = settings(
    max_examples=15, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


WRITER = """
import sys, boxmatch as bm
m = bm.Matcher.open(sys.argv[1], {"n": "int"}, sync="normal")
first = int(sys.argv[2])
from boxmatch.engine import durable
durable._FEWEST = 50
for n in range(first, first + 100_000):
    m.subscribe(n, f"n = {n}")
    if n % 5 == 0:
        m.unsubscribe(n)
    if n % 97 == 0:
        m.subscribe_many([{"id": -n * 10 - k - 1, "filter": "TRUE"} for k in range(3)])
    print(n, flush=True)
"""


def test_killed_at_random(tmp_path: Path) -> None:
    path, said = tmp_path / "m", -1
    chance = random.Random(5)
    for _ in range(3):
        arguments = [sys.executable, "-c", WRITER, str(path), str(said + 1)]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            line = process.stdout.readline()
            end = time.monotonic() + chance.uniform(0.05, 0.6)
            while line and time.monotonic() < end:
                said = int(line)
                line = process.stdout.readline()
            process.send_signal(signal.SIGKILL)
            for rest in (line, *process.stdout):  # what it said before the end came
                if rest.endswith("\n"):
                    said = int(rest)
        kept = bm.Matcher.load(path)
        found = {id for id in kept.ids() if isinstance(id, int) and id >= 0}
        wanted = {n for n in range(said + 1) if n % 5}
        # The one that was being made when the end came may be there, or not.
        assert found - {said + 1} == wanted - {said + 1}
        assert sorted(kept.match({"n": 7})) == sorted([*(i for i in kept.ids() if int(i) < 0), 7])
    assert said > 100


def test_threads_share_the_wait(tmp_path: Path) -> None:
    kept = bm.Matcher.open(tmp_path / "m", SCHEMA)

    def subscribe(first: int) -> None:
        for number in range(first, first + 50):
            kept.subscribe(number, FILTERS[number % len(FILTERS)])

    threads = [Thread(target=subscribe, args=(number * 50,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect_same(bm.Matcher.load(tmp_path / "m"), kept)
    assert len(kept) == 400


def test_settings_are_given_once(tmp_path: Path) -> None:
    with pytest.raises(bm.StorageError, match=r"no matcher at .*: say with which schema"):
        bm.Matcher.open(tmp_path / "m")
    assert not (tmp_path / "m").exists()
    with open_fast(tmp_path / "m", index="scan", max_boxes=7):
        pass
    for schema, options in [
        ({"n": "int"}, {}),
        (SCHEMA, {"index": "tile"}),
        (None, {"max_boxes": 8}),
        (None, {"keep_texts": False}),
        (None, {"surely": 1}),
    ]:
        with pytest.raises(bm.StorageError, match="has a matcher with"):
            open_fast(tmp_path / "m", schema, **options)
    with open_fast(tmp_path / "m", SCHEMA, index="scan") as kept:
        assert (kept.index, kept.max_boxes) == ("scan", 7)
    with pytest.raises(bm.StorageError, match="sync is 'full' or 'normal'"):
        bm.Matcher.open(tmp_path / "m", sync="no")  # type: ignore[arg-type]


def test_a_saved_matcher_becomes_durable(tmp_path: Path) -> None:
    m = bm.Matcher(SCHEMA)
    m.subscribe("a", FILTERS[1])
    m.save(tmp_path / "m")
    with open_fast(tmp_path / "m") as kept:
        kept.subscribe("b", FILTERS[2])
        with pytest.raises(bm.StorageError, match="durable matcher, which saves itself"):
            m.save(tmp_path / "m")
        kept.save(tmp_path / "copy")
    expect_same(bm.Matcher.load(tmp_path / "copy"), bm.Matcher.load(tmp_path / "m"))


def test_other_peoples_directories_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(bm.StorageError, match="holds other files"):
        bm.Matcher.open(tmp_path, SCHEMA)
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_what_is_closed_takes_no_changes(tmp_path: Path) -> None:
    kept = open_fast(tmp_path / "m")
    kept.subscribe("a", FILTERS[0])
    kept.close()
    kept.close()
    for change in (
        lambda: kept.subscribe("b", "TRUE"),
        lambda: kept.subscribe_many([{"id": "b", "filter": "TRUE"}]),
        lambda: kept.unsubscribe("a"),
        lambda: kept.unsubscribe_many(["a"]),
    ):
        with pytest.raises(bm.StorageError, match="is closed"):
            change()
    assert kept.match(EVENTS[0]) == ["a"]


def test_a_lost_matcher_lets_others_in(tmp_path: Path) -> None:
    kept = open_fast(tmp_path / "m")
    kept.subscribe("a", "TRUE")
    del kept
    with open_fast(tmp_path / "m") as again:
        assert again.ids() == ["a"]


def test_files_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the journal is safe; what goes into files says so."""
    kept = open_fast(tmp_path / "m")
    kept.subscribe("a", "TRUE")

    def fail(*_: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(SavedFolder, "_save", fail)
        with pytest.raises(bm.StorageError, match="no space left"):
            kept.subscribe_many(pa.table({"id": ["b"], "n": [1]}))
        kept.subscribe("c", "n = 2")
    kept._disk.write_files()  # type: ignore[union-attr]
    expect_same(bm.Matcher.load(tmp_path / "m"), kept)


def test_damage_is_noticed(tmp_path: Path) -> None:
    kept = open_fast(tmp_path / "m")
    kept.subscribe("a", "n = 1")
    kept._disk.abandon()  # type: ignore[union-attr]
    with closing(sqlite3.connect(tmp_path / "m" / DATABASE)) as database, database:
        database.execute("UPDATE changes SET filter = replace(filter, '1', '2')")
    for way in (bm.Matcher.load, bm.Matcher.open):
        with pytest.raises(bm.StorageError, match="is damaged: change 1"):
            way(tmp_path / "m")


FORKING = """
import os, sys
import boxmatch as bm
kept = bm.Matcher.open(sys.argv[1], {"n": "int"})
reader = bm.Matcher.open(sys.argv[1], read_only=True)
kept.subscribe(1, "n = 1")
reader.refresh()
if os.fork() == 0:
    refused = 0
    for change in (lambda: kept.subscribe(2, "n = 2"), reader.refresh):
        try:
            change()
        except bm.StorageError:
            refused += 1
    os._exit(refused if kept.match({"n": 1}) == reader.match({"n": 1}) == [1] else 7)
print(os.waitstatus_to_exitcode(os.wait()[1]))
kept.subscribe(3, "n = 3")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_process_only_matches(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKING, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"
    assert sorted(bm.Matcher.load(tmp_path / "m")) == [1, 3]  # type: ignore[type-var]


def test_loading_while_files_take_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between its files and its journal, a change is in one or the other."""
    kept = open_fast(tmp_path / "m")
    for number in range(20):
        kept.subscribe(number, FILTERS[number % len(FILTERS)])
    read = durable.read_journal
    times = []

    def read_later(folder: Path, since: int) -> Any:
        if not times:
            kept._disk.write_files()  # type: ignore[union-attr]
        times.append(since)
        return read(folder, since)

    monkeypatch.setattr(durable, "read_journal", read_later)
    expect_same(bm.Matcher.load(tmp_path / "m"), kept)
    assert times == [0, 20]


def test_what_a_reader_could_not_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "_LOOK_AGAIN", 1000.0)
    kept = open_fast(tmp_path / "m")
    reader = bm.Matcher.open(tmp_path / "m", read_only=True)
    kept.subscribe("a", "TRUE")

    def fail(*_: object) -> None:
        raise bm.StorageError("not now")

    with monkeypatch.context() as patched:
        patched.setattr(durable, "apply_changes", fail)
        with pytest.raises(bm.StorageError, match="not now"):
            reader.refresh()
    reader.refresh()
    assert reader.ids() == ["a"]


def test_files_are_not_written_once_others_may_open_them(tmp_path: Path) -> None:
    kept = open_fast(tmp_path / "m")
    kept.subscribe("a", "TRUE")
    kept._disk.abandon()  # type: ignore[union-attr]
    with open_fast(tmp_path / "m") as again:
        again.subscribe("b", "TRUE")
    with pytest.raises(bm.StorageError, match="is closed"):
        kept._disk.write_files()  # type: ignore[union-attr]
    assert sorted(bm.Matcher.load(tmp_path / "m")) == ["a", "b"]  # type: ignore[type-var]
