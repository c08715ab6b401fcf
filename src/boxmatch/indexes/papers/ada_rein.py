"""`ada-rein`: `rein` that leaves out the rarest attributes, as far as a rate of errors allows.

After "Adjusting Matching Algorithm to Adapt to Workload Fluctuations in Content-based
Publish/Subscribe Systems" (Qian et al., INFOCOM 2019). Predicate skipping itself is in
`boxmatch.adaptive`; this index adds a rate of its own, for whoever does not name the attributes to
skip with each call. At rate 0 it is `rein`. Nothing is rebuilt when the rate changes: a caller may
pass other attributes with every event.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from boxmatch.adaptive.excess import Excess, rarest_first
from boxmatch.adaptive.selectivity import estimate_by_attribute, plausible
from boxmatch.adaptive.skipping import SkipPlan, is_rate
from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import IndexConfigError
from boxmatch.indexes.papers.rein import ReinIndex
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes


class AdaReinIndex(ReinIndex):
    """Bucket lists of which the rarest attributes are not looked at.

    `rate`: false matches to expect for each true one (F in the paper). `selectivity`: how often
    an event satisfies a predicate (w); estimated from the boxes if not given. For `cells` see
    `rein`.
    """

    name = "ada-rein"
    parameters = {"cells": 1_000, "rate": 0.0, "selectivity": None}

    _plan: SkipPlan | None = None

    def __init__(self, dimensions: int, **parameters: Any) -> None:
        super().__init__(dimensions, **parameters)
        rate, selectivity = self.chosen["rate"], self.chosen["selectivity"]
        if not is_rate(rate):
            raise IndexConfigError(
                f"index 'ada-rein': rate must be from 0 up to, but not, 1, not {rate!r}"
            )
        if selectivity is not None and not (_is_number(selectivity) and 0 < selectivity <= 1):
            raise IndexConfigError(
                f"index 'ada-rein': selectivity must be above 0, at most 1, not {selectivity!r}"
            )

    @property
    def own_rate(self) -> float:
        return float(self.chosen["rate"])

    def build(self, boxes: Boxes) -> None:
        super().build(boxes)
        self._plan = None

    def add(self, boxes: Boxes) -> Int64Array:
        self._plan = None
        return super().add(boxes)

    def remove(self, positions: Int64Array) -> None:
        super().remove(positions)
        self._plan = None

    def _marks(self, skipped: BoolArray | None) -> BoolArray:
        if skipped is None and self.own_rate > 0:
            if self._plan is None:
                self._plan = self._make_plan()
            return self._plan.skipped(self.own_rate)
        return super()._marks(skipped)

    def _make_plan(self) -> SkipPlan:
        boxes = self.boxes
        living = np.flatnonzero(self._is_alive(np.arange(boxes.count)))
        if len(living) < boxes.count:
            boxes = boxes.take(living)
        frequency = count_attributes(boxes.attribute, boxes.dimensions)
        known = self.chosen["selectivity"]
        if known is None:
            selectivity = plausible(estimate_by_attribute(boxes))
        else:
            selectivity = np.full(boxes.dimensions, known)
        excess = Excess.of(boxes, selectivity, rarest_first(frequency))
        return SkipPlan.of_excess(frequency, excess)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
