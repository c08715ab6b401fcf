from __future__ import annotations

import errno
import logging
import os
import pwd
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from broker_store_job import body
from fault_places import fill, small_disk

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Appended, Store, StoreTransaction
from boxmatch.broker.store.recipients import Recipients
from boxmatch.broker.store.store import DATABASE
from boxmatch.broker.store.writer import RESERVE
from boxmatch.errors import StorageError
from boxmatch.model.schema import Schema

JOB = Path(__file__).with_name("broker_store_job.py")
SPEC = FeedSpec(name="f", spaces={"f": Schema({"a": "int"})})


def make(store: Store) -> tuple[int, int]:
    return store.write(lambda t: (t.put_feed(SPEC), t.put_subscriber("ann"))).result()


def append(
    store: Store, feed: int, subscriber: int, content: bytes = b"1", size: int = 1
) -> Appended:
    notifications = [(place, ["s"]) for place in range(size)]
    return store.write(
        lambda t: t.append(feed, 0.0, [content] * size, Recipients.of({subscriber: notifications}))
    ).result()


def run_and_kill(folder: Path, sync: str, after: float) -> list[tuple[int, int, int, int]]:
    command = [sys.executable, str(JOB), str(folder), sync]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        told = [child.stdout.readline()]  # it has begun
        timer = threading.Timer(after, child.kill)
        timer.start()
        told += child.stdout.readlines()
        timer.cancel()
    lines = [line.split() for line in told if line.endswith("\n")]
    assert all(len(line) == 4 for line in lines)
    return [(int(a), int(b), int(c), int(d)) for a, b, c, d in lines]


def test_killed_in_the_middle_of_work(tmp_path: Path) -> None:
    random_ = random.Random()
    acknowledged: list[tuple[int, int, int, int]] = []
    for turn in range(4):
        sync = ("full", "normal")[turn % 2]
        acknowledged += run_and_kill(tmp_path, sync, random_.uniform(0.0, 0.3))
        with Store.open(tmp_path) as store:
            [(feed, _)] = store.reader.feeds()
            log = {event.sequence: event.body for event in store.reader.events(feed, 0, 10**9)}
            assert list(log) == list(range(1, store.next_sequence))
            heard = {
                subscriber.number: {
                    notification.sequence: notification
                    for notification in store.reader.inbox(subscriber.number, 0, 10**9)
                }
                for subscriber in store.reader.subscribers()
            }
            # Each number has gone to exactly one subscriber, whether it was acknowledged or not.
            assert sorted(n for notifications in heard.values() for n in notifications) == list(log)
            assert store.reader.damage == []
            for first, last, call, subscriber in acknowledged:
                for place, number in enumerate(range(first, last + 1)):
                    assert log[number] == body(place, call)
                    notification = heard[subscriber][number]
                    assert (notification.body, notification.subscriptions) == (
                        log[number],
                        [f"s{call}"],
                    )
    numbers = [n for first, last, *_ in acknowledged for n in range(first, last + 1)]
    assert len(numbers) == len(set(numbers))
    assert numbers


def test_a_full_disk_is_told_and_may_be_freed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        append(store, feed, ann)
        [(pages,)] = store._database.connection.execute("PRAGMA page_count")
        store._database.connection.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall()
        gate = threading.Event()
        store.write(lambda t: gate.wait()).add_done_callback(lambda _: None)
        heard: list[object] = []
        large = [b"x" * 200_000]
        notifications = {ann: [(0, ["s"])]}
        store.enqueue(lambda t: t.next_sequence, heard.append)
        futures = [
            store.write(
                lambda t: t.append(feed, 0.0, [b"2"], Recipients.of(notifications), key="k")
            ),
            store.write(lambda t: t.append(feed, 0.0, large, Recipients.of(notifications))),
            store.write(lambda t: (t.put_subscriber("bob"), t.put_feed(other("g")))),
        ]
        gate.set()
        errors = [future.exception() for future in futures]
        assert all(isinstance(error, StorageError) for error in errors)
        assert all("full" in str(error) for error in errors)
        assert len(set(map(id, errors))) == 3
        assert store.next_sequence == 2
        assert [subscriber.name for subscriber in store.reader.subscribers()] == ["ann"]
        assert [notification.sequence for notification in store.reader.inbox(ann, 0, 10)] == [1]
        # What is small still fits, and takes the numbers that were not used.
        again = store.write(
            lambda t: t.append(feed, 0.0, [b"2"], Recipients.of(notifications), key="k")
        ).result()
        assert again == Appended(2, 2)
        with pytest.raises(StorageError, match="full"):
            append(store, feed, ann, large[0])
        store._database.connection.execute("PRAGMA max_page_count = 1000000").fetchall()
        assert append(store, feed, ann, large[0]) == Appended(3, 3)
        assert "full" in str(heard[0])
        assert [event.sequence for event in store.reader.events(feed, 0, 10)] == [1, 2, 3]
    assert "cannot write" in caplog.text
    with Store.open(tmp_path) as store:
        assert store.next_sequence == 4


