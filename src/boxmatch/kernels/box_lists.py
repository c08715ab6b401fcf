"""Lists of boxes that grow, and how bits become boxes."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array
from boxmatch.kernels.bit_lines import trailing_zeros
from boxmatch.kernels.jit import kernel


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
