"""Patterns of LIKE and RLIKE: their parts, and regular expressions of RE2, in linear time."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, NamedTuple

import re2

from boxmatch.model.expressions.nodes import ExpressionError

MOST_CHARACTERS: Final = 10_000
"""Of a regular expression."""

MEMORY: Final = 1 << 20
"""Bytes that a compiled regular expression may take. Arrow's have more."""

_WILDCARDS: Final = {"%": ".*", "_": "."}


class LikeParts(NamedTuple):
    """The strings of a LIKE pattern between its wildcards.

    Without "_" in it, a text matches if it starts with `prefix`, ends with `suffix`, and has those
    of `middle` in between, one after the other. None of them overlap: "a" is not LIKE "a%a".
    """

    prefix: str
    middle: tuple[str, ...]
    suffix: str
    has_underscore: bool
    is_exact: bool
    """There are no wildcards, and `prefix` is the only text that matches."""


def split_like(pattern: str, escape: str = "\\") -> LikeParts:
    """The parts of a LIKE pattern. Raises `ExpressionError` as `like_to_regex` does."""
    prefix, *pieces = _like_pieces(pattern, escape)
    wildcards = pieces[::2]
    strings = [prefix, *pieces[1::2]]
    return LikeParts(
        prefix=prefix,
        middle=tuple(one for one in strings[1:-1] if one),
        suffix=strings[-1] if wildcards else "",
        has_underscore="_" in wildcards,
        is_exact=not wildcards,
    )


def like_to_regex(pattern: str, escape: str = "\\") -> str:
    """The regular expression of a LIKE pattern, in which `escape` makes the next character plain.

    An empty `escape` is none. Raises `ExpressionError` for a pattern that ends in a lone escape
    character. The result may be too large for RE2: see `compile_regex`.
    """
    pieces = _like_pieces(pattern, escape)
    regexes = [_WILDCARDS[one] if i % 2 else re2.escape(one) for i, one in enumerate(pieces)]
    return rf"(?s)\A{''.join(regexes)}\z"


def _like_pieces(pattern: str, escape: str) -> list[str]:
    """Strings and wildcards in turn; the first and the last are strings, maybe empty."""
    if len(escape) > 1:
        raise ExpressionError(f"an escape character is one character, not {escape!r}")
    pieces: list[str] = []
    plain = ""
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            after = next(characters, None)
            if after is None:
                raise ExpressionError(f"the pattern {pattern!r} ends in its escape character")
            plain += after
        elif character in _WILDCARDS:
            pieces += plain, character
            plain = ""
        else:
            plain += character
    return [*pieces, plain]


def regex_options(memory: int) -> Any:
    """How RE2 compiles all of our regular expressions."""
    options = re2.Options()
    options.max_mem = memory
    options.never_capture = True
    options.log_errors = False
    return options


@lru_cache(maxsize=1024)
def compile_regex(pattern: str) -> Any:
    """The compiled form. Raises `ExpressionError` for one that is not valid, or costs too much."""
    if len(pattern) > MOST_CHARACTERS:
        raise ExpressionError(
            f"a regular expression has at most {MOST_CHARACTERS:,} characters, not {len(pattern):,}"
        )
    try:
        return re2.compile(pattern, regex_options(MEMORY))
    except UnicodeEncodeError as error:
        raise ExpressionError(f"no valid regular expression: {error}") from None
    except re2.error as error:
        (reason,) = error.args
        if isinstance(reason, bytes):
            reason = reason.decode(errors="replace")
        raise ExpressionError(f"no valid regular expression: {reason}") from None


@lru_cache(maxsize=1024)
def compile_like(pattern: str, escape: str) -> Any:
    """The compiled form of a LIKE pattern; None if it is not a pattern."""
    try:
        return compile_regex(like_to_regex(pattern, escape))
    except ExpressionError:
        return None
