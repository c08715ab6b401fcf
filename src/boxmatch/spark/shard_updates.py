"""What becomes of a shard when its subscriptions change: its next segments.

Either a task has all rows of the shard and finds out what changed (`update_shard`), or it is told
the changes alone (`change_shard`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.spark.segments import (
    REJECTED,
    Array,
    Recipe,
    Segment,
    compile_rows,
    mark_current_rows,
    open_segment,
    rejected,
    texts,
    write_segment,
)
from boxmatch.spark.versions import SegmentEntry, Shard

REMOVED = "__removed"
"""Of a change: whether it removes the subscription."""

ORDER = "__order"
"""Of a change: which of several of one id is last."""

_OURS = ("id", "fingerprint", REMOVED)
"""Columns of a row besides the subscription itself."""

_MOST_SEGMENTS = 8
_MOST_CHANGED = 0.25
"""Share of a shard's rows that may be out of date before it is written afresh."""


def update_shard(path: str, recipe: Recipe, old: Sequence[SegmentEntry], rows: pa.Table) -> Shard:
    """Bring a shard to what `rows` say: columns `id`, `fingerprint` and the subscription itself."""
    rows, odd = _with_usable_ids(rows)
    segments = [open_segment(path, entry.name) for entry in old]
    fresh, changed = _difference(segments, rows)
    new = int(fresh.sum())
    if old and new == 0 and len(changed) == 0 and _same_rows(odd, segments[-1].odd):
        return _shard(old, segments)
    stale = sum(entry.changed for entry in old) + len(changed)
    if not old or len(old) >= _MOST_SEGMENTS or new + stale > _MOST_CHANGED * len(rows):
        nothing = rows["id"].combine_chunks().slice(0, 0)
        whole = write_segment(path, *compile_rows(recipe, rows), rows, nothing, odd)
        return _shard([whole], [open_segment(path, whole.name)])
    fresh_rows = rows.filter(pa.array(fresh))
    delta = write_segment(path, *compile_rows(recipe, fresh_rows), fresh_rows, changed, odd)
    return _shard([*old, delta], [*segments, open_segment(path, delta.name)])


def change_shard(path: str, recipe: Recipe, old: Sequence[SegmentEntry], rows: pa.Table) -> Shard:
    """Apply changes to a shard, at most one of each id unless they contradict each other.

    `rows` have columns `id`, `fingerprint`, `REMOVED` and the subscription itself. Of changes that
    contradict each other none is meant, so that the subscription goes.
    """
    rows, odd = _with_usable_ids(rows)
    segments = [open_segment(path, entry.name) for entry in old]
    doubtful = odd["subscription_id"].drop_null().combine_chunks().cast(rows["id"].type)
    gone = rows[REMOVED].combine_chunks()
    removed = pa.concat_arrays([rows["id"].combine_chunks().filter(gone), doubtful.unique()])
    touched = pa.concat_arrays([rows["id"].combine_chunks(), doubtful])
    rows = rows.filter(pc.invert(gone)).drop_columns(REMOVED)
    before, fingerprints = _current(segments, rows["id"].type)
    fresh, known = _fresh(before, fingerprints, rows)
    was_there = removed.filter(pc.is_in(removed, value_set=before))
    ids = rows["id"].combine_chunks()
    changed = pa.concat_arrays([ids.filter(pa.array(fresh & known)), was_there])
    if segments:
        odd = pa.concat_tables([_without(segments[-1].odd, touched), odd])
        # What has no id cannot be put right by a later change: once is enough.
        odd = odd.group_by(odd.column_names).aggregate([]).cast(REJECTED)
    new = int(fresh.sum())
    if new == 0 and len(changed) == 0 and (not old or _same_rows(odd, segments[-1].odd)):
        return _shard(old, segments) if old else Shard()
    fresh_rows = rows.filter(pa.array(fresh))
    stale = sum(entry.changed for entry in old) + len(changed)
    if old and (len(old) >= _MOST_SEGMENTS or new + stale > _MOST_CHANGED * len(before)):
        whole = _merge_segments(path, recipe, segments, fresh_rows, changed, odd)
        return _shard([whole], [open_segment(path, whole.name)])
    delta = write_segment(path, *compile_rows(recipe, fresh_rows), fresh_rows, changed, odd)
    return _shard([*old, delta], [*segments, open_segment(path, delta.name)])


def _merge_segments(
    path: str,
    recipe: Recipe,
    segments: Sequence[Segment],
    rows: pa.Table,
    changed: Array,
    odd: pa.Table,
) -> SegmentEntry:
    """One segment of those rows of segments that have not changed, and of new ones.

    Filters that were compiled before are taken over as they are.
    """
    nothing = rows["id"].combine_chunks().slice(0, 0)
    new, bad = compile_rows(recipe, rows)
    everywhere = [(new, np.ones(len(rows), bool), rows.select(["id", "fingerprint"]), bad)]
    for segment, alive in zip(segments, mark_current_rows(segments), strict=True):
        kept = ~pc.is_in(segment.ids, value_set=changed).to_numpy(zero_copy_only=False)
        if alive is not None:
            kept &= alive
        everywhere.append((segment.matcher, kept, segment.rows, segment.bad))
    kind = pa.schema({"id": nothing.type, "fingerprint": pa.int64()})  # nullable or not
    kept_rows = [rows.filter(pa.array(kept)).cast(kind) for _, kept, rows, _ in everywhere]
    together = pa.concat_tables(kept_rows).combine_chunks()
    # In order of ids, as in a segment of a whole table.
    order: Int64Array = pc.sort_indices(together["id"]).to_numpy().astype(np.int64)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    matchers, bads, start = [], [], 0
    for matcher, kept, _, bad in everywhere:
        end = start + int(kept.sum())
        moved = np.full(len(kept), -1, np.int64)
        moved[kept] = number[start:end]
        start = end
        if matcher is not None:
            matchers.append((matcher, moved))
        here = moved[bad["row"].to_numpy()]
        bad = bad.set_column(0, "row", pa.array(here))
        bads.append(bad.filter(pa.array(here >= 0)))
    whole = recipe.new_matcher()
    whole.subscribe_from(matchers)
    sorted_rows = together.take(order)
    return write_segment(path, whole, pa.concat_tables(bads), sorted_rows, nothing, odd)


