"""A workload of regions made real: as spaces are given it, and as NumPy searches it."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.model.boxes import Boxes
from boxmatch.spaces.dimensions import RegionSpec
from boxmatch.spaces.spaces import Spaces
from boxmatch.spaces.transitions import ENTER, KINDS, LEAVE, Transitions
from boxmatch.workloads import RegionWorkload
from boxmatch.workloads.ranges import intervals_of
from boxmatch.workloads.regions import UpdateKind
from boxmatch_bench.answers import MismatchError

_MOVING = 1_000
"""Publications that are updated in turn: more than a processor's nearest cache holds."""

_ARRIVING = 1_000
_FIRST, _LAST = -1, 2**40  # beyond the values on both sides


class Step(NamedTuple):
    """A publication comes, or goes from one place to another.

    Places are a row of lows and a row of highs, with all dimensions.
    """

    publication: int
    old: Int64Array | None
    new: Int64Array
    spec: RegionSpec
    """The new region, as spaces are told of it."""


class Regions:
    """Publications and subscriptions of one space with so many integer dimensions."""

    def __init__(self, workload: RegionWorkload) -> None:
        self.workload = workload
        self.names = workload.names
        self.schemas = {"space": workload.schema}
        self._subscriptions = workload.subscription_boxes()
        self.columns = Columns(self._subscriptions, workload.subscription_constraints)

    def store(self, spaces: Spaces) -> None:
        """Put everything into empty spaces, telling nobody."""
        publications, subscriptions = (
            dict(enumerate(intervals_of(self.names, boxes)))
            for boxes in (self.workload.publication_boxes(), self._subscriptions)
        )
        spaces.load(publications=publications, subscriptions=subscriptions)
        gc.collect()  # or the next operations would pay for what was made to store all

    def step(
        self, publication: int, dimensions: Int64Array, old: Int64Array | None, new: Int64Array
    ) -> Step:
        """From old values of the constrained dimensions, if there are any, to new ones."""
        names = (self.names[d] for d in dimensions.tolist())
        return Step(
            publication,
            None if old is None else self._place(dimensions, old),
            self._place(dimensions, new),
            dict(zip(names, new.tolist(), strict=True)),
        )

    def _place(self, dimensions: Int64Array, values: Int64Array) -> Int64Array:
        place = np.empty((2, self.workload.dimensions), np.int64)
        place[0], place[1] = _FIRST, _LAST
        place[:, dimensions] = values
        return place

    def points(self, steps: list[Step]) -> npt.NDArray[np.float64]:
        """Where steps go, a row each; NaN in the dimensions that a publication leaves free."""
        places = np.array([step.new[0] for step in steps])
        return np.where(places == _FIRST, np.nan, places)

    def arrivals(self) -> Iterator[Step]:
        """Publications that come after the stored ones."""
        constraints = self.workload.publication_constraints
        for first in count(self.workload.publications, _ARRIVING):
            boxes = self.workload.publication_boxes(first, first + _ARRIVING)
            dimensions = boxes.attribute.astype(np.int64).reshape(-1, constraints)
            values = boxes.low.reshape(-1, constraints)
            for row in range(_ARRIVING):
                yield self.step(first + row, dimensions[row], None, values[row])

    def subscribing(self) -> Iterator[Step]:
        """Subscriptions that come after the stored ones, with their numbers."""
        for first in count(self.workload.subscriptions, _ARRIVING):
            boxes = self.workload.subscription_boxes(first, first + _ARRIVING)
            for row, spec in enumerate(intervals_of(self.names, boxes)):
                place = self._place(np.zeros(0, np.int64), np.zeros(0, np.int64))
                for dimension, low, high in boxes.row(row):
                    place[:, dimension] = low, high
                yield Step(first + row, None, place, spec)


