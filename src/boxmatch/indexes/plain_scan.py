"""What `scan` does, without a kernel: for the first seconds on a machine, and as short."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.base import Query
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import ListKeys


def scan_plainly(boxes: Boxes, rows: int, query: Query, lists: ListKeys | None) -> Int32Array:
    """Set the counts of `query`; return the positions, point by point, if they are wanted."""
    first, end = boxes.start[:rows], boxes.start[1 : rows + 1]
    constrained = np.flatnonzero(first < end)
    unconstrained = np.flatnonzero(first == end)
    # Most boxes fail by their first predicate, so these are brought together once.
    start = first[constrained]
    heads = boxes.attribute[start], boxes.low[start], boxes.high[start]
    found = []
    for event in range(len(query.points)):
        point, sets = query.points[event], _sets_of(lists, event)
        box = constrained[_inside(*heads, point, sets, query.skipped)]
        at = first[box] + 1
        held = []
        while len(box):
            more = at < end[box]
            held.append(box[~more])
            box, at = box[more], at[more]
            ends = boxes.attribute[at], boxes.low[at], boxes.high[at]
            kept = _inside(*ends, point, sets, query.skipped)
            box, at = box[kept], at[kept] + 1
        position = np.sort(np.concatenate((unconstrained, *held)))
        if len(query.alive):
            words = query.alive.reshape(-1)[position >> 6]
            position = position[(words >> (position & 63).astype(np.uint64)) & np.uint64(1) == 1]
        query.counts[event] = len(position)
        if query.listing:
            found.append(position.astype(np.int32))
    return np.concatenate(found) if found else np.empty(0, np.int32)


def _sets_of(lists: ListKeys | None, event: int) -> list[tuple[int, Int64Array]]:
    """The axes on which a point has a set of keys, and these in order."""
    if lists is None:
        return []
    start, width = lists.start, len(lists.axes)
    places = range(event * width, (event + 1) * width)
    keys = [np.sort(lists.keys[start[place] : start[place + 1]]) for place in places]
    return list(zip(lists.axes.tolist(), keys, strict=True))


def _inside(
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    point: Int64Array,
    sets: list[tuple[int, Int64Array]],
    skipped: BoolArray,
) -> BoolArray:
    """Which predicates hold."""
    key = point[attribute]
    holds: BoolArray = (low <= key) & (key <= high)
    for axis, keys in sets:
        mine = np.flatnonzero(attribute == axis)
        # One is inside if the first that is not below is not above.
        from_low = np.searchsorted(keys, low[mine])
        holds[mine] = from_low < np.searchsorted(keys, high[mine], side="right")
    if len(skipped):
        holds |= skipped[attribute]
    return holds
