"""Arrays of one type to keys: numbers of NumPy, and columns of Arrow with values of fixed width.

A function gives the keys, and where a value is refused (None: nowhere). Keys are arbitrary there,
and both are where Arrow has a null.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.decimals import MAX_PRECISION, label_bytes, label_text, unscaled_numbers
from boxmatch.model.keys import (
    LARGEST_WHOLE,
    MICROSECONDS,
    exact_float,
    key_of,
    key_range,
    unscaled_of,
)
from boxmatch.model.schema import Attribute

if TYPE_CHECKING:
    import pyarrow as pa

_INT: Final = Attribute("probe", "int")
_FLOAT: Final = Attribute("probe", "float")


def float_keys(
    values: npt.NDArray[Any], out: Int64Array | None = None
) -> tuple[Int64Array, BoolArray | None]:
    """Keys of a numeric array of any shape, as floats, and where a value is refused.

    NaN is `ABSENT`. Refused are integers that no float holds (None: there are none); keys there are
    arbitrary. The keys go to `out`, if given, which must be contiguous.
    """
    floats = np.ascontiguousarray(values, np.float64)
    bits = floats.view(np.int64)
    keys = np.empty(floats.shape, np.int64) if out is None else out
    # Minus the magnitude for negative numbers: invert all but the sign bit, add one.
    sign = bits >> 63
    np.right_shift(sign.view(np.uint64), np.uint64(1), out=keys.view(np.uint64))
    keys ^= bits
    keys -= sign
    nan = np.isnan(floats)
    if nan.any():
        np.putmask(keys, nan, ABSENT)
    return keys, without_float(values)


def without_float(values: npt.NDArray[Any]) -> BoolArray | None:
    """Where an array has integers that no float holds (None: nowhere)."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8:
        return None
    large: BoolArray = values > LARGEST_WHOLE
    if values.dtype.kind == "i":
        large |= values < -LARGEST_WHOLE
    if large.any():  # which is rare, and mostly refused
        large[large] = [exact_float(number) is None for number in values[large].tolist()]
    return large if large.any() else None


def int_keys(values: npt.NDArray[Any]) -> tuple[Int64Array, BoolArray | None]:
    """Keys of a numeric array of any shape, as ints, and where a value is refused (None: nowhere).

    NaN is `ABSENT`. Refused are fractions, infinities, and what int64 cannot hold, its smallest
    number included. Keys at refused places are arbitrary.
    """
    if values.dtype.kind == "f":
        floats = np.ascontiguousarray(values, np.float64)
        nan = np.isnan(floats)
        with np.errstate(invalid="ignore"):
            keys = floats.astype(np.int64)
        # What does not fit becomes the smallest int64 or wraps: compare against the range itself.
        fits = (floats == np.trunc(floats)) & (np.abs(floats) < 2.0**63)
        fits |= nan
        if nan.any():
            np.putmask(keys, nan, ABSENT)
        return keys, None if fits.all() else ~fits
    if values.dtype.kind == "u":
        refused = values > np.uint64(LAST)
        return values.astype(np.int64), refused if refused.any() else None
    keys = values.astype(np.int64)
    refused = keys == ABSENT
    return keys, refused if refused.any() else None