def _without(odd: pa.Table, touched: Array) -> pa.Table:
    """The rows without a usable id that are still that: nobody has changed the id since."""
    known = odd["subscription_id"]
    again = pc.is_in(known, value_set=touched.cast(known.type).drop_null())
    return odd.filter(pc.invert(again))


def _current(segments: Sequence[Segment], kind: pa.DataType) -> tuple[Array, Int64Array]:
    """The ids of a shard's rows, and their fingerprints."""
    known: list[Array] = [pa.array([], kind)]
    marks = [np.empty(0, np.int64)]
    for segment, alive in zip(segments, mark_current_rows(segments), strict=True):
        keep: Any = slice(None) if alive is None else alive
        known.append(segment.ids if alive is None else segment.ids.filter(pa.array(alive)))
        marks.append(segment.fingerprints[keep])
    return pa.concat_arrays(known), np.concatenate(marks)


def _fresh(before: Array, fingerprints: Int64Array, rows: pa.Table) -> tuple[BoolArray, BoolArray]:
    """Which rows are new or not what they were, and which have an id that was there before."""
    place = pc.index_in(rows["id"].combine_chunks(), value_set=before)
    known: BoolArray = place.is_valid().to_numpy(zero_copy_only=False)
    fresh = ~known
    if len(before):
        was = fingerprints[place.fill_null(0).to_numpy()]
        fresh |= was != rows["fingerprint"].to_numpy()
    return fresh, known


def _difference(segments: Sequence[Segment], rows: pa.Table) -> tuple[BoolArray, Array]:
    """Which rows are new or not what they were, and the ids that are gone or no longer the same."""
    ids = rows["id"].combine_chunks()
    before, fingerprints = _current(segments, ids.type)
    fresh, known = _fresh(before, fingerprints, rows)
    gone = before.filter(pc.invert(pc.is_in(before, value_set=ids)))
    return fresh, pa.concat_arrays([ids.filter(pa.array(fresh & known)), gone])


def _with_usable_ids(rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The rows whose id is there and theirs alone, and the others with the reason.

    Of rows that are the same throughout one is kept. Where they differ nobody can tell which is
    meant, so none is.
    """
    number = pa.array(np.arange(len(rows)))
    groups: Any = (
        rows.select(["id", "fingerprint"])
        .append_column("row", number)
        .group_by("id")
        .aggregate(
            [("row", "count"), ("row", "min"), ("fingerprint", "min"), ("fingerprint", "max")]
        )
    )
    if len(groups) == len(rows) and rows["id"].null_count == 0:
        return rows, REJECTED.empty_table()
    alike: Any = pc.equal(groups["fingerprint_min"], groups["fingerprint_max"])
    kept = np.zeros(len(rows), bool)
    kept[groups["row_min"].filter(pc.and_(alike, groups["id"].is_valid())).to_numpy()] = True
    lost = rows.filter(pa.array(~kept))
    found = zip(groups["row_count"].to_pylist(), alike.to_pylist(), strict=True)
    reason = {
        one: _reason(one, times, same)
        for one, (times, same) in zip(groups["id"].to_pylist(), found, strict=True)
    }
    reasons = [reason[one] for one in lost["id"].to_pylist()]
    shown = texts(lost.select([n for n in lost.column_names if n not in _OURS]))
    odd = pa.table([lost["id"].cast(pa.string()), shown, reasons], schema=REJECTED)
    return rows.filter(pa.array(kept)), odd


def _reason(subscription_id: object, times: int, same: bool) -> str:
    if subscription_id is None:
        return "the id is null"
    if same:
        return f"the id occurs {times} times, always with the same filter; one was kept"
    return f"the id occurs {times} times with different filters; none was kept"


def _same_rows(one: pa.Table, other: pa.Table) -> bool:
    """The same rows, in whatever order?"""

    def sorted_rows(table: pa.Table) -> list[str]:
        return sorted(map(repr, table.to_pylist()))

    return len(one) == len(other) and sorted_rows(one) == sorted_rows(other)


def _shard(entries: Sequence[SegmentEntry], segments: Sequence[Segment]) -> Shard:
    rows = sum(
        entry.rows if alive is None else int(alive.sum())
        for entry, alive in zip(entries, mark_current_rows(segments), strict=True)
    )
    bad = len(rejected(segments))
    odd = len(segments[-1].odd)
    return Shard(tuple(entries), rows - (bad - odd), bad)
