"""The changes of a durable matcher that its files do not have yet, in an SQLite database."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import xxhash

from boxmatch.engine.recording import Recorded
from boxmatch.errors import StorageError
from boxmatch.model.expressions.nodes import from_json, to_json
from boxmatch.model.filters import Bound, Box, CompiledFilter, DerivedAxis
from boxmatch.model.ids import SubscriptionId
from boxmatch.storage.group_commit import GroupCommit, Ticket, Transaction, wait_for_callers
from boxmatch.storage.sqlite import Format, LockedDatabase, Sync, connect, is_made

DATABASE: Final = "journal.sqlite"

# A column without a type keeps integers and texts apart, and all 64 bits.
_FORMAT: Final = Format(
    application=0x426F784D,
    version=1,
    tables=(
        "CREATE TABLE about (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
        "CREATE TABLE changes (number INTEGER PRIMARY KEY, id NOT NULL, filter TEXT, text TEXT, "
        "checksum INTEGER NOT NULL)",
    ),
)
_PACING: Final = wait_for_callers(share=0.25, most=0.005)


class Change(NamedTuple):
    """A subscription as it is from now on; without a filter it is gone."""

    number: int
    id: SubscriptionId
    filter: str | None
    """Compiled, as `pack_filter` writes it."""
    text: str | None
    """The filter as it was written, if that is kept."""


class _Transaction(Transaction):
    def put(self, changes: Sequence[Change]) -> None:
        self._set_savepoint()
        rows = [(*change, _checksum(change)) for change in changes]
        self._connection.executemany("INSERT INTO changes VALUES (?, ?, ?, ?, ?)", rows)

    def forget(self, files: Recorded) -> None:
        for name, value in files._asdict().items():
            self.execute("UPDATE about SET value = ? WHERE name = ?", value, name)
        self.execute("DELETE FROM changes WHERE number <= ?", files.number)


class Journal:
    """Takes changes, in the order in which they are made. One process at a time has it open.

    Whoever calls `write` holds a lock, so that numbers go by that order.
    """

    def __init__(self, database: LockedDatabase) -> None:
        self._database = database
        self._writer = GroupCommit(
            database.file,
            _Transaction(database.connection),
            pacing=_PACING,
            stops=True,
            name="boxmatch-journal",
        )

    @classmethod
    def open(cls, folder: Path, sync: Sync) -> Self:
        """The journal in a directory, which is made if it is not there."""
        with _explaining(folder):
            database = LockedDatabase(folder / DATABASE, sync)
            try:
                database.prepare(_FORMAT, number=0, needed=0)
                return cls(database)
            except BaseException:
                database.close()
                raise

    def write(self, changes: Sequence[Change]) -> Ticket:
        """Queue changes, of which all are written or none."""
        return self._queue(partial(_Transaction.put, changes=changes))

    def forget(self, files: Recorded) -> Ticket:
        """Queue that the files of the matcher have these changes now."""
        return self._queue(partial(_Transaction.forget, files=files))

    def _queue(self, change: Callable[[_Transaction], None]) -> Ticket:
        ticket = Ticket()
        self._writer.enqueue(change, ticket.resolve)
        return ticket

    def check(self) -> None:
        """Raise `StorageError` if nothing can be written any more."""
        self._writer.check()

    def close(self) -> None:
        """Wait until all that is queued is written, and let others open it."""
        if self._writer.is_forked:
            return
        self._writer.close()
        self._database.close()
        if (failed := self._writer.failed) is not None:
            raise failed


class JournalReader:
    """Reads a journal that another process, or this one, may be writing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / DATABASE
        with _explaining(folder):
            self._connection = connect(self._file, "rw")
            try:
                # Not read-only, which would not do where a process has died that was writing.
                self._connection.execute("PRAGMA query_only = 1")
                made = is_made(self._connection, self._file, _FORMAT)
            except BaseException:
                self._connection.close()
                raise
        if not made:
            self._connection.close()
            raise StorageError(f"there is no journal at {folder}")

    def version(self) -> int:
        """Another number whenever another connection has committed something."""
        with _explaining(self._folder):
            [(version,)] = self._connection.execute("PRAGMA data_version")
        return int(version)

    def read(self, since: int) -> tuple[Recorded, list[Change]]:
        """What the files have, and the changes after number `since` that they do not have."""
        with _explaining(self._folder), self._one_state() as connection:
            about = dict(connection.execute("SELECT name, value FROM about"))
            rows = connection.execute(
                "SELECT * FROM changes WHERE number > ? ORDER BY number", (since,)
            ).fetchall()
        changes = []
        for *columns, checksum in rows:
            changes.append(change := Change(*columns))
            if _checksum(change) != checksum:
                raise StorageError(f"{self._file} is damaged: change {change.number}")
        return Recorded(**about), changes

    @contextmanager
    def _one_state(self) -> Iterator[sqlite3.Connection]:
        self._connection.execute("BEGIN")
        try:
            yield self._connection
        finally:
            self._connection.execute("COMMIT")

    def close(self) -> None:
        self._connection.close()


def read_journal(folder: Path, since: int) -> tuple[Recorded, list[Change]]:
    """As `JournalReader.read`; nothing if there is no journal."""
    if not (folder / DATABASE).exists():
        return Recorded(), []
    with closing(JournalReader(folder)) as reader:
        return reader.read(since)


def _checksum(change: Change) -> int:
    return xxhash.xxh3_64_intdigest(repr(tuple(change)).encode()) - 2**63


@contextmanager
def _explaining(folder: Path) -> Iterator[None]:
    """Say of errors of SQLite, and of the system, where they come from."""
    try:
        yield
    except StorageError:
        raise
    except (sqlite3.Error, OSError) as error:
        raise StorageError(f"cannot keep a journal at {folder}: {error}") from error


# Filters


def pack_filter(compiled: CompiledFilter) -> str:
    """A compiled filter as JSON."""
    axes = [axis.to_json() for axis in compiled.axes]
    residual = [to_json(node) for node in compiled.residual]
    plain = [compiled.boxes, compiled.disjoint, axes, residual]
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def unpack_filter(text: str) -> CompiledFilter:
    """What `pack_filter` has written."""
    try:
        boxes, disjoint, axes, residual = json.loads(text)
        return CompiledFilter(
            tuple(map(_box, boxes)),
            bool(disjoint),
            tuple(_axis(*axis) for axis in axes),
            tuple(map(from_json, residual)),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StorageError(f"the journal has a filter that is damaged: {error}") from error


def _box(plain: list[tuple[int, Any, Any]]) -> Box:
    return tuple((position, _bound(low), _bound(high)) for position, low, high in plain)


def _bound(plain: int | list[Any]) -> Bound:
    return plain if isinstance(plain, int) else (plain[0], plain[1])


@lru_cache(maxsize=1024)
def _axis(kind: str, node: str) -> DerivedAxis:
    return DerivedAxis.from_json([kind, node])
