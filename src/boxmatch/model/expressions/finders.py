"""Which of many patterns a text satisfies: substrings and regular expressions.

A finder numbers its patterns 0, 1, 2, … in the order in which they were added. It finds those that
a text satisfies in one pass, and returns their numbers in no particular order. Patterns may be
added at any time and are never removed.

Any number of threads may use a finder. What `add` has returned for, later finds know; a find that
runs meanwhile may know it or not, and so may return numbers beyond the `len` of before.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain, count
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import re2

from boxmatch.arrays import BoolArray, Int64Array, UInt8Array
from boxmatch.model.expressions.finder_kernels import Automaton, Texts, build, find, join
from boxmatch.model.expressions.patterns import MEMORY, compile_regex, regex_options
from boxmatch.model.expressions.regex_literals import required_literals, weakness

if TYPE_CHECKING:
    import pyarrow as pa

# A part of a finder is built anew together with what is added, as long as it is not this many
# times as large: 10,000 needles are in four parts at most.
_GROWTH: Final = 4
_SMALL: Final = 256

_SET_SIZE: Final = 10
# One with a program this large would spoil a set.
_HEAVY: Final = 500
# The `weakness` of a single string of two characters.
_TOO_WEAK: Final = 8.0**-2


class _Part(NamedTuple):
    """Some needles and their automaton. Immutable, but for the spare arrays."""

    needles: list[bytes]
    numbers: Int64Array
    automaton: Automaton
    spare: list[Int64Array]
    """For `finder_kernels.find`, which one thread uses at a time."""

    def find(self, texts: Texts) -> tuple[Int64Array, Int64Array]:
        try:
            seen = self.spare.pop()
        except IndexError:
            seen = np.zeros(len(self.numbers) + 1, dtype=np.int64)
        found = find(self.automaton, self.numbers, texts, seen)
        self.spare.append(seen)
        return found


class NeedleFinder:
    """Finds strings that are substrings of a text. The empty one is in every text."""

    __slots__ = ("_lock", "_new", "_parts", "known")

    known: dict[bytes, int]
    """The needles in UTF-8 and their numbers; read it, do not write it."""

    def __init__(self, needles: Iterable[str] = ()) -> None:
        self._lock = Lock()
        self.known = {}
        self._new: list[bytes] = []
        self._parts: tuple[_Part, ...] = ()
        self.add(needles)

    def __len__(self) -> int:
        return len(self.known)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        known = sys.getsizeof(self.known) + sum(map(sys.getsizeof, list(self.known)))
        return known + sum(array.nbytes for part in self._parts for array in part.automaton)

    def add(self, patterns: Iterable[str]) -> None:
        """Number the needles that are new. Raises `ValueError` for lone surrogates."""
        self.number([pattern.encode() for pattern in patterns])

    def number(self, needles: Iterable[bytes]) -> list[int]:
        """Add needles in UTF-8, and return their numbers."""
        with self._lock:
            result = []
            for needle in needles:
                number = self.known.get(needle)
                if number is None:
                    self._new.append(needle)
                    number = self.known[needle] = len(self.known)
                result.append(number)
        return result

    def find(self, texts: pa.Array[Any]) -> tuple[Int64Array, Int64Array]:
        """The needles in each text: where each text's numbers start, and the numbers."""
        return self.find_in(texts_of(texts))

    def find_one(self, text: str) -> list[int]:
        """The needles in a text."""
        found: list[int] = self.find_in(text_of(text.encode()))[1].tolist()
        return found

    def find_in(self, texts: Texts) -> tuple[Int64Array, Int64Array]:
        """`find`, in texts that are taken apart."""
        parts = self._build() if self._new else self._parts
        if not parts:
            return np.zeros(len(texts.offsets), dtype=np.int64), np.empty(0, dtype=np.int64)
        found = parts[0].find(texts)
        for part in parts[1:]:
            found = join(*found, *part.find(texts))
        return found

    def _build(self) -> tuple[_Part, ...]:
        with self._lock:
            if self._new:
                parts = list(self._parts)
                needles = self._new
                while parts and len(parts[-1].needles) <= max(_SMALL, _GROWTH * len(needles)):
                    needles = parts.pop().needles + needles
                parts.append(self._part(sorted(needles)))
                # In this order: whoever sees no new needles finds those parts.
                self._parts = tuple(parts)
                self._new = []
            return self._parts

    def _part(self, needles: list[bytes]) -> _Part:
        starts = np.zeros(len(needles) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, needles), dtype=np.int64), out=starts[1:])
        numbers = np.fromiter(map(self.known.__getitem__, needles), dtype=np.int64)
        automaton = build(np.frombuffer(b"".join(needles), dtype=np.uint8), starts)
        return _Part(needles, numbers, automaton, [])


