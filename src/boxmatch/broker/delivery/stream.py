"""The notifications of one subscriber, from a sequence number on, for as long as somebody listens.

Who keeps up is handed notifications as soon as they are durable, from memory. Who does not is left
alone: the notifications wait on disk, and are read from there until the reader has caught up.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Self

from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscriber import Subscriber

Read = Callable[[int, int, int], Awaitable[list[Notification]]]
"""Subscriber, sequence number to begin after, how many at most: notifications from the disk."""

CAPACITY = 1_000
"""Notifications that wait in memory for a reader before it is taken for a slow one."""
CAPACITY_BYTES = 1 << 20
"""The same in bytes of their bodies, which several readers may share."""


class NotificationStream:
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
    ) -> None:
        self.subscriber = subscriber
        self.position = after
        """The last sequence number that was taken."""
        self._read = read
        self._capacity = capacity
        self._capacity_bytes = capacity_bytes
        self._on_close = on_close
        self._waiting: deque[Notification] = deque()
        self._nbytes = 0
        """Of the bodies that wait."""
        self._behind = after < subscriber.last
        self._changed = asyncio.Event()
        self._closed = False

    async def __aenter__(self) -> Self:
        self.subscriber.streams.add(self)
        self._behind = self._behind or self.position < self.subscriber.last
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def cursor(self) -> int:
        """All up to this sequence number is acknowledged."""
        return self.subscriber.cursor

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Listen no more."""
        self._closed = True
        self.subscriber.streams.discard(self)
        self._on_close(self.subscriber)
        self._changed.set()

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
        self._changed.set()

    async def take(self, most: int) -> list[Notification]:
        """At least one notification and at most so many; waits for them. None at all once it is
        closed.
        """
        while not self._closed:
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
                self._changed.clear()
                await self._changed.wait()
                continue
            if taken:
                self.position = taken[-1].sequence
                self.subscriber.delivered += len(taken)
                return taken
        return []


def _size(notifications: Sequence[Notification]) -> int:
    return sum([len(notification.body) for notification in notifications])
