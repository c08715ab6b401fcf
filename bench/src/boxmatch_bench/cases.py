"""One interface for all workloads: how to load them into a matcher and its competitors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int32Array
from boxmatch.workloads import EqualityWorkload, RangeWorkload

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.engine.matcher import Matcher

Workload = RangeWorkload | EqualityWorkload
Load = Callable[["Matcher"], object]
Dicts = Callable[[int, int], list[dict[str, Any]]]

_NONE = np.iinfo(np.int32).min
_ANY = np.iinfo(np.int32).max
_DENSE_ATTRIBUTES = 40  # beyond, n × d arrays of bounds are mostly holes


class Columns(NamedTuple):
    """Subscriptions as contiguous columns, one pair of bounds per attribute.

    An absent value is the smallest int32, and so is the low bound of "no predicate".
    """

    low: list[npt.NDArray[np.signedinteger]]
    high: list[npt.NDArray[np.signedinteger]]


class RangeCase:
    """Ranges: dense bounds where they are small enough, compressed boxes otherwise."""

    def __init__(self, workload: RangeWorkload) -> None:
        if workload.domain > _ANY - 1:
            raise ValueError(f"benchmarks take domains up to {_ANY - 1:,}")
        self._workload = workload
        self.schema = workload.schema
        self.filters: Dicts = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        """Make subscriptions `start:stop`; what is returned hands them over, and is timed."""
        ids = np.arange(start, stop, dtype=np.int64)
        if self._workload.attributes > _DENSE_ATTRIBUTES:
            boxes = self._workload.boxes(start, stop)
            return lambda matcher: matcher.subscribe_compressed(ids, boxes)
        lows, highs = self._workload.bounds(start, stop)
        return lambda matcher: matcher.subscribe_boxes(ids, lows, highs)

    def dense_cells(self) -> int:
        """How many bounds `columns()` holds."""
        return 2 * self._workload.subscriptions * self._workload.attributes

    def columns(self) -> Columns:
        workload = self._workload
        low = [np.full(workload.subscriptions, _NONE, np.int32) for _ in range(workload.attributes)]
        high = [np.full(workload.subscriptions, _ANY, np.int32) for _ in range(workload.attributes)]
        boxes = workload.boxes()
        row = np.repeat(np.arange(boxes.count), workload.predicates)
        for attribute in range(workload.attributes):
            here = np.flatnonzero(boxes.attribute == attribute)
            low[attribute][row[here]] = boxes.low[here]
            high[attribute][row[here]] = boxes.high[here]
        return Columns(low, high)

    def points(self, start: int, stop: int) -> Int32Array:
        """Events as numbers, in the order of `columns()`."""
        events = self._workload.events(start, stop)
        return np.where(np.isnan(events), _NONE, events).astype(np.int32)

    def join(self) -> tuple[pa.Table, str]:
        """Subscriptions as a table `s`, and the condition that joins it with events `e`."""
        import pyarrow as pa

        columns = self.columns()
        table: dict[str, npt.NDArray[np.signedinteger]] = {
            "id": np.arange(self._workload.subscriptions)
        }
        for attribute, (low, high) in enumerate(zip(*columns, strict=True)):
            table |= {f"low{attribute}": low, f"high{attribute}": high}
        condition = " AND ".join(
            f"e.v{i} BETWEEN s.low{i} AND s.high{i}" for i in range(self._workload.attributes)
        )
        return pa.table(table), condition

    def join_events(self, start: int, stop: int) -> pa.Table:
        import pyarrow as pa

        points = self.points(start, stop)
        values = {f"v{i}": column for i, column in enumerate(np.ascontiguousarray(points.T))}
        return pa.table({"event": np.arange(start, stop), **values})


class EqualityCase:
    """String equalities; NumPy gets codes instead of strings, DuckDB joins on the strings."""

    def __init__(self, workload: EqualityWorkload) -> None:
        self._workload = workload
        self.schema = workload.schema
        self.filters: Dicts = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        table = self._workload.table(start, stop)
        return lambda matcher: matcher.subscribe_many(table)

    def dense_cells(self) -> int:
        return 2 * self._workload.subscriptions * len(self._workload.sizes)

    def columns(self) -> Columns:
        codes = list(self._workload.subscription_codes().values())
        return Columns(codes, codes)

    def points(self, start: int, stop: int) -> Int32Array:
        codes = self._workload.event_codes(start, stop)
        return np.stack([codes[name] for name in self._workload.sizes], axis=1)

    def join(self) -> tuple[pa.Table, str]:
        condition = " AND ".join(f"s.{name} = e.{name}" for name in self._workload.sizes)
        return self._workload.table(), condition

    def join_events(self, start: int, stop: int) -> pa.Table:
        import pyarrow as pa

        return self._workload.events(start, stop).append_column(
            "event", pa.array(np.arange(start, stop))
        )


Case = RangeCase | EqualityCase
"""A workload as the benchmark uses it. Ids are row numbers."""


def make_case(workload: Workload) -> Case:
    """The case for a workload."""
    if isinstance(workload, EqualityWorkload):
        return EqualityCase(workload)
    return RangeCase(workload)
