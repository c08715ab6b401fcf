"""Many subscriptions at once: from tables, filters and arrays to boxes with owners."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.box_stores import KINDS
from boxmatch.engine.filter_texts import texts_by_row
from boxmatch.engine.ids import IdArray, check_ids
from boxmatch.engine.residuals import Residual, residual_of
from boxmatch.errors import AttributeValueError, EventError, FilterError, SchemaError
from boxmatch.kernels.pieces import drop, listed, pieces, repeat
from boxmatch.model.axis import ABSENT, FIRST
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.bounds import boxes_from_columns
from boxmatch.model.boxes import Boxes
from boxmatch.model.dialects.registry import DialectFilter, in_dialect, written_text
from boxmatch.model.filters import (
    CompiledFilter,
    FilterBatch,
    compile_many,
    plain_texts,
)
from boxmatch.model.filters.batches import Group
from boxmatch.model.filters.plans import Plan
from boxmatch.model.ids import IdKind
from boxmatch.model.keys import is_absent
from boxmatch.model.schema import Schema
from boxmatch.model.tables import ColumnTable, as_column, as_table

if TYPE_CHECKING:
    import pyarrow as pa


class Rejected(NamedTuple):
    """A row of a table that cannot be a subscription, and why."""

    row: int
    reason: str


@dataclass(frozen=True)
class Bulk:
    """Subscriptions by number, and their boxes: box `i` belongs to subscription `owner[i]`."""

    ids: IdArray
    kind: IdKind
    boxes: Boxes
    owner: Int64Array
    overlapping: BoolArray
    """By subscription: may its boxes overlap?"""
    never: int = 0
    """How many of the filters can never match."""
    residuals: Sequence[Residual | None] = ()
    """By subscription; empty if there are none."""
    texts: pa.Array[Any] | None = None
    """By box: the filter as it was written, at one box of each subscription that has it."""
    filters: Collection[CompiledFilter] = ()
    """By subscription, if they were compiled from filters."""

    def kinds(self) -> npt.NDArray[np.int8]:
        """By box: in which kind of segment it belongs."""
        kinds = self.overlapping.astype(np.int8)  # "disjoint" or "overlapping"
        if self.residuals:
            some = (one is not None for one in self.residuals)
            kinds[np.fromiter(some, bool, len(kinds))] = KINDS.index("residual")
        return kinds[self.owner]

    @classmethod
    def one_box_each(cls, ids: Any, boxes: Boxes) -> Bulk:
        checked, kind = check_ids(ids)
        if len(checked) != boxes.count:
            raise ValueError(f"{len(checked):,} ids for {boxes.count:,} boxes")
        crossed = np.flatnonzero(boxes.low > boxes.high)
        if len(crossed):
            boxes = boxes._replace(low=boxes.low.copy(), high=boxes.high.copy())
            boxes.low[crossed], boxes.high[crossed] = FIRST, ABSENT
        never = len(np.unique(np.searchsorted(boxes.start, crossed, side="right")))
        count = boxes.count
        return cls(checked, kind, boxes, np.arange(count), np.zeros(count, bool), never)


class Reading(NamedTuple):
    """A table of subscriptions that has been read."""

    place: Callable[[AxisTable], Bulk]
    """Places it on axes; may be called again should one have no room."""
    rejected: tuple[Rejected, ...] = ()
    compiled: list[CompiledFilter] = []  # noqa: RUF012  # of a tuple, and nobody adds to it
    """What it was compiled to, for nobody but `place`: to be dropped after that."""


def read_table(
    schema: Schema,
    table: Any,
    max_boxes: int,
    *,
    skip: bool = False,
    time_zone: tzinfo | None = None,
    lists: bool = True,
    texts: bool = True,
    dialect: str | None = None,
) -> Reading:
    """Read a table with columns `id` and `filter`, or `id` and columns of bounds.

    With `skip` rows whose filter is wrong are left out. Wrong values in columns of bounds show when
    these are placed; `without_bad_rows` finds them. For `lists` see `compile_filter`. With `texts`
    filters that are text are kept as they are. Filters are of the `dialect`, or of that in a column
    `dialect`.
    """
    columns = as_table(table)
    filters: Sequence[Any]
    if columns is None:
        ids, filters = _read_records(table, dialect, skip)
        return _read_filters(schema, ids, filters, max_boxes, skip, time_zone, lists, texts)
    names = list(columns.names)
    if "id" not in names:
        raise SchemaError(
            "the table of subscriptions has no column 'id' "
            f"(it has: {', '.join(map(repr, names)) or 'none'})"
        )
    ids = _values(columns, names.index("id"))
    if "filter" in names:
        column = _texts(columns, names.index("filter"))
        if "dialect" in names or dialect is not None:
            given = [dialect] * columns.length
            if "dialect" in names:
                given = _values(columns, names.index("dialect"))
            written = _values(columns, names.index("filter"))
            filters = list(_in_dialects(written, given, skip))
            return _read_filters(schema, ids, filters, max_boxes, skip, time_zone, lists, texts)
        filters = _values(columns, names.index("filter")) if column is None else _Rows(column)
        return _read_filters(schema, ids, filters, max_boxes, skip, time_zone, lists, texts, column)
    check_ids(ids)
    return Reading(
        lambda table: Bulk.one_box_each(ids, boxes_from_columns(schema, table.strings, columns))
    )


def without_bad_rows(schema: Schema, table: Any) -> tuple[ColumnTable, tuple[Rejected, ...]]:
    """The rows of a table of bounds that can be read, and the others."""
    whole = as_table(table)
    if whole is None:
        raise EventError(f"a {type(table).__name__} is not a table")
    rejected: list[Rejected] = []

    def look(part: ColumnTable, first: int) -> None:
        # The few bad rows of a long table are found by halving it.
        try:
            boxes_from_columns(schema, AxisTable(schema).strings, part)
        except AttributeValueError as error:
            if part.length == 1:
                rejected.append(Rejected(first, str(error.without_row())))
                return
            middle = part.length // 2
            look(part.part(0, middle), first)
            look(part.part(middle, part.length), first + middle)

    look(whole, 0)
    keep = np.ones(whole.length, bool)
    keep[[bad.row for bad in rejected]] = False
    return whole.keep(keep), tuple(rejected)


def _in_dialects(filters: Any, dialects: Any, skip: bool) -> npt.NDArray[np.object_]:
    """Filters with their dialects, null where that is SQL."""
    found = np.empty(len(filters), object)
    for row, (filter, dialect) in enumerate(zip(filters, dialects, strict=True)):
        try:
            found[row] = in_dialect(filter, None if is_absent(dialect) else dialect)
        except FilterError as error:
            if not skip:
                raise FilterError(f"row {row}: {error.reason}") from None
            found[row] = DialectFilter(str(dialect), filter)  # which is refused again, with its row
    return found


def _read_records(records: Any, dialect: str | None, skip: bool) -> tuple[Any, Any]:
    listed = records if isinstance(records, list) else list(records)
    for row, record in enumerate(listed):
        if not isinstance(record, Mapping):
            raise SchemaError(f"record {row} is not a dict with 'id' and 'filter': {record!r:.80}")
        for name in ("id", "filter"):
            if name not in record:
                raise SchemaError(f"record {row} has no {name!r}: {record!r:.80}")
    # Arrays, since the garbage collector would look through lists, which takes long.
    ids = np.fromiter((record["id"] for record in listed), object, len(listed))
    filters = np.fromiter((record["filter"] for record in listed), object, len(listed))
    if dialect is None and not any("dialect" in record for record in listed):
        return ids, filters
    dialects = (record.get("dialect", dialect) for record in listed)
    return ids, _in_dialects(filters, dialects, skip)


def _values(columns: ColumnTable, place: int) -> Any:
    column = columns.column(place)
    if isinstance(column, list):
        return column
    if len(column) == 1:
        return as_column(column[0])
    return list(chain.from_iterable(as_column(chunk) for chunk in column))


def _texts(columns: ColumnTable, place: int) -> pa.ChunkedArray[Any] | None:
    """A column of texts as it is; None if it is anything else."""
    import pyarrow as pa

    column = columns.column(place)
    if isinstance(column, list) or not all(map(_is_text, column)):
        return None
    return pa.chunked_array(column).cast(pa.large_string())


def _is_text(chunk: pa.Array[Any]) -> bool:
    import pyarrow as pa

    return pa.types.is_string(chunk.type) or pa.types.is_large_string(chunk.type)


class _Rows(Sequence[Any]):
    """A column of texts as a sequence, of which few items are looked at."""

    def __init__(self, column: pa.ChunkedArray[Any]) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __getitem__(self, row: Any) -> Any:
        return self._column[row].as_py()


def _read_filters(
    schema: Schema,
    ids: Any,
    filters: Sequence[Any],
    max_boxes: int,
    skip: bool,
    time_zone: tzinfo | None,
    lists: bool,
    keep_texts: bool,
    texts: pa.ChunkedArray[Any] | None = None,
) -> Reading:
    checked, kind = check_ids(ids)
    if len(checked) != len(filters):
        raise ValueError(f"{len(checked):,} ids for {len(filters):,} filters")
    if texts is None:
        texts = plain_texts(filters)
    batch, refused = compile_many(
        schema,
        filters,
        max_boxes=max_boxes,
        time_zone=time_zone,
        lists=lists,
        texts=texts,
        skip=skip,
    )
    # Filters that mean something else without the time zone are not kept.
    written = _written(filters, texts) if keep_texts and time_zone is None else None
    if not refused:
        return Reading(place_batch(checked, kind, batch, written), (), batch.others)
    keep = np.ones(len(checked), bool)
    keep[[bad.row for bad in refused]] = False
    if written is not None:
        written = written.filter(keep)
    rejected = tuple(Rejected(bad.row, _reason(bad.error)) for bad in refused)
    return Reading(place_batch(checked[keep], kind, batch, written), rejected, batch.others)


def _written(filters: Sequence[Any], texts: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """The filters that are texts, also those of a subclass of `str`."""
    if texts.null_count == 0 or isinstance(filters, _Rows):
        return texts
    return plain_texts([_written_text(one) for one in filters])


def _written_text(filter: Any) -> str | None:
    try:
        return written_text(filter)
    except FilterError:  # of a row that is refused
        return None


def _reason(error: FilterError) -> str:
    place = "" if error.position is None else f" (at offset {error.position})"
    return f"{error.reason}{place}"


def place_filters(
    ids: IdArray,
    kind: IdKind,
    compiled: Sequence[CompiledFilter],
    texts: Sequence[str | None] = (),
) -> Callable[[AxisTable], Bulk]:
    """What places compiled filters on axes; may be called again, as in `Reading`.

    `texts` are the filters as they were written, if there are any.
    """
    written = plain_texts(texts) if len(texts) else None
    return place_batch(ids, kind, FilterBatch.of(compiled), written)


def place_batch(
    ids: IdArray, kind: IdKind, batch: FilterBatch, texts: pa.ChunkedArray[Any] | None
) -> Callable[[AxisTable], Bulk]:
    """The same for filters that were compiled together."""
    counts = batch.boxes_by_row
    owner = repeat(np.arange(len(batch)), counts)
    residuals: list[Residual | None] = []
    if any(one.residual for one in batch.others):
        residuals = [None] * len(batch)
        for row, one in zip(listed(batch.rows), batch.others, strict=True):
            if one.residual:
                residuals[row] = residual_of(one.residual)
    by_row = None if texts is None else texts_by_row(texts, owner)

    def place(table: AxisTable) -> Bulk:
        boxes = _boxes_of(table, batch, np.cumsum(counts) - counts)
        overlapping, never = batch.overlapping, batch.never
        return Bulk(ids, kind, boxes, owner, overlapping, never, residuals, by_row, batch)

    return place


def _boxes_of(table: AxisTable, batch: FilterBatch, first: Int64Array) -> Boxes:
    """The boxes of all filters; those of filter `i` start at `first[i]`."""
    for axes in batch.axes():
        for axis in axes:
            table.position(axis)
    groups = [_moved(table, group) for group in batch.groups]
    texts = chain.from_iterable(group.texts() for group in groups)
    placed = place_axes(table, batch.others, texts)
    parts = [Boxes.empty(table.width)]
    for piece in pieces(len(placed)):
        rows = [row for one in placed[piece] for row in resolve(table, one)]
        parts.append(Boxes.of(table.width, rows))
    drop(placed)
    counts = batch.boxes_by_row[batch.rows]
    total = int(counts.sum())
    at = [repeat(first[batch.rows] - np.cumsum(counts) + counts, counts) + np.arange(total)]
    for group in groups:
        parts.append(_boxes_of_group(table, group))
        each = max(1, len(group.plan.boxes))
        at.append((first[group.rows][:, None] + np.arange(each)).ravel())
    source = np.empty(sum(map(len, at)), np.int64)
    source[np.concatenate(at)] = np.arange(len(source))
    return Boxes.concatenate(parts).take(source)


def _moved(table: AxisTable, group: Group) -> Group:
    """A group whose own axes have the positions that they have in the table."""
    plan = group.plan
    if not plan.axes:
        return group
    first = len(table.schema)
    moved = {first + place: table.position(axis) for place, axis in enumerate(plan.axes)}
    predicates = [(moved.get(one[0], one[0]), *one[1:]) for one in plan.predicates]
    boxes = [sorted(predicates[number] for number in box) for box in plan.boxes]
    return group._replace(plan=Plan.of(boxes, plan.disjoint, plan.axes))


def _boxes_of_group(table: AxisTable, group: Group) -> Boxes:
    count = len(group.rows)
    predicates, boxes = group.plan.predicates, group.plan.boxes
    if not boxes:
        return Boxes.of(table.width, [table.never] * count)
    low = np.empty((count, len(predicates)), np.int64)
    high = np.empty_like(low)
    for place, predicate in enumerate(predicates):
        axis = table.strings.get(predicate[0])
        bounds = group.bounds(predicate, None if axis is None else axis.labels.__getitem__)
        low[:, place], high[:, place] = bounds
    used = [number for box in boxes for number in box]
    low, high = np.take(low, used, axis=1), np.take(high, used, axis=1)
    start = np.zeros(count * len(boxes) + 1, np.int64)
    np.cumsum(np.tile([len(box) for box in boxes], count), out=start[1:])
    attribute = np.tile(np.array([predicates[number][0] for number in used], np.uint16), count)
    return Boxes(table.width, start, attribute, low.ravel(), high.ravel())


def place_axes(
    table: AxisTable,
    compiled: Sequence[CompiledFilter],
    others: Iterable[tuple[int, Sequence[str]]] = (),
) -> list[CompiledFilter]:
    """The filters with their boxes at the positions of a matcher's axes, to which theirs are
    added, and the strings that they mention, with `others` by position.
    """
    # Filters of one shape share their axes, and to hash these takes long.
    moves: dict[int, dict[int, int]] = {}
    placed = [_move(table, one, moves) if one.axes else one for one in compiled]
    strings = table.strings
    if not strings:
        return placed
    found: dict[int, set[str]] = {}
    for position, texts in others:
        found.setdefault(position, set()).update(texts)
    for one in placed:
        for box in one.boxes:
            for attribute, low, high in box:
                if attribute in strings:
                    known = strings[attribute].labels
                    for bound in (low, high):
                        if isinstance(bound, tuple) and bound[0] not in known:
                            found.setdefault(attribute, set()).add(bound[0])
    for position, new in found.items():
        strings[position].add(new)
    return placed


def place_one(table: AxisTable, compiled: CompiledFilter) -> Sequence[Any]:
    """The boxes of a filter with plain keys at the positions of a matcher's axes, to which its own
    axes are added, and the strings that it mentions.
    """
    moved = _move(table, compiled, {}) if compiled.axes else compiled
    try:
        return resolve(table, moved)  # its strings are known, as a rule
    except KeyError:
        [placed] = place_axes(table, [compiled])
        return resolve(table, placed)


def _move(
    table: AxisTable, compiled: CompiledFilter, moves: dict[int, dict[int, int]]
) -> CompiledFilter:
    """A filter whose own axes have the positions that they have in the table.

    `moves` has those that are known, by the identity of a filter's axes.
    """
    moved = moves.get(id(compiled.axes))
    if moved is None:
        first = len(table.schema)
        moved = {first + place: table.position(axis) for place, axis in enumerate(compiled.axes)}
        moves[id(compiled.axes)] = moved
    boxes = tuple(
        tuple(sorted((moved.get(position, position), *ends) for position, *ends in box))
        for box in compiled.boxes
    )
    return compiled._replace(boxes=boxes)  # type: ignore[arg-type]  # triples, as they were


def resolve(table: AxisTable, compiled: CompiledFilter) -> Sequence[Any]:
    """The boxes of a filter with plain keys; its strings are known to their axes."""
    strings = table.strings
    if compiled.never:
        return (table.never,)
    if not strings:
        return compiled.boxes
    rows = []
    for box in compiled.boxes:
        row = []
        for predicate in box:
            attribute, low, high = predicate
            if attribute in strings:
                labels = strings[attribute].labels
                key = labels[low[0]] + low[1] if isinstance(low, tuple) else low
                if high is low:
                    predicate = attribute, key, key
                elif isinstance(high, tuple):
                    predicate = attribute, key, labels[high[0]] + high[1]
                else:
                    predicate = attribute, key, high
            row.append(predicate)
        rows.append(row)
    return rows
