"""Sets of keys on one axis: sorted closed intervals that neither overlap nor touch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from boxmatch.model.axis import ABSENT, FIRST, LAST

Interval = tuple[int, int]
IntervalSet = tuple[Interval, ...]

NOTHING: Final[IntervalSet] = ()
NULL: Final[IntervalSet] = ((ABSENT, ABSENT),)
PRESENT: Final[IntervalSet] = ((FIRST, LAST),)
EVERYTHING: Final[IntervalSet] = ((ABSENT, LAST),)


def coalesce(intervals: Iterable[Interval]) -> IntervalSet:
    """The union of intervals in any order; those with low above high are empty."""
    merged: list[Interval] = []
    for low, high in sorted(intervals):
        if low > high:
            continue
        if merged and low <= merged[-1][1] + 1:
            if high > merged[-1][1]:
                merged[-1] = (merged[-1][0], high)
        else:
            merged.append((low, high))
    return tuple(merged)


def union(sets: Iterable[IntervalSet]) -> IntervalSet:
    return coalesce(interval for each in sets for interval in each)


def complement(keys: IntervalSet, within: Interval = EVERYTHING[0]) -> IntervalSet:
    """What `keys` leave out of the interval `within`, in which they lie."""
    gaps: list[Interval] = []
    start, end = within
    for low, high in keys:
        if start < low:
            gaps.append((start, low - 1))
        start = high + 1
    if start <= end:
        gaps.append((start, end))
    return tuple(gaps)


def intersection(sets: list[IntervalSet]) -> IntervalSet:
    """What all sets share."""
    if len(sets) == 1:
        return sets[0]
    if len(sets) == 2 and len(sets[0]) == 1 and len(sets[1]) == 1:
        (low, high), (other_low, other_high) = sets[0][0], sets[1][0]
        low, high = max(low, other_low), min(high, other_high)
        return ((low, high),) if low <= high else NOTHING
    # Through the complements, one sort serves any number of sets.
    return complement(union(complement(keys) for keys in sets))


def contains(outer: IntervalSet, inner: IntervalSet) -> bool:
    """Whether every key of `inner` is in `outer`."""
    place = 0
    for low, high in inner:
        while place < len(outer) and outer[place][1] < low:
            place += 1
        if place == len(outer) or outer[place][0] > low or outer[place][1] < high:
            return False
    return True
