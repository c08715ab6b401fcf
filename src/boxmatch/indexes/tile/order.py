"""The order of the boxes: neighbours want the same attributes at near-by values.

Each box gets a 64-bit sort key: its attributes from the most to the least telling one, each
followed by how wide the predicate is and where it lies. A tile is then a run of boxes that agree
on a few attributes and on their places, and one look in the directory skips all of them.

Of attributes that are 0 or 1, events nearly always have more zeros, so what wants a one tells the
most: predicates that want a zero come after all others.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import (
    Float64Array,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from boxmatch.indexes.tile.groups import regroup
from boxmatch.indexes.tile.layout import RankedPredicates
from boxmatch.indexes.tile.ranks import RANK, Ruler
from boxmatch.kernels.bit_lines import trailing_zeros
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.radix import stable_order
from boxmatch.kernels.threads import each, split
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes

_PART = 8_192
"""Boxes for each thread, at least."""


def cluster(
    boxes: Boxes,
    attributes: int,
    ruler: Ruler,
    predicates: RankedPredicates,
    width: Int64Array,
    threads: int | None = 1,
    *,
    grouped: bool = True,
) -> Int32Array:
    """The order in which to store `boxes`, whose ranks are `predicates`: position to row.

    All but the first `attributes` axes are of expressions. `width` is that of `rank_predicates`.
    Only if `grouped` may boxes be put into groups, which serve events that pass few tiles.
    """
    counts = count_attributes(boxes.attribute, boxes.dimensions)
    satisfied = width / np.maximum(1, np.diff(ruler.cut_start))
    importance = _importance(boxes, attributes, counts, satisfied)
    zero = ranks_of_zero(ruler)
    cells = np.diff(ruler.cut_start).astype(np.int64) + 1
    bits = np.array([max(1, (cell - 1).bit_length()) for cell in cells.tolist()], np.uint8)
    keys = np.empty(boxes.count, np.uint64)
    each(
        lambda part: _sort_keys(
            predicates.start, predicates[1:], cells, bits, importance, zero, *part, keys
        ),
        split(boxes.count, threads, least=_PART),
    )
    order = stable_order(keys, threads)
    if len(zero) > 0 or not grouped:
        return order
    mean = satisfied / np.maximum(1, counts)
    return regroup(predicates, ruler.cut_start, mean, importance, order, threads)


def _importance(
    boxes: Boxes, attributes: int, counts: Int64Array, satisfied: Float64Array
) -> UInt16Array:
    """Place of each attribute among all, the most telling first.

    An attribute tells much if few boxes constrain it (an event without it rules them out) and if
    they do so narrowly: the fraction of all boxes that an event satisfies through it is small. No
    event is without the value of an expression, so that one counts as if all boxes constrained it.
    """
    satisfied = satisfied.copy()
    satisfied[attributes:] *= boxes.count / np.maximum(1, counts[attributes:])
    place = np.empty(boxes.dimensions, np.uint16)
    place[np.argsort(satisfied, kind="stable")] = np.arange(boxes.dimensions)
    return place


def ranks_of_zero(ruler: Ruler) -> UInt16Array:
    """The rank of 0 on axes whose predicates distinguish 0 and 1 only; elsewhere one that no
    predicate has. Empty if there is no such axis.
    """
    first, last = ruler.cut_start[:-1], ruler.cut_start[1:] - 1
    # The cuts of such an axis are FIRST, 0, 1, and 2 if a predicate wants a one.
    second = ruler.cuts[np.minimum(first + 1, last)]
    zero = np.where((second == 0) & (ruler.cuts[last] <= 2), 2, RANK).astype(np.uint16)
    return zero if (zero == 2).any() else zero[:0]


@kernel
def _sort_keys(
    start: Int64Array,
    predicates: tuple[UInt16Array, UInt16Array, UInt16Array],
    cells: Int64Array,
    cell_bits: UInt8Array,
    importance: UInt16Array,
    zero: UInt16Array,
    first: Int,
    last: Int,
    keys: UInt64Array,
) -> None:
    """The sort keys of the boxes from `first` to `last`.

    `predicates` are attributes, low and high ranks; an attribute has so many `cells`, which take
    `cell_bits`. `zero` is that of `ranks_of_zero`.
    """
    attribute, low_rank, high_rank = predicates
    one = np.uint64(1)
    six = np.uint64(6)
    # Those that want a zero have places of their own, after all others.
    places = len(cells) + len(zero)
    attribute_bits = 1
    while (1 << attribute_bits) < places + 1:
        attribute_bits += 1
    # A box's predicates come by place when its places are bits of a set.
    predicate = np.empty(places, np.uint64)
    words = np.zeros((places + 63) // 64, np.uint64)
    for box in range(np.uint64(first), np.uint64(last)):
        for p in range(np.uint64(start[box]), np.uint64(start[np.uint64(box) + one])):
            place = np.uint64(importance[attribute[p]])
            if len(zero) > 0 and low_rank[p] == high_rank[p] == zero[attribute[p]]:
                place += np.uint64(len(cells))
            predicate[place] = p
            words[place >> six] |= one << (place & np.uint64(63))
        key = np.uint64(0)
        free = 64
        for w in range(len(words)):
            word = words[w]
            words[w] = 0
            while word != 0 and free > 0:
                place = (np.uint64(w) << six) | np.uint64(trailing_zeros(word))
                word &= word - one
                p = predicate[place]
                a = attribute[p]
                low = np.int64(low_rank[p] & RANK)
                width = np.int64(high_rank[p] & RANK) - low + 1
                kind, bits = _width_class(width, cells[a], cell_bits[a])
                # Where it lies among the places that an interval of this width can have.
                position = min((low << bits) // (cells[a] - width + 1), (1 << bits) - 1)
                code = ((np.int64(place) << 2 | kind) << bits) | position
                length = attribute_bits + 2 + bits
                if length > free:
                    key |= np.uint64(code >> (length - free))
                    free = 0
                else:
                    free -= length
                    key |= np.uint64(code) << np.uint64(free)
        if free >= attribute_bits:
            # No further attribute: sorts after every attribute.
            key |= np.uint64((1 << attribute_bits) - 1) << np.uint64(free - attribute_bits)
        keys[box] = key


@kernel
def _width_class(width: Int, cells: Int, cell_bits: Int) -> tuple[int, Int]:
    """How wide a predicate is, in four classes, and with how many bits to say where it lies.

    A slice much narrower than the predicates in it prunes no more, so wide ones get few bits; the
    widest get none and are ordered by attribute alone.
    """
    if width * 64 <= cells:
        return 0, np.int64(cell_bits)
    if width * 8 <= cells:
        return 1, 4
    if width * 2 <= cells:
        return 2, 3
    return 3, 0
