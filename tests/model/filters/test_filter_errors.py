"""What is refused: the kind of error, what it says, and the place it points at."""

from __future__ import annotations

import datetime
import math
import time
from typing import Any

import pytest

from boxmatch.errors import (
    AttributeValueError,
    FilterError,
    FilterSyntaxError,
    FilterTooLargeError,
    UnknownAttributeError,
    UnsupportedFilterError,
)
from boxmatch.model.filters import compile_filter, compile_many
from boxmatch.model.schema import Schema

SCHEMA = Schema(
    {
        "symbol": "string",
        "price": "float",
        "volume": "int",
        "halted": "bool",
        "at": "timestamp",
        "side": ["buy", "sell"],
        "current_date": "int",
        "tags": "list of string",
        "sizes": "list of int",
        "items": {"type": "list of struct", "fields": {"price": "float", "kind": "string"}},
    }
)

# Text with ^ before the place that the error has to point at, and a part of the message.
UNSUPPORTED = [
    ("volume = 1 OR ^my_function(price) > 3", "the function MY_FUNCTION()"),
    ("volume = 1 AND ^levenshtein(symbol, 'a') = 1", "the function LEVENSHTEIN()"),
    ("^flor(price) = 1", "did you mean FLOOR"),
    ("at > ^current_timestamp", "the function CURRENT_TIMESTAMP()"),
    ("at > ^now()", "the function NOW()"),
    ("^rand() < 0.5", "the function RAND()"),
    ("^uuid() = symbol", "the function UUID()"),
    ("^current_date = 3", "put it in double quotes"),
    ("volume IN (^SELECT 1)", "a subquery"),
    ("volume = (^SELECT 1)", "a subquery"),
    ("volume + (^SELECT 1) > 2", "a subquery"),
    ("volume = 1 AND EXISTS (^SELECT 1)", "a subquery"),
    ("^symbol SIMILAR TO 'a'", "SIMILAR TO"),
    ("^volume IS 3", "IS with anything but NULL"),
    ("^volume BETWEEN SYMMETRIC 5 AND 1", "BETWEEN SYMMETRIC"),
    ("volume = 1 OR ^3", "a constant as a condition"),
    ("(^volume, price) = (1, 2)", "a list of expressions"),
    ("volume = ^?", "a parameter"),
    ("^volume IN ()", "IN without a list"),
    ("^CAST(volume AS BLOB) = 1", "CAST to VARBINARY"),
    ("^EXTRACT(epoch FROM at) = 1", "EXTRACT of EPOCH"),
    ("at > at + ^INTERVAL 'a' day", "INTERVAL"),
    ("at > at + ^INTERVAL '1' fortnight", "an INTERVAL of FORTNIGHT"),
    ("^REGEXP_LIKE(symbol, 'a', 'i')", "write them into the pattern"),
    ("^symbol COLLATE \"de\" = 'a'", "COLLATE DE"),
    ("volume = 1 AND ^ANY(tags) IS NULL", "ANY of anything but a comparison"),
    ("^EXISTS(tags)", "EXISTS"),
]

