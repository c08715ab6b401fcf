"""How an index by itself is measured: built, asked, updated, all checked.

Times are those that the thread worked: what other programs do meanwhile does not count.
What an index cannot do, such as insertion and deletion, the engine does in its place.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import Any, Final

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.matcher import Matcher
from boxmatch.engine.memory import release_free_memory
from boxmatch.errors import IndexTooLargeError
from boxmatch.kernels.threads import cores
from boxmatch.workloads import BooleanWorkload
from boxmatch_bench.answers import MismatchError, by_event, compare, split
from boxmatch_bench.reproduce.experiment import NUMPY, Extra, Series
from boxmatch_bench.reproduce.subject import (
    ARRIVALS,
    Setting,
    Subject,
    answers_of_scan,
    skipped_attributes,
    skipped_by,
    skipping_figures,
)
from boxmatch_bench.timing import (
    LISTED,
    Effort,
    Figures,
    Stage,
    best_time,
    by_matches,
    spread,
    time_each,
    took,
)

_WARM_BOXES: Final = 500
_WARM_EVENTS: Final = 300
"""Enough for every way that an index answers a batch."""
_ROUNDS: Final = 20
"""At the most; what comes in between is not in the best of them."""
_TOGETHER: Final = 1_000
"""Subscriptions in one call, where many are added or removed together."""

Call = Callable[[], object]


def measure_index(
    setting: Setting,
    series: Series,
    extras: frozenset[Extra],
    effort: Effort,
    stage: Stage = lambda _: None,
) -> Figures:
    """All figures of one index at one setting. Raises `MismatchError` when an answer is wrong.

    An index that refuses for memory gives the reason under `refused`.
    """
    skipped = skipped_attributes(series, setting)
    try:
        stage("compiling")
        _compile_index(series, setting, skipped, extras)
        stage("building")
        subject = Subject(series, setting.boxes.dimensions, skipped)
        # With more cores than one, most of the work is other threads'.
        clock = thread_time_ns if cores() == 1 else perf_counter_ns
        figures: Figures = {"build_seconds": took(subject.build, setting.boxes, clock=clock)}
    except IndexTooLargeError as reason:
        return {"refused": str(reason)}
    figures["parameters"] = dict(subject.index.chosen)
    held = getattr(subject.index, "held", None)
    if held is not None:
        figures["held"] = held
    parts = subject.index.nbytes
    figures["memory"] = {"parts": parts, "total": sum(parts.values())}
    stage("checking")
    figures["checked_events"] = _check(subject, setting)
    if series.index == NUMPY.index:
        stage("event by event")
        figures["single"] = _single(subject, setting.points, effort.seconds / 8)[0]
    else:
        figures |= _searches(subject, setting, extras, effort, stage)
        if not series.exact:
            stage("false positives")
            figures["errors"] = skipping_figures(subject, setting, count="errors" in extras)
            stage("what skipping saves")
            figures["errors"]["gain"] = saved(subject, setting.points, effort.seconds / 2)
        if "marks" in extras and series.index == "hem":
            stage("marking")
            figures["marks"] = _marks(subject, setting, effort.seconds / 4)
        if "parts" in extras and series.index == "rein":
            stage("parts")
            figures["parts"] = parts_of_rein(subject, setting, effort.seconds / 2)
        if "updates" in extras:
            stage("updating")
            try:
                figures |= measure_updates(subject, setting, effort.seconds / 4)
            except IndexTooLargeError as reason:  # room to grow may be more than building took
                figures["updates_refused"] = str(reason)
    del subject
    gc.collect()
    release_free_memory()
    return figures


def _searches(
    subject: Subject, setting: Setting, extras: frozenset[Extra], effort: Effort, stage: Stage
) -> Figures:
    points = setting.points
    stage("counting in batches")
    counting = best_time(
        lambda n: subject.count(points[:n]), len(points), 0.2 * effort.seconds, thread_time_ns
    )
    if subject.series.exact and (subject.series.index == "tile" or counting.events == len(points)):
        setting.learn(subject.count(points))
    per_event = float(setting.counts.mean())
    stage("matching in batches")
    most = max(1, min(len(points), int(LISTED / max(per_event, 1.0))))
    matching = best_time(
        lambda n: subject.match(points[:n]), most, 0.35 * effort.seconds, thread_time_ns
    )
    stage("event by event")
    one_by_one, taken, found = _single(subject, points, 0.35 * effort.seconds)
    figures: Figures = {
        "batch": {
            "match": matching.microseconds,
            "match_events": matching.events,
            "count": counting.microseconds,
            "count_events": counting.events,
        },
        "single": one_by_one,
        "matches": {"per_event": per_event, "events": len(points)},
    }
    if isinstance(setting.workload, BooleanWorkload):
        figures["ones"] = float(np.count_nonzero(points, axis=1).mean())
    if "profile" in extras:
        figures["profile"] = by_matches(taken, found)
    return figures


def _compile_index(
    series: Series, setting: Setting, skipped: BoolArray | None, extras: frozenset[Extra]
) -> None:
    """Run every path once on a few boxes, so that no figure contains compilation."""
    few = setting.boxes.take(np.arange(min(_WARM_BOXES, setting.boxes.count)))
    points = setting.points[:_WARM_EVENTS]
    subject = Subject(series, few.dimensions, skipped)
    subject.build(few)
    if series.index == NUMPY.index:
        return
    subject.match(points)
    subject.count(points)
    subject.match_one(points[:1])
    if "updates" in extras and subject.index.capabilities.updates:
        added = subject.index.add(few.take(np.arange(min(2, few.count))))
        subject.index.remove(added)


def _check(subject: Subject, setting: Setting) -> int:
    """Compare whole answers with brute force; return on how many events."""
    name, points = subject.series.label, setting.points[: len(setting.truth)]
    found = subject.match(points)
    answers = split(*found, subject.order)
    compare(f"{name} differs from scan", answers, setting.truth, exact=subject.series.exact)
    alone = [subject.match_one(points[i : i + 1]) for i in range(len(points))]
    each = split(np.array([len(rows) for rows in alone]), np.concatenate(alone), subject.order)
    compare(f"{name}: single events differ from a batch", each, answers)
    if not np.array_equal(subject.count(points), found.counts):
        raise MismatchError(f"{name}: count differs from match")
    return len(points)


def _single(
    subject: Subject, points: Int64Array, seconds: float
) -> tuple[Figures, Int64Array, Int64Array]:
    """Times of events matched one after the other: a summary, nanoseconds, matches."""
    alone = [points[i : i + 1] for i in range(len(points))]
    nanoseconds, found = time_each(
        subject.match_one, alone, seconds, rounds=_ROUNDS, clock=thread_time_ns
    )
    summary = {
        **spread(nanoseconds),
        "events": len(nanoseconds),
        "max_matches": int(found[np.argmax(nanoseconds)]),
        "min_matches": int(found[np.argmin(nanoseconds)]),
    }
    return summary, nanoseconds, found


def saved(subject: Subject, points: Int64Array, seconds: float) -> float:
    """The share of the time of an event that skipping saves: on one index, by turns."""
    index, skipped, none = subject.index, skipped_by(subject), np.zeros(0, bool)
    best = np.full((2, len(points)), np.inf)
    deadline, first = perf_counter_ns() + 1e9 * seconds, len(points)
    for turn in range(_ROUNDS):
        for event in range(first):
            point = points[event : event + 1]
            for which in (turn % 2, 1 - turn % 2):
                marks = skipped if which else none
                began = thread_time_ns()
                index.match_one(point, skipped=marks)
                best[which, event] = min(best[which, event], thread_time_ns() - began)
            if perf_counter_ns() > deadline and event >= 2:
                if not turn:
                    first = event + 1
                break
        if perf_counter_ns() > deadline:
            break
    exact, skipping = best[:, :first].sum(axis=1)
    return float(1 - skipping / exact)


def _marks(subject: Subject, setting: Setting, seconds: float) -> Figures:
    """How long HEM marks boxes one by one, how many, and how many there are without its cache."""
    from boxmatch.indexes.papers.hem import mark_only

    points = setting.points
    timing = best_time(
        lambda n: mark_only(subject.index, points[:n]), len(points), seconds, thread_time_ns
    )
    # Of all events, as what they are compared with: a sample may be far from the mean.
    per_event = mark_only(subject.index, points) / len(points)
    return {
        "time": timing.microseconds,
        "events": timing.events,
        "per_event": per_event,
        "without": setting.unsatisfied,
        "avoided": 1 - per_event / setting.unsatisfied if setting.unsatisfied else None,
    }


def parts_of_rein(subject: Subject, setting: Setting, seconds: float) -> Figures:
    """What the steps of REIN take, each alone, as shares of matching in batches."""
    from boxmatch_bench.reproduce.published.rein_parts import compare_only, mark_only

    points, index = setting.points, subject.index
    whole, marking, comparing = (
        best_time(
            lambda n, run=run: run(index, points[:n]),  # type: ignore[misc]
            len(points),
            seconds / 3,
            thread_time_ns,
        )
        for run in (lambda index, some: index.match(some), mark_only, compare_only)
    )
    shares = [one.microseconds / whole.microseconds for one in (marking, comparing)]
    return {"mark": shares[0], "compare": shares[1], "rest": 1 - sum(shares)}


class _IndexStore:
    """Takes and gives up subscriptions, numbered in the order of arrival, by the index itself."""

    through = "index"

    def __init__(self, subject: Subject, setting: Setting) -> None:
        self._subject, self._setting = subject, setting

    def add(self, first: int, last: int) -> Call:
        """Prepare arrivals `first:last`; what is returned adds them, and is timed."""
        boxes = self._setting.arrivals.take(np.arange(first, last))
        return lambda: self._subject.index.add(boxes)

    def remove(self, rows: Int64Array) -> Call:
        """Prepare the removal of rows; what is returned removes them, and is timed."""
        return lambda: self._subject.index.remove(rows)

    def answers(self, events: int) -> list[Int64Array]:
        """Rows that match each of the first events."""
        return split(*self._subject.match(self._setting.points[:events]))


class _MatcherStore:
    """The same by `Matcher.subscribe` and `unsubscribe`, for an index that is built once."""

    through = "matcher"

    def __init__(self, series: Series, setting: Setting) -> None:
        workload: Any = setting.workload  # of ranges: those have a schema and filters
        self._setting, self._workload = setting, workload
        self._count = setting.boxes.count
        self._filters = workload.filters(self._count, self._count + _TOGETHER)
        self._matcher = Matcher(workload.schema, index=series.index, **series.parameters)
        self._matcher.warmup()
        self._matcher._subscribe_compressed(np.arange(self._count), setting.boxes)
        self._matcher.compact()

    def add(self, first: int, last: int) -> Call:
        number = self._count + first
        if last - first == 1:
            wanted = self._filters[first]
            return lambda: self._matcher.subscribe(number, wanted)
        ids = np.arange(number, number + last - first)
        boxes = self._setting.arrivals.take(np.arange(first, last))
        return lambda: self._matcher._subscribe_compressed(ids, boxes)

    def remove(self, rows: Int64Array) -> Call:
        ids = rows.tolist()

        def run() -> None:
            for subscription in ids:
                self._matcher.unsubscribe(subscription)

        return run

    def answers(self, events: int) -> list[Int64Array]:
        batch = self._workload.events(0, events)
        return by_event(self._matcher.match_batch(batch, threads=1), events)


def measure_updates(subject: Subject, setting: Setting, seconds: float) -> dict[str, Any]:
    """Add some subscriptions, one by one and many together; then remove old ones in the same way.

    Microseconds per subscription, many at a time and one at a time, and how many of each.
    """
    store = (
        _IndexStore(subject, setting)
        if subject.index.capabilities.updates
        else _MatcherStore(subject.series, setting)
    )
    arrived = removed = 0
    # The engine has threads of its own.
    clock = thread_time_ns if store.through == "index" else perf_counter_ns

    def add(rows: int) -> float:
        nonlocal arrived
        run = store.add(arrived, arrived + rows)
        arrived += rows
        return took(run, clock=clock)

    # The first one onto a built index makes room for many, once: it is a figure of its own, and
    # would be most of the mean of the others.
    first = add(1)
    one, ones = _repeat(lambda: add(1), _TOGETHER - 1, seconds / 2)
    many, batches = _repeat(lambda: add(_TOGETHER), ARRIVALS // _TOGETHER - 1, seconds / 2)
    insertion = {
        "first": 1e6 * first,
        "one": 1e6 * one,
        "ones": ones,
        "many": 1e6 * many / _TOGETHER,
        "batches": batches,
        # As a subscriber sees it: room is made once for all of these.
        "all": 1e6 * (first + one * ones + many * batches) / (1 + ones + _TOGETHER * batches),
        "through": store.through,
    }
    old = np.random.default_rng(1).permutation(setting.boxes.count)[: 2 * _TOGETHER]

    def remove(rows: int) -> float:
        nonlocal removed
        run = store.remove(old[removed : removed + rows].astype(np.int64))
        removed += rows
        return took(run, clock=clock)

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
    wanted = _expected(setting, arrived, old[:removed])
    # The engine is exact whatever the index was told to skip.
    exact = subject.series.exact or store.through == "matcher"
    compare("after updates, the index differs", store.answers(len(wanted)), wanted, exact=exact)
    return {"insertion": insertion, "deletion": deletion}


def _repeat(step: Callable[[], float], most: int, seconds: float) -> tuple[float, int]:
    """Mean seconds of a step, and how many were made."""
    spent, steps = 0.0, 0
    while steps < most and (spent < seconds or steps < 3):
        spent += step()
        steps += 1
    return spent / steps, steps


def _expected(setting: Setting, arrived: int, removed: Int64Array) -> list[Int64Array]:
    """The old answers, with what was added, without what was removed."""
    arrivals = setting.arrivals.take(np.arange(arrived))
    added = answers_of_scan(arrivals, setting.points[: len(setting.truth)])
    return [
        np.setdiff1d(np.concatenate([old, setting.boxes.count + new]), removed)
        for old, new in zip(setting.truth, added, strict=True)
    ]
