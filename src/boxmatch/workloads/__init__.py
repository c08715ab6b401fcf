"""Seeded generators of subscriptions and events, independent of chunking."""

from __future__ import annotations

from boxmatch.workloads.boolean import BooleanWorkload
from boxmatch.workloads.dialects import DialectWorkload
from boxmatch.workloads.equality import EqualityWorkload
from boxmatch.workloads.event_file import write_sample_events
from boxmatch.workloads.expressions import ExpressionWorkload
from boxmatch.workloads.lists import ListWorkload
from boxmatch.workloads.market import MarketWorkload
from boxmatch.workloads.ranges import RangeWorkload
from boxmatch.workloads.regions import RegionWorkload
from boxmatch.workloads.texts import TextWorkload

__all__ = [
    "BooleanWorkload",
    "DialectWorkload",
    "EqualityWorkload",
    "ExpressionWorkload",
    "ListWorkload",
    "MarketWorkload",
    "RangeWorkload",
    "RegionWorkload",
    "TextWorkload",
    "write_sample_events",
]
