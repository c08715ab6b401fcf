"""Reading what waits for subscribers: rows of recipients, and the events that they name."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.broker.store.log_reader import MOST_BYTES, LogReader
from boxmatch.broker.store.recent import Recent
from boxmatch.broker.store.recipient_rows import (
    COLUMNS,
    RowKey,
    columns_of,
    overlapping,
    read_addressees,
    read_details,
)
from boxmatch.broker.store.recipients import Addressees, Details
from boxmatch.broker.store.rows import Batch, Notification, Room

_PAGE = 256
_AT_ONCE = 1 << 16
"""Notifications, and more only if they are of one row."""
_ADDRESSEES_BYTES = 64 << 20
"""About ten million notifications."""
_DETAILS_BYTES = 32 << 20
_LAST = 2**63 - 1

# One row with all of them: each row by itself would ask for the interpreter again.
_ROWS = (
    f"SELECT json_group_array(json_array({COLUMNS})) FROM "
    f"(SELECT {COLUMNS} FROM recipients WHERE last > ? AND first <= ? ORDER BY last LIMIT {_PAGE})"
)
_ROWS_ONE_BY_ONE = (
    f"SELECT {COLUMNS} FROM recipients WHERE last > ? AND first <= ? ORDER BY last LIMIT {_PAGE}"
)
_CURSORS = (
    "SELECT json_group_array(number), json_group_array(coalesce(CAST(cursor AS INTEGER), 0)) "
    "FROM subscriber WHERE number BETWEEN 1 AND 1000 + 2 * (SELECT count(*) FROM subscriber)"
)
"""Numbers that are much larger than there are subscribers are damaged."""
_SHARING = (
    "SELECT subscriber, CAST(position AS INTEGER), CAST(amount AS INTEGER) FROM sharing "
    "WHERE subscriber BETWEEN 0 AND ? - 1"
)


class Unread(NamedTuple):
    """A row, and how many of its notifications are not acknowledged."""

    key: RowKey
    unread: int


class Waiting(NamedTuple):
    """What waits for whom, at one moment."""

    reached: Int64Array
    """By subscriber, the number up to which nothing waits but what is outstanding."""
    backlog: Int64Array
    """By subscriber, how many notifications wait."""
    rows: list[Unread]
    """In the order of events; those that are damaged are left out."""


class InboxReader(LogReader):
    """All methods may be called from any thread."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._recent_addressees: Recent[RowKey, Addressees] = Recent(_ADDRESSEES_BYTES)
        self._recent_details: Recent[RowKey, Details] = Recent(_DETAILS_BYTES)

    def inbox(
        self,
        subscriber: int,
        after: int,
        limit: int,
        most_bytes: int = MOST_BYTES,
        *,
        through: int = _LAST,
    ) -> list[Notification]:
        """The first notifications with numbers after `after`, up to `through`, whatever the cursor
        is.

        Fewer than `limit` are not the last ones if they are large: it ends before `most_bytes` of
        bodies, but not before the first.
        """
        found: list[Notification] = []
        room = Room(limit, most_bytes)
        with self.connection() as connection:
            batches = _BatchWalk(self, connection)
            for key, addressees in self._rows(connection, after, through):
                places = addressees.of_subscriber(subscriber, after)
                for event, ids in self._named(connection, key, addressees, places, limit):
                    batch = batches.find(event)
                    if batch is None:
                        continue
                    body = batch.body(event - batch.first)
                    if room.full() or event > through or not room.take((0, len(body))):
                        return found
                    found.append(
                        Notification(
                            event, batch.feed_name, batch.at, ids, body, batch.feed_kind, batch.rate
                        )
                    )
                if room.full():
                    break
        return found

    def _named(
        self,
        connection: sqlite3.Connection,
        key: RowKey,
        addressees: Addressees,
        places: slice,
        limit: int,
    ) -> Iterator[tuple[int, list[str]]]:
        """Events of a row, so many at a time, with the subscriptions that they match."""
        while places.start < places.stop:
            some = slice(places.start, min(places.start + limit, places.stop))
            if some.start == some.stop or (details := self._details(connection, key)) is None:
                return
            events = (addressees.offset[some].astype(np.int64) + key.first).tolist()
            yield from zip(events, details.names(some), strict=True)
            places = slice(some.stop, places.stop)

    def backlogs(self, subscribers: Collection[int] | None = None) -> dict[int, int]:
        """How many notifications wait, by subscriber: of all, or of some."""
        if subscribers is not None and len(subscribers) == 1:
            [number] = subscribers
            with self.connection() as connection:
                return self._backlog(connection, number)
        waiting = self.waiting()
        known = waiting.reached >= 0
        numbers = np.flatnonzero(known).tolist() if subscribers is None else subscribers
        return {
            number: int(waiting.backlog[number])
            for number in numbers
            if 0 <= number < len(known) and known[number]
        }

    def _backlog(self, connection: sqlite3.Connection, subscriber: int) -> dict[int, int]:
        row = connection.execute(
            "SELECT max(cursor, coalesce(CAST(position AS INTEGER), 0)), "
            "coalesce(CAST(amount AS INTEGER), 0) "
            "FROM subscriber LEFT JOIN sharing ON subscriber = number WHERE number = ?",
            (subscriber,),
        ).fetchone()
        if row is None:
            return {}
        reached, count = row
        for _, addressees in self._rows(connection, reached, _LAST):
            places = addressees.of_subscriber(subscriber, reached)
            count += places.stop - places.start
        return {subscriber: int(count)}

    def waiting(self) -> Waiting:
        """What waits for all subscribers. Looks through all that is not acknowledged."""
        with self.connection() as connection:
            cursor = _cursors(connection)
            backlog = np.zeros(len(cursor), np.int64)
            sharing = connection.execute(_SHARING, (len(cursor),)).fetchall()
            reached = cursor
            if sharing:
                reached = cursor.copy()
                for number, position, outstanding in sharing:
                    reached[number] = max(reached[number], position)
                    backlog[number] = outstanding
            rows: list[Unread] = []
            for keys, together in self._groups(connection, 0, _LAST):
                waits = together.is_after(reached)
                backlog += np.bincount(together.subscriber[waits], minlength=len(backlog))
                is_unread = together.is_after(cursor) if sharing else waits
                unread = np.add.reduceat(is_unread, together.starts, dtype=np.int64)
                rows += map(Unread, keys, unread.tolist())
        there = {row.key for row in rows}  # others were put together, or are done with
        self._recent_addressees.retain(there)
        self._recent_details.retain(there)
        return Waiting(reached, backlog, rows)

    def row_bytes(self) -> dict[RowKey, int]:
        """What each row takes on the disk."""
        with self.connection() as connection:
            return {row.key: row.nbytes for row in overlapping(connection, [(0, _LAST)])}

    def addressees(self, key: RowKey) -> Addressees | None:
        """Who waits for what of a row; None if it is damaged."""
        with self.connection() as connection:
            return dict(self._addressees(connection, [key])).get(key)

    def awaited(self, first: int, last: int) -> Int64Array:
        """The events from one number to another that somebody has not acknowledged."""
        found = [np.empty(0, np.int64)]
        with self.connection() as connection:
            cursor = _cursors(connection)
            for _, together in self._groups(connection, first - 1, last):
                found.append(np.unique(together.event[together.is_after(cursor)]))
        return np.concatenate(found)

    def _groups(
        self, connection: sqlite3.Connection, after: int, through: int
    ) -> Iterator[tuple[list[RowKey], _Together]]:
        """Rows as in `_rows`, several at once."""
        for keys in self._row_groups(connection, after, through):
            if found := self._addressees(connection, keys):
                sound, rows = zip(*found, strict=True)
                yield list(sound), _Together.of(rows)

    def _rows(
        self, connection: sqlite3.Connection, after: int, through: int
    ) -> Iterator[tuple[RowKey, Addressees]]:
        """Rows with events after a number, up to another, unless they are damaged."""
        for keys in self._row_groups(connection, after, through):
            yield from self._addressees(connection, keys)

    def _row_groups(
        self, connection: sqlite3.Connection, after: int, through: int
    ) -> Iterator[list[RowKey]]:
        """The keys of rows, so many at once that their content is not large."""
        group: list[RowKey] = []
        amount = 0
        for key in chain.from_iterable(self._row_pages(connection, after, through)):
            if group and (amount + key.amount > _AT_ONCE or len(group) == _PAGE):
                yield group
                group, amount = [], 0
            group.append(key)
            amount += key.amount
        if group:
            yield group

    def _row_pages(
        self, connection: sqlite3.Connection, after: int, through: int
    ) -> Iterator[list[RowKey]]:
        """Rows with events after a number, up to another."""
        while True:
            found: list[Any]
            try:
                [(text,)] = connection.execute(_ROWS, (after, through))
                found = orjson.loads(text)
            except (sqlite3.Error, ValueError):  # something in it is no number
                found = connection.execute(_ROWS_ONE_BY_ONE, (after, through)).fetchall()
            keys = list(map(RowKey._make, found))
            yield [key for key in keys if self._is_sound(key)]
            if len(keys) < _PAGE:
                return
            after = keys[-1].last

    def _is_sound(self, key: RowKey) -> bool:
        last, first, amount, checksum = key
        if type(last) is type(first) is type(amount) is type(checksum) is int:
            return True
        self._report_row(key)
        return False

    def _report_row(self, key: RowKey) -> None:
        self.report(f"who gets events from {key.first} to {key.last}")

    def _addressees(
        self, connection: sqlite3.Connection, keys: Sequence[RowKey]
    ) -> list[tuple[RowKey, Addressees]]:
        """Who waits for what of some rows; without those that are damaged."""
        known = {key: self._recent_addressees.get(key) for key in keys}
        missing = [key for key, addressees in known.items() if addressees is None]
        if missing:
            columns = self._columns(connection, "addressees", missing)
            for key in missing:
                found = known[key] = read_addressees(key, columns.get(key.first))
                if found is None:
                    self._report_row(key)
                else:
                    self._recent_addressees.put(key, found, found.nbytes)
        return [(key, found) for key, found in known.items() if found is not None]

    def _details(self, connection: sqlite3.Connection, key: RowKey) -> Details | None:
        known = self._recent_details.get(key)
        if known is None:
            columns = self._columns(connection, "details", [key])
            known = read_details(key, columns.get(key.first))
            if known is None:
                self._report_row(key)
            else:
                self._recent_details.put(key, known, known.nbytes)
        return known

    def _columns(
        self, connection: sqlite3.Connection, name: str, keys: Sequence[RowKey]
    ) -> dict[int, bytes]:
        """A column of some rows, by their first events, as far as it can be read."""
        try:
            return columns_of(connection, name, [key.first for key in keys])
        except (sqlite3.DatabaseError, ValueError):  # something is damaged
            if len(keys) == 1:
                return {}
            return {k: v for key in keys for k, v in self._columns(connection, name, [key]).items()}


