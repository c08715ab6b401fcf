"""Responses of the broker. A client ignores fields that a later broker adds.

Fields have defaults where a client can do without them; the broker writes all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field, to_builtins

from boxmatch.model import explanation
from boxmatch.model.explanation import Predicate
from boxmatch.wire.requests import (
    Adaptive,
    Attributes,
    CloudEventsMode,
    FeedKind,
    FeedRetention,
    Sharing,
    Unknown,
)

if TYPE_CHECKING:
    from boxmatch.model.schema import Schema


class ResponseBody(Struct, frozen=True):
    """What is said, or a part of it."""


# Feeds


class Feed(ResponseBody, frozen=True, kw_only=True):
    """A feed and what is in it."""

    name: str
    kind: FeedKind = "events"
    schema_json: Attributes | UnsetType = field(default=UNSET, name="schema")
    """Of a feed of events."""
    spaces_json: dict[str, Attributes] | UnsetType = field(default=UNSET, name="spaces")
    """Of a state feed."""
    unknown: Unknown = "refuse"
    leave: bool = True
    """Whether `leave` is told (state feeds)."""
    index: str = "tile"
    adaptive: Adaptive | None = None
    retention: FeedRetention | None = None
    """None: as the broker keeps events of all feeds."""
    rate: float = 0.0
    """The rate of false matches that is tolerated at the moment; 0 is exact."""
    sampled_matches: int = 0
    """Matches at a rate above 0 that were looked at again, and how many of them were false."""
    sampled_false: int = 0
    subscriptions: int = 0
    publications: int = 0
    events: int = 0
    """Published since the broker started."""
    matches: int = 0
    last_sequence: int = 0

    @property
    def spaces(self) -> Mapping[str, Schema]:
        """The schemas by name. A feed of events has one, called as the feed."""
        from boxmatch.model.schema import Schema

        if self.spaces_json is not UNSET:
            found = self.spaces_json
        else:
            found = {self.name: {} if self.schema_json is UNSET else self.schema_json}
        return {name: Schema(to_builtins(one)) for name, one in found.items()}

    @property
    def schema(self) -> Schema:
        """The schema of a feed of events."""
        return next(iter(self.spaces.values()))


class Feeds(ResponseBody, frozen=True):
    feeds: list[Feed]


class Receipt(ResponseBody, frozen=True):
    """Where events are in the log. `repeated`: they were there already, under the same key.

    To a client `first` and `last` are None if there were no events, or if the broker was not
    waited for; over the network that is 0.
    """

    first: int | None
    last: int | None
    count: int
    durable: bool
    repeated: bool = False


class LoggedEvent(ResponseBody, frozen=True):
    """An event in the log of its feed."""

    sequence: int
    at: float
    event: dict[str, Any]


class EventPage(ResponseBody, frozen=True):
    """A part of a feed's log: go on with `after=page.next`."""

    events: list[LoggedEvent]
    next: int
    last: int
    """The newest number in the log of the broker."""
    first: int
    """The oldest that is still kept."""


# Publications


class Publication(ResponseBody, frozen=True, kw_only=True):
    """What a state feed knows of one publication."""

    id: str
    regions: dict[str, dict[str, Any]] = {}
    filter: str | None = None


# Subscriptions


class Subscription(ResponseBody, frozen=True, kw_only=True):
    """A subscription as the broker holds it."""

    subscriber: str
    id: str
    feed: str
    filter: str | dict[str, Any] | None = None
    dialect: str | None = None
    """Of the filter; None is SQL."""
    regions: dict[str, dict[str, Any]] | None = None
    region_filter: str | None = None
    ttl: float | None = None
    exact: bool = False
    created: float = 0.0
    updated: float = 0.0
    matches: int = 0
    """Since the broker started."""
    put_warning: (
        Annotated[
            str | None,
            Meta(
                description="That no event can match, or what makes the filter expensive; "
                "only in the answer to the PUT."
            ),
        ]
        | UnsetType
    ) = field(default=UNSET, name="warning")

    @property
    def warning(self) -> str | None:
        """That no event can match, or what makes the filter expensive; only in the answer to the
        call that made it.
        """
        return self.put_warning or None


