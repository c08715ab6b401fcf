"""Which subscriptions of an index publications enter and leave, as they go from state to state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import Int64Array
from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.publications.pages import table_of, updates_of
from boxmatch.spark.publications.search import Subscriptions
from boxmatch.spark.publications.states import (
    DELETED,
    ENTER,
    KINDS,
    LEAVE,
    Array,
    Changes,
    Ends,
    States,
    Updates,
    differences,
)
from boxmatch.spark.segments import open_shards
from boxmatch.spark.versions import IdType, IndexVersion
from boxmatch.spark.worker import Pace, task_threads

Shards = Sequence[Sequence[str]]
"""The segments of each shard of an index."""


@dataclass
class IndexFollower:
    """Follows publications through the subscriptions of one version of an index."""

    schema: Schema
    ends: Ends
    leave: bool
    path: str
    shards: Shards
    id_type: IdType
    _pace: Pace = field(default_factory=Pace)

    @classmethod
    def of(cls, *, schema: str, ends: Sequence[Any], **others: Any) -> IndexFollower:
        """From plain values, as they reach a worker."""
        return cls(Schema.from_json(schema), [(name, end) for name, end in ends], **others)

    def follow(
        self, updates: pa.Table, stored: pa.Table | None
    ) -> tuple[list[pa.RecordBatch], pa.Table | None]:
        """The transitions of sorted updates, and what is stored of those that they changed."""
        known = None if stored is None else updates_of(self.schema, stored)
        told: list[pa.RecordBatch] = []
        last: Updates | None = None
        for states, found in self.steps(updates.to_batches(), known):
            if found.num_rows:
                told.append(found)
            new = states.known(states.final)
            last = new if last is None else last.replaced_by(new)
        if last is None or len(last) == 0:
            return told, None
        return told, table_of(self.schema, last)

    def steps(
        self, batches: Iterable[pa.RecordBatch], known: Updates | None = None
    ) -> Iterator[tuple[States, pa.RecordBatch]]:
        """The states of publications, and the transitions, in parts.

        Rows of updates are in order, by publication, of which some are known. A publication's last
        state is that in the last part that has one.
        """
        subscriptions: Subscriptions | None = None
        last: Updates | None = None
        for batch in batches:
            for part in self._pace.slices(batch):
                subscriptions = subscriptions or self._open()
                updates = Updates.of_batch(self.schema, self.ends, part)
                if known is not None:
                    updates = _after_known(updates, known)
                if last is not None and last.key[0] == updates.key[0]:
                    # What was known of it before is out of date.
                    updates = last.join(updates.without_first() if updates.stored[0] else updates)
                states = States.after(self.schema, updates)
                start, found = subscriptions.find(states, task_threads())
                self._pace.matches += len(found)
                changes = differences(states, start, found, self.leave)
                yield states, transitions_of(states, changes, subscriptions.ids)
                last = states.known(np.array([len(states) - 1]))

    def _open(self) -> Subscriptions:
        return _open(self.path, tuple(map(tuple, self.shards)), self.id_type)

    def delete(self, stored: pa.Table) -> pa.RecordBatch:
        """The transitions of publications that are no more."""
        states = States.after(self.schema, updates_of(self.schema, stored))
        subscriptions = self._open()
        start, found = subscriptions.find(states, task_threads())
        rows = np.flatnonzero(np.diff(start))
        kind = np.full(len(rows), DELETED, np.uint8)
        changes = Changes(rows, kind, start[rows + 1], found)
        return transitions_of(states, changes, subscriptions.ids)

    def at(self, version: IndexVersion) -> IndexFollower:
        """The same for another version of the index."""
        if (version.schema, version.id_type) != (self.schema, self.id_type):
            raise SparkError(
                f"version {version.version} of the index at {self.path} has another schema or "
                "other ids than that with which the query was started: start it again"
            )
        return replace(self, shards=version.segment_names)

    def compare(self, stored: pa.Table, old: Shards) -> Iterator[pa.RecordBatch]:
        """The transitions of publications that stay, as subscriptions change.

        `old` are those before. A subscription that is no more is told nothing.
        """
        known = updates_of(self.schema, stored)
        opened = open_shards(self.path, [*old, *self.shards])
        before = Subscriptions(opened[: len(old)], self.id_type)
        after = Subscriptions(opened[len(old) :], self.id_type)
        both: Any = pa.concat_arrays([before.ids, after.ids]).dictionary_encode()
        number: Int64Array = both.indices.to_numpy().astype(np.int64)
        size = len(both.dictionary)
        stays = np.zeros(size, bool)
        stays[number[len(before.ids) :][after.alive]] = True
        for rows in self._pace.parts(len(known)):
            states = States.after(self.schema, known.take(np.arange(rows.start, rows.stop)))
            pairs = []
            for part, first in ((before, 0), (after, len(before.ids))):
                start, found = part.find(states, task_threads())
                self._pace.matches += len(found)
                row = np.repeat(np.arange(len(states)), np.diff(start))
                pairs.append(np.sort(row * size + number[found + first]))
            entered = np.setdiff1d(pairs[1], pairs[0], assume_unique=True)
            left = np.setdiff1d(pairs[0], pairs[1], assume_unique=True)
            left = left[stays[left % size]] if self.leave else left[:0]
            changed = np.concatenate([entered, left])
            kind = np.repeat([ENTER, LEAVE], [len(entered), len(left)]).astype(np.uint8)
            end = np.arange(1, len(changed) + 1)
            changes = Changes(changed // size, kind, end, changed % size)
            if len(changed):
                yield transitions_of(states, changes, both.dictionary)


@lru_cache(maxsize=1)
def _open(path: str, shards: tuple[tuple[str, ...], ...], id_type: IdType) -> Subscriptions:
    """Once for all buckets and tasks of a worker: its ids may be a copy."""
    return Subscriptions(open_shards(path, shards), id_type)


def _after_known(updates: Updates, known: Updates) -> Updates:
    """Put what is known of a publication in front of its updates."""
    encoded: Any = updates.key.dictionary_encode()
    place: Any = pc.index_in(known.key, value_set=encoded.dictionary)
    rows = np.flatnonzero(place.is_valid().to_numpy(zero_copy_only=False))
    if len(rows) == 0:
        return updates
    places = np.concatenate([place.take(rows).to_numpy(), encoded.indices.to_numpy()])
    return known.take(rows).join(updates).take(np.argsort(places, kind="stable"))


def transitions_of(states: States, changes: Changes, ids: Array) -> pa.RecordBatch:
    """A row for each state and kind, with all subscriptions concerned."""
    rows = changes.state
    offsets: Any = pa.array(np.concatenate([[0], changes.end]), pa.int32())
    columns = [
        states.key.take(rows),
        pa.ListArray.from_arrays(offsets, ids.take(changes.items)),
        KINDS.take(changes.kind),
        pa.array(states.order[changes.state]),
    ]
    return pa.RecordBatch.from_arrays(columns, ["key", "ids", "kind", "order"])


def sorted_updates(table: pa.Table) -> pa.Table:
    """Updates by publication, in their order.

    By all columns: so it does not matter how rows with one order arrive.
    """
    keys: Any = [(name, "ascending") for name in table.column_names]
    return table.take(pc.sort_indices(table, sort_keys=keys))


def follow_all(batches: Iterator[pa.RecordBatch], **arguments: Any) -> Iterator[pa.RecordBatch]:
    """The transitions of updates that are in order, by publication."""
    for _, found in IndexFollower.of(**arguments).steps(batches):
        yield found
