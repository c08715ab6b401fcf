"""Finds out why a subscription does or does not want an event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from boxmatch.arrays import Int64Array
from boxmatch.model.explanation import Explanation, Predicate
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.keys import is_absent

if TYPE_CHECKING:
    from boxmatch.engine.box_stores import Row
    from boxmatch.engine.snapshot import Snapshot


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
