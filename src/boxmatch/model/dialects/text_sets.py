"""Tests of members as sets of texts: of a member's own text, and of what is made of a string."""

from __future__ import annotations

from typing import Final, NamedTuple

from boxmatch.model.dialects.patterns import (
    Address,
    AllTests,
    AnyTest,
    Equal,
    EqualFold,
    OfKind,
    Other,
    Prefix,
    Range,
    Suffix,
    Test,
    Wildcard,
)
from boxmatch.model.documents import string_text, text_of
from boxmatch.model.expressions.documents import Form, address_digits, fold
from boxmatch.model.text_ranges import (
    ANY_TEXT,
    TextRange,
    TextRanges,
    common,
    compared,
    of_kind,
    others,
    point,
    starting,
    united,
)

Sets = dict[Form, TextRanges]
"""A member is in them if its text of one of the forms is in the ranges of that form."""


class TextTest(NamedTuple):
    """What texts say of a test: a member that passes is in all of these sets."""

    sets: list[Sets]
    needle: str = ""
    """It also is a string with this text in it."""
    exact: bool = True
    """Whether all such members pass, if there is one set and no needle, or only a needle."""


_ANY: Final[Sets] = {"": ANY_TEXT}
_STRINGS: Final[Sets] = {"": of_kind("string")}
_NO_STRINGS: Final = united((*of_kind("bool"), *of_kind("number"), *of_kind("null")))


def plain(test: Test) -> Test:
    """The same test with `Other` only around tests that have no others inside."""
    match test:
        case Other(inner):
            return _opposite(inner)
        case AnyTest(tests):
            return AnyTest(tuple(map(plain, tests)))
        case AllTests(tests):
            return AllTests(tuple(map(plain, tests)))
    return test


def _opposite(test: Test) -> Test:
    match test:
        case Other(inner):
            return plain(inner)
        case AnyTest(tests):
            return AllTests(tuple(map(_opposite, tests)))
        case AllTests(tests):
            return AnyTest(tuple(map(_opposite, tests)))
    return Other(test)


def text_test(test: Test) -> TextTest:
    """What texts say of a plain test."""
    match test:
        case Other(inner):
            return _others(text_test(inner))
        case AnyTest(tests):
            return any_of([text_test(one) for one in tests])
        case AllTests(tests):
            return _all_of([text_test(one) for one in tests])
        case Wildcard(parts):
            return _wildcard(parts)
    return TextTest([_sets(test)])


def _sets(test: Test) -> Sets:
    match test:
        case Equal(value):
            text = text_of(value)
            return {"": () if text is None else point(text)}
        case Range():
            return {"": _range(test)}
        case OfKind(kind):
            return {"": of_kind(kind)}
        case Prefix("", _) | Suffix("", _):
            return _STRINGS
        case Prefix(text, folded):
            if folded:
                return {"folded": starting(string_text(fold(text)))}
            return {"": starting(string_text(text))}
        case Suffix(text, folded):
            if folded:
                return {"reversed folded": starting(string_text(fold(text)[::-1]))}
            return {"reversed": starting(string_text(text[::-1]))}
        case EqualFold(text):
            return {"folded": point(string_text(fold(text)))}
        case Address(network):
            low, high = address_digits(network[0]), address_digits(network[-1])
            return {"address": ((low, high + "\0"),)}
    raise TypeError(f"{test} is no test of a text")


def _range(test: Range) -> TextRanges:
    kind = "string" if isinstance(test.high if test.low is None else test.low, str) else "number"
    found = of_kind(kind)
    for end, operator in (
        (test.low, ">" if test.low_open else ">="),
        (test.high, "<" if test.high_open else "<="),
    ):
        text = None if end is None else text_of(end)
        if text is not None:
            found = common(found, compared(operator, text, kind))
    return found


def _wildcard(parts: tuple[str, ...]) -> TextTest:
    first, *inner, last = parts
    needle = max(inner, key=len, default="")
    sets = [_sets(test) for test, given in ((Prefix(first), first), (Suffix(last), last)) if given]
    exact = len(sets) + len([part for part in inner if part]) < 2
    # Texts of several members are searched at once, with a NUL between them.
    return TextTest(sets or [_STRINGS], needle, exact and "\0" not in needle)


def _others(test: TextTest) -> TextTest:
    """Members that are not in the sets of a test that has no others inside."""
    if test.exact and not test.needle and len(test.sets) == 1:
        [(form, ranges)] = test.sets[0].items()
        if form == "":
            return TextTest([{"": others(ranges)}])
        return TextTest([{form: others(ranges), "": _NO_STRINGS}])
    return TextTest([_ANY], exact=False)


def any_of(tests: list[TextTest]) -> TextTest:
    """What passes one of several tests."""
    if len(tests) == 1:
        return tests[0]
    found: dict[Form, list[TextRange]] = {}
    for test in tests:
        # One of the sets of each test has all that pass it.
        for form, ranges in test.sets[0].items():
            found.setdefault(form, []).extend(ranges)
    merged = {form: united(ranges) for form, ranges in found.items()}
    return TextTest([merged], exact=all(is_one_set(test) for test in tests))


def _all_of(tests: list[TextTest]) -> TextTest:
    shared: dict[Form, list[Sets]] = {}
    rest: list[Sets] = []
    for one in (one for test in tests for one in test.sets):
        form = _form_of_strings(one)
        if form is None:
            rest.append(one)
        else:
            shared.setdefault(form, []).append(one)
    sets = [*map(_in_all, shared.values()), *rest] or [_ANY]
    needle = max((test.needle for test in tests), key=len, default="")
    exact = all(map(is_one_set, tests)) and len(sets) == 1
    return TextTest(sets, needle, exact or (len(tests) == 1 and tests[0].exact))


def _form_of_strings(sets: Sets) -> Form | None:
    """The one form that says which strings are in the sets; None if several do."""
    if sets.keys() == {""}:
        return ""
    forms = [form for form in sets if form]
    strings = common(sets.get("", ()), of_kind("string"))
    return forms[0] if len(forms) == 1 and not strings else None


def _in_all(sets: list[Sets]) -> Sets:
    forms = dict.fromkeys(form for one in sets for form in one)
    return {form: common(*(one.get(form, ()) for one in sets)) for form in forms}


def is_one_set(test: TextTest) -> bool:
    """Whether the members that pass are just those in one set."""
    return test.exact and not test.needle and len(test.sets) == 1
