"""What each function does with values: the strict ones, whose result is NULL if an argument is.

Results that do not exist are None: a division by zero, an overflow, a NaN. Both evaluators use this
table, the one of batches where Arrow and NumPy have nothing of the same meaning.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP, Decimal
from typing import Any, Final

from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.casts import EXACT, cast_function, fit, unit, whole
from boxmatch.model.expressions.nodes import Call, Literal
from boxmatch.model.expressions.patterns import compile_like, compile_regex

ValueFunction = Callable[..., Any]

_QUOTIENT_SCALE: Final = 39
"""Where Spark rounds a quotient of decimals before it rounds it to its type."""


def value_function(call: Call) -> ValueFunction:
    """The function of a call's argument values, none of which is None."""
    made = _FUNCTIONS.get(call.function)
    return _MAKERS[call.function](call) if made is None else made


def literal(call: Call, position: int) -> Any:
    """The value of an argument that is a literal; None if it is not there."""
    if len(call.arguments) <= position:
        return None
    argument = call.arguments[position]
    assert isinstance(argument, Literal)  # `functions.call` has checked it
    return argument.value


def _number(value: float) -> float | None:
    return None if value != value else value


def _remainder(left: float, right: float) -> float | None:
    if right == 0.0 or math.isinf(left):
        return None
    return math.fmod(left, right)


def _int_quotient(left: int, right: int) -> int | None:
    if right == 0:
        return None
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _int_remainder(left: int, right: int) -> int | None:
    if right == 0:
        return None
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


_INT_ARITHMETIC: Final[dict[str, ValueFunction]] = {
    "+": lambda left, right: whole(left + right),
    "-": lambda left, right: whole(left - right),
    "*": lambda left, right: whole(left * right),
    "%": _int_remainder,
    "div": _int_quotient,
}
_FLOAT_ARITHMETIC: Final[dict[str, ValueFunction]] = {
    "+": lambda left, right: _number(left + right),
    "-": lambda left, right: _number(left - right),
    "*": lambda left, right: _number(left * right),
    "/": lambda left, right: None if right == 0.0 else _number(left / right),
    "%": _remainder,
}


def _decimal_quotient(left: Decimal, right: Decimal) -> Decimal | None:
    if not right:
        return None
    return EXACT.quantize(EXACT.divide(left, right), unit(_QUOTIENT_SCALE))


_DECIMAL_ARITHMETIC: Final[dict[str, ValueFunction]] = {
    "+": EXACT.add,
    "-": EXACT.subtract,
    "*": EXACT.multiply,
    "/": _decimal_quotient,
    "%": lambda left, right: EXACT.remainder(left, right) if right else None,
}


def _arithmetic(call: Call) -> ValueFunction:
    name = call.function
    kind = call.arguments[0].type.name
    if kind == "timestamp" and call.arguments[1].type.name == "months":
        return (
            temporal.add_months
            if name == "+"
            else lambda micros, months: temporal.add_months(micros, -months)
        )
    if kind == "float":
        return _FLOAT_ARITHMETIC[name]
    if kind != "decimal":
        return _INT_ARITHMETIC[name]
    if name == "div":
        return lambda left, right: whole(int(EXACT.divide_int(left, right))) if right else None
    exact = _DECIMAL_ARITHMETIC[name]
    precision, scale = call.type.precision, call.type.scale
    return lambda left, right: fit(exact(left, right), precision, scale)


def _round(call: Call) -> ValueFunction:
    digits = literal(call, 1) or 0
    match call.arguments[0].type.name:
        case "int":
            if digits >= 0:
                return lambda value, *_: value
            return lambda value, *_: whole(int(_rounded(Decimal(value), digits)))
        case "float":
            return lambda value, *_: round_float(value, digits)
    precision, scale = call.type.precision, call.type.scale
    return lambda value, *_: fit(_rounded(value, digits), precision, scale)


def _rounded(number: Decimal, digits: int) -> Decimal:
    if digits >= -(number.as_tuple().exponent):  # type: ignore[operator]  # it is finite
        return number
    if number.adjusted() + 1 < -digits:
        return Decimal(0)
    scaled = EXACT.scaleb(number, digits).to_integral_value(ROUND_HALF_UP)
    return EXACT.scaleb(scaled, -digits)


def round_float(value: float, digits: int) -> float:
    """A float rounded half up by the digits that it is written with."""
    return value if math.isinf(value) else float(_rounded(Decimal(repr(value)), digits))


