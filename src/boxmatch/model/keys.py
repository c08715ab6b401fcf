"""Values to keys and back: one order-preserving int64 axis per attribute.

| type      | key                                                                      |
| --------- | ------------------------------------------------------------------------ |
| int       | the value                                                                |
| float     | the IEEE-754 bits in order: the magnitude's bits, negated below zero     |
| bool      | 0 or 1                                                                   |
| timestamp | microseconds since 1970-01-01 UTC                                        |
| enum      | the position in the declared list                                        |
| decimal   | up to 18 digits: the unscaled number (1250 for 12.5 and two places)      |
| string    | a label that a `StringAxis` gives out; not here                          |
| decimal   | of more digits: the same, of `label_text`                                |

Every float between -inf and inf has exactly one key and neighbouring floats have neighbouring
keys; `-0.0` and `0.0` share key 0. None and pandas' NA are `ABSENT`. NaN and NaT have no key: as
single values they are refused; in columns, where they are how a NULL looks, they are `ABSENT`.

Nothing is rounded on the way: a value that its type cannot hold is refused, be it a fraction of a
microsecond or a decimal with too many digits for a float (`exact_float`).
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import inf, isfinite
from typing import TYPE_CHECKING, Any, Final, SupportsFloat

import numpy as np

from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.decimals import (
    decimal_of,
    label_text,
    largest,
    neighbours,
    number_of,
    unscaled_of_label,
    why_no_decimal,
)

if TYPE_CHECKING:
    from boxmatch.model.schema import Attribute


INFINITY_KEY: Final = 0x7FF0_0000_0000_0000
"""Key of `inf` on a float axis; `-inf` has its negative."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_NAIVE: Final = datetime(1970, 1, 1)
_MICROSECOND: Final = timedelta(microseconds=1)
_DOUBLE: Final = struct.Struct("=d")
_INT64: Final = struct.Struct("=q")

# Microseconds per unit, or (negative) units per microsecond.
MICROSECONDS: Final = {
    "W": 604_800_000_000,
    "D": 86_400_000_000,
    "h": 3_600_000_000,
    "m": 60_000_000,
    "s": 1_000_000,
    "ms": 1_000,
    "us": 1,
    "ns": -1_000,
    "ps": -1_000_000,
    "fs": -1_000_000_000,
    "as": -1_000_000_000_000,
}

LARGEST_WHOLE: Final = 2**53
"""Up to here every integer is a float, and written like one."""

TOO_FINE: Final = (
    "has a fraction of a microsecond, which a timestamp cannot hold: round it yourself, or make "
    "the attribute an int of nanoseconds"
)

# Python reads such a time, but drops what is finer than a microsecond.
_FINER_TIME: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")

_NOTHING: Final = object()

_JAVA: Final = {
    sign * number: (Decimal(sign) * Decimal(written),)
    for number, written in ((5e-324, "4.9e-324"), (1e-323, "9.9e-324"))
    for sign in (1, -1)
}

NO_PLACE: Final = "has no place in an order; None says that there is no value"
"""Why NaN and NaT are refused."""


def key_of(attribute: Attribute, value: object) -> int:
    """The key of one value, `ABSENT` for None and pandas' NA.

    Raises `AttributeValueError` for NaN, NaT and values of another type. An attribute's domain is
    not looked at (a filter may name any value), and labelled attributes have no keys of their own.
    """
    return _KEY_OF[attribute.type](attribute, value)


def why_refused(attribute: Attribute, value: object) -> str:
    """The reason that `key_of` gives for refusing a value."""
    try:
        if attribute.labelled:
            axis_text(attribute, value)
        else:
            key_of(attribute, value)
    except AttributeValueError as error:
        return error.reason
    return f"is not a valid {attribute.type_name}"


