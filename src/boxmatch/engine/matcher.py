"""`Matcher`: subscriptions by id, matched exactly, changed at any time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.engine import bulk, storage
from boxmatch.engine.bulk import Bulk, Reading, Rejected
from boxmatch.engine.compaction import Compactor, Merged, merge, plan, stores_after, wasteful
from boxmatch.engine.explain import Explainer, Explanation
from boxmatch.engine.ids import IdKind, SubscriptionId, check_id
from boxmatch.engine.memory import release_free_memory
from boxmatch.engine.nearest import Among, Nearest, find_nearest
from boxmatch.engine.parallel import by_chunks
from boxmatch.engine.parts import BoolArray, Part, Row, Segment, Store, Tail, build_segments
from boxmatch.engine.results import MatchResult, join_chunks, join_parts
from boxmatch.engine.snapshot import Snapshot
from boxmatch.errors import (
    AttributeValueError,
    EventError,
    SubscriptionIdError,
    UnknownSubscriptionError,
)
from boxmatch.indexes.base import Index
from boxmatch.indexes.registry import index_class
from boxmatch.model.axis import ABSENT
from boxmatch.model.bounds import boxes_from_bounds
from boxmatch.model.boxes import Boxes, Int64Array
from boxmatch.model.events import EventEncoder
from boxmatch.model.filters import compile_filter
from boxmatch.model.schema import Schema
from boxmatch.model.strings import AxisFullError, string_axes

_TAIL_ROWS = 1_024
"""Boxes in the tail before it is handed to compaction."""

_MANY_BOXES = 100_000
"""Boxes from which on building leaves free memory worth giving back."""

_WAITING_TAILS = 8
"""Tails that may wait for compaction before a writer has to lend a hand."""


class Subscribed(NamedTuple):
    """What `subscribe` and its kin did."""

    subscriptions: int
    replaced: int
    """How many of them took the place of an older one with the same id."""
    never: int
    """How many of them have a filter that no event can match."""
    rejected: tuple[Rejected, ...] = ()
    """With `on_error="skip"`: the rows that were left out, and why."""


class Matcher:
    """Finds, for an event, every subscription that it satisfies.

    All methods may be called from any thread. Matching works on a snapshot and never waits: a
    subscription is matched from the moment `subscribe` returns, and not after `unsubscribe` has.
    Writers take turns.
    """

    def __init__(
        self, schema: Schema, *, index: str = "tile", max_boxes: int = 1024, **parameters: Any
    ) -> None:
        self.schema = schema
        self.index = index
        self.max_boxes = max_boxes
        self._parameters = parameters
        # Made to complain about parameters now, not at the first subscription.
        self._own_rate = self._make_index().own_rate
        self._kind: IdKind | None = None
        self._writing = threading.RLock()
        self._merging = threading.Lock()
        self._compactor = Compactor(self)
        axes = string_axes(schema)
        self._stores: list[Store] = [self._new_tail()]
        self._snapshot = Snapshot((), axes, EventEncoder(schema, axes), 0)

    def _make_index(self) -> Index:
        return index_class(self.index)(len(self.schema), **self._parameters)

    def _new_tail(self) -> Tail:
        return Tail(len(self.schema), self._id_dtype)

    @property
    def _id_dtype(self) -> type:
        return object if self._kind == "string" else np.int64

    def __repr__(self) -> str:
        return f"<Matcher of {len(self):,} subscriptions, index {self.index!r}>"

    # Subscribing

    def subscribe(
        self, subscription_id: SubscriptionId, filter: str | Mapping[str, Any]
    ) -> Subscribed:
        """Add a subscription, or put it in the place of the one that has this id.

        The filter is SQL `WHERE` text, or a dict whose values are a value, a `(low, high)` tuple
        or a list of values.
        """
        checked, kind = check_id(subscription_id)
        compiled = compile_filter(self.schema, filter, max_boxes=self.max_boxes)

        def add() -> Subscribed:
            self._settle_kind(kind)
            bulk.add_strings(self._snapshot.axes, [compiled])
            rows = bulk.resolve(self._snapshot.axes, compiled)
            replaced = self._take_out(checked)
            tail = self._tail
            tail.append(checked, rows, compiled.disjoint)
            self._publish(int(replaced is None), tail, replaced)
            if tail.rows >= _TAIL_ROWS:
                self._stores.append(self._new_tail())
                self._compactor.wake()
            return Subscribed(1, int(replaced is not None), int(compiled.never))

        done = self._write(add)
        if len(self._stores) > _WAITING_TAILS and self._waiting_tails() > _WAITING_TAILS:
            self._merge_once()
        return done

    def subscribe_many(
        self, table: Any, *, on_error: Literal["raise", "skip"] = "raise"
    ) -> Subscribed:
        """Add many subscriptions at once; all of them, or with an error none.

        A table (Arrow, pandas, polars) or records with columns `id` and `filter`; or a table with
        `id` and, per attribute, `NAME` (equal to), `NAME_low` and `NAME_high` (from, up to, both
        included), where null means no such condition. With `on_error="skip"` rows whose filter or
        values are wrong are left out, and the result says which; ids must be right in any case.
        """
        if on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {on_error!r}")
        skip = on_error == "skip"
        if hasattr(table, "read_all"):
            table = table.read_all()  # a stream of Arrow batches can be read only once
        try:
            return self._place(bulk.read_table(self.schema, table, self.max_boxes, skip=skip))
        except (AttributeValueError, EventError):
            if not skip:
                raise
        good, rejected = bulk.without_bad_rows(self.schema, table)
        done = self._place(bulk.read_table(self.schema, good, self.max_boxes))
        return done._replace(rejected=rejected)

    def _place(self, reading: Reading) -> Subscribed:
        done = self._write(lambda: self._load(reading.place(self._snapshot.axes)))
        return done._replace(rejected=reading.rejected)

    def subscribe_boxes(self, ids: Any, lows: npt.ArrayLike, highs: npt.ArrayLike) -> Subscribed:
        """Add many subscriptions of one box each, from n × d arrays of numbers in schema order.

        Bounds are included; NaN is unbounded, NaN on both sides is no predicate. Bools are 0 and
        1, timestamps microseconds since 1970 in UTC.
        """
        return self.subscribe_compressed(ids, boxes_from_bounds(self.schema, lows, highs))

    def subscribe_compressed(self, ids: Any, boxes: Boxes) -> Subscribed:
        """Add many subscriptions of one box each, from compressed rows of keys."""
        if boxes.dimensions != len(self.schema):
            raise ValueError(
                f"boxes of {boxes.dimensions} dimensions for {len(self.schema)} attributes"
            )
        with self._writing:
            return self._load(Bulk.one_box_each(ids, boxes))

    def unsubscribe(self, subscription_id: SubscriptionId) -> None:
        """Remove a subscription; `UnknownSubscriptionError` if there is none with this id."""
        checked, _ = check_id(subscription_id)
        with self._writing:
            store = self._take_out(checked)
            if store is None:
                raise UnknownSubscriptionError(subscription_id)
            self._publish(-1, store)
            if wasteful(Part.now(store)):
                self._compactor.wake()

    def _write(self, change: Callable[[], Subscribed]) -> Subscribed:
        """Make a change that may need room on a string axis, alone among writers."""
        while True:
            try:
                with self._writing:
                    return change()
            except AxisFullError:
                self._respread()

    def _settle_kind(self, kind: IdKind) -> None:
        if self._kind is None:
            self._kind = kind
            self._stores = [self._new_tail()]
        elif kind != self._kind:
            raise SubscriptionIdError(
                f"the ids of this matcher are of kind {self._kind}, not {kind}"
            )

    @property
    def _tail(self) -> Tail:
        tail = self._stores[-1]
        if not isinstance(tail, Tail):
            raise TypeError("the last store is the tail")
        return tail

    def _take_out(self, subscription_id: SubscriptionId) -> Store | None:
        """Log the removal of a subscription's boxes; returns where they were."""
        for store in reversed(self._stores):
            positions = store.find(subscription_id)
            if positions:
                store.removals.add(positions)
                return store
        return None

    def _load(self, load: Bulk) -> Subscribed:
        if len(load.ids) == 0:
            return Subscribed(0, 0, 0)
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
                replaced += len(np.unique(store.ids[positions].astype(self._id_dtype)))
                store.removals.add(positions)
                changed.append(store)
        self._stores[-1:-1] = [segment for segment, _ in built]
        self._publish(len(load.ids) - replaced, *changed)
        if load.boxes.count > _MANY_BOXES:
            release_free_memory()
        if self._needs_merging():
            self._compactor.wake()
        return Subscribed(len(load.ids), replaced, load.never)

    def _publish(self, more: int, *changed: Store | None) -> None:
        """Swap in a snapshot that sees `changed` stores as they are now."""
        before = self._snapshot
        known = {id(part.store): part for part in before.parts}
        for store in changed:
            if store is not None:
                known[id(store)] = Part.now(store)
        parts = tuple(
            known.get(id(store)) or Part.now(store) for store in self._stores if store.rows
        )
        self._snapshot = Snapshot(parts, before.axes, before.encoder, before.size + more)

    # Compaction

    def compact(self) -> None:
        """Merge everything into as few parts as can be, and wait for it.

        Never needed for right answers, and seldom for speed: it happens by itself, in the
        background. Matching goes on meanwhile.
        """
        self._merge_once(everything=True)

    def _waiting_tails(self) -> int:
        return sum(isinstance(store, Tail) for store in self._stores) - 1

    def _needs_merging(self) -> bool:
        return bool(plan(self._mergeable()))

    def _mergeable(self) -> list[Part]:
        tail = self._stores[-1]
        return [part for part in self._snapshot.parts if part.store is not tail]

    def _merge_once(self, everything: bool = False) -> bool:
        """Merge what most needs it; False if nothing does."""
        with self._merging:
            with self._writing:
                if everything and self._tail.rows:
                    self._stores.append(self._new_tail())
                parts = self._mergeable()
                chosen = parts if everything and _untidy(parts) else plan(parts)
            if not chosen:
                return False
            merged = merge(chosen, self._make_index)
            with self._writing:
                self._swap_in(merged)
        return True

    def _swap_in(self, merged: Merged) -> None:
        merged.carry_over()
        self._stores = stores_after(self._stores, merged)
        self._publish(0, *merged.segments)
        if sum(segment.rows for segment in merged.segments) > _MANY_BOXES:
            release_free_memory()

    def _respread(self) -> None:
        """Give strings new labels, evenly spaced, and move all boxes along. Rare."""
        with self._merging, self._writing:
            axes = {position: axis.copy() for position, axis in self._snapshot.axes.items()}
            moves = {position: axis.respread() for position, axis in axes.items()}
            parts = [Part.now(store) for store in self._stores if store.rows]
            self._stores = [self._new_tail()]
            if parts:
                self._stores[:0] = merge(parts, self._make_index, moves).segments
            self._snapshot = Snapshot(
                tuple(Part.now(store) for store in self._stores if store.rows),
                axes,
                EventEncoder(self.schema, axes),
                self._snapshot.size,
            )

    # Matching

    def match(
        self, event: Mapping[str, Any], *, max_false_positive_rate: float | None = None
    ) -> list[SubscriptionId]:
        """The ids of all subscriptions that want the event, in no particular order.

        With a rate above 0 the answer may have that many more ids for each right one, in
        expectation, but never lacks any: predicates on rare attributes are not checked. How often
        predicates hold is estimated from the subscriptions, on the assumption that events have what
        these ask for. An index that cannot leave out predicates answers exactly. The rate is 0
        unless the index was made with another (`ada-rein` has one).
        """
        snapshot = self._snapshot
        skipped = self._skipped(snapshot, max_false_positive_rate)
        point = snapshot.encoder.one(event).reshape(1, -1)
        found: list[SubscriptionId] = []
        for part in snapshot.parts:
            found += part.match_one(point, skipped).tolist()
        return found

    def match_batch(
        self,
        events: Any,
        *,
        threads: int | None = None,
        max_false_positive_rate: float | None = None,
    ) -> MatchResult:
        """The matches of many events: dicts, an Arrow, pandas or polars table, or n × d numbers.

        Uses all cores unless `threads` says otherwise. For the rate see `match`; the result's
        `skipped_attributes` say what was not checked.
        """
        snapshot = self._snapshot
        skipped = self._skipped(snapshot, max_false_positive_rate)
        dtype = self._id_dtype

        def work(points: Int64Array) -> MatchResult:
            found = [(part.match(points, skipped), part.store.ids) for part in snapshot.parts]
            return join_parts(found, len(points), dtype)

        chunks = by_chunks(work, self._points(snapshot, events), threads)
        return join_chunks(chunks, snapshot.names(skipped))

    def count_batch(
        self,
        events: Any,
        *,
        threads: int | None = None,
        max_false_positive_rate: float | None = None,
    ) -> Int64Array:
        """How many subscriptions want each event; cheaper than listing them.

        For the rate see `match`.
        """
        snapshot = self._snapshot
        skipped = self._skipped(snapshot, max_false_positive_rate)

        def work(points: Int64Array) -> Int64Array:
            total = np.zeros(len(points), np.int64)
            for part in snapshot.parts:
                total += part.count(points, skipped)
            return total

        return np.concatenate(by_chunks(work, self._points(snapshot, events), threads))

    def _skipped(self, snapshot: Snapshot, rate: float | None) -> BoolArray | None:
        return snapshot.skipped(self._own_rate if rate is None else rate)

    def _points(self, snapshot: Snapshot, events: Any) -> Int64Array:
        return snapshot.encoder.batch(events, snapshot.frequency() > 0)

    def explain(self, event: Mapping[str, Any], subscription_id: SubscriptionId) -> Explanation:
        """Predicate by predicate: what the subscription wants, what the event has."""
        return self.explainer(subscription_id).explain(event)

    def explainer(self, subscription_id: SubscriptionId) -> Explainer:
        """For many events: explains the subscription as it is now."""
        checked, _ = check_id(subscription_id)
        return Explainer(checked, *self._boxes_of(checked))

    def nearest(
        self, event: Mapping[str, Any], *, limit: int = 20, among: Among | None = None
    ) -> Nearest:
        """Who wants the event, and which `limit` others come nearest: why not these?

        Looks at every subscription, exactly, or at those that `among` marks of an array of ids.
        """
        return find_nearest(self._snapshot, event, limit, among)

    # Looking

    def __len__(self) -> int:
        return self._snapshot.size

    def __contains__(self, subscription_id: object) -> bool:
        try:
            checked, _ = check_id(subscription_id)
        except SubscriptionIdError:
            return False
        with self._writing:
            return any(store.find(checked) for store in self._stores)

    def filter_of(self, subscription_id: SubscriptionId) -> str:
        """The filter as text: not always as it was given, but with the same meaning."""
        checked, _ = check_id(subscription_id)
        snapshot, rows = self._boxes_of(checked)
        return snapshot.render(*rows)

    def _boxes_of(self, subscription_id: SubscriptionId) -> tuple[Snapshot, list[Row]]:
        """The boxes of a subscription, and a snapshot whose axes go with them."""
        with self._writing:
            for store in self._stores:
                positions = store.find(subscription_id)
                if positions:
                    boxes = store.boxes
                    rows = [boxes.row(position) for position in sorted(positions)]
                    return self._snapshot, _possible(rows)
        raise UnknownSubscriptionError(subscription_id)

    def memory_usage(self) -> dict[str, int]:
        """Bytes held, by part, with their `total`."""
        held: dict[str, int] = {}
        for store in self._stores:
            for part, size in store.nbytes.items():
                held[part] = held.get(part, 0) + size
        held["strings"] = sum(axis.nbytes for axis in self._snapshot.axes.values())
        held["total"] = sum(held.values())
        return held

    def warmup(self) -> None:
        """Compile (or load from the cache) everything that matching needs."""
        trial = Matcher(self.schema, index=self.index, **self._parameters)
        count = 64
        keys = np.arange(count * len(self.schema)).reshape(count, -1) % 97
        trial.subscribe_compressed(np.arange(count), Boxes.from_dense(keys, keys + 50))
        trial.subscribe_compressed(np.arange(count, 2 * count), Boxes.from_dense(keys, keys))
        trial.subscribe(0, {})
        trial.unsubscribe(1)
        trial.compact()
        trial.subscribe(2, {})  # something for the tail
        trial._snapshot.skipped(1.0)
        points = np.full((300, len(self.schema)), ABSENT)
        for part in trial._snapshot.parts:
            part.match_one(points[:1])
            part.match(points)
            part.count(points)
        trial.nearest({}, limit=0)  # its keys are of no string that could be shown

    def save(self, path: str | PathLike[str]) -> None:
        """Write everything to the directory `path`, or over the matcher that is saved there.

        A process that is killed in the middle leaves what was there before.
        """
        with self._merging, self._writing:
            tails = [Part.now(store) for store in self._stores if store.rows]
            tails = [part for part in tails if isinstance(part.store, Tail)]
            if tails:
                if self._tail.rows:
                    self._stores.append(self._new_tail())
                self._swap_in(merge(tails, self._make_index))
            snapshot = self._snapshot
        saved = storage.Saved(
            self.schema,
            self.index,
            self._parameters,
            self.max_boxes,
            self._kind,
            snapshot.size,
            dict(snapshot.axes),
            [],
        )
        storage.save(Path(path), saved, snapshot.parts)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Matcher:
        """The matcher saved at `path`; its arrays are mapped into memory, not read."""
        saved = storage.load(Path(path))
        matcher = cls(
            saved.schema, index=saved.index, max_boxes=saved.max_boxes, **saved.parameters
        )
        matcher._kind = saved.kind
        matcher._stores = [*saved.segments, matcher._new_tail()]
        matcher._snapshot = Snapshot(
            tuple(Part.now(segment) for segment in saved.segments),
            saved.axes,
            EventEncoder(saved.schema, saved.axes),
            saved.size,
        )
        return matcher


def _possible(rows: Sequence[Row]) -> list[Row]:
    """Without the box that stands for "never"."""
    return [row for row in rows if all(low <= high for _, low, high in row)]


def _untidy(parts: list[Part]) -> bool:
    """Would merging all parts change anything?"""
    kinds = [part.store.owners is not None for part in parts]
    only_segments = all(isinstance(part.store, Segment) for part in parts)
    return not only_segments or len(set(kinds)) < len(kinds) or any(p.removed for p in parts)
