"""Rows that wait in a folder until all of their batch are there, and are then published once.

    staged/ID/rows.arrow   what one attempt of one task wrote
    NAME.json              the manifest of a batch: which of these it has, and under which key
    NAME.done              it is in the feed

The manifest appears whole, before the first event is published, and from then on it alone says
what the batch is.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from boxmatch.errors import ClientError, SparkError
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    import pyarrow as pa

Publish = Callable[["pa.RecordBatch", str], None]

_STAGED, _ROWS = "staged", "rows.arrow"
_KEYS_LAST = 20 * 3600.0
"""Seconds for which the broker is sure to remember a key; it does so for a day."""


@dataclass(frozen=True)
class StagedPart:
    """The rows of one task."""

    id: str
    rows: int
    requests: int


@dataclass(frozen=True)
class Manifest:
    """What a batch is made of. Request number n is published under `key-n`."""

    key: str
    made: float
    query: str | None
    parts: list[StagedPart]

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def read(cls, content: bytes) -> Manifest:
        document: dict[str, Any] = json.loads(content)
        return cls(**{**document, "parts": [StagedPart(**part) for part in document["parts"]]})


@dataclass(frozen=True)
class Staging:
    """A folder that the driver and all workers see, for one query or one job."""

    folder: Folder
    publish_in_doubt: bool = False

    def stage(self, requests: Iterable[pa.RecordBatch]) -> StagedPart | None:
        """Write the rows of a task, each batch as it will be published; None if there are none."""
        import pyarrow as pa

        pending = iter(requests)
        first = next(pending, None)
        if first is None:
            return None
        part = uuid.uuid4().hex
        rows = count = 0
        with (
            (self.folder / _STAGED / part).open_for_writing() as place,
            open(place / _ROWS, "wb") as file,
        ):
            with pa.ipc.new_stream(file, first.schema) as stream:
                for batch in chain([first], pending):
                    stream.write_batch(batch)
                    rows += batch.num_rows
                    count += 1
            file.flush()
            os.fsync(file.fileno())
        return StagedPart(part, rows, count)

    def settle(
        self, name: str, parts: list[StagedPart], query: str | None, publish: Publish
    ) -> None:
        """Publish a batch, or the rest of it, or nothing if it is in the feed already."""
        content = self.folder.read(f"{name}.json")
        begun = content is not None
        if content is None:
            if not parts:
                return
            content = Manifest(uuid.uuid4().hex, time.time(), query, parts).to_json()
            if not self.folder.create(f"{name}.json", content):
                raise SparkError(f"somebody else writes {name} in {self.folder} at this moment")
        manifest = Manifest.read(content)
        self._check_query(manifest, query)
        if self.folder.read(f"{name}.done") is None:
            if begun:
                self._check_age(name, manifest)
            self._publish(name, manifest, publish, begun)
            self.folder.create(f"{name}.done", b"{}")
        for part in {*manifest.parts, *parts}:
            self.discard(part)

    def is_begun(self, name: str) -> bool:
        """Is there a manifest of this batch, which needs the rows that it names?"""
        return self.folder.read(f"{name}.json") is not None

    def discard(self, part: StagedPart) -> None:
        """Delete the rows of a task."""
        (self.folder / _STAGED).remove(part.id)

    def forget(self, names: Callable[[str], bool]) -> None:
        """Delete old manifests, and what tasks left behind that nobody waited for."""
        for file in self.folder.names():
            name, _, kind = file.rpartition(".")
            if kind in ("json", "done") and names(name):
                self.folder.remove(file)
        for part in (self.folder / _STAGED).names():
            (self.folder / _STAGED).remove(part)

    def _publish(self, name: str, manifest: Manifest, publish: Publish, begun: bool) -> None:
        number = 0
        for part in manifest.parts:
            for batch in self._rows(part):
                try:
                    publish(batch, f"{manifest.key}-{number}")
                except ClientError as error:
                    refused = error.status is not None and 400 <= error.status < 500
                    published = begun or number or error.problem.get("published")
                    if refused and not published:
                        # Nothing is published: the batch may be another one when it runs again.
                        self.folder.remove(f"{name}.json")
                    raise
                number += 1

    def _rows(self, part: StagedPart) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        folder = self.folder / _STAGED / part.id
        source: pa.NativeFile | None
        if folder.local is not None:
            path = folder.local / _ROWS
            source = pa.memory_map(str(path)) if path.exists() else None
        else:
            content = folder.read(_ROWS)
            source = None if content is None else pa.BufferReader(content)
        if source is None:
            raise SparkError(
                f"a task has written its rows to {folder}, and the driver does not see them: the "
                "checkpoint (or stagingLocation) must be a folder that driver and workers share"
            )
        with source, pa.ipc.open_stream(source) as stream:
            yield from stream

    def _check_query(self, manifest: Manifest, query: str | None) -> None:
        if None not in (query, manifest.query) and query != manifest.query:
            raise SparkError(
                f"{self.folder} is used by another query ({manifest.query}): every query needs a "
                "stagingLocation of its own"
            )

    def _check_age(self, name: str, manifest: Manifest) -> None:
        hours = (time.time() - manifest.made) / 3600
        if hours * 3600 > _KEYS_LAST and not self.publish_in_doubt:
            raise SparkError(
                f"{name} was left half published {hours:.0f} hours ago, and the broker remembers "
                "what it has seen for a day only. See what of it is in the feed; then set inDoubt "
                f"to 'publish' to publish it (again), or put a file {name}.done into {self.folder} "
                "to leave it as it is"
            )
