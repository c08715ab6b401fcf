"""An index on disk as a sequence of versions, none of which ever changes.

```
index/
  versions/000000000001.json    which segments make up each shard, and what they were made for
  segments/7c9e…/               subscriptions of one shard: a matcher, their ids, what was rejected
```

A version is there once its file is, which appears whole or not at all. Tasks write segments under
names that nobody else uses, so one that failed or ran twice leaves a segment that no version
names, and nothing else.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from boxmatch.errors import SparkError
from boxmatch.model.schema import Schema
from boxmatch.spark.entry import task
from boxmatch.spark.skipping import SkipFigures
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 3
VERSIONS = "versions"
SEGMENTS = "segments"

IdType = Literal["long", "string"]

_GRACE_SECONDS = 3600
"""A segment younger than this that no version names may still be in the making."""


class SegmentEntry(NamedTuple):
    """A segment as a version knows it."""

    name: str
    rows: int
    """Subscriptions in it, whether later segments changed them or not."""
    changed: int
    """Subscriptions of earlier segments that it takes the place of, or removes."""
    nbytes: int
    attributes: tuple[str, ...] | None = None
    """Those that its subscriptions have conditions on; None if it was written without them."""


class Shard(NamedTuple):
    """One part of the subscriptions: segments in order, of which the later overrule the earlier."""

    segments: tuple[SegmentEntry, ...] = ()
    subscriptions: int = 0
    rejected: int = 0
    skipping: SkipFigures | None = None
    """What skipping predicates adds; None if nobody counted, as an index of this kind gains nothing
    from it."""


@dataclass(frozen=True)
class IndexVersion:
    """One version of an index, as `build_index` wrote it."""

    path: str
    version: int
    schema: Schema
    index: str
    index_options: Mapping[str, Any]
    id_type: IdType
    shards: tuple[Shard, ...]
    selectivity: Mapping[str, float] = field(default_factory=dict)
    """The share of events that satisfy a predicate, by attribute, if it is known."""
    time_zone: str = "UTC"
    """That of timestamps in filters that name no other: of the session that built the index."""
    feeds: Mapping[str, int] = field(default_factory=dict)
    """The last batch of each stream of changes that is part of this version."""

    @property
    def subscriptions(self) -> int:
        """How many subscriptions can match."""
        return sum(shard.subscriptions for shard in self.shards)

    @property
    def rejected(self) -> int:
        """How many rows of the table are no subscriptions; `boxmatch.spark.rejected` shows them."""
        return sum(shard.rejected for shard in self.shards)

    @property
    def nbytes(self) -> int:
        """Bytes on disk, which is also what a machine holds in memory at the most."""
        return sum(segment.nbytes for shard in self.shards for segment in shard.segments)

    @property
    def segment_names(self) -> list[list[str]]:
        """The segments of each shard, by which workers find them."""
        return [[segment.name for segment in shard.segments] for shard in self.shards]

    @property
    def skipping(self) -> SkipFigures | None:
        """What skipping predicates adds, over all shards; None if that was not counted."""
        shards = [shard for shard in self.shards if shard.subscriptions]
        counted = [shard.skipping for shard in shards if shard.skipping is not None]
        if len(counted) < len(shards):
            return None
        return SkipFigures.total(counted, len(self.schema))

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that decide what matches: a worker needs no others of an event."""
        segments = [segment for shard in self.shards for segment in shard.segments]
        if any(segment.attributes is None for segment in segments):
            return self.schema.names
        used = {name for segment in segments for name in segment.attributes or ()}
        # A batch without a column would not say how many rows it has.
        return tuple(name for name in self.schema.names if name in used) or self.schema.names[:1]

    def __str__(self) -> str:
        return (
            f"version {self.version} of {self.path}: {self.subscriptions:,} subscriptions in "
            f"{len(self.shards):,} {'shard' if len(self.shards) == 1 else 'shards'}, "
            f"{self.nbytes / 1e6:,.1f} MB, {self.rejected:,} rejected"
        )

    def to_json(self) -> str:
        return json.dumps(
            {
                "format": FORMAT,
                "version": self.version,
                "schema": json.loads(self.schema.to_json()),
                "index": self.index,
                "index_options": dict(self.index_options),
                "id_type": self.id_type,
                "shards": self.shards,
                "selectivity": dict(self.selectivity),
                "time_zone": self.time_zone,
                "feeds": dict(self.feeds),
            }
        )

    @classmethod
    def from_json(cls, path: str, text: str) -> IndexVersion:
        found = json.loads(text)
        if found.get("format") != FORMAT:
            raise SparkError(
                f"the index at {path} has format {found.get('format')}; this version of boxmatch "
                f"reads {FORMAT}: delete the folder, or choose another, and build the index anew "
                "with build_index"
            )
        return cls(
            path,
            found["version"],
            Schema.from_json(json.dumps(found["schema"])),
            found["index"],
            found["index_options"],
            found["id_type"],
            tuple(shard_of(*shard) for shard in found["shards"]),
            found.get("selectivity", {}),
            found.get("time_zone", "UTC"),
            found.get("feeds", {}),
        )


