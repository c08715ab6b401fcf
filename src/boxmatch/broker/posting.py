"""Webhooks of owners: kept on disk, posted to while the broker runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace

import orjson

from boxmatch.broker.core import Core, Turns
from boxmatch.broker.delivery.stream import NoteStream
from boxmatch.broker.delivery.webhooks import WebhookSender, check_webhook
from boxmatch.broker.messages import DeadLetter, Webhook
from boxmatch.broker.metrics import Metrics
from boxmatch.errors import BrokerError


class Posting:
    """One webhook for each owner that wants one. Changes of it take turns."""

    def __init__(
        self,
        core: Core,
        stream: Callable[..., NoteStream],
        acknowledge: Callable[[str, int], Awaitable[int]],
        metrics: Metrics,
    ) -> None:
        self._core = core
        self._metrics = metrics
        self._pausing: set[asyncio.Task[None]] = set()
        self._turns = Turns()
        self._webhooks: dict[str, Webhook] = {}
        self._sender = WebhookSender(
            take_stream=lambda owner, after: stream(owner, after=after),
            acknowledge=acknowledge,
            dead_letter=self._bury,
            allow_private=core.settings.allow_private_webhooks,
            on_result=self._tell,
            on_taken=lambda notes: metrics.delivered("webhook", notes),
        )
        for number, text in core.store.webhooks():
            known = core.directory.by_number.get(number)
            if known is not None:
                self._webhooks[known.name] = Webhook(**orjson.loads(text))
                self._start(known.name)

    def webhook(self, owner: str) -> Webhook | None:
        return self._webhooks.get(owner)

    def last_error(self, owner: str) -> str | None:
        return self._sender.last_error(owner)

    def failing(self) -> set[str]:
        """Owners whose webhook did not take what was last posted."""
        return {owner for owner in tuple(self._webhooks) if self.last_error(owner)}

    async def put(self, owner: str, webhook: Webhook) -> None:
        """Post the owner's notes there from now on."""
        check_webhook(webhook, allow_private=self._core.settings.allow_private_webhooks)
        text = orjson.dumps(asdict(webhook))
        async with self._turns.of(owner):
            number = await self._core.write(lambda transaction: transaction.put_owner(owner))
            self._core.directory.settle(owner, number, self._core.store.next_sequence - 1)
            await self._core.write(lambda transaction: transaction.put_webhook(number, text))
            await self._sender.stop(owner)
            self._webhooks[owner] = webhook
            self._start(owner)

    async def delete(self, owner: str) -> None:
        """Post no more."""
        async with self._turns.of(owner):
            known = self._core.directory.owner(owner)
            if owner not in self._webhooks or known is None:
                raise BrokerError(f"owner {owner!r} has no webhook")
            await self._core.write(
                lambda transaction: transaction.put_webhook(known.number, None), frees=True
            )
            await self._sender.stop(owner)
            del self._webhooks[owner]

    async def dead_letters(self, owner: str, after: int, limit: int) -> list[DeadLetter]:
        known = self._core.directory.owner(owner)
        if known is None or not known.number:
            return []
        store = self._core.store
        return await asyncio.to_thread(store.dead_letters, known.number, after, limit)

    async def replay(self, owner: str, numbers: Sequence[int] | None) -> int:
        """Post dead letters again; those that are taken are dead no more."""
        webhook = self._webhooks.get(owner)
        if webhook is None:
            raise BrokerError(f"owner {owner!r} has no webhook to send dead letters to")
        wanted = None if numbers is None else frozenset(numbers)
        taken = 0
        after = 0
        while letters := await self.dead_letters(owner, after, 100):
            after = letters[-1].number
            for letter in letters:
                if wanted is not None and letter.number not in wanted:
                    continue
                if await self._sender.repost(owner, webhook, letter) is None:
                    await self.discard(owner, [letter.number])
                    taken += 1
        return taken

    async def discard(self, owner: str, numbers: Sequence[int] | None) -> int:
        """Forget dead letters, or all of them."""
        known = self._core.directory.owner(owner)
        if known is None or not known.number:
            return 0
        return await self._core.write(
            lambda transaction: transaction.delete_dead_letters(known.number, numbers), frees=True
        )

    async def close(self) -> None:
        await self._sender.close(grace=self._core.settings.shutdown_seconds / 2)
        await asyncio.gather(*self._pausing, return_exceptions=True)

    def _start(self, owner: str) -> None:
        webhook = self._webhooks[owner]
        if not webhook.paused:
            self._sender.start(owner, webhook)

    def _tell(self, owner: str, outcome: str) -> None:
        self._metrics.webhook(outcome)
        webhook = self._webhooks.get(owner)
        # For good if whoever receives it does not want any more; not if it may not go there now.
        if outcome == "paused" and webhook is not None and self._sender.is_gone(owner):
            task = asyncio.create_task(self._pause(owner, webhook))
            self._pausing.add(task)
            task.add_done_callback(self._pausing.discard)

    async def _pause(self, owner: str, webhook: Webhook) -> None:
        async with self._turns.of(owner):
            known = self._core.directory.owner(owner)
            if known is None or self._webhooks.get(owner) is not webhook:
                return  # it was set anew, or taken away
            self._webhooks[owner] = paused = replace(webhook, paused=True)
            text = orjson.dumps(asdict(paused))
            await self._core.write(lambda transaction: transaction.put_webhook(known.number, text))

    async def _bury(
        self, owner: str, first: int, last: int, attempts: int, reason: str, body: bytes
    ) -> None:
        known = self._core.directory.owner(owner)
        if known is None:
            raise BrokerError(f"there is no owner {owner!r}")
        now = self._core.clock()
        await self._core.write(
            lambda transaction: transaction.put_dead_letter(
                known.number, first, last, attempts, reason, now, body
            )
        )
