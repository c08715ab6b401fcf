"""What lines leave is checked key by key, and matches are put in the order of events."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import cuda

from boxmatch.indexes.tile.cuda.compiled import card_kernel
from boxmatch.indexes.tile.cuda.warps import SIMULATED, TEAM, all_of_team
from boxmatch.indexes.tile.ranks import INEXACT, RANK

SUMMED: Final = 32 if SIMULATED else 256
"""Events whose matches a block adds up."""


@card_kernel()
def check_found(
    keys: Any,
    ranks: Any,
    start: Any,
    attribute: Any,
    ends: Any,
    low: Any,
    high: Any,
    order: Any,
    alive: Any,
    found_event: Any,
    found_box: Any,
    cursor: Any,
    counts: Any,
    place: Any,
) -> None:
    """Count the boxes that hold their event; `place` is which of the event's each is, or -1.

    `found_box` has places in tiles, and boxes afterwards. A team of lanes has a box, and a lane
    one of its predicates, so that they read what lies together. Ranks decide nearly all.
    """
    found = np.uint32(min(cursor[0], np.int64(found_event.size)))
    thread = np.uint32(cuda.grid(1))
    lane = thread % np.uint32(TEAM)
    teams = np.uint32(cuda.gridsize(1) // TEAM)
    # All teams of a warp go round as often.
    together = np.uint32(max(1, 32 // TEAM)) if TEAM > 1 else np.uint32(1)
    end = (found + together - np.uint32(1)) // together * together
    for i in range(thread // np.uint32(TEAM), end, teams):
        holds = i < found
        event = np.uint32(0)
        box = np.uint32(0)
        if holds:
            event, box = np.uint32(found_event[i]), np.uint32(found_box[i])
            box = (box & np.uint32(0xFFFFFE00)) + np.uint32(order[box])
            holds = (alive[box >> np.uint32(5)] >> (box & np.uint32(31))) & np.uint32(1) != 0
            first, last = np.uint64(start[box]), np.uint64(start[box + np.uint32(1)])
            for p in range(first + np.uint64(lane), last, np.uint64(TEAM)):
                a = np.uint32(attribute[p])
                rank = np.uint32(ranks[event, a])
                both = ends[p]  # the rank of the lower end in the lower half
                low_rank, high_rank = both & np.uint32(0xFFFF), both >> np.uint32(16)
                if rank < (low_rank & np.uint32(RANK)) or rank > (high_rank & np.uint32(RANK)):
                    holds = False
                elif low_rank == rank | np.uint32(INEXACT) or high_rank == rank | np.uint32(
                    INEXACT
                ):
                    key = keys[event, a]
                    if key < low[p] or key > high[p]:
                        holds = False
        holds = all_of_team(holds)
        if i < found and lane == 0:
            found_box[i] = box
            place[i] = np.int32(-1)
            if holds:
                place[i] = cuda.atomic.add(counts, event, np.int32(1))


@card_kernel()
def add_up_blocks(counts: Any, offsets: Any, sums: Any) -> None:
    """Where the matches of each event begin among those of its block, and how many a block has."""
    own = cuda.shared.array(SUMMED, np.int64)
    thread = np.int32(cuda.threadIdx.x)
    event = np.int32(cuda.blockIdx.x) * SUMMED + thread
    if cuda.blockIdx.x >= sums.size:
        return
    count = np.int64(0)
    if event < counts.size:
        count = np.int64(counts[event])
    own[thread] = count
    cuda.syncthreads()
    step = 1
    while step < SUMMED:
        before = np.int64(0)
        if thread >= step:
            before = own[thread - step]
        cuda.syncthreads()
        own[thread] += before
        cuda.syncthreads()
        step *= 2
    if event < counts.size:
        offsets[event] = own[thread] - count
    if thread == SUMMED - 1:
        sums[cuda.blockIdx.x] = own[thread]


@card_kernel()
def add_up(sums: Any) -> None:
    """Where the matches of each block begin; for one block."""
    own = cuda.shared.array(SUMMED, np.int64)
    if cuda.blockIdx.x > 0:
        return
    thread = np.int32(cuda.threadIdx.x)
    each = (sums.size + SUMMED - 1) // SUMMED
    first, last = min(sums.size, thread * each), min(sums.size, (thread + 1) * each)
    total = np.int64(0)
    for i in range(first, last):
        total += sums[i]
    own[thread] = total
    cuda.syncthreads()
    step = 1
    while step < SUMMED:
        before = np.int64(0)
        if thread >= step:
            before = own[thread - step]
        cuda.syncthreads()
        own[thread] += before
        cuda.syncthreads()
        step *= 2
    total = own[thread] - total
    for i in range(first, last):
        count = sums[i]
        sums[i] = total
        total += count


@card_kernel()
def put_in_order(
    found_event: Any,
    found_box: Any,
    cursor: Any,
    place: Any,
    offsets: Any,
    sums: Any,
    boxes: Any,
) -> None:
    """Write the matches, event by event."""
    found = min(cursor[0], np.int64(found_event.size))
    for i in range(cuda.grid(1), found, cuda.gridsize(1)):
        if place[i] >= 0:
            event = found_event[i]
            boxes[offsets[event] + sums[event // SUMMED] + place[i]] = found_box[i]
