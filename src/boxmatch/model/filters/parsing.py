"""sqlglot at arm's length: its tokens and trees, errors of ours whatever it stumbles over, and
the names and places of constructs for such errors.

The text comes from anybody. The parser raises what it likes on some of it, and logs warnings that
quote it; neither gets out of here.

sqlglot takes as long to import as all the rest, so this module is imported when the first text is
read: this module and never sqlglot itself, whose circular imports fail when two threads begin.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_left, bisect_right
from contextvars import ContextVar
from functools import cached_property
from typing import ClassVar, Final

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.parser import Parser, binary_range_parser
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from boxmatch.errors import FilterSyntaxError, FilterTooLargeError

TOO_DEEP: Final = "the filter is nested too deeply"

_QUOTED: Final = re.compile(r"'[^']*+(?:''[^']*+)*+'|\"[^\"]*+(?:\"\"[^\"]*+)*+\"|['\"]|/\*")
_MOST_NESTED: Final = 200
_OPENING: Final = frozenset(("(", "[", "{", "CASE"))
_CLOSING: Final = frozenset((")", "]", "}", "END"))
_PREFIXES: Final = frozenset(("NOT", "!", "-", "+", "~", "("))

_NAMES: Final = {
    "bitwiseand": "the operator &",
    "bitwiseor": "the operator |",
    "bitwisexor": "the operator ^",
    "bitwisenot": "the operator ~",
    "bitwiseleftshift": "the operator <<",
    "bitwiserightshift": "the operator >>",
    "subquery": "a subquery",
    "select": "a subquery",
    "window": "a window (OVER)",
    "similarto": "SIMILAR TO",
    "glob": "GLOB",
    "tuple": "a list of expressions",
    "placeholder": "a parameter",
    "parameter": "a parameter",
    "national": "a national string",
    "star": "*",
    "paren": "a field of a value",
    "literal": "a constant as a condition",
}
# The word that starts a construct, where that is not its leftmost operand.
_OPENING_WORDS: Final = {
    "case": ("CASE",),
    "if": ("IF",),
    "cast": ("CAST", "DATE", "TIME"),
    "trycast": ("TRY_CAST",),
    "exists": ("EXISTS",),
    "subquery": ("SELECT",),
    "select": ("SELECT",),
    "any": ("ANY", "SOME"),
    "all": ("ALL",),
    "interval": ("INTERVAL",),
    "neg": ("-",),
    "boolean": ("TRUE", "FALSE"),
    "null": ("NULL",),
    "placeholder": ("?", ":"),
    "parameter": ("@",),
}


_OF_TIME: Final = frozenset(
    (
        *("YEAR", "QUARTER", "MONTH", "WEEK", "WEEK_OF_YEAR", "WEEKOFYEAR", "DAY"),
        *("DAY_OF_MONTH", "DAYOFMONTH", "DAY_OF_WEEK", "DAYOFWEEK", "DAY_OF_YEAR", "DAYOFYEAR"),
        *("HOUR", "MINUTE", "SECOND", "DATE_TRUNC", "TIMESTAMP_TRUNC"),
    )
)


class _Tokenizer(Tokenizer):
    """That of sqlglot's own dialect, with operators of PostgreSQL: those of lists."""

    KEYWORDS: ClassVar[dict[str, TokenType]] = {
        **Tokenizer.KEYWORDS,
        "@>": TokenType.AT_GT,
        "<@": TokenType.LT_AT,
    }


class _Parser(Parser):
    """The same of the parser, with `~` for regular expressions.

    Functions of time are read by their names: sqlglot's take no time zone, or drop it.
    """

    FUNCTIONS: ClassVar = {
        name: build for name, build in Parser.FUNCTIONS.items() if name not in _OF_TIME
    }
    RANGE_PARSERS: ClassVar = {
        **Parser.RANGE_PARSERS,
        TokenType.DAMP: binary_range_parser(exp.ArrayOverlaps),
        TokenType.TILDE: binary_range_parser(exp.RegexpLike),
    }


_parsing: ContextVar[bool] = ContextVar("_parsing", default=False)


def parse(text: str, *, clause: bool = False) -> tuple[exp.Expr, list[Token]]:
    """The tree of one condition, and its tokens. A whole `clause` may begin with WHERE."""
    # What others have sqlglot parse, in other threads too, is still logged.
    logging.getLogger("sqlglot").addFilter(_is_not_ours)
    token = _parsing.set(True)
    try:
        tokens = _tokens(text)
        if clause and tokens[0].token_type == TokenType.WHERE and len(tokens) > 1:
            tokens = tokens[1:]
        return _tree(text, tokens), tokens
    finally:
        _parsing.reset(token)


def is_reserved(name: str) -> bool:
    """Whether SQL reads the name as a word of its own."""
    return name.upper() in Tokenizer.KEYWORDS or name.upper() in Parser.FUNCTIONS


def _is_not_ours(record: logging.LogRecord) -> bool:
    return not _parsing.get()