WRONG_VALUES = [
    ("^3 < price < 5", "write 3 < price AND price < 5"),
    ("NOT ^price >= volume > -3", "write price >= volume AND volume > -3"),
    ("^price = volume = 3", "write price = volume AND volume = 3"),
    ("^1 < volume + 1 <= price", "write 1 < volume + 1 AND volume + 1 <= price"),
    (f"^price < {' + '.join(['volume'] * 99)} < 5", "write a < b AND b < c"),
    ("volume = ^'5'", "'5' is not an int"),
    ("volume = ^TRUE", "True is not an int"),
    ("volume IN (1, ^'x')", "'x' is not an int"),
    ("FALSE AND volume = ^'x'", "'x' is not an int"),
    ("price BETWEEN 1 AND ^'x'", "'x' is not a float"),
    ("symbol = ^5", "5 is a number, not a string"),
    ("symbol = ^DATE '2024-01-01'", "not a string"),
    ("symbol = ^TRUE", "True is not a string"),
    ("halted = ^1", "1 is not a bool"),
    ("side = ^'hold'", "'hold' is not one of 'buy', 'sell'"),
    ("at > ^5", "is not a timestamp"),
    ("at > ^'yesterday'", "is not a timestamp"),
    ("at > DATE ^'2024-01-01 10:00'", "is not a date"),
    ("at > ^'999999999-01-01 00:00:00'", "is not a timestamp"),
    ("volume = ^DATE '2024-01-01'", "is a timestamp"),
    ("^price", "'price' is a float"),
    ("halted AND NOT ^volume", "'volume' is an int"),
    ("^volume IS TRUE", "'volume' is an int"),
    ("^volume LIKE 'a%'", "LIKE needs a string"),
    ("^volume + 1 LIKE 'a%'", "LIKE needs a string"),
    ("^volume RLIKE 'a'", "RLIKE needs a string"),
    ("symbol LIKE ^5", "LIKE needs a quoted pattern"),
    ("symbol LIKE ^'a\\'", "ends in its escape character"),
    ("^symbol LIKE volume", "LIKE takes a string, not an int"),
    ("^symbol LIKE 'a' ESCAPE 'ab'", "ESCAPE needs one character"),
    ("^symbol LIKE 'a' ESCAPE ''", "ESCAPE needs one character"),
    ("symbol RLIKE ^'('", "no valid regular expression"),
    ("symbol RLIKE ^'(?=a)'", "no valid regular expression"),
    ("symbol RLIKE ^'a{1000}{1000}'", "no valid regular expression"),
    ("^symbol RLIKE lower(symbol)", "RLIKE needs a quoted pattern"),
    ("^volume + 1", "this is an int and not a condition"),
    ("halted AND ^lower(symbol)", "this is a string and not a condition"),
    ("volume + 1 = ^'x'", "'x' is not an int"),
    ("lower(symbol) = ^5", "5 is a number, not a string"),
    ("^length(volume) = 1", "LENGTH takes a string, not an int"),
    ("volume = 1 AND ^at + 1 > at", "+ does not go with a timestamp and an int"),
    ("^at > INTERVAL '1' day", "an interval and a timestamp do not go together"),
    ("^symbol = at - at", "do not go together"),
    ("^round(price, volume) = 1", "ROUND takes a number of digits"),
    ("^date_trunc('parsec', at) = at", "no unit of time"),
    ("^CASE WHEN volume THEN 1 END = 1", "CASE takes a bool, not an int"),
    ("^tags = 'a'", "compare ANY(tags) or ALL(tags)"),
    ("^tags LIKE 'a'", "compare ANY(tags) or ALL(tags)"),
    ("^tags = ARRAY['a']", "cannot compare a list of string"),
    ("ANY(^symbol) = 'a'", "'symbol' is a string, not a list of values"),
    ("5 = ANY(^volume)", "'volume' is an int, not a list of values"),
    ("ANY(^items) = 1", "write EXISTS("),
    ("ANY(tags) = ^5", "5 is a number, not a string"),
    ("ARRAY_CONTAINS(sizes, ^'x')", "'x' is not an int"),
    ("^CARDINALITY(volume) = 1", "CARDINALITY takes a list"),
    ("^EXISTS(volume, i -> i > 1)", "EXISTS needs a list, not an int"),
    ("^EXISTS(sizes, i -> i + 1)", "EXISTS takes a condition, not an int"),
    ("EXISTS(sizes, i -> ^i.price > 1)", "an int has no fields"),
    ("EXISTS(items, i -> ^i.weight > 1)", "there is no field 'weight'; there are price, kind"),
    ("EXISTS(items, i -> ^i > 1)", "do not go together"),
]

SYNTAX = [
    ("^WHERE", "unexpected WHERE"),
    ("volume = 1 ^WHERE price = 2", "unexpected WHERE"),
    ("^", "empty"),
    ("^   ", "empty"),
    ("volume ^=", "incomplete"),
    ("volume = 1 ^AND", "incomplete"),
    ("volume = 1 ^price", "unexpected price"),
    ("volume = 1^)", "unexpected )"),
    ("(volume = ^1", "expected )"),
    ("volume = 1^; price = 2", "one condition"),
    ("^SELECT 1", "unexpected SELECT"),
    ("volume = ^'a", "not closed"),
    ("symbol = 'a' AND ^\"price > 1", "not closed"),
    ("volume = 0^x1F", "unexpected x1F"),
    ("symbol\n  = 'a'\n  ^oops", "unexpected oops"),
]

