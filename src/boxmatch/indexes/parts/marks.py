"""Bit sets with one bit per box: what is marked cannot match."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.indexes.base import Int32Array, Lines, Whole
from boxmatch.indexes.lines import LINE_WORDS, count_ones
from boxmatch.indexes.parts.buckets import Buckets
from boxmatch.indexes.parts.found import list_word, longer
from boxmatch.jit import kernel

Words = npt.NDArray[np.uint64]


# Numba allows for negative indices unless these are unsigned, which takes a fifth of the time.


@kernel
def mark(words: Words, box: Whole) -> None:
    place = np.uint32(box)
    words[place >> np.uint32(6)] |= np.uint64(1) << np.uint64(place & np.uint32(63))


@kernel
def unmark(words: Words, box: Whole) -> None:
    place = np.uint32(box)
    words[place >> np.uint32(6)] &= ~(np.uint64(1) << np.uint64(place & np.uint32(63)))


@kernel
def mark_buckets(words: Words, buckets: Buckets, first: Whole, last: Whole) -> Whole:
    """Mark every box of some neighbouring buckets; return how many."""
    # All of them in one call: to hand over the arrays takes longer than to walk a small bucket.
    start, size, box = buckets.start, buckets.size, buckets.box
    marks: Whole = 0
    for bucket in range(first, last):
        for at in range(start[bucket], start[bucket] + size[bucket]):
            mark(words, box[at])
        marks += size[bucket]
    return marks


@kernel
def mark_all_but(words: Words, alive: Lines) -> None:
    """Begin anew: mark what is not alive."""
    for line in range(len(alive)):
        for word in range(LINE_WORDS):
            words[line * LINE_WORDS + word] = ~alive[line, word]


@kernel
def take_unmarked(
    words: Words, listing: bool, found: Int32Array, end: Whole
) -> tuple[Whole, Int32Array, Whole]:
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
