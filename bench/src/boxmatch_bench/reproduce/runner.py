"""Runs experiments: workload by workload, index by index, a row at a time, nothing twice."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, NamedTuple, Protocol

from boxmatch.engine.memory import release_free_memory
from boxmatch.extras import requires
from boxmatch.workloads import RangeWorkload, RegionWorkload
from boxmatch.workloads.event_file import read_events
from boxmatch_bench.answers import within
from boxmatch_bench.provenance import provenance
from boxmatch_bench.reproduce import operations
from boxmatch_bench.reproduce.experiment import (
    EventWorkload,
    Experiment,
    Extra,
    Method,
    Point,
    Series,
    Workload,
    changed,
    scaled,
)
from boxmatch_bench.reproduce.jobs import on_one_core, side_by_side
from boxmatch_bench.reproduce.matching import measure_index
from boxmatch_bench.reproduce.queue import Queue
from boxmatch_bench.reproduce.regions import Regions
from boxmatch_bench.reproduce.subject import Setting
from boxmatch_bench.results import Results
from boxmatch_bench.timing import Effort, Figures, Stage


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is the same for all experiments of a run."""

    scale: float = 1.0
    seed: int = 1
    event_file: Path | None = None
    full: bool = False
    """With the sizes that are left out for time and memory."""
    jobs: int = 1
    """So many workloads are measured at a time, each in a process of its own if more than one."""

    def __post_init__(self) -> None:
        if self.jobs < 1:
            raise ValueError(f"jobs must be at least 1, not {self.jobs}")
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
        series = self.series
        return {
            "paper": self.experiment.paper,
            "experiment": self.experiment.name,
            "x": self.point.x,
            "series": series.label,
            "index": series.index,
            "exact": series.exact,
            "asked": {"parameters": dict(series.parameters), "skipping": series.skipping},
            "workload": parameters_of(self.workload),
            **options.identity,
            "commit": commit,
        }


def parameters_of(workload: Workload) -> dict[str, Any]:
    """All parameters of a workload, and its kind, as they go into a row."""
    if not is_dataclass(workload) or isinstance(workload, type):
        raise TypeError(f"{type(workload).__name__} is not a dataclass")
    values = {
        name: value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
        for name, value in asdict(workload).items()
    }
    return {"kind": type(workload).__name__, **values}


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
            if point.full and not options.full:
                continue
            for member in experiment.measured:
                series = point.series(member)
                workload = workload_of(experiment, point, series, options)
                key = experiment.method, workload, experiment.events
                group = groups.setdefault(key, Group(*key, {}))
                wanted = [series.index, series.parameters, series.skipping]
                same = json.dumps(wanted, sort_keys=True)
                task = group.tasks.setdefault(same, Task(series, frozenset(), []))
                task.extras |= experiment.extras
                task.places.append(Place(experiment, point, series, workload))
    for group in groups.values():
        # The quickest first: it also says how many matches there are.
        group.tasks = dict(sorted(group.tasks.items(), key=lambda item: _late(item[1].series)))
    return list(groups.values())


def _late(series: Series) -> bool:
    return series.index != "tile" or not series.exact


def workload_of(experiment: Experiment, point: Point, series: Series, options: Options) -> Workload:
    """A series' workload at a point, at this run's scale, with its seed and event file if any."""
    workload = changed(point.workload, **series.changes)
    workload = changed(scaled(workload, options.scale), seed=options.seed)
    file = options.event_file
    if file is None or not experiment.real_events or not isinstance(workload, RangeWorkload):
        return workload
    columns = read_events(file).values.shape[1]
    return replace(workload, event_file=str(file)) if workload.attributes <= columns else workload


Measure = Callable[[Series, frozenset[Extra], Effort, Stage], Figures]
"""All figures of one series; raises `MismatchError` when an answer is wrong."""

SetUp = Callable[[Workload, int, Path], AbstractContextManager[Measure]]
"""Makes a workload real, for so many events or operations, with a folder for what goes to disk."""


@contextmanager
def _matching(workload: Workload, events: int, _: Path) -> Iterator[Measure]:
    if not isinstance(workload, EventWorkload):
        raise TypeError(f"{type(workload).__name__} has no events")
    yield partial(measure_index, Setting(workload, events))


@contextmanager
def _queue(workload: Workload, events: int, _: Path) -> Iterator[Measure]:
    if not isinstance(workload, EventWorkload):
        raise TypeError(f"{type(workload).__name__} has no events")
    yield Queue(workload, events).measure


@contextmanager
def _operations(workload: Workload, most: int, _: Path) -> Iterator[Measure]:
    yield partial(operations.measure, _regions(workload), most)


@contextmanager
def _durable(workload: Workload, moving: int, folder: Path) -> Iterator[Measure]:
    with operations.Disk(_regions(workload), moving, folder) as disk:
        yield lambda series, _, effort, stage: disk.measure(series, effort, stage)


@contextmanager
def _on_spark(workload: Workload, most: int, _: Path) -> Iterator[Measure]:
    with requires("spark", "experiments on Spark"):
        from boxmatch_bench.spark.transitions import Jobs
    yield Jobs(_regions(workload).workload, most).measure


def _regions(workload: Workload) -> Regions:
    if not isinstance(workload, RegionWorkload):
        raise TypeError(f"{type(workload).__name__} has no publications")
    return Regions(workload)


_AS_LONG_AS_SEARCHING: Final = 250_000
"""So many subscriptions are made, indexed and compared in the time of the searches."""
_QUEUE: Final = 15.0


