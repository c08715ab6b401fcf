"""The time model: Lemma 6, Theorem 2, and coefficients found again in made-up measurements."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from boxmatch.adaptive.cost import CostModel, fit, matching_work

PAPER = CostModel(compare=205.43e-9, traverse=119.73e-9, switch=145.85e-9, check=6.58e-9)


def test_steps_of_an_event() -> None:
    frequency = np.array([100, 40, 10])
    # In ten buckets: 2 × 150 / 10 compared, 150 marked, three attributes of ten buckets, 70 bits.
    assert matching_work(frequency, 70, 10).tolist() == [30, 150, 30, 70]
    skipped = np.array([False, False, True])
    assert matching_work(frequency, 70, 10, skipped).tolist() == [28, 140, 20, 70]


def test_lemma_6_and_theorem_2() -> None:
    model = CostModel(compare=5.0, traverse=2.0, switch=3.0, check=0.5)
    frequency = np.array([100, 40, 10])
    skipped = np.array([False, False, True])
    whole = 30 * 5 + 150 * 2 + 30 * 3 + 70 * 0.5
    assert model.matching_time(frequency, 70, 10) == pytest.approx(whole)
    saved = 2 * 5 + 10 * 2 + 10 * 3
    assert model.matching_time(frequency, 70, 10, skipped) == pytest.approx(whole - saved)
    assert model.improvement(frequency, 70, 10, skipped) == pytest.approx(saved / whole)
    assert model.improvement(frequency, 70, 10, np.zeros(3, bool)) == 0


def test_the_papers_coefficients() -> None:
    """Table II's expected improvements are twice what the paper's equation 9 gives.

    A million boxes of four predicates, 1,000 attributes, 500 buckets: 49.5 ms saved of 561.7.
    """
    frequency = np.full(1_000, 0)
    frequency[:93] = 1
    frequency[999] = 4_000_000 - 93
    skipped = np.arange(1_000) < 678
    assert PAPER.matching_time(frequency, 1_000_000, 500) == pytest.approx(0.5617, rel=1e-3)
    expected = PAPER.improvement(frequency, 1_000_000, 500, skipped)
    assert expected == pytest.approx(0.0880, rel=1e-2)
    assert 2 * expected == pytest.approx(0.1774, rel=2e-2)


def made_up_work(rng: np.random.Generator, rows: int) -> np.ndarray:
    return np.array(
        [
            matching_work(
                rng.integers(0, 20_000, rng.integers(1, 200)),
                int(rng.integers(1_000, 1_000_000)),
                int(rng.integers(1, 2_000)),
            )
            for _ in range(rows)
        ]
    )


@given(
    seed=st.integers(0, 1_000),
    nanoseconds=st.tuples(*[st.floats(1, 1_000)] * 4),
)
def test_fit_recovers_coefficients(seed: int, nanoseconds: tuple[float, ...]) -> None:
    work = made_up_work(np.random.default_rng(seed), 30)
    true = np.array(nanoseconds) * 1e-9
    found = np.array(astuple(fit(work, work @ true)))
    assert found == pytest.approx(true, rel=1e-3)


def test_fit_bears_noise() -> None:
    rng = np.random.default_rng(5)
    work = made_up_work(rng, 2_000)
    true = np.array(astuple(PAPER))
    found = np.array(astuple(fit(work, work @ true * rng.normal(1, 0.05, 2_000))))
    assert found == pytest.approx(true, rel=0.05)


def test_no_coefficient_is_negative() -> None:
    work = np.array([[1.0, 1, 1, 1], [2, 1, 1, 1], [1, 2, 1, 1], [1, 1, 2, 1], [1, 1, 1, 2]])
    # More comparisons take less time here, which plain least squares would explain by -0.5.
    seconds = work @ np.array([-0.5, 1, 1, 1])
    assert np.linalg.lstsq(work / seconds[:, None], np.ones(5))[0][0] < 0
    model = fit(work, seconds)
    assert min(astuple(model)) == model.compare == 0
    assert model.traverse == pytest.approx(model.switch) == pytest.approx(model.check)

    def error(values: np.ndarray) -> float:
        return float((((work @ values) / seconds - 1) ** 2).sum())

    best = np.array(astuple(model))
    steps = np.random.default_rng(6).normal(0, 0.01, (2_000, 4))
    assert error(best) <= min(error(np.maximum(best + step, 0)) for step in steps)


def test_steps_never_taken_cost_nothing() -> None:
    work = np.array([[0.0, 10, 0, 5], [0, 20, 0, 5], [0, 5, 0, 50]])
    model = fit(work, work @ np.array([0, 3e-9, 0, 2e-9]))
    assert astuple(model) == pytest.approx((0, 3e-9, 0, 2e-9))


@pytest.mark.parametrize(
    ("work", "seconds", "message"),
    [
        (np.ones((3, 3)), np.ones(3), "shape"),
        (np.ones((3, 4)), np.ones(2), "shape"),
        (np.ones((0, 4)), np.ones(0), "shape"),
        (-np.ones((3, 4)), np.ones(3), "counts"),
        (np.ones((3, 4)), np.zeros(3), "above zero"),
        (np.ones((3, 4)), np.full(3, np.nan), "above zero"),
    ],
)
def test_measurements_that_make_no_sense(
    work: np.ndarray, seconds: np.ndarray, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fit(work, seconds)
