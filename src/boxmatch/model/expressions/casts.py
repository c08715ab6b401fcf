"""Casts of single values between types, as Spark SQL's TRY_CAST does them."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from math import inf, isinf
from typing import Any, Final

from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.nodes import NULL, ExpressionError, Type

EXACT: Final = Context(prec=400, rounding=ROUND_HALF_UP, traps=[])
"""For decimals of 38 digits and their products; the default context rounds to 28 digits."""
_LARGEST_EXPONENT: Final = 100

# What Spark trims around numbers and times: control characters and spaces.
_BLANK: Final = "".join(map(chr, range(33))) + "\x7f"
_INT: Final = re.compile(r"[+-]?[0-9]{1,40}")
_FLOAT: Final = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?")
_SMALLEST: Final = {5e-324: "4.9E-324", 1e-323: "9.9E-324"}
"""Floats that Java writes with a second digit, and so differently."""
_INFINITE: Final = {"inf": inf, "infinity": inf}
_BOOLS: Final = dict.fromkeys(("t", "true", "y", "yes", "1"), True) | dict.fromkeys(
    ("f", "false", "n", "no", "0"), False
)
_TIMESTAMP: Final = re.compile(
    r"([+-]?[0-9]{4,6})(?:-([0-9]{1,2})(?:-([0-9]{1,2})"
    r"(?:[T ]([0-9]{1,2})(?::([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{0,9}))?"
    r" ?([A-Z+-][A-Za-z0-9_/:+-]*)?)?)?)?)?)?"
)


def cast_function(source: Type, target: Type) -> Callable[[Any], Any]:
    """The function that casts a value that is not NULL; its result is None if there is none."""
    if source.name == "list":
        assert source.element is not None  # else the types are equal
        assert target.element is not None
        one = cast_function(source.element, target.element)
        return lambda values: [None if value is None else one(value) for value in values]
    if source in (target, NULL):
        return lambda value: value
    if target.name == "decimal":
        number = _NUMBERS[source.name]
        precision, scale = target.precision, target.scale
        return lambda value: fit(number(value), precision, scale)
    return _CASTS[source.name, target.name]


def whole(value: int) -> int | None:
    """The value, if it is an int of ours."""
    return value if FIRST <= value <= LAST else None


def fit(number: Decimal | None, precision: int, scale: int) -> Decimal | None:
    """The number with `scale` digits after the point, rounded half up; None if it has too many."""
    if number is None or not number.is_finite() or number.adjusted() > _LARGEST_EXPONENT:
        return None
    rounded = EXACT.plus(EXACT.quantize(number, unit(scale)))  # plus: no negative zero
    # Not abs(), which rounds to 28 digits.
    return rounded if rounded.copy_abs() < unit(scale - precision) else None


@lru_cache(maxsize=256)
def unit(scale: int) -> Decimal:
    """One in the last place."""
    return Decimal(1).scaleb(-scale, EXACT)


def float_text(value: float) -> str:
    """A float as Java writes it: 1.0, 1.0E10. Both zeros are 0.0, for they are equal."""
    if isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0.0:
        return "0.0"
    if abs(value) in _SMALLEST:
        return f"{'-' if value < 0 else ''}{_SMALLEST[abs(value)]}"
    sign, digits, exponent = Decimal(repr(value)).normalize(EXACT).as_tuple()
    assert isinstance(exponent, int)  # it is finite
    text = "".join(map(str, digits))
    point = len(text) + exponent
    minus = "-" if sign else ""
    if not 1e-3 <= abs(value) < 1e7:
        return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"
    if point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    return f"{minus}{text[:point].ljust(point, '0')}.{text[point:] or '0'}"


def timestamp_text(micros: int) -> str:
    """A timestamp in UTC as Spark writes it: no zeros at the end of the fraction."""
    seconds, fraction = divmod(micros, temporal.SECOND)
    days, second = divmod(seconds, temporal.DAY)
    year, month, day = temporal.civil(days)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    text = f"{sign}{abs(year):04}-{month:02}-{day:02} {clock}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def timestamp_of(text: str) -> int | None:
    """The timestamp that a text says, in UTC unless it has a zone; finer digits are cut off."""
    found = _TIMESTAMP.fullmatch(text.strip(_BLANK))
    if found is None:
        return None
    year, month, day = int(found[1]), int(found[2] or 1), int(found[3] or 1)
    hour, minute, second = (int(found[part] or 0) for part in (4, 5, 6))
    if not (1 <= month <= 12 and 1 <= day <= temporal.month_length(year, month)):
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    local = (
        temporal.day_number(year, month, day) * temporal.DAY + hour * 3600 + minute * 60 + second
    )
    if found[8]:
        try:
            zone = temporal.zone(found[8])
        except ExpressionError:
            return None
        local = temporal.instant(local, zone)
    fraction = int((found[7] or "").ljust(6, "0")[:6])
    return temporal.in_range(local * temporal.SECOND + fraction)


def _float_of_text(text: str) -> float | None:
    text = text.strip(_BLANK)
    if _FLOAT.fullmatch(text):
        return float(text)
    sign = -1.0 if text.startswith("-") else 1.0
    infinite = _INFINITE.get(text.removeprefix("-" if sign < 0 else "+").lower())
    return None if infinite is None else sign * infinite


def _int_of_text(text: str) -> int | None:
    text = text.strip(_BLANK)
    return whole(int(text)) if _INT.fullmatch(text) else None


def _decimal_of_text(text: str) -> Decimal | None:
    text = text.strip(_BLANK)
    return Decimal(text) if _FLOAT.fullmatch(text) else None


def _int_of_float(value: float) -> int | None:
    return None if isinf(value) else whole(int(value))


def _timestamp_of_float(value: float) -> int | None:
    return _int_of_float(value * temporal.SECOND)


def _timestamp_of_decimal(value: Decimal) -> int | None:
    return whole(int(EXACT.scaleb(value, 6).to_integral_value(ROUND_DOWN)))


_NUMBERS: Final[dict[str, Callable[[Any], Decimal | None]]] = {
    "int": Decimal,
    "bool": Decimal,
    "float": lambda value: Decimal(repr(value)),
    "decimal": lambda value: value,
    "string": _decimal_of_text,
    "timestamp": lambda micros: EXACT.scaleb(Decimal(micros), -6),
}

_CASTS: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("bool", "int"): int,
    ("float", "int"): _int_of_float,
    ("decimal", "int"): lambda value: whole(int(value)),
    ("string", "int"): _int_of_text,
    ("timestamp", "int"): lambda micros: micros // temporal.SECOND,
    ("bool", "float"): float,
    ("int", "float"): float,
    ("decimal", "float"): float,
    ("string", "float"): _float_of_text,
    ("timestamp", "float"): lambda micros: micros / temporal.SECOND,
    ("bool", "string"): lambda value: "true" if value else "false",
    ("int", "string"): str,
    ("float", "string"): float_text,
    ("decimal", "string"): lambda value: format(value, "f"),
    ("timestamp", "string"): timestamp_text,
    ("int", "bool"): bool,
    ("float", "bool"): bool,
    ("decimal", "bool"): bool,
    ("string", "bool"): lambda text: _BOOLS.get(text.strip(_BLANK).lower()),
    ("int", "timestamp"): lambda seconds: whole(seconds * temporal.SECOND),
    ("float", "timestamp"): _timestamp_of_float,
    ("decimal", "timestamp"): _timestamp_of_decimal,
    ("string", "timestamp"): timestamp_of,
}
