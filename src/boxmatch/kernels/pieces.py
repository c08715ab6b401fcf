"""Operations on long arrays in pieces, for calls that hold the GIL until they return.

Other threads, such as one with an event loop, get a turn between pieces. NumPy releases the GIL by
itself in arithmetic and sorting, but not in `repeat`, and never for arrays of objects.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from boxmatch.arrays import AnyArray, Int64Array

_TURN = 1e-6
"""Seconds; some fifty times as long in fact."""

PIECE = 1 << 15
"""Objects in a piece: about a millisecond."""


def pieces(count: int) -> Iterator[slice]:
    """Slices of at most `PIECE` that make up `count`; in between, others can have the GIL."""
    for first in range(0, count, PIECE):
        if first:
            # A thread is given the GIL after 5 ms, counted anew whenever it is let go of for an
            # instant, as NumPy does to copy numbers. So it has to be let go of for longer.
            time.sleep(_TURN)
        yield slice(first, min(first + PIECE, count))


def repeat(values: AnyArray, counts: Int64Array) -> AnyArray:
    """`np.repeat` of values with a count each."""
    if len(counts) <= PIECE:
        return np.repeat(values, counts)
    ends = np.cumsum(counts)
    repeated = np.empty(ends[-1], values.dtype)
    for piece in pieces(len(counts)):
        end = ends[piece.stop - 1]
        begin = end - counts[piece].sum()
        repeated[begin:end] = np.repeat(values[piece], counts[piece])
    return repeated


def take(values: AnyArray, places: AnyArray) -> AnyArray:
    """`values[places]`."""
    if values.dtype != object or len(places) <= PIECE:
        return values[places]
    taken = np.empty(len(places), object)
    for piece in pieces(len(places)):
        taken[piece] = values[places[piece]]
    return taken


def concatenate(arrays: Sequence[AnyArray]) -> AnyArray:
    """`np.concatenate` of arrays of one type."""
    if arrays[0].dtype != object:
        return np.concatenate(arrays)
    joined = np.empty(sum(map(len, arrays)), object)
    begin = 0
    for array in arrays:
        for piece in pieces(len(array)):
            joined[begin + piece.start : begin + piece.stop] = array[piece]
        begin += len(array)
    return joined
