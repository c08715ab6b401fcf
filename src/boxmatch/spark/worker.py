"""What runs on the workers: functions from Arrow batches to Arrow batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import Int64Array
from boxmatch.errors import EventError, SparkError
from boxmatch.model.documents import ROOT
from boxmatch.model.json_texts import read_event, read_events
from boxmatch.model.schema import Schema
from boxmatch.spark.fields import attribute_columns, is_json
from boxmatch.spark.segments import (
    ID_TYPES,
    REJECTED,
    Array,
    Events,
    OpenShard,
    Recipe,
    Search,
    mark_current_rows,
    open_segment,
    open_shards,
    rejected,
)
from boxmatch.spark.shard_updates import ORDER, REMOVED, change_shard, update_shard
from boxmatch.spark.skipping import SkipFigures, count_figures, skipping_pays
from boxmatch.spark.versions import SegmentEntry, Shard

Batches = Iterator[pa.RecordBatch]

_MATCHES = 250_000
"""About how many matches a worker makes before it hands them over."""

_FIRST_EVENTS = 512
"""Events to match before it is known how many matches they have."""


def update(
    batches: Batches,
    *,
    changes: bool,
    path: str,
    schema: str,
    index: str,
    index_options: Mapping[str, Any],
    id_type: str,
    selectivity: Mapping[str, float],
    names: Mapping[str, str],
    time_zone: str,
    old: Sequence[Sequence[SegmentEntry]],
) -> Batches:
    """Bring the shard whose rows these are up to date. A shard without rows is not seen.

    The rows are all that it has now, or `changes` of that.
    """
    found = [batch for batch in batches if batch.num_rows]
    if not found:
        return
    table = pa.Table.from_batches(found)
    del found  # a shard is large, and about to be copied in another order
    number: int = table["shard"][0].as_py()
    # Texts of a shard may be more than 32-bit offsets can reach.
    ids = table["id"].cast(pa.int64() if id_type == "long" else pa.large_string())
    rows = table.drop_columns(["shard", "id"]).append_column("id", ids)
    # In order of ids: the same table gives the same index, however its rows arrived.
    rows = _last_changes(rows) if changes else rows.sort_by("id")
    rows = rows.rename_columns([names.get(name, name) for name in rows.column_names])
    del table, ids
    recipe = Recipe(Schema.from_json(schema), index, index_options, time_zone)
    entries = [SegmentEntry(*entry) for entry in old[number]]
    shard = (change_shard if changes else update_shard)(path, recipe, entries, rows)
    yield _entry(number, path, recipe, shard, selectivity)


def _last_changes(rows: pa.Table) -> pa.Table:
    """Of the changes of each id those that are last in order, and each of them once."""
    # What somebody wanted who is gone makes no difference.
    prints = pc.if_else(rows[REMOVED], 0, rows["fingerprint"])
    rows = rows.drop_columns("fingerprint").append_column("fingerprint", prints)
    if ORDER in rows.column_names:
        # A change without an order is before all that have one.
        rows = rows.append_column("ordered", rows[ORDER].is_valid())
        keys: Any = [(name, "ascending") for name in ("id", "ordered", ORDER)]
        rows = _numbered(rows.sort_by(keys).drop_columns("ordered"))
        last: Int64Array = rows.group_by("id").aggregate([("row", "max")])["row_max"].to_numpy()
        last = np.sort(last)
        order: Any = rows[ORDER].combine_chunks()
        final = order.take(pa.array(last[np.searchsorted(last, np.arange(len(rows)))]))
        same = pc.or_(pc.equal(order, final).fill_null(False), final.is_null())
        rows = rows.filter(same).drop_columns([ORDER, "row"])
    rows = _numbered(rows)
    once: Any = rows.group_by(["id", "fingerprint"]).aggregate([("row", "min")])["row_min"]
    return rows.take(once.combine_chunks()).drop_columns("row").sort_by("id")


def _numbered(rows: pa.Table) -> pa.Table:
    return rows.append_column("row", pa.array(np.arange(len(rows))))


def _entry(
    number: int, path: str, recipe: Recipe, shard: Shard, selectivity: Mapping[str, float]
) -> pa.RecordBatch:
    """A shard for the driver, with what skipping adds to its matches."""
    if skipping_pays(recipe.index):
        shard = shard._replace(skipping=_figures(path, shard, selectivity))
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int32()), pa.array([json.dumps(shard)])], ["shard", "entry"]
    )


def _figures(path: str, shard: Shard, selectivity: Mapping[str, float]) -> SkipFigures | None:
    segments = [open_segment(path, entry.name) for entry in shard.segments]
    kept = mark_current_rows(segments)
    parts = zip((segment.matcher for segment in segments), kept, strict=True)
    return count_figures(((m, rows) for m, rows in parts if m is not None), selectivity)


def read_rejected(batches: Batches, *, path: str) -> Batches:
    """The rejected rows of shards, each given as the names of its segments."""
    for batch in batches:
        shards: list[Any] = batch.column(0).to_pylist()
        for names in shards:
            table = rejected([open_segment(path, name) for name in names])
            yield from table.cast(REJECTED).to_batches(max_chunksize=10_000)


def match(
    batches: Batches,
    *,
    how: str,
    path: str,
    shards: Sequence[Sequence[str]],
    id_type: str,
    attributes: Mapping[str, str],
    event: str | None,
    event_id: str,
    keep: Sequence[str],
    found: str,
    shard_column: str | None,
    skipped: Sequence[str] | None = None,
) -> Batches:
    """Match events with all shards, or with the one that `shard_column` names in every row.

    `attributes` gives the column of each attribute, or `event` one of JSON texts.
    Yields the events' ids, the columns to keep, and a column `found` with what was found.
    `skipped` names the attributes whose predicates are not checked.
    """
    answer = {"pairs": _pairs, "arrays": _arrays, "counts": _counts}[how]
    threads, device = task_threads(), task_device()
    pace = Pace()

    def values_of(events: pa.RecordBatch) -> Events:
        if event is None:
            return _with_names(events, attributes)
        return read_texts(events.column(event), f"column {event!r}", events.column(event_id))

    for batch in batches:
        if batch.num_rows == 0:
            continue
        _refuse_null_ids(batch, event_id)
        wanted = shards
        if shard_column is not None:
            wanted = [shards[batch.column(shard_column)[0].as_py()]]
        opened = open_shards(path, wanted, device)
        for events in pace.slices(batch):
            shown = events.select([event_id, *keep])
            for rows, values, matches in answer(
                opened, values_of(events), Search(threads, skipped), id_type
            ):
                pace.matches += matches
                columns = shown.columns if rows is None else shown.take(rows).columns
                yield pa.RecordBatch.from_arrays([*columns, values], [*shown.schema.names, found])


def wanted_by(
    events: pa.StructArray,
    *,
    path: str,
    shards: Sequence[Sequence[str]],
    id_type: str,
    schema: str,
    case_sensitive: bool,
    time_zone: str,
    skipped: Sequence[str] | None = None,
) -> Array:
    """The ids of the subscriptions that want each event, a struct of attributes or a JSON text."""
    known = Schema.from_json(schema)
    values: Events
    if pa.types.is_struct(events.type):
        table = pa.RecordBatch.from_struct_array(events)
        columns = attribute_columns(table, known, case_sensitive, time_zone)
        batch = pa.RecordBatch.from_arrays(columns, list(known.names))
        values = _with_names(batch, {name: name for name in known.names})
    elif is_json(events.type):
        values = read_texts(events, "an event")
    else:
        fields = ", ".join(known.names) if ROOT not in known else "*"
        raise SparkError(
            "an event is a struct with the attributes as fields, or a JSON text, not of type "
            f"{events.type}: write struct({fields})"
        )
    opened = open_shards(path, shards, task_device())
    search = Search(task_threads(), skipped)
    ((_, arrays, _),) = _arrays(opened, values, search, id_type)
    return arrays


def _with_names(events: pa.RecordBatch, attributes: Mapping[str, str]) -> pa.RecordBatch:
    """The columns of attributes by the attributes' names, and those of the whole event, if filters
    may name any.
    """
    columns = {name: events.column(inside) for name, inside in attributes.items()}
    if ROOT in columns:
        whole: Any = columns.pop(ROOT)
        fields = {field.name: pc.struct_field(whole, [n]) for n, field in enumerate(whole.type)}
        columns = fields | columns
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def read_texts(texts: Array, what: str, ids: Array | None = None) -> list[Any]:
    """Events of a column of JSON texts; a null is an event in which there is nothing."""
    listed = ["{}" if text is None else text for text in texts.to_pylist()]
    try:
        return read_events(listed)
    except EventError as error:
        row = error.row or 0
        where = what if ids is None else f"{what} of the event {ids[row].as_py()!r}"
        try:
            read_event(listed[row])
        except EventError as plain:
            raise SparkError(f"{where}: {plain}") from None
        raise


def _refuse_null_ids(batch: pa.RecordBatch, event_id: str) -> None:
    missing = batch.column(event_id).null_count
    if missing:
        raise SparkError(
            f"{event_id!r} is null in {missing} of {batch.num_rows} events of a batch: give them "
            "an id, or set them apart with boxmatch.spark.pipeline.clean"
        )


def task_threads() -> int:
    """Threads that a task of Spark may use."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.cpus() if context else 1


