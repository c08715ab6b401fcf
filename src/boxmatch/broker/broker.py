"""`Broker`: its parts, and how they are started and stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from boxmatch.broker.changes import Changes
from boxmatch.broker.delivery.notifications import Notifications
from boxmatch.broker.delivery.replays import Replays
from boxmatch.broker.delivery.shared_inboxes import SharedInboxes
from boxmatch.broker.delivery.webhooks import Webhooks
from boxmatch.broker.feeds import state_feed
from boxmatch.broker.feeds.event_feed import EventFeed
from boxmatch.broker.feeds.feeds import Feeds
from boxmatch.broker.feeds.pipeline import EventPipeline
from boxmatch.broker.feeds.preview import Preview
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.feeds.state_feed import StateFeed
from boxmatch.broker.feeds.state_operations import StateOperations
from boxmatch.broker.housekeeping import Housekeeping
from boxmatch.broker.monitoring.history import History
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.settings import Settings
from boxmatch.broker.startup import Startup
from boxmatch.broker.store import Store
from boxmatch.broker.subscribers.directory import Directory
from boxmatch.broker.subscribers.subscribers import Subscribers
from boxmatch.broker.subscribers.subscriptions import Subscriptions
from boxmatch.engine.memory import pausing_full_collections
from boxmatch.model.schema import Schema


class Broker:
    """Feeds, subscriptions and delivery, behind whatever protocol.

    After `load` there is all that was stored. From `start` on each part is an attribute, to be used
    in the event loop in which the broker was started. What is acknowledged is durable, together
    with who gets it.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        metrics: Metrics | None = None,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics or Metrics()
        self.clock = clock
        self._monotonic = monotonic
        self.directory = Directory(store, clock)
        self.startup = Startup()
        self.ready = False

    @classmethod
    def open(cls, settings: Settings, metrics: Metrics | None = None) -> Broker:
        """A broker with all that its directory holds; takes as long as there is much of it."""
        store = Store.open(settings.data, sync=settings.sync)
        try:
            broker = cls(settings, store, metrics)
            broker.load()
            return broker
        except BaseException:
            store.close()
            raise

    def load(self) -> None:
        """Read what there is, and have everything compiled before the first event comes. In any
        thread; `startup` says how far it is.
        """
        with pausing_full_collections():
            self.directory.load(self.startup)
        self.startup.begin("loading kernels")
        probe = Schema({"x": "int", "s": "string"})
        EventFeed(FeedSpec(name="probe", spaces={"probe": probe}), 0).matcher.warmup()
        if any(isinstance(entry.feed, StateFeed) for entry in self.directory.feeds()):
            state_feed.warm_up()

    async def start(self) -> None:
        """Begin to work in the running event loop."""
        settings, store, directory, clock = self.settings, self.store, self.directory, self.clock
        self._changes = changes = Changes()
        self.replays = Replays(store, directory, changes, self.metrics, settings.replay_rate)
        self.notifications = Notifications(store, directory, self.replays)
        self.pipeline = EventPipeline(
            store, directory, self.notifications, self.metrics, clock,
            most_events=settings.queue_events, most_bytes=settings.queue_bytes,
        )  # fmt: skip
        self.state = StateOperations(store, directory, self.pipeline, self.notifications, clock)
        self.subscriptions = Subscriptions(
            store, directory, self.pipeline, self.state, changes, clock,
            settings.limits.subscriptions,
        )  # fmt: skip
        self.preview = Preview(store, directory, settings.recent_events)
        self.webhooks = Webhooks(
            store, directory, self.notifications, changes, self.metrics, clock, settings
        )
        self.shared = SharedInboxes(
            store, directory, self.notifications, self.webhooks, changes, self.metrics, clock,
            self._monotonic,
        )  # fmt: skip
        self.subscribers = Subscribers(store, directory, self.webhooks)
        self.history = History(
            store, directory, self.pipeline, self.webhooks, self.metrics, clock, settings
        )
        self.feeds = Feeds(
            store, directory, self.pipeline, self.metrics, self.history, changes, clock
        )
        self.housekeeping = Housekeeping(self)
        self.metrics.watch(self)
        self.startup.finish()
        self.ready = True

    @property
    def failure(self) -> str | None:
        """Why the process has to be started again, if so: a thread without which nothing can be
        published has ended.
        """
        if self.ready and not self.pipeline.is_alive:
            return "a matching thread has ended"
        if self.ready and not self.store.is_alive:
            return "the thread that writes to the disk has ended"
        return None

    async def stop(self) -> None:
        """Finish what was accepted, and close what is on disk."""
        self.ready = False
        await self._changes.finish()
        await self.history.stop()
        await self.webhooks.close()
        self.shared.close()
        self.notifications.close()
        await self.pipeline.stop()
        await self.housekeeping.stop()
        await asyncio.to_thread(self.store.close)
        await asyncio.sleep(0)  # what became durable last is answered
