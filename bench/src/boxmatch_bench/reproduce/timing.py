"""How long a call takes, within a given time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
import numpy.typing as npt

_REPEATS = 5


@dataclass(frozen=True)
class Effort:
    """How long one index may be asked at one setting; slower ones answer fewer events."""

    seconds: float = 2.0

    @classmethod
    def at_scale(cls, scale: float) -> Effort:
        """Less for smaller workloads, whose figures need less time to settle."""
        return cls(cls.seconds * min(1.0, max(0.05, scale**0.75)))


@dataclass(frozen=True)
class Timing:
    """Microseconds per event, and on how many events."""

    microseconds: float
    events: int


def spread(nanoseconds: npt.NDArray[np.int64]) -> dict[str, float]:
    """Microseconds of calls that were timed one by one."""
    microseconds = nanoseconds / 1000
    return {
        "mean": float(microseconds.mean()),
        "p50": float(np.median(microseconds)),
        "min": float(microseconds.min()),
        "max": float(microseconds.max()),
        "std": float(microseconds.std()),
    }


def best_time(run: Callable[[int], object], most: int, seconds: float) -> Timing:
    """The best of a few calls of `run(events)`, on as many events as `seconds` allow.

    One event may already take long, so the sample starts there and grows.
    """
    run(1)
    sample, spent = 1, 0.0
    while True:
        took = _took(run, sample)
        spent += took
        if sample == most or took > seconds / 4:
            break
        sample = min(most, max(sample + 1, int(sample * min(0.5 * seconds / took, 16.0))))
    best = took
    for _ in range(_REPEATS - 1):
        if spent + took > seconds:
            break
        took = _took(run, sample)
        spent += took
        best = min(best, took)
    return Timing(1e6 * best / sample, sample)


def _took(run: Callable[[int], object], events: int) -> float:
    began = perf_counter()
    run(events)
    return perf_counter() - began
