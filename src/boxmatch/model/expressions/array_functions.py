"""Strict functions over Arrow arrays: a result is NULL where an argument is.

A kernel may answer `NotImplemented` for arguments that it is not for; then the function of single
values in `values` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute

from boxmatch.arrays import BoolArray
from boxmatch.model.decimals import MAX_PRECISION
from boxmatch.model.expressions import temporal
from boxmatch.model.expressions.casts import EXACT
from boxmatch.model.expressions.nodes import Call, Type
from boxmatch.model.expressions.patterns import like_to_regex
from boxmatch.model.expressions.values import LONGEST_TEXT, literal, value_function
from boxmatch.model.expressions.vectors import (
    FLOAT_DIGITS,
    KEYED_DIGITS,
    Value,
    Vector,
    array,
    arrow_type,
    decimals,
    floats,
    ints,
    rounded,
    unscaled,
    vector,
)

pc: Any = pyarrow.compute  # The stubs know few of its overloads.


_DECIMAL: Final = {"+": "add", "-": "subtract", "*": "multiply"}


def strict(call: Call, values: list[Value]) -> Value:
    """The result of a strict function, of which one argument at least is an array."""
    kernel = _KERNELS.get(call.function)
    result = NotImplemented if kernel is None else kernel(call, *values)
    return by_values(call, values) if result is NotImplemented else result


def by_values(call: Call, values: list[Value]) -> Value:
    """The result by the function of single values."""
    function = value_function(call)
    places = [place for place, value in enumerate(values) if isinstance(value, pa.Array)]
    made = arrow_type(call.type)
    if len(places) > 1 or pa.types.is_nested(values[places[0]].type):
        length = len(values[places[0]])
        rows = zip(*(_listed(value, length) for value in values), strict=True)
        return pa.array([None if None in row else function(*row) for row in rows], made)
    (place,) = places
    encoded = values[place].dictionary_encode()
    given = [value.as_py() if isinstance(value, pa.Scalar) else None for value in values]

    def one(value: Any) -> Any:
        given[place] = value
        return function(*given)

    distinct = pa.array([one(value) for value in encoded.dictionary.to_pylist()], made)
    return distinct.take(encoded.indices)


def _listed(value: Value, length: int) -> list[Any]:
    if isinstance(value, pa.Scalar):
        return [value.as_py()] * length
    listed: list[Any] = value.to_pylist()
    return listed


def is_in(value: Value, type: Type, constants: list[Any]) -> Value:
    """Which values are among constants; NULL is not."""
    if type.name == "decimal":
        # Constants that the type cannot hold are equal to nothing.
        held = [one for one in constants if _holds(type, one)]
        return pc.is_in(value, value_set=pa.array(held, arrow_type(type)))
    if 0.0 in constants and type.name == "float":
        constants = [*constants, 0.0, -0.0]
    return pc.is_in(value, value_set=pa.array(constants, arrow_type(type)))


def _holds(type: Type, number: Decimal) -> bool:
    _, digits, exponent = EXACT.normalize(number).as_tuple()
    whole = len(digits) + int(exponent)
    return -int(exponent) <= type.scale and whole <= type.precision - type.scale


def _comparison(name: str) -> Callable[[Call, Value, Value], Value]:
    def run(call: Call, left: Value, right: Value) -> Value:
        types = [argument.type for argument in call.arguments]
        if types[0].name == "decimal" and types[0] != types[1]:
            scale = max(type.scale for type in types)
            digits = max(type.precision - type.scale for type in types) + scale
            if digits > MAX_PRECISION:
                return NotImplemented
            common = pa.decimal128(digits, scale)
            left, right = pc.cast(left, common), pc.cast(right, common)
        elif types[0].name in ("list", "struct"):
            return NotImplemented
        return pc.call_function(name, [left, right])

    return run


def _arithmetic(call: Call, left: Value, right: Value) -> Value:
    one, other = (argument.type for argument in call.arguments)
    if one.name == "decimal":
        return _decimal_arithmetic(call, left, right)
    if other.name == "months" and one.name == "timestamp":
        return _months(call.function, vector(left), vector(right))
    calculate = floats if one.name == "float" else ints
    return calculate(call.function, vector(left), vector(right))


def _months(function: str, times: Vector, months: Vector) -> Value:
    moved = months.values if function == "+" else -months.values
    micros, moved = np.broadcast_arrays(np.asarray(times.values), np.asarray(moved))
    with np.errstate(all="ignore"):
        result, bad = temporal.months_added(np.ascontiguousarray(micros), moved)
    return array(result, times.nulls, months.nulls, bad)


def _decimal_arithmetic(call: Call, left: Value, right: Value) -> Value:
    """By Arrow where the result has all its digits, and by int64; not for quotients."""
    one, other = (argument.type for argument in call.arguments)
    function = call.function
    scale = max(one.scale, other.scale)
    whole = max(one.precision - one.scale, other.precision - other.scale)
    if function in _DECIMAL:
        needed = one.precision + other.precision if function == "*" else whole + scale
        if needed >= MAX_PRECISION:
            return NotImplemented
        return pc.call_function(_DECIMAL[function], [left, right])
    if function == "/" or whole + scale > KEYED_DIGITS:
        return NotImplemented
    result = ints(function, unscaled(left, one, scale), unscaled(right, other, scale))
    return result if function == "div" else decimals(*vector(result), call.type)


def _sign(call: Call, value: Value) -> Value:
    return pc.cast(pc.sign(value), pa.float64())


def _sqrt(call: Call, value: Value) -> Value:
    numbers = vector(value)
    with np.errstate(all="ignore"):
        result = np.sqrt(numbers.values)
    return array(result, numbers.nulls, numbers.values < 0.0)


def _power(call: Call, base: Value, exponent: Value) -> Value:
    """By C's function, as in Python; NumPy's own may differ in the last bit."""
    result = pc.power(pc.add(base, 0.0), exponent)
    numbers = vector(result)
    return array(numbers.values, numbers.nulls, np.isnan(numbers.values))


def _round(call: Call, value: Value, _digits: Value) -> Value:
    if call.arguments[0].type.name != "float":
        return NotImplemented
    numbers = vector(value)
    result, unsure = rounded(numbers, literal(call, 1))
    rest = pa.array(unsure)
    exact = by_values(call, [value.filter(rest), _digits])
    return pc.replace_with_mask(array(result, numbers.nulls), rest, exact)


def _towards(name: str) -> Callable[[Call, Value], Value]:
    def run(call: Call, value: Value) -> Value:
        if call.arguments[0].type.name != "float":
            return NotImplemented
        numbers = vector(value)
        return _as_ints(getattr(np, name)(numbers.values), numbers.nulls)

    return run


def _case_mapping(name: str) -> Callable[[Call, Value], Value]:
    """Arrow's kernels for ASCII, Python's for other rows."""

    def run(call: Call, text: Value) -> Value:
        text = _from_first_byte(text)
        result = pc.call_function(f"ascii_{name}", [text])
        other = pc.fill_null(pc.invert(pc.string_is_ascii(text)), False)
        if not pc.any(other).as_py():
            return result
        return pc.replace_with_mask(result, other, by_values(call, [text.filter(other)]))

    return run


def _from_first_byte(text: Value) -> Value:
    """The texts in an array whose data begin with the first of them.

    For others, such as a slice that was cast, Arrow's kernels for ASCII return an array that is
    not valid: they copy as many bytes as there are, and keep the offsets.
    """
    if isinstance(text, pa.Scalar) or text.offset or not len(text):
        return text
    if np.frombuffer(text.buffers()[1], np.int64, 1)[0] == 0:
        return text
    return text.take(array(np.arange(len(text))))


def _trim(name: str) -> Callable[..., Value]:
    def run(call: Call, text: Value, characters: Value = None) -> Value:
        if isinstance(characters, pa.Array) or isinstance(text, pa.Scalar):
            return NotImplemented
        given = " " if characters is None else characters.as_py()
        return getattr(pc, f"utf8_{name}")(text, given) if given else text

    return run


def _length(call: Call, text: Value) -> Value:
    return pc.cast(pc.utf8_length(text), pa.int64())


def _substring(call: Call, text: Value, start: Value, length: Value = None) -> Value:
    if isinstance(text, pa.Scalar) or isinstance(start, pa.Array) or isinstance(length, pa.Array):
        return NotImplemented
    first = start.as_py()
    if length is None:
        return pc.utf8_slice_codeunits(
            text, max(first - 1, 0) if first >= 0 else max(first, -(2**40))
        )
    if first < 0:
        return NotImplemented
    first = max(first - 1, 0)
    return pc.utf8_slice_codeunits(text, first, max(min(first + length.as_py(), 2**40), first))


def _concat(call: Call, *texts: Value) -> Value:
    return pc.binary_join_element_wise(*texts, pa.scalar("", pa.large_string()))


def _replace(call: Call, text: Value, old: Value, new: Value) -> Value:
    if isinstance(text, pa.Scalar) or isinstance(old, pa.Array) or isinstance(new, pa.Array):
        return NotImplemented
    before, after = old.as_py(), new.as_py()
    if not before:
        return text
    longest = pc.max(pc.binary_length(text)).as_py() or 0
    if longest * len(after.encode()) > LONGEST_TEXT:
        return NotImplemented
    return pc.replace_substring(text, before, after)


def _position(call: Call, needle: Value, text: Value) -> Value:
    """Arrow counts bytes, which are characters in ASCII."""
    ascii_only = (
        isinstance(text, pa.Array) and pc.all(pc.string_is_ascii(text)).as_py() is not False
    )
    if isinstance(needle, pa.Array) or not ascii_only:
        return NotImplemented
    return pc.add(pc.cast(pc.find_substring(text, needle.as_py()), pa.int64()), 1)


def _test(name: str) -> Callable[[Call, Value, Value], Value]:
    def run(call: Call, text: Value, part: Value) -> Value:
        if isinstance(part, pa.Array):
            return NotImplemented
        return getattr(pc, name)(text, part.as_py())

    return run


def _like(call: Call, text: Value, pattern: Value, _escape: Value = None) -> Value:
    if isinstance(pattern, pa.Array):
        return NotImplemented
    regex = like_to_regex(pattern.as_py(), literal(call, 2) or "\\")
    return pc.match_substring_regex(text, regex)


def _part(call: Call, times: Value, _zone: Value = None) -> Value:
    micros = vector(times)
    return array(temporal.parts(call.function, micros.values, literal(call, 1)), micros.nulls)


def _truncated(call: Call, _unit: Value, times: Value, _zone: Value = None) -> Value:
    micros = vector(times)
    with np.errstate(all="ignore"):
        starts, bad = temporal.truncate(literal(call, 0), micros.values, literal(call, 2))
    return array(starts, micros.nulls, bad)


def _cast(call: Call, value: Value) -> Value:
    source = call.arguments[0].type
    kernel = _CASTS.get((source.name, call.type.name))
    return NotImplemented if kernel is None else kernel(value, source, call.type)


def _plain_cast(value: Value, _source: Type, target: Type) -> Value:
    return pc.cast(value, arrow_type(target), safe=False)


def _float_to_int(value: Value, _source: Type, _target: Type) -> Value:
    return _as_ints(*vector(value))


def _as_ints(numbers: Any, nulls: BoolArray | None) -> Value:
    """The whole parts of floats, NULL where they are no ints."""
    inside = np.abs(numbers) < 2.0**63
    return array(np.where(inside, numbers, 0.0).astype(np.int64), nulls, ~inside)


def _int_to_decimal(value: Value, _source: Type, target: Type) -> Value:
    if target.precision - target.scale < 19:
        return NotImplemented
    return pc.cast(value, arrow_type(target))


def _decimal_to_decimal(value: Value, source: Type, target: Type) -> Value:
    more = target.precision - target.scale >= source.precision - source.scale
    if not more or target.scale < source.scale:
        return NotImplemented
    return pc.cast(value, arrow_type(target))


def _decimal_to_float(value: Value, source: Type, _target: Type) -> Value:
    """A quotient of two exact floats is the nearest float."""
    if source.precision > FLOAT_DIGITS:
        return NotImplemented
    numbers = unscaled(value, source, source.scale)
    return array(numbers.values / 10.0**source.scale, numbers.nulls)


def _decimal_to_int(value: Value, source: Type, _target: Type) -> Value:
    if source.precision > KEYED_DIGITS:
        return NotImplemented
    numbers = unscaled(value, source, source.scale)
    return ints("div", numbers, Vector(10**source.scale, None))


def _timestamp_to_int(value: Value, _source: Type, _target: Type) -> Value:
    micros = vector(value)
    return array(micros.values // temporal.SECOND, micros.nulls)


def _int_to_timestamp(value: Value, _source: Type, _target: Type) -> Value:
    return ints("*", vector(value), Vector(temporal.SECOND, None))


_CASTS: Final[dict[tuple[str, str], Callable[[Value, Type, Type], Value]]] = {
    ("bool", "int"): _plain_cast,
    ("bool", "float"): _plain_cast,
    ("bool", "string"): _plain_cast,
    ("int", "float"): _plain_cast,
    ("int", "string"): _plain_cast,
    ("int", "bool"): _plain_cast,
    ("float", "bool"): _plain_cast,
    ("float", "int"): _float_to_int,
    ("int", "decimal"): _int_to_decimal,
    ("decimal", "decimal"): _decimal_to_decimal,
    ("decimal", "float"): _decimal_to_float,
    ("decimal", "int"): _decimal_to_int,
    ("timestamp", "int"): _timestamp_to_int,
    ("int", "timestamp"): _int_to_timestamp,
}

_KERNELS: Final[dict[str, Callable[..., Value]]] = {
    "=": _comparison("equal"),
    "<": _comparison("less"),
    "<=": _comparison("less_equal"),
    "not": lambda call, value: pc.invert(value),
    **dict.fromkeys(("+", "-", "*", "/", "%", "div"), _arithmetic),
    "neg": lambda call, value: pc.negate(value),
    "abs": lambda call, value: pc.abs(value),
    "sign": _sign,
    "sqrt": _sqrt,
    "power": _power,
    "round": _round,
    "floor": _towards("floor"),
    "ceil": _towards("ceil"),
    "lower": _case_mapping("lower"),
    "upper": _case_mapping("upper"),
    "trim": _trim("trim"),
    "ltrim": _trim("ltrim"),
    "rtrim": _trim("rtrim"),
    "length": _length,
    "substring": _substring,
    "concat": _concat,
    "reverse": lambda call, text: pc.utf8_reverse(text),
    "replace": _replace,
    "position": _position,
    "starts_with": _test("starts_with"),
    "ends_with": _test("ends_with"),
    "contains": _test("match_substring"),
    "like": _like,
    "rlike": _test("match_substring_regex"),
    **dict.fromkeys(temporal.PARTS, _part),
    "date_trunc": _truncated,
    "cast": _cast,
}
