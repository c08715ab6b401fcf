"""Who overlaps: what is stored of one side, and who of it matches somebody of the other.

The one side of a question is an *actor*: the publication or subscription that an operation is
about. Which spaces two regions can still meet in is one bit each. Both are valid in some of them to
begin with; a dimension in which they are apart rules out the spaces that have it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.indexes.base import Int32Array
from boxmatch.jit import kernel
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.boxes import Int64Array
from boxmatch.spaces.ends import Ends, cell_of
from boxmatch.spaces.region_filter import Code, holds

UInt16Array = npt.NDArray[np.uint16]
UInt64Array = npt.NDArray[np.uint64]


class Actor(NamedTuple):
    """Region `i` has the constraints `start[i] : start[i + 1]`."""

    start: Int64Array
    dimension: UInt16Array
    low: Int64Array
    high: Int64Array
    valid: UInt64Array
    """The spaces in which each region is valid."""
    code: Code
    """What must have a partner."""


class Side(NamedTuple):
    """All publications, or all subscriptions, and their regions.

    Region `r` has the constraints `start : start + length`, each a dimension, its low and its high
    end; those of owner `o` are regions `first[o] : first[o] + number[o]`. Above the 16 bits of a
    dimension stands which ends are open, which only those want to know who show them.

    What is mostly needed to compare a region stands together in its header, a line of the cache,
    since regions are looked at in no order: most of the time goes into fetching them. It has the
    start; the length and the first two dimensions, 16 bits each; the valid spaces; the owner, which
    is `~owner` if it has several regions or a filter; the ends of the first two constraints.
    """

    header: Int64Array
    owner: Int32Array
    valid: UInt64Array
    constraint: Int64Array
    first: Int32Array
    number: Int32Array
    code_start: Int32Array
    code_length: Int32Array
    code: Code


class Scratch(NamedTuple):
    """Room to work in. All but the first and the last are 0 between two calls."""

    left: UInt64Array  # by region: the spaces that are left
    seen: npt.NDArray[np.uint8]  # by region
    own: UInt64Array  # by owner: the actor's regions that have a partner there
    partners: UInt64Array  # by owner: its regions that have a partner
    found: Int32Array  # regions or owners


@kernel
def find_matches(
    actor: Actor, side: Side, regions: int, ends: Ends, spaces: UInt64Array, scratch: Scratch
) -> int:
    """Put the owners that match into `scratch.found`; returns how many.

    As in the paper (and in REIN): what cannot overlap is ruled out, and what is left does.
    """
    left, _, own, partners, found = scratch
    simple = len(actor.valid) == 1 and len(actor.code) == 0
    matches = 0
    last = len(found)  # from there on: owners that need a closer look
    for i in range(len(actor.valid)):
        for r in range(regions):
            left[r] = side.valid[r] & actor.valid[i]
        for p in range(actor.start[i], actor.start[i + 1]):
            d = actor.dimension[p]
            _rule_out(left, ends, d, actor.low[p], actor.high[p], ~spaces[d])
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
def _rule_out(left: UInt64Array, ends: Ends, d: int, low: int, high: int, but: np.uint64) -> None:
    """Take spaces from the regions that begin after `high` or end before `low`."""
    cells, shares = ends.edges.shape[1], ends.shares
    starts, stops = ends.low, ends.high
    here = cell_of(ends.edges, d, high)
    for bucket in range((d * cells + here) * shares, (d + 1) * cells * shares):
        first = starts.start[bucket]
        for at in range(first, first + starts.size[bucket]):
            if starts.key[at] > high:
                left[np.uint32(starts.box[at])] &= but
    here = cell_of(ends.edges, d, low)
    for bucket in range(d * cells * shares, (d * cells + here + 1) * shares):
        first = stops.start[bucket]
        for at in range(first, first + stops.size[bucket]):
            if stops.key[at] < low:
                left[np.uint32(stops.box[at])] &= but


@kernel
def describe(
    header: Int64Array,
    constraint: Int64Array,
    regions: Int64Array,
    start: Int64Array,
    length: Int64Array,
) -> None:
    """Put into the headers of regions where their constraints are, and the first two of them."""
    for at in range(len(regions)):
        line, begin = header[regions[at]], start[at]
        line[0] = begin
        line[1] = length[at]
        for p in range(2):
            if p < length[at]:
                line[1] |= np.int64(np.uint16(constraint[begin + p, 0])) << (16 * (p + 1))
                line[4 + 2 * p] = constraint[begin + p, 1]
                line[5 + 2 * p] = constraint[begin + p, 2]
            else:
                line[4 + 2 * p] = FIRST
                line[5 + 2 * p] = LAST
