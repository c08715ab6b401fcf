"""Expressions by the thousand: their patterns against their evaluation."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from cesql_pattern_oracle import holds
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.errors import FilterError
from boxmatch.model.dialects.cesql import translate
from boxmatch.model.dialects.cesql_evaluation import evaluate
from boxmatch.model.dialects.cesql_syntax import parse
from property_examples import examples

TEXTS = [
    *("", "5", "+5", "05", "+05", "-05", "0", "-0", "+00", "1", "12", "5.5", "1.0", "3e9"),
    *("3000000000", "-", "+", "inf", "nan", "1E+30", "2147483648", "-2147483648", " 5", "5 ", "٥"),
    *("1_0", "0x5", "true", "TRUE", "False", "falſe", "t", "a", "ab", "aab", "abb", "a%b", "a_b"),
    *("a\\b", "it's", '"', "\n"),
]
NUMBERS = [
    *(0, 1, 5, -5, 4, 6, 12, 2**31 - 1, -(2**31), 2**31, 3_000_000_000, 10**30),
    *(5.0, -0.0, 5.5, 0.1, 1e30, 3e9, float("inf"), float("-inf")),
]
NO_VALUES = [None, [], ["a"], [5, "5"], {}, {"a": 1}]
VALUES = [*TEXTS, *NUMBERS, True, False, *NO_VALUES]


def check(text: str, events: Iterable[dict[str, Any]]) -> None:
    translated = translate(text)
    root = parse(text)
    for event in events:
        value, errors = evaluate(root, event)
        wanted = value is True and not errors
        found = holds(translated.pattern, event)
        if translated.wants is not None:
            values = (event.get(name) for (name,) in translated.paths)
            assert translated.wants(*values) == wanted, (text, event)
            assert found or not wanted, (text, event)
        else:
            assert found == wanted, (text, event)


# --- one attribute ----------------------------------------------------------------------------


def quoted(text: str) -> str:
    """In quotes; backslashes are doubled because one before a quote would be lost."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


LITERALS = [*map(quoted, TEXTS), "0", "1", "5", "-5", "2147483647", "-2147483648", "TRUE", "false"]


@pytest.mark.parametrize(
    "form",
    [
        *(f"x {sign} LITERAL" for sign in ("=", "!=", "<", "<=", ">", ">=")),
        *(f"LITERAL {sign} x" for sign in ("=", "!=", "<", "<=", ">", ">=")),
        *(f"INT(x) {sign} LITERAL" for sign in ("=", "!=", "<", ">=")),
        *("x IN (LITERAL)", "x NOT IN (LITERAL)", "x IN (LITERAL, '5')", "x IN ('5', LITERAL)"),
        *("x NOT IN ('a', LITERAL)", "x NOT IN (5, LITERAL)", "x IN (LITERAL, x)"),
        *("BOOL(x) = LITERAL", "x + LITERAL = 10", "CONCAT(x, LITERAL) = '55'"),
    ],
)
def test_comparisons_of_all_values(form: str) -> None:
    """Each in all four wrappings; if there is little time, in one after the other."""
    events = [{}, *({"x": value} for value in VALUES)]
    for number, literal in enumerate(LITERALS):
        text = form.replace("LITERAL", literal)
        wrapped = (text, f"NOT ({text})", f"({text}) OR true", f"NOT ({text} AND false)")
        for one in range(examples(len(wrapped))):
            check(wrapped[(number + one) % len(wrapped)], events)


@pytest.mark.parametrize("form", ["x", "NOT x", "x AND true", "BOOL(x)", "EXISTS x", "IS_INT(x)"])
def test_truth_of_all_values(form: str) -> None:
    for text in (form, f"NOT ({form})", f"NOT NOT ({form})", f"({form}) XOR true"):
        check(text, [{}, *({"x": value} for value in VALUES)])


@settings(max_examples=examples(300))
@given(st.one_of(st.text("ab5%_.\\", max_size=4), st.sampled_from(TEXTS), st.text("tru%_")))
def test_like(pattern: str) -> None:
    events = [{}, *({"x": value} for value in VALUES)]
    check(f"x LIKE {quoted(pattern)}", events)
    check(f"x NOT LIKE {quoted(pattern)}", events)


# --- several attributes -----------------------------------------------------------------------

NAMES = ("x", "y", "z")
EVENTS = [
    {name: value for name, value in zip(NAMES, values, strict=True) if value != "missing"}
    for values in product(("missing", "a", "b", 5, True, ["a"]), repeat=3)
]

names = st.sampled_from(NAMES)
exact = st.one_of(
    names.map("{} = 'a'".format),
    names.map("{} != 'b'".format),
    names.map("{} NOT IN ('a', 'c')".format),
    names.map("{} IN (5, 'a')".format),
    names.map("EXISTS {}".format),
    names.map("NOT EXISTS {}".format),
    names.map("{} = true".format),
    names.map("{} LIKE 'a%'".format),
    names,
    st.sampled_from(["true", "false", "1 / 0 = 1", "1", "'a'"]),
)
checked = st.one_of(
    exact,
    names.map("{} > 4".format),
    names.map("{} = 5".format),
    st.tuples(names, names).map("{0[0]} = {0[1]}".format),
    st.tuples(names, names).map("{0[0]} IN ('a', {0[1]})".format),
    st.tuples(names, names, names).map("({0[0]} = 'a' OR {0[1]} = 'b') = {0[2]}".format),
)


@st.composite
def expressions(draw: st.DrawFn, leaves: st.SearchStrategy[str], depth: int = 2) -> str:
    operator = draw(st.sampled_from([" AND ", " OR ", " XOR ", " OR "]))
    parts = []
    for _ in range(draw(st.integers(2, 3))):
        is_leaf = depth == 0 or draw(st.booleans())
        part = draw(leaves if is_leaf else expressions(leaves, depth - 1))
        negated = part != "1" and draw(st.integers(0, 3)) == 0
        parts.append(f"NOT ({part})" if negated else f"({part})")
    return operator.join(parts)


@settings(max_examples=examples(250))
@given(st.one_of(expressions(exact), expressions(checked)))
def test_logic_for_all_events(text: str) -> None:
    check(text, EVENTS)


@pytest.mark.parametrize("number", [2, 20, 60, 150])
def test_errors_among_very_many_attributes(number: int) -> None:
    attributes = [f"a{i}" for i in range(number)]
    both = " AND ".join(f"{name} = 'x'" for name in attributes)
    either = " OR ".join(f"{name} = 'x'" for name in attributes)
    several = " OR ".join(f"({name} = 'x' AND b{name} = 'y')" for name in attributes)
    full = dict.fromkeys(attributes, "x")
    events = [{}, full, dict.fromkeys(attributes, "z")]
    events += [event | {"a0": "z"} for event in events] + [{"a0": "x"}, {"a0": "x", "ba0": "y"}]
    events += [event | {"type": "x"} for event in events]
    for text in (both, either, several, f"NOT ({both})", f"NOT ({either})"):
        for whole in (text, f"({text}) OR type = 'x'", f"NOT (NOT ({text}) AND type = 'x')"):
            check(whole, events)
            check(f"({whole}) OR type = 'y' OR EXISTS type", events)


@settings(max_examples=examples(1000))
@given(st.text("abxNOTINLIKE'\"\\%_()=<>-+*/ ,5", max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    assert place_of_error(text) in range(len(text) + 1)


def place_of_error(text: str) -> int | None:
    try:
        translate(text)
    except FilterError as error:
        return error.position
    return 0
