"""Many subscriptions at once: from tables, filters and arrays to boxes with owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import tzinfo
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.box_stores import KINDS
from boxmatch.engine.filter_texts import texts_by_row
from boxmatch.engine.ids import IdArray, check_ids
from boxmatch.engine.residuals import Residual, residual_of
from boxmatch.errors import AttributeValueError, EventError, FilterError, SchemaError
from boxmatch.kernels.pieces import drop, pieces, repeat
from boxmatch.model.axis import ABSENT, FIRST
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.bounds import boxes_from_columns
from boxmatch.model.boxes import Boxes
from boxmatch.model.filters import Bound, CompiledFilter, compile_filter, compile_many
from boxmatch.model.ids import IdKind
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
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
    filters: Sequence[CompiledFilter] = ()
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
) -> Reading:
    """Read a table with columns `id` and `filter`, or `id` and columns of bounds.

    With `skip` rows whose filter is wrong are left out. Wrong values in columns of bounds show when
    these are placed; `without_bad_rows` finds them. For `lists` see `compile_filter`. With `texts`
    filters that are text are kept as they are.
    """
    columns = as_table(table)
    if columns is None:
        ids, filters = _read_records(table)
        return _read_filters(schema, ids, filters, max_boxes, skip, time_zone, lists, texts)
    names = list(columns.names)
    if "id" not in names:
        raise SchemaError(
            "the table of subscriptions has no column 'id' "
            f"(it has: {', '.join(map(repr, names)) or 'none'})"
        )
    ids = _values(columns, names.index("id"))
    if "filter" in names:
        filters = _values(columns, names.index("filter"))
        return _read_filters(schema, ids, filters, max_boxes, skip, time_zone, lists, texts)
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


def _read_records(records: Any) -> tuple[Any, Any]:
    listed = records if isinstance(records, list) else list(records)
    for row, record in enumerate(listed):
        if not isinstance(record, Mapping):
            raise SchemaError(f"record {row} is not a dict with 'id' and 'filter': {record!r:.80}")
        for name in ("id", "filter"):
            if name not in record:
                raise SchemaError(f"record {row} has no {name!r}: {record!r:.80}")
    # Arrays, since the garbage collector would look through lists, which takes long.
    ids = np.fromiter((record["id"] for record in listed), object, len(listed))
    return ids, np.fromiter((record["filter"] for record in listed), object, len(listed))


def _values(columns: ColumnTable, place: int) -> Any:
    column = columns.column(place)
    if isinstance(column, list):
        return column
    if len(column) == 1:
        return as_column(column[0])
    return list(chain.from_iterable(as_column(chunk) for chunk in column))


def _read_filters(
    schema: Schema,
    ids: Any,
    filters: Sequence[Any],
    max_boxes: int,
    skip: bool,
    time_zone: tzinfo | None,
    lists: bool,
    texts: bool,
) -> Reading:
    checked, kind = check_ids(ids)
    if len(checked) != len(filters):
        raise ValueError(f"{len(checked):,} ids for {len(filters):,} filters")
    if not skip:
        compiled = compile_many(
            schema, filters, max_boxes=max_boxes, time_zone=time_zone, lists=lists
        )
        written = _written(filters, time_zone) if texts else ()
        return Reading(place_filters(checked, kind, compiled, written), (), compiled)
    compiled, rejected = _compile_good(schema, filters, max_boxes, time_zone, lists)
    keep = np.ones(len(checked), bool)
    keep[[bad.row for bad in rejected]] = False
    written = _written([*compress(filters, keep.tolist())], time_zone) if texts else ()
    return Reading(place_filters(checked[keep], kind, compiled, written), rejected, compiled)


def _written(filters: Sequence[Any], time_zone: tzinfo | None) -> Sequence[str | None]:
    """The filters that are texts, and mean the same without the time zone."""
    if time_zone is not None:
        return []
    texts = (str(filter) if isinstance(filter, str) else None for filter in filters)
    return np.fromiter(texts, object, len(filters))  # type: ignore[return-value]  # as good as one


def place_filters(
    ids: IdArray,
    kind: IdKind,
    compiled: Sequence[CompiledFilter],
    texts: Sequence[str | None] = (),
) -> Callable[[AxisTable], Bulk]:
    """What places compiled filters on axes; may be called again, as in `Reading`.

    `texts` are the filters as they were written, if there are any.
    """
    count = len(compiled)
    boxes_of_each = np.fromiter((max(1, len(one.boxes)) for one in compiled), np.int64, count)
    owner = repeat(np.arange(count), boxes_of_each)
    overlapping = np.fromiter((not one.disjoint for one in compiled), bool, count)
    never = sum(one.never for one in compiled)
    residuals: list[Residual | None] = []
    if any(one.residual for one in compiled):
        residuals = [residual_of(one.residual) if one.residual else None for one in compiled]

    by_row = texts_by_row(texts, owner) if len(texts) else None

    def place(table: AxisTable) -> Bulk:
        placed = place_axes(table, compiled)
        parts = [Boxes.empty(table.width)]
        for piece in pieces(count):
            rows = [row for one in placed[piece] for row in resolve(table, one)]
            parts.append(Boxes.of(table.width, rows))
        boxes = Boxes.concatenate(parts)
        drop(placed)
        return Bulk(ids, kind, boxes, owner, overlapping, never, residuals, by_row, compiled)

    return place


def _compile_good(
    schema: Schema,
    filters: Sequence[Any],
    max_boxes: int,
    time_zone: tzinfo | None,
    lists: bool,
) -> tuple[list[CompiledFilter], tuple[Rejected, ...]]:
    compiled, rejected = [], []
    for row, filter in enumerate(filters):
        try:
            compiled.append(
                compile_filter(
                    schema, filter, max_boxes=max_boxes, time_zone=time_zone, lists=lists
                )
            )
        except FilterError as error:
            place = "" if error.position is None else f" (at offset {error.position})"
            rejected.append(Rejected(row, f"{error.reason}{place}"))
    return compiled, tuple(rejected)


def place_axes(table: AxisTable, compiled: Sequence[CompiledFilter]) -> list[CompiledFilter]:
    """The filters with their boxes at the positions of a matcher's axes, to which theirs are
    added, and the strings that they mention.
    """
    # Filters of one shape share their axes, and to hash these takes long.
    moves: dict[int, dict[int, int]] = {}
    placed = [_move(table, one, moves) if one.axes else one for one in compiled]
    strings = table.strings
    if not strings:
        return placed
    found: dict[int, set[str]] = {}
    for one in placed:
        for box in one.boxes:
            for attribute, low, high in box:
                if attribute in strings:
                    known = found.setdefault(attribute, set())
                    known.update(bound[0] for bound in (low, high) if isinstance(bound, tuple))
    for attribute, texts in found.items():
        strings[attribute].add(texts)
    return placed


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
    return [
        [
            (attribute, _key(strings, attribute, low), _key(strings, attribute, high))
            for attribute, low, high in box
        ]
        for box in compiled.boxes
    ]


def _key(strings: Mapping[int, StringAxis], attribute: int, bound: Bound) -> int:
    if isinstance(bound, tuple):
        return strings[attribute].label(bound[0]) + bound[1]
    return bound
