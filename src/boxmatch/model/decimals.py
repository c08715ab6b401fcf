"""Decimals with a fixed number of digits: whole numbers of their last decimal place.

`12.5` is 1250 as a `decimal(10, 2)`. Up to 18 digits these numbers, which are called unscaled, are
int64 and so keys themselves. Longer ones are labelled, as strings are: `label_text` gives texts
that sort as the numbers do, and a `StringAxis` gives labels to those that filters mention.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, ROUND_FLOOR, Context, Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.model.axis import ABSENT

MAX_PRECISION: Final = 38
"""The digits of a decimal, at most: as many as Arrow's 128 bits and Spark have."""
MAX_KEYED: Final = 18
"""Up to so many digits every decimal is an int64."""

_SPEC: Final = re.compile(r"decimal\(\s*([0-9]{1,4})\s*(?:,\s*(-?[0-9]{1,4})\s*)?\)")
_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]{1,9})?")
UNBOUNDED: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX, traps=[])
"""Neither rounds nor overflows."""
_BEYOND: Final = 10 ** (MAX_PRECISION + 1)
_OFFSET: Final = 2**127  # more than 10**38, so that nothing below is negative
_FLOAT_DIGITS: Final = 1e15
"""Decimals of so many digits have a float each."""


def parse_spec(text: str) -> tuple[int, int] | None:
    """Precision and scale of `decimal(10, 2)` or `decimal(10)`; None for any other text."""
    found = _SPEC.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2] or 0))


def type_name(precision: int, scale: int) -> str:
    """The type as schemas write it."""
    return f"decimal({precision}, {scale})"


def largest(precision: int) -> int:
    """The largest unscaled number."""
    return int(10**precision) - 1


def decimal_of(unscaled: int, scale: int) -> Decimal:
    """The decimal, without zeros at its end."""
    number = UNBOUNDED.scaleb(Decimal(unscaled), -scale)
    return (
        number.quantize(Decimal(1), context=UNBOUNDED)
        if number == number.to_integral_value()
        else (UNBOUNDED.normalize(number))
    )


def exact_decimal(unscaled: int, scale: int) -> Decimal:
    """The decimal, with all its digits after the point."""
    return UNBOUNDED.scaleb(Decimal(unscaled), -scale)


def unscaled(number: Decimal, scale: int) -> int:
    """The whole number that a decimal with so many digits after the point is stored as."""
    return int(UNBOUNDED.scaleb(number, scale))


def number_of(value: object) -> Decimal | None:
    """The number that a value stands for, possibly infinite; None if it is not a number.

    A float stands for the shortest decimal that is read as this float. Text is read as a number.
    """
    if type(value) is Decimal:
        return value
    if isinstance(value, (bool, np.bool_, np.timedelta64)):
        return None
    if isinstance(value, (int, np.integer)):
        return Decimal(int(value))
    if isinstance(value, (float, np.floating)):
        nearest = float(value)
        return Decimal(repr(nearest)) if nearest == value else None  # else a long double
    if isinstance(value, str):
        return Decimal(value) if _NUMBER.fullmatch(value) else None
    return Decimal(value) if isinstance(value, Decimal) else None


def neighbours(number: Decimal, scale: int) -> tuple[int, int]:
    """The unscaled numbers around a number that is not NaN: equal if it is one itself.

    What has more than `MAX_PRECISION` digits before the point may come out smaller, but not so
    small that a decimal could have it.
    """
    if number.is_infinite() or number.adjusted() > MAX_PRECISION:
        return (_BEYOND, _BEYOND) if number > 0 else (-_BEYOND, -_BEYOND)
    shifted = UNBOUNDED.scaleb(number, scale)
    floor = int(shifted.to_integral_value(ROUND_FLOOR))
    return floor, floor + (shifted != floor)


def why_no_decimal(number: Decimal | None, precision: int, scale: int) -> str:
    """The reason for refusing a value, which is this number, or none at all."""
    name = type_name(precision, scale)
    if number is None:
        return f"is not a {name}"
    floor, ceil = neighbours(number, scale)
    if max(-floor, ceil) > largest(precision):
        return f"is outside the range of {name}"
    places = "decimal place" if scale == 1 else "decimal places"
    return f"has more than the {scale} {places} of a {name}, and values are never rounded"


def label_text(unscaled: int) -> str:
    """A text for an unscaled number, of hexadecimal digits; texts sort as the numbers do."""
    return f"{unscaled + _OFFSET:032x}"


def unscaled_of_label(text: str) -> int:
    """The inverse of `label_text`."""
    return int(text, 16) - _OFFSET


def label_bytes(words: Int64Array) -> npt.NDArray[np.bytes_]:
    """The bytes whose hexadecimal digits are the label texts of 128-bit numbers.

    `words` has the low and the high half of each.
    """
    halves = np.empty(words.shape, ">u8")
    halves[:, 0] = words[:, 1].view(np.uint64) ^ np.uint64(1 << 63)
    halves[:, 1] = words[:, 0].view(np.uint64)
    return halves.view("S16").reshape(-1)


def unscaled_numbers(
    values: npt.NDArray[Any], precision: int, scale: int, own_scale: int = 0
) -> tuple[Int64Array, BoolArray | None]:
    """Unscaled numbers of up to 18 digits from an array of any shape, and where one is refused.

    Integers are unscaled themselves, of scale `own_scale`. Floats are read as `number_of` does;
    NaN is `ABSENT`. Numbers at refused places are arbitrary.
    """
    if values.dtype.kind == "f":
        return _from_floats(np.ascontiguousarray(values, np.float64), precision, scale)
    shift = scale - own_scale
    if shift < 0:
        raise ValueError(f"numbers of scale {own_scale} have no whole part at scale {scale}")
    limit = largest(precision - shift) if shift <= precision else 0
    keys: Int64Array
    if values.dtype.kind == "u" and values.dtype.itemsize == 8:
        beyond = values > np.uint64(limit)
        keys = values.astype(np.int64)
    else:
        keys = values.astype(np.int64)
        if not keys.size or (int(keys.max()) <= limit and int(keys.min()) >= -limit):
            beyond = None
        else:
            beyond = (keys > limit) | (keys < -limit)
    if shift:
        keys *= np.int64(10 ** min(shift, MAX_KEYED))
    return keys, beyond if beyond is not None and beyond.any() else None


def _from_floats(
    floats: npt.NDArray[np.float64], precision: int, scale: int
) -> tuple[Int64Array, BoolArray | None]:
    factor = 10.0**scale  # exact up to 10**22
    nan = np.isnan(floats)
    with np.errstate(invalid="ignore", over="ignore"):
        whole = np.rint(floats * factor)
        # Up to 15 digits, the decimal that is read as a float is unique, and so the shortest one.
        fits = (whole / factor == floats) & (
            np.abs(whole) <= min(_FLOAT_DIGITS, largest(precision))
        )
        keys = whole.astype(np.int64)
    if nan.any():
        np.putmask(keys, nan, ABSENT)
        fits |= nan
    if fits.all():
        return keys, None
    refused = ~fits
    flat = keys.reshape(-1)
    limit = largest(precision)
    for place in np.flatnonzero(refused).tolist():
        number = Decimal(repr(floats.flat[place].item()))
        floor, ceil = neighbours(number, scale)
        if floor != ceil or abs(floor) > limit:
            break  # the first one is what the error names
        flat[place] = floor
        refused.reshape(-1)[place] = False
    return keys, refused if refused.any() else None
