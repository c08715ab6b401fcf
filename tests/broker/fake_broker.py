"""A broker without threads and disk, for what a real one does not do on request."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.settings import Settings
from boxmatch.broker.startup import Startup
from boxmatch.broker.store.rows import Notification
from boxmatch.broker.subscribers.subscribers import Subscriber
from boxmatch.errors import UnknownFeedError
from boxmatch.model.schema import Schema
from boxmatch.wire import responses
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.responses import Receipt


class FakeBroker:
    """All parts of a broker in one. There is one feed, `trades`; all subscribers share one stream
    of notifications, and `error` is raised if set.
    """

    def __init__(self) -> None:
        self.ready = True
        self.failure: str | None = None
        self.startup = Startup()
        self.store = SimpleNamespace(failure=None)
        self.settings = Settings(data=Path("unused"))
        self.metrics = Metrics()
        self.directory = self.pipeline = self.notifications = self.subscribers = self
        self.spec = FeedSpec(name="trades", spaces={"trades": Schema({"price": "float"})})
        self.error: Exception | None = None
        self.published: list[Events] = []
        self.acknowledged: list[int] = []
        self.known = Subscriber(1, "ann")

    def feed(self, name: str) -> SimpleNamespace:
        if name != "trades":
            raise UnknownFeedError(name)
        return SimpleNamespace(feed=SimpleNamespace(spec=self.spec))

    def check_room(self, feed: object) -> None:
        """There is always room."""

    async def publish(
        self, feed: str, events: Events, *, wait: bool = True, key: str | None = None
    ) -> Receipt:
        if self.error is not None:
            raise self.error
        self.published.append(events)
        return Receipt(1, len(events.rows), len(events.rows), wait)

    def get(self, name: str) -> Subscriber:
        return self.known

    async def describe(self, name: str) -> responses.Subscriber:
        return responses.Subscriber(
            subscriber=name, cursor=self.known.cursor, backlog=0, dropped=0, dropped_through=0,
            subscriptions=0, sessions=0, delivered=0,
        )  # fmt: skip

    async def acknowledge(self, subscriber: str, sequence: int, *, wait: bool = True) -> int:
        self.acknowledged.append(sequence)
        self.known.cursor = max(self.known.cursor, sequence)
        return self.known.cursor

    def stream(self, subscriber: str, *, after: int | None = None) -> NotificationStream:
        return NotificationStream(
            self.known, self._read, self.known.cursor if after is None else after
        )

    async def _read(self, subscriber: int, after: int, limit: int) -> list[Notification]:
        if self.error is not None:
            raise self.error
        return []

    def offer(self, *sequences: int, body: bytes = b'{"price":3.0}') -> None:
        """Notifications that have just become durable."""
        notifications = [Notification(number, "trades", 1.5, ["s"], body) for number in sequences]
        for stream in tuple(self.known.streams):
            stream.offer(notifications)