UNKNOWN = [
    ("^prize > 3", "did you mean 'price'"),
    ("symbol = ^IBM", "no attribute 'IBM'; text goes into single quotes: 'IBM'"),
    ('^"PRICE" > 3', "did you mean 'price'"),
    ('symbol = ^"IBM"', "single quotes hold text"),
    ("volume = 1 AND ^nothing.like = 1", "'nothing.like'"),
    ("volume < ^prise + 1", "did you mean 'price'"),
    ("^items.price > 1", "'items' is a list: EXISTS(items, i -> i.price …)"),
    ("EXISTS(items, i -> ^j.price > 1)", "no attribute 'j.price'"),
    ("EXISTS(^itms, i -> i.price > 1)", "did you mean 'items'"),
]


@pytest.mark.parametrize(
    ("kind", "marked", "message"),
    [
        *((UnsupportedFilterError, *case) for case in UNSUPPORTED),
        *((FilterError, *case) for case in WRONG_VALUES),
        *((FilterSyntaxError, *case) for case in SYNTAX),
        *((UnknownAttributeError, *case) for case in UNKNOWN),
    ],
    ids=lambda case: case[:40] if isinstance(case, str) else None,
)
def test_error_names_the_trouble_and_its_place(
    kind: type[FilterError], marked: str, message: str
) -> None:
    position, text = marked.index("^"), marked.replace("^", "", 1)
    if text.startswith("DATE '", position):
        position += len("DATE ")  # a typed constant is where its text is
    for _ in range(2):  # the second time through a warm cache
        with pytest.raises(FilterError) as caught:
            compile_filter(SCHEMA, text)
        assert type(caught.value) is kind
        assert message in str(caught.value)
        assert caught.value.position == position
        assert caught.value.text == text


@pytest.mark.parametrize("text", [text.replace("^", "", 1) for text, _ in UNSUPPORTED])
def test_error_says_what_is_supported(text: str) -> None:
    with pytest.raises(UnsupportedFilterError, match="supported"):
        compile_filter(SCHEMA, text)


def test_names_that_are_words_of_sql() -> None:
    schema = Schema({"when": "int", "volume": "int"})
    hint = 'when is a word of SQL, as a name it is written "when"'
    with pytest.raises(FilterSyntaxError, match=hint) as caught:
        compile_filter(schema, "volume > 1 AND when > 3")
    assert caught.value.position == 15
    assert compile_filter(schema, 'volume > 1 AND "when" > 3').boxes
    for text in ("volume > 1 when_ever", "'when' volume", '"when" volume'):
        with pytest.raises(FilterSyntaxError) as caught:
            compile_filter(schema, text)
        assert hint not in str(caught.value)


def test_the_digits_of_a_cast_to_decimal() -> None:
    [axis] = compile_filter(SCHEMA, "CAST(symbol AS DECIMAL(38, 2)) > 1").axes
    assert (axis.attribute.precision, axis.attribute.scale) == (38, 2)
    for digits in ("(0)", "(39, 2)", "(5, 6)"):
        with pytest.raises(FilterError, match="is not possible"):
            compile_filter(SCHEMA, f"CAST(symbol AS DECIMAL{digits}) > 1")


def test_a_wrong_value_keeps_attribute_and_value() -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(SCHEMA, "price > 3 AND volume = TRUE")
    cause = caught.value.__cause__
    assert isinstance(cause, AttributeValueError)
    assert (cause.attribute, cause.value) == ("volume", True)


