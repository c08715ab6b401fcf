"""Unions of boxes made small and canonical: merged, freed of what others contain, made disjoint.

Here a box is dense: one interval for each attribute that the filter mentions, `EVERYTHING` where
it has no predicate. `canonical` is idempotent, which is what lets a rendered filter compile to the
same boxes again.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from boxmatch.model.filters.intervals import EVERYTHING, Interval, coalesce

_FEW = 12  # boxes up to which plain loops beat arrays

DenseBox = tuple[Interval, ...]


def canonical(boxes: list[DenseBox], most: int) -> tuple[list[DenseBox], bool]:
    """The same union as fewer boxes, in order, and whether no two of them overlap.

    Overlapping boxes are split until none do if that gives at most twice as many, and not more
    than `most`; else they stay as they are.
    """
    merged = _reduced(boxes)
    if not _overlapping(merged):
        return merged, True
    split = _split(merged, min(2 * len(merged), most))
    if split is None:
        return merged, False
    return _reduced(split), True


def _reduced(boxes: list[DenseBox]) -> list[DenseBox]:
    """Merge and drop contained boxes until neither applies; sorted."""
    boxes = sorted(set(boxes))
    while True:
        count = len(boxes)
        for axis in range(len(boxes[0]) if boxes else 0):
            boxes = _merged_along(boxes, axis)
        boxes = _uncontained(boxes)
        if len(boxes) == count:
            return boxes


def _merged_along(boxes: list[DenseBox], axis: int) -> list[DenseBox]:
    """Join boxes that are equal but for this axis, where they touch or overlap."""
    rows: dict[DenseBox, list[Interval]] = {}
    for box in boxes:
        rows.setdefault(box[:axis] + box[axis + 1 :], []).append(box[axis])
    if len(rows) == len(boxes):
        return boxes
    return sorted(
        (*rest[:axis], interval, *rest[axis:])
        for rest, intervals in rows.items()
        for interval in coalesce(intervals)
    )


def _bounds(boxes: list[DenseBox]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Lows and highs, one row per axis."""
    array = np.array(boxes, np.int64).reshape(len(boxes), -1, 2)
    return array[:, :, 0].T, array[:, :, 1].T


def _uncontained(boxes: list[DenseBox]) -> list[DenseBox]:
    if len(boxes) <= _FEW:
        return [
            box
            for box in boxes
            if not any(other is not box and _contains(other, box) for other in boxes)
        ]
    inside = np.ones((len(boxes), len(boxes)), np.bool_)
    for low, high in zip(*_bounds(boxes), strict=True):
        inside &= (low[:, None] >= low) & (high[:, None] <= high)
    np.fill_diagonal(inside, False)
    return [boxes[place] for place in np.flatnonzero(~inside.any(axis=1))]


def _overlapping(boxes: list[DenseBox]) -> bool:
    """Whether any two boxes share a point."""
    if len(boxes) <= _FEW:
        return any(_meets(one, other) for one, other in combinations(boxes, 2))
    shared = np.ones((len(boxes), len(boxes)), np.bool_)
    for low, high in zip(*_bounds(boxes), strict=True):
        shared &= (low[:, None] <= high) & (high[:, None] >= low)
    np.fill_diagonal(shared, False)
    return bool(shared.any())


def _contains(outer: DenseBox, inner: DenseBox) -> bool:
    return all(a[0] <= b[0] and a[1] >= b[1] for a, b in zip(outer, inner, strict=True))


def _meets(one: DenseBox, other: DenseBox) -> bool:
    return all(a[0] <= b[1] and a[1] >= b[0] for a, b in zip(one, other, strict=True))


def _split(boxes: list[DenseBox], most: int) -> list[DenseBox] | None:
    """The same union without overlaps; None if that takes more than `most` boxes."""
    # Boxes with few predicates first: they are large, and cutting the small ones makes fewer parts.
    order = sorted(boxes, key=lambda box: (-box.count(EVERYTHING[0]), box))
    # As arrays too, so that finding what a box meets is one comparison.
    lows, highs = np.empty((2, most, len(boxes[0])), np.int64)
    done: list[DenseBox] = []
    for box in order:
        count = len(done)
        low, high = np.array(box, np.int64).T
        meets = ((lows[:count] <= high) & (highs[:count] >= low)).all(axis=1)
        parts = [box]
        for place in np.flatnonzero(meets).tolist():
            parts = [rest for part in parts for rest in _subtracted(part, done[place])]
            if len(parts) > 4 * most:
                return None
        if count + len(parts) > most:
            return None
        for part in parts:
            lows[len(done)], highs[len(done)] = np.array(part, np.int64).T
            done.append(part)
    return done


def _subtracted(box: DenseBox, hole: DenseBox) -> list[DenseBox]:
    """Disjoint parts of `box` outside `hole`."""
    if not _meets(box, hole):
        return [box]
    parts: list[DenseBox] = []
    for axis, ((low, high), (hole_low, hole_high)) in enumerate(zip(box, hole, strict=True)):
        if low < hole_low:
            parts.append((*box[:axis], (low, hole_low - 1), *box[axis + 1 :]))
        if high > hole_high:
            parts.append((*box[:axis], (hole_high + 1, high), *box[axis + 1 :]))
        low, high = max(low, hole_low), min(high, hole_high)
        box = (*box[:axis], (low, high), *box[axis + 1 :])
    return parts
