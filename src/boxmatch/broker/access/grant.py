"""What a key allows, and how fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from boxmatch.broker.settings import Limits
from boxmatch.errors import BrokerError, LimitError
from boxmatch.wire.http import NAME

ALL = "*"


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What the holder of a key may do. `*` among the names stands for all of them."""

    id: str
    label: str
    admin: bool = False
    publish: frozenset[str] = frozenset()
    """Feeds."""
    read: frozenset[str] = frozenset()
    """Feeds whose whole log may be read."""
    subscribe: frozenset[str] = frozenset()
    """Subscribers that the key may act as."""
    subscribe_to: frozenset[str] = frozenset({ALL})
    """Feeds that it may subscribe to as one of them."""
    limits: Limits = field(default_factory=Limits)
    digest: bytes = field(default=b"", repr=False, compare=False)
    """Of the secret that was shown: a key has several for a while after a rotation."""

    def may_publish(self, feed: str) -> bool:
        return self.admin or feed in self.publish or ALL in self.publish

    def may_read(self, feed: str) -> bool:
        return self.admin or feed in self.read or ALL in self.read

    def may_see(self, feed: str) -> bool:
        """Whether the key may know of the feed and its schema."""
        return self.may_publish(feed) or self.may_read(feed)

    def may_ask(self, feed: str) -> bool:
        """Whether the key may try filters: those who may subscribe to the feed may, too."""
        return self.may_see(feed) or self.may_subscribe_to(feed)

    def may_subscribe(self, subscriber: str) -> bool:
        """Whether the key may act as this subscriber: subscribe, listen, set a webhook."""
        return self.admin or subscriber in self.subscribe or ALL in self.subscribe

    def may_subscribe_to(self, feed: str) -> bool:
        """Whether the key may see and change subscriptions to the feed, of its subscribers."""
        named = feed in self.subscribe_to or ALL in self.subscribe_to
        return self.admin or (named and bool(self.subscribe))

    @property
    def subscribers(self) -> frozenset[str] | None:
        """Those that the key may act as; None is all."""
        return None if self.admin or ALL in self.subscribe else self.subscribe

    @property
    def subscribed_feeds(self) -> frozenset[str] | None:
        """Those that it may subscribe to; None is all."""
        return None if self.admin or ALL in self.subscribe_to else self.subscribe_to

    def may_administer(self) -> bool:
        return self.admin


OPEN = Grant(id="open", label="anyone on this machine", admin=True)
"""What a broker without keys grants to all who reach it, and only this machine can."""


def check_names(names: Iterable[str], what: str) -> frozenset[str]:
    """Names of feeds or subscribers, or `*`. A single text is taken for a mistake."""
    if isinstance(names, str):
        raise BrokerError(f"the {what}s of a key are a list of names, not the text {names!r}")
    wanted = frozenset(names)
    for name in wanted:
        if name != ALL and NAME.fullmatch(name) is None:
            raise BrokerError(
                f"{name!r} cannot be the name of {'an' if what[0] in 'aeiou' else 'a'} {what}: "
                f"letters, digits and _.:@- (at most 128, the first a letter or digit), "
                f"or {ALL!r} for all"
            )
    return wanted


class _Bucket:
    """Fills at `rate` a second up to one second's worth, and never to less than one."""

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self.size = max(rate, 1.0)
        self.level = self.size
        self.filled = now

    def take(self, count: float, now: float) -> float | None:
        """Take `count` out, or say after how many seconds to come again.

        What is more than the bucket holds is let through when it is full and paid for afterwards:
        otherwise a batch larger than a second's worth could never be published.
        """
        if now > self.filled:
            self.level = min(self.size, self.level + (now - self.filled) * self.rate)
            self.filled = now
        lacking = min(count, self.size) - self.level
        # Without the margin, rounding could refuse one who comes again just when told to.
        if lacking > 1e-9 * self.size:
            return lacking / self.rate
        self.level -= count
        return None


class Meter:
    """Counts the requests and events of each key against its limits. Any thread may call it.

    It starts afresh with the broker, and does not give back what a failed request took.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._buckets: dict[tuple[str, str], _Bucket] = {}

    def take_requests(self, grant: Grant) -> None:
        """Count one request; `LimitError` if the key has had too many."""
        self._take(grant, "requests", grant.limits.requests_per_second, 1)

    def take_events(self, grant: Grant, count: int) -> None:
        """Count events; `LimitError` if the key has published too many. All are taken, or none."""
        self._take(grant, "events", grant.limits.events_per_second, count)

    def _take(self, grant: Grant, what: str, rate: float | None, count: int) -> None:
        if rate is None or count <= 0:
            return
        if rate <= 0:
            raise LimitError(f"key {grant.id} is allowed no {what}")
        with self._lock:
            now = self._clock()
            bucket = self._buckets.get((what, grant.id))
            if bucket is None or bucket.rate != rate:
                bucket = self._buckets[what, grant.id] = _Bucket(rate, now)
            wait = bucket.take(count, now)
        if wait is not None:
            raise LimitError(
                f"key {grant.id} is allowed {rate:g} {what} a second", retry_after=wait
            )
