"""Publications as arrays: what updates make of them, and what changes from one state to the next.

A row is an update, or what was known of a publication before. Regions are keys (`model.keys`) from
low to high for each dimension, `ABSENT` where an end is free. Texts have codes instead, in the same
order, until an index says which keys they have there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import BoolArray, Int64Array, UInt8Array
from boxmatch.errors import SparkError
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import Refused, arrow_keys, axis_texts
from boxmatch.model.keys import value_of, value_of_text
from boxmatch.model.schema import Schema
from boxmatch.spark.columns import End

Array: TypeAlias = "pa.Array[Any]"
Ends = Sequence[tuple[str, End]]
"""Of which dimension the columns of updates are, and which end they give."""

ENTER, LEAVE, DELETED = 0, 1, 2
KINDS = pa.array(["enter", "leave", "deleted"])


@dataclass(frozen=True)
class Updates:
    """Rows of updates, or of stored publications: their ends as they were given."""

    key: Array
    order: Int64Array
    removed: BoolArray
    stored: BoolArray
    """Which rows are not updates, but what is known already."""
    low: Sequence[Any]
    """By dimension: keys, or an array of texts; None if no row says anything."""
    high: Sequence[Any]

    @classmethod
    def of_batch(cls, schema: Schema, ends: Ends, batch: pa.RecordBatch) -> Updates:
        """From columns key, order, removed, and one for each of `ends`."""
        low: list[Any] = [None] * len(schema)
        high: list[Any] = [None] * len(schema)
        key, order = batch.column(0), batch.column(1).to_numpy()
        for (name, end), column in zip(ends, batch.columns[3:], strict=True):
            d = schema.names.index(name)
            attribute = schema[name]
            given: Any
            try:
                if attribute.labelled:
                    given = axis_texts(attribute, column)
                else:
                    given = arrow_keys(attribute, None, column)
            except Refused as refused:
                error = refused.at(attribute).without_row()
                raise _wrong(key, order, refused.row, error) from None
            if end != "high":
                low[d] = given
            if end != "low":
                high[d] = given
        removed = batch.column(2).to_numpy(zero_copy_only=False)
        return cls(key, order, removed, np.zeros(len(order), bool), low, high)

    def __len__(self) -> int:
        return len(self.order)

    def join(self, later: Updates) -> Updates:
        """These rows, and after them others."""
        sizes = len(self), len(later)
        return Updates(
            pa.concat_arrays([self.key, later.key]),
            np.concatenate([self.order, later.order]),
            np.concatenate([self.removed, later.removed]),
            np.concatenate([self.stored, later.stored]),
            [_join(one, two, *sizes) for one, two in zip(self.low, later.low, strict=True)],
            [_join(one, two, *sizes) for one, two in zip(self.high, later.high, strict=True)],
        )

    def replaced_by(self, later: Updates) -> Updates:
        """These rows and others; the first of those may be of the last publication of these."""
        if len(self) and len(later) and self.key[len(self) - 1] == later.key[0]:
            return self.take(np.arange(len(self) - 1)).join(later)
        return self.join(later)

    def without_first(self) -> Updates:
        """All rows but the first."""
        return self.take(np.arange(1, len(self)))

    def take(self, rows: Int64Array) -> Updates:
        """Some rows, in this order."""
        return Updates(
            self.key.take(rows),
            self.order[rows],
            self.removed[rows],
            self.stored[rows],
            [_take(one, rows) for one in self.low],
            [_take(one, rows) for one in self.high],
        )


def _take(ends: Any, rows: Int64Array) -> Any:
    if ends is None:
        return None
    return ends[rows] if isinstance(ends, np.ndarray) else ends.take(rows)


def _join(one: Any, two: Any, size: int, other: int) -> Any:
    if one is None and two is None:
        return None
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        return np.concatenate(
            [
                np.full(size, ABSENT) if one is None else one,
                np.full(other, ABSENT) if two is None else two,
            ]
        )
    kind: Any = pa.string()
    return pa.concat_arrays(
        [
            pa.nulls(size, kind) if one is None else one.cast(kind),
            pa.nulls(other, kind) if two is None else two.cast(kind),
        ]
    )


@dataclass(frozen=True)
class States:
    """What publications were and became, row after row: neighbours if they are of one."""

    key: Array
    order: Int64Array
    removed: BoolArray
    stored: BoolArray
    low: Int64Array
    high: Int64Array
    texts: Mapping[int, Array]
    """By dimension of texts: those of its codes, in order."""
    previous: Int64Array
    """The row with the state before, of the same publication; -1 for none."""

    @classmethod
    def after(cls, schema: Schema, updates: Updates) -> States:
        """Apply updates whose rows are in order, by publication. Late ones are left out."""
        shape = len(updates), len(schema)
        low, high = np.full(shape, ABSENT), np.full(shape, ABSENT)
        texts: dict[int, Array] = {}
        for d, pair in enumerate(zip(updates.low, updates.high, strict=True)):
            if schema.attributes[d].labelled:
                texts[d], pair = _codes(pair)
            for target, given in zip((low, high), pair, strict=True):
                if given is not None:
                    target[:, d] = given
        first = np.ones(len(updates), bool)
        if len(updates) > 1:
            same: Any = pc.equal(updates.key.slice(1), updates.key.slice(0, len(updates) - 1))
            first[1:] = ~same.to_numpy(zero_copy_only=False)
        rows, previous = _settle(first, updates.order, updates.removed, updates.stored, low, high)
        made = cls(
            updates.key if len(rows) == len(updates) else updates.key.take(rows),
            updates.order[rows],
            updates.removed[rows],
            updates.stored[rows],
            low[rows],
            high[rows],
            texts,
            previous,
        )
        made._check(schema)
        return made

    def _check(self, schema: Schema) -> None:
        wrong = (self.low > self.high) & (self.high != ABSENT)
        if wrong.any():
            row = int(wrong.any(axis=1).argmax())
            d = int(wrong[row].argmax())
            span = ", ".join(
                str(self.value(schema, d, end[row, d])) for end in (self.low, self.high)
            )
            reason = f"dimension {schema.names[d]!r}: no value is in [{span}]"
            raise _wrong(self.key, self.order, row, reason)

    def value(self, schema: Schema, d: int, key: int) -> Any:
        """The value of a key or, in a dimension of texts, of a code."""
        if key == ABSENT:
            return None
        if d in self.texts:
            return value_of_text(schema.attributes[d], self.texts[d][int(key)].as_py())
        return value_of(schema.attributes[d], int(key))

    def __len__(self) -> int:
        return len(self.order)

    @property
    def constrained(self) -> BoolArray:
        """Which rows have a region: not those that are removed, or free in every dimension."""
        marks: BoolArray = ((self.low != ABSENT) | (self.high != ABSENT)).any(axis=1)
        return marks

    @property
    def final(self) -> Int64Array:
        """The rows with which publications end here, but for those that no update has changed."""
        ends = np.append(self.previous[1:] < 0, True)[: len(self)]
        return np.flatnonzero(ends & ~self.stored)

    def known(self, rows: Int64Array) -> Updates:
        """What is known after these rows, as others can follow."""
        ends: list[list[Any]] = []
        for given in (self.low, self.high):
            columns: list[Any] = []
            for d in range(given.shape[1]):
                chosen: Any = given[rows, d]
                if d in self.texts:
                    absent = chosen == ABSENT
                    places: Any = pa.array(np.where(absent, 0, chosen), mask=absent)
                    chosen = self.texts[d].take(places)
                columns.append(chosen)
            ends.append(columns)
        nothing, all_rows = np.zeros(len(rows), bool), np.ones(len(rows), bool)
        key = self.key.take(rows)
        return Updates(key, self.order[rows], nothing, all_rows, *ends)


def _codes(pair: Sequence[Any]) -> tuple[Array, tuple[Any, Any]]:
    """The texts that occur, in order, and which of them each row has."""
    kind: Any = pa.string()
    given = [one for one in pair if one is not None]
    low, high = pair
    if not given:
        return pa.array([], kind), (None, None)
    both = given[:1] if low is high else given
    distinct: Any = pa.chunked_array([one.cast(kind) for one in both]).unique().drop_null()
    texts: Any = distinct.take(pc.sort_indices(distinct))

    def codes(one: Any) -> Any:
        if one is None:
            return None
        found: Any = pc.index_in(one.cast(kind), value_set=texts)
        numbers: Int64Array = found.fill_null(-1).to_numpy().astype(np.int64)
        numbers[numbers < 0] = ABSENT
        return numbers

    return texts, (codes(low), codes(high))


def _wrong(key: Array, order: Int64Array, row: int, reason: object) -> SparkError:
    return SparkError(f"publication {key[row].as_py()!r}, update {order[row]}: {reason}")


@kernel
def _settle(
    first: BoolArray,
    order: Int64Array,
    removed: BoolArray,
    stored: BoolArray,
    low: Int64Array,
    high: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    """Give rows the ends that they leave as they were; returns the rows that are not late.

    For each of those, also the place among them of the publication's state before.
    """
    count, dimensions = low.shape
    rows = np.empty(count, np.int64)
    previous = np.empty(count, np.int64)
    kept = 0
    current = -1  # the row to inherit from
    for i in range(count):
        if first[i]:
            current = -1
        elif order[i] <= order[rows[kept - 1]]:
            continue
        previous[kept] = -1 if first[i] else kept - 1
        rows[kept] = i
        kept += 1
        if removed[i]:
            low[i, :], high[i, :] = ABSENT, ABSENT
            current = -1
            continue
        if current >= 0:
            for d in range(dimensions):
                if low[i, d] == ABSENT:
                    low[i, d] = low[current, d]
                if high[i, d] == ABSENT:
                    high[i, d] = high[current, d]
        current = i
    return rows[:kept], previous[:kept]


class Changes(NamedTuple):
    """Who is told the same by one state: `items[end[i - 1]:end[i]]` of row `state[i]`."""

    state: Int64Array
    kind: UInt8Array
    end: Int64Array
    items: Int64Array


def differences(states: States, start: Int64Array, found: Int64Array, leave: bool) -> Changes:
    """What each state changes, given that `found[start[i]:start[i + 1]]` match state `i`."""
    return Changes(
        *_differences(start, found, states.previous, states.stored, states.removed, leave)
    )


@kernel
def _differences(
    start: Int64Array,
    found: Int64Array,
    previous: Int64Array,
    stored: BoolArray,
    removed: BoolArray,
    leave: bool,
) -> tuple[Int64Array, UInt8Array, Int64Array, Int64Array]:
    count = len(previous)
    for i in range(count):
        found[start[i] : start[i + 1]].sort()
    # Each state is compared with one before it and one after it, at the most.
    items = np.empty(2 * len(found), np.int64)
    gone = np.empty(len(found), np.int64)
    state, end = np.empty(2 * count, np.int64), np.empty(2 * count, np.int64)
    kind = np.empty(2 * count, np.uint8)
    total = 0
    rows = 0
    for i in range(count):
        if stored[i]:
            continue
        a, a_end, b, b_end = 0, 0, start[i], start[i + 1]
        if previous[i] >= 0:
            a, a_end = start[previous[i]], start[previous[i] + 1]
        before, left = total, 0
        while a < a_end or b < b_end:
            if b == b_end or (a < a_end and found[a] < found[b]):
                gone[left] = found[a]
                left += 1
                a += 1
            elif a == a_end or found[b] < found[a]:
                items[total] = found[b]
                total += 1
                b += 1
            else:
                a += 1
                b += 1
        if total > before:
            state[rows], kind[rows], end[rows] = i, ENTER, total
            rows += 1
        if left > 0 and (leave or removed[i]):
            items[total : total + left] = gone[:left]
            total += left
            state[rows], kind[rows], end[rows] = i, DELETED if removed[i] else LEAVE, total
            rows += 1
    return state[:rows], kind[:rows], end[:rows], items[:total]
