"""What a broker does now and then: store cursors, drop what is old, count backlogs, free memory."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import structlog

from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.engine.memory import release_free_memory
from boxmatch.errors import BoxmatchError, StorageError

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

_CURSORS = 0.1
_WRITING = 0.25
_EXPIRY = 0.5
_COUNTING = 2.0
_SPAN = 5
"""Counts of backlogs, by whose lowest one sees which grow."""
_TIDYING = 5.0
_REMOVING = 1.0
_LONG = 0.05
"""A look through all that waits that takes longer is left to the tidying."""
_REPORTING = 60.0
_QUIET = 2.0
_SAVING = 5.0
_MANY_EVENTS = 10_000


log = structlog.get_logger(__name__)


class Housekeeping:
    """Runs as tasks in the event loop, for as long as the broker does."""

    def __init__(self, broker: Broker) -> None:
        self._store = broker.store
        self._directory = broker.directory
        self._pipeline = broker.pipeline
        self._notifications = broker.notifications
        self._shared = broker.shared
        self._metrics = broker.metrics
        self._retention = broker.settings.retention
        self._clock = broker.clock
        self._given_back = broker.store.next_sequence
        self._counts = 0
        self._tidied = time.monotonic()
        self._looked = 0.0
        """Seconds that it took to remove what is acknowledged, when that was last done."""
        self._removed: Counter[tuple[str, str]] = Counter()
        """Events by feed and cause, and notifications by cause, that were not logged yet."""
        self._lost: Counter[str] = Counter()
        self.tasks = [
            asyncio.create_task(self._check_rows()),
            *(
                asyncio.create_task(self._repeat(seconds, duty))
                for seconds, duty in (
                    (_CURSORS, self._notifications.flush_cursors),
                    (_CURSORS, self._shared.sweep),
                    (_WRITING, self._try_to_write),
                    (_EXPIRY, broker.state.expire),
                    (_COUNTING, self._count),
                    (_REMOVING, self._remove),
                    (_REPORTING, self.report_removed),
                    (_QUIET, self._tidy_indexes),
                    (_SAVING, self._save_indexes),
                    (_TIDYING, self._give_back_memory),
                )
            ),
        ]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.report_removed()
        try:
            await self._notifications.flush_cursors()
            await self._shared.sweep()
        except BoxmatchError as error:  # subscribers get some notifications again
            log.warning("cursors are not on disk", reason=str(error))
        try:
            await self._save_indexes(0.0)
        except BoxmatchError as error:  # the next start takes longer
            log.warning("indexes are not on disk", reason=str(error))

    async def _repeat(self, seconds: float, duty: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await duty()
            except BoxmatchError as error:  # a full disk may have room again
                log.warning("housekeeping failed", duty=duty.__name__, reason=str(error))
            except Exception:  # once is no reason not to try again
                log.exception("housekeeping failed", duty=duty.__name__)

    async def _check_rows(self) -> None:
        """What a start has not looked at, since it takes long."""
        try:
            await asyncio.to_thread(self._directory.check_rows)
        except BoxmatchError as error:
            log.warning("subscriptions could not be checked", reason=str(error))

    async def _try_to_write(self) -> None:
        """Notice that there is room again, also if nobody else writes."""
        if self._store.failure is not None:
            with suppress(StorageError):  # the store has said so already
                await asyncio.to_thread(self._store.probe)

    async def _count(self) -> None:
        backlogs = await asyncio.to_thread(self._store.reader.backlogs)
        letters = await asyncio.to_thread(self._store.reader.dead_letter_counts)
        self._counts += 1
        new_span = self._counts % _SPAN == 0
        for subscriber in self._directory.by_number.values():
            subscriber.count_backlog(backlogs.get(subscriber.number, 0), new_span=new_span)
            subscriber.dead_letters = letters.get(subscriber.number, 0)

    async def _remove(self) -> None:
        """Every second what is acknowledged, so that it is little; every five all that is old."""
        began = time.monotonic()
        if began >= self._tidied + _TIDYING:
            self._tidied, self._looked = began, 0.0
            await self._tidy()
        elif self._looked < _LONG and self._store.failure is None:
            await asyncio.to_thread(self._store.remove_read)
            self._looked = time.monotonic() - began

    async def _tidy(self) -> None:
        entries = {entry.feed.number: entry.feed.spec for entry in self._directory.feeds()}
        feeds = {number: one.retention for number, one in entries.items() if one.retention}
        removed = await asyncio.to_thread(self._store.tidy, self._clock(), self._retention, feeds)
        for (number, cause), events in removed.events.items():
            name = entries[number].name if number in entries else "(unknown)"
            self._metrics.removed(name, cause, events)
            self._removed[name, cause] += events
        for reason, notifications in removed.causes.items():
            self._metrics.dropped(reason, notifications)
            self._lost[reason] += notifications
        for number, notifications in removed.dropped.items():
            subscriber = self._directory.by_number.get(number)
            if subscriber is not None:
                subscriber.dropped += notifications
        if removed.dropped:
            for row in await asyncio.to_thread(self._store.reader.subscribers):
                subscriber = self._directory.by_number.get(row.number)
                if subscriber is not None:
                    subscriber.dropped_through = row.dropped_through

    async def report_removed(self) -> None:
        """Log what retention has removed since the last time."""
        removed, self._removed = self._removed, Counter()
        for (feed, cause), events in sorted(removed.items()):
            log.info("events removed", feed=feed, cause=cause, events=events)
        lost, self._lost = self._lost, Counter()
        for cause, notifications in sorted(lost.items()):
            log.warning("unread notifications lost", cause=cause, notifications=notifications)

    async def _tidy_indexes(self) -> None:
        for entry in self._directory.feeds():
            feed = entry.feed
            if isinstance(feed, EventFeed) and feed.is_untidy(_QUIET):
                await asyncio.to_thread(feed.tidy)
                gc.freeze()

    async def _save_indexes(self, quiet: float = _QUIET) -> None:
        """Write what has changed to the files of indexes, for the next start."""
        await asyncio.to_thread(self._directory.remove_unused_files)
        for entry in self._directory.feeds():
            feed = entry.feed
            if isinstance(feed, EventFeed) and feed.is_to_save(quiet):
                unsaved = feed.unsaved
                try:
                    capture = await self._pipeline.call(feed, feed.capture)
                    await asyncio.to_thread(self._directory.index_files(feed).save, capture)
                except BoxmatchError:
                    feed.unsaved += unsaved
                    raise

    async def _give_back_memory(self) -> None:
        """After a load, once nothing waits."""
        reached = self._store.next_sequence
        if self._pipeline.events == 0 and reached - self._given_back >= _MANY_EVENTS:
            self._given_back = reached
            gc.collect()  # soon done: what stays is not looked through
            await asyncio.to_thread(release_free_memory)
