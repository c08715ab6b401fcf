"""What a broker does now and then: cursors to the disk, old things away, backlogs counted."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from boxmatch.broker.core import Core
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.state_operations import StateOperations
from boxmatch.broker.server.garbage_collection import keep_for_long
from boxmatch.broker.store import Transaction
from boxmatch.broker.subscribers.subscriber import Subscriber
from boxmatch.engine.memory import release_free_memory
from boxmatch.errors import BoxmatchError, StorageError

_CURSORS = 0.25
_WRITING = 0.25
_EXPIRY = 0.5
_COUNTING = 2.0
_TIDYING = 5.0
_QUIET = 2.0
_MANY_EVENTS = 10_000

log = structlog.get_logger(__name__)


class Housekeeping:
    """Runs as tasks in the event loop, for as long as the broker does."""

    def __init__(self, core: Core, state: StateOperations, dropped: Callable[[int], None]) -> None:
        self._core = core
        self._state = state
        self._dropped = dropped
        self._moved: set[Subscriber] = set()
        self._given_back = core.store.next_sequence
        self._tasks = [
            asyncio.create_task(self._repeat(seconds, duty))
            for seconds, duty in (
                (_CURSORS, self.flush_cursors),
                (_WRITING, self._try_to_write),
                (_EXPIRY, state.expire),
                (_COUNTING, self._count),
                (_TIDYING, self._tidy),
                (_QUIET, self._tidy_indexes),
                (_TIDYING, self._give_back_memory),
            )
        ]

    def moved(self, subscriber: Subscriber) -> None:
        """The subscriber's cursor has moved. It may take a moment until it is on disk."""
        self._moved.add(subscriber)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        try:
            await self.flush_cursors()
        except BoxmatchError as error:  # they hear of some notifications again
            log.warning("cursors are not on disk", reason=str(error))

    async def _repeat(self, seconds: float, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await duty()
            except BoxmatchError as error:  # a full disk may have room again
                log.warning("housekeeping failed", duty=duty.__name__, reason=str(error))
            except Exception:  # once is no reason not to try again
                log.exception("housekeeping failed", duty=duty.__name__)

    async def flush_cursors(self) -> None:
        moved, self._moved = self._moved, set()
        if not moved:
            return
        cursors = [
            (subscriber, subscriber.cursor)
            for subscriber in moved
            if subscriber.cursor > subscriber.stored
        ]

        def write(transaction: Transaction) -> None:
            for subscriber, cursor in cursors:
                transaction.move_cursor(subscriber.number, cursor)

        try:
            await self._core.write(write, frees=True)
        except BaseException:  # at the end of the broker, that this was cancelled
            self._moved |= moved
            raise
        for subscriber, cursor in cursors:
            subscriber.stored = max(subscriber.stored, cursor)

    async def _try_to_write(self) -> None:
        """Notice that there is room again, also if nobody else writes."""
        if self._core.store.failure is not None:
            with suppress(StorageError):  # the store has said so already
                await asyncio.to_thread(self._core.store.probe)

    async def _count(self) -> None:
        store = self._core.store
        backlogs = await asyncio.to_thread(store.backlogs)
        letters = await asyncio.to_thread(store.dead_letter_counts)
        for subscriber in self._core.directory.by_number.values():
            subscriber.backlog = backlogs.get(subscriber.number, 0)
            subscriber.dead_letters = letters.get(subscriber.number, 0)

    async def _tidy(self) -> None:
        retention = self._core.settings.retention
        removed = await asyncio.to_thread(self._core.store.tidy, self._core.clock(), retention)
        for number, notifications in removed.dropped.items():
            subscriber = self._core.directory.by_number.get(number)
            if subscriber is not None:
                subscriber.dropped += notifications
            self._dropped(notifications)
        if removed.dropped:
            for row in await asyncio.to_thread(self._core.store.subscribers):
                subscriber = self._core.directory.by_number.get(row.number)
                if subscriber is not None:
                    subscriber.dropped_through = row.dropped_through

    async def _tidy_indexes(self) -> None:
        for entry in self._core.directory.feeds():
            feed = entry.feed
            if isinstance(feed, EventFeed) and feed.is_untidy(_QUIET):
                await asyncio.to_thread(feed.tidy)
                keep_for_long()

    async def _give_back_memory(self) -> None:
        """After a load, once nothing waits."""
        reached = self._core.store.next_sequence
        if self._core.flow.events == 0 and reached - self._given_back >= _MANY_EVENTS:
            self._given_back = reached
            gc.collect()  # soon done: what stays is not looked through
            await asyncio.to_thread(release_free_memory)
