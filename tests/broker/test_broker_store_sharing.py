"""What the store knows of subscribers that share their notifications."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import orjson
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.settings import Retention
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.progress import Progress, SharingRow
from boxmatch.broker.store.recipients import Recipients
from boxmatch.broker.verify import verify
from boxmatch.errors import StorageError
from boxmatch.model.schema import Schema

T = TypeVar("T")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "data", pace=0.0) as opened:
        yield opened


def do(store: Store, change: Callable[[StoreTransaction], T]) -> T:
    return store.write(change).result(timeout=30)


def with_events(store: Store, *sizes: int) -> int:
    """A subscriber with so many notifications in each batch."""
    spec = FeedSpec(name="f", spaces={"f": Schema({"price": "float"})})
    feed, ann = do(store, lambda t: (t.put_feed(spec), t.put_subscriber("ann")))
    for at, size in enumerate(sizes):
        bodies = [b'{"price":1}'] * size
        inboxes = {ann: [(place, ["s"]) for place in range(size)]}
        do(
            store,
            lambda t, b=bodies, i=inboxes, at=at: t.append(feed, float(at), b, Recipients.of(i)),
        )
    return ann


def test_progress_is_kept_and_the_cursor_follows(store: Store, tmp_path: Path) -> None:
    ann = with_events(store, 10)
    do(store, lambda t: t.move_cursor(ann, 2))
    do(store, lambda t: t.share(ann, b"{}"))
    assert store.reader.sharing() == [SharingRow(ann, b"{}", Progress(2, {}))]
    assert store.reader.backlogs() == {ann: 8}
    reached = Progress(8, {5: 2, 7: 1})
    do(store, lambda t: t.put_progress(ann, reached))
    do(store, lambda t: t.share(ann, b'{"a":1}'))  # other settings, the same progress
    assert store.reader.backlogs([ann]) == {ann: 4}
    assert store.reader.subscribers()[0].cursor == 4
    store.close()
    with Store.open(tmp_path / "data") as again:
        assert again.reader.sharing() == [SharingRow(ann, b'{"a":1}', reached)]
        found = again.reader.chosen(ann, dict.fromkeys([5, 7, 11]))
        assert [one and one.sequence for one in found.values()] == [5, 7, None]
        assert list(again.reader.chosen(ann, dict.fromkeys([5, 7, 8]), most_bytes=15)) == [5]
        do(again, lambda t: t.unshare(ann))
        do(again, lambda t: t.put_progress(ann, Progress(9, {})))  # it was on its way
        assert again.reader.sharing() == []
        assert again.reader.backlogs() == {ann: 1}


def test_who_shares_has_no_replay_left_on_disk(store: Store) -> None:
    ann = with_events(store, 3)
    do(store, lambda t: t.put_replay(ann, 0, "", 0, None))
    do(store, lambda t: t.share(ann, b"{}"))
    assert store.reader.replays() == []


def test_a_change_that_fails_leaves_progress_as_it_was(store: Store) -> None:
    ann = with_events(store, 5)
    do(store, lambda t: t.share(ann, b"{}"))

    def fail(transaction: StoreTransaction) -> None:
        transaction.put_progress(ann, Progress(5, {}))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        do(store, fail)
    assert store.reader.sharing() == [SharingRow(ann, b"{}", Progress(0, {}))]
    assert store.reader.subscribers()[0].cursor == 0


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    kept=st.integers(0, 6),
    position=st.integers(0, 24),
    outstanding=st.sets(st.integers(1, 24)),
)
def test_what_is_too_old_is_dropped_unless_it_is_done(
    tmp_path_factory: pytest.TempPathFactory,
    sizes: list[int],
    kept: int,
    position: int,
    outstanding: set[int],
) -> None:
    total = sum(sizes)
    reached = min(position, total)
    left = {sequence: 1 for sequence in sorted(outstanding) if sequence <= reached}
    progress = Progress(reached, left)
    waiting = [sequence for sequence in range(1, total + 1) if not progress.is_done(sequence)]
    old = sum(sizes[: max(len(sizes) - kept, 0)])
    with Store.open(tmp_path_factory.mktemp("data"), sync="normal", pace=0.0) as store:
        ann = with_events(store, *sizes)
        do(store, lambda t: t.share(ann, b"{}"))
        do(store, lambda t: t.put_progress(ann, progress))
        assert store.reader.backlogs() == {ann: len(waiting)}
        gone = store.tidy(len(sizes), Retention(seconds=kept + 0.5)).dropped
        lost = [sequence for sequence in waiting if sequence <= old]
        assert gone == ({ann: len(lost)} if lost else {})
        found = store.reader.chosen(ann, dict.fromkeys(range(1, total + 1)))
        assert all(found[sequence] is not None for sequence in waiting if sequence > old)


def test_a_long_backlog_loses_nothing_that_is_outstanding(store: Store) -> None:
    ann = with_events(store, *[4] * 10)
    do(store, lambda t: t.share(ann, b"{}"))
    do(store, lambda t: t.put_progress(ann, Progress(10, {3: 1, 9: 2})))
    # 2 are outstanding and 30 come after, of which the oldest go.
    assert store.tidy(0.0, Retention(backlog=20)).dropped == {ann: 12}
    found = store.reader.inbox(ann, 0, 99)
    assert None not in store.reader.chosen(ann, dict.fromkeys([3, 9])).values()
    assert [one.sequence for one in found if one.sequence > 10] == list(range(23, 41))
    assert store.reader.backlogs() == {ann: 20}


@pytest.mark.parametrize("column", ["position", "outstanding", "checksum"])
def test_damaged_progress_falls_back_to_the_cursor(
    store: Store, tmp_path: Path, column: str
) -> None:
    ann = with_events(store, 9)
    do(store, lambda t: t.share(ann, b"{}"))
    do(store, lambda t: t.put_progress(ann, Progress(9, {4: 1})))
    with closing(sqlite3.connect(tmp_path / "data" / "broker.sqlite")) as connection, connection:
        connection.execute(f"UPDATE sharing SET {column} = 'odd'")
    assert store.reader.sharing() == [SharingRow(ann, b"{}", None)]
    assert store.reader.damage == [f"progress of subscriber {ann}"]
    assert store.reader.subscribers()[0].cursor == 3
    store.close()
    assert (
        f"broker.sqlite: progress of subscriber {ann} is damaged"
        in verify(tmp_path / "data").problems
    )


def test_a_store_of_the_version_before_is_upgraded(tmp_path: Path) -> None:
    with Store.open(tmp_path) as store:
        ann = with_events(store, 3, 3, 2, 3)
    with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as connection, connection:
        for table in ("sharing", "replay", "recipients"):
            connection.execute(f"DROP TABLE {table}")
        connection.execute(
            "CREATE TABLE inbox (subscriber INTEGER, last INTEGER, first INTEGER, amount INTEGER, "
            "notifications TEXT, checksum INTEGER)"
        )
        for first, events, checksum in ((1, [0, 2], 0), (4, [0, 1], 1), (7, [], 0), (9, [1], 0)):
            content = orjson.dumps([[place, ["s", "\u00e9"]] for place in events])
            checksum += xxhash.xxh3_64_intdigest(content, ann ^ first) & 0xFFFF_FFFF
            row = ann, first + 1, first, len(events), content.decode(), checksum
            connection.execute("INSERT INTO inbox VALUES (?, ?, ?, ?, ?, ?)", row)
        connection.execute("PRAGMA user_version = 2")
    with Store.open(tmp_path) as store:
        found = store.reader.inbox(ann, 0, 9)
        assert [one.sequence for one in found] == [1, 3, 10]  # of the second batch it was damaged
        assert {tuple(one.subscriptions) for one in found} == {("s", "\u00e9")}
        assert store.reader.backlogs() == {ann: 3}
        assert (store.reader.sharing(), store.reader.replays()) == ([], [])
        do(store, lambda t: t.share(ann, b"{}"))
        bob = do(store, lambda t: t.put_subscriber("bob"))
        first = do(store, lambda t: t.put_replay(bob, 0, "", 0, None)).number
        assert do(store, lambda t: t.put_replay(bob, 0, "", 1, None)).number > first
    with Store.open(tmp_path) as store:
        assert [row.subscriber for row in store.reader.sharing()] == [ann]
        assert [(row.subscriber, row.position) for row in store.reader.replays()] == [(bob, 1)]
    with closing(sqlite3.connect(tmp_path / "broker.sqlite")) as connection:
        assert connection.execute("PRAGMA user_version").fetchall() == [(4,)]
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(StorageError, match="has format 1; this version reads 4"):
        Store.open(tmp_path)
