"""Where the matches of a stream go: any function of a DataFrame and the number of its batch."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Sink = Callable[["DataFrame", int], None]
"""Writes the matches of one micro-batch. After a failure it is called again with the same rows."""

_OWNER = "_boxmatch_stream"
_DRAFT = "_draft-"


@dataclass(frozen=True)
class ParquetSink:
    """Parquet, each batch exactly once, in a folder `batch=NUMBER` that appears when complete.

    `spark.read.parquet(path)` reads all of them, with a column `batch`. On object stores, where
    folders cannot be renamed, a batch is complete when it has a file `_SUCCESS`.
    """

    path: str | os.PathLike[str]
    partition_by: Sequence[str] = ()

    def claim(self, stream: str) -> None:
        """Refuse a folder that another stream writes to: its batches have the same numbers."""
        folder = Folder.at(self.path)
        folder.prepare()
        if folder.create(_OWNER, stream.encode()):
            return
        owner = (folder.read(_OWNER) or b"").decode()
        if owner != stream:
            raise SparkError(
                f"{folder} holds the output of the stream with checkpoint {owner}: choose another "
                "folder, or remove it"
            )

    def __call__(self, matches: DataFrame, batch_id: int) -> None:
        """Write a batch, in the place of what an earlier attempt has left."""
        folder = Folder.at(self.path)
        name = f"batch={batch_id}"
        if not folder.renames:
            self._write(matches, f"{os.fspath(self.path)}/{name}")
            return
        for left in folder.names():
            if left.startswith(_DRAFT):
                folder.remove(left)
        draft = f"{_DRAFT}{uuid.uuid4().hex}"
        self._write(matches, str(folder / draft))
        folder.move_in(folder / draft, name)

    def _write(self, matches: DataFrame, path: str) -> None:
        matches.write.mode("overwrite").partitionBy(*self.partition_by).parquet(path)


@dataclass(frozen=True)
class SparkSink:
    """Any format that Spark can write a batch to, such as `SparkSink("kafka", {"topic": …})`.

    A batch that failed half-way is written again from its start, so rows may come twice unless the
    format itself prevents it. `index_version` and `event_id` tell them apart.
    """

    format: str
    options: Mapping[str, Any] = field(default_factory=dict)
    mode: str = "append"

    def __call__(self, matches: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        matches.write.format(self.format).mode(self.mode).options(**self.options).save()


@dataclass(frozen=True)
class TableSink:
    """A table of Spark's catalogue. For rows that may come twice see `SparkSink`."""

    name: str
    mode: str = "append"

    def __call__(self, matches: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        matches.write.mode(self.mode).saveAsTable(self.name)
