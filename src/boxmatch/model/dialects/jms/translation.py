"""From message selectors to patterns.

A selector is wanted where it is true. Unknown is neither true nor false, so NOT cannot be moved to
the outside of a pattern: each condition has one pattern for where it is true and another for where
it is false, and where it is unknown neither holds. Comparisons of one property with constants are
exact. Of others the pattern says what their truth implies, such as that their properties are there.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, groupby
from math import inf, isfinite, nextafter
from typing import Final, NamedTuple

from boxmatch.errors import FilterError, FilterTooLargeError
from boxmatch.model.dialects.jms.parser import TOO_DEEP, Parsed, parse
from boxmatch.model.dialects.jms.syntax import (
    ORDERS,
    AllOf,
    AnyOf,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Operand,
    Operator,
    Property,
    Truth,
    Value,
    Wild,
    properties_of,
)
from boxmatch.model.dialects.jms.values import (
    Selector,
    as_double,
    compared,
    is_number,
    worked_out,
)
from boxmatch.model.dialects.patterns import (
    ALWAYS,
    NEVER,
    AllTests,
    AnyTest,
    Equal,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Path,
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Translation,
    Wildcard,
)

_MIRRORED: Final[dict[Operator, Operator]] = {
    "=": "=",
    "<>": "<>",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_NOT_NULL: Final = Other(OfKind("null"))
_EXACT_FLOATS: Final = 2**53
"""Whole numbers up to this are floats, and no two of them the same float."""


def translate(filter: object) -> Translation:
    """The pattern of a message selector; an empty one selects everything.

    `wants` takes the values of the properties as they are in the event: large ones that are exact
    differ from those that are not. Raises `FilterError` with the place in the text.
    """
    if not isinstance(filter, str):
        raise FilterError(f"a message selector is text, not {type(filter).__name__}")
    try:
        parsed = parse(filter)
        return Translation(ALWAYS) if parsed is None else _translation(parsed)
    except RecursionError:
        raise FilterTooLargeError(TOO_DEEP, filter, 0) from None


def _translation(parsed: Parsed) -> Translation:
    pattern, exact = _where(parsed.condition, True)
    if exact:
        return Translation(pattern)
    wants = Selector(parsed.condition, parsed.names)
    return Translation(pattern, wants, tuple(map(_path, parsed.names)))


class _Part(NamedTuple):
    """A pattern for where a condition is true, or for where it is false."""

    pattern: Pattern
    exact: bool = True
    """Whether it holds nowhere else."""


def _where(condition: Condition, outcome: bool) -> _Part:
    """Where a condition has an outcome."""
    match condition:
        case AllOf(conditions):
            join = _every if outcome else _some
            return join([_where(one, outcome) for one in conditions])
        case AnyOf(conditions):
            join = _some if outcome else _every
            return join([_where(one, outcome) for one in conditions])
        case Not(inner):
            return _where(inner, not outcome)
        case Comparison(operator, left, right):
            return _compared(operator, left, right, outcome)
        case Truth(Constant(value)):
            return _constant(bool(value), outcome)
        case Truth(Property(name)):
            return _field(name, Equal(True), outcome)
        case IsNull(name):
            return _null(name, outcome)
        case In(name, strings):
            return _field(name, _any([Equal(text) for text in sorted(strings)]), outcome)
        case Like(name, pieces):
            return _field(name, _like(pieces), outcome, exact=Wild.ONE not in pieces)
    raise AssertionError(condition)


# --- one property ---------------------------------------------------------------------------------


def _field(name: str, test: Test, outcome: bool, *, exact: bool = True) -> _Part:
    """Where the value of a property passes a test, or is there and does not."""
    if outcome:
        return _Part(_scalar(name, test), exact)
    if not exact:
        return _Part(_scalar(name, _NOT_NULL), False)
    return _Part(_scalar(name, AllTests((_NOT_NULL, Other(test)))))


def _scalar(name: str, test: Test) -> Field:
    return Field(_path(name), test, scalar=True)


def _path(name: str) -> Path:
    """Where a property is: names in quotes may have dots."""
    return tuple(name.split("."))


def _null(name: str, outcome: bool) -> _Part:
    if not outcome:
        return _Part(_scalar(name, _NOT_NULL))
    return _Part(Some((Missing(_path(name), scalar=True), _scalar(name, OfKind("null")))))


def _like(pieces: tuple[str | Wild, ...]) -> Test:
    """A test that the strings pass of which the pattern is true, and others if it has a `_`.

    Those are the strings that the pattern would match with `%` in the place of `_`.
    """
    parts = [""]
    for wild, run in groupby(pieces, lambda piece: isinstance(piece, Wild)):
        if wild:
            parts.append("")
        else:
            parts[-1] += "".join(map(str, run))
    if len(parts) == 1:
        return Equal(parts[0])
    if len(parts) > 2:
        return Wildcard(tuple(parts))
    return _around(*parts)


def _around(start: str, end: str) -> Test:
    if start and end:
        return Wildcard((start, end))
    if start or end:
        return Prefix(start) if start else Suffix(end)
    return OfKind("string")


# --- comparisons ----------------------------------------------------------------------------------


def _compared(operator: Operator, left: Operand, right: Operand, outcome: bool) -> _Part:
    for sign, one, other in (operator, left, right), (_MIRRORED[operator], right, left):
        if any(properties_of(other)):
            continue
        value = worked_out(other, {})
        if value is None:
            return _Part(NEVER)
        if not any(properties_of(one)):
            return _constant(compared(sign, worked_out(one, {}), value), outcome)
        if isinstance(one, Property) and not (isinstance(value, float) and not isfinite(value)):
            test, exact = _against(sign, value)
            return _field(one.name, test, outcome, exact=exact)
    return _implied(operator, left, right, outcome)


def _constant(value: bool | None, outcome: bool) -> _Part:
    return _Part(ALWAYS if value is outcome else NEVER)


def _implied(operator: Operator, left: Operand, right: Operand, outcome: bool) -> _Part:
    """What is so wherever a comparison has an outcome: it is known, so nothing in it is NULL."""
    numbers = outcome and (
        operator in ORDERS or not (isinstance(left, Property) and isinstance(right, Property))
    )
    tests: dict[str, Test] = {}
    for operand in (left, right):
        number = numbers or not isinstance(operand, Property)
        for name in properties_of(operand):
            if number or name not in tests:
                tests[name] = OfKind("number") if number else _NOT_NULL
    return _every([_Part(_scalar(name, test), False) for name, test in tests.items()])


class _Against(NamedTuple):
    """A test of a value that is compared with a constant."""

    test: Test
    exact: bool = True


def _against(operator: Operator, value: Value) -> _Against:
    if is_number(value):
        return _against_number(operator, value)
    if operator == "=":
        return _Against(Equal(value))
    kind = OfKind("bool" if isinstance(value, bool) else "string")
    return _Against(AllTests((kind, Other(Equal(value)))))


def _against_number(operator: Operator, number: int | float) -> _Against:
    """A test of what compares so with a number.

    An exact number is rounded where it meets a float, so a large float equals a range of them. A
    large exact number equals itself and the float that it is rounded to, but no other exact one:
    no test tells exact numbers from floats, so that is not exact.
    """
    exact = isinstance(number, float) or abs(number) <= _EXACT_FLOATS
    low = high = number
    if not exact or (isinstance(number, float) and abs(number) >= _EXACT_FLOATS):
        low, high = _rounded_to(as_double(number))
    equal: Test = Equal(number) if low == high else Range(low, high)
    match operator:
        case "=":
            return _Against(equal, exact)
        case "<>":
            numbers = OfKind("number")
            return _Against(AllTests((numbers, Other(equal))) if exact else numbers, exact)
        case "<":
            return _Against(Range(None, low if exact else high, high_open=True), exact)
        case "<=":
            return _Against(Range(None, high), exact)
        case ">":
            return _Against(Range(high if exact else low, None, low_open=True), exact)
        case ">=":
            return _Against(Range(low, None), exact)


def _rounded_to(double: float) -> tuple[int, int]:
    """The first and the last of the exact numbers that become this float, which is a large one."""
    low = _middle(nextafter(double, -inf), double)
    high = _middle(double, nextafter(double, inf))
    return low + (as_double(low) != double), high - (as_double(high) != double)


def _middle(low: float, high: float) -> int:
    return (_whole(low) + _whole(high)) // 2


def _whole(double: float) -> int:
    """A large float as a whole number. What follows the largest one is a power of two."""
    if isfinite(double):
        return int(double)
    return 2**1024 if double > 0 else -(2**1024)


# --- joining --------------------------------------------------------------------------------------


def _every(parts: list[_Part]) -> _Part:
    """Where all hold."""
    if any(part.pattern == NEVER for part in parts):
        return _Part(NEVER)
    patterns = _in_one_field_each(
        chain.from_iterable(
            part.pattern.patterns if isinstance(part.pattern, Every) else (part.pattern,)
            for part in parts
        )
    )
    pattern = patterns[0] if len(patterns) == 1 else Every(patterns)
    return _Part(pattern, all(part.exact for part in parts))


def _in_one_field_each(patterns: Iterable[Pattern]) -> tuple[Pattern, ...]:
    """The patterns with all tests of one property in one field: its value is the same for all."""
    tests: dict[Path, list[Test]] = {}
    others: list[Pattern] = []
    for pattern in patterns:
        if isinstance(pattern, Field):
            test = pattern.test
            own = test.tests if isinstance(test, AllTests) else (test,)
            tests.setdefault(pattern.path, []).extend(own)
        else:
            others.append(pattern)
    fields = (Field(path, _all(own), scalar=True) for path, own in tests.items())
    return (*fields, *others)


def _some(parts: list[_Part]) -> _Part:
    """Where one holds."""
    if any(part.pattern == ALWAYS and part.exact for part in parts):
        return _Part(ALWAYS)
    exact = all(part.exact for part in parts)
    if any(part.pattern == ALWAYS for part in parts):
        return _Part(ALWAYS, exact)
    patterns = tuple(
        chain.from_iterable(
            part.pattern.patterns if isinstance(part.pattern, Some) else (part.pattern,)
            for part in parts
        )
    )
    return _Part(patterns[0] if len(patterns) == 1 else Some(patterns), exact)


def _all(tests: list[Test]) -> Test:
    alone = [test for test in tests if test is not _NOT_NULL]
    if len(alone) < len(tests):
        alone.insert(0, _NOT_NULL)
    return alone[0] if len(alone) == 1 else AllTests(tuple(alone))


def _any(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else AnyTest(tuple(tests))
