"""What `Spaces` keeps on disk: its members as they are now, and all transitions.

A directory with an SQLite database, written by group commit: callers who come together share the
wait for the disk. Whenever the process dies, the database holds the changes up to one of them, and
none after it; every change whose ticket was waited for is among them.
"""

from __future__ import annotations

import os
import re
import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

from boxmatch.errors import StorageError
from boxmatch.model.ids import SubscriptionId
from boxmatch.spaces.journal_rows import (
    FORMAT,
    NOTIFY,
    MemberChange,
    member_checksum,
    member_row,
    notified_checksum,
    notified_row,
    table_of,
    unpack_transitions,
)
from boxmatch.spaces.records import Which
from boxmatch.spaces.transitions import Transitions
from boxmatch.storage.group_commit import GroupCommit, Ticket, Transaction, wait_for_callers
from boxmatch.storage.sqlite import LockedDatabase, Sync, connect, is_made

DATABASE = "journal.sqlite"
_OUR_NAMES = r"lock|journal\.sqlite(-wal|-shm|-journal)?"
_MEMBERS_PAGE = 1000
_TRANSITIONS_PAGE = 50
_PACING = wait_for_callers(share=0.25, most=0.005)


_Statement = tuple[str, tuple[Any, ...]]


class _Transaction(Transaction):
    """Gathers rows, and writes each kind of them at once."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self._members: list[_Statement] = []
        self._notified: list[tuple[Any, ...]] = []

    def put(self, members: list[_Statement], notified: list[tuple[Any, ...]]) -> None:
        self._members += members
        self._notified += notified

    def forget(self, before: int) -> None:
        # The batch across the border stays whole, and is cut when it is read.
        self._flush()
        self.execute("UPDATE about SET value = ? WHERE name = 'first'", before)
        self.execute("DELETE FROM notified WHERE first < ?1 AND first + count <= ?1", before)

    def commit(self) -> None:
        self._flush()
        super().commit()

    def _flush(self) -> None:
        for statement, rows in groupby(self._members, itemgetter(0)):
            self._connection.executemany(statement, [values for _, values in rows])
        if self._notified:
            self._connection.executemany(NOTIFY, self._notified)
        self._members, self._notified = [], []


class Journal:
    """Changes in the order in which they were written. All methods may be called from any thread.

    One process at a time has it open, and in that process one `Journal`. After a failed commit
    nothing more is accepted: whether the changes that failed are on disk shows when it is opened
    again. The processes that `os.fork` makes cannot use it, and keep it locked while they live.
    """

    def __init__(self, database: LockedDatabase) -> None:
        self._file = database.file
        self.path = self._file.parent
        self.settings = database.read_about("settings", str)
        """The text that it was made with."""
        self._first = database.read_about("first", int)
        last = "SELECT first + count FROM notified ORDER BY first DESC LIMIT 1"
        upcoming = database.connection.execute(last).fetchone()
        self._next = self._first if upcoming is None else max(self._first, upcoming[0])
        self._database = database
        self._reader = connect(self._file)
        self._reader.execute("PRAGMA query_only = 1")
        self._reading = threading.Lock()
        self._ordering = threading.Lock()
        self._closed = False
        transaction = _Transaction(database.connection)
        self._writer = GroupCommit(
            self._file, transaction, pacing=_PACING, stops=True, name="journal"
        )

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, settings: str | None, sync: Sync = "full"
    ) -> Self:
        """Open the journal in a directory, or make one there with these `settings`.

        They are a text that stays with the journal; without them there must be one.
        """
        folder = Path(path)
        _check_folder(folder)
        file = folder / DATABASE
        missing = StorageError(f"there are no spaces at {folder}: say which there shall be")
        if settings is None and not file.exists():
            raise missing
        database: LockedDatabase | None = None
        try:
            database = LockedDatabase(file, sync)
            if settings is None and not is_made(database.connection, file, FORMAT):
                raise missing
            database.prepare(FORMAT, settings=settings, first=1)
            return cls(database)
        except BaseException as error:
            if database is not None:
                database.close()
            if isinstance(error, (sqlite3.Error, OSError)) and not isinstance(error, StorageError):
                raise _failed(folder, error) from error
            raise

    @property
    def next_sequence(self) -> int:
        """The number after the last one that was handed to `write`."""
        return self._next

    @property
    def first_sequence(self) -> int:
        """The first number that was not forgotten."""
        return self._first

    def write(self, *changes: MemberChange) -> Ticket:
        """Queue changes, of which all are written or none; does not wait for the disk.

        The order of calls is the order on disk. The first transitions must begin at
        `next_sequence`. Without changes, the ticket is for all that was written before. The queue
        has no bound: callers who never wait for their tickets may fill the memory.
        """
        members, notified = [], []
        for change in changes:
            members.append(member_row(change))
            if change.notified:
                notified.append(notified_row(change.notified))
        self._writer.check_process()
        with self._ordering:
            upcoming = self._next
            for first, count, *_ in notified:
                if first != upcoming:
                    raise StorageError(
                        f"transitions from {first} on cannot follow those before {upcoming}"
                    )
                upcoming += count
            ticket = self._queue(partial(_Transaction.put, members=members, notified=notified))
            self._next = upcoming
        return ticket

    def _queue(self, change: Callable[[_Transaction], None]) -> Ticket:
        ticket = Ticket()
        self._writer.enqueue(change, ticket.resolve)
        return ticket

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written any more."""
        self._writer.check()

    def forget_transitions(self, before: int) -> None:
        """Delete transitions under numbers before this one. Waits for the disk."""
        self._writer.check_process()
        with self._ordering:
            first = max(self._first, min(before, self._next))
            ticket = self._queue(partial(_Transaction.forget, before=first))
            self._first = first
        ticket.wait()

    def members(self, which: Which) -> Iterator[tuple[SubscriptionId, bytes, float | None]]:
        """Id, body and expiry of the members on disk, in the order in which they were added.

        Changes that are written meanwhile may be among them or not.
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
        """Transitions under the numbers from `since` on, a batch for each change that had any.

        Only what is on disk; what is already forgotten is left out, so compare the first number
        with `since` where that matters.
        """
        begin = max(since, self._first)
        holder = "SELECT max(first) FROM notified WHERE first <= ?"
        [(held,)] = self._read(holder, min(begin, self._next))
        page = (
            "SELECT first, count, columns, checksum FROM notified "
            f"WHERE first >= ? ORDER BY first LIMIT {_TRANSITIONS_PAGE}"
        )
        upcoming = begin if held is None else held
        while rows := self._read(page, upcoming):
            for first, count, columns, checksum in rows:
                if notified_checksum(first, count, columns) != checksum:
                    raise StorageError(f"{self._file} is damaged: transitions from {first} on")
                upcoming = first + count
                if upcoming > begin:
                    yield unpack_transitions(first, count, columns).cut(max(begin - first, 0))

    def close(self) -> None:
        """Wait until all that is queued is written, and let others open it. Again does nothing.

        `StorageError` if something could not be written; it is closed nevertheless.
        """
        if self._writer.is_forked:
            return
        self._writer.close()
        with self._reading:
            if self._closed:
                return
            self._closed = True
            try:
                self._reader.close()
            finally:
                self._database.close()
        if (failed := self._writer.failed) is not None:
            raise failed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except StorageError:
            if error is None:  # else it is most likely what this would say
                raise

    def _read(self, query: str, *values: object) -> list[Any]:
        # Whole pages: a cursor that stays open would keep the log from being taken up.
        self._writer.check_process()
        with self._reading:
            if self._closed:
                raise StorageError(f"{self.path} is closed")
            try:
                return self._reader.execute(query, values).fetchall()
            except (sqlite3.Error, UnicodeDecodeError) as error:
                raise _failed(self.path, error) from error


def _check_folder(folder: Path) -> None:
    try:
        names = [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return
    except OSError as error:
        raise _failed(folder, error) from error
    if any(re.fullmatch(_OUR_NAMES, name) is None for name in names):
        raise StorageError(f"{folder} holds other files; spaces need a directory of their own")


def _failed(folder: Path, error: Exception) -> StorageError:
    return StorageError(f"cannot keep a journal at {folder}: {error}")
