"""How far repetitions can be trusted: ratios with the interval that 95 % of such would hold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Final, NamedTuple

_T: Final = {
    **{2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306},
    **{10: 2.262, 12: 2.201, 15: 2.145, 20: 2.093},
}
"""Of Student's distribution, for 95 %, by the number of repetitions."""


class Interval(NamedTuple):
    """A mean between the ends of its interval."""

    low: float
    mean: float
    high: float

    @property
    def apart(self) -> bool:
        """Whether all of it lies on one side of 1."""
        return not self.low <= 1 <= self.high


def interval(ratios: Sequence[float]) -> Interval:
    """The geometric mean of ratios. One alone says nothing: its interval holds every ratio."""
    logs = [math.log(ratio) for ratio in ratios]
    mean = fmean(logs)
    if len(logs) < 2:
        return Interval(0.0, math.exp(mean), math.inf)
    # For numbers that are not listed, that of the next smaller one, which is larger.
    known = max(number for number in _T if number <= len(logs))
    reach = _T[known] * stdev(logs) / len(logs) ** 0.5
    return Interval(math.exp(mean - reach), math.exp(mean), math.exp(mean + reach))
