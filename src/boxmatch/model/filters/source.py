"""The text of a filter: its constants, its names, and errors that point into it."""

from __future__ import annotations

import difflib
import re
from datetime import tzinfo
from decimal import Decimal, InvalidOperation
from math import isinf
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from boxmatch.errors import (
    AttributeValueError,
    FilterError,
    FilterSyntaxError,
    UnknownAttributeError,
    UnsupportedFilterError,
)
from boxmatch.model.expressions.nodes import FLOAT, INT, Literal, Type
from boxmatch.model.filters.conditions import Value
from boxmatch.model.filters.constructs import BEYOND_EVENTS, NAMED, TIMESTAMPS
from boxmatch.model.filters.literals import key_of_value
from boxmatch.model.filters.parsing import Places, construct_name
from boxmatch.model.filters.scope import Scope
from boxmatch.model.schema import Attribute

_NUMBER: Final = re.compile(r"[0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?")
_LEVELS: Final = ("catalog", "db", "table", "this")
_MOMENT: Final = Attribute("constant", "timestamp")


class FilterSource:
    """One filter as it was written and parsed, over the axes of its scope."""

    def __init__(self, scope: Scope, text: str, tokens: list[Token], zone: tzinfo | None) -> None:
        self.scope = scope
        self.text = text
        self.zone = zone
        self.position = Places(tokens).of

    # Constants

    def constant(self, node: exp.Expr, parent: exp.Expr) -> Value | None:
        """A constant, as it was written; None for anything else."""
        sign, inner = "", unwrap(node)
        while inner.key == "neg":
            sign, inner = "" if sign else "-", unwrap(inner.this)
        if inner.key == "literal":
            position = inner.meta.get("start")
            if position is None:
                position = self.position(parent)
            if not inner.is_string:
                if not _NUMBER.fullmatch(inner.this):
                    raise FilterSyntaxError(f"{inner.this} is not a number", self.text, position)
                return Value("number", sign + inner.this, position)
            if not sign:
                return Value("text", inner.this, position, self.zone)
        if not sign:
            if inner.key == "boolean":
                return Value("truth", bool(inner.this), self.position(inner))
            if inner.key == "null":
                return Value("null", None, self.position(inner))
            if inner.key == "cast" and unwrap(inner.this).is_string:
                name = str(getattr(inner.args["to"].this, "value", inner.args["to"].this))
                if name in TIMESTAMPS or name == "DATE":
                    return self.cast_constant(inner)
        return None

    def cast_constant(self, cast: exp.Expr) -> Value:
        """The constant that is written with its type, as in `DATE '2026-01-05'`."""
        literal = unwrap(cast.this)
        kind = cast.args["to"].this
        name = str(getattr(kind, "value", kind))
        position = literal.meta.get("start")
        return Value("date" if name == "DATE" else "timestamp", literal.this, position, self.zone)

    def moment(self, value: Value) -> int:
        """The microseconds of a constant timestamp."""
        try:
            return key_of_value(_MOMENT, value)
        except AttributeValueError as error:
            reason = f"{error.value!r} {error.reason}"
            raise FilterError(reason, self.text, value.position) from None

    def number(self, node: exp.Expr, sign: str = "") -> Literal:
        """A number as SQL types it: an int, a decimal, or a float."""
        text = node.this
        if not _NUMBER.fullmatch(text):
            at = node.meta.get("start", 0)
            raise FilterSyntaxError(f"{text} is not a number", self.text, at)
        if "e" in text.lower():
            return Literal(float(sign + text), FLOAT)
        try:
            number = Decimal(sign + text)
        except InvalidOperation:
            number = Decimal("NaN")
        if "." not in text and -(2**63) < number < 2**63:
            return Literal(int(number), INT)
        _, digits, exponent = number.as_tuple()
        if not isinstance(exponent, int) or len(digits) > 38 or -exponent > 38:
            floating = float(sign + text)
            if isinf(floating):
                at = self.position(node)
                raise FilterError(f"{text[:20]}… is too large a number", self.text, at)
            return Literal(floating, FLOAT)
        scale = -exponent
        return Literal(number, Type("decimal", max(len(digits), scale, 1), scale))

    # Names

    def attribute(self, column: exp.Expr, *, is_value: bool = False) -> int:
        """The position of the attribute that a column names."""
        name = ".".join(self.parts(column))
        position = self.known(column, name)
        if position is not None:
            return position
        names = self.scope.schema.names
        alike = [names[place] for place in self._alike(name)]
        raise UnknownAttributeError(
            self._unknown(name, alike, _is_quoted(column), is_value),
            self.text,
            self.position(column),
        )

    def known(self, column: exp.Expr, name: str) -> int | None:
        """The position of the attribute with a type that a column names by this name."""
        schema = self.scope.schema
        position = schema.index.get(name)
        if position is None and not _is_quoted(column):
            alike = self._alike(name)
            position = alike[0] if len(alike) == 1 else None
        if position is None or schema.attributes[position].type == "json":
            return None
        return position

    def _alike(self, name: str) -> list[int]:
        folded = name.casefold()
        names = enumerate(self.scope.schema.names)
        return [place for place, other in names if other.casefold() == folded]

    def _unknown(self, name: str, alike: list[str], quoted: bool, is_value: bool) -> str:
        names = self.scope.schema.names
        reason = f"there is no attribute {name!r}"
        for place, one in enumerate(names):
            if name.startswith(f"{one}.") and self.scope.schema.attributes[place].repeated:
                field = name.removeprefix(f"{one}.")
                return f"{reason}; {one!r} is a list: EXISTS({one}, i -> i.{field} …)"
        close = alike or difflib.get_close_matches(name, names, n=3)
        if close:
            reason += f"; did you mean {' or '.join(map(repr, close))}?"
        elif quoted:
            reason += "; double quotes hold a name, single quotes hold text"
        elif is_value:
            reason += f"; text goes into single quotes: {name!r}"
        return reason

    def parts(self, column: exp.Expr) -> list[str]:
        """The names, joined by dots, that a column is written with."""
        if column.key == "identifier":
            return [column.name]
        if column.key == "dot":
            return [*self.parts(column.this), *self.parts(column.expression)]
        if column.key != "column":
            self.unsupported(column)
        parts = [column.args[level] for level in _LEVELS if column.args.get(level)]
        if any(part.key != "identifier" for part in parts):
            self.unsupported(column.this)
        return [part.name for part in parts]

    # Refusals

    def unsupported(self, node: exp.Expr) -> NoReturn:
        name = construct_name(node)
        word = name.split("(")[0].removeprefix("the function ").casefold()
        called = str(node.name).lower() if isinstance(node, exp.Anonymous) else node.key
        if any(word == known.casefold() for known in self.scope.schema.names):
            name += " (to name the attribute, put it in double quotes)"
        elif called in BEYOND_EVENTS:
            raise UnsupportedFilterError(
                f"{name} is not supported: a filter depends on the event alone",
                self.text,
                self.position(node),
            )
        elif name.startswith("the function "):
            close = difflib.get_close_matches(word, NAMED, n=2)
            if close:
                name += f" (did you mean {' or '.join(one.upper() for one in close)}?)"
        self.refuse(name, node)

    def refuse(self, what: str, node: exp.Expr) -> NoReturn:
        raise UnsupportedFilterError(f"{what} is not supported", self.text, self.position(node))

    def wrong(self, reason: str, node: exp.Expr) -> NoReturn:
        raise FilterError(reason, self.text, self.position(node))


def _is_quoted(column: exp.Expr) -> bool:
    return any(one.args.get("quoted") for one in column.find_all(exp.Identifier))


def unwrap(node: exp.Expr) -> exp.Expr:
    """What is inside parentheses."""
    while node.key == "paren":
        node = node.this
    return node


def chain_of(node: exp.Expr) -> list[exp.Expr]:
    """The operands of a chain of the same operator, from left to right.

    Without recursion: a chain of thousands is a tree as deep.
    """
    operands: list[exp.Expr] = []
    pending = [node]
    while pending:
        current = unwrap(pending.pop())
        if current.key == node.key:
            pending.extend((current.expression, current.this))
        else:
            operands.append(current)
    return operands


def article(kind: str) -> str:
    """A noun with its article."""
    return f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
