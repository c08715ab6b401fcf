"""What updates of publications mean: in batch, and with what Spark's state knows of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from boxmatch.engine.ids import IdArray
from boxmatch.errors import BoxmatchError, SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.regions import Region, move_region, open_subscriptions, spec
from boxmatch.spark.versions import IdType

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues
    from pyspark.sql.types import StructType

_ROWS = 100_000
"""About how many rows a worker makes in batch before it hands them over."""


@dataclass
class StoredPublication:
    """What is known of a publication: its last update, and its region; free or gone if empty."""

    last: int | None = None
    region: Region = field(default_factory=dict)


class Change(NamedTuple):
    """All subscriptions that an update tells the same."""

    ids: IdArray
    kind: str
    order: int


class Follower:
    """Applies updates of publications, and finds which subscriptions they enter and leave."""

    def __init__(
        self, *, folder: str, name: str, schema: str, ends: Sequence[Sequence[Any]], leave: bool
    ) -> None:
        self._schema = Schema.from_json(schema)
        self._spaces = open_subscriptions(folder, name, schema)
        self._ends: list[Any] = [tuple(end) for end in ends]
        self._leave = leave

    def follow(
        self, key: Any, publication: StoredPublication, rows: Iterable[Sequence[Any]]
    ) -> list[Change]:
        """Apply updates, rows of key, order, removed and ends; those that come late are dropped."""
        changes: list[Change] = []
        # With the rest of the row, so that it does not matter how rows with one order arrive.
        for row in sorted((tuple(row) for row in rows), key=lambda row: (row[1], repr(row))):
            order, removed = row[1:3]
            if publication.last is not None and order <= publication.last:
                continue
            try:
                if removed:
                    changes += self.end(publication, order)
                else:
                    changes += self._update(publication, order, row[3:])
            except BoxmatchError as error:
                raise SparkError(f"publication {key!r}, update {order}: {error}") from None
            publication.last = order
        return changes

    def end(self, publication: StoredPublication, order: int) -> list[Change]:
        """End a publication."""
        _, gone = self._changes(publication.region, {})
        publication.region = {}
        return [Change(gone, "deleted", order)] if len(gone) else []

    def _update(
        self, publication: StoredPublication, order: int, values: Sequence[Any]
    ) -> list[Change]:
        region = move_region(self._schema, publication.region, self._ends, values)
        entered, gone = self._changes(publication.region, region)
        publication.region = region
        changes = [Change(entered, "enter", order)]
        if self._leave:
            changes.append(Change(gone, "leave", order))
        return [each for each in changes if len(each.ids)]

    def _changes(self, old: Region, new: Region) -> tuple[IdArray, IdArray]:
        before, after = (spec(self._schema, region) or None for region in (old, new))
        return self._spaces.changes_between(before, after)


class Keeper:
    """Publications in Spark's state: one for each key."""

    def __init__(self, handle: StatefulProcessorHandle, *, ttl: float | None, **arguments: Any):
        self._handle = handle
        self._state = handle.getValueState("publication", _state_type())
        self._ttl = None if ttl is None else max(1, round(1000 * ttl))
        self._arguments = arguments
        self._opened: Follower | None = None

    @property
    def _follower(self) -> Follower:
        # Spark also asks for a processor on the driver, to see what its state is.
        if self._opened is None:
            self._opened = Follower(**self._arguments)
        return self._opened

    def update(self, key: Any, rows: Iterable[Any], timers: TimerValues) -> Iterator[Any]:
        """The updates of a key in one micro-batch."""
        publication, expiry = self._get()
        last = publication.last
        changes = self._follower.follow(key, publication, rows)
        if publication.last != last:
            if self._ttl is not None:
                if expiry is not None:
                    self._handle.deleteTimer(expiry)
                expiry = timers.getCurrentProcessingTimeInMs() + self._ttl
                self._handle.registerTimer(expiry)
            self._state.update((publication.last, json.dumps(publication.region), expiry))
        return _rows(key, changes)

    def expire(self, key: Any, expiry: int) -> Iterator[Any]:
        """A publication, or the record of one that was removed, has expired."""
        publication, current = self._get()
        if publication.last is None or expiry != current:
            return iter(())
        changes = self._follower.end(publication, publication.last)
        self._state.clear()
        return _rows(key, changes)

    def _get(self) -> tuple[StoredPublication, int | None]:
        # Asked first: Spark logs a warning for every key whose state is read in vain.
        found = self._state.get() if self._state.exists() else None
        if found is None:
            return StoredPublication(), None
        last, region, expiry = found
        return StoredPublication(last, json.loads(region)), expiry


def follow_all(
    batches: Iterator[pa.RecordBatch], *, id_type: IdType, **arguments: Any
) -> Iterator[pa.RecordBatch]:
    """The same in batch: rows of one key are neighbours."""
    follower: Follower | None = None
    key_type: Any = None
    keys: list[Any] = []
    changes: list[Change] = []
    size = 0

    def make_batch() -> pa.RecordBatch:
        kind: Any = pa.int64() if id_type == "long" else pa.string()
        columns = [
            pa.array(keys, key_type),
            pa.array([each.ids for each in changes], pa.list_(kind)),
            pa.array([each.kind for each in changes], pa.string()),
            pa.array([each.order for each in changes], pa.int64()),
        ]
        return pa.RecordBatch.from_arrays(columns, ["key", "ids", "kind", "order"])

    def rows() -> Iterator[tuple[Any, ...]]:
        nonlocal key_type
        for batch in batches:
            key_type = batch.schema.field(0).type
            yield from zip(*(each.to_pylist() for each in batch.columns), strict=True)

    for key, group in groupby(rows(), key=itemgetter(0)):
        follower = follower or Follower(**arguments)
        found = follower.follow(key, StoredPublication(), group)
        keys += [key] * len(found)
        changes += found
        size += sum(len(each.ids) for each in found)
        if size >= _ROWS:
            yield make_batch()
            keys, changes, size = [], [], 0
    if changes:
        yield make_batch()


def _state_type() -> StructType:
    from pyspark.sql.types import LongType, StringType, StructField, StructType

    # As text the region takes what it needs, and a dimension can be added later.
    fields = {"last": LongType(), "region": StringType(), "expiry": LongType()}
    return StructType([StructField(name, kind) for name, kind in fields.items()])


def _rows(key: Any, changes: Sequence[Change]) -> Iterator[Any]:
    from pyspark.sql import Row

    for each in changes:
        yield Row(key=key, ids=each.ids.tolist(), kind=each.kind, order=each.order)
