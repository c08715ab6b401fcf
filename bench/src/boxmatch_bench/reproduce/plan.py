"""What has to be measured: experiments put together by workload, so that nothing is done twice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from boxmatch.workloads import RangeWorkload
from boxmatch.workloads.event_file import read_events
from boxmatch_bench.reproduce.experiment import (
    Experiment,
    Extra,
    Method,
    Point,
    Series,
    Workload,
    scaled,
    seeded,
)
from boxmatch_bench.reproduce.setting import parameters_of


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is the same for all experiments of a run."""

    scale: float = 1.0
    seed: int = 1
    event_file: Path | None = None

    def __post_init__(self) -> None:
        if not 0 < self.scale <= 10:
            raise ValueError(f"scale must be above 0 and at most 10, not {self.scale}")

    @property
    def identity(self) -> dict[str, Any]:
        """What rows of the same run have in common, apart from the commit."""
        file = None if self.event_file is None else str(self.event_file)
        return {"scale": self.scale, "seed": self.seed, "event_file": file}


@dataclass(frozen=True)
class Place:
    """Where in which experiment a measurement belongs, and under which name."""

    experiment: Experiment
    point: Point
    series: Series
    workload: Workload

    def heading(self, options: Options, commit: str | None) -> dict[str, Any]:
        """All that is known of the row before anything is measured."""
        return {
            "paper": self.experiment.paper,
            "experiment": self.experiment.name,
            "x": self.point.x,
            "series": self.series.label,
            "index": self.series.index,
            "exact": self.series.exact,
            "asked": {
                "parameters": dict(self.series.parameters),
                "skipping": self.series.skipping,
            },
            "workload": parameters_of(self.workload),
            **options.identity,
            "commit": commit,
        }


@dataclass
class Task:
    """One index to be measured at one workload, for all experiments that ask for it."""

    series: Series
    extras: frozenset[Extra]
    places: list[Place]


@dataclass
class Group:
    """All tasks at one workload."""

    method: Method
    workload: Workload
    events: int
    tasks: dict[str, Task]


def plan(experiments: Iterable[Experiment], options: Options) -> list[Group]:
    """The measurements of these experiments, by workload, each one once."""
    groups: dict[tuple[Method, Workload, int], Group] = {}
    for experiment in experiments:
        for point in experiment.points:
            for member in experiment.measured:
                series = point.series(member)
                workload = workload_of(experiment, point, series, options)
                key = experiment.method, workload, experiment.events
                group = groups.setdefault(key, Group(*key, {}))
                place = Place(experiment, point, series, workload)
                task = group.tasks.setdefault(_same(series), Task(series, frozenset(), []))
                task.extras |= experiment.extras
                task.places.append(place)
    for group in groups.values():
        # The quickest first: it also says how many matches there are.
        group.tasks = dict(sorted(group.tasks.items(), key=lambda item: _late(item[1].series)))
    return list(groups.values())


def _late(series: Series) -> bool:
    return series.index != "tile" or not series.exact


def workload_of(experiment: Experiment, point: Point, series: Series, options: Options) -> Workload:
    """A series' workload at a point, at this run's scale, with its seed and event file if any."""
    workload = seeded(scaled(series.workload(point.workload), options.scale), options.seed)
    file = options.event_file
    if file is None or not experiment.real_events or not isinstance(workload, RangeWorkload):
        return workload
    columns = read_events(file).values.shape[1]
    return replace(workload, event_file=str(file)) if workload.attributes <= columns else workload


def _same(series: Series) -> str:
    wanted: Mapping[str, Any] = series.parameters
    return json.dumps([series.index, wanted, series.skipping], sort_keys=True)