_ALONE: Final[tuple[Method, ...]] = ("durable", "spark")
"""What has threads and processes of its own, from which others would take the cores."""

METHODS: Final[Mapping[Method, SetUp]] = {
    "matching": _matching,
    "queue": _queue,
    "operations": _operations,
    "durable": _durable,
    "spark": _on_spark,
}


class Watcher(Protocol):
    """Reports the progress of a run."""

    def start(self, measurements: int, done: int) -> None:
        """So many measurements are to be made, of which `done` were found in the file."""

    def doing(self, what: str) -> None: ...
    def finished(self, left: float | None = None) -> None:
        """One more measurement is done; the others take about so many seconds."""


class Forecast:
    """How long the rest will take, by how long what is done has taken."""

    def __init__(self, weight: float) -> None:
        self._left, self._done, self._began = weight, 0.0, perf_counter()

    def after(self, weight: float) -> float:
        """Seconds that are left once something of this weight is done."""
        self._left -= weight
        self._done += weight
        return self._left * (perf_counter() - self._began) / self._done


def weight(group: Group) -> float:
    """How long a task of a group takes, compared with others: making and building go by size."""
    if group.method == "queue":
        return _QUEUE
    return 1.0 + group.workload.subscriptions / _AS_LONG_AS_SEARCHING


_PROCESS: Final = 500_000_000
_PREDICATE, _ATTRIBUTE = 400, 10
"""Bytes for each subscription: of the largest index while it is built, and of HEM's bit sets."""


class Order(NamedTuple):
    """What is to be measured at one workload, for a process to be told."""

    group: int
    method: Method
    workload: Workload
    events: int
    wanted: Mapping[str, tuple[Series, frozenset[Extra], str]]
    """By task: what is measured, and for which place."""

    @property
    def bytes(self) -> int:
        """What a process takes for it, from above and roughly."""
        predicates = getattr(self.workload, "predicates", 20)
        attributes = getattr(self.workload, "attributes", 100)
        each = _PREDICATE * predicates + _ATTRIBUTE * attributes
        return _PROCESS + self.workload.subscriptions * each


def run(
    experiments: Iterable[Experiment], options: Options, results: Results, watcher: Watcher
) -> dict[str, Any]:
    """Measure what `results` does not have yet; return where the figures come from.

    Raises `MismatchError`, naming experiment and point, as soon as an answer is wrong. Nothing is
    kept of a measurement that failed.
    """
    began, origin = perf_counter(), provenance()
    groups = plan(experiments, options)
    total = sum(len(group.tasks) for group in groups)
    for group in groups:
        for key, task in list(group.tasks.items()):
            headings = [(place, place.heading(options, origin["commit"])) for place in task.places]
            task.places = [place for place, heading in headings if heading not in results]
            if not task.places:
                del group.tasks[key]
    watcher.start(total, total - sum(len(group.tasks) for group in groups))
    forecast = Forecast(sum(weight(group) * len(group.tasks) for group in groups))
    # On the disk that the results go to.
    work = partial(measured, effort=Effort.at_scale(options.scale), folder=results.path.parent)
    for jobs, orders in _rounds(groups, options.jobs):
        found = side_by_side(work, orders, jobs, lambda order: order.bytes, watcher.doing)
        with closing(found):
            for order, (key, figures), beside in found:
                group = groups[order.group]
                ran = {"jobs": jobs, "beside": beside, "elapsed_seconds": perf_counter() - began}
                for place in group.tasks[key].places:
                    heading = place.heading(options, origin["commit"])
                    results.add({**heading, **figures, **ran, **origin})
                watcher.finished(forecast.after(weight(group)))
    return origin


def _rounds(groups: list[Group], jobs: int) -> Iterator[tuple[int, list[Order]]]:
    """What is measured so many at a time, the longest first, and then what is measured alone."""
    left = [(number, group) for number, group in enumerate(groups) if group.tasks]
    if jobs > 1:
        left.sort(key=lambda item: -weight(item[1]) * len(item[1].tasks))
    yield jobs, [_order(*item) for item in left if item[1].method not in _ALONE]
    yield 1, [_order(*item) for item in left if item[1].method in _ALONE]


def _order(number: int, group: Group) -> Order:
    wanted = {}
    for key, task in group.tasks.items():
        first = task.places[0]
        where = f"{first.experiment.name} at {first.point.x}"
        wanted[key] = task.series, task.extras, where
    return Order(number, group.method, group.workload, group.events, wanted)


def measured(
    order: Order, stage: Stage, *, effort: Effort, folder: Path
) -> Iterator[tuple[str, Figures]]:
    """Figures by task, on one core unless the method has its own threads."""
    with nullcontext() if order.method in _ALONE else on_one_core():
        first = next(iter(order.wanted.values()))[2]
        stage(f"{first}: making {order.workload.subscriptions:,} boxes")
        with METHODS[order.method](order.workload, order.events, folder) as measure:
            for key, (series, extras, where) in order.wanted.items():
                began, worked = perf_counter(), process_time()
                with within(where):
                    told = partial(_tell, stage, f"{where}: {series.label}")
                    figures = measure(series, extras, effort, told)
                spent = {
                    "took_seconds": perf_counter() - began,
                    "worked_seconds": process_time() - worked,
                }
                yield key, figures | spent
        del measure
        gc.collect()
        release_free_memory()


def _tell(stage: Stage, label: str, what: str) -> None:
    stage(f"{label}, {what}")
