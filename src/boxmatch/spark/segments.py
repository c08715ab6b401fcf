"""Segments of an index and the shards they make up: written by one task, read by many.

A segment is a matcher whose ids are row numbers, and a table that gives the rows' own ids. So the
matcher is mapped into memory whatever the ids are, and all workers of a machine share its pages.
"""

from __future__ import annotations

import gc
import json
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.ids import IdArray
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.overlaps import Overlaps
from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import SEGMENTS, SegmentEntry
from boxmatch.spark.zones import zone_of

Array: TypeAlias = "pa.Array[Any]"

Events: TypeAlias = "pa.RecordBatch | list[Any]"
"""Columns of attributes, or events as mappings."""

_TEXT: pa.DataType = pa.string()
ID_TYPES: Mapping[str, Any] = {"long": pa.int64(), "string": _TEXT}
"""Ids as Spark takes them; segments keep texts with longer offsets."""

REJECTED = pa.schema({"subscription_id": _TEXT, "filter": _TEXT, "reason": _TEXT})
_BAD_ROWS = pa.schema({"row": pa.int64(), "filter": _TEXT, "reason": _TEXT})

_MATCHER = "matcher"
_IDS = "ids.arrow"  # id, fingerprint
_CHANGED = "changed.arrow"  # id: those of earlier segments that are no longer what they were
_BAD = "bad.arrow"  # row, filter, reason: rows of this segment whose filter is wrong
_ODD = "odd.arrow"  # as REJECTED: rows of the whole shard, at this time, whose id is wrong


@dataclass(frozen=True)
class Recipe:
    """How matchers are made."""

    schema: Schema
    index: str
    index_options: Mapping[str, Any]
    time_zone: str = "UTC"

    def new_matcher(self) -> Matcher:
        """One without subscriptions."""
        # The table of subscriptions has the texts.
        return Matcher(self.schema, index=self.index, keep_texts=False, **self.index_options)


@dataclass(frozen=True)
class Segment:
    """A segment that has been opened."""

    folder: Path
    device: str = "cpu"

    @cached_property
    def matcher(self) -> Matcher | None:
        """Its subscriptions by row; None if it only takes some away."""
        path = self.folder / _MATCHER
        return Matcher.load(path, device=self.device) if path.exists() else None

    @cached_property
    def overlaps(self) -> list[tuple[Overlaps, IdArray]]:
        """For regions: searches of the matcher's boxes, and the rows at their positions."""
        views = () if self.matcher is None else self.matcher.snapshot.views
        return [(Overlaps(view), view.store.ids) for view in views]

    @cached_property
    def rows(self) -> pa.Table:
        """The ids and fingerprints of its rows."""
        return _map_table(self.folder / _IDS)

    @cached_property
    def ids(self) -> Array:
        """The ids of its rows."""
        return _one_chunk(self.rows["id"])

    @property
    def fingerprints(self) -> npt.NDArray[np.int64]:
        """What tells whether a row has changed."""
        return self.rows["fingerprint"].to_numpy()

    @property
    def changed(self) -> Array:
        """Ids of earlier segments that it removes or has anew."""
        return _one_chunk(_map_table(self.folder / _CHANGED)["id"])

    @property
    def bad(self) -> pa.Table:
        """Its rows that are no subscriptions."""
        return _map_table(self.folder / _BAD)

    @property
    def odd(self) -> pa.Table:
        """The rows without a usable id that the shard's table had when this segment was made."""
        return _map_table(self.folder / _ODD)


def open_segment(path: str, name: str, device: str = "cpu") -> Segment:
    """The segment of this name, of the index at `path`."""
    folder = (Folder.at(path) / SEGMENTS / name).fetch()
    if not folder.exists():
        raise SparkError(
            f"{path} has no segment {name}, or no longer: is it a folder that driver and workers "
            "see (path=)?"
        )
    return Segment(folder, device)


def mark_current_rows(segments: Sequence[Segment]) -> list[BoolArray | None]:
    """Which rows of each segment later segments have left as they were; None means all."""
    result: list[BoolArray | None] = []
    changed: Array | None = None
    for segment in reversed(segments):
        dead = None
        if changed is not None and len(changed):
            dead = pc.is_in(segment.ids, value_set=changed).to_numpy(zero_copy_only=False)
        result.append(None if dead is None or not dead.any() else ~dead)
        changed = (
            segment.changed if changed is None else pa.concat_arrays([changed, segment.changed])
        )
    return result[::-1]


def rejected(segments: Sequence[Segment]) -> pa.Table:
    """All rows of a shard's table that are no subscriptions, with what is wrong."""
    found = [segments[-1].odd] if segments else []
    for segment, alive in zip(segments, mark_current_rows(segments), strict=True):
        bad = segment.bad
        if alive is not None:
            bad = bad.filter(pa.array(alive[bad["row"].to_numpy()]))
        ids = segment.ids.take(bad["row"].combine_chunks()).cast(pa.string())
        found.append(pa.table([ids, bad["filter"], bad["reason"]], schema=REJECTED))
    return pa.concat_tables(found) if found else REJECTED.empty_table()


