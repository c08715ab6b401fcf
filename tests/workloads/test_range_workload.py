from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from chunking import EDGE, in_chunks, same_boxes

from boxmatch.model.axis import ABSENT
from boxmatch.workloads import RangeWorkload, streams
from boxmatch.workloads.distributions import distinct, integers

RANGES = [
    RangeWorkload(subscriptions=100),
    RangeWorkload(subscriptions=100, attributes=300, event_size=20, seed=7),
    RangeWorkload(subscriptions=100, attributes=6, predicates=6, event_size=3, width=0.0),
    RangeWorkload(subscriptions=100, attribute_choice="zipf", attribute_alpha=1.5),
    RangeWorkload(subscriptions=100, values="zipf"),
    RangeWorkload(subscriptions=100, values="pareto", value_alpha=1.2),
    RangeWorkload(subscriptions=100, values="normal", width=1.0),
    RangeWorkload(subscriptions=100, predicates=0),
    RangeWorkload(subscriptions=100, width_spread=0.5),
    RangeWorkload(subscriptions=100, width=0.8, width_spread=1.0, values="zipf"),
    RangeWorkload(subscriptions=100, width_spread=0.2, values="pareto", event_values="normal"),
]


@pytest.mark.parametrize("workload", RANGES, ids=str)
class TestRanges:
    def test_rows_do_not_depend_on_chunks(self, workload: RangeWorkload) -> None:
        assert in_chunks(workload.boxes)
        events = workload.events(EDGE - 5, EDGE + 5)
        assert np.array_equal(
            events,
            np.concatenate([workload.events(EDGE - 5, EDGE), workload.events(EDGE, EDGE + 5)]),
            equal_nan=True,
        )

    def test_boxes_are_as_asked(self, workload: RangeWorkload) -> None:
        boxes = workload.boxes()
        assert boxes.count == workload.subscriptions
        assert (np.diff(boxes.start) == workload.predicates).all()
        rows = boxes.attribute.reshape(boxes.count, -1).astype(int)
        assert (np.diff(rows, axis=1) > 0).all()
        assert (boxes.low >= 1).all()
        assert (boxes.high <= workload.domain).all()
        spans = boxes.high - boxes.low
        spread = round(workload.width_spread * workload.width * workload.domain)
        assert (spans >= workload.span - spread).all()
        assert (spans <= workload.span + spread).all()

    def test_all_forms_of_subscriptions_agree(self, workload: RangeWorkload) -> None:
        lows, highs = workload.bounds()
        boxes = workload.boxes()
        names = workload.names
        for row, filter_ in enumerate(workload.filters(0, workload.subscriptions)):
            dense = {
                names[i]: (int(lows[row, i]), int(highs[row, i]))
                for i in range(workload.attributes)
                if not np.isnan(lows[row, i])
            }
            assert filter_ == dense
            assert filter_ == {names[a]: (low, high) for a, low, high in boxes.row(row)}

    def test_all_forms_of_events_agree(self, workload: RangeWorkload) -> None:
        values, keys = workload.events(3, 20), workload.event_keys(3, 20)
        assert ((keys == ABSENT) == np.isnan(values)).all()
        for row, event in enumerate(workload.event_dicts(3, 20)):
            assert len(event) == workload.event_size
            assert all(1 <= value <= workload.domain for value in event.values())
            present = {n: k for n, k in zip(workload.names, keys[row], strict=True) if k != ABSENT}
            assert event == present
            assert {
                n: v for n, v in zip(workload.names, values[row], strict=True) if v == v
            } == event


def test_ranges_match_as_often_as_expected() -> None:
    workload = RangeWorkload(subscriptions=20_000, attributes=10, predicates=3, event_size=8)
    lows, highs = workload.bounds()
    counts = []
    for event in workload.events(0, 100):
        inside = np.isnan(lows) | ((lows <= event) & (event <= highs))
        counts.append(inside.all(axis=1).sum())
    assert np.mean(counts) == pytest.approx(workload.expected_matches, rel=0.1)


def test_seeds_and_purposes_are_independent() -> None:
    workload = RangeWorkload(subscriptions=1000)
    assert not same_boxes(workload.boxes(), replace(workload, seed=2).boxes())
    one, two = (streams.generator(1, purpose, 0).random(100) for purpose in ("a", "b"))
    assert not np.array_equal(one, two)


def test_uniform_choice_of_attributes_is_fair() -> None:
    rng = np.random.default_rng(5)
    chosen = distinct(rng, 20_000, 3, 8, "uniform", 1.0)
    assert np.bincount(chosen.ravel(), minlength=8) == pytest.approx(7_500, rel=0.05)
    # All 56 subsets, not just all attributes, are equally likely.
    _, subsets = np.unique(chosen, axis=0, return_counts=True)
    assert len(subsets) == 56
    assert subsets == pytest.approx(357, rel=0.25)


def test_zipf_choice_prefers_the_first_attributes() -> None:
    chosen = distinct(np.random.default_rng(5), 5_000, 2, 10, "zipf", 1.0)
    counts = np.bincount(chosen.ravel(), minlength=10)
    assert (np.diff(counts) < 0).sum() >= 8
    assert counts[0] > 3 * counts[9]


