"""Many subscriptions at once: from tables, filters and arrays to boxes with owners."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.ids import IdArray, check_ids
from boxmatch.errors import AttributeValueError, EventError, FilterError, SchemaError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.model.events import EventEncoder
from boxmatch.model.filters import Bound, CompiledFilter, compile_filter, compile_many
from boxmatch.model.ids import IdKind
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis, remap_bounds, string_axes
from boxmatch.model.tables import ColumnTable, as_column, as_table, strings_of

if TYPE_CHECKING:
    from boxmatch.engine.box_stores import StoreView
    from boxmatch.engine.snapshot import Snapshot

NEVER = ((0, FIRST, ABSENT),)
"""The box of a subscription that no event can match: it still has an id and a place.

Its upper end is right below its lower one, the only kind of empty interval that an index must
support.
"""

_ROWS = 4_096
"""Rows of a table to have uncompressed at a time."""

Axes = Mapping[int, StringAxis]


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

    place: Callable[[Axes], Bulk]
    """Places it on string axes; may be called again should an axis have no room."""
    rejected: tuple[Rejected, ...] = ()


def read_table(
    schema: Schema,
    table: Any,
    max_boxes: int,
    *,
    skip: bool = False,
    time_zone: tzinfo | None = None,
) -> Reading:
    """Read a table with columns `id` and `filter`, or `id` and columns of bounds.

    With `skip` rows whose filter is wrong are left out. Wrong values in columns of bounds show when
    these are placed; `without_bad_rows` finds them.
    """
    columns = as_table(table)
    if columns is None:
        return _read_filters(schema, *_read_records(table), max_boxes, skip, time_zone)
    names = list(columns.names)
    if "id" not in names:
        raise SchemaError(
            "the table of subscriptions has no column 'id' "
            f"(it has: {', '.join(map(repr, names)) or 'none'})"
        )
    ids = _values(columns, names.index("id"))
    if "filter" in names:
        filters = _values(columns, names.index("filter"))
        return _read_filters(schema, ids, filters, max_boxes, skip, time_zone)
    check_ids(ids)
    return Reading(lambda axes: Bulk.one_box_each(ids, _boxes_of_columns(schema, axes, columns)))


def without_bad_rows(schema: Schema, table: Any) -> tuple[ColumnTable, tuple[Rejected, ...]]:
    """The rows of a table of bounds that can be read, and the others."""
    whole = as_table(table)
    if whole is None:
        raise EventError(f"a {type(table).__name__} is not a table")
    rejected: list[Rejected] = []

    def look(part: ColumnTable, first: int) -> None:
        # The few bad rows of a long table are found by halving it.
        try:
            _boxes_of_columns(schema, string_axes(schema), part)
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


def _read_records(records: Any) -> tuple[list[Any], list[Any]]:
    listed = list(records)
    for row, record in enumerate(listed):
        if not isinstance(record, Mapping):
            raise SchemaError(f"record {row} is not a dict with 'id' and 'filter': {record!r:.80}")
        for name in ("id", "filter"):
            if name not in record:
                raise SchemaError(f"record {row} has no {name!r}: {record!r:.80}")
    return [record["id"] for record in listed], [record["filter"] for record in listed]


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
) -> Reading:
    checked, kind = check_ids(ids)
    if len(checked) != len(filters):
        raise ValueError(f"{len(checked):,} ids for {len(filters):,} filters")
    if not skip:
        compiled = compile_many(schema, filters, max_boxes=max_boxes, time_zone=time_zone)
        return Reading(place_filters(schema, checked, kind, compiled))
    compiled, rejected = _compile_good(schema, filters, max_boxes, time_zone)
    keep = np.ones(len(checked), bool)
    keep[[bad.row for bad in rejected]] = False
    return Reading(place_filters(schema, checked[keep], kind, compiled), rejected)


def place_filters(
    schema: Schema, ids: IdArray, kind: IdKind, compiled: Sequence[CompiledFilter]
) -> Callable[[Axes], Bulk]:
    """What places compiled filters on string axes; may be called again, as in `Reading`."""
    owner = np.repeat(np.arange(len(compiled)), [max(1, len(one.boxes)) for one in compiled])
    overlapping = np.array([not one.disjoint for one in compiled], bool)
    never = sum(one.never for one in compiled)

    def place(axes: Axes) -> Bulk:
        add_strings(axes, compiled)
        rows = [row for one in compiled for row in resolve(axes, one)]
        return Bulk(ids, kind, Boxes.of(len(schema), rows), owner, overlapping, never)

    return place


def place_copies(
    schema: Schema, parts: Sequence[tuple[Snapshot, Int64Array]]
) -> Callable[[Axes], Bulk]:
    """What places subscriptions of other matchers of this schema on string axes.

    With each snapshot comes an array: the new id by the old one, or -1 to leave it out.
    """

    def place(axes: Axes) -> Bulk:
        copies = [
            _copy(view, snapshot.axes, renamed, axes)
            for snapshot, renamed in parts
            for view in snapshot.views
        ]
        boxes = Boxes.concatenate([Boxes.empty(len(schema)), *(boxes for boxes, _, _ in copies)])
        box_ids = np.concatenate([np.empty(0, np.int64), *(ids for _, ids, _ in copies)])
        overlap = np.concatenate([np.empty(0, bool), *(overlap for _, _, overlap in copies)])
        ids, owner = np.unique(box_ids, return_inverse=True)
        overlapping = np.zeros(len(ids), bool)
        overlapping[owner] = overlap
        return Bulk(ids, "int", boxes, owner, overlapping)

    return place


def _copy(
    view: StoreView, old_axes: Axes, renamed: Int64Array, axes: Axes
) -> tuple[Boxes, Int64Array, BoolArray]:
    """The boxes of a store that go elsewhere, with the ids that they have there."""
    live = view.live_positions()
    ids = renamed[view.store.ids[live].astype(np.int64)]
    kept = live[ids >= 0]
    boxes = view.store.boxes.take(kept)
    for attribute, axis in old_axes.items():
        mine = boxes.attribute == attribute
        ends = np.concatenate([boxes.low[mine], boxes.high[mine]])
        strings, labels = axis.used_by(ends)
        axes[attribute].add(strings)
        moved = np.array([axes[attribute].label(string) for string in strings], np.int64)
        boxes.low[mine] = remap_bounds(boxes.low[mine], labels, moved)
        boxes.high[mine] = remap_bounds(boxes.high[mine], labels, moved)
    return boxes, ids[ids >= 0], view.store.overlapping(view.rows)[kept]


def _compile_good(
    schema: Schema, filters: Sequence[Any], max_boxes: int, time_zone: tzinfo | None
) -> tuple[list[CompiledFilter], tuple[Rejected, ...]]:
    compiled, rejected = [], []
    for row, filter in enumerate(filters):
        try:
            compiled.append(
                compile_filter(schema, filter, max_boxes=max_boxes, time_zone=time_zone)
            )
        except FilterError as error:
            place = "" if error.position is None else f" (at offset {error.position})"
            rejected.append(Rejected(row, f"{error.reason}{place}"))
    return compiled, tuple(rejected)


def add_strings(axes: Axes, compiled: Sequence[CompiledFilter]) -> None:
    """Make the strings that filters mention known to their axes."""
    if not axes:
        return
    found: dict[int, set[str]] = {}
    for one in compiled:
        for box in one.boxes:
            for attribute, low, high in box:
                if attribute in axes:
                    known = found.setdefault(attribute, set())
                    known.update(bound[0] for bound in (low, high) if isinstance(bound, tuple))
    for attribute, strings in found.items():
        axes[attribute].add(strings)


def resolve(axes: Axes, compiled: CompiledFilter) -> Sequence[Any]:
    """The boxes of a filter with plain keys; its strings are known to their axes."""
    if compiled.never:
        return (NEVER,)
    if not axes:
        return compiled.boxes
    return [
        [
            (attribute, _key(axes, attribute, low), _key(axes, attribute, high))
            for attribute, low, high in box
        ]
        for box in compiled.boxes
    ]


def _key(axes: Axes, attribute: int, bound: Bound) -> int:
    if isinstance(bound, tuple):
        return axes[attribute].label(bound[0]) + bound[1]
    return bound


def _boxes_of_columns(schema: Schema, axes: Axes, columns: ColumnTable) -> Boxes:
    """One box per row, from columns `NAME` (equal), `NAME_low` and `NAME_high` (closed)."""
    positions = schema.index
    meaning: dict[str, tuple[int, str]] = {}
    for name in columns.names:
        if name == "id":  # the subscription's, even if an attribute is called so
            continue
        stem, _, end = str(name).rpartition("_")
        if isinstance(name, str) and name in positions:
            meaning[name] = positions[name], "equal"
        elif isinstance(name, str) and end in ("low", "high") and stem in positions:
            meaning[name] = positions[stem], end
        else:
            raise SchemaError(
                f"column {name!r} is neither an attribute nor one with _low or _high behind it; "
                "a table of subscriptions has 'id' and 'filter', or 'id' and such columns"
            )
    # The columns are encoded as if they were events: same types, same checks, but no domains.
    reader_attributes = []
    reader_axes: dict[int, StringAxis] = {}
    for place, (name, (attribute, _)) in enumerate(meaning.items()):
        reader_attributes.append(replace(schema.attributes[attribute], name=name, domain=None))
        if attribute in axes:
            axes[attribute].add(strings_of(columns, reader_attributes[-1]))
            reader_axes[place] = axes[attribute]
    if not reader_attributes:
        raise EventError("the table of subscriptions has no column besides 'id'")
    keys = EventEncoder(Schema(reader_attributes), reader_axes).batch(columns)
    wanted = list(meaning.values())
    return Boxes.concatenate(
        [
            _boxes_of_keys(keys[first : first + _ROWS], wanted, len(schema))
            for first in range(0, max(columns.length, 1), _ROWS)
        ]
    )


def _boxes_of_keys(keys: Int64Array, wanted: Sequence[tuple[int, str]], dimensions: int) -> Boxes:
    low = np.full((len(keys), dimensions), ABSENT)
    high = np.full((len(keys), dimensions), LAST)
    for key, (attribute, end) in zip(keys.T, wanted, strict=True):
        if end in ("equal", "low"):
            np.maximum(low[:, attribute], key, out=low[:, attribute])  # absent is below all
        if end in ("equal", "high"):
            given = key != ABSENT
            ends = np.where(given, key, LAST)
            np.minimum(high[:, attribute], ends, out=high[:, attribute])
            # With an upper bound alone, the attribute must still be present.
            present = np.where(given, FIRST, ABSENT)
            np.maximum(low[:, attribute], present, out=low[:, attribute])
    return Boxes.from_dense(low, high)
