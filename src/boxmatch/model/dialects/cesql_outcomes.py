"""When expressions of CloudEvents SQL are true, false, or free of errors, as patterns.

An event with an error on the way does not pass, even where NOT or OR is around the error. So NOT
swaps two patterns, and no pattern is ever negated; and `a OR b` is true where `a` is, and where `a`
has no error and `b` is true.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from math import prod
from typing import Final, NamedTuple

from boxmatch.model.dialects.patterns import (
    ALWAYS,
    NEVER,
    Every,
    Field,
    Missing,
    OfKind,
    Other,
    Path,
    Pattern,
    Some,
    Test,
)

MOST_BOXES: Final = 100
"""So many more boxes is an exact pattern worth; with more, evaluation finds errors."""
MOST_CONDITIONS: Final = 50
"""So many of these are tested before an operand of OR; with more, evaluation finds errors."""

NULL: Final = OfKind("null")
PRESENT: Final = Other(NULL)


class Part(NamedTuple):
    """A pattern that holds of the events in question, and of no others if it is exact."""

    pattern: Pattern
    exact: bool = True
    boxes: int = 1
    """The alternatives in the pattern, were it written as conditions joined by OR alone."""


class Outcome(NamedTuple):
    """The events of which an expression, as a Boolean, is true or false, or has no error."""

    true: Part
    false: Part
    defined: Part


ANY: Final = Part(ALWAYS)
NONE: Final = Part(NEVER, boxes=0)
UNKNOWN: Final = Part(ALWAYS, exact=False)
FAILURE: Final = Outcome(NONE, NONE, NONE)


def constant(value: bool) -> Outcome:
    """An expression that is the same for all events."""
    return Outcome(ANY, NONE, ANY) if value else Outcome(NONE, ANY, ANY)


def field(name: str, test: Test) -> Pattern:
    """A test of the value of an attribute, where a list is no value."""
    return Field((name,), test, scalar=True)


def present(name: str) -> Part:
    """The events that have an attribute."""
    return Part(field(name, PRESENT))


def exists(name: str) -> Outcome:
    """EXISTS, which has no errors. A null is as a missing attribute."""
    absent = Some((Missing((name,), scalar=True), field(name, NULL)))
    return Outcome(present(name), Part(absent, boxes=2), ANY)


def negation(operand: Outcome) -> Outcome:
    """NOT."""
    return Outcome(operand.false, operand.true, operand.defined)


def conjunction(operands: Sequence[Outcome]) -> Outcome:
    """AND."""
    return negation(disjunction([negation(one) for one in operands]))


def disjunction(operands: Sequence[Outcome]) -> Outcome:
    """OR: the first operand that is true or has an error decides."""
    true: list[Part] = []
    before = _Before()
    for operand in operands:
        true.append(before.and_then(operand.true))
        before.add(operand.defined)
    # Where the last operand is reached and has no error, it need not be true.
    defined = some((*true[:-1], before.and_then(ANY)))
    return Outcome(
        _limited(some(true), some(one.true for one in operands)),
        every(one.false for one in operands),
        _limited(defined, UNKNOWN),
    )


class _Before:
    """The condition that none of the operands so far has an error."""

    def __init__(self) -> None:
        self._parts: list[Part] = []
        self._exact = True
        self._present: set[Path] = set()
        self._enough: set[Path] | None = set()
        """Attributes such that an event that has them satisfies the condition."""

    def add(self, defined: Part) -> None:
        self._exact = self._exact and defined.exact
        if not _is_implied(defined.pattern, self._present):
            self._parts.append(defined)
        if _is_presence(defined.pattern):
            self._present |= _needed(defined.pattern)
        more = _enough(defined.pattern)
        if self._enough is not None:
            self._enough = None if more is None else self._enough | more

    def and_then(self, part: Part) -> Part:
        if self._enough is not None and self._enough <= _needed(part.pattern):
            return part._replace(exact=part.exact and self._exact)
        if len(self._parts) > MOST_CONDITIONS:
            return part._replace(exact=False)
        both = every((*self._parts, part))
        return both._replace(exact=both.exact and self._exact)


def exclusive(operands: Sequence[Outcome]) -> Outcome:
    """XOR, which evaluates all of its operands."""
    return reduce(_exclusive_pair, operands)


def _exclusive_pair(left: Outcome, right: Outcome) -> Outcome:
    defined = every((left.defined, right.defined))
    true = some((every((left.true, right.false)), every((left.false, right.true))))
    false = some((every((left.true, right.true)), every((left.false, right.false))))
    return Outcome(_limited(true, defined), _limited(false, defined), _limited(defined, UNKNOWN))


def _limited(part: Part, wider: Part) -> Part:
    """A part, or one that has fewer boxes and holds of more events."""
    return part if part.boxes <= wider.boxes + MOST_BOXES else wider._replace(exact=False)


def unknown(names: Iterable[str]) -> Outcome:
    """Any outcome, in which an event without one of these attributes has an error."""
    maybe = every(map(present, names))._replace(exact=False)
    return Outcome(maybe, maybe, maybe)


# --- patterns of patterns ---------------------------------------------------------------------


def every(parts: Iterable[Part]) -> Part:
    """The events in all of the parts."""
    chosen = list(parts)
    if any(one.pattern == NEVER for one in chosen):
        return NONE
    flat: list[Pattern] = []
    for one in chosen:
        flat.extend(one.pattern.patterns if isinstance(one.pattern, Every) else (one.pattern,))
    flat = _without_implied(flat)
    return Part(
        flat[0] if len(flat) == 1 else Every(tuple(flat)),
        all(one.exact for one in chosen),
        prod(map(_boxes, flat)),
    )


def some(parts: Iterable[Part]) -> Part:
    """The events in one of the parts."""
    chosen = [one for one in parts if one.pattern != NEVER]
    everything = [one for one in chosen if one.pattern == ALWAYS]
    if everything:
        return ANY._replace(exact=any(one.exact for one in everything))
    flat: list[Pattern] = []
    for one in chosen:
        flat.extend(one.pattern.patterns if isinstance(one.pattern, Some) else (one.pattern,))
    pattern = flat[0] if len(flat) == 1 else Some(tuple(flat))
    return Part(pattern, all(one.exact for one in chosen), sum(one.boxes for one in chosen))


def _boxes(pattern: Pattern) -> int:
    match pattern:
        case Every(patterns):
            return prod(map(_boxes, patterns))
        case Some(patterns):
            return sum(map(_boxes, patterns))
        case _:
            return 1


def _without_implied(patterns: Sequence[Pattern]) -> list[Pattern]:
    """Without tests for the presence of attributes of which the other patterns say more."""
    fields: list[Pattern] = [
        one for one in patterns if not isinstance(one, Some) and not _is_presence(one)
    ]
    if len(fields) == len(patterns):
        return fields
    certain = _needed(Every(tuple(one for one in patterns if not isinstance(one, Some))))
    choices = [one for one in patterns if isinstance(one, Some) and not _is_implied(one, certain)]
    seen = _needed(Every((*fields, *choices)))
    kept = [*fields, *choices]
    for one in patterns:
        if isinstance(one, Field) and _is_presence(one) and one.path not in seen:
            kept.append(one)
            seen.add(one.path)
    return kept


def _is_presence(pattern: Pattern) -> bool:
    return isinstance(pattern, Field) and pattern.test == PRESENT


def _is_implied(pattern: Pattern, present: set[Path]) -> bool:
    """Whether a pattern holds of each event that has these attributes."""
    match pattern:
        case Every(patterns):
            return all(_is_implied(one, present) for one in patterns)
        case Some(patterns):
            return any(_is_implied(one, present) for one in patterns)
        case Field(path):
            return _is_presence(pattern) and path in present
        case _:
            return False


def _enough(pattern: Pattern) -> set[Path] | None:
    """Attributes such that a pattern holds of all events that have them; None if there are none."""
    match pattern:
        case Field(path) if _is_presence(pattern):
            return {path}
        case Every(patterns):
            all_enough = [_enough(one) for one in patterns]
            some_enough = [one for one in all_enough if one is not None]
            whole = len(some_enough) == len(all_enough)
            return set[Path]().union(*some_enough) if whole else None
        case Some(patterns):
            return next((one for one in map(_enough, patterns) if one is not None), None)
        case _:
            return None


def _needed(pattern: Pattern) -> set[Path]:
    """The attributes that all events have of which a pattern holds."""
    match pattern:
        case Field(path, test) if test != NULL:
            return {path}
        case Every(patterns):
            return set[Path]().union(*map(_needed, patterns))
        case Some(patterns) if patterns:
            return set.intersection(*map(_needed, patterns))
        case _:
            return set()
