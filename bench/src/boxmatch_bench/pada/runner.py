"""Runs the experiments on the test bed, index by index, a row at a time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from boxmatch_bench.broker.deliveries import find_truth
from boxmatch_bench.broker.watch import disk
from boxmatch_bench.options import PADA, BrokerOptions
from boxmatch_bench.pada.measure import RATED, OnBed, measure_rates, overload
from boxmatch_bench.provenance import provenance
from boxmatch_bench.reproduce.runner import Watcher
from boxmatch_bench.results import Results
from boxmatch_bench.settings import (
    ADJUSTMENTS,
    INDEXES,
    MORE,
    OFF,
    OVERLOADED,
    Adjustment,
    Bed,
    BrokerSetting,
)
from boxmatch_bench.timing import Figures

RATES, FLUCTUATION, OVERLOAD = PADA


@dataclass(frozen=True)
class Task:
    """One row to be measured."""

    experiment: str
    index: str
    adjustment: Adjustment
    load: float | None = None
    repetition: int = 0

    def heading(self, bed: Bed, run: dict[str, Any]) -> dict[str, Any]:
        """All that is known of the row before anything is measured."""
        return {
            "paper": "ada-rein",
            "experiment": self.experiment,
            "x": self.adjustment.name,
            "series": self.index,
            "index": self.index,
            "exact": self.adjustment.maximum is None,
            "load": self.load,
            "repetition": self.repetition,
            "asked": {
                "parameters": self.adjustment.request,
                "skipping": None,
                "load": self.load,
                "repetition": self.repetition,
            },
            "workload": bed.parameters,
            **run,
        }

    def measure(self, on: OnBed, bed: Bed) -> Figures:
        """On a broker that has all subscriptions."""
        if self.experiment == OVERLOAD:
            return overload(on, bed, self.adjustment)
        if self.load is None:
            raise TypeError(f"{self.experiment} has a load")
        return on.measure(self.adjustment, self.load, self.repetition)


def tasks(experiments: Iterable[str], bed: Bed) -> list[Task]:
    """All rows of these experiments, those of one index together; what is repeated takes turns."""
    wanted = set(experiments)
    made = [
        Task(FLUCTUATION, index, adjustment, load, repetition)
        for index in INDEXES
        for repetition in range(bed.repetitions)
        for load in bed.loads
        for adjustment in ADJUSTMENTS
    ]
    made += [Task(OVERLOAD, index, MORE) for index in OVERLOADED]
    alone = [Task(RATES, index, OFF) for index in RATED if RATES in wanted]
    return alone + sorted(
        (task for task in made if task.experiment in wanted),
        key=lambda task: INDEXES.index(task.index),
    )


def run(
    experiments: Iterable[str], bed: Bed, scale: float, results: Results, watcher: Watcher
) -> dict[str, Any]:
    """Measure what `results` does not have yet; return what the rows have in common.

    Raises `MismatchError` when a match was not delivered, and `FailedError` when nothing is.
    """
    origin = provenance()
    shared = {
        "scale": scale,
        "seed": bed.workload.seed,
        "event_file": None,
        "commit": origin["commit"],
    }
    everything = tasks(experiments, bed)
    missing = [task for task in everything if task.heading(bed, shared) not in results]
    watcher.start(len(everything), len(everything) - len(missing))
    alone = [task for task in missing if task.experiment == RATES]
    for task in alone:
        watcher.doing(f"{task.index}: matching at several rates")
        figures = measure_rates(bed, task.index)
        results.add({**task.heading(bed, shared), **figures, **origin})
        watcher.finished()
    over_sockets = missing[len(alone) :]
    if over_sockets:
        watcher.doing("matching without a broker")
        setting = BrokerSetting(workload=bed.workload, subscribers=bed.subscribers)
        truth = find_truth(setting, BrokerOptions(pool=bed.pool, batch=bed.overload_batch))
    for index, its_tasks in groupby(over_sockets, key=lambda task: task.index):
        with TemporaryDirectory(dir=results.path.parent, prefix="pada-") as folder:
            its_disk = disk(Path(folder))
            with OnBed(bed, index, truth, Path(folder), partial(_tell, watcher, index)) as on:
                on.prepare()
                for task in its_tasks:
                    began = perf_counter()
                    figures = task.measure(on, bed)
                    figures["took_seconds"] = perf_counter() - began
                    head = task.heading(bed, shared)
                    results.add({**head, "disk": its_disk, **figures, **origin})
                    watcher.finished()
    return shared


def _tell(
    watcher: Watcher, index: str, what: str, done: float = 0.0, total: float | None = None
) -> None:
    progress = "" if total is None else f", {done:,.0f} of {total:,.0f}"
    watcher.doing(f"{index}: {what}{progress}")