def _towards(call: Call, direction: str, of_float: Callable[[float], int]) -> ValueFunction:
    match call.arguments[0].type.name:
        case "int":
            return lambda value: value
        case "decimal":
            return lambda value: EXACT.plus(value.to_integral_value(direction, EXACT))
    return lambda value: None if math.isinf(value) else whole(of_float(value))


def power(base: float, exponent: float) -> float | None:
    """As in C, where Python raises; both zeros are the same."""
    try:
        return math.pow(base + 0.0, exponent)
    except OverflowError:
        return -math.inf if base < 0.0 and math.fmod(exponent, 2.0) else math.inf
    except ValueError:
        return math.inf if base == 0.0 else None


def _substring(text: str, start: int, length: int | None = None) -> str:
    first = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    last = len(text) if length is None else first + length
    return text[max(first, 0) : max(last, 0)]


def _like(call: Call) -> ValueFunction:
    escape = literal(call, 2) or "\\"
    if isinstance(call.arguments[1], Literal):
        search = compile_like(call.arguments[1].value, escape).search
        return lambda text, *_: search(text) is not None

    def run(text: str, pattern: str, *_: str) -> bool | None:
        compiled = compile_like(pattern, escape)
        return None if compiled is None else compiled.search(text) is not None

    return run


def _rlike(call: Call) -> ValueFunction:
    search = compile_regex(literal(call, 1)).search
    return lambda text, _: search(text) is not None


def _contains(values: list[Any], value: Any) -> bool | None:
    return True if value in values else None if None in values else False


def _overlap(one: list[Any], other: list[Any]) -> bool | None:
    values = set(one) - {None}
    if not values.isdisjoint(other):
        return True
    return None if one and other and (None in one or None in other) else False


def _element(values: list[Any], position: int) -> Any:
    if not 0 < abs(position) <= len(values):
        return None
    return values[position - 1 if position > 0 else position]


def _replaced(text: str, old: str, new: str) -> str | None:
    """NULL rather than a text that several calls, one inside the other, have let grow endlessly."""
    if not old:
        return text
    growth = len(new) - len(old)
    if growth > 0 and len(text) + growth * text.count(old) > LONGEST_TEXT:
        return None
    return text.replace(old, new)


def _part(call: Call) -> ValueFunction:
    run = temporal.part_function(call.function, literal(call, 1))
    return lambda micros, *_: run(micros)


def _truncated(call: Call) -> ValueFunction:
    run = temporal.truncate_function(literal(call, 0), literal(call, 2))
    return lambda _unit, micros, *_: run(micros)


def _field(call: Call) -> ValueFunction:
    name = literal(call, 1)
    return lambda struct, _: struct[name]


LONGEST_TEXT: Final = 1 << 24
"""Characters that REPLACE makes at most."""

_FUNCTIONS: Final[dict[str, ValueFunction]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    "not": operator.not_,
    "sqrt": lambda value: None if value < 0.0 else math.sqrt(value),
    "power": power,
    "lower": str.lower,
    "upper": str.upper,
    "trim": lambda text, characters=" ": text.strip(characters),
    "ltrim": lambda text, characters=" ": text.lstrip(characters),
    "rtrim": lambda text, characters=" ": text.rstrip(characters),
    "length": len,
    "substring": _substring,
    "right": lambda text, length: text[-length:] if length > 0 else "",
    "concat": lambda *texts: "".join(texts),
    "reverse": lambda text: text[::-1],
    "replace": _replaced,
    "position": lambda needle, text: text.find(needle) + 1,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
    "contains": operator.contains,
    "cardinality": len,
    "array_contains": _contains,
    "arrays_overlap": _overlap,
    "element_at": _element,
}

_MAKERS: Final[dict[str, Callable[[Call], ValueFunction]]] = {
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), _arithmetic),
    "neg": lambda call: EXACT.minus if call.type.name == "decimal" else operator.neg,
    "abs": lambda call: EXACT.abs if call.type.name == "decimal" else abs,
    "sign": lambda call: lambda value: float((value > 0) - (value < 0)),
    "round": _round,
    "floor": lambda call: _towards(call, ROUND_FLOOR, math.floor),
    "ceil": lambda call: _towards(call, ROUND_CEILING, math.ceil),
    "like": _like,
    "rlike": _rlike,
    **dict.fromkeys(temporal.PARTS, _part),
    "date_trunc": _truncated,
    "field": _field,
    "cast": lambda call: cast_function(call.arguments[0].type, call.type),
}

STRICT: Final = frozenset(_FUNCTIONS) | frozenset(_MAKERS)
"""The functions of this table."""
