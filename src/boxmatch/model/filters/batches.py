"""Many filters compiled at once: texts grouped by shape, their constants read as columns.

Texts of one shape whose constants are in one order (see `plans`) are a `Group`: arrays, and no
object for any one of them. All others are compiled one by one; so are those with anything unusual
in them, and those that are wrong, for their error messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import FilterError
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.pieces import listed, pieces
from boxmatch.model.filters.compiled import CompiledFilter
from boxmatch.model.filters.plans import (
    NEAR,
    OpenAxis,
    Operand,
    Plan,
    Predicate,
    read_key,
    read_pattern,
)
from boxmatch.model.filters.scope import DerivedAxis
from boxmatch.model.filters.shapes import LONGEST, ShapeCache, Template
from boxmatch.model.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

_FEW: Final = 4
"""Filters that are quicker one by one."""

Codes = npt.NDArray[np.int32]


class Column(NamedTuple):
    """A value of each filter of a group: a key, or the number of a text among `texts`."""

    values: Int64Array | Codes
    texts: pa.Array[Any] | None = None


class Group(NamedTuple):
    """Filters with one plan."""

    plan: Plan
    rows: Int64Array
    columns: dict[int, Column]
    """The values that the plan refers to."""

    def texts(self) -> Iterator[tuple[int, list[str]]]:
        """The texts that bounds are tied to, by position in the plan."""
        import pyarrow as pa

        for position, is_text, i, _, j, _ in self.plan.predicates:
            for value in {i, j} if is_text else ():
                if value >= 0:
                    column = self.columns[value]
                    if column.texts is not None:
                        used = pa.array(np.unique(column.values))
                        yield position, _listed(column.texts.take(used))

    def bounds(
        self, predicate: Predicate, labels: Callable[[str], int] | None
    ) -> Iterator[Int64Array | int]:
        """The low and the high keys of a predicate, by filter or the same for all."""
        _, is_text, *references = predicate
        for value, offset in (references[:2], references[2:]):
            if value < 0:
                yield offset
                continue
            column = self.columns[value]
            if not is_text or column.texts is None or labels is None:
                yield column.values + np.int64(offset)
                continue
            import pyarrow as pa

            used, inverse = np.unique(column.values, return_inverse=True)
            named = map(labels, _listed(column.texts.take(pa.array(used))))
            yield (np.fromiter(named, np.int64, len(used)) + offset)[inverse]

    def filter(self, place: int) -> CompiledFilter:
        """One of the filters, by itself."""
        values: dict[int, int | str] = {}
        for number, (column, texts) in self.columns.items():
            at = column[place].item()
            values[number] = at if texts is None else texts[at].as_py()
        return self.plan.fill(values)


@dataclass
class FilterBatch:
    """Compiled filters, by row."""

    count: int
    groups: list[Group] = field(default_factory=list)
    rows: Int64Array = field(default_factory=lambda: np.empty(0, np.int64))
    """Of the filters that are in no group."""
    others: list[CompiledFilter] = field(default_factory=list)

    @classmethod
    def of(cls, filters: Sequence[CompiledFilter]) -> FilterBatch:
        return cls(len(filters), [], np.arange(len(filters)), list(filters))

    def __len__(self) -> int:
        return self.count

    def __contains__(self, one: object) -> bool:
        return any(one == other for other in self)

    def __iter__(self) -> Iterator[CompiledFilter]:
        found: list[CompiledFilter | None] = [None] * self.count
        for row, one in zip(listed(self.rows), self.others, strict=True):
            found[row] = one
        for group in self.groups:
            for place, row in enumerate(group.rows.tolist()):
                found[row] = group.filter(place)
        return iter(cast("list[CompiledFilter]", found))

    def axes(self) -> Iterator[tuple[DerivedAxis, ...]]:
        """The axes of expressions that filters have, of the first filter first."""
        named = {id(one.axes): (row, one.axes) for row, one in self._backwards() if one.axes}
        for group in self.groups:
            if group.plan.axes:
                row = min(int(group.rows[0]), named.get(id(group.plan.axes), group.rows)[0])
                named[id(group.plan.axes)] = row, group.plan.axes
        for _, axes in sorted(named.values(), key=lambda one: one[0]):
            yield axes

    def _backwards(self) -> Iterator[tuple[int, CompiledFilter]]:
        return zip(listed(self.rows[::-1]), reversed(self.others), strict=True)

    @cached_property
    def boxes_by_row(self) -> Int64Array:
        """How many boxes each filter has; one that no event can match has one all the same."""
        counts = np.ones(self.count, np.int64)
        alone = (max(1, len(one.boxes)) for one in self.others)
        counts[self.rows] = np.fromiter(alone, np.int64, len(self.others))
        for group in self.groups:
            counts[group.rows] = max(1, len(group.plan.boxes))
        return counts

    @cached_property
    def overlapping(self) -> BoolArray:
        """Whether boxes of a filter may overlap."""
        marks = np.zeros(self.count, bool)
        alone = (not one.disjoint for one in self.others)
        marks[self.rows] = np.fromiter(alone, bool, len(self.others))
        for group in self.groups:
            marks[group.rows] = not group.plan.disjoint
        return marks

    @property
    def never(self) -> int:
        """How many can never match."""
        alone = sum(one.never for one in self.others)
        return alone + sum(len(one.rows) for one in self.groups if not one.plan.boxes)

    def without(self, rows: Sequence[int]) -> FilterBatch:
        """The batch as it is when these rows, of which it has no filters, are left out."""
        keep = np.ones(self.count, bool)
        keep[rows] = False
        renumbered = np.cumsum(keep) - 1
        groups = [one._replace(rows=renumbered[one.rows]) for one in self.groups]
        return FilterBatch(int(keep.sum()), groups, renumbered[self.rows], self.others)


class Refused(NamedTuple):
    row: int
    error: FilterError


def compile_batch(
    schema: Schema,
    shapes: ShapeCache,
    filters: Sequence[Any],
    texts: pa.ChunkedArray[Any],
    compile_one: Callable[[Any], CompiledFilter],
    *,
    max_boxes: int,
    time_zone: tzinfo | None,
    lists: bool,
    skip: bool,
) -> tuple[FilterBatch, list[Refused]]:
    """Compile filters; `texts` has those that are plain texts, null for the others.

    The rest is left to `compile_one`. The first error is raised, or with `skip` all are returned.
    """
    reader = _Reader(schema, shapes, max_boxes, time_zone, lists)
    if max_boxes >= 1 and len(filters) >= _FEW and background.has(Stage.INDEX):
        for piece in pieces(len(filters)):
            part = texts[piece].combine_chunks()
            reader.read(part, piece.start)
    grouped = np.zeros(len(filters), bool)
    for group in reader.groups:
        grouped[group.rows] = True
    others: list[CompiledFilter] = []
    refused: list[Refused] = []
    rows = np.flatnonzero(~grouped)
    for row in listed(rows):
        try:
            compiled = compile_one(filters[row])
        except FilterError as error:
            if not skip:
                located = type(error)(f"row {row}: {error.reason}", error.text, error.position)
                raise located from error
            refused.append(Refused(row, error))
        else:
            others.append(compiled)
    if not refused:
        return FilterBatch(len(filters), reader.groups, rows, others), refused
    wrong = [one.row for one in refused]
    good = rows[~np.isin(rows, wrong)]
    return FilterBatch(len(filters), reader.groups, good, others).without(wrong), refused


def plain_texts(filters: Sequence[Any]) -> pa.ChunkedArray[Any]:
    """The filters that are plain texts as a column, null for all others."""
    import pyarrow as pa

    chunks = []
    for piece in pieces(len(filters)):
        some = [one if type(one) is str else None for one in filters[piece]]
        try:
            chunk = pa.array(some, pa.large_string())
        except UnicodeEncodeError:  # lone surrogates
            some = [one if one is None or _encodes(one) else None for one in some]
            chunk = pa.array(some, pa.large_string())
        chunks.append(chunk)
    return pa.chunked_array(chunks, pa.large_string())


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class _Constants(NamedTuple):
    """Where texts have their constants: those of text `i` are at `first[i]` and after."""

    data: npt.NDArray[np.uint8]
    first: Int64Array
    start: Int64Array
    end: Int64Array

    def places(self, rows: Int64Array, slot: int) -> tuple[Int64Array, Int64Array]:
        at = self.first[rows] + slot
        return self.start[at], self.end[at]

    def strings(self, start: Int64Array, end: Int64Array) -> pa.Array[Any]:
        """What is in quotes there."""
        from boxmatch.model.filters.shape_kernels import copy_strings

        copied = np.empty(int((end - start).sum()), np.uint8)
        offsets = np.empty(len(start) + 1, np.int64)
        copy_strings(self.data, start, end, copied, offsets)
        return _string_array(offsets, copied)

    def written(self, start: Int64Array, end: Int64Array) -> pa.Array[Any]:
        """What is there, as it is written."""
        lengths = end - start
        offsets = np.zeros(len(start) + 1, np.int64)
        np.cumsum(lengths, out=offsets[1:])
        source = np.arange(offsets[-1]) + np.repeat(start - offsets[:-1], lengths)
        return _string_array(offsets, self.data[source])

    def of(self, row: int) -> list[str]:
        some = range(int(self.first[row]), int(self.first[row + 1]))
        return [self.data[self.start[at] : self.end[at]].tobytes().decode() for at in some]


def _listed(texts: pa.Array[Any]) -> list[str]:
    return cast("list[str]", texts.to_pylist())


def _string_array(offsets: Int64Array, data: npt.NDArray[np.uint8]) -> pa.Array[Any]:
    import pyarrow as pa

    held: Any = pa.py_buffer
    buffers = [None, held(offsets), held(data)]
    return pa.Array.from_buffers(pa.large_string(), len(offsets) - 1, buffers)


class _Reader:
    """Puts texts into groups."""

    def __init__(
        self,
        schema: Schema,
        shapes: ShapeCache,
        max_boxes: int,
        zone: tzinfo | None,
        lists: bool,
    ) -> None:
        self._schema = schema
        self._shapes = shapes
        self._max_boxes = max_boxes
        self._zone = zone
        self._lists = lists
        self.groups: list[Group] = []

    def read(self, texts: pa.Array[Any], first_row: int) -> None:
        """Group what can be grouped of some texts, whose rows start at `first_row`."""
        from boxmatch.model.filters.shape_kernels import scan

        buffers: list[Any] = texts.buffers()
        _, offset_buffer, data_buffer = buffers
        if texts.null_count == len(texts) or data_buffer is None:
            return
        offsets = np.frombuffer(offset_buffer, np.int64)[texts.offset :][: len(texts) + 1]
        data = np.frombuffer(data_buffer, np.uint8)
        wanted = texts.is_valid().to_numpy(zero_copy_only=False)
        shape, count, *places = scan(data, offsets, wanted, LONGEST)
        constants = _Constants(data, *places)
        order = np.argsort(shape, kind="stable")
        ends = np.searchsorted(shape[order], np.arange(count + 1))
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            if end - begin >= _FEW:
                self._read_shape(texts, constants, order[begin:end], first_row)

    def _read_shape(
        self, texts: pa.Array[Any], constants: _Constants, rows: Int64Array, first_row: int
    ) -> None:
        found = self._shapes.find(self._schema, texts[int(rows[0])].as_py(), self._zone)
        if found is None:
            return
        template, _ = found
        if not template.fixed:
            self._read_template(template, constants, rows, first_row)
            return
        # Constants in its expressions: a template for each of their values.
        code = np.zeros(len(rows), np.int64)
        for slot in template.fixed:
            written = constants.written(*constants.places(rows, slot)).dictionary_encode()
            code = _join(code, written.indices.to_numpy())
        for some in _by_code(code):
            found = self._shapes.find(self._schema, texts[int(rows[some[0]])].as_py(), self._zone)
            if found is not None and len(some) >= _FEW:
                self._read_template(found[0], constants, rows[some], first_row)

    def _read_template(
        self, template: Template, constants: _Constants, rows: Int64Array, first_row: int
    ) -> None:
        if template.axes is None:
            return
        usual = np.ones(len(rows), bool)
        columns: dict[int, Column] = {}
        code = np.zeros(len(rows), np.int64)
        for axis in template.axes:
            read = _read_texts if axis.is_text else _read_keys
            code = _join(code, read(axis, constants, rows, columns, usual))
        chosen = np.flatnonzero(usual)
        for some in _by_code(code[chosen]):
            if len(some) < _FEW:
                continue
            some = chosen[some]
            try:
                plan = template.plan(
                    constants.of(int(rows[some[0]])), self._max_boxes, lists=self._lists
                )
            except ValueError:  # a filter that is too large, among others
                continue
            if plan is not None:
                used = {
                    value: columns[value]._replace(values=columns[value].values[some])
                    for value in plan.values
                }
                self.groups.append(Group(plan, rows[some] + first_row, used))


def _read_keys(
    axis: OpenAxis,
    constants: _Constants,
    rows: Int64Array,
    columns: dict[int, Column],
    usual: BoolArray,
) -> Int64Array | None:
    """The keys of constants, and a number for their order; unusual ones are unmarked."""
    keys = np.empty((axis.stop - axis.first + len(axis.ends), len(rows)), np.int64)
    for own, operand in zip(keys, axis.operands, strict=False):
        _read_operand(axis, operand, constants, rows, own, usual)
    for own, end in zip(keys[axis.stop - axis.first :], axis.ends, strict=True):
        own[:] = end
    for some in axis.alike:
        keys[some.start - axis.first : some.stop - axis.first].sort(axis=0)
    for value in range(axis.first, axis.stop):
        columns[value] = Column(keys[value - axis.first])
    return _order(keys) if len(keys) > 1 else None


def _read_operand(
    axis: OpenAxis,
    operand: Operand,
    constants: _Constants,
    rows: Int64Array,
    keys: Int64Array,
    usual: BoolArray,
) -> None:
    from boxmatch.model.filters.shape_kernels import POWERS, read_numbers

    attribute = axis.attribute
    start, end = constants.places(rows, operand.slot)
    known = np.zeros(len(rows), bool)
    if operand.value.kind == "number" and attribute.type in ("int", "float"):
        is_float = attribute.type == "float"
        read_numbers(constants.data, start, end, operand.negative, is_float, POWERS, keys, known)
    left = np.flatnonzero(~known)
    if len(left) == 0:
        return
    written = constants.written(start[left], end[left]).dictionary_encode()
    found = [read_key(attribute, operand, one) for one in _listed(written.dictionary)]
    codes = written.indices.to_numpy()
    keys[left] = np.array([one or 0 for one in found], np.int64)[codes]
    usual[left[np.array([one is None for one in found])[codes]]] = False


def _read_texts(
    axis: OpenAxis,
    constants: _Constants,
    rows: Int64Array,
    columns: dict[int, Column],
    usual: BoolArray,
) -> Int64Array | None:
    """The same for texts, which are numbered."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[pa.Array[Any]] = []
    for operand in axis.operands:
        strings = constants.strings(*constants.places(rows, operand.slot))
        if operand.like is None:
            parts.append(strings)
            continue
        encoded = strings.dictionary_encode()
        found = [read_pattern(operand.like, one) for one in _listed(encoded.dictionary)]
        codes = encoded.indices
        usual[np.array([one is None for one in found], bool)[codes.to_numpy()]] = False
        for end in (0, 1):
            texts = pa.array(["" if one is None else one[end] for one in found], pa.large_string())
            parts.append(texts.take(codes))
    joined: Any = pa.concat_arrays(parts).dictionary_encode()
    numbers = joined.indices.to_numpy().reshape(len(parts), len(rows))
    lengths = pc.utf8_length(joined.dictionary).to_numpy()
    order: Int64Array | None = None
    if len(parts) == 1:
        order = (lengths == 0).astype(np.int64)[numbers[0]]
    else:
        ranks = pc.rank(joined.dictionary, tiebreaker="dense").to_numpy().astype(np.int64)
        ranks[lengths == 0] = 0  # next to all others, as "" itself is
        ranked = np.zeros((len(parts) + 1, len(rows)), np.int64)
        ranked[:-1] = NEAR * ranks[numbers]
        numbers = numbers.copy()
        for some in axis.alike:
            own = slice(some.start - axis.first, some.stop - axis.first)
            places = np.argsort(ranked[own], axis=0, kind="stable")
            numbers[own] = np.take_along_axis(numbers[own], places, axis=0)
            ranked[own] = np.take_along_axis(ranked[own], places, axis=0)
        order = _order(ranked)
        if len(axis.patterns) > 1:
            of_patterns = numbers[[place - axis.first for place in axis.patterns]]
            order = _join(order, _order(lengths[of_patterns].astype(np.int64)))
    for value in range(axis.first, axis.stop):
        columns[value] = Column(numbers[value - axis.first], joined.dictionary)
    return order


