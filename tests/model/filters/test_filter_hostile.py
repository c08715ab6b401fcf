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
    | {"side": ["buy", "sell"]}
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
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_no_text_takes_long(text: str) -> None:
    assert len(text) <= LIMIT
    start = time.process_time()
    check(text)
    assert time.process_time() - start < SECONDS


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