class Subscriptions(ResponseBody, frozen=True):
    subscriptions: list[Subscription]
    next: str | None = None


class Counted(ResponseBody, frozen=True):
    count: int


class Explanation(ResponseBody, frozen=True):
    matched: bool
    alternatives: tuple[tuple[Predicate, ...], ...]
    never: bool = False
    text: str = ""

    def of(self, subscription: str) -> explanation.Explanation:
        """As a matcher would explain it."""
        return explanation.Explanation(subscription, self.matched, self.alternatives)


class Condition(ResponseBody, frozen=True):
    attribute: Annotated[str, Meta(description="Or the expression, that is compared.")]
    wanted: str
    cost: Annotated[
        Literal["box", "axis"],
        Meta(description="`axis`: the value of an expression is worked out for every event."),
    ] = "box"


class RecentEvent(LoggedEvent, frozen=True):
    matches: bool
    predicates: Annotated[
        list[Predicate], Meta(description="Of the box that matches, or is nearest.")
    ]


class DryRun(ResponseBody, frozen=True):
    """How many of the last `events` of a feed a filter would have wanted, and a few of them. A key
    that may not read the feed is told none of it.
    """

    events: Annotated[int, Meta(description="Only for keys that may read the feed.")] | None
    matches: Annotated[int, Meta(description="The same.")] | None
    examples: Annotated[
        list[LoggedEvent], Meta(description="Only for keys that may read the feed.")
    ] = []
    boxes: Annotated[
        list[list[Condition]], Meta(description="What the filter compiles to: the first 64.")
    ] = []
    box_count: int = 0
    residual: Annotated[
        list[str],
        Meta(description="Conditions that no box expresses: checked for the events in a box."),
    ] = []
    cost: Annotated[
        Literal["box", "axis", "residual"], Meta(description="What the filter needs most.")
    ] = "box"
    warning: Annotated[
        str | None, Meta(description="That no event can match, or what makes the filter expensive.")
    ] = None
    recent: Annotated[
        list[RecentEvent], Meta(description="Newest first; only for keys that may read the feed.")
    ] = []


# Subscribers


class Webhook(ResponseBody, frozen=True, kw_only=True):
    """Where a subscriber's notifications are posted to."""

    url: str
    timeout: float = 10.0
    attempts: int = 8
    batch: int = 100
    cloudevents: CloudEventsMode | None = None
    paused: bool = False
    last_error: str | None = None
    made_secret: (
        Annotated[str | None, Meta(description="Only in the answer to the PUT that made it.")]
        | UnsetType
    ) = field(default=UNSET, name="secret")

    @property
    def secret(self) -> str | None:
        """Only in the answer to the call that made it."""
        return self.made_secret or None


Mode = Literal["cursor", "shared"]
"""Whether a subscriber acknowledges all up to a number, or one by one."""


class Replay(ResponseBody, frozen=True, kw_only=True):
    """Events that a subscriber gets again, matched against its subscriptions as they are."""

    feed: str | None = None
    """None: of all feeds of events."""
    subscription: str | None = None
    """None: of all its subscriptions."""
    after: int
    """All up to this number is acknowledged, or was not asked for."""
    through: int


class Subscriber(ResponseBody, frozen=True, kw_only=True):
    """A subscriber, as the broker sees it."""

    subscriber: str
    cursor: int
    """All up to this number is acknowledged."""
    backlog: int = 0
    dropped: int = 0
    dropped_through: int = 0
    subscriptions: int = 0
    sessions: int = 0
    delivered: int = 0
    """Since the broker started."""
    dead_letters: int = 0
    last_error: str | None = None
    feeds: list[str] = []
    replays: list[Replay] = []
    webhook: Webhook | None = None
    mode: Mode = "cursor"
    sharing: Sharing | None = None
    """If the mode is `shared`."""
    in_flight: int = 0
    """Notifications that were handed out and have a deadline (`shared`)."""
    redelivered: int = 0
    """Notifications that were handed out again, since the broker started (`shared`)."""


