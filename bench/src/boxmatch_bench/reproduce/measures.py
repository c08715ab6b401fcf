"""How an index is measured at one setting: built, asked in batches and event by event, checked."""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.engine.memory import release_free_memory
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import BoolArray
from boxmatch_bench.measure import MismatchError
from boxmatch_bench.reproduce.experiment import NUMPY, Extra, Series
from boxmatch_bench.reproduce.setting import Setting, compare, split
from boxmatch_bench.reproduce.skipping import skipped_attributes, skipping_figures
from boxmatch_bench.reproduce.subject import Subject
from boxmatch_bench.reproduce.timing import Effort, best_time, spread
from boxmatch_bench.reproduce.updates import engine_updates, native_updates

Int64Array = npt.NDArray[np.int64]
Stage = Callable[[str], None]
Figures = dict[str, Any]

_WARM_BOXES = 500
_WARM_EVENTS = 300  # enough for every way that an index answers a batch
_LISTED = 20_000_000  # most matches to list in one call: memory, not time, is the limit
_BINS_PER_DOUBLING = 4


def measure(
    series: Series,
    setting: Setting,
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
        _compile(series, setting, skipped, extras)
        stage("building")
        subject = Subject(series, setting.boxes.dimensions, skipped)
        began = perf_counter()
        subject.build(setting.boxes)
        figures: Figures = {"build_seconds": perf_counter() - began}
    except IndexTooLargeError as reason:
        return {"refused": str(reason)}
    figures["parameters"] = dict(subject.index.chosen)
    parts = subject.index.nbytes
    figures["memory"] = {"parts": parts, "total": sum(parts.values())}
    stage("checking")
    figures["checked_events"] = check(subject, setting)
    if series.index == NUMPY.index:
        stage("event by event")
        figures["single"] = single(subject, setting.points, effort.seconds / 8)[0]
    else:
        figures |= _searches(subject, setting, extras, effort, stage)
        if not series.exact:
            stage("false positives")
            figures["errors"] = skipping_figures(subject, setting, count="errors" in extras)
        if "marks" in extras and series.index == "hem":
            stage("marking")
            figures["marks"] = marks(subject, setting, effort.seconds / 4)
        if "updates" in extras:
            stage("updating")
            figures |= _updates(subject, setting, effort)
    del subject
    gc.collect()
    release_free_memory()
    return figures


def _searches(
    subject: Subject, setting: Setting, extras: frozenset[Extra], effort: Effort, stage: Stage
) -> Figures:
    points = setting.points
    stage("counting in batches")
    counting = best_time(lambda n: subject.count(points[:n]), len(points), 0.2 * effort.seconds)
    if subject.series.exact and (subject.series.index == "tile" or counting.events == len(points)):
        setting.learn(subject.count(points))
    per_event = float(setting.counts.mean())
    stage("matching in batches")
    most = max(1, min(len(points), int(_LISTED / max(per_event, 1.0))))
    matching = best_time(lambda n: subject.match(points[:n]), most, 0.35 * effort.seconds)
    stage("event by event")
    one_by_one, taken, found = single(subject, points, 0.35 * effort.seconds)
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
    if "profile" in extras:
        figures["profile"] = by_matches(taken, found)
    return figures


def _compile(
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


def check(subject: Subject, setting: Setting) -> int:
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


def single(
    subject: Subject, points: Int64Array, seconds: float
) -> tuple[Figures, Int64Array, Int64Array]:
    """Times of events matched one after the other: a summary, nanoseconds, matches."""
    alone = [points[i : i + 1] for i in range(len(points))]
    deadline = perf_counter() + seconds
    for point in alone[:5]:
        subject.match_one(point)
        if perf_counter() > deadline - seconds / 2:
            break
    taken, found = [], []
    for point in alone:
        began = perf_counter_ns()
        rows = subject.match_one(point)
        taken.append(perf_counter_ns() - began)
        found.append(len(rows))
        if perf_counter() > deadline and len(taken) >= 3:
            break
    nanoseconds = np.array(taken, np.int64)
    summary: Figures = {**spread(nanoseconds), "events": len(taken)}
    return summary, nanoseconds, np.array(found, np.int64)


def by_matches(nanoseconds: Int64Array, matches: Int64Array) -> list[dict[str, float]]:
    """Mean time of the events with about as many matches, four bins to each doubling."""
    bins = np.floor(_BINS_PER_DOUBLING * np.log2(np.maximum(matches, 1))).astype(np.int64)
    bins[matches == 0] = -1
    profile = []
    for number in np.unique(bins):
        mine = bins == number
        profile.append(
            {
                "matches": float(matches[mine].mean()),
                "events": int(mine.sum()),
                "microseconds": float(nanoseconds[mine].mean()) / 1000,
            }
        )
    return profile


def marks(subject: Subject, setting: Setting, seconds: float) -> Figures:
    """How long HEM marks boxes one by one, how many, and how many there are without its cache."""
    from boxmatch.indexes.hem import mark_only

    points = setting.points
    timing = best_time(lambda n: mark_only(subject.index, points[:n]), len(points), seconds)
    # Of all events, as what they are compared with: a sample may be far from the mean.
    per_event = mark_only(subject.index, points) / len(points)
    return {
        "time": timing.microseconds,
        "events": timing.events,
        "per_event": per_event,
        "without": setting.unsatisfied,
        "avoided": 1 - per_event / setting.unsatisfied if setting.unsatisfied else None,
    }


def _updates(subject: Subject, setting: Setting, effort: Effort) -> Figures:
    try:
        if subject.index.capabilities.updates:
            updates = native_updates(subject, setting, effort.seconds / 4)
        else:
            updates = engine_updates(subject.series, setting, effort.seconds / 4)
    except IndexTooLargeError as reason:  # room to grow may be too much where building was not
        return {"updates_refused": str(reason)}
    return updates._asdict()
