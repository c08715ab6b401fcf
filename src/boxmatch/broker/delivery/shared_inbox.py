"""The inbox of a subscriber that shares its notifications: each goes to one connection at a time.

Those who wait for notifications take turns, and whoever gets some wakes the next. First deliveries
come in order from a `NotificationStream`, which is there while somebody listens; what is handed out
again is read from the disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from boxmatch.broker.delivery.leases import LeaseBook
from boxmatch.broker.delivery.notifications import NotificationStream, Reading
from boxmatch.broker.delivery.webhook_requests import delivery_body
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.progress import Progress
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.wire.requests import Sharing

if TYPE_CHECKING:
    from boxmatch.broker.delivery.notifications import Notifications
    from boxmatch.broker.monitoring.metrics import Metrics

WINDOW = 10
"""Notifications that a connection has at a time, unless it asks for another number. What it has,
others have to wait for."""


class SharedStream(Reading):
    """What one connection gets of a shared inbox. One reader; all in the event loop.

    What it has and did not acknowledge when it is closed goes to others, unless it is `lasting`:
    then the deadlines count.
    """

    def __init__(self, inbox: SharedInbox, *, lasting: bool = False, window: int = WINDOW) -> None:
        self.inbox = inbox
        self.window = window
        """How many it has at most."""
        self.lease_seconds: float | None = None
        """Another deadline than that of the subscriber."""
        self.lasting = lasting
        self.is_full = False
        """Whether it waits until it has less."""
        self.woken = asyncio.Event()

    @property
    def subscriber(self) -> Subscriber:
        return self.inbox.subscriber

    @property
    def cursor(self) -> int:
        """All up to this sequence number is acknowledged."""
        return self.subscriber.cursor

    def open(self) -> None:
        self.inbox.enter(self)

    def close(self) -> None:
        super().close()
        self.inbox.leave(self)
        self.woken.set()

    async def take(self, most: int) -> list[Notification]:
        """At least one notification and at most so many; waits for them. None at all once it is
        closed.
        """
        inbox = self.inbox
        try:
            while not self._closed:
                self.woken.clear()
                if taken := await self.take_now(most):
                    return taken
                if not self.is_full:
                    inbox.waiting[self] = None
                try:
                    await self.woken.wait()
                finally:
                    inbox.waiting.pop(self, None)
            return []
        finally:
            inbox.wake()  # there may be more, for the next

    async def take_now(self, most: int) -> list[Notification]:
        """At most so many notifications; none if there are none at the moment."""
        while not self._closed:
            seen = self.inbox.wakes
            room = min(most, self.window - self.inbox.book.held_by(self))
            self.is_full = room <= 0
            taken = [] if self.is_full else await self.inbox.hand_out(self, room)
            if taken or self.inbox.wakes == seen:
                return taken  # nothing came while it looked
        return []

    def acknowledge(self, sequences: Iterable[int]) -> None:
        """They are done; on disk that is soon."""
        self.inbox.acknowledge(sequences)

    def reject(self, sequences: Iterable[int], reason: str, delay: float = 0.0) -> None:
        """Those that it has are to be handed out again."""
        self.inbox.reject(sequences, reason, delay, self)

    def take_back(self, sequences: Iterable[int]) -> None:
        """Those that it has were no delivery. It gets no more: whoever gives something back before
        it leaves would have it once more until its connection is closed.
        """
        self.window = 0
        self.inbox.take_back(sequences, self)

    def extend(self, sequences: Iterable[int], seconds: float | None) -> None:
        """Those that it has get another deadline, from now on."""
        self.inbox.extend(sequences, seconds, self)


class SharedInbox:
    """The notifications of one subscriber, and who has which of them. Without `progress` it begins
    at the cursor.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        progress: Progress | None,
        settings: Sharing,
        *,
        store: Store,
        notifications: Notifications,
        metrics: Metrics,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self.subscriber = subscriber
        self.book = LeaseBook(progress or Progress(subscriber.cursor, {}), settings)
        self.redelivered = 0
        """Notifications that were handed out again."""
        self.streams: set[SharedStream] = set()
        self.waiting: dict[SharedStream, None] = {}
        """Those to be woken when there is something, in turn."""
        self.wakes = 0
        self._store = store
        self._notifications = notifications
        self._metrics = metrics
        self._clock = clock
        """What the time is, for those who read of it."""
        self._monotonic = monotonic
        self._source: NotificationStream | None = None
        self._fetching = asyncio.Lock()
        self._storing = asyncio.Lock()
        self._stored = -1 if progress is None else 0
        """So many changes of the book are on disk."""
        self._done_letters: set[int] = set()
        """Dead letters that are done, and still on disk."""
        self.subscriber.cursor = max(self.subscriber.cursor, self.book.cursor)

    @property
    def is_busy(self) -> bool:
        """Whether there is something to look after."""
        return self.book.outstanding > 0 or self._stored < self.book.changes

    # Connections

    def stream(self, *, lasting: bool = False, window: int = WINDOW) -> SharedStream:
        """For one more connection; for use in `async with`."""
        return SharedStream(self, lasting=lasting, window=window)

    def enter(self, stream: SharedStream) -> None:
        self.streams.add(stream)

    def leave(self, stream: SharedStream) -> None:
        self.streams.discard(stream)
        if not stream.lasting:
            self.book.release(stream)
        if not self.streams and self._source is not None:
            self._source.close()
            self._source = None
        self.wake()

    def close(self) -> None:
        """End all streams."""
        for stream in tuple(self.streams):
            stream.close()

    def wake(self) -> None:
        """There may be something to hand out: let the next one look."""
        self.wakes += 1
        stream = next(iter(self.waiting), None)
        if stream is not None:
            del self.waiting[stream]
            stream.woken.set()

    async def hand_out(self, stream: SharedStream, most: int) -> list[Notification]:
        """At most so many notifications for a stream; none if there are none at the moment."""
        book = self.book
        if again := book.hand_out_again(stream, self._monotonic(), self._deadline(stream), most):
            return await self._read_again(stream, again)
        async with self._fetching:
            most = min(most, book.room)
            if most <= 0 or stream.closed:
                return []
            new = await self._new(most)
            # From here on nothing may wait: they have been taken from their source.
            sequences = [one.sequence for one in new]
            book.hand_out(sequences, stream, self._deadline(stream))
            if stream.closed:
                self.take_back(sequences, stream)
                return []
        return [one._replace(deliveries=1) for one in new]

    def take_back(self, sequences: Iterable[int], stream: SharedStream | None = None) -> int:
        """They were no delivery, to the stream or whomever: nobody began with them. How many they
        are.
        """
        count = self.book.take_back(sequences, stream)
        self._moved(was_full=True)
        return count

    async def _new(self, most: int) -> list[Notification]:
        if self._source is None:
            self._source = self._notifications.source(
                self.subscriber, self.book.position, self.wake
            )
        return await self._source.take_now(most)

    async def _read_again(
        self, stream: SharedStream, sequences: Sequence[int]
    ) -> list[Notification]:
        try:
            known = await self._read(sequences)
        except BaseException:
            self.take_back(sequences, stream)
            raise
        found: list[Notification] = []
        for sequence in sequences:
            # Meanwhile somebody may have acknowledged it, or the stream was closed.
            if (deliveries := self.book.deliveries(sequence, stream)) is None:
                continue
            if sequence not in known:  # it is for the next time: this is a lot already
                self.take_back([sequence], stream)
            elif (notification := known[sequence]) is not None:
                found.append(notification._replace(deliveries=deliveries))
            else:  # dropped by retention, which has counted it
                self._forget(sequence)
        self.subscriber.delivered += len(found)
        again = sum(one.deliveries > 1 for one in found)
        self.redelivered += again
        self._metrics.shared("redelivered", again)
        return found

    async def _read(self, sequences: Sequence[int]) -> Mapping[int, Notification | None]:
        """Notifications by number, from the inbox or from the dead letters that they are. None if
        they are not kept; not all at once if they are large.
        """
        letters = {sequence: self.book.letter(sequence) for sequence in sequences}
        return await self._notifications.read_chosen(self.subscriber.number, letters)

    def _deadline(self, stream: SharedStream) -> float:
        seconds = stream.lease_seconds
        return self._monotonic() + (self.book.settings.ack_seconds if seconds is None else seconds)

    # What becomes of notifications

    def acknowledge(self, sequences: Iterable[int]) -> int:
        """They are done, whoever has them; `store` brings that to the disk. How many were not."""
        was_full = self.book.room == 0
        count, letters = self.book.acknowledge(sequences)
        self._done_letters.update(letters)
        self._moved(was_full=was_full)
        self._metrics.shared("acknowledged", count)
        return count

    def reject(
        self,
        sequences: Iterable[int],
        reason: str,
        delay: float = 0.0,
        stream: SharedStream | None = None,
    ) -> int:
        """They are to be handed out again, and not before `delay` seconds: those that are leased,
        or that the stream has. How many those are.
        """
        ready = self._monotonic() + delay if delay > 0 else 0.0
        count = self.book.reject(sequences, ready, reason or "rejected", stream)
        self._metrics.shared("rejected", count)
        self._moved(was_full=True)
        return count

    def extend(
        self, sequences: Iterable[int], seconds: float | None, stream: SharedStream | None = None
    ) -> int:
        """They get another deadline, from now on: those that are leased, or that the stream has.
        How many those are.
        """
        seconds = self.book.settings.ack_seconds if seconds is None else seconds
        return self.book.extend(sequences, self._monotonic() + seconds, stream)

    def _forget(self, sequence: int) -> None:
        self.book.forget(sequence)
        self._moved(was_full=True)

    def _moved(self, *, was_full: bool) -> None:
        """Wake who waited for this."""
        self.subscriber.cursor = max(self.subscriber.cursor, self.book.cursor)
        for stream in self.streams:
            if stream.is_full:
                stream.woken.set()
        if was_full:
            self.wake()

    async def sweep(self) -> None:
        """End what is overdue, bury what is exhausted, and have on disk what is not yet."""
        if late := self.book.expire(self._monotonic()):
            self._metrics.shared("expired", late)
            self._moved(was_full=True)
        if self.book.is_ready(self._monotonic()):
            self.wake()
        await self.bury()
        await self.store()

    async def bury(self) -> None:
        """Make dead letters of what was handed out too often."""
        for one in self.book.exhausted:
            if self.book.letter(one.sequence) is not None:  # it stays the dead letter that it was
                self._forget(one.sequence)
                self._metrics.shared("dead", 1)
        if not (exhausted := [one.sequence for one in self.book.exhausted]):
            return
        known = await self._read(exhausted)
        async with self._storing:
            # What was acknowledged meanwhile is not among them, and what was not read comes later.
            dying = [one for one in self.book.exhausted if one.sequence in known]
            read = [(one, known[one.sequence]) for one in dying]
            letters = [
                (one, notification) for one, notification in read if notification is not None
            ]
            changes, reached = self.book.changes, self.book.progress
            gone = {one.sequence for one in dying}
            left = {n: count for n, count in reached.outstanding.items() if n not in gone}
            number, now = self.subscriber.number, self._clock()

            def bury(transaction: StoreTransaction) -> list[int]:
                transaction.put_progress(number, Progress(reached.position, left))
                return [
                    transaction.put_dead_letter(
                        *(number, one.sequence, one.sequence, one.deliveries, one.reason, now),
                        delivery_body([notification]),
                    )
                    for one, notification in letters
                ]

            numbers = await self._store.commit(bury)
            self._stored = changes
            still = {one.sequence for one in self.book.exhausted}
            for (one, _), letter in zip(letters, numbers, strict=True):
                if one.sequence not in still:  # acknowledged while it was buried
                    self._done_letters.add(letter)
            for sequence in gone & still:
                self._forget(sequence)
        self._metrics.shared("dead", len(letters))

    async def store(self) -> None:
        """Returns when all that is done now is on disk."""
        wanted = self.book.changes
        while self._stored < wanted:
            async with self._storing:
                if self._stored < wanted:
                    await self._write()

    async def _write(self) -> None:
        changes, progress = self.book.changes, self.book.progress
        number, letters = self.subscriber.number, list(self._done_letters)

        def write(transaction: StoreTransaction) -> None:
            transaction.put_progress(number, progress)
            if letters:
                transaction.delete_dead_letters(number, letters)

        await self._store.commit(write, frees=True)
        self._stored = changes
        self._done_letters.difference_update(letters)
