"""The parts of a filter as they were written, between its ANDs and ORs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from sqlglot.tokenizer_core import Token, TokenType

from boxmatch.model.filters.parsing import parse

_OPENING: Final = (TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE)
_CLOSING: Final = (TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END)


def clauses_of(text: str) -> list[list[str]]:
    """The alternatives of a filter, each with the conditions all of which it asks for.

    An OR inside of an AND stays one condition. Raises what the parser does if the text is wrong.
    """
    _, tokens = parse(text, clause=True)
    return [
        [text[part[0].start : part[-1].end + 1] for part in _conditions(alternative)]
        for alternative in _alternatives(tokens)
    ]


def _alternatives(tokens: list[Token]) -> Iterator[list[Token]]:
    parts = _split(_bare(tokens), TokenType.OR)
    if len(parts) == 1:
        yield tokens
        return
    for part in parts:
        yield from _alternatives(part)


def _conditions(tokens: list[Token]) -> Iterator[list[Token]]:
    parts = _split(_bare(tokens), TokenType.AND)
    if len(parts) == 1 or len(_split(_bare(tokens), TokenType.OR)) > 1:
        yield tokens
        return
    for part in parts:
        yield from _conditions(part)


def _split(tokens: list[Token], word: TokenType) -> list[list[Token]]:
    """What stands between the occurrences of a word outside of parentheses."""
    places = []
    depth = between = 0
    for place, token in enumerate(tokens):
        kind = token.token_type
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        elif depth == 0 and kind == TokenType.BETWEEN:
            between += 1
        elif depth == 0 and kind == TokenType.AND and between:
            between -= 1  # that of BETWEEN
        elif depth == 0 and kind == word:
            places.append(place)
    ends = [-1, *places, len(tokens)]
    return [tokens[first + 1 : end] for first, end in pairwise(ends)]


def _bare(tokens: list[Token]) -> list[Token]:
    """Without the parentheses around all of it."""
    while len(tokens) > 2 and tokens[0].token_type == TokenType.L_PAREN and _closed(tokens):
        tokens = tokens[1:-1]
    return tokens


def _closed(tokens: list[Token]) -> bool:
    """Whether the first parenthesis is closed by the last token."""
    depth = 0
    for place, token in enumerate(tokens):
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth == 0:
            return place == len(tokens) - 1
    return False
