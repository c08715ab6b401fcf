"""Which subscriptions overlap regions: what `Matcher.match_batch` is for points.

Boxes that an index has clustered lie near each other if their positions do. So the hull of each
block of neighbours tells at once for most blocks that none of their boxes overlaps a region.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int64Array, UInt16Array
from boxmatch.engine.box_stores import StoreView, once_per_owner
from boxmatch.indexes.base import Matches
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

_BLOCK = 64


class Overlaps:
    """Searches the boxes that a view of a store has; removed ones are not looked at."""

    def __init__(self, view: StoreView) -> None:
        boxes = view.store.boxes
        self._positions = view.live_positions()
        if len(self._positions) < boxes.count:
            boxes = boxes.take(self._positions)
        self._boxes = boxes
        # A region can overlap several boxes of a subscription, though they are apart.
        self._owners = view.store.numbers
        self._hulls = _hulls(boxes)

    def find(self, low: Int64Array, high: Int64Array) -> Matches:
        """The positions, one for each subscription, of the boxes that overlap each region.

        A region is a row of keys from `low` up to `high`, both included.
        """
        _, start, attribute, lows, highs = self._boxes
        counts, found = _find(low, high, start, attribute, lows, highs, *self._hulls)
        matches = Matches(counts, self._positions[found].astype(np.int32))
        return matches if self._owners is None else once_per_owner(matches, self._owners)


class _Hulls(NamedTuple):
    """Of each block and dimension, the keys from the first to the last that a box in it holds."""

    low: Int64Array
    high: Int64Array


def _hulls(boxes: Boxes) -> _Hulls:
    blocks = -(-boxes.count // _BLOCK)
    low = np.full((blocks, boxes.dimensions), LAST)
    high = np.full((blocks, boxes.dimensions), ABSENT)
    _fill_hulls(boxes.start, boxes.attribute, boxes.low, boxes.high, low, high)
    return _Hulls(low, high)


@kernel
def _fill_hulls(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    hull_low: Int64Array,
    hull_high: Int64Array,
) -> None:
    boxes = len(start) - 1
    blocks, dimensions = hull_low.shape
    constrained = np.zeros(dimensions, np.int64)
    for block in range(blocks):
        constrained[:] = 0
        first, end = block * _BLOCK, min((block + 1) * _BLOCK, boxes)
        for p in range(start[first], start[end]):
            d = attribute[p]
            constrained[d] += 1
            hull_low[block, d] = min(hull_low[block, d], low[p])
            hull_high[block, d] = max(hull_high[block, d], high[p])
        for d in range(dimensions):
            if constrained[d] < end - first:
                hull_low[block, d], hull_high[block, d] = ABSENT, LAST


@kernel
def _find(
    low: Int64Array,
    high: Int64Array,
    start: Int64Array,
    attribute: UInt16Array,
    lows: Int64Array,
    highs: Int64Array,
    hull_low: Int64Array,
    hull_high: Int64Array,
) -> tuple[Int64Array, Int64Array]:
    regions, dimensions = low.shape
    boxes = len(start) - 1
    counts = np.zeros(regions, np.int64)
    found = np.empty(1024, np.int64)
    total = 0
    for r in range(regions):
        before = total
        for block in range(len(hull_low)):
            apart = False
            for d in range(dimensions):
                apart |= hull_low[block, d] > high[r, d] or hull_high[block, d] < low[r, d]
            if apart:
                continue
            if total + _BLOCK > len(found):
                longer = np.empty(2 * len(found), np.int64)
                longer[:total] = found[:total]
                found = longer
            for box in range(block * _BLOCK, min((block + 1) * _BLOCK, boxes)):
                overlap = True
                for p in range(start[box], start[box + 1]):
                    d = attribute[p]
                    if lows[p] > high[r, d] or highs[p] < low[r, d]:
                        overlap = False
                        break
                if overlap:
                    found[total] = box
                    total += 1
        counts[r] = total - before
    return counts, found[:total]
