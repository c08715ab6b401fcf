"""How operations on spaces are measured and checked: one by one in memory, by threads on disk."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Barrier
from time import perf_counter, perf_counter_ns, thread_time_ns
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.engine.memory import release_free_memory
from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import Transitions
from boxmatch.storage.sqlite import Sync
from boxmatch.workloads.regions import UpdateKind
from boxmatch_bench.answers import MismatchError, within
from boxmatch_bench.reproduce.counts import counts_of
from boxmatch_bench.reproduce.experiment import NUMPY, Extra, Series
from boxmatch_bench.reproduce.regions import (
    Columns,
    PublicationColumns,
    Regions,
    Step,
    Walk,
    check,
    of_publication,
)
from boxmatch_bench.timing import Effort, Figures, Stage, by_matches, spread

Operation = Callable[[Step], Transitions]

CHECKED = 10
"""Operations of each kind that are compared with brute force before, and as many after the timed
ones; on disk, the first of each thread."""

_KINDS: tuple[UpdateKind, ...] = ("incremental", "random")
TURNS = 10
"""Kinds of updates are measured by turns, so that what slows the machine down slows both."""
AT_ONCE = 20
"""So many updates follow each other; to make the next one in between cools the caches."""
_WARM = 50
_TOGETHER = 100
"""Updates that are one operation, where many are."""
_BATCHES = 20


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

    def forget(self, step: Step) -> Transitions:
        return self._spaces.retract(step.publication)

    def subscribe(self, step: Step) -> Transitions:
        return self._spaces.subscribe(step.publication, step.spec)

    def unsubscribe(self, step: Step) -> Transitions:
        return self._spaces.unsubscribe(step.publication)


class _InNumPy:
    """Remembers no publications: the steps say where they come from."""

    def __init__(self, columns: Columns) -> None:
        self.add = self.update = columns.told

    def forget(self, step: Step) -> object:
        return None


_Subject = _InSpaces | _InNumPy
"""What carries out the operations."""


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
    subject: _Subject,
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

    if "others" in extras and isinstance(subject, _InSpaces):
        stage("adding subscriptions, removing publications")
        figures |= _others(subject, regions, most, effort)
    if "adding" in extras:
        stage("adding")
        figures["adding"] = _summary(*timed(subject.add, _arrivals(subject, regions)))
    if "counts" in extras and isinstance(subject, _InSpaces):
        stage("counting")
        return {"counts": counts_of(regions, most), "checked_operations": 0}
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


def _others(subject: _InSpaces, regions: Regions, most: int, effort: Effort) -> Figures:
    """New subscriptions, each removed again; then publications that come and go."""
    columns, added = PublicationColumns(regions.workload), []
    spent, taken, found = 0, [], []
    for number, step in enumerate(islice(regions.subscribing(), most)):
        began = thread_time_ns()
        told = subject.subscribe(step)
        taken.append(thread_time_ns() - began)
        spent += taken[-1]
        found.append(len(told))
        if number < CHECKED:
            columns.check(step, told)
        added.append(step)
        if len(added) > regions.workload.subscriptions // 100 + CHECKED:
            for one in added:
                subject.unsubscribe(one)
            added = []
        if spent > 1e9 * effort.seconds and len(taken) > CHECKED:
            break
    for one in added:
        subject.unsubscribe(one)
    figures = {"subscribing": _summary(np.array(taken, np.int64), np.array(found))}
    taken, found, spent = [], [], 0
    for step in islice(regions.arrivals(), most):
        entered = len(subject.add(step))
        began = thread_time_ns()
        told = subject.forget(step)
        taken.append(thread_time_ns() - began)
        spent += taken[-1]
        found.append(len(told))
        if len(told) != entered:
            raise MismatchError(
                f"publication {step.publication} entered {entered} and left {len(told)}"
            )
        if spent > 1e9 * effort.seconds and len(taken) > CHECKED:
            break
    return figures | {"removing": _summary(np.array(taken, np.int64), np.array(found))}


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


def _arrivals(subject: _Subject, regions: Regions) -> Iterator[Step]:
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
            began = thread_time_ns()
            told = do(step)
            taken.append(thread_time_ns() - began)
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
        began = thread_time_ns()
        told = subject.update_many(batch, points)
        took = thread_time_ns() - began
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


# --- on disk -----------------------------------------------------------------------------------


class Disk:
    """Spaces in a folder that is removed at the end, stored once for each way of writing them."""

    def __init__(self, regions: Regions, moving: int, folder: Path) -> None:
        self._regions = regions
        self._folder = folder
        self._opened: dict[Sync | None, _Kept] = {}
        self._steps = Walk(regions, moving).there_and_back()

    def __enter__(self) -> Self:
        self._exit = ExitStack()
        place = TemporaryDirectory(dir=self._folder, prefix="spaces-")
        self._place = Path(self._exit.enter_context(place))
        self._syncs = _syncs_per_second(self._place / "probe")
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.clear()
        self._exit.close()

    def measure(self, series: Series, effort: Effort, stage: Stage) -> Figures:
        """Figures of updates by `threads`, with `sync` as in `Spaces.open`; None is in memory."""
        sync, threads = series.parameters["sync"], series.parameters["threads"]
        stage("storing")
        kept = self._kept(sync)
        stage("updating")
        barrier = Barrier(threads)
        with ThreadPoolExecutor(threads) as pool:
            parts = [
                pool.submit(kept.update, range(first, len(self._steps), threads), barrier, effort)
                for first in range(threads)
            ]
            done = [part.result() for part in parts]
        with within(series.label):
            for part in done:
                for step, told in part.kept:
                    check(step, told, self._regions.columns)
        nanoseconds = np.concatenate([part.nanoseconds for part in done])
        seconds = max(part.ended for part in done) - min(part.began for part in done)
        return {
            "durable": {
                **spread(nanoseconds),
                "updates": len(nanoseconds),
                "seconds": seconds,
                "per_second": len(nanoseconds) / seconds,
                "transitions": sum(part.told for part in done) / len(nanoseconds),
            },
            "disk": {"syncs_per_second": self._syncs},
            "checked_operations": min(len(part.kept) for part in done),
        }

    def _kept(self, sync: Sync | None) -> _Kept:
        if sync not in self._opened:
            schemas = self._regions.schemas
            spaces = (
                Spaces(schemas)
                if sync is None
                else Spaces.open(self._place / sync, schemas, sync=sync)
            )
            self._regions.store(self._exit.enter_context(spaces))
            for step in self._steps[0]:  # so that no figure contains compilation
                spaces.update_publication(step.publication, step.spec)
            self._opened[sync] = _Kept(spaces, self._steps)
        return self._opened[sync]


class _Part(NamedTuple):
    """What one thread did, and the first of it with what was told."""

    began: float
    ended: float
    nanoseconds: npt.NDArray[np.int64]
    told: int
    kept: list[tuple[Step, Transitions]]


class _Kept:
    """Spaces, and which of their publications are away."""

    def __init__(self, spaces: Spaces, steps: Sequence[tuple[Step, Step]]) -> None:
        self._spaces, self._steps = spaces, steps
        self._away = [False] * len(steps)

    def update(self, rows: Iterable[int], barrier: Barrier, effort: Effort) -> _Part:
        """Move publications in turn, which no other thread may have, until the time is over."""
        taken, told = [], 0
        kept: list[tuple[Step, Transitions]] = []
        barrier.wait()
        began = now = perf_counter()
        for row in cycle(rows):
            step = self._steps[row][self._away[row]]
            start = perf_counter_ns()
            heard = self._spaces.update_publication(step.publication, step.spec)
            taken.append(perf_counter_ns() - start)
            self._away[row] = not self._away[row]
            told += len(heard)
            if len(kept) < CHECKED:
                kept.append((step, heard))
            now = perf_counter()
            if now - began > effort.seconds:
                break
        return _Part(began, now, np.array(taken, np.int64), told, kept)


def _syncs_per_second(path: Path) -> float:
    """How often this disk takes a page for good, from one who waits each time."""
    syncs, began = 0, perf_counter()
    with path.open("wb", buffering=0) as file:
        while perf_counter() - began < 0.3:
            file.write(bytes(4096))
            os.fsync(file.fileno())
            syncs += 1
    return syncs / (perf_counter() - began)
