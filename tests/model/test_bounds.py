from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.errors import AttributeValueError, EventError, FilterError
from boxmatch.model import bounds as bounds_module
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.bounds import boxes_from_bounds
from boxmatch.model.boxes import Boxes
from boxmatch.model.keys import float_key, key_of
from boxmatch.model.schema import Schema
from property_examples import examples

SCHEMA = Schema(
    {
        "x": "float",
        "n": {"type": "int", "domain": [0, 1]},
        "b": "bool",
        "t": "timestamp",
        "s": "string",
        "e": ["a", "b"],
    }
)
nan, inf = math.nan, math.inf

whole = st.sampled_from([nan, inf, -inf]) | st.integers(-(2**53), 2**53).map(float)
bits = st.sampled_from([nan, 0.0, 1.0])
rows = st.lists(
    st.tuples(*[st.tuples(s, s) for s in (st.floats(), whole, bits, whole)]), max_size=20
)


def expected(row: tuple[tuple[float, float], ...]) -> list[tuple[int, int, int]]:
    box = []
    for position, (low, high) in enumerate(row):
        attribute = SCHEMA.attributes[position]
        if math.isnan(low) and math.isnan(high):
            continue
        if attribute.type == "float":
            ends = [float_key(end) for end in (low, high)]
        elif low == inf or high == -inf:
            ends = [LAST, FIRST]
        else:
            ends = [int(end) if math.isfinite(end) else 0 for end in (low, high)]
        if math.isnan(low) or (attribute.type != "float" and low == -inf):
            ends[0] = FIRST if high != -inf or attribute.type == "float" else LAST
        if math.isnan(high) or (attribute.type != "float" and high == inf):
            ends[1] = LAST if low != inf or attribute.type == "float" else FIRST
        box.append((position, ends[0], ends[1]))
    return box


@given(rows)
def test_boxes_are_the_keys_of_the_bounds(
    rows: list[tuple[tuple[float, float], ...]],
) -> None:
    bounds = np.full((2, len(rows), 6), nan)
    for number, row in enumerate(rows):
        for position, ends in enumerate(row):
            bounds[:, number, position] = ends
    boxes = boxes_from_bounds(SCHEMA, bounds[0], bounds[1])
    assert boxes.dimensions == 6
    assert boxes.attribute.dtype == np.uint16
    assert [boxes.row(i) for i in range(boxes.count)] == [expected(row) for row in rows]
    turned = boxes_from_bounds(SCHEMA, np.asfortranarray(bounds[0]), np.asfortranarray(bounds[1]))
    assert np.array_equal(turned.low, boxes.low)
    assert np.array_equal(turned.high, boxes.high)


def test_arrays_that_are_converted_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    lows = np.full((7, 6), nan)
    lows[:, 0] = range(7)
    lows[::2, 1] = 0.5
    highs = lows + 1
    plain = boxes_from_bounds(SCHEMA, lows, highs)
    monkeypatch.setattr(bounds_module, "_CONVERTED", 3)
    for converted in (np.asfortranarray(lows), lows.astype(np.float32)):
        boxes = boxes_from_bounds(SCHEMA, converted, highs)
        assert boxes.dimensions == plain.dimensions
        for column, expected_column in zip(boxes[1:], plain[1:], strict=True):
            assert np.array_equal(column, expected_column)
    lows[5, 2] = 2
    with pytest.raises(AttributeValueError, match="in row 5 is neither 0 nor 1"):
        boxes_from_bounds(SCHEMA, np.asfortranarray(lows), highs)


sizes = st.lists(st.lists(st.integers(0, 6), max_size=5), max_size=6)


@given(sizes)
def test_boxes_joined_part_by_part(parts: list[list[int]]) -> None:
    """The first parts say little of how many predicates the others have."""
    rows = [
        [[(place, 10 * part + place, LAST - part) for place in range(size)] for size in some]
        for part, some in enumerate(parts)
    ]
    count = sum(map(len, rows))
    joined = Boxes.joined((Boxes.of(7, some) for some in rows), 7, count)
    wanted = Boxes.of(7, [row for some in rows for row in some])
    assert joined.dimensions == 7
    for name, array in wanted.arrays.items():
        assert joined.arrays[name].dtype == array.dtype
        assert joined.arrays[name].tolist() == array.tolist()


