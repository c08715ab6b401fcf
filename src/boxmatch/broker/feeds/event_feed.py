"""A feed of events: each one concerns whose filter it satisfies."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from boxmatch.broker.feeds.slots import Slots
from boxmatch.broker.messages import FeedSpec, Wanted
from boxmatch.broker.owners import Subscription
from boxmatch.engine.explain import Explanation
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.results import MatchResult
from boxmatch.errors import BrokerError, EventError, FilterError
from boxmatch.model.filters import compile_filter

_MANY_CHANGES = 256
"""So few subscriptions are quickly looked through one by one."""


class EventFeed:
    """Subscriptions and the index over them. All but `spec` is for the matching thread alone."""

    def __init__(self, spec: FeedSpec, number: int) -> None:
        self.spec = spec
        self.number = number
        self.slots = Slots()
        self.matcher = Matcher(spec.schema)
        self.changes = 0
        """Of subscriptions, since the index was last made tidy."""
        self.changed = 0.0
        self._names = frozenset(spec.schema.names)

    def load(self, subscriptions: Iterable[Subscription]) -> None:
        """Take over subscriptions that were checked when they came."""
        new = list(subscriptions)
        for subscription in new:
            self.slots.add(subscription)
        _subscribe(self.matcher, new)

    def check(self, rows: list[dict[str, Any]]) -> None:
        """Refuse events that have attributes which the schema lacks, if the feed does."""
        if self.spec.unknown == "carry":
            return
        names = self._names
        for number, row in enumerate(rows):
            if not row.keys() <= names:
                unknown = sorted(row.keys() - names)[0]
                raise EventError(
                    f"attribute {unknown!r} in row {number} is not in the schema of feed "
                    f"{self.spec.name!r}"
                )

    def match(self, rows: list[dict[str, Any]], threads: int = 1) -> MatchResult:
        """Who wants these events, by slot."""
        return self.matcher.match_batch(rows, threads=threads)

    def put(self, changes: Sequence[tuple[Subscription, Subscription | None]]) -> None:
        """Add subscriptions, or change them: each with the one that it takes the place of."""
        for subscription, before in changes:
            if before is None:
                self.slots.add(subscription)
            else:
                self.slots.replace(before.slot, subscription)
        _subscribe(self.matcher, [subscription for subscription, _ in changes])
        self.changes += len(changes)
        self.changed = time.monotonic()

    def remove(self, subscription: Subscription) -> None:
        """Forget a subscription."""
        self.matcher.unsubscribe(subscription.slot)
        self.slots.remove(subscription.slot)
        self.changes += 1
        self.changed = time.monotonic()

    def extend(self, spec: FeedSpec) -> None:
        """Have more attributes from now on."""
        matcher = Matcher(spec.schema)
        _subscribe(matcher, [one for one in self.slots.subscriptions if one is not None])
        self.spec, self.matcher = spec, matcher
        self._names = frozenset(spec.schema.names)

    def is_untidy(self, quiet: float) -> bool:
        """Whether many subscriptions have changed, and none for so many seconds."""
        return self.changes >= _MANY_CHANGES and time.monotonic() - self.changed > quiet

    def tidy(self) -> None:
        """Give new subscriptions their place in the index. In any thread; takes a while."""
        self.changes = 0
        self.matcher.compact()

    def explain(self, event: Mapping[str, Any], slot: int) -> Explanation:
        """Why a stored subscription does or does not want an event."""
        return self.matcher.explain(event, slot)


def _subscribe(matcher: Matcher, subscriptions: Sequence[Subscription]) -> None:
    texts = []
    for one in subscriptions:
        wanted = filter_of(one.wanted)
        if isinstance(wanted, str) and len(subscriptions) > 1:
            texts.append({"id": one.slot, "filter": wanted})
        else:
            matcher.subscribe(one.slot, wanted)
    if texts:
        matcher.subscribe_many(texts)


def check_wanted(spec: FeedSpec, wanted: Wanted) -> None:
    """Raise `FilterError` if the filter does not make sense for this feed."""
    if wanted.regions is not None or wanted.region_filter is not None or wanted.ttl is not None:
        raise BrokerError(f"feed {spec.name!r} is one of events: give a filter, not regions")
    compile_filter(spec.schema, filter_of(wanted))


def filter_of(wanted: Wanted) -> str | dict[str, Any]:
    """The filter as the engine takes it: in JSON a range is an object with `low` and `high`."""
    given = wanted.filter
    if given is None:
        raise FilterError("a subscription needs a filter")
    if isinstance(given, str):
        return given
    return {name: _condition(name, condition) for name, condition in given.items()}


def _condition(name: str, condition: Any) -> Any:
    if not isinstance(condition, Mapping):
        return condition
    unknown = condition.keys() - {"low", "high"}
    if unknown or not condition:
        raise FilterError(f"attribute {name!r}: a range has low, high or both, and nothing else")
    return (condition.get("low"), condition.get("high"))
