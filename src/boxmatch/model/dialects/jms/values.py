"""What selectors come to, given the values of properties: true, false or unknown.

Unknown is None, and so is NULL. Comparisons and arithmetic with NULL are unknown. Where the
specification says nothing, or little, this is what holds:

- A value compared with one of another kind, or two strings or bools compared by `<`, `<=`, `>` or
  `>=`, are false, whatever the operator. So `color <> 5` is false of a string, and
  `NOT (color <> 5)` is true.
- A property alone that is no bool is false, as is `LIKE` or `IN` of what is no string. `NOT LIKE`
  and `NOT IN` are the opposite, and so true of it; `NOT BETWEEN`, which the specification defines
  by comparisons, is not.
- Exact numbers are Java's `long`: what is too large for 64 bits wraps. Larger ones in events are
  compared exactly, and calculated with as approximate ones.
- Approximate numbers are Java's `double`. An exact number becomes one where the two meet, even if
  that rounds it, and where it is divided: 5 / 2 is 2.5, as in ActiveMQ, Qpid and RabbitMQ.
- Arithmetic with what is no number, and any division by zero, is unknown.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from math import inf
from typing import Any, Final, TypeGuard

from boxmatch.model.dialects.jms.syntax import (
    ORDERS,
    AllOf,
    AnyOf,
    Arithmetic,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Operator,
    Property,
    Signed,
    Truth,
    Value,
    Wild,
)
from boxmatch.model.dialects.jms.tokens import as_long

_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


@dataclass(frozen=True, slots=True)
class Selector:
    """A selector, to be called with the values of its properties, None being none."""

    condition: Condition
    names: tuple[str, ...]

    def __call__(self, *values: object) -> bool:
        """Whether the selector is true, and not false or unknown."""
        return (
            truth(self.condition, dict(zip(self.names, map(_value, values), strict=True))) is True
        )


def _value(value: object) -> Value:
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, (bool, int, float, str)) else None


def truth(condition: Condition, values: Mapping[str, Value]) -> bool | None:
    """Whether a condition is true or false; None if that is unknown."""
    match condition:
        case AllOf(conditions):
            return _joined(conditions, values, False)
        case AnyOf(conditions):
            return _joined(conditions, values, True)
        case Not(inner):
            result = truth(inner, values)
            return None if result is None else not result
        case Comparison(sign, left, right):
            return compared(sign, worked_out(left, values), worked_out(right, values))
        case Truth(operand):
            value = worked_out(operand, values)
            return None if value is None else value is True
        case IsNull(name):
            return values.get(name) is None
        case In(name, strings):
            value = values.get(name)
            return None if value is None else isinstance(value, str) and value in strings
        case Like(name, pieces):
            value = values.get(name)
            if value is None:
                return None
            return isinstance(value, str) and _regex(pieces).match(value) is not None


@lru_cache(maxsize=1 << 14)
def _regex(pieces: tuple[str | Wild, ...]) -> re.Pattern[str]:
    """What matches the strings that a pattern is true of, in no more than quadratic time.

    What is between two `%` is looked for once, from the left, and not again (that is what `(?>`
    says): if the rest does not match after its first occurrence, it does not after a later one.
    """
    runs = [""]
    for piece in pieces:
        if piece is Wild.ANY:
            runs.append("")
        else:
            runs[-1] += "." if piece is Wild.ONE else re.escape(str(piece))
    first, *others = runs
    for run in others[:-1]:
        first += f"(?>.*?{run})"
    last = f".*{others[-1]}" if others else ""
    return re.compile(rf"{first}{last}\Z", re.DOTALL)


def _joined(
    conditions: tuple[Condition, ...], values: Mapping[str, Value], decisive: bool
) -> bool | None:
    """The decisive value if a condition has it, else unknown if one is unknown."""
    result: bool | None = not decisive
    for condition in conditions:
        one = truth(condition, values)
        if one is decisive:
            return decisive
        if one is None:
            result = None
    return result


def worked_out(operand: Operand, values: Mapping[str, Value]) -> Value:
    """The value of an operand."""
    match operand:
        case Constant(value):
            return value
        case Property(name):
            return values.get(name)
        case Signed(inner, negative):
            return calculated("*", -1 if negative else 1, worked_out(inner, values))
        case Arithmetic(first, rest):
            result = worked_out(first, values)
            for sign, other in rest:
                result = calculated(sign, result, worked_out(other, values))
            return result


def compared(sign: Operator, left: Value, right: Value) -> bool | None:
    """Whether two values compare so; None if one of them is NULL."""
    if left is None or right is None:
        return None
    if is_number(left) and is_number(right):
        if type(left) is not type(right):
            left, right = as_double(left), as_double(right)
    elif sign in ORDERS or _kind(left) is not _kind(right):
        return False
    return _COMPARE[sign](left, right)


def calculated(sign: str, left: Value, right: Value) -> int | float | None:
    """A number; None if one of the two is none, or the second is zero and divides."""
    if not (is_number(left) and is_number(right)):
        return None
    if sign == "/":
        return as_double(left) / as_double(right) if right else None
    if _is_long(left) and _is_long(right):
        return as_long(_CALCULATE[sign](left, right))
    return float(_CALCULATE[sign](as_double(left), as_double(right)))


def _kind(value: Value) -> type:
    if isinstance(value, bool):
        return bool
    return str if isinstance(value, str) else float


def is_number(value: Value) -> TypeGuard[int | float]:
    """Whether a value is an exact or approximate number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def as_double(number: float) -> float:
    """The float that is nearest to a number."""
    try:
        return float(number)
    except OverflowError:
        return inf if number > 0 else -inf


def _is_long(number: float) -> TypeGuard[int]:
    return isinstance(number, int) and as_long(number) == number