def value_of(attribute: Attribute, key: int) -> Any:
    """The value whose key this is: the inverse of `key_of`, None for `ABSENT`.

    Timestamps come back as datetimes in UTC, or as `numpy.datetime64` outside the years 1 to 9999.
    Raises `ValueError` for a key that no value has, such as `LAST` on a float axis.
    """
    if key == ABSENT:
        return None
    low, high = key_range(attribute)
    if not low <= key <= high:
        raise ValueError(f"attribute {attribute.name!r}: no {attribute.type} has key {key}")
    match attribute.type:
        case "int":
            return key
        case "float":
            magnitude: float = _DOUBLE.unpack(_INT64.pack(abs(key)))[0]
            return -magnitude if key < 0 else magnitude
        case "bool":
            return bool(key)
        case "enum":
            return attribute.values[key]
        case "decimal":
            return decimal_of(key, attribute.scale)
        case _:
            try:
                return _EPOCH + timedelta(microseconds=key)
            except OverflowError:
                return np.datetime64(key, "us")


def key_range(attribute: Attribute) -> tuple[int, int]:
    """The smallest and the largest key that a value of this type can have.

    For a labelled decimal these are unscaled numbers.
    """
    match attribute.type:
        case "float":
            return -INFINITY_KEY, INFINITY_KEY
        case "bool":
            return 0, 1
        case "enum":
            return 0, len(attribute.values) - 1
        case "string":
            raise ValueError(f"attribute {attribute.name!r}: keys of strings live on a StringAxis")
        case "decimal":
            end = largest(attribute.precision)
            return -end, end
        case _:
            return FIRST, LAST


def is_absent(value: object) -> bool:
    """Whether the value is how a column shows "no value": None, pandas' NA, NaN or NaT."""
    return value is None or is_nan(value) or _is_pandas(value, "NA")


def is_nan(value: object) -> bool:
    """Whether the value is a NaN of any kind, or NaT."""
    if isinstance(value, (float, np.floating)):
        return bool(value != value)
    if isinstance(value, Decimal):
        return value.is_nan()
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return _is_pandas(value, "NaT")


def null_key(attribute: Attribute, value: object) -> int:
    """The key of a value that `is_absent`; refuses NaN and NaT."""
    if is_nan(value):
        raise AttributeValueError(attribute.name, value, NO_PLACE)
    return ABSENT


def _is_pandas(value: object, name: str) -> bool:
    # A value of a type from pandas cannot exist before pandas is imported, which another thread
    # may be doing right now.
    pandas = sys.modules.get("pandas")
    return pandas is not None and value is getattr(pandas, name, _NOTHING)


def check_string(attribute: Attribute, value: object) -> str:
    """The value as a plain `str`; raises `AttributeValueError` if it is not a string.

    Lone surrogates are refused: they are not characters and have no place in UTF-8's order.
    """
    if type(value) is str:
        text = value
    elif isinstance(value, str):
        text = str.__str__(value)
    else:
        raise AttributeValueError(attribute.name, value, "is not a string")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise AttributeValueError(
                attribute.name, value, f"has a lone surrogate at offset {error.start}"
            ) from None
    return text


def unscaled_of(attribute: Attribute, value: object) -> int:
    """The unscaled number of a decimal attribute's value, which is not absent.

    Raises `AttributeValueError` for what is no such decimal; nothing is rounded.
    """
    number = number_of(value)
    if number is not None:
        floor, ceil = neighbours(number, attribute.scale)
        if floor == ceil and abs(floor) <= largest(attribute.precision):
            return floor
    reason = why_no_decimal(number, attribute.precision, attribute.scale)
    raise AttributeValueError(attribute.name, value, reason)


def axis_text(attribute: Attribute, value: object) -> str:
    """The text by which a labelled attribute's axis knows a value that is not absent."""
    if attribute.type == "string":
        return check_string(attribute, value)
    return label_text(unscaled_of(attribute, value))


def value_of_text(attribute: Attribute, text: str) -> Any:
    """The inverse of `axis_text`."""
    if attribute.type == "string":
        return text
    return decimal_of(unscaled_of_label(text), attribute.scale)


