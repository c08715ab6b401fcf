"""What message selectors are made of: conditions, and the operands that they compare."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal

Value = bool | int | float | str | None
"""Of a property or an operand; None is NULL."""

Order = Literal["<", "<=", ">", ">="]
Operator = Literal["=", "<>"] | Order

ORDERS: Final = frozenset(("<", "<=", ">", ">="))
"""The operators that compare numbers only."""


# --- operands -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal."""

    value: bool | int | float | str


@dataclass(frozen=True, slots=True)
class Property:
    """The value of a property or header."""

    name: str


@dataclass(frozen=True, slots=True)
class Signed:
    """An operand after a sign, or after several that come to one."""

    operand: Operand
    negative: bool


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operands of equal precedence, to be worked out from left to right."""

    first: Operand
    rest: tuple[tuple[str, Operand], ...]
    """Each operand after the operator before it."""


Operand = Constant | Property | Signed | Arithmetic


# --- conditions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Truth:
    """A boolean literal or property as a condition."""

    operand: Constant | Property


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two operands and what is between them."""

    operator: Operator
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class In:
    """A property that is one of some strings."""

    name: str
    strings: frozenset[str]


class Wild(Enum):
    """What stands for other characters in a pattern of LIKE."""

    ONE = "_"
    ANY = "%"


@dataclass(frozen=True, slots=True)
class Like:
    """A string property that is made of pieces of text and of wildcards."""

    name: str
    pieces: tuple[str | Wild, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A property without a value."""

    name: str


@dataclass(frozen=True, slots=True)
class Not:
    """A condition that is false."""

    condition: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """Conditions that are joined by AND."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Conditions that are joined by OR."""

    conditions: tuple[Condition, ...]


Condition = Truth | Comparison | In | Like | IsNull | Not | AllOf | AnyOf


def properties_of(operand: Operand) -> Iterator[str]:
    """The properties that an operand is worked out from, from left to right."""
    operands = [operand]
    while operands:
        match operands.pop():
            case Property(name):
                yield name
            case Signed(inner):
                operands.append(inner)
            case Arithmetic(first, rest):
                operands += [operand for _, operand in reversed(rest)]
                operands.append(first)
