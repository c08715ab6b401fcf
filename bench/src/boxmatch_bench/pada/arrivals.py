"""When events arrive at a broker whose load fluctuates.

The Ada-REIN paper scales the ticks of a morning, which we do not have, and gives only their average
and how far they fluctuate. So the rates of arrivals are drawn: one for each second, related to the
one before, then stretched so that the highest is as many times the lowest as in the paper.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from boxmatch.arrays import Float64Array

_MEMORY: Final = 0.5
"""How much a second's rate has of the one before: the correlation of neighbours."""


def shape(seconds: int, fluctuation: float, seed: int) -> Float64Array:
    """Rates second by second: one on average, the highest `fluctuation` times the lowest."""
    if seconds < 1 or fluctuation < 1:
        raise ValueError("there must be a second, and the highest rate is not below the lowest")
    random = np.random.default_rng([seed, seconds])
    drawn = random.normal(size=seconds)
    for second in range(1, seconds):
        fresh = (1 - _MEMORY**2) ** 0.5 * drawn[second]
        drawn[second] = _MEMORY * drawn[second - 1] + fresh
    height = drawn - drawn.min()
    rates = 1 + (fluctuation - 1) * height / (height.max() or 1.0)
    stretched: Float64Array = rates / rates.mean()
    return stretched


def moments(rates: Float64Array, seed: int) -> Float64Array:
    """Seconds from the start at which events arrive, so many in each second, in order.

    Within a second they are where chance puts them, as with independent publishers.
    """
    random = np.random.default_rng([seed, len(rates), 1])
    counts = np.rint(rates).astype(np.int64)
    parts = [second + np.sort(random.random(count)) for second, count in enumerate(counts)]
    return np.concatenate(parts)
