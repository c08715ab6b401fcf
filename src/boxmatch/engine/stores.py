"""The stores of a matcher while they change: what is written, published and merged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from boxmatch.engine.box_stores import (
    BoxStore,
    IndexedSegment,
    Row,
    StoreView,
    Tail,
    build_segments,
)
from boxmatch.engine.bulk import Axes, Bulk, add_strings, resolve
from boxmatch.engine.compaction import Compactor, Merged, merge, plan, wasteful
from boxmatch.engine.memory import release_free_memory
from boxmatch.engine.snapshot import Snapshot
from boxmatch.errors import SubscriptionIdError, UnknownSubscriptionError
from boxmatch.indexes.base import Index
from boxmatch.model.events import EventEncoder
from boxmatch.model.filters import CompiledFilter
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.model.schema import Schema
from boxmatch.model.strings import AxisFullError, string_axes

_TAIL_ROWS = 1_024
"""Boxes in the tail before it is handed to compaction."""

_MANY_BOXES = 100_000
"""Boxes from which on building leaves free memory worth giving back."""

_WAITING_TAILS = 8
"""Tails that may wait for compaction before a writer has to help."""

_Done = TypeVar("_Done")


class Stores:
    """Segments and tails, the last of which takes what is new, and a snapshot of them all.

    All methods may be called from any thread. Writers take turns; a reader takes the snapshot of
    the moment, which never changes.
    """

    snapshot: Snapshot
    kind: IdKind | None
    """What kind of ids there are; None before the first."""

    def __init__(self, schema: Schema, make_index: Callable[[], Index]) -> None:
        self._schema = schema
        self._make_index = make_index
        self._writing = threading.RLock()
        self._merging = threading.Lock()
        self._compactor = Compactor(self)
        axes = string_axes(schema)
        self.hold((), axes, 0, None)

    def hold(
        self, views: tuple[StoreView, ...], axes: Axes, size: int, kind: IdKind | None
    ) -> None:
        """Begin with these stores, of so many subscriptions, whose strings are on these axes."""
        self.kind = kind
        self._stores: list[BoxStore] = [*(view.store for view in views), self._new_tail()]
        self.snapshot = Snapshot(views, axes, EventEncoder(self._schema, axes), size)

    @property
    def id_dtype(self) -> type:
        return object if self.kind == "string" else np.int64

    @property
    def nbytes(self) -> dict[str, int]:
        """Bytes held, by part."""
        held: dict[str, int] = {}
        for store in list(self._stores):
            for part, size in store.nbytes.items():
                held[part] = held.get(part, 0) + size
        held["strings"] = sum(axis.nbytes for axis in self.snapshot.axes.values())
        return held

    # Writing

    def add(self, subscription_id: SubscriptionId, kind: IdKind, compiled: CompiledFilter) -> bool:
        """Add a subscription; True if it takes the place of one with the same id."""

        def change() -> bool:
            self._settle_kind(kind)
            axes = self.snapshot.axes
            add_strings(axes, [compiled])
            rows = resolve(axes, compiled)
            replaced = self._take_out(subscription_id)
            tail = self._tail
            tail.append(subscription_id, rows, compiled.disjoint)
            self._publish(int(replaced is None), tail, replaced)
            if tail.rows >= _TAIL_ROWS:
                self._stores.append(self._new_tail())
                self._compactor.wake()
            return replaced is not None

        done = self._write(change)
        if len(self._stores) > _WAITING_TAILS:
            tails = sum(isinstance(store, Tail) for store in self._stores)
            if tails > _WAITING_TAILS + 1:
                self.merge_once()
        return done

    def add_many(self, place: Callable[[Axes], Bulk]) -> tuple[Bulk, int]:
        """Add what `place` puts on the axes; also how many take the place of one with their id.

        It is called again if an axis had no room.
        """

        def change() -> tuple[Bulk, int]:
            bulk = place(self.snapshot.axes)
            return bulk, self._load(bulk) if len(bulk.ids) else 0

        return self._write(change)

    def remove(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription; `UnknownSubscriptionError` if there is none with this id."""
        with self._writing:
            store = self._take_out(subscription_id)
            if store is None:
                raise UnknownSubscriptionError(subscription_id)
            self._publish(-1, store)
            if wasteful(StoreView(store)):
                self._compactor.wake()

    def _write(self, change: Callable[[], _Done]) -> _Done:
        """Make a change that may need room on a string axis, alone among writers."""
        while True:
            try:
                with self._writing:
                    return change()
            except AxisFullError:
                self._respread()

    def _settle_kind(self, kind: IdKind) -> None:
        if self.kind is None:
            self.kind = kind
            self._stores = [self._new_tail()]
        elif kind != self.kind:
            raise SubscriptionIdError(
                f"the ids of this matcher are of kind {self.kind}, not {kind}"
            )

    def _new_tail(self) -> Tail:
        return Tail(len(self._schema), self.id_dtype)

    @property
    def _tail(self) -> Tail:
        tail = self._stores[-1]
        if not isinstance(tail, Tail):
            raise TypeError("the last store is the tail")
        return tail

    def _take_out(self, subscription_id: SubscriptionId) -> BoxStore | None:
        """Log the removal of a subscription's boxes; returns where they were."""
        for store in reversed(self._stores):
            positions = store.find(subscription_id)
            if positions:
                store.removals.add(positions)
                return store
        return None

    def _load(self, load: Bulk) -> int:
        """Make segments of many subscriptions; returns how many were there before."""
        self._settle_kind(load.kind)
        built = build_segments(
            self._make_index,
            load.boxes,
            load.ids[load.owner],
            load.owner,
            load.overlapping[load.owner],
        )
        changed = []
        replaced = 0
        for store in self._stores:
            positions = store.find_many(load.ids)
            if positions:
                replaced += len(np.unique(store.ids[positions].astype(self.id_dtype)))
                store.removals.add(positions)
                changed.append(store)
        self._stores[-1:-1] = [segment for segment, _ in built]
        self._publish(len(load.ids) - replaced, *changed)
        if load.boxes.count > _MANY_BOXES:
            release_free_memory()
        if self.needs_merging():
            self._compactor.wake()
        return replaced

    def _publish(self, more: int, *changed: BoxStore | None) -> None:
        """Swap in a snapshot that sees `changed` stores as they are now."""
        before = self.snapshot
        known = {id(view.store): view for view in before.views}
        for store in changed:
            known.pop(id(store), None)
        views = tuple(
            known.get(id(store)) or StoreView(store) for store in self._stores if store.rows
        )
        self.snapshot = Snapshot(views, before.axes, before.encoder, before.size + more)

    # Looking

    def __contains__(self, subscription_id: SubscriptionId) -> bool:
        with self._writing:
            return any(store.find(subscription_id) for store in self._stores)

    def boxes_of(self, subscription_id: SubscriptionId) -> tuple[Snapshot, list[Row]]:
        """The boxes of a subscription, and a snapshot whose axes go with them."""
        with self._writing:
            for store in self._stores:
                positions = store.find(subscription_id)
                if positions:
                    boxes = store.boxes
                    rows = [boxes.row(position) for position in sorted(positions)]
                    return self.snapshot, _possible(rows)
        raise UnknownSubscriptionError(subscription_id)

    # Merging

    def needs_merging(self) -> bool:
        return bool(plan(self._mergeable()))

    def merge_once(self, everything: bool = False) -> bool:
        """Merge what most needs it; False if nothing does."""
        with self._merging:
            with self._writing:
                if everything and self._tail.rows:
                    self._stores.append(self._new_tail())
                views = self._mergeable()
                chosen = views if everything and _untidy(views) else plan(views)
            if not chosen:
                return False
            merged = merge(chosen, self._make_index)
            with self._writing:
                self._swap_in(merged)
        return True

    def without_tails(self) -> Snapshot:
        """A snapshot of segments alone, into which all tails are merged first."""
        with self._merging, self._writing:
            tails = [StoreView(one) for one in self._stores if isinstance(one, Tail) and one.rows]
            if tails:
                if self._tail.rows:
                    self._stores.append(self._new_tail())
                self._swap_in(merge(tails, self._make_index))
            return self.snapshot

    def _mergeable(self) -> list[StoreView]:
        tail = self._stores[-1]
        return [view for view in self.snapshot.views if view.store is not tail]

    def _swap_in(self, merged: Merged) -> None:
        merged.carry_over()
        gone = {id(view.store) for view, _ in merged.moves}
        *kept, tail = (store for store in self._stores if id(store) not in gone)
        self._stores = [*kept, *merged.segments, tail]
        self._publish(0, *merged.segments)
        if sum(segment.rows for segment in merged.segments) > _MANY_BOXES:
            release_free_memory()

    def _respread(self) -> None:
        """Give strings new labels, evenly spaced, and move all boxes along. Rare."""
        with self._merging, self._writing:
            axes = {position: axis.copy() for position, axis in self.snapshot.axes.items()}
            moves = {position: axis.respread() for position, axis in axes.items()}
            views = [StoreView(store) for store in self._stores if store.rows]
            moved = merge(views, self._make_index, moves).segments if views else []
            self.hold(tuple(map(StoreView, moved)), axes, self.snapshot.size, self.kind)


def _possible(rows: Sequence[Row]) -> list[Row]:
    """Without the box that stands for "never"."""
    return [row for row in rows if all(low <= high for _, low, high in row)]


def _untidy(views: list[StoreView]) -> bool:
    """Whether merging all stores would change anything."""
    kinds = [view.store.owners is not None for view in views]
    only_segments = all(isinstance(view.store, IndexedSegment) for view in views)
    return not only_segments or len(set(kinds)) < len(kinds) or any(one.removed for one in views)
