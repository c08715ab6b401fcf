"""Expressions as trees: columns, literals, calls of functions, and lambdas over list elements.

Nodes are immutable and hashable; equal expressions are equal trees. Every node has a type. Nodes
are made by `functions.call`, which finds the type of a call and inserts casts, so that evaluators
see exactly typed arguments.

Values by type, in literals and wherever a single event is evaluated:

| type        | Python                                     | Arrow                 |
| ----------- | ------------------------------------------ | --------------------- |
| `int`       | `int`, above -2**63                        | `int64`               |
| `float`     | `float`, never NaN                         | `float64`             |
| `decimal`   | `Decimal` with `scale` digits after the point | `decimal128(p, s)` |
| `string`    | `str`                                      | `large_string`        |
| `bool`      | `bool`                                     | `bool`                |
| `timestamp` | `int`, microseconds since 1970 in UTC      | `int64`               |
| `interval`  | `int`, microseconds                        | `int64`               |
| `months`    | `int`                                      | `int64`               |
| `list`      | `list` of values or None                   | `large_list`          |
| `struct`    | `dict` of all fields, values or None       | `struct`              |
| `json`      | any value, as JSON or Python has it        | a `Documents`         |

NULL is None, or null.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import Any
from typing import Literal as Choice

TypeName = Choice[
    "int",
    "float",
    "decimal",
    "string",
    "bool",
    "timestamp",
    "interval",
    "months",
    "list",
    "struct",
    "json",
    "null",
]


@dataclass(frozen=True, slots=True)
class Type:
    """The type of an expression. `null` is that of a bare NULL, which fits everywhere."""

    name: TypeName
    precision: int = 0
    scale: int = 0
    element: Type | None = None
    """Of a list."""
    fields: tuple[tuple[str, Type], ...] = ()
    """Of a struct."""

    def __str__(self) -> str:
        match self.name:
            case "decimal":
                return f"decimal({self.precision}, {self.scale})"
            case "list":
                return f"list of {self.element}"
            case _:
                return self.name


INT = Type("int")
FLOAT = Type("float")
STRING = Type("string")
BOOL = Type("bool")
TIMESTAMP = Type("timestamp")
INTERVAL = Type("interval")
MONTHS = Type("months")
JSON = Type("json")
NULL = Type("null")


@dataclass(frozen=True, slots=True)
class Column:
    """An attribute of the event, by its name in the schema. Enums are strings here."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, in the form of its type, or None."""

    value: Any
    type: Type

    # 1, 1.0, True and Decimal(1) are equal in Python, and so would be the trees.
    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Literal)
            and self.type == other.type
            and type(self.value) is type(other.value)
            and bool(self.value == other.value)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.value if not isinstance(self.value, list) else None))


@dataclass(frozen=True, slots=True)
class Variable:
    """The parameter of the innermost lambda around it that has this name."""

    name: str
    type: Type


@dataclass(frozen=True, slots=True)
class Lambda:
    """A function of one list element: `variable -> body`."""

    variable: Variable
    body: Node

    @property
    def type(self) -> Type:
        return self.body.type


@dataclass(frozen=True, slots=True)
class Call:
    """A function of the table in `functions`, of typed arguments."""

    function: str
    arguments: tuple[Node, ...]
    type: Type


Node = Column | Literal | Variable | Lambda | Call


class ExpressionError(ValueError):
    """A call that makes no sense: an unknown function, or arguments of a wrong number or type.

    Never leaves the package: whoever translates a filter adds the place in the text.
    """


def walk(node: Node) -> Iterator[Node]:
    """A node and all that are below it."""
    pending = [node]
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, Call):
            pending.extend(one.arguments)
        elif isinstance(one, Lambda):
            pending.append(one.body)


def columns_of(node: Node) -> frozenset[str]:
    """The names of the attributes that an expression reads."""
    return frozenset(one.name for one in walk(node) if isinstance(one, Column))


@lru_cache(maxsize=4096)
def read_path(text: str) -> tuple[str, ...]:
    """The path in a document that a constant says: a JSON list of names."""
    return tuple(json.loads(text))


def to_json(node: Node) -> str:
    """The tree as JSON, for files."""
    return json.dumps(_plain(node), ensure_ascii=False, separators=(",", ":"))


def from_json(text: str) -> Node:
    """The tree that `to_json` wrote. Raises `ValueError` or `TypeError` for anything else."""
    return _node(json.loads(text))


def _plain(node: Node) -> list[Any]:
    match node:
        case Column(name, type):
            return ["column", name, _plain_type(type)]
        case Variable(name, type):
            return ["variable", name, _plain_type(type)]
        case Literal(value, type):
            return ["literal", _plain_value(value), _plain_type(type)]
        case Lambda(variable, body):
            return ["lambda", _plain(variable), _plain(body)]
        case Call(function, arguments, type):
            return ["call", function, [_plain(one) for one in arguments], _plain_type(type)]


def _plain_value(value: Any) -> Any:
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, list):
        return [_plain_value(one) for one in value]
    return value


def _plain_type(type: Type) -> Any:
    if type.name == "decimal":
        return ["decimal", type.precision, type.scale]
    if type.name == "list":
        return ["list", None if type.element is None else _plain_type(type.element)]
    if type.name == "struct":
        return ["struct", [[name, _plain_type(one)] for name, one in type.fields]]
    return type.name


def _node(plain: Any) -> Node:
    kind, *rest = plain
    match kind:
        case "column":
            return Column(rest[0], _type(rest[1]))
        case "variable":
            return Variable(rest[0], _type(rest[1]))
        case "literal":
            return Literal(_value(rest[0]), _type(rest[1]))
        case "lambda":
            variable = _node(rest[0])
            if not isinstance(variable, Variable):
                raise ValueError("the parameter of a lambda is a variable")
            return Lambda(variable, _node(rest[1]))
        case "call":
            return Call(rest[0], tuple(map(_node, rest[1])), _type(rest[2]))
    raise ValueError(f"no expression is a {kind!r}")


def _value(plain: Any) -> Any:
    if isinstance(plain, Mapping):
        if "decimal" in plain:
            return Decimal(plain["decimal"])
        return float.fromhex(plain["float"])
    return [_value(one) for one in plain] if isinstance(plain, list) else plain


def _type(plain: Any) -> Type:
    if isinstance(plain, str):
        return Type(plain)  # type: ignore[arg-type]  # as it was written
    if plain[0] == "decimal":
        return Type("decimal", plain[1], plain[2])
    if plain[0] == "list":
        return Type("list", element=None if plain[1] is None else _type(plain[1]))
    return Type("struct", fields=tuple((name, _type(one)) for name, one in plain[1]))
