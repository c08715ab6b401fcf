"""What the dashboard is told."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from boxmatch.model.explanation import Predicate
from boxmatch.wire.requests import Adaptive, FeedKind, FeedRetention
from boxmatch.wire.responses import Mode, ResponseBody

_Feeds = Annotated[list[str], Meta(description="Feeds; `*` is all.")]


class Roles(ResponseBody, frozen=True):
    admin: bool
    publish: _Feeds
    read: _Feeds
    subscribe: Annotated[list[str], Meta(description="Subscribers; `*` is all.")]
    subscribe_to: _Feeds


class Queue(ResponseBody, frozen=True):
    events: int
    bytes: int
    most_events: int
    most_bytes: int


class BrokerCounts(ResponseBody, frozen=True):
    queue: Queue
    sessions: int
    delivered: Annotated[dict[str, int], Meta(description="Notifications, by way.")]
    dropped: int
    refused: Annotated[dict[str, int], Meta(description="By reason.")]
    storage_bytes: int
    log_bytes: int
    backlog: int
    failure: Annotated[str | None, Meta(description="Why nothing can be stored, while that is so.")]
    lacking_bytes: Annotated[
        int, Meta(description="What the disk lacks to have as much free as the broker keeps free.")
    ]


class FeedCounts(ResponseBody, frozen=True, kw_only=True):
    name: str
    rate: float
    sampled_matches: int
    sampled_false: int
    waiting: Annotated[int, Meta(description="Events that are received, and not yet durable.")]
    received: int
    matched: int
    matches: int
    committed: int
    delivered: Annotated[int, Meta(description="Notifications that were handed to subscribers.")]
    stages: Annotated[
        dict[str, list[int]],
        Meta(description="By stage, how many took so long: up to each of `buckets`, and beyond."),
    ]


class WatchedFeed(FeedCounts, frozen=True, kw_only=True):
    kind: FeedKind
    index: str
    adaptive: Adaptive | None
    subscriptions: int
    publications: int
    last_sequence: int
    removed: Annotated[
        dict[str, int], Meta(description="Events that retention has removed, by cause.")
    ]
    retention: Annotated[
        FeedRetention | None, Meta(description="Limits of its own; null: those of all feeds.")
    ]


class WatchedSubscriber(ResponseBody, frozen=True):
    subscriber: str
    backlog: int
    falls_behind: Annotated[
        bool, Meta(description="Whether the backlog grows, by its lows in the last half minute.")
    ]
    sessions: int
    delivered: int
    dropped: int
    subscriptions: int
    webhook: Literal["active", "paused"] | None
    dead_letters: int
    last_error: str | None
    mode: Mode
    in_flight: Annotated[int, Meta(description="Of shared notifications, those with a deadline.")]
    redelivered: Annotated[int, Meta(description="Of shared notifications, since the start.")]
    replayed: Annotated[
        float | None, Meta(description="Share of the log that replays have delivered; null: none.")
    ]


class Overview(ResponseBody, frozen=True):
    at: float
    started: float
    version: str
    roles: Roles
    buckets: Annotated[
        tuple[float, ...], Meta(description="Upper bounds of the histograms, in seconds.")
    ]
    broker: Annotated[BrokerCounts | None, Meta(description="Only for admins.")]
    feeds: list[WatchedFeed]
    subscribers: Annotated[
        list[WatchedSubscriber],
        Meta(
            description="At most 50: those with errors first, then those that fall behind, then "
            "those that most waits for."
        ),
    ]
    subscriber_count: int


class Sample(ResponseBody, frozen=True):
    at: float
    feeds: list[FeedCounts]


class History(ResponseBody, frozen=True):
    buckets: tuple[float, ...]
    samples: list[Sample]


class SubscriptionBrief(ResponseBody, frozen=True, kw_only=True):
    subscriber: str
    id: str
    filter: Any
    dialect: str | None
    exact: bool


class RankedSubscription(SubscriptionBrief, frozen=True, kw_only=True):
    matches: int
    created: float


class RankedSubscriptions(ResponseBody, frozen=True):
    subscriptions: list[RankedSubscription]
    count: int
    dead: Annotated[
        int, Meta(description="Without a match since they were made, or the broker started.")
    ]


class MissedSubscription(SubscriptionBrief, frozen=True, kw_only=True):
    failed: int
    predicates: list[Predicate]


class Trace(ResponseBody, frozen=True):
    sequence: int | None
    rate: Annotated[float, Meta(description="That the feed tolerates now; this answer is exact.")]
    matched: int
    gets: list[SubscriptionBrief]
    missed: int
    misses: Annotated[list[MissedSubscription], Meta(description="Nearest first.")]
