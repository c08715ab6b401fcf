"""Why a subscription does or does not want an event, and which come nearest to wanting it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.box_stores import Row, StoreView
from boxmatch.engine.ids import IdArray
from boxmatch.engine.residuals import Residual, Residuals
from boxmatch.engine.snapshot import Snapshot
from boxmatch.engine.stores import Stores
from boxmatch.errors import FilterTooLargeError
from boxmatch.indexes.registry import index_class
from boxmatch.indexes.scan import FAILURE, NEVER, rank_failures
from boxmatch.model.dialects.registry import without_dialect
from boxmatch.model.documents import value_of_text
from boxmatch.model.explanation import Explanation, Predicate
from boxmatch.model.expressions.documents import as_written
from boxmatch.model.expressions.nodes import Call, Node
from boxmatch.model.expressions.rendering import render as render_node
from boxmatch.model.filters import compile_filter
from boxmatch.model.filters.names import quote_name
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.keys import is_absent, value_of
from boxmatch.model.point_encoder import Values
from boxmatch.model.points import Points
from boxmatch.model.schema import Attribute, Schema

Among = Callable[[IdArray], BoolArray]
"""Which of some subscriptions are looked at."""

_GONE: Final = NEVER + 1
_MOMENT: Final = Attribute("moment", "timestamp")


class Wanted(NamedTuple):
    """What a box wants on one axis."""

    attribute: str
    """The attribute, or the expression, that is compared."""
    text: str
    is_expression: bool


class Explainer:
    """Explains one subscription, as it was when this was made, for any number of events."""

    def __init__(
        self,
        subscription: SubscriptionId,
        snapshot: Snapshot,
        boxes: Sequence[Row],
        residual: Residual | None = None,
        text: str | None = None,
    ) -> None:
        self._subscription = subscription
        self._snapshot = snapshot
        self._boxes = boxes
        self._residual = residual
        self._dialect: str | None = None
        self._text = text
        if text is not None:
            self._dialect, self._text = without_dialect(text)

    @cached_property
    def _written(self) -> WrittenFilter | None:
        """The filter as it was written; None if that is not known, or says no more."""
        if (
            self._dialect is not None
            or self._text is None
            or (not any(self._boxes) and self._residual is None)
        ):
            return None
        try:
            return WrittenFilter(self._snapshot.axes.schema, self._text)
        except FilterTooLargeError:  # parts of it alone, as they are not narrowed down
            return None

    def __len__(self) -> int:
        """Number of boxes, which is that of alternatives."""
        return len(self._boxes)

    @property
    def residual(self) -> list[str]:
        """The conditions that are checked where a box holds an event, as text."""
        if self._residual is None:
            return []
        return [render_node(node, quote_name) for node in self._residual.nodes]

    def wanted(self, most: int) -> list[list[Wanted]]:
        """The first boxes: what is wanted on each axis that one constrains."""
        snapshot = self._snapshot
        first = len(snapshot.axes.schema)
        return [
            [
                Wanted(_name(snapshot, one[0]), snapshot.render([one]), one[0] >= first)
                for one in box
            ]
            for box in self._boxes[:most]
        ]

    def explain(self, event: Mapping[str, Any]) -> Explanation:
        """Every alternative, predicate by predicate, as they were written if that is known."""
        if self._written is not None:
            return self._verdict(self._written.explain(event))
        return self._explain([(seen, box) for seen in self._see(event) for box in self._boxes])

    def _see(self, event: Mapping[str, Any]) -> list[_Seen]:
        return _see(self._snapshot, event, () if self._residual is None else self._residual.nodes)

    def nearest(self, event: Mapping[str, Any]) -> Explanation:
        """The alternative that matched, or else the one with the fewest failures, and no other."""
        if self._written is not None:
            explained = self.explain(event)
            return replace(explained, alternatives=(explained.predicates,))

        def failures(alternative: tuple[_Seen, Row]) -> int:
            seen, box = alternative
            return sum(not seen.holds(*predicate) for predicate in box)

        alternatives = [(seen, box) for seen in self._see(event) for box in self._boxes]
        return self._explain([min(alternatives, key=failures)] if alternatives else [])

    def _explain(self, alternatives: Sequence[tuple[_Seen, Row]]) -> Explanation:
        return self._verdict(tuple(seen.explain(box, self._residual) for seen, box in alternatives))

    def _verdict(self, alternatives: tuple[tuple[Predicate, ...], ...]) -> Explanation:
        matched = any(all(p.satisfied for p in predicates) for predicates in alternatives)
        return Explanation(self._subscription, matched, alternatives)


class WrittenFilter:
    """A filter as it was written, condition by condition."""

    def __init__(self, schema: Schema, text: str) -> None:
        from boxmatch.model.filters.clauses import clauses_of

        # Each condition is a subscription of its own.
        self._stores = Stores(schema, index_class("scan"))
        self._alternatives: list[list[tuple[int, str]]] = []
        number = 0
        for clauses in clauses_of(text):
            self._alternatives.append(list(enumerate(clauses, number)))
            for clause in clauses:
                self._stores.add(number, "int", compile_filter(schema, clause))
                number += 1

    def explain(self, event: Mapping[str, Any]) -> tuple[tuple[Predicate, ...], ...]:
        """Every alternative, condition by condition."""
        snapshot = self._stores.snapshot
        return tuple(
            tuple(self._predicate(seen, number, text, number in held) for number, text in clauses)
            for seen in _see(snapshot, event, snapshot.tests)
            for held in [seen.matches()]
            for clauses in self._alternatives
        )

    def _predicate(self, seen: _Seen, number: int, text: str, holds: bool) -> Predicate:
        snapshot, rows, residual = self._stores.boxes_of(number)
        positions = sorted({position for row in rows for position, _, _ in row})
        if len(positions) == 1 and residual is None:
            name = _name(snapshot, positions[0])
            return Predicate(name, text, seen.got(positions[0], text), holds)
        names = set() if residual is None else set(residual.columns)
        names.update(*(snapshot.columns_at(position) for position in positions))
        got: Any = {name: seen.got(snapshot.axes.schema.index[name]) for name in sorted(names)}
        if len(names) <= 1:
            got = next(iter(got.values()), None)
        return Predicate(", ".join(sorted(names)), text, got, holds, residual is not None)


def _see(snapshot: Snapshot, event: Mapping[str, Any], tests: Iterable[Node]) -> list[_Seen]:
    """An event as the axes of a snapshot see it, for each choice of elements of its lists."""
    reader = snapshot.encoder.reader(None, tests)
    return [_Seen(snapshot, event, *one) for one in snapshot.encoder.one(event, reader)]


class _Seen:
    """An event, or a choice among the elements of its lists, as the axes of a snapshot see it."""

    def __init__(
        self, snapshot: Snapshot, event: Mapping[str, Any], points: Points, values: Values
    ) -> None:
        self._snapshot = snapshot
        self._event = event
        self.points, self.values = points, values
        lists = self.points.lists
        self._lists: dict[int, Int64Array] = {}
        if lists is not None:
            for place, position in enumerate(lists.axes.tolist()):
                self._lists[position] = lists.keys[lists.start[place] : lists.start[place + 1]]

    def matches(self) -> set[SubscriptionId]:
        """The subscriptions that want it."""
        views = self._snapshot.views
        return {id for view in views for id in view.match_one(self.points, self.values).tolist()}

    def holds(self, position: int, low: int, high: int) -> bool:
        """Whether the event has a key in an interval of an axis."""
        keys = self._lists.get(position)
        if keys is not None:
            return bool(((keys >= low) & (keys <= high)).any())
        return bool(low <= self.points.keys[0, position] <= high)

    def explain(self, box: Row, residual: Residual | None = None) -> tuple[Predicate, ...]:
        """Predicate by predicate: what a subscription wants, and what the event has."""
        snapshot = self._snapshot
        found = []
        for position, low, high in box:
            wanted = snapshot.render([(position, low, high)])
            holds = self.holds(position, low, high)
            name = _name(snapshot, position)
            found.append(Predicate(name, wanted, self.got(position, wanted), holds))
        for node in () if residual is None else residual.nodes:
            text = render_node(node, quote_name)
            got = self._value(node)
            found.append(Predicate(text, text, got, got is True, residual=True))
        return tuple(found)

    def _value(self, node: Node) -> Any:
        """The value of an expression."""
        from boxmatch.model.expressions.scalar import compile_scalar

        return compile_scalar(node)(self.values)

    def got(self, position: int, wanted: str = "") -> Any:
        """What the event has: an attribute's value as it was given, or that of the expression that
        `wanted` names.
        """
        axes = self._snapshot.axes
        first = len(axes.schema)
        if position >= first:
            axis = axes.derived[position - first]
            if axis is None:
                return None
            node = axis.node
            # Of suffixes, and without regard to case, what is compared is not what is named.
            while isinstance(node, Call) and node.function in ("reverse", "lower"):
                if node.function in wanted.lower():
                    break
                [node] = node.arguments
            if axis.is_of_texts:
                return _shown_texts(self._value(as_written(node)))
            return _shown(self._value(node), node.type.name)
        attribute = axes.schema.attributes[position]
        got = self._event.get(attribute.name)
        if got is None and (attribute.repeated or "." in attribute.name):
            got = self.values[attribute.name]
        return None if is_absent(got) else got


def _name(snapshot: Snapshot, position: int) -> str:
    axes = snapshot.axes
    if position < len(axes.schema):
        return axes.schema.names[position]
    axis = axes.derived[position - len(axes.schema)]
    return "" if axis is None else axis.text


def _shown_texts(texts: Any) -> Any:
    """Values of documents, of their texts."""
    if not isinstance(texts, list):
        return None if texts is None else value_of_text(texts)
    values = [value_of_text(text) for text in texts]
    return values[0] if len(values) == 1 else values or None


def _shown(value: Any, kind: str) -> Any:
    """A value of an expression as people write it."""
    if value is None:
        return None
    if kind == "timestamp":
        return value_of(_MOMENT, value)
    return timedelta(microseconds=value) if kind == "interval" else value


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
    seen = _see(snapshot, event, snapshot.tests)
    matched: list[IdArray] = []
    missed = 0
    near: list[tuple[int, int, int]] = []
    for number, view in enumerate(snapshot.views):
        positions, ranks = _best_boxes(view, seen)
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
        view = snapshot.views[number]
        store = view.store
        [id] = store.ids[position : position + 1].tolist()
        residual = None if view.residuals is None else view.residuals.at(position)
        row = store.boxes.row(position)
        predicates = min((one.explain(row, residual) for one in seen), key=_failures)
        misses.append(Miss(id, rank // FAILURE, predicates))
    joined: IdArray = np.concatenate(matched) if matched else np.empty(0, np.int64)  # type: ignore[assignment]  # of one kind
    return Nearest(joined, missed, misses)


def _failures(predicates: Sequence[Predicate]) -> int:
    return sum(not one.satisfied for one in predicates)


def _ranks(view: StoreView, seen: _Seen) -> Int64Array:
    """How far each box is from holding an event."""
    ranks = np.empty(view.rows, np.int64)
    rank_failures(*view.store.boxes[1:], seen.points.keys[0], ranks, seen.points.lists)
    if view.residuals is not None:
        _count_residuals(view.residuals, seen, ranks)
    return ranks


def _best_boxes(view: StoreView, seen: Sequence[_Seen]) -> tuple[Int64Array, Int64Array]:
    """The nearest box of each subscription: its position and its rank."""
    ranks: Int64Array = np.min([_ranks(view, one) for one in seen], axis=0)
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


def _count_residuals(residuals: Residuals, seen: _Seen, ranks: Int64Array) -> None:
    """Count a residual as one more predicate, which holds or fails."""
    held = [one.holds(seen.values) for one in residuals.distinct]
    numbers = residuals.numbers[: len(ranks)]
    change = np.where([*held, False], -1, FAILURE)
    change[-1] = 0  # of boxes without a residual
    ranks += np.where(ranks == NEVER, 0, change[numbers])
