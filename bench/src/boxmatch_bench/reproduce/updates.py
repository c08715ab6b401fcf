"""Insertion and deletion: by the index itself, or by the engine where an index has neither."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch_bench.answers import by_event, compare, split
from boxmatch_bench.reproduce.experiment import Series
from boxmatch_bench.reproduce.setting import ARRIVALS, Setting, answers_of_scan
from boxmatch_bench.reproduce.subject import Subject

TOGETHER = 1_000
"""Subscriptions in one call, where many are added or removed together."""


class Updates(NamedTuple):
    """Microseconds per subscription, many at a time and one at a time, and how many of each.

    `first` is the very first insertion, for which an index makes room; the others come after it.
    """

    insertion: dict[str, Any]
    deletion: dict[str, Any]


class Store(Protocol):
    """Takes and gives up subscriptions; numbers them in the order of arrival."""

    through: str

    def add(self, first: int, last: int) -> Callable[[], object]:
        """Prepare arrivals `first:last`; what is returned adds them, and is timed."""

    def remove(self, rows: Int64Array) -> Callable[[], object]:
        """Prepare the removal of rows; what is returned removes them, and is timed."""

    def answers(self, events: int) -> list[Int64Array]:
        """Rows that match each of the first events."""


def native_updates(subject: Subject, setting: Setting, seconds: float) -> Updates:
    """Through `Index.add` and `Index.remove`."""
    store = _IndexStore(subject, setting)
    return _measure(store, setting, seconds, exact=subject.series.exact)


def engine_updates(series: Series, setting: Setting, seconds: float) -> Updates:
    """Through `Matcher.subscribe` and `unsubscribe`, for an index that is built once."""
    return _measure(_MatcherStore(series, setting), setting, seconds)


class _IndexStore:
    through = "index"

    def __init__(self, subject: Subject, setting: Setting) -> None:
        self._subject, self._setting = subject, setting

    def add(self, first: int, last: int) -> Callable[[], object]:
        boxes = self._setting.arrivals.take(np.arange(first, last))
        return lambda: self._subject.index.add(boxes)

    def remove(self, rows: Int64Array) -> Callable[[], object]:
        return lambda: self._subject.index.remove(rows)

    def answers(self, events: int) -> list[Int64Array]:
        return split(*self._subject.match(self._setting.points[:events]))


class _MatcherStore:
    through = "matcher"

    def __init__(self, series: Series, setting: Setting) -> None:
        workload: Any = setting.workload  # of ranges: those have a schema and filters
        self._setting, self._workload = setting, workload
        self._count = setting.boxes.count
        self._filters = self._workload.filters(self._count, self._count + TOGETHER)
        self._matcher = Matcher(self._workload.schema, index=series.index, **series.parameters)
        self._matcher.warmup()
        self._matcher.subscribe_compressed(np.arange(self._count), setting.boxes)
        self._matcher.compact()

    def add(self, first: int, last: int) -> Callable[[], object]:
        number = self._count + first
        if last - first == 1:
            wanted = self._filters[first]
            return lambda: self._matcher.subscribe(number, wanted)
        ids = np.arange(number, number + last - first)
        boxes = self._setting.arrivals.take(np.arange(first, last))
        return lambda: self._matcher.subscribe_compressed(ids, boxes)

    def remove(self, rows: Int64Array) -> Callable[[], object]:
        ids = rows.tolist()

        def run() -> None:
            for subscription in ids:
                self._matcher.unsubscribe(subscription)

        return run

    def answers(self, events: int) -> list[Int64Array]:
        batch = self._workload.events(0, events)
        return by_event(self._matcher.match_batch(batch, threads=1), events)


def _measure(store: Store, setting: Setting, seconds: float, *, exact: bool = True) -> Updates:
    """Add some, one by one and many together, then remove old ones in the same way."""
    arrived = 0

    def add(rows: int) -> float:
        nonlocal arrived
        run = store.add(arrived, arrived + rows)
        arrived += rows
        return _took(run)

    # The first one onto a built index makes room for many, once: it is a figure of its own, and
    # would be most of the mean of the others.
    first = add(1)
    one, ones = _repeat(lambda: add(1), TOGETHER - 1, seconds / 2)
    many, batches = _repeat(lambda: add(TOGETHER), ARRIVALS // TOGETHER - 1, seconds / 2)
    insertion = {
        "first": 1e6 * first,
        "one": 1e6 * one,
        "ones": ones,
        "many": 1e6 * many / TOGETHER,
        "batches": batches,
        "through": store.through,
    }
    old = np.random.default_rng(1).permutation(setting.boxes.count)[: 2 * TOGETHER]
    removed = 0

    def remove(rows: int) -> float:
        nonlocal removed
        run = store.remove(old[removed : removed + rows].astype(np.int64))
        removed += rows
        return _took(run)

    gone, singles = _repeat(lambda: remove(1), len(old) // 2, seconds / 2)
    # An index that searches for what it removes may need minutes for a thousand at once.
    together = int(np.clip(4 * seconds / max(gone, 1e-9), 10, len(old) // 2))
    deletion = {
        "one": 1e6 * gone,
        "ones": singles,
        "many": 1e6 * remove(together) / together,
        "together": together,
        "through": store.through,
    }
    _check(store, setting, arrived, old[:removed], exact)
    return Updates(insertion, deletion)


def _repeat(step: Callable[[], float], most: int, seconds: float) -> tuple[float, int]:
    """Mean seconds of a step, and how many were made."""
    spent, steps = 0.0, 0
    while steps < most and (spent < seconds or steps < 3):
        spent += step()
        steps += 1
    return spent / steps, steps


def _took(run: Callable[[], object]) -> float:
    began = perf_counter()
    run()
    return perf_counter() - began


def _check(store: Store, setting: Setting, arrived: int, removed: Int64Array, exact: bool) -> None:
    """The old answers, with what was added, without what was removed."""
    events = len(setting.truth)
    arrivals = setting.arrivals.take(np.arange(arrived))
    added = answers_of_scan(arrivals, setting.points[:events])
    wanted = [
        np.setdiff1d(np.concatenate([old, setting.boxes.count + new]), removed)
        for old, new in zip(setting.truth, added, strict=True)
    ]
    compare("after updates, the index differs", store.answers(events), wanted, exact=exact)
