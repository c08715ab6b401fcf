"""The order of the boxes: neighbours want the same attributes at near-by values.

Each box gets a 64-bit sort key: its attributes from the most to the least telling one, each
followed by how wide the predicate is and where it lies. A tile is then a run of boxes that agree
on a few attributes and on their places, and one look in the directory skips all of them.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt16Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.boxes import Boxes


def cluster(
    boxes: Boxes,
    attributes: int,
    cut_start: Int32Array,
    low_rank: UInt16Array,
    high_rank: UInt16Array,
) -> Int64Array:
    """The order in which to store `boxes`: position to row.

    All but the first `attributes` axes are of expressions.
    """
    importance = _importance(boxes, attributes, cut_start, low_rank, high_rank)
    keys = np.empty(boxes.count, np.uint64)
    _sort_keys(boxes.start, boxes.attribute, low_rank, high_rank, cut_start, importance, keys)
    return np.argsort(keys)


def _importance(
    boxes: Boxes,
    attributes: int,
    cut_start: Int32Array,
    low_rank: UInt16Array,
    high_rank: UInt16Array,
) -> UInt16Array:
    """Place of each attribute among all, the most telling first.

    An attribute tells much if few boxes constrain it (an event without it rules them out) and if
    they do so narrowly: the fraction of all boxes that an event satisfies through it is small. No
    event is without the value of an expression, so that one counts as if all boxes constrained it.
    """
    width = np.zeros(boxes.dimensions)
    _sum_widths(boxes.attribute, low_rank, high_rank, width)
    satisfied = width / np.maximum(1, np.diff(cut_start))
    if attributes < boxes.dimensions:
        constrain = np.bincount(boxes.attribute, minlength=boxes.dimensions)[attributes:]
        satisfied[attributes:] *= boxes.count / np.maximum(1, constrain)
    place = np.empty(boxes.dimensions, np.uint16)
    place[np.argsort(satisfied, kind="stable")] = np.arange(boxes.dimensions)
    return place


@kernel
def _sum_widths(
    attribute: UInt16Array,
    low_rank: UInt16Array,
    high_rank: UInt16Array,
    width: npt.NDArray[np.float64],
) -> None:
    for p in range(len(attribute)):
        width[attribute[p]] += np.int64(high_rank[p]) - np.int64(low_rank[p]) + 1


@kernel
def _sort_keys(
    start: Int64Array,
    attribute: UInt16Array,
    low_rank: UInt16Array,
    high_rank: UInt16Array,
    cut_start: Int32Array,
    importance: UInt16Array,
    keys: UInt64Array,
) -> None:
    dimensions = len(cut_start) - 1
    attribute_bits = 1
    while (1 << attribute_bits) < dimensions + 1:
        attribute_bits += 1
    place = np.empty(dimensions, np.int64)
    predicate = np.empty(dimensions, np.int64)
    for box in range(len(start) - 1):
        # Insertion sort: a box has a handful of predicates.
        size = 0
        for p in range(start[box], start[box + 1]):
            rank = np.int64(importance[attribute[p]])
            i = size
            while i > 0 and place[i - 1] > rank:
                place[i] = place[i - 1]
                predicate[i] = predicate[i - 1]
                i -= 1
            place[i] = rank
            predicate[i] = p
            size += 1
        key = np.uint64(0)
        free = 64
        for i in range(size):
            p = predicate[i]
            a = attribute[p]
            cells = np.int64(cut_start[a + 1] - cut_start[a]) + 1
            low = np.int64(low_rank[p])
            high = np.int64(high_rank[p])
            kind, bits = _width_class(high - low + 1, cells)
            # Where it lies among the places that an interval of this width can have.
            position = min((low << bits) // (cells - (high - low)), (1 << bits) - 1)
            code = ((place[i] << 2 | kind) << bits) | position
            length = attribute_bits + 2 + bits
            if length > free:
                key |= np.uint64(code >> (length - free))
                free = 0
                break
            free -= length
            key |= np.uint64(code) << np.uint64(free)
        if free >= attribute_bits:
            # No further attribute: sorts after every attribute.
            key |= np.uint64((1 << attribute_bits) - 1) << np.uint64(free - attribute_bits)
        keys[box] = key


@kernel
def _width_class(width: Int, cells: Int) -> tuple[int, int]:
    """How wide a predicate is, in four classes, and with how many bits to say where it lies.

    A slice much narrower than the predicates in it prunes no more, so wide ones get few bits; the
    widest get none and are ordered by attribute alone.
    """
    if width * 64 <= cells:
        bits = 1
        while (1 << bits) < cells:
            bits += 1
        return 0, bits
    if width * 8 <= cells:
        return 1, 4
    if width * 2 <= cells:
        return 2, 3
    return 3, 0
