"""Writing: rows are published once, whatever runs twice.

A task may run twice (a retry, speculation), and so may a whole micro-batch (a restart from the
checkpoint, before Spark has noted that the batch was done). Publishing from the tasks under keys
made of query, batch and partition would be exact only if everything that runs again gave the same
rows in the same partitions and the same order. Spark does not promise that: rows come out of a
shuffle in any order, a restart may find other partitions, and then a request under a known key
would be taken for one that it is not, and rows lost. So a stream is written in two steps:

1. Tasks write their rows into a folder below the checkpoint, each attempt into a file of its own.
   Values are checked against the feed's schema here, where nothing is published yet.
2. `commit` gives the driver the attempts that count, and the number of the batch. It writes a
   manifest that names their files and a random key, and only then publishes them, in the order of
   the partitions, request n under `key-n`. A batch that has a manifest already is published by
   that, not by the rows that it gave this time; one that is marked as done is left alone.

What is published is thus settled once per batch of a checkpoint, and the broker drops requests
that it has seen. It remembers keys for a day; a batch that was interrupted and is older than that
is an error, unless option `inDoubt` is `publish`. The folder must be one that driver and workers
share, as the checkpoint must be anyway: `stagingLocation` names another, which must belong to this
query alone, and is needed when the checkpoint is not given as an option of the writer.

In batch the same is done if there is a `stagingLocation`: all rows are published, or none if a
task fails; and with an `idempotencyKey` of your own a job that is started again publishes nothing
twice. Without a folder tasks publish as they go, under keys of job, partition and request: exact
as long as a task that runs twice gives the same rows in the same order.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from boxmatch.errors import AttributeValueError, EventError, SparkError
from boxmatch.model.columns import readable
from boxmatch.model.documents import ROOT
from boxmatch.model.events import EventEncoder
from boxmatch.model.repeated import is_list
from boxmatch.model.schema import Attribute, Schema
from boxmatch.spark.broker.options import Connection, require_option
from boxmatch.spark.broker.rows import arrow_columns
from boxmatch.spark.broker.staging import StagedPart, Staging
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from boxmatch.client import Client, Feed, Receipt

_ROWS_PER_REQUEST = 5_000
_BYTES_PER_REQUEST = 2 << 20
_JOB = "job"
_MANIFESTS_KEPT = 100
"""As many batches as Spark keeps in its own logs, and can be made to run again."""


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """What a task has written."""

    part: StagedPart | None
    query: str | None = None


@dataclass(frozen=True)
class Writing:
    """Where rows go, and what they must be like there."""

    connection: Connection
    feed: str
    schema: Schema

    @classmethod
    def of(cls, options: Mapping[str, str], columns: StructType, overwrite: bool) -> Writing:
        """Checked against the feed before any job starts."""
        if options.get("subscriber"):
            raise SparkError(
                "a subscriber's notifications cannot be written: give option 'feed' alone"
            )
        connection = Connection.of(options)
        name = require_option(options, "feed")
        if overwrite:
            raise SparkError(
                f"feed {name!r} can only grow: write with mode 'append', and streams with "
                "outputMode 'append' or 'update'"
            )
        feed = connection.feed(name)
        _check_columns(feed, columns)
        return cls(connection, name, feed.schema)

    def requests(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Rows in portions that the broker takes, with every value checked."""
        import pyarrow.types as t

        for batch in batches:
            if batch.num_rows:
                self._check_values(batch)
                kept = [f.name for f in batch.schema if not t.is_null(f.type)]
                yield from _portions(batch.select(kept))

    def publish(self, client: Client, rows: pa.RecordBatch, key: str) -> None:
        """Publish rows, unless the broker has had them."""
        import pyarrow as pa

        table = pa.Table.from_batches([rows])
        client.publish(self.feed, table, key=key, batch=len(table), on_receipt=self._check_receipt)

    def _check_receipt(self, receipt: Receipt) -> None:
        if not receipt.repeated or receipt.first is None or receipt.last is None:
            return
        count = receipt.last - receipt.first + 1
        if count != receipt.count:
            raise SparkError(
                f"feed {self.feed!r}: {receipt.count} rows were to be published under a key under "
                f"which there are {count} others: this part of the data came out differently when "
                "it ran again; set stagingLocation, which settles it once"
            )

    def _check_values(self, batch: pa.RecordBatch) -> None:
        # Of strings the type says all, and documents have any.
        needed = [attribute.type not in ("string", "json") for attribute in self.schema]
        try:
            EventEncoder(self.schema, {}).encode(batch, np.array(needed))
        except (AttributeValueError, EventError) as error:
            raise SparkError(f"feed {self.feed!r}: {error}") from None


