"""Seeded generators of subscriptions and events, independent of chunking."""

from __future__ import annotations

from boxmatch.workloads.boolean import BooleanWorkload
from boxmatch.workloads.equality import EqualityWorkload
from boxmatch.workloads.event_file import write_sample_events
from boxmatch.workloads.market import MarketWorkload
from boxmatch.workloads.ranges import RangeWorkload
from boxmatch.workloads.regions import RegionWorkload

__all__ = [
    "BooleanWorkload",
    "EqualityWorkload",
    "MarketWorkload",
    "RangeWorkload",
    "RegionWorkload",
    "write_sample_events",
]