def float_key(value: float) -> int:
    """The key of a float, `ABSENT` for NaN."""
    if value > 0.0:
        bits: int = _INT64.unpack(_DOUBLE.pack(value))[0]
        return bits
    if value < 0.0:
        bits = _INT64.unpack(_DOUBLE.pack(-value))[0]
        return -bits
    return 0 if value == 0.0 else ABSENT


def datetime_key(value: datetime) -> int:
    """The key of a datetime from the standard library; naive ones are UTC."""
    # Subtracting, unlike converting to UTC, cannot leave the years 1 to 9999.
    if value.tzinfo is None or value.utcoffset() is None:
        return (value.replace(tzinfo=None) - _EPOCH_NAIVE) // _MICROSECOND
    return (value - _EPOCH) // _MICROSECOND


def _key_of_int(attribute: Attribute, value: object) -> int:
    if type(value) is int:
        whole = value
    elif is_absent(value):
        return null_key(attribute, value)
    elif isinstance(value, (bool, np.bool_, np.timedelta64)):
        raise AttributeValueError(attribute.name, value, "is not an int")
    elif isinstance(value, (int, np.integer)) or (
        isinstance(value, (float, np.floating)) and value.is_integer()
    ):
        whole = int(value)
    elif isinstance(value, Decimal) and value.is_finite() and value == value.to_integral_value():
        # Through the exponent check first: int(Decimal("1e999999")) would take seconds.
        if value.adjusted() > 19:
            raise AttributeValueError(attribute.name, value, "is outside the range of int64")
        whole = int(value)
    else:
        raise AttributeValueError(attribute.name, value, "is not an int")
    if FIRST <= whole <= LAST:
        return whole
    if whole == ABSENT:
        reason = "is not allowed: the smallest int64 is reserved to mean absent"
    else:
        reason = "is outside the range of int64"
    raise AttributeValueError(attribute.name, value, reason)


def exact_float(number: int | Decimal) -> float | None:
    """The float that holds a number; None if there is none.

    A float holds the number that it is written as: the shortest decimal that is read as this float.
    So no two numbers share a float, and floats compare as the numbers do. Held are all numbers of
    up to 15 significant digits from 1e-307 to 1e308, and all integers up to 2**53. 0.3 is held,
    though no float is exactly that large; 0.3000000000000000001, which would be read as 0.3, is
    not.
    """
    try:
        nearest = float(number)
    except OverflowError:
        return None
    return nearest if number in _written(nearest) else None


def _written(number: float) -> tuple[Decimal, ...]:
    """The decimal that a float is written as. Java writes two floats with a digit more."""
    return *_JAVA.get(number, ()), Decimal(repr(number))


def float_keys_around(number: Decimal) -> tuple[int, int]:
    """The keys of the largest float up to a number and of the smallest one from it on.

    They are equal if a float holds the number; see `exact_float`, also for how the two compare.
    """
    nearest = float(number)
    key = float_key(nearest)
    written = _written(nearest)
    if number in written:
        return key, key
    return key - (written[0] > number), key + (written[0] < number)


def _no_float(attribute: Attribute, value: SupportsFloat) -> str:
    """The reason for refusing a number that no float holds."""
    try:
        nearest = float(value)
    except OverflowError:
        nearest = inf
    if not isfinite(nearest):
        return "is outside the range of float64"
    return (
        f"cannot be held exactly by a float (the nearest is {nearest!r}): round it yourself, as "
        f"CAST({attribute.name} AS DOUBLE) does, or make the attribute a decimal or an int"
    )


def _key_of_float(attribute: Attribute, value: object) -> int:
    if type(value) is float and value == value:
        return float_key(value)
    if type(value) is not int and is_absent(value):
        return null_key(attribute, value)
    if isinstance(value, (bool, np.bool_, np.timedelta64)) or not isinstance(
        value, (int, float, np.integer, np.floating, Decimal)
    ):
        raise AttributeValueError(attribute.name, value, "is not a float")
    if isinstance(value, (float, np.floating)):
        number: float | None = float(value)
        if number != value:  # a long double
            number = None
    else:
        number = exact_float(value if isinstance(value, Decimal) else int(value))
    if number is None:
        raise AttributeValueError(attribute.name, value, _no_float(attribute, value))
    return float_key(number)


