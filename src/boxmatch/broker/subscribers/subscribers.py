"""Subscribers as others see them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from boxmatch.broker.delivery.webhooks import Webhooks
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscriber import Subscriber
from boxmatch.wire import answers


class Subscribers:
    """All subscribers of a broker."""

    def __init__(self, store: Store, directory: Directory, webhooks: Webhooks) -> None:
        self._store = store
        self._directory = directory
        self._webhooks = webhooks

    def get(self, name: str) -> Subscriber:
        """A subscriber as it is in memory; an unknown one has nothing."""
        return self._directory.subscriber(name) or Subscriber(0, name)

    async def describe(self, name: str) -> answers.Subscriber:
        """A subscriber with what waits for it, which is counted on disk."""
        [info] = await self._describe([self.get(name)])
        return info

    async def list(self, *, after: str = "", limit: int = 100) -> Sequence[answers.Subscriber]:
        """Subscribers by name, a page of them."""
        return await self._describe(self._directory.subscribers(after, limit))

    async def _describe(self, subscribers: Sequence[Subscriber]) -> Sequence[answers.Subscriber]:
        reader, numbers = self._store.reader, [subscriber.number for subscriber in subscribers]
        backlogs = await asyncio.to_thread(reader.backlogs, numbers)
        letters = await asyncio.to_thread(reader.dead_letter_counts, numbers)
        return [
            answers.Subscriber(
                subscriber=one.name,
                cursor=one.cursor,
                backlog=backlogs.get(one.number, 0),
                dropped=one.dropped,
                dropped_through=one.dropped_through,
                subscriptions=len(one.subscriptions),
                sessions=len(one.streams),
                delivered=one.delivered,
                webhook=self._webhooks.describe(one.name),
                dead_letters=letters.get(one.number, 0),
                last_error=self._webhooks.last_error(one.name),
                feeds=sorted({each.wanted.feed for each in one.subscriptions.values()}),
            )
            for one in subscribers
        ]
