"""Lists of boxes that grow, and how bits become boxes."""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.base import Int32Array, Lines, Whole
from boxmatch.indexes.lines import trailing_zeros
from boxmatch.jit import kernel


@kernel
def is_alive(alive: Lines, box: Whole) -> bool:
    """Whether a box has its bit."""
    word = alive[box >> 9, (box >> 6) & 7]
    return bool((word >> np.uint64(box & 63)) & np.uint64(1))


@kernel
def list_word(bits: np.uint64, base: Whole, boxes: Int32Array, at: Whole) -> Whole:
    """Write `base` + the place of each set bit to `boxes[at:]`; return where the list ends."""
    while bits != 0:
        boxes[at] = base + trailing_zeros(bits)
        bits &= bits - np.uint64(1)
        at += 1
    return at


@kernel
def longer(array: Int32Array, length: Whole) -> Int32Array:
    """A copy with room for `length` items."""
    copy = np.empty(length, np.int32)
    # Not as slices: Numba takes two seconds to compile the message for lengths that differ.
    for i in range(len(array)):
        copy[i] = array[i]
    return copy


@kernel
def append(
    found: Int32Array, end: Whole, more: Int32Array, count: Whole
) -> tuple[Int32Array, Whole]:
    """Write the first `count` of `more` to `found[end:]`, or to a longer list if it is full."""
    if end + count > len(found):
        found = longer(found, 2 * (end + count))
    for i in range(count):
        found[end + i] = more[i]
    return found, end + count
