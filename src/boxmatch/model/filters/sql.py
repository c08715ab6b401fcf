"""SQL text to expressions. sqlglot parses; what is not a union of boxes is refused with its place.

Names are matched exactly, or, unless quoted, without regard to case if that leaves one attribute.
"""

from __future__ import annotations

import difflib
import re
from datetime import tzinfo
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from boxmatch.errors import (
    FilterError,
    FilterSyntaxError,
    FilterTooLargeError,
    UnknownAttributeError,
    UnsupportedFilterError,
)
from boxmatch.model.filters.expressions import (
    Among,
    And,
    Compare,
    Constant,
    Expression,
    IsNull,
    IsTruth,
    Like,
    Not,
    Operator,
    Or,
    Value,
)
from boxmatch.model.filters.parsing import (
    SUPPORTED,
    TOO_DEEP,
    Places,
    construct_name,
    is_reserved,
    parse,
)
from boxmatch.model.schema import Schema

_NUMBER: Final = re.compile(r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?")
_TIMESTAMPS: Final = {"TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ", "TIMESTAMPNTZ", "DATETIME"}
_LEVELS: Final = ("catalog", "db", "table", "this")
_OPERATORS: Final[dict[str, Operator]] = {
    "eq": "=",
    "neq": "<>",
    "lt": "<",
    "lte": "<=",
    "gt": ">",
    "gte": ">=",
}
_MIRRORED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}


def parse_text(schema: Schema, text: str, zone: tzinfo | None = None) -> Expression:
    """Parse the text of a WHERE clause. Timestamps that name no zone are in `zone`, or in UTC."""
    try:
        node, tokens = parse(text)
    except FilterSyntaxError as error:
        raise _add_hint(schema, error) from None
    try:
        return _Translator(schema, text, tokens, zone).condition(node)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, text, 0) from None


def _add_hint(schema: Schema, error: FilterSyntaxError) -> FilterSyntaxError:
    """The error, with a word on the name that most likely led to it."""
    for name in schema.names:
        bare = rf"(?<![\w\"'.]){re.escape(name)}(?![\w\"'(.])"
        if is_reserved(name) and re.search(bare, error.text or "", re.IGNORECASE):
            reason = f'{error.reason}; {name} is a word of SQL, as a name it is written "{name}"'
            return FilterSyntaxError(reason, error.text, error.position)
    return error


