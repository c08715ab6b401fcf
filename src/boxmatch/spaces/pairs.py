"""Whether an actor and an owner of the other side match, before and after the actor moves.

The few regions of the actor are laid out densely, an interval for every dimension, so that a
constraint of the other side takes one lookup.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int, Int64Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import FIRST, LAST
from boxmatch.spaces.layout import Actor, Side
from boxmatch.spaces.region_filter import Code, binds, both_hold, holds


@kernel
def dense_of(old: Actor, new: Actor, regions: int, dimensions: int) -> Int64Array:
    """Low and high before, low and high after, for every region and dimension.

    A dimension that is free holds everything.
    """
    dense = np.empty((regions, dimensions, 4), np.int64)
    dense[:, :, 0], dense[:, :, 1] = FIRST, LAST
    dense[:, :, 2], dense[:, :, 3] = FIRST, LAST
    for i in range(regions):
        for p in range(old.start[i], old.start[i + 1]):
            dense[i, old.dimension[p], 0] = old.low[p]
            dense[i, old.dimension[p], 1] = old.high[p]
        for p in range(new.start[i], new.start[i + 1]):
            dense[i, new.dimension[p], 2] = new.low[p]
            dense[i, new.dimension[p], 3] = new.high[p]
    return dense


@kernel
def match_pair(
    dense: Int64Array, valid: UInt64Array, code: Code, side: Side, spaces: UInt64Array, o: int
) -> tuple[bool, bool]:
    """Whether owner `o` matches the actor, before and after."""
    regions = len(valid)
    begin, steps = side.code_start[o], side.code_length[o]
    if binds(code, 0, len(code)) or binds(side.code, begin, steps):
        return match_by_rows(dense, valid, code, side, spaces, o)
    own_was = own_is = np.uint64(0)
    partners_was = partners_is = np.uint64(0)
    for j in range(side.number[o]):
        for i in range(regions):
            met, meets = _meet(
                side.header,
                np.uint32(side.first[o] + j),
                side.constraint,
                dense[i],
                valid[i],
                spaces,
            )
            own_was |= np.uint64(met) << np.uint64(i)
            partners_was |= np.uint64(met) << np.uint64(j)
            own_is |= np.uint64(meets) << np.uint64(i)
            partners_is |= np.uint64(meets) << np.uint64(j)
    was = holds(code, 0, len(code), own_was, regions) and holds(
        side.code, begin, steps, partners_was, side.number[o]
    )
    is_now = holds(code, 0, len(code), own_is, regions) and holds(
        side.code, begin, steps, partners_is, side.number[o]
    )
    return was, is_now


@kernel
def match_by_rows(
    dense: Int64Array, valid: UInt64Array, code: Code, side: Side, spaces: UInt64Array, o: int
) -> tuple[bool, bool]:
    """The same for filters that say what the same region must overlap."""
    regions = len(valid)
    begin, steps = side.code_start[o], side.code_length[o]
    rows_was = np.zeros(side.number[o], np.uint64)
    rows_is = np.zeros(side.number[o], np.uint64)
    for j in range(side.number[o]):
        r = np.uint32(side.first[o] + j)
        for i in range(regions):
            met, meets = _meet(side.header, r, side.constraint, dense[i], valid[i], spaces)
            rows_was[j] |= np.uint64(met) << np.uint64(i)
            rows_is[j] |= np.uint64(meets) << np.uint64(i)
    was = both_hold(rows_was, code, regions, side.code, begin, steps)
    return was, both_hold(rows_is, code, regions, side.code, begin, steps)


@kernel
def _meet(
    header: Int64Array,
    r: Int,
    constraint: Int64Array,
    dense: Int64Array,
    valid: np.uint64,
    spaces: UInt64Array,
) -> tuple[bool, bool]:
    """Whether region `r` overlaps the actor's in some space, before and after."""
    packed, both = header[r, 1], np.uint64(header[r, 2]) & valid
    # Two at a time and without branches, which could not be predicted.
    met_0, meets_0 = _left(np.uint16(packed >> 16), header[r, 4], header[r, 5], dense, spaces)
    met_1, meets_1 = _left(np.uint16(packed >> 32), header[r, 6], header[r, 7], dense, spaces)
    before = both & met_0 & met_1
    after = both & meets_0 & meets_1
    if np.uint16(packed) > 2:
        begin = header[r, 0]
        for p in range(begin + 2, begin + np.uint16(packed)):
            met, meets = _left(
                np.uint16(constraint[p, 0]), constraint[p, 1], constraint[p, 2], dense, spaces
            )
            before &= met
            after &= meets
    return before != 0, after != 0


@kernel
def _left(
    d: Int, low: int, high: int, dense: Int64Array, spaces: UInt64Array
) -> tuple[np.uint64, np.uint64]:
    """The spaces that a constraint leaves, before and after."""
    apart = (low > dense[d, 1]) | (high < dense[d, 0])
    apart_now = (low > dense[d, 3]) | (high < dense[d, 2])
    return ~(spaces[d] * np.uint64(apart)), ~(spaces[d] * np.uint64(apart_now))
