"""Ada-REIN and PADA to the letter: Theorem 1 with Algorithm 1, and Algorithm 3.

The package skips by a bound that holds (`boxmatch.adaptive.skipping` says why Theorem 1 does not)
and adjusts in steps. These are here to tell an idea from its implementation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from boxmatch.adaptive.excess import rarest_first
from boxmatch.adaptive.skipping import SkipPlan
from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import IndexConfigError
from boxmatch.indexes.papers.ada_rein import AdaReinIndex
from boxmatch.model.box_kernels import count_attributes


def skipped_as_published(
    frequency: Int64Array, boxes: int, selectivity: float, rate: float
) -> BoolArray:
    """The attributes that Algorithm 1 marks.

    Rarest first, until more than n · -log_w(F + 1) predicates would be skipped (Theorem 1).
    """
    marks = np.zeros(len(frequency), bool)
    if rate > 0 and boxes > 0:
        order = rarest_first(frequency)
        most = boxes * np.log1p(rate) / -np.log(selectivity)
        marks[order[np.cumsum(frequency[order]) <= most]] = True
    return marks


@dataclass(frozen=True, eq=False)
class _Plan(SkipPlan):
    """Theorem 1 in the place of a bound; all of a rate is used."""

    frequency: Int64Array
    boxes: int
    selectivity: float

    def skipped(self, rate: float) -> BoolArray:
        return skipped_as_published(self.frequency, self.boxes, self.selectivity, rate)


class PublishedAdaReinIndex(AdaReinIndex):
    """Ada-REIN as published. `selectivity` (w) has to be given: the paper presumes it known."""

    name = "ada-rein-published"
    parameters = {"cells": 1_000, "rate": 0.0, "selectivity": 0.5}  # noqa: RUF012

    def _make_plan(self) -> SkipPlan:
        living = self._is_alive(np.arange(self.boxes.count))
        predicates = np.repeat(living, np.diff(self.boxes.start))
        frequency = count_attributes(self.boxes.attribute[predicates], self.dimensions)
        selectivity = self.chosen["selectivity"]
        if selectivity is None or selectivity >= 1:
            raise IndexConfigError(f"index {self.name!r}: selectivity must be given, and below 1")
        none = np.zeros(0)
        return _Plan(none.astype(np.int64), none, frequency, int(living.sum()), selectivity)


@dataclass
class PublishedAdjuster:
    """PADA, Algorithm 3. Where nothing waits longer than the event before, the rate stays."""

    threshold: float = 0.005
    step: float = 0.0001
    maximum: float = 0.001
    _rate: float = field(default=0.0, init=False)
    _last: float = field(default=0.0, init=False)

    def decide(self, waited: float) -> float:
        """The rate to match an event at that has waited so many seconds."""
        if waited >= self.threshold:
            if waited >= self._last:
                self._rate += self.step
            self._rate = min(self._rate, self.maximum)
        else:
            if waited < self._last:
                self._rate -= self.step
            self._rate = max(self._rate, 0.0)
        self._last = waited
        return self._rate
