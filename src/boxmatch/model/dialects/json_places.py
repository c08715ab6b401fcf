"""Filters that are JSON: values that know their place, for errors that point at it.

The place is an offset in a text, or the names and positions that lead to a value of a mapping.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from json import JSONDecodeError, JSONDecoder
from typing import Any, Final, NamedTuple

from boxmatch.errors import FilterError
from boxmatch.model.dialects.patterns import Scalar
from boxmatch.model.keys import exact_float

DEEPEST: Final = 100
"""How many mappings and lists may be inside one another."""

_MOST_DIGITS: Final = 1_000
_LARGEST_EXPONENT: Final = 9_999

_SPACE: Final = re.compile(r"[ \t\n\r]*")
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, bool | None]] = {"true": True, "false": False, "null": None}


class Place(NamedTuple):
    """Where a value stands."""

    text: str | None
    position: int | None
    path: str = ""

    def error(self, reason: str, kind: type[FilterError] = FilterError) -> FilterError:
        """An error that points here."""
        if self.text is None and self.path:
            reason = f"{reason} (at {self.path})"
        return kind(reason, self.text, self.position)


Members = tuple[tuple[str, "Located"], ...]
"""The names and values of a mapping, in order. A name may be there twice."""


@dataclass(frozen=True, slots=True)
class Located:
    """A value, and where it stands. The name of one in a mapping stands at `named`."""

    value: Scalar | list[Located] | Members
    place: Place
    named: Place

    def error(self, reason: str, kind: type[FilterError] = FilterError) -> FilterError:
        """An error that points at the value."""
        return self.place.error(reason, kind)


def read_filter(source: object) -> Located:
    """The value of a JSON text, or of a mapping with what JSON has in it. Raises `FilterError`.

    Strings are Unicode text. Numbers are read exactly.
    """
    if isinstance(source, str):
        return _TextReader(source).whole()
    if isinstance(source, Mapping):
        return _located(source, "", 0)
    raise FilterError(f"a filter is a JSON text or a mapping, not {type(source).__name__}")


# --- texts -------------------------------------------------------------------------------------


class _TextReader:
    """Reads a text from left to right; `position` is where it is."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def whole(self) -> Located:
        found = self.value()
        self._skip_space()
        if self.position < len(self.text):
            raise self._here().error("the JSON text should end here")
        return found

    def value(self, named: Place | None = None) -> Located:
        self._skip_space()
        place = self._here()
        return Located(self._content(place), place, named or place)

    def _content(self, place: Place) -> Scalar | list[Located] | Members:
        first = self.text[self.position : self.position + 1]
        if first == '"':
            return self._string()
        if first == "{":
            with self._inside(place):
                return self._mapping()
        if first == "[":
            with self._inside(place):
                return self._list()
        if found := _NUMBER.match(self.text, self.position):
            self.position = found.end()
            return _number(found.group(), place)
        for word, value in _WORDS.items():
            if self.text.startswith(word, self.position):
                self.position += len(word)
                return value
        raise place.error("a JSON value should be here")

    def _mapping(self) -> Members:
        members: list[tuple[str, Located]] = []
        if self._takes("}"):
            return ()
        while True:
            self._skip_space()
            place = self._here()
            if not self.text.startswith('"', self.position):
                raise place.error("a name in double quotes should be here")
            name = self._string()
            self._expect(":")
            members.append((name, self.value(place)))
            if self._takes("}"):
                return tuple(members)
            self._expect(",", "',' or '}'")

    def _list(self) -> list[Located]:
        items: list[Located] = []
        if self._takes("]"):
            return items
        while True:
            items.append(self.value())
            if self._takes("]"):
                return items
            self._expect(",", "',' or ']'")

    def _string(self) -> str:
        place = self._here()
        try:
            found, self.position = _DECODER.raw_decode(self.text, self.position)
        except JSONDecodeError as error:
            reason = error.msg.removesuffix(" at").removesuffix(" starting")
            raise Place(self.text, error.pos).error(f"no JSON string: {reason}") from None
        return _text(str(found), place)

    @contextmanager
    def _inside(self, place: Place) -> Iterator[None]:
        self.depth += 1
        _check_depth(self.depth, place)
        self.position += 1
        yield
        self.depth -= 1

    def _takes(self, mark: str) -> bool:
        self._skip_space()
        found = self.text.startswith(mark, self.position)
        self.position += found
        return found

    def _expect(self, mark: str, what: str = "") -> None:
        if not self._takes(mark):
            raise self._here().error(f"{what or repr(mark)} should be here")

    def _skip_space(self) -> None:
        space = _SPACE.match(self.text, self.position)
        self.position = space.end() if space is not None else self.position

    def _here(self) -> Place:
        return Place(self.text, self.position)


_DECODER: Final = JSONDecoder()


# --- mappings ----------------------------------------------------------------------------------


def _located(value: Any, path: str, depth: int) -> Located:
    place = Place(None, None, path)
    return Located(_content_of(value, place, depth), place, place)


def _content_of(value: Any, place: Place, depth: int) -> Scalar | list[Located] | Members:
    if isinstance(value, str):
        return _text(value, place)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, (int, float, Decimal)):
        number = Decimal(repr(value) if isinstance(value, float) else value)
        if number.is_finite():
            return _exact(number, place)
    elif isinstance(value, Mapping):
        _check_depth(depth + 1, place)
        return tuple(
            (_name(name, place), _below(name, one, place, depth)) for name, one in value.items()
        )
    elif isinstance(value, (list, tuple)):
        _check_depth(depth + 1, place)
        return [
            _located(one, f"{place.path}[{number}]", depth + 1) for number, one in enumerate(value)
        ]
    raise place.error(f"{value!r:.80} is no value of JSON")


def _below(name: str, value: Any, place: Place, depth: int) -> Located:
    return _located(value, f"{place.path}.{name}" if place.path else name, depth + 1)


def _name(name: object, place: Place) -> str:
    if not isinstance(name, str):
        raise place.error(f"the name {name!r:.80} is no string")
    return _text(name, place)


# --- both --------------------------------------------------------------------------------------


def _check_depth(depth: int, place: Place) -> None:
    if depth > DEEPEST:
        raise place.error(f"there are more than {DEEPEST} mappings and lists inside one another")


def _text(text: str, place: Place) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise place.error("this string has half of a surrogate pair") from None
    return text


def _number(token: str, place: Place) -> int | float | Decimal:
    if len(token) > _MOST_DIGITS:
        raise place.error(f"a number has at most {_MOST_DIGITS:,} digits")
    return _exact(Decimal(token), place)


def _exact(number: Decimal, place: Place) -> int | float | Decimal:
    """A number as an int or a float, if these hold it; zero has no sign."""
    if not number:
        return 0
    if not -_LARGEST_EXPONENT <= number.adjusted() <= _LARGEST_EXPONENT:
        raise place.error(f"a number is between 1e±{_LARGEST_EXPONENT}")
    if number.as_tuple().exponent == 0:
        return int(number)
    as_float = exact_float(number)
    return number if as_float is None else as_float
