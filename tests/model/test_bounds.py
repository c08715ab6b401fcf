from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import FIRST, LAST
from boxmatch.model.bounds import boxes_from_bounds
from boxmatch.model.keys import float_key, key_of
from boxmatch.model.schema import Schema

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
    with pytest.raises(AttributeValueError, match=r"'n': 9223372036854775808 in row 1 .* int64"):
        boxes_from_bounds(schema, np.array([[0, 0], [2**63, 0]], "u8"), highs[:2])


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
        (1, 1.5, nan, r"'n': 1.5 in row 1 is not an int"),
        (1, 0.0, 2.5, r"'n': 2.5 in row 1 is not an int"),
        (1, -1e30, nan, r"'n': -1e\+30 in row 1 is outside the range of int64"),
        (1, 0.0, 2.0**63, r"'n': .* in row 1 is outside the range of int64"),
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
