"""Events that wait for an index: Figure 5 of Ada-REIN with as many repetitions as it needs.

Each event is matched alone, and timed, as in the paper's broker. When it arrives is fixed
beforehand; how long it waits follows from the times of those before it. So the clock of the queue
is made of times that were measured, and stands still in between: what other programs do to the
machine while nothing is matched does not count. Repetitions of all adjusters at all loads take
turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean
from time import thread_time_ns
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from boxmatch.adaptive.adjuster import Adjuster
from boxmatch.adaptive.excess import Excess, rarest_first
from boxmatch.adaptive.skipping import SkipPlan
from boxmatch.arrays import BoolArray, Float64Array, Int64Array
from boxmatch.indexes.registry import index_class
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.answers import MismatchError, compare
from boxmatch_bench.intervals import interval
from boxmatch_bench.pada.arrivals import moments, shape
from boxmatch_bench.reproduce.ada_rein_latency import ADJUSTERS, BY_MINUTE, LOADS
from boxmatch_bench.reproduce.experiment import EventWorkload, Extra, Series
from boxmatch_bench.reproduce.published.psam import PublishedAdjuster, skipped_as_published
from boxmatch_bench.reproduce.published.ticks import ticks_by_minute
from boxmatch_bench.reproduce.subject import answers_of_scan
from boxmatch_bench.timing import Effort, Figures, Stage

REPETITIONS: Final = 10
_FLUCTUATION: Final = 7.6757
_INTERVALS: Final = 10
"""Of the paper's 30, to have more repetitions in their place."""
_CHECKED: Final = 50
_LARGEST: Final = 0.001
_SCANNED: Final = 10


Case = tuple[float, str, str | None]
"""A load, of whose rates arrivals are made, and an adjuster; None is exact."""


class Deciding(Protocol):
    """Decides on a rate by how long an event has waited."""

    def decide(self, waited: float) -> float: ...


class Run(NamedTuple):
    """One repetition: how long events took from arriving to being matched, and what was found."""

    latency: Float64Array
    rate: Float64Array
    true: int
    found: int


