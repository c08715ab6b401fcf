"""The conditions of filters as trees: one small immutable class per construct.

What is compared is an axis of the filter's scope, given by its position: an attribute, or an
expression. On the axis of a list a comparison holds if it does for one of its elements. Truth is
three-valued, as in SQL: a comparison with an absent value or with NULL is neither true nor false.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Literal

from boxmatch.model.expressions.nodes import Node
from boxmatch.model.text_ranges import TextRanges

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
class Element:
    """One element of a list with which all of these comparisons are true; none is with NULL."""

    attribute: int
    comparisons: tuple[Compare, ...]
    present: bool = False
    """Whether it is also to be no NULL, with which they are unknown, and this is false."""


@dataclass(frozen=True, slots=True)
class Like:
    attribute: int
    value: Value
    """The pattern."""
    escape: str = "\\"
    fold: bool = False
    """Whether the axis is one of text in lower case, as the pattern is to be; the elements of a
    list are folded when they are compared."""
    around: tuple[str, str] | None = None
    """If given, the value is plain text, and the pattern has wildcards before and after it."""


@dataclass(frozen=True, slots=True)
class Matches:
    """`RLIKE`: a text has a part that a regular expression describes."""

    attribute: int
    value: Value


@dataclass(frozen=True, slots=True)
class HasPart:
    """A text has one of these kinds of parts; what `LIKE` is made of."""

    attribute: int
    part: Literal["prefix", "needle", "regex"]
    text: str


@dataclass(frozen=True, slots=True)
class InTexts:
    """The text of a value in a document is in one of these ranges, or of an element of a list."""

    attribute: int
    ranges: TextRanges
    within: TextRanges | None
    """Of texts in these ranges alone it is false otherwise, and unknown of all others; None: it is
    never unknown, not even of what is missing."""


@dataclass(frozen=True, slots=True)
class Holds:
    """A condition that is on no axis: whether this expression is true."""

    node: Node


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
    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Condition, ...]


Leaf = Compare | Among | Element | Like | Matches | HasPart | InTexts | IsNull | IsTruth
"""A condition on one axis."""

Condition = Leaf | Holds | Constant | Not | And | Or


def leaves(condition: Condition) -> Iterator[Leaf]:
    """All leaves, from left to right."""
    pending: list[Condition] = [condition]
    while pending:
        node = pending.pop()
        if isinstance(node, Not):
            pending.append(node.operand)
        elif isinstance(node, And | Or):
            pending.extend(reversed(node.operands))
        elif not isinstance(node, Constant | Holds):
            yield node


def with_axes_moved(condition: Condition, positions: Mapping[int, int]) -> Condition:
    """The same condition on axes that are at other positions now."""
    match condition:
        case Not(operand):
            return Not(with_axes_moved(operand, positions))
        case And(operands) | Or(operands):
            return type(condition)(tuple(with_axes_moved(one, positions) for one in operands))
        case Constant() | Holds():
            return condition
        case _:
            return replace(
                condition, attribute=positions.get(condition.attribute, condition.attribute)
            )


def values_of(leaf: Leaf) -> tuple[Value, ...]:
    """The constants that a leaf mentions."""
    if isinstance(leaf, Compare | Like | Matches):
        return (leaf.value,)
    if isinstance(leaf, Element):
        return tuple(one.value for one in leaf.comparisons)
    return leaf.values if isinstance(leaf, Among) else ()
