"""The values of CloudEvents SQL: casts, operators and functions, each with the errors it may have.

The types are String, Integer and Boolean. The language has no other numbers, and events should have
none: a number that is not an integer of 32 bits is an Integer that can be compared and written, but
not calculated with.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from boxmatch.model.dialects.cesql_tree import LARGEST, SMALLEST, like_segments

Value = str | bool | int | float | Decimal

Type = Literal["String", "Integer", "Boolean"]

ErrorKind = Literal["math", "cast", "missingAttribute", "missingFunction", "functionEvaluation"]

_NO_ERRORS: Final[frozenset[ErrorKind]] = frozenset()


class Result(NamedTuple):
    """What an expression evaluates to: always a value, and maybe errors."""

    value: Value
    errors: frozenset[ErrorKind] = _NO_ERRORS


def failed(value: Value, error: ErrorKind) -> Result:
    """A value with one error."""
    return Result(value, frozenset((error,)))


ZERO: Final[Mapping[Type, Value]] = {"String": "", "Integer": 0, "Boolean": False}
"""The value of an operator or function one of whose operands has an error."""


def attribute_value(value: object) -> Value | None:
    """The value of an attribute; None if it is missing.

    A list, a mapping and NaN are no values of attributes: they are as missing as null.
    """
    if isinstance(value, (str, bool)):
        return value
    if not isinstance(value, (int, float, Decimal)) or _is_nan(value):
        return None
    if SMALLEST <= value <= LARGEST and value == int(value):
        return int(value)
    return value


def _is_nan(value: float | Decimal) -> bool:
    return value.is_nan() if isinstance(value, Decimal) else value != value


# --- casts ------------------------------------------------------------------------------------

_INTEGER: Final = re.compile(r"([+-]?)0*+([0-9]{0,10})(?<=[0-9])")


def type_of(value: Value) -> Type:
    """The type that operators go by."""
    if isinstance(value, str):
        return "String"
    return "Boolean" if isinstance(value, bool) else "Integer"


def cast(value: Value, target: Type) -> Result:
    """The value as one of a type."""
    if target == "String":
        return Result(to_string(value))
    return to_boolean(value) if target == "Boolean" else to_number(value)


def to_string(value: Value) -> str:
    """The value as a String, which always succeeds."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    # The text of an int is limited, that of a Decimal is not.
    return str(Decimal(value) if isinstance(value, int) else value)


def to_boolean(value: Value) -> Result:
    """The value as a Boolean."""
    if not isinstance(value, str):
        return Result(value != 0)
    text = value.lower()
    return Result(text == "true") if text in ("true", "false") else failed(False, "cast")


def to_number(value: Value) -> Result:
    """The value as an Integer, as comparisons take it: a number is as it is."""
    if isinstance(value, bool):
        return Result(int(value))
    if not isinstance(value, str):
        return Result(value)
    found = _INTEGER.fullmatch(value)
    number = int(found[1] + (found[2] or "0")) if found else LARGEST + 1
    return Result(number) if SMALLEST <= number <= LARGEST else failed(0, "cast")


def to_integer(value: Value) -> Result:
    """The value as an Integer to calculate with: other numbers are errors."""
    result = to_number(value)
    return result if type(result.value) is int and _fits(result.value) else failed(0, "cast")


def _fits(value: int) -> bool:
    return SMALLEST <= value <= LARGEST


# --- operators --------------------------------------------------------------------------------


def negate(value: Value) -> Result:
    """The minus value."""
    number = to_integer(value)
    return number if number.errors else _in_range(-_int(number.value))


def inverse(value: Value) -> Result:
    """NOT, which is true where the cast failed."""
    result = to_boolean(value)
    return Result(not result.value, result.errors)


def equal(left: Value, right: Value) -> Result:
    """Whether two values are equal, after a cast of the left one to the type of the right one."""
    left, errors = cast(left, type_of(right))
    return Result(not errors and left == right, errors)


def unequal(left: Value, right: Value) -> Result:
    """The opposite of `equal`, unless there are errors."""
    result = equal(left, right)
    return result if result.errors else Result(not result.value)


def _ordering(compare: Callable[[Any, Any], bool]) -> Callable[[Value, Value], Result]:
    def ordered(left: Value, right: Value) -> Result:
        left, left_errors = to_number(left)
        right, right_errors = to_number(right)
        errors = left_errors | right_errors
        return Result(not errors and compare(left, right), errors)

    return ordered


def _arithmetic(calculate: Callable[[int, int], Result]) -> Callable[[Value, Value], Result]:
    def calculated(left: Value, right: Value) -> Result:
        left, left_errors = to_integer(left)
        right, right_errors = to_integer(right)
        errors = left_errors | right_errors
        return Result(0, errors) if errors else calculate(_int(left), _int(right))

    return calculated


