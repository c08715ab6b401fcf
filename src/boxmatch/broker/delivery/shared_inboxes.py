"""Subscribers that share their notifications: which they are, and what is asked about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from boxmatch.broker.changes import Changes, uninterrupted
from boxmatch.broker.delivery.notifications import Notifications
from boxmatch.broker.delivery.shared_inbox import SharedInbox
from boxmatch.broker.delivery.webhook_requests import split_letter
from boxmatch.broker.delivery.webhooks import Webhooks
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.progress import Progress
from boxmatch.broker.store.rows import DeadLetter
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.errors import BrokerError
from boxmatch.wire.codec import decode, encode
from boxmatch.wire.requests import Sharing


class SharedInboxes:
    """All of a broker. In the event loop. Leases end by the `monotonic` clock."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        notifications: Notifications,
        webhooks: Webhooks,
        changes: Changes,
        metrics: Metrics,
        clock: Callable[[], float],
        monotonic: Callable[[], float],
    ) -> None:
        self._store = store
        self._directory = directory
        self._notifications = notifications
        self._webhooks = webhooks
        self._changes = changes
        self._metrics = metrics
        self._clock = clock
        self._monotonic = monotonic
        self._inboxes: dict[str, SharedInbox] = {}
        for row in store.reader.sharing():
            known = directory.by_number.get(row.subscriber)
            if known is not None:
                self._add(known, row.progress, decode(row.settings, Sharing))

    def _add(self, subscriber: Subscriber, progress: Progress | None, settings: Sharing) -> None:
        subscriber.shared = self._inboxes[subscriber.name] = SharedInbox(
            subscriber,
            progress,
            settings,
            store=self._store,
            notifications=self._notifications,
            metrics=self._metrics,
            clock=self._clock,
            monotonic=self._monotonic,
        )

    def get(self, subscriber: str) -> SharedInbox:
        """`BrokerError` if the subscriber does not share its notifications."""
        inbox = self._inboxes.get(subscriber)
        if inbox is None:
            raise BrokerError(
                f"subscriber {subscriber!r} does not share its notifications, which therefore are "
                "acknowledged up to a sequence number"
            )
        return inbox

    @uninterrupted
    async def share(self, subscriber: str, settings: Sharing) -> None:
        """The subscriber's notifications are shared from now on, or with other settings. What is
        not acknowledged stays so; connections are closed, and come again.
        """
        text = encode(settings)

        async with self._changes.lock(subscriber):
            known = self._directory.subscriber(subscriber)
            if known is not None and known.replays:
                raise BrokerError(
                    f"subscriber {subscriber!r} has a replay, which cannot be shared: cancel it "
                    "first, or wait until it is acknowledged"
                )
            cursor = 0 if known is None else known.cursor

            def store(transaction: StoreTransaction) -> int:
                number = transaction.put_subscriber(subscriber)
                transaction.move_cursor(number, cursor)  # it may not be on disk yet
                transaction.share(number, text)
                return number

            if (inbox := self._inboxes.get(subscriber)) is not None:
                await self._store.commit(store)
                inbox.book.settings = settings
                inbox.wake()
                return
            async with self._webhooks.stopped(subscriber):
                number = await self._store.commit(store)
                newest = self._store.next_sequence - 1
                known = self._directory.register(subscriber, number, newest)
                self._add(known, None, settings)
                for stream in tuple(known.streams):
                    stream.close()

    @uninterrupted
    async def unshare(self, subscriber: str) -> None:
        """The subscriber has a cursor alone again. What was done after it, while something before
        was not, is forgotten, and delivered again.
        """
        async with self._changes.lock(subscriber):
            if (inbox := self._inboxes.get(subscriber)) is None:
                return
            number = inbox.subscriber.number
            async with self._webhooks.stopped(subscriber):
                await inbox.store()
                await self._store.commit(
                    lambda transaction: transaction.unshare(number), frees=True
                )
                del self._inboxes[subscriber]
                inbox.subscriber.shared = None
                inbox.close()
                await inbox.store()  # what was acknowledged meanwhile may have moved the cursor

    async def acknowledge(self, subscriber: str, sequences: Iterable[int]) -> int:
        """They are done, whoever has them, and that is on disk. How many were not done before."""
        inbox = self.get(subscriber)
        count = inbox.acknowledge(sequences)
        await inbox.store()
        return count

    async def sweep(self) -> None:
        """End what is overdue, bury what was handed out too often, store what has changed."""
        busy = [inbox for inbox in self._inboxes.values() if inbox.is_busy]
        # Together, so that they share their waits for the disk.
        sweeps = [self._changes.complete(inbox.sweep()) for inbox in busy]
        for result in await asyncio.gather(*sweeps, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result

    async def replay(self, subscriber: str, numbers: Sequence[int] | None = None) -> int:
        """Hand dead letters out again. They are dead until they are acknowledged. How many
        notifications those are: no more than may be in flight.
        """
        inbox = self.get(subscriber)
        wanted = None if numbers is None else frozenset(numbers)
        count = after = 0
        while letters := await self._webhooks.dead_letters(subscriber, after, 100):
            after = letters[-1].number
            for letter in letters:
                if wanted is not None and letter.number not in wanted:
                    continue
                for one in await self._single(inbox, letter):
                    if inbox.book.room == 0:
                        return count
                    count += inbox.book.replay(one.first, one.number)
                    inbox.wake()
        return count

    async def _single(self, inbox: SharedInbox, letter: DeadLetter) -> Sequence[DeadLetter]:
        """Letters of one notification each, instead of one of many, such as webhooks leave."""
        if letter.first == letter.last:
            return [letter]
        number, parts = inbox.subscriber.number, split_letter(letter)

        def split(transaction: StoreTransaction) -> list[int]:
            transaction.delete_dead_letters(number, [letter.number])
            return [transaction.put_dead_letter(number, *one[2:]) for one in parts]

        made = await self._store.commit(split)
        return [part._replace(number=new) for part, new in zip(parts, made, strict=True)]

    def discard(self, subscriber: str, numbers: Sequence[int] | None) -> None:
        """Dead letters are forgotten: do not hand them out any more."""
        if (inbox := self._inboxes.get(subscriber)) is not None:
            inbox.book.discard(numbers)
            inbox.wake()

    def close(self) -> None:
        """End all streams."""
        for inbox in self._inboxes.values():
            inbox.close()
