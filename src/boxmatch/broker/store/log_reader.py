"""Reading the log of events. Damaged rows are reported and left out."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from boxmatch.broker.store.recent import Recent
from boxmatch.broker.store.rows import BATCH_COLUMNS, Batch, LoggedEvent, Room, unpack_batch
from boxmatch.errors import StorageError
from boxmatch.storage.sqlite import connect

_log = logging.getLogger(__name__)

_IDLE_CONNECTIONS = 8
_RECENT_BYTES = 32 << 20
_BATCHES_PAGE = 64
_LAST = 2**63 - 1

MOST_BYTES = 8 << 20
"""Of bodies that are read at once, if nothing else is said."""


class LogReader:
    """All methods may be called from any thread."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lock = threading.Lock()
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._recent_batches: Recent[int, Batch] = Recent(_RECENT_BYTES)
        self._known_damage: set[str] = set()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        self._recent_batches.clear()
        for connection in idle:
            connection.close()

    @contextmanager
    def connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that sees one state of the database while the block lasts."""
        with self._lock:
            if self._closed:
                raise StorageError(f"{self.file.parent} is closed")
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = connect(self.file, "rw")
                connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise StorageError(f"cannot read {self.file}: {error}") from error
        finally:
            if connection is not None:
                self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        with self._lock:
            if not self._closed and len(self._idle) < _IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()

    def report(self, what: str) -> None:
        """Log once that something is damaged."""
        with self._lock:
            known = what in self._known_damage
            self._known_damage.add(what)
        if not known:
            _log.error("%s is damaged: %s", self.file, what)

    @property
    def damage(self) -> list[str]:
        """What was found damaged, and left out, since the store was opened."""
        with self._lock:
            return sorted(self._known_damage)

    def events(
        self,
        feed: int,
        after: int,
        limit: int,
        through: int | None = None,
        *,
        most_bytes: int = MOST_BYTES,
    ) -> list[LoggedEvent]:
        """The first events with numbers after `after`, up to `through`; `most_bytes` as above."""
        found: list[LoggedEvent] = []
        room = Room(limit, most_bytes)
        last = _LAST if through is None else through
        with self.connection() as connection:
            statement = "SELECT max(first) FROM batch WHERE feed = ? AND first <= ?"
            [(begin,)] = connection.execute(statement, (feed, after + 1))
            begin = after + 1 if begin is None else begin
            for batch in self._batches(connection, feed, begin, last):
                low = max(after + 1 - batch.first, 0)
                count = room.take(batch.ends[low : max(last + 1 - batch.first, 0) + 1])
                found += batch.events(after, batch.first + low + count - 1)
                if room.full():
                    break
        return found

    def log(
        self, feeds: Collection[int], after: int, through: int, limit: int, most_bytes: int
    ) -> tuple[list[tuple[int, list[LoggedEvent]]], int]:
        """The first events of some feeds with numbers after `after`, up to `through`, in order:
        pieces with the feed of each, and the number up to which there are no others. Bounded as
        `events` are.
        """
        found: list[tuple[int, list[LoggedEvent]]] = []
        room = Room(limit, most_bytes)
        with self.connection() as connection:
            firsts = sorted(
                first for feed in feeds for first in self._firsts(connection, feed, after, through)
            )
            for first in firsts[:_BATCHES_PAGE]:
                if (batch := self._batch(connection, first, keep=False)) is None:
                    continue
                low = max(after + 1 - first, 0)
                count = room.take(batch.ends[low : max(through + 1 - first, 0) + 1])
                last = first + low + count - 1
                if events := batch.events(after, last):
                    found.append((batch.feed, events))
                if room.full():
                    return found, last
        return found, firsts[_BATCHES_PAGE] - 1 if len(firsts) > _BATCHES_PAGE else through

    def _firsts(
        self, connection: sqlite3.Connection, feed: int, after: int, through: int
    ) -> list[int]:
        """Where the next batches of a feed begin: one more than are read at once."""
        rows = connection.execute(
            "SELECT first FROM batch WHERE feed = ?1 AND first <= ?3 AND first >= coalesce("
            "(SELECT max(first) FROM batch WHERE feed = ?1 AND first <= ?2 + 1), 0) "
            f"ORDER BY first LIMIT {_BATCHES_PAGE + 1}",
            (feed, after, through),
        )
        return [first for (first,) in rows]

    def first_since(self, time: float) -> int | None:
        """The number of the first event that came at a time or later; None if there is none. Times
        grow with numbers, as far as the clock was not set back.
        """
        statement = (
            "SELECT first, coalesce(CAST(size AS INTEGER), 1), coalesce(CAST(at AS REAL), 0) "
            "FROM batch WHERE first >= ? ORDER BY first LIMIT 1"
        )
        with self.connection() as connection:
            [(low, high)] = connection.execute("SELECT min(first), max(first) FROM batch")
            if low is None:
                return None
            high += 1  # what is looked for is in [low, high]; high: nowhere
            while low < high:
                middle = (low + high) // 2
                row = connection.execute(statement, (middle,)).fetchone()
                if row is None or row[2] >= time:
                    high = middle
                else:
                    low = row[0] + row[1]
            row = connection.execute(statement, (low,)).fetchone()
        return None if row is None or row[2] < time else int(row[0])

    def last_events(
        self, feed: int, count: int, *, most_bytes: int = MOST_BYTES
    ) -> list[LoggedEvent]:
        """The newest, in their order; `most_bytes` as above."""
        pieces: list[list[LoggedEvent]] = []
        room = Room(count, most_bytes)
        with self.connection() as connection:
            for batch in self._batches(connection, feed, 0, _LAST, "DESC"):
                end = batch.first + batch.size - 1
                number = room.take(tuple(batch.ends[-1] - place for place in batch.ends[::-1]))
                pieces.append(batch.events(end - number, end))
                if room.full():
                    break
        return [event for piece in reversed(pieces) for event in piece]

    def _batches(
        self, connection: sqlite3.Connection, feed: int, low: int, high: int, order: str = "ASC"
    ) -> Iterator[Batch]:
        """The batches of a feed that begin at a number from `low` to `high`."""
        statement = (
            "SELECT first FROM batch WHERE feed = ? AND first BETWEEN ? AND ? "
            f"ORDER BY first {order} LIMIT {_BATCHES_PAGE}"
        )
        while True:
            firsts = connection.execute(statement, (feed, low, high)).fetchall()
            for (first,) in firsts:
                if (batch := self._batch(connection, first, keep=False)) is not None:
                    yield batch
            if len(firsts) < _BATCHES_PAGE:
                return
            low, high = (first + 1, high) if order == "ASC" else (low, first - 1)

    def event(self, sequence: int) -> tuple[int, LoggedEvent] | None:
        """An event and its feed; `StorageError` if it is damaged."""
        with self.connection() as connection:
            statement = "SELECT max(first) FROM batch WHERE first <= ?"
            [(first,)] = connection.execute(statement, (sequence,))
            if first is None:
                return None
            batch = self._batch(connection, first)
        if batch is None:
            raise StorageError(f"{self.file} is damaged: batch {first}")
        for event in batch.events(sequence - 1, sequence) if batch.feed_name else ():
            return batch.feed, event
        return None

    def first_sequence(self, feed: int | None) -> int | None:
        """The oldest number that is still kept, of all feeds or of one; None if none is."""
        where = "" if feed is None else "WHERE feed = ?"
        values = () if feed is None else (feed,)
        with self.connection() as connection:
            [(first,)] = connection.execute(f"SELECT min(first) FROM batch {where}", values)
        return first if first is None else int(first)

    def _batch(
        self, connection: sqlite3.Connection, first: int, *, keep: bool = True
    ) -> Batch | None:
        """The batch that begins at a number; None if it is damaged. Many subscribers ask for the
        same ones, so the last ones stay in memory.
        """
        if (known := self._recent_batches.get(first)) is not None:
            return known
        try:
            batch = self._read_batch(connection, first)
        except sqlite3.DatabaseError as error:
            self.report(f"batch {first}, {error}")
            return None
        if batch is None:
            self.report(f"batch {first}")
        elif keep:
            self._recent_batches.put(first, batch, len(batch.payload))
        return batch

    def _read_batch(self, connection: sqlite3.Connection, first: int) -> Batch | None:
        columns = ", ".join(f"b.{name}" for name in BATCH_COLUMNS.split(", "))
        row = connection.execute(
            f"SELECT {columns}, f.name, f.kind FROM batch b LEFT JOIN feed f ON f.number = b.feed "
            "WHERE b.first = ?",
            (first,),
        ).fetchone()
        if row is None:
            return None
        *values, name, kind = row
        return unpack_batch(values, name or "", kind or "events")
