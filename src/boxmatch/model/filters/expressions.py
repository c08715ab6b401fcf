"""The filter language as trees: one small immutable class per construct.

Attributes are given by their position in the schema. `BETWEEN` has no class of its own, it is two
comparisons. Truth is three-valued, as in SQL: a comparison with an absent attribute or with NULL
is neither true nor false.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import tzinfo
from typing import Literal

Operator = Literal["=", "<>", "<", "<=", ">", ">="]
Kind = Literal["number", "text", "truth", "null", "timestamp", "date", "object"]


@dataclass(frozen=True, slots=True)
class Value:
    """A constant as it was written, not yet checked against an attribute's type.

    `content` is the text of a number (with its sign), of a string or of a timestamp, a bool, None,
    or the Python object that a dict filter holds. `position` is its offset in the filter's text.
    A timestamp that names no zone is in `zone`; None is UTC.
    """

    kind: Kind
    content: object
    position: int | None = None
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or (None) NULL as a condition."""

    truth: bool | None


@dataclass(frozen=True, slots=True)
class Compare:
    attribute: int
    operator: Operator
    value: Value


@dataclass(frozen=True, slots=True)
class Among:
    """`IN`: equal to one of the values."""

    attribute: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Like:
    attribute: int
    value: Value
    """The pattern."""


@dataclass(frozen=True, slots=True)
class IsNull:
    attribute: int


@dataclass(frozen=True, slots=True)
class IsTruth:
    """`IS TRUE` or `IS FALSE`, which unlike `= TRUE` is never unknown."""

    attribute: int
    truth: bool


@dataclass(frozen=True, slots=True)
class Not:
    operand: Expression


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Expression, ...]


Leaf = Compare | Among | Like | IsNull | IsTruth
"""A condition on one attribute."""

Expression = Leaf | Constant | Not | And | Or


def leaves(expression: Expression) -> Iterator[Leaf]:
    """All leaves, from left to right."""
    pending: list[Expression] = [expression]
    while pending:
        node = pending.pop()
        if isinstance(node, Not):
            pending.append(node.operand)
        elif isinstance(node, And | Or):
            pending.extend(reversed(node.operands))
        elif not isinstance(node, Constant):
            yield node


def values_of(leaf: Leaf) -> tuple[Value, ...]:
    """The constants that a leaf mentions."""
    if isinstance(leaf, Compare | Like):
        return (leaf.value,)
    return leaf.values if isinstance(leaf, Among) else ()
