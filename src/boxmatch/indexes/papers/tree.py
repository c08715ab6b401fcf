"""`tree`: one search tree over the predicates of the boxes, in the order of the attributes.

After "Matching Events in a Content-based Subscription System" (Aguilera et al., PODC 1999), which
the RAPIDMatch paper calls TreeMatch. Level i of the tree is about attribute i; a node has a branch
for each value that is asked for, and one (`*`) for boxes that leave the attribute open. A search
goes down every branch that the event satisfies and finds the boxes at the leaves. What boxes have
in common at the beginning is checked once for all of them, and a branch that fails saves
everything below it.

Levels where only `*` goes on are left out here, so that a tree is as deep as boxes have
predicates.

The tree takes any intervals, but gains by them only as far as boxes ask for the same ones. With
values that hardly ever repeat, each box is a branch of its own at the root, and to search is to
try their first predicates one after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import Query
from boxmatch.indexes.papers.parts.edges import Forest
from boxmatch.indexes.papers.parts.forest import MOST_PLACES, Paths, empty_forest, plant, uproot
from boxmatch.indexes.papers.parts.predicates import NumberedPredicates, no_predicates, number
from boxmatch.indexes.papers.parts.walk import walk
from boxmatch.indexes.updatable import UpdatableIndex
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes, longer


class TreeState(NamedTuple):
    """Distinct predicates, each box as a row of their numbers, and the trees over the rows."""

    predicates: NumberedPredicates
    rows: Int32Array
    forest: Forest


class TreeIndex(UpdatableIndex):
    """A search tree that boxes with equal beginnings share."""

    name = "tree"
    _structure = TreeState

    _laps = 1
    """How often a box is written out in its row. Twice, and paths can go round."""

    def _roots(self) -> int:
        return 1

    def _paths(self, boxes: Boxes, positions: Int32Array) -> Paths:
        """The paths on which `boxes` go into the trees."""
        begin = self.boxes.start[positions].astype(np.int32)
        length = np.diff(boxes.start).astype(np.uint16)
        return Paths(np.zeros_like(positions), positions, begin, length)

    def _choose_roots(self, points: Int64Array) -> Int32Array:
        """The root of the tree in which to search for each point."""
        return np.zeros(len(points), np.int32)

    def _check(self, boxes: Boxes, *, first: bool) -> None:
        held = 0 if first else len(self.boxes.attribute)
        if self._laps * (held + len(boxes.attribute)) > MOST_PLACES:
            most = MOST_PLACES // self._laps
            raise IndexTooLargeError(f"index {self.name!r} takes up to {most:,} predicates")

    def _empty(self, boxes: Boxes) -> TreeState:
        return TreeState(no_predicates(), np.zeros(0, np.int32), empty_forest(self._roots()))

    def _insert(self, boxes: Boxes, positions: Int32Array) -> TreeState:
        predicates, rows, forest = self._state
        predicates, numbers = number(predicates, *boxes[2:])
        needed = self._laps * int(self.boxes.start[-1])
        if needed > len(rows):
            rows = longer(rows, needed + needed // 2 if len(rows) else needed)
        begin = self._laps * self.boxes.start[positions]
        _write_rows(rows, begin, self._laps, boxes.start, numbers)
        forest = plant(forest, rows, self._paths(boxes, positions))
        return TreeState(predicates, rows, forest)

    def _delete(self, boxes: Boxes, positions: Int32Array) -> None:
        uproot(self._state.forest, self._state.rows, self._paths(boxes, positions))

    def _search(self, query: Query) -> Int32Array:
        predicates, rows, forest = self._state
        return walk(forest, predicates, rows, self._choose_roots(query.points), query)


@kernel
def _write_rows(
    rows: Int32Array, begin: Int64Array, laps: int, start: Int64Array, numbers: Int32Array
) -> None:
    for i in range(len(begin)):
        at = begin[i]
        for _ in range(laps):
            for p in range(start[i], start[i + 1]):
                rows[at] = numbers[p]
                at += 1
