"""How operations on spaces in memory are measured, one by one, and checked."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from time import perf_counter, perf_counter_ns
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.engine.memory import release_free_memory
from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import Transitions
from boxmatch.workloads.regions import UpdateKind
from boxmatch_bench.answers import within
from boxmatch_bench.reproduce.experiment import NUMPY, Extra, Series
from boxmatch_bench.reproduce.regions import Columns, Regions, Step, Walk, check, of_publication
from boxmatch_bench.timing import Effort, Figures, Stage, by_matches, spread

Operation = Callable[[Step], Transitions]

CHECKED = 10
"""Operations of each kind that are compared with brute force before, and as many after the timed
ones."""

_KINDS: tuple[UpdateKind, ...] = ("incremental", "random")
TURNS = 10
"""Kinds of updates are measured by turns, so that what slows the machine down slows both."""
AT_ONCE = 20
"""So many updates follow each other; to make the next one in between cools the caches."""
_WARM = 50
_TOGETHER = 100
"""Updates that are one operation, where many are."""
_BATCHES = 20


class Subject(Protocol):
    """Carries out operations."""

    def add(self, step: Step) -> Transitions: ...
    def update(self, step: Step) -> Transitions: ...
    def forget(self, step: Step) -> object: ...


class _InSpaces:
    def __init__(self, regions: Regions) -> None:
        self._spaces = Spaces(regions.schemas)
        regions.store(self._spaces)

    def add(self, step: Step) -> Transitions:
        return self._spaces.publish(step.publication, step.spec)

    def update(self, step: Step) -> Transitions:
        return self._spaces.update_publication(step.publication, step.spec)

    def update_many(self, steps: list[Step], points: npt.NDArray[np.float64]) -> Transitions:
        return self._spaces.update_publications([step.publication for step in steps], points)

    def forget(self, step: Step) -> object:
        return self._spaces.retract(step.publication)


class _InNumPy:
    """Remembers no publications: the steps say where they come from."""

    def __init__(self, columns: Columns) -> None:
        self.add = self.update = columns.told

    def forget(self, step: Step) -> object:
        return None


def measure(
    regions: Regions,
    most: int,
    series: Series,
    extras: frozenset[Extra],
    effort: Effort,
    stage: Stage = lambda _: None,
) -> Figures:
    """Figures of up to `most` operations of each kind that `extras` names.

    Raises `MismatchError` when somebody is told something else than brute force says.
    """
    with within(series.label):
        if series.index == NUMPY.index:
            return _measure(_InNumPy(regions.columns), regions, most, extras, effort, stage)
        stage("compiling")
        few = Regions(replace(regions.workload, publications=_WARM, subscriptions=_WARM))
        _measure(_InSpaces(few), few, _WARM, extras, Effort(0.0), lambda _: None)
        stage("storing")
        began = perf_counter()
        subject = _InSpaces(regions)
        figures: Figures = {"load_seconds": perf_counter() - began}
        figures |= _measure(subject, regions, most, extras, effort, stage)
    del subject
    gc.collect()
    release_free_memory()
    return figures


def _measure(
    subject: Subject,
    regions: Regions,
    most: int,
    extras: frozenset[Extra],
    effort: Effort,
    stage: Stage,
) -> Figures:
    figures: Figures = {"checked_operations": 2 * CHECKED}

    def timed(do: Operation, steps: Iterator[Step]) -> tuple[Int64Array, Int64Array]:
        _checked(do, steps, regions.columns)
        found = _timed(do, islice(steps, most), effort.seconds)
        _checked(do, steps, regions.columns)
        return found

    if "adding" in extras:
        stage("adding")
        figures["adding"] = _summary(*timed(subject.add, _arrivals(subject, regions)))
    walk = Walk(regions)
    if "moves" in extras:
        stage("updates")
        figures |= _by_turns(subject.update, walk, regions.columns, most, effort)
    if "profile" in extras:
        stage("updates of all sizes")
        nanoseconds, told = timed(subject.update, walk.mixed_steps())
        figures["profile"] = by_matches(nanoseconds, told)
        figures["line"] = _line(nanoseconds, told)
    if "moves" in extras and isinstance(subject, _InSpaces):
        for kind in _KINDS:
            stage(f"{kind} updates, {_TOGETHER:,} together")
            figures[f"{kind}_together"] = _together(subject, regions, walk, kind, most, effort)
    return figures


def _by_turns(do: Operation, walk: Walk, columns: Columns, most: int, effort: Effort) -> Figures:
    """Figures of both kinds of updates."""
    steps = {kind: walk.steps(kind) for kind in _KINDS}
    found: dict[UpdateKind, list[tuple[Int64Array, Int64Array]]] = {kind: [] for kind in _KINDS}
    for kind in _KINDS:
        _checked(do, steps[kind], columns)
    for _ in range(TURNS):
        for kind in _KINDS:
            some = islice(steps[kind], -(-most // TURNS))
            found[kind].append(_timed(do, some, effort.seconds / TURNS, at_once=AT_ONCE))
    for kind in _KINDS:
        _checked(do, steps[kind], columns)
    return {kind: _summary(*map(np.concatenate, zip(*found[kind], strict=True))) for kind in _KINDS}


def _arrivals(subject: Subject, regions: Regions) -> Iterator[Step]:
    """New publications. They go again in time: there are at most 1 % more than asked for."""
    arrivals = regions.arrivals()
    while True:
        added = list(islice(arrivals, max(1, regions.workload.publications // 100)))
        yield from added
        for step in added:
            subject.forget(step)


def _checked(do: Operation, steps: Iterator[Step], columns: Columns) -> None:
    for step in islice(steps, CHECKED):
        check(step, do(step), columns)


def _timed(
    do: Operation, steps: Iterator[Step], seconds: float, at_once: int = 1
) -> tuple[Int64Array, Int64Array]:
    """Nanoseconds and transitions of each operation. Steps are made while no clock runs."""
    taken, found, spent = [], [], 0
    while some := list(islice(steps, at_once)):
        for step in some:
            began = perf_counter_ns()
            told = do(step)
            taken.append(perf_counter_ns() - began)
            found.append(len(told))
            spent += taken[-1]
        if spent > 1e9 * seconds and len(taken) >= 3:
            break
    return np.array(taken, np.int64), np.array(found, np.int64)


def _together(
    subject: _InSpaces, regions: Regions, walk: Walk, kind: UpdateKind, most: int, effort: Effort
) -> Figures:
    """Figures of one update of many that are one operation."""
    steps = walk.steps(kind)
    some = list(islice(steps, min(CHECKED, walk.rows)))  # nobody twice
    told = subject.update_many(some, regions.points(some))
    for step in some:
        check(step, of_publication(told, step.publication), regions.columns)
    taken, found, spent = [], [], 0
    for _ in range(_BATCHES):
        batch = list(islice(steps, min(_TOGETHER, most)))
        points = regions.points(batch)
        began = perf_counter_ns()
        told = subject.update_many(batch, points)
        took = perf_counter_ns() - began
        spent += took
        taken.append(took // len(batch))
        found.append(len(told) / len(batch))
        if spent > 1e9 * effort.seconds:
            break
    return _summary(np.array(taken, np.int64), np.array(found)) | {"together": len(batch)}


def _summary(nanoseconds: Int64Array, told: npt.NDArray[Any]) -> Figures:
    return {
        **spread(nanoseconds),
        "operations": len(nanoseconds),
        "transitions": float(told.mean()),
    }


def _line(nanoseconds: Int64Array, told: Int64Array) -> Figures:
    """The straight line through times by transitions, and how well they keep to it."""
    if len(np.unique(told)) < 2:
        return {}
    each, fixed = np.polyfit(told, nanoseconds, 1)
    correlation = np.corrcoef(told, nanoseconds)[0, 1]
    return {"fixed": float(fixed) / 1000, "each": float(each), "correlation": float(correlation)}
