"""Strings of which a text must contain one for a regular expression to match it.

Only what is certain counts: whatever is not plainly understood has no such strings, which costs
time but no match. RE2 itself knows them too, but `re2.Filter` does not tell, and looks for them by
a set of regular expressions, which is slower by far than `NeedleFinder` and forgets all matches
when it runs out of memory.

Letters of ASCII are in lower case here, and must be so in the text: `bytes.lower` does that.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable
from typing import Final, NamedTuple

# At most: strings that an expression can match, their length, and groups in each other.
_MOST: Final = 16
_LONGEST: Final = 32
_DEEPEST: Final = 50

# A shortcut, without the last character if that one is repeated.
_PLAIN: Final = re.compile(r"[A-Za-z0-9 _/:;,<>=!@#%&'\"-]{1,32}(?![*+?{])")
_PLAIN_IN_ANY_CASE: Final = re.compile(r"[A-JL-RT-Za-jl-rt-z0-9 _/:;,<>=!@#%&'\"-]{1,32}(?![*+?{])")
_REPETITION: Final = re.compile(r"\*|\+|\?|\{(0|[1-9][0-9]*)(,(0|[1-9][0-9]*)?)?\}")
_GROUP: Final = re.compile(r"\((?:\?(?:P?<[A-Za-z0-9_]+>|([imsU]*(?:-[imsU]+)?)(:|\))))?")
# Possessive: if the rest of a class is unclear, its first "]" must not become its end.
_CLASS: Final = re.compile(r"\[\^?+\]?+(?:\[:\^?[a-z]+:\]|\\.|[^\]\\\[])*+\]", re.DOTALL)
_PROPERTY: Final = re.compile(r"\\[pP](?:\{\^?\w+\}|[A-Z])", re.ASCII)

_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
# What else they match when case does not matter: the signs of Kelvin and of the long s.
_MORE_CASES: Final = "ks"

# What may follow a backslash: itself, one of a class or a control character, or a place.
_PUNCTUATION: Final = frozenset(" " + string.punctuation)
_CLASS_LETTERS: Final = frozenset("dDsSwWtnrfva")
_PLACE_LETTERS: Final = frozenset("bBAz")


class _Unclear(Exception):
    """Something that is not understood."""


class _Match(NamedTuple):
    """What is known of the strings that match an expression."""

    exact: frozenset[str] | None = None
    """All of them, if they are few."""
    required: tuple[frozenset[str], ...] = ()
    """Sets of strings: each match contains at least one of each set."""

    def choices(self) -> tuple[frozenset[str], ...]:
        """The sets of which one has to be chosen."""
        return self.required if self.exact is None else (self.exact, *self.required)


_ANY: Final = _Match()
_EMPTY: Final = _Match(frozenset([""]))


def required_literals(pattern: str) -> list[frozenset[str]]:
    """Sets of strings; a match contains one of each set. `pattern` is valid for RE2."""
    try:
        match = _Parser(pattern).parse()
    except _Unclear:
        return []
    return [one for one in match.choices() if "" not in one]


class _Parser:
    """Reads RE2's syntax, as far as it is simple."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0

    def parse(self) -> _Match:
        match = self.alternatives(ignore_case=False, depth=0)
        if self.place < len(self.pattern):
            raise _Unclear
        return match

    def alternatives(self, *, ignore_case: bool, depth: int) -> _Match:
        """Up to the end of a group, which stays."""
        if depth > _DEEPEST:
            raise _Unclear
        branches = []
        parts: list[_Match] = []
        while self.place < len(self.pattern) and self.pattern[self.place] != ")":
            if self.pattern[self.place] == "|":
                self.place += 1
                branches.append(_sequence(parts))
                parts = []
            elif (flags := self.flags()) is not None:
                # They hold up to the end of the group, in later branches too.
                ignore_case = _ignores_case(flags, ignore_case)
                if _REPETITION.match(self.pattern, self.place):
                    raise _Unclear
            else:
                part = self.atom(ignore_case=ignore_case, depth=depth)
                parts.append(self.repeated(part))
        branches.append(_sequence(parts))
        return _either(branches)

    def flags(self) -> str | None:
        """Those of `(?i)`, which is not a group."""
        if self.pattern[self.place] != "(":
            return None
        found = _GROUP.match(self.pattern, self.place)
        if found is None or found[2] != ")":
            return None
        self.place = found.end()
        return found[1]

    def atom(self, *, ignore_case: bool, depth: int) -> _Match:
        plain = (_PLAIN_IN_ANY_CASE if ignore_case else _PLAIN).match(self.pattern, self.place)
        if plain:
            self.place = plain.end()
            return _Match(frozenset([plain[0].translate(_LOWER)]))
        character = self.pattern[self.place]
        if character == "(":
            return self.group(ignore_case=ignore_case, depth=depth)
        if character == "[":
            self.take(_CLASS)
            return _ANY
        if character == "\\":
            return self.escape(ignore_case=ignore_case)
        self.place += 1
        if character in "*+?{":
            raise _Unclear
        if character == ".":
            return _ANY
        if character in "^$":
            return _EMPTY
        return _letter(character, ignore_case=ignore_case)

    def group(self, *, ignore_case: bool, depth: int) -> _Match:
        opening = self.take(_GROUP)
        if opening[0] == "(" and self.pattern.startswith("?", self.place):
            raise _Unclear
        inner = _ignores_case(opening[1] or "", ignore_case)
        match = self.alternatives(ignore_case=inner, depth=depth + 1)
        if self.place == len(self.pattern):
            raise _Unclear
        self.place += 1
        return match

    def escape(self, *, ignore_case: bool) -> _Match:
        character = self.pattern[self.place + 1 : self.place + 2]
        if character in ("p", "P"):
            self.take(_PROPERTY)
            return _ANY
        self.place += 2
        if character in _PUNCTUATION:
            return _letter(character, ignore_case=ignore_case)
        if character in _CLASS_LETTERS:
            return _ANY
        if character in _PLACE_LETTERS:
            return _EMPTY
        raise _Unclear

    def repeated(self, part: _Match) -> _Match:
        found = _REPETITION.match(self.pattern, self.place)
        if found is None:
            return part
        self.place = found.end()
        if self.pattern.startswith("?", self.place):  # as few as possible
            self.place += 1
        if _REPETITION.match(self.pattern, self.place):
            raise _Unclear
        if found[0] == "?":
            return _either([part, _EMPTY])
        if found[0] == "*" or found[1] == "0":
            return _ANY
        if found[0] == "{1}":
            return part
        return _Match(None, part.choices())

    def take(self, what: re.Pattern[str]) -> re.Match[str]:
        found = what.match(self.pattern, self.place)
        if found is None:
            raise _Unclear
        self.place = found.end()
        return found