def typed_keys(attribute: Attribute, array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    """Keys of an Arrow column of numbers, bools or times, for an attribute that has keys."""
    if attribute.type == "decimal":
        return _decimal_column(attribute, array)
    return _TYPED[attribute.type](array)


def _int_column(array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    import pyarrow as pa
    import pyarrow.types as t

    if t.is_decimal(array.type):
        try:
            array = widen(array).cast(pa.int64())
        except pa.ArrowInvalid:  # a fraction or too large, somewhere
            return _by_value(_INT, array)
    return int_keys(values_of(array))


def _float_column(array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.types as t

    if not t.is_decimal(array.type):
        return float_keys(values_of(array))
    # Text to float rounds correctly; Arrow's own cast from decimals need not.
    floats = array.cast(pa.string()).cast(pa.float64())
    if _has_few_digits(array):
        return float_keys(values_of(floats))
    # What `exact_float` does: a float is written with as few digits as will do, by Arrow too.
    try:
        same: Any = pc.equal(floats.cast(pa.string()).cast(array.type), array)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # A float has more digits than the type, so it holds another number. Or Arrow cannot tell.
        return _by_value(_FLOAT, array)
    refused = ~same.fill_null(True).to_numpy(zero_copy_only=False)
    return float_keys(values_of(floats))[0], refused


def _decimal_column(
    attribute: Attribute, array: pa.Array[Any]
) -> tuple[Int64Array, BoolArray | None]:
    import pyarrow as pa
    import pyarrow.types as t

    kind: Any = array.type
    precision, scale = attribute.precision, attribute.scale
    if not t.is_decimal(kind):
        return unscaled_numbers(values_of(array), precision, scale)
    if kind.scale > scale or kind.bit_width > 128:
        try:
            array = widen(array).cast(pa.decimal128(MAX_PRECISION, scale))
        except pa.ArrowInvalid:  # more decimal places than the attribute has, or too large
            return _by_value(attribute, array)
        kind = array.type
    if kind.bit_width < 128:
        return unscaled_numbers(values_of(array), precision, scale, kind.scale)
    words = _words(array)
    low, high = words[:, 0], words[:, 1]
    keys, refused = unscaled_numbers(low, precision, scale, kind.scale)
    if not np.array_equal(high, low >> 63):
        refused = (high != low >> 63) | (False if refused is None else refused)
    return keys, refused


def _bool_column(array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    import pyarrow as pa

    return values_of(array.cast(pa.uint8())).astype(np.int64), None


def _timestamp_column(array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    counts = values_of(array).astype(np.int64)
    scale = MICROSECONDS[_unit(array.type)]
    if scale < 0:
        keys, finer = np.divmod(counts, -scale)
        return keys, finer != 0
    limit = LAST // scale
    refused = (counts > limit) | (counts < -limit)
    return counts * scale, refused


_TYPED = {
    "int": _int_column,
    "float": _float_column,
    "bool": _bool_column,
    "timestamp": _timestamp_column,
}


def _by_value(probe: Attribute, array: pa.Array[Any]) -> tuple[Int64Array, BoolArray | None]:
    """The slow way, for a column that is most likely going to be refused: which row is it?"""
    keys = np.full(len(array), ABSENT)
    refused = np.zeros(len(array), np.bool_)
    for row, value in enumerate(array.to_pylist()):
        try:
            keys[row] = key_of(probe, value)
        except AttributeValueError:
            refused[row] = True
            break
    return keys, refused


def packed_decimals(attribute: Attribute, array: pa.Array[Any]) -> npt.NDArray[np.bytes_] | None:
    """The label texts of decimals as bytes, arbitrary where null; None if one may be refused."""
    import pyarrow as pa

    kind: Any = array.type
    if kind.bit_width != 128 or kind.scale != attribute.scale:
        try:
            array = widen(array).cast(pa.decimal128(MAX_PRECISION, attribute.scale))
        except pa.ArrowInvalid:
            return None
    texts = label_bytes(_words(array))
    nulls = nulls_of(array)
    ends = attribute.domain or (None, None)
    limits = key_range(attribute)
    for end, limit, beyond in zip(ends, limits, (np.less, np.greater), strict=True):
        unscaled = limit if end is None else unscaled_of(attribute, end)
        outside = beyond(texts, np.bytes_(bytes.fromhex(label_text(unscaled))))
        if nulls is not None:
            outside &= ~nulls
        if outside.any():
            return None
    return texts


def _has_few_digits(array: pa.Array[Any]) -> bool:
    """Whether decimals all have at most 15 digits, which floats hold."""
    import pyarrow.compute as pc

    kind: Any = array.type
    if kind.precision <= 15:
        return True
    ends: Any = pc.min_max(widen(array)).as_py()
    limit = Decimal((0, (1,), 15 - kind.scale))
    return bool(-limit < ends["min"] and ends["max"] < limit)


def widen(array: pa.Array[Any]) -> pa.Array[Any]:
    """Decimals of at least 128 bits: Arrow cannot do everything with shorter ones."""
    import pyarrow as pa

    kind: Any = array.type
    return array if kind.bit_width >= 128 else array.cast(pa.decimal128(38, kind.scale))


def python_value(array: pa.Array[Any], row: int) -> object:
    """The value of a row, for a message."""
    try:
        value: object = array[row].as_py()
    except InvalidOperation:  # a decimal with a scale that Arrow cannot read
        value = None
    except (ValueError, OverflowError):  # beyond what Python's datetime can hold
        value = np.datetime64(int(values_of(array)[row]), _unit(array.type))
    return value


def _unit(kind: Any) -> Any:
    import pyarrow.types as t

    return "D" if t.is_date32(kind) else "ms" if t.is_date64(kind) else kind.unit


def nulls_of(array: pa.Array[Any]) -> BoolArray | None:
    """Where the array is null (None: nowhere)."""
    if array.null_count == 0:
        return None
    return array.is_null().to_numpy(zero_copy_only=False)


def _words(array: pa.Array[Any]) -> Int64Array:
    """Decimals of 128 bits as they lie in memory: the low word, then the high one."""
    buffer: Any = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros((len(array), 2), np.int64)
    words = np.frombuffer(buffer, np.int64, 2 * len(array), array.offset * 16)
    return words.reshape(-1, 2)


def values_of(array: pa.Array[Any]) -> npt.NDArray[Any]:
    """The fixed-width values as they lie in memory; arbitrary where null.

    Arrow's own conversion would turn integers with nulls into floats.
    """
    import pyarrow.types as t

    kind: Any = array.type
    numeric = t.is_integer(kind) or t.is_floating(kind)  # else a date, a timestamp, a decimal
    dtype: np.dtype[Any] = np.dtype(
        kind.to_pandas_dtype() if numeric else f"i{kind.bit_width // 8}"
    )
    buffer: Any = array.buffers()[1]
    if buffer is None or len(array) == 0:
        return np.zeros(len(array), dtype)
    return np.frombuffer(buffer, dtype, len(array), array.offset * dtype.itemsize)
