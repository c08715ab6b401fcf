"""Runs experiments: workload by workload, index by index, a row at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final, Protocol

from boxmatch.engine.memory import release_free_memory
from boxmatch.workloads import RegionWorkload
from boxmatch_bench.answers import within
from boxmatch_bench.measure import Figures, Stage, measure_index
from boxmatch_bench.provenance import provenance
from boxmatch_bench.reproduce import durable, operations
from boxmatch_bench.reproduce.experiment import (
    EventWorkload,
    Experiment,
    Extra,
    Method,
    Series,
    Workload,
)
from boxmatch_bench.reproduce.plan import Group, Options, Task, plan
from boxmatch_bench.reproduce.regions import Regions
from boxmatch_bench.reproduce.setting import Setting
from boxmatch_bench.results import Results
from boxmatch_bench.timing import Effort

Measure = Callable[[Series, frozenset[Extra], Effort, Stage], Figures]
"""All figures of one series; raises `MismatchError` when an answer is wrong."""

SetUp = Callable[[Workload, int, Path], AbstractContextManager[Measure]]
"""Makes a workload real, for so many events or operations, with a folder for what goes to disk."""


@contextmanager
def _matching(workload: Workload, events: int, _: Path) -> Iterator[Measure]:
    if not isinstance(workload, EventWorkload):
        raise TypeError(f"{type(workload).__name__} has no events")
    setting = Setting(workload, events)

    def measure(series: Series, extras: frozenset[Extra], effort: Effort, stage: Stage) -> Figures:
        return measure_index(series, setting, extras, effort, stage)

    yield measure


@contextmanager
def _operations(workload: Workload, most: int, _: Path) -> Iterator[Measure]:
    regions = _regions(workload)

    def measure(series: Series, extras: frozenset[Extra], effort: Effort, stage: Stage) -> Figures:
        return operations.measure(series, regions, most, extras, effort, stage)

    yield measure


@contextmanager
def _durable(workload: Workload, moving: int, folder: Path) -> Iterator[Measure]:
    with durable.Disk(_regions(workload), moving, folder) as disk:

        def measure(series: Series, _: frozenset[Extra], effort: Effort, stage: Stage) -> Figures:
            return disk.measure(series, effort, stage)

        yield measure


def _regions(workload: Workload) -> Regions:
    if not isinstance(workload, RegionWorkload):
        raise TypeError(f"{type(workload).__name__} has no publications")
    return Regions(workload)


METHODS: Final[Mapping[Method, SetUp]] = {
    "matching": _matching,
    "operations": _operations,
    "durable": _durable,
}


class Watcher(Protocol):
    """Is told what goes on."""

    def start(self, measurements: int, done: int) -> None:
        """So many measurements are to be made, of which `done` were found in the file."""

    def doing(self, what: str) -> None: ...
    def finished(self) -> None:
        """One more measurement is done."""


def run(
    experiments: Iterable[Experiment], options: Options, results: Results, watcher: Watcher
) -> dict[str, Any]:
    """Measure what `results` does not have yet; return where the figures come from.

    Raises `MismatchError`, naming experiment and point, as soon as an answer is wrong. Nothing is
    kept of a measurement that failed.
    """
    origin = provenance()
    commit = origin["commit"]
    groups = plan(experiments, options)
    total = sum(len(group.tasks) for group in groups)
    open_groups = [_missing(group, options, results, commit) for group in groups]
    watcher.start(total, total - sum(len(group.tasks) for group in open_groups))
    effort = Effort.at_scale(options.scale)
    for group in open_groups:
        if not group.tasks:
            continue
        first = next(iter(group.tasks.values())).places[0]
        watcher.doing(f"{first.experiment.name}: making {group.workload.subscriptions:,} boxes")
        # On the disk that the results go to.
        folder = results.path.parent
        with METHODS[group.method](group.workload, group.events, folder) as measure:
            for task in group.tasks.values():
                _measure(task, measure, options, effort, results, origin, watcher)
                watcher.finished()
        del measure
        gc.collect()
        release_free_memory()
    return origin


def _missing(group: Group, options: Options, results: Results, commit: str | None) -> Group:
    """The part of a group that has no rows yet."""
    tasks = {}
    for key, task in group.tasks.items():
        places = [p for p in task.places if p.heading(options, commit) not in results]
        if places:
            tasks[key] = Task(task.series, task.extras, places)
    return replace(group, tasks=tasks)


def _measure(
    task: Task,
    measure: Measure,
    options: Options,
    effort: Effort,
    results: Results,
    origin: dict[str, Any],
    watcher: Watcher,
) -> None:
    place = task.places[0]
    label = f"{place.experiment.name} at {place.point.x}: {place.series.label}"
    began = perf_counter()
    with within(f"{place.experiment.name} at {place.point.x}"):
        figures = measure(
            task.series,
            task.extras,
            effort,
            lambda stage: watcher.doing(f"{label}, {stage}"),
        )
    figures["took_seconds"] = perf_counter() - began
    for place in task.places:
        results.add({**place.heading(options, origin["commit"]), **figures, **origin})
