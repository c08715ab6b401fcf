"""Which regions must have a partner: a boolean expression over their names.

In an expression a name is true if that region overlaps a region of the other side. `AND`, `OR`,
`NOT` and parentheses, as in SQL; without one, all regions must have a partner. In `SAME(…)` all
names refer to one region of the other side: it is true if there is one for which the expression
inside is true. A filter must not hold if nothing overlaps: else everything would match everything.

In the paper a filter is a predicate P(r₁, …, rₙ) over regions of the other side. What it says about
each rᵢ is which regions this one overlaps, so P is made of one `SAME` for each variable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import UInt64Array
from boxmatch.errors import RegionError, RegionFilterError
from boxmatch.kernels.jit import kernel

Code = npt.NDArray[np.int16]

MOST_REGIONS = 64
"""Of one publication or subscription: who has a partner is one bit each."""

AND, OR, NOT, SAME = -1, -2, -3, -4

_MOST_NESTED = 100  # parentheses and NOTs inside each other

_TOKEN = re.compile(r"\s*(?:([()])|\"((?:[^\"]|\"\")*)\"|([^\W\d][\w.-]*)(?=(\s*\()?))")


@lru_cache(maxsize=1_024)
def compile_region_filter(text: str | None, names: tuple[str, ...]) -> Code:
    """The filter in postfix form: positions of names, and operators; empty for all of them.

    With `SAME`, the code starts with that operator. What each of them holds comes first, followed
    by `SAME`; in the rest, their results have the positions after those of the names.
    """
    if not 0 < len(names) <= MOST_REGIONS:
        raise RegionError(f"there can be 1 to {MOST_REGIONS} regions, not {len(names)}")
    if text is None:
        return np.empty(0, np.int16)
    parts = [np.array(part, np.int16) for part in _Parser(text, names).parse()]
    for part in parts:
        # How many values have to be kept at a time.
        if np.cumsum(np.select([part >= 0, part == NOT], [1, 0], -1)).max() > MOST_REGIONS:
            raise RegionFilterError("the filter is nested too deeply", text, 0)
    same = np.array([SAME] if len(parts) > 1 else [], np.int16)
    code = np.concatenate([one for part in parts for one in (same, part)])
    if holds_by_rows(code, 0, len(code), np.zeros(1, np.uint64), len(names)):
        raise RegionFilterError(
            "the filter holds even if no region has a partner, so everything would match", text, 0
        )
    return code


class _Parser:
    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._text = text
        self._names = {name: place for place, name in enumerate(names)}
        self._tokens = list(_tokens_of(text))
        self._at = 0
        self._nested = 0
        self._same: list[list[int]] = []
        self._in_same = False

    def parse(self) -> list[list[int]]:
        """The code inside each `SAME`, and that of the whole."""
        code = self._expression()
        kind, word, start = self._tokens[self._at]
        if kind:
            raise self._error(f"{word!r} is not expected here", start)
        return [*self._same, code]

    def _expression(self, operators: Sequence[str] = ("OR", "AND")) -> list[int]:
        """What the operators connect, the loosest of which is the first."""
        if not operators:
            return self._one()
        code = self._expression(operators[1:])
        while self._tokens[self._at][0] == operators[0]:
            self._at += 1
            code += [*self._expression(operators[1:]), OR if operators[0] == "OR" else AND]
        return code

    def _one(self) -> list[int]:
        kind, word, start = self._tokens[self._at]
        if not kind:
            raise self._error("the filter is incomplete", len(self._text))
        self._at += 1
        if kind == "SAME":
            return self._one_region(start)
        if kind in ("NOT", "("):
            return self._inside(kind, start)
        if kind != "name":
            raise self._error(f"a region is expected, not {word!r}", start)
        if word not in self._names:
            known = ", ".join(map(repr, self._names))
            raise self._error(f"no region is named {word!r}; there are {known}", start)
        return [self._names[word]]

    def _one_region(self, start: int) -> list[int]:
        """What follows a SAME that was at `start`: the position of its result."""
        if self._in_same:
            raise self._error("SAME cannot be inside another SAME", start)
        self._at += 1  # the parenthesis
        self._in_same = True
        code = self._inside("(", self._tokens[self._at - 1][2])
        self._in_same = False
        if code not in self._same:
            self._same.append(code)
        position = len(self._names) + self._same.index(code)
        if position >= MOST_REGIONS:
            most = f"there can be {MOST_REGIONS} regions and SAME together"
            raise self._error(f"{most}, and there are {len(self._names)} regions", start)
        return [position]

    def _inside(self, kind: str, start: int) -> list[int]:
        """What follows a NOT or an opening parenthesis that was at `start`."""
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise self._error("the filter is nested too deeply", start)
        if kind == "NOT":
            code = [*self._one(), NOT]
        else:
            code = self._expression()
            if self._tokens[self._at][0] != ")":
                raise self._error("this parenthesis is not closed", start)
            self._at += 1
        self._nested -= 1
        return code

    def _error(self, reason: str, position: int) -> RegionFilterError:
        return RegionFilterError(reason, self._text, position)


def _tokens_of(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, text and place of each token; the kind of the one at the end is empty."""
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            start = end - len(text[at:end].lstrip())
            raise RegionFilterError(f"{text[start]!r} is not understood", text, start)
        parenthesis, quoted, word, opened = found.groups()
        start = next(found.start(group) for group in (1, 2, 3) if found[group] is not None)
        # A region may be called "same"; no name comes before a parenthesis.
        operators = ("AND", "OR", "NOT", "SAME") if opened else ("AND", "OR", "NOT")
        if quoted is not None:
            yield "name", quoted.replace('""', '"'), start
        elif word and word.upper() not in operators:
            yield "name", word, start
        else:
            yield parenthesis or word.upper(), parenthesis or word, start
        at = found.end()
    yield "", "", end


