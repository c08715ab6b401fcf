"""What filters compile to: boxes, and on the way there sets of keys on one axis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.expressions.nodes import Node
from boxmatch.model.expressions.rendering import render as render_node
from boxmatch.model.filters.names import quote_name
from boxmatch.model.filters.scope import DerivedAxis

Bound = int | tuple[str, int]
"""One end of a closed interval.

A key for every type but string. For a string attribute `(text, offset)`: the place of `text`
itself (0), just above it (+1, as the low end of `> text`) or just below it (-1, as the high end
of `< text`); its unbounded ends are the keys `ABSENT`, `FIRST` and `LAST`.
"""

Box = tuple[tuple[int, Bound, Bound], ...]
"""Predicates `(position of an axis, low, high)`, ascending by position, each axis once.

An axis on which any key will do, or none, has no predicate: the empty box holds every event.
"""


Cost = Literal["box", "axis", "residual"]

_SHOWN: Final = 200
"""Characters of a residual in a warning."""


class CompiledFilter(NamedTuple):
    """What a filter means: a union of boxes, and conditions that no box can express.

    An event matches if it lies in a box and all of the `residual` is true. The boxes are sorted,
    and none is inside another one.
    """

    boxes: tuple[Box, ...]
    disjoint: bool
    """No two boxes overlap, so an event lies in one box at most."""
    axes: tuple[DerivedAxis, ...] = ()
    """The axes at the positions after those of the schema."""
    residual: tuple[Node, ...] = ()

    @property
    def never(self) -> bool:
        """No event can match."""
        return not self.boxes

    @property
    def unbounded(self) -> bool:
        """Every event must be checked with the residual, since a box holds all of them."""
        return bool(self.residual) and () in self.boxes

    @property
    def cost(self) -> Cost:
        """What is needed most for it: `box`, conditions on attributes; `axis`, values of
        expressions; `residual`, conditions that are checked event by event.
        """
        if self.residual and not self.never:
            return "residual"
        return "axis" if self.axes else "box"

    @property
    def checked(self) -> list[str]:
        """The residual as text, condition by condition."""
        return [render_node(node, quote_name) for node in self.residual]

    @property
    def warning(self) -> str | None:
        """What there is to say of a filter that matches nothing, or is expensive."""
        if self.never:
            return "no event can match the filter"
        if not self.unbounded:
            return None
        text = " AND ".join(self.checked)
        shown = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
        return f"no box narrows the filter down, so every event is checked with {shown}"


NEVER = CompiledFilter((), True)

KeyInterval = tuple[int, int]
IntervalSet = tuple[KeyInterval, ...]
"""Sorted closed intervals that neither overlap nor touch."""

NOTHING: Final[IntervalSet] = ()
NULL: Final[IntervalSet] = ((ABSENT, ABSENT),)
PRESENT: Final[IntervalSet] = ((FIRST, LAST),)
EVERYTHING: Final[IntervalSet] = ((ABSENT, LAST),)


def coalesce(intervals: Iterable[KeyInterval]) -> IntervalSet:
    """The union of intervals in any order; those with low above high are empty."""
    merged: list[KeyInterval] = []
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


def complement(keys: IntervalSet, within: KeyInterval = EVERYTHING[0]) -> IntervalSet:
    """What `keys` leave out of the interval `within`, in which they lie."""
    gaps: list[KeyInterval] = []
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
