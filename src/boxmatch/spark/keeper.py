"""Publications in Spark's state.

Spark's interface to state works row by row, and takes microseconds for each value of a row. So
updates travel to it in packs: Arrow batches as bytes, one for each bucket of publications, and
transitions come back in the same way. The state of a bucket has its publications in pages
(`boxmatch.spark.pages`), of which a micro-batch reads and writes those that it has updates for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.arrays import Int64Array
from boxmatch.errors import SparkError
from boxmatch.spark.follower import IndexFollower, sorted_updates
from boxmatch.spark.pages import (
    EXPIRY,
    HASH,
    KEY,
    NEVER,
    Pages,
    from_bytes,
    table_of,
    to_bytes,
    updates_of,
)
from boxmatch.spark.states import Updates

if TYPE_CHECKING:
    from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle, TimerValues
    from pyspark.sql.types import DataType, StructType

BUCKET, PACK = "bucket", "pack"


def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Updates as packs: rows of bucket and bytes. The bucket is the first column."""
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
            [pa.array(numbers, pa.int32()), pa.array(packs, pa.binary())], [BUCKET, PACK]
        )


def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The transitions in packs, the only column."""
    for batch in batches:
        for one in batch.column(0):
            yield from from_bytes(one.as_py())


class Keeper:
    """The publications of a bucket: what is stored, and what updates and time do to it."""

    def __init__(
        self,
        handle: StatefulProcessorHandle,
        *,
        ttl: float | None,
        buckets: int,
        **arguments: Any,
    ) -> None:
        self._handle = handle
        counts = _struct(buckets="long", pages="long", publications="long")
        self._counts = handle.getValueState("counts", counts)
        self._pages = handle.getMapState("pages", _struct(page="long"), _struct(rows="binary"))
        self._expiring = handle.getMapState(
            "expiring", _struct(expiry="long"), _struct(hashes="binary")
        )
        self._ttl = None if ttl is None else max(1, round(1000 * ttl))
        self._buckets = buckets
        self._arguments = arguments
        self._opened: IndexFollower | None = None

    @property
    def _follower(self) -> IndexFollower:
        # Spark also asks for a processor on the driver, to see what its state is.
        if self._opened is None:
            self._opened = IndexFollower.of(**self._arguments)
        return self._opened

    def update(self, packs: Iterable[bytes], timers: TimerValues) -> Iterator[bytes]:
        """The updates of a bucket in one micro-batch."""
        follower = self._follower
        batches = [batch for one in packs for batch in from_bytes(one)]
        table = sorted_updates(pa.Table.from_batches(batches)).combine_chunks()
        hashes = table[HASH].to_numpy()
        pages = self._open_pages()
        stored = pages.read(np.unique(hashes))
        known = None if stored is None else updates_of(follower.schema, stored)
        found: list[pa.RecordBatch] = []
        last: Updates | None = None
        for states, told in follower.follow(table.drop_columns([HASH]).to_batches(), known):
            if told.num_rows:
                found.append(told)
            new = states.known(states.final)
            last = new if last is None else last.replaced_by(new)
        if last is not None and len(last):
            expiry = NEVER
            place: Any = pc.index_in(last.key, value_set=table[KEY])
            own = hashes[place.to_numpy()]
            if self._ttl is not None:
                expiry = timers.getCurrentProcessingTimeInMs() + self._ttl
                self._expire_at(expiry, own)
            self._write(pages, stored, last.key, table_of(follower.schema, last, own, expiry))
        if found:
            yield to_bytes(found)

    def expire(self, expiry: int) -> Iterator[bytes]:
        """Publications, or the records of those that were removed, expire."""
        listed = self._expiring.getValue((expiry,))
        if listed is None:
            return
        self._expiring.removeKey((expiry,))
        pages = self._open_pages()
        stored = pages.read(np.frombuffer(bytes(listed[0]), np.int64))
        if stored is None:
            return
        # Others have had updates since.
        due: Any = pc.equal(stored[EXPIRY], pa.scalar(expiry))
        gone = stored.filter(due)
        if gone.num_rows == 0:
            return
        self._write(pages, stored, gone[KEY], gone.slice(0, 0))
        told = self._follower.delete(updates_of(self._follower.schema, gone))
        if told.num_rows:
            yield to_bytes([told])

    def _expire_at(self, expiry: int, hashes: Int64Array) -> None:
        listed = self._expiring.getValue((expiry,))
        before = b"" if listed is None else bytes(listed[0])
        self._expiring.updateValue((expiry,), (before + hashes.tobytes(),))
        self._handle.registerTimer(expiry)

    def _open_pages(self) -> Pages:
        # Asked first: Spark logs a warning for every value that is read in vain.
        known = self._counts.get() if self._counts.exists() else None
        buckets, pages, publications = known or (self._buckets, 1, 0)
        if buckets != self._buckets:
            raise SparkError(
                f"this stream was started with buckets={buckets}, and keeps to that as long as "
                f"its checkpoint is used; now it is {self._buckets}"
            )
        return Pages(self._pages, pages, publications)

    def _write(self, pages: Pages, stored: pa.Table | None, keys: Any, new: pa.Table) -> None:
        """Store rows in the place of those that have these keys."""
        if stored is not None:
            others = stored.filter(pc.invert(pc.is_in(stored[KEY], value_set=keys)))
            new = pa.concat_tables([others, new], promote_options="default")
        counts = pages.pages, pages.publications
        pages.write(new)
        if (pages.pages, pages.publications) != counts or stored is None:
            self._counts.update((self._buckets, pages.pages, pages.publications))


def _struct(**fields: str) -> StructType:
    from pyspark.sql.types import BinaryType, LongType, StructField, StructType

    kinds: dict[str, DataType] = {"long": LongType(), "binary": BinaryType()}
    return StructType([StructField(name, kinds[kind]) for name, kind in fields.items()])