def test_what_frees_room_has_some_in_reserve(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8) as disk:
        data = disk / "data"
        with Store.open(data, pace=0.0) as store:
            feed, ann = make(store)
            for _ in range(40):
                append(store, feed, ann, b"x" * 20_000)
            assert store.failure is None
        with Store.open(data, pace=0.0) as store:
            filling = fill(disk)
            use_up(store, feed, ann)
            assert "full" in str(store.failure)
            with pytest.raises(StorageError, match="full"):
                store.write(lambda t: t.put_subscriber("bob")).result()
            store.write(lambda t: t.move_cursor(ann, 10), frees=True).result()
            use_up(store, feed, ann)
            with pytest.raises(StorageError, match="full"):
                store.probe()
            assert store.failure is not None
            assert store.tidy(1.0, Retention(seconds=0.5)).batches >= 20
            # The database does not shrink, but there is room in it now.
            for _ in range(5):
                append(store, feed, ann, b"x" * 20_000)
            store.probe()
            assert store.failure is None
            use_up(store, feed, ann)
        with Store.open(data, pace=0.0) as store:
            assert [
                subscriber.cursor
                for subscriber in store.reader.subscribers()
                if subscriber.name == "ann"
            ] == [10]
            use_up(store, feed, ann)
            filling.unlink()
            append(store, feed, ann, b"x" * 20_000)
            store.probe()
            assert store.failure is None
            assert (data / RESERVE).stat().st_size == 8 * 2**20 // 16


def use_up(store: Store, feed: int, subscriber: int) -> None:
    def append_many() -> None:
        for _ in range(10_000):
            append(store, feed, subscriber, b"x" * 20_000)

    with pytest.raises(StorageError, match="full"):
        append_many()


