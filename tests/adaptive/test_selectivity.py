"""How often predicates hold: measured exactly, guessed with caution."""

from __future__ import annotations

import numpy as np
import pytest

from boxmatch.adaptive.selectivity import (
    estimate_by_attribute,
    measure_by_attribute,
    measure_selectivity,
    plausible,
)
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes


def column(low: np.ndarray, high: np.ndarray) -> Boxes:
    """Boxes of one predicate each, on the only attribute."""
    count = len(low)
    return Boxes(1, np.arange(count + 1), np.zeros(count, np.uint16), low, high)


def test_measured_by_hand() -> None:
    boxes = Boxes.of(4, [[(0, 1, 3), (2, ABSENT, ABSENT)], [(0, 3, LAST)], [(3, FIRST, ABSENT)]])
    points = np.array([[1, 0, 7, 1], [3, 0, 7, 1], [4, 0, ABSENT, 1], [ABSENT, 0, 7, ABSENT]])
    # The ranges hold for two points each, the null for one, and nothing is in the empty interval.
    assert measure_by_attribute(boxes, points).tolist() == [0.5, 0, 0.25, 0]
    assert measure_selectivity(boxes, points) == pytest.approx((0.5 + 0.5 + 0.25) / 4)


def test_measured_like_brute_force() -> None:
    rng = np.random.default_rng(8)
    low = rng.integers(-50, 50, 300)
    boxes = column(low, low + rng.integers(0, 40, 300))
    points = rng.integers(-60, 60, (200, 1))
    inside = (boxes.low <= points) & (points <= boxes.high)
    assert measure_selectivity(boxes, points) == pytest.approx(inside.mean())


def test_nothing_to_measure() -> None:
    boxes = Boxes.of(2, [[(0, 1, 3)]])
    assert measure_selectivity(boxes, np.empty((0, 2), np.int64)) == 0
    assert measure_selectivity(Boxes.empty(2), np.zeros((5, 2), np.int64)) == 0
    assert estimate_by_attribute(Boxes.empty(2)).tolist() == [0, 0]


def estimate(boxes: Boxes) -> float:
    (share,) = estimate_by_attribute(boxes)
    return float(share)


@pytest.mark.parametrize("width", [1_000, 10_000, 100_000, 300_000, 500_000, 900_000])
def test_ranges_are_estimated_from_below(width: int) -> None:
    rng = np.random.default_rng(2)
    low = rng.integers(0, 1_000_000 - width, 4_000)
    boxes = column(low, low + width)
    real = measure_selectivity(boxes, rng.integers(0, 1_000_000, (1_000, 1)))
    assert 0.2 * real < estimate(boxes) <= real


@pytest.mark.parametrize("upwards", [False, True])
def test_open_ends_are_no_values(upwards: bool) -> None:
    rng = np.random.default_rng(3)
    ends = rng.integers(0, 1_000_000, 4_000)
    beyond = np.full(4_000, LAST if upwards else FIRST)
    boxes = column(ends, beyond) if upwards else column(beyond, ends)
    # Every value is on the right side of half of the others; events were taken to be such values.
    assert 0.3 < estimate(boxes) < 0.45


def test_equalities_hold_seldom() -> None:
    values = np.random.default_rng(4).integers(0, 20, 4_000)
    assert 0.02 < estimate(column(values, values)) < 0.05


def test_absent_is_a_value_where_it_is_asked_for() -> None:
    absent = np.full(4_000, ABSENT)
    assert 0.7 < estimate(column(absent, absent)) <= 0.75


def test_little_known_attributes_hold_hardly_ever() -> None:
    boxes = Boxes.of(
        3, [[(0, 1, 9)], [(1, 1, 9)], [(1, 2, 9)], *[[(2, i, 100 + i)] for i in range(60)]]
    )
    once, twice, often = estimate_by_attribute(boxes)
    assert once == 0
    assert 0 < twice < 0.25 < often


def test_empty_intervals_hold_never() -> None:
    none = column(np.full(100, FIRST), np.full(100, ABSENT))
    assert estimate(none) == 0


def test_plausible_cases_ascend_from_the_estimate() -> None:
    cases = plausible(np.array([0.0, 0.0625, 1.0]))
    assert cases.tolist() == [[0, 0.0625, 1], [0, 0.25, 1], [0, 0.5, 1]]
