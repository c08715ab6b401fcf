"""Which members begin or cease to match an actor that moves: what every update asks.

Only regions with an endpoint between an old and a new value can change. They are collected, each
once, and compared before and after (`pairs`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int32Array, Int64Array, UInt64Array
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import inlined, kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.spaces.endpoints import EndpointCells, cell_of
from boxmatch.spaces.layout import Actor, Side, SideArrays, unpack
from boxmatch.spaces.pairs import dense_of, match_pair
from boxmatch.spaces.region_filter import Code

_AHEAD = 24
"""How many headers are on their way from memory while one is looked at."""

_STEPS = 4
"""So many cells are gone through one by one before a search for the last one is quicker."""


@kernel
def find_changes(old: Actor, new: Actor, others: Int64Array) -> tuple[Int32Array, int]:
    """The owners that begin to match, followed by those that cease to; and how many begin.

    The actor has the same regions as before, valid in the same spaces, and the same code. The other
    side is `packed`.
    """
    there = unpack(others)
    dense = dense_of(old, new, len(new.valid), len(there.spaces))
    return changes(dense, new.valid, new.code, there)


@kernel
def changes(
    dense: Int64Array, valid: UInt64Array, code: Code, others: SideArrays
) -> tuple[Int32Array, int]:
    """The same for an actor whose regions are laid out densely, as they were and are."""
    endpoints = others.endpoints
    _, seen, own, _, found = others.scratch
    count = np.uint64(0)  # unsigned, so that nothing is done about indexes below zero
    for span in _spans(dense, endpoints):
        pool = endpoints.high if span[1] else endpoints.low
        count = _collect(endpoints.edges, endpoints.shares, pool, span, seen, found, count)
    candidates = found[: np.int64(count)]
    for at in range(len(candidates)):
        seen[np.uint32(candidates[at])] = 0
    return _transitions(dense, valid, code, others.side, others.spaces, candidates, own)


@kernel
def _spans(dense: Int64Array, endpoints: EndpointCells) -> Int64Array:
    """Where endpoints lie between an old and a new value: above one key and up to another.

    Rows of dimension, whether they are high endpoints, the two keys, first and last cell. The
    contents of the cells are prefetched.
    """
    regions, dimensions = dense.shape[:2]
    spans = np.empty((2 * regions * dimensions, 6), np.int64)
    count = 0
    for i in range(regions):
        for d in range(dimensions):
            # Regions that begin up to the high end overlap, as far as this end goes.
            if dense[i, d, 1] != dense[i, d, 3]:
                cell = _lay(endpoints.edges, d, 0, dense[i, d, 1], dense[i, d, 3], spans[count])
                prefetch(endpoints.low.start, cell * endpoints.shares)
                prefetch(endpoints.low.size, cell * endpoints.shares)
                count += 1
            # And those that end at the low end or later: only endpoints before it are passed.
            if dense[i, d, 0] != dense[i, d, 2]:
                old, new = dense[i, d, 0] - 1, dense[i, d, 2] - 1
                cell = _lay(endpoints.edges, d, 1, old, new, spans[count])
                prefetch(endpoints.high.start, cell * endpoints.shares)
                prefetch(endpoints.high.size, cell * endpoints.shares)
                count += 1
    for at in range(count):
        pool = endpoints.high if spans[at, 1] else endpoints.low
        bucket = (spans[at, 0] * endpoints.edges.shape[1] + spans[at, 4]) * endpoints.shares
        begin = pool.start[bucket]
        for item in range(begin, begin + pool.size[bucket], 16):
            prefetch(pool.box, item)
    return spans[:count]


@kernel
def _lay(edges: Int64Array, d: int, is_high: int, old: int, new: int, span: Int64Array) -> int:
    """Fill a span; returns the number of its first cell among those of all dimensions."""
    above, up_to = min(old, new), max(old, new)
    cells = edges.shape[1]
    first = cell_of(edges, d, above)
    # Keys are whole numbers: a cell that ends at `above` has nothing of interest.
    first += first + 1 < cells and edges[d, first + 1] - 1 <= above
    last = first
    while last + 1 < cells and edges[d, last + 1] <= up_to:
        last += 1
        if last == first + _STEPS:
            last = cell_of(edges, d, up_to)
            break
    span[0], span[1], span[2], span[3], span[4], span[5] = d, is_high, above, up_to, first, last
    cell: int = d * cells + first
    return cell


@inlined
def _collect(
    edges: Int64Array,
    shares: int,
    pool: Buckets,
    span: Int64Array,
    seen: npt.NDArray[np.uint8],
    found: Int32Array,
    count: np.uint64,
) -> np.uint64:
    """Append the regions with an end in a span, each once."""
    d, above, up_to, first, last = span[0], span[2], span[3], span[4], span[5]
    cells = edges.shape[1]
    whole_from = first + (edges[d, first] <= above)
    whole_to = last - (last + 1 == cells or edges[d, last + 1] - 1 > up_to)
    begin = d * cells
    if first < whole_from:
        count = _some_of(pool, shares, begin + first, above, up_to, seen, found, count)
    for bucket in range((begin + whole_from) * shares, (begin + whole_to + 1) * shares):
        boxes = pool.box[pool.start[bucket] :][: pool.size[bucket]]
        for at in range(len(boxes)):
            r = np.uint32(boxes[at])
            # Without branches, which could not be predicted; there is room for one too many.
            found[count] = boxes[at]
            count += np.uint64(seen[r] ^ 1)
            seen[r] = 1
    if whole_to < last and whole_from <= last:
        count = _some_of(pool, shares, begin + last, above, up_to, seen, found, count)
    return count


@inlined
def _some_of(
    pool: Buckets,
    shares: int,
    cell: int,
    above: int,
    up_to: int,
    seen: npt.NDArray[np.uint8],
    found: Int32Array,
    count: np.uint64,
) -> np.uint64:
    """The same for a cell that is only partly in the span."""
    for bucket in range(cell * shares, (cell + 1) * shares):
        start = pool.start[bucket]
        for at in range(start, start + pool.size[bucket]):
            r = np.uint32(pool.box[at])
            passed = np.uint8(above < pool.key[at]) & np.uint8(pool.key[at] <= up_to)
            found[count] = pool.box[at]
            count += np.uint64(passed & ~seen[r])
            seen[r] |= passed
    return count


@kernel
def _transitions(
    dense: Int64Array,
    valid: UInt64Array,
    code: Code,
    side: Side,
    spaces: UInt64Array,
    candidates: Int32Array,
    done: UInt64Array,
) -> tuple[Int32Array, int]:
    """The owners whose state changes: it is not stored, so before and after are compared."""
    changed = np.empty(len(candidates) + 1, np.int32)
    entered, gone = 0, len(candidates)
    if len(valid) == 1 and len(code) == 0:
        entered, gone, left = _simple_transitions(
            side.header, dense[0], valid[0], spaces, candidates, changed
        )
        candidates = candidates[:left]
    for at in range(len(candidates)):
        o = side.owner[candidates[at]]
        if done[o] == 0:
            done[o] = 1
            was, is_now = match_pair(dense, valid, code, side, spaces, o)
            changed[entered] = o
            entered += is_now > was
            changed[gone] = o
            gone -= was > is_now
    for at in range(len(candidates)):
        done[side.owner[candidates[at]]] = 0
    return np.concatenate((changed[:entered], changed[gone + 1 :])), entered


@kernel
def _simple_transitions(
    header: Int64Array,
    dense: Int64Array,
    valid: np.uint64,
    spaces: UInt64Array,
    candidates: Int32Array,
    changed: Int32Array,
) -> tuple[int, int, int]:
    """The same for owners of one region with at most two constraints and no filter.

    They are by far the most common, so they have their own loop. Returns how many begin to match,
    the place before those that cease to, and how many candidates are left, which then come first.
    """
    entered, gone, left = 0, len(candidates), 0
    last = len(candidates) - 1
    for at in range(len(candidates)):
        r = np.uint32(candidates[at])
        prefetch(header, candidates[min(at + _AHEAD, last)])
        packed, both, o = header[r, 1], np.uint64(header[r, 2]) & valid, header[r, 3]
        if (o < 0) | (np.uint16(packed) > 2):
            candidates[left] = candidates[at]
            left += 1
            continue
        # As `_meet` does, in half its time: both constraints are fetched at once.
        d, e = np.uint16(packed >> 16), np.uint16(packed >> 32)
        low_d, high_d, low_e, high_e = header[r, 4], header[r, 5], header[r, 6], header[r, 7]
        apart_d = np.uint64((low_d > dense[d, 1]) | (high_d < dense[d, 0]))
        apart_e = np.uint64((low_e > dense[e, 1]) | (high_e < dense[e, 0]))
        before = both & ~(spaces[d] * apart_d) & ~(spaces[e] * apart_e)
        apart_d = np.uint64((low_d > dense[d, 3]) | (high_d < dense[d, 2]))
        apart_e = np.uint64((low_e > dense[e, 3]) | (high_e < dense[e, 2]))
        after = both & ~(spaces[d] * apart_d) & ~(spaces[e] * apart_e)
        was, is_now = before != 0, after != 0
        # One from each end; what is written over was neither.
        changed[entered] = o
        entered += is_now > was
        changed[gone] = o
        gone -= was > is_now
    return entered, gone, left
