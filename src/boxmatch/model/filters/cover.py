"""Unions of boxes made small and canonical: merged, freed of what others contain, made disjoint.

Here a box is dense: one interval for each attribute that the filter mentions, `EVERYTHING` where
it has no predicate. `canonical` is idempotent, which is what lets a rendered filter compile to the
same boxes again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int64Array
from boxmatch.model.filters.compiled import EVERYTHING, KeyInterval, coalesce

_FEW = 12  # boxes up to which plain loops beat arrays
_EFFORT = 160  # microseconds, about, that splitting may take for each box that may come of it

DenseBox = tuple[KeyInterval, ...]


def canonical(
    boxes: list[DenseBox], most: int, lists: Sequence[bool] = ()
) -> tuple[list[DenseBox], bool]:
    """The same union as fewer boxes, in order, and whether no two of them overlap.

    Overlapping boxes are split until none do if that gives at most twice as many, not more than
    `most`, and is little work; else they stay as they are. On an axis that is marked in `lists` an
    event has any number of keys, so boxes overlap there however far apart they are, and nothing can
    be split. (Merging them is right: one key is in either interval if it is in their union.)
    """
    merged = _reduce(boxes)
    if any(lists):
        kept = [axis for axis, is_list in enumerate(lists) if not is_list]
        return merged, not _any_overlap([tuple(box[axis] for axis in kept) for box in merged])
    if not _any_overlap(merged):
        return merged, True
    split = _split(merged, min(2 * len(merged), most))
    if split is None:
        return merged, False
    return _reduce(split), True


def _reduce(boxes: list[DenseBox]) -> list[DenseBox]:
    """Merge and drop contained boxes until neither applies; sorted."""
    boxes = sorted(set(boxes))
    while True:
        count = len(boxes)
        boxes = _drop_contained(_merge(boxes))
        if len(boxes) == count:
            return boxes


def _merge(boxes: list[DenseBox]) -> list[DenseBox]:
    """Join boxes that are equal but for one axis, where they touch or overlap; sorted."""
    hashes = _hashes(boxes) if len(boxes) > _FEW else None
    for axis in range(len(boxes[0]) if boxes else 0):
        alike = range(len(boxes)) if hashes is None else _alike(hashes, axis)
        if len(alike) < 2:
            continue
        rows: dict[DenseBox, list[KeyInterval]] = {}
        for place in alike:
            box = boxes[place]
            rows.setdefault(box[:axis] + box[axis + 1 :], []).append(box[axis])
        joined = [
            (*rest[:axis], interval, *rest[axis:])
            for rest, intervals in rows.items()
            for interval in coalesce(intervals)
        ]
        if len(joined) == len(alike):
            continue
        others = sorted(set(range(len(boxes))).difference(alike))
        boxes = [*(boxes[place] for place in others), *joined]
        if hashes is not None:
            hashes = np.concatenate((hashes[others], _hashes(joined)))
    return sorted(boxes)


_Hashes = npt.NDArray[np.uint64]


def _hashes(boxes: list[DenseBox]) -> _Hashes:
    """A number for the interval of each box (row) along each axis (column)."""
    array = np.array(boxes, np.int64).reshape(len(boxes), -1).view(np.uint64)
    factors = np.random.default_rng(0).integers(1, 2**64, array.shape[1], np.uint64)
    mixed = (array ^ (array >> np.uint64(29))) * (factors | np.uint64(1))
    mixed ^= mixed >> np.uint64(32)
    hashes: _Hashes = mixed[:, ::2] + mixed[:, 1::2] * np.uint64(0x9E3779B97F4A7C15)
    return hashes


def _alike(hashes: _Hashes, axis: int) -> list[int]:
    """The places of boxes that are, but for this axis, equal to others; or by chance seem so.

    By sums of hashes: to compare boxes without an axis, for every axis, takes seconds if there are
    hundreds of attributes.
    """
    rests = hashes.sum(axis=1, dtype=np.uint64) - hashes[:, axis]
    order = np.argsort(rests)
    same = rests[order[1:]] == rests[order[:-1]]
    places: list[int] = np.union1d(order[1:][same], order[:-1][same]).tolist()
    return places


def _ranks(boxes: list[DenseBox]) -> Iterator[tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
    """Lows and highs along each axis that tells boxes apart, as small integers in their order."""
    array = np.array(boxes, np.int64).reshape(len(boxes), -1, 2)
    kind = np.int16 if 2 * len(boxes) < 1 << 15 else np.int32
    for axis in np.flatnonzero((array != array[0]).any(axis=(0, 2))):
        _, ranks = np.unique(array[:, axis], return_inverse=True)
        low, high = ranks.reshape(-1, 2).astype(kind).T
        yield np.ascontiguousarray(low), np.ascontiguousarray(high)


def _drop_contained(boxes: list[DenseBox]) -> list[DenseBox]:
    if len(boxes) <= _FEW:
        return [
            box
            for box in boxes
            if not any(other is not box and _contains(other, box) for other in boxes)
        ]
    inside = np.ones((len(boxes), len(boxes)), np.bool_)
    for low, high in _ranks(boxes):
        inside &= low[:, None] >= low
        inside &= high[:, None] <= high
    np.fill_diagonal(inside, False)
    return [boxes[place] for place in np.flatnonzero(~inside.any(axis=1))]


def _any_overlap(boxes: list[DenseBox]) -> bool:
    """Whether any two boxes share a point."""
    if len(boxes) <= _FEW:
        return any(_meets(one, other) for one, other in combinations(boxes, 2))
    shared = np.ones((len(boxes), len(boxes)), np.bool_)
    for low, high in _ranks(boxes):
        shared &= low[:, None] <= high
        shared &= high[:, None] >= low
    np.fill_diagonal(shared, False)
    return bool(shared.any())


def _contains(outer: DenseBox, inner: DenseBox) -> bool:
    return all(a[0] <= b[0] and a[1] >= b[1] for a, b in zip(outer, inner, strict=True))


def _meets(one: DenseBox, other: DenseBox) -> bool:
    return all(a[0] <= b[1] and a[1] >= b[0] for a, b in zip(one, other, strict=True))


def _split(boxes: list[DenseBox], most: int) -> list[DenseBox] | None:
    """The same union without overlaps; None if that takes more than `most` boxes, or much work."""
    # Boxes with few predicates first: they are large, and cutting the small ones makes fewer parts.
    order = sorted(boxes, key=lambda box: (-box.count(EVERYTHING[0]), box))
    find_last = _Finder(order).find_last
    done: list[DenseBox] = []
    effort = _EFFORT * most
    for place, box in enumerate(order):
        # Parts of the box, and how many boxes before it they may still meet.
        pending = [(box, place)]
        while pending:
            part, count = pending.pop()
            effort -= 20 + count * len(part) // 1_000
            # The last one first: of steps, it leaves nothing that others are to be cut from.
            last = find_last(part, count)
            if last is None:
                done.append(part)
            else:
                pending.extend((rest, last) for rest in _subtract(part, order[last]))
            if len(done) > most or effort < 0:
                return None
    return done


class _Finder:
    """Finds which of some boxes a box meets."""

    def __init__(self, boxes: list[DenseBox]) -> None:
        self._boxes = boxes

    @cached_property
    def _bounds(self) -> tuple[Int64Array, Int64Array]:
        # As arrays one comparison does it.
        array = np.array(self._boxes, np.int64)
        return array[:, :, 0].copy(), array[:, :, 1].copy()

    def find_last(self, box: DenseBox, count: int) -> int | None:
        """The last of the first `count` boxes that meets a box; None if there is none."""
        if count <= _FEW:
            # Quicker one by one; and calls of NumPy, each of which lets go of the GIL for an
            # instant, keep other threads from ever being given it.
            boxes = self._boxes
            return next((at for at in reversed(range(count)) if _meets(box, boxes[at])), None)
        lows, highs = self._bounds
        low, high = np.array(box, np.int64).T
        meets = ((lows[:count] <= high) & (highs[:count] >= low)).all(axis=1)
        return count - 1 - int(meets[::-1].argmax()) if meets.any() else None


def _subtract(box: DenseBox, hole: DenseBox) -> list[DenseBox]:
    """Disjoint parts of `box` outside `hole`."""
    if not _meets(box, hole):
        return [box]
    parts: list[DenseBox] = []
    for axis, ((low, high), (hole_low, hole_high)) in enumerate(zip(box, hole, strict=True)):
        if low >= hole_low and high <= hole_high:
            continue
        if low < hole_low:
            parts.append((*box[:axis], (low, hole_low - 1), *box[axis + 1 :]))
        if high > hole_high:
            parts.append((*box[:axis], (hole_high + 1, high), *box[axis + 1 :]))
        low, high = max(low, hole_low), min(high, hole_high)
        box = (*box[:axis], (low, high), *box[axis + 1 :])
    return parts
