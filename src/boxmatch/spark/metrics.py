"""What a run did, where users of Spark look: descriptions of jobs, and figures of micro-batches."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from boxmatch.spark.columns import column
from boxmatch.spark.store import Folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Observation, SparkSession

_DESCRIPTION = "spark.job.description"
_PATIENCE_SECONDS = 20
"""Spark reports what it observed a moment after a job; should it fail to, the stream goes on."""

METRICS = "metrics"
"""The folder of a stream's figures, beside its pins."""


@dataclass(frozen=True)
class BatchMetrics:
    """What happened in one micro-batch. A row of `stream_metrics`."""

    batch: int
    events: int | None
    """None if the sink is a function of the user's, which may read the matches as it likes."""
    matches: int | None
    index_version: int
    subscriptions: int
    rejected: int
    index_seconds: float
    """How long it took to see whether subscriptions have changed, and to build what has."""
    seconds: float
    """All of the batch, as far as it is ours."""

    def write(self, folder: Folder, kept: int) -> None:
        """Leave them beside the stream's checkpoint, and delete those of old batches."""
        folder.replace(f"{self.batch}.json", json.dumps(asdict(self)).encode())
        folder.remove(f"{self.batch - kept}.json")


def stream_metrics(spark: SparkSession, checkpoint: str | os.PathLike[str]) -> DataFrame:
    """A row for each of the last hundred micro-batches of `match_stream`, by its checkpoint.

    Columns are `batch`, `events`, `matches`, `index_version`, `subscriptions`, `rejected`,
    `index_seconds` (to follow changes of subscriptions) and `seconds`. Events and matches are
    counted while the batch is written, and are null where the sink is a function of yours.
    """
    folder = Folder.at(checkpoint) / "boxmatch" / METRICS
    rows = []
    for name in folder.names():
        text = folder.read(name) if name.endswith(".json") and name[0] != "." else None
        if text is not None:
            rows.append(tuple(json.loads(text)[one] for one in BatchMetrics.__dataclass_fields__))
    return spark.createDataFrame(
        sorted(rows),
        "batch long, events long, matches long, index_version long, subscriptions long, "
        "rejected long, index_seconds double, seconds double",
    )


class Watch:
    """Counts the events and the matches of a batch while a single action reads them."""

    def __init__(self) -> None:
        from pyspark.sql import Observation

        self._events = Observation()
        self._matches = Observation()

    def see_events(self, events: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        return events.observe(self._events, f.count(f.lit(1)).alias("number"))

    def see_matches(self, matches: DataFrame, how: str, found: str) -> DataFrame:
        from pyspark.sql import functions as f

        number = {
            "pairs": lambda: f.count(f.lit(1)),
            "arrays": lambda: f.sum(f.size(column(found))),
            "counts": lambda: f.sum(column(found)),
        }[how]()
        number = f.coalesce(number.cast("long"), f.lit(0).cast("long"))
        return matches.observe(self._matches, number.alias("number"))

    def counted(self) -> tuple[int | None, int | None]:
        """How many there were, after the action."""
        return _number(self._events), _number(self._matches)


def _number(observation: Observation) -> int | None:
    found: list[int] = []

    def get() -> None:
        found.append(int(observation.get["number"]))

    thread = threading.Thread(target=get, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return found[0] if found else None


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Jobs within have this description in Spark's UI, after the one that they had anyway.

    With Spark Connect, where the server describes jobs, they have it as a tag.
    """
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        tag = text.replace(",", "")  # the one character that a tag may not have
        known = tag in spark.getTags()
        spark.addTag(tag)
        try:
            yield
        finally:
            if not known:
                spark.removeTag(tag)
        return
    context: Any = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.setLocalProperty(_DESCRIPTION, f"{before}<br/>{text}" if before else text)
    try:
        yield
    finally:
        context.setLocalProperty(_DESCRIPTION, before)