def test_integers_stay_exact() -> None:
    schema = Schema({"n": "int", "x": "float"})
    lows = np.array([[2**53 + 1, 0], [LAST, -1], [-(2**63), 1]])
    highs = np.array([[2**53 + 3, 1], [LAST, 1], [LAST, 2]])
    boxes = boxes_from_bounds(schema, lows, highs)
    x = [key_of(schema["x"], v) for v in (-1, 0, 1, 2)]
    assert boxes.row(0) == [(0, 2**53 + 1, 2**53 + 3), (1, x[1], x[2])]
    assert boxes.row(1) == [(0, LAST, LAST), (1, x[0], x[2])]
    assert boxes.row(2) == [(0, FIRST, LAST), (1, x[2], x[3])]
    mixed = boxes_from_bounds(schema, lows[:1], np.array([[nan, nan]]))
    assert mixed.row(0) == [(0, 2**53 + 1, LAST), (1, x[1], LAST)]
    unsigned = boxes_from_bounds(schema, lows[:1].astype("u8"), highs[:1].astype("f4"))
    assert unsigned.row(0)[0][1] == 2**53 + 1


def test_unsigned_integers_beyond_int64() -> None:
    schema = Schema({"n": "int", "x": "float", "d": "decimal(5, 1)"})
    lows = np.array([[0, 10**19, 0], [2**63, 2**63, 2**63]], "u8")
    highs = np.array([[2**63, 2**64 - 1, 10**19], [2**63, 2**63, 2**63]], "u8")
    boxes = boxes_from_bounds(schema, lows, highs)
    assert boxes.row(0) == [
        (0, 0, LAST),
        (1, float_key(1e19), float_key(np.nextafter(2.0**64, 0))),
        (2, 0, LAST),
    ]
    assert all(low > high for _, low, high in boxes.row(1))
    times = Schema({"n": "int", "t": "timestamp"})
    with pytest.raises(AttributeValueError, match=r"'t': 9223372036854775808 in row 1 .* int64"):
        boxes_from_bounds(times, lows[:, :1].repeat(2, 1), highs[:, :1].repeat(2, 1))


def test_neighbouring_floats_and_negative_zero() -> None:
    schema = Schema({"x": "float"})
    lows = np.array([[-0.0], [5e-324], [-5e-324], [-inf]])
    boxes = boxes_from_bounds(schema, lows, np.full((4, 1), inf))
    assert boxes.low.tolist() == [0, 1, -1, key_of(schema["x"], -inf)]
    assert set(boxes.high.tolist()) == {key_of(schema["x"], inf)}


def test_lists_and_bools_are_fine() -> None:
    schema = Schema({"a": "bool", "b": "bool"})
    boxes = boxes_from_bounds(schema, np.array([[True, False]]), [[1, 1]])
    assert boxes.row(0) == [(0, 1, 1), (1, 0, 1)]
    assert boxes_from_bounds(schema, np.empty((0, 2)), np.empty((0, 2))).count == 0


@pytest.mark.parametrize(
    ("place", "low", "high", "message"),
    [
        (2, 0.0, 2.0, r"'b': 2.0 in row 1 is neither 0 nor 1"),
        (2, -inf, inf, r"'b': -inf in row 1 is neither 0 nor 1"),
        (3, 0.5, nan, r"'t': 0.5 in row 1 is not a whole number of microseconds"),
        (4, nan, 0.0, r"'s': 0.0 in row 1 .* string; leave it NaN"),
        (5, 1.0, 1.0, r"'e': 1.0 in row 1 .* enum; leave it NaN"),
    ],
)
def test_errors_name_attribute_value_and_row(
    place: int, low: float, high: float, message: str
) -> None:
    lows, highs = np.full((3, 6), nan), np.full((3, 6), nan)
    lows[1, place], highs[1, place] = low, high
    with pytest.raises(AttributeValueError, match=message) as caught:
        boxes_from_bounds(SCHEMA, lows, highs)
    assert caught.value.row == 1
    assert "row" not in str(caught.value.without_row())


@pytest.mark.parametrize(
    ("lows", "highs", "message"),
    [
        (np.zeros((2, 6)), np.zeros((3, 6)), "lows have 2 rows, but highs have 3"),
        (np.zeros((2, 5)), np.zeros((2, 5)), "n × 6"),
        (np.zeros(6), np.zeros(6), "n × 6"),
        (np.full((1, 6), "x"), np.zeros((1, 6)), "float64 or int64"),
        (np.full((1, 6), None), np.zeros((1, 6)), "float64 or int64"),
    ],
)
def test_bounds_of_a_wrong_shape(lows: Any, highs: Any, message: str) -> None:
    with pytest.raises(EventError, match=message):
        boxes_from_bounds(SCHEMA, lows, highs)


