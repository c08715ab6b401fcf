"""Sets of texts as ranges, in the order of code points.

A range `(low, high)` has the texts from `low` up to, but not, `high`; None is no end. The text
right after another one is that with a NUL at its end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from boxmatch.model.documents import NULL_TEXT, TEXTS_OF_KIND

TextRange = tuple[str, str | None]
TextRanges = tuple[TextRange, ...]
"""Sorted; none touches another."""

NO_TEXT: Final[TextRanges] = ()
ANY_TEXT: Final[TextRanges] = (("", None),)
ANY_VALUE: Final[TextRanges] = (("", NULL_TEXT), (NULL_TEXT + "\0", None))
"""Of all kinds but null."""


def point(text: str) -> TextRanges:
    """One text."""
    return ((text, text + "\0"),)


def of_kind(kind: str) -> TextRanges:
    """All that could be the texts of values of a kind."""
    return (TEXTS_OF_KIND[kind],)


def starting(text: str) -> TextRanges:
    """All that start with a text."""
    return ((text, prefix_end(text)),)


def prefix_end(prefix: str) -> str | None:
    """The smallest string above all that start with `prefix`; None if there is none."""
    for last in range(len(prefix) - 1, -1, -1):
        point = ord(prefix[last]) + 1
        if point == 0xD800:
            point = 0xE000  # surrogates are not characters
        if point <= 0x10FFFF:
            return prefix[:last] + chr(point)
    return None


def compared(operator: str, text: str, kind: str) -> TextRanges:
    """The texts of a kind that compare so with one of them."""
    [(first, end)] = of_kind(kind)
    match operator:
        case "=":
            return point(text)
        case "<>":
            return common(of_kind(kind), others(point(text)))
        case "<":
            return united([(first, text)])
        case "<=":
            return united([(first, text + "\0")])
        case ">":
            return united([(text + "\0", end)])
    return united([(text, end)])


def united(ranges: Iterable[TextRange]) -> TextRanges:
    """The union of ranges in any order, some of which may be empty."""
    merged: list[TextRange] = []
    for low, high in sorted(ranges, key=lambda one: one[0]):
        if high is not None and high <= low:
            continue
        if merged:
            start, end = merged[-1]
            if end is None:
                break
            if low <= end:
                merged[-1] = start, None if high is None else max(end, high)
                continue
        merged.append((low, high))
    return tuple(merged)


def others(ranges: TextRanges) -> TextRanges:
    """All texts that are not in a set."""
    gaps: list[TextRange] = []
    start: str | None = ""
    for low, high in ranges:
        if start is not None and start < low:
            gaps.append((start, low))
        start = high
    if start is not None:
        gaps.append((start, None))
    return tuple(gaps)


def common(*sets: TextRanges) -> TextRanges:
    """What sets share."""
    return others(united(gap for one in sets for gap in others(one)))


def ends_of_ranges(ranges: TextRanges) -> Iterable[str]:
    """The texts that bounds of the ranges are tied to."""
    for low, high in ranges:
        if low:
            yield low.removesuffix("\0")
        if high is not None:
            yield high.removesuffix("\0")
