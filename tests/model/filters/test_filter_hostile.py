"""Filter texts from anybody: every one is compiled or refused in its place, soon and silently."""

from __future__ import annotations

import logging
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from boxmatch.errors import FilterError, FilterSyntaxError, FilterTooLargeError
from boxmatch.model.filters import CompiledFilter, compile_filter
from boxmatch.model.schema import Schema

SCHEMA = Schema(
    {"price": "float", "size": "int", "symbol": "string", "ok": "bool", "at": "timestamp"}
    | {"side": ["buy", "sell"], "cost": "decimal(38, 10)", "tags": "list of string"}
    | {"sizes": "list of int"}
    | {f"a{i}": "int" for i in range(100)}
)
LIMIT = 64 * 1024
SECONDS = 5.0
"""It is about half of one on a machine with nothing else to do."""


def check(text: str) -> None:
    try:
        assert isinstance(compile_filter(SCHEMA, text), CompiledFilter)
        return
    except FilterError as error:
        refused = error
    assert refused.text == text
    assert refused.position is not None
    assert 0 <= refused.position <= len(text)


def _parser_words() -> list[str]:
    """Every keyword and function that the parser gives a meaning of its own."""
    from sqlglot.parser import Parser
    from sqlglot.tokens import Tokenizer

    functions = {*Parser.FUNCTIONS, *Parser.FUNCTION_PARSERS, *Parser.NO_PAREN_FUNCTION_PARSERS}
    return sorted(functions | set(Tokenizer.KEYWORDS))


_words = st.one_of(
    st.sampled_from(
        ["price", "size", "symbol", "ok", "at", "side", "colour", '"price"', "price.x", "*", "?"]
    ),
    st.sampled_from(["<", "<=", "=", "<>", "!=", ">", ">=", "+", "-", "/", "||", "->", "::", "%"]),
    st.sampled_from(
        ["AND", "OR", "NOT", "IN", "BETWEEN", "LIKE", "IS", "NULL", "TRUE", "FALSE", "ELSE", "CASE",
         "WHEN", "THEN", "END", "SELECT", "FROM", "EXISTS", "INTERVAL", "CAST", "AS", "DATE",
         "TIMESTAMP", "ESCAPE", "COLLATE", "OVER", "ANY", "ALL", "DISTINCT"]
    ),
    st.sampled_from(
        ["1", "-1", "1.5", "1e999", "'x'", "'x%'", "''", "'2024-01-01'", "0x1F", "b'1'", "N'x'",
         "'", '"', "$1", "@a", ":b"]
    ),
    st.sampled_from(["(", ")", "(", ")", ",", "[", "]", "{", "}", ";", "--", "/*", "*/", "\n"]),
    st.sampled_from(_parser_words()),
)  # fmt: skip
_calls = st.builds(
    lambda name, arguments: f"{name}({', '.join(arguments)})",
    st.sampled_from(_parser_words()),
    st.lists(st.sampled_from(["1", "price", "'x'", "NULL", "*", "ok = 1"]), max_size=4),
)
_texts = st.lists(_words | _calls, max_size=15).map(" ".join) | st.text(max_size=60)


def _examples(count: int) -> settings:
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@_examples(300)
@given(_texts)
@example("ELSE")
@example("ok AND VAR_MAP(1)")
@example("ok;")
@example(";")
def test_any_text_is_compiled_or_refused_in_its_place(text: str) -> None:
    check(text)


@pytest.mark.slow
@_examples(20_000)
@given(_texts)
def test_any_text_many_times(text: str) -> None:
    check(text)


@pytest.mark.slow
@pytest.mark.parametrize("arguments", ["", "1", "price", "1, 2", "1, 2, 3", "'x'", "*", "NULL"])
def test_every_word_as_a_function(arguments: str) -> None:
    for word in _parser_words():
        for text in (f"{word}({arguments})", f"ok AND {word}({arguments}) = 1"):
            check(text)


def test_words_that_the_parser_stumbles_over() -> None:
    with pytest.raises(FilterSyntaxError, match="unexpected ELSE") as caught:
        compile_filter(SCHEMA, " ELSE")
    assert caught.value.position == 1
    with pytest.raises(FilterSyntaxError, match="not understood") as caught:
        compile_filter(SCHEMA, "ok AND VAR_MAP(1)")
    assert caught.value.position == 16


