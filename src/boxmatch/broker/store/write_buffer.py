"""What changes have gathered, written together: each kind by one statement.

Each statement makes the writer thread ask for the interpreter again, which in a busy process takes
far longer than the statement; so there are few statements, whatever the number of rows.
"""

from __future__ import annotations

import sqlite3
from typing import Any

from boxmatch.broker.store import recipient_rows
from boxmatch.broker.store.progress import Progress, pack_progress
from boxmatch.broker.store.recipients import Recipients, join
from boxmatch.broker.store.rows import json_text

PAGE = 4096
"""Bytes of the database that one change of a row takes in the write-ahead log, about."""


def columns(count: int) -> str:
    """The values of a row that is an array in JSON."""
    return ", ".join(f"json_extract(value, '$[{column}]')" for column in range(count))


_PUT_REPEATS = (
    "INSERT OR REPLACE INTO repeat (feed, key, at, first, last) "
    f"SELECT {columns(5)} FROM json_each(?)"
)
_PUT_CURSORS = (
    f"WITH moved (number, place) AS (SELECT {columns(2)} FROM json_each(?)) "
    "UPDATE subscriber SET cursor = max(cursor, moved.place) FROM moved "
    "WHERE subscriber.number = moved.number"
)
_PUT_PROGRESS = (
    "WITH reached (number, position, amount, outstanding, checksum) AS "
    f"(SELECT {columns(5)} FROM json_each(?)) "
    "UPDATE sharing SET position = reached.position, amount = reached.amount, "
    "outstanding = reached.outstanding, checksum = reached.checksum FROM reached "
    "WHERE subscriber = reached.number"
)
_BATCH_VALUES = "(?, ?, ?, ?, ?, ?, ?, ?)"
_BATCHES_AT_ONCE = (64, 8, 1)  # few lengths, as each is a statement of its own


class WriteBuffer:
    """What changes have asked for and no statement has written yet."""

    __slots__ = ("batches", "cursors", "progress", "recipients", "repeats")

    def __init__(self) -> None:
        self.batches: list[tuple[Any, ...]] = []
        self.recipients: list[Recipients] = []
        """Of batches, in order; their events are sequence numbers."""
        self.repeats: dict[tuple[int, str], tuple[float, int, int]] = {}
        """By feed and key: time, first and last number."""
        self.cursors: dict[int, int] = {}
        self.progress: dict[int, Progress] = {}
        """By subscriber that shares its notifications: the last one counts."""

    def add(self, later: WriteBuffer) -> None:
        self.batches += later.batches
        self.recipients += later.recipients
        self.repeats.update(later.repeats)
        for subscriber, sequence in later.cursors.items():
            self.move(subscriber, sequence)
        self.progress.update(later.progress)

    def move(self, subscriber: int, sequence: int) -> None:
        self.cursors[subscriber] = max(self.cursors.get(subscriber, 0), sequence)

    def flush(self, connection: sqlite3.Connection) -> int:
        """Write it all. About how many bytes that takes in the write-ahead log."""
        written = 0
        if self.batches:
            written += sum(row[6] for row in self.batches) + PAGE * len(self.batches)
            _put_batches(connection, self.batches)
            self.batches = []
        if self.recipients:
            written += recipient_rows.put(connection, join(self.recipients)) + PAGE
            self.recipients = []
        if self.repeats:
            written += PAGE * len(self.repeats)
            rows = [(*key, *value) for key, value in self.repeats.items()]
            connection.execute(_PUT_REPEATS, (json_text(rows),))
            self.repeats = {}
        if self.cursors:
            written += 64 * len(self.cursors)
            connection.execute(_PUT_CURSORS, (json_text(list(self.cursors.items())),))
            self.cursors = {}
        if self.progress:
            text = json_text([pack_progress(*one) for one in self.progress.items()])
            written += len(text) + PAGE * len(self.progress)
            connection.execute(_PUT_PROGRESS, (text,))
            self.progress = {}
        return written


def _put_batches(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> None:
    begin = 0
    for many in _BATCHES_AT_ONCE:
        statement = "INSERT INTO batch VALUES " + ", ".join([_BATCH_VALUES] * many)
        while len(rows) - begin >= many:
            values = [value for row in rows[begin : begin + many] for value in row]
            connection.execute(statement, values)
            begin += many
