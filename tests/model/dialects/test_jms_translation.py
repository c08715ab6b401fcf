"""Message selectors as patterns: which form they take, and that random ones select the same."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jms_oracle import selected
from jms_pattern_oracle import holds

from boxmatch.errors import FilterError
from boxmatch.model.dialects.jms import translate
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
    Pattern,
    Prefix,
    Range,
    Some,
    Suffix,
    Test,
    Wildcard,
)
from property_examples import examples

MANY = settings(
    deadline=None, max_examples=examples(600), suppress_health_check=[HealthCheck.too_slow]
)

NUMBER, STRING, BOOL, NULL = (OfKind(kind) for kind in ("number", "string", "bool", "null"))
THERE = Other(NULL)
BIG = 2**53


def field(test: Test, name: str = "a") -> Field:
    return Field((name,), test, scalar=True)


def but(test: Test) -> AllTests:
    """There, but not so."""
    return AllTests((THERE, Other(test)))


EXACT: list[tuple[str, Pattern]] = [
    ("a = 'x'", field(Equal("x"))),
    ("'x' = a", field(Equal("x"))),
    ("a <> 'x'", field(AllTests((STRING, Other(Equal("x")))))),
    ("NOT (a <> 'x')", field(but(AllTests((STRING, Other(Equal("x"))))))),
    ("NOT (a = 'x')", field(but(Equal("x")))),
    ("NOT NOT (a = 'x')", field(Equal("x"))),
    ("a <> TRUE", field(AllTests((BOOL, Other(Equal(True)))))),
    ("a", field(Equal(True))),
    ("NOT a", field(but(Equal(True)))),
    ("a = 1 + 2 * 3", field(Equal(7))),
    ("a = 7 / 2", field(Equal(3.5))),
    ("a <> 1", field(AllTests((NUMBER, Other(Equal(1)))))),
    ("a < 1", field(Range(None, 1, high_open=True))),
    ("a <= 1.5", field(Range(None, 1.5))),
    ("a > 1", field(Range(1, None, low_open=True))),
    ("a >= 1", field(Range(1, None))),
    ("1 < a", field(Range(1, None, low_open=True))),
    ("1 >= a", field(Range(None, 1))),
    ("a > 9007199254740992.0", field(Range(BIG + 1, None, low_open=True))),
    ("a < -9007199254740992.0", field(Range(None, -BIG - 1, high_open=True))),
    ("a = 1e16", field(Range(10**16 - 1, 10**16 + 1))),
    ("a = 9007199254740992", field(Equal(BIG))),
    ("a BETWEEN 1 AND 2", field(AllTests((Range(1, None), Range(None, 2))))),
    ("NOT a BETWEEN 1 AND 2", Some((field(but(Range(1, None))), field(but(Range(None, 2)))))),
    (
        "a NOT BETWEEN 1 AND 2",
        Some((field(Range(None, 1, high_open=True)), field(Range(2, None, low_open=True)))),
    ),
    ("a IN ('y', 'x', 'y')", field(AnyTest((Equal("x"), Equal("y"))))),
    ("a NOT IN ('x')", field(but(Equal("x")))),
    ("a LIKE 'x'", field(Equal("x"))),
    ("a LIKE 'x%'", field(Prefix("x"))),
    ("a LIKE '%x'", field(Suffix("x"))),
    ("a LIKE '%'", field(STRING)),
    ("a LIKE 'x%%y%'", field(Wildcard(("x", "y", "")))),
    ("a LIKE '%x%'", field(Wildcard(("", "x", "")))),
    ("a NOT LIKE 'x!_%' ESCAPE '!'", field(but(Prefix("x_")))),
    ("a IS NULL", Some((Missing(("a",), scalar=True), field(NULL)))),
    ("NOT (a IS NOT NULL)", Some((Missing(("a",), scalar=True), field(NULL)))),
    ("a IS NOT NULL", field(THERE)),
    ("a > 1 AND b = 'x'", Every((field(Range(1, None, low_open=True)), field(Equal("x"), "b")))),
    ("NOT (a = 1 AND b = 1)", Some((field(but(Equal(1))), field(but(Equal(1)), "b")))),
    ("NOT (a = 1 OR b = 1)", Every((field(but(Equal(1))), field(but(Equal(1)), "b")))),
    ("NOT (a = 1 OR a = 2)", field(AllTests((THERE, Other(Equal(1)), Other(Equal(2)))))),
    ("a = 1 OR (b = 1 OR c = 1)", Some(tuple(field(Equal(1), name) for name in "abc"))),
    ("a = 1 OR TRUE", ALWAYS),
    ("a = 1 AND FALSE", NEVER),
    ("a = 1 AND 1 = 1", field(Equal(1))),
    ("a = 1 OR 1 / 0 > 2", field(Equal(1))),
    ("NOT (a > 1 / 0)", NEVER),
    ("a + b > 1 OR TRUE", ALWAYS),
    ("a + b > 1 AND 1 > 2", NEVER),
]

# Selectors with what is implied by them.
IMPLIED: list[tuple[str, Pattern]] = [
    ("a * 2 > 10", field(NUMBER)),
    ("NOT (a * 2 > 10)", field(NUMBER)),
    ("-a = 1", field(NUMBER)),
    ("a < b", Every((field(NUMBER), field(NUMBER, "b")))),
    ("a = b", Every((field(THERE), field(THERE, "b")))),
    ("NOT (a < b)", Every((field(THERE), field(THERE, "b")))),
    ("a = b + 1", Every((field(NUMBER), field(NUMBER, "b")))),
    ("NOT (a = b + 1)", Every((field(THERE), field(NUMBER, "b")))),
    ("a = a + 1", field(NUMBER)),
    ("NOT (a = a + 1)", field(NUMBER)),
    ("a + b > 1 AND c = 1", Every((field(NUMBER), field(NUMBER, "b"), field(Equal(1), "c")))),
    ("a + 1 > 1 OR b = 1", Some((field(NUMBER), field(Equal(1), "b")))),
    ("a + 1 > 1 AND a < 5", field(AllTests((NUMBER, Range(None, 5, high_open=True))))),
    ("a LIKE 'x_y'", field(Wildcard(("x", "y")))),
    ("a LIKE 'x_%_'", field(Prefix("x"))),
    ("a LIKE '_'", field(STRING)),
    ("a NOT LIKE '_'", field(THERE)),
    ("a > 9007199254740993", field(Range(BIG, None, low_open=True))),
    ("a * 1e308 * 10 = 1e308 * 10", field(NUMBER)),
    ("a < 1e308 * 10", field(NUMBER)),
]


@pytest.mark.parametrize(("selector", "pattern"), EXACT)
def test_comparisons_with_constants_are_exact(selector: str, pattern: Pattern) -> None:
    translation = translate(selector)
    assert repr(translation.pattern) == repr(pattern)  # 1 and true are equal to Python
    assert (translation.wants, translation.paths) == (None, ())


@pytest.mark.parametrize(("selector", "pattern"), IMPLIED)
def test_of_other_comparisons_there_is_what_they_imply(selector: str, pattern: Pattern) -> None:
    translation = translate(selector)
    assert repr(translation.pattern) == repr(pattern)
    assert translation.wants is not None
    assert set(translation.paths) == {(name,) for name in "abc" if name in selector.lower()}


# --- random selectors -----------------------------------------------------------------------------

NAMES = ["a", "b", "c", "JMSPriority"]
STRINGS = ["", "x", "xy", "xyx", "%", "_x", "it's", "X"]
INTEGERS = [
    *(-3, -2, -1, 0, 1, 2, 3, 7, 100),
    *(BIG - 1, BIG, BIG + 1, BIG + 2, BIG + 3, -BIG - 1, 2**62, 2**63 - 1, -(2**63)),
]
FLOATS = [0.0, -0.0, 0.5, 1.0, -2.0, 2.5, 0.1, float(BIG), float(BIG + 2), 1e16, 2.0**63, 1e308]
BEYOND = [2**63, -(2**63) - 1, 2**70, 10**400, -(10**400), float("inf"), float("-inf")]
PATTERNS = ["", "x", "x%", "%x", "%", "_", "x_", "%x%", "x%x", "_%", "%y_", "x%%_%"]
ESCAPED = [("!%", "!"), ("!_x", "!"), ("x%!!", "!"), ("__%", "_"), ("''_%", "''"), ("x!x%", "x")]

values = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from([*STRINGS, "y", "xay", "\n"]),
    st.sampled_from([*INTEGERS, *FLOATS, *BEYOND]),
    st.integers(-5, 5),
    st.sampled_from([[], [1], ["x", None], {}, {"a": 1}, [True]]),
)
events = st.dictionaries(st.sampled_from(NAMES), values)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def literal(number: float) -> str:
    text = repr(number)
    if not isinstance(number, float):
        return text
    return text.replace("e+", "e")


names = st.sampled_from(NAMES)
numbers = st.sampled_from([*map(literal, [*INTEGERS, *FLOATS]), "0x1F", "017", "3L", ".5", "0.1f"])


def joined(operators: list[str], operands: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Operands in a row, some of them in parentheses."""
    return st.builds(
        lambda first, rest, wrapped: "".join(
            [
                ("({})" if wrapped else "{}").format(first),
                *(f" {sign} ({one})" if wrapped else f" {sign} {one}" for sign, one in rest),
            ]
        ),
        operands,
        st.lists(st.tuples(st.sampled_from(operators), operands), min_size=1, max_size=2),
        st.booleans(),
    )


