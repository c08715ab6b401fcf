"""Who of one side matches somebody of the other, begins to or ceases to.

The one side of a question is an *actor*: the publication or subscription that an operation is
about. Which spaces two regions can still meet in is one bit each. Both are valid in some of them to
begin with; a dimension in which they are apart rules out the spaces that have it.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int32Array, Int64Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.spaces.changes import find_changes
from boxmatch.spaces.endpoints import Endpoints, cell_of
from boxmatch.spaces.layout import Actor, unpack
from boxmatch.spaces.member import Member, equal
from boxmatch.spaces.region_filter import holds
from boxmatch.spaces.side import Members


def matching(member: Member, others: Members) -> Int32Array:
    """The numbers of those that match."""
    count = find_matches(member.actor, others.packed(), others.regions)
    return others.scratch.found[:count].copy()


def changing(old: Member, new: Member, others: Members) -> tuple[Int32Array, int]:
    """The numbers of those that come to match, then of those that cease to; and how many come."""
    if old.names == new.names and equal(old.valid, new.valid) and equal(old.code, new.code):
        changes: tuple[Int32Array, int] = find_changes(old.actor, new.actor, others.packed())
        return changes
    before, after = (matching(one, others) for one in (old, new))
    entered = np.setdiff1d(after, before)
    return np.concatenate([entered, np.setdiff1d(before, after)]), len(entered)


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
    for at in range(len(found) - 1, last - 1, -1):
        o = found[at]
        if holds(actor.code, 0, len(actor.code), own[o], len(actor.valid)) and holds(
            side.code, side.code_start[o], side.code_length[o], partners[o], side.number[o]
        ):
            found[matches] = o
            matches += 1
        own[o] = 0
        partners[o] = 0
    return matches


@kernel
def _rule_out(
    left: UInt64Array, endpoints: Endpoints, d: int, low: int, high: int, but: np.uint64
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
