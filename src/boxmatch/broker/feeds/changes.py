"""Feeds come, gain attributes, give up precision or take it back, and go."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from boxmatch.broker.core import Core
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.adaptation import Adaptation
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.recovery import Feed
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.messages import Adaptive, FeedInfo, FeedSpec
from boxmatch.errors import BrokerError, FeedExistsError, SchemaError
from boxmatch.model.schema import Attribute, Schema


class FeedChanges:
    """Each is on disk, and in effect, when it returns."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._turn = asyncio.Lock()

    async def create(self, spec: FeedSpec) -> FeedInfo:
        """A new feed."""
        if self._core.directory.has_feed(spec.name):
            raise FeedExistsError(spec.name)
        feed: Feed
        if spec.kind == "events":
            feed = EventFeed(spec, 0)
        else:
            feed = StateFeed(spec, 0, self._core.clock)
            await asyncio.to_thread(state_feed.warm_up)
        # Of two at once the store refuses the second.
        feed.number = await self._core.write(lambda transaction: transaction.put_feed(spec))
        return self._core.directory.add_feed(feed).info()

    async def extend(self, name: str, attributes: Mapping[str, Any]) -> FeedInfo:
        """Give a feed of events more attributes. Those that it has stay as they are."""
        entry = self._core.directory.feed(name)
        feed = entry.feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"feed {name!r} is a state feed: its spaces stay as they are")
        more = Schema(attributes)
        async with self._turn:  # else of two at once one would be forgotten
            known = feed.spec.schema
            for attribute in more:
                if attribute.name in known.names:
                    raise SchemaError(f"feed {name!r} has an attribute {attribute.name!r} already")
            whole: list[Attribute] = [*known, *more]
            spec = replace(feed.spec, spaces={name: Schema(whole)})
            await self._core.write(lambda transaction: transaction.replace_feed(feed.number, spec))
            await self._core.flow.call(lambda: feed.extend(spec))
        return entry.info()

    async def adapt(self, name: str, adaptive: Adaptive | None) -> FeedInfo:
        """Let a feed of events give up precision under load, or be exact always (None)."""
        entry = self._core.directory.feed(name)
        feed = entry.feed
        if not isinstance(feed, EventFeed):
            raise BrokerError(f"feed {name!r} is a state feed, which is always exact")
        Adaptation(adaptive)  # or say why not
        async with self._turn:
            spec = replace(feed.spec, adaptive=adaptive)
            await self._core.write(lambda transaction: transaction.replace_feed(feed.number, spec))
            await self._core.flow.call(lambda: feed.adapt(spec))
        return entry.info()

    async def drop(self, name: str) -> None:
        """Forget a feed, its log and all subscriptions to it."""
        number = self._core.directory.feed(name).feed.number
        await self._core.flow.call(lambda: None)  # what is on its way is stored before
        await self._core.write(lambda transaction: transaction.drop_feed(number), frees=True)
        self._core.directory.drop_feed(name)