def test_who_is_refused_for_want_of_room_knows_in_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes after it, and is carried out, may depend on that."""
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        monkeypatch.setattr(store._writer._reserve, "is_whole", False)
        monkeypatch.setattr(store._writer._reserve, "restore", lambda: False)
        gate, order = threading.Event(), []

        def refused(t: StoreTransaction) -> None:
            try:
                t.put_subscriber("bob")
            finally:
                order.append("refused")

        def freeing(t: StoreTransaction) -> None:
            t.move_cursor(ann, 1)
            order.append("freed")

        store.write(lambda t: gate.wait())
        futures = [store.write(refused), store.write(freeing, frees=True)]
        appending = store.write(lambda t: t.append(feed, 0.0, [b"1"]))
        gate.set()
        assert isinstance(futures[0].exception(), StorageError)
        assert futures[1].exception() is None
        assert isinstance(appending.exception(), StorageError)
        assert order == ["refused", "freed"]
        monkeypatch.undo()
        assert append(store, feed, ann) == Appended(1, 1)


def other(name: str) -> FeedSpec:
    return FeedSpec(name=name, spaces={name: Schema({"a": "int"})})


def end_thread(transaction: StoreTransaction) -> None:
    raise SystemExit


def test_a_writer_thread_that_ends_tells_all_who_wait(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        feed, ann = make(store)
        gate = threading.Event()
        heard: list[object] = []
        first = store.write(lambda t: gate.wait())
        store.enqueue(
            lambda t: t.append(feed, 0.0, [b"1"], Recipients.of({ann: [(0, ["s"])]})), heard.append
        )
        last = store.write(end_thread)
        queued = [store.write(lambda t: t.append(feed, 0.0, [b"2"])) for _ in range(3)]
        gate.set()
        for future in (first, last, *queued):
            assert "has ended" in str(future.exception(60))
        assert "has ended" in str(heard[0])
        with pytest.raises(StorageError, match="has ended"):
            store.write(lambda t: None)
    with Store.open(tmp_path) as store:
        assert append(store, feed, ann) == Appended(1, 1)


def test_a_full_disk_in_the_middle_of_a_change(tmp_path: Path) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        [(pages,)] = store._database.connection.execute("PRAGMA page_count")
        store._database.connection.execute(f"PRAGMA max_page_count = {pages + 20}").fetchall()

        def change(t: StoreTransaction) -> None:
            t.append(feed, 0.0, [b"x" * 200_000], Recipients.of({ann: [(0, ["s"])]}))
            t.put_subscriber("bob")

        with pytest.raises(StorageError, match="full"):
            store.write(change).result()
        assert append(store, feed, ann) == Appended(1, 1)
        assert [subscriber.name for subscriber in store.reader.subscribers()] == ["ann"]


def test_a_database_that_another_holds(tmp_path: Path) -> None:
    # Nobody should, but a tool may.
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        store._database.connection.execute("PRAGMA busy_timeout = 10").fetchall()
        with closing(sqlite3.connect(tmp_path / "broker.sqlite", isolation_level=None)) as tool:
            tool.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="locked"):
                append(store, feed, ann)
            assert store.reader.inbox(ann, 0, 10) == []
            tool.execute("ROLLBACK")
        assert append(store, feed, ann) == Appended(1, 1)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        for folder in (tmp_path, tmp_path / "data"):
            with pytest.raises(StorageError, match=f"{tmp_path} cannot be written by user '.*'"):
                Store.open(folder)
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.parametrize("denied", ["", DATABASE, f"{DATABASE}-wal"])
def test_it_says_who_cannot_write_what(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, denied: str
) -> None:
    Store.open(tmp_path).close()
    (tmp_path / f"{DATABASE}-wal").touch()

    def fail(*_: object, **__: object) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr(sqlite3, "connect", fail)
    with pytest.raises(StorageError, match="unable to open database file"):
        Store.open(tmp_path)
    path = tmp_path / denied
    user = pwd.getpwuid(os.geteuid()).pw_name
    monkeypatch.setattr(os, "access", lambda asked, *_, **__: asked != path)
    with pytest.raises(StorageError) as caught:
        Store.open(tmp_path)
    said = f"{path} cannot be written by user {user!r}, who runs this"
    assert str(caught.value) == f"cannot use {tmp_path / DATABASE}: {said}"


def test_a_read_only_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        with pytest.raises(StorageError, match="Read-only file system"):
            Store.open(tmp_path)
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        append(store, feed, ann)
        # As when it becomes one: all can be read, and when it is over all goes on.
        store._database.connection.execute("PRAGMA query_only = 1").fetchall()
        with pytest.raises(StorageError, match="readonly"):
            append(store, feed, ann)
        assert len(store.reader.inbox(ann, 0, 10)) == 1
        store._database.connection.execute("PRAGMA query_only = 0").fetchall()
        assert append(store, feed, ann) == Appended(2, 2)


def test_a_place_that_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("text")
    with pytest.raises(StorageError, match="cannot use"):
        Store.open(file)
    with pytest.raises(StorageError, match="sync is 'full' or 'normal', not 'never'"):
        Store.open(tmp_path, sync="never")  # type: ignore[arg-type]
    Store.open(tmp_path).close()


def test_a_second_opener(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        with pytest.raises(StorageError, match="is open already"):
            Store.open(tmp_path)
        script = "import sys, pathlib; from boxmatch.broker.store import Store; "
        script += "Store.open(pathlib.Path(sys.argv[1]))"
        command = [sys.executable, "-c", script, str(tmp_path)]
        other = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "is open already" in other.stderr
        make(store)
    Store.open(tmp_path).close()


def test_other_databases_and_formats(tmp_path: Path) -> None:
    file = tmp_path / "broker.sqlite"
    file.write_text("no database at all, and long enough to be looked at " * 10)
    with pytest.raises(StorageError, match="not a database"):
        Store.open(tmp_path)
    file.unlink()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE t (x)")
    with pytest.raises(StorageError, match="database of something else"):
        Store.open(tmp_path)
    file.unlink()
    Store.open(tmp_path).close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(StorageError, match="has format 99; this version reads 4"):
        Store.open(tmp_path)
    # One whose making was cut short before its first commit is made again.
    file.unlink()
    file.touch()
    Store.open(tmp_path).close()


def change_rows(folder: Path, statement: str) -> None:
    with closing(sqlite3.connect(folder / "broker.sqlite")) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE batch SET payload = CAST('x' || substr(payload, 2) AS BLOB) WHERE first = 3",
        "UPDATE batch SET payload = x'00' WHERE first = 3",
        "UPDATE batch SET payload = 'text' WHERE first = 3",
        "UPDATE batch SET size = 1000000 WHERE first = 3",
        "UPDATE batch SET size = 'many' WHERE first = 3",
        "UPDATE batch SET at = 'late' WHERE first = 3",
        "UPDATE batch SET checksum = 'none' WHERE first = 3",
    ],
)
def test_a_damaged_batch(tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        for _ in range(3):
            append(store, feed, ann, b'{"a":1}', size=2)
    change_rows(tmp_path, damage)
    with Store.open(tmp_path, pace=0.0) as store:
        with caplog.at_level(logging.ERROR):
            assert [notification.sequence for notification in store.reader.inbox(ann, 0, 10)] == [
                1,
                2,
                5,
                6,
            ]
            assert [event.sequence for event in store.reader.events(feed, 0, 10)] == [1, 2, 5, 6]
            assert [event.sequence for event in store.reader.last_events(feed, 3)] == [2, 5, 6]
        assert store.reader.damage == ["batch 3"]
        assert caplog.text.count("is damaged: batch 3") == 1
        with pytest.raises(StorageError, match="damaged: batch 3"):
            store.reader.event(4)
        assert store.reader.event(5) is not None
        assert append(store, feed, ann) == Appended(7, 7)
        assert store.tidy(1e9, Retention()).batches == 4
        assert store.reader.inbox(ann, 0, 10) == []


@pytest.mark.parametrize("column", ["addressees", "details"])
@pytest.mark.parametrize(
    "content", ["x'fffe'", "'text'", "5", "x''", "substr({}, 2)", "{} || x'00'"]
)
def test_damaged_recipients(tmp_path: Path, column: str, content: str) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        for _ in range(3):
            append(store, feed, ann, size=2)
    damaged = f"CAST({content.format(column)} AS BLOB)" if "{" in content else content
    change_rows(tmp_path, f"UPDATE recipients SET {column} = {damaged} WHERE first = 3")
    with Store.open(tmp_path, pace=0.0) as store:
        assert [one.sequence for one in store.reader.inbox(ann, 0, 10)] == [1, 2, 5, 6]
        assert store.reader.damage == ["who gets events from 3 to 4"]
        store.write(lambda t: t.move_cursor(ann, 1)).result()
        assert store.reader.backlogs()[ann] == (3 if column == "addressees" else 5)
        assert store.tidy(0.0, Retention(backlog=1)).dropped[ann] >= 2
        assert [one.sequence for one in store.reader.inbox(ann, 1, 10)] == [6]
        assert store.tidy(1e9, Retention()).batches == 3
        assert store.reader.sizes().inbox_rows == 0


@pytest.mark.parametrize("column", ["last", "amount", "checksum"])
def test_a_damaged_row_of_recipients(tmp_path: Path, column: str) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        for _ in range(3):
            append(store, feed, ann, size=2)
    change_rows(tmp_path, f"UPDATE recipients SET {column} = {column} + 1 WHERE first = 1")
    with Store.open(tmp_path, pace=0.0) as store:
        assert [one.sequence for one in store.reader.inbox(ann, 0, 10)] == [3, 4, 5, 6]
        assert len(store.reader.damage) == 1
    change_rows(tmp_path, f"UPDATE recipients SET {column} = x'00' WHERE first = 3")
    with Store.open(tmp_path, pace=0.0) as store:
        assert [one.sequence for one in store.reader.inbox(ann, 0, 10)] == [5, 6]
        assert store.reader.backlogs()[ann] == (4 if column == "checksum" else 2)


def test_damaged_subscriptions_and_members(tmp_path: Path) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        for name in ("a", "b"):
            store.write(lambda t, n=name: t.put_subscription(ann, n, feed, b"{}", 0.0)).result()
            store.write(lambda t, n=name: t.put_member(feed, n, b"{}", None)).result()
    change_rows(tmp_path, "UPDATE subscription SET wanted = x'00' WHERE id = 'a'")
    change_rows(tmp_path, "UPDATE member SET expires = 7 WHERE id = 'b'")
    with Store.open(tmp_path) as store:
        assert [row.id for row in store.reader.subscriptions(feed)] == ["b"]
        assert [row.id for row in store.reader.members(feed)] == ["a"]
        assert store.reader.damage == ["publication 2", "subscription 1"]


def test_a_damaged_feed_keeps_the_store_shut(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        make(store)
    change_rows(tmp_path, "UPDATE feed SET spec = '{}'")
    with pytest.raises(StorageError, match="feed 'f' is damaged"):
        Store.open(tmp_path)
    change_rows(tmp_path, "DELETE FROM about")
    with pytest.raises(StorageError, match="lacks 'next'"):
        Store.open(tmp_path)


def test_reports_of_rubbish(tmp_path: Path) -> None:
    with Store.open(tmp_path, pace=0.0) as store:
        feed, ann = make(store)
        for _ in range(3):
            append(store, feed, ann, b"x" * 50_000)
        file = tmp_path / "broker.sqlite"
    content = bytearray(file.read_bytes())
    for page in range(len(content) // 4096 - 3, len(content) // 4096):
        content[page * 4096 : page * 4096 + 4096] = b"\xff" * 4096
    file.write_bytes(content)
    with Store.open(tmp_path, pace=0.0) as store:
        assert [event.sequence for event in store.reader.events(feed, 0, 10)] == [1, 2]
        assert [notification.sequence for notification in store.reader.inbox(ann, 0, 10)] == [1, 2]
        with pytest.raises(StorageError, match="damaged"):
            store.reader.event(3)


def test_a_torn_log_ahead_is_taken_up_to_the_tear(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    copy.mkdir()
    with Store.open(source, pace=0.0) as store:
        feed, ann = make(store)
        for _ in range(20):
            append(store, feed, ann, b"x" * 5000)
        # As a power cut may leave it: the database as it was, the write-ahead log only in part.
        for name in ("broker.sqlite", "broker.sqlite-wal"):
            (copy / name).write_bytes((source / name).read_bytes())
    log = copy / "broker.sqlite-wal"
    os.truncate(log, log.stat().st_size - 6000)
    with Store.open(copy, pace=0.0) as store:
        numbers = [event.sequence for event in store.reader.events(feed, 0, 100)]
        assert numbers == list(range(1, store.next_sequence))
        assert 1 < store.next_sequence < 21
        assert [
            notification.sequence for notification in store.reader.inbox(ann, 0, 100)
        ] == numbers
        assert append(store, feed, ann).first == len(numbers) + 1


def test_reading_while_writing(tmp_path: Path) -> None:
    """Readers see whole groups, whatever the moment, and tidying never shows half of its work."""
    with Store.open(tmp_path, sync="normal", pace=0.0) as store:
        feed, ann = make(store)
        stop = threading.Event()
        problems: list[object] = []

        def until_stopped(look: Callable[[], None]) -> None:
            try:
                while not stop.is_set():
                    look()
            except BaseException as error:
                problems.append(error)

        def look() -> None:
            before = store.next_sequence
            numbers = [
                notification.sequence for notification in store.reader.inbox(ann, 0, 100_000)
            ]
            assert numbers == list(range(numbers[0], numbers[-1] + 1)) if numbers else True
            assert not numbers or numbers[-1] >= before - 1
            log = [event.sequence for event in store.reader.events(feed, 0, 100_000)]
            assert log == list(range(log[0], log[-1] + 1)) if log else True
            assert store.reader.backlogs()[ann] >= 0

        threads = [threading.Thread(target=until_stopped, args=(look,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for turn in range(150):
            append(store, feed, ann, size=3)
            if turn % 10 == 9:
                store.write(lambda t: t.move_cursor(ann, t.next_sequence - 20)).result()
                store.tidy(0.0, Retention(nbytes=200))
        stop.set()
        for thread in threads:
            thread.join()
        assert problems == []
        assert store.reader.damage == []
