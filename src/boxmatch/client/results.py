"""What the broker answers, as plain values. Fields that a later broker adds are left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.model.schema import Schema

T = TypeVar("T")


class Notification(NamedTuple):
    """An event that a subscriber's subscriptions want, or a change of state that concerns them."""

    sequence: int
    """Grows over all feeds; a subscriber hears of a number at most once."""
    feed: str
    at: float
    """When it was published, in seconds since 1970."""
    subscriptions: tuple[str, ...]
    event: dict[str, Any] | None = None
    """None for a state feed, which tells a `change`."""
    change: dict[str, Any] | None = None
    rate: float = 0.0
    """The rate of false matches that was tolerated; 0 is exact."""

    @property
    def body(self) -> dict[str, Any]:
        """The event or the change."""
        return self.event or self.change or {}

    @property
    def time(self) -> datetime:
        """`at` as a datetime in UTC."""
        return datetime.fromtimestamp(self.at, UTC)

    @classmethod
    def read(cls, document: Any) -> Notification:
        """The notification that a message holds."""
        try:
            return cls(
                document["sequence"],
                document["feed"],
                document["at"],
                tuple(document["subscriptions"]),
                document.get("event"),
                document.get("change"),
                document.get("rate", 0.0),
            )
        except (KeyError, TypeError, AttributeError):
            raise _strange("notification", document) from None


class LoggedEvent(NamedTuple):
    """An event in the log of its feed."""

    sequence: int
    at: float
    event: dict[str, Any]

    @classmethod
    def read(cls, document: Any) -> LoggedEvent:
        try:
            return cls(document["sequence"], document["at"], document["event"])
        except (KeyError, TypeError):
            raise _strange("event", document) from None


class EventPage(NamedTuple):
    """A part of a feed's log: go on with `after=page.next`."""

    events: list[LoggedEvent]
    next: int
    last: int
    """The newest number in the log of the broker."""
    first: int
    """The oldest that is still kept."""


class NotificationPage(NamedTuple):
    """Notifications that were waiting: go on with `after=page.next`."""

    notifications: list[Notification]
    cursor: int
    """All up to this number is acknowledged."""
    next: int
    dropped: int
    """Notifications that this subscriber has lost because it did not read them in time."""


@dataclass(frozen=True)
class Receipt:
    """Where events are in the log. `repeated`: they were there already, under the same key.

    `first` and `last` are None if there were no events, or if the broker was not waited for.
    """

    first: int | None
    last: int | None
    count: int
    durable: bool
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
class Feed:
    """A feed and what is in it."""

    name: str
    kind: Literal["events", "state"] = "events"
    spaces: Mapping[str, Schema]
    """A feed of events has one, called as the feed."""
    unknown: str = "refuse"
    leave: bool = True
    subscriptions: int = 0
    publications: int = 0
    events: int = 0
    """Published since the broker started."""
    matches: int = 0
    last_sequence: int = 0

    @property
    def schema(self) -> Schema:
        """The schema of a feed of events."""
        return next(iter(self.spaces.values()))


@dataclass(frozen=True, kw_only=True)
class Subscription:
    """A subscription as the broker holds it."""

    subscriber: str
    id: str
    feed: str
    filter: str | Mapping[str, Any] | None = None
    regions: Mapping[str, Mapping[str, Any]] | None = None
    region_filter: str | None = None
    ttl: float | None = None
    exact: bool = False
    created: float = 0.0
    updated: float = 0.0
    matches: int = 0
    """Since the broker started."""


@dataclass(frozen=True)
class DryRun:
    """How many of the last `events` of a feed a filter would have wanted, and a few of them."""

    events: int
    matches: int
    examples: list[LoggedEvent]


@dataclass(frozen=True, kw_only=True)
class Subscriber:
    """A subscriber, as the broker sees it."""

    subscriber: str
    cursor: int
    backlog: int = 0
    dropped: int = 0
    dropped_through: int = 0
    subscriptions: int = 0
    sessions: int = 0
    delivered: int = 0
    dead_letters: int = 0
    last_error: str | None = None
    feeds: list[str] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Publication:
    """What a state feed knows of one publication."""

    id: str
    regions: Mapping[str, Any] = field(default_factory=dict)
    filter: str | None = None


@dataclass(frozen=True, kw_only=True)
class Webhook:
    """Where a subscriber's notifications are posted to."""

    url: str
    timeout: float = 10.0
    attempts: int = 8
    batch: int = 100
    paused: bool = False
    last_error: str | None = None
    secret: str | None = None
    """Only in the answer to the call that made it."""


@dataclass(frozen=True, kw_only=True)
class DeadLetter:
    """Notifications that a webhook did not take."""

    number: int
    first: int
    last: int
    attempts: int
    reason: str
    at: float
    body: Any = None


def _wanted(kind: type[Any]) -> tuple[frozenset[str], frozenset[str]]:
    known = fields(kind)
    needed = {f.name for f in known if f.default is MISSING and f.default_factory is MISSING}
    return frozenset(f.name for f in known), frozenset(needed)


def read(kind: type[T], document: Any) -> T:
    """One of the dataclasses above from the broker's JSON."""
    known, needed = _wanted(kind)
    if not isinstance(document, dict) or not needed <= document.keys():
        raise _strange(kind.__name__.lower(), document)
    return kind(**{name: value for name, value in document.items() if name in known})


def _strange(what: str, document: object) -> ClientError:
    return ClientError(f"the broker's answer is not a {what}: {document!r:.200}")
