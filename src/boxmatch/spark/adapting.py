"""The rate of false matches of each micro-batch, by how far a stream falls behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.errors import SparkError
from boxmatch.spark.columns import column, require_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PAUSE = 2.0
"""Seconds between two batches, besides the trigger's interval, that Spark may take for itself. If
there were more, there was nothing to do."""


@dataclass
class BatchRates:
    """Decides on the rate of each batch of one query: PADA, with a decision for each batch.

    Events of a batch have waited at most since the batch before it began, less the interval of the
    trigger, which they wait in any case. A source that limits what a batch takes keeps a backlog
    that this does not see: then `arrived` names a column with the time at which an event arrived,
    and the oldest event of the batch says how long.
    """

    adjuster: Adjuster
    interval: float = 0.0
    """Seconds from one trigger to the next; 0 if batches follow each other at once."""
    arrived: str | None = None
    clock: Callable[[], float] = time.monotonic
    _last: tuple[float, float] | None = field(default=None, init=False)
    """When the batch before began, and when it ended."""

    def __post_init__(self) -> None:
        self.adjuster = replace(self.adjuster)  # of this query alone

    def decide(self, events: DataFrame) -> float:
        """The rate for a batch that begins now."""
        now = self.clock()
        paused = self._last is not None and now - self._last[1] > self.interval + _PAUSE
        if self.arrived is not None:
            return self.adjuster.decide(_age_of_oldest(events, self.arrived))
        if self._last is None or paused:
            self.adjuster.relax()
            return self.adjuster.rate
        return self.adjuster.decide(max(0.0, now - self._last[0] - self.interval))

    def note(self, began: float) -> None:
        """A batch that began at this time has ended."""
        self._last = began, self.clock()


def plan_rates(
    events: DataFrame,
    adjuster: Adjuster,
    trigger: Mapping[str, Any] | None,
    arrived: str | None,
) -> BatchRates:
    """How a query on these events adapts; no job is run."""
    if not isinstance(adjuster, Adjuster):
        raise SparkError(f"adjuster is a boxmatch.adaptive.adjuster.Adjuster, not {adjuster!r:.80}")
    if arrived is not None:
        require_columns(events, [arrived], "events")
        kind = events.schema[arrived].dataType.simpleString()
        if kind not in ("timestamp", "timestamp_ntz"):
            raise SparkError(
                f"arrived names column {arrived!r} of the events, which is {kind} and not a "
                "timestamp"
            )
    every = (trigger or {}).get("processingTime")
    seconds = 0.0 if every is None else _seconds(events.sparkSession, every)
    return BatchRates(adjuster, seconds, arrived)


def _age_of_oldest(events: DataFrame, arrived: str) -> float:
    """Seconds since the oldest of the events arrived; 0 without events."""
    from pyspark.sql import functions as f

    # A timestamp without a time zone is in the session's, as everywhere in Spark.
    oldest = f.min(f.unix_micros(column(arrived).cast("timestamp")))
    micros = events.agg(oldest.alias("at")).collect()[0]["at"]
    return 0.0 if micros is None else max(0.0, time.time() - micros / 1e6)


def _seconds(spark: SparkSession, interval: str) -> float:
    """An interval as Spark reads it."""
    from pyspark.errors import PySparkException
    from pyspark.sql import functions as f

    text = interval.strip().replace("'", "")
    start = "TIMESTAMP'1970-01-01 00:00:00Z'"
    try:
        row = spark.sql(f"SELECT {start} + CAST('{text}' AS INTERVAL) AS at").select(
            f.unix_micros("at").alias("micros")
        )
        return float(row.collect()[0]["micros"]) / 1e6
    except (PySparkException, TypeError):
        raise SparkError(f"trigger: {interval!r} is not an interval that Spark reads") from None