def _key_of_bool(attribute: Attribute, value: object) -> int:
    if isinstance(value, (bool, np.bool_)):
        return int(value)
    if is_absent(value):
        return null_key(attribute, value)
    raise AttributeValueError(attribute.name, value, "is not a bool")


def _key_of_timestamp(attribute: Attribute, value: object) -> int:
    if type(value) is datetime:
        return datetime_key(value)
    if is_absent(value):
        return null_key(attribute, value)
    if isinstance(value, datetime):
        # pandas' Timestamp has nanoseconds and units of its own; its UTC form is a datetime64.
        to_datetime64 = getattr(value, "to_datetime64", None)
        return (
            datetime_key(value)
            if to_datetime64 is None
            else _key_of_datetime64(attribute, value, to_datetime64())
        )
    if isinstance(value, date):
        return datetime_key(datetime(value.year, value.month, value.day))
    if isinstance(value, np.datetime64):
        return _key_of_datetime64(attribute, value, value)
    if isinstance(value, str):
        try:
            key = datetime_key(datetime.fromisoformat(value))
        except ValueError:
            reason = "is not a timestamp; write it as in ISO 8601: 2024-05-31T09:30:00+02:00"
            raise AttributeValueError(attribute.name, value, reason) from None
        if _FINER_TIME.search(value):
            raise AttributeValueError(attribute.name, value, TOO_FINE)
        return key
    reason = "is not a timestamp (a datetime, a date, or text as in ISO 8601)"
    raise AttributeValueError(attribute.name, value, reason)


def _key_of_datetime64(attribute: Attribute, value: object, moment: np.datetime64) -> int:
    unit, step = np.datetime_data(moment.dtype)
    count = int(moment.astype(np.int64)) * step
    if unit in ("Y", "M") and abs(count) < 4_000_000:  # NumPy knows the calendar
        days = np.array(count, f"datetime64[{unit}]").astype("datetime64[D]")
        count, unit = int(days.astype(np.int64)), "D"
    scale = MICROSECONDS.get(unit)
    if scale is not None:
        if scale < 0 and count % -scale:
            raise AttributeValueError(attribute.name, value, TOO_FINE)
        key = count * scale if scale > 0 else count // -scale
        if FIRST <= key <= LAST:
            return key
    raise AttributeValueError(attribute.name, value, "is too far from 1970 for microseconds")


def _key_of_enum(attribute: Attribute, value: object) -> int:
    if isinstance(value, str):
        key = attribute.positions.get(value)
        if key is not None:
            return key
    elif is_absent(value):
        return null_key(attribute, value)
    shown = ", ".join(map(repr, attribute.values[:12]))
    if len(attribute.values) > 12:
        shown += ", …"
    raise AttributeValueError(attribute.name, value, f"is not one of {shown}")


def _key_of_decimal(attribute: Attribute, value: object) -> int:
    if attribute.labelled:
        raise TypeError(f"attribute {attribute.name!r}: keys of long decimals live on a StringAxis")
    return null_key(attribute, value) if is_absent(value) else unscaled_of(attribute, value)


def _key_of_string(attribute: Attribute, value: object) -> int:
    raise TypeError(f"attribute {attribute.name!r}: keys of strings live on a StringAxis")


_KEY_OF: Final[dict[str, Callable[[Attribute, object], int]]] = {
    "int": _key_of_int,
    "float": _key_of_float,
    "bool": _key_of_bool,
    "timestamp": _key_of_timestamp,
    "enum": _key_of_enum,
    "string": _key_of_string,
    "decimal": _key_of_decimal,
}
