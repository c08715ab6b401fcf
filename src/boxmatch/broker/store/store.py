"""The store as the broker sees it, and the tables that it has on disk."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from boxmatch.broker.settings import Retention
from boxmatch.broker.store import earlier_inboxes, recipient_rows
from boxmatch.broker.store.reader import Reader
from boxmatch.broker.store.retention import clear_feed, lacking_bytes, tidy
from boxmatch.broker.store.rows import MOST_ROW_BYTES, Removed
from boxmatch.broker.store.transaction import StoreTransaction
from boxmatch.broker.store.waiting import shrink
from boxmatch.broker.store.writer import Freeing, Reserve, Writer
from boxmatch.errors import StorageError
from boxmatch.storage.folders import write_problem
from boxmatch.storage.sqlite import Format, LockedDatabase, Sync, checkpoint, copy_database
from boxmatch.wire.requests import FeedRetention

T = TypeVar("T")
_log = logging.getLogger(__name__)

_PACE = 0.003
DATABASE = "broker.sqlite"
_WAL_PAGES = 16_384
"""64 MiB. Another thread copies most of it into the database before it has that length."""

_SHARING = """CREATE TABLE sharing (
    subscriber INTEGER PRIMARY KEY, settings BLOB NOT NULL, position INTEGER NOT NULL,
    amount INTEGER NOT NULL, outstanding TEXT NOT NULL, checksum INTEGER NOT NULL)"""
_REPLAY = """CREATE TABLE replay (
    number INTEGER PRIMARY KEY AUTOINCREMENT, subscriber INTEGER NOT NULL, feed INTEGER NOT NULL,
    subscription TEXT NOT NULL, position INTEGER NOT NULL, through INTEGER NOT NULL,
    UNIQUE (subscriber, feed, subscription))"""

# Numbers that are never used again need AUTOINCREMENT. The index on feeds covers all that is asked
# about batches without their payload, which would else be a walk through the whole log.
_FORMAT = Format(
    application=0x426F7842,
    version=4,
    tables=(
        "CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        """CREATE TABLE feed (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
        spec TEXT NOT NULL)""",
        """CREATE TABLE subscriber (
        number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE,
        cursor INTEGER NOT NULL, dropped INTEGER NOT NULL, dropped_through INTEGER NOT NULL)""",
        """CREATE TABLE subscription (
        number INTEGER PRIMARY KEY AUTOINCREMENT, subscriber INTEGER NOT NULL, id TEXT NOT NULL,
        feed INTEGER NOT NULL, wanted BLOB NOT NULL, created REAL NOT NULL, updated REAL NOT NULL,
        checksum INTEGER NOT NULL, UNIQUE (subscriber, id))""",
        "CREATE INDEX subscription_by_feed ON subscription (feed, number)",
        """CREATE TABLE member (
        place INTEGER PRIMARY KEY, feed INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
        expires REAL, checksum INTEGER NOT NULL, UNIQUE (feed, id))""",
        "CREATE TABLE webhook (subscriber INTEGER PRIMARY KEY, body BLOB NOT NULL)",
        """CREATE TABLE dead_letter (
        number INTEGER PRIMARY KEY AUTOINCREMENT, subscriber INTEGER NOT NULL, first INTEGER NOT
        NULL, last INTEGER NOT NULL, attempts INTEGER NOT NULL, reason TEXT NOT NULL, at REAL NOT
        NULL, body BLOB NOT NULL)""",
        "CREATE INDEX dead_letter_by_subscriber ON dead_letter (subscriber, number)",
        """CREATE TABLE batch (
        first INTEGER PRIMARY KEY, size INTEGER NOT NULL, feed INTEGER NOT NULL, at REAL NOT NULL,
        rate REAL NOT NULL, checksum INTEGER NOT NULL, nbytes INTEGER NOT NULL,
        payload BLOB NOT NULL)""",
        "CREATE INDEX batch_by_feed ON batch (feed, first, size, nbytes)",
        recipient_rows.TABLE,
        recipient_rows.INDEX,
        """CREATE TABLE repeat (
        feed INTEGER NOT NULL, key TEXT NOT NULL, at REAL NOT NULL, first INTEGER NOT NULL,
        last INTEGER NOT NULL, PRIMARY KEY (feed, key)) WITHOUT ROWID""",
        "CREATE INDEX repeat_by_time ON repeat (at)",
        _SHARING,
        _REPLAY,
    ),
    upgrades={
        2: (_SHARING, _REPLAY),
        3: (recipient_rows.TABLE, recipient_rows.INDEX, earlier_inboxes.take_over),
    },
)


class Store:
    """Feeds, the log, subscriptions and inboxes in one SQLite database.

    All methods may be called from any thread; reading, with `reader`, never waits for writing. One
    process at a time has it open. What a future of `write` was resolved for survives the end of
    the process, and with `sync="full"` a power cut. A failed commit loses only its own changes,
    whose futures get the error: the next ones are tried afresh.
    """

    def __init__(self, database: LockedDatabase, pace: float) -> None:
        file = database.file
        reserve = Reserve(file.parent)
        reserve.release()  # a full disk must not keep it from starting
        next_sequence = _prepare(database)
        reserve.restore()
        self.path = file.parent
        self._file = file
        self._database = database
        self.reader = Reader(file)
        self.reader.feeds()  # what is damaged there should show now
        self._writer = Writer(file, database.connection, reserve, next_sequence, pace)
        self._closing = threading.Event()
        self._closed = False
        self._checkpoints = threading.Thread(
            target=self._checkpoint, name="store checkpoints", daemon=True
        )
        self._checkpoints.start()

    @classmethod
    def open(cls, folder: Path, *, sync: Sync = "full", pace: float = _PACE) -> Self:
        """Open the store in a folder, or make one there; `StorageError` says why it cannot be.

        Groups of changes begin at least `pace` seconds after one another: changes that come one
        by one but many a second then share their waits for the disk.
        """
        file = Path(folder) / DATABASE
        database: LockedDatabase | None = None
        try:
            database = LockedDatabase(file, sync)
            return cls(database, pace)
        except BaseException as error:
            if database is not None:
                database.close()
            # What is damaged may be anything: no number, or no text.
            damage = (sqlite3.Error, OSError, UnicodeDecodeError, TypeError, ValueError)
            if isinstance(error, damage) and not isinstance(error, StorageError):
                raise StorageError(f"cannot use {file}: {write_problem(file) or error}") from error
            raise

    def close(self) -> None:
        """Write all that is queued, and let others open it. Again does nothing."""
        self._writer.close()
        if self._closed:
            return
        self._closed = True
        self._closing.set()
        self._writer.grown.set()
        self._checkpoints.join()
        try:
            self.reader.close()
        finally:
            self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def next_sequence(self) -> int:
        """The number after the last one that is committed."""
        return self._writer.next_sequence

    def enqueue(
        self,
        change: Callable[[StoreTransaction], T],
        done: Callable[[T | BaseException], None],
        *,
        frees: bool = False,
        here: bool = False,
    ) -> None:
        """Queue a change. It runs in the writer thread, in order; after the commit `done` is called
        there. If the change raises, it has done nothing. With `here`, the calling thread may do
        both if the writer thread has nothing to do.

        If the disk is full, only a change that `frees` room is carried out; it may then run more
        than once, and all but the last time nothing of it is kept.
        """
        self._writer.enqueue(Freeing(change) if frees else change, done, here=here)

    def write(self, change: Callable[[StoreTransaction], T], *, frees: bool = False) -> Future[T]:
        """`enqueue` with a future, which takes longer. If it is cancelled before its change begins,
        the change does not run.
        """
        future: Future[T] = Future()

        def run(transaction: StoreTransaction) -> T:
            if not _begin(future):
                raise CancelledError
            return change(transaction)

        self.enqueue(run, partial(_resolve, future), frees=frees)
        return future

    async def commit(self, change: Callable[[StoreTransaction], T], *, frees: bool = False) -> T:
        """`write` for an event loop; returns when the change is durable."""
        return await asyncio.wrap_future(self.write(change, frees=frees))

    @property
    def failure(self) -> str | None:
        """Why something could not be written, until `probe` finds that it can be again."""
        return self._writer.failure

    @property
    def is_alive(self) -> bool:
        """Whether the writer thread runs. Without it, nothing can be written."""
        return self._writer.is_alive

    def probe(self) -> None:
        """After a failure, see whether one can write again: as much as a large row has, since on a
        full disk there may be room for little things. Waits for the disk.
        """
        future: Future[None] = Future()

        def done(result: BaseException | None) -> None:
            if result is None:
                self._writer.recovered()
            _resolve(future, result)

        if self.failure is not None:
            self.enqueue(partial(StoreTransaction.put_ballast, nbytes=MOST_ROW_BYTES), done)
            future.result()
            self.write(partial(StoreTransaction.put_ballast, nbytes=None), frees=True).result()

    def first_sequence(self, feed: int | None = None) -> int:
        """The oldest number that is still kept; the next one if none is."""
        upcoming = self.next_sequence
        first = self.reader.first_sequence(feed)
        return upcoming if first is None else first

    def backup(self, target: Path, progress: Callable[[float], None] | None = None) -> None:
        """Copy what is stored now into a new file, while others read and write."""
        copy_database(self._file, target, progress)

    def tidy(
        self, now: float, retention: Retention, feeds: Mapping[int, FeedRetention] | None = None
    ) -> Removed:
        """Drop what is not needed: notifications that are acknowledged, the oldest batches past age
        or size, what is too much in one inbox, and old keys of publishers. Waits for the disk.
        `feeds` have limits of their own.

        What goes before its subscriber has acknowledged it is counted as dropped.
        """
        return tidy(self.reader, partial(self.write, frees=True), now, retention, feeds or {})

    def remove_read(self) -> None:
        """Remove rows of notifications that are all acknowledged, as `tidy` does, which it must not
        run beside. Waits for the disk.
        """
        shrink(self.reader, partial(self.write, frees=True), merges=False)

    def drop_feed(self, number: int) -> None:
        """The feed and all that is in it; its waiting notifications are not counted as dropped.
        Waits for the disk, in many transactions: after the first one nothing of it is read.
        """
        write = partial(self.write, frees=True)
        write(partial(StoreTransaction.drop_feed, number=number)).result()
        clear_feed(self.reader, write, number)

    def lacking_bytes(self, wanted: int) -> int:
        """What the disk lacks to have so many bytes free; below 0 it has more. `tidy` removes that
        much. Waits for the disk.
        """
        return lacking_bytes(self.reader, wanted)

    def _checkpoint(self) -> None:
        """Take the write-ahead log into the database while the writer thread goes on. What is left
        of it when it has its full length is little, and is taken in by the writer's own commit.
        """
        grown = self._writer.grown
        while True:
            grown.wait()
            grown.clear()
            if self._closing.is_set():
                return
            try:
                checkpoint(self._file, "PASSIVE")
            except sqlite3.Error:
                _log.exception("cannot take up the write-ahead log of %s", self._file)


def _prepare(database: LockedDatabase) -> int:
    """Make the tables unless they are there. The next number."""
    database.prepare(_FORMAT, next=1)
    connection = database.connection
    connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    # Some builds fill with zeros what is deleted, which here is most of what is written.
    connection.execute("PRAGMA secure_delete = 0").fetchall()
    # Written down only when batches go: else the last one says it.
    kept = database.read_about("next", int)
    last = connection.execute("SELECT first + size FROM batch ORDER BY first DESC LIMIT 1")
    found = last.fetchone()
    return kept if found is None else int(max(kept, found[0]))


def _begin(future: Future[T]) -> bool:
    """Whether somebody still wants the result."""
    # It runs already if its change is tried again.
    return future.running() or (not future.cancelled() and future.set_running_or_notify_cancel())


def _resolve(future: Future[T], result: T | BaseException) -> None:
    if not _begin(future):
        return
    if isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)
