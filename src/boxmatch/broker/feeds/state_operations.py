"""Operations on state feeds: what they change is stored together with the notifications."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from boxmatch.broker.delivery.notifications import Notifications
from boxmatch.broker.feeds.pipeline import EventPipeline, settle
from boxmatch.broker.feeds.state_feed import StateChanges, StateFeed, publication_to_json
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.recipients import NOBODY
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.errors import BoxmatchError, BrokerError, StorageError
from boxmatch.spaces.dimensions import UNCHANGED, RegionSpec, Stored, Unchanged
from boxmatch.wire.responses import Receipt

Write = Callable[[StoreTransaction], object]


@dataclass(eq=False)
class _Step:
    """What a feed has done in memory, on its way to the disk."""

    feed: StateFeed
    at: float
    changes: StateChanges
    write: Write
    on_durable: Callable[[], object] = lambda: None
    answer: asyncio.Future[Receipt] | None = None
    frees: bool = False


@dataclass(eq=False)
class StateOperations:
    """One operation at a time and feed: they run in the thread of the feed."""

    _store: Store
    _directory: Directory
    _pipeline: EventPipeline
    _notifications: Notifications
    _clock: Callable[[], float]

    def feed(self, name: str) -> StateFeed:
        feed = self._directory.feed(name).feed
        if not isinstance(feed, StateFeed):
            raise BrokerError(f"feed {name!r} is one of events, which do not stay")
        return feed

    async def put_publication(
        self,
        name: str,
        publication: str,
        *,
        regions: Mapping[str, RegionSpec],
        filter: str | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        feed = self.feed(name)
        return await self.operate(
            feed,
            lambda: feed.put_publication(publication, regions, filter, ttl),
            _store_publication(feed, publication),
        )

    async def patch_publication(
        self,
        name: str,
        publication: str,
        *,
        regions: Mapping[str, RegionSpec | None],
        filter: str | Unchanged | None = UNCHANGED,
        ttl: float | Unchanged | None = UNCHANGED,
    ) -> Receipt:
        feed = self.feed(name)
        return await self.operate(
            feed,
            lambda: feed.patch_publication(publication, regions, filter, ttl),
            _store_publication(feed, publication),
        )

    async def retract(self, name: str, publication: str) -> Receipt:
        feed = self.feed(name)
        return await self.operate(
            feed,
            lambda: feed.retract(publication),
            lambda: lambda transaction: transaction.delete_member(feed.number, publication),
            frees=True,
        )

    def publication(self, name: str, publication: str) -> Stored:
        return self.feed(name).spaces.get_publication(publication)

    async def expire(self) -> None:
        """Let go of what is past its time, in all state feeds."""
        for entry in self._directory.feeds():
            feed = entry.feed
            if isinstance(feed, StateFeed) and feed.has_expired():
                await self.operate(feed, lambda: StateChanges([], NOBODY), lambda: _nothing)

    async def operate(
        self,
        feed: StateFeed,
        operation: Callable[[], StateChanges],
        prepare: Callable[[], Write],
        on_durable: Callable[[], object] = lambda: None,
        *,
        frees: bool = False,
    ) -> Receipt:
        """Carry out an operation; returns when it and its notifications are durable.

        `prepare` is called right after it, and says how to store what it changed; `on_durable` once
        that is durable, in the event loop and in the order of the operations, if the feed is still
        there.
        An operation that `frees` room is possible on a full disk too.
        """
        answer: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        at = self._clock()

        def carry_out() -> None:
            try:
                self._expire(feed, at)
                try:
                    changes = operation()
                except BoxmatchError as error:  # nothing has changed
                    self._pipeline.call_in_loop(partial(settle, answer, error))
                    return
                step = _Step(feed, at, changes, prepare(), on_durable, answer, frees)
            except Exception as error:  # something may have
                nothing = StateChanges([], NOBODY)
                fail = partial(_fail, error)
                step = _Step(feed, at, nothing, fail, answer=answer, frees=True)
            self._record(step)

        self._pipeline.call_soon(feed, carry_out)
        return await asyncio.shield(answer)

    def _expire(self, feed: StateFeed, at: float) -> None:
        """A step of its own: what has expired is stored whatever the operation does."""
        expired = feed.expire()
        if expired is None:
            return

        def write(transaction: StoreTransaction) -> None:
            for publication in expired.publications:
                transaction.delete_member(feed.number, publication)
            for one in expired.subscriptions:
                transaction.delete_subscription(one.subscriber.number, one.id)

        def on_durable() -> None:
            for one in expired.subscriptions:
                if one.subscriber.subscriptions.get(one.id) is one:
                    one.subscriber.forget(one.id)

        self._record(_Step(feed, at, expired.changes, write, on_durable, frees=True))

    def _record(self, step: _Step) -> None:
        """Have what the feed has done in memory on disk too, or undo it."""
        feed, changes = step.feed, step.changes
        epoch = feed.epoch

        def change(transaction: StoreTransaction) -> int:
            try:
                if feed.failed == epoch:
                    raise StorageError("an operation before this one could not be stored")
                step.write(transaction)
                if not changes.bodies:
                    return 0
                return transaction.append(
                    feed.number, step.at, changes.bodies, changes.recipients
                ).first
            except BaseException:
                feed.failed = epoch
                raise

        def done(result: int | BaseException) -> None:
            if isinstance(result, BaseException):
                feed.failed = epoch
                self._pipeline.call_soon(feed, partial(self._step_back, step, epoch, result))
            else:
                self._pipeline.call_in_loop(partial(self._finish, step, result))

        try:
            self._store.enqueue(change, done, frees=step.frees)
        except StorageError as error:  # it is closed
            self._pipeline.call_in_loop(partial(settle, step.answer, error))

    def _finish(self, step: _Step, first: int) -> None:
        bodies, recipients = step.changes
        number = len(bodies)
        entry = self._directory.entry_of(step.feed)
        if entry is not None:
            step.on_durable()
            if number:
                entry.events += number
                self._notifications.dispatch(entry, step.at, first, bodies, recipients)
        settle(step.answer, Receipt(first, first + number - 1 if number else 0, number, True))

    def _step_back(self, step: _Step, epoch: int, error: BaseException) -> None:
        """Memory is ahead of the disk: back to what is stored.

        If even that cannot be read, the next operation fails too, and leads here again.
        """
        feed = step.feed
        try:
            if feed.epoch == epoch:
                stored = self._directory.read_feed(feed.spec, feed.number)
                if isinstance(stored, StateFeed):
                    feed.adopt(stored)
                    # After what was stored before, which waits there too.
                    self._pipeline.call_in_loop(
                        partial(self._directory.restore_subscriptions, feed, stored.slots.in_use())
                    )
        finally:
            self._pipeline.call_in_loop(partial(settle, step.answer, error))


def _nothing(transaction: StoreTransaction) -> None:
    """Nothing is to be stored."""


def _fail(error: Exception, transaction: StoreTransaction) -> None:
    raise error


def _store_publication(feed: StateFeed, publication: str) -> Callable[[], Write]:
    def prepare() -> Write:
        stored = feed.spaces.get_publication(publication)
        body = publication_to_json(stored)
        return lambda transaction: transaction.put_member(
            feed.number, publication, body, stored.expires
        )

    return prepare
