"""What a key allows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from boxmatch.broker.settings import Limits
from boxmatch.errors import BrokerError
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
    limits: Limits = field(default_factory=Limits)

    def may_publish(self, feed: str) -> bool:
        return self.admin or feed in self.publish or ALL in self.publish

    def may_read(self, feed: str) -> bool:
        return self.admin or feed in self.read or ALL in self.read

    def may_subscribe(self, subscriber: str) -> bool:
        """Whether the key may act as this subscriber: subscribe, listen, set a webhook."""
        return self.admin or subscriber in self.subscribe or ALL in self.subscribe

    @property
    def subscribers(self) -> frozenset[str] | None:
        """Those that the key may act as; None is all."""
        return None if self.admin or ALL in self.subscribe else self.subscribe

    def may_administer(self) -> bool:
        return self.admin


OPEN = Grant(id="open", label="anyone on this machine", admin=True)
"""What a broker without keys grants to all who reach it, and only this machine can."""


def checked_names(names: Iterable[str], what: str) -> frozenset[str]:
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
