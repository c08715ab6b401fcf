"""What a route is called on NATS: its streams, its bucket, and the subjects of subscribers."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from boxmatch.errors import RouteError

MOST_NAME: Final = 200
"""Bytes of a name, encoded: two of them and the route's stand in a subject."""

_ROUTE: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PLAIN: Final = re.compile(r"[A-Za-z0-9_-]+")
_SAFE: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_ESCAPED: Final = re.compile("=([0-9A-F]{2})")


@lru_cache(maxsize=65_536)
def encode_token(name: str) -> str:
    """Any name as one token of a subject and of a key: UTF-8, with `=` and two hexadecimal digits
    for what is neither a letter, a digit, `_` nor `-`.

    >>> encode_token("ann@example.org")
    'ann=40example=2Eorg'
    """
    if _PLAIN.fullmatch(name) and len(name) <= MOST_NAME:
        return name
    if not name:
        raise RouteError("a name is empty")
    try:
        raw = name.encode()
    except UnicodeEncodeError:
        raise RouteError(f"the name {name!r} is not text that UTF-8 can write") from None
    token = "".join(chr(byte) if byte in _SAFE else f"={byte:02X}" for byte in raw)
    if len(token) > MOST_NAME:
        raise RouteError(
            f"the name {name[:40]!r}… takes {len(token)} bytes; {MOST_NAME} are allowed"
        )
    return token


@lru_cache(maxsize=65_536)
def decode_token(token: str) -> str:
    """The name that `encode_token` made a token of. `RouteError`: none."""
    if "=" not in token and _PLAIN.fullmatch(token):
        return token
    try:
        raw = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), token).encode("latin-1")
        name = raw.decode()
        if encode_token(name) == token:
            return name
    except (UnicodeError, RouteError):
        pass
    raise RouteError(f"{token!r} is not an encoded name")


class Names(NamedTuple):
    """The streams, the bucket and the subjects of a route."""

    route: str

    @classmethod
    def of(cls, route: str) -> Names:
        """The names for a route. `RouteError`: it may not be called so."""
        if not _ROUTE.fullmatch(route):
            raise RouteError(f"the route {route!r}: a name has 1 to 64 letters, digits, '-' or '_'")
        return cls(route)

    @property
    def events(self) -> str:
        """The stream of events, unless the route reads another."""
        return f"{self.route}-in"

    @property
    def notifications(self) -> str:
        """The stream that subscribers read."""
        return f"{self.route}-out"

    @property
    def dead(self) -> str:
        """The stream of messages that could not be routed."""
        return f"{self.route}-dead"

    @property
    def bucket(self) -> str:
        """The stream below the bucket of subscriptions."""
        return f"KV_{self.route}"

    @property
    def keys(self) -> str:
        """What subjects of the bucket begin with."""
        return f"$KV.{self.route}."

    @property
    def settings(self) -> str:
        """The subject of what all workers agree on."""
        return f"{self.keys}route"

    @property
    def snapshots(self) -> str:
        """The object store of snapshots."""
        return f"{self.route}-snapshots"

    def subscription(self, subscriber: str, id: str) -> str:
        """The subject of a subscription in the bucket."""
        return f"{self.keys}sub.{encode_token(subscriber)}.{encode_token(id)}"

    def marker(self, worker: str) -> str:
        """The subject that a worker writes to, to learn the last sequence of the bucket."""
        return f"{self.keys}sync.{encode_token(worker)}"

    def trial(self, consumer: str, incarnation: str, sequence: int) -> str:
        """The subject of a note that a message is being matched alone."""
        return f"{self.keys}trial.{consumer}.{incarnation}.{sequence}"

    def feed(self, feed: str) -> str:
        """The subject of a feed, unless it has another."""
        return f"{self.route}.in.{encode_token(feed)}"

    def out(self, token: str) -> str:
        """The subject of a subscriber, whose name is encoded already."""
        return f"{self.route}.out.{token}"

    def dead_letters(self, feed: str) -> str:
        """The subject of messages of a feed that could not be routed."""
        return f"{self.route}.dead.{encode_token(feed)}"

    def consumer(self, shard: int, shards: int) -> str:
        """The durable consumer that all workers of a shard share."""
        return self.route if shards == 1 else f"{self.route}={shard}of{shards}"
