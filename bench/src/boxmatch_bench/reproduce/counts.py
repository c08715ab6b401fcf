"""What the subject-space paper's algorithms would look at: its Tables 1 and 2, counted."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Any

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.workloads.regions import UpdateKind
from boxmatch_bench.reproduce.regions import Regions, Step, Walk

KINDS: tuple[UpdateKind, ...] = ("random", "incremental")


def counts_of(regions: Regions, operations: int) -> dict[str, Any]:
    """Means over so many operations of each kind, and Table 2 for the same subscriptions."""
    ends = _Ends(regions)
    arriving = list(islice(regions.arrivals(), operations))
    found: dict[str, Any] = {"adding": _mean(ends.adding(step) for step in arriving)}
    for kind in KINDS:
        steps = islice(Walk(regions).steps(kind), operations)
        found[kind] = _mean(ends.updating(step) for step in steps)
    workload = regions.workload
    held, predicates = workload.subscriptions, workload.subscription_constraints
    satisfied = np.mean([ends.satisfied(step) for step in arriving])
    found["table"] = {
        "naïve": float(held * predicates),
        "counting": float(satisfied * held),
        "Gough": float(workload.dimensions * np.log2(held)),
        "Gryphon, worst case": float(held * (workload.dimensions + 1)),
    }
    return found


def _mean(counts: Any) -> dict[str, float]:
    traversed, candidates = zip(*counts, strict=True)
    return {"traversed": float(np.mean(traversed)), "candidates": float(np.mean(candidates))}


class _Ends:
    """The ends of subscriptions on each dimension in order, as in the paper's skip lists."""

    def __init__(self, regions: Regions) -> None:
        boxes = regions.workload.subscription_boxes()
        self._count = boxes.count
        owner = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
        self._low = _by_dimension(boxes.dimensions, boxes.attribute, boxes.low, owner)
        self._high = _by_dimension(boxes.dimensions, boxes.attribute, boxes.high, owner)

    def adding(self, step: Step) -> tuple[int, int]:
        """Ends that Figure 7 collects, and who is left."""
        missed = np.zeros(self._count, bool)
        traversed = 0
        for dimension, value in _values(step.new):
            low, lows = self._low[dimension]
            high, highs = self._high[dimension]
            above = np.searchsorted(low, value, "right")
            below = np.searchsorted(high, value, "left")
            traversed += int(len(low) - above + below)
            missed[lows[above:]] = True
            missed[highs[:below]] = True
        return int(traversed), int(self._count - missed.sum())

    def updating(self, step: Step) -> tuple[int, int]:
        """Ends between old and new values, and who has them (Figure 9)."""
        if step.old is None:
            raise ValueError("an update has an old place")
        crossed = np.zeros(self._count, bool)
        traversed = 0
        old = dict(_values(step.old))
        for dimension, value in _values(step.new):
            before = old[dimension]
            least, most = min(before, value), max(before, value)
            # Upwards, who begins in between is newly matched; downwards, who ends there.
            keys, owners = (self._low if value > before else self._high)[dimension]
            first, last = np.searchsorted(
                keys, [least, most], "right" if value > before else "left"
            ).tolist()
            traversed += int(last - first)
            crossed[owners[first:last]] = True
        return int(traversed), int(crossed.sum())

    def satisfied(self, step: Step) -> int:
        """Predicates that hold."""
        held = 0
        for dimension, value in _values(step.new):
            begun = np.searchsorted(self._low[dimension][0], value, "right")
            ended = np.searchsorted(self._high[dimension][0], value, "left")
            held += int(begun - ended)
        return int(held)


def _by_dimension(
    dimensions: int, attribute: Any, key: Int64Array, owner: Int64Array
) -> list[tuple[Int64Array, Int64Array]]:
    order = np.lexsort((key, attribute))
    bounds = np.searchsorted(attribute[order], np.arange(dimensions + 1))
    return [
        (key[order[first:last]], owner[order[first:last]])
        for first, last in pairwise(bounds.tolist())
    ]


def _values(place: Int64Array) -> list[tuple[int, int]]:
    """The constrained dimensions of a publication, each with its value."""
    constrained = np.flatnonzero(place[0] == place[1])
    return list(zip(constrained.tolist(), place[0, constrained].tolist(), strict=True))