@pytest.mark.parametrize("distribution", ["uniform", "normal", "pareto", "zipf"])
@pytest.mark.parametrize("size", [1, 2, 1000])
def test_values_stay_in_their_domain(distribution: str, size: int) -> None:
    values = integers(np.random.default_rng(5), (10_000,), size, distribution, 1.0)
    assert values.min() >= 1
    assert values.max() <= size
    if size == 1000 and distribution in ("pareto", "zipf"):
        assert np.median(values) < 100


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"predicates": 21}, "predicates must be from 0 to the number of attributes"),
        ({"event_size": -1}, "event_size must be"),
        ({"width": 1.5}, "width must be from 0 to 1"),
        ({"width_spread": -0.1}, "width_spread must be from 0 to 1"),
        ({"values": "cauchy"}, "one of uniform, normal, pareto, zipf"),
        ({"event_values": "cauchy"}, "event_values must be one of uniform"),
        ({"value_deviation": -1.0}, "value_deviation must be at least 0"),
        ({"value_lowest": 0.0}, "value_lowest must be between 0 and 1"),
        ({"values": "pareto", "value_alpha": 0.0}, "value_alpha must be positive"),
        ({"event_values": "pareto", "value_alpha": 0.0}, "value_alpha must be positive"),
        ({"domain": 0}, "domain"),
        ({"attributes": 0}, "attributes"),
        ({"subscriptions": -1}, "subscriptions"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RangeWorkload(**parameters)


class TestWidths:
    def test_are_spread_uniformly(self) -> None:
        workload = RangeWorkload(subscriptions=2_000, width=0.4, width_spread=0.5)
        boxes = workload.boxes()
        widths = (boxes.high - boxes.low) / workload.domain
        shares, _ = np.histogram(widths, 4, (0.2, 0.6))
        assert shares == pytest.approx(len(widths) / 4, rel=0.05)
        assert workload.coverage == pytest.approx(widths.mean(), rel=0.01)

    def test_do_not_leave_the_domain(self) -> None:
        workload = RangeWorkload(subscriptions=2_000, width=0.9, width_spread=0.5)
        boxes = workload.boxes()
        widths = (boxes.high - boxes.low + 1) / workload.domain
        # 0.9 ± 0.45: from 1 to 1.35 of the domain is all of it.
        assert np.mean(widths == 1.0) == pytest.approx(0.35 / 0.9, rel=0.05)
        assert workload.coverage == pytest.approx(widths.mean(), rel=0.01)

    def test_spread_leaves_low_ends_their_distribution(self) -> None:
        """Small values are as much favoured in the room of a wide range as of a narrow one."""
        workload = RangeWorkload(
            subscriptions=5_000, width=0.5, width_spread=1.0, domain=100, values="zipf"
        )
        boxes = workload.boxes()
        room = workload.domain - (boxes.high - boxes.low)
        for wanted in (20, 60):
            low = boxes.low[room == wanted]
            weights = 1 / np.arange(1, wanted + 1)
            counts = np.bincount(low, minlength=wanted + 1)[1:]
            assert len(counts) == wanted
            assert counts[:5] / len(low) == pytest.approx(weights[:5] / weights.sum(), abs=0.06)

    def test_share_of_the_domain_is_the_selectivity(self) -> None:
        workload = RangeWorkload(subscriptions=500, attributes=1, predicates=1, event_size=1)
        (values,) = workload.event_keys(0, 1_000).T
        boxes = workload.boxes()
        hits = (boxes.low[:, None] <= values) & (values <= boxes.high[:, None])
        assert hits.mean() == pytest.approx(workload.coverage, rel=0.05)


class TestDistributions:
    def test_of_events_can_differ(self) -> None:
        workload = RangeWorkload(values="zipf", event_values="uniform", width=0.0)
        assert np.median(workload.boxes(0, 1_000).low) < 100_000
        assert workload.events(0, 1_000).mean() == pytest.approx(500_000, rel=0.03)
        plain = RangeWorkload(values="uniform", width=0.0)
        assert np.array_equal(workload.events(0, 100), plain.events(0, 100))

    def test_normal_of_the_rein_paper(self) -> None:
        workload = RangeWorkload(values="normal", value_deviation=0.02**0.5)
        values = workload.events(0, 5_000) / workload.domain
        assert values.mean() == pytest.approx(0.5, abs=0.01)
        assert values.var() == pytest.approx(0.02, rel=0.03)

    def test_pareto_of_the_rein_paper(self) -> None:
        workload = RangeWorkload(values="pareto", value_alpha=2.0, value_lowest=1 / 3)
        values = workload.events(0, 5_000) / workload.domain
        assert values.min() >= 1 / 3
        assert values.mean() == pytest.approx(0.5, abs=0.01)
        # Twice as far out, a quarter is left: the shape is 2 (before the cut at 1).
        tail = (1 - (1 / 3 / 0.5) ** 2) / (1 - (1 / 3) ** 2)
        assert np.mean(values <= 0.5) == pytest.approx(tail, abs=0.01)

    @pytest.mark.parametrize("distribution", ["uniform", "normal", "pareto", "zipf"])
    def test_every_value_has_a_size_of_its_own(self, distribution: str) -> None:
        size = np.tile(np.array([1, 2, 7, 1000]), 20_000).reshape(-1, 4)
        values = integers(np.random.default_rng(5), size.shape, size, distribution, 1.0)
        assert (values >= 1).all()
        assert (values <= size).all()
        alone = integers(np.random.default_rng(6), (20_000,), 7, distribution, 1.0)
        assert np.bincount(values[:, 2], minlength=8) == pytest.approx(
            np.bincount(alone, minlength=8), abs=400
        )


def test_empty_ranges_of_rows() -> None:
    assert RangeWorkload().boxes(5, 5).count == 0
    assert RangeWorkload().events(5, 5).shape == (0, 20)
    with pytest.raises(ValueError, match="not a range"):
        RangeWorkload().boxes(5, 4)
