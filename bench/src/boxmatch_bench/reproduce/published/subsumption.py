"""`rein-covered`: REIN over boxes that no other covers, as its outlook proposes.

Of boxes on the same attributes, the largest come first; each later one that lies inside one of
them is put under it, equal ones too. Only the others are in the index. An event that a box holds is
compared with those under it; one that it does not hold, none under it does.

To find out what covers what is where the cost is, so a box is compared with a limited number of
larger ones: what is not found is only not saved. A box that has fewer predicates can cover one that
has more; such are not looked for.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array
from boxmatch.indexes.papers.rein import ReinIndex
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes
from boxmatch_bench.reproduce.published.candidates import CandidateIndex


class CoveredIndex(CandidateIndex):
    """REIN with the boxes that are not covered.

    `cells`: as in `rein`. `compared`: larger boxes that a box is compared with, at the most.
    """

    name = "rein-covered"
    parameters = {"cells": 1_000, "compared": 1_000}  # noqa: RUF012
    _limits = {"cells": (1, 1_000_000), "compared": (1, 1_000_000)}  # noqa: RUF012

    def build(self, boxes: Boxes) -> None:
        super().build(boxes)
        cover = covers(boxes, self.chosen["compared"])
        roots = np.flatnonzero(cover == np.arange(boxes.count))
        # Each root, then those under it.
        self._under = np.lexsort((cover != np.arange(boxes.count), cover)).astype(np.int32)
        self._first = np.searchsorted(cover[self._under], roots)
        self._size = np.bincount(cover, minlength=boxes.count)[roots]
        self._inner = ReinIndex(boxes.dimensions, cells=self.chosen["cells"])
        self._inner.build(boxes.take(roots))

    @property
    def held(self) -> float:
        """The share of the boxes that are in the index."""
        return len(self._first) / max(1, self._boxes.count)

    def _candidates(self, point: Int64Array) -> Int32Array:
        found = self._inner.match_one(point)
        return _spread(found, self._first, self._size, self._under)

    @property
    def nbytes(self) -> dict[str, int]:
        own = self._under.nbytes + self._first.nbytes + self._size.nbytes
        return {**super().nbytes, "cover": own, "inner": sum(self._inner.nbytes.values())}


def covers(boxes: Boxes, compared: int) -> Int64Array:
    """The box that each box is put under; itself if no other is known to cover it."""
    cover = np.arange(boxes.count, dtype=np.int64)
    sizes = np.diff(boxes.start)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        places = boxes.start[rows][:, None] + np.arange(size)
        low, high = boxes.low[places], boxes.high[places]
        attributes = boxes.attribute[places].astype(np.int64)
        extent = (high.astype(float) - low).sum(axis=1)
        order = np.lexsort((rows, -extent, *attributes.T)).astype(np.int64)
        _cover(rows, attributes, low, high, order, compared, cover)
    return cover


@kernel
def _cover(
    rows: Int64Array,
    attributes: Int64Array,
    low: Int64Array,
    high: Int64Array,
    order: Int64Array,
    compared: int,
    cover: Int64Array,
) -> None:
    """Put boxes, in an order by attributes and from large to small, under the first that covers."""
    roots = np.empty(compared, np.int64)
    known = 0
    for i in range(len(order)):
        box = order[i]
        if i == 0 or not _same(attributes, order[i - 1], box):
            known = 0
        under = -1
        for k in range(known):
            root = roots[k]
            inside = True
            for p in range(low.shape[1]):
                if low[box, p] < low[root, p] or high[box, p] > high[root, p]:
                    inside = False
                    break
            if inside:
                under = root
                break
        if under >= 0:
            cover[rows[box]] = rows[under]
        elif known < compared:
            roots[known] = box
            known += 1


@kernel
def _same(attributes: Int64Array, one: int, other: int) -> bool:
    same = True
    for p in range(attributes.shape[1]):
        same &= attributes[one, p] == attributes[other, p]
    return same


@kernel
def _spread(
    found: Int32Array, first: Int64Array, size: Int64Array, under: Int32Array
) -> Int32Array:
    """Each root that was found, and those under it."""
    total = 0
    for root in found:
        total += size[root]
    spread = np.empty(total, np.int32)
    at = 0
    for root in found:
        for i in range(first[root], first[root] + size[root]):
            spread[at] = under[i]
            at += 1
    return spread
