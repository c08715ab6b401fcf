"""Documents: values of any structure, as JSON has them, and what is compared of them.

A path leads from a document through mappings to a value. Values of all kinds have a text each, such
that texts are in the order bools, numbers, null, strings, and within each kind in the order of the
values. So one axis of texts takes whatever an event has there: 1 and 1.0 are the same text, "1" and
true are others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from math import inf, nextafter
from typing import Any, Final

import numpy as np

from boxmatch.model.decimals import UNBOUNDED
from boxmatch.model.keys import exact_float, float_key, is_absent

ROOT: Final = "$"
"""The name of the attribute of type `json` that stands for the whole event."""

Path = tuple[str, ...]
"""The names on the way to a value, from the outside in."""

FALSE_TEXT: Final = "\0b0"
TRUE_TEXT: Final = "\0b1"
NULL_TEXT: Final = "\0n"
_NUMBER: Final = "\0d"
_STRING: Final = "\0s"
TEXTS_OF_KIND: Final[Mapping[str, tuple[str, str | None]]] = {
    "bool": ("\0b", "\0c"),
    "number": ("\0d", "\0e"),
    "null": ("\0n", "\0o"),
    "string": ("\0s", None),
}
"""The first text that could be of a kind, and the first one after all of these."""

_OFFSET: Final = 1 << 63
_EXPONENTS: Final = 100_000
_OTHER_WAY: Final = str.maketrans("0123456789", "9876543210")


def text_of(value: Any) -> str | None:
    """The text of a value; None if it is no string, number, bool or null.

    Raises `ValueError` for NaN, and for what no document has.
    """
    kind = type(value)
    if kind is str:
        return string_text(value)
    if kind is bool:
        return TRUE_TEXT if value else FALSE_TEXT
    if kind is int or kind is float:
        return number_text(value)
    if value is None:
        return NULL_TEXT
    return _text_of_other(value)


def string_text(value: str) -> str:
    """The text of a string: itself, unless it looks like the text of another kind."""
    return value if value and value[0] != "\0" else _STRING + value


def string_of_text(text: str) -> str:
    """The string that has this text."""
    return text.removeprefix(_STRING)


@lru_cache(maxsize=1 << 16)
def number_text(value: int | float | Decimal) -> str:
    """The text of a number.

    It begins with the largest float that is not above it; what the number has more follows. A
    float is the number that it is written as (`keys.exact_float`).
    """
    if not isinstance(value, float):
        nearest = exact_float(value)
        if nearest is None:
            return _text_beside_float(Decimal(value))
        value = nearest
    if value != value:
        raise ValueError("NaN has no place in the order of numbers")
    return f"{_NUMBER}{float_key(value) + _OFFSET:016x}"


def _text_beside_float(number: Decimal) -> str:
    if abs(number.adjusted()) >= _EXPONENTS:
        raise ValueError(f"{number:.3e} is too large or too small a number to be compared")
    try:
        below = float(number)
    except OverflowError:
        below = inf
    while below > -inf and (below == inf or Decimal(repr(below)) > number):
        below = nextafter(below, -inf)
    start = f"{_NUMBER}{float_key(below) + _OFFSET:016x}"
    if below > -inf:
        return f"{start}+{_digits(UNBOUNDED.subtract(number, Decimal(repr(below))))}"
    # The larger it is below zero, the smaller it is.
    return f"{start}+{_digits(-number).translate(_OTHER_WAY)}~"


def _digits(number: Decimal) -> str:
    """A text for a positive number, such that texts sort as the numbers do."""
    _, digits, _ = number.normalize(UNBOUNDED).as_tuple()
    return f"{number.adjusted() + _EXPONENTS:06d}{''.join(map(str, digits))}"


def value_of_text(text: str) -> str | float | Decimal | bool | None:
    """The value that has a text; a number is a float if there is such a one."""
    if text in (FALSE_TEXT, TRUE_TEXT):
        return text == TRUE_TEXT
    if text == NULL_TEXT:
        return None
    return _number_of_text(text) if text.startswith(_NUMBER) else string_of_text(text)


def _number_of_text(text: str) -> float | Decimal:
    start, more = text[len(_NUMBER) :][:16], text[len(_NUMBER) + 16 :]
    key = int(start.ljust(16, "0"), 16) - _OFFSET
    below = float(np.array(abs(key), np.int64).view(np.float64))
    below = -below if key < 0 else below
    if not more:
        return below
    if more.endswith("~"):
        return -_number_of_digits(more[1:-1].translate(_OTHER_WAY))
    return UNBOUNDED.add(Decimal(repr(below)), _number_of_digits(more[1:]))


def _number_of_digits(text: str) -> Decimal:
    digits = tuple(map(int, text[6:]))
    return Decimal((0, digits, int(text[:6]) - _EXPONENTS - len(digits) + 1))


def _text_of_other(value: Any) -> str | None:
    """The text of a value of a less common class."""
    if isinstance(value, np.generic):
        return text_of(value.item())
    if isinstance(value, (Mapping, list, tuple)):
        return None
    if isinstance(value, bool):
        return TRUE_TEXT if value else FALSE_TEXT
    if isinstance(value, str):
        return string_text(str.__str__(value))
    if isinstance(value, (int, float)):
        return number_text(value)
    if is_absent(value):
        return NULL_TEXT
    if isinstance(value, Decimal) and value.is_finite():
        return number_text(value)
    if hasattr(value, "isoformat"):
        return string_text(value.isoformat())
    raise ValueError(f"{type(value).__name__} is no value of a document")


class Documents:
    """A column of documents, with as much of an Arrow array as evaluators need."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def slice(self, first: int, length: int) -> Documents:
        """Neighbouring ones."""
        return Documents(self._values[first : first + length])

    def take(self, places: Any) -> Documents:
        """Those at some places, which may be an Arrow array."""
        return Documents([self._values[place] for place in np.asarray(places).tolist()])

    def to_pylist(self) -> Sequence[Any]:
        """The values."""
        return self._values


