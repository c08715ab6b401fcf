"""What is measured: a workload made real, an index over its boxes, and what the index skips."""

from __future__ import annotations

from functools import cached_property, lru_cache
from time import thread_time_ns
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.adaptive.cost import CostModel, fit, matching_work
from boxmatch.adaptive.selectivity import measure_selectivity
from boxmatch.adaptive.skipping import choose_skipped
from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import Matches
from boxmatch.indexes.papers.rein import ReinIndex
from boxmatch.indexes.scan import ScanIndex
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.workloads import RangeWorkload
from boxmatch_bench.answers import MismatchError, split
from boxmatch_bench.reproduce.experiment import NUMPY, EventWorkload, Series
from boxmatch_bench.reproduce.published import index_class
from boxmatch_bench.timing import best_time

ARRIVALS: Final = 6_000
"""Subscriptions that come after the others, for measuring updates."""

_CHECKED: Final = 10
_LARGEST_COLUMNS: Final = 2 * 1024**3
_TRIALS: Final = (
    # Share of the boxes, attributes, predicates, buckets: each makes another step weigh.
    (0.2, 20, 10, 1_000),
    (0.2, 20, 4, 100),
    (0.05, 1_000, 4, 500),
    (0.005, 1_000, 2, 1_000),
    (1.0, 20, 1, 50),
    (0.2, 100, 8, 2_000),
)
_TRIAL_EVENTS: Final = 50
_TRIAL_SECONDS: Final = 0.2


class Setting:
    """Boxes and events that all indexes at a point share, made once."""

    def __init__(self, workload: EventWorkload, events: int) -> None:
        self.workload = workload
        self.boxes = workload.boxes()
        self.points = workload.event_keys(0, events)

    @cached_property
    def frequency(self) -> Int64Array:
        """Predicates on each attribute."""
        return np.bincount(self.boxes.attribute, minlength=self.boxes.dimensions)

    @cached_property
    def selectivity(self) -> float:
        """The share of events that satisfy a predicate."""
        return measure_selectivity(self.boxes, self.points)

    @cached_property
    def arrivals(self) -> Boxes:
        """Boxes that follow the others."""
        return self.workload.boxes(self.boxes.count, self.boxes.count + ARRIVALS)

    @cached_property
    def truth(self) -> list[Int64Array]:
        """The rows that match each of the first events, by brute force."""
        return answers_of_scan(self.boxes, self.points[:_CHECKED])

    @cached_property
    def counts(self) -> Int64Array:
        """How many boxes match each event. Set by the first exact index that counted them all."""
        index = index_class("tile")(self.boxes.dimensions)
        index.build(self.boxes)
        return index.count(self.points)

    def learn(self, counts: Int64Array) -> None:
        """Take the counts of an exact index for true; where they are known, compare."""
        known = self.__dict__.setdefault("counts", counts)
        if not np.array_equal(known, counts):
            raise MismatchError("two exact indexes count different numbers of matches")

    @cached_property
    def unsatisfied(self) -> float:
        """Predicates that an event does not satisfy, on average: what marking alone has to mark."""
        total = 0
        for attribute in range(self.boxes.dimensions):
            mine = self.boxes.attribute == attribute
            keys = self.points[:, attribute]
            low, high = np.sort(self.boxes.low[mine]), np.sort(self.boxes.high[mine])
            total += int((len(low) - np.searchsorted(low, keys, "right")).sum())
            total += int(np.searchsorted(high, keys, "left").sum())
        return total / len(self.points)


def answers_of_scan(boxes: Boxes, points: Int64Array) -> list[Int64Array]:
    """Matching rows, ascending, of each point."""
    scan = ScanIndex(boxes.dimensions)
    scan.build(boxes)
    counts, positions = scan.match(points)
    return split(counts, positions)


class Subject:
    """An index, or NumPy in its place, searched always with the same attributes skipped.

    Some series leave attributes out by an argument to every search, `skipped`, others by the
    index's own `rate`.
    """

    def __init__(self, series: Series, dimensions: int, skipped: BoolArray | None = None) -> None:
        self.series = series
        self.skipped = skipped
        self.order: Int64Array | None = None
        self.index: Any = (
            BruteForce()
            if series.index == NUMPY.index
            else index_class(series.index)(dimensions, **series.parameters)
        )
        # Only what can skip gets the argument: brute force has none.
        self._extra = {} if skipped is None else {"skipped": skipped}

    @property
    def rate(self) -> float:
        """The tolerated rate of false matches."""
        own: float = self.index.own_rate
        return own if self.series.skipping is None else self.series.skipping

    def build(self, boxes: Boxes) -> None:
        self.order = self.index.build(boxes)

    def match(self, points: Int64Array) -> Matches:
        found: Matches = self.index.match(points, **self._extra)
        return found

    def count(self, points: Int64Array) -> Int64Array:
        counts: Int64Array = self.index.count(points, **self._extra)
        return counts

    def match_one(self, point: Int64Array) -> npt.NDArray[np.integer]:
        found: npt.NDArray[np.integer] = self.index.match_one(point, **self._extra)
        return found