arithmetic = st.recursive(
    st.one_of(names, numbers),
    lambda inner: st.one_of(
        joined(["+", "-", "*", "/"], inner),
        st.builds("{} ({})".format, st.sampled_from(["-", "+", "- -"]), inner),
        st.builds("- {}".format, names),
    ),
    max_leaves=4,
)
negation = st.sampled_from(["", "NOT "])
comparisons = st.one_of(
    names,
    st.sampled_from(["TRUE", "false"]),
    st.builds(
        "{} {} {}".format,
        arithmetic,
        st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
        arithmetic,
    ),
    st.builds("{} {} {}".format, names, st.sampled_from(["=", "<>", "<", ">="]), numbers),
    st.builds(
        "{} {} {}".format,
        st.one_of(names, st.sampled_from(["TRUE", "1", "'x'"])),
        st.sampled_from(["=", "<>"]),
        st.one_of(st.sampled_from([*map(quoted, STRINGS), "TRUE", "FALSE"]), arithmetic),
    ),
    st.builds("{} {}BETWEEN {} and {}".format, arithmetic, negation, arithmetic, arithmetic),
    st.builds("{} {}between {} AND {}".format, names, negation, numbers, numbers),
    st.builds(
        lambda name, negated, strings: f"{name} {negated}In ({','.join(map(quoted, strings))})",
        names,
        negation,
        st.lists(st.sampled_from(STRINGS), min_size=1, max_size=3),
    ),
    st.builds(
        lambda name, negated, pattern: f"{name} {negated}LIKE {quoted(pattern)}",
        names,
        negation,
        st.sampled_from(PATTERNS),
    ),
    st.builds(
        lambda name, negated, escaped: f"{name} {negated}like '{escaped[0]}' ESCAPE '{escaped[1]}'",
        names,
        negation,
        st.sampled_from(ESCAPED),
    ),
    st.builds("{} IS {}NULL".format, names, negation),
)
selectors = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        joined(["AND", "OR"], inner),
        st.builds("NOT ({})".format, inner),
        st.builds("not {}".format, comparisons),
        st.builds("({})".format, inner),
    ),
    max_leaves=6,
)


