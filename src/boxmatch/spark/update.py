"""Bringing a shard up to date with its part of the table of subscriptions.

Rows that are as they were stay where they are. What changed is compiled into one more segment; if
much has changed, or changes came in many pieces, the shard is written afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import BoolArray
from boxmatch.spark.segments import (
    REJECTED,
    Array,
    Recipe,
    Segment,
    mark_current_rows,
    open_segment,
    rejected,
    texts,
    write_segment,
)
from boxmatch.spark.versions import SegmentEntry, Shard

_MOST_SEGMENTS = 8
_MOST_CHANGED = 0.25
"""Share of a shard's rows that may be out of date before it is written afresh."""


def update_shard(path: str, recipe: Recipe, old: Sequence[SegmentEntry], rows: pa.Table) -> Shard:
    """Bring a shard to what `rows` say: columns `id`, `fingerprint` and the subscription itself."""
    rows, odd = _with_usable_ids(rows)
    segments = [open_segment(path, entry.name) for entry in old]
    fresh, changed = _difference(segments, rows)
    new = int(fresh.sum())
    if old and new == 0 and len(changed) == 0 and _same(odd, segments[-1].odd):
        return _shard(old, segments)
    stale = sum(entry.changed for entry in old) + len(changed)
    if not old or len(old) >= _MOST_SEGMENTS or new + stale > _MOST_CHANGED * len(rows):
        nothing = rows["id"].combine_chunks().slice(0, 0)
        whole = write_segment(path, recipe, rows, nothing, odd)
        return _shard([whole], [open_segment(path, whole.name)])
    delta = write_segment(path, recipe, rows.filter(pa.array(fresh)), changed, odd)
    return _shard([*old, delta], [*segments, open_segment(path, delta.name)])


def _difference(segments: Sequence[Segment], rows: pa.Table) -> tuple[BoolArray, Array]:
    """Which rows are new or not what they were, and the ids that are gone or no longer the same."""
    ids = rows["id"].combine_chunks()
    known = [ids.slice(0, 0)]
    marks = [np.empty(0, np.int64)]
    for segment, alive in zip(segments, mark_current_rows(segments), strict=True):
        keep: Any = slice(None) if alive is None else alive
        known.append(segment.ids if alive is None else segment.ids.filter(pa.array(alive)))
        marks.append(segment.fingerprints[keep])
    before, fingerprints = pa.concat_arrays(known), np.concatenate(marks)
    place = pc.index_in(ids, value_set=before)
    unknown: BoolArray = place.is_null().to_numpy(zero_copy_only=False)
    fresh = unknown.copy()
    if len(before):
        was = fingerprints[place.fill_null(0).to_numpy()]
        fresh |= was != rows["fingerprint"].to_numpy()
    gone = before.filter(pc.invert(pc.is_in(before, value_set=ids)))
    return fresh, pa.concat_arrays([ids.filter(pa.array(fresh & ~unknown)), gone])


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
    shown = texts(lost.drop_columns(["id", "fingerprint"]))
    odd = pa.table([lost["id"].cast(pa.string()), shown, reasons], schema=REJECTED)
    return rows.filter(pa.array(kept)), odd


def _reason(subscription_id: object, times: int, same: bool) -> str:
    if subscription_id is None:
        return "the id is null"
    if same:
        return f"the id occurs {times} times, always with the same filter; one was kept"
    return f"the id occurs {times} times with different filters; none was kept"


def _same(one: pa.Table, other: pa.Table) -> bool:
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