def _ignores_case(flags: str, before: bool) -> bool:
    on, _, off = flags.partition("-")
    return False if "i" in off else before or "i" in on


def _letter(character: str, *, ignore_case: bool) -> _Match:
    lower = character.translate(_LOWER)
    if ignore_case and (not lower.isascii() or lower in _MORE_CASES):
        return _ANY
    return _Match(frozenset([lower]))


def _either(branches: list[_Match]) -> _Match:
    if len(branches) == 1:
        return branches[0]
    exact: frozenset[str] = frozenset()
    required: frozenset[str] = frozenset()
    all_exact = True
    for branch in branches:
        all_exact = all_exact and branch.exact is not None
        exact |= branch.exact or frozenset()
        usable = [one for one in branch.choices() if "" not in one]
        if not usable:
            required |= {""}
        else:
            required |= min(usable, key=weakness)
    if all_exact and len(exact) <= _MOST:
        return _Match(exact)
    if "" in required or len(required) > 8 * _MOST:
        return _ANY
    return _Match(None, (required,))


def weakness(strings: Iterable[str]) -> float:
    """About how often a text contains one of them."""
    return sum(8.0 ** -min(len(one), 5) for one in strings)


def _sequence(parts: list[_Match]) -> _Match:
    required: list[frozenset[str]] = []
    run: frozenset[str] = frozenset([""])
    whole = True
    for part in parts:
        required += part.required
        if part.exact is None:
            whole = False
            required.append(run)
            run = frozenset([""])
            continue
        longest = max(map(len, run)) + max(map(len, part.exact))
        if len(run) * len(part.exact) > _MOST or longest > _LONGEST:
            whole = False
            required.append(run)
            run = frozenset([""])
        run = frozenset(one + other for one in run for other in part.exact)
    if whole:
        return _Match(run, tuple(required))
    return _Match(None, tuple(one for one in (*required, run) if "" not in one))
