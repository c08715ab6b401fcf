"""What `Spaces` keeps on disk: its members as they are now, and everything that was told.

A directory with an SQLite database in WAL mode. Callers queue their changes; one thread takes all
that is queued, writes it in one transaction and commits once, so that callers who come together
share the wait for the disk. Whenever the process dies, the database holds the changes up to one of
them, and none after it; every change whose ticket was waited for is among them.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from boxmatch.errors import StorageError
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.expiry import Which
from boxmatch.spaces.journal_database import (
    DATABASE,
    Sync,
    check_folder,
    connect,
    forget,
    is_made,
    prepare,
    recorded,
    sequences,
    storage_error,
    take_lock,
)
from boxmatch.spaces.journal_rows import (
    TELL,
    Change,
    member_checksum,
    member_row,
    table_of,
    told_checksum,
    told_row,
    unpacked,
)
from boxmatch.spaces.transitions import Transitions, cut

_MEMBERS_PAGE = 1000
_TOLD_PAGE = 50
_PATIENCE = 0.25
"""How long a commit waits for callers that should come, as a share of what the last one took."""
_MOST_PATIENCE = 0.005


class Ticket:
    """Stands for changes that are on their way to the disk. Any thread may wait for it."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._failure: _Failure | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return once the changes are durable; `StorageError` if they could not be written.

        `TimeoutError` says nothing about what becomes of them.
        """
        if not self._done.wait(timeout):
            raise TimeoutError(f"not written after {timeout} seconds")
        if self._failure is not None:
            raise self._failure.error() from self._failure.cause

    def _release(self, failure: _Failure | None = None) -> None:
        self._failure = failure
        self._done.set()


class _Failure(NamedTuple):
    message: str
    cause: Exception

    def error(self) -> StorageError:
        # One for each who hears of it: threads must not share a traceback.
        return StorageError(self.message)


class _Group:
    """What goes to the disk together."""

    def __init__(self) -> None:
        self.ticket = Ticket()
        self.calls = 0
        self.members: list[tuple[str, tuple[Any, ...]]] = []
        self.told: list[tuple[Any, ...]] = []
        self.forget: int | None = None


class Journal:
    """Changes in the order in which they were written. All methods may be called from any thread.

    One process at a time has it open, and in that process one `Journal`. After a failed commit
    nothing more is accepted: whether the changes that failed are on disk shows when it is opened
    again. The processes that `os.fork` makes cannot use it, and keep it locked while they live.
    """

    def __init__(self, path: Path, lock: int, writer: sqlite3.Connection) -> None:
        self._next, self._first = sequences(writer, path)
        self.path = path
        self._lock = lock
        self._writer = writer
        self._reader = connect(path)
        self._reader.execute("PRAGMA query_only = 1")
        self._reading = threading.Lock()
        self._process = os.getpid()
        self._changed = threading.Condition(threading.Lock())
        self._group = _Group()
        self._closing = False
        self._closed = False
        self._failure: _Failure | None = None
        # A process that ends without closing must not wait for this thread for ever.
        self._thread = threading.Thread(target=self._commit_all, name="journal", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, settings: str, sync: Sync = "full") -> Self:
        """Open the journal in a directory, or make one there.

        `settings` is a text that goes with the journal: kept when it is made, and to be given just
        so whenever it is opened again.
        """
        if sync not in ("full", "normal"):
            raise StorageError(f"sync is 'full' or 'normal', not {sync!r}")
        folder = Path(path)
        check_folder(folder)
        lock = take_lock(folder)
        writer: sqlite3.Connection | None = None
        try:
            writer = connect(folder)
            prepare(writer, folder, settings, sync)
            return cls(folder, lock, writer)
        except BaseException as error:
            if writer is not None:
                writer.close()
            os.close(lock)
            if isinstance(error, sqlite3.Error):
                raise storage_error(folder, error) from error
            raise

    @staticmethod
    def settings_of(path: str | os.PathLike[str]) -> str | None:
        """The settings of a journal, which may be open elsewhere; None if there is none."""
        folder = Path(path)
        check_folder(folder)
        if not (folder / DATABASE).exists():
            return None
        try:
            with closing(connect(folder, mode="rw")) as connection:
                if not is_made(connection, folder):
                    return None
                return recorded(connection, folder, "settings", str)
        except sqlite3.Error as error:
            raise storage_error(folder, error) from error

    @property
    def next_sequence(self) -> int:
        """The number after the last one that was handed to `write`."""
        return self._next

    @property
    def first_sequence(self) -> int:
        """The first number that was not forgotten."""
        return self._first

    def write(self, change: Change) -> Ticket:
        """Queue a change; does not wait for the disk. The order of calls is the order on disk.

        What it tells must begin at `next_sequence`. The queue has no bound: callers who never wait
        for their tickets may fill the memory.
        """
        return self.write_all([change])

    def write_all(self, changes: Sequence[Change]) -> Ticket:
        """Queue changes of which all come to the disk, or none.

        Without any, the ticket is for all that was written before.
        """
        members = [member_row(change) for change in changes]
        told = [told_row(change.told) for change in changes if change.told]
        self._check_process()
        with self._changed:
            self._check_usable()
            upcoming = self._next
            for first, count, *_ in told:
                if first != upcoming:
                    raise StorageError(
                        f"transitions from {first} on cannot follow those before {upcoming}"
                    )
                upcoming += count
            self._next = upcoming
            self._group.members += members
            self._group.told += told
            return self._ask()

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written any more."""
        self._check_process()
        with self._changed:
            self._check_usable()

    def forget_transitions(self, before: int) -> None:
        """Drop what was told under numbers before this one. Waits for the disk."""
        self._check_process()
        with self._changed:
            self._check_usable()
            self._first = max(self._first, min(before, self._next))
            self._group.forget = self._first
            ticket = self._ask()
        ticket.wait()

    def members(self, which: Which) -> Iterator[tuple[SubscriptionId, bytes, float | None]]:
        """Id, body and expiry of the members on disk, in the order in which they were added.

        Changes that come to the disk meanwhile may show or not.
        """
        page = (
            f"SELECT place, id, body, expires, checksum FROM {table_of(which)} "
            f"WHERE place > ? ORDER BY place LIMIT {_MEMBERS_PAGE}"
        )
        rows = self._read(page, -1)
        while rows:
            for _, member_id, body, expires, checksum in rows:
                if member_checksum(which, member_id, body, expires) != checksum:
                    raise StorageError(f"{self._file} is damaged: {which} {member_id!r}")
                yield member_id, body, expires
            rows = self._read(page, rows[-1][0])

    def transitions(self, since: int = 0) -> Iterator[Transitions]:
        """What was told under the numbers from `since` on, a batch for each change that told.

        Only what is on disk; what is already forgotten is left out, so compare the first number
        with `since` where that matters.
        """
        begin = max(since, self._first)
        holder = "SELECT max(first) FROM told WHERE first <= ?"
        [(held,)] = self._read(holder, min(begin, self._next))
        page = (
            f"SELECT first, count, columns, checksum FROM told "
            f"WHERE first >= ? ORDER BY first LIMIT {_TOLD_PAGE}"
        )
        upcoming = begin if held is None else held
        while rows := self._read(page, upcoming):
            for first, count, columns, checksum in rows:
                if told_checksum(first, count, columns) != checksum:
                    raise StorageError(f"{self._file} is damaged: transitions from {first} on")
                upcoming = first + count
                if upcoming > begin:
                    yield cut(unpacked(first, count, columns), max(begin - first, 0))

    def close(self) -> None:
        """Wait until all that is queued is written, and let others open it. Again does nothing.

        `StorageError` if something could not be written; it is closed all the same.
        """
        if self._process != os.getpid():
            return
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join()
        with self._changed, self._reading:
            if self._closed:
                return
            self._closed = True
            try:
                self._reader.close()
                self._writer.close()
            finally:
                os.close(self._lock)
        if self._failure is not None:
            raise self._failure.error() from self._failure.cause

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:  # else it is most likely what this would say
                raise

    @property
    def _file(self) -> Path:
        return self.path / DATABASE

    def _check_process(self) -> None:
        # Before any lock, which another thread may have held when the processes parted.
        if self._process != os.getpid():
            raise StorageError(f"{self.path} was opened by the process that made this one")

    def _check_usable(self) -> None:
        if self._failure is not None:
            raise self._failure.error() from self._failure.cause
        if self._closing:
            raise StorageError(f"{self.path} is closed")

    def _ask(self) -> Ticket:
        self._group.calls += 1
        self._changed.notify()
        return self._group.ticket

    def _read(self, query: str, *values: object) -> list[Any]:
        # Whole pages: a cursor that stays open would keep the log from being taken up.
        self._check_process()
        with self._reading:
            if self._closed:
                raise StorageError(f"{self.path} is closed")
            try:
                return self._reader.execute(query, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise storage_error(self.path, error) from error

    def _commit_all(self) -> None:
        callers, took = 0, 0.0
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._group.calls or self._closing)
                self._gather(callers, min(_PATIENCE * took, _MOST_PATIENCE))
                group = self._group
                if not group.calls:
                    return
                self._group = _Group()
            begin = time.perf_counter()
            try:
                self._commit(group)
            except Exception as error:  # whatever it is, nobody may wait in vain
                failure = _Failure(f"cannot write to {self._file}: {error}", error)
                with self._changed:
                    self._failure = failure
                    group.ticket._release(failure)
                    self._group.ticket._release(failure)
                return
            took = time.perf_counter() - begin
            callers = group.calls + self._group.calls
            group.ticket._release()

    def _gather(self, callers: int, timeout: float) -> None:
        """Give those whose tickets were just released the time to come again.

        Else callers who write and wait fall into two halves, of which one always just misses the
        commit of the other. A caller who is alone is not waited for.
        """
        self._changed.wait_for(lambda: self._group.calls >= callers or self._closing, timeout)

    def _commit(self, group: _Group) -> None:
        writer = self._writer
        writer.execute("BEGIN IMMEDIATE")
        try:
            for statement, rows in groupby(group.members, itemgetter(0)):
                writer.executemany(statement, [values for _, values in rows])
            writer.executemany(TELL, group.told)
            if group.forget is not None:
                forget(writer, group.forget)
            writer.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                writer.execute("ROLLBACK")
            raise