class _Translator:
    """Turns one parsed filter into an expression."""

    def __init__(self, schema: Schema, text: str, tokens: list[Token], zone: tzinfo | None) -> None:
        self.schema = schema
        self.text = text
        self.zone = zone
        self._position = Places(tokens).of

    def condition(self, node: exp.Expr) -> Expression:
        node = _unwrap(node)
        kind = node.key
        if kind in ("and", "or"):
            operands = tuple(self.condition(operand) for operand in _operands(node))
            return And(operands) if kind == "and" else Or(operands)
        if kind == "not":
            return Not(self.condition(node.this))
        if kind in _OPERATORS:
            return self._comparison(node, _OPERATORS[kind])
        if kind in ("between", "in", "is", "like"):
            found: Expression = getattr(self, f"_{kind}")(node)
            return Not(found) if node.args.get("negate") else found
        if kind == "boolean":
            return Constant(bool(node.this))
        if kind == "null":
            return Constant(None)
        if kind == "column":
            attribute = self._attribute(node)
            self._needs_bool(attribute, node, "is not a condition; compare it with a value")
            return Compare(attribute, "=", Value("truth", True))
        self._unsupported(node)

    def _comparison(self, node: exp.Expr, operator: Operator) -> Expression:
        left, right = _unwrap(node.this), _unwrap(node.expression)
        if left.key == "column":
            return Compare(self._attribute(left), operator, self._value(right, node))
        if right.key == "column":
            return Compare(self._attribute(right), _MIRRORED[operator], self._value(left, node))
        for side in (left, right):
            self._value(side, node)
        self._refuse("a comparison of two constants", node)

    def _between(self, node: exp.Expr) -> Expression:
        if node.args.get("symmetric"):
            self._refuse("BETWEEN SYMMETRIC", node)
        attribute = self._subject(node)
        low, high = node.args["low"], node.args["high"]
        return And(
            (
                Compare(attribute, ">=", self._value(low, node)),
                Compare(attribute, "<=", self._value(high, node)),
            )
        )

    def _in(self, node: exp.Expr) -> Expression:
        attribute = self._subject(node)
        if node.args.get("query"):
            self._unsupported(node.args["query"])
        if not node.expressions:
            self._refuse("IN without a list of constants", node)
        return Among(attribute, tuple(self._value(value, node) for value in node.expressions))

    def _is(self, node: exp.Expr) -> Expression:
        attribute = self._subject(node)
        truth = _unwrap(node.expression)
        if truth.key == "null":
            return IsNull(attribute)
        if truth.key != "boolean":
            self._refuse("IS with anything but NULL, TRUE or FALSE", node)
        self._needs_bool(attribute, node, "is neither TRUE nor FALSE")
        return IsTruth(attribute, bool(truth.this))

    def _like(self, node: exp.Expr) -> Expression:
        attribute = self._subject(node)
        found = self.schema.attributes[attribute]
        if found.type not in ("string", "enum"):
            raise FilterError(
                f"LIKE needs a string or enum attribute; {found.name!r} is {_a(found.type)}",
                self.text,
                self._position(node),
            )
        return Like(attribute, self._value(node.expression, node))

    def _subject(self, node: exp.Expr) -> int:
        """The attribute that a predicate such as BETWEEN is about."""
        subject = _unwrap(node.this)
        if subject.key == "column":
            return self._attribute(subject)
        if _is_constant(subject):
            self._refuse(f"{node.key.upper()} of a constant", node)
        self._unsupported(subject)

    def _value(self, node: exp.Expr, parent: exp.Expr) -> Value:
        """A constant; anything else is refused."""
        sign, inner = "", _unwrap(node)
        while inner.key == "neg":
            sign, inner = "" if sign else "-", _unwrap(inner.this)
        if inner.key == "literal":
            position = inner.meta.get("start")
            if position is None:
                position = self._position(parent)
            if not inner.is_string:
                if not _NUMBER.fullmatch(inner.this):
                    raise FilterSyntaxError(f"{inner.this} is not a number", self.text, position)
                return Value("number", sign + inner.this, position)
            if not sign:
                return Value("text", inner.this, position, self.zone)
        if not sign:
            if inner.key == "boolean":
                return Value("truth", bool(inner.this), self._position(inner))
            if inner.key == "null":
                return Value("null", None, self._position(inner))
            if inner.key == "cast" and _unwrap(inner.this).is_string:
                return self._cast(inner)
        if inner.key == "column" and not sign:
            self._attribute(inner, is_value=True)
            self._refuse("an attribute against another attribute", inner)
        self._unsupported(_unwrap(node))

    def _cast(self, cast: exp.Expr) -> Value:
        literal = _unwrap(cast.this)
        position = literal.meta.get("start")
        kind = cast.args["to"].this
        name = str(getattr(kind, "value", kind))
        if name in _TIMESTAMPS:
            return Value("timestamp", literal.this, position, self.zone)
        if name == "DATE":
            return Value("date", literal.this, position, self.zone)
        self._refuse(f"a constant of type {name}", cast)

    def _attribute(self, column: exp.Expr, *, is_value: bool = False) -> int:
        parts = [column.args[level] for level in _LEVELS if column.args.get(level)]
        if any(part.key != "identifier" for part in parts):
            self._unsupported(column.this)
        name = ".".join(part.name for part in parts)
        position = self.schema.index.get(name)
        if position is not None:
            return position
        quoted = any(part.args.get("quoted") for part in parts)
        folded = name.casefold()
        alike = [i for i, other in enumerate(self.schema.names) if other.casefold() == folded]
        if len(alike) == 1 and not quoted:
            return alike[0]
        reason = f"there is no attribute {name!r}"
        close = [self.schema.names[i] for i in alike] or difflib.get_close_matches(
            name, self.schema.names, n=3
        )
        if close:
            reason += f"; did you mean {' or '.join(map(repr, close))}?"
        elif quoted:
            reason += "; double quotes hold a name, single quotes hold text"
        elif is_value:
            reason += f"; text goes into single quotes: {name!r}"
        raise UnknownAttributeError(reason, self.text, self._position(column))

    def _needs_bool(self, attribute: int, node: exp.Expr, otherwise: str) -> None:
        found = self.schema.attributes[attribute]
        if found.type != "bool":
            raise FilterError(
                f"attribute {found.name!r} is {_a(found.type)}: it {otherwise}",
                self.text,
                self._position(node),
            )

    def _unsupported(self, node: exp.Expr) -> NoReturn:
        name = construct_name(node)
        word = name.split("(")[0].removeprefix("the function ").casefold()
        if any(word == known.casefold() for known in self.schema.names):
            name += " (to name the attribute, put it in double quotes)"
        self._refuse(name, node)

    def _refuse(self, what: str, node: exp.Expr) -> NoReturn:
        raise UnsupportedFilterError(
            f"{what} is not supported; {SUPPORTED}", self.text, self._position(node)
        )


def _unwrap(node: exp.Expr) -> exp.Expr:
    while node.key == "paren":
        node = node.this
    return node


def _is_constant(node: exp.Expr) -> bool:
    return node.key in ("literal", "boolean", "null", "neg")


def _operands(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of the same connective, from left to right.

    Without recursion: a chain of thousands is a tree as deep.
    """
    operands: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = _unwrap(pending.pop())
        if current.key == node.key:
            pending.extend((current.expression, current.this))
        else:
            operands.append(current)
    return operands


def _a(kind: str) -> str:
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
