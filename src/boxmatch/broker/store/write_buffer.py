"""Appended events, inboxes and cursors that wait to be written, each kind by one statement.

Each statement makes the writer thread ask for the interpreter again, which in a busy process takes
far longer than the statement; so there are few statements, whatever the number of rows.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from boxmatch.broker.store.rows import (
    batch_checksum,
    notifications_checksum,
    pack_bodies,
    pack_notifications,
)
from boxmatch.errors import StorageError

Inboxes = Mapping[int, Sequence[tuple[int, Sequence[str]]]]
"""By subscriber: positions of events, ascending, and the ids of the subscriptions that matched."""

MOST_ROW_BYTES = 256 * 1024
"""Events of one call go into rows of about this size: who reads one of them reads its row."""
PAGE = 4096
"""Bytes of the database that one change of a row takes in the write-ahead log, about."""


def _columns(count: int) -> str:
    return ", ".join(f"json_extract(value, '$[{column}]')" for column in range(count))


_PUT_INBOX = (
    "INSERT INTO inbox (subscriber, last, first, amount, notifications, checksum) "
    f"SELECT {_columns(6)} FROM json_each(?)"
)
_PUT_REPEATS = (
    "INSERT OR REPLACE INTO repeat (feed, key, at, first, last) "
    f"SELECT {_columns(5)} FROM json_each(?)"
)
_PUT_CURSORS = (
    f"WITH moved (number, place) AS (SELECT {_columns(2)} FROM json_each(?)) "
    "UPDATE subscriber SET cursor = max(cursor, moved.place) FROM moved "
    "WHERE subscriber.number = moved.number"
)
_BATCH_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?)"
_BATCHES_AT_ONCE = (64, 8, 1)  # few lengths, as each is a statement of its own


class WriteBuffer:
    """What changes have asked for and no statement has written yet."""

    __slots__ = ("batches", "cursors", "inbox", "repeats")

    def __init__(self) -> None:
        self.batches: list[tuple[Any, ...]] = []
        self.inbox: list[tuple[Any, ...]] = []
        self.repeats: dict[tuple[int, str], tuple[float, int, int]] = {}
        """By feed and key: time, first and last number."""
        self.cursors: dict[int, int] = {}

    def add(self, later: WriteBuffer) -> None:
        self.batches += later.batches
        self.inbox += later.inbox
        self.repeats.update(later.repeats)
        for subscriber, sequence in later.cursors.items():
            self.move(subscriber, sequence)

    def move(self, subscriber: int, sequence: int) -> None:
        self.cursors[subscriber] = max(self.cursors.get(subscriber, 0), sequence)

    def flush(self, connection: sqlite3.Connection) -> int:
        """Write it all. About how many bytes that takes in the write-ahead log."""
        written = 0
        if self.batches:
            written += sum(row[6] for row in self.batches) + PAGE * len(self.batches)
            _put_batches(connection, self.batches)
            self.batches = []
        if self.inbox:
            written += PAGE * len(self.inbox)
            connection.execute(_PUT_INBOX, (json_text(self.inbox),))
            self.inbox = []
        if self.repeats:
            written += PAGE * len(self.repeats)
            rows = [(*key, *value) for key, value in self.repeats.items()]
            connection.execute(_PUT_REPEATS, (json_text(rows),))
            self.repeats = {}
        if self.cursors:
            written += 64 * len(self.cursors)
            connection.execute(_PUT_CURSORS, (json_text(list(self.cursors.items())),))
            self.cursors = {}
        return written


def _put_batches(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    begin = 0
    for many in _BATCHES_AT_ONCE:
        statement = "INSERT INTO batch VALUES " + ", ".join([_BATCH_VALUES] * many)
        while len(rows) - begin >= many:
            values = [value for row in rows[begin : begin + many] for value in row]
            connection.execute(statement, values)
            begin += many


def batch_rows(
    first: int, feed: int, at: float, rate: float, bodies: Sequence[bytes], inboxes: Inboxes
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Rows of the log and of the inboxes. Whatever is wrong shows here, not when they are written:
    then it would concern others too.
    """
    if not (math.isfinite(at) and math.isfinite(rate)):
        raise StorageError(f"events cannot be stored at {at} with a rate of {rate}")
    batches: list[tuple[Any, ...]] = []
    inbox: list[tuple[Any, ...]] = []
    for low, high in _cut(bodies):
        batches.append(_batch_row(first + low, feed, at, rate, bodies[low:high]))
        inbox += _inbox_rows(inboxes, first + low, low, high)
    if sum(map(len, inboxes.values())) != sum(row[3] for row in inbox):
        raise StorageError(f"there are notifications of others than the {len(bodies)} events")
    return batches, inbox


def _cut(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut so that no piece is much larger than `MOST_ROW_BYTES`."""
    if sum(map(len, bodies)) <= MOST_ROW_BYTES:
        if bodies:
            yield 0, len(bodies)
        return
    low = nbytes = 0
    for position, body in enumerate(bodies):
        if nbytes + len(body) > MOST_ROW_BYTES and position > low:
            yield low, position
            low, nbytes = position, 0
        nbytes += len(body)
    yield low, len(bodies)


def _batch_row(
    first: int, feed: int, at: float, rate: float, bodies: Sequence[bytes]
) -> tuple[Any, ...]:
    payload = pack_bodies(bodies)
    size = len(bodies)
    checksum = batch_checksum(first, size, feed, at, rate, payload)
    return first, size, feed, at, rate, checksum, len(payload), payload


def _inbox_rows(inboxes: Inboxes, first: int, low: int, high: int) -> Iterator[tuple[Any, ...]]:
    """Rows for the events from `low` to `high`, of which the first has the number `first`."""
    for subscriber, notifications in inboxes.items():
        if low or (notifications and notifications[-1][0] >= high):
            notifications = [
                (position - low, ids) for position, ids in notifications if low <= position < high
            ]
        if notifications:
            text = pack_notifications(notifications)
            last = first + int(notifications[-1][0])
            checksum = notifications_checksum(subscriber, first, text)
            yield int(subscriber), last, first, len(notifications), text.decode(), checksum


def json_text(value: object) -> str:
    return orjson.dumps(value).decode()