def _divide(left: int, right: int) -> Result:
    if right == 0:
        return failed(0, "math")
    quotient = abs(left) // abs(right)
    return _in_range(quotient if (left < 0) == (right < 0) else -quotient)


def _remainder(left: int, right: int) -> Result:
    if right == 0:
        return failed(0, "math")
    rest = abs(left) % abs(right)
    return Result(-rest if left < 0 else rest)


def _in_range(value: int) -> Result:
    """The specification does not say what an overflow is; the error is that of ABS."""
    return Result(value) if _fits(value) else failed(0, "math")


def _int(value: Value) -> int:
    return int(value)


BINARY: Final[Mapping[str, Callable[[Value, Value], Result]]] = {
    "=": equal,
    "!=": unequal,
    "<": _ordering(operator.lt),
    "<=": _ordering(operator.le),
    ">": _ordering(operator.gt),
    ">=": _ordering(operator.ge),
    "+": _arithmetic(lambda left, right: _in_range(left + right)),
    "-": _arithmetic(lambda left, right: _in_range(left - right)),
    "*": _arithmetic(lambda left, right: _in_range(left * right)),
    "/": _arithmetic(_divide),
    "%": _arithmetic(_remainder),
}
"""The comparisons, which are Booleans, and arithmetic."""

ARITHMETIC: Final = frozenset("+-*/%")


def like_regex(pattern: str) -> re.Pattern[str]:
    """The regular expression of a LIKE pattern, for `fullmatch`.

    A segment is found at its first place and nowhere else (an atomic group), which is enough, and
    takes no more than the length of the text times that of the pattern.
    """
    first, *others = (".".join(map(re.escape, one)) for one in like_segments(pattern))
    middle = "".join(f"(?>.*?{one})" for one in others[:-1])
    last = "".join(f".*{one}" for one in others[-1:])
    return re.compile(first + middle + last, re.DOTALL)


# --- functions --------------------------------------------------------------------------------


class Function(NamedTuple):
    """A function of one arity, or of an arity and all larger ones."""

    parameters: tuple[Type | None, ...]
    """None takes any type."""
    returns: Type
    body: Callable[..., Result]
    variadic: bool = False
    """Whether any number of Strings may follow."""


def find_function(name: str, arity: int) -> Function | None:
    """The function of a name in upper case that takes so many arguments."""
    for function in FUNCTIONS.get(name, ()):
        least = len(function.parameters)
        if arity == least or (function.variadic and arity > least):
            return function
    return None


def _absolute(value: int) -> Result:
    return failed(LARGEST, "math") if value == SMALLEST else Result(abs(value))


def _left(text: str, length: int) -> Result:
    return failed(text, "functionEvaluation") if length < 0 else Result(text[:length])


def _right(text: str, length: int) -> Result:
    if length < 0:
        return failed(text, "functionEvaluation")
    return Result(text[max(0, len(text) - length) :])


def _substring(text: str, position: int, length: int | None = None) -> Result:
    if abs(position) > len(text) or (length is not None and length < 0):
        return failed("", "functionEvaluation")
    if position == 0:
        return Result("")
    start = position - 1 if position > 0 else len(text) + position
    return Result(text[start:] if length is None else text[start : start + length])


# What Unicode calls white space. `str.strip` also removes four control characters.
_WHITE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)

FUNCTIONS: Final[Mapping[str, tuple[Function, ...]]] = {
    "INT": (Function((None,), "Integer", to_integer),),
    "BOOL": (Function((None,), "Boolean", to_boolean),),
    "STRING": (Function((None,), "String", lambda value: Result(to_string(value))),),
    # Only drafts of the specification had these two, and the SDKs differ about what is no String.
    # So it was in the drafts: it is the text that counts, and 1 is no Boolean.
    "IS_INT": (Function(("String",), "Boolean", lambda text: Result(not to_number(text).errors)),),
    "IS_BOOL": (
        Function(("String",), "Boolean", lambda text: Result(not to_boolean(text).errors)),
    ),
    "ABS": (Function(("Integer",), "Integer", _absolute),),
    "LENGTH": (Function(("String",), "Integer", lambda text: Result(len(text))),),
    "CONCAT": (Function((), "String", lambda *texts: Result("".join(texts)), variadic=True),),
    "CONCAT_WS": (
        Function(
            ("String",),
            "String",
            lambda between, *texts: Result(between.join(texts)),
            variadic=True,
        ),
    ),
    "LOWER": (Function(("String",), "String", lambda text: Result(text.lower())),),
    "UPPER": (Function(("String",), "String", lambda text: Result(text.upper())),),
    "TRIM": (Function(("String",), "String", lambda text: Result(text.strip(_WHITE))),),
    "LEFT": (Function(("String", "Integer"), "String", _left),),
    "RIGHT": (Function(("String", "Integer"), "String", _right),),
    "SUBSTRING": (
        Function(("String", "Integer"), "String", _substring),
        Function(("String", "Integer", "Integer"), "String", _substring),
    ),
}