numbers = (
    st.integers(-30, 30).map(lambda n: n / 4)
    | st.floats(allow_nan=False)
    | st.sampled_from([2.0**63, -(2.0**63), 1e30, -1e30, 99999.95, -99999.95, 0.1 + 0.2])
)
wide = st.integers(-(2**63), 2**64 - 1) | st.integers(2**53, 2**53 + 9)
decimals = st.decimals(-(10**20), 10**20, places=9) | st.decimals(-9, 9, places=30)
CONSTANTS = {"float": numbers, "integer": wide, "decimal": decimals}
TYPES = ["int", "float", "decimal(6, 1)", "decimal(38, 10)"]


def asked_as_filter(kind: str, end: str, value: object) -> tuple[str, int] | str:
    """The filter that a bound means as a dict, or that it is refused."""
    wanted = {"v": value, "v_low": {"low": value}, "v_high": {"high": value}}[end]
    matcher = bm.Matcher({"v": kind}, index="scan")
    try:
        never = matcher.subscribe(0, {"v": wanted}).never
    except FilterError:
        return "refused"
    return matcher.filter_of(0), never


@settings(max_examples=examples(400))
@given(st.data(), st.sampled_from(TYPES), st.sampled_from(["v", "v_low", "v_high"]))
def test_bounds_in_tables_mean_what_they_mean_in_filters(
    data: st.DataObject, kind: str, end: str
) -> None:
    values = [data.draw(CONSTANTS[data.draw(st.sampled_from([*CONSTANTS]))]), None]
    values += values[:1]
    expected = asked_as_filter(kind, end, values[0])
    unsigned = isinstance(values[0], int) and values[0] > LAST
    column = pa.array(values, pa.uint64() if unsigned else None, from_pandas=False)
    columns: list[Any] = [column, column.dictionary_encode(), pd.Series(values, dtype=object)]
    for given_as in columns:
        frame = pd.DataFrame if isinstance(given_as, pd.Series) else pa.table
        table = frame({"id": [0, 1, 2], end: given_as})
        matcher = bm.Matcher({"v": kind}, index="scan")
        if expected == "refused":
            with pytest.raises(AttributeValueError, match="in row 0"):
                matcher.subscribe_many(table)
            continue
        never = matcher.subscribe_many(table).never
        assert (matcher.filter_of(0), never) == (expected[0], 2 * int(expected[1]))
        assert matcher.filter_of(2) == expected[0]
        assert matcher.filter_of(1) == "TRUE"  # null: no condition


@pytest.mark.parametrize("kind", ["int", "float", "decimal(6, 1)"])
@given(st.lists(numbers | st.just(nan), min_size=2, max_size=2))
def test_bounds_in_arrays_mean_what_they_mean_in_filters(kind: str, ends: list[float]) -> None:
    matcher = bm.Matcher({"v": kind}, index="scan")
    matcher.subscribe_boxes([0], [ends[:1]], [ends[1:]])
    low, high = (None if math.isnan(end) else end for end in ends)
    matcher.subscribe(1, {} if low is None and high is None else {"v": (low, high)})
    assert matcher.filter_of(0) == matcher.filter_of(1)


def test_many_bounds_between_two_values() -> None:
    """Chunks, nulls and repeated values, and rows that are refused among them."""
    lows = pa.chunked_array([[2.5, None], [], [3.0, 1e30, 2.5]])
    table = pa.table({"id": range(5), "n_low": lows, "s": ["a", None, "a", "b", "c"]})
    matcher = bm.Matcher({"n": "int", "s": "string"})
    assert matcher.subscribe_many(table).never == 1
    assert [matcher.filter_of(id) for id in range(5)] == [
        "n >= 3 AND s = 'a'",
        "TRUE",
        "n >= 3 AND s = 'a'",
        "FALSE",
        "n >= 3 AND s = 'c'",
    ]
    mixed = pd.DataFrame({"id": [1, 2, 3], "n_high": [2.5, "x", True]})
    skipped = bm.Matcher({"n": "int"}).subscribe_many(mixed, on_error="skip")
    assert [bad.row for bad in skipped.rejected] == [1, 2]


def test_a_float_for_an_int_is_the_number_that_it_holds() -> None:
    """Not the shorter one that it is written as: 53526999432542610."""
    large = 5.352699943254261e16
    matcher = bm.Matcher({"n": "int"}, index="scan")
    matcher.subscribe("dict", {"n": large})
    matcher.subscribe("list", {"n": [large]})
    matcher.subscribe_many(pa.table({"id": ["column"], "n": [large]}))
    matcher.subscribe_boxes(["array"], [[large]], [[large]])
    assert sorted(matcher.match({"n": large})) == ["array", "column", "dict", "list"]
    assert matcher.filter_of("dict") == f"n = {int(large)}"
