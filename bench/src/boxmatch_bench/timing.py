"""How long calls take, within a given time."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any, TypeVar

import numpy as np

from boxmatch.arrays import Float64Array, Int64Array

Item = TypeVar("Item")
Clock = Callable[[], int]
"""Tells nanoseconds: those of the day, or with `thread_time_ns` those that this thread worked."""
Stage = Callable[[str], None]
"""Reports what is measured next."""
Figures = dict[str, Any]

LISTED = 20_000_000
"""Most matches to list in one call: memory, not time, is the limit."""

_REPEATS = 5
_BINS_PER_DOUBLING = 4


@dataclass(frozen=True)
class Effort:
    """Seconds to search one index at one setting; slower indexes match fewer events."""

    seconds: float = 1.0

    @classmethod
    def at_scale(cls, scale: float) -> Effort:
        """Less for smaller workloads, whose figures need less time to settle."""
        return cls(cls.seconds * min(1.0, max(0.05, scale**0.75)))


@dataclass(frozen=True)
class Timing:
    """Microseconds per event, and on how many events."""

    microseconds: float
    events: int


def spread(nanoseconds: Int64Array) -> dict[str, float]:
    """Microseconds of calls that were timed one by one."""
    microseconds = nanoseconds / 1000
    return {
        "mean": float(microseconds.mean()),
        "p50": float(np.median(microseconds)),
        "min": float(microseconds.min()),
        "max": float(microseconds.max()),
        "std": float(microseconds.std()),
    }


def spread_ms(seconds: Float64Array) -> dict[str, float] | None:
    """Milliseconds of what took so many seconds each; None if there is nothing."""
    if not len(seconds):
        return None
    milliseconds = 1e3 * seconds
    shares = {"p50": 50, "p90": 90, "p99": 99, "p99.9": 99.9, "max": 100}
    found = np.percentile(milliseconds, list(shares.values())).tolist()
    spread = {"mean": float(milliseconds.mean()), "std": float(milliseconds.std())}
    return spread | dict(zip(shares, found, strict=True))


def best_time(
    run: Callable[[int], object], most: int, seconds: float, clock: Clock = perf_counter_ns
) -> Timing:
    """The best of a few calls of `run(events)`, on as many events as `seconds` allow.

    One event may already take long, so the sample starts there and grows.
    """
    run(1)
    sample, spent = 1, 0.0
    while True:
        last = took(run, sample, clock=clock)
        spent += last
        if sample == most or last > seconds / 4:
            break
        sample = min(most, max(sample + 1, int(sample * min(0.5 * seconds / last, 16.0))))
    best = last
    for _ in range(_REPEATS - 1):
        if spent + last > seconds:
            break
        last = took(run, sample, clock=clock)
        spent += last
        best = min(best, last)
    return Timing(1e6 * best / sample, sample)


def took(call: Callable[..., object], *arguments: object, clock: Clock = perf_counter_ns) -> float:
    """Seconds of one call."""
    began = clock()
    call(*arguments)
    return 1e-9 * (clock() - began)


def time_each(
    call: Callable[[Item], Sized],
    items: Sequence[Item],
    seconds: float,
    *,
    warm: int = 5,
    rounds: int = 1,
    clock: Clock = perf_counter_ns,
) -> tuple[Int64Array, Int64Array]:
    """Calls one after the other until the time is over, at least three of them.

    Returns the nanoseconds that each took, and the length of what it returned. If there is time
    left for more `rounds`, each call counts with the best of them.
    """
    deadline = perf_counter() + seconds
    for item in items[:warm]:
        call(item)
        if perf_counter() > deadline - seconds / 2:
            break
    taken, found = [], []
    for item in items:
        began = clock()
        answer = call(item)
        taken.append(clock() - began)
        found.append(len(answer))
        if perf_counter() > deadline and len(taken) >= 3:
            break
    for _ in range(rounds - 1):
        for place, item in enumerate(items):
            if perf_counter() > deadline:
                break
            began = clock()
            call(item)
            taken[place] = min(taken[place], clock() - began)
    return np.array(taken, np.int64), np.array(found, np.int64)


def by_matches(nanoseconds: Int64Array, matches: Int64Array) -> list[dict[str, float]]:
    """Mean time of the events with about as many matches, four bins to each doubling."""
    bins = np.floor(_BINS_PER_DOUBLING * np.log2(np.maximum(matches, 1))).astype(np.int64)
    bins[matches == 0] = -1
    profile = []
    for number in np.unique(bins):
        mine = bins == number
        profile.append(
            {
                "matches": float(matches[mine].mean()),
                "events": int(mine.sum()),
                "microseconds": float(nanoseconds[mine].mean()) / 1000,
            }
        )
    return profile
