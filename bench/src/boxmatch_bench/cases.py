"""One interface for all workloads: how to load them into a matcher and its competitors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int32Array
from boxmatch.workloads import (
    DialectWorkload,
    EqualityWorkload,
    ExpressionWorkload,
    ListWorkload,
    RangeWorkload,
    TextWorkload,
)
from boxmatch.workloads.expressions import EXPRESSIONS, city_name

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.engine.matcher import Matcher

Workload = (
    RangeWorkload
    | EqualityWorkload
    | ExpressionWorkload
    | TextWorkload
    | ListWorkload
    | DialectWorkload
)
Load = Callable[["Matcher"], object]
Dicts = Callable[[int, int], list[Any]]
"""Single events: dicts, or texts."""
Filters = Callable[[int, int], Sequence[str | dict[str, Any]]]

_NONE = np.iinfo(np.int32).min
_ANY = np.iinfo(np.int32).max
_DENSE_ATTRIBUTES = 40  # beyond, n × d arrays of bounds are mostly holes


_CHUNK = 100_000  # filters that exist at a time


class UnavailableError(Exception):
    """Why a competitor is skipped: not installed, too little memory, or it cannot do this."""


class Columns(NamedTuple):
    """Subscriptions as contiguous columns, one pair of bounds per attribute.

    An absent value is the smallest int32, and so is the low bound of "no predicate".
    """

    low: list[npt.NDArray[np.signedinteger]]
    high: list[npt.NDArray[np.signedinteger]]


class _InSql:
    """What has filters of Boxmatch."""

    dialect: str | None = None


class RangeCase(_InSql):
    """Ranges: dense bounds where they are small enough, compressed boxes otherwise."""

    def __init__(self, workload: RangeWorkload) -> None:
        if workload.domain > _ANY - 1:
            raise ValueError(f"benchmarks take domains up to {_ANY - 1:,}")
        self._workload = workload
        self.schema = workload.schema
        self.filters: Filters = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        """Make subscriptions `start:stop`; what is returned hands them over, and is timed."""
        ids = np.arange(start, stop, dtype=np.int64)
        if self._workload.attributes > _DENSE_ATTRIBUTES:
            boxes = self._workload.boxes(start, stop)
            return lambda matcher: matcher._subscribe_compressed(ids, boxes)
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


class EqualityCase(_InSql):
    """String equalities; NumPy gets codes instead of strings, DuckDB joins on the strings."""

    def __init__(self, workload: EqualityWorkload) -> None:
        self._workload = workload
        self.schema = workload.schema
        self.filters: Filters = workload.filters
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


class _NoColumns(_InSql):
    """What NumPy has no short version of; DuckDB evaluates the same conditions."""

    def columns(self) -> Columns:
        raise UnavailableError("these subscriptions are no columns of bounds")

    def points(self, start: int, stop: int) -> Int32Array:
        raise UnavailableError("these events are no columns of numbers")


class ExpressionCase(_NoColumns):
    """Ranges, and expressions, which are compiled from filters in dict form."""

    def __init__(self, workload: ExpressionWorkload) -> None:
        self._workload = workload
        self._ranges = RangeCase(workload.ranges)
        self.schema = workload.schema
        self.filters: Filters = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        workload = self._workload
        boxes = workload.boxes(start, stop)
        numbers, _ = workload.expressions(start, stop)
        plain = np.flatnonzero(numbers < 0)
        some = np.flatnonzero(numbers >= 0)
        boxes = boxes.take(plain)

        def hand_over(matcher: Matcher) -> None:
            """Filters are made on the way: all at once they would take more than the index."""
            if len(plain):
                matcher._subscribe_compressed(start + plain, boxes)
            for first in range(0, len(some), _CHUNK):
                rows = (start + some[first : first + _CHUNK]).tolist()
                filters = workload.filters(rows[0], rows[-1] + 1)
                records = [{"id": row, "filter": filters[row - rows[0]]} for row in rows]
                matcher.subscribe_many(records)

        return hand_over

    def dense_cells(self) -> int:
        return self._ranges.dense_cells()

    def join(self) -> tuple[pa.Table, str]:
        import pyarrow as pa

        table, ranges = self._ranges.join()
        workload = self._workload
        numbers, constants = workload.expressions(0, workload.subscriptions)
        cities = [city_name(one) for one in np.where(numbers == _CITY, constants, 0).tolist()]
        more: dict[str, Any] = {"number": numbers, "constant": constants, "text": cities}
        for name, column in more.items():
            table = table.append_column(name, pa.array(column))
        cases = " ".join(
            f"WHEN {number} THEN {one.expression} {one.operator} "
            + ("" if not one.operator else "s.text" if number == _CITY else "s.constant")
            for number, one in enumerate(EXPRESSIONS)
        )
        return table, f"{ranges} AND (s.number < 0 OR CASE s.number {cases} END)"

    def join_events(self, start: int, stop: int) -> pa.Table:
        import pyarrow as pa

        table = self._ranges.join_events(start, stop)
        events = self._workload.events(start, stop)
        for name, column in zip(events.column_names, events.columns, strict=True):
            # Without a zone: DuckDB would take the machine's.
            local = column.cast(pa.timestamp("us")) if name == "moment" else column
            table = table.append_column(name, local)
        return table


_CITY = next(number for number, one in enumerate(EXPRESSIONS) if one.operator == "=")


class TextCase(_NoColumns):
    """Words and regular expressions in titles, compiled from filters as text."""

    def __init__(self, workload: TextWorkload) -> None:
        self._workload = workload
        self.schema = workload.schema
        self.filters: Filters = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        import pyarrow as pa

        table = pa.table({"id": range(start, stop), "filter": self._workload.filters(start, stop)})
        return lambda matcher: matcher.subscribe_many(table)

    def dense_cells(self) -> int:
        return 2 * self._workload.subscriptions

    def join(self) -> tuple[pa.Table, str]:
        import pyarrow as pa

        workload = self._workload
        table = {
            "id": range(workload.subscriptions),
            "wanted": workload.subscription_categories(),
            "pattern": workload.patterns(),
        }
        condition = (
            "e.title ILIKE '%' || s.pattern || '%'"
            if workload.pattern == "word"
            else "regexp_matches(e.title, s.pattern)"
        )
        if workload.categories:
            condition = f"e.category = s.wanted AND {condition}"
        return pa.table(table), condition

    def join_events(self, start: int, stop: int) -> pa.Table:
        import pyarrow as pa

        events = self._workload.events(start, stop)
        return events.append_column("event", pa.array(np.arange(start, stop)))


class ListCase(_NoColumns):
    """Ranges on attributes of which events may have several values."""

    def __init__(self, workload: ListWorkload) -> None:
        self._workload = workload
        self._ranges = RangeCase(workload.ranges)
        self.schema = workload.schema
        self.filters: Filters = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.event_dicts

    def load(self, start: int, stop: int) -> Load:
        ids = np.arange(start, stop, dtype=np.int64)
        boxes = self._workload.boxes(start, stop)
        return lambda matcher: matcher._subscribe_compressed(ids, boxes)

    def dense_cells(self) -> int:
        return self._ranges.dense_cells()

    def join(self) -> tuple[pa.Table, str]:
        table, _ = self._ranges.join()
        workload = self._workload
        tests = [
            f"e.v{i} BETWEEN s.low{i} AND s.high{i}"
            for i in range(workload.lists, workload.attributes)
        ]
        for i in range(workload.lists):
            each = range(workload.values)
            inside = " OR ".join(f"e.v{i}_{j} BETWEEN s.low{i} AND s.high{i}" for j in each)
            tests.append(f"({inside})")
        return table, " AND ".join(tests)

    def join_events(self, start: int, stop: int) -> pa.Table:
        import pyarrow as pa

        table = self._ranges.join_events(start, stop)
        _, lists = self._workload.points(start, stop)
        for i in range(self._workload.lists):
            for j in range(self._workload.values):
                table = table.append_column(f"v{i}_{j}", pa.array(lists[:, i, j]))
        return table


class DialectCase(_NoColumns):
    """Event patterns, and events without a schema, which are JSON texts."""

    dialect = "eventbridge"
    schema = None

    def __init__(self, workload: DialectWorkload) -> None:
        self._workload = workload
        self.filters: Filters = workload.filters
        self.events = workload.events
        self.event_dicts: Dicts = workload.events

    def load(self, start: int, stop: int) -> Load:
        import pyarrow as pa

        table = pa.table({"id": range(start, stop), "filter": self._workload.filters(start, stop)})
        return lambda matcher: matcher.subscribe_many(table, dialect=self.dialect)

    def dense_cells(self) -> int:
        return 0

    def join(self) -> tuple[pa.Table, str]:
        raise UnavailableError("event patterns are no condition of SQL")

    def join_events(self, start: int, stop: int) -> pa.Table:
        raise UnavailableError("these events are no table")


Case = RangeCase | EqualityCase | ExpressionCase | TextCase | ListCase | DialectCase
"""A workload as the benchmark uses it. Ids are row numbers."""


def make_case(workload: Workload) -> Case:
    """The case for a workload."""
    match workload:
        case EqualityWorkload():
            return EqualityCase(workload)
        case ExpressionWorkload():
            return ExpressionCase(workload)
        case TextWorkload():
            return TextCase(workload)
        case ListWorkload():
            return ListCase(workload)
        case DialectWorkload():
            return DialectCase(workload)
        case RangeWorkload():
            return RangeCase(workload)
