"""Names and places of SQL constructs, for messages about what a filter may not contain."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import Final

from sqlglot import exp
from sqlglot.tokenizer_core import Token

SUPPORTED: Final = (
    "supported are comparisons of an attribute with a constant, BETWEEN, IN, IS NULL, "
    "LIKE 'prefix%', AND, OR and NOT"
)

_NAMES: Final = {
    "add": "arithmetic (+)",
    "sub": "arithmetic (-)",
    "mul": "arithmetic (*)",
    "div": "arithmetic (/)",
    "intdiv": "arithmetic (DIV)",
    "mod": "arithmetic (%)",
    "neg": "arithmetic (-)",
    "dpipe": "concatenation (||)",
    "concat": "concatenation",
    "case": "CASE",
    "if": "IF",
    "cast": "CAST",
    "trycast": "TRY_CAST",
    "subquery": "a subquery",
    "select": "a subquery",
    "exists": "EXISTS",
    "any": "ANY",
    "all": "ALL",
    "ilike": "ILIKE",
    "similarto": "SIMILAR TO",
    "escape": "LIKE with ESCAPE (the escape character is the backslash)",
    "nullsafeeq": "IS NOT DISTINCT FROM",
    "nullsafeneq": "IS DISTINCT FROM",
    "tuple": "a list of expressions",
    "placeholder": "a parameter",
    "parameter": "a parameter",
    "interval": "INTERVAL",
    "national": "a national string",
    "star": "*",
    "bracket": "a subscript",
    "dot": "a field of a value",
    "literal": "a constant as a condition",
    **dict.fromkeys(
        (
            *("eq", "neq", "lt", "lte", "gt", "gte", "and", "or", "not"),
            *("between", "in", "is", "like", "boolean", "null"),
        ),
        "a condition as a value",
    ),
}
# The word that starts a construct, where that is not its leftmost operand.
_OPENING: Final = {
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
        for word in _OPENING.get(node.key, ()) or _function_names(node):
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
