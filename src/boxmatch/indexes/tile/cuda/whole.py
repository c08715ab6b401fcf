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

LISTED: Final = SUMMED
"""Words of 32 boxes that a block lists at a time."""

LISTING: Final = 4 * LISTED
"""Words that a block lists in all, at least."""

_MOST_LISTED: Final = 32 * LISTED


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
    masks: Any,
) -> None:
    """Count the matches of each part of the boxes by event; keep which they are, if wanted.

    Block (events, part of the boxes). `keys` go by attribute, `counts` by part and event, `masks`,
    if there is room in them, by word of 32 boxes and event.
    """
    own = cuda.local.array(EACH, np.int64)
    failed = cuda.local.array(EACH, np.uint32)
    count = cuda.local.array(EACH, np.int64)
    events = np.int32(keys.shape[1])
    first_event = np.int32(cuda.blockIdx.x) * np.int32(EVENTS) + np.int32(cuda.threadIdx.x)
    part = np.int32(cuda.blockIdx.y)
    if np.int32(cuda.blockIdx.x) * np.int32(EVENTS) >= events:
        return
    keeping = masks.shape[0] > 0
    for j in range(EACH):
        count[j] = 0
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
            if event < events:
                count[j] += np.int64(cuda.popc(bits))
                if keeping:
                    masks[word, event] = bits
    for j in range(EACH):
        event = first_event + j * THREADS
        if event < events:
            counts[part, event] = count[j]


@card_kernel()
def list_boxes(masks: Any, words_each: Any, parts_each: Any, offsets: Any, boxes: Any) -> None:
    """Write the boxes of masks, those of each part and event from their offset on.

    A block has one event and a few parts. Lists are made in shared memory, so that what is next to
    each other is written at once.
    """
    ends = cuda.shared.array(LISTED, np.int32)
    listed = cuda.shared.array(_MOST_LISTED, np.int32)
    thread = np.uint32(cuda.threadIdx.x)
    event, part = np.uint32(cuda.blockIdx.x), np.uint32(cuda.blockIdx.y) * np.uint32(parts_each)
    if event >= np.uint32(masks.shape[1]):
        return
    at = np.uint64(offsets[part, event])
    first_word = part * np.uint32(words_each)
    words = np.uint32(words_each) * np.uint32(parts_each)
    last_word = min(first_word + words, np.uint32(masks.shape[0]))
    for first in range(first_word, last_word, np.uint32(LISTED)):
        word = first + thread
        bits = np.uint32(0)
        if word < last_word:
            bits = masks[word, event]
        own = np.int32(cuda.popc(bits))
        ends[thread] = own
        cuda.syncthreads()
        step = 1
        while step < LISTED:
            before = np.int32(0)
            if thread >= step:
                before = ends[thread - np.uint32(step)]
            cuda.syncthreads()
            ends[thread] += before
            cuda.syncthreads()
            step *= 2
        place = np.uint32(ends[thread] - own)
        while bits != 0:
            listed[place] = np.int32(word * np.uint32(32)) + np.int32(cuda.ffs(bits)) - np.int32(1)
            bits &= bits - np.uint32(1)
            place += np.uint32(1)
        cuda.syncthreads()
        total = np.uint32(ends[LISTED - 1])
        for i in range(thread, total, np.uint32(LISTED)):
            boxes[at + np.uint64(i)] = listed[i]
        at += np.uint64(total)
        cuda.syncthreads()


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
