"""The lemmas of the Ada-REIN paper, against values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_rates import (
    counted_losses,
    expected_rate,
    expected_size,
    frequency_losses,
    rate_of_size,
    skippable_predicates,
    uniform_losses,
)

from boxmatch.model.boxes import Boxes


def test_lemma_1_draws_without_replacement() -> None:
    # Two of five attributes, two of the five skipped: 3, 6 and 1 of the ten pairs.
    assert uniform_losses(5, 2, 2) == pytest.approx([0.3, 0.6, 0.1])
    # More is skipped than a box can avoid: of four, three are skipped and two drawn.
    assert uniform_losses(4, 2, 3) == pytest.approx([0, 0.5, 0.5])
    assert uniform_losses(5, 2, 0) == pytest.approx([1, 0, 0])
    assert uniform_losses(5, 2, 5) == pytest.approx([0, 0, 1])


def test_lemma_2_draws_each_predicate_alone() -> None:
    # 20 of 40 × 2 predicates are skipped: a quarter.
    assert frequency_losses(40, 2, 20) == pytest.approx([9 / 16, 6 / 16, 1 / 16])
    assert frequency_losses(10, 3, 0) == pytest.approx([1, 0, 0, 0])


def test_losses_are_counted_in_boxes() -> None:
    rows = [[(0, 1, 2), (2, 1, 2)], [], [(2, 1, 2)], [(1, 1, 2), (2, 1, 2), (3, 1, 2)]]
    boxes = Boxes.of(4, rows)
    skipped = np.array([True, False, True, False])
    assert counted_losses(boxes, skipped).tolist() == [1 / 4, 2 / 4, 1 / 4, 0]
    assert counted_losses(Boxes.empty(4), skipped).tolist() == [0]


def test_lemma_3_is_the_mean_of_what_is_left() -> None:
    assert expected_size(np.array([0.3, 0.6, 0.1])) == pytest.approx(0.3 * 2 + 0.6)


def test_lemma_4_takes_the_power_of_the_mean() -> None:
    # Three of four predicates are left: half as selective with w = 0.5, once as many matches more.
    assert rate_of_size(3, 4, 0.5) == pytest.approx(1.0)
    assert rate_of_size(4, 4, 0.5) == 0.0
    assert rate_of_size(2, 3, 0.25) == pytest.approx(3.0)


def test_the_mean_of_the_powers_is_more() -> None:
    losses = np.array([0.5, 0, 0.5])
    # Half of the boxes match four times as often. The paper's mean, one predicate less, says twice.
    assert expected_rate(losses, 0.5) == pytest.approx(0.5 * 3)
    assert rate_of_size(expected_size(losses), 2, 0.5) == pytest.approx(1.0)


@given(
    predicates=st.integers(1, 8),
    frequency=st.integers(0, 800),
    selectivity=st.floats(0.05, 0.95),
)
def test_lemma_4_never_says_too_much(predicates: int, frequency: int, selectivity: float) -> None:
    losses = frequency_losses(100, predicates, min(frequency, 100 * predicates))
    published = rate_of_size(expected_size(losses), predicates, selectivity)
    assert losses.sum() == pytest.approx(1)
    assert expected_rate(losses, selectivity) >= published * (1 - 1e-9) - 1e-9


@pytest.mark.parametrize(
    ("rate", "theorem", "table"),
    [
        (0.0001, 144, 93),
        (0.0005, 721, 473),
        (0.001, 1_442, 969),
        (0.005, 7_196, 4_707),
        (0.01, 14_355, 9_138),
        (0.03, 42_644, 27_736),
        (0.05, 70_389, 48_856),
    ],
)
def test_table_ii_is_linear_rather_than_theorem_1(rate: float, theorem: int, table: int) -> None:
    boxes, selectivity = 1_000_000, 0.5
    linear = boxes * rate / (1 / selectivity - 1)
    assert skippable_predicates(boxes, selectivity, rate) == pytest.approx(theorem, abs=1)
    # Greedily taken attributes fill a bound almost, and never overshoot it.
    assert 0.9 * linear < table <= linear < 0.72 * theorem


def test_impossible_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="predicates must be from 0 to 5, not 6"):
        uniform_losses(5, 6, 1)
    with pytest.raises(ValueError, match="skipped must be"):
        uniform_losses(5, 2, -1)
    with pytest.raises(ValueError, match="frequency must be from 0 to 20, not 21"):
        frequency_losses(10, 2, 21)
    with pytest.raises(ValueError, match="selectivity"):
        skippable_predicates(10, 1.0, 0.1)
