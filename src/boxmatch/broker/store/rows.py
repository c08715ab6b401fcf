"""What is read from the store, and how it is packed into rows and checked."""

from __future__ import annotations

import json
import math
import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Literal, NamedTuple

import orjson
import xxhash
from msgspec import structs

from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.errors import BoxmatchError, StorageError
from boxmatch.model.schema import Schema
from boxmatch.wire import responses
from boxmatch.wire.codec import decode, encode, stored
from boxmatch.wire.requests import Adaptive, FeedKind, FeedRetention

MOST_ROW_BYTES = 256 * 1024
"""Events of one call go into rows of about this size: who reads one of them reads its row."""


class SubscriberRow(NamedTuple):
    """A subscriber. All up to `cursor` is acknowledged; `dropped` notifications never will be."""

    number: int
    name: str
    cursor: int
    dropped: int
    dropped_through: int
    """The last number that was dropped; 0 if none was."""


class SubscriptionRow(NamedTuple):
    """A subscription; `wanted` is JSON."""

    number: int
    subscriber: int
    id: str
    feed: int
    wanted: bytes
    created: float
    updated: float


class SubscriptionText(NamedTuple):
    """A subscription that is to be put; `wanted` is JSON."""

    id: str
    wanted: str
    is_new: bool
    checksum: int

    @classmethod
    def of(
        cls, subscriber: int, feed: int, id: str, wanted: bytes, created: float | None, now: float
    ) -> SubscriptionText:
        """`created`: when the one was first put in whose place it comes; None if there is none."""
        now = float(now) + 0.0
        first = now if created is None else created
        checksum = text_checksum(subscriber, id, feed, wanted, first, now)
        return cls(id, wanted.decode(), created is None, checksum)


class ReplayRow(NamedTuple):
    """Events that a subscriber gets again: those after `position`, up to `through`.

    Of one feed, or of all (0); for one of its subscriptions, or for all ("").
    """

    number: int
    subscriber: int
    feed: int
    subscription: str
    position: int
    through: int


class MemberRow(NamedTuple):
    """A publication of a state feed."""

    id: str
    body: bytes
    expires: float | None


class LoggedEvent(NamedTuple):
    """An event under its number."""

    sequence: int
    at: float
    body: bytes


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
    deliveries: int = 0
    """How many times it was handed out, if its subscriber shares its notifications."""

    def to_json(self) -> bytes:
        """The notification as it goes over the network, with the body as it is."""
        sequence, feed, at, subscriptions, body, kind, rate, deliveries = self
        event, change = (stored(body), None) if kind == "events" else (None, stored(body))
        ids: Any = subscriptions
        return encode(
            responses.Notification(sequence, feed, at, ids, rate, event, change, deliveries)
        )

    @classmethod
    def of_response(cls, said: responses.Notification) -> Notification:
        """What `to_json` was made of."""
        kind: FeedKind = "events" if said.change is None else "state"
        body = orjson.dumps(said.body)
        return cls(said.sequence, said.feed, said.at, said.subscriptions, body, kind, said.rate)


class DeadLetter(NamedTuple):
    """Notifications that nobody took."""

    number: int
    subscriber: str
    first: int
    last: int
    attempts: int
    reason: str
    at: float
    body: bytes

    @property
    def notifications(self) -> list[Notification]:
        delivery: responses.Delivery = decode(self.body, responses.Delivery)
        return [Notification.of_response(one) for one in delivery.notifications]


