"""Where a good part of all boxes match: every predicate against every event, exactly.

A thread has a few events, and goes through the predicates of 32 boxes, attribute by attribute, so
that its keys are read once for each. A bit of a word says which box failed; there is no branch.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import cuda

from boxmatch.indexes.tile.cuda.compiled import card_kernel
from boxmatch.indexes.tile.cuda.settling import SUMMED

THREADS: Final = 64
EACH: Final = 8
"""Events of a thread."""

EVENTS: Final = THREADS * EACH


@card_kernel()
def compare_all(
    keys: Any,
    run_start: Any,
    run_attribute: Any,
    run_first: Any,
    low: Any,
    more: Any,
    bit: Any,
    alive: Any,
    words_each: Any,
    counts: Any,
    offsets: Any,
    boxes: Any,
) -> None:
    """Count the matches of each part of the boxes by event; or list them, if there are offsets.

    Block (events, part of the boxes). `keys` go by attribute. `counts` and `offsets` go by part
    and event.
    """
    own = cuda.local.array(EACH, np.int64)
    failed = cuda.local.array(EACH, np.uint32)
    count = cuda.local.array(EACH, np.int64)
    events = np.int32(keys.shape[1])
    first_event = np.int32(cuda.blockIdx.x) * np.int32(EVENTS) + np.int32(cuda.threadIdx.x)
    part = np.int32(cuda.blockIdx.y)
    if np.int32(cuda.blockIdx.x) * np.int32(EVENTS) >= events:
        return
    listing = offsets.shape[0] > 0
    for j in range(EACH):
        count[j] = 0
        event = first_event + j * THREADS
        if listing and event < events:
            count[j] = offsets[part, event]
    first_word = part * np.int32(words_each)
    last_word = min(first_word + np.int32(words_each), np.int32(alive.size))
    for word in range(first_word, last_word):
        for j in range(EACH):
            failed[j] = np.uint32(0)
        for run in range(run_start[word], run_start[word + 1]):
            a = np.int32(run_attribute[run])
            for j in range(EACH):
                event = first_event + j * THREADS
                own[j] = keys[a, event] if event < events else np.int64(0)
            for p in range(run_first[run], run_first[run + 1]):
                lowest, extent, mask = low[p], more[p], bit[p]
                for j in range(EACH):
                    if np.uint64(own[j]) - np.uint64(lowest) > extent:
                        failed[j] |= mask
        there = alive[word]
        for j in range(EACH):
            event = first_event + j * THREADS
            bits = there & ~failed[j]
            if event >= events:
                bits = np.uint32(0)
            if listing:
                while bits != 0:
                    boxes[count[j]] = word * 32 + np.int32(cuda.ffs(bits)) - 1
                    count[j] += 1
                    bits &= bits - np.uint32(1)
            else:
                count[j] += np.int64(cuda.popc(bits))
    if not listing:
        for j in range(EACH):
            event = first_event + j * THREADS
            if event < events:
                counts[part, event] = count[j]


@card_kernel()
def add_parts(counts: Any, totals: Any) -> None:
    """The matches of each event, and in `counts` those in the parts before."""
    for event in range(cuda.grid(1), totals.size, cuda.gridsize(1)):
        total = np.int64(0)
        for part in range(counts.shape[0]):
            own = counts[part, event]
            counts[part, event] = total
            total += own
        totals[event] = total


@card_kernel()
def shift_parts(counts: Any, offsets: Any, sums: Any) -> None:
    """Make the places of parts within an event those in the list of all matches."""
    events = counts.shape[1]
    for i in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        event = i % events
        counts[i // events, event] += offsets[event] + sums[event // SUMMED]


@card_kernel()
def turn(keys: Any, turned: Any) -> None:
    """The keys by attribute."""
    for i in range(cuda.grid(1), keys.size, cuda.gridsize(1)):
        turned[i // keys.shape[0], i % keys.shape[0]] = keys[i % keys.shape[0], i // keys.shape[0]]
