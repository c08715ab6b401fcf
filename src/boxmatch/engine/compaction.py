"""Keeping stores few: tails become segments, small segments become larger ones.

Sizes grow geometrically, so a box is moved a logarithmic number of times and an event is looked up
in a logarithmic number of stores.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.box_stores import KINDS, IndexedSegment, StoreView, Tail, build_segments
from boxmatch.engine.ids import IdArray
from boxmatch.engine.residuals import Residual
from boxmatch.indexes.base import Index
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.pieces import concatenate, take
from boxmatch.model.boxes import Boxes
from boxmatch.model.strings import remap_bounds

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.engine.stores import Stores

_log = logging.getLogger("boxmatch")

_GROWTH = 2
_MANY_REMOVED = 4
"""A segment is rebuilt when one in so many of its boxes is gone."""

_FEW_ROWS = 1_024


def plan(views: Sequence[StoreView]) -> list[StoreView]:
    """Which stores to merge next; empty if all is well."""
    tails = [view for view in views if isinstance(view.store, Tail)]
    chosen = list(tails)
    # Segments of a kind are kept apart from those of others, and so merge on their own.
    for number, kind in enumerate(KINDS):
        new = sum(int((t.store.kinds(t.rows) == number).sum()) for t in tails)
        segments = [
            view
            for view in views
            if isinstance(view.store, IndexedSegment) and view.store.kind == kind
        ]
        chosen += _next_to(new, sorted(segments, key=_live))
    return chosen


def _next_to(new: int, segments: Sequence[StoreView]) -> list[StoreView]:
    """The segments, ascending by size, that should merge with `new` boxes and each other."""
    run: list[StoreView] = []
    total = new
    for view in segments:
        if wasteful(view) or (total and _live(view) <= _GROWTH * total):
            run.append(view)
            total += _live(view)
        elif not new and len(run) <= 1 and not any(map(wasteful, run)):
            run = [view]
            total = _live(view)
    return run if new or len(run) > 1 or any(map(wasteful, run)) else []


def _live(view: StoreView) -> int:
    return view.rows - view.removed


def wasteful(view: StoreView) -> bool:
    """Whether so much of the store is gone that it should be rebuilt, or its index can be made."""
    if isinstance(view.store, IndexedSegment) and view.store.interim:
        return background.has(Stage.INDEX)
    return view.removed > _FEW_ROWS and view.removed * _MANY_REMOVED > view.rows


class Merged(NamedTuple):
    """New segments, and for each store that was merged where its positions went."""

    segments: list[IndexedSegment]
    moves: list[tuple[StoreView, Int64Array]]

    def prepare(self) -> None:
        """Make, before anybody waits for it, what the next writer would have to make."""
        if any(view.store.is_looked_up for view, _ in self.moves):
            for segment in self.segments:
                segment.prepare_lookup()

    def carry_over(self) -> None:
        """Remove from the new segments what was removed from the old stores in the meantime."""
        for view, target in self.moves:
            for position in view.store.removals.log[view.removed :]:
                segment, place = divmod(int(target[position]), _PLACES)
                self.segments[segment].removals.add([place])


_PLACES = 2**40


def merge(
    views: Sequence[StoreView],
    make_index: Callable[[int], Index],
    labels: Mapping[int, tuple[Int64Array, Int64Array]] | None = None,
) -> Merged:
    """Build segments of all that lives in `views`: one of each kind that there is.

    `labels` are the old and new labels of string attributes that have moved.
    """
    live = [view.live_positions() for view in views]
    boxes = Boxes.concatenate(
        [view.store.boxes.take(rows) for view, rows in zip(views, live, strict=True)]
    )
    for attribute, (old, new) in (labels or {}).items():
        mine = boxes.attribute == attribute
        boxes.low[mine] = remap_bounds(boxes.low[mine], old, new)
        boxes.high[mine] = remap_bounds(boxes.high[mine], old, new)
    ids: IdArray = concatenate(
        [take(view.store.ids, rows) for view, rows in zip(views, live, strict=True)]
    )
    owners = _owners(views, live)
    kinds = np.concatenate(
        [view.store.kinds(view.rows)[rows] for view, rows in zip(views, live, strict=True)]
    )
    moves = [(view, np.full(view.rows, -1, np.int64)) for view in views]
    ends = np.cumsum([len(rows) for rows in live])
    built = build_segments(
        make_index, boxes, ids, owners, kinds, _residuals(views, live), _texts(views, live)
    )
    place = np.empty(boxes.count, np.int64)
    for number, (_, rows) in enumerate(built):
        place[rows] = np.arange(len(rows)) + number * _PLACES
    for (_, target), positions, end in zip(moves, live, ends, strict=True):
        target[positions] = place[end - len(positions) : end]
    return Merged([segment for segment, _ in built], moves)


def _owners(views: Sequence[StoreView], live: Sequence[Int64Array]) -> Int64Array:
    """By row: a number per subscription."""
    owners = []
    used = 0
    for view, rows in zip(views, live, strict=True):
        store = view.store
        # Only those who overlap, or have residuals, are ever asked for their number.
        numbers = store.owners if store.residuals is None else store.numbers
        own = np.zeros(len(rows), np.int64)
        if numbers is not None and len(rows):
            own = np.unique(numbers[rows], return_inverse=True)[1] + used
            used = int(own.max()) + 1
        owners.append(own)
    return np.concatenate(owners)


def _residuals(views: Sequence[StoreView], live: Sequence[Int64Array]) -> list[Residual | None]:
    """By row: the residual; none at all if no store has any."""
    if all(view.residuals is None for view in views):
        return []
    found: list[Residual | None] = []
    for view, rows in zip(views, live, strict=True):
        residuals = view.residuals
        found += [None] * len(rows) if residuals is None else residuals.take(rows)
    return found


def _texts(views: Sequence[StoreView], live: Sequence[Int64Array]) -> pa.Array[Any] | None:
    """By row: the text; None if no store has any."""
    if not any(view.store.texts for view in views):
        return None
    import pyarrow as pa

    return pa.concat_arrays(
        [view.store.take_texts(rows) for view, rows in zip(views, live, strict=True)]
    )


class Compactor:
    """Merges in a background thread that lives only while there is work."""

    def __init__(self, stores: Stores) -> None:
        self._stores = weakref.ref(stores)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def kernels_came(self) -> None:
        """Give segments the indexes that could not be made before."""
        stores = self._stores()
        if stores is not None and stores.needs_merging():
            self.wake()

    def wake(self) -> None:
        with self._lock:
            # A fork leaves the thread object behind, not the thread.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(
                    target=self._run, name="boxmatch-compaction", daemon=True
                )
                self._thread.start()

    def _run(self) -> None:
        while True:
            stores = self._stores()
            try:
                if stores is None or not stores.merge_once():
                    with self._lock:
                        # Work that came since the last look is for this thread, or the next.
                        if stores is None or not stores.needs_merging():
                            self._thread = None
                            return
            except Exception:
                _log.exception("compaction failed; matching goes on without it")
                with self._lock:
                    self._thread = None
                return
            del stores
