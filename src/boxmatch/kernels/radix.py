"""Sorting long arrays of keys digit by digit, in a fifth of the time that comparing them takes."""

from __future__ import annotations

from typing import Final

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.threads import each, split

_DIGIT_BITS: Final = 11
_DIGITS: Final = 1 << _DIGIT_BITS
_FEW = 1_024
"""Keys up to which comparing them is as quick."""

_PART = 1 << 17
"""Keys for each thread, at least."""

_SIGN = np.uint64(1 << 63)


def sorted_keys(keys: Int64Array) -> Int64Array:
    """The keys in ascending order."""
    if len(keys) <= _FEW:
        return np.sort(keys)
    work = keys.view(np.uint64) ^ _SIGN
    spare = np.empty_like(work)
    ordered = spare if _sort(work, spare, _differing(work)) else work
    ordered ^= _SIGN
    return ordered.view(np.int64)


def stable_order(keys: UInt64Array, threads: int | None = 1) -> Int32Array:
    """The rows of the keys, fewer than 2 ** 31, in ascending order; equal ones in that of rows.

    The keys are overwritten.
    """
    if len(keys) <= _FEW:
        return np.argsort(keys, kind="stable").astype(np.int32)
    differing = int(_differing(keys))
    rows = np.arange(len(keys), dtype=np.int32)
    other_keys, other_rows = np.empty_like(keys), np.empty_like(rows)
    parts = split(len(keys), threads, least=_PART)
    for shift in range(0, 64, _DIGIT_BITS):
        if (differing >> shift) & (_DIGITS - 1):
            _by_digit((keys, rows), shift, parts, (other_keys, other_rows))
            keys, rows, other_keys, other_rows = other_keys, other_rows, keys, rows
    return rows


def _by_digit(
    source: tuple[UInt64Array, Int32Array],
    shift: int,
    parts: list[tuple[int, int]],
    target: tuple[UInt64Array, Int32Array],
) -> None:
    """Order keys and rows by one digit, which leaves those that have the same in their order."""
    counts = np.stack(each(lambda part: _count_digits(source[0], shift, *part), parts), axis=1)
    # By digit, then by part: where the first key of the part that has this digit goes.
    ends = np.cumsum(counts, dtype=np.uint64).reshape(counts.shape)
    places = np.ascontiguousarray((ends - counts).T)
    each(
        lambda number: _move(*source, shift, *parts[number], places[number], *target),
        range(len(parts)),
    )


def _differing(keys: UInt64Array) -> np.uint64:
    """The bits in which some keys differ."""
    return np.uint64(np.bitwise_or.reduce(keys) ^ np.bitwise_and.reduce(keys))


@kernel
def _sort(keys: UInt64Array, spare: UInt64Array, differing: np.uint64) -> bool:
    """Sort, with as much room again; returns whether the outcome is in `spare`."""
    digit = np.uint64(_DIGITS - 1)
    one = np.uint64(1)
    place = np.empty(_DIGITS, np.uint64)
    in_spare = False
    for step in range(0, 64, _DIGIT_BITS):
        shift = np.uint64(step)
        if (differing >> shift) & digit == np.uint64(0):
            continue
        source, target = (spare, keys) if in_spare else (keys, spare)
        place[:] = 0
        for i in range(len(source)):
            place[(source[i] >> shift) & digit] += one
        _sum_up(place)
        for i in range(len(source)):
            d = (source[i] >> shift) & digit
            target[place[d]] = source[i]
            place[d] += one
        in_spare = not in_spare
    return in_spare


@kernel
def _sum_up(counts: UInt64Array) -> None:
    """Replace each count by the sum of those before."""
    total = np.uint64(0)
    for d in range(len(counts)):
        count = counts[d]
        counts[d] = total
        total += count


@kernel
def _count_digits(keys: UInt64Array, shift: Int, first: Int, last: Int) -> UInt64Array:
    digit = np.uint64(_DIGITS - 1)
    counts = np.zeros(_DIGITS, np.uint64)
    for i in range(np.uint64(first), np.uint64(last)):
        counts[(keys[i] >> np.uint64(shift)) & digit] += np.uint64(1)
    return counts


@kernel
def _move(
    keys: UInt64Array,
    rows: Int32Array,
    shift: Int,
    first: Int,
    last: Int,
    place: UInt64Array,
    moved_keys: UInt64Array,
    moved_rows: Int32Array,
) -> None:
    """Put keys with their rows where `place` says for their digit."""
    digit = np.uint64(_DIGITS - 1)
    for i in range(np.uint64(first), np.uint64(last)):
        key = keys[i]
        d = (key >> np.uint64(shift)) & digit
        to = place[d]
        place[d] += np.uint64(1)
        moved_keys[to] = key
        moved_rows[to] = rows[i]
