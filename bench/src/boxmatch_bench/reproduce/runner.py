"""Runs experiments: workload by workload, index by index, a row at a time."""

from __future__ import annotations

import gc
from collections.abc import Iterable
from dataclasses import replace
from time import perf_counter
from typing import Any, Protocol

from boxmatch.engine.memory import release_free_memory
from boxmatch_bench.checking import MismatchError
from boxmatch_bench.provenance import provenance
from boxmatch_bench.reproduce.experiment import Experiment
from boxmatch_bench.reproduce.methods import METHODS, Measure
from boxmatch_bench.reproduce.plan import Group, Options, Task, plan
from boxmatch_bench.results import Results
from boxmatch_bench.timing import Effort


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
    try:
        figures = measure(
            task.series,
            task.extras,
            effort,
            lambda stage: watcher.doing(f"{label}, {stage}"),
        )
    except MismatchError as error:
        raise MismatchError(f"{place.experiment.name} at {place.point.x}: {error}") from None
    figures["took_seconds"] = perf_counter() - began
    for place in task.places:
        results.add({**place.heading(options, origin["commit"]), **figures, **origin})