class BruteForce:
    """NumPy as one writes it: whole columns of int64, attribute by attribute."""

    chosen: dict[str, Any] = {}  # noqa: RUF012 - has no parameters

    def build(self, boxes: Boxes) -> None:
        size = 2 * 8 * boxes.count * boxes.dimensions
        if size > _LARGEST_COLUMNS:
            raise IndexTooLargeError(f"dense columns would take {size / 1e9:.1f} GB")
        shape = boxes.dimensions, boxes.count
        self._low, self._high = np.full(shape, ABSENT), np.full(shape, LAST)
        row = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
        self._low[boxes.attribute, row] = boxes.low
        self._high[boxes.attribute, row] = boxes.high

    def match_one(self, point: Int64Array) -> Int64Array:
        mask = np.ones(self._low.shape[1], bool)
        for value, low, high in zip(point[0], self._low, self._high, strict=True):
            mask &= (low <= value) & (value <= high)
        return np.flatnonzero(mask)

    def match(self, points: Int64Array) -> Matches:
        rows = [self.match_one(points[i : i + 1]) for i in range(len(points))]
        counts = np.array([len(found) for found in rows], np.int64)
        return Matches(counts, np.concatenate(rows).astype(np.int32))

    def count(self, points: Int64Array) -> Int64Array:
        return self.match(points).counts

    @property
    def nbytes(self) -> dict[str, int]:
        return {"columns": self._low.nbytes + self._high.nbytes}


@lru_cache(maxsize=2)
def calibrated(boxes: int) -> CostModel:
    """The time model of REIN on this machine, for about so many boxes."""
    work, seconds = [], []
    for share, attributes, predicates, buckets in _TRIALS:
        workload = RangeWorkload(
            subscriptions=max(1_000, round(share * boxes)),
            attributes=attributes,
            predicates=predicates,
            event_size=attributes,
            width=0.5,
        )
        trial = Setting(workload, _TRIAL_EVENTS)
        index = ReinIndex(attributes, cells=buckets)
        index.build(trial.boxes)
        timing = best_time(
            lambda n, i=index, t=trial: i.match(t.points[:n]),  # type: ignore[misc]  # by defaults
            _TRIAL_EVENTS,
            _TRIAL_SECONDS,
            thread_time_ns,
        )
        work.append(matching_work(trial.frequency, trial.boxes.count, buckets))
        seconds.append(timing.microseconds / 1e6)
    return fit(np.stack(work), np.array(seconds))


def skipped_attributes(series: Series, setting: Setting) -> BoolArray | None:
    """The attributes that a series skips by argument; None if it leaves none out that way."""
    if series.skipping is None:
        return None
    return choose_skipped(
        setting.frequency, setting.boxes.count, setting.selectivity, series.skipping
    )


def skipped_by(subject: Subject) -> BoolArray:
    """The attributes that a subject skips, by argument or by its own rate."""
    if subject.skipped is not None:
        return subject.skipped
    # What it would use itself, and has no other way to tell.
    marks: BoolArray = subject.index._marks(None)
    return marks if len(marks) else np.zeros(subject.index.dimensions, bool)


def skipping_figures(subject: Subject, setting: Setting, *, count: bool) -> dict[str, Any]:
    """What is skipped; with `count` also what that leads to, over all events.

    The measured rate is all false matches divided by all true ones. The expected improvement is
    REIN's, by the calibrated time model.
    """
    skipped = skipped_by(subject)
    figures: dict[str, Any] = {
        "rate": subject.rate,
        "attributes": int(skipped.sum()),
        "predicates": int(setting.frequency[skipped].sum()),
    }
    if not count:
        return figures
    true, found = int(setting.counts.sum()), int(subject.count(setting.points).sum())
    figures |= {"true": true, "false": found - true, "events": len(setting.points)}
    figures["measured"] = (found - true) / true if true else None
    buckets = subject.index.chosen["cells"]
    if subject.skipped is None:  # only of REIN is there a time model
        model = calibrated(setting.boxes.count)
        figures["improvement"] = model.improvement(
            setting.frequency, setting.boxes.count, buckets, skipped
        )
        figures["model"] = vars(model)
    return figures
