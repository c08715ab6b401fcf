"""Which regions must have a partner: a boolean expression over their names.

In an expression a name is true if that region overlaps a region of the other side. `AND`, `OR`,
`NOT` and parentheses, as in SQL; without one, all regions must have a partner. A filter must not
hold if nothing overlaps: else everything would match everything.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from boxmatch.errors import RegionFilterError
from boxmatch.kernels.jit import kernel

Code = npt.NDArray[np.int16]

MOST_REGIONS = 64
"""Of one publication or subscription: who has a partner is one bit each."""

AND, OR, NOT = -1, -2, -3

_MOST_NESTED = 100  # parentheses and NOTs inside each other

_TOKEN = re.compile(r"\s*(?:([()])|\"((?:[^\"]|\"\")*)\"|([^\W\d][\w.-]*))")


def compile_region_filter(text: str | None, names: Sequence[str]) -> tuple[int, ...]:
    """The filter in postfix form: positions of names, and operators; empty for all of them."""
    if text is None:
        return ()
    code = _Parser(text, names).parsed()
    if _depth(code) > MOST_REGIONS:
        raise RegionFilterError("the filter is nested too deeply", text, 0)
    if holds(np.array(code, np.int16), 0, len(code), np.uint64(0), len(names)):
        raise RegionFilterError(
            "the filter holds even if no region has a partner, so everything would match", text, 0
        )
    return tuple(code)


def _depth(code: Sequence[int]) -> int:
    """How many values have to be kept at a time."""
    depth = most = 0
    for step in code:
        depth += 1 if step >= 0 else 0 if step == NOT else -1
        most = max(most, depth)
    return most


class _Parser:
    def __init__(self, text: str, names: Sequence[str]) -> None:
        self._text = text
        self._names = {name: place for place, name in enumerate(names)}
        self._tokens: list[tuple[str, str, int]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                start = at + len(text[at:]) - len(text[at:].lstrip())
                raise RegionFilterError(f"{text[start]!r} is not understood", text, start)
            start = found.start(found.lastindex or 0)
            if found[1]:
                self._tokens.append((found[1], found[1], start))
            elif found[2] is not None:
                self._tokens.append(("name", found[2].replace('""', '"'), start))
            else:
                word = found[3].upper()
                kind = word if word in ("AND", "OR", "NOT") else "name"
                self._tokens.append((kind, found[3], start))
            at = found.end()
        self._at = 0
        self._nested = 0

    def parsed(self) -> list[int]:
        code = self._either()
        if self._at < len(self._tokens):
            _, word, start = self._tokens[self._at]
            raise RegionFilterError(f"{word!r} is not expected here", self._text, start)
        return code

    def _next(self) -> str:
        return self._tokens[self._at][0] if self._at < len(self._tokens) else ""

    def _either(self) -> list[int]:
        code = self._both()
        while self._next() == "OR":
            self._at += 1
            code += [*self._both(), OR]
        return code

    def _both(self) -> list[int]:
        code = self._one()
        while self._next() == "AND":
            self._at += 1
            code += [*self._one(), AND]
        return code

    def _one(self) -> list[int]:
        if self._at == len(self._tokens):
            raise RegionFilterError("the filter is incomplete", self._text, len(self._text))
        kind, word, start = self._tokens[self._at]
        self._at += 1
        if kind in ("NOT", "("):
            return self._inside(kind, start)
        if kind != "name":
            raise RegionFilterError(f"a region is expected, not {word!r}", self._text, start)
        if word not in self._names:
            known = ", ".join(map(repr, self._names))
            raise RegionFilterError(
                f"no region is named {word!r}; there are {known}", self._text, start
            )
        return [self._names[word]]

    def _inside(self, kind: str, start: int) -> list[int]:
        """What follows a NOT or an opening parenthesis that was at `start`."""
        self._nested += 1
        if self._nested > _MOST_NESTED:
            raise RegionFilterError("the filter is nested too deeply", self._text, start)
        if kind == "NOT":
            code = [*self._one(), NOT]
        else:
            code = self._either()
            if self._next() != ")":
                raise RegionFilterError("this parenthesis is not closed", self._text, start)
            self._at += 1
        self._nested -= 1
        return code


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
