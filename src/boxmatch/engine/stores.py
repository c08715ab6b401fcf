"""The stores of a matcher while they change: what is written, published and merged."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence, Sized
from typing import TypeVar

import numpy as np

from boxmatch.engine.box_stores import (
    MUCH,
    BoxStore,
    IndexedSegment,
    Row,
    StoreView,
    Tail,
    build_segments,
)
from boxmatch.engine.bulk import Bulk, place_one
from boxmatch.engine.compaction import Compactor, Merged, merge, plan, wasteful
from boxmatch.engine.ids import IdArray, distinct
from boxmatch.engine.memory import release_free_memory
from boxmatch.engine.recording import Recorded, Recorder, Written
from boxmatch.engine.residuals import Residual, residual_of
from boxmatch.engine.snapshot import Snapshot
from boxmatch.errors import (
    FilterTooLargeError,
    SubscriptionIdError,
    UnknownSubscriptionError,
)
from boxmatch.indexes.base import Index
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.pieces import concatenate, listed, take
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.filters import CompiledFilter, DerivedAxis
from boxmatch.model.ids import IdKind, SubscriptionId
from boxmatch.model.point_encoder import PointEncoder
from boxmatch.model.schema import Schema
from boxmatch.model.strings import AxisFullError

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

    def __init__(
        self, schema: Schema, make_index: Callable[[int], Index], device: str = "cpu"
    ) -> None:
        self._schema = schema
        self._device = device
        self._make_index = make_index
        self._writing = threading.RLock()
        self._merging = threading.Lock()
        self._compactor = Compactor(self)
        self.recorder: Recorder | None = None
        self.hold((), AxisTable(schema), 0, None)
        background.tell(self._compactor)

    def hold(
        self, views: tuple[StoreView, ...], table: AxisTable, size: int, kind: IdKind | None
    ) -> None:
        """Begin with these stores, of so many subscriptions, whose boxes are on these axes."""
        self.kind = kind
        for view in views:
            if isinstance(view.store, IndexedSegment):
                view.store.index.device = self._device
        self._table = table
        self._stores: list[BoxStore] = [*(view.store for view in views), self._new_tail()]
        axes = table.latest()
        self.snapshot = Snapshot(views, axes, PointEncoder(axes), size)

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
        axes = self.snapshot.axes
        held["strings"] = sum(axis.nbytes for axis in axes.strings.values())
        if axes.finders:
            held["finders"] = sum(finder.nbytes for finder in axes.finders.values())
        return held

    # Writing

    def add(
        self,
        subscription_id: SubscriptionId,
        kind: IdKind,
        compiled: CompiledFilter,
        text: str | None = None,
    ) -> bool:
        """Add a subscription; True if it takes the place of one with the same id."""

        def change() -> tuple[bool, Written | None]:
            self._settle_kind(kind)
            rows = place_one(self._table, compiled)
            residual = residual_of(compiled.residual) if compiled.residual else None
            replaced = self._take_out(subscription_id)
            tail = self._tail
            tail.widen(self._table.width)
            tail.append(subscription_id, rows, compiled.disjoint, residual, text)
            if replaced is None or replaced is tail:
                self._publish_one(int(replaced is None), tail)
            else:
                self._publish(0, tail, replaced)
            if tail.rows >= _TAIL_ROWS:
                self._stores.append(self._new_tail())
                self._compactor.wake()
            written = self._record(lambda one: one.added(subscription_id, compiled, text))
            return replaced is not None, written

        done, written = self._write(change)
        if len(self._stores) > _WAITING_TAILS:
            tails = sum(isinstance(store, Tail) for store in self._stores)
            if tails > _WAITING_TAILS + 1:
                self.merge_once()
        if written is not None:
            written.wait()
        return done

    def add_many(self, place: Callable[[AxisTable], Bulk]) -> tuple[Bulk, int]:
        """Add what `place` puts on the axes; also how many take the place of one with their id.

        It is called again if an axis had no room.
        """

        def change() -> tuple[Bulk, int, Written | None]:
            bulk = place(self._table)
            if len(bulk.ids) == 0:
                return bulk, 0, None
            replaced = self._load(bulk)
            return bulk, replaced, self._record(lambda one: one.loaded(bulk))

        bulk, replaced, written = self._write(change)
        if written is not None:
            written.wait()
        return bulk, replaced

    def remove(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription; `UnknownSubscriptionError` if there is none with this id."""
        with self._writing:
            store = self._take_out(subscription_id)
            if store is None:
                raise UnknownSubscriptionError(subscription_id)
            self._publish_one(-1, store)
            if wasteful(StoreView(store)):
                self._compactor.wake()
            written = self._record(lambda one: one.removed([subscription_id]))
        if written is not None:
            written.wait()

    def remove_many(self, ids: IdArray, *, missing_ok: bool) -> int:
        """Remove subscriptions, which are distinct; returns how many there were.

        `UnknownSubscriptionError`, with nothing removed, if one is not there, unless `missing_ok`.
        """
        with self._writing:
            found = [(store, store.find_many(ids)) for store in self._stores]
            here = [take(store.ids, np.array(rows)) for store, rows in found if rows]
            gone: list[SubscriptionId] = listed(distinct(concatenate(here))) if here else []
            if len(gone) < len(ids) and not missing_ok:
                known = set(gone)
                raise UnknownSubscriptionError(
                    next(one for one in ids.tolist() if one not in known)
                )
            if not gone:
                return 0
            changed = []
            for store, positions in found:
                if positions:
                    store.removals.add(positions)
                    changed.append(store)
            self._publish(-len(gone), *changed)
            if any(wasteful(StoreView(store)) for store in changed):
                self._compactor.wake()
            written = self._record(lambda one: one.removed(gone))
        if written is not None:
            written.wait()
        return len(gone)

    def _write(self, change: Callable[[], _Done]) -> _Done:
        """Make a change that may need room on a string axis, or for the axes of expressions, alone
        among writers.
        """
        while True:
            try:
                with self._writing:
                    try:
                        return change()
                    except FilterTooLargeError:
                        self._forget_axes()
                        return change()
            except AxisFullError:
                self._respread()
            except FilterTooLargeError:
                if not self._merge_for_axes():
                    raise

    def _record(self, tell: Callable[[Recorder], Written]) -> Written | None:
        return None if self.recorder is None else tell(self.recorder)

    def check_room(self, axes: Collection[DerivedAxis]) -> None:
        """`FilterTooLargeError` if subscriptions could not have these axes too."""
        self._write(lambda: self._table.check_room(axes))

    def _settle_kind(self, kind: IdKind) -> None:
        if self.kind is None:
            self.kind = kind
            self._stores = [self._new_tail()]
        elif kind != self.kind:
            raise SubscriptionIdError(
                f"the ids of this matcher are of kind {self.kind}, not {kind}"
            )

    def _forget_axes(self) -> None:
        """Forget the axes of expressions that no subscription uses."""
        used = np.zeros(self._table.width, bool)
        for store in self._stores:
            frequency = store.frequency
            used[: len(frequency)] |= frequency > 0
        self._table.forget_unused(used)

    def _new_tail(self) -> Tail:
        return Tail(self._table.width, self.id_dtype)

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
            take(load.ids, load.owner),
            load.owner,
            load.kinds(),
            [load.residuals[owner] for owner in load.owner.tolist()] if load.residuals else (),
            load.texts,
        )
        changed = []
        replaced = 0
        for store in self._stores:
            positions = store.find_many(load.ids)
            if positions:
                replaced += len(distinct(take(store.ids, np.array(positions))))
                store.removals.add(positions)
                changed.append(store)
        self._stores[-1:-1] = [segment for segment, _ in built]
        self._publish(len(load.ids) - replaced, *changed)
        if load.boxes.count > _MANY_BOXES:
            release_free_memory()
        if self.needs_merging():
            self._compactor.wake()
        return replaced

    def _publish(self, more: int, *changed: BoxStore) -> None:
        """Swap in a snapshot that sees `changed` stores as they are now."""
        known = {id(view.store): view for view in self.snapshot.views}
        for store in changed:
            known.pop(id(store), None)
        self._swap(
            more,
            tuple(known.get(id(store)) or StoreView(store) for store in self._stores if store.rows),
        )

    def _publish_one(self, more: int, changed: BoxStore) -> None:
        """The same after a change of one store, when there are no others than before."""
        views = self.snapshot.views
        if views and views[-1].store is changed:  # the tail, mostly
            self._swap(more, (*views[:-1], StoreView(changed)))
        else:
            self._publish(more, changed)

    def _swap(self, more: int, views: tuple[StoreView, ...]) -> None:
        before = self.snapshot
        axes = self._table.latest()
        encoder = before.encoder if axes is before.axes else before.encoder.with_axes(axes)
        self.snapshot = Snapshot(views, axes, encoder, before.size + more)

    # Looking

    def __contains__(self, subscription_id: SubscriptionId) -> bool:
        with self._writing:
            return any(store.find(subscription_id) for store in self._stores)

    def text_of(self, subscription_id: SubscriptionId) -> str | None:
        """The filter of a subscription as it was written, if it is known."""
        with self._writing:
            for store in self._stores:
                positions = store.find(subscription_id)
                if positions:
                    return store.text_of(positions)
        raise UnknownSubscriptionError(subscription_id)

    def boxes_of(
        self, subscription_id: SubscriptionId
    ) -> tuple[Snapshot, list[Row], Residual | None]:
        """The boxes and the residual of a subscription, and a snapshot whose axes go with them."""
        with self._writing:
            for store in self._stores:
                positions = store.find(subscription_id)
                if positions:
                    boxes, residuals = store.boxes, store.residuals
                    rows = [boxes.row(position) for position in sorted(positions)]
                    residual = None if residuals is None else residuals.at(positions[0])
                    return self.snapshot, possible(rows), residual
        raise UnknownSubscriptionError(subscription_id)

    # Merging

    def needs_merging(self) -> bool:
        return bool(plan(self._mergeable()))

    def settle(self) -> None:
        """Wait until every segment has its index, whose kernels may yet have to be compiled."""
        background.wait(Stage.INDEX)
        while any(_is_interim(view) for view in self.snapshot.views):
            self.merge_once()

    def snapshot_for(self, events: object) -> Snapshot:
        """The snapshot for a search, which waits for indexes if scanning would take longer."""
        snapshot = self.snapshot
        many = len(events) if isinstance(events, Sized) else 0
        scanned = sum(view.rows for view in snapshot.views if _is_interim(view))
        if many * scanned > MUCH:
            self.settle()
        return self.snapshot

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
            # In the background one core is enough: the others are for matching.
            make_index = self._make_index if everything else self._make_index_alone
            merged = merge(chosen, make_index)
            merged.prepare()
            with self._writing:
                self._swap_in(merged)
            if sum(segment.rows for segment in merged.segments) > _MANY_BOXES:
                release_free_memory()
        return True

    def _make_index_alone(self, dimensions: int) -> Index:
        """An index that is built by the thread that asks for it."""
        index = self._make_index(dimensions)
        index.threads = 1
        return index

    def _merge_for_axes(self) -> bool:
        """Merge the stores in which some axis is only that of removed boxes; False if there are
        none.
        """
        with self._merging:
            with self._writing:
                if self._tail.rows:
                    self._stores.append(self._new_tail())
                views = self._mergeable()
                unused = np.ones(self._table.width, bool)
                unused[: len(self._schema)] = False
                for view in views:
                    unused[view.store.boxes.take(view.live_positions()).attribute] = False
                chosen = [
                    view
                    for view in views
                    if view.store.frequency[unused[: len(view.store.frequency)]].any()
                ]
            if not chosen:
                return False
            merged = merge(chosen, self._make_index)
            with self._writing:
                self._swap_in(merged)
        return True

    def without_tails(self) -> tuple[Snapshot, Recorded]:
        """A snapshot of segments alone, into which all tails are merged first, and the changes
        that it has, if they are recorded.
        """
        with self._merging, self._writing:
            tails = [StoreView(one) for one in self._stores if isinstance(one, Tail) and one.rows]
            if tails:
                if self._tail.rows:
                    self._stores.append(self._new_tail())
                self._swap_in(merge(tails, self._make_index))
            return self.snapshot, Recorded() if self.recorder is None else self.recorder.last

    def replace(
        self, views: tuple[StoreView, ...], table: AxisTable, size: int, kind: IdKind | None
    ) -> None:
        """Have these stores in the place of those that there are."""
        with self._merging, self._writing:
            self.hold(views, table, size, kind)

    def _mergeable(self) -> list[StoreView]:
        tail = self._stores[-1]
        return [view for view in self.snapshot.views if view.store is not tail]

    def _swap_in(self, merged: Merged) -> None:
        merged.carry_over()
        gone = {id(view.store) for view, _ in merged.moves}
        *kept, tail = (store for store in self._stores if id(store) not in gone)
        self._stores = [*kept, *merged.segments, tail]
        if self._table.positions:
            self._forget_axes()
        self._publish(0, *merged.segments)

    def _respread(self) -> None:
        """Give strings new labels, evenly spaced, and move all boxes along. Rare."""
        with self._merging, self._writing:
            strings = {position: axis.copy() for position, axis in self._table.strings.items()}
            moves = {position: axis.respread() for position, axis in strings.items()}
            views = [StoreView(store) for store in self._stores if store.rows]
            moved = merge(views, self._make_index, moves).segments if views else []
            table = AxisTable(self._schema, self._table.latest().derived, strings)
            self.hold(tuple(map(StoreView, moved)), table, self.snapshot.size, self.kind)


def _is_interim(view: StoreView) -> bool:
    return isinstance(view.store, IndexedSegment) and view.store.interim


def possible(rows: Sequence[Row]) -> list[Row]:
    """Without the box that stands for "never"."""
    return [row for row in rows if all(low <= high for _, low, high in row)]


def _untidy(views: list[StoreView]) -> bool:
    """Whether merging all stores would change anything."""
    segments = [view.store for view in views if isinstance(view.store, IndexedSegment)]
    kinds = {segment.kind for segment in segments}
    return len(segments) < len(views) or len(kinds) < len(segments) or any(v.removed for v in views)