class _Together(NamedTuple):
    """Addressees of several rows, one row after the other."""

    subscriber: Int64Array
    event: Int64Array
    starts: Int64Array
    """Where each row begins."""

    @classmethod
    def of(cls, rows: Sequence[Addressees]) -> _Together:
        sizes = np.array([len(row.subscriber) for row in rows], np.int64)
        firsts = np.repeat(np.array([row.first for row in rows], np.int64), sizes)
        return cls(
            np.concatenate([row.subscriber for row in rows]).astype(np.int64),
            np.concatenate([row.offset for row in rows]).astype(np.int64) + firsts,
            np.cumsum(sizes) - sizes,
        )

    def is_after(self, numbers: Int64Array) -> BoolArray:
        """Which events come after the number that each subscriber, by its own, has there; none of
        subscribers that are not there, whose rows are damaged.
        """
        if self.subscriber.max(initial=0) < len(numbers):
            return self.event > numbers[self.subscriber]
        known = self.subscriber < len(numbers)
        return known & (self.event > numbers[np.where(known, self.subscriber, 0)])


def _cursors(connection: sqlite3.Connection) -> Int64Array:
    """By subscriber; -1 where there is none of this number."""
    [(numbers, cursors)] = connection.execute(_CURSORS)
    subscribers = np.array(orjson.loads(numbers), np.int64)
    cursor = np.full(1 + int(subscribers.max(initial=0)), -1)
    cursor[subscribers] = np.array(orjson.loads(cursors), np.int64)
    return cursor


class _BatchWalk:
    """The batches of events that come in order."""

    def __init__(self, reader: InboxReader, connection: sqlite3.Connection) -> None:
        self._reader = reader
        self._connection = connection
        self._batch: Batch | None = None

    def find(self, event: int) -> Batch | None:
        """The batch of an event; None if it is damaged, or its feed was dropped."""
        batch = self._batch
        if batch is None or not batch.first <= event < batch.first + batch.size:
            statement = "SELECT max(first) FROM batch WHERE first <= ?"
            [(first,)] = self._connection.execute(statement, (event,))
            batch = None if first is None else self._reader._batch(self._connection, first)
            self._batch = batch
        if batch is None or event >= batch.first + batch.size or not batch.feed_name:
            return None
        return batch