@MANY
@example("a = -9223372036854775808", [{"a": -(2**63)}, {"a": -(2.0**63)}])
@given(selectors, st.lists(events, min_size=1, max_size=12))
def test_random_selectors_select_what_the_oracle_says(
    selector: str, events: list[dict[str, Any]]
) -> None:
    translation = translate(selector)
    for event in events:
        wanted = selected(selector, event) is True
        held = holds(translation.pattern, event)
        if translation.wants is None:
            assert held is wanted, event
        else:
            assert held or not wanted, event
            assert translation.wants(*(event.get(path[0]) for path in translation.paths)) is wanted


soup = st.lists(
    st.one_of(
        st.sampled_from(
            [*"(),+-*/=<", "<>", "<=", "NOT", "AND", "OR", "IN", "LIKE", "BETWEEN", "IS", "NULL"]
        ),
        st.sampled_from(
            ["a", "b", "JMSType", "1", "2.5", "0x", "09", "'x'", "'%_'", "'", "\x00", "ß"]
        ),
        st.text(max_size=2),
    ),
    max_size=14,
)


@MANY
@given(soup, st.sampled_from(["", " "]))
def test_any_text_is_translated_or_refused_with_a_place(words: list[str], space: str) -> None:
    text = space.join(words)
    refused = refusal(text)
    assert refused is None or (refused.text == text and refused.position in range(len(text) + 1))


def refusal(text: str) -> FilterError | None:
    try:
        translate(text)
    except FilterError as error:
        return error
    return None


def near(number: float) -> list[Any]:
    """Numbers around one, of both kinds."""
    whole = int(number)
    around = [whole + step for step in range(-4, 5)]
    return [number, *around, *map(float, around)]


@MANY
@given(
    st.one_of(
        st.floats(allow_nan=False, allow_infinity=False),
        st.integers(-(2**63), 2**63 - 1),
        st.builds(
            lambda power, step, kind: kind(2**power + step),
            st.integers(51, 62),
            st.integers(-4, 4),
            st.sampled_from([int, float]),
        ),
    ),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">="]),
    st.randoms(use_true_random=False),
)
def test_large_numbers_meet_as_java_promotes_them(
    number: float, sign: str, randoms: random.Random
) -> None:
    selector = f"{'NOT ' * randoms.randint(0, 1)}a {sign} {literal(number)}"
    translation = translate(selector)
    for value in [*near(number), *map(int, map(float, near(number)))]:
        event = {"a": value}
        wanted = selected(selector, event) is True
        held = holds(translation.pattern, event)
        assert held is wanted if translation.wants is None else held or not wanted, event
        assert translation.wants is None or translation.wants(value) is wanted
