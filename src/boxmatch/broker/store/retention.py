"""What is not needed any more goes, in transactions so small that nobody waits long for them."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from boxmatch.broker.settings import Retention
from boxmatch.broker.store.progress import Progress, unpack_progress
from boxmatch.broker.store.reader import Reader
from boxmatch.broker.store.rows import (
    Cause,
    Notifications,
    Removed,
    json_text,
    notifications_checksum,
    pack_notifications,
    unpack_notifications,
)
from boxmatch.broker.store.transaction import REPEATABLE, StoreTransaction
from boxmatch.wire.requests import FeedRetention

Write = Callable[[Callable[[StoreTransaction], Any]], Future[Any]]

_ROWS_AT_ONCE = 2000
_BATCHES_AT_ONCE = 32
_SUBSCRIBERS_AT_ONCE = 32

# By part, of which each is one transaction: how far which subscribers' rows go, and their
# notifications.
_ACKNOWLEDGED = f"""
    SELECT json_group_array(json_array(part, subscriber, bound, notifications)) FROM (
        SELECT part, subscriber, max(last) AS bound, sum(amount) AS notifications FROM (
            SELECT i.subscriber, i.last, i.amount,
                row_number() OVER (ORDER BY i.subscriber, i.last) / {_ROWS_AT_ONCE} AS part
            FROM subscriber s CROSS JOIN inbox i ON i.subscriber = s.number AND i.last <= s.cursor)
        GROUP BY part, subscriber ORDER BY part)"""
_DELETE_THROUGH = """
    DELETE FROM inbox WHERE (subscriber, last) IN (
        SELECT i.subscriber, i.last FROM json_each(?) j CROSS JOIN inbox i
        ON i.subscriber = json_extract(j.value, '$[0]')
            AND i.last <= json_extract(j.value, '$[1]'))"""
_AMONG = "first IN (SELECT value FROM json_each(?))"
_TOTALS = "SELECT feed, coalesce(sum(nbytes), 0), coalesce(sum(size), 0) FROM batch GROUP BY feed"
_NOT_AWAITED = "NOT EXISTS (SELECT 1 FROM inbox WHERE inbox.first = batch.first)"
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
    acknowledged = _drop_acknowledged(reader, write)
    dropped: Counter[int] = Counter()
    events: Counter[tuple[int, Cause]] = Counter()
    causes: Counter[str] = Counter()
    batches = 0
    for cause, rows in _old_batches(reader, now, retention, feeds):
        firsts = [row.first for row in rows]
        gone, missed = write(partial(_forget, firsts=firsts)).result()
        batches += gone
        dropped.update(missed)
        causes[cause] += sum(missed.values())
        for row in rows:
            events[row.feed, cause] += row.size or 0
    long = [subscriber for subscriber, n in reader.backlogs().items() if n > retention.backlog]
    while long:
        some = long[:_SUBSCRIBERS_AT_ONCE]
        shortened = write(partial(_shorten_all, subscribers=some, most=retention.backlog))
        turns = shortened.result()
        dropped.update({subscriber: gone for subscriber, (gone, _) in turns.items()})
        causes["backlog"] += sum(gone for gone, _ in turns.values())
        again = [subscriber for subscriber, (_, more) in turns.items() if more]
        long = again + long[_SUBSCRIBERS_AT_ONCE:]
    while write(partial(_forget_keys, now=now)).result():
        pass
    missed = {subscriber: count for subscriber, count in dropped.items() if count}
    return Removed(batches, acknowledged, missed, dict(+events), dict(+causes))


def _drop_acknowledged(reader: Reader, write: Write) -> int:
    with reader.connection() as connection:
        [(text,)] = connection.execute(_ACKNOWLEDGED)
    parts: dict[int, list[tuple[int, int]]] = {}
    total = 0
    for part, subscriber, bound, notifications in orjson.loads(text):
        parts.setdefault(part, []).append((subscriber, bound))
        total += notifications
    for bounds in parts.values():
        write(partial(_delete_through, bounds=bounds)).result()
    return total


def _delete_through(transaction: StoreTransaction, bounds: list[tuple[int, int]]) -> None:
    transaction.execute(_DELETE_THROUGH, json_text(bounds))


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
        yield from _oldest(reader, _NOT_AWAITED, (), _surplus("disk", lacking))


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


def _oldest(reader: Reader, condition: str, values: tuple[object, ...], cause_of: _CauseOf) -> _Old:
    """The oldest batches up to the first for which there is no cause."""
    last = -1
    while True:
        with reader.connection() as connection:
            found = connection.execute(
                "SELECT first, feed, CAST(size AS INTEGER), CAST(nbytes AS INTEGER), "
                f"CAST(at AS REAL) FROM batch WHERE first > ? AND {condition} "
                f"ORDER BY first LIMIT {_BATCHES_AT_ONCE}",
                (last, *values),
            ).fetchall()
        rows: list[_BatchRow] = []
        causes: list[Cause] = []
        for row in map(_BatchRow._make, found):
            cause = cause_of(row)
            if cause is None:
                break
            rows.append(row)
            causes.append(cause)
        for cause, group in groupby(zip(causes, rows, strict=True), key=itemgetter(0)):
            yield cause, [row for _, row in group]
        if len(rows) < _BATCHES_AT_ONCE:
            return
        last = rows[-1].first


def _forget(transaction: StoreTransaction, firsts: list[int]) -> tuple[int, dict[int, int]]:
    """Drop batches and the notifications in them. How many there were, and who had not read how
    many.
    """
    among = json_text(firsts)
    unread = (
        "FROM inbox i JOIN subscriber o ON o.number = i.subscriber WHERE i.last > o.cursor AND i."
    )
    rows = transaction.execute(
        f"SELECT i.subscriber, sum(i.amount), max(i.last) {unread}{_AMONG} GROUP BY i.subscriber",
        among,
    ).fetchall()
    missed = {subscriber: count for subscriber, count, _ in rows}
    through = {subscriber: last for subscriber, _, last in rows}
    partly = transaction.execute(
        "SELECT i.subscriber, o.cursor, i.first, CAST(i.notifications AS BLOB), i.checksum "
        f"{unread}{_AMONG} AND i.first <= max(o.cursor, coalesce("
        "(SELECT position FROM sharing WHERE sharing.subscriber = o.number), 0))",
        among,
    ).fetchall()
    reached: dict[int, Progress] = {}
    for subscriber, cursor, first, text, checksum in partly:
        notifications = unpack_notifications(subscriber, first, text, checksum) or []
        if subscriber not in reached:
            reached[subscriber] = _progress(transaction, subscriber) or Progress(cursor, {})
        is_done = reached[subscriber].is_done
        missed[subscriber] -= sum(is_done(first + position) for position, _ in notifications)
    missed = {subscriber: count for subscriber, count in missed.items() if count}
    for subscriber, count in missed.items():
        _count_dropped(transaction, subscriber, count, through[subscriber])
    transaction.execute(f"DELETE FROM inbox WHERE {_AMONG}", among)
    gone = transaction.execute(f"DELETE FROM batch WHERE {_AMONG}", among).rowcount
    transaction.keep_next()
    return gone, missed


def _progress(transaction: StoreTransaction, subscriber: int) -> Progress | None:
    """How far a subscriber is, if it shares its notifications."""
    statement = "SELECT position, outstanding, checksum FROM sharing WHERE subscriber = ?"
    row = transaction.execute(statement, subscriber).fetchone()
    return None if row is None else unpack_progress(subscriber, *row)


def _count_dropped(
    transaction: StoreTransaction, subscriber: int, count: int, through: int
) -> None:
    transaction.execute(
        "UPDATE subscriber SET dropped = dropped + ?, dropped_through = max(dropped_through, ?) "
        "WHERE number = ?",
        *(count, through, subscriber),
    )


def _shorten_all(
    transaction: StoreTransaction, subscribers: list[int], most: int
) -> dict[int, tuple[int, bool]]:
    return {subscriber: _shorten(transaction, subscriber, most) for subscriber in subscribers}


def _shorten(transaction: StoreTransaction, subscriber: int, most: int) -> tuple[int, bool]:
    """Drop the oldest notifications of a subscriber who has more than `most` waiting. How many
    went, and whether there are still too many: one turn looks at so many rows and no more.
    """
    [(cursor,)] = transaction.execute("SELECT cursor FROM subscriber WHERE number = ?", subscriber)
    if (progress := _progress(transaction, subscriber)) is not None:
        # What is outstanding stays, with the row up to whose middle all was handed out.
        most = max(most - len(progress.outstanding), 0)
        [(cursor,)] = transaction.execute(
            "SELECT coalesce(max(last), ?1) FROM inbox "
            "WHERE subscriber = ?2 AND first <= ?1 AND last > ?1",
            *(max(cursor, progress.position), subscriber),
        )
    [(waiting,)] = transaction.execute(
        "SELECT coalesce(sum(amount), 0) FROM inbox WHERE subscriber = ? AND last > ?",
        subscriber,
        cursor,
    )
    rows = transaction.execute(
        "SELECT last, first, amount, CAST(notifications AS BLOB), checksum FROM inbox "
        f"WHERE subscriber = ? AND last > ? ORDER BY last LIMIT {_ROWS_AT_ONCE}",
        *(subscriber, cursor),
    ).fetchall()
    unread = [_unread(subscriber, cursor, row) for row in rows]
    excess = waiting - sum(row[2] for row in rows) + sum(amount for amount, _ in unread) - most
    dropped = through = bound = 0
    for (last, first, *_), (amount, notifications) in zip(rows, unread, strict=True):
        if dropped >= excess:
            break
        gone = min(amount, excess - dropped)
        if notifications is None or gone == amount:
            gone, through, bound = amount, last, last
        else:
            through = first + notifications[gone - 1][0]
            _replace_notifications(transaction, subscriber, last, first, notifications[gone:])
        dropped += gone
    statement = "DELETE FROM inbox WHERE subscriber = ? AND last > ? AND last <= ?"
    transaction.execute(statement, subscriber, cursor, bound)
    if dropped:
        _count_dropped(transaction, subscriber, dropped, through)
    return dropped, 0 < dropped < excess


def _unread(subscriber: int, cursor: int, row: Any) -> tuple[int, Notifications | None]:
    """How many notifications of a row are after the cursor, and these; None if they are damaged."""
    _, first, amount, text, checksum = row
    notifications = unpack_notifications(subscriber, first, text, checksum)
    if notifications is None:
        return amount, None
    if first <= cursor:
        notifications = [
            notification for notification in notifications if first + notification[0] > cursor
        ]
    return len(notifications), notifications


def _replace_notifications(
    transaction: StoreTransaction,
    subscriber: int,
    last: int,
    first: int,
    notifications: Notifications,
) -> None:
    text = pack_notifications(notifications)
    transaction.execute(
        "UPDATE inbox SET amount = ?, notifications = ?, checksum = ? "
        "WHERE subscriber = ? AND last = ?",
        *(
            len(notifications),
            text.decode(),
            notifications_checksum(subscriber, first, text),
            subscriber,
            last,
        ),
    )


def _forget_keys(transaction: StoreTransaction, now: float) -> bool:
    old = f"SELECT feed, key FROM repeat WHERE at <= ? LIMIT {_ROWS_AT_ONCE}"
    statement = f"DELETE FROM repeat WHERE (feed, key) IN ({old})"
    return transaction.execute(statement, now - REPEATABLE).rowcount == _ROWS_AT_ONCE
