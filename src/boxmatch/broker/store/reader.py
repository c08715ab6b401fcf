"""Reading subscribers and subscriptions, beside the log, while another thread writes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store.inbox_reader import InboxReader
from boxmatch.broker.store.log_reader import MOST_BYTES
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
)

_ROWS_PAGE = 1000

_DEAD_LETTERS = (
    "SELECT s.subscriber, count(*) FROM dead_letter s WHERE {among} GROUP BY s.subscriber"
)


class Reader(InboxReader):
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
            found = list(map(SubscriberRow._make, rows))
        most = 1_000 + 2 * len(found)  # they are counted up, and none is removed
        for row in found:
            if not 0 < row.number <= most:
                self.report(f"subscriber {row.number}")
        return [row for row in found if 0 < row.number <= most]

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
                some = self.inbox(subscriber, sequence - 1, 1, through=sequence)
            else:
                kept = self.dead_letters(subscriber, letter - 1, 1)
                some = [one for each in kept if each.number == letter for one in each.notifications]
            one = next((one for one in some if one.sequence == sequence), None)
            if one is not None and not room.take((0, len(one.body))):
                break
            found[sequence] = one
        return found

    def sizes(self) -> Sizes:
        with self.connection() as connection:
            statement = "SELECT count(*), coalesce(sum(nbytes), 0) FROM batch"
            [(batches, log_bytes)] = connection.execute(statement)
            [(inbox_rows,)] = connection.execute("SELECT count(*) FROM recipients")
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