class Appended(NamedTuple):
    """Where events are. Without events, `last` is the number before `first`."""

    first: int
    last: int
    repeated: bool = False
    """All of them were there before."""
    gaps: int = 0
    """Numbers between `first` and `last` of other events, if they were."""
    new: Sequence[int] | None = None
    """Positions of those that are stored; None is all of them."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1 - self.gaps


class Sizes(NamedTuple):
    """How much there is. `nbytes` is all on disk, `log_bytes` the events alone."""

    nbytes: int
    log_bytes: int
    batches: int
    inbox_rows: int
    free_pages: int


Cause = Literal["age", "bytes", "events", "total", "disk"]
"""Why events are removed: limits of their feed, that of the bytes of all feeds, a disk that is
short.
"""


@dataclass(frozen=True)
class Removed:
    """What went: batches, and by subscriber notifications that were not acknowledged."""

    batches: int = 0
    dropped: dict[int, int] = field(default_factory=dict)
    events: dict[tuple[int, Cause], int] = field(default_factory=dict)
    """By feed."""
    causes: dict[str, int] = field(default_factory=dict)
    """Of `dropped`: as events went, or since there were too many (backlog)."""


class Batch(NamedTuple):
    """Events that are one row, as they are in the log."""

    first: int
    size: int
    feed: int
    at: float
    rate: float
    feed_name: str
    """Empty if the feed was dropped, and the batch is about to go."""
    feed_kind: FeedKind
    ends: tuple[int, ...]
    """Where each body ends in the payload; one more in front for where the first begins."""
    payload: bytes

    def body(self, position: int) -> bytes:
        return self.payload[self.ends[position] : self.ends[position + 1]]

    def events(self, after: int, through: int) -> list[LoggedEvent]:
        """Those with numbers in `(after, through]`."""
        begin = max(after + 1 - self.first, 0)
        end = min(through + 1 - self.first, self.size)
        if begin >= end:
            return []
        first, at, payload = self.first, self.at, self.payload
        return [
            LoggedEvent(first + position, at, payload[low:high])
            for position, (low, high) in enumerate(pairwise(self.ends[begin : end + 1]), begin)
        ]


class Room:
    """For so many more, and so many bytes of them; but for one at least."""

    def __init__(self, count: int, nbytes: int) -> None:
        self._count = count
        self._nbytes = nbytes
        self._taken = False

    def full(self) -> bool:
        return self._count <= 0

    def take(self, ends: Sequence[int]) -> int:
        """How many still fit, of some whose bodies end there; where the first begins is in front.

        Once not all of them did, it is full.
        """
        offered = len(ends) - 1
        if offered < 1:
            return 0
        fitting = bisect_right(ends, ends[0] + self._nbytes) - 1
        taken = min(max(fitting, 0 if self._taken else 1), self._count)
        self._taken = True
        self._count -= taken
        self._nbytes -= ends[taken] - ends[0]
        if taken < offered:
            self._count = 0
        return taken


def pack_bodies(bodies: Sequence[bytes]) -> bytes:
    return struct.pack(f"<{len(bodies)}I", *map(len, bodies)) + b"".join(bodies)


def batch_checksum(first: int, size: int, feed: int, at: float, rate: float, payload: bytes) -> int:
    state = xxhash.xxh3_64(b"%d %d %d %r %r " % (first, size, feed, at, rate))
    state.update(payload)
    return state.intdigest() - 2**63  # SQLite's integers have a sign


BATCH_COLUMNS = "first, size, feed, at, rate, payload, checksum"


def unpack_batch(row: Sequence[Any], feed_name: str, feed_kind: FeedKind) -> Batch | None:
    """A row of `BATCH_COLUMNS` as a batch; None if it is damaged."""
    first, size, feed, at, rate, payload, checksum = row
    if not isinstance(payload, bytes) or not isinstance(size, int):
        return None
    if batch_checksum(first, size, feed, at, rate, payload) != checksum:
        return None
    lengths = struct.unpack_from(f"<{size}I", payload)
    ends = tuple(accumulate(lengths, initial=4 * size))
    return Batch(first, size, feed, at, rate, feed_name, feed_kind, ends, payload)


def batch_rows(
    first: int, feed: int, at: float, rate: float, bodies: Sequence[bytes]
) -> list[tuple[Any, ...]]:
    """Rows of the log. Whatever is wrong shows here, not when they are written: then it would
    concern others too.
    """
    if not (math.isfinite(at) and math.isfinite(rate)):
        raise StorageError(f"events cannot be stored at {at} with a rate of {rate}")
    return [_batch_row(first + low, feed, at, rate, bodies[low:high]) for low, high in _cut(bodies)]


def _cut(bodies: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Where to cut so that no piece is much larger than `MOST_ROW_BYTES`."""
    if sum(map(len, bodies)) <= MOST_ROW_BYTES:
        if bodies:
            yield 0, len(bodies)
        return
    low = nbytes = 0
    for position, body in enumerate(bodies):
        if nbytes + len(body) > MOST_ROW_BYTES and position > low:
            yield low, position
            low, nbytes = position, 0
        nbytes += len(body)
    yield low, len(bodies)


def _batch_row(
    first: int, feed: int, at: float, rate: float, bodies: Sequence[bytes]
) -> tuple[Any, ...]:
    payload = pack_bodies(bodies)
    size = len(bodies)
    checksum = batch_checksum(first, size, feed, at, rate, payload)
    return first, size, feed, at, rate, checksum, len(payload), payload


def json_text(value: object) -> str:
    return orjson.dumps(value).decode()


def text_checksum(*values: object) -> int:
    return xxhash.xxh3_64_intdigest(repr(values).encode(errors="surrogatepass")) - 2**63


def pack_feed(spec: FeedSpec) -> str:
    spaces = {name: json.loads(schema.to_json()) for name, schema in spec.spaces.items()}
    adaptive = None if spec.adaptive is None else structs.asdict(spec.adaptive)
    retention = None if spec.retention is None else structs.asdict(spec.retention)
    return json.dumps(
        {
            "unknown": spec.unknown,
            "leave": spec.leave,
            "spaces": spaces,
            "index": spec.index,
            "adaptive": adaptive,
            "retention": retention,
        }
    )


def unpack_feed(name: str, kind: FeedKind, text: str) -> FeedSpec:
    try:
        known = json.loads(text)
        spaces = {
            space: Schema.from_json(json.dumps(schema)) for space, schema in known["spaces"].items()
        }
        adaptive = known["adaptive"]
        retention = known.get("retention")  # there was none in format 2
        return FeedSpec(
            name=name,
            kind=kind,
            spaces=spaces,
            unknown=known["unknown"],
            leave=known["leave"],
            index=known["index"],
            adaptive=None if adaptive is None else Adaptive(**adaptive),
            retention=None if retention is None else FeedRetention(**retention),
        )
    except (KeyError, TypeError, ValueError, BoxmatchError) as error:
        raise StorageError(f"feed {name!r} is damaged: {error}") from error
