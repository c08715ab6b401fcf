"""Publications in Spark's state.

Spark's interface to state works row by row, and takes microseconds for each value of a row. So
updates travel to it in packs: Arrow batches as bytes, one for each bucket of publications, and
transitions come back in the same way. The state of a bucket has its publications in `pages`, of
which a micro-batch reads and writes those that it has updates for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import Int64Array
from boxmatch.errors import SparkError
from boxmatch.spark.publications.follower import IndexFollower, sorted_updates
from boxmatch.spark.publications.pages import (
    EXPIRY,
    HASH,
    KEY,
    NEVER,
    Pages,
    from_bytes,
    to_bytes,
)
from boxmatch.spark.publications.space_follower import SpaceFollower
from boxmatch.spark.versions import IndexVersion

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import (
        StatefulProcessor,
        StatefulProcessorHandle,
        TimerValues,
    )
    from pyspark.sql.types import DataType, StructType


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Updates as packs: rows of bucket, bytes and no version. The bucket is the first column."""
    for batch in batches:
        if batch.num_rows == 0:
            continue
        bucket = batch.column(0).to_numpy()
        order = np.argsort(bucket, kind="stable")
        rows = batch.select(batch.schema.names[1:]).take(order)
        numbers, first = np.unique(bucket[order], return_index=True)
        ends = np.append(first, len(order))[1:]
        packs = [
            to_bytes([rows.slice(start, end - start)])
            for start, end in zip(first.tolist(), ends.tolist(), strict=True)
        ]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(numbers, pa.int32()),
                pa.array(packs, pa.binary()),
                pa.nulls(len(numbers), pa.string()),
            ],
            ["bucket", "pack", "version"],
        )


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The transitions in packs, the only column."""
    for batch in batches:
        for one in batch.column(0):
            yield from from_bytes(one.as_py())


class _About(NamedTuple):
    """What a bucket knows besides its publications."""

    buckets: int
    pages: int = 1
    publications: int = 0
    version: int = NEVER
    """Of the index that it follows; `NEVER` if it has seen none."""
    shards: str = "[]"
    """The segments of that version, as JSON."""


class Keeper:
    """The publications of a bucket: what is stored, and what updates and time do to it."""

    def __init__(
        self,
        handle: StatefulProcessorHandle,
        *,
        ttl: float | None,
        buckets: int,
        follows: bool = False,
        **arguments: Any,
    ) -> None:
        self._handle = handle
        about = _struct(
            buckets="long", pages="long", publications="long", version="long", shards="string"
        )
        self._about = handle.getValueState("about", about)
        self._pages = handle.getMapState("pages", _struct(page="long"), _struct(rows="binary"))
        self._expiring = handle.getMapState(
            "expiring", _struct(expiry="long"), _struct(hashes="binary")
        )
        self._ttl = None if ttl is None else max(1, round(1000 * ttl))
        self._buckets = buckets
        self._arguments = arguments
        self._follows = follows

    @cached_property
    def _follower(self) -> IndexFollower | SpaceFollower:
        # Not before: Spark also asks for a processor on the driver, to see what its state is.
        if "spaces" in self._arguments:
            return SpaceFollower(**self._arguments)
        return self._of_index

    @cached_property
    def _of_index(self) -> IndexFollower:
        return IndexFollower.of(**self._arguments)

    def take(
        self, packs: Sequence[bytes], versions: Sequence[str], timers: TimerValues
    ) -> Iterator[bytes]:
        """What a micro-batch has for a bucket: updates, and new versions of the index.

        First publications meet the newest version, as they are. Then come the updates.
        """
        about = self._read_about()
        if versions:
            about, told = self._meet(about, versions)
            if told:
                yield to_bytes(told)
        if packs:
            found = self._update(about, packs, timers)
            if found:
                yield to_bytes(found)

    def _meet(self, about: _About, versions: Sequence[str]) -> tuple[_About, list[pa.RecordBatch]]:
        """Compare publications with the newest of some versions of the index."""
        path = self._of_index.path
        newest = max(
            (IndexVersion.from_json(path, text) for text in versions), key=lambda one: one.version
        )
        if newest.version <= about.version:
            return about, []
        follower = self._of_index.at(newest)
        told: list[pa.RecordBatch] = []
        if about.version != NEVER:
            stored = self._pages_of(about).read_all()
            if stored is not None:
                told = list(follower.compare(stored, json.loads(about.shards)))
        seen = about._replace(version=newest.version, shards=json.dumps(newest.segment_names))
        self._about.update(seen)
        return seen, told

    def _update(
        self, about: _About, packs: Sequence[bytes], timers: TimerValues
    ) -> list[pa.RecordBatch]:
        batches = [batch for one in packs for batch in from_bytes(one)]
        table = sorted_updates(pa.Table.from_batches(batches)).combine_chunks()
        hashes = table[HASH].to_numpy()
        pages = self._pages_of(about)
        stored = pages.read(np.unique(hashes))
        told, new = self._current(about).follow(table.drop_columns([HASH]), stored)
        if new is not None:
            place: Any = pc.index_in(new[KEY], value_set=table[KEY])
            own = hashes[place.to_numpy()]
            expiry = NEVER
            if self._ttl is not None:
                expiry = timers.getCurrentProcessingTimeInMs() + self._ttl
                self._expire_at(expiry, own)
            new = new.append_column(HASH, pa.array(own))
            new = new.append_column(EXPIRY, pa.array(np.full(len(own), expiry)))
            self._write(about, pages, stored, new[KEY], new)
        return told

    def expire(self, expiry: int) -> Iterator[bytes]:
        """Publications, or the records of those that were removed, expire."""
        listed = self._expiring.getValue((expiry,))
        if listed is None:
            return
        self._expiring.removeKey((expiry,))
        about = self._read_about()
        pages = self._pages_of(about)
        stored = pages.read(np.frombuffer(bytes(listed[0]), np.int64))
        if stored is None:
            return
        # Others have had updates since.
        due: Any = pc.equal(stored[EXPIRY], pa.scalar(expiry))
        gone = stored.filter(due)
        if gone.num_rows == 0:
            return
        self._write(about, pages, stored, gone[KEY], gone.slice(0, 0))
        told = self._current(about).delete(gone)
        if told.num_rows:
            yield to_bytes([told])

    def _expire_at(self, expiry: int, hashes: Int64Array) -> None:
        listed = self._expiring.getValue((expiry,))
        before = b"" if listed is None else bytes(listed[0])
        self._expiring.updateValue((expiry,), (before + hashes.tobytes(),))
        self._handle.registerTimer(expiry)

    def _read_about(self) -> _About:
        # Asked first: Spark logs a warning for every value that is read in vain.
        known = self._about.get() if self._about.exists() else None
        about = _About(self._buckets) if known is None else _About(*known)
        if about.buckets != self._buckets:
            raise SparkError(
                f"this stream was started with buckets={about.buckets}, and keeps to that as long "
                f"as its checkpoint is used; now it is {self._buckets}"
            )
        return about

    def _current(self, about: _About) -> IndexFollower | SpaceFollower:
        """The follower of the version that the bucket has seen, if it is one that changes."""
        if not self._follows:
            return self._follower
        if about.version == NEVER:
            raise SparkError(f"no version of the index at {self._of_index.path} was found")
        return replace(self._of_index, shards=json.loads(about.shards))

    def _pages_of(self, about: _About) -> Pages:
        return Pages(self._pages, about.pages, about.publications)

    def _write(
        self, about: _About, pages: Pages, stored: pa.Table | None, keys: Any, new: pa.Table
    ) -> None:
        """Store rows in the place of those that have these keys."""
        if stored is not None:
            others = stored.filter(pc.invert(pc.is_in(stored[KEY], value_set=keys)))
            new = pa.concat_tables([others, new], promote_options="default")
        pages.write(new)
        after = about._replace(pages=pages.pages, publications=pages.publications)
        if after != about:
            self._about.update(after)


def _struct(**fields: str) -> StructType:
    from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

    kinds: dict[str, DataType] = {
        "long": LongType(),
        "string": StringType(),
        "binary": BinaryType(),
    }
    return StructType([StructField(name, kinds[kind]) for name, kind in fields.items()])


def processor(work: Any) -> StatefulProcessor:
    """What Spark runs. Of a class that is pickled by value: see `boxmatch.spark.entry`."""
    from pyspark.sql import Row
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Transitions(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.keeper = work(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            given = [(row["pack"], row["version"]) for row in rows]
            packs = [pack for pack, _ in given if pack is not None]
            versions = [version for _, version in given if version is not None]
            return (Row(pack=one) for one in self.keeper.take(packs, versions, timerValues))

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Any:
            expiry = expiredTimerInfo.getExpiryTimeInMs()
            return (Row(pack=one) for one in self.keeper.expire(expiry))

        def close(self) -> None:
            pass

    return Transitions()