# --- what is at a path -------------------------------------------------------------------------


class Chosen(list[Any]):
    """A list with one of its mappings, and all that are no mappings."""

    __slots__ = ("whole",)

    def __init__(self, values: list[Any], whole: Sequence[Any]) -> None:
        super().__init__(values)
        self.whole = whole


def find(document: Any, path: Path, default: Any = None) -> Any:
    """The value at the end of a path through mappings, or the default if there is none.

    A name with dots stands for the names between them; the longest one decides.
    """
    place = 0
    while place < len(path):
        if type(document) is not dict and not isinstance(document, Mapping):
            return default
        for name, end in reversed(_names_from(path)[place]):
            if name in document:
                document, place = document[name], end
                break
        else:
            return default
    return document


def members(document: Any, path: Path, within: int | None = None) -> Iterator[Any]:
    """The strings, numbers, bools and nulls at a path, which leads through elements of lists, too.

    A list of lists is the list of all their elements. Of a list of which an element was chosen,
    all are looked at that are behind more names of the path than `within`.
    """
    pending = [(document, 0)]
    while pending:
        value, place = pending.pop()
        if isinstance(value, (list, tuple)):
            if within is not None and place > within and isinstance(value, Chosen):
                value = value.whole
            pending.extend((one, place) for one in reversed(value))
        elif isinstance(value, Mapping):
            if place < len(path):
                found = _names_from(path)[place]
                pending.extend((value[name], end) for name, end in found if name in value)
        elif place == len(path):
            yield value


@lru_cache(maxsize=4096)
def _names_from(path: Path) -> tuple[tuple[tuple[str, int], ...], ...]:
    """For each place of a path: the names that lead on from there, and to which place."""
    return tuple(
        tuple((".".join(path[first:end]), end) for end in range(first + 1, len(path) + 1))
        for first in range(len(path))
    )


def flat(values: Sequence[Any]) -> Iterator[Any]:
    """The elements of a list, those of lists in it among them."""
    for one in values:
        if isinstance(one, (list, tuple)):
            yield from flat(one)
        else:
            yield one