class _RegexSet(NamedTuple):
    """Some regular expressions that are matched at once."""

    numbers: tuple[int, ...]
    regexes: tuple[Any, ...]
    together: Any
    """An `re2.Set`, or None if there is none."""

    def find(self, text: bytes) -> list[int]:
        if self.together is not None:
            found = self.together.Match(text)
            # A set that runs out of memory returns nothing, without a word. If it did not, it
            # returns its last pattern, which matches every text.
            if found and len(self.numbers) in found:
                return [self.numbers[one] for one in found if one < len(self.numbers)]
        return [
            number
            for number, regex in zip(self.numbers, self.regexes, strict=True)
            if regex.search(text)
        ]


class RegexFinder:
    """Finds regular expressions, in RE2's syntax, that match anywhere in a text.

    Most contain strings without which there is no match (`required_literals`). A `NeedleFinder`
    looks for those, and the few expressions whose strings it finds are matched one by one. The
    others are matched in small sets against every text.

    Measured with 10,000 expressions of words and texts of 80 characters, none of them seen before,
    after warming up: 60 to 70 µs a text this way; 130 to 160 µs by `re2.Filter`, which
    looks for the strings by a set, and so may run out of memory unnoticed; 1 to 5 ms by sets of 10
    to 10,000, which make new states for new texts; some 20 ms one by one. Of 1,000 expressions
    without required strings, each takes 0.2 µs a text in sets of 10 with 1 MB, 0.5 µs in sets of
    100 with 16 MB, and 1 µs alone.
    """

    __slots__ = ("_lock", "_needles", "_numbers", "_owners", "_regexes", "_set_memory", "_sets")

    def __init__(self, patterns: Iterable[str] = (), *, set_memory: int = MEMORY) -> None:
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._regexes: list[Any] = []
        self._needles = NeedleFinder()
        # Which patterns require a needle, each with another string that it requires, or b"".
        self._owners: dict[int, list[tuple[int, bytes]]] = {}
        self._sets: tuple[_RegexSet, ...] = ()
        self._set_memory = set_memory
        self.add(patterns)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def nbytes(self) -> int:
        """Bytes held, without those inside of RE2, which does not tell."""
        return self._needles.nbytes + sys.getsizeof(self._numbers)

    def add(self, patterns: Iterable[str]) -> None:
        """Number the patterns that are new.

        Raises `ExpressionError`, with nothing changed, if one is not valid.
        """
        with self._lock:
            new = [one for one in dict.fromkeys(patterns) if one not in self._numbers]
            regexes = list(map(compile_regex, new))
            loose = []
            for pattern, regex in zip(new, regexes, strict=True):
                number = len(self._regexes)
                # Before anything refers to it: finds do not wait.
                self._regexes.append(regex)
                if not self._require(pattern, number):
                    loose.append(number)
            if loose:
                self._group(loose)
            # At last: what `len` counts is found.
            self._numbers.update(zip(new, count(len(self._numbers)), strict=False))

    def find(self, texts: pa.Array[Any]) -> tuple[Int64Array, Int64Array]:
        """The patterns of each text: where each text's numbers start, and the numbers."""
        found = self._find_in(texts_of(texts))
        starts = np.zeros(len(found) + 1, dtype=np.int64)
        np.cumsum(np.fromiter(map(len, found), dtype=np.int64, count=len(found)), out=starts[1:])
        flat = np.fromiter(chain.from_iterable(found), dtype=np.int64, count=starts[-1])
        return starts, flat

    def find_one(self, text: str) -> list[int]:
        """The patterns of a text."""
        return self._find_in(text_of(text.encode()))[0]

    def _find_in(self, texts: Texts) -> list[list[int]]:
        first = texts.offsets[0]
        data = texts.data[first : texts.offsets[-1]].tobytes()
        offsets = _fixed(texts.offsets - first)
        sets = self._sets
        starts, needles = self._needles.find_in(Texts(_bytes(data.lower()), offsets, texts.valid))
        places, ends, numbers = offsets.tolist(), starts.tolist(), needles.tolist()
        result = []
        for row in range(len(places) - 1):
            found: list[int] = []
            some = numbers[ends[row] : ends[row + 1]]
            if (some or sets) and (len(texts.valid) == 0 or texts.valid[row]):
                text = data[places[row] : places[row + 1]]
                lower = text.lower()
                candidates = {
                    number
                    for needle in some
                    for number, other in self._owners.get(needle, ())
                    if other in lower
                }
                found += [one for one in candidates if self._regexes[one].search(text)]
                for one in sets:
                    found += one.find(text)
            result.append(found)
        return result

    def _require(self, pattern: str, number: int) -> bool:
        """Note the strings that a match contains, if there are any that are rare enough."""
        choices = required_literals(pattern)
        if not choices:
            return False
        # A string that many expressions require is probably frequent in texts too.
        chosen = min(choices, key=self._cost)
        if weakness(chosen) > _TOO_WEAK:
            return False
        others = [one for strings in choices if len(strings) == 1 for one in strings - chosen]
        owner = number, max(others, key=len, default="").encode()
        for needle in self._needles.number([one.encode() for one in chosen]):
            self._owners.setdefault(needle, []).append(owner)
        return True

    def _cost(self, strings: frozenset[str]) -> float:
        known = self._needles.known
        return sum(
            weakness([one]) * (1 + len(self._owners.get(known.get(one.encode(), -1), ())))
            for one in strings
        )

    def _group(self, loose: list[int]) -> None:
        """Put patterns without required strings into sets, the last of which may have room."""
        sets = list(self._sets)
        light = []
        for number in loose:
            regex = self._regexes[number]
            if regex.programsize > _HEAVY:
                sets.insert(0, _RegexSet((number,), (regex,), None))
            else:
                light.append(number)
        if light and sets and sets[-1].together is not None and len(sets[-1].numbers) < _SET_SIZE:
            light = [*sets.pop().numbers, *light]
        sets += [
            self._set(tuple(light[start : start + _SET_SIZE]))
            for start in range(0, len(light), _SET_SIZE)
        ]
        self._sets = tuple(sets)

    def _set(self, numbers: tuple[int, ...]) -> _RegexSet:
        regexes = tuple(self._regexes[number] for number in numbers)
        together = re2.Set.SearchSet(regex_options(self._set_memory))
        try:
            for regex in regexes:
                together.Add(regex.pattern)
            together.Add("")
            together.Compile()
        except re2.error:  # it is too large
            together = None
        return _RegexSet(numbers, regexes, together)


def texts_of(array: pa.Array[Any]) -> Texts:
    """The texts of an Arrow array of strings of any type."""
    import pyarrow as pa

    array = array.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if len(array) == 0 or offsets is None:
        return Texts(_bytes(b""), _fixed(np.zeros(len(array) + 1, dtype=np.int64)), _ALL)
    return Texts(
        _bytes(memoryview(data) if data else b""),
        _fixed(
            np.frombuffer(memoryview(offsets), dtype=np.int64)[array.offset :][: len(array) + 1]
        ),
        array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else _ALL,
    )


def text_of(text: bytes) -> Texts:
    """One text, already in UTF-8."""
    return Texts(_bytes(text), _fixed(np.array([0, len(text)])), _ALL)


_ALL: Final[BoolArray] = np.empty(0, dtype=np.bool_)


def _bytes(data: bytes | memoryview) -> UInt8Array:
    return np.frombuffer(memoryview(data).toreadonly(), dtype=np.uint8)


def _fixed(offsets: Int64Array) -> Int64Array:
    """Read-only, as bytes are: kernels are compiled again for arrays that can be written."""
    offsets.flags.writeable = False
    return offsets
