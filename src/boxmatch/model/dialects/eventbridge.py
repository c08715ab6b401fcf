"""Event patterns of Amazon EventBridge.

`{"detail": {"state": ["on", {"prefix": "off"}]}}` wants events with one of these values there.

Where the documentation is silent, this follows aws/event-ruler:

- An element of a list is enough, and fields that lead through a list of mappings want one element
  of it. A list inside a list is part of it.
- `exists` is about strings, numbers, bools and nulls: where a mapping or an empty list is, nothing
  exists. Of lists that a field leads through whose name sorts before, only the element of that
  field is looked at; a field that sorts behind has no say.
- `anything-but` wants a member that is something else, of whatever kind, and so not a missing one.
- Names with dots are those of nested mappings, in patterns and in events.
- Of a field that is there twice, the last one counts. So in an alternative of `$or` a field takes
  the place of one before it.
- `$or` is the name of a field if it has no list of mappings of fields.
- Letters have the lower and upper forms of single characters: "ß" is "ß" or "SS", not "ss".
- A string that is an IPv6 address wants that address, however it is written.

Unlike there, numbers are compared exactly (1, 1.0 and 1e0 are equal, and events may have numbers
that no double holds), letters outside the basic plane have cases, too, and no IPv4 address is in a
network of IPv6. Refused are long texts for `equals-ignore-case` with letters as "ß".
"""

from __future__ import annotations

from typing import Final, NamedTuple

from boxmatch.errors import FilterTooLargeError
from boxmatch.model.dialects import match_values as values
from boxmatch.model.dialects.json_places import Located, read_filter
from boxmatch.model.dialects.match_values import Grammar, Wanted, read_wanted
from boxmatch.model.dialects.patterns import (
    AllTests,
    AnyTest,
    Every,
    Field,
    Missing,
    Path,
    Pattern,
    Some,
    Translation,
)

MOST_ALTERNATIVES: Final = 1_000
"""Of all `$or` of a pattern, multiplied out."""
MOST_SPLITS: Final = 100
"""Fields that decide where others are missing, in an alternative."""

GRAMMAR: Final = Grammar(
    operators={
        "exactly": values.exactly,
        "prefix": values.starts,
        "suffix": values.ends,
        "equals-ignore-case": values.equals_fold,
        "wildcard": values.like,
        "anything-but": values.anything_but,
        "numeric": values.numeric,
        "cidr": values.cidr,
        "exists": values.exists,
    },
    anything_but={
        "prefix": values.but_starts,
        "suffix": values.but_ends,
        "equals-ignore-case": values.equals_fold,
        "wildcard": values.like,
    },
    folds_ends=True,
    check_number=values.check_double,
    present=AllTests(()),
)

OR: Final = "$or"
_RESERVED: Final = frozenset(
    [
        *("exactly", "equals-ignore-case", "prefix", "suffix", "anything-but", "exists"),
        *("wildcard", "numeric", "cidr", "=", "<", "<=", ">", ">=", "regex"),
        *("not-wildcard", "not-equals-ignore-case"),
        *("date-after", "date-on-or-after", "date-before", "date-on-or-before", "in-date-range"),
        *("ip-address-in-range", "ip-address-not-in-range"),
    ]
)
"""No names of fields inside `$or`."""


def translate(filter: object) -> Translation:
    """What an event pattern, a JSON text or a mapping, wants of events. Raises `FilterError`."""
    return Translation(pattern_of(alternatives(read_filter(filter), GRAMMAR)))


# --- reading -----------------------------------------------------------------------------------


class Leaf(NamedTuple):
    """What is wanted at the end of a path."""

    wanted: Wanted
    values: Located
    depth: int
    """How many mappings it is in."""


Alternative = dict[Path, Leaf]
"""Paths, all of which must have what is wanted of them."""


def alternatives(root: Located, grammar: Grammar) -> list[Alternative]:
    """One of which must be satisfied: those of all `$or`, multiplied out."""
    return _Reader(grammar).mapping(root, (), 1, inside_or=False)


