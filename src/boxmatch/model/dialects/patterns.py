"""What dialects translate to: tests of the values at paths of an event, joined by AND and OR.

An event is a document: a mapping of names to values, which may be mappings and lists. A path leads
through mappings, and through the elements of lists on the way. What it reaches, lists taken apart,
are the *members* of the path: strings, numbers, bools and nulls. A `Field` holds if one member
passes the test. Where a path leads through a list of mappings, all fields of a pattern must be
satisfied by the same element of it.

A name with dots in an event stands for the names between them: `{"a.b": 1}` has the member 1 at
`("a", "b")`, and so has `{"a": {"b": 1}}`. Names in paths have no dots.

Values of different kinds are never equal. 1 and 1.0 are, and 1 and true are not.

Two characters are the same letter in either case if one is the lower form (`str.lower`) of the
other, which is its upper form (`str.upper`), both of one character. So no length changes: "ß" has
one case, and the Kelvin sign, whose lower form is "k", is another letter than "K".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network
from typing import Any, Final, Literal, NamedTuple

Path = tuple[str, ...]
"""The names on the way to a value, from the outside in."""

Kind = Literal["null", "bool", "number", "string"]

Scalar = str | int | float | Decimal | bool | None


# --- tests of one member ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Equal:
    """The very value, of the same kind."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Range:
    """From `low` to `high`, which are two numbers, or two strings in the order of code points.

    None is no limit; one of both is given.
    """

    low: str | int | float | Decimal | None
    high: str | int | float | Decimal | None
    low_open: bool = False
    high_open: bool = False


@dataclass(frozen=True, slots=True)
class OfKind:
    """Any value of a kind."""

    kind: Kind


@dataclass(frozen=True, slots=True)
class Prefix:
    """A string that starts so."""

    text: str
    fold: bool = False
    """Whether letters may be in either case, here and in the tests below; see above."""


@dataclass(frozen=True, slots=True)
class Suffix:
    """A string that ends so."""

    text: str
    fold: bool = False


@dataclass(frozen=True, slots=True)
class EqualFold:
    """A string that is equal but for the case of its letters."""

    text: str


@dataclass(frozen=True, slots=True)
class Wildcard:
    """A string made of these parts, in this order, with any text between each two of them.

    `("a", "b", "")` is `a*b*`. There are two parts at least.
    """

    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Address:
    """A string that is an IP address in a network, as `ipaddress` reads it, without a scope."""

    network: IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Other:
    """A member that does not pass a test, whatever its kind."""

    test: Test


@dataclass(frozen=True, slots=True)
class AnyTest:
    """A member that passes one of the tests; there is none if there are none."""

    tests: tuple[Test, ...]


@dataclass(frozen=True, slots=True)
class AllTests:
    """A member that passes all of the tests; any member does if there are none."""

    tests: tuple[Test, ...]


Test = (
    Equal
    | Range
    | OfKind
    | Prefix
    | Suffix
    | EqualFold
    | Wildcard
    | Address
    | Other
    | AnyTest
    | AllTests
)


# --- patterns ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Field:
    """One of the members of a path passes a test."""

    path: Path
    test: Test
    scalar: bool = False
    """Whether the member has to be the value itself: the elements of lists are none, then."""


@dataclass(frozen=True, slots=True)
class Missing:
    """The path has no member: it leads nowhere, or to an empty list, or only to mappings.

    Of lists of mappings, all elements are looked at, but see `within`.
    """

    path: Path
    within: int = 0
    """Of lists at the first so many names of the path, only the elements are looked at that satisfy
    the fields of the pattern.
    """
    scalar: bool = False
    """Whether a list counts as no member, too, whatever its elements."""


@dataclass(frozen=True, slots=True)
class Every:
    """All of the patterns hold; without any, this holds of each event."""

    patterns: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """One of the patterns holds; without any, this holds of no event."""

    patterns: tuple[Pattern, ...]


Pattern = Field | Missing | Every | Some

ALWAYS: Final = Every(())
NEVER: Final = Some(())


class Translation(NamedTuple):
    """What a filter of a dialect comes to."""

    pattern: Pattern
    """Holds of every event that the filter wants."""
    wants: Callable[..., bool] | None = None
    """If the pattern holds of other events, too: whether the filter wants an event, given the
    values at `paths`, None where there is none.
    """
    paths: tuple[Path, ...] = ()


Translator = Callable[[Any], Translation]
"""Raises `FilterError`, with the place in the filter if that is text."""
