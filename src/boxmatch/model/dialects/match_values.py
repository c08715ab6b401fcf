"""What event patterns and filter policies want of a value: the elements of the lists at their ends.

An element is a value that a member has to be equal to, or a mapping from an operator to what it
takes. A `Grammar` says which operators a dialect has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from itertools import product
from math import isfinite, prod
from typing import Final, NamedTuple

from boxmatch.errors import FilterError, FilterTooLargeError
from boxmatch.model.dialects.json_places import Located
from boxmatch.model.dialects.patterns import (
    Address,
    AnyTest,
    Equal,
    EqualFold,
    Other,
    Prefix,
    Range,
    Suffix,
    Test,
    Wildcard,
)
from boxmatch.model.keys import exact_float

FOLD: Final = "equals-ignore-case"
MOST_SPELLINGS: Final = 1_024
"""Spellings of a text with letters whose case is not one to one, as "ß"."""

_IPV6: Final = re.compile(r"[0-9a-fA-F:]*:[0-9a-fA-F:]*")
_CIDR: Final = re.compile(r"([0-9.]+|[0-9a-fA-F:]+)/([0-9]{1,3})")
_SPECIAL: Final = re.compile(r"\\([*\\])|(\*)|(\\)")


class Grammar(NamedTuple):
    """The operators of a dialect."""

    operators: Mapping[str, Operator]
    anything_but: Mapping[str, Operator]
    """Those inside 'anything-but', of one text."""
    folds_ends: bool
    """Whether 'prefix' and 'suffix' take 'equals-ignore-case'."""
    check_number: Callable[[Located], None]
    """Refuses numbers that 'numeric' and 'anything-but' do not take."""
    present: Test
    """What members pass of a path that exists."""


Operator = Callable[[Located, Grammar], Test]
"""Makes a test of what an operator takes. Raises `FilterError`."""


class Wanted(NamedTuple):
    """What is wanted of the members of a path: one of the tests, or that there is no member."""

    tests: tuple[Test, ...]
    or_missing: bool


def read_wanted(values: Located, items: list[Located], grammar: Grammar) -> Wanted:
    """The elements of a list at the end of a path."""
    if not items:
        raise values.error("a list of values should not be empty")
    tests: list[Test] = []
    or_missing = False
    for item in items:
        match item.value:
            case tuple():
                operator, operand = the_operator(item, grammar.operators)
                if operator == "exists" and operand.value is False:
                    or_missing = True
                else:
                    tests.append(grammar.operators[operator](operand, grammar))
            case list():
                raise item.error("a value is a string, a number, true, false, null or a mapping")
            case value:
                tests.append(_equal(value))
    return Wanted(tuple(tests), or_missing)


def the_operator(
    item: Located, known: Mapping[str, object], inside: str = ""
) -> tuple[str, Located]:
    """The one operator of a mapping, and what it takes."""
    assert isinstance(item.value, tuple)  # as callers found
    where = f" of {inside!r}" if inside else ""
    if len(item.value) != 1:
        raise item.error(f"a mapping{where} has one operator, not {len(item.value)}")
    ((name, operand),) = item.value
    if name not in known:
        some = ", ".join(map(repr, known))
        raise operand.named.error(f"unknown operator {name!r}{where}; known are {some}")
    return name, operand


def exists(operand: Located, grammar: Grammar) -> Test:
    """Any member."""
    if operand.value is not True:
        raise operand.error("'exists' takes true or false")
    return grammar.present


# --- values and texts --------------------------------------------------------------------------


def _equal(value: object) -> Test:
    """Equal to a value. The texts of an IPv6 address are equal.

    Of a number that is no float, and no integer of 64 bits, the nearest float is equal, too: this
    is how such numbers are read in JSON events.
    """
    if isinstance(value, str) and _IPV6.fullmatch(value):
        try:
            return Address(IPv6Network(value))
        except ValueError:
            pass
    assert value is None or isinstance(value, (str, bool, int, float, Decimal))
    if isinstance(value, Decimal) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        nearest = float(Decimal(value))
        if isfinite(nearest):
            return AnyTest((Equal(value), Equal(nearest)))
    return Equal(value)


def exactly(operand: Located, _: Grammar) -> Test:
    """Equal to a text, and nothing else."""
    return Equal(_text_of(operand, "exactly"))


def equals_fold(operand: Located, _: Grammar) -> Test:
    """Equal but for the case."""
    return _spelled(operand, EqualFold, Equal)


def starts(operand: Located, grammar: Grammar) -> Test:
    """Starts with a text."""
    return _end(operand, grammar, "prefix", Prefix)


def ends(operand: Located, grammar: Grammar) -> Test:
    """Ends with a text."""
    return _end(operand, grammar, "suffix", Suffix)


def _end(
    operand: Located, grammar: Grammar, operator: str, test: type[Prefix] | type[Suffix]
) -> Test:
    if isinstance(operand.value, tuple) and grammar.folds_ends:
        _, operand = the_operator(operand, {FOLD: None}, operator)
        return _spelled(operand, lambda text: test(text, fold=True), test)
    return test(_text_of(operand, operator))


def like(operand: Located, _: Grammar) -> Test:
    r"""Like a text in which `*` is any text, and `\*` and `\\` are the characters."""
    parts = wildcard_parts(operand)
    return Equal(parts[0]) if len(parts) == 1 else Wildcard(parts)


def wildcard_parts(operand: Located) -> tuple[str, ...]:
    """What is between the stars of 'wildcard'."""
    text = _text_of(operand, "wildcard")
    parts = [""]
    end = 0
    for found in _SPECIAL.finditer(text):
        escaped, star, _ = found.groups()
        parts[-1] += text[end : found.start()] + (escaped or "")
        if star:
            if text.startswith("*", found.end()):
                raise operand.error("'wildcard' takes no two '*' in a row")
            parts.append("")
        elif not escaped:
            raise operand.error(r"'wildcard' takes '\' before '*' and '\' only")
        end = found.end()
    parts[-1] += text[end:]
    return tuple(parts)


def _text_of(operand: Located, operator: str) -> str:
    if not isinstance(operand.value, str):
        raise operand.error(f"{operator!r} takes a string")
    return operand.value


# --- the case of letters -----------------------------------------------------------------------


def _spelled(operand: Located, fold: Callable[[str], Test], spelled: Callable[[str], Test]) -> Test:
    """A test by a text whose characters stand for their lower and upper forms.

    Where these are not one to one, as for "ß" with the upper form "SS", all spellings are tried.
    """
    text = _text_of(operand, FOLD)
    if all(map(_has_two_cases, text)):
        return fold(text)
    forms = [sorted({one.lower(), one.upper()}) for one in text]
    if prod(map(len, forms)) > MOST_SPELLINGS:
        odd = next(one for one in text if not _has_two_cases(one))
        raise operand.error(
            f"{FOLD!r} takes no text this long with {odd!r}, whose case is not one to one",
            FilterTooLargeError,
        )
    return AnyTest(tuple(spelled("".join(spelling)) for spelling in product(*forms)))


def _has_two_cases(one: str) -> bool:
    """Whether a character is one of two forms of a letter, or has no case."""
    if one.isascii():
        return True
    lower, upper = one.lower(), one.upper()
    return one in (lower, upper) and lower.upper() == upper and upper.lower() == lower


# --- anything but ------------------------------------------------------------------------------


def anything_but(operand: Located, grammar: Grammar) -> Test:
    """A member that does not pass; those of other kinds always do not."""
    tests: list[Test]
    if isinstance(operand.value, tuple):
        operator, inner = the_operator(operand, grammar.anything_but, "anything-but")
        tests = [grammar.anything_but[operator](one, grammar) for one in _items_of(inner, operator)]
    else:
        values = [_but(one, grammar) for one in _items_of(operand, "anything-but")]
        if len({isinstance(one, str) for one in values}) > 1:
            raise operand.error("'anything-but' takes strings or numbers, not both")
        tests = [Equal(one) for one in values]
    return Other(tests[0] if len(tests) == 1 else AnyTest(tuple(tests)))


def _items_of(operand: Located, operator: str) -> list[Located]:
    if not isinstance(operand.value, list):
        return [operand]
    if not operand.value:
        raise operand.error(f"{operator!r} takes a list that is not empty")
    return operand.value


def _but(item: Located, grammar: Grammar) -> str | int | float | Decimal:
    if isinstance(item.value, str):
        return item.value
    return number_of(item, "'anything-but' takes strings or numbers", grammar)


def but_starts(item: Located, _: Grammar) -> Test:
    """Starts with a text, inside 'anything-but'."""
    return Prefix(_filled(item, "prefix"))


def but_ends(item: Located, _: Grammar) -> Test:
    """Ends with a text, inside 'anything-but'."""
    return Suffix(_filled(item, "suffix"))


def _filled(item: Located, operator: str) -> str:
    text = _text_of(item, operator)
    if not text:
        raise item.error(f"{operator!r} of 'anything-but' takes a string that is not empty")
    return text


# --- numbers -----------------------------------------------------------------------------------


def numeric(operand: Located, grammar: Grammar) -> Test:
    """In a range of numbers."""
    items = operand.value
    if not isinstance(items, list) or len(items) not in (2, 4):
        raise operand.error("'numeric' takes a list of one or two comparisons, as ['>', 0, '<', 5]")
    first = number_of(items[1], "'numeric' takes a number after each operator", grammar)
    match items[0].value:
        case "=" if len(items) == 2:
            return Equal(first)
        case "<" | "<=" as sign if len(items) == 2:
            return Range(None, first, high_open=sign == "<")
        case ">" | ">=" as sign if len(items) == 2:
            return Range(first, None, low_open=sign == ">")
        case ">" | ">=" as sign:
            return _between(first, sign == ">", operand, items, grammar)
        case "=" | "<" | "<=":
            raise items[2].error("'numeric' takes a second comparison after '>' and '>=' only")
    raise items[0].error("'numeric' takes the operators '=', '<', '<=', '>' and '>='")


def _between(
    low: float | Decimal, low_open: bool, operand: Located, items: list[Located], grammar: Grammar
) -> Test:
    sign = items[2].value
    if sign not in ("<", "<="):
        raise items[2].error("'numeric' takes '<' or '<=' as its second operator")
    high = number_of(items[3], "'numeric' takes a number after each operator", grammar)
    if not exact(low) < exact(high):
        raise operand.error("'numeric' takes a lower number before a higher one")
    return Range(low, high, low_open, sign == "<")


def number_of(item: Located, reason: str, grammar: Grammar) -> int | float | Decimal:
    """A number that is compared with others."""
    value = item.value
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
        raise item.error(reason)
    grammar.check_number(item)
    return value


def check_double(item: Located) -> None:
    """Refuses a number that is not written as a double would be."""
    if isinstance(item.value, (int, Decimal)) and exact_float(item.value) is None:
        raise item.error("this number is too large or too long for a double")


def exact(number: float | Decimal) -> Decimal:
    """The number that is written."""
    return Decimal(repr(number) if isinstance(number, float) else number)


# --- addresses ---------------------------------------------------------------------------------


def cidr(operand: Located, _: Grammar) -> Test:
    """In a network."""
    text = _text_of(operand, "cidr")
    if (found := _CIDR.fullmatch(text)) is None:
        raise operand.error("'cidr' takes an address, '/' and a number of bits, as '10.0.0.0/24'")
    address, bits = found.groups()
    try:
        network = _network(address, int(bits), operand)
    except ValueError as error:
        if isinstance(error, FilterError):
            raise
        raise operand.error(f"'cidr' takes an IP address before the '/': {error}") from None
    return Address(network)


def _network(address: str, bits: int, operand: Located) -> IPv4Network | IPv6Network:
    most = 127 if ":" in address else 31
    if bits > most:
        raise operand.error(f"'cidr' takes at most {most} bits for this kind of address")
    if ":" in address:
        return IPv6Network((IPv6Address(address), bits), strict=False)
    return IPv4Network((IPv4Address(address), bits), strict=False)
