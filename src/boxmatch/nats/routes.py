"""Routes: made, found, and looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import nats.errors
import nats.js.errors
from nats.js import api

from boxmatch.errors import RouteError
from boxmatch.nats.messages import FeedSubjects
from boxmatch.nats.names import Names
from boxmatch.nats.settings import RouteSettings, read_settings

if TYPE_CHECKING:
    from nats.js import JetStreamContext

_MOST_IN_HAND: Final = 50_000
"""Messages that all workers of a shard may have at a time."""


class Found(NamedTuple):
    """A route that is there."""

    settings: RouteSettings
    revision: int
    """Of its settings."""
    incarnation: str
    """Which stream of events of this name it reads."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """How the streams of a route keep what is in them."""

    replicas: int = 1
    window_seconds: float = 120.0
    """For which JetStream knows the ids of notifications, so that none is stored twice."""
    days: float = 7.0
    """Events, notifications and dead letters are kept so long."""
    most_bytes: int = -1
    """Of events, and of notifications; -1 is no limit."""
    when_full: Literal["drop-oldest", "wait"] = "drop-oldest"
    """What happens to notifications beyond the limit: the oldest go, or routing waits."""
    start: Literal["new", "all"] = "new"
    """Where a new route begins to read a stream that has events already."""


async def create_route(
    js: JetStreamContext, route: str, settings: RouteSettings, storage: Storage | None = None
) -> None:
    """Make a route, or change it. What is there of it stays.

    Workers notice that settings were changed, and start again with them.
    """
    storage = storage or Storage()
    names = Names.of(route)
    settings.schemas()
    stream = await _create_streams(js, names, settings, storage)
    await _create_consumers(js, names, settings, storage, stream)
    config = api.StreamConfig(
        name=names.bucket,
        description=f"Subscriptions of the boxmatch route {route}",
        subjects=[f"{names.keys}>"],
        max_msgs_per_subject=1,
        allow_direct=True,
        allow_rollup_hdrs=True,
        allow_msg_ttl=True,
        deny_delete=True,
        discard=api.DiscardPolicy.NEW,
        num_replicas=storage.replicas,
        max_msg_size=1 << 20,
    )
    await _put_stream(js, config)
    snapshots = f"$O.{names.snapshots}."
    await _put_stream(
        js,
        api.StreamConfig(
            name=f"OBJ_{names.snapshots}",
            description=f"Snapshots of subscriptions of the boxmatch route {route}",
            subjects=[f"{snapshots}C.>", f"{snapshots}M.>"],
            allow_direct=True,
            allow_rollup_hdrs=True,
            discard=api.DiscardPolicy.NEW,
            num_replicas=storage.replicas,
        ),
    )
    await _done(js.publish(names.settings, settings.encode(), stream=names.bucket))


async def _create_streams(
    js: JetStreamContext, names: Names, settings: RouteSettings, storage: Storage
) -> str:
    """The stream of events, which may be somebody else's; its name."""
    limits: dict[str, Any] = {
        "max_age": storage.days * 86_400,
        "num_replicas": storage.replicas,
    }
    if settings.stream:
        await _check_stream(js, settings.stream)
    else:
        subjects = FeedSubjects(names, settings.feeds).of_feed.values()
        config = api.StreamConfig(
            name=names.events,
            subjects=sorted(set(subjects)),
            max_bytes=storage.most_bytes,
            allow_direct=True,
            **limits,
        )
        await _put_stream(js, config)
    window = min(storage.window_seconds, storage.days * 86_400)
    await _put_stream(
        js,
        api.StreamConfig(
            name=names.notifications,
            subjects=[names.out("*")],
            max_bytes=storage.most_bytes,
            discard=api.DiscardPolicy.NEW if storage.when_full == "wait" else api.DiscardPolicy.OLD,
            duplicate_window=window,
            allow_direct=True,
            **limits,
        ),
    )
    await _put_stream(
        js,
        api.StreamConfig(
            name=names.dead,
            subjects=[f"{names.route}.dead.*"],
            duplicate_window=window,
            allow_direct=True,
            **limits,
        ),
    )
    return settings.stream or names.events


