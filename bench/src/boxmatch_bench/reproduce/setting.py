"""One workload made real: its boxes, its events, and the true answers to some of them."""

from __future__ import annotations

from dataclasses import asdict, is_dataclass
from functools import cached_property
from typing import Any

import numpy as np

from boxmatch.adaptive.selectivity import measure_selectivity
from boxmatch.arrays import Int64Array
from boxmatch.indexes.registry import index_class
from boxmatch.indexes.scan import ScanIndex
from boxmatch.model.boxes import Boxes
from boxmatch_bench.answers import MismatchError, split
from boxmatch_bench.reproduce.experiment import EventWorkload, Workload

ARRIVALS = 6_000
"""Subscriptions that come after the others, for measuring updates."""

_CHECKED = 10


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


def parameters_of(workload: Workload) -> dict[str, Any]:
    """All parameters of a workload, and its kind, as they go into a row."""
    if not is_dataclass(workload) or isinstance(workload, type):
        raise TypeError(f"{type(workload).__name__} is not a dataclass")
    values = {
        name: value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
        for name, value in asdict(workload).items()
    }
    return {"kind": type(workload).__name__, **values}


def answers_of_scan(boxes: Boxes, points: Int64Array) -> list[Int64Array]:
    """Matching rows, ascending, of each point."""
    scan = ScanIndex(boxes.dimensions)
    scan.build(boxes)
    counts, positions = scan.match(points)
    return split(counts, positions)
