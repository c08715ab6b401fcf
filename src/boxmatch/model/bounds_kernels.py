"""Bounds as numbers to bounds as keys, compiled."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int, Int64Array
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import FIRST, LAST

FLOAT: Final = 0
INT: Final = 1
BOOL: Final = 2
TEXT: Final = 3
TIME: Final = 4

NO_ROW: Final = -1

_MIN: Final = np.int64(-(2**63))
_BEYOND: Final = 2.0**63
"""The first number above all of int64."""


@kernel
def count_predicates(lows: npt.NDArray[Any], highs: npt.NDArray[Any], start: Int64Array) -> None:
    """Where the predicates of each row start; NaN on both sides is none."""
    start[0] = 0
    for row in range(lows.shape[0]):
        count = 0
        for position in range(lows.shape[1]):
            low = lows[row, position]
            high = highs[row, position]
            count += (low == low) | (high == high)
        start[row + 1] = start[row] + count


@kernel
def fill_predicates(
    lows: npt.NDArray[Any],
    highs: npt.NDArray[Any],
    exact: tuple[bool, bool],
    kinds: npt.NDArray[np.uint8],
    start: Int64Array,
    first: Int,
    last: Int,
    attribute: npt.NDArray[np.uint16],
    low_keys: Int64Array,
    high_keys: Int64Array,
) -> tuple[Int, Int]:
    """Write the predicates of the rows from `first` to `last`, in order; the row and position that
    cannot be one, or `NO_ROW`.

    `exact` says whether lows, and highs, are integers; `start` is that of `count_predicates`.
    """
    present = np.empty(lows.shape[1] + 1, np.uint64)
    for row in range(np.uint64(first), np.uint64(last)):
        # Which ones there are comes first: a branch for each bound would often go wrong.
        size = np.uint64(0)
        for position in range(np.uint64(lows.shape[1])):
            low = lows[row, position]
            high = highs[row, position]
            present[size] = position
            size += np.uint64((low == low) | (high == high))
        begin = np.uint64(start[row])
        for i in range(size):
            position = present[i]
            place = begin + np.uint64(i)
            low = lows[row, position]
            high = highs[row, position]
            kind = kinds[position]
            if kind == FLOAT:
                low_key = _float_key(low) if low == low else FIRST
                high_key = _float_key(high) if high == high else LAST
            else:
                if (
                    kind == TEXT
                    or (kind == BOOL and not (_is_bit(low) and _is_bit(high)))
                    or (kind == TIME and not (exact[0] or _is_whole(low)))
                    or (kind == TIME and not (exact[1] or _is_whole(high)))
                ):
                    return np.int64(row), np.int64(position)
                low_key = _whole_key(low, exact[0], True) if low == low else FIRST
                high_key = _whole_key(high, exact[1], False) if high == high else LAST
                if low_key < FIRST:
                    low_key = FIRST
                # No number is that large, or that small.
                if (not exact[0] and low >= _BEYOND) or high_key < FIRST:
                    low_key, high_key = LAST, FIRST
            attribute[place] = position
            low_keys[place] = low_key
            high_keys[place] = high_key
    return NO_ROW, NO_ROW


@kernel
def _float_key(value: Any) -> Any:
    bits = np.float64(value).view(np.int64)
    return bits if bits >= 0 else _MIN - bits


@kernel
def _is_bit(value: Any) -> Any:
    return value == 0 or value == 1 or value != value


@kernel
def _is_whole(value: Any) -> Any:
    """Whether a float is a whole number in int64, or says that there is no bound."""
    if value != value or value == np.inf or value == -np.inf:
        return True
    return value == np.floor(value) and value >= -_BEYOND and value < _BEYOND


@kernel
def _whole_key(value: Any, exact: bool, up: bool) -> Any:
    """The nearest whole number that is within a bound, or the end of int64 that it is beyond."""
    # Comparing an int64 near its end with a float would round it up to infinity's side.
    if not exact:
        if value >= _BEYOND:
            return np.int64(LAST)
        if value < -_BEYOND:
            return _MIN
        value = np.ceil(value) if up else np.floor(value)
    return np.int64(value)
