"""Names and places of SQL constructs, for messages about what a filter may not contain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
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


def construct_position(node: exp.Expr, tokens: list[Token]) -> int:
    """The offset in the text where a construct starts, as near as the parser remembers.

    Only names and constants carry a place; that of a construct is the word that opens it, or the
    leftmost place inside it, or else that of what it belongs to.
    """
    inside = _leftmost(node)
    around = node.parent
    start = inside
    while start is None and around is not None:
        start, around = _leftmost(around), around.parent
    start = 0 if start is None else start
    opening = _OPENING.get(node.key, ()) or _function_names(node)
    opened = [token.start for token in tokens if token.text.upper() in opening]
    before = max((at for at in opened if at <= start), default=None)
    after = min((at for at in opened if at >= start), default=None)
    if inside is not None:
        after = None
    elif node.arg_key != "this":  # a right operand: what is known is the place of the left one
        before, after = after, before
    return next((at for at in (before, after) if at is not None), start)


def _leftmost(node: exp.Expr) -> int | None:
    return min((n.meta["start"] for n in node.walk() if "start" in n.meta), default=None)


def _function_names(node: exp.Expr) -> tuple[str, ...]:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous):
        return (str(node.name).upper(),)
    if isinstance(node, exp.Func) and node.key not in ("and", "or", "case", "cast", "exists"):
        return tuple(node.sql_names())
    return ()
