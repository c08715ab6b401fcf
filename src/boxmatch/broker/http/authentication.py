"""Who is calling, and whether they may: the dependencies of all routes.

Whether a thing exists is not looked at before it is known that the caller may see it, so what
belongs to others looks the same whether it is there or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import orjson
from fastapi import Depends, Path, Request
from msgspec import UnsetType
from starlette.requests import HTTPConnection

from boxmatch.broker.access import Grant, Keys, Meter, check_local_request
from boxmatch.broker.settings import Limits
from boxmatch.errors import AccessError, UnknownSubscriptionError
from boxmatch.wire.http import MOST_NAME, NAME, NAME_PATTERN
from boxmatch.wire.problems import Problem, misplaced
from boxmatch.wire.requests import Filter
from boxmatch.wire.responses import Fault

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker
    from boxmatch.broker.http.bodies import BodyBudget
    from boxmatch.broker.subscribers.subscribers import Subscription

Name = Annotated[str, Path(pattern=NAME_PATTERN, min_length=1, max_length=MOST_NAME)]


Permission = Literal["publish", "read", "see", "ask", "subscribe", "subscribe to"]
_PERMISSIONS: Final[Mapping[Permission, tuple[Callable[[Grant, str], bool], str]]] = {
    "publish": (Grant.may_publish, "this key may not publish to feed {!r}"),
    "read": (Grant.may_read, "this key may not read feed {!r}"),
    "see": (Grant.may_see, "this key may neither publish to nor read feed {!r}"),
    "ask": (Grant.may_ask, "this key may not ask about feed {!r}"),
    "subscribe": (Grant.may_subscribe, "this key may not act as subscriber {!r}"),
    "subscribe to": (Grant.may_subscribe_to, "this key may not subscribe to feed {!r}"),
}


@dataclass(frozen=True, eq=False)
class Context:
    """What the routes of one application work with."""

    broker: Broker
    keys: Keys
    meter: Meter
    bodies: BodyBudget

    def admit(self, connection: HTTPConnection, key: str | None = None) -> Caller:
        """Who is calling, with the key in the header unless it was said otherwise. `AccessError`:
        there is none, or an unknown one.
        """
        headers = connection.headers
        grant = self.keys.admit(_key_in(headers.get("authorization")) if key is None else key)
        if not self.keys.any():
            check_local_request(headers.get("host"), headers.get("origin"))
        self.meter.take_requests(grant)
        return Caller(grant, self)


def _key_in(header: str | None) -> str | None:
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

    def must(self, permission: Permission, name: str) -> None:
        """`AccessError` if the key has not the permission for this feed, or subscriber."""
        may, refusal = _PERMISSIONS[permission]
        if not may(self.grant, name):
            raise AccessError(refusal.format(name))

    def subscription(self, subscriber: str, id: str) -> Subscription:
        """A stored subscription. One to a feed that the key may not subscribe to is as unknown as
        one that is not there.
        """
        found = self.broker.directory.subscription(subscriber, id)
        if not self.grant.may_subscribe_to(found.feed):
            raise UnknownSubscriptionError(id)
        return found

    def check_change(self, subscriber: str, ids: Iterable[str], feed: str) -> None:
        """`AccessError` if the key may not put subscriptions to the feed under these ids."""
        self.must("subscribe to", feed)
        known = self.broker.subscribers.get(subscriber).subscriptions
        for id in ids:
            there = known.get(id)
            if there is not None and not self.grant.may_subscribe_to(there.feed):
                raise AccessError(f"this key may not change subscription {id!r}")

    def recheck(self) -> None:
        """`AccessError` if the key is not valid any more. For connections that last."""
        self.context.keys.recheck(self.grant)

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
    return context_of(request).admit(request)


async def _shared(request: Request) -> Context:
    return context_of(request)


AnyCaller = Annotated[Caller, Depends(any_caller)]
Shared = Annotated[Context, Depends(_shared)]
"""For routes that need no key."""


async def _admin(caller: AnyCaller) -> Caller:
    if not caller.grant.may_administer():
        raise AccessError("this key may not administer the broker")
    return caller


def _for_feed(permission: Permission) -> Any:
    async def check(feed: Name, caller: AnyCaller) -> Caller:
        caller.must(permission, feed)
        return caller

    return Depends(check)


async def _subscriber(subscriber: Name, caller: AnyCaller) -> Caller:
    caller.must("subscribe", subscriber)
    return caller


Admin = Annotated[Caller, Depends(_admin)]
Viewer = Annotated[Caller, _for_feed("see")]
Asker = Annotated[Caller, _for_feed("ask")]
Publisher = Annotated[Caller, _for_feed("publish")]
Reader = Annotated[Caller, _for_feed("read")]
AsSubscriber = Annotated[Caller, Depends(_subscriber)]


def check_name(what: str, name: str) -> str:
    """The name, for routes that do not leave it to the framework."""
    if NAME.fullmatch(name) is None:
        fault = Fault(f"path.{what}", f"must match {NAME_PATTERN}, not {name[:140]!r}")
        raise misplaced("parameters", [fault])
    return name
