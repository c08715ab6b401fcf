"""Counters with one place per box: how many of its conditions are still to be met.

They run down from what a box needs to zero, so that those that match are found by looking for
zeros, 64 at a time. Their type is the smallest that holds the largest need.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array
from boxmatch.kernels.bit_lines import count_ones, zero_items
from boxmatch.kernels.box_lists import list_word, longer
from boxmatch.kernels.bucket_pool import Buckets
from boxmatch.kernels.jit import kernel

Counters = npt.NDArray[np.unsignedinteger[Any]]


NO_NEEDS: Counters = np.ones(0, np.uint8)


def with_needs(counters: Counters, wanted: Int64Array, positions: Int32Array) -> Counters:
    """`counters` with what boxes at ascending `positions` need, where some may be missing.

    There is room for whole groups of 64. What was given must not be used any more.
    """
    end = int(positions[-1]) + 1
    kind = np.promote_types(counters.dtype, np.min_scalar_type(int(wanted.max())))
    if end > len(counters) or kind != counters.dtype:
        rows = 2 * end if len(counters) else end
        roomier: Counters = np.ones(-(-rows // 64) * 64, kind)
        roomier[: len(counters)] = counters
        counters = roomier
    counters[positions] = wanted
    return counters


@kernel
def reset(counters: Counters, need: Counters) -> None:
    for i in range(len(need)):
        counters[i] = need[i]


@kernel
def run_down(counters: Counters, box: Int32Array, first: int, last: int) -> None:
    """One condition is met by each of `box[first:last]`."""
    for at in range(first, last):
        # Unsigned: a signed index might count from the end, and asking takes a third of the time.
        counters[np.uint32(box[at])] -= np.uint8(1)


@kernel
def run_down_between(
    counters: Counters, buckets: Buckets, bucket: int, least: Int, most: Int
) -> None:
    """One condition is met by the boxes of a bucket whose key is in `least … most`."""
    start = buckets.start[bucket]
    for at in range(start, start + buckets.size[bucket]):
        key = buckets.key[at]
        counters[np.uint32(buckets.box[at])] -= np.uint8(least <= key <= most)


@kernel
def take_zeros(
    counters: Counters, alive: BitLines, listing: bool, found: Int32Array, end: Int
) -> tuple[Int, Int32Array, Int]:
    """How many living boxes have nothing left to meet; if `listing`, write them to `found[end:]`.

    Returns the count, the list (a longer one if it was too short) and where it then ends.
    """
    count = 0
    for first in range(0, len(counters), 64):
        if first >> 9 >= len(alive):
            break
        met = zero_items(counters, first) & alive[first >> 9, (first >> 6) & 7]
        if met == 0:
            continue
        count += count_ones(met)
        if listing:
            if end + 64 > len(found):
                found = longer(found, 2 * len(found) + 64)
            end = list_word(met, first, found, end)
    return count, found, end
