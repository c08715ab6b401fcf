"""Trees as JSON, and the one form of what can be spelt in several ways."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sql_reader import read

from boxmatch.model.expressions.functions import FUNCTIONS, call
from boxmatch.model.expressions.nodes import (
    INT,
    NULL,
    Column,
    ExpressionError,
    Literal,
    columns_of,
    from_json,
    to_json,
)
from boxmatch.model.expressions.rendering import render
from expression_examples import COLUMNS, KINDS, Examples
from property_examples import examples


def plain(name: str) -> str:
    return name


@settings(deadline=None, max_examples=examples(500))
@given(st.integers(0, 2**32), st.sampled_from(KINDS), st.integers(0, 4))
def test_texts_are_read_back(seed: int, kind: str, depth: int) -> None:
    node = Examples(Random(seed)).expression(kind, depth)
    assert from_json(to_json(node)) == node
    assert read(render(node, plain), COLUMNS) == node


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("i > j", "j < i"),
        ("i >= 5", "5 <= i"),
        ("i <> j", "NOT j = i"),
        ("NOT i < j", "j <= i"),
        ("NOT NOT b", "b"),
        ("i + j", "j + i"),
        ("i * 2", "2 * i"),
        ("b AND (c AND i = 1)", "(1 = i AND c) AND b"),
        ("b AND b", "b"),
        ("b AND TRUE", "b"),
        ("b OR TRUE", "TRUE"),
        ("b AND FALSE", "FALSE"),
        ("i <=> j", "j <=> i"),
        ("d = 5", "d = 5.000"),
        ("d < 5.5", "d < 5.50"),
        (f"e = {'9' * 28}.{'9' * 10}", f"CAST('{'9' * 28}.{'9' * 10}' AS DECIMAL(38, 10)) = e"),
        ("i IN (3, 1, 1)", "i IN (1, 3)"),
        ("i IN (1)", "i = 1"),
        ("i IN (1, j)", "j = i OR i = 1"),
        ("CONCAT(s, CONCAT('a', 'b', r))", "CONCAT(s, 'a', CONCAT('b', r))"),
        ("CONCAT(s, '')", "s"),
        ("1 + 2 * 3", "7"),
        ("CAST(i AS BIGINT)", "i"),
        ("- - f", "f"),
        ("s LIKE 'abc%'", "STARTS_WITH(s, 'abc')"),
        ("s LIKE '%abc'", "ENDS_WITH(s, 'abc')"),
        ("s LIKE '%a%'", "CONTAINS(s, 'a')"),
        ("s LIKE 'a\\_b'", "s = 'a_b'"),
        ("LEFT(s, 2)", "SUBSTRING(s, 1, 2)"),
        ("IF(b, i, j)", "CASE WHEN b THEN i ELSE j END"),
        ("NULLIF(i, j)", "CASE WHEN i = j THEN NULL ELSE i END"),
        ("CASE WHEN FALSE THEN 1 WHEN b THEN i END", "IF(b, i, NULL)"),
        ("COALESCE(NULL, i, NULL, 3, j)", "COALESCE(i, 3)"),
        ("i + NULL", "CAST(NULL AS BIGINT)"),
        ("HOUR(t, 'UTC')", "HOUR(t)"),
        ("DATE_TRUNC('day', t)", "DATE_TRUNC('DAY', t)"),
        ("t > '2024-01-01'", "TIMESTAMP '2024-01-01 00:00:00' < t"),
        ("INTERVAL '1' DAY + t", "t + INTERVAL '24' HOUR"),
        ("9223372036854775807 + 1", "CAST(NULL AS BIGINT)"),
    ],
)
def test_one_form(one: str, other: str) -> None:
    assert read(one, COLUMNS) == read(other, COLUMNS)


def test_different_forms() -> None:
    """What differs for NULL."""
    assert read("b IS FALSE", COLUMNS) != read("NOT b IS TRUE", COLUMNS)
    assert read("i = j", COLUMNS) != read("i <=> j", COLUMNS)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("5 < i", "i > 5"),
        ("(i + j) * 2 - (i - j)", "(i + j) * 2 - (i - j)"),
        ("NOT (b AND c) OR b", "b OR NOT (b AND c)"),
        ("f * 2", "f * 2e0"),
        ("d * 2", "d * 2"),
        ("s IS NOT NULL AND s NOT LIKE 'a_'", "s IS NOT NULL AND s NOT LIKE 'a_'"),
        ("r = 'it''s'", "r = 'it''s'"),
        ("t - INTERVAL '-90' SECOND", "t - INTERVAL '-90' SECOND"),
        ("t + INTERVAL '24' MONTH", "t + INTERVAL '2' YEAR"),
        ("HOUR(t, 'Europe/Berlin') < 9", "HOUR(t, 'Europe/Berlin') < 9"),
        ("EXISTS(items, x -> x.price > 5e0)", "EXISTS(items, x -> x.price > 5e0)"),
        ("(b = c) IS TRUE", "(b = c) IS TRUE"),
        ("b IS FALSE", "b IS FALSE"),
        ("-(i + j)", "-(i + j)"),
        ("d IN (1.5, 2)", "d IN (1.50, 2.00)"),
    ],
)
def test_rendering(text: str, rendered: str) -> None:
    assert render(read(text, COLUMNS), plain) == rendered


def test_names_are_quoted() -> None:
    node = call("<", Column("my name", INT), Literal(3, INT))
    assert render(node, lambda name: f'"{name}"') == '"my name" < 3'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("LENGTH(i)", "LENGTH takes a string, not an int"),
        ("LENGTH(s, r)", "LENGTH takes 1 argument, not 2"),
        ("SUBSTRING(s)", "SUBSTRING takes 2 to 3 arguments, not 1"),
        ("NOSUCH(i)", "there is no function NOSUCH"),
        ("i + b", r"\+ does not go with an int and a bool"),
        ("s + r", r"\+ does not go with a string and a string"),
        ("f DIV 2", "DIV takes ints and decimals, not a float"),
        ("b < t", "a bool and a timestamp do not go together"),
        ("CAST(t AS BOOLEAN)", "a timestamp cannot be cast to a bool"),
        ("s RLIKE r", "RLIKE takes a string that is a constant"),
        ("s RLIKE '(a'", r"no valid regular expression: missing \)"),
        (r"s LIKE 'a\'", "ends in its escape character"),
        ("HOUR(t, 'Mars/Base')", "there is no time zone 'Mars/Base'"),
        ("DATE_TRUNC('EON', t)", "'EON' is no unit of time: YEAR"),
        ("ROUND(f, i)", "ROUND takes a number of digits that is a constant int"),
        ("EXISTS(items, x -> x.colour = 'red')", "there is no field 'colour'; there are price"),
        ("EXISTS(numbers, x -> x + 1)", "EXISTS takes a condition, not an int"),
        ("items = items", "= cannot compare a list of struct"),
    ],
)
def test_errors(text: str, reason: str) -> None:
    with pytest.raises(ExpressionError, match=reason):
        read(text, COLUMNS)


def test_lists_have_elements() -> None:
    with pytest.raises(ExpressionError, match="EXISTS takes a list, not an int"):
        call("exists", Column("i", INT), Literal(None, NULL))


def test_patterns_have_an_end() -> None:
    text = Column("s", COLUMNS["s"])
    with pytest.raises(ExpressionError, match="at most 10,000 characters"):
        call("rlike", text, Literal("a" * 10_001, COLUMNS["s"]))
    with pytest.raises(ExpressionError, match="pattern too large"):
        call("rlike", text, Literal(r"(?:\pL{30}){30}", COLUMNS["s"]))


def test_columns() -> None:
    node = read("EXISTS(items, x -> x.quantity > i) AND s = 'a'", COLUMNS)
    assert columns_of(node) == {"items", "i", "s"}


def test_functions_are_known() -> None:
    assert {"length", "+", "cast", "exists", "date_trunc", "<>", "nullif"} <= FUNCTIONS
