"""What goes in and out of the broker: plain values that every part of it understands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import orjson

from boxmatch.model.schema import Schema

FeedKind = Literal["events", "state"]
Unknown = Literal["refuse", "carry"]
"""What becomes of attributes of an event that the schema lacks: an error, or just delivered."""

_VALUE_BYTES = 64
"""Of a value in a dict, together with its place there."""


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """How much precision a feed of events may give up under load; see `boxmatch.adaptive`."""

    threshold: float = 0.005
    """Seconds that events may wait before any is given up."""
    step: float = 0.0001
    maximum: float = 0.001
    """Never more false matches than this, for each right one and in expectation."""


@dataclass(frozen=True, kw_only=True)
class FeedSpec:
    """What a feed is made of. A feed of events has one schema, a state feed has named spaces."""

    name: str
    kind: FeedKind = "events"
    spaces: Mapping[str, Schema]
    """A feed of events has one, called as the feed."""
    unknown: Unknown = "refuse"
    index: str = "tile"
    """Of a feed of events."""
    adaptive: Adaptive | None = None
    """Of a feed of events; None is always exact."""
    leave: bool = True
    """Whether `leave` is told (state feeds)."""

    @property
    def schema(self) -> Schema:
        """The schema of a feed of events."""
        return next(iter(self.spaces.values()))


class FeedInfo(NamedTuple):
    """A feed and what is in it."""

    spec: FeedSpec
    number: int
    subscriptions: int
    publications: int
    events: int
    """Published since the broker started."""
    matches: int
    last_sequence: int
    rate: float = 0.0
    """The rate of false matches that is tolerated at the moment; 0 is exact."""
    sampled_matches: int = 0
    """Matches at a rate above 0 that were looked at again, and how many of them were false."""
    sampled_false: int = 0
    waiting: int = 0
    """Events that are received, and not yet durable."""


class Events(NamedTuple):
    """Events as they came: for the matcher as dicts, for the log as JSON, one each."""

    rows: list[dict[str, Any]]
    bodies: list[bytes]

    @property
    def nbytes(self) -> int:
        """About what they take in memory."""
        return sum(map(len, self.bodies)) + _VALUE_BYTES * sum(map(len, self.rows))


@dataclass(frozen=True)
class Receipt:
    """Where events are in the log. `repeated`: they were there already, under the same key."""

    first: int
    last: int
    count: int
    durable: bool
    repeated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """What a subscription asks for: a filter (feeds of events), or regions (state feeds)."""

    feed: str
    filter: str | Mapping[str, Any] | None = None
    regions: Mapping[str, Mapping[str, Any]] | None = None
    region_filter: str | None = None
    ttl: float | None = None
    exact: bool = False
    """Matches found under an error bound are checked again before they are delivered."""


class SubscriptionInfo(NamedTuple):
    """A subscription as it is stored."""

    subscriber: str
    id: str
    wanted: Wanted
    created: float
    updated: float
    matches: int
    """Since the broker started."""


class Notification(NamedTuple):
    """What is delivered: an event, or a change of state, and the subscriber's subscriptions it
    concerns.

    Sequence numbers grow over all feeds; a subscriber hears of a number at most once.
    """

    sequence: int
    feed: str
    at: float
    subscriptions: Sequence[str]
    body: bytes
    """JSON: the event, or for a state feed `kind`, `publication` and `regions`."""
    kind: FeedKind = "events"
    rate: float = 0.0
    """The rate of false matches that was tolerated; 0 is exact."""

    def to_json(self) -> bytes:
        """The notification as JSON, with the body as it is."""
        head = {
            "sequence": self.sequence,
            "feed": self.feed,
            "at": self.at,
            "subscriptions": self.subscriptions,
            "rate": self.rate,
        }
        name = b',"event":' if self.kind == "events" else b',"change":'
        return orjson.dumps(head)[:-1] + name + self.body + b"}"


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where a subscriber's notifications are posted to."""

    url: str
    secret: str
    timeout: float = 10.0
    attempts: int = 8
    """How often a delivery is tried before it goes to the dead letters."""
    batch: int = 100
    paused: bool = False


class DeadLetter(NamedTuple):
    """Notifications that a webhook did not take."""

    number: int
    subscriber: str
    first: int
    last: int
    attempts: int
    reason: str
    at: float
    body: bytes


@dataclass(kw_only=True)
class SubscriberInfo:
    """A subscriber, as seen from outside."""

    subscriber: str
    cursor: int
    """All up to this number is acknowledged."""
    backlog: int
    dropped: int
    dropped_through: int
    subscriptions: int
    sessions: int
    delivered: int
    """Since the broker started."""
    webhook: Webhook | None = None
    dead_letters: int = 0
    last_error: str | None = None
    feeds: list[str] = field(default_factory=list)