class BrokerStreamWriter(DataSourceStreamArrowWriter):
    """A stream into a feed."""

    def __init__(self, writing: Writing, options: Mapping[str, str]) -> None:
        self._writing = writing
        given, checkpoint = options.get("stagingLocation"), options.get("checkpointLocation")
        if given:
            folder = Folder.at(given)
        elif checkpoint:
            folder = Folder.at(checkpoint) / "boxmatch"
        else:
            raise SparkError(
                "a stream into a feed needs option 'checkpointLocation' on the writer itself, or "
                "a folder of its own as 'stagingLocation': rows wait there to be published once"
            )
        self._staging = _make_staging(folder, options)

    def write(  # type: ignore[override]  # typed for rows; Spark hands over what is declared here
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Written:
        from pyspark import TaskContext

        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        return Written(self._staging.stage(self._writing.requests(iterator)), query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query = next((m.query for m in messages if isinstance(m, Written)), None)
        _publish(self._writing, self._staging, _name(batchId), _parts(messages), query)
        self._staging.forget(lambda name: _batch_of(name) < batchId - _MANIFESTS_KEPT)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # Also called when `commit` has failed: then the manifest needs the rows.
        if not self._staging.is_begun(_name(batchId)):
            for part in _parts(messages):
                self._staging.discard(part)


class BrokerWriter(DataSourceArrowWriter):
    """A table into a feed."""

    def __init__(self, writing: Writing, options: Mapping[str, str]) -> None:
        self._writing = writing
        given = options.get("idempotencyKey")
        self._job = hashlib.sha256(given.encode()).hexdigest()[:32] if given else uuid.uuid4().hex
        self._repeatable = bool(given)
        folder = options.get("stagingLocation")
        self._shelf = Folder.at(folder) if folder else None
        self._staging = _make_staging(self._shelf / self._job, options) if self._shelf else None

    def write(  # type: ignore[override]  # typed for rows; Spark hands over what is declared here
        self, iterator: Iterator[pa.RecordBatch]
    ) -> Written:
        requests = self._writing.requests(iterator)
        if self._staging is not None:
            return Written(self._staging.stage(requests))
        from pyspark import TaskContext

        context = TaskContext.get()
        if context is None:
            raise SparkError("rows are published by Spark's tasks, and this is none")
        with self._writing.connection.client() as client:
            for number, rows in enumerate(requests):
                key = f"{self._job}-{context.partitionId()}-{number}"
                self._writing.publish(client, rows, key)
        return Written(None)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._staging is None or self._shelf is None:
            return
        _publish(self._writing, self._staging, _JOB, _parts(messages), None)
        if self._repeatable:
            self._staging.forget(lambda name: False)  # but not that it is done
        else:
            self._shelf.remove(self._job)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        if self._staging is None or self._shelf is None:
            return
        if not self._staging.is_begun(_JOB):
            self._shelf.remove(self._job)


def _publish(
    writing: Writing, staging: Staging, name: str, parts: list[StagedPart], query: str | None
) -> None:
    with writing.connection.client() as client:
        staging.settle(name, parts, query, lambda rows, key: writing.publish(client, rows, key))


def _make_staging(folder: Folder, options: Mapping[str, str]) -> Staging:
    in_doubt = options.get("inDoubt", "fail").lower()
    if in_doubt not in ("fail", "publish"):
        raise SparkError(f"option 'inDoubt' is 'fail' or 'publish', not {in_doubt!r}")
    return Staging(folder, in_doubt == "publish")


def _name(batch: int) -> str:
    return f"batch-{batch}"


def _batch_of(name: str) -> float:
    number = name.removeprefix("batch-")
    return int(number) if number.isdigit() else float("inf")


def _parts(messages: list[WriterCommitMessage | None]) -> list[StagedPart]:
    return [m.part for m in messages if isinstance(m, Written) and m.part is not None]


def _portions(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows.num_rows, _ROWS_PER_REQUEST):
        yield from _halve(rows.slice(start, _ROWS_PER_REQUEST))


def _halve(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    if rows.nbytes <= _BYTES_PER_REQUEST or rows.num_rows == 1:
        yield rows
        return
    half = rows.num_rows // 2
    yield from _halve(rows.slice(0, half))
    yield from _halve(rows.slice(half))


def _check_columns(feed: Feed, columns: StructType) -> None:
    import pyarrow.types as t

    if feed.kind != "events":
        raise SparkError(f"feed {feed.name!r} is a {feed.kind} feed: only events can be written")
    found = {f.name: f.type for f in arrow_columns(columns) if not t.is_null(f.type)}
    names = feed.schema.names
    # A column of structs may hold attributes such as `order.id`.
    parents = {name[:at] for name in names for at, sign in enumerate(name) if sign == "."}
    parents &= {name for name, kind in found.items() if t.is_struct(kind)}
    unknown = [name for name in found if name not in names and name not in parents]
    is_open = ROOT in names
    if unknown and feed.unknown == "refuse" and not is_open:
        raise SparkError(
            f"feed {feed.name!r} has no attribute {', '.join(map(repr, unknown))} (it has: "
            f"{', '.join(names)}): drop the column, or add the attribute to the feed"
        )
    if not is_open and not set(found) & {*names, *parents}:
        raise SparkError(
            f"no column is an attribute of feed {feed.name!r} (it has: {', '.join(names)})"
        )
    for attribute in feed.schema:
        if attribute.name in found and not _is_readable(attribute, found[attribute.name]):
            raise SparkError(
                f"column {attribute.name!r} is of type "
                f"{columns[attribute.name].dataType.simpleString()}, which feed {feed.name!r} "
                f"cannot read as {attribute.type_name}: cast it first"
            )


def _is_readable(attribute: Attribute, kind: Any) -> bool:
    """Whether the broker can read an attribute from a column of this type."""
    import pyarrow.types as t

    if attribute.type == "json":
        return True
    if attribute.repeated:
        if not is_list(kind):
            return False
        kind = kind.value_type
    return t.is_struct(kind) if attribute.type == "struct" else readable(attribute.type, kind)
