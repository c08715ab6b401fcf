"""Seeded generators of subscriptions and events, independent of chunking."""

from __future__ import annotations

from boxmatch.workloads.equality import EqualityWorkload
from boxmatch.workloads.market import MarketWorkload
from boxmatch.workloads.ranges import RangeWorkload

__all__ = ["EqualityWorkload", "MarketWorkload", "RangeWorkload"]
