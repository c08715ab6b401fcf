from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from chunking import EDGE, in_chunks, same_boxes

from boxmatch import Matcher
from boxmatch.workloads import BooleanWorkload

WORKLOADS = [
    BooleanWorkload(subscriptions=300),
    BooleanWorkload(subscriptions=300, event_model="exponential", chance=0.3),
    BooleanWorkload(subscriptions=300, properties=7, zero=0.3, one=0.2, spread=1.0, seed=4),
    BooleanWorkload(subscriptions=300, properties=1, zero=0.0, one=1.0, spread=0.0),
]


@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
class TestRows:
    def test_do_not_depend_on_chunks(self, workload: BooleanWorkload) -> None:
        assert in_chunks(workload.boxes)
        halves = [workload.event_keys(EDGE - 5, EDGE), workload.event_keys(EDGE, EDGE + 5)]
        assert np.array_equal(workload.event_keys(EDGE - 5, EDGE + 5), np.concatenate(halves))

    def test_boxes_ask_for_zero_or_one(self, workload: BooleanWorkload) -> None:
        boxes = workload.boxes()
        assert boxes.count == workload.subscriptions
        assert boxes.dimensions == workload.properties
        assert np.isin(boxes.low, [0, 1]).all()
        assert np.array_equal(boxes.low, boxes.high)
        for row in range(boxes.count):
            attributes = [attribute for attribute, _, _ in boxes.row(row)]
            assert attributes == sorted(set(attributes))

    def test_forms_agree(self, workload: BooleanWorkload) -> None:
        boxes, names = workload.boxes(), workload.names
        for row, filter_ in enumerate(workload.filters(0, workload.subscriptions)):
            assert filter_ == {names[a]: bool(low) for a, low, _ in boxes.row(row)}
        keys = workload.event_keys(3, 40)
        assert np.array_equal(keys, workload.events(3, 40))
        assert keys.dtype == np.int64
        wanted = [dict(zip(names, map(bool, row), strict=True)) for row in keys.tolist()]
        assert workload.event_dicts(3, 40) == wanted

    def test_boxes_and_filters_match_alike(self, workload: BooleanWorkload) -> None:
        """Through the engine, by keys and by dicts, and written out in NumPy."""
        count = workload.subscriptions
        boxes = workload.boxes()
        compressed, texts = (Matcher(workload.schema, index="scan") for _ in range(2))
        compressed._subscribe_compressed(np.arange(count), boxes)
        for row, filter_ in enumerate(workload.filters(0, count)):
            texts.subscribe(row, filter_)
        keys = workload.event_keys(0, 50)
        wrong = keys[:, boxes.attribute] != boxes.low
        row_of = np.repeat(np.arange(count), np.diff(boxes.start))
        expected = set()
        for event in range(50):
            matching = np.setdiff1d(np.arange(count), row_of[wrong[event]])
            expected |= {(event, row) for row in matching.tolist()}
        assert expected
        for matcher in (compressed, texts):
            result = matcher.match_batch(workload.events(0, 50))
            pairs = zip(result.event.tolist(), result.subscription.tolist(), strict=True)
            assert set(pairs) == expected


class TestSubscriptions:
    def test_ask_as_often_as_said(self) -> None:
        workload = BooleanWorkload(subscriptions=20_000)
        boxes, odds = workload.boxes(), workload.odds
        for value, wanted in ((0, odds.zero), (1, odds.one)):
            asked = np.bincount(boxes.attribute[boxes.low == value], minlength=100) / 20_000
            assert asked == pytest.approx(wanted, abs=0.01)
            assert asked.mean() == pytest.approx(0.05, rel=0.1)

    def test_odds_are_spread_as_asked(self) -> None:
        zero, one = BooleanWorkload(properties=2_000, zero=0.1, one=0.05, spread=0.5).odds
        for odds, middle in ((zero, 0.1), (one, 0.05)):
            shares, _ = np.histogram(odds, 4, (middle / 2, middle * 1.5))
            assert shares == pytest.approx(500, rel=0.15)
        assert abs(np.corrcoef(zero, one)[0, 1]) < 0.1
        zero, one = BooleanWorkload(spread=0.0).odds
        assert set(zero) == set(one) == {0.05}

    def test_some_ask_for_nothing(self) -> None:
        workload = BooleanWorkload(subscriptions=5_000, zero=0.01, one=0.01, spread=0.0)
        empty = (np.diff(workload.boxes().start) == 0).mean()
        assert empty == pytest.approx(0.98**100, rel=0.15)


class TestLightEvents:
    def test_numbers_of_ones_follow_zipf(self) -> None:
        ones = BooleanWorkload().event_keys(0, 20_000).sum(axis=1)
        weights = np.arange(1, 101) ** -2.0
        shares = np.bincount(ones, minlength=101) / 20_000
        assert shares[0] == 0
        assert shares[1:] == pytest.approx(weights / weights.sum(), abs=0.01)
        assert ones.mean() == pytest.approx(3.17, rel=0.1)  # "about 3" in the paper

    def test_never_have_more_ones_than_asked(self) -> None:
        ones = BooleanWorkload(most_ones=3, alpha=0.5).event_keys(0, 5_000).sum(axis=1)
        assert set(ones) == {1, 2, 3}
        assert BooleanWorkload(properties=4, alpha=0.0).event_keys(0, 5_000).sum(axis=1).max() == 4

    def test_all_with_as_many_ones_are_equally_likely(self) -> None:
        events = BooleanWorkload(properties=6, most_ones=6, alpha=0.0).event_keys(0, 60_000)
        for ones, subsets in ((1, 6), (2, 15), (3, 20), (5, 6)):
            chosen = events[events.sum(axis=1) == ones]
            _, counts = np.unique(chosen, axis=0, return_counts=True)
            assert len(counts) == subsets
            assert counts == pytest.approx(len(chosen) / subsets, rel=0.2)


def test_exponential_events_have_independent_ones() -> None:
    workload = BooleanWorkload(properties=20, event_model="exponential", chance=0.1)
    events = workload.event_keys(0, 20_000)
    assert events.mean(axis=0) == pytest.approx(0.1, abs=0.01)
    together = events.T @ events / 20_000
    assert together[~np.eye(20, dtype=bool)] == pytest.approx(0.01, abs=0.004)


def test_seeds_differ() -> None:
    one = BooleanWorkload(subscriptions=100)
    two = replace(one, seed=2)
    assert not same_boxes(one.boxes(), two.boxes())
    assert not np.array_equal(one.event_keys(0, 50), two.event_keys(0, 50))


def test_empty_ranges_of_rows() -> None:
    assert BooleanWorkload().boxes(5, 5).count == 0
    assert BooleanWorkload().events(5, 5).shape == (0, 100)
    with pytest.raises(ValueError, match="not a range"):
        BooleanWorkload().boxes(5, 4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"event_model": "heavy"}, "one of light, exponential"),
        ({"properties": 0}, "properties must be from 1"),
        ({"subscriptions": -1}, "subscriptions must be at least 0"),
        ({"chance": 1.5}, "chance must be from 0 to 1"),
        ({"zero": 0.5, "one": 0.4}, "more than 1"),
        ({"most_ones": 0}, "most_ones must be at least 1"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BooleanWorkload(**parameters)
