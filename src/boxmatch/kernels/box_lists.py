"""Lists of boxes that grow, how bits become boxes, and how a list is handed over."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array
from boxmatch.kernels.bit_lines import (
    LINE_WORDS,
    any_bit,
    count_ones,
    load_line,
    trailing_zeros,
    write_places,
)
from boxmatch.kernels.jit import kernel

SPARE = 4
"""Room that `list_line` needs in a list beyond what it adds to it."""


@kernel
def is_alive(alive: BitLines, box: Int) -> bool:
    """Whether a box has its bit."""
    word = alive[box >> 9, (box >> 6) & 7]
    return bool((word >> np.uint64(box & 63)) & np.uint64(1))


@kernel
def list_word(bits: np.uint64, base: Int, boxes: Int32Array, at: Int) -> Int:
    """Write `base` + the place of each set bit to `boxes[at:]`; return where the list ends."""
    while bits != 0:
        boxes[at] = base + trailing_zeros(bits)
        bits &= bits - np.uint64(1)
        at += 1
    return at


@kernel
def list_line(lines: BitLines, row: Int, base: Int, boxes: Int32Array, at: Int) -> Int:
    """As `list_word`, of a whole line, for lines in which several bits may be set.

    Writing four at a time and asking afterwards how many there were guesses wrong less often than
    asking for each bit whether there is one more.
    """
    if not any_bit(load_line(lines, row)):
        return at
    for word in range(LINE_WORDS):
        bits = lines[row, word]
        end = at + count_ones(bits)
        bits = write_places(bits, base + word * 64, boxes, at)
        while bits != 0:
            at += 4
            bits = write_places(bits, base + word * 64, boxes, at)
        at = end
    return at


@kernel
def longer(array: Int32Array, length: Int) -> Int32Array:
    """A copy with room for `length` items."""
    copy = np.empty(length, np.int32)
    # Not as slices: Numba takes two seconds to compile the message for lengths that differ.
    for i in range(len(array)):
        copy[i] = array[i]
    return copy


@kernel
def append(found: Int32Array, end: Int, more: Int32Array, count: Int) -> tuple[Int32Array, Int]:
    """Write the first `count` of `more` to `found[end:]`, or to a longer list if it is full."""
    if end + count > len(found):
        found = longer(found, 2 * (end + count))
    for i in range(count):
        found[end + i] = more[i]
    return found, end + count


@kernel
def once_per_owner(owners: Int32Array, found: Int32Array, first: Int, end: Int) -> Int:
    """Keep one box of each owner in `found[first:end]`; return where the list then ends.

    Without owners, all boxes are kept.
    """
    if len(owners) == 0 or end - first < 2:
        return end
    bits = 3
    while (1 << bits) < 2 * (end - first):
        bits += 1
    seen = np.full(1 << bits, -1, np.int32)
    last = (1 << bits) - 1
    kept = first
    for i in range(first, end):
        owner = owners[found[i]]
        scattered = np.uint64(owner) * np.uint64(0x9E3779B1) & np.uint64(0xFFFFFFFF)
        place = np.int64(scattered >> np.uint64(32 - bits))
        while seen[place] >= 0 and seen[place] != owner:
            place = (place + 1) & last
        if seen[place] < 0:
            seen[place] = owner
            found[kept] = found[i]
            kept += 1
    return kept


@kernel
def once_per_owner_and_point(owners: Int32Array, counts: Int64Array, found: Int32Array) -> None:
    """Keep one box of each owner for each point, of which `found` has `counts`; both change."""
    first = kept = 0
    for point in range(len(counts)):
        end = first + counts[point]
        own = once_per_owner(owners, found, first, end)
        counts[point] = own - first
        for i in range(first, own):
            found[kept] = found[i]
            kept += 1
        first = end


@kernel
def hand_over(found: Int32Array, end: Int, ids: Int64Array, room: Int64Array, first: Int) -> bool:
    """Write the first `end` boxes, or their `ids` if there are any, to `room[first:]`.

    False if they do not fit, or if there is no room at all.
    """
    if len(room) == first or len(room) - first < end:
        return False
    # Places are unsigned, so that a read need not wait for the question where the last one counts
    # from: ids come from all over memory, and many reads are under way at once.
    begin = np.uint64(first)
    if len(ids):
        for i in range(np.uint64(end)):
            room[begin + i] = ids[np.uint64(found[i])]
    else:
        for i in range(np.uint64(end)):
            room[begin + i] = found[i]
    return True
