"""Webhooks of subscribers: kept on disk, posted to while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace

import orjson

from boxmatch.broker.core import Core, Turns
from boxmatch.broker.delivery.stream import NotificationStream
from boxmatch.broker.delivery.webhook_sender import WebhookSender, check_webhook
from boxmatch.broker.messages import DeadLetter, Webhook
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.errors import BrokerError


class Webhooks:
    """One webhook for each subscriber that wants one. Changes of it take turns."""

    def __init__(
        self,
        core: Core,
        stream: Callable[..., NotificationStream],
        acknowledge: Callable[[str, int], Awaitable[int]],
        metrics: Metrics,
    ) -> None:
        self._core = core
        self._metrics = metrics
        self._pausing: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._webhooks: dict[str, Webhook] = {}
        self._sender = WebhookSender(
            take_stream=lambda subscriber, after: stream(subscriber, after=after),
            acknowledge=acknowledge,
            dead_letter=self._bury,
            allow_private=core.settings.allow_private_webhooks,
            on_result=self._tell,
            on_taken=lambda notifications: metrics.delivered("webhook", notifications),
        )
        for number, text in core.store.webhooks():
            known = core.directory.by_number.get(number)
            if known is not None:
                self._webhooks[known.name] = Webhook(**orjson.loads(text))
                self._start(known.name)

    def webhook(self, subscriber: str) -> Webhook | None:
        return self._webhooks.get(subscriber)

    def last_error(self, subscriber: str) -> str | None:
        return self._sender.last_error(subscriber)

    def failing(self) -> set[str]:
        """Subscribers whose webhook did not take what was last posted."""
        return {subscriber for subscriber in tuple(self._webhooks) if self.last_error(subscriber)}

    async def put(self, subscriber: str, webhook: Webhook) -> None:
        """Post the subscriber's notifications there from now on."""
        check_webhook(webhook, allow_private=self._core.settings.allow_private_webhooks)
        text = orjson.dumps(asdict(webhook))
        async with self._turns.of(subscriber):
            number = await self._core.write(
                lambda transaction: transaction.put_subscriber(subscriber)
            )
            self._core.directory.settle(subscriber, number, self._core.store.next_sequence - 1)
            await self._core.write(lambda transaction: transaction.put_webhook(number, text))
            await self._sender.stop(subscriber)
            self._webhooks[subscriber] = webhook
            self._start(subscriber)

    async def delete(self, subscriber: str) -> None:
        """Post no more."""
        async with self._turns.of(subscriber):
            known = self._core.directory.subscriber(subscriber)
            if subscriber not in self._webhooks or known is None:
                raise BrokerError(f"subscriber {subscriber!r} has no webhook")
            await self._core.write(
                lambda transaction: transaction.put_webhook(known.number, None), frees=True
            )
            await self._sender.stop(subscriber)
            del self._webhooks[subscriber]

    async def dead_letters(self, subscriber: str, after: int, limit: int) -> list[DeadLetter]:
        known = self._core.directory.subscriber(subscriber)
        if known is None or not known.number:
            return []
        store = self._core.store
        return await asyncio.to_thread(store.dead_letters, known.number, after, limit)

    async def replay(self, subscriber: str, numbers: Sequence[int] | None) -> int:
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

    async def discard(self, subscriber: str, numbers: Sequence[int] | None) -> int:
        """Forget dead letters, or all of them."""
        known = self._core.directory.subscriber(subscriber)
        if known is None or not known.number:
            return 0
        return await self._core.write(
            lambda transaction: transaction.delete_dead_letters(known.number, numbers), frees=True
        )

    async def close(self) -> None:
        await self._sender.close(grace=self._core.settings.shutdown_seconds / 2)
        await asyncio.gather(*self._pausing, return_exceptions=True)

    def _start(self, subscriber: str) -> None:
        webhook = self._webhooks[subscriber]
        if not webhook.paused:
            self._sender.start(subscriber, webhook)

    def _tell(self, subscriber: str, outcome: str) -> None:
        self._metrics.webhook(outcome)
        webhook = self._webhooks.get(subscriber)
        # For good if whoever receives it does not want any more; not if it may not go there now.
        if outcome == "paused" and webhook is not None and self._sender.is_gone(subscriber):
            task = asyncio.create_task(self._pause(subscriber, webhook))
            self._pausing.add(task)
            task.add_done_callback(self._pausing.discard)

    async def _pause(self, subscriber: str, webhook: Webhook) -> None:
        async with self._turns.of(subscriber):
            known = self._core.directory.subscriber(subscriber)
            if known is None or self._webhooks.get(subscriber) is not webhook:
                return  # it was set anew, or taken away
            self._webhooks[subscriber] = paused = replace(webhook, paused=True)
            text = orjson.dumps(asdict(paused))
            await self._core.write(lambda transaction: transaction.put_webhook(known.number, text))

    async def _bury(
        self, subscriber: str, first: int, last: int, attempts: int, reason: str, body: bytes
    ) -> None:
        known = self._core.directory.subscriber(subscriber)
        if known is None:
            raise BrokerError(f"there is no subscriber {subscriber!r}")
        now = self._core.clock()
        await self._core.write(
            lambda transaction: transaction.put_dead_letter(
                known.number, first, last, attempts, reason, now, body
            )
        )
