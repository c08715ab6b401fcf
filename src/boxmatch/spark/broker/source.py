"""Reading: ranges of sequence numbers, planned on the driver and read by the workers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from boxmatch.errors import SparkError
from boxmatch.spark.broker.logs import FeedLog, Inbox
from boxmatch.spark.broker.options import Connection, Place, number, place, require_option, switch
from boxmatch.spark.broker.rows import arrow_columns

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from boxmatch.client import Client

_LEAST = 1_000
"""Numbers that are worth a task."""
_QUIET_SECONDS = 3600.0
"""How long a stream waits behind the numbers of other feeds before it moves on past them."""


class Range(InputPartition):
    """The numbers (after, through] of a log."""

    def __init__(self, after: int, through: int) -> None:
        super().__init__((after, through))
        self.after = after
        self.through = through


@dataclass(frozen=True)
class SourceReading:
    """What the options of a reader say."""

    log: FeedLog | Inbox
    start: Place
    end: Place
    most: int | None
    partitions: int

    @classmethod
    def of(cls, options: Mapping[str, str], *, stream: bool) -> SourceReading:
        connection = Connection.of(options)
        feed, subscriber = options.get("feed"), options.get("subscriber")
        if bool(feed) == bool(subscriber):
            raise SparkError(
                "format('boxmatch') reads a feed or a subscriber's notifications: give one option"
            )
        fail = switch(options, "failOnDataLoss", True)
        log: FeedLog | Inbox
        if feed:
            log = FeedLog(connection, feed, fail)
        else:
            acknowledging = stream and switch(options, "acknowledge", True)
            log = Inbox(connection, require_option(options, "subscriber"), fail, acknowledging)
        end = place(options, "endingSequence", "latest")
        if stream and end != "latest":
            raise SparkError("a stream has no end: option 'endingSequence' is for batch reads")
        return cls(
            log=log,
            start=place(options, "startingSequence", "earliest"),
            end=end,
            most=number(options, "maxPerTrigger"),
            partitions=number(options, "partitions", 4) or 1,
        )

    def split(self, after: int, through: int) -> list[Range]:
        """The range in about equal parts, none of them tiny."""
        size = through - after
        if size <= 0:
            return []
        parts = max(1, min(self.partitions, size // _LEAST))
        ends = [after + size * part // parts for part in range(parts + 1)]
        return [Range(low, high) for low, high in itertools.pairwise(ends)]

    def read(self, schema: pa.Schema, part: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a range. Fails at the end if some were removed meanwhile."""
        if not isinstance(part, Range):  # Spark's stand-in for no partitions at all
            return
        with self.log.client() as client:
            yield from self.log.batches(client, schema, part.after, part.through)
            self.log.check(client, part.after, part.through)


class BrokerReader(DataSourceReader):
    """A batch read: from one number to another, which is settled when it is planned."""

    def __init__(self, reading: SourceReading, columns: StructType) -> None:
        self._reading = reading
        self._schema = arrow_columns(columns)

    def partitions(self) -> list[InputPartition]:
        reading = self._reading
        with reading.log.client() as client:
            after = reading.log.find(client, reading.start)
            last = reading.log.last(client)
        # An end is the last number to be read, unlike a start, before which reading begins.
        through = reading.end if isinstance(reading.end, int) else last
        return [*reading.split(after, min(through, last))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(self._schema, partition)


class BrokerStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: an offset is `{"sequence": n}`, and all up to n has been read.

    A batch is (start, end] of two offsets, which Spark keeps in its checkpoint before it runs the
    batch: run again, it has the same rows.
    """

    def __init__(self, reading: SourceReading, columns: StructType) -> None:
        self._reading = reading
        self._schema = arrow_columns(columns)
        self._target: int | None = None
        self._moved = time.monotonic()
        self._open: Client | None = None

    @property
    def _client(self) -> Client:
        """The driver's client, made on first use: what goes to the workers has none."""
        if self._open is None:
            self._open = self._reading.log.client()
        return self._open

    def initialOffset(self) -> dict[str, int]:
        return {"sequence": self._reading.log.find(self._client, self._reading.start)}

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._reading.most
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, int]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        after = int(start["sequence"])
        move_on = self._target is not None or time.monotonic() - self._moved > _QUIET_SECONDS
        end = self._reading.log.reach(self._client, after, most, self._target, move_on=move_on)
        if end != after:
            self._moved = time.monotonic()
        return {"sequence": end}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._reading.log.last(self._client)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return [*self._reading.split(int(start["sequence"]), int(end["sequence"]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._reading.read(self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        # Spark calls this when the batch is in its log of commits, so it will not ask again.
        self._reading.log.acknowledge(self._client, int(end["sequence"]))

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
