"""What is not needed any more goes, in transactions so small that nobody waits long for them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from boxmatch.broker.settings import Retention
from boxmatch.broker.store.reader import Reader
from boxmatch.broker.store.rows import Cause, Removed, json_text
from boxmatch.broker.store.transaction import REPEATABLE, StoreTransaction
from boxmatch.broker.store.waiting import Write, drop, shorten, shrink
from boxmatch.wire.requests import FeedRetention

_ROWS_AT_ONCE = 2000
_BATCHES_AT_ONCE = 512
_BYTES_AT_ONCE = 8 << 20

_OF_FEEDS = {"subscription": "number", "member": "place", "repeat": "feed, key"}
"""What else is in a feed, by table: the key of its rows."""
_AMONG = "first IN (SELECT value FROM json_each(?))"
# All others went with their batches.
_DELETE_DAMAGED = "DELETE FROM recipients WHERE last < coalesce((SELECT min(first) FROM batch), ?)"
_TOTALS = "SELECT feed, coalesce(sum(nbytes), 0), coalesce(sum(size), 0) FROM batch GROUP BY feed"
_NO_LIMITS = FeedRetention()
_SHARE = 16
"""Of a small disk, not more than this part is kept free."""


def tidy(
    reader: Reader,
    write: Write,
    now: float,
    retention: Retention,
    feeds: Mapping[int, FeedRetention],
) -> Removed:
    """See `Store.tidy`."""
    for feed in _dropped_feeds(reader):  # the process may have ended before that was done
        clear_feed(reader, write, feed)
    shrink(reader, write)
    dropped: Counter[int] = Counter()
    events: Counter[tuple[int, Cause]] = Counter()
    causes: Counter[str] = Counter()
    batches = 0
    for cause, rows in _old_batches(reader, now, retention, feeds):
        firsts = [row.first for row in rows]
        missed = drop(write, _ranges(write, firsts))
        batches += write(partial(_forget, firsts=firsts)).result()
        dropped.update(missed)
        causes[cause] += sum(missed.values())
        for row in rows:
            events[row.feed, cause] += row.size or 0
    shortened = shorten(reader, write, retention.backlog)
    dropped.update(shortened)
    causes["backlog"] += sum(shortened.values())
    while write(partial(_forget_keys, now=now)).result():
        pass
    missed = {subscriber: count for subscriber, count in dropped.items() if count}
    return Removed(batches, missed, dict(+events), dict(+causes))


def clear_feed(reader: Reader, write: Write, feed: int) -> None:
    """Remove what was in a feed that was dropped. Notifications that wait are not counted."""
    for _, rows in _oldest(reader, "feed IS ?", (feed,), lambda row: "age"):
        firsts = [row.first for row in rows]
        drop(write, _ranges(write, firsts), counted=False)
        write(partial(_forget, firsts=firsts)).result()
    for table, key in _OF_FEEDS.items():
        while write(partial(_delete_some, table=table, key=key, feed=feed)).result():
            pass


def _delete_some(transaction: StoreTransaction, table: str, key: str, feed: int) -> bool:
    """Whether there may be more."""
    some = f"SELECT {key} FROM {table} WHERE feed = ? LIMIT {_ROWS_AT_ONCE}"
    deleted = transaction.execute(f"DELETE FROM {table} WHERE ({key}) IN ({some})", feed)
    return deleted.rowcount == _ROWS_AT_ONCE


def _dropped_feeds(reader: Reader) -> set[int]:
    """Feeds that are not there any more, but something that was in them."""
    found: set[int] = set()
    with reader.connection() as connection:
        known = {number for (number,) in connection.execute("SELECT number FROM feed")}
        for table in ("batch", *_OF_FEEDS):
            last: int | None = -1
            while last is not None:  # a look into the index for each feed, not for each row
                statement = f"SELECT min(feed) FROM {table} WHERE feed > ?"
                [(last,)] = connection.execute(statement, (last,))
                if isinstance(last, int):
                    found.add(last)
    return found - known


class _BatchRow(NamedTuple):
    """What decides about a batch; None is damaged."""

    first: int
    feed: int
    size: int | None
    nbytes: int | None
    at: float | None


_CauseOf = Callable[[_BatchRow], Cause | None]
_Old = Iterator[tuple[Cause, list[_BatchRow]]]
"""A few batches at a time, and why they are to go."""


def _old_batches(
    reader: Reader, now: float, retention: Retention, feeds: Mapping[int, FeedRetention]
) -> _Old:
    """The oldest batches that are too old or too much."""
    with reader.connection() as connection:
        totals = connection.execute(_TOTALS).fetchall()
    left = sum(nbytes for _, nbytes, _ in totals)
    for feed, nbytes, events in totals:
        own = feeds.get(feed, _NO_LIMITS)
        cause_of = _limits_of_feed(own, now, retention.seconds, nbytes, events)
        for cause, rows in _oldest(reader, "feed IS ?", (feed,), cause_of):
            left -= sum(row.nbytes or 0 for row in rows)
            yield cause, rows
    yield from _oldest(reader, "TRUE", (), _surplus("total", left - retention.nbytes))
    lacking = lacking_bytes(reader, retention.free_bytes)
    if lacking > 0:  # events that somebody waits for stay: then publishers have to wait
        yield from _oldest(reader, "TRUE", (), _surplus("disk", lacking), spares=True)


def _limits_of_feed(
    own: FeedRetention, now: float, seconds: float, nbytes: int, events: int
) -> _CauseOf:
    """Of a feed that has so many events now, the oldest first."""
    oldest = now - (seconds if own.days is None else own.days * 86_400.0)

    def cause_of(row: _BatchRow) -> Cause | None:
        nonlocal nbytes, events
        cause: Cause | None = None
        size = row.size or 0
        if row.at is None or row.nbytes is None or row.at < oldest:
            cause = "age"  # what is damaged goes with the others
        elif own.bytes is not None and nbytes > own.bytes:
            cause = "bytes"
        elif own.events is not None and events - size >= own.events:
            cause = "events"
        else:
            return None
        nbytes -= row.nbytes or 0
        events -= size
        return cause

    return cause_of


def _surplus(cause: Cause, nbytes: int) -> _CauseOf:
    """So many bytes, the oldest first."""

    def cause_of(row: _BatchRow) -> Cause | None:
        nonlocal nbytes
        if nbytes <= 0:
            return None
        nbytes -= row.nbytes or 0
        return cause

    return cause_of


def lacking_bytes(reader: Reader, wanted: int) -> int:
    """Bytes of the disk that should be free, and are not; below 0 more are. What is free in
    the database counts: new events take it before the file grows.
    """
    disk = shutil.disk_usage(reader.file.parent)
    with reader.connection() as connection:
        [(pages,)] = connection.execute("PRAGMA freelist_count")
        [(size,)] = connection.execute("PRAGMA page_size")
    return min(wanted, disk.total // _SHARE) - disk.free - int(pages) * int(size)


def _oldest(
    reader: Reader,
    condition: str,
    values: tuple[object, ...],
    cause_of: _CauseOf,
    *,
    spares: bool = False,
) -> _Old:
    """The oldest batches up to the first for which there is no cause. `spares` leaves out those
    that somebody waits for.
    """
    last = -1
    while True:
        with reader.connection() as connection:
            found = connection.execute(
                "SELECT first, feed, CAST(size AS INTEGER), CAST(nbytes AS INTEGER), "
                f"CAST(at AS REAL) FROM batch WHERE first > ? AND {condition} "
                f"ORDER BY first LIMIT {_BATCHES_AT_ONCE}",
                (last, *values),
            ).fetchall()
        rows = list(map(_BatchRow._make, found))
        is_end = len(rows) < _BATCHES_AT_ONCE
        causes: list[tuple[Cause, _BatchRow]] = []
        for row in _not_awaited(reader, rows) if spares else rows:
            if (cause := cause_of(row)) is None:
                is_end = True
                break
            causes.append((cause, row))
        for one, group in groupby(causes, key=itemgetter(0)):
            yield from ((one, some) for some in _few([row for _, row in group]))
        if is_end:
            return
        last = rows[-1].first


def _not_awaited(reader: Reader, rows: list[_BatchRow]) -> list[_BatchRow]:
    """Those whose events nobody waits for."""
    if not rows:
        return []
    awaited = reader.awaited(rows[0].first, rows[-1].first + (rows[-1].size or 1))
    begins = np.array([row.first for row in rows])
    ends = begins + np.array([row.size or 1 for row in rows])
    counts = np.searchsorted(awaited, ends) - np.searchsorted(awaited, begins)
    return [row for row, count in zip(rows, counts.tolist(), strict=True) if not count]


def _few(rows: list[_BatchRow]) -> Iterator[list[_BatchRow]]:
    """Pieces that are removed at once."""
    begin = nbytes = 0
    for place, row in enumerate(rows):
        if nbytes > _BYTES_AT_ONCE:
            yield rows[begin:place]
            begin, nbytes = place, 0
        nbytes += row.nbytes or 0
    yield rows[begin:]


def _ranges(write: Write, firsts: Sequence[int]) -> list[tuple[int, int]]:
    """The first and last number of some batches."""
    found: list[tuple[int, int]] = write(partial(StoreTransaction.ranges, batches=firsts)).result()
    return found


def _forget(transaction: StoreTransaction, firsts: Sequence[int]) -> int:
    """Remove batches whose notifications are dropped. How many there were."""
    among = f"DELETE FROM batch WHERE {_AMONG}"
    gone = transaction.execute(among, json_text(firsts)).rowcount
    transaction.execute(_DELETE_DAMAGED, transaction.next_sequence)
    transaction.keep_next()
    return gone


def _forget_keys(transaction: StoreTransaction, now: float) -> bool:
    old = f"SELECT feed, key FROM repeat WHERE at <= ? LIMIT {_ROWS_AT_ONCE}"
    statement = f"DELETE FROM repeat WHERE (feed, key) IN ({old})"
    return transaction.execute(statement, now - REPEATABLE).rowcount == _ROWS_AT_ONCE
