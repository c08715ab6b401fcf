"""What a matcher has: ids, filters, numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.box_stores import StoreView
from boxmatch.engine.filter_texts import no_texts
from boxmatch.engine.residuals import NONE
from boxmatch.engine.saved_files import Settings
from boxmatch.engine.snapshot import Snapshot
from boxmatch.engine.stores import Stores, possible
from boxmatch.kernels.pieces import pieces
from boxmatch.model.dialects.registry import without_dialect
from boxmatch.model.ids import SubscriptionId

_BLOCK: Final = 4_096
"""Subscriptions whose texts are read at a time."""


@dataclass(frozen=True)
class MatcherInfo:
    """A matcher in numbers."""

    subscriptions: int
    boxes: int
    """What filters were compiled to: one or more for each."""
    expressions: int
    """Different expressions that filters compare, worked out once for every event."""
    residuals: int
    """Subscriptions with conditions that are checked event by event."""
    index: str
    stores: int
    """Parts that an event is looked up in."""
    memory: dict[str, int]
    """Bytes by part."""
    pending: int | None
    """Of a durable matcher: changes that its files do not have yet, but only its journal."""

    @property
    def total_memory(self) -> int:
        """Bytes of all parts."""
        return sum(self.memory.values())


def info_of(settings: Settings, stores: Stores, pending: int | None) -> MatcherInfo:
    """See `Matcher.info`."""
    snapshot = stores.snapshot
    return MatcherInfo(
        subscriptions=snapshot.size,
        boxes=sum(view.rows - view.removed for view in snapshot.views),
        expressions=sum(axis is not None for axis in snapshot.axes.derived),
        residuals=sum(map(_count_residuals, snapshot.views)),
        index=settings.index,
        stores=len(snapshot.views),
        memory=stores.nbytes,
        pending=pending,
    )


def _count_residuals(view: StoreView) -> int:
    """The subscriptions that have one."""
    residuals, numbers = view.residuals, view.store.numbers
    if residuals is None:
        return 0
    live = view.live_positions()
    live = live[residuals.numbers[live] != NONE]
    return len(live) if numbers is None else len(np.unique(numbers[live]))


def list_ids(snapshot: Snapshot) -> list[SubscriptionId]:
    """The id of every subscription, once."""
    found: list[SubscriptionId] = []
    for view in snapshot.views:
        first = _first_positions(view)
        for piece in pieces(len(first)):
            found += view.store.ids[first[piece]].tolist()
    return found


def _first_positions(view: StoreView) -> Int64Array:
    """The first position of every subscription."""
    live = view.live_positions()
    numbers = view.store.numbers
    if numbers is None:
        return live
    _, first = np.unique(numbers[live], return_index=True)
    return live[np.sort(first)]


def list_items(snapshot: Snapshot) -> Iterator[tuple[SubscriptionId, str]]:
    """Every subscription with its filter."""
    for view in snapshot.views:
        store = view.store
        live = view.live_positions()
        numbers = store.numbers
        texts = store.take_texts(live) if store.texts else no_texts(len(live))
        ends = np.arange(1, len(live) + 1)
        if numbers is not None:
            order = np.argsort(numbers[live], kind="stable")
            live, texts = live[order], texts.take(order)
            ends = np.flatnonzero(np.diff(numbers[live], append=-1)) + 1
        first = 0
        for start in range(0, len(ends), _BLOCK):
            block = ends[start : start + _BLOCK]
            end = int(block[-1])
            part = texts.slice(first, end - first).to_pylist()
            yield from _items(snapshot, view, live[first:end], part, (block - first).tolist())
            first = end


def _items(
    snapshot: Snapshot,
    view: StoreView,
    positions: Int64Array,
    texts: list[str | None],
    ends: list[int],
) -> Iterator[tuple[SubscriptionId, str]]:
    """Subscriptions, each of which has the positions up to its end."""
    store = view.store
    ids = store.ids[positions].tolist()
    first = 0
    for end in ends:
        text = next((one for one in texts[first:end] if one is not None), None)
        if text is None:
            own = positions[first:end].tolist()
            rows = possible([store.boxes.row(position) for position in own])
            residual = None if view.residuals is None else view.residuals.at(own[0])
            text = snapshot.render(*rows, residual=residual if rows else None)
        yield ids[first], without_dialect(text)[1]
        first = end
