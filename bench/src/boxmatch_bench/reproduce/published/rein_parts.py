"""The steps of REIN, each alone: what HEM's Figure 1 divides its time into."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int64Array, UInt64Array
from boxmatch.indexes.papers.parts.cells import cell_of
from boxmatch.indexes.papers.rein import EndpointLists, ReinIndex, compare_high, compare_low
from boxmatch.kernels.bit_sets import mark_buckets
from boxmatch.kernels.jit import kernel


def mark_only(index: ReinIndex, points: Int64Array) -> int:
    """Only mark the boxes of whole buckets; return how many marks that took."""
    return int(_mark(index._state, points, np.zeros(index._living.size, np.uint64)))


def compare_only(index: ReinIndex, points: Int64Array) -> None:
    """Only compare each event with the boxes of its own buckets."""
    _compare(index._state, points, np.zeros(index._living.size, np.uint64))


@kernel
def _mark(lists: EndpointLists, points: Int64Array, words: UInt64Array) -> int:
    marks = 0
    row = lists.cells.number[0] + 1
    for event in range(len(points)):
        for a in range(points.shape[1]):
            here = a * row + cell_of(lists.cells, a, points[event, a])
            marks += mark_buckets(words, lists.low, here + 1, (a + 1) * row)
            marks += mark_buckets(words, lists.high, a * row, here)
    return marks


@kernel
def _compare(lists: EndpointLists, points: Int64Array, words: UInt64Array) -> None:
    row = lists.cells.number[0] + 1
    for event in range(len(points)):
        for a in range(points.shape[1]):
            key = points[event, a]
            here = a * row + cell_of(lists.cells, a, key)
            compare_low(words, lists, here, key)
            compare_high(words, lists, here, key)
