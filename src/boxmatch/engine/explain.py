"""Why a subscription does or does not want an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from boxmatch.arrays import Int64Array
from boxmatch.engine.ids import SubscriptionId
from boxmatch.model.keys import is_absent

if TYPE_CHECKING:
    from boxmatch.engine.parts import Row
    from boxmatch.engine.snapshot import Snapshot


@dataclass(frozen=True)
class Predicate:
    """One condition: what was wanted, what the event has, and whether that will do."""

    attribute: str
    wanted: str
    got: Any
    satisfied: bool

    def __str__(self) -> str:
        mark = "✓" if self.satisfied else "✗"
        got = "absent" if self.got is None else repr(self.got)
        return f"{mark} {self.wanted}   got {got}"


@dataclass(frozen=True)
class Explanation:
    """Why a subscription does or does not want an event.

    A filter with OR has several alternatives, each a conjunction of predicates. It matches if all
    predicates of one alternative are satisfied. `predicates` are those of the alternative that
    matched, or else of the one with the fewest failures.
    """

    subscription: SubscriptionId
    matched: bool
    alternatives: tuple[tuple[Predicate, ...], ...]

    @property
    def predicates(self) -> tuple[Predicate, ...]:
        return min(self.alternatives, key=_failures, default=())

    @property
    def never(self) -> bool:
        """No event can ever match this filter."""
        return not self.alternatives

    def __bool__(self) -> bool:
        return self.matched

    def __str__(self) -> str:
        verdict = "matches" if self.matched else "does not match"
        lines = [f"{self.subscription!r} {verdict}"]
        if self.never:
            lines.append("  its filter can never be true")
        elif not self.predicates:
            lines.append("  its filter is always true")
        lines.extend(f"  {predicate}" for predicate in self.predicates)
        others = len(self.alternatives) - 1
        if others > 0 and not self.matched:
            lines.append(f"  ({others} more alternative{'s' * (others > 1)}, none nearer)")
        return "\n".join(lines)


def _failures(predicates: Sequence[Predicate]) -> int:
    return sum(not predicate.satisfied for predicate in predicates)


class Explainer:
    """Explains one subscription, as it was when this was made, for any number of events."""

    def __init__(
        self, subscription: SubscriptionId, snapshot: Snapshot, boxes: Sequence[Row]
    ) -> None:
        self._subscription = subscription
        self._snapshot = snapshot
        self._boxes = boxes

    def __len__(self) -> int:
        """Number of boxes, which is that of alternatives."""
        return len(self._boxes)

    def wanted(self, most: int) -> list[list[tuple[str, str]]]:
        """The first boxes: for each attribute that one constrains, its name and what is wanted."""
        names = self._snapshot.encoder.schema.names
        return [
            [(names[one[0]], self._snapshot.render([one])) for one in box]
            for box in self._boxes[:most]
        ]

    def explain(self, event: Mapping[str, Any]) -> Explanation:
        """Every alternative, predicate by predicate."""
        return self._explain(event, self._boxes)

    def nearest(self, event: Mapping[str, Any]) -> Explanation:
        """The alternative that matched, or else the one with the fewest failures, and no other."""
        point = self._snapshot.encoder.one(event)

        def failures(box: Row) -> int:
            return sum(not low <= point[attribute] <= high for attribute, low, high in box)

        return self._explain(event, [min(self._boxes, key=failures)] if self._boxes else [])

    def _explain(self, event: Mapping[str, Any], boxes: Sequence[Row]) -> Explanation:
        point = self._snapshot.encoder.one(event)
        alternatives = tuple(explain_box(self._snapshot, box, event, point) for box in boxes)
        matched = any(all(p.satisfied for p in predicates) for predicates in alternatives)
        return Explanation(self._subscription, matched, alternatives)


def explain_box(
    snapshot: Snapshot, box: Row, event: Mapping[str, Any], point: Int64Array
) -> tuple[Predicate, ...]:
    """Predicate by predicate: what a box wants, and what the event has, whose keys are `point`."""
    names = snapshot.encoder.schema.names
    predicates = []
    for attribute, low, high in box:
        got = event.get(names[attribute])
        predicates.append(
            Predicate(
                names[attribute],
                snapshot.render([(attribute, low, high)]),
                None if is_absent(got) else got,
                bool(low <= point[attribute] <= high),
            )
        )
    return tuple(predicates)
