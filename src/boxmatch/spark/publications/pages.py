"""Stored publications in pages: rows of Spark's state that hold about a hundred of them each.

A call of Spark's state costs as much for a page as for a single publication, and a micro-batch has
updates for several publications of a page. The number of pages grows with that of publications, by
linear hashing: one page at a time is divided into two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from boxmatch.arrays import Int64Array
from boxmatch.errors import SparkError
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import arrow_keys
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.publications.states import Updates

KEY, HASH, ORDER, EXPIRY = "key", "hash", "order", "expiry"
BODY = "body"
"""The column of publications in several spaces."""
NEVER = -1

_FULL = 128
"""Publications of a page, on average, at which another page is added."""


def table_of(schema: Schema, known: Updates) -> pa.Table:
    """Publications as they are stored.

    Columns name what they hold, so that a schema can get other dimensions.
    """
    columns: dict[str, Any] = {KEY: known.key, ORDER: known.order}
    for end, given in (("low", known.low), ("high", known.high)):
        for attribute, values in zip(schema, given, strict=True):
            columns[_name(end, attribute)] = _stored(attribute, values)
    return pa.table(columns)


def updates_of(schema: Schema, table: pa.Table) -> Updates:
    """Stored publications as rows that updates can follow."""
    _check_types(schema, table)
    count = table.num_rows
    table = table.combine_chunks()
    low, high = (
        [_restored(attribute, table, _name(end, attribute)) for attribute in schema]
        for end in ("low", "high")
    )
    key: Any = table[KEY].combine_chunks()
    nothing, all_rows = np.zeros(count, bool), np.ones(count, bool)
    return Updates(key, table[ORDER].to_numpy(), nothing, all_rows, low, high)


def _name(end: str, attribute: Attribute) -> str:
    return f"{end} {attribute.name}: {attribute.type_name}"


def _check_types(schema: Schema, table: pa.Table) -> None:
    """Raise an error if publications were stored in another way, or with other types."""
    if BODY in table.column_names:
        raise other_form("spaces", "a schema")
    for name in table.column_names:
        end, _, rest = name.partition(" ")
        dimension, _, kind = rest.rpartition(": ")
        if end == "low" and dimension in schema and schema[dimension].type_name != kind:
            raise SparkError(
                f"dimension {dimension!r} is {schema[dimension].type_name}, but the publications "
                f"of this checkpoint were stored when it was {kind}: use another checkpoint"
            )


def other_form(before: str, now: str) -> SparkError:
    """The error for publications that a query of another form has stored."""
    return SparkError(
        f"the publications of this checkpoint were stored by transitions with {before}, not with "
        f"{now}: use another checkpoint"
    )


def _stored(attribute: Attribute, values: Any) -> Any:
    if attribute.type != "enum":
        return values
    # As text: its key is its position in a list that may become another one.
    absent = values == ABSENT
    places: Any = pa.array(np.where(absent, 0, values), mask=absent)
    return pa.array(attribute.values).take(places)


def _restored(attribute: Attribute, table: pa.Table, name: str) -> Any:
    if name not in table.column_names:
        return None
    column: Any = table[name].combine_chunks()
    if attribute.labelled:
        return column.cast(pa.string())
    if attribute.type == "enum":
        return arrow_keys(attribute, None, column)
    return column.fill_null(ABSENT).to_numpy()


def to_bytes(batches: Iterable[pa.RecordBatch]) -> bytes:
    """Batches of one schema as bytes."""
    given = list(batches)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, given[0].schema) as writer:
        for batch in given:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def from_bytes(packed: bytes) -> list[pa.RecordBatch]:
    """The batches that `to_bytes` was given."""
    with pa.ipc.open_stream(packed) as reader:
        return list(reader)


class Pages:
    """The pages of a bucket. `state` is Spark's map from their numbers to their bytes."""

    def __init__(self, state: Any, pages: int, publications: int) -> None:
        self._state = state
        self.pages = pages
        self.publications = publications
        self._loaded: dict[int, int] = {}
        """The pages that were read, and how many publications they have."""

    def read(self, hashes: Int64Array) -> pa.Table | None:
        """All publications of the pages to which these hashes belong; None if there are none."""
        numbers = np.unique(self._numbers(hashes)).tolist()
        found = [table for number in numbers if (table := self._read(number)) is not None]
        return _concat(found)

    def read_all(self) -> pa.Table | None:
        """All publications."""
        return _concat([_table(value) for _, value in self._state.iterator()])

    def write(self, rows: pa.Table) -> None:
        """Put these publications in the place of all those that were read."""
        self.publications += rows.num_rows - sum(self._loaded.values())
        while self.publications > _FULL * self.pages:
            rows = self._split(rows)
        numbers = self._numbers(rows[HASH].to_numpy()) if rows.num_rows else np.empty(0, np.int64)
        order = np.argsort(numbers, kind="stable")
        rows = rows.take(order)
        used, first = np.unique(numbers[order], return_index=True)
        ends = np.append(first, len(order))[1:]
        for number, start, end in zip(used.tolist(), first.tolist(), ends.tolist(), strict=True):
            batches = rows.slice(start, end - start).combine_chunks().to_batches()
            self._state.updateValue((number,), (to_bytes(batches),))
        for number, count in self._loaded.items():
            if count and number not in used:
                self._state.removeKey((number,))
        self._loaded = {}

    def _read(self, number: int) -> pa.Table | None:
        value = self._state.getValue((number,))
        table = None if value is None else _table(value)
        self._loaded[number] = 0 if table is None else table.num_rows
        return table

    def _split(self, rows: pa.Table) -> pa.Table:
        """Add a page, to which some publications of another go."""
        divided = self.pages - (1 << (self.pages.bit_length() - 1))
        if divided not in self._loaded:
            more = self._read(divided)
            if more is not None:
                # They were counted already.
                rows = pa.concat_tables([rows, more], promote_options="default")
        self.pages += 1
        self._loaded.setdefault(self.pages - 1, 0)
        return rows

    def _numbers(self, hashes: Int64Array) -> Int64Array:
        # The lower bits say which bucket it is.
        upper = (hashes >> 32) & 0x7FFFFFFF
        wide = 1 << self.pages.bit_length()
        numbers = upper % wide
        return np.where(numbers < self.pages, numbers, upper % (wide >> 1))


def _table(value: Sequence[Any]) -> pa.Table:
    return pa.Table.from_batches(from_bytes(bytes(value[0])))


def _concat(tables: Sequence[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables, promote_options="default") if tables else None
