"""Filters of one shape, compiled by plans, against each compiled for itself."""

from __future__ import annotations

import random
from datetime import tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from boxmatch.engine.bulk import place_batch, place_filters
from boxmatch.errors import BoxmatchError
from boxmatch.model.axis_table import AxisTable
from boxmatch.model.filters import CompiledFilter, compile_filter, compile_many, plain_texts
from boxmatch.model.filters.compiler import compile_condition
from boxmatch.model.filters.scope import Scope
from boxmatch.model.filters.shape_kernels import NO_SHAPE, POWERS, read_numbers, scan
from boxmatch.model.filters.shapes import _LITERAL, _PLAIN, LONGEST, ShapeCache
from boxmatch.model.filters.sql import parse_text
from boxmatch.model.keys import float_key
from boxmatch.model.schema import Schema
from property_examples import examples

SCHEMA = Schema(
    {
        "s": "string",
        "t": "string",
        "f": "float",
        "i": "int",
        "side": ["buy", "hold", "sell"],
        "halted": "bool",
        "at": "timestamp",
        "price": "decimal(4, 2)",
        "long": "decimal(30, 2)",
        "tags": "list of string",
        "sizes": "list of int",
    }
)
NUMBERS = [
    *("0", "1", "2", "3", "4", "5", "7", "9", "1.0", "2.5", "1e0", "3e0", "0.1", "0.30", "1e400"),
    *("9223372036854775807", "9223372036854775806", "9223372036854775803", "9223372036854775808"),
    *("123456789012345678", "1234567890123456789", "1e308", "1.7976931348623157e308", "1e999"),
    *("0.3000000000000000001", "99.99", "99.98", "100", "000012", "5e-324", "1e-400", "1.50"),
]
TEXTS = [
    *("", "a", "b", "c", "ab", "abc", "it''s", "''", "ä", "ß", "日本", "\U0010ffff", "a%", "ab%"),
    *("%a%", "%ab%", "%b", "a_", "a%c", "\\", "a\\%", "A%", "É%", "%", "%%", "buy", "hold", "sell"),
    *("2024-01-01", "2024-01-01 00:00:00.000001", "2024-01-01T00:00:00+02:00", "0001-01-01"),
    *("2024-02-30", "-- 5", "x /* 5 */", "12000-01-01 00:00:00", "\x00", "\u2028", "\ud7ff%"),
]
TESTS = [
    *("s = 'T'", "s <> 'T'", "s > 'T'", "s <= 'T'", "s IN ('T', 'T', 'T')", "s NOT IN ('T', 'T')"),
    *("s LIKE 'T'", "s ILIKE 'T'", "s BETWEEN 'T' AND 'T'", "s IS NULL", "t IS NOT NULL"),
    *("t LIKE 'T'", "t = 'T'", "starts_with(t, 'T')", "contains(s, 'T')", "s = NULL"),
    *("f >= N", "f < N", "f = N", "f <> -N", "f BETWEEN N AND N", "f IN (N, N)", "f IN (N, NULL)"),
    *("i >= N", "i < N", "i = -N", "i <> N", "i BETWEEN -N AND N", "i IN (N, N, N, N)", "N < i"),
    *("i = N OR i = N OR i > N", "side = 'T'", "side <> 'T'", "side IN ('T', 'T')", "side > 'T'"),
    *("halted = TRUE", "halted", "halted IS NOT TRUE", "at >= TIMESTAMP 'T'", "at < 'T'"),
    *("at BETWEEN '2024-01-0D' AND '2024-01-0D'", "at = DATE '2024-01-0D'", "price <= N"),
    *("price IN (N, N)", "long > N", "'T' = ANY(tags)", "ANY(sizes) BETWEEN N AND N", "f * i > N"),
    *("length(s) < N", "lower(s) = 'T'", "s = N", "i = 'T'", "i * 2 > N", "s RLIKE 'T'"),
]
ODD = [
    *(
        "i = 1 -- 5",
        "i = 1 /* 5 */",
        "i = 1_000",
        "f = .5",
        "s = N'a'",
        "s = 'a' 'b'",
        "i = ",
        "s = 'a",
    ),
    *(
        "s = '\ud800'",
        "I = 5",
        "i\u00a0= 5",
        "i =\t5",
        "nope = 1",
        "f = NaN",
        "f > -1e400",
        "",
        "i = 0x10",
    ),
]
PIECES = [
    "'a'",
    "''",
    "'it''s'",
    "5",
    "5.5",
    "1e5",
    ".5",
    "x1",
    '"a b"',
    " ",
    "=",
    "-",
    "/",
    "N",
    '"',
    "é",
]


