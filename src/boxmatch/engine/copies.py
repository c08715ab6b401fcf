"""Subscriptions of other matchers, taken over as boxes: nothing is compiled again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.box_stores import KINDS
from boxmatch.engine.bulk import Bulk
from boxmatch.engine.filter_texts import no_texts
from boxmatch.engine.residuals import Residual
from boxmatch.model.axis_table import Axes, AxisTable
from boxmatch.model.boxes import Boxes
from boxmatch.model.strings import remap_bounds

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.engine.box_stores import StoreView
    from boxmatch.engine.snapshot import Snapshot


def place_copies(parts: Sequence[tuple[Snapshot, Int64Array]]) -> Callable[[AxisTable], Bulk]:
    """What places subscriptions of other matchers on axes, of whose schema theirs is the beginning.

    With each snapshot comes an array: the new id by the old one, or -1 to leave it out.
    """

    def place(table: AxisTable) -> Bulk:
        import pyarrow as pa

        copies = [
            _copy(view, snapshot.axes, renamed, table)
            for snapshot, renamed in parts
            for view in snapshot.views
        ]
        boxes = Boxes.concatenate([Boxes.empty(table.width), *(one.boxes for one in copies)])
        boxes = boxes._replace(dimensions=table.width)  # where they come from there may be more
        box_ids = np.concatenate([np.empty(0, np.int64), *(one.ids for one in copies)])
        overlap = np.concatenate([np.empty(0, bool), *(one.overlapping for one in copies)])
        ids, first, owner = np.unique(box_ids, return_index=True, return_inverse=True)
        overlapping = np.zeros(len(ids), bool)
        overlapping[owner] = overlap
        residuals: list[Residual | None] = []
        if any(view.residuals is not None for one, _ in parts for view in one.views):
            by_box = [residual for one in copies for residual in one.residuals]
            residuals = [by_box[box] for box in first.tolist()]
        texts = None
        if any(one.texts is not None for one in copies):
            texts = pa.concat_arrays(
                [no_texts(len(one.ids)) if one.texts is None else one.texts for one in copies]
            )
        return Bulk(ids, "int", boxes, owner, overlapping, residuals=residuals, texts=texts)

    return place


class _Copy(NamedTuple):
    """Boxes that go elsewhere, and by box the ids that they have there and what else they have."""

    boxes: Boxes
    ids: Int64Array
    overlapping: BoolArray
    residuals: list[Residual | None]
    texts: pa.Array[Any] | None


def _copy(view: StoreView, axes: Axes, renamed: Int64Array, table: AxisTable) -> _Copy:
    """The boxes of a store that go elsewhere."""
    live = view.live_positions()
    ids = renamed[view.store.ids[live].astype(np.int64)]
    kept = live[ids >= 0]
    boxes = view.store.boxes.take(kept)
    first = len(axes.schema)
    used = np.unique(boxes.attribute[boxes.attribute >= first]).tolist()
    moved = np.arange(axes.width)
    for position in used:
        axis = axes.derived[position - first]
        if axis is None:
            raise ValueError(f"a box is on axis {position}, which there is not")
        moved[position] = table.position(axis)
    for position, strings in axes.strings.items():
        mine = boxes.attribute == position
        if not mine.any():
            continue
        ends = np.concatenate([boxes.low[mine], boxes.high[mine]])
        known, labels = strings.used_by(ends)
        target = table.strings[int(moved[position])]
        target.add(known)
        new = np.array([target.label(string) for string in known], np.int64)
        boxes.low[mine] = remap_bounds(boxes.low[mine], labels, new)
        boxes.high[mine] = remap_bounds(boxes.high[mine], labels, new)
    if used:
        boxes = boxes.with_attributes(moved[boxes.attribute])
    residuals = view.residuals
    tests: list[Residual | None] = [None] * len(kept)
    if residuals is not None:
        tests = residuals.take(kept)
    overlapping = view.store.kinds(view.rows)[kept] != KINDS.index("disjoint")
    texts = view.store.take_texts(kept) if view.store.texts else None
    return _Copy(boxes, ids[ids >= 0], overlapping, tests, texts)