def _tokens(text: str) -> list[Token]:
    try:
        tokens: list[Token] = _Tokenizer().tokenize(text)
    except TokenError:
        opened = [m.start() for m in _QUOTED.finditer(text) if m.group() in ("'", '"', "/*")]
        position = opened[-1] if opened else len(text)
        raise FilterSyntaxError("a quote or comment is not closed", text, position) from None
    if not tokens:
        raise FilterSyntaxError("the filter is empty; TRUE matches every event", text, 0)
    _check_nesting(tokens, text)
    return tokens


def _tree(text: str, tokens: list[Token]) -> exp.Expr:
    # The context is cut off the error's text before it; asked to be this long, it is all of it.
    parser = _Parser(error_message_context=len(text) + 1)
    try:
        nodes = parser.parse_into(exp.Condition, tokens, text)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        raise _syntax_error(text, details) from None
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, _reached(parser)) from None
    except MemoryError:
        raise
    except Exception:
        # Some functions are built without a look at how many arguments there are.
        position = _reached(parser)
        raise FilterSyntaxError("this is not understood", text, position) from None
    if len(nodes) != 1 or nodes[0] is None:
        semicolon = next((token.start for token in tokens if token.text == ";"), None)
        if semicolon is None:
            word = tokens[0]
            raise FilterSyntaxError(f"unexpected {word.text}", text, word.start)
        raise FilterSyntaxError("expected one condition, without ;", text, semicolon)
    return nodes[0]


def _reached(parser: Parser) -> int:
    """The place of the token that the parser is at, or of the one before the end."""
    tokens = parser._tokens
    return tokens[min(max(parser._index, 0), len(tokens) - 1)].start if tokens else 0


def _syntax_error(text: str, details: dict[str, object]) -> FilterSyntaxError:
    found = str(details.get("highlight") or "")
    position = len(str(details.get("start_context") or ""))
    description = str(details.get("description"))
    if "missing" in description:
        # sqlglot points at the token after which, or at which, it found nothing to read.
        reason = f"the condition is incomplete near {found}"
    elif description.startswith("Expecting"):
        reason = f"expected {description.removeprefix('Expecting').strip()} near {found}"
    else:
        reason = f"unexpected {found}"
    return FilterSyntaxError(reason, text, position)


def _check_nesting(tokens: list[Token], text: str) -> None:
    """Refuse what would take a compiled parser's stack with it, where no RecursionError comes."""
    depth = run = 0
    for token in tokens:
        word = token.text.upper()
        depth += (word in _OPENING) - (word in _CLOSING)
        run = run + 1 if word in _PREFIXES else 0
        if depth > _MOST_NESTED or run > _MOST_NESTED:
            raise FilterTooLargeError(TOO_DEEP, text, token.start)


def construct_name(node: exp.Expr) -> str:
    """What a person would call this construct."""
    name = _NAMES.get(node.key)
    if name is not None:
        return name
    names = _function_names(node)
    return f"the function {names[0]}()" if names else node.key.upper()


class Places:
    """Where the constructs of one parsed filter start in its text.

    What is looked up is kept: a list may hold thousands of constants without a place of their own.
    """

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._leftmost: dict[int, int | None] = {}

    def of(self, node: exp.Expr) -> int:
        """The offset where a construct starts, as near as the parser remembers.

        Only names and constants carry a place; that of a construct is the word that opens it, or
        the leftmost place inside it, or else that of what it belongs to.
        """
        inside = self._inside(node)
        around = node.parent
        start = inside
        while start is None and around is not None:
            start, around = self._inside(around), around.parent
        start = 0 if start is None else start
        before = after = None
        for word in _OPENING_WORDS.get(node.key, ()) or _function_names(node):
            starts = self._starts.get(word, [])
            up_to = bisect_right(starts, start)
            if up_to and (before is None or starts[up_to - 1] > before):
                before = starts[up_to - 1]
            beyond = bisect_left(starts, start)
            if beyond < len(starts) and (after is None or starts[beyond] < after):
                after = starts[beyond]
        if inside is not None:
            after = None
        elif node.arg_key != "this":  # a right operand: what is known is the place of the left one
            before, after = after, before
        return next((at for at in (before, after) if at is not None), start)

    @cached_property
    def _starts(self) -> dict[str, list[int]]:
        """The places of every word, ascending."""
        starts: dict[str, list[int]] = {}
        for token in self._tokens:
            starts.setdefault(token.text.upper(), []).append(token.start)
        return starts

    def _inside(self, node: exp.Expr) -> int | None:
        """The leftmost place inside a construct."""
        key = id(node)
        if key not in self._leftmost:
            places = (n.meta["start"] for n in node.walk() if "start" in n.meta)
            self._leftmost[key] = min(places, default=None)
        return self._leftmost[key]


def _function_names(node: exp.Expr) -> tuple[str, ...]:
    if isinstance(node, exp.Anonymous):
        return (str(node.name).upper(),)
    if isinstance(node, exp.Func) and node.key not in ("and", "or", "case", "cast", "exists"):
        return tuple(node.sql_names())
    return ()