@pytest.mark.parametrize(
    ("wanted", "kind", "message"),
    [
        ({"prize": 1}, UnknownAttributeError, "did you mean 'price'"),
        ({5: 1}, UnknownAttributeError, "5"),
        ({"volume": "1.5"}, FilterError, "attribute 'volume': '1.5' is not an int"),
        ({"volume": True}, FilterError, "True is not an int"),
        ({"volume": (1, "x")}, FilterError, "'x' is not an int"),
        ({"volume": (1, 2, 3)}, FilterError, "'volume': (1, 2, 3) is not a range"),
        ({"volume": [1, "x"]}, FilterError, "'x' is not an int"),
        ({"price": math.nan}, FilterError, "no place in an order"),
        ({"price": (1, math.nan)}, FilterError, "no place in an order"),
        ({"price": [math.nan]}, FilterError, "no place in an order"),
        ({"symbol": 5}, FilterError, "5 is not a string"),
        ({"symbol": ("a", 5)}, FilterError, "5 is not a string"),
        ({"symbol": "\ud800"}, FilterError, "lone surrogate"),
        ({"symbol": ["\ud800"]}, FilterError, "lone surrogate"),
        ({"side": "hold"}, FilterError, "is not one of 'buy', 'sell'"),
        ({"at": 5}, FilterError, "is not a timestamp"),
        ({"volume": {"low": "x"}}, FilterError, "'x' is not an int"),
        ({"volume": {}}, FilterError, "'volume': {} is not a range: that is (low, high), or {"),
        ({"volume": {"low_open": True}}, FilterError, "is not a range"),
        ({"volume": {"low": 1, "top": 2}}, FilterError, "{'low': 1, 'top': 2} is not a range"),
        ({"volume": {"low": 1, "low_open": 1}}, FilterError, "True or False of an open end"),
        ({"volume": [1], "price": {"lo": 1}}, FilterError, "'price': {'lo': 1} is not a range"),
        ({"price": {"low": math.nan}}, FilterError, "no place in an order"),
        (5, FilterError, "SQL text or a dict, not int"),
        (None, FilterError, "there is no filter"),
    ],
)
def test_dict_error_names_attribute_and_value(
    wanted: Any, kind: type[FilterError], message: str
) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(SCHEMA, wanted)
    assert type(caught.value) is kind
    assert message in str(caught.value)


def test_a_dict_that_never_matches_still_has_its_values_checked() -> None:
    with pytest.raises(FilterError, match="not an int"):
        compile_filter(SCHEMA, {"price": (2, 1), "volume": "x"})
    assert compile_filter(SCHEMA, {"price": (2, 1)}).never


def test_dicts_take_dates_and_datetimes() -> None:
    day = datetime.date(2024, 3, 1)
    noon = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
    assert compile_filter(SCHEMA, {"at": (day, noon)}) == compile_filter(
        SCHEMA, "at BETWEEN '2024-03-01' AND '2024-03-01T12:00:00Z'"
    )


def test_the_row_of_a_bad_filter_is_named() -> None:
    good = "volume = 1"
    assert len(compile_many(SCHEMA, [good, {"volume": 1}])[0]) == 2
    with pytest.raises(
        UnknownAttributeError, match="row 2: there is no attribute 'nope'"
    ) as caught:
        compile_many(SCHEMA, [good, {"volume": 1}, "volume = 1 AND nope = 1"])
    assert caught.value.position == 15


# --- size --------------------------------------------------------------------------------------


def test_boxes_are_limited() -> None:
    names = ", ".join(f"'{i}'" for i in range(1025))
    with pytest.raises(FilterTooLargeError, match="at most 1024"):
        compile_filter(SCHEMA, f"symbol IN ({names})")
    assert len(compile_filter(SCHEMA, f"symbol IN ({names})", max_boxes=1025).boxes) == 1025
    assert len(compile_filter(SCHEMA, {"symbol": ["a", "b"]}, max_boxes=2).boxes) == 2
    with pytest.raises(FilterTooLargeError):
        compile_filter(SCHEMA, {"symbol": ["a", "b"]}, max_boxes=1)
    with pytest.raises(FilterTooLargeError, match=r"at most 1 are allowed \(max_boxes\)"):
        compile_filter(SCHEMA, {"symbol": ["a", "b"]}, max_boxes=1)
    with pytest.raises(ValueError, match="max_boxes"):
        compile_filter(SCHEMA, "TRUE", max_boxes=0)


def test_what_merges_is_not_counted() -> None:
    text = " OR ".join(f"volume = {i}" for i in range(5000))
    assert len(compile_filter(SCHEMA, text, max_boxes=1).boxes) == 1
    text = "(volume = 1 OR price = 1) AND (volume = 1 OR price = 1)"
    assert len(compile_filter(SCHEMA, text, max_boxes=2).boxes) == 2