@pytest.mark.parametrize(
    "text",
    ["CALL secret(1)", "ok AND CREATE secret", "symbol -> '$[secret'", "size = ANALYZE secret x",
     "COMMENT ON secret", "SHOW secret now"],
)  # fmt: skip
def test_the_parser_is_silent(
    text: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(FilterError):
        compile_filter(SCHEMA, text)
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")


def test_what_others_parse_is_still_logged(caplog: pytest.LogCaptureFixture) -> None:
    import sqlglot

    compile_filter(SCHEMA, "ok OR FALSE")
    sqlglot.parse("SHOW tables now")
    assert "unsupported syntax" in caplog.text


def joined(separator: str, pattern: str, count: int = LIMIT) -> str:
    """The pattern with 0, 1, 2 … in it, as often as fits."""
    parts: list[str] = []
    size = 0
    for n in range(count):
        part = pattern.format(n, n % 100, (7 * n + 1) % 100)
        size += len(part) + len(separator)
        if size > LIMIT - 100:
            break
        parts.append(part)
    return separator.join(parts)


LONG = {
    "alternatives": joined(" AND ", "(price < {0} OR size > {0})"),
    "three alternatives": joined(" AND ", "(price < {0} OR size > {0} OR a1 = {0})"),
    "many attributes": joined(" AND ", "(a{1} < {0} OR a{2} > {0})"),
    "unequal": joined(" AND ", "(a{1} <> {0} OR a{2} <> {0})"),
    "boxes": joined(" OR ", "(a{1} < {0} AND a{2} > {0})"),
    "thousand boxes": joined(" OR ", "(a{1} = {0} AND a{2} > {0})", 1000),
    "thousand values": joined(" OR ", "a{1} = {0}", 1000),
    "steps": joined(" OR ", "(price > {0} AND size < {0})", 1000),
    "negated steps": f"NOT ({joined(' OR ', '(price > {0} AND size < {0})')})",
    "or": joined(" OR ", "ok"),
    "and": joined(" AND ", "size <> {0}"),
    "nulls": f"size IN ({joined(',', 'NULL')})",
    "truths": f"ok IN ({joined(',', 'TRUE')})",
    "dates": f"at IN ({joined(',', chr(68) + 'ATE ' + repr('2024-01-01'))})",
    "numbers": f"size IN ({joined(',', '1')})",
    "sum": "size = " + joined("+", "1"),
    "differences": "size" + " - size" * 5_000 + " = 1",
    "concatenation": joined(" || ", "symbol") + " = 'a'",
    "case": f"CASE {joined(' ', 'WHEN size = {0} THEN {0}')} END = 1",
    "coalesce": f"COALESCE({joined(', ', 'size + {0}')}) = 1",
    "greatest": f"GREATEST({joined(', ', 'size + {0}')}) = 1",
    "different expressions": joined(" OR ", "size + {0} = 1"),
    "alternatives of expressions": joined(" AND ", "(size + {0} > 1 OR size * {0} > 2)", 60),
    "alternatives of elements": joined(" AND ", "({0} = ANY(sizes) OR price = {0})"),
    "elements": joined(" AND ", "ANY(sizes) = {0}"),
    "no elements": joined(" OR ", "NOT ANY(sizes) = {0}"),
    "needles": joined(" OR ", "symbol LIKE '%a{0}%'"),
    "needles and": joined(" AND ", "symbol LIKE '%a{0}%'"),
    "regular expressions": joined(" OR ", "symbol RLIKE 'a.{0}'"),
    "bodies": f"EXISTS(sizes, x -> {joined(' OR ', 'x = {0} AND x <> {0}')})",
    "values of an expression": f"size + 1 IN ({joined(',', '{0}')})",
    "values in an expression": f"CASE WHEN size IN ({joined(',', '{0}')}) THEN 1 END = 1",
    "percent signs": f"symbol LIKE '{'%a' * 30_000}'",
    "underscores": f"symbol LIKE '{'_' * 60_000}'",
    "underscores of an enum": f"side LIKE '{'_' * 60_000}'",
    "long needle": f"symbol LIKE '%{'a' * 60_000}%'",
    "catastrophic": "symbol RLIKE '(a+)+(a|aa)+$' AND symbol RLIKE '(x*)*y'",
    "groups": f"symbol RLIKE '{'(' * 4_000}a{')' * 4_000}'",
    "repetitions": "symbol RLIKE '((a{100}){100}){100}'",
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_no_text_takes_long(text: str) -> None:
    assert len(text) <= LIMIT
    start = time.process_time()
    check(text)
    assert time.process_time() - start < SECONDS


def test_a_megabyte_in_quotes_takes_no_longer() -> None:
    start = time.process_time()
    check(f"symbol LIKE '%{'a' * 900_000}%'")
    assert time.process_time() - start < SECONDS


ODD = [
    *("at + INTERVAL '99999999999999999999' DAY > at", "at + INTERVAL 'NaN' DAY > at"),
    *("at + INTERVAL '9223372036854775807' MICROSECOND > at", "at + INTERVAL '1e9' DAY > at"),
    *("at - INTERVAL '99999999999' YEAR < at", "at + INTERVAL '0.0000000001' SECOND > at"),
    *("CAST(symbol AS DECIMAL(99, 2)) > 1", "CAST(symbol AS DECIMAL(5, 9)) > 1"),
    *("CAST(symbol AS DECIMAL(0)) > 1", "CAST(symbol AS DECIMAL(99999999999999999999)) > 1"),
    *("CAST(symbol AS DECIMAL(5, 2, 3)) > 1", "CAST(symbol AS DECIMAL('a')) = 1"),
    *("cost * 1e400 > 1", f"cost + {'9' * 60} > 1", f"cost + {'9' * 60_000} > 1"),
    *("TIMESTAMP '292278994-08-17 07:12:55.807' < at", "DATE '99999-01-01' < at"),
    *("DATE_TRUNC('YEAR', TIMESTAMP '-290308-01-01 00:00:00') < at", "DATE() < at"),
    *("symbol LIKE '%\ud800%'", "symbol RLIKE '\ud800'", "symbol || '\ud800' = 'a'"),
    *("COALESCE(symbol, '\udfff') = 'x'", "EXISTS(tags, \ud800 -> TRUE)", "symbol LIKE '\0%'"),
    *("CONTAINS(symbol, '\ud800')", "symbol ILIKE 'İΣß%' ESCAPE 'İ'", "side ILIKE '\ud800'"),
    *("POWER(1e300, 1e300) > price", "1 / 0 > size", "5 % 0 > size", "SQRT(-1) > price"),
    *("ROUND(price, 999999999999) = 1", "ROUND(cost, -999999999) = 1", "sizes[1.5] = 1"),
    *("SUBSTRING(symbol, 9223372036854775807, 9223372036854775807) = 'a'", "sizes[] = 1"),
    *("ELEMENT_AT(sizes, 9223372036854775807) = 1", "sizes[9223372036854775807] = 1"),
    *("ANY(ANY(sizes)) = 1", "ANY(sizes) = ANY(sizes)", "ALL() = 1", "EXISTS() = 1", "ANY() = 1"),
]


@pytest.mark.parametrize("text", ODD, ids=[ascii(text)[:60] for text in ODD])
def test_odd_constants_are_taken_or_refused(text: str) -> None:
    check(text)


def test_casts_to_decimals_are_taken() -> None:
    assert compile_filter(SCHEMA, "CAST(symbol AS DECIMAL(5, 2)) > 1").axes


@pytest.mark.parametrize("depth", [3, 30, 100])
def test_functions_of_elements_are_not_nested_for_ever(depth: int) -> None:
    start = "".join(f"EXISTS(sizes, v{i} -> " for i in range(depth))
    with pytest.raises(FilterTooLargeError):
        compile_filter(SCHEMA, f"{start}v0 > 1{')' * depth}")


def test_alternatives_that_are_not_too_many() -> None:
    steps = joined(" AND ", "(price < {0} OR size > {0})", 250)
    assert len(compile_filter(SCHEMA, steps).boxes) == 251
    boxes = compile_filter(SCHEMA, LONG["steps"])
    assert (len(boxes.boxes), boxes.disjoint) == (1000, True)


@pytest.mark.parametrize(
    "text",
    ["(" * 5000 + "ok" + ")" * 5000, "(" * 100 + "ok" + ")" * 100, "@" * 5000, "NOT " * 5000 + "ok",
     "EXISTS (SELECT 1 FROM a" + " JOIN a" * 3000 + ")", "at > " + "INTERVAL " * 3000 + "'1' day"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_depth_is_refused_in_its_place(text: str) -> None:
    with pytest.raises(FilterTooLargeError, match="nested too deeply") as caught:
        compile_filter(SCHEMA, text)
    assert caught.value.position in range(len(text))


@pytest.mark.parametrize(
    "text",
    [
        "length(" + "replace(" * 30 + "symbol" + ", 'a', 'aaaaaaaaaa')" * 30 + ") > 3",
        "length(" + "replace(" * 30 + "'a'" + ", 'a', 'aaaaaaaaaa')" * 30 + ") > 3",
        "symbol" + " || symbol" * 6_000 + " = 'x'",
        f"replace(symbol, 'a', '{'x' * 10_000}') = 'x'",
        "replace(symbol, 'a', symbol) = 'x'",
    ],
    ids=lambda text: text[:24],
)
def test_texts_do_not_grow_without_end(text: str) -> None:
    with pytest.raises(FilterError, match=r"too long|not constant") as caught:
        compile_filter(SCHEMA, text)
    assert caught.value.position in range(len(text))


def test_texts_that_grow_a_little() -> None:
    escaped = "symbol"
    for sign, name in (("&", "amp"), ("<", "lt"), (">", "gt"), ('"', "quot")):
        escaped = f"replace({escaped}, '{sign}', '&{name};')"
    assert compile_filter(SCHEMA, f"{escaped} = 'a &amp; b'").boxes
    assert compile_filter(SCHEMA, "symbol" + " || '-' || symbol" * 100 + " = 'x'").boxes
