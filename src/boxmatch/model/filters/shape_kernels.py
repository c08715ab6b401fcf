"""Texts of filters cut at their constants, and constants to keys, compiled.

The scan takes for constants what the regular expression of `shapes` does. Of a text that has
anything unusual it says so and nothing else: the full path knows what to make of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int32Array, Int64Array
from boxmatch.kernels.jit import kernel

Bytes = npt.NDArray[np.uint8]

NO_SHAPE: Final = -1

_OTHER: Final = 0
_PLAIN: Final = 1
_WORD: Final = 2
_DIGIT: Final = 3
_QUOTE: Final = 4
_NAME: Final = 5
_DASH: Final = 6
_SLASH: Final = 7


def _classes() -> Bytes:
    classes = np.zeros(256, np.uint8)
    for characters, kind in (
        (b" \t\r\n(),=<>!+*%|.&[]", _PLAIN),
        (b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", _WORD),
        (b"0123456789", _DIGIT),
        (b"'", _QUOTE),
        (b'"', _NAME),
        (b"-", _DASH),
        (b"/", _SLASH),
    ):
        classes[list(characters)] = kind
    return classes


CLASSES: Final = _classes()
"""What a byte may be the start of."""

POWERS: Final[npt.NDArray[np.float64]] = 10.0 ** np.arange(23, dtype=np.float64)
"""Those that a float holds."""


@kernel
def scan_texts(
    data: Bytes,
    offsets: Int64Array,
    wanted: BoolArray,
    longest: int,
    classes: Bytes,
    shape: Int32Array,
    first: Int64Array,
    start: Int64Array,
    end: Int64Array,
    slots: Int32Array,
) -> int:
    """Number the texts by shape, from 0 in order of appearance; returns how many shapes there are.

    Text `i` is `data[offsets[i]:offsets[i + 1]]`. Its constants are at `first[i]` and after in
    `start` and `end`. One that has no shape, or is not wanted, gets `NO_SHAPE`. `slots` is a hash
    table of shapes, of a power of two, all of it -1.
    """
    count = len(shape)
    some_text = np.empty(count, np.int64)  # of each shape
    shapes = 0
    used = 0
    for row in range(count):
        first[row] = used
        shape[row] = NO_SHAPE
        begin, stop = offsets[row], offsets[row + 1]
        if not wanted[row] or stop - begin > longest:
            continue
        found, digest = _cut(data, begin, stop, classes, start, end, used)
        if found < 0:
            continue
        first[row + 1] = used + found
        place = digest & (len(slots) - 1)
        while True:
            known = slots[place]
            if known < 0:
                slots[place] = shapes
                some_text[shapes] = row
                shape[row] = shapes
                shapes += 1
                break
            if _same_shape(data, offsets, first, start, end, row, some_text[known]):
                shape[row] = known
                break
            place = (place + 1) & (len(slots) - 1)
        used += found
    first[count] = used
    return shapes


@kernel
def _cut(
    data: Bytes,
    begin: int,
    stop: int,
    classes: Bytes,
    start: Int64Array,
    end: Int64Array,
    used: int,
) -> tuple[int, Any]:
    """The number of constants of a text, or -1 if it is unusual, and a hash of the rest."""
    found = 0
    digest = np.int64(7)
    at = begin
    while at < stop:
        kind = classes[data[at]]
        last = at
        if kind == _PLAIN:
            at += 1
        elif kind == _WORD:
            at += 1
            while at < stop and (classes[data[at]] == _WORD or classes[data[at]] == _DIGIT):
                at += 1
        elif kind == _NAME:
            at += 1
            while at < stop and classes[data[at]] != _NAME:
                # Inside, the regular expression would take these for constants.
                if classes[data[at]] == _QUOTE or classes[data[at]] == _DIGIT or data[at] > 127:
                    return -1, 0
                at += 1
            if at == stop:
                return -1, 0
            at += 1
        elif kind == _DASH:
            at += 1
            if at < stop and data[at] == 45:  # "--" is a comment
                return -1, 0
        elif kind == _SLASH:
            at += 1
            if at < stop and (data[at] == 42 or data[at] == 47):  # "/*" and "//"
                return -1, 0
        elif kind in (_QUOTE, _DIGIT):
            before = classes[data[at - 1]] if at > begin else _PLAIN
            if kind == _QUOTE:
                at = _end_of_string(data, at, stop)
                ended = before == _WORD or before == _DIGIT  # N'…', x1'…'
            else:
                at = _end_of_number(data, at, stop, classes)
                ended = before == _PLAIN and last > begin and data[last - 1] == 46  # .5
            if at < 0 or ended or before in (_NAME, _QUOTE):
                return -1, 0
            if found and end[used + found - 1] == last:
                return -1, 0
            start[used + found] = last
            end[used + found] = at
            found += 1
            digest = (digest * 31 + (1 if kind == _QUOTE else 2)) & 0xFFFFFFFF
            continue
        else:
            return -1, 0
        for place in range(last, at):
            digest = (digest * 31 + np.int64(data[place])) & 0xFFFFFFFF
    return found, digest ^ (digest >> 15)


@kernel
def _end_of_string(data: Bytes, at: int, stop: int) -> int:
    """The end of the string in quotes that starts here; -1 if it has none."""
    at += 1
    while at < stop:
        if data[at] == 39:
            if at + 1 < stop and data[at + 1] == 39:
                at += 1
            else:
                return at + 1
        at += 1
    return -1


@kernel
def _end_of_number(data: Bytes, at: int, stop: int, classes: Bytes) -> int:
    """The end of the number that starts here; -1 if what follows is part of it or of a word."""
    at = _after_digits(data, at, stop, classes)
    if at < stop and data[at] == 46:
        after = _after_digits(data, at + 1, stop, classes)
        if after == at + 1:
            return -1
        at = after
    if at < stop and (data[at] == 69 or data[at] == 101):
        digits = at + 1
        if digits < stop and (data[digits] == 43 or data[digits] == 45):
            digits += 1
        after = _after_digits(data, digits, stop, classes)
        if after == digits:
            return -1
        at = after
    if at < stop and (classes[data[at]] == _WORD or data[at] == 46 or data[at] > 127):
        return -1
    return at


@kernel
def _after_digits(data: Bytes, at: int, stop: int, classes: Bytes) -> int:
    while at < stop and classes[data[at]] == _DIGIT:
        at += 1
    return at


@kernel
def _same_shape(
    data: Bytes,
    offsets: Int64Array,
    first: Int64Array,
    start: Int64Array,
    end: Int64Array,
    one: int,
    other: int,
) -> bool:
    """Whether two texts are equal but for their constants."""
    count = first[one + 1] - first[one]
    if first[other + 1] - first[other] != count:
        return False
    at, there = offsets[one], offsets[other]
    for place in range(count + 1):
        if place < count:
            stop, stop_there = start[first[one] + place], start[first[other] + place]
        else:
            stop, stop_there = offsets[one + 1], offsets[other + 1]
        if stop - at != stop_there - there:
            return False
        while at < stop:
            if data[at] != data[there]:
                return False
            at += 1
            there += 1
        if place < count:
            if (data[at] == 39) != (data[there] == 39):
                return False
            at, there = end[first[one] + place], end[first[other] + place]
    return True


@kernel
def read_numbers(
    data: Bytes,
    start: Int64Array,
    end: Int64Array,
    negative: bool,
    is_float: bool,
    powers: npt.NDArray[np.float64],
    keys: Int64Array,
    known: BoolArray,
) -> None:
    """The keys of numbers of an int or float attribute; those that are not short are not `known`.

    A short one has so few digits that an int64 holds it, or a float does in any case. A quotient
    of two numbers that floats hold is rounded once, and so is the right float.
    """
    most = 15 if is_float else 18
    for row in range(len(start)):
        known[row] = False
        if end[row] - start[row] > most:
            continue
        digits, decimals, is_short = np.int64(0), -1, True
        for at in range(start[row], end[row]):
            if data[at] == 46 and is_float:
                decimals = 0
            elif 48 <= data[at] <= 57:
                digits = digits * 10 + (np.int64(data[at]) - 48)
                if decimals >= 0:
                    decimals += 1
            else:
                is_short = False
        if not is_short:
            continue
        if is_float:
            number = digits / powers[max(decimals, 0)]
            keys[row] = np.float64(number).view(np.int64)
        else:
            keys[row] = digits
        if negative:
            keys[row] = -keys[row]
        known[row] = True


@kernel
def copy_strings(
    data: Bytes, start: Int64Array, end: Int64Array, copied: Bytes, offsets: Int64Array
) -> None:
    """What strings in quotes hold, one after the other, with two quotes inside as one."""
    to = 0
    offsets[0] = 0
    for row in range(len(start)):
        at, stop = start[row] + 1, end[row] - 1
        while at < stop:
            copied[to] = data[at]
            to += 1
            at += 2 if data[at] == 39 else 1
        offsets[row + 1] = to


def scan(data: Bytes, offsets: Int64Array, wanted: BoolArray, longest: int) -> Any:
    """`scan_texts` with new arrays: shapes, how many, and `first`, `start` and `end`."""
    count = len(wanted)
    room = int(offsets[-1] - offsets[0]) // 2 + 2  # two constants never touch
    shape, first = np.empty(count, np.int32), np.empty(count + 1, np.int64)
    start, end = np.empty(room, np.int64), np.empty(room, np.int64)
    slots = np.full(1 << (2 * count).bit_length(), -1, np.int32)
    shapes = scan_texts(data, offsets, wanted, longest, CLASSES, shape, first, start, end, slots)
    return shape, shapes, first, start, end
