"""Who overlaps, and whose overlap changes: the two questions that every operation asks.

The one side of a question is an *actor*: the publication or subscription that an operation is
about, before or after it. Where it is compared one by one its few regions are laid out densely, an
interval for every dimension, so that a constraint of the other side takes one lookup.

Which spaces two regions can still meet in is one bit each. Both are valid in some of them to begin
with; a dimension in which they are apart rules out the spaces that have it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.indexes.base import Int32Array, Whole
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
    end; those of owner `o` are regions `first[o] : first[o] + number[o]`. What is needed of a
    region to compare it stands together in its header (start, length, valid spaces, owner), since
    regions are looked at in no order: most of the time goes into fetching them. The owner is
    `~owner` if it has several regions or a filter.
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
    cells = ends.edges.shape[1]
    starts, stops = ends.low, ends.high
    here = cell_of(ends.edges, d, high)
    for bucket in range(d * cells + here, (d + 1) * cells):
        first = starts.start[bucket]
        for at in range(first, first + starts.size[bucket]):
            if starts.key[at] > high:
                left[np.uint32(starts.box[at])] &= but
    here = cell_of(ends.edges, d, low)
    for bucket in range(d * cells, d * cells + here + 1):
        first = stops.start[bucket]
        for at in range(first, first + stops.size[bucket]):
            if stops.key[at] < low:
                left[np.uint32(stops.box[at])] &= but


@kernel
def find_changes(
    old: Actor, new: Actor, side: Side, ends: Ends, spaces: UInt64Array, scratch: Scratch
) -> tuple[Int32Array, int]:
    """The owners that come to match, followed by those that cease to; and how many come.

    The actor has the same regions as before, valid in the same spaces. So only those can change
    that have an end between an old and a new value, and the others are never looked at.
    """
    regions, dimensions = len(new.valid), len(spaces)
    old_low, old_high = _dense(old, regions, dimensions)
    new_low, new_high = _dense(new, regions, dimensions)
    low, high, edges = ends.low, ends.high, ends.edges
    _, seen, own, _, found = scratch
    count = 0
    for i in range(regions):
        for d in range(dimensions):
            before, last = old_high[i, d], new_high[i, d]
            if before != last:
                # Regions that begin up to there overlap, as far as this end goes.
                if before > last:
                    before, last = last, before
                count = _between(edges, low.start, low.size, low.box, low.key, d, before, last,
                                 seen, found, count)  # fmt: skip
            before, last = old_low[i, d], new_low[i, d]
            if before != last:
                if before > last:
                    before, last = last, before
                # Regions overlap that end there or later: ends before it, not at it, are passed.
                count = _between(edges, high.start, high.size, high.box, high.key, d, before - 1,
                                 last - 1, seen, found, count)  # fmt: skip
    for at in range(count):
        seen[found[at]] = 0
    return _transitions(
        old, new, old_low, old_high, new_low, new_high, side, spaces, found[:count], own
    )


@kernel
def _dense(actor: Actor, regions: int, dimensions: int) -> tuple[Int64Array, Int64Array]:
    """An interval for every region and dimension; a free one holds everything."""
    low = np.full((regions, dimensions), FIRST, np.int64)
    high = np.full((regions, dimensions), LAST, np.int64)
    for i in range(regions):
        for p in range(actor.start[i], actor.start[i + 1]):
            low[i, actor.dimension[p]] = actor.low[p]
            high[i, actor.dimension[p]] = actor.high[p]
    return low, high


@kernel
def _between(
    edges: Int64Array,
    start: Int64Array,
    size: Int64Array,
    box: Int32Array,
    key: Int64Array,
    d: int,
    before: int,
    last: int,
    seen: npt.NDArray[np.uint8],
    found: Int32Array,
    count: int,
) -> int:
    """Append the regions with an end after `before` and up to `last`, each once."""
    cells = edges.shape[1]
    first_bucket = d * cells + cell_of(edges, d, before)
    last_bucket = d * cells + cell_of(edges, d, last)
    for bucket in range(first_bucket, last_bucket + 1):
        for at in range(start[bucket], start[bucket] + size[bucket]):
            if before < key[at] <= last:
                r = np.uint32(box[at])
                if seen[r] == 0:
                    seen[r] = 1
                    found[count] = box[at]
                    count += 1
    return count


@kernel
def _transitions(
    old: Actor,
    new: Actor,
    old_low: Int64Array,
    old_high: Int64Array,
    new_low: Int64Array,
    new_high: Int64Array,
    side: Side,
    spaces: UInt64Array,
    candidates: Int32Array,
    done: UInt64Array,
) -> tuple[Int32Array, int]:
    """Whose state changes, by comparing before and after: it is not written down what it was."""
    header, constraint, number, first = side.header, side.constraint, side.number, side.first
    regions = len(new.valid)
    simple = regions == 1 and len(new.code) == 0
    old_valid, new_valid = old.valid[0], new.valid[0]
    several = False
    changed = np.empty(len(candidates), np.int32)
    entered = 0
    gone = len(candidates)
    for at in range(len(candidates)):
        r = np.uint32(candidates[at])
        o = header[r, 3]
        if simple and o >= 0:
            # As `_meet` does; to call it takes as long as to do it.
            before = old_valid & np.uint64(header[r, 2])
            after = new_valid & np.uint64(header[r, 2])
            for p in range(header[r, 0], header[r, 0] + header[r, 1]):
                d = np.uint32(constraint[p, 0])
                low, high = constraint[p, 1], constraint[p, 2]
                apart = (low > old_high[0, d]) | (high < old_low[0, d])
                before &= ~(spaces[d] * np.uint64(apart))
                apart = (low > new_high[0, d]) | (high < new_low[0, d])
                after &= ~(spaces[d] * np.uint64(apart))
            was, is_now = before != 0, after != 0
        else:
            several = True
            if o < 0:
                o = ~o
            if done[o] != 0:
                continue
            done[o] = 1
            own_was = own_is = np.uint64(0)
            partners_was = partners_is = np.uint64(0)
            for j in range(number[o]):
                for i in range(regions):
                    met, meets = _meet(
                        header, constraint, np.uint32(first[o] + j), i, old.valid[i], new.valid[i],
                        old_low, old_high, new_low, new_high, spaces,
                    )  # fmt: skip
                    own_was |= np.uint64(met) << np.uint64(i)
                    partners_was |= np.uint64(met) << np.uint64(j)
                    own_is |= np.uint64(meets) << np.uint64(i)
                    partners_is |= np.uint64(meets) << np.uint64(j)
            begin, steps = side.code_start[o], side.code_length[o]
            was = holds(old.code, 0, len(old.code), own_was, regions) and holds(
                side.code, begin, steps, partners_was, number[o]
            )
            is_now = holds(new.code, 0, len(new.code), own_is, regions) and holds(
                side.code, begin, steps, partners_is, number[o]
            )
        # One from each end; what is written over was neither.
        changed[entered] = o
        changed[gone - 1] = o if was > is_now else changed[gone - 1]
        entered += is_now > was
        gone -= was > is_now
    if several:
        for at in range(len(candidates)):
            done[side.owner[candidates[at]]] = 0
    return np.concatenate((changed[:entered], changed[gone:])), entered


@kernel
def _meet(
    header: Int64Array,
    constraint: Int64Array,
    r: Whole,
    i: int,
    valid_before: np.uint64,
    valid_after: np.uint64,
    old_low: Int64Array,
    old_high: Int64Array,
    new_low: Int64Array,
    new_high: Int64Array,
    spaces: UInt64Array,
) -> tuple[bool, bool]:
    """Does region `r` overlap the actor's region `i` in some space, before and after?"""
    valid = np.uint64(header[r, 2])
    before = valid_before & valid
    after = valid_after & valid
    for p in range(header[r, 0], header[r, 0] + header[r, 1]):
        d = np.uint32(constraint[p, 0])
        low, high = constraint[p, 1], constraint[p, 2]
        # Without branches, which nobody could foresee.
        apart = (low > old_high[i, d]) | (high < old_low[i, d])
        before &= ~(spaces[d] * np.uint64(apart))
        apart = (low > new_high[i, d]) | (high < new_low[i, d])
        after &= ~(spaces[d] * np.uint64(apart))
    return before != 0, after != 0