@dataclass
class Queue:
    """An index, its events, and all repetitions once they have been run."""

    workload: EventWorkload
    events: int
    repetitions: int = REPETITIONS
    runs: dict[Case, list[Run]] = field(default_factory=dict)
    service: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        boxes = self.workload.boxes()
        self._points = self.workload.event_keys(0, self.events)
        self._index: Any = index_class("rein")(boxes.dimensions, cells=500)
        self._index.build(boxes)
        frequency = np.bincount(boxes.attribute, minlength=boxes.dimensions)
        width = self.workload.width if isinstance(self.workload, RangeWorkload) else 0.5
        share = np.full(boxes.dimensions, width)
        plan = SkipPlan.of_excess(frequency, Excess.of(boxes, share, rarest_first(frequency)))
        self._skipped: dict[str, Callable[[float], BoolArray]] = {
            "ours": plan.skipped,
            "published": lambda rate: skipped_as_published(frequency, boxes.count, width, rate),
        }

    def measure(
        self, series: Series, extras: frozenset[Extra], effort: Effort, stage: Stage
    ) -> Figures:
        """Figures of one adjuster at one load; the first call runs all."""
        if not self.runs:
            self._run_all(stage)
        load, arrivals = series.parameters["load"], series.parameters["arrivals"]
        mine = self.runs[load, arrivals, series.parameters.get("adjuster")]
        return _figures(mine, self.runs[load, arrivals, None], self.service)

    def _run_all(self, stage: Stage) -> None:
        self._check()
        for repetition in range(self.repetitions):
            stage(f"repetition {repetition + 1} of {self.repetitions}")
            taken, counts = self._exact()
            self.service.append(float(taken.mean()))
            for load, arrivals in LOADS.values():
                due = self._due(load, arrivals, repetition, taken)
                true = int(counts[: len(due)].sum())
                exact = waits(due, taken) + taken[: len(due)]
                self._keep(load, arrivals, None, Run(exact, np.zeros(len(due)), true, true))
                for adjuster in ADJUSTERS:
                    self._keep(load, arrivals, adjuster, self._adapted(due, adjuster, counts))

    def _keep(self, load: float, arrivals: str, adjuster: str | None, run: Run) -> None:
        self.runs.setdefault((load, arrivals, adjuster), []).append(run)

    def _due(
        self, load: float, arrivals: str, repetition: int, taken: Float64Array
    ) -> Float64Array:
        """When events arrive, so that exact matching takes `load` of the time."""
        seed = 1_000 * repetition + self.workload.seed
        if arrivals == BY_MINUTE:
            rates = ticks_by_minute(seed)
        else:
            rates = shape(_INTERVALS, _FLUCTUATION, seed)
        each = len(self._points) / len(rates)
        due = moments(rates * each, seed)[: len(self._points)]
        return due * (each * float(taken.mean()) / load)

    def _exact(self) -> tuple[Float64Array, Int64Array]:
        """Seconds and matches of each event."""
        taken, counts = np.empty(len(self._points)), np.empty(len(self._points), np.int64)
        for i in range(len(self._points)):
            point = self._points[i : i + 1]
            began = thread_time_ns()
            found = self._index.match_one(point)
            taken[i] = 1e-9 * (thread_time_ns() - began)
            counts[i] = len(found)
        return taken, counts

    def _adapted(self, due: Float64Array, adjuster: str, counts: Int64Array) -> Run:
        """One pass with an adjuster, which hears how long each event has waited."""
        deciding: Deciding = Adjuster() if adjuster == "ours" else PublishedAdjuster()
        choose = self._skipped[adjuster]
        chosen: dict[float, BoolArray | None] = {0.0: None}
        latency, rates = np.empty(len(due)), np.empty(len(due))
        free, total = 0.0, 0
        for i, arrival in enumerate(due.tolist()):
            begin = max(free, arrival)
            rate = round(deciding.decide(begin - arrival), 9)
            if rate not in chosen:
                chosen[rate] = choose(rate)
            skipped, point = chosen[rate], self._points[i : i + 1]
            began = thread_time_ns()
            found = self._index.match_one(point, skipped=skipped)
            free = begin + 1e-9 * (thread_time_ns() - began)
            if len(found) < counts[i]:
                raise MismatchError(f"{counts[i] - len(found)} matches of event {i} are missing")
            latency[i], rates[i] = free - arrival, rate
            total += len(found)
        return Run(latency, rates, int(counts[: len(due)].sum()), total)

    def _check(self) -> None:
        """Compile, and compare what is found with brute force, as whole sets."""
        points = self._points[:_CHECKED]
        truth = answers_of_scan(self._index.boxes, points[:_SCANNED])
        alone = [np.sort(self._index.match_one(points[i : i + 1])) for i in range(len(points))]
        compare("REIN differs from scan", alone[:_SCANNED], truth)
        for choose in self._skipped.values():
            skipped = choose(_LARGEST)
            found = [
                self._index.match_one(points[i : i + 1], skipped=skipped)
                for i in range(len(points))
            ]
            compare("with predicates skipped", found, alone, exact=False)


def waits(due: Float64Array, taken: Float64Array) -> Float64Array:
    """How long each event waits until those before it are matched."""
    taken = taken[: len(due)]
    ends = np.cumsum(taken)
    begins = ends - taken
    # The server has been idle last before the event whose arrival is the latest, less the work
    # before it.
    found: Float64Array = np.maximum.accumulate(due - begins) + begins - due
    return found


def _figures(mine: list[Run], exact: list[Run], service: list[float]) -> Figures:
    means = [1e3 * float(run.latency.mean()) for run in mine]
    ratios = [
        float(other.latency.mean() / run.latency.mean())
        for run, other in zip(mine, exact, strict=True)
    ]
    low, mean, high = interval(ratios)
    true = sum(run.true for run in mine)
    return {
        "latency": {
            "mean": fmean(means),
            "of_repetitions": means,
            "deviation": fmean(1e3 * float(run.latency.std()) for run in mine),
            "times_less": {"low": low, "mean": mean, "high": high},
            "rate": fmean(float(run.rate.mean()) for run in mine),
        },
        "errors": {"rate": _LARGEST, "measured": sum(run.found for run in mine) / true - 1},
        "service_ms": 1e3 * fmean(service),
        "checked_events": _SCANNED,
    }
