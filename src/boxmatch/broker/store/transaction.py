"""What a change may do to what is stored."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.store import recipient_rows
from boxmatch.broker.store.progress import Progress, pack_progress
from boxmatch.broker.store.recipient_rows import Overlap, RowKey
from boxmatch.broker.store.recipients import NOBODY, Recipients
from boxmatch.broker.store.rows import (
    Appended,
    ReplayRow,
    SubscriptionText,
    batch_rows,
    json_text,
    pack_feed,
    text_checksum,
)
from boxmatch.broker.store.write_buffer import PAGE, WriteBuffer, columns
from boxmatch.errors import BrokerError, FeedExistsError, StorageError, UnknownFeedError
from boxmatch.storage import group_commit

REPEATABLE = 24 * 3600.0
"""How long a feed knows the key of what was published."""
_MOVE_REPLAYS = (
    f"WITH moved (number, place) AS (SELECT {columns(2)} FROM json_each(?)) "
    "UPDATE replay SET position = max(position, moved.place) FROM moved "
    "WHERE replay.number = moved.number"
)
_REPEATS = (
    "SELECT key, at, first, last FROM repeat "
    "WHERE feed = ? AND key IN (SELECT value FROM json_each(?))"
)
# A row keeps its number, and the time of its first putting if it is to. No time goes through JSON,
# which SQLite may read as another one.
_PUT_SUBSCRIPTIONS = (
    "WITH new (id, wanted, is_new, checksum) AS "
    f"(SELECT {columns(4)} FROM json_each(?1)) "
    "INSERT OR REPLACE INTO subscription "
    "SELECT known.number, ?2, new.id, ?3, CAST(new.wanted AS BLOB), "
    "CASE WHEN new.is_new THEN ?4 ELSE known.created END, ?4, new.checksum "
    "FROM new LEFT JOIN subscription known ON known.subscriber = ?2 AND known.id = new.id"
)


class StoreTransaction(group_commit.Transaction):
    """Given to a change, in the writer thread; not to be kept."""

    def __init__(self, connection: sqlite3.Connection, next_sequence: int) -> None:
        super().__init__(connection)
        self.next_sequence = next_sequence
        self._feeds = frozenset(n for (n,) in connection.execute("SELECT number FROM feed"))
        [(self._subscribers,)] = connection.execute(
            "SELECT coalesce(max(number), 0) FROM subscriber"
        )
        self._group_mark = self._change_mark = self._mark()
        self._earlier = WriteBuffer()
        self._own = WriteBuffer()
        self.refuses = False
        """Whether the change may not write, since the disk is full and it frees no room."""
        self.written = 0
        """About how many bytes came to the write-ahead log; the writer thread resets it."""

    # For the writer thread.

    def begin(self) -> None:
        self._group_mark = self._mark()
        super().begin()

    def commit(self) -> None:
        self.written += self._earlier.flush(self._connection) + 4 * PAGE
        super().commit()

    def roll_back(self) -> None:
        self._earlier = WriteBuffer()
        self._return_to(self._group_mark)
        super().roll_back()

    @property
    def nbytes(self) -> int:
        """Of the database, once the write-ahead log is taken up."""
        return self._pages("page_count")

    @property
    def free_bytes(self) -> int:
        """Of these, how many are free to be used again."""
        return self._pages("freelist_count")

    def _pages(self, counted: str) -> int:
        [(pages,)] = self._connection.execute(f"PRAGMA {counted}")
        [(size,)] = self._connection.execute("PRAGMA page_size")
        return int(pages) * int(size)

    def begin_change(self) -> None:
        self._own = WriteBuffer()
        self._change_mark = self._mark()
        super().begin_change()

    def end_change(self) -> None:
        super().end_change()
        self._earlier.add(self._own)

    def undo_change(self) -> None:
        self._return_to(self._change_mark)
        super().undo_change()

    def execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        """Run a statement. It sees all that was gathered, and is undone with its change."""
        return self._flushed().execute(statement, values)

    def _flushed(self) -> sqlite3.Connection:
        """The connection for a statement, once all that was gathered is written."""
        self._check_room()
        if not self._savepoint:
            self.written += self._earlier.flush(self._connection)
            self._set_savepoint()
        self.written += self._own.flush(self._connection) + PAGE
        return self._connection

    def _mark(self) -> tuple[int, int, frozenset[int]]:
        return self.next_sequence, self._subscribers, self._feeds

    def _return_to(self, mark: tuple[int, int, frozenset[int]]) -> None:
        self.next_sequence, self._subscribers, self._feeds = mark

    # What a change does.

    def append(
        self,
        feed: int,
        at: float,
        bodies: Sequence[bytes],
        recipients: Recipients = NOBODY,
        *,
        key: str | None = None,
        keys: Sequence[str] = (),
        rate: float = 0.0,
    ) -> Appended:
        """Events and who gets them, by their positions in `bodies`.

        With a key that the feed has seen in the last day nothing is stored, and the numbers of
        then come back. `keys` are the same for the single events: each that the feed has seen, or
        that comes twice here, is left out.
        """
        self._check_room()
        self._check_feed(feed)
        at, rate = float(at) + 0.0, float(rate) + 0.0  # SQLite has no negative zero
        if key is not None and (known := self._repeated(feed, [key], at)):
            return Appended(*known[key], repeated=True)
        self._check_recipients(recipients, len(bodies))
        new = self._new(feed, keys, at) if keys else None
        if new is not None:
            if not new:
                return _all_repeated(self._repeated(feed, keys, at))
            bodies, recipients = [bodies[place] for place in new], recipients.select(new)
            keys = [keys[position] for position in new]
        first = self.next_sequence
        self._own.batches += batch_rows(first, feed, at, rate, bodies)
        if recipients.size:
            self._own.recipients.append(recipients._replace(event=recipients.event + first))
        self.next_sequence = first + len(bodies)
        appended = Appended(first, self.next_sequence - 1, new=new)
        if key is not None:
            self._own.repeats[feed, key] = (at, appended.first, appended.last)
        for number, one in enumerate(keys, first):
            self._own.repeats[feed, one] = (at, number, number)
        return appended

    def recipients(self, ranges: Iterable[tuple[int, int]]) -> list[tuple[int, Recipients]]:
        """Rows of recipients that have events of some ranges, in order; a number for each. Those
        that are damaged are left out.
        """
        return self.contents([row.key for row in self.overlapping(ranges)])

    def overlapping(self, ranges: Iterable[tuple[int, int]]) -> Iterator[Overlap]:
        """The same rows, without a look at their content."""
        return recipient_rows.overlapping(self._flushed(), ranges)

    def contents(self, rows: Sequence[RowKey]) -> list[tuple[int, Recipients]]:
        """The content of some of them."""
        return recipient_rows.contents(self._flushed(), rows)

    def replace_recipients(self, rows: Sequence[int], recipients: Recipients) -> None:
        """Have one row, or none if it is empty, instead of some that follow one another."""
        recipient_rows.delete(self._flushed(), rows)
        self.written += recipient_rows.put(self._connection, recipients)

    def ranges(self, batches: Sequence[int]) -> list[tuple[int, int]]:
        """The first and last number of some batches, whatever their rows say."""
        statement = "SELECT min(first) FROM batch WHERE first > ?"
        found = []
        for first in batches:
            [(upcoming,)] = self.execute(statement, first)
            found.append((first, (self.next_sequence if upcoming is None else upcoming) - 1))
        return found

    def put_feed(self, spec: FeedSpec) -> int:
        known = self.execute("SELECT 1 FROM feed WHERE name = ?", spec.name).fetchone()
        if known is not None:
            raise FeedExistsError(spec.name)
        statement = "INSERT INTO feed (name, kind, spec) VALUES (?, ?, ?)"
        number = self._insert(statement, spec.name, spec.kind, pack_feed(spec))
        self._feeds |= {number}
        return number

    def replace_feed(self, number: int, spec: FeedSpec) -> None:
        """A feed keeps its name and kind."""
        self._check_feed(number)
        statement = "UPDATE feed SET spec = ? WHERE number = ? AND name = ? AND kind = ?"
        if not self.execute(statement, pack_feed(spec), number, spec.name, spec.kind).rowcount:
            raise BrokerError(f"feed {spec.name!r} cannot change its name or kind")

    def drop_feed(self, number: int) -> None:
        """Nothing of the feed is read any more; `Store.drop_feed` removes what was in it."""
        self._check_feed(number)
        self.execute("DELETE FROM replay WHERE feed = ?", number)
        self.execute("DELETE FROM feed WHERE number = ?", number)
        self._feeds -= {number}

    def put_subscriber(self, name: str) -> int:
        """The subscriber of this name, made if there is none."""
        known = self.execute("SELECT number FROM subscriber WHERE name = ?", name).fetchone()
        if known is not None:
            return int(known[0])
        number = self._insert("INSERT INTO subscriber VALUES (NULL, ?, 0, 0, 0)", name)
        self._subscribers = number
        return number

    def move_cursor(self, subscriber: int, sequence: int) -> None:
        """Never backwards, never past the last number."""
        self._check_room()
        self._check_subscriber(subscriber)
        self._own.move(int(subscriber), min(int(sequence), self.next_sequence - 1))

    def share(self, subscriber: int, settings: bytes) -> None:
        """The subscriber's notifications are shared, from its cursor on unless they were before.
        Its replays are at their end, which may not be on disk yet.
        """
        self.delete_replays(subscriber)
        [(cursor,)] = self.execute("SELECT cursor FROM subscriber WHERE number = ?", subscriber)
        number, *progress = pack_progress(subscriber, Progress(cursor, {}))
        self.execute(
            "INSERT INTO sharing VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (subscriber) DO UPDATE SET settings = excluded.settings",
            *(number, settings, *progress),
        )

    def put_progress(self, subscriber: int, progress: Progress) -> None:
        """How far a subscriber is that shares its notifications; the cursor follows. Of one that
        does not share them any more, the cursor alone.
        """
        self.move_cursor(subscriber, progress.cursor)
        self._own.progress[int(subscriber)] = progress

    def unshare(self, subscriber: int) -> None:
        """The cursor alone counts again: what is done after it is forgotten."""
        self.execute("DELETE FROM sharing WHERE subscriber = ?", subscriber)

    def put_replay(
        self, subscriber: int, feed: int, subscription: str, position: int, through: int | None
    ) -> ReplayRow:
        """Events after a position are to be replayed, through a number or all that there are now.
        In the place of an earlier replay of the same feed and subscription.
        """
        self._check_subscriber(subscriber)
        newest = self.next_sequence - 1
        through = newest if through is None else min(through, newest)
        number = self._insert(
            "INSERT OR REPLACE INTO replay VALUES (NULL, ?, ?, ?, ?, ?)",
            *(subscriber, feed, subscription, position, through),
        )
        return ReplayRow(number, subscriber, feed, subscription, position, through)

    def move_replays(self, positions: Mapping[int, int]) -> None:
        """By the number of a replay: all up to there is acknowledged. Those at their end go."""
        self.execute(_MOVE_REPLAYS, json_text(list(positions.items())))
        ended = "position >= through AND number IN (SELECT value FROM json_each(?))"
        self.execute(f"DELETE FROM replay WHERE {ended}", json_text(list(positions)))

    def delete_replays(self, subscriber: int) -> None:
        self.execute("DELETE FROM replay WHERE subscriber = ?", subscriber)

    def put_subscription(
        self, subscriber: int, id: str, feed: int, wanted: bytes, now: float
    ) -> int:
        """The subscription's number, which it keeps when it is put again."""
        self._check_feed(feed)
        now = float(now) + 0.0
        known = self.execute(
            "SELECT number, created FROM subscription WHERE subscriber = ? AND id = ?",
            subscriber,
            id,
        ).fetchone()
        number, created = (None, now) if known is None else known
        checksum = text_checksum(subscriber, id, feed, wanted, created, now)
        return self._insert(
            "INSERT OR REPLACE INTO subscription VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            *(number, subscriber, id, feed, wanted, created, now, checksum),
        )

    def put_subscriptions(
        self, subscriber: int, feed: int, rows: Sequence[SubscriptionText], now: float
    ) -> None:
        """Many subscriptions of a subscriber to a feed, by one statement.

        Those that are not new must be there, and keep their number.
        """
        self._check_feed(feed)
        self.execute(
            _PUT_SUBSCRIPTIONS,
            json_text(list(map(tuple, rows))),
            subscriber,
            feed,
            float(now) + 0.0,
        )
        self.written += PAGE * len(rows)

    def delete_subscription(self, subscriber: int, id: str) -> bool:
        statement = "DELETE FROM subscription WHERE subscriber = ? AND id = ?"
        return self.execute(statement, subscriber, id).rowcount > 0

    def put_member(self, feed: int, id: str, body: bytes, expires: float | None) -> None:
        self._check_feed(feed)
        expires = None if expires is None else float(expires) + 0.0
        if expires is not None and math.isnan(expires):  # SQLite would make it NULL: never
            raise StorageError(f"publication {id!r} cannot expire at nan")
        self.execute(
            "INSERT INTO member (feed, id, body, expires, checksum) VALUES (?, ?, ?, ?, ?) "
            "ON CONFLICT (feed, id) DO UPDATE SET body = excluded.body, "
            "expires = excluded.expires, checksum = excluded.checksum",
            *(feed, id, body, expires, text_checksum(feed, id, body, expires)),
        )

    def delete_member(self, feed: int, id: str) -> None:
        self.execute("DELETE FROM member WHERE feed = ? AND id = ?", feed, id)

    def put_webhook(self, subscriber: int, webhook: bytes | None) -> None:
        if webhook is None:
            self.execute("DELETE FROM webhook WHERE subscriber = ?", subscriber)
        else:
            self.execute("INSERT OR REPLACE INTO webhook VALUES (?, ?)", subscriber, webhook)

    def put_dead_letter(
        self,
        subscriber: int,
        first: int,
        last: int,
        attempts: int,
        reason: str,
        at: float,
        body: bytes,
    ) -> int:
        statement = "INSERT INTO dead_letter VALUES (NULL, ?, ?, ?, ?, ?, ?, ?)"
        return self._insert(statement, subscriber, first, last, attempts, reason, at, body)

    def delete_dead_letters(self, subscriber: int, numbers: Sequence[int] | None) -> int:
        """How many there were. None: all of the subscriber."""
        statement = "DELETE FROM dead_letter WHERE subscriber = ?"
        if numbers is None:
            return self.execute(statement, subscriber).rowcount
        among = " AND number IN (SELECT value FROM json_each(?))"
        return self.execute(statement + among, subscriber, json_text(list(numbers))).rowcount

    def keep_next(self) -> None:
        """To be called where batches go: the last one may be among them."""
        self.execute("UPDATE about SET value = ? WHERE name = 'next'", self.next_sequence)

    def put_ballast(self, nbytes: int | None) -> None:
        """So many bytes of no use, or none any more."""
        self.execute("DELETE FROM about WHERE name = 'ballast'")
        if nbytes is not None:
            self.execute("INSERT INTO about VALUES ('ballast', zeroblob(?))", nbytes)

    # How it is done.

    def _insert(self, statement: str, *values: object) -> int:
        number = self.execute(statement, *values).lastrowid
        if number is None:
            raise StorageError("a row came to be without a number")
        return number

    def _check_room(self) -> None:
        if self.refuses:
            raise StorageError("the disk is full: until there is room, one can only delete")

    def _check_feed(self, number: int) -> None:
        if number not in self._feeds:
            raise UnknownFeedError(str(number))

    def _check_recipients(self, recipients: Recipients, events: int) -> None:
        if not recipients.size:
            return
        self._check_subscriber(int(recipients.subscriber[0]))
        self._check_subscriber(int(recipients.subscriber[-1]))  # they ascend
        if recipients.event.min() < 0 or recipients.event.max() >= events:
            raise StorageError(f"there are notifications of others than the {events} events")

    def _check_subscriber(self, number: int) -> None:
        if not 0 < number <= self._subscribers:
            raise StorageError(f"there is no subscriber {number}")

    def _new(self, feed: int, keys: Sequence[str], at: float) -> list[int] | None:
        """Where there are keys that the feed has not seen in the last day, each the first time;
        None if all are.
        """
        known = self._repeated(feed, keys, at)
        places: dict[str, int] = {}
        for place, key in enumerate(keys):
            if key not in known:
                places.setdefault(key, place)
        return None if len(places) == len(keys) else list(places.values())

    def _repeated(self, feed: int, keys: Sequence[str], at: float) -> dict[str, tuple[int, int]]:
        """Of keys that the feed has seen in the last day, the first and last number."""
        # Not by `execute`: this sees what is on disk, and the rest is gathered.
        rows = self._connection.execute(_REPEATS, (feed, json_text(list(keys))))
        known = {key: (when, first, last) for key, when, first, last in rows}
        for gathered in (self._earlier.repeats, self._own.repeats):
            known |= {key: gathered[feed, key] for key in keys if (feed, key) in gathered}
        return {
            key: (first, last)
            for key, (when, first, last) in known.items()
            if when > at - REPEATABLE
        }


def _all_repeated(known: Mapping[str, tuple[int, int]]) -> Appended:
    numbers = {first for first, _ in known.values()}
    first, last = min(numbers), max(numbers)
    return Appended(first, last, repeated=True, gaps=last - first + 1 - len(numbers))
