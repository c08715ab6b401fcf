"""Why a subscription does or does not want an event, and which come nearest to wanting it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.box_stores import Row, StoreView
from boxmatch.engine.ids import IdArray
from boxmatch.engine.snapshot import Snapshot
from boxmatch.indexes.scan import FAILURE, NEVER, rank_failures
from boxmatch.model.explanation import Explanation, Predicate
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.keys import is_absent

Among = Callable[[IdArray], BoolArray]
"""Which of some subscriptions are looked at."""

_GONE: Final = NEVER + 1


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


class Miss(NamedTuple):
    """A subscription that does not want an event, by the box of it that is nearest."""

    subscription: SubscriptionId
    failed: int
    """How many of the predicates are not satisfied."""
    predicates: tuple[Predicate, ...]


class Nearest(NamedTuple):
    """What all subscriptions make of an event."""

    matched: IdArray
    missed: int
    """How many do not want it."""
    misses: list[Miss]
    """The nearest of those: fewest failures first. Filters that can never match are not in it."""


def find_nearest(
    snapshot: Snapshot, event: Mapping[str, Any], limit: int, among: Among | None
) -> Nearest:
    """See `Matcher.nearest`."""
    if limit < 0:
        raise ValueError(f"limit must not be negative, but is {limit}")
    point = snapshot.encoder.one(event)
    matched: list[IdArray] = []
    missed = 0
    near: list[tuple[int, int, int]] = []
    for number, view in enumerate(snapshot.views):
        positions, ranks = _best_boxes(view, point)
        if among is not None:
            chosen = among(view.store.ids[positions])
            positions, ranks = positions[chosen], ranks[chosen]
        is_match = ranks < FAILURE
        matched.append(view.store.ids[positions[is_match]])
        missed += len(ranks) - int(is_match.sum())
        possible = np.flatnonzero(~is_match & (ranks < NEVER))
        for place in _smallest(ranks[possible], limit):
            found = possible[place]
            near.append((int(ranks[found]), number, int(positions[found])))
    misses = []
    for rank, number, position in sorted(near)[:limit]:
        store = snapshot.views[number].store
        [id] = store.ids[position : position + 1].tolist()
        predicates = explain_box(snapshot, store.boxes.row(position), event, point)
        misses.append(Miss(id, rank // FAILURE, predicates))
    joined: IdArray = np.concatenate(matched) if matched else np.empty(0, np.int64)  # type: ignore[assignment]  # of one kind
    return Nearest(joined, missed, misses)


def _best_boxes(view: StoreView, point: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The nearest box of each subscription: its position and its rank."""
    ranks = np.empty(view.rows, np.int64)
    rank_failures(*view.store.boxes[1:], point, ranks)
    ranks[view.removed_positions()] = _GONE
    positions = np.flatnonzero(ranks < _GONE)
    numbers = view.store.numbers
    if numbers is not None:
        positions = positions[np.argsort(ranks[positions], kind="stable")]
        _, first = np.unique(numbers[positions], return_index=True)
        positions = positions[first]
    return positions, ranks[positions]


def _smallest(values: Int64Array, limit: int) -> Int64Array:
    """Where the `limit` smallest are, in any order."""
    if len(values) <= limit:
        return np.arange(len(values))
    if limit == 0:
        return np.empty(0, np.int64)
    return np.argpartition(values, limit - 1)[:limit]
