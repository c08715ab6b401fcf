"""Moving a stored region: which members begin or cease to match it, and its new endpoints.

Most operations do just that, so one call does all of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.spaces.changes import changes
from boxmatch.spaces.endpoints import are_points, try_move
from boxmatch.spaces.layout import Side, SideArrays, unpack

NOT_THERE = -1
"""The region is free in a dimension in which it is to have other endpoints."""
NOT_POINTS = -2
"""So far all regions of its side were points, and their endpoints are kept once."""
NO_ROOM = -3
"""There may be more matches than there is room for."""

_NONE = np.int64(0)
"""A literal number would make Numba compile what it is handed to once more."""


class Targets(NamedTuple):
    """Other endpoints in some dimensions, each of which stands there once."""

    what: Int64Array
    """Dimensions, and which endpoints are open, as in the constraints of a `Side`."""
    low: Int64Array
    high: Int64Array


@kernel
def move(
    own: Int64Array,
    others: Int64Array,
    owner: int,
    place: int,
    what: Int64Array,
    low: Int64Array,
    high: Int64Array,
) -> tuple[int, Int64Array, int]:
    """Give the region of an owner at this place other endpoints, which are `Targets`.

    Both sides are `packed`. Returns how many endpoints have moved; the others that begin to match,
    followed by those that cease to, by id or, if ids are strings, by number; and how many begin.
    If not all endpoints have moved, since the pool was full, the constraints are as they were.
    `NOT_THERE` or `NOT_POINTS` instead of a number means that nothing has changed.
    """
    there = unpack(others)
    done, found, entered = _move(unpack(own), there, owner, place, Targets(what, low, high))
    known = found.astype(np.int64)
    if len(there.ids) > 0:
        for i in range(len(found)):
            known[i] = there.ids[np.uint32(found[i])]
    return done, known, entered


@kernel
def move_many(
    own: Int64Array,
    others: Int64Array,
    owners: Int64Array,
    keys: Int64Array,
    row: int,
    found: Int32Array,
    counts: Int64Array,
) -> tuple[int, int, int]:
    """Do the same for many, from a row on: the only region of an owner is at these keys now.

    There is a key for each dimension; `ABSENT` leaves it as it is. Those that begin to match and
    those that cease to are put into `found`, by number, and how many these are into `counts`.
    Returns the row after the last, how many are found, and 0; or else the row it stopped at and
    why: `NOT_THERE`, `NOT_POINTS` or `NO_ROOM` before anything was done, or how many endpoints have
    moved, after all else is done.
    """
    here, there = unpack(own), unpack(others)
    used = 0
    what, key = np.empty(keys.shape[1], np.int64), np.empty(keys.shape[1], np.int64)
    while row < len(owners):
        if len(found) - used < len(there.side.first):
            return row, used, NO_ROOM
        count = 0
        for d in range(keys.shape[1]):
            if keys[row, d] != ABSENT:
                what[count], key[count] = d, keys[row, d]
                count += 1
        if count > 0:
            targets = Targets(what[:count], key[:count], key[:count])
            done, changed, entered = _move(here, there, owners[row], _NONE, targets)
            if done < 0:
                return row, used, done
            counts[row, 0], counts[row, 1] = entered, len(changed) - entered
            # One by one: to assign to a slice takes seconds to compile.
            for i in range(len(changed)):
                found[used + i] = changed[i]
            used += len(changed)
            if done < 2 * count:
                return row, used, done
        row += 1
    return row, used, 0


@kernel
def _move(
    own: SideArrays, others: SideArrays, owner: int, place: Int, targets: Targets
) -> tuple[int, Int32Array, int]:
    """As `move`, with members of the other side by number."""
    side = own.side
    first = side.first[owner]
    at = _constraints(side, first + place, targets)
    if at[-1] < 0:
        return NOT_THERE, np.empty(0, np.int32), 0
    if own.endpoints.points and not are_points(targets.low, targets.high):
        return NOT_POINTS, np.empty(0, np.int32), 0
    regions = side.number[owner]
    dense = _dense(side, first, regions, len(others.spaces))
    for i in range(len(targets.what)):
        d = np.uint16(targets.what[i])
        dense[place, d, 2], dense[place, d, 3] = targets.low[i], targets.high[i]
    begin = side.code_start[owner]
    code = side.code[begin : begin + side.code_length[owner]]
    found, entered = changes(dense, side.valid[first : first + regions], code, others)
    return _move_endpoints(own, first + place, at, targets), found, entered


@kernel
def _move_endpoints(here: SideArrays, region: int, at: Int64Array, targets: Targets) -> int:
    """Store the targets of the constraints at these places; returns how many endpoints moved."""
    own = here.side
    count = len(at)
    dimension = np.empty(count, np.uint16)
    low, high = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        dimension[i] = np.uint16(own.constraint[at[i], 0])
        low[i], high[i] = own.constraint[at[i], 1], own.constraint[at[i], 2]
    done = try_move(
        here.endpoints, region, np.array([0, count]), dimension,
        low, high, targets.low, targets.high, _NONE,
    )  # fmt: skip
    if done == 2 * count:
        for i in range(count):
            own.constraint[at[i], 0] = targets.what[i]
            own.constraint[at[i], 1], own.constraint[at[i], 2] = targets.low[i], targets.high[i]
            p = at[i] - own.header[region, 0]
            if p < 2:
                own.header[region, 4 + 2 * p] = targets.low[i]
                own.header[region, 5 + 2 * p] = targets.high[i]
    return done


@kernel
def _constraints(own: Side, region: int, targets: Targets) -> Int64Array:
    """Where the constraints of these dimensions are; the last is -1 if one is wanting."""
    begin = own.header[region, 0]
    end = begin + np.uint16(own.header[region, 1])
    at = np.empty(len(targets.what), np.int64)
    p = begin
    for i in range(len(at)):
        d = np.uint16(targets.what[i])
        tried = begin
        # Most often they are in the same order.
        while np.uint16(own.constraint[p, 0]) != d:
            p = p + 1 if p + 1 < end else begin
            tried += 1
            if tried == end:
                at[-1] = -1
                return at
        at[i] = p
        p = p + 1 if p + 1 < end else begin
    return at


@kernel
def _dense(own: Side, first: int, regions: int, dimensions: int) -> Int64Array:
    """What is stored, low and high before, low and high after, which are the same."""
    dense = np.empty((regions, dimensions, 4), np.int64)
    for i in range(regions):
        for free in range(dimensions):
            dense[i, free, 0], dense[i, free, 1] = FIRST, LAST
            dense[i, free, 2], dense[i, free, 3] = FIRST, LAST
        begin = own.header[first + i, 0]
        for p in range(begin, begin + np.uint16(own.header[first + i, 1])):
            d = np.uint16(own.constraint[p, 0])
            low, high = own.constraint[p, 1], own.constraint[p, 2]
            dense[i, d, 0], dense[i, d, 1] = low, high
            dense[i, d, 2], dense[i, d, 3] = low, high
    return dense
