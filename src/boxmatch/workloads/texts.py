"""Subscriptions to words and regular expressions in titles."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import numpy.typing as npt

from boxmatch.model.schema import Schema
from boxmatch.workloads import streams
from boxmatch.workloads.distributions import check_between, check_choice

if TYPE_CHECKING:
    import pyarrow as pa

Pattern = Literal["word", "regex"]

_ONSETS: Final = (
    *("b", "c", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w"),
    *("br", "ch", "cl", "cr", "dr", "fl", "gr", "pl", "pr", "sh", "sp", "st", "th", "tr"),
)
_VOWELS: Final = ("a", "e", "i", "o", "u", "ai", "ea", "ee", "ie", "oa", "ou")
_CODAS: Final = ["", "", "n", "r", "s", "t", "l", "m", "nd", "ng", "ck", "st"]

_REGEXES: Final = (
    r"(?i)\b{0}\b",
    r"(?i){0}\w* {1}",
    r"(?i)({0}|{1}).*{2}",
    r"(?i)^{0}|{1}$",
    r"(?i){0}[a-z ]{{0,12}}{1}",
)
"""What regular expressions look like; each kind is as frequent as the others."""


@dataclass(frozen=True, kw_only=True)
class TextWorkload:
    """Subscriptions `category = … AND title ILIKE '%word%'`, or to regular expressions.

    With 0 `categories` they are about titles alone. Titles are about `title_length` characters of
    words, drawn uniformly out of `words` different ones that are made of syllables, as are the
    words of subscriptions. Of `regex` patterns, no two are the same.
    """

    subscriptions: int = 100_000
    pattern: Pattern = "word"
    categories: int = 1_000
    words: int = 10_000
    title_length: int = 80
    seed: int = 1

    def __post_init__(self) -> None:
        check_choice("pattern", self.pattern, Pattern)
        check_between(self, 0, math.inf, "subscriptions", "categories")
        check_between(self, 3, 1_000_000, "words")
        check_between(self, 1, 100_000, "title_length")

    @property
    def schema(self) -> Schema:
        """Two strings."""
        return Schema({"category": "string", "title": "string"})

    def patterns(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The words, or regular expressions, of subscriptions `start:stop`."""
        stop = self.subscriptions if stop is None else stop
        words = make_words(self.seed, self.words)
        drawn = self._drawn(start, stop)
        chosen = [drawn[f"word{place}"].tolist() for place in range(3)]
        if self.pattern == "word":
            return [words[one] for one in chosen[0]]
        return [
            _REGEXES[row % len(_REGEXES)].format(
                words[row % self.words], words[second], words[third]
            )
            for row, second, third in zip(range(start, stop), chosen[1], chosen[2], strict=True)
        ]

    def subscription_categories(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The categories of subscriptions `start:stop`; empty texts if they have none."""
        stop = self.subscriptions if stop is None else stop
        if not self.categories:
            return [""] * len(range(start, stop))
        return [f"category-{one:04}" for one in self._drawn(start, stop)["category"].tolist()]

    def filters(self, start: int, stop: int) -> list[str]:
        """Subscriptions `start:stop` as texts."""
        patterns = self.patterns(start, stop)
        tests = (
            [f"title ILIKE '%{one}%'" for one in patterns]
            if self.pattern == "word"
            else [f"title RLIKE '{one}'" for one in patterns]
        )
        if not self.categories:
            return tests
        some = self.subscription_categories(start, stop)
        return [f"category = '{one}' AND {test}" for one, test in zip(some, tests, strict=True)]

    def events(self, start: int, stop: int) -> pa.Table:
        """Events `start:stop` as an Arrow table."""
        import pyarrow as pa

        def make(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.int64]]:
            return {"category": rng.integers(0, max(1, self.categories), rows)}

        codes = streams.columns(self.seed, "events", start, stop, make)["category"]
        words = make_words(self.seed, self.words)
        titles = make_titles(self.seed, words, self.title_length, start, stop)
        return pa.table({"category": [f"category-{one:04}" for one in codes], "title": titles})

    def event_dicts(self, start: int, stop: int) -> list[dict[str, str]]:
        """The same as dicts."""
        found: list[dict[str, str]] = self.events(start, stop).to_pylist()
        return found

    def _drawn(self, start: int, stop: int) -> dict[str, npt.NDArray[np.int64]]:
        def make(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.int64]]:
            drawn = {f"word{place}": rng.integers(0, self.words, rows) for place in range(3)}
            return {"category": rng.integers(0, max(1, self.categories), rows), **drawn}

        return streams.columns(self.seed, "subscriptions", start, stop, make)


@lru_cache(maxsize=4)
def make_words(seed: int, count: int) -> tuple[str, ...]:
    """Different words of two or three syllables."""
    rng = streams.generator(seed, "words", 0)
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = int(rng.integers(2, 4))
        parts = [
            str(_ONSETS[rng.integers(len(_ONSETS))] + _VOWELS[rng.integers(len(_VOWELS))])
            for _ in range(syllables)
        ]
        found["".join(parts) + _CODAS[rng.integers(len(_CODAS))]] = None
    return tuple(found)


def make_titles(seed: int, words: tuple[str, ...], length: int, start: int, stop: int) -> list[str]:
    """Titles of events `start:stop`, in capitals and small letters, cut off at `length`."""
    most = length // 4 + 1

    def make(rng: np.random.Generator, rows: int) -> dict[str, npt.NDArray[np.int64]]:
        drawn = rng.integers(0, len(words), (rows, most))
        return {"words": drawn, "capitals": rng.integers(0, 3, rows)}

    drawn = streams.columns(seed, "titles", start, stop, make)
    titles = []
    for chosen, capitals in zip(drawn["words"].tolist(), drawn["capitals"].tolist(), strict=True):
        title = " ".join([words[one] for one in chosen])[:length]
        titles.append(title if not capitals else title.title() if capitals == 1 else title.upper())
    return titles
