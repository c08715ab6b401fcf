"""Notifications on their way to subscribers, and how far each subscriber has acknowledged them.

Who keeps up is handed notifications as soon as they are durable, from memory. Who does not is left
alone: the notifications wait on disk, and are read from there until the reader has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from boxmatch.broker.delivery.replays import Replays
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.log_reader import MOST_BYTES
from boxmatch.broker.store.recipients import Recipients
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.directory import Directory, FeedEntry
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.errors import BrokerError

if TYPE_CHECKING:
    from boxmatch.broker.delivery.shared_inbox import SharedStream

Read = Callable[[int, int, int], Awaitable[list[Notification]]]
"""Subscriber, sequence number to begin after, how many at most: notifications from the disk."""

CAPACITY = 1_000
"""Notifications that wait in memory for a reader before it is taken for a slow one."""
CAPACITY_BYTES = 1 << 20
"""The same in bytes of their bodies, which several readers may share."""


_MOST_LOOKING = 5.0
"""Seconds that who polls is kept while nothing is found in a replay."""


class Reading:
    """Listens from `open` to `close`, or in a block of `async with`."""

    _closed = False

    def open(self) -> None:
        """Listen from now on."""
        raise NotImplementedError

    def close(self) -> None:
        """Listen no more."""
        self._closed = True

    @property
    def closed(self) -> bool:
        return self._closed

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class NotificationStream(Reading):
    """Notifications in order, each once. One reader; all in the event loop.

    Closing it wakes a reader that waits, who then gets nothing more.
    """

    def __init__(
        self,
        subscriber: Subscriber,
        read: Read,
        after: int,
        *,
        capacity: int = CAPACITY,
        capacity_bytes: int = CAPACITY_BYTES,
        on_close: Callable[[Subscriber], None] = lambda subscriber: None,
        on_offer: Callable[[], None] = lambda: None,
    ) -> None:
        self.subscriber = subscriber
        self.position = after
        """The last sequence number that was taken."""
        self._read = read
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._on_close = on_close
        self._on_offer = on_offer
        self._waiting: deque[Notification] = deque()
        self._nbytes = 0
        """Of the bodies that wait."""
        self._behind = self._is_behind()
        self._waiter: asyncio.Future[None] | None = None
        """Of the reader, while it waits."""

    def open(self) -> None:
        self.subscriber.listen(self)
        self._behind = self._is_behind()

    def _is_behind(self) -> bool:
        return self.position < max(self.subscriber.last, self.subscriber.replayed_through)

    @property
    def cursor(self) -> int:
        """All up to this sequence number is acknowledged."""
        return self.subscriber.position

    def close(self) -> None:
        super().close()
        self.subscriber.leave(self)
        self._on_close(self.subscriber)
        self._wake()

    def offer(self, notifications: Sequence[Notification]) -> None:
        """Notifications that have just become durable, in order."""
        if not self._behind:
            tail = self._waiting[-1].sequence if self._waiting else self.position
            if notifications[0].sequence <= tail:  # read from the disk already
                notifications = [
                    notification for notification in notifications if notification.sequence > tail
                ]
            nbytes = self._nbytes + _size(notifications)
            full = len(self._waiting) + len(notifications) > self._capacity
            if full or nbytes > self._capacity_bytes:
                self._behind = True
            else:
                self._waiting.extend(notifications)
                self._nbytes = nbytes
        self._wake()
        self._on_offer()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def take(self, most: int) -> list[Notification]:
        """At least one notification and at most so many; waits for them. None at all once it is
        closed.
        """
        while not self._closed:
            if taken := await self.take_now(most):
                return taken
            if not self._closed:
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        return []

    async def take_now(self, most: int) -> list[Notification]:
        """At most so many notifications, in order; none if there are none at the moment."""
        while not self._closed:
            begun = self.subscriber.replays_begun
            if self._waiting:
                waiting = self._waiting
                taken = [waiting.popleft() for _ in range(min(most, len(waiting)))]
                self._nbytes = self._nbytes - _size(taken) if waiting else 0
            elif self._behind:
                newest = self.subscriber.last
                taken = await self._read(self.subscriber.number, self.position, most)
                if not taken and newest == self.subscriber.last:
                    self._behind = False
            else:
                return []
            if taken:
                self.position = taken[-1].sequence
                self.subscriber.count_handed(taken[-1].sequence, len(taken), begun)
                return taken
        return []


def _size(notifications: Sequence[Notification]) -> int:
    return sum([len(notification.body) for notification in notifications])


class Notifications:
    """The inboxes of all subscribers. In the event loop."""

    def __init__(self, store: Store, directory: Directory, replays: Replays) -> None:
        self._store = store
        self._directory = directory
        self._replays = replays
        self._moved: set[Subscriber] = set()
        """Subscribers whose cursor is not on disk yet."""

    def stream(
        self, subscriber: str, *, after: int | None = None
    ) -> NotificationStream | SharedStream:
        """The notifications of a subscriber from the cursor, or another number, on; for use in
        `async with`. If the subscriber shares them, some of them.

        Who comes again during a replay may not know of it, and goes on with what it has not got of
        that.
        """
        known = self._directory.listener(subscriber)
        if known.shared is not None:
            _check_no_place(known, after)
            return known.shared.stream()
        position = known.position if after is None else after
        if known.replays:
            position = min(position, max(known.handed, known.position))
        return self._stream(known, position)

    def _stream(self, known: Subscriber, position: int) -> NotificationStream:
        return NotificationStream(known, self._read, position, on_close=self._directory.forget_idle)

    def source(
        self, subscriber: Subscriber, after: int, on_offer: Callable[[], None]
    ) -> NotificationStream:
        """An open stream for the connections that share it."""
        stream = NotificationStream(subscriber, self._read, after, on_offer=on_offer)
        stream.open()
        return stream

    async def poll(
        self, subscriber: str, *, after: int | None, limit: int, wait: float = 0.0
    ) -> list[Notification]:
        """The next notifications after a number, or the cursor; waits so long for the first. Of a
        subscriber that shares them, some that nobody has, to be acknowledged by the deadline.
        """
        try:
            known = self._directory.listener(subscriber)
            if known.shared is not None:
                _check_no_place(known, after)
                deadline = asyncio.timeout(wait if wait > 0 else None)
                async with deadline, known.shared.stream(lasting=True, window=limit) as some:
                    return await (some.take(limit) if wait > 0 else some.take_now(limit))
            position = known.position if after is None else after
            async with self._stream(known, position) as stream:
                begun = known.replays_begun
                looking = _MOST_LOOKING if known.replays else None
                async with asyncio.timeout(wait if wait > 0 else looking):
                    if wait > 0:
                        return await stream.take(limit)
                    found = await self._read(known.number, position, limit, MOST_BYTES)
                if found:
                    known.count_handed(found[-1].sequence, len(found), begun)
                return found
        except TimeoutError:
            return []

    async def _read(
        self, subscriber: int, after: int, limit: int, most_bytes: int = CAPACITY_BYTES
    ) -> list[Notification]:
        known = self._directory.by_number.get(subscriber)
        notifications: list[Notification] = []
        if known is not None:
            notifications, after = await self._replays.read(known, after, limit)
            after = max(after, known.floor)
        if not notifications:
            notifications = await asyncio.to_thread(
                self._store.reader.inbox, subscriber, after, limit, most_bytes
            )
        if known is None or not any(notification.rate for notification in notifications):
            return notifications
        return [_with_exact_rate(notification, known) for notification in notifications]

    async def read_chosen(
        self, subscriber: int, letters: Mapping[int, int | None]
    ) -> dict[int, Notification | None]:
        """See `Reader.chosen`."""
        found = await asyncio.to_thread(
            self._store.reader.chosen, subscriber, letters, CAPACITY_BYTES
        )
        known = self._directory.by_number[subscriber]
        return {
            sequence: one if one is None or not one.rate else _with_exact_rate(one, known)
            for sequence, one in found.items()
        }

    def dispatch(
        self,
        entry: FeedEntry,
        at: float,
        first: int,
        bodies: Sequence[bytes],
        recipients: Recipients,
        rate: float = 0.0,
    ) -> None:
        """Offer what has become durable, under numbers from `first` on, to those who listen."""
        spec = entry.feed.spec
        entry.last_sequence = first + len(bodies) - 1
        for number, box in self._directory.readers.tell(recipients, first).boxes():
            subscriber = self._directory.by_number.get(number)
            if subscriber is None:
                continue
            notifications = [
                Notification(first + place, spec.name, at, ids, bodies[place], spec.kind, rate)
                for place, ids in box
            ]
            if rate > 0:
                notifications = [_with_exact_rate(one, subscriber) for one in notifications]
            for stream in tuple(subscriber.streams):
                stream.offer(notifications)

    async def acknowledge(self, subscriber: str, sequence: int, *, wait: bool = True) -> int:
        """All up to this number is done with. Returns the cursor, which only a replay sets
        back.

        It is then on disk; with `wait=False` it gets there soon, together with those of others.
        """
        known = self._directory.subscriber(subscriber)
        if known is None or not known.number:  # there is nothing to acknowledge
            return 0
        if known.shared is not None:
            raise BrokerError(
                f"subscriber {subscriber!r} shares its notifications, which therefore are "
                "acknowledged one by one, by their `sequences`"
            )
        reached = max(known.cursor, min(sequence, self._store.next_sequence - 1))
        moves = self._replays.moves(known, sequence)
        if (reached > known.stored or moves) and wait:
            cursors = {known: reached}
            await self._store.commit(partial(_write, cursors=cursors, moves=moves), frees=True)
            known.stored = max(known.stored, reached)
        if moves:
            self._replays.move(known, moves)
            if not wait:
                self._replays.moved.update(moves)
        if reached > known.cursor:
            known.cursor = reached
            if not wait:
                self._moved.add(known)
        return known.position

    async def flush_cursors(self) -> None:
        """Store the cursors that have moved, and the positions of replays."""
        moved, self._moved = self._moved, set()
        moves, self._replays.moved = self._replays.moved, {}
        cursors = {one: one.cursor for one in moved if one.cursor > one.stored}
        if not (cursors or moves):
            return
        try:
            await self._store.commit(partial(_write, cursors=cursors, moves=moves), frees=True)
        except BaseException:  # also when this is cancelled, as the broker stops
            self._moved |= moved
            self._replays.moved = moves | self._replays.moved
            raise
        for subscriber, cursor in cursors.items():
            subscriber.stored = max(subscriber.stored, cursor)

    def close(self) -> None:
        """End all streams."""
        for subscriber in self._directory.all_subscribers():
            for stream in tuple(subscriber.streams):
                stream.close()


def _check_no_place(subscriber: Subscriber, after: int | None) -> None:
    if after is not None:
        raise BrokerError(
            f"subscriber {subscriber.name!r} shares its notifications, so nobody can say after "
            "which number to begin"
        )


def _write(
    transaction: StoreTransaction, cursors: Mapping[Subscriber, int], moves: Mapping[int, int]
) -> None:
    for subscriber, cursor in cursors.items():
        transaction.move_cursor(subscriber.number, cursor)
    if moves:
        transaction.move_replays(moves)


def _with_exact_rate(notification: Notification, subscriber: Subscriber) -> Notification:
    """Of an event that was matched at a rate above 0, subscriptions that want it are exact."""
    is_exact = False
    for id in notification.subscriptions:
        one = subscriber.subscriptions.get(id)
        if one is None:
            continue
        if not one.wanted.exact:  # the usual one: an event may be for hundreds of them
            return notification
        is_exact = True
    return notification._replace(rate=0.0) if is_exact else notification