async def _check_stream(js: JetStreamContext, stream: str) -> None:
    try:
        await js.stream_info(stream)
    except nats.js.errors.NotFoundError:
        raise RouteError(f"there is no stream {stream!r}") from None


async def _put_stream(js: JetStreamContext, config: api.StreamConfig) -> None:
    try:
        await js.stream_info(str(config.name))
    except nats.js.errors.NotFoundError:
        await _done(js.add_stream(config))
    else:
        await _done(js.update_stream(config))


async def _create_consumers(
    js: JetStreamContext, names: Names, settings: RouteSettings, storage: Storage, stream: str
) -> None:
    """One for each shard. After a change of their number, new ones begin where old ones are."""
    wanted = [names.consumer(shard, settings.shards) for shard in range(settings.shards)]
    there = {
        str(info.name): info
        for info in await _consumers(js, stream)
        if str(info.name).partition("=")[0] == names.route
    }
    floors = [info.ack_floor.stream_seq for info in there.values() if info.ack_floor]
    subjects = sorted(set(FeedSubjects(names, settings.feeds).of_feed.values()))
    for name in wanted:
        begin: dict[str, Any] = {"deliver_policy": api.DeliverPolicy(storage.start)}
        if name in there:
            known = there[name].config
            begin = {
                "deliver_policy": known.deliver_policy,
                "opt_start_seq": known.opt_start_seq,
            }
        elif floors:
            begin = {
                "deliver_policy": api.DeliverPolicy.BY_START_SEQUENCE,
                "opt_start_seq": min(floors) + 1,
            }
        config = api.ConsumerConfig(
            durable_name=name,
            ack_policy=api.AckPolicy.EXPLICIT,
            ack_wait=settings.ack_seconds,
            max_ack_pending=1 if settings.ordered else _MOST_IN_HAND,
            max_deliver=-1,  # the server would drop what workers make a dead letter
            filter_subjects=subjects,
            **begin,
        )
        await _done(js.add_consumer(stream, config))
    for name in there.keys() - set(wanted):
        await _done(js.delete_consumer(stream, name))


async def _consumers(js: JetStreamContext, stream: str) -> list[api.ConsumerInfo]:
    found: list[api.ConsumerInfo] = []
    while True:
        page = await js.consumers_info(stream, len(found))
        found += page
        if not page or len(page) < 256:
            return found


async def find_route(js: JetStreamContext, names: Names) -> Found:
    """The settings of a route. `RouteError`: there is none."""
    settings, revision = await find_settings(js, names)
    stream = settings.stream or names.events
    try:
        info = await js.stream_info(stream)
    except nats.js.errors.NotFoundError:
        raise RouteError(
            f"the stream {stream!r} of route {names.route!r} is gone: boxmatch route init makes "
            "it anew"
        ) from None
    made = info.created
    return Found(settings, revision, f"{made.timestamp() * 1e6:.0f}" if made else "0")


async def find_settings(js: JetStreamContext, names: Names) -> tuple[RouteSettings, int]:
    """The settings of a route and their revision, with no more rights than to read these."""
    missing = f"there is no route {names.route!r}: boxmatch route init makes one"
    try:
        found = await js.get_msg(names.bucket, subject=names.settings, direct=True)
    except (nats.js.errors.NotFoundError, nats.errors.NoRespondersError):
        raise RouteError(missing) from None
    return read_settings(found.data or b"", f"route {names.route!r}"), int(found.seq or 0)


async def _done(work: Any) -> Any:
    """What JetStream refuses, as an error that is ours."""
    try:
        return await work
    except nats.js.errors.APIError as error:
        raise RouteError(f"NATS refuses this: {error.description or error}") from None
    except (nats.errors.NoRespondersError, nats.js.errors.NoStreamResponseError):
        raise RouteError("JetStream is not enabled here, or has no leader") from None
