"""The shapes of what is asked and answered in JSON.

Requests are checked against these. Answers are not: they are written by hand, for speed, and the
shapes are there for the documentation; a test holds the two together.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
)
from pydantic_core import PydanticCustomError

from boxmatch.wire.http import MOST_SEQUENCE, NAME_PATTERN

NameText = Annotated[StrictStr, Field(pattern=NAME_PATTERN, min_length=1, max_length=128)]
Sequence = Annotated[StrictInt, Field(ge=0, le=MOST_SEQUENCE)]
Ttl = Annotated[float, Field(gt=0, le=10 * 366 * 86_400.0, strict=True)]
"""Seconds until it is forgotten; ten years will do."""

Scalar = StrictBool | StrictInt | Annotated[float, Field(strict=True)] | StrictStr
Filter = Annotated[
    StrictStr | dict[str, Any],
    Field(
        description="A WHERE expression, or an object: attributes with a value, a list of values, "
        "or a range as an object with `low`, `high` or both, and `low_open`, `high_open`.",
        examples=["price < 10 AND symbol IN ('A', 'B')", {"price": {"high": 10}}],
    ),
]


class Request(BaseModel):
    """What is not known is refused: it is a mistake that would otherwise go unnoticed."""

    model_config = ConfigDict(extra="forbid")


class AttributeSpec(Request):
    type: Literal["int", "float", "string", "bool", "timestamp", "enum"] | None = None
    values: list[StrictStr] | None = None
    domain: Annotated[list[Scalar], Field(min_length=2, max_length=2)] | None = None


TypeName = Literal["int", "float", "string", "bool", "timestamp"]


def _known_type(value: Any) -> Any:
    # Else each of the shapes that an attribute may have would complain by itself.
    if not isinstance(value, list | dict) and value not in get_args(TypeName):
        raise PydanticCustomError(
            "type",
            "unknown type; known types are {types}, or a list of texts",
            {"types": ", ".join(get_args(TypeName))},
        )
    return value


Attributes = dict[
    StrictStr,
    Annotated[
        TypeName | Annotated[list[StrictStr], Field(min_length=1)] | AttributeSpec,
        BeforeValidator(_known_type),
    ],
]
"""In order. A list of texts is an enum."""


class AdaptiveSpec(Request):
    threshold: Annotated[float, Field(ge=1e-6, le=60)] = 0.005
    step: Annotated[float, Field(ge=1e-9, le=0.5)] = 0.0001
    maximum: Annotated[float, Field(ge=1e-9, le=0.5)] = 0.001


class NewFeed(Request):
    name: NameText
    kind: Literal["events", "state"] = "events"
    schema_: Attributes | None = Field(None, alias="schema")
    spaces: dict[NameText, Attributes] | None = None
    unknown: Literal["refuse", "carry"] = "refuse"
    leave: StrictBool = True
    index: StrictStr = "tile"
    adaptive: AdaptiveSpec | None = None


class MoreAttributes(Request):
    attributes: Attributes = Field(min_length=1)


class Feed(BaseModel):
    name: str
    kind: Literal["events", "state"]
    schema_: Attributes | None = Field(None, alias="schema")
    spaces: dict[str, Attributes] | None = None
    unknown: Literal["refuse", "carry"]
    leave: bool
    index: str
    adaptive: AdaptiveSpec | None
    rate: float
    sampled_matches: int
    sampled_false: int
    subscriptions: int
    publications: int
    events: int
    matches: int
    last_sequence: int


class Feeds(BaseModel):
    feeds: list[Feed]


class Published(BaseModel):
    first: int
    last: int
    count: int
    durable: bool
    repeated: bool


class LoggedEvent(BaseModel):
    sequence: int
    at: float
    event: Any


class LoggedEvents(BaseModel):
    events: list[LoggedEvent]
    next: int
    first: int
    last: int


class Interval(Request):
    low: Scalar | None = None
    high: Scalar | None = None
    low_open: StrictBool = False
    high_open: StrictBool = False


Bounds = Scalar | Annotated[list[Scalar | None], Field(min_length=2, max_length=2)] | Interval
Region = dict[StrictStr, Bounds]
ChangedRegion = dict[StrictStr, Bounds | None]


class Wanted(Request):
    feed: NameText
    filter: Filter | None = None
    region: Region | None = None
    regions: Annotated[dict[StrictStr, Region], Field(min_length=1)] | None = None
    region_filter: StrictStr | None = None
    ttl: Ttl | None = None
    exact: StrictBool = False


class ManyWanted(Request):
    feed: NameText
    filters: Annotated[dict[StrictStr, Filter], Field(min_length=1, max_length=10_000)]


class Counted(BaseModel):
    count: int


class Subscription(BaseModel):
    subscriber: str
    id: str
    feed: str
    filter: Any = None
    regions: Any = None
    region_filter: str | None = None
    ttl: float | None = None
    exact: bool
    created: float
    updated: float
    matches: int


class Subscriptions(BaseModel):
    subscriptions: list[Subscription]
    next: str | None


class DryRunQuestion(Request):
    filter: Filter
    recent: Annotated[StrictInt, Field(ge=0, le=50)] = 0


class Question(Request):
    event: dict[str, Any] | None = None
    sequence: Sequence | None = None
    filter: Filter | None = None
    subscriber: NameText | None = None
    subscription: NameText | None = None


class Predicate(BaseModel):
    attribute: str
    wanted: str
    got: Any
    satisfied: bool


class Explanation(BaseModel):
    matched: bool
    never: bool
    alternatives: list[list[Predicate]]
    text: str


class Condition(BaseModel):
    attribute: str
    wanted: str


class RecentEvent(LoggedEvent):
    matches: bool
    predicates: list[Predicate] = Field(description="Of the box that matches, or is nearest.")


class DryRun(BaseModel):
    events: int
    matches: int
    examples: list[LoggedEvent] = Field(description="Only for keys that may read the feed.")
    boxes: list[list[Condition]] = Field(description="What the filter compiles to: the first 64.")
    box_count: int
    recent: list[RecentEvent] = Field(
        description="Newest first; only for keys that may read the feed."
    )


class WebhookSpec(Request):
    url: Annotated[StrictStr, Field(min_length=8, max_length=2_048)]
    secret: Annotated[StrictStr, Field(min_length=16, max_length=256)] | None = Field(
        None, description="What requests are signed with; made by the broker if it is not given."
    )
    timeout: Annotated[float, Field(ge=0.1, le=60, strict=True)] = 10.0
    attempts: Annotated[StrictInt, Field(ge=1, le=100)] = 8
    batch: Annotated[StrictInt, Field(ge=1, le=1_000)] = 100
    paused: StrictBool = False


class Webhook(BaseModel):
    url: str
    timeout: float
    attempts: int
    batch: int
    paused: bool
    last_error: str | None = None
    secret: str | None = Field(None, description="Only in the answer to the PUT that made it.")


class Subscriber(BaseModel):
    subscriber: str
    cursor: int
    backlog: int
    dropped: int
    dropped_through: int
    subscriptions: int
    sessions: int
    delivered: int
    dead_letters: int
    last_error: str | None
    feeds: list[str]
    webhook: Webhook | None


class Subscribers(BaseModel):
    subscribers: list[Subscriber]
    next: str | None


class Notification(BaseModel):
    sequence: int
    feed: str
    at: float
    subscriptions: list[str]
    rate: float
    event: Any = None
    change: Any = None


class Notifications(BaseModel):
    notifications: list[Notification]
    cursor: int
    next: int
    dropped: int


class Acknowledgement(Request):
    sequence: Sequence


class Cursor(BaseModel):
    cursor: int


class DeadLetter(BaseModel):
    number: int
    first: int
    last: int
    attempts: int
    reason: str
    at: float
    body: Any


class DeadLetters(BaseModel):
    dead_letters: list[DeadLetter]
    next: int | None


class Numbers(Request):
    numbers: Annotated[list[Sequence], Field(max_length=10_000)] | None = Field(
        None, description="Of dead letters; without them all are meant."
    )


class Replayed(BaseModel):
    replayed: int


class Discarded(BaseModel):
    discarded: int


class NewPublication(Request):
    region: Region | None = None
    regions: Annotated[dict[StrictStr, Region], Field(min_length=1)] | None = None
    filter: StrictStr | None = None
    ttl: Ttl | None = None


class PublicationChange(Request):
    region: ChangedRegion | None = None
    regions: dict[StrictStr, ChangedRegion | None] | None = None
    filter: StrictStr | None = None
    ttl: Ttl | None = None


class Publication(BaseModel):
    id: str
    regions: dict[str, dict[str, Any]]
    filter: str | None


class Health(BaseModel):
    status: str
    detail: str | None = None


class ProblemShape(BaseModel):
    """RFC 9457. `position` is an offset in a filter's text, `index` that of an event."""

    model_config = ConfigDict(title="Problem")

    type: str
    title: str
    status: int
    detail: str
    position: int | None = None
    index: int | None = None
    attribute: str | None = None
    errors: list[dict[str, str]] | None = None
    retry_after: float | None = None
