"""Who is calling, and whether they may: the dependencies of all routes.

Whether a thing exists is not looked at before it is known that the caller may see it, so what
belongs to others looks the same whether it is there or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import orjson
from fastapi import Depends, Path, Request
from msgspec import UnsetType
from starlette.requests import HTTPConnection

from boxmatch.broker.access import Grant, Keys, Meter, check_local_request
from boxmatch.broker.http.problems import Problem, misplaced
from boxmatch.broker.settings import Limits
from boxmatch.errors import AccessError
from boxmatch.wire.answers import Fault
from boxmatch.wire.http import MOST_NAME, NAME, NAME_PATTERN
from boxmatch.wire.requests import Filter

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker
    from boxmatch.broker.http.bodies import BodyBudget
    from boxmatch.broker.store.rows import Notification

Name = Annotated[str, Path(pattern=NAME_PATTERN, min_length=1, max_length=MOST_NAME)]


@dataclass(frozen=True, eq=False)
class Context:
    """What the routes of one application work with."""

    broker: Broker
    keys: Keys
    meter: Meter
    bodies: BodyBudget

    def admit(self, connection: HTTPConnection) -> Grant:
        """What the key in the request allows. `AccessError`: it has none, or an unknown one."""
        headers = connection.headers
        return self.admit_key(
            key_in(headers.get("authorization")), headers.get("host"), headers.get("origin")
        )

    def admit_key(self, key: str | None, host: str | None, origin: str | None) -> Grant:
        grant = self.keys.admit(key)
        if not self.keys.any():
            check_local_request(host, origin)
        self.meter.take_requests(grant)
        return grant

    def delivered(self, way: str, notifications: Sequence[Notification]) -> None:
        """Count notifications that were handed to their subscriber, and how old they are by now."""
        if notifications:
            self.broker.metrics.delivered(way, notifications)


def key_in(header: str | None) -> str | None:
    """The key in an `Authorization` header; None without one."""
    if header is None:
        return None
    scheme, _, key = header.partition(" ")
    if scheme.lower() != "bearer":
        raise AccessError("a key is sent as 'Authorization: Bearer KEY'", unknown=True)
    return key.strip()


def context_of(connection: HTTPConnection) -> Context:
    context: Context = connection.app.state.context
    return context


@dataclass(frozen=True, eq=False)
class Caller:
    """Somebody with a key, or on this machine if none is needed."""

    grant: Grant
    context: Context

    @property
    def broker(self) -> Broker:
        return self.context.broker

    @property
    def limits(self) -> Limits:
        return self.grant.limits

    def must_publish(self, feed: str) -> None:
        if not self.grant.may_publish(feed):
            raise AccessError(f"this key may not publish to feed {feed!r}")

    def must_read(self, feed: str) -> None:
        if not self.grant.may_read(feed):
            raise AccessError(f"this key may not read feed {feed!r}")

    def must_subscribe(self, subscriber: str) -> None:
        if not self.grant.may_subscribe(subscriber):
            raise AccessError(f"this key may not act as subscriber {subscriber!r}")

    def may_see(self, feed: str) -> bool:
        """Whether the key may know of the feed and its schema."""
        return self.grant.may_publish(feed) or self.grant.may_read(feed)

    def take_events(self, count: int = 1) -> None:
        """Count events against the limits of the key."""
        self.context.meter.take_events(self.grant, count)

    def check_filter(self, given: Filter | UnsetType | None) -> None:
        """Refuse a filter that is longer than the key allows."""
        if given is None or isinstance(given, UnsetType):
            return
        size = len(given.encode() if isinstance(given, str) else orjson.dumps(given))
        most = self.limits.filter_bytes
        if size > most:
            raise Problem(413, "filter-size", f"a filter has at most {most:,} bytes, not {size:,}")


async def any_caller(request: Request) -> Caller:
    """Whoever has a key."""
    context = context_of(request)
    return Caller(context.admit(request), context)


async def _shared(request: Request) -> Context:
    return context_of(request)


AnyCaller = Annotated[Caller, Depends(any_caller)]
Shared = Annotated[Context, Depends(_shared)]
"""For routes that need no key."""


async def _admin(caller: AnyCaller) -> Caller:
    if not caller.grant.may_administer():
        raise AccessError("this key may not administer the broker")
    return caller


async def _viewer(feed: Name, caller: AnyCaller) -> Caller:
    if not caller.may_see(feed):
        raise AccessError(f"this key may neither publish to nor read feed {feed!r}")
    return caller


async def _asker(feed: Name, caller: AnyCaller) -> Caller:
    # Who subscribes may try filters in every feed.
    if not caller.may_see(feed) and not caller.grant.subscribe:
        raise AccessError(f"this key may not ask about feed {feed!r}")
    return caller


async def _publisher(feed: Name, caller: AnyCaller) -> Caller:
    caller.must_publish(feed)
    return caller


async def _reader(feed: Name, caller: AnyCaller) -> Caller:
    caller.must_read(feed)
    return caller


async def _subscriber(subscriber: Name, caller: AnyCaller) -> Caller:
    caller.must_subscribe(subscriber)
    return caller


Admin = Annotated[Caller, Depends(_admin)]
Viewer = Annotated[Caller, Depends(_viewer)]
Asker = Annotated[Caller, Depends(_asker)]
Publisher = Annotated[Caller, Depends(_publisher)]
Reader = Annotated[Caller, Depends(_reader)]
AsSubscriber = Annotated[Caller, Depends(_subscriber)]


def check_name(what: str, name: str) -> str:
    """The name, for routes that do not leave it to the framework."""
    if NAME.fullmatch(name) is None:
        fault = Fault(f"path.{what}", f"must match {NAME_PATTERN}, not {name[:140]!r}")
        raise misplaced("parameters", [fault])
    return name
