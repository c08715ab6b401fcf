"""Reading subscribers, subscriptions and inboxes, beside the log, while another thread writes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate, chain
from typing import Any

import orjson

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store.log_reader import MOST_BYTES, LogReader
from boxmatch.broker.store.progress import SharingRow, unpack_progress
from boxmatch.broker.store.rows import (
    DeadLetter,
    MemberRow,
    Notification,
    ReplayRow,
    Room,
    Sizes,
    SubscriberRow,
    SubscriptionRow,
    json_text,
    text_checksum,
    unpack_feed,
    unpack_notifications,
)

_ROWS_PAGE = 1000
_INBOX_PAGE = 256

# One row with all of them: each row by itself would ask for the interpreter again.
_INBOX = (
    "SELECT json_group_array(json_array(last, first, notifications, checksum)) FROM ("
    "SELECT last, first, notifications, checksum FROM inbox "
    "WHERE subscriber = ? AND last > ? ORDER BY last LIMIT ?)"
)
_INBOX_BY_ROW = (
    "SELECT last, first, CAST(notifications AS BLOB), checksum FROM inbox "
    "WHERE subscriber = ? AND last > ? ORDER BY last LIMIT ?"
)
# Of those who share notifications, what is outstanding waits, and all after it.
_REACHED = (
    "(SELECT number, max(cursor, coalesce(position, 0)) AS cursor, coalesce(amount, 0) AS amount "
    "FROM subscriber LEFT JOIN sharing ON subscriber = number)"
)
_BACKLOGS = (
    f"SELECT s.number, s.amount + coalesce(sum(i.amount), 0) FROM {_REACHED} s "
    "LEFT JOIN inbox i ON i.subscriber = s.number AND i.last > s.cursor "
    "WHERE {among} GROUP BY s.number"
)
_PARTLY_READ = (
    "SELECT s.number, s.cursor, i.first, CAST(i.notifications AS BLOB), i.checksum "
    f"FROM {_REACHED} s "
    "CROSS JOIN inbox i ON i.subscriber = s.number AND i.last = "
    "(SELECT min(last) FROM inbox WHERE subscriber = s.number AND last > s.cursor) "
    "WHERE i.first <= s.cursor AND {among}"
)
_DEAD_LETTERS = (
    "SELECT s.subscriber, count(*) FROM dead_letter s WHERE {among} GROUP BY s.subscriber"
)


class Reader(LogReader):
    """All methods may be called from any thread."""

    # What there is.

    def feeds(self) -> list[tuple[int, FeedSpec]]:
        with self.connection() as connection:
            rows = connection.execute("SELECT number, name, kind, spec FROM feed ORDER BY number")
            return [(number, unpack_feed(*row)) for number, *row in rows]

    def subscribers(self) -> list[SubscriberRow]:
        with self.connection() as connection:
            columns = "number, name, cursor, dropped, dropped_through"
            rows = connection.execute(f"SELECT {columns} FROM subscriber ORDER BY number")
            return list(map(SubscriberRow._make, rows))

    def replays(self) -> list[ReplayRow]:
        """Those that are not at their end, in the order in which they were asked for."""
        columns = "number, subscriber, feed, subscription, position, through"
        with self.connection() as connection:
            rows = connection.execute(f"SELECT {columns} FROM replay ORDER BY number")
            return list(map(ReplayRow._make, rows))

    def subscriptions(self, feed: int) -> Iterator[SubscriptionRow]:
        """In the order in which they were first put."""
        for page in self.subscription_pages(feed):
            for row in page:
                if self.is_whole(row):
                    yield SubscriptionRow._make(row[:-1])

    def subscription_pages(self, feed: int) -> Iterator[list[Any]]:
        """The same, each with its checksum as one more column, which nobody has looked at."""
        return self._pages(
            "SELECT number, subscriber, id, feed, wanted, created, updated, checksum "
            "FROM subscription WHERE feed = ? AND number > ? ORDER BY number LIMIT ?",
            feed,
        )

    def is_whole(self, row: Sequence[Any]) -> bool:
        """Whether a subscription, with its checksum, is as it was written; else it is reported."""
        if text_checksum(*row[1:-1]) == row[-1]:
            return True
        self.report(f"subscription {row[0]}")
        return False

    def subscription_count(self, feed: int) -> int:
        """How many rows there are, damaged ones included."""
        with self.connection() as connection:
            statement = "SELECT count(*) FROM subscription WHERE feed = ?"
            [(count,)] = connection.execute(statement, (feed,))
        return int(count)

    def members(self, feed: int) -> Iterator[MemberRow]:
        """In the order in which they were first put."""
        statement = (
            "SELECT place, feed, id, body, expires, checksum FROM member "
            "WHERE feed = ? AND place > ? ORDER BY place LIMIT ?"
        )
        for place, _, *values, checksum in chain.from_iterable(self._pages(statement, feed)):
            if text_checksum(feed, *values) == checksum:
                yield MemberRow._make(values)
            else:
                self.report(f"publication {place}")

    def sharing(self) -> list[SharingRow]:
        """Subscribers that share their notifications, and how far they are."""
        statement = (
            "SELECT subscriber, settings, position, outstanding, checksum FROM sharing "
            "ORDER BY subscriber"
        )
        with self.connection() as connection:
            rows = connection.execute(statement).fetchall()
        found = [
            SharingRow(subscriber, settings, unpack_progress(subscriber, *progress))
            for subscriber, settings, *progress in rows
        ]
        for row in found:
            if row.progress is None:
                self.report(f"progress of subscriber {row.subscriber}")
        return found

    def webhooks(self) -> list[tuple[int, bytes]]:
        with self.connection() as connection:
            return connection.execute(
                "SELECT subscriber, body FROM webhook ORDER BY subscriber"
            ).fetchall()

    def dead_letters(self, subscriber: int, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        statement = (
            "SELECT d.number, o.name, d.first, d.last, d.attempts, d.reason, d.at, d.body "
            "FROM dead_letter d JOIN subscriber o ON o.number = d.subscriber "
            "WHERE d.subscriber = ? AND d.number > ? ORDER BY d.number LIMIT ?"
        )
        with self.connection() as connection:
            rows = connection.execute(statement, (subscriber, after, limit))
            return list(map(DeadLetter._make, rows))

    def dead_letter_counts(self, subscribers: Collection[int] | None = None) -> dict[int, int]:
        """How many there are, by subscriber that has any: of all, or of some."""
        among, values = _among("s.subscriber", subscribers)
        with self.connection() as connection:
            return dict(connection.execute(_DEAD_LETTERS.format(among=among), values))

    def _pages(self, statement: str, feed: int) -> Iterator[list[Any]]:
        # Whole pages: a connection that stays with a caller would keep the write-ahead log from
        # being taken up.
        last = -1
        while True:
            with self.connection() as connection:
                rows = connection.execute(statement, (feed, last, _ROWS_PAGE)).fetchall()
            yield rows
            if len(rows) < _ROWS_PAGE:
                return
            last = rows[-1][0]

    # Notifications.

    def inbox(
        self, subscriber: int, after: int, limit: int, most_bytes: int = MOST_BYTES
    ) -> list[Notification]:
        """The first notifications with numbers after `after`, whatever the cursor is.

        Fewer than `limit` are not the last ones if they are large: it ends before `most_bytes` of
        bodies, but not before the first.
        """
        found: list[Notification] = []
        room = Room(limit, most_bytes)
        page = min(limit, _INBOX_PAGE)  # no row is empty
        with self.connection() as connection:
            while not room.full():
                rows = self._inbox_page(connection, subscriber, after, page)
                self._add_notifications(connection, subscriber, after, rows, found, room)
                if len(rows) < page:
                    break
                after = rows[-1][0]
        return found

    def _add_notifications(
        self,
        connection: sqlite3.Connection,
        subscriber: int,
        after: int,
        rows: list[Any],
        found: list[Notification],
        room: Room,
    ) -> None:
        for last, first, text, checksum in rows:
            if room.full():
                return
            notifications = unpack_notifications(subscriber, first, text, checksum)
            # The last number is what rows are ordered by, and not part of the checksum.
            if notifications is None or not notifications or first + notifications[-1][0] != last:
                self.report(f"notifications of subscriber {subscriber} in batch {first}")
                continue
            batch = self._batch(connection, first)
            if batch is None:
                continue
            name, kind, at, rate = batch.feed_name, batch.feed_kind, batch.at, batch.rate
            wanted = [one for one in notifications if first + one[0] > after]
            ends = batch.ends
            sizes = accumulate((ends[place + 1] - ends[place] for place, _ in wanted), initial=0)
            found += [
                Notification(first + position, name, at, ids, batch.body(position), kind, rate)
                for position, ids in wanted[: room.take(tuple(sizes))]
            ]

    def _inbox_page(
        self, connection: sqlite3.Connection, subscriber: int, after: int, page: int
    ) -> list[Any]:
        try:
            [(text,)] = connection.execute(_INBOX, (subscriber, after, page))
            rows: list[Any] = orjson.loads(text)
        except (sqlite3.Error, ValueError):  # something in it is no text: row by row it will do
            return connection.execute(_INBOX_BY_ROW, (subscriber, after, page)).fetchall()
        return rows

    def chosen(
        self,
        subscriber: int,
        letters: Mapping[int, int | None],
        most_bytes: int = MOST_BYTES,
    ) -> dict[int, Notification | None]:
        """Notifications by number, each from the inbox or from a dead letter; None if it is not
        kept. It ends before `most_bytes` of bodies, but not before the first.
        """
        found: dict[int, Notification | None] = {}
        room = Room(len(letters), most_bytes)
        for sequence, letter in letters.items():
            if letter is None:
                some = self.inbox(subscriber, sequence - 1, 1)
            else:
                kept = self.dead_letters(subscriber, letter - 1, 1)
                some = [one for each in kept if each.number == letter for one in each.notifications]
            one = next((one for one in some if one.sequence == sequence), None)
            if one is not None and not room.take((0, len(one.body))):
                break
            found[sequence] = one
        return found

    def backlogs(self, subscribers: Collection[int] | None = None) -> dict[int, int]:
        """How many notifications wait, by subscriber: of all, or of some."""
        among, values = _among("s.number", subscribers)
        with self.connection() as connection:
            waiting: dict[int, int] = dict(
                connection.execute(_BACKLOGS.format(among=among), values)
            )
            partly_read = connection.execute(_PARTLY_READ.format(among=among), values)
            for number, cursor, first, text, checksum in partly_read:
                notifications = unpack_notifications(number, first, text, checksum) or []
                waiting[number] -= sum(first + position <= cursor for position, _ in notifications)
        return waiting

    def sizes(self) -> Sizes:
        with self.connection() as connection:
            statement = "SELECT count(*), coalesce(sum(nbytes), 0) FROM batch"
            [(batches, log_bytes)] = connection.execute(statement)
            [(inbox_rows,)] = connection.execute("SELECT count(*) FROM inbox")
            [(free_pages,)] = connection.execute("PRAGMA freelist_count")
        nbytes = 0
        for name in (self.file.name, f"{self.file.name}-wal"):
            with suppress(FileNotFoundError):
                nbytes += os.stat(self.file.with_name(name)).st_size
        return Sizes(nbytes, log_bytes, batches, inbox_rows, free_pages)


def _among(column: str, subscribers: Collection[int] | None) -> tuple[str, tuple[str, ...]]:
    """A condition, and its values: one of these subscribers, or any (None)."""
    if subscribers is None:
        return "TRUE", ()
    return f"{column} IN (SELECT value FROM json_each(?))", (json_text(list(subscribers)),)
