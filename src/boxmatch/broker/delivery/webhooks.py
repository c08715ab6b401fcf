"""Webhooks of subscribers: kept on disk, posted to while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

import orjson
from msgspec.structs import replace

from boxmatch.broker.changes import Changes, uninterrupted
from boxmatch.broker.delivery.notifications import Notifications
from boxmatch.broker.delivery.webhook_sender import WebhookSender
from boxmatch.broker.delivery.webhook_targets import Webhook, check_webhook
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.settings import Settings
from boxmatch.broker.store import Store, StoreTransaction
from boxmatch.broker.store.rows import DeadLetter
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.errors import BrokerError
from boxmatch.wire import responses
from boxmatch.wire.codec import encode


class Webhooks:
    """One webhook for each subscriber that wants one. Changes of it take turns."""

    def __init__(
        self,
        store: Store,
        directory: Directory,
        notifications: Notifications,
        changes: Changes,
        metrics: Metrics,
        clock: Callable[[], float],
        settings: Settings,
    ) -> None:
        self._store = store
        self._directory = directory
        self._changes = changes
        self._metrics = metrics
        self._clock = clock
        self._settings = settings
        self._pausing: set[asyncio.Task[None]] = set()
        self._webhooks: dict[str, Webhook] = {}
        self._sender = WebhookSender(
            open_stream=notifications.stream,
            acknowledge=partial(notifications.acknowledge, wait=False),
            dead_letter=self._store_dead_letter,
            allow_private=settings.allow_private_webhooks,
            on_result=self._on_result,
            on_taken=lambda notifications: metrics.delivered("webhook", notifications),
        )
        for number, text in store.reader.webhooks():
            known = directory.by_number.get(number)
            if known is not None:
                self._webhooks[known.name] = Webhook(**orjson.loads(text))
                self._start(known.name)

    def get(self, subscriber: str) -> Webhook | None:
        return self._webhooks.get(subscriber)

    def describe(self, subscriber: str) -> responses.Webhook | None:
        """The webhook as others may see it."""
        webhook = self.get(subscriber)
        return None if webhook is None else webhook.described(self.last_error(subscriber))

    def last_error(self, subscriber: str) -> str | None:
        return self._sender.last_error(subscriber)

    def failing(self) -> set[str]:
        """Subscribers whose webhook did not take what was last posted."""
        return {subscriber for subscriber in tuple(self._webhooks) if self.last_error(subscriber)}

    @uninterrupted
    async def put(self, subscriber: str, webhook: Webhook) -> None:
        """Post the subscriber's notifications there from now on."""
        check_webhook(webhook, allow_private=self._settings.allow_private_webhooks)
        text = encode(webhook)

        def store(transaction: StoreTransaction) -> int:
            number = transaction.put_subscriber(subscriber)
            transaction.put_webhook(number, text)
            return number

        async with self._changes.lock(subscriber):
            number = await self._store.commit(store)
            self._directory.register(subscriber, number, self._store.next_sequence - 1)
            await self._sender.stop(subscriber)
            self._webhooks[subscriber] = webhook
            self._start(subscriber)

    @asynccontextmanager
    async def stopped(self, subscriber: str) -> AsyncIterator[None]:
        """Post nothing meanwhile. For whoever holds the lock of the subscriber."""
        await self._sender.stop(subscriber)
        try:
            yield
        finally:
            if subscriber in self._webhooks:
                self._start(subscriber)

    @uninterrupted
    async def delete(self, subscriber: str) -> None:
        """Post no more."""
        async with self._changes.lock(subscriber):
            known = self._directory.subscriber(subscriber)
            if subscriber not in self._webhooks or known is None:
                raise BrokerError(f"subscriber {subscriber!r} has no webhook")
            await self._store.commit(
                lambda transaction: transaction.put_webhook(known.number, None), frees=True
            )
            await self._sender.stop(subscriber)
            del self._webhooks[subscriber]

    async def dead_letters(
        self, subscriber: str, after: int = 0, limit: int = 100
    ) -> list[DeadLetter]:
        known = self._directory.subscriber(subscriber)
        if known is None or not known.number:
            return []
        return await asyncio.to_thread(self._store.reader.dead_letters, known.number, after, limit)

    async def replay(self, subscriber: str, numbers: Sequence[int] | None = None) -> int:
        """Post dead letters again; those that are taken are dead no more."""
        webhook = self._webhooks.get(subscriber)
        if webhook is None:
            raise BrokerError(f"subscriber {subscriber!r} has no webhook to send dead letters to")
        wanted = None if numbers is None else frozenset(numbers)
        taken = 0
        after = 0
        while letters := await self.dead_letters(subscriber, after, 100):
            after = letters[-1].number
            for letter in letters:
                if wanted is not None and letter.number not in wanted:
                    continue
                if await self._sender.repost(subscriber, webhook, letter) is None:
                    await self.discard(subscriber, [letter.number])
                    taken += 1
        return taken

    async def discard(self, subscriber: str, numbers: Sequence[int] | None = None) -> int:
        """Forget dead letters, or all of them."""
        known = self._directory.subscriber(subscriber)
        if known is None or not known.number:
            return 0
        return await self._store.commit(
            lambda transaction: transaction.delete_dead_letters(known.number, numbers), frees=True
        )

    async def close(self) -> None:
        await self._sender.close(grace=self._settings.shutdown_seconds / 2)
        await asyncio.gather(*self._pausing, return_exceptions=True)

    def _start(self, subscriber: str) -> None:
        webhook = self._webhooks[subscriber]
        if not webhook.paused:
            self._sender.start(subscriber, webhook)

    def _on_result(self, subscriber: str, outcome: str) -> None:
        self._metrics.webhook(outcome)
        webhook = self._webhooks.get(subscriber)
        # For good if whoever receives it does not want any more; not if it may not go there now.
        if outcome == "paused" and webhook is not None and self._sender.is_gone(subscriber):
            task = asyncio.create_task(self._pause(subscriber, webhook))
            self._pausing.add(task)
            task.add_done_callback(self._pausing.discard)

    async def _pause(self, subscriber: str, webhook: Webhook) -> None:
        async with self._changes.lock(subscriber):
            known = self._directory.subscriber(subscriber)
            if known is None or self._webhooks.get(subscriber) is not webhook:
                return  # it was set anew, or taken away
            self._webhooks[subscriber] = paused = replace(webhook, paused=True)
            text = encode(paused)
            await self._store.commit(
                lambda transaction: transaction.put_webhook(known.number, text)
            )

    async def _store_dead_letter(
        self, subscriber: str, first: int, last: int, attempts: int, reason: str, body: bytes
    ) -> None:
        known = self._directory.subscriber(subscriber)
        if known is None:
            raise BrokerError(f"there is no subscriber {subscriber!r}")
        now = self._clock()
        await self._store.commit(
            lambda transaction: transaction.put_dead_letter(
                known.number, first, last, attempts, reason, now, body
            )
        )