def task_device() -> str:
    """Where a task of Spark matches batches: on the card that it was given, if it was given one.

    If that card does not work, on the processor: the task may have it for something else.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    cards = context.resources().get("gpu") if context else None
    if cards is None or not cards.addresses:
        return "cpu"
    address = cards.addresses[0]
    return f"auto:{address}" if address.isdecimal() else "auto"


class Pace:
    """Cuts batches so that a worker holds a bounded number of matches at a time."""

    def __init__(self) -> None:
        self.events = 0
        self.matches = 0

    def slices(self, batch: pa.RecordBatch) -> Batches:
        """The batch in slices, each of a size that what was found so far suggests."""
        return (batch.slice(rows.start, len(rows)) for rows in self.parts(batch.num_rows))

    def parts(self, count: int) -> Iterator[range]:
        """The same for so many rows."""
        start = 0
        while start < count:
            size = _FIRST_EVENTS
            if self.events:
                size = max(1, int(_MATCHES * self.events / max(self.matches, 1)))
            size = min(size, 4 * max(self.events, _FIRST_EVENTS), count - start)
            yield range(start, start + size)
            start += size
            self.events += size


_Answer = Iterator[tuple[Int64Array | None, Array, int]]
"""Rows of the batch (None for all, in order), values that go beside them, and how many matches were
listed for it."""


def _pairs(shards: Sequence[OpenShard], events: Events, search: Search, id_type: str) -> _Answer:
    for shard in shards:
        for rows, ids in shard.find(events, search):
            yield rows, ids.cast(ID_TYPES[id_type]), len(rows)


def _arrays(shards: Sequence[OpenShard], events: Events, search: Search, id_type: str) -> _Answer:
    pieces = [piece for shard in shards for piece in shard.find(events, search)]
    rows = np.concatenate([np.empty(0, np.int64), *(rows for rows, _ in pieces)])
    ids = pa.chunked_array([ids.cast(ID_TYPES[id_type]) for _, ids in pieces], ID_TYPES[id_type])
    by_event: Any = ids.combine_chunks().take(np.argsort(rows, kind="stable"))
    ends = np.cumsum(np.bincount(rows, minlength=len(events)))
    offsets: Any = pa.array(np.concatenate([[0], ends]), pa.int32())
    yield None, pa.ListArray.from_arrays(offsets, by_event), len(rows)


def _counts(shards: Sequence[OpenShard], events: Events, search: Search, id_type: str) -> _Answer:
    total = np.zeros(len(events), np.int64)
    for shard in shards:
        total += shard.count(events, search)
    yield None, pa.array(total), 0
