"""What the broker is asked. Unknown fields are refused: they are mistakes that would otherwise go
unnoticed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from boxmatch.model.dialects.registry import DIALECTS, SQL
from boxmatch.wire.http import MOST_NAME, MOST_SEQUENCE, NAME_PATTERN

NameText = Annotated[str, Meta(pattern=NAME_PATTERN, min_length=1, max_length=MOST_NAME)]
Sequence = Annotated[int, Meta(ge=0, le=MOST_SEQUENCE)]
Ttl = Annotated[float, Meta(gt=0, le=10 * 366 * 86_400.0)]
"""Seconds until it is forgotten; ten years will do."""

Start = Annotated[
    Sequence | str,
    Meta(
        description="The number of an event, or a time: that of the first event since. UTC, unless "
        "it has an offset.",
        examples=[1, "2026-03-01T09:30:00Z"],
    ),
]

FeedKind = Literal["events", "state"]
Unknown = Literal["refuse", "carry"]
"""What becomes of attributes of an event that the schema lacks: an error, or just delivered."""

CloudEventsMode = Literal["structured", "binary", "batched"]
NotificationFormat = Literal["notifications", "cloudevents"]

Scalar = bool | int | float | str
Filter = Annotated[
    str | dict[str, Any],
    Meta(
        description="A WHERE expression, or an object: attributes or expressions with a value, a "
        "list of values, a range as an object with `low`, `high` or both, and `low_open`, "
        "`high_open`, or a test of a text as an object with one of `like`, `ilike`, `rlike`, "
        "`contains`, `starts_with`, `ends_with`.",
        examples=[
            "price < 10 AND symbol IN ('A', 'B')",
            {"price": {"high": 10}, "title": {"contains": "crude"}},
        ],
    ),
]

# The names are not checked here: `check_dialect` says which there are.
Dialect = Annotated[
    str,
    Meta(
        description="The language of the filter, if that is not SQL. Filters of dialects are "
        "texts; those that are JSON may be objects, too.",
        extra_json_schema={"enum": [SQL, *DIALECTS]},
    ),
]


class RequestBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request's body, or a part of it."""


class AttributeSpec(RequestBody, frozen=True, omit_defaults=True):
    """An attribute with what narrows its type. A struct stands for an attribute per field."""

    type: TypeName | None = None
    values: list[str] | None = None
    domain: Annotated[list[Scalar], Meta(min_length=2, max_length=2)] | None = None
    fields: (
        Annotated[
            Attributes,
            Meta(min_length=1, description="Of the types `struct` and `list of struct`."),
        ]
        | None
    ) = None


# Not a pattern: msgspec 0.22 fails where one is part of such a union. `Schema` checks the name.
TypeName = Annotated[
    str,
    Meta(
        description="int, float, decimal(p, s), string, bool, timestamp, or `list of` one of "
        "these; or json, for values of any structure",
        examples=["float", "decimal(10, 2)", "list of string"],
    ),
]
_TYPES = (
    'unknown type; known types are int, float, decimal(p, s), string, bool, timestamp, "list of" '
    "one of these, json, a list of texts, or an object with a type"
)

Attributes = dict[
    str,
    Annotated[
        TypeName | Annotated[list[str], Meta(min_length=1)] | AttributeSpec,
        Meta(extra={"otherwise": _TYPES}),
    ],
]
"""In order. A list of texts is an enum. A name with dots is that of a nested value."""


class Adaptive(RequestBody, frozen=True):
    """How much precision a feed of events may give up under load."""

    threshold: Annotated[
        float, Meta(ge=1e-6, le=60, description="Seconds that events may wait before that.")
    ] = 0.005
    step: Annotated[float, Meta(ge=1e-9, le=0.5)] = 0.0001
    maximum: Annotated[
        float,
        Meta(
            ge=1e-9,
            le=0.5,
            description="Never more false matches than this, for each right one and in "
            "expectation.",
        ),
    ] = 0.001


class FeedRetention(RequestBody, frozen=True):
    """How long the log of a feed is kept, beside the limits of the broker."""

    days: (
        Annotated[float, Meta(ge=0, le=36_600, description="Instead of those of the broker.")]
        | None
    ) = None
    bytes: (
        Annotated[int, Meta(ge=1 << 20, le=MOST_SEQUENCE, description="Of events, at the most.")]
        | None
    ) = None
    events: (
        Annotated[
            int,
            Meta(
                ge=1,
                le=MOST_SEQUENCE,
                description="So many of the newest are kept. Older ones go in the batches in "
                "which they were stored.",
            ),
        ]
        | None
    ) = None


class NewFeed(RequestBody, frozen=True):
    name: NameText
    kind: FeedKind = "events"
    schema: Annotated[
        Attributes | None,
        Meta(description="Of a feed of events; without one they may have any attributes."),
    ] = None
    spaces: dict[NameText, Attributes] | None = None
    unknown: Unknown = "refuse"
    leave: bool = True
    index: str = "tile"
    adaptive: Adaptive | None = None
    retention: FeedRetention | None = None


class FeedChange(RequestBody, frozen=True):
    """What is not named stays as it is."""

    attributes: (
        Annotated[Attributes, Meta(min_length=1, description="Those that are added.")] | None
    ) = None
    retention: FeedRetention | UnsetType | None = UNSET


class Interval(RequestBody, frozen=True):
    low: Scalar | UnsetType | None = UNSET
    high: Scalar | UnsetType | None = UNSET
    low_open: bool | UnsetType = UNSET
    high_open: bool | UnsetType = UNSET


