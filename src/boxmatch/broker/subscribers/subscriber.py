"""Subscribers: a subscriber has subscriptions, one inbox over all feeds, and one cursor into it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from boxmatch.wire import answers
from boxmatch.wire.requests import Wanted

if TYPE_CHECKING:
    from boxmatch.broker.delivery.notifications import NotificationStream
    from boxmatch.broker.feeds.slots import Slots


@dataclass(eq=False, slots=True)
class Subscription:
    """One subscription of a subscriber; `slot` is its number in its feed."""

    subscriber: Subscriber
    id: str
    wanted: Wanted
    created: float
    updated: float
    slot: int = -1
    slots: Slots | None = None

    def info(self) -> answers.Subscription:
        """As it is shown to its subscriber."""
        wanted = self.wanted
        return answers.Subscription(
            subscriber=self.subscriber.name,
            id=self.id,
            feed=wanted.feed,
            filter=wanted.filter,
            regions=wanted.regions,
            region_filter=wanted.region_filter,
            ttl=wanted.ttl,
            exact=wanted.exact,
            created=self.created,
            updated=self.updated,
            matches=0 if self.slots is None else self.slots.matches(self.slot),
        )


@dataclass(eq=False, slots=True)
class Subscriber:
    """A subscriber as the broker has it in memory. Used in the event loop only."""

    number: int
    name: str
    cursor: int = 0
    """All up to this sequence number is acknowledged."""
    stored: int = 0
    """The same on disk, which may lag behind."""
    last: int = 0
    """The newest sequence number of which there is, or was, a notification for it."""
    dropped: int = 0
    dropped_through: int = 0
    delivered: int = 0
    backlog: int = 0
    """As of the last count."""
    dead_letters: int = 0
    """The same."""
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    streams: set[NotificationStream] = field(default_factory=set)
