"""Alternatives to Boxmatch, on the same subscriptions and events, on one core.

Each competitor is prepared outside the clock and then answers a number of events with the full
lists of matching ids, as the matcher must.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch_bench.answers import by_event
from boxmatch_bench.cases import Case, Columns, UnavailableError

Answer = Callable[[int, int], list[Int64Array]]
"""Matching rows, ascending, for each of the events `start:stop`."""

_LARGEST = 2 * 1024**3


def scan(case: Case, subscriptions: int, events: int) -> Answer:
    """The library's own brute force: compiled, compressed, one subscription after the other."""
    from boxmatch.engine.matcher import Matcher

    matcher = Matcher(case.schema, index="scan")
    case.load(0, subscriptions)(matcher)
    batch = case.events(0, events)
    matcher.match_batch(batch[:1], threads=1)

    def answer(start: int, stop: int) -> list[Int64Array]:
        return by_event(matcher.match_batch(batch[start:stop], threads=1), stop - start)

    return answer


def numpy_int64(case: Case, subscriptions: int, events: int) -> Answer:
    """Brute force in NumPy as one writes it: whole columns of int64, attribute by attribute."""
    columns, points = _columns(case, np.int64), case.points(0, events).astype(np.int64)

    def one(point: npt.NDArray[np.int64]) -> Int64Array:
        mask = np.ones(subscriptions, bool)
        for value, low, high in zip(point, *columns, strict=True):
            mask &= (low <= value) & (value <= high)
        return np.flatnonzero(mask)

    return lambda start, stop: [one(point) for point in points[start:stop]]


def numpy_int32(case: Case, subscriptions: int, events: int) -> Answer:
    """The strongest short version we know: int32, no temporaries, stop once nothing is left.

    Keeping only the surviving rows after each attribute was tried: gathering costs more than it
    saves.
    """
    columns, points = _columns(case, np.int32), case.points(0, events)
    mask, other = np.empty(subscriptions, bool), np.empty(subscriptions, bool)

    def one(point: npt.NDArray[np.int32]) -> Int64Array:
        mask.fill(True)
        for value, low, high in zip(point, *columns, strict=True):
            np.less_equal(low, value, out=other)
            np.logical_and(mask, other, out=mask)
            np.greater_equal(high, value, out=other)
            np.logical_and(mask, other, out=mask)
            if not mask.any():
                break
        return np.flatnonzero(mask)

    return lambda start, stop: [one(point) for point in points[start:stop]]


def duckdb_join(case: Case, subscriptions: int, events: int) -> Answer:
    """A join in DuckDB on one thread, the subscriptions loaded as a table of its own."""
    try:
        import duckdb
    except ImportError:
        raise UnavailableError("duckdb is not installed") from None
    _check_size(case)
    table, condition = case.join()
    connection = duckdb.connect(config={"threads": 1})
    connection.register("arriving", table)
    connection.execute("CREATE TABLE subscriptions AS FROM arriving")
    connection.unregister("arriving")
    batch = case.join_events(0, events)
    query = f"SELECT e.event, s.id FROM events e JOIN subscriptions s ON {condition}"

    def answer(start: int, stop: int) -> list[Int64Array]:
        connection.register("events", batch.slice(start, stop - start))
        found = connection.execute(query).fetchnumpy()
        order = np.lexsort((found["id"], found["event"]))
        ends = np.searchsorted(found["event"][order], np.arange(start + 1, stop))
        return np.split(found["id"][order], ends)

    return answer


COMPETITORS: Final[Mapping[str, Callable[[Case, int, int], Answer]]] = {
    "scan": scan,
    "numpy": numpy_int64,
    "numpy-int32": numpy_int32,
    "duckdb": duckdb_join,
}


def _columns(case: Case, kind: type[np.signedinteger]) -> Columns:
    _check_size(case, np.dtype(kind).itemsize)
    columns = case.columns()
    return Columns(*([column.astype(kind, copy=False) for column in side] for side in columns))


def _check_size(case: Case, item: int = 4) -> None:
    size = item * case.dense_cells()
    if size > _LARGEST:
        raise UnavailableError(f"needs {size / 1e9:.1f} GB")