Bounds = Scalar | Annotated[list[Scalar | None], Meta(min_length=2, max_length=2)] | Interval
Region = dict[str, Bounds]
ChangedRegion = dict[str, Bounds | None]


class Wanted(RequestBody, frozen=True):
    """What a subscription asks for: a filter (feeds of events), or regions (state feeds)."""

    feed: NameText
    filter: Filter | None = None
    dialect: Dialect | None = None
    region: Region | None = None
    regions: Annotated[dict[str, Region], Meta(min_length=1)] | None = None
    region_filter: str | None = None
    ttl: Ttl | None = None
    exact: Annotated[
        bool,
        Meta(description="Check matches found under an error bound again before they are sent."),
    ] = False


class NewSubscription(Wanted, frozen=True):
    """What a subscription asks for, and from where on."""

    replay_from: Start | None = field(default=None, name="from")
    """Of the log: deliver what is there already. Without it, what is published from now on."""


class ManyWanted(RequestBody, frozen=True):
    feed: NameText
    filters: Annotated[dict[str, Filter], Meta(min_length=1, max_length=10_000)]
    dialect: Annotated[
        Dialect | dict[str, Dialect | None] | None,
        Meta(description="Of all filters, or by id; those without one are SQL."),
    ] = None
    replay_from: Start | None = field(default=None, name="from")
    """Of the log: deliver what is there already. Without it, what is published from now on."""


class DryRunQuestion(RequestBody, frozen=True):
    filter: Filter
    dialect: Dialect | None = None
    recent: Annotated[int, Meta(ge=0, le=50)] = 0


class Question(RequestBody, frozen=True):
    event: dict[str, Any] | None = None
    sequence: Sequence | None = None
    filter: Filter | None = None
    dialect: Dialect | None = None
    subscriber: NameText | None = None
    subscription: NameText | None = None


class TraceQuestion(RequestBody, frozen=True):
    event: dict[str, Any]
    publish: bool = False
    limit: Annotated[int, Meta(ge=0, le=100)] = 20


class NewWebhook(RequestBody, frozen=True):
    url: Annotated[str, Meta(min_length=8, max_length=2_048)]
    secret: (
        Annotated[
            str,
            Meta(
                min_length=16,
                max_length=256,
                description="What requests are signed with; made by the broker if it is not given.",
            ),
        ]
        | None
    ) = None
    timeout: Annotated[float, Meta(ge=0.1, le=60)] = 10.0
    attempts: Annotated[
        int,
        Meta(
            ge=1,
            le=100,
            description="How often a delivery is tried before it goes to the dead letters.",
        ),
    ] = 8
    batch: Annotated[int, Meta(ge=1, le=1_000)] = 100
    cloudevents: Annotated[
        CloudEventsMode | None,
        Meta(
            description="The mode of CloudEvents instead of notifications: an event in a request, "
            "or up to `batch` of them in batched mode."
        ),
    ] = None
    paused: bool = False


Sequences = Annotated[list[Sequence], Meta(min_length=1, max_length=10_000)]
Seconds = Annotated[float, Meta(ge=0, le=86_400)]


class Sharing(RequestBody, frozen=True):
    """How a subscriber's notifications are shared among those who work on them."""

    ack_seconds: Annotated[
        float,
        Meta(
            ge=1,
            le=86_400,
            description="What is not acknowledged by then is handed out again.",
        ),
    ] = 30.0
    max_deliveries: Annotated[
        int,
        Meta(
            ge=1,
            le=1_000,
            description="How often a notification is handed out before it is a dead letter.",
        ),
    ] = 8
    max_in_flight: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description="How many may be handed out, or wait to be again, at a time.",
        ),
    ] = 1_000


class ReplayQuestion(RequestBody, frozen=True):
    """Which events of the log to deliver again: of a feed, for a subscription, or all."""

    replay_from: Start = field(name="from")
    through: Annotated[
        Start | None,
        Meta(description="The last number, or a time before which events came; the newest now."),
    ] = None
    feed: NameText | None = None
    subscription: NameText | None = None


class Acknowledgement(RequestBody, frozen=True):
    """What is done: all up to a number, or of a subscriber that shares, each of some."""

    sequence: Sequence | UnsetType = UNSET
    sequences: Sequences | UnsetType = UNSET


class Settled(RequestBody, frozen=True):
    """What is done, over a WebSocket of a subscriber that shares its notifications."""

    sequences: Sequences


class Rejection(Settled, frozen=True):
    """What is not done, and is to be handed out again."""

    reason: Annotated[str, Meta(max_length=1_000)] = ""
    delay: Annotated[Seconds, Meta(description="Before it is handed out again.")] = 0.0
    begun: Annotated[
        bool, Meta(description="Without it this counts as no delivery, and there is no delay.")
    ] = True


class Extension(Settled, frozen=True):
    """What takes longer than its deadline."""

    seconds: Annotated[
        Seconds | None, Meta(description="From now on; without it, the `ack_seconds`.")
    ] = None


class Numbers(RequestBody, frozen=True):
    numbers: (
        Annotated[
            list[Sequence],
            Meta(max_length=10_000, description="Of dead letters; without them all are meant."),
        ]
        | None
    ) = None


class NewPublication(RequestBody, frozen=True):
    region: Region | None = None
    regions: Annotated[dict[str, Region], Meta(min_length=1)] | None = None
    filter: str | None = None
    ttl: Ttl | None = None


class PublicationChange(RequestBody, frozen=True):
    region: ChangedRegion | None = None
    regions: dict[str, ChangedRegion | None] | None = None
    filter: str | UnsetType | None = UNSET
    ttl: Ttl | UnsetType | None = UNSET