class Text(str):
    """A text that shows itself otherwise, as an enum's does."""

    def __str__(self) -> str:
        return "something else"


MANY = settings(
    deadline=None,
    max_examples=examples(600),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@st.composite
def forms(draw: st.DrawFn) -> str:
    """Tests joined and negated, with letters where constants go."""
    some = draw(st.lists(st.sampled_from(TESTS), min_size=1, max_size=4))
    form = some[0]
    for one in some[1:]:
        one = draw(st.sampled_from([one, f"NOT ({one})", f"({one})"]))
        form = draw(
            st.sampled_from([f"{form} AND {one}", f"({form}) OR {one}", f"{one}\nor {form}"])
        )
    return draw(st.sampled_from([form, f"not ({form})"]))


def fill(data: st.DataObject, form: str) -> str:
    """The form with constants, of which many are near to each other."""
    near = st.sampled_from(NUMBERS[:8]) | st.sampled_from(NUMBERS)
    texts = st.sampled_from(TEXTS[:6]) | st.sampled_from(TEXTS)
    for letter, constants in (("N", near), ("'T'", texts.map("'{}'".format)), ("D", near)):
        parts = form.replace("NOT", "\0").replace("AND", "\1").split(letter)
        form = parts[0]
        for part in parts[1:]:
            chosen = data.draw(constants)
            form += (chosen[:1] if letter == "D" else chosen) + part
        form = form.replace("\0", "NOT").replace("\1", "AND")
    return form


def outcome(compile: Any, *arguments: Any, **options: Any) -> Any:
    """What a compiler makes of a filter, or how it refuses it."""
    try:
        return compile(*arguments, **options)
    except BoxmatchError as error:
        return type(error), str(error), getattr(error, "position", None)


def in_full(text: str, max_boxes: int, lists: bool) -> Any:
    scope = Scope(SCHEMA)
    condition = parse_text(scope, text)
    return compile_condition(scope, condition, max_boxes, text, lists=lists)


def alone_in_full(filter: Any, max_boxes: int, lists: bool, time_zone: tzinfo | None) -> Any:
    if not isinstance(filter, str):
        return compile_filter(SCHEMA, filter, max_boxes=max_boxes, lists=lists)
    scope = Scope(SCHEMA)
    condition = parse_text(scope, filter, time_zone)
    return compile_condition(scope, condition, max_boxes, filter, lists=lists)


@MANY
@given(st.data())
def test_filters_of_one_shape_compile_as_each_does_alone(data: st.DataObject) -> None:
    form = data.draw(forms())
    max_boxes = data.draw(st.sampled_from([1024, 1024, 3]))
    lists = data.draw(st.booleans())
    for text in [fill(data, form) for _ in range(4)]:
        found = outcome(compile_filter, SCHEMA, text, max_boxes=max_boxes, lists=lists)
        assert found == outcome(in_full, text, max_boxes, lists), text


@pytest.mark.parametrize(
    ("form", "plans"),
    [
        ("s = '{0}' AND f >= {1}", 1),
        ("s IN ('{0}', 'b', 'c{1}') AND i > {1}", 1),
        ("NOT s = 'x{0}' AND f <> {1}", 1),
        ("s = '{0}' AND (f < -{1} OR f > {1}.5)", 1),
        ("s LIKE 'x{0}%' AND i BETWEEN -9 AND {1}", 1),
        ("side = 'buy' AND at > TIMESTAMP '2024-01-0{1} 10:00:00'", 1),
        ("(s = '{0}' AND i > {1}) OR (t = 'y{0}' AND f < {1})", 1),
        ("i = 5 OR i > {1}", 8),  # near to each other: none shares its plan
    ],
)
def test_constants_in_one_order_share_a_plan(form: str, plans: int) -> None:
    cache = ShapeCache()
    templates = set()
    for number in range(1, 9):
        text = form.format("a" * number, number)
        found = cache.find(SCHEMA, text)
        assert found is not None
        template, constants = found
        compiled = template.compile(constants, 1024, lists=True)
        assert compiled == in_full(text, 1024, True)
        assert template.plan(constants, 1024, lists=True) is not None
        templates.add(template)
    [template] = templates
    assert len(template._plans) == plans


@MANY
@given(st.data())
def test_filters_compiled_together_are_what_each_is_alone(data: st.DataObject) -> None:
    some = data.draw(st.lists(forms(), min_size=1, max_size=3))
    odd: list[Any] = [*ODD, {"f": 1.5, "s": "a"}, {"f": "x"}, None, 5, Text("i = 5")]
    filters: list[Any] = []
    for form in some:
        filters += [fill(data, form) for _ in range(data.draw(st.integers(3, 12)))]
    filters += data.draw(st.lists(st.sampled_from(odd), max_size=3))
    filters = data.draw(st.permutations(filters))
    options: dict[str, Any] = {
        "max_boxes": data.draw(st.sampled_from([1024, 1024, 3])),
        "lists": data.draw(st.booleans()),
        "time_zone": data.draw(st.sampled_from([None, ZoneInfo("Europe/Berlin")])),
    }
    alone = [outcome(alone_in_full, one, **options) for one in filters]
    batch, refused = compile_many(SCHEMA, filters, skip=True, **options)
    right = [one for one in alone if isinstance(one, CompiledFilter)]
    assert list(batch) == right
    assert len(batch) == len(right)
    assert batch.never == sum(one.never for one in right)
    assert batch.overlapping.tolist() == [not one.disjoint for one in right]
    errors = [(type(one.error), str(one.error), one.error.position) for one in refused]
    assert errors == [one for one in alone if not isinstance(one, CompiledFilter)]
    if refused:
        first = refused[0]
        with pytest.raises(type(first.error)) as caught:
            compile_many(SCHEMA, filters, **options)
        assert caught.value.reason == f"row {first.row}: {first.error.reason}"
        assert caught.value.position == first.error.position


@MANY
@given(st.data())
def test_boxes_of_filters_placed_together_are_those_of_each(data: st.DataObject) -> None:
    some = data.draw(st.lists(forms(), min_size=1, max_size=2))
    texts = [fill(data, form) for form in some for _ in range(8)]
    found = [(one, outcome(compile_filter, SCHEMA, one)) for one in texts]
    texts = [text for text, compiled in found if isinstance(compiled, CompiledFilter)]
    ids = np.arange(len(texts))
    batch, _ = compile_many(SCHEMA, texts)
    together = place_batch(ids, "int", batch, plain_texts(texts))(AxisTable(SCHEMA))
    alone = [compile_filter(SCHEMA, text) for text in texts]
    apart = place_filters(ids, "int", alone, texts)(AxisTable(SCHEMA))
    assert together.boxes.dimensions == apart.boxes.dimensions
    for one, other in zip(together.boxes[1:], apart.boxes[1:], strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()
    assert together.owner.tolist() == apart.owner.tolist()
    assert together.texts == apart.texts
    assert together.residuals == apart.residuals
    assert together.kinds().tolist() == apart.kinds().tolist()


def test_a_batch_has_groups() -> None:
    """Else the comparisons above would compare nothing."""
    texts = [f"s IN ('a{n}', 'b') AND (f < {n}.5 OR i IS NULL)" for n in range(20)]
    texts += [f"i * 2 > {n} AND s LIKE 'a{n}%'" for n in range(20)]
    batch, _ = compile_many(SCHEMA, texts)
    assert sum(len(group.rows) for group in batch.groups) == len(texts)
    assert not batch.others


@given(
    st.text("'\"a1.5eE+-/*_ N$é\n(,=;", max_size=30)
    | st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
)
@settings(deadline=None, max_examples=examples(2000))
def test_texts_are_cut_as_the_regular_expression_does(text: str) -> None:
    texts = plain_texts([text]).combine_chunks()
    if text == "":
        return
    data = np.frombuffer(texts.buffers()[2], np.uint8)
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[:2]
    shape, _, first, start, end = scan(data, offsets, np.ones(1, bool), LONGEST)
    if shape[0] == NO_SHAPE:
        return
    places = zip(start[: first[1]], end[: first[1]], strict=True)
    pieces = _LITERAL.split(text)
    assert [bytes(data[a:b]).decode() for a, b in places] == pieces[1::2]
    assert all(map(_PLAIN.fullmatch, pieces[::2]))
    assert all(pieces[2:-1:2])


def test_numbers_are_read_as_python_reads_them() -> None:
    rng = random.Random(1)
    written = ["0", "0.0", "00.10", "9.95", "0.1", "123456789012345", "0.0000000000001"]
    for _ in range(3_000):
        whole = str(rng.randrange(10 ** rng.randrange(1, 15)))
        written.append(f"{whole}.{rng.randrange(10 ** rng.randrange(1, 15))}"[:15].rstrip("."))
    data = np.frombuffer("".join(written).encode(), np.uint8)
    end = np.cumsum([len(one) for one in written])
    start = end - [len(one) for one in written]
    keys, known = np.empty(len(written), np.int64), np.empty(len(written), bool)
    for negative in (False, True):
        read_numbers(data, start, end, negative, True, POWERS, keys, known)
        sign = -1.0 if negative else 1.0
        assert known.all()
        assert keys.tolist() == [float_key(sign * float(one)) for one in written]