def _order(keys: Int64Array) -> Int64Array:
    """A number for how the keys of each column compare; equal where `plans.order_of` is."""
    order = np.argsort(keys, axis=0, kind="stable")
    ascending = np.take_along_axis(keys, order, axis=0).view(np.uint64)
    apart = np.minimum(ascending[1:] - ascending[:-1], np.uint64(NEAR)).astype(np.int64)
    code: Int64Array = order[0]
    for place, gap in zip(order[1:], apart, strict=True):
        code = _join(code, place * (NEAR + 1) + gap)
    return code


def _join(code: Int64Array, other: npt.NDArray[np.integer] | None) -> Int64Array:
    """A number for each pair of numbers, which are not negative."""
    if other is None or (other == other[0]).all():
        return code
    span = int(other.max()) + 1
    if int(code.max()) >= 2**62 // span:
        code = np.unique(code, return_inverse=True)[1].astype(np.int64)
    return code * span + other


def _by_code(code: Int64Array) -> Iterator[Int64Array]:
    """The places of each number, ascending."""
    if len(code) == 0:
        return
    if (code == code[0]).all():
        yield np.arange(len(code))
        return
    order = np.argsort(code, kind="stable")
    yield from np.split(order, np.flatnonzero(np.diff(code[order])) + 1)
