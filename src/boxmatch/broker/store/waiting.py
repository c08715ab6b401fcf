"""Fewer rows of recipients: what is acknowledged goes, small rows are put together, and what is not
kept any more is dropped and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

import numpy as np
import orjson

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.broker.store.inbox_reader import InboxReader, Unread
from boxmatch.broker.store.progress import Progress, unpack_progress
from boxmatch.broker.store.recipient_rows import MOST_BYTES, RowKey
from boxmatch.broker.store.recipients import NOBODY, Recipients, join, within
from boxmatch.broker.store.rows import json_text
from boxmatch.broker.store.transaction import StoreTransaction
from boxmatch.broker.store.write_buffer import columns

Write = Callable[[Callable[[StoreTransaction], Any]], Future[Any]]
Range = tuple[int, int]

_ROWS_AT_ONCE = 128
_BYTES_AT_ONCE = 2 * MOST_BYTES
"""What one transaction reads and writes again, and more only if it is of one row."""
_UNREAD = 8
"""Bytes that are deleted without being read, for one that is."""
_SHARE = 8
"""A row is written again for others that add a part of it that is not smaller."""
_PATIENCE = 16
"""Or for so many others."""
_CURSORS = (
    "SELECT json_group_array(number), json_group_array(coalesce(CAST(cursor AS INTEGER), 0)) "
    "FROM subscriber "
    "WHERE number BETWEEN ? AND ?"
)
_COUNT_DROPPED = (
    f"WITH lost (number, amount, through) AS (SELECT {columns(3)} FROM json_each(?)) "
    "UPDATE subscriber SET dropped = dropped + lost.amount, "
    "dropped_through = max(dropped_through, lost.through) FROM lost "
    "WHERE subscriber.number = lost.number"
)


class Reached:
    """How far subscribers are, from one number to another, in a transaction."""

    def __init__(self, transaction: StoreTransaction, first: int, last: int) -> None:
        [(numbers, cursors)] = transaction.execute(_CURSORS, first, last)
        known = np.array(orjson.loads(numbers), np.int64)
        self._first = first
        self.cursor = np.zeros(max(last - first + 1, 0), np.int64)
        self.cursor[known - first] = np.array(orjson.loads(cursors), np.int64)
        self.progress: dict[int, Progress] = {}
        statement = (
            "SELECT subscriber, position, outstanding, checksum FROM sharing "
            "WHERE subscriber BETWEEN ? AND ?"
        )
        for number, *values in transaction.execute(statement, first, last).fetchall():
            progress = unpack_progress(number, *values)
            if progress is not None:
                self.progress[number] = progress

    @classmethod
    def of(cls, transaction: StoreTransaction, recipients: Recipients) -> Reached:
        """Of all of these."""
        first, last = recipients.subscriber[[0, -1]].tolist() if recipients.size else (0, -1)
        return cls(transaction, first, last)

    def is_unread(self, recipients: Recipients) -> BoolArray:
        """Which are after the cursor of their subscriber."""
        return recipients.event > self.cursor[recipients.subscriber - self._first]

    def is_waiting(self, recipients: Recipients) -> BoolArray:
        """Which are not done: also of those who share them."""
        waits = self.is_unread(recipients)
        for subscriber, progress in self.progress.items():
            some = recipients.of_subscriber(subscriber)
            events = recipients.event[some]
            left = np.isin(events, list(progress.outstanding))
            waits[some] &= (events > progress.position) | left
        return waits


def shrink(reader: InboxReader, write: Write, *, merges: bool = True) -> None:
    """Remove rows of which all is acknowledged; put small rows together if it `merges`, and remove
    what is acknowledged of those.
    """
    rows, nbytes = reader.waiting().rows, reader.row_bytes()
    for some in _groups([row for row in rows if not row.unread], nbytes):
        write(partial(_delete, rows=[row.key.first for row in some])).result()
    for some in _groups([row for row in rows if row.unread and merges], nbytes):
        _merge(write, some)


def _groups(rows: Sequence[Unread], nbytes: Mapping[RowKey, int]) -> Iterator[list[Unread]]:
    """Rows for one transaction each, whose unread notifications fit into one row."""
    group: list[Unread] = []
    total = 0
    for row in rows:
        size = nbytes.get(row.key, 0)
        unread = size * row.unread // row.key.amount
        cost = max(size, unread * (_BYTES_AT_ONCE // MOST_BYTES)) if unread else size // _UNREAD
        total += cost
        if group and (total > _BYTES_AT_ONCE or len(group) == _ROWS_AT_ONCE):
            yield group
            group, total = [], cost
        group.append(row)
    if group:
        yield group


def _delete(transaction: StoreTransaction, rows: Sequence[int]) -> None:
    transaction.replace_recipients(rows, NOBODY)


def _merge(write: Write, chunk: Sequence[Unread]) -> None:
    """Write rows that follow one another as one, if that is worth it."""
    largest, total = max(one.unread for one in chunk), sum(one.unread for one in chunk)
    is_worth = len(chunk) > _PATIENCE or (total - largest) * _SHARE > largest
    if is_worth or 2 * total < sum(one.key.amount for one in chunk):
        bounds = chunk[0].key.first, chunk[-1].key.last
        write(partial(_rewrite, bounds=bounds)).result()


def _rewrite(transaction: StoreTransaction, bounds: Range) -> None:
    found = transaction.recipients([bounds])
    if found:
        together = join([recipients for _, recipients in found])
        left = together.only(Reached.of(transaction, together).is_unread(together))
        transaction.replace_recipients([row for row, _ in found], left)


def drop(write: Write, ranges: Sequence[Range], *, counted: bool = True) -> dict[int, int]:
    """Drop all notifications of events in some ranges. How many waited, by subscriber, unless they
    are not to be counted.
    """
    missed: Counter[int] = Counter()
    begin: int | None = 0
    while begin is not None:
        left = [(max(low, begin), high) for low, high in ranges if high >= begin]
        begin, some = write(partial(_drop_some, ranges=left, counted=counted)).result()
        missed.update(some)
    return missed


def _drop_some(
    transaction: StoreTransaction, ranges: Sequence[Range], counted: bool
) -> tuple[int | None, dict[int, int]]:
    """Of a few rows. The first event of the next row, if there is one, and who missed how many."""
    missed: Counter[int] = Counter()
    unread: list[int] = []
    some: list[RowKey] = []
    upcoming: int | None = None
    nbytes = 0
    for row in transaction.overlapping(ranges):
        is_read = counted or not row.is_inside
        nbytes += row.nbytes if is_read else row.nbytes // _UNREAD
        if nbytes > _BYTES_AT_ONCE and (some or unread):
            upcoming = row.key.first
            break
        if is_read:
            some.append(row.key)
        else:
            unread.append(row.key.first)
    transaction.replace_recipients(unread, NOBODY)
    for first, recipients in transaction.contents(some):
        gone = within(recipients.event, ranges)
        if not gone.any():
            continue
        if counted:
            waits = Reached.of(transaction, recipients).is_waiting(recipients)
            missed.update(_count(transaction, recipients.only(gone & waits)))
        transaction.replace_recipients([first], recipients.only(~gone))
    return upcoming, missed


def shorten(reader: InboxReader, write: Write, most: int) -> dict[int, int]:
    """Drop the oldest notifications of those who have more than `most` waiting, down to that. How
    many, by subscriber.
    """
    waiting = reader.waiting()
    excess = np.maximum(waiting.backlog - most, 0)
    dropped: Counter[int] = Counter()
    for key, _ in waiting.rows:
        if not excess.any():
            break
        addressees = reader.addressees(key)
        if addressees is None:
            continue
        subscriber = addressees.subscriber
        places = np.flatnonzero((excess[subscriber] > 0) & addressees.is_after(waiting.reached))
        whose = subscriber[places].astype(np.int64)
        rank = np.arange(len(places)) - np.searchsorted(whose, whose)
        chosen = rank < excess[whose]
        places, whose = places[chosen], whose[chosen]
        np.subtract.at(excess, whose, 1)
        if len(places):
            through = np.full(len(excess), -1)
            through[whose] = addressees.offset[places].astype(np.int64) + key.first
            dropped.update(write(partial(_shorten, row=key.first, through=through)).result())
    return dropped


def _shorten(transaction: StoreTransaction, row: int, through: Int64Array) -> dict[int, int]:
    """Drop what subscribers have not read by now up to some numbers; -1 is nothing. Not what was
    handed out to those who share.
    """
    dropped: Counter[int] = Counter()
    for first, recipients in transaction.recipients([(row, row)]):
        known = Reached.of(transaction, recipients)
        chosen = recipients.event <= through[recipients.subscriber]
        chosen &= known.is_unread(recipients)
        for number, progress in known.progress.items():
            some = recipients.of_subscriber(number)
            chosen[some] &= recipients.event[some] > progress.position
        dropped.update(_count(transaction, recipients.only(chosen)))
        transaction.replace_recipients([first], recipients.only(~chosen))
    return dropped


def _count(transaction: StoreTransaction, lost: Recipients) -> dict[int, int]:
    """Count what is lost as dropped."""
    if not lost.size:
        return {}
    numbers, begins, counts = np.unique(lost.subscriber, return_index=True, return_counts=True)
    through = lost.event[begins + counts - 1]
    rows = np.stack([numbers, counts, through], axis=1).tolist()
    transaction.execute(_COUNT_DROPPED, json_text(rows))
    return dict(zip(numbers.tolist(), counts.tolist(), strict=True))
