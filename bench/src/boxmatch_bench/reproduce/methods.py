"""The ways of measuring: what is set up for a workload, and asked about each series there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from boxmatch.workloads import RegionWorkload
from boxmatch_bench.measure import Figures, Stage, measure_index
from boxmatch_bench.reproduce import durable, operations
from boxmatch_bench.reproduce.experiment import EventWorkload, Extra, Method, Series, Workload
from boxmatch_bench.reproduce.regions import Regions
from boxmatch_bench.reproduce.setting import Setting
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