@kernel
def holds(code: Code, start: int, length: int, partners: np.uint64, regions: int) -> bool:
    """Is `code[start:][:length]` true if just these regions (bits of `partners`) have one?"""
    one = np.uint64(1)
    if length == 0:
        full = ~np.uint64(0) if regions == 64 else (one << np.uint64(regions)) - one
        return bool(partners == full)
    stack = np.uint64(0)  # the top is bit 0
    for at in range(start, start + length):
        step = code[at]
        if step >= 0:
            stack = (stack << one) | ((partners >> np.uint64(step)) & one)
        elif step == -3:
            stack ^= one
        else:
            top = stack & one
            stack >>= one
            if step == -1:
                stack &= ~one | top
            else:
                stack |= top
    return bool((stack & one) == one)


@kernel
def binds(code: Code, start: int, length: int) -> bool:
    """Whether `code[start:][:length]` has a `SAME`, so that masks of partners do not suffice."""
    return length > 0 and code[start] == -4


@kernel
def both_hold(
    rows: UInt64Array, code: Code, regions: int, others: Code, start: int, length: int
) -> bool:
    """Whether two filters hold, which may have `SAME`.

    `rows` has a mask for each region of one member: the regions of the other that it overlaps.
    These, so many `regions`, are the ones that `code` is about; `others[start:][:length]` is about
    those of the rows.
    """
    if not holds_by_rows(code, 0, len(code), rows, regions):
        return False
    one = np.uint64(1)
    columns = np.zeros(regions, np.uint64)
    for j in range(len(rows)):
        for i in range(regions):
            columns[i] |= ((rows[j] >> np.uint64(i)) & one) << np.uint64(j)
    return bool(holds_by_rows(others, start, length, columns, len(rows)))


@kernel
def holds_by_rows(code: Code, start: int, length: int, rows: UInt64Array, regions: int) -> bool:
    """As `holds`, for code that may have `SAME`; for each region of the other side, its mask."""
    one = np.uint64(1)
    partners = np.uint64(0)
    for row in rows:
        partners |= row
    if not binds(code, start, length):
        return bool(holds(code, start, length, partners, regions))
    begin, position = start + 1, regions
    for at in range(start + 1, start + length):
        if code[at] == -4:
            for row in rows:
                if holds(code, begin, at - begin, row, regions):
                    partners |= one << np.uint64(position)
                    break
            begin, position = at + 1, position + 1
    return bool(holds(code, begin, start + length - begin, partners, regions))
