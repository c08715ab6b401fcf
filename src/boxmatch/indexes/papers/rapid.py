"""`rapid`: for events with few ones, search trees of only those boxes that so few could match.

After RAPIDMatch, in "Analysis and Algorithms for Content-based Event Matching" (Kale et al., 2005).
Attributes are properties that an event has (1) or has not (0), and events have few of many. Say
that an event has t ones.

- Boxes that ask for more than t ones cannot match, nor can boxes that admit fewer than t. The
  others are the set S_t.
- The attributes are cut into t + 1 blocks, so that the event has only zeros in at least one. Boxes
  that ask for a one there cannot match either, and the predicates of the others on that block all
  hold. So there is a tree for each t and block: of the boxes in S_t that ask for no one in the
  block, with their predicates outside of it, from the end of the block on and round to its
  beginning.

There are such trees for t up to `most_ones`. Events with more ones are looked up in a fall-back
tree, which is that of `tree` less the boxes that admit too few.

None of this needs booleans. An event's ones are the attributes whose key is not 0, so absent ones
too; a predicate asks for a one if it excludes 0, and for a zero if it admits nothing else. The
index is exact on any boxes, but gains nothing where zeros are rare, as then all events go to the
fall-back tree.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array, UInt16Array
from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.papers.parts.forest import Paths, most_bytes, paths_held
from boxmatch.indexes.papers.tree import TreeIndex
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


class RapidIndex(TreeIndex):
    """A search tree for each number of ones and each block of attributes.

    `most_ones`: the most ones for which there are trees of their own (c in the paper). Memory grows
    with its square: at 6, a box with ten predicates in a hundred attributes is in 8 trees, at 8 in
    16, and at 10 in 29. `memory_limit`: bytes that the trees may take, room for more boxes apart;
    `build` and `add` raise `IndexTooLargeError` before they might exceed it.
    """

    name = "rapid"
    parameters = {"most_ones": 6, "memory_limit": 4 << 30}
    # With more memory there could be more edges than a 32-bit number can tell.
    _limits = {"most_ones": (0, 1_000), "memory_limit": (1, 2**36)}

    _laps = 2

    def __init__(self, dimensions: int, **parameters: Any) -> None:
        super().__init__(dimensions, **parameters)
        # More ones would make more blocks than attributes.
        self._most_ones = min(self.chosen["most_ones"], dimensions - 1)

    def _check(self, boxes: Boxes, *, first: bool) -> None:
        super()._check(boxes, first=first)
        paths = int(self._count_paths(boxes).sum())
        if not first:
            paths += paths_held(self._state.forest)
        estimate = most_bytes(self._roots(), paths)
        limit = self.chosen["memory_limit"]
        if estimate > limit:
            raise IndexTooLargeError(
                f"index 'rapid' would take up to {estimate:,} bytes, and its memory_limit is "
                f"{limit:,}; with fewer most_ones it takes less"
            )

    def _roots(self) -> int:
        return _root(self._most_ones + 1, 0) + 1

    def _count_paths(self, boxes: Boxes) -> Int64Array:
        """How many of the boxes go into each tree."""
        counts = np.zeros(self._roots(), np.int64)
        nowhere = np.zeros(boxes.count, np.int32)
        _route(*boxes[1:], boxes.dimensions, self._most_ones, nowhere, nowhere, counts, _NONE)
        return counts

    def _paths(self, boxes: Boxes, positions: Int32Array) -> Paths:
        ends = np.cumsum(self._count_paths(boxes))
        count = int(ends[-1])
        paths = Paths(
            np.empty(count, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.int32),
            np.empty(count, np.uint16),
        )
        places = np.concatenate([[0], ends[:-1]])
        begin = (self._laps * self.boxes.start[positions]).astype(np.int32)
        _route(*boxes[1:], boxes.dimensions, self._most_ones, positions, begin, places, paths)
        return paths

    def _choose_roots(self, points: Int64Array) -> Int32Array:
        roots = np.empty(len(points), np.int32)
        _choose(points, self._most_ones, roots)
        return roots


_NONE: Final = Paths(
    np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0, np.uint16)
)


@kernel
def _root(ones: int, block: int) -> int:
    """The tree for so many ones and a block without any; after the last is the fall-back tree."""
    return ones * (ones + 1) // 2 + block


@kernel
def _block_end(dimensions: int, ones: int, block: int) -> int:
    """Where a block ends, if there is one more of them than ones. Sizes differ by one at most."""
    return dimensions * (block + 1) // (ones + 1)


@kernel
def _choose(points: Int64Array, most_ones: int, roots: Int32Array) -> None:
    """Choose a tree for each event: that of the first block that has only zeros."""
    dimensions = points.shape[1]
    for event in range(len(points)):
        ones = 0
        for a in range(dimensions):
            ones += points[event, a] != 0
        if ones > most_ones:
            roots[event] = _root(most_ones + 1, 0)
            continue
        a = 0
        for block in range(ones + 1):
            end = _block_end(dimensions, ones, block)
            while a < end and points[event, a] == 0:
                a += 1
            if a == end:
                roots[event] = _root(ones, block)
                break
            a = end


@kernel
def _route(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    dimensions: int,
    most_ones: int,
    positions: Int32Array,
    begin: Int32Array,
    places: Int64Array,
    paths: Paths,
) -> None:
    """List the paths of the boxes, tree by tree, at `places`, which move on.

    Box `i` has its row at `begin[i]`. If there is no room for paths, they are only counted.
    """
    for i in range(len(positions)):
        number = start[i + 1] - start[i]
        asked = 0  # ones that the box asks for
        admitted = dimensions  # ones that it admits
        for p in range(start[i], start[i + 1]):
            asked += _asks_for_one(low[p], high[p])
            admitted -= (low[p] == 0) & (high[p] == 0)
        for ones in range(asked, min(most_ones, admitted) + 1):
            at = 0  # the first predicate of the box after a block
            for block in range(ones + 1):
                first = at
                end = _block_end(dimensions, ones, block)
                free = True
                while at < number and attribute[start[i] + at] < end:
                    free &= not _asks_for_one(low[start[i] + at], high[start[i] + at])
                    at += 1
                if free:
                    length = number - (at - first)
                    _list(paths, places, _root(ones, block), positions[i], begin[i] + at, length)
        if admitted > most_ones:
            _list(paths, places, len(places) - 1, positions[i], begin[i], number)


@kernel
def _asks_for_one(low: int, high: int) -> bool:
    return low > 0 or high < 0


@kernel
def _list(paths: Paths, places: Int64Array, root: int, box: int, begin: int, length: int) -> None:
    at = places[root]
    places[root] += 1
    if at < len(paths.root):
        paths.root[at] = root
        paths.box[at] = box
        paths.begin[at] = begin
        paths.length[at] = length
