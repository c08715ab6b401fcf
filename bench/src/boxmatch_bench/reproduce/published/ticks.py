"""Ticks of a stock exchange over a day, as in Ada-REIN's Figure 1b: a model, not a record.

The paper's ticks cannot be had. What it says of them: minute by minute, between 9:30 and 11:30 and
between 13:00 and 15:00, rates fluctuate by up to 63.2 %, which we read as (highest - lowest) /
lowest. Each session begins and ends busily, as exchanges do;
around that course rates go as chance has it, each related to the one before.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from boxmatch.arrays import Float64Array

MINUTES: Final = 240
BY_MINUTE: Final = 0.632
_MEMORY: Final = 0.7
_NOISE: Final = 0.4
"""Of chance in the course of a session."""


def ticks_by_minute(seed: int) -> Float64Array:
    """Rates of the minutes of a day, one on average."""
    at = np.linspace(-1.0, 1.0, MINUTES // 2)
    course = np.tile(at**2, 2)
    return _stretched(course + _NOISE * _related(MINUTES, seed), BY_MINUTE)


def fluctuation(rates: Float64Array) -> float:
    """By how much the highest rate is above the lowest, as a share of that."""
    return float(rates.max() / rates.min() - 1)


def _related(count: int, seed: int) -> Float64Array:
    drawn = np.random.default_rng([seed, count]).normal(size=count)
    for place in range(1, count):
        drawn[place] = _MEMORY * drawn[place - 1] + (1 - _MEMORY**2) ** 0.5 * drawn[place]
    return drawn


def _stretched(shape: Float64Array, wanted: float) -> Float64Array:
    rates = 1 + wanted * (shape - shape.min()) / (shape.max() - shape.min())
    found: Float64Array = rates / rates.mean()
    return found
