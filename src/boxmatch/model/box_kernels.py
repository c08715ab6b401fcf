"""Kernels over batches of boxes."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BoolArray, Int, Int32Array, Int64Array, UInt16Array
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.points import ListKeys

_AHEAD = 12


def count_attributes(attribute: UInt16Array, dimensions: int) -> Int64Array:
    """Predicates per attribute."""
    if background.has(Stage.SCAN):
        return _count_attributes(attribute, dimensions)
    return np.bincount(attribute, minlength=dimensions)


@kernel
def _count_attributes(attribute: UInt16Array, dimensions: int) -> Int64Array:
    # `np.bincount` would first copy to int64.
    counts = np.zeros(dimensions, np.int64)
    for p in range(len(attribute)):
        counts[attribute[p]] += 1
    return counts


@kernel
def holds(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    box: Int,
    points: Int64Array,
    event: Int,
    skipped: BoolArray,
) -> bool:
    """Whether a box holds a point, apart from attributes that are skipped (empty: none)."""
    # Places are unsigned: for others Numba asks each time whether they count from the end.
    at = np.uint64(event)
    for p in range(np.uint64(start[box]), np.uint64(start[box + 1])):
        key = points[at, attribute[p]]
        if (key < low[p] or key > high[p]) and not (len(skipped) and skipped[attribute[p]]):
            return False
    return True


@kernel
def places_of_lists(axes: Int32Array, dimensions: int) -> Int32Array:
    """For each axis, its place among those with sets of keys, or -1."""
    list_of = np.full(dimensions, -1, np.int32)
    for j in range(len(axes)):
        list_of[axes[j]] = j
    return list_of


@kernel
def any_inside(list_start: Int64Array, list_keys: Int64Array, at: Int, low: Int, high: Int) -> bool:
    """Whether one of the keys of a set is inside."""
    for i in range(list_start[at], list_start[at + 1]):  # noqa: SIM110  # Numba has no `any`
        if low <= list_keys[i] <= high:
            return True
    return False


@kernel
def keep_holders(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    points: Int64Array,
    lists: ListKeys,
    list_of: Int32Array,
    skipped: BoolArray,
    event: Int32Array,
    box: Int32Array,
    certain: Int32Array,
    size: Int,
) -> Int:
    """Of pairs of a point with sets of keys and a box, keep those that hold; return how many.

    `list_of` is that of `places_of_lists`. The predicate on the axis `certain` (-1: none) is known
    to hold. For many pairs at once: a function for one takes longer to count its references to all
    these arrays than to compare.
    """
    places, list_start, list_keys = len(lists.axes), lists.start, lists.keys
    kept = 0
    for d in range(size):
        # Bounds come from far away: ask for those of those ahead.
        if d + 2 * _AHEAD < size:
            prefetch(start, np.int64(box[d + 2 * _AHEAD]))
        if d + _AHEAD < size:
            p = start[box[d + _AHEAD]]
            prefetch(attribute, p)
            prefetch(low, p)
            prefetch(low, p + 7)
            prefetch(high, p)
            prefetch(high, p + 7)
        b, e, known = box[d], event[d], certain[d]
        box[kept], event[kept] = b, e
        held = True
        for p in range(start[b], start[b + 1]):
            a = attribute[p]
            key = points[e, a]
            if list_of[a] < 0 and (key < low[p] or key > high[p]):
                held = len(skipped) > 0 and skipped[a]
                if not held:
                    break
        # Sets take longer to compare: last.
        for p in range(start[b], start[b + 1] if held else start[b]):
            a = attribute[p]
            if list_of[a] < 0 or a == known or (len(skipped) and skipped[a]):
                continue
            at = e * places + list_of[a]
            held = any_inside(list_start, list_keys, at, low[p], high[p])
            if not held:
                break
        kept += held
    return kept
