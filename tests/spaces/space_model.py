"""Subject spaces in plain Python: the whole relation, worked out afresh after every operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from boxmatch.model.interval import Interval, ends_of

Spec = Mapping[str, Any]
Rows = list[dict[str, bool]]
"""For each region of the other side: which of one's own it overlaps."""


def empty(low: Any, high: Any, low_open: bool, high_open: bool) -> bool:
    return low is not None and high is not None and (
        low > high or (low == high and (low_open or high_open))
    )  # fmt: skip


def overlap(one: Interval, other: Interval) -> bool:
    """The paper's rules: open and closed ends, unbounded sides."""
    for a, b in ((one, other), (other, one)):
        if a.high is None or b.low is None:
            continue
        if b.low > a.high or (b.low == a.high and (a.high_open or b.low_open)):
            return False
    return True


@dataclass
class Thing:
    """A publication or a subscription."""

    regions: dict[str, dict[str, Interval]]
    filter: Callable[[Rows], bool] | None


class Model:
    def __init__(self, spaces: Mapping[str, set[str]], leave: bool = True) -> None:
        self.spaces = spaces
        self.leave = leave
        self.things: dict[str, dict[str, Thing]] = {"publication": {}, "subscription": {}}

    def relation(self) -> set[tuple[str, str]]:
        return {
            (p, s)
            for p, publication in self.things["publication"].items()
            for s, subscription in self.things["subscription"].items()
            if self._match(publication, subscription)
        }

    def _match(self, one: Thing, other: Thing) -> bool:
        return self._satisfied(one, other) and self._satisfied(other, one)

    def _satisfied(self, one: Thing, other: Thing) -> bool:
        rows = [
            {name: self._regions_match(region, theirs) for name, region in one.regions.items()}
            for theirs in other.regions.values()
        ]
        if one.filter is None:
            return all(any(row[name] for row in rows) for name in one.regions)
        return one.filter(rows)

    def _regions_match(self, one: dict[str, Interval], other: dict[str, Interval]) -> bool:
        return any(
            dimensions & one.keys()
            and dimensions & other.keys()
            and all(overlap(one[d], other[d]) for d in dimensions & one.keys() & other.keys())
            for dimensions in self.spaces.values()
        )

    def transitions(self, change: Callable[[], None], deleted: str | None = None) -> set[Any]:
        """Kinds, publications and subscriptions that a change has to tell."""
        before = self.relation()
        change()
        after = self.relation()
        notified = {("enter", *pair) for pair in after - before}
        for p, s in before - after:
            if p == deleted:
                notified.add(("deleted", p, s))
            elif self.leave and s in self.things["subscription"]:
                notified.add(("leave", p, s))
        return notified


def intervals(spec: Spec) -> dict[str, Interval]:
    return {
        name: _closed(Interval(*(ends_of(name, given) or (given, given))))
        for name, given in spec.items()
    }


def _closed(interval: Interval) -> Interval:
    """Between 5 and 6 there is no whole number: open ends of those are closed ones further in."""
    low, high = interval.low, interval.high
    whole = all(end is None or isinstance(end, int) for end in (low, high))
    if not whole:
        return interval
    return Interval(
        low if low is None else low + interval.low_open,
        high if high is None else high - interval.high_open,
    )
