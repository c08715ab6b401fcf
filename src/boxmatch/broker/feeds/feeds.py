"""Feeds come, gain attributes, give up precision or take it back, and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from boxmatch.broker.changes import Changes, uninterrupted
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.event_feed import Adaptation, EventFeed
from boxmatch.broker.feeds.pipeline import EventPipeline
from boxmatch.broker.feeds.spec import FeedInfo, FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.monitoring.history import History
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.store import LoggedEvent, Store
from boxmatch.broker.subscribers.directory import Directory, Feed
from boxmatch.errors import BrokerError, FeedExistsError, SchemaError
from boxmatch.model.filters.document_axes import document_at
from boxmatch.model.schema import Schema
from boxmatch.wire.requests import Adaptive, FeedRetention


@dataclass(eq=False)
class Feeds:
    """All feeds of a broker. Each change is on disk, and in effect, when it returns."""

    _store: Store
    _directory: Directory
    _pipeline: EventPipeline
    _metrics: Metrics
    _history: History
    _changes: Changes
    _clock: Callable[[], float]

    def list(self) -> Sequence[FeedInfo]:
        """By name."""
        return [entry.info() for entry in self._directory.feeds()]

    def get(self, name: str) -> FeedInfo:
        return self._directory.feed(name).info()

    async def read_log(
        self, name: str, after: int, limit: int, through: int | None = None
    ) -> Sequence[LoggedEvent]:
        """What was published to a feed, from the log."""
        number = self._directory.feed(name).feed.number
        return await asyncio.to_thread(self._store.reader.events, number, after, limit, through)

    def first_sequence(self, name: str) -> int:
        """The oldest number in the log of a feed; the next one if it is empty."""
        return self._store.first_sequence(self._directory.feed(name).feed.number)

    @uninterrupted
    async def create(self, spec: FeedSpec) -> FeedInfo:
        """A new feed."""
        if self._directory.has_feed(spec.name):
            raise FeedExistsError(spec.name)
        feed: Feed
        if spec.kind == "events":
            feed = EventFeed(spec, 0)
        else:
            feed = StateFeed(spec, 0, self._clock)
            await asyncio.to_thread(state_feed.warm_up)
        # Of two at once the store refuses the second.
        feed.number = await self._store.commit(lambda transaction: transaction.put_feed(spec))
        return self._directory.add_feed(feed).info()

    @uninterrupted
    async def extend(self, name: str, attributes: Mapping[str, Any]) -> FeedInfo:
        """Give a feed of events more attributes. Those that it has stay as they are."""
        entry = self._directory.feed(name)
        feed = entry.feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"feed {name!r} is a state feed: its spaces stay as they are")
        more = Schema(attributes)
        async with self._changes.lock(f"feed {name}"):  # else of two at once one would be forgotten
            known = feed.spec.schema
            for attribute in more:
                if attribute.name in known.names:
                    raise SchemaError(f"feed {name!r} has an attribute {attribute.name!r} already")
                if document_at(known, attribute.name):  # filters compare it with any type
                    raise SchemaError(
                        f"events of feed {name!r} may have an attribute {attribute.name!r} "
                        "already, of any type"
                    )
            spec = replace(feed.spec, spaces={name: Schema([*known, *more])})
            await self._store.commit(
                lambda transaction: transaction.replace_feed(feed.number, spec)
            )
            await self._pipeline.call(feed, lambda: feed.extend(spec))
        return entry.info()

    @uninterrupted
    async def adapt(self, name: str, adaptive: Adaptive | None) -> FeedInfo:
        """Let a feed of events give up precision under load, or be exact always (None)."""
        entry = self._directory.feed(name)
        feed = entry.feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"feed {name!r} is a state feed, which is always exact")
        Adaptation(adaptive)  # or say why not
        async with self._changes.lock(f"feed {name}"):
            spec = replace(feed.spec, adaptive=adaptive)
            await self._store.commit(
                lambda transaction: transaction.replace_feed(feed.number, spec)
            )
            await self._pipeline.call(feed, lambda: feed.adapt(spec))
        return entry.info()

    @uninterrupted
    async def retain(self, name: str, retention: FeedRetention | None) -> FeedInfo:
        """Keep the log of a feed so long, or as those of all feeds (None)."""
        entry = self._directory.feed(name)
        feed = entry.feed
        async with self._changes.lock(f"feed {name}"):
            spec = replace(feed.spec, retention=retention)
            await self._store.commit(
                lambda transaction: transaction.replace_feed(feed.number, spec), frees=True
            )
            feed.spec = spec
        return entry.info()

    @uninterrupted
    async def drop(self, name: str) -> None:
        """Forget a feed, its log and all subscriptions to it."""
        feed = self._directory.feed(name).feed
        number = feed.number
        await self._pipeline.call(feed, lambda: None)  # what is on its way is stored before
        await asyncio.to_thread(self._store.drop_feed, number)
        await self._directory.drop_feed(name)
        self._metrics.forget_feed(name)
        self._history.forget_feed(name)
