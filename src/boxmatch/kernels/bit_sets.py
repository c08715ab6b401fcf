"""Bit sets with one bit per box: what is marked cannot match."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, UInt64Array
from boxmatch.kernels.bit_lines import LINE_WORDS, count_ones
from boxmatch.kernels.box_lists import list_word, longer
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel

# Numba allows for negative indices unless these are unsigned, which takes a fifth of the time.


@kernel
def mark(words: UInt64Array, box: Int) -> None:
    place = np.uint32(box)
    words[place >> np.uint32(6)] |= np.uint64(1) << np.uint64(place & np.uint32(63))


@kernel
def unmark(words: UInt64Array, box: Int) -> None:
    place = np.uint32(box)
    words[place >> np.uint32(6)] &= ~(np.uint64(1) << np.uint64(place & np.uint32(63)))


@kernel
def mark_buckets(words: UInt64Array, buckets: Buckets, first: Int, last: Int) -> Int:
    """Mark every box of some neighbouring buckets; return how many."""
    # All of them in one call: to hand over the arrays takes longer than to walk a small bucket.
    start, size, box = buckets.start, buckets.size, buckets.box
    marks: Int = 0
    for bucket in range(first, last):
        for at in range(start[bucket], start[bucket] + size[bucket]):
            mark(words, box[at])
        marks += size[bucket]
    return marks


@kernel
def mark_all_but(words: UInt64Array, alive: BitLines) -> None:
    """Begin anew: mark what is not alive."""
    for line in range(len(alive)):
        for word in range(LINE_WORDS):
            words[line * LINE_WORDS + word] = ~alive[line, word]


@kernel
def take_unmarked(
    words: UInt64Array, listing: bool, found: Int32Array, end: Int
) -> tuple[Int, Int32Array, Int]:
    """How many boxes are not marked; if `listing`, write them to `found[end:]` as well.

    Returns the count, the list (a longer one if it was too short) and where it then ends.
    """
    count = 0
    for at in range(len(words)):
        free = ~words[at]
        if free == 0:
            continue
        count += count_ones(free)
        if listing:
            if end + 64 > len(found):
                found = longer(found, 2 * len(found) + 64)
            end = list_word(free, 64 * at, found, end)
    return count, found, end
