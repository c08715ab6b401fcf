"""Boxmatch over Spark DataFrames: in batch and as a stream, on a laptop and on a cluster.

```python
from boxmatch.spark import match

match(events, subscriptions)  # a DataFrame of event_id and subscription_id
```

Names are loaded when first used; pyspark itself is an extra of the package, `boxmatch[spark]`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from boxmatch.spark.broker import register_broker
    from boxmatch.spark.build import build_index
    from boxmatch.spark.changes import follow_changes, update_index
    from boxmatch.spark.cloud_events import cloudevents
    from boxmatch.spark.matching import explain, match
    from boxmatch.spark.metrics import stream_metrics
    from boxmatch.spark.pipeline import Pipeline
    from boxmatch.spark.plans import MatchPlan
    from boxmatch.spark.session import local_session
    from boxmatch.spark.sinks import ParquetSink, SparkSink, TableSink
    from boxmatch.spark.sql import match_function, register
    from boxmatch.spark.streaming import match_stream
    from boxmatch.spark.transitions import transitions
    from boxmatch.spark.versions import IndexVersion, read_version, rejected

__all__ = [
    "IndexVersion",
    "MatchPlan",
    "ParquetSink",
    "Pipeline",
    "SparkSink",
    "TableSink",
    "build_index",
    "cloudevents",
    "explain",
    "follow_changes",
    "local_session",
    "match",
    "match_function",
    "match_stream",
    "read_version",
    "register",
    "register_broker",
    "rejected",
    "stream_metrics",
    "transitions",
    "update_index",
]

_HOMES = {
    "broker": ("register_broker",),
    "build": ("build_index",),
    "changes": ("follow_changes", "update_index"),
    "cloud_events": ("cloudevents",),
    "matching": ("explain", "match"),
    "metrics": ("stream_metrics",),
    "pipeline": ("Pipeline",),
    "plans": ("MatchPlan",),
    "session": ("local_session",),
    "sinks": ("ParquetSink", "SparkSink", "TableSink"),
    "sql": ("match_function", "register"),
    "streaming": ("match_stream",),
    "transitions": ("transitions",),
    "versions": ("IndexVersion", "read_version", "rejected"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = next(home for home, names in _HOMES.items() if name in names)
    value = getattr(import_module(f"boxmatch.spark.{home}"), name)
    globals()[name] = value  # the next use is an ordinary lookup
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
