"""Outputs of stages, and the markers that say which of them are complete.

A stage writes its output under a name that nobody looks at, the output is renamed once it is
complete, and then a marker is written that carries a fingerprint of all that went into it. Without
the marker of today's fingerprint the stage is done again. Where folders cannot be renamed (object
stores) the marker, and Spark's own `_SUCCESS`, tell a whole output.
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from boxmatch import __version__
from boxmatch.spark.pipeline.failures import translate_errors
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGES: Final = "stages"
_UNFINISHED: Final = "_unfinished"


@dataclass(frozen=True, kw_only=True)
class StageRecord:
    """What is known of a stage once it is done."""

    name: str
    fingerprint: str
    seconds: float
    rows: int | None
    """That came out of it; None if it makes no rows."""
    details: Mapping[str, Any] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    """What it wrote, in the folder of the run."""
    resumed: bool = False
    """It was found done, and not done again."""


Done = tuple[int | None, Mapping[str, Any]]

Progress = Callable[[str, StageRecord | None], None]
"""Called with the name of a stage when it begins, and with its record when it is done."""


class Stages:
    """The stages of a run whose outputs are in one folder."""

    def __init__(self, path: str, progress: Progress | None = None) -> None:
        # Spark goes by the address as it was given; only Arrow needs another one for some.
        self._address = f"file://{Folder.at(path)}" if Folder.at(path).local else path.rstrip("/")
        self.folder = Folder.at(path)
        self._progress = progress or (lambda name, record: None)
        self._outputs: list[str] = []
        self.folder.prepare()
        (self.folder / STAGES).prepare()

    def forget(self) -> None:
        """Forget what is done, so that every stage runs again."""
        for name in (self.folder / STAGES).names():
            if name.endswith(".json"):
                (self.folder / STAGES).remove(name)

    def run(
        self,
        name: str,
        inputs: Mapping[str, Any] | None,
        work: Callable[[], Done],
    ) -> StageRecord:
        """Do a stage, unless it is done: `work` writes its output, and returns rows and details.

        With inputs of which nothing is known (None) it is always done.
        """
        self._progress(name, None)
        known = {"inputs": inputs or uuid.uuid4().hex, "stage": name, "boxmatch": __version__}
        fingerprint = fingerprint_of(known)
        done = self._marker(name)
        if done is None or done.fingerprint != fingerprint or not self._whole(done):
            done = self._do(name, fingerprint, work)
        self._progress(name, done)
        return done

    def write(self, output: DataFrame, name: str, partition_by: Sequence[str] = ()) -> None:
        """Write Parquet to `name`, which is not there until it is whole."""
        self.wrote(name)
        if not self.folder.renames:
            output.write.mode("overwrite").partitionBy(*partition_by).parquet(self.path(name))
            return
        draft = f"{_UNFINISHED}/{name.replace('/', '-')}"
        output.write.mode("overwrite").partitionBy(*partition_by).parquet(self.path(draft))
        folder, _, last = name.rpartition("/")
        into = self.folder / folder if folder else self.folder
        into.prepare()
        into.move_in(self.folder / draft, last)

    def wrote(self, name: str) -> None:
        """Note down what the stage wrote by other means."""
        self._outputs.append(name)

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """What was written to `name`."""
        return spark.read.parquet(self.path(name))

    def path(self, name: str) -> str:
        """Where `name` is, as Spark takes it."""
        return f"{self._address}/{name}"

    def publish(self, name: str, content: str) -> None:
        """Write a small file, in the place of the one that has this name."""
        self.folder.remove(name)
        self.folder.create(name, content.encode())

    def tidy(self) -> None:
        """Remove what a run that was cut short has left."""
        self.folder.remove(_UNFINISHED)

    def _do(self, name: str, fingerprint: str, work: Callable[[], Done]) -> StageRecord:
        markers = self.folder / STAGES
        markers.remove(f"{name}.json")
        self._outputs.clear()
        began = perf_counter()
        with translate_errors(f"stage {name}"):
            rows, details = work()
        record = StageRecord(
            name=name, fingerprint=fingerprint, seconds=perf_counter() - began, rows=rows,
            details=json.loads(json.dumps(details, default=str)), outputs=tuple(self._outputs),
        )  # fmt: skip
        markers.create(f"{name}.json", json.dumps(asdict(record), default=str).encode())
        return record

    def _whole(self, record: StageRecord) -> bool:
        """Is what a stage wrote still there? Somebody may have deleted it."""
        return all((self.folder / name).names() for name in record.outputs)

    def _marker(self, name: str) -> StageRecord | None:
        text = (self.folder / STAGES).read(f"{name}.json")
        if text is None:
            return None
        try:
            return StageRecord(**{**json.loads(text), "resumed": True})
        except (ValueError, TypeError):  # of another version
            return None


def fingerprint_of(known: Mapping[str, Any]) -> str:
    """A short name for exactly these values."""
    text = json.dumps(known, sort_keys=True, default=os.fspath)
    return hashlib.sha256(text.encode()).hexdigest()[:32]