class Walk:
    """Stored publications that move, and where each one is. Steps are taken as they are made."""

    def __init__(self, regions: Regions, moving: int = _MOVING) -> None:
        workload = regions.workload
        self._regions = regions
        self.rows = min(moving, workload.publications)
        shape = self.rows, workload.publication_constraints
        boxes = workload.publication_boxes(0, self.rows)
        self._dimensions = boxes.attribute.astype(np.int64).reshape(shape)
        self._at = boxes.low.reshape(shape).copy()
        self._drawn = count()
        """Rounds of random values, each used once: who drew its own place would not move."""

    def steps(self, kind: UpdateKind) -> Iterator[Step]:
        """All publications in turn, again and again, from wherever they are."""
        highest = self._regions.workload.values - 1
        while True:
            drawn = self._draw()
            for row in range(self.rows):
                values = drawn[row]
                if kind == "incremental":
                    here = self._at[row]
                    up = np.where((here == 0) | (here == highest), here == 0, values % 2 == 1)
                    values = here + np.where(up, 1, -1)
                yield self._to(row, values)

    def mixed_steps(self) -> Iterator[Step]:
        """Steps from small to large: of one constraint up to all, to the next value or to any."""
        workload = self._regions.workload
        every = workload.publication_constraints
        sizes = [size for size in (1, 2, 4, 8, 16) if size < every] + [every]
        while True:
            drawn = self._draw()
            for row in range(self.rows):
                changed = slice(0, sizes[row % len(sizes)])
                values = self._at[row].copy()
                if row // len(sizes) % 2:
                    values[changed] += np.where(values[changed] < workload.values // 2, 1, -1)
                else:
                    values[changed] = drawn[row, changed]
                yield self._to(row, values)

    def there_and_back(self) -> list[tuple[Step, Step]]:
        """For each publication an incremental step, and the one that undoes it."""
        (values,) = self._regions.workload.updates(0, self.rows, kind="incremental")
        begin = self._at.copy()
        return [(self._to(row, values[row]), self._to(row, begin[row])) for row in range(self.rows)]

    def _draw(self) -> Int64Array:
        number = next(self._drawn)
        drawn: Int64Array
        (drawn,) = self._regions.workload.updates(0, self.rows, kind="random", first=number)
        return drawn

    def _to(self, row: int, values: Int64Array) -> Step:
        old, self._at[row] = self._at[row].copy(), values
        return self._regions.step(row, self._dimensions[row], old, values)


class Columns:
    """Brute force in NumPy: each constraint of all subscriptions is compared, in whole columns."""

    def __init__(self, boxes: Boxes, constraints: int) -> None:
        def column(values: npt.NDArray[np.integer]) -> list[Int64Array]:
            return list(np.ascontiguousarray(values.reshape(-1, constraints).T, np.int64))

        self._count = boxes.count
        self._constraints = list(
            zip(column(boxes.attribute), column(boxes.low), column(boxes.high), strict=True)
        )

    def told(self, step: Step) -> Transitions:
        """What a step has to tell."""
        after = self._matching(step.new)
        if step.old is None:
            entered, gone = np.flatnonzero(after), np.empty(0, np.int64)
        else:
            before = self._matching(step.old)
            entered, gone = np.flatnonzero(after & ~before), np.flatnonzero(before & ~after)
        total = len(entered) + len(gone)
        return Transitions(
            0,
            np.repeat(np.array([ENTER, LEAVE], np.uint8), [len(entered), len(gone)]),
            np.full(total, step.publication),
            np.concatenate([entered, gone]),
        )

    def _matching(self, place: Int64Array) -> npt.NDArray[np.bool_]:
        lowest, highest = place
        mask = np.ones(self._count, bool)
        for dimension, low, high in self._constraints:
            mask &= (low <= highest[dimension]) & (lowest[dimension] <= high)
        return mask


class PublicationColumns:
    """Brute force in NumPy over publications, for subscriptions that come."""

    def __init__(self, workload: RegionWorkload) -> None:
        boxes, shape = workload.publication_boxes(), (-1, workload.publication_constraints)
        self._dimension = boxes.attribute.astype(np.int64).reshape(shape)
        self._low, self._high = boxes.low.reshape(shape), boxes.high.reshape(shape)

    def check(self, step: Step, told: Transitions) -> None:
        """Raise `MismatchError` unless exactly those publications enter that overlap."""
        lowest, highest = step.new
        overlap = (self._low <= highest[self._dimension]) & (lowest[self._dimension] <= self._high)
        wanted = np.flatnonzero(overlap.all(axis=1))
        if not np.array_equal(np.sort(told.publication), wanted) or (told.code != ENTER).any():
            raise MismatchError(
                f"subscription {step.publication} is told of {len(told)} publications, and "
                f"{len(wanted)} overlap it"
            )


def of_publication(told: Transitions, publication: int) -> Transitions:
    """What is told of one publication."""
    here = told.publication == publication
    return Transitions(told.first, told.code[here], told.publication[here], told.subscription[here])


def check(step: Step, told: Transitions, columns: Columns) -> None:
    """Raise `MismatchError` unless exactly those are told that brute force finds."""
    truth = columns.told(step)
    if any(told.publication != step.publication):
        raise MismatchError(f"publication {step.publication} is told of under another id")
    for code, kind in enumerate(KINDS):
        ours = np.sort(told.subscription[told.code == code])
        theirs = truth.subscription[truth.code == code]  # ascending
        if not np.array_equal(ours, theirs):
            raise MismatchError(
                f"publication {step.publication}: {len(ours)} subscriptions are told {kind!r}, "
                f"{len(theirs)} should be; {len(np.setdiff1d(ours, theirs))} of them are wrong "
                f"and {len(np.setdiff1d(theirs, ours))} missing"
            )