def shard_of(
    segments: Sequence[Sequence[Any]],
    subscriptions: int,
    rejected: int,
    skipping: Sequence[Any] | None = None,
) -> Shard:
    """A shard from what JSON made of it."""
    entries = (SegmentEntry(*one) for one in segments)
    return Shard(
        tuple(
            entry._replace(attributes=None if entry.attributes is None else tuple(entry.attributes))
            for entry in entries
        ),
        subscriptions,
        rejected,
        None if skipping is None else SkipFigures.of_json(skipping),
    )


def version_numbers(path: str | os.PathLike[str]) -> list[int]:
    """The versions that are there, oldest first."""
    names = (Folder.at(path) / VERSIONS).names()
    return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[0] != ".")


def read_version(path: str | os.PathLike[str], version: int | None = None) -> IndexVersion:
    """A version of the index at `path`, the newest by default."""
    folder = Folder.at(path)
    if version is None:
        numbers = version_numbers(path)
        if not numbers:
            raise SparkError(f"there is no index at {folder}: make one with build_index")
        version = numbers[-1]
    text = (folder / VERSIONS).read(_file(version))
    if text is None:
        raise SparkError(
            f"the index at {folder} has no version {version}, or no longer; it has "
            f"{', '.join(map(str, version_numbers(path))) or 'none'}"
        )
    return IndexVersion.from_json(str(folder), text.decode())


def newest(path: str | os.PathLike[str]) -> IndexVersion | None:
    """The newest version of the index at `path`; None if there is no index yet."""
    numbers = version_numbers(path)
    return read_version(path, numbers[-1]) if numbers else None


def publish(version: IndexVersion) -> None:
    """Make a version known. Only one writer can win its number."""
    folder = Folder.at(version.path) / VERSIONS
    if not folder.create(_file(version.version), version.to_json().encode()):
        raise SparkError(
            f"another writer has just made version {version.version} of {version.path}; "
            "an index has one writer at a time"
        )


def forget(path: str | os.PathLike[str], before: int) -> None:
    """Delete versions before number `before`, and the segments that none of the others has."""
    folder = Folder.at(path)
    numbers = version_numbers(path)
    kept = [number for number in numbers if number >= before] or numbers[-1:]
    for number in numbers:
        if number not in kept:
            (folder / VERSIONS).remove(_file(number))
    named = {
        segment.name
        for number in kept
        for shard in read_version(path, number).shards
        for segment in shard.segments
    }
    segments = folder / SEGMENTS
    young = (time.time() - _GRACE_SECONDS) * 1e9
    for name in segments.names():
        if name not in named and all(changed < young for *_, changed in (segments / name).files()):
            segments.remove(name)


def rejected(
    spark: SparkSession, path: str | os.PathLike[str], version: int | None = None
) -> DataFrame:
    """What an index left out: `subscription_id` (as text), `filter` (as text) and `reason`."""
    found = read_version(path, version)
    names = [([s.name for s in shard.segments],) for shard in found.shards if shard.rejected]
    listed = spark.createDataFrame(names, "segments array<string>")
    read = task("boxmatch.spark.worker:read_rejected", "rejected", path=found.path)
    return listed.repartition(max(1, len(names))).mapInArrow(
        read, "subscription_id string, filter string, reason string"
    )


def _file(version: int) -> str:
    return f"{version:012}.json"
