"""Which type a result has, and which one several operands are brought to.

The rules are those of Spark SQL in ANSI mode, with ints as BIGINT and floats as DOUBLE: an int and
a decimal meet as a decimal, a float and any other number as a float, and a string takes on the type
of what it is used with.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from functools import reduce
from typing import Final

from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.expressions.nodes import FLOAT, INT, NULL, ExpressionError, Literal, Node, Type

NUMBERS: Final = frozenset(("int", "float", "decimal"))
ORDERED: Final = NUMBERS | {"string", "bool", "timestamp", "interval", "months"}
"""Types whose values can be compared."""

INT_DIGITS: Final = 20
"""Digits of the decimal that an int becomes; Spark has one more than needed."""
_MIN_SCALE: Final = 6
"""Digits after the point that a result keeps when it needs more than 38 digits."""

_CASTS: Final = {
    "int": NUMBERS | {"string", "bool", "timestamp"},
    "float": NUMBERS | {"string", "bool", "timestamp", "json"},
    "decimal": NUMBERS | {"string", "bool", "timestamp"},
    "string": NUMBERS | {"string", "bool", "timestamp", "json"},
    "bool": NUMBERS | {"string", "bool", "json"},
    "timestamp": NUMBERS | {"string", "timestamp", "json"},
}


def decimal(precision: int, scale: int) -> Type:
    """The decimal type with as many of these digits as there can be."""
    return Type("decimal", min(precision, MAX_PRECISION), min(scale, MAX_PRECISION))


def can_cast(source: Type, target: Type) -> bool:
    """Whether there is a cast; lists are cast by element."""
    if source in (target, NULL):
        return True
    if source.name == target.name == "list":
        return source.element is None or (
            target.element is not None and can_cast(source.element, target.element)
        )
    return source.name in _CASTS.get(target.name, ())


def common_type(types: Iterable[Type]) -> Type:
    """The type that all of these are brought to; raises `ExpressionError` if there is none."""
    return reduce(_wider, types, NULL)


def _wider(one: Type, other: Type) -> Type:
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    names = {one.name, other.name}
    if names <= NUMBERS:
        if "float" in names:
            return FLOAT
        left, right = as_decimal(one), as_decimal(other)
        scale = max(left.scale, right.scale)
        return decimal(
            max(left.precision - left.scale, right.precision - right.scale) + scale, scale
        )
    if "string" in names:
        rest = one if other.name == "string" else other
        if rest.name in ("int", "bool", "timestamp"):
            return rest
        if rest.name in NUMBERS:
            return FLOAT
    if names == {"list"} and one.element is not None and other.element is not None:
        return Type("list", element=_wider(one.element, other.element))
    raise ExpressionError(f"{article(one)} and {article(other)} do not go together")


def as_decimal(type: Type) -> Type:
    """The decimal type that holds all values of an int or decimal type."""
    return type if type.name == "decimal" else decimal(INT_DIGITS, 0)


def operand_decimal(node: Node) -> Type:
    """The decimal type of an operand: of a literal int, one of just its digits."""
    if isinstance(node, Literal) and node.type == INT and node.value is not None:
        return decimal(len(Decimal(node.value).as_tuple().digits), 0)
    return as_decimal(node.type)


def decimal_result(operator: str, left: Type, right: Type) -> Type:
    """The type of an arithmetic operation on two decimals."""
    whole = left.precision - left.scale, right.precision - right.scale
    scale = max(left.scale, right.scale)
    match operator:
        case "*":
            return _adjusted(left.precision + right.precision + 1, left.scale + right.scale)
        case "/":
            scale = max(_MIN_SCALE, left.scale + right.precision + 1)
            return _adjusted(whole[0] + right.scale + scale, scale)
        case "%":
            return _adjusted(min(whole) + scale, scale)
        case _:
            return _adjusted(max(whole) + scale + 1, scale)


def _adjusted(precision: int, scale: int) -> Type:
    """With 38 digits at most: those before the point are kept rather than those after it."""
    if precision <= MAX_PRECISION:
        return decimal(precision, scale)
    kept = max(MAX_PRECISION - (precision - scale), min(scale, _MIN_SCALE))
    return decimal(MAX_PRECISION, kept)


def rounded_decimal(type: Type, digits: int) -> Type:
    """The type of a decimal that is rounded to so many digits after the point."""
    whole = type.precision - type.scale + 1
    if digits < 0:
        return decimal(max(whole, 1 - digits), 0)
    scale = min(type.scale, digits)
    return decimal(whole + scale, scale)


def article(type: Type | str) -> str:
    """The name of a type as in a sentence: "an int"."""
    name = str(type)
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"