class _Reader:
    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar

    def mapping(
        self, source: Located, path: Path, depth: int, inside_or: bool
    ) -> list[Alternative]:
        if not isinstance(source.value, tuple):
            raise source.error("a mapping of names to lists of values should be here")
        if not source.value:
            raise source.error("a mapping of names should not be empty")
        found: list[Alternative] = [{}]
        for name, below in source.value:
            if name == OR and is_choice(below, self.grammar):
                more = self.choice(below, path, depth)
            elif inside_or and name in _RESERVED:
                raise below.named.error(f"inside '$or' no field is named {name!r}")
            else:
                more = self.field(name, below, path, depth, inside_or)
            found = _both(found, more, below)
        return found

    def choice(self, source: Located, path: Path, depth: int) -> list[Alternative]:
        options = source.value
        if not isinstance(options, list) or len(options) < 2:
            raise source.error("'$or' takes a list of two mappings or more")
        found = []
        for option in options:
            found += self.mapping(option, path, depth, inside_or=True)
            _check_number(len(found), option)
        return found

    def field(
        self, name: str, below: Located, path: Path, depth: int, inside_or: bool
    ) -> list[Alternative]:
        path = (*path, *name.split("."))
        if isinstance(below.value, tuple):
            return self.mapping(below, path, depth + 1, inside_or)
        if isinstance(below.value, list):
            wanted = read_wanted(below, below.value, self.grammar)
            return [{path: Leaf(wanted, below, depth)}]
        raise below.error(f"{name!r} takes a list of values, or a mapping")


def is_choice(source: Located, grammar: Grammar) -> bool:
    """Whether `$or` joins mappings. If it has a mapping, or values and operators, it is a field."""
    if not isinstance(source.value, list):
        return False
    return not source.value or not all(_is_wanted(one, grammar) for one in source.value)


def _is_wanted(item: Located, grammar: Grammar) -> bool:
    value = item.value
    if isinstance(value, tuple):
        return len(value) == 1 and value[0][0] in grammar.operators
    return not isinstance(value, list)


def _both(some: list[Alternative], more: list[Alternative], place: Located) -> list[Alternative]:
    _check_number(len(some) * len(more), place)
    return [{**one, **another} for one in some for another in more]


def _check_number(number: int, place: Located) -> None:
    if number > MOST_ALTERNATIVES:
        raise place.error(
            f"there are more than {MOST_ALTERNATIVES:,} alternatives", FilterTooLargeError
        )


# --- patterns ----------------------------------------------------------------------------------


def pattern_of(found: list[Alternative]) -> Pattern:
    """The pattern that holds if an alternative is satisfied."""
    patterns = [_Writer(one).pattern() for one in found]
    return patterns[0] if len(patterns) == 1 else Some(tuple(patterns))


class _Writer:
    """Writes the pattern of an alternative, path by path in the order of their names.

    `met` are the places of lists at which an element is chosen: above the paths before that have
    members. Only those count that a path behind, which may be missing, leads through.
    """

    def __init__(self, alternative: Alternative) -> None:
        self.items = sorted(alternative.items(), key=_order)
        self.splits = 0
        self.counting: list[frozenset[Path]] = [frozenset()]
        for path, leaf in reversed(self.items):
            above = _above(path) if leaf.wanted.or_missing else frozenset()
            self.counting.append(self.counting[-1] | above)
        self.counting.reverse()

    def pattern(self) -> Pattern:
        return _conjunction(self.steps(0, frozenset()))

    def steps(self, first: int, met: frozenset[Path]) -> list[Pattern]:
        """What must hold of the paths from the first on."""
        found: list[Pattern] = []
        for number in range(first, len(self.items)):
            path, (wanted, source, *_) = self.items[number]
            above = _above(path)
            missing = Missing(path, max((len(one) for one in above & met), default=0))
            tests = wanted.tests
            field = Field(path, tests[0] if len(tests) == 1 else AnyTest(tests))
            without = met & self.counting[number + 1]
            met = (met | above) & self.counting[number + 1]
            if not tests:
                found.append(missing)
                met = without
            elif not wanted.or_missing:
                found.append(field)
            elif met == without:
                found.append(Some((field, missing)))
            else:
                self._count_split(source)
                yes = _conjunction([field, *self.steps(number + 1, met)])
                no = _conjunction([missing, *self.steps(number + 1, without)])
                return [*found, Some((yes, no))]
        return found

    def _count_split(self, source: Located) -> None:
        self.splits += 1
        if self.splits > MOST_SPLITS:
            raise source.error(
                "too many fields that others depend on have values or are missing",
                FilterTooLargeError,
            )


def _order(item: tuple[Path, Leaf]) -> bytes:
    """Names sort by UTF-16 code units."""
    return ".".join(item[0]).encode("utf-16-be")


def _above(path: Path) -> frozenset[Path]:
    """Where there may be lists that a path leads through."""
    return frozenset(path[:length] for length in range(1, len(path)))


def _conjunction(patterns: list[Pattern]) -> Pattern:
    return patterns[0] if len(patterns) == 1 else Every(tuple(patterns))
