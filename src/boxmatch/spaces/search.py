"""Which members of one side match an actor, a publication or subscription of the other.

The spaces in which two regions can still meet are one bit each: to begin with, those in which both
are valid; a dimension in which they are apart rules out the spaces that have it.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int64Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.spaces.endpoints import EndpointCells, cell_of
from boxmatch.spaces.layout import Actor, unpack
from boxmatch.spaces.pairs import dense_of, match_by_rows
from boxmatch.spaces.region_filter import binds, holds


@kernel
def find_matches(actor: Actor, others: Int64Array, regions: int) -> int:
    """Put the owners that match into `scratch.found`; returns how many.

    As in the paper (and in REIN): what cannot overlap is ruled out, and what is left does. The
    other side is `packed`.
    """
    side, endpoints, spaces, scratch, _ = unpack(others)
    left, _, own, partners, found = scratch
    simple = len(actor.valid) == 1 and len(actor.code) == 0
    matches = 0
    last = len(found)  # from there on: owners that need a closer look
    for i in range(len(actor.valid)):
        for r in range(regions):
            left[r] = side.valid[r] & actor.valid[i]
        for p in range(actor.start[i], actor.start[i + 1]):
            d = actor.dimension[p]
            _rule_out(left, endpoints, d, actor.low[p], actor.high[p], ~spaces[d])
        for r in range(regions):
            if left[r] == 0:
                continue
            o = side.owner[r]
            if simple and side.header[r, 3] >= 0:
                found[matches] = o
                matches += 1
                continue
            if own[o] == 0:
                last -= 1
                found[last] = o
            own[o] |= np.uint64(1) << np.uint64(i)
            partners[o] |= np.uint64(1) << np.uint64(r - side.first[o])
    binding = binds(actor.code, 0, len(actor.code))
    dense = np.empty((0, 0, 4), np.int64)
    # Upwards, so that those that match take no place that is still to be read.
    for at in range(last, len(found)):
        o = found[at]
        if binding or binds(side.code, side.code_start[o], side.code_length[o]):
            if len(dense) == 0:
                dense = dense_of(actor, actor, len(actor.valid), len(spaces))
            _, match = match_by_rows(dense, actor.valid, actor.code, side, spaces, o)
            found[matches] = o
            matches += match
        elif holds(actor.code, 0, len(actor.code), own[o], len(actor.valid)) and holds(
            side.code, side.code_start[o], side.code_length[o], partners[o], side.number[o]
        ):
            found[matches] = o
            matches += 1
        own[o] = 0
        partners[o] = 0
    return matches


@kernel
def _rule_out(
    left: UInt64Array, endpoints: EndpointCells, d: int, low: int, high: int, but: np.uint64
) -> None:
    """Take spaces from the regions that begin after `high` or end before `low`."""
    cells, shares = endpoints.edges.shape[1], endpoints.shares
    starts, stops = endpoints.low, endpoints.high
    here = cell_of(endpoints.edges, d, high)
    for bucket in range((d * cells + here) * shares, (d + 1) * cells * shares):
        first = starts.start[bucket]
        for at in range(first, first + starts.size[bucket]):
            if starts.key[at] > high:
                left[np.uint32(starts.box[at])] &= but
    here = cell_of(endpoints.edges, d, low)
    for bucket in range(d * cells * shares, (d * cells + here + 1) * shares):
        first = stops.start[bucket]
        for at in range(first, first + stops.size[bucket]):
            if stops.key[at] < low:
                left[np.uint32(stops.box[at])] &= but
