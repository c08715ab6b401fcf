"""What publishers and subscribers of a route do, over a connection of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import nats.errors
import nats.js.errors
import orjson

from boxmatch.errors import RouteError
from boxmatch.nats.bucket import DELETED_SECONDS
from boxmatch.nats.messages import FeedSubjects, Outgoing
from boxmatch.nats.names import Names
from boxmatch.nats.publisher import Publisher
from boxmatch.nats.routes import find_settings
from boxmatch.nats.settings import RouteSettings, StoredSubscription, check_subscription
from boxmatch.wire.codec import encode, plain

if TYPE_CHECKING:
    from nats.aio.client import Client

_AT_ONCE: Final = 1_000


async def subscribe(
    connection: Client,
    subscriber: str,
    id: str,
    filter: str | dict[str, Any],
    *,
    feed: str | None = None,
    dialect: str | None = None,
    route: str = "boxmatch",
) -> int:
    """Store a subscription, or replace the one of this id. Returns its revision.

    Events that are published after this has returned are matched by it. The filter is checked
    before: `FilterError`, or `RouteError` for another reason. The `feed` is needed if the route
    has several.
    """
    names = Names.of(route)
    settings, _ = await find_settings(connection.jetstream(), names)
    wanted = StoredSubscription(feed or _only_feed(settings), filter, dialect)
    check_subscription(settings, wanted)
    return await _write(connection, names, names.subscription(subscriber, id), encode(wanted), {})


async def unsubscribe(
    connection: Client, subscriber: str, id: str, *, route: str = "boxmatch"
) -> int:
    """Remove a subscription, if it is there. Returns the revision of its removal."""
    names = Names.of(route)
    headers = {"KV-Operation": "DEL", "Nats-TTL": f"{DELETED_SECONDS}s"}
    return await _write(connection, names, names.subscription(subscriber, id), b"", headers)


async def publish(
    connection: Client,
    events: Iterable[Mapping[str, Any]],
    *,
    feed: str | None = None,
    ids: Iterable[str] | None = None,
    route: str = "boxmatch",
) -> int:
    """Publish events, each as a message of JSON, and return how many were stored.

    With `ids`, one each, JetStream stores none that it has stored under its id before (within the
    window of its stream).
    """
    names = Names.of(route)
    settings, _ = await find_settings(connection.jetstream(), names)
    name = feed or _only_feed(settings)
    if name not in settings.feeds:
        raise RouteError(f"there is no feed {name!r}")
    subject = FeedSubjects(names, settings.feeds).of_feed[name]
    if "*" in subject or ">" in subject:
        raise RouteError(f"feed {name!r} has many subjects ({subject}): publish to one of them")
    errors: list[object] = []
    publisher = Publisher(connection, lambda _, error: errors.append(error))
    await publisher.open()
    stored = 0
    try:
        given = iter(ids) if ids is not None else None
        batch: list[Outgoing] = []
        for event in events:
            batch.append(Outgoing(subject, "" if given is None else next(given), _json(event)))
            if len(batch) == _AT_ONCE:
                stored += await _publish(publisher, batch)
                batch = []
        return stored + await _publish(publisher, batch)
    finally:
        await publisher.close()


async def _publish(publisher: Publisher, batch: list[Outgoing]) -> int:
    done = await publisher.publish(batch)
    if done.refused:
        raise RouteError(f"{len(done.refused)} events were refused: {done.refused[0][1]}")
    return done.stored - done.duplicates


def _json(event: Mapping[str, Any]) -> bytes:
    if not isinstance(event, Mapping):
        raise RouteError(f"an event is a mapping, not {event!r:.80}")
    return orjson.dumps(dict(event), option=orjson.OPT_UTC_Z, default=plain)


async def _write(
    connection: Client, names: Names, subject: str, data: bytes, headers: dict[str, str]
) -> int:
    try:
        ack = await connection.jetstream().publish(
            subject, data, stream=names.bucket, headers=headers
        )
    except nats.js.errors.APIError as error:
        raise RouteError(f"NATS refuses this: {error.description}") from None
    except (nats.errors.NoRespondersError, nats.js.errors.NoStreamResponseError):
        raise RouteError(
            f"there is no route {names.route!r}, or its bucket has no leader at the moment"
        ) from None
    except nats.errors.TimeoutError:
        raise RouteError(
            "NATS does not answer: the connection is down, or it may not write this"
        ) from None
    return int(ack.seq)


def _only_feed(settings: RouteSettings) -> str:
    if len(settings.feeds) > 1:
        known = ", ".join(settings.feeds)
        raise RouteError(f"the route has several feeds, so name one of them: {known}")
    return next(iter(settings.feeds))


class ShardStatus(NamedTuple):
    """How far the workers of a shard are."""

    consumer: str
    waiting: int
    """Messages that no worker has had yet."""
    in_hand: int
    """Messages that workers have and did not acknowledge yet."""
    redelivered: int
    """How many of those were delivered before."""


class RouteStatus(NamedTuple):
    """A route, and what is in it."""

    settings: RouteSettings
    keys: int
    """Subscriptions, and removals that the bucket remembers (for 30 days)."""
    revision: int
    events: int
    notifications: int
    dead_letters: int
    shards: list[ShardStatus]


async def status(connection: Client, *, route: str = "boxmatch") -> RouteStatus:
    """What there is of a route. `RouteError`: there is none."""
    names = Names.of(route)
    js = connection.jetstream()
    settings, _ = await find_settings(js, names)
    stream = settings.stream or names.events
    try:
        bucket = await js.stream_info(names.bucket, subjects_filter=f"{names.keys}sub.>")
        states = [
            (await js.stream_info(name)).state for name in (stream, names.notifications, names.dead)
        ]
        shards = []
        for shard in range(settings.shards):
            info = await js.consumer_info(stream, names.consumer(shard, settings.shards))
            shards.append(
                ShardStatus(
                    str(info.name),
                    info.num_pending or 0,
                    info.num_ack_pending or 0,
                    info.num_redelivered or 0,
                )
            )
    except nats.js.errors.NotFoundError as error:
        raise RouteError(
            f"the route is not whole ({error.description}): boxmatch route init makes what lacks"
        ) from None
    events, notifications, dead = (state.messages for state in states)
    return RouteStatus(
        settings, len(bucket.state.subjects or {}), bucket.state.last_seq, events, notifications,
        dead, shards,
    )  # fmt: skip
