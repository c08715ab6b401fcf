"""Where a stream's subscriptions come from, and the index version that goes with them right now."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from boxmatch.errors import SparkError
from boxmatch.spark.build import IndexSettings, next_version, warn_of_rejected
from boxmatch.spark.store import Folder
from boxmatch.spark.versions import IndexVersion, newest, read_version, version_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class FilesOfSubscriptions:
    """A folder of files of one of Spark's formats. Names, sizes and times are its state."""

    path: str
    format: str = "parquet"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.format} at {self.path}"

    def read(self, spark: SparkSession) -> DataFrame:
        """The table as it is now."""
        return spark.read.format(self.format).options(**self.options).load(self.path)

    def state(self) -> str | None:
        """What changes when the table does; None while it is away, or somebody writes to it."""
        files = Folder.at(self.path).files()
        if not files or any("/_temporary/" in path for path, *_ in files):
            return None
        return hashlib.sha256(repr(files).encode()).hexdigest()


@dataclass(frozen=True)
class TableOfSubscriptions:
    """A table of Spark's catalogue, or whatever a function makes of a session.

    There is no cheap way to see whether it has changed, so it is read for every batch.
    """

    read: Callable[[SparkSession], DataFrame]

    def state(self) -> str | None:
        """Always something new."""
        return os.urandom(16).hex()


@dataclass
class IndexedSubscriptions:
    """Subscriptions from a table, with an index that follows it."""

    source: FilesOfSubscriptions | TableOfSubscriptions
    path: str
    settings: IndexSettings
    _seen: tuple[str, int] | None = None
    """The state of the table that was looked at last, and the version that goes with it."""

    def current(self, spark: SparkSession) -> IndexVersion:
        """The version of the index that holds what the table says now.

        While the table is away or being written, the version that there is stays: subscriptions do
        not go because their table is replaced.
        """
        before = newest(self.path)
        state = self.source.state()
        if before is not None and self._seen == (state, before.version):
            return before
        if state is not None:
            try:
                version = self._build(spark, state)
            except Exception:
                if before is None or self.source.state() == state:
                    raise
            else:
                if self._seen is None or self._seen[1] != version.version:
                    warn_of_rejected(version)
                self._seen = (state, version.version)
                return version
        if before is None:
            raise SparkError(
                f"there is no table of subscriptions, or it is being written: {self.source}"
            )
        log.warning("the subscriptions are being written; still at %s", before)
        return before

    def _build(self, spark: SparkSession, state: str) -> IndexVersion:
        return next_version(
            self.source.read(spark),
            self.path,
            self.settings,
            unless=lambda: (
                isinstance(self.source, FilesOfSubscriptions) and self.source.state() != state
            ),
        )

    def at(self, version: int) -> IndexVersion:
        """An older version."""
        return read_version(self.path, version)


@dataclass(frozen=True)
class FollowedIndex:
    """An index that others keep up to date with `build_index`."""

    path: str

    def current(self, spark: SparkSession) -> IndexVersion:
        """Its newest version."""
        return read_version(self.path)

    def at(self, version: int) -> IndexVersion:
        """An older version."""
        return read_version(self.path, version)


def is_index(path: str | os.PathLike[str]) -> bool:
    """Is there an index at `path`, rather than a table?"""
    return bool(version_numbers(path))
