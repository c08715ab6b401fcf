"""A pipeline over DataFrames: read, clean, derive, match, notify, and statistics of it all.

Each stage is an ordinary function that can be used alone; `Pipeline` is their order. Between them
stand `build_index` and `match` of `boxmatch.spark`.
"""

from __future__ import annotations

from boxmatch.spark.pipeline.clean import (
    Cleaned,
    clean,
    clean_subscriptions,
    derive,
    extend_schema,
)
from boxmatch.spark.pipeline.config import PipelineConfig
from boxmatch.spark.pipeline.notify import notifications
from boxmatch.spark.pipeline.read import read
from boxmatch.spark.pipeline.run import Pipeline, PipelineResult
from boxmatch.spark.pipeline.sample import write_sample
from boxmatch.spark.pipeline.selectivity import Selectivities, measure_selectivities
from boxmatch.spark.pipeline.stages import StageRecord
from boxmatch.spark.pipeline.statistics import (
    dead_subscriptions,
    latency,
    matches_per_event,
    matches_per_subscription,
    too_broad_subscriptions,
)

__all__ = [
    "Cleaned",
    "Pipeline",
    "PipelineConfig",
    "PipelineResult",
    "Selectivities",
    "StageRecord",
    "clean",
    "clean_subscriptions",
    "dead_subscriptions",
    "derive",
    "extend_schema",
    "latency",
    "matches_per_event",
    "matches_per_subscription",
    "measure_selectivities",
    "notifications",
    "read",
    "too_broad_subscriptions",
    "write_sample",
]
