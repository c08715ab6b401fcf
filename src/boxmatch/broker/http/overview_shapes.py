"""The shapes of what the dashboard asks and is answered; see `boxmatch.broker.http.shapes`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StrictBool, StrictInt

from boxmatch.broker.http import shapes


class Roles(BaseModel):
    admin: bool
    publish: list[str] = Field(description="Feeds; `*` is all.")
    read: list[str] = Field(description="Feeds; `*` is all.")
    subscribe: list[str] = Field(description="Subscribers; `*` is all.")


class Queue(BaseModel):
    events: int
    bytes: int
    most_events: int
    most_bytes: int


class BrokerCounts(BaseModel):
    queue: Queue
    sessions: int
    delivered: dict[str, int] = Field(description="Notifications, by way.")
    dropped: int
    refused: dict[str, int] = Field(description="By reason.")
    storage_bytes: int
    log_bytes: int
    backlog: int


class FeedCounts(BaseModel):
    name: str
    rate: float
    sampled_matches: int
    sampled_false: int
    waiting: int = Field(description="Events that are received, and not yet durable.")
    received: int
    matched: int
    matches: int
    committed: int
    delivered: int = Field(description="Notifications that were handed to subscribers.")
    stages: dict[str, list[int]] = Field(
        description="By stage, how many took so long: up to each of `buckets`, and beyond."
    )


class WatchedFeed(FeedCounts):
    kind: Literal["events", "state"]
    index: str
    adaptive: shapes.AdaptiveSpec | None
    subscriptions: int
    publications: int
    last_sequence: int


class WatchedSubscriber(BaseModel):
    subscriber: str
    backlog: int
    sessions: int
    delivered: int
    dropped: int
    subscriptions: int
    webhook: Literal["active", "paused"] | None
    dead_letters: int
    last_error: str | None


class Overview(BaseModel):
    at: float
    started: float
    version: str
    roles: Roles
    buckets: list[float] = Field(description="Upper bounds of the histograms, in seconds.")
    broker: BrokerCounts | None = Field(description="Only for admins.")
    feeds: list[WatchedFeed]
    subscribers: list[WatchedSubscriber] = Field(
        description="At most 50: those with errors first, then those that most waits for."
    )
    subscriber_count: int


class Sample(BaseModel):
    at: float
    feeds: list[FeedCounts]


class History(BaseModel):
    buckets: list[float]
    samples: list[Sample]


class SubscriptionBrief(BaseModel):
    subscriber: str
    id: str
    filter: Any = None
    exact: bool


class RankedSubscription(SubscriptionBrief):
    matches: int
    created: float


class RankedSubscriptions(BaseModel):
    subscriptions: list[RankedSubscription]
    count: int
    dead: int = Field(description="Without a match since they were made, or the broker started.")


class TraceQuestion(shapes.Request):
    event: dict[str, Any]
    publish: StrictBool = False
    limit: Annotated[StrictInt, Field(ge=0, le=100)] = 20


class MissedSubscription(SubscriptionBrief):
    failed: int
    predicates: list[shapes.Predicate]


class Trace(BaseModel):
    sequence: int | None
    rate: float = Field(description="That the feed tolerates now; this answer is exact.")
    matched: int
    gets: list[SubscriptionBrief]
    missed: int
    misses: list[MissedSubscription] = Field(description="Nearest first.")