def test_exponential_filters_fail_fast() -> None:
    schema = Schema({f"a{i}": "int" for i in range(60)})
    text = " AND ".join(f"(a{i} = 1 OR a{i + 1} = 2)" for i in range(0, 60, 2))
    listed = " AND ".join(
        "(" + " OR ".join(f"a{i} = {j} AND a{i + 1} = {j}" for j in range(60)) + ")"
        for i in range(0, 60, 2)
    )
    # All of these combinations but one chain are empty, which takes work to find out.
    empty = " AND ".join(
        "(" + " OR ".join(f"a0 = {2 * j} AND a{i} = {j}" for j in range(1000)) + ")"
        for i in range(1, 8)
    )
    negated = "NOT (" + " OR ".join(f"a{i} = 1 AND a{i + 1} = 2" for i in range(0, 60, 2)) + ")"
    for large in (text, listed, empty, negated):
        start = time.perf_counter()
        with pytest.raises(FilterTooLargeError):
            compile_filter(schema, large)
        assert time.perf_counter() - start < 10


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "volume = 1" + ")" * 5000,
        "(" * 100 + "volume = 1" + ")" * 100,
        "NOT " * 5000 + "halted",
        "volume = " + "- " * 5000 + "1",
        "abs(" * 3000 + "volume" + ")" * 3000 + " = 1",
        "CASE WHEN " * 2000,
        "volume" + "[1]" * 3000 + " = 1",
        "(volume = 1 AND (price = 1 OR " * 500 + "TRUE" + "))" * 500,
    ],
    ids=lambda text: text[:12],
)
def test_deep_nesting_is_an_error_and_not_a_crash(text: str) -> None:
    with pytest.raises(FilterTooLargeError, match="nested too deeply"):
        compile_filter(SCHEMA, text)


def test_long_chains_are_fine() -> None:
    holes = " AND ".join(f"volume <> {i}" for i in range(0, 10000, 2)) + " AND volume < 100"
    assert len(compile_filter(SCHEMA, holes).boxes) == 51
    ors = " OR ".join(f"volume = {i} AND price = 1" for i in range(5000))
    assert len(compile_filter(SCHEMA, ors).boxes) == 1
    texts = " || ".join(["symbol"] * 400) + " || 'a' = 'a'"
    assert len(compile_filter(SCHEMA, texts).axes) == 1
    inner = " OR ".join(f"volume = {i} AND price = 1" for i in range(1000))
    assert len(compile_filter(SCHEMA, f"CASE WHEN {inner} THEN 1 ELSE 2 END = 2").axes) == 1


@pytest.mark.parametrize(
    "chain", [" = TRUE", " IS NULL", " + 1", " * price", " - INTERVAL '1' day"]
)
def test_chains_of_what_takes_two_operands_have_a_limit(chain: str) -> None:
    with pytest.raises(FilterTooLargeError, match="nested too deeply"):
        compile_filter(SCHEMA, "volume" + chain * 5000 + " = TRUE")


@pytest.mark.parametrize(
    ("given", "advice"),
    [
        ({"$gt": 3}, "{'low': 3, 'low_open': True}"),
        ({"gte": 3, "lt": 5}, "{'low': 3, 'high': 5, 'high_open': True}"),
        ({">": 3, "<=": 5}, "{'low': 3, 'low_open': True, 'high': 5}"),
        ({"min": 3, "max": 5}, "{'low': 3, 'high': 5}"),
    ],
)
def test_ranges_as_they_are_written_elsewhere(given: dict[str, int], advice: str) -> None:
    with pytest.raises(FilterError) as caught:
        compile_filter(SCHEMA, {"price": given})
    assert str(caught.value).endswith(f"is not a range; write {advice}")
    for odd in ({**given, "$in": [3]}, {"gt": 1, "gte": 2}, {}):
        with pytest.raises(FilterError, match=r"that is \(low, high\), or {'low'"):
            compile_filter(SCHEMA, {"price": odd})


def test_truth_values_may_be_compared_with_comparisons() -> None:
    for text in ("price > 3 = halted", "price > 3 = TRUE", "(price > 3) = (volume > 2)"):
        assert not compile_filter(SCHEMA, text).never


@pytest.mark.parametrize("where", ["WHERE ", "  where\n", "Where(", "/* all */ WHERE "])
def test_a_clause_with_its_first_word(where: str) -> None:
    text = f"{where}volume > 3{')' * where.count('(')}"
    assert compile_filter(SCHEMA, text) == compile_filter(SCHEMA, "volume > 3")
    with pytest.raises(FilterError) as caught:
        compile_filter(SCHEMA, text.replace("volume", "volum"))
    assert caught.value.position == len(where)
    with pytest.raises(FilterError):  # an expression is no clause
        compile_filter(SCHEMA, {"where volume + 1": 3})