def compile_rows(recipe: Recipe, rows: pa.Table) -> tuple[Matcher | None, pa.Table]:
    """A matcher of rows by their numbers, and those that are no subscriptions."""
    if not len(rows):
        return None, _BAD_ROWS.empty_table()
    matcher = recipe.new_matcher()
    wanted = rows.drop_columns(["id", "fingerprint"])
    numbered = wanted.append_column("id", pa.array(np.arange(len(rows))))
    zone = zone_of(recipe.time_zone)
    skipped = matcher.subscribe_many(numbered, on_error="skip", time_zone=zone).rejected
    numbers = np.array([one.row for one in skipped], np.int64)
    bad = pa.table(
        [numbers, texts(wanted.take(numbers)), [one.reason for one in skipped]], schema=_BAD_ROWS
    )
    return matcher, bad


def write_segment(
    path: str, matcher: Matcher | None, bad: pa.Table, rows: pa.Table, changed: Array, odd: pa.Table
) -> SegmentEntry:
    """Write a segment: a matcher of rows and the bad ones, of which `rows` has ids and prints."""
    name = uuid.uuid4().hex
    with (Folder.at(path) / SEGMENTS / name).open_for_writing() as folder:
        if matcher is not None:
            matcher.save(folder / _MATCHER)
        _write(folder / _IDS, rows.select(["id", "fingerprint"]))
        _write(folder / _CHANGED, pa.table({"id": changed}))
        _write(folder / _BAD, bad)
        _write(folder / _ODD, odd)
        nbytes = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    attributes = () if matcher is None else matcher.constrained_attributes
    return SegmentEntry(name, len(rows), len(changed), nbytes, attributes)


def texts(subscriptions: pa.Table) -> list[str | None]:
    """How rows of a table of subscriptions are shown to people."""
    if "filter" in subscriptions.column_names:
        return subscriptions["filter"].to_pylist()
    return [
        json.dumps({k: v for k, v in row.items() if v is not None}, default=str)
        for row in subscriptions.to_pylist()
    ]


@dataclass(frozen=True)
class Search:
    """How events are matched."""

    threads: int = 1
    skipped: Sequence[str] | None = None
    """Attributes whose predicates are not checked; None to leave that to the index."""

    @property
    def options(self) -> dict[str, Any]:
        return {"threads": self.threads, "skipped_attributes": self.skipped}


@dataclass(frozen=True)
class OpenShard:
    """The segments of a shard, and which of their rows are valid; None means all."""

    segments: Sequence[Segment]
    alive: Sequence[BoolArray | None]

    def find(self, events: Events, search: Search) -> Iterator[tuple[Int64Array, Array]]:
        """Matches as rows of the batch and ids, side by side, in several pieces."""
        for segment, alive in zip(self.segments, self.alive, strict=True):
            if segment.matcher is None:
                continue
            found = segment.matcher.match_batch(events, **search.options)
            rows, positions = found.event, np.asarray(found.subscription)
            if alive is not None:
                valid = alive[positions]
                rows, positions = rows[valid], positions[valid]
            if len(rows):
                yield rows, segment.ids.take(pa.array(positions))

    def count(self, events: Events, search: Search) -> Int64Array:
        """How many subscriptions want each event."""
        total = np.zeros(len(events), np.int64)
        for segment, alive in zip(self.segments, self.alive, strict=True):
            if segment.matcher is None:
                continue
            if alive is None:
                total += segment.matcher.count_batch(events, **search.options)
            else:
                found = segment.matcher.match_batch(events, **search.options)
                valid = alive[np.asarray(found.subscription)]
                total += np.bincount(found.event[valid], minlength=len(events))
        return total


_open: OrderedDict[tuple[str, ...], OpenShard] = OrderedDict()


def open_shards(path: str, shards: Sequence[Sequence[str]], device: str = "cpu") -> list[OpenShard]:
    """Open shards, given as the names of their segments, once for all tasks of this worker.

    Those that nobody asked for this time are let go, so that a worker holds one version of an
    index, and one shard of an index that is too large for a machine.
    """
    if not _open:
        # Spark collects garbage after every task. What is loaded by now stays for as long as the
        # worker does: looking through it each time would take a tenth of a second.
        gc.freeze()
    opened = []
    for names in shards:
        key = (path, device, *names)
        shard = _open.pop(key, None) or _open_shard(path, names, device)
        _open[key] = shard
        opened.append(shard)
    while len(_open) > len(shards):
        _open.popitem(last=False)
    return opened


def _open_shard(path: str, names: Sequence[str], device: str) -> OpenShard:
    # A segment that other versions of the shard share is not opened twice.
    known = {(s.folder.name, s.device): s for shard in _open.values() for s in shard.segments}
    segments = [known.get((name, device)) or open_segment(path, name, device) for name in names]
    return OpenShard(segments, mark_current_rows(segments))


def _write(path: Path, table: pa.Table) -> None:
    table = table.combine_chunks()
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)


def _map_table(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _one_chunk(column: pa.ChunkedArray[Any]) -> Array:
    joined: Any = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    one: Array = joined
    return one
