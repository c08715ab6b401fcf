"""Predicate skipping: never a match too few, and not more false ones than asked for."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import boxmatch as bm
from boxmatch.adaptive.skipping import choose_skipped, estimate_matchability
from boxmatch.model.boxes import Boxes

ATTRIBUTES = 60


def test_nothing_is_skipped_at_rate_zero() -> None:
    assert not choose_skipped(np.array([0, 1, 5]), 100, 0.5, 0.0).any()


def test_the_rarest_go_first_and_within_the_bound() -> None:
    frequency = np.array([400, 1, 90, 3, 0, 2])
    # 1,000 boxes, w = 0.25, a rate of 0.02: 1,000 × 0.02 / (4 - 1) = 6.7 predicates may go.
    skipped = choose_skipped(frequency, 1_000, 0.25, 0.02)
    assert skipped.tolist() == [False, True, False, True, True, True]


def test_a_higher_rate_skips_no_fewer() -> None:
    frequency = np.random.default_rng(1).integers(0, 1_000, 50)
    before = np.zeros(50, bool)
    for rate in (0.0001, 0.001, 0.01, 0.1, 1.0):
        now = choose_skipped(frequency, 5_000, 0.3, rate)
        assert not (before & ~now).any()
        before = now


def test_matchability_is_estimated_from_below() -> None:
    rng = np.random.default_rng(2)
    low = rng.integers(0, 700_000, 4_000)
    start = np.arange(4_001)
    boxes = Boxes(1, start, np.zeros(4_000, np.uint16), low, low + 300_000)
    values = rng.integers(0, 1_000_000, 1_000)
    real = ((low <= values[:, None]) & (values[:, None] <= low + 300_000)).mean()
    assert 0.05 < estimate_matchability(boxes) <= real * 1.05


@cache
def zipf_matcher(index: str) -> tuple[bm.Matcher, np.ndarray]:
    """Four predicates of width 0.5 each, on attributes of which most are rare."""
    rng = np.random.default_rng(3)
    weights = 1 / np.arange(1, ATTRIBUTES + 1) ** 2
    weights /= weights.sum()
    count = 8_000
    lows = np.full((count, ATTRIBUTES), np.nan)
    for row in range(count):
        lows[row, rng.choice(ATTRIBUTES, 4, replace=False, p=weights)] = 0
    lows[lows == 0] = rng.integers(0, 500_000, int((lows == 0).sum()))
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(ATTRIBUTES)}), index=index)
    m.subscribe_boxes(np.arange(count), lows, lows + 500_000)
    return m, rng.integers(0, 1_000_000, (300, ATTRIBUTES))


@pytest.mark.parametrize("index", ["scan", "tile"])
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.1])
def test_never_too_few_and_seldom_too_many(index: str, rate: float) -> None:
    m, events = zipf_matcher(index)
    exact = m.match_batch(events)
    loose = m.match_batch(events, max_false_positive_rate=rate)
    pairs = set(zip(exact.event.tolist(), exact.subscription.tolist(), strict=True))
    loose_pairs = set(zip(loose.event.tolist(), loose.subscription.tolist(), strict=True))
    assert pairs <= loose_pairs
    assert len(loose_pairs) - len(pairs) <= rate * len(pairs)
    event = {f"a{i}": int(value) for i, value in enumerate(events[0])}
    one = m.match(event, max_false_positive_rate=rate)
    assert sorted(one) == sorted(loose.subscription[loose.event == 0].tolist())


def test_skipping_is_real() -> None:
    m, events = zipf_matcher("scan")
    exact, loose = m.match_batch(events), m.match_batch(events, max_false_positive_rate=0.1)
    assert len(loose) > len(exact)


def test_a_negative_rate_is_refused() -> None:
    m, _ = zipf_matcher("tile")
    with pytest.raises(ValueError, match="max_false_positive_rate"):
        m.match({}, max_false_positive_rate=-0.1)
