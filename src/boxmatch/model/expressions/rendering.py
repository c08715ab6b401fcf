"""Expressions as SQL that is read back as the same tree."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from math import isinf
from typing import Any, Final

from boxmatch.model.documents import ROOT
from boxmatch.model.expressions.casts import timestamp_text
from boxmatch.model.expressions.nodes import (
    JSON,
    Call,
    Column,
    Lambda,
    Literal,
    Node,
    Type,
    Variable,
    read_path,
)

# How tightly operators bind; what binds less than its place asks for stands in parentheses.
_OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _ATOM = range(8)

_OPERATORS: Final = {
    "or": ("OR", _OR),
    "and": ("AND", _AND),
    "=": ("=", _COMPARISON),
    "<": ("<", _COMPARISON),
    "<=": ("<=", _COMPARISON),
    "<=>": ("<=>", _COMPARISON),
    "like": ("LIKE", _COMPARISON),
    "rlike": ("RLIKE", _COMPARISON),
    "+": ("+", _SUM),
    "-": ("-", _SUM),
    "*": ("*", _PRODUCT),
    "/": ("/", _PRODUCT),
    "%": ("%", _PRODUCT),
    "div": ("DIV", _PRODUCT),
}
_NEGATED: Final = {"=": "<>", "like": "NOT LIKE", "rlike": "NOT RLIKE"}
_TURNED: Final = {"<": ">", "<=": ">="}
_SQL_TYPES: Final = {
    "int": "BIGINT",
    "float": "DOUBLE",
    "string": "STRING",
    "bool": "BOOLEAN",
    "timestamp": "TIMESTAMP",
}
_INTERVALS: Final = (
    (86_400_000_000, "DAY"),
    (3_600_000_000, "HOUR"),
    (60_000_000, "MINUTE"),
    (1_000_000, "SECOND"),
    (1_000, "MILLISECOND"),
    (1, "MICROSECOND"),
)
_MONTHS: Final = ((12, "YEAR"), (1, "MONTH"))
_TYPED_BY_SIBLINGS: Final = frozenset(
    ("and", "or", "<=>", "in", "case", "greatest", "least", "array")
)
"""Functions in which a bare NULL has the type of the other arguments."""
_COMPARISONS: Final = frozenset(("=", "<", "<=", "<=>", "in"))
_ARITHMETIC: Final = frozenset("+-*/%") | {"div"}


def render(node: Node, quote_name: Callable[[str], str]) -> str:
    """The expression as SQL, with the names of columns and fields as `quote_name` writes them."""
    return _Renderer(quote_name).text(node, _OR)


def sql_type(type: Type) -> str:
    """The type as CAST names it."""
    if type.name == "decimal":
        return f"DECIMAL({type.precision}, {type.scale})"
    if type.name == "list" and type.element is not None:
        return f"ARRAY<{sql_type(type.element)}>"
    return _SQL_TYPES.get(type.name, type.name.upper())


def quoted(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


class _Renderer:
    def __init__(self, quote_name: Callable[[str], str]) -> None:
        self.quote = quote_name

    def text(self, node: Node, least: int) -> str:
        """The SQL, in parentheses if it binds less than `least`."""
        text, level = self.with_level(node)
        return text if level >= least else f"({text})"

    def with_level(self, node: Node) -> tuple[str, int]:
        match node:
            case Column(name, _) | Variable(name, _):
                return self.quote(name), _ATOM
            case Literal(value, type):
                return self.literal(value, type)
            case Lambda(variable, body):
                return f"{self.quote(variable.name)} -> {self.text(body, _OR)}", _OR
            case Call("not", (inner,), _):
                return self.negated(inner)
            case Call():
                return self.call(node)

    def call(self, node: Call) -> tuple[str, int]:
        arguments = node.arguments
        match node.function:
            case "<" | "<=" as function if isinstance(arguments[0], Literal):
                return self.joined(_TURNED[function], _COMPARISON, node, turned=True)
            case "like" if len(arguments) == 3:
                text, level = self.joined("LIKE", _COMPARISON, node)
                return f"{text} ESCAPE {self.text(arguments[2], _ATOM)}", level
            case function if function in _OPERATORS:
                return self.joined(*_OPERATORS[function], node)
            case "neg":
                return f"-{self.text(arguments[0], _ATOM)}", _SIGN
            case "is_null":
                return f"{self.text(arguments[0], _SUM)} IS NULL", _COMPARISON
            case "is_true":
                return self.is_true(arguments[0])
            case "in":
                return self.membership(node, "IN")
            case "case":
                return self.case(node), _ATOM
            case "cast":
                return f"CAST({self.text(arguments[0], _OR)} AS {sql_type(node.type)})", _ATOM
            case "wanted":
                dialect, text = (self.text(one, _OR) for one in arguments[:2])
                return f"WANTED({dialect}, {text})", _ATOM
            case "json_path" | "text" | "texts" | "joined" | "is_missing":
                return self.document(node)
            case "field":
                name = arguments[1]
                assert isinstance(name, Literal)  # `functions.call` has checked it
                return f"{self.text(arguments[0], _ATOM)}.{self.quote(name.value)}", _ATOM
        listed = ", ".join(self.argument(node, one, _OR) for one in arguments)
        return f"{node.function.upper()}({listed})", _ATOM

    def document(self, node: Call) -> tuple[str, int]:
        """What is compared of a document: the name that leads to it, and what is asked of it."""
        column, path, *_ = node.arguments
        names = [] if column == Column(ROOT, JSON) else [self.text(column, _ATOM)]
        assert isinstance(path, Literal)  # as `documents` makes it
        name = self.quote(".".join([*names, *read_path(path.value)]))
        if node.function == "is_missing":
            return f"MISSING({name})", _ATOM
        return name, _ATOM

    def joined(
        self, operator: str, level: int, node: Call, *, turned: bool = False
    ) -> tuple[str, int]:
        """Operands with an operator between them; a chain of it needs parentheses on the right."""
        first, *rest = node.arguments[:2] if node.function == "like" else node.arguments
        if turned:
            first, rest = rest[0], [first]
        left = level + (level == _COMPARISON)
        texts = [self.argument(node, first, left)]
        texts += (self.argument(node, one, level + 1) for one in rest)
        return f" {operator} ".join(texts), level

    def argument(self, parent: Call, node: Node, least: int) -> str:
        """An argument, of which the place may say the type."""
        if isinstance(node, Literal) and self.typed_by_place(parent, node):
            if node.value is None:
                return "NULL"
            text, level = self.number(node.value)
            return text if level >= least else f"({text})"
        return self.text(node, least)

    def typed_by_place(self, parent: Call, node: Literal) -> bool:
        if node.value is not None and node.type.name != "decimal":
            return False
        others = [one for one in parent.arguments if not isinstance(one, Literal)]
        if node.value is None:
            there = parent.arguments
            if parent.function == "case":
                there = (*there[1::2], there[-1])
            known = any(not isinstance(one, Literal) or one.value is not None for one in there)
            return parent.function in _TYPED_BY_SIBLINGS and (known or node.type.name == "bool")
        if node.type.name != "decimal" or not any(one.type.name == "decimal" for one in others):
            return False
        if parent.function in _COMPARISONS:
            return True
        return parent.function in _ARITHMETIC and natural(node.value) == node.type

    def negated(self, inner: Node) -> tuple[str, int]:
        match inner:
            case Call(("=" | "like" | "rlike") as function, arguments, _) if len(arguments) == 2:
                return self.joined(_NEGATED[function], _COMPARISON, inner)
            case Call("is_null", (one,), _):
                return f"{self.text(one, _SUM)} IS NOT NULL", _COMPARISON
            case Call("in"):
                return self.membership(inner, "NOT IN")
        return f"NOT {self.text(inner, _NOT)}", _NOT

    def is_true(self, node: Node) -> tuple[str, int]:
        match node:
            case Call("not", (inner,), _):
                return f"{self.text(inner, _SUM)} IS FALSE", _COMPARISON
        return f"{self.text(node, _SUM)} IS TRUE", _COMPARISON

    def membership(self, node: Call, operator: str) -> tuple[str, int]:
        one, *values = node.arguments
        listed = ", ".join(self.argument(node, value, _OR) for value in values)
        return f"{self.text(one, _SUM)} {operator} ({listed})", _COMPARISON

    def case(self, node: Call) -> str:
        *arms, otherwise = node.arguments
        texts = [
            f"WHEN {self.text(condition, _OR)} THEN {self.argument(node, value, _OR)}"
            for condition, value in zip(arms[::2], arms[1::2], strict=True)
        ]
        ending = self.argument(node, otherwise, _OR)
        return f"CASE {' '.join(texts)}{'' if ending == 'NULL' else f' ELSE {ending}'} END"

    def literal(self, value: Any, type: Type) -> tuple[str, int]:
        if value is None:
            return ("NULL" if type.name == "null" else f"CAST(NULL AS {sql_type(type)})"), _ATOM
        match type.name:
            case "string":
                return quoted(value), _ATOM
            case "bool":
                return str(value).upper(), _ATOM
            case "timestamp":
                return f"TIMESTAMP {quoted(timestamp_text(value))}", _ATOM
            case "interval" | "months":
                return _interval(value, _MONTHS if type.name == "months" else _INTERVALS), _SIGN
            case "list":
                return self.listed(value, type), _ATOM
            case "decimal" if type.scale == 0 or natural(value) != type:
                return f"CAST({value:f} AS {sql_type(type)})", _ATOM
        return self.number(value)

    def number(self, value: Any) -> tuple[str, int]:
        if isinstance(value, float):
            if isinf(value):
                return f"CAST('{'-' if value < 0 else ''}Infinity' AS DOUBLE)", _ATOM
            text = repr(value).replace("e+", "e")
            text = text if "e" in text else f"{text.removesuffix('.0')}e0"
        else:
            text = str(value) if isinstance(value, int) else f"{value:f}"
        return text, _SIGN if text.startswith("-") else _ATOM

    def listed(self, values: list[Any], type: Type) -> str:
        assert type.element is not None  # a literal list has one
        texts = [
            "NULL" if value is None else self.literal(value, type.element)[0] for value in values
        ]
        array = f"ARRAY({', '.join(texts)})"
        return (
            array
            if any(one is not None for one in values)
            else f"CAST({array} AS {sql_type(type)})"
        )


def natural(value: Decimal) -> Type:
    """The type of a number with just these digits."""
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    return Type("decimal", max(len(digits), scale), scale)


def _interval(value: int, units: tuple[tuple[int, str], ...]) -> str:
    size, unit = next((size, unit) for size, unit in units if value % size == 0)
    return f"INTERVAL '{value // size}' {unit}"