class Subscribers(ResponseBody, frozen=True):
    subscribers: list[Subscriber]
    next: str | None = None


class DeadLetter(ResponseBody, frozen=True, kw_only=True):
    """Notifications that a webhook did not take, or that were handed out too often."""

    number: int
    first: int
    last: int
    attempts: int
    reason: str
    at: float
    body: Any = None


class DeadLetters(ResponseBody, frozen=True):
    dead_letters: list[DeadLetter]
    next: int | None = None


class Replayed(ResponseBody, frozen=True):
    replayed: int


class Discarded(ResponseBody, frozen=True):
    discarded: int


# Notifications


class Notification(ResponseBody, frozen=True, omit_defaults=True):
    """An event that a subscriber's subscriptions want, or a change of state that concerns them."""

    sequence: int
    """Grows over all feeds; a subscriber hears of a number at most once."""
    feed: str
    at: float
    """When it was published, in seconds since 1970."""
    subscriptions: tuple[str, ...]
    rate: float = field(default_factory=float)  # unlike a plain default, this is always written
    """The rate of false matches that was tolerated; 0 is exact."""
    event: dict[str, Any] | None = None
    """None for a state feed, which tells a `change`."""
    change: dict[str, Any] | None = None
    deliveries: int = 0
    """How many times it was handed out, with this one, if the subscriber shares its
    notifications; otherwise 0.
    """

    @property
    def body(self) -> dict[str, Any]:
        """The event or the change."""
        return self.event or self.change or {}

    @property
    def time(self) -> datetime:
        """`at` as a datetime in UTC."""
        return datetime.fromtimestamp(self.at, UTC)


class NotificationPage(ResponseBody, frozen=True):
    """Notifications that were waiting: go on with `after=page.next`."""

    notifications: list[Notification]
    cursor: int
    """All up to this number is acknowledged."""
    next: int
    dropped: int = 0
    """Notifications that this subscriber has lost because it did not read them in time."""


class Delivery(ResponseBody, frozen=True):
    """What is posted to a webhook."""

    notifications: list[Notification]


class Cursor(ResponseBody, frozen=True):
    cursor: int
    """All up to this number is acknowledged."""
    count: Annotated[
        int | UnsetType,
        Meta(description="Of single notifications: for how many of them this made a difference."),
    ] = UNSET


# Over a WebSocket


class Ready(ResponseBody, frozen=True, tag_field="type", tag="ready"):
    """The first message: where it goes on."""

    cursor: int
    window: int | None = None
    dropped: int | None = None
    after: int | UnsetType = UNSET
    """Notifications with greater numbers follow, unless the subscriber shares them. Below what was
    received before: of a replay.
    """
    ack_seconds: float | UnsetType = UNSET
    """If the subscriber shares its notifications: how long a connection has for each."""


class Frame(ResponseBody, frozen=True, tag_field="type", tag="notifications"):
    """Some notifications."""

    notifications: list[Notification]


class Refusal(ResponseBody, frozen=True, tag_field="type", tag="error"):
    """Why the connection is closed."""

    code: str = ""
    message: str = ""


# Everything else


class Health(ResponseBody, frozen=True):
    status: str


class Fault(ResponseBody, frozen=True):
    """A place in a request, and what is wrong there."""

    place: str = field(name="in")
    message: str


class StartProgress(ResponseBody, frozen=True):
    """What a broker does before it is ready: `done` of `total`, which is 0 if it is not known."""

    step: str
    feed: str | None
    done: int
    total: int
    seconds: float
    """Since it was started."""


class Problem(ResponseBody, frozen=True, kw_only=True):
    """RFC 9457. `position` is an offset in a filter's text, `index` that of an event, `progress`
    that of a broker which starts.
    """

    type: str
    title: str
    status: int
    detail: str
    position: int | UnsetType = UNSET
    index: int | UnsetType = UNSET
    attribute: str | UnsetType = UNSET
    errors: list[Fault] | UnsetType = UNSET
    retry_after: float | UnsetType = UNSET
    progress: StartProgress | UnsetType = UNSET


Message = Ready | Frame | Refusal
