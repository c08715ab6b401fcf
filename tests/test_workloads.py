from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from boxmatch import Matcher
from boxmatch.model.axis import ABSENT
from boxmatch.model.boxes import Boxes
from boxmatch.workloads import EqualityWorkload, MarketWorkload, RangeWorkload, streams
from boxmatch.workloads.distributions import distinct, integers

EDGE = streams.BLOCK  # rows on both sides come from different random streams


def same_boxes(one: Boxes, other: Boxes) -> bool:
    return one.dimensions == other.dimensions and all(
        np.array_equal(a, b) for a, b in zip(one[1:], other[1:], strict=True)
    )


RANGES = [
    RangeWorkload(subscriptions=100),
    RangeWorkload(subscriptions=100, attributes=300, event_size=20, seed=7),
    RangeWorkload(subscriptions=100, attributes=6, predicates=6, event_size=3, width=0.0),
    RangeWorkload(subscriptions=100, attribute_choice="zipf", attribute_alpha=1.5),
    RangeWorkload(subscriptions=100, values="zipf"),
    RangeWorkload(subscriptions=100, values="pareto", value_alpha=1.2),
    RangeWorkload(subscriptions=100, values="normal", width=1.0),
    RangeWorkload(subscriptions=100, predicates=0),
]


@pytest.mark.parametrize("workload", RANGES, ids=str)
class TestRanges:
    def test_rows_do_not_depend_on_chunks(self, workload: RangeWorkload) -> None:
        whole = workload.boxes(EDGE - 50, EDGE + 50)
        cuts = [EDGE - 50, EDGE - 49, EDGE, EDGE + 7, EDGE + 50]
        parts = [workload.boxes(a, b) for a, b in pairwise(cuts)]
        assert same_boxes(whole, Boxes.concatenate(parts))
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
        assert (boxes.high - boxes.low == workload.span).all()

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


def test_a_workload_never_changes() -> None:
    """Published figures name a seed; the numbers behind it must stay what they were."""
    workload = RangeWorkload()
    assert workload.boxes(0, 1).row(0)[:2] == [(1, 341879, 641879), (2, 164426, 464426)]
    assert workload.events(0, 1)[0, :3].tolist() == [921154, 480658, 566282]


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
        ({"width": 1.5}, "width"),
        ({"values": "cauchy"}, "one of uniform, normal, pareto, zipf"),
        ({"attributes": 0}, "attributes"),
        ({"subscriptions": -1}, "subscriptions"),
    ],
)
def test_parameters_are_checked(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RangeWorkload(**parameters)


def test_equality_forms_agree() -> None:
    workload = EqualityWorkload(subscriptions=50)
    table = workload.table()
    assert table.column_names == ["id", "region", "account", "kind"]
    filters = [{k: v for k, v in row.items() if k != "id"} for row in table.to_pylist()]
    assert workload.filters(0, 50) == filters
    assert workload.events(5, 9).to_pylist() == workload.event_dicts(5, 9)
    assert set(workload.event_dicts(0, 1)[0]) == set(workload.schema.names)
    assert workload.table(10, 20).equals(table.slice(10, 10))


def test_equality_matches_as_often_as_expected() -> None:
    workload = EqualityWorkload(accounts=50)
    wanted = workload.subscription_codes()
    events = workload.event_codes(0, 50)
    counts = [
        np.all([wanted[name] == events[name][i] for name in wanted], axis=0).sum()
        for i in range(50)
    ]
    assert np.mean(counts) == pytest.approx(workload.expected_matches, rel=0.2)


class TestMarket:
    market = MarketWorkload()

    def test_rows_do_not_depend_on_chunks(self) -> None:
        for make in (self.market.alerts, self.market.odd_texts, self.market.ticks):
            whole = make(EDGE - 20, EDGE + 20)
            halves = pa.concat_tables([make(EDGE - 20, EDGE - 3), make(EDGE - 3, EDGE + 20)])
            assert whole.equals(halves.combine_chunks())

    def test_symbols_are_distinct(self) -> None:
        assert len(set(self.market.symbol_names)) == self.market.symbols

    def test_texts_say_what_the_columns_say(self) -> None:
        texts = self.market.alert_texts(0, 200)["filter"].to_pylist()
        for text, row in zip(texts, self.market.alerts(0, 200).to_pylist(), strict=True):
            del row["id"]
            for value in row.values():
                if value is None:
                    continue
                shown = str(value).removesuffix("+00:00").removesuffix(".0")
                assert shown.lower() in text.lower()
            constrained = {
                n.removesuffix("_low").removesuffix("_high")
                for n, v in row.items()
                if v is not None
            }
            assert all(f"{name} " in text for name in constrained)

    def test_ticks_fit_the_schema(self) -> None:
        (tick,) = self.market.tick_dicts(0, 1)
        assert tuple(tick) == self.market.schema.names
        assert tick["symbol"] in self.market.symbol_names


def test_empty_ranges_of_rows() -> None:
    assert RangeWorkload().boxes(5, 5).count == 0
    assert RangeWorkload().events(5, 5).shape == (0, 20)
    assert MarketWorkload().alerts(7, 7).num_rows == 0
    with pytest.raises(ValueError, match="not a range"):
        RangeWorkload().boxes(5, 4)


def test_alert_columns_and_texts_match_alike() -> None:
    """The bulk form by columns and the filter language agree on every tick."""
    market = MarketWorkload(symbols=20)
    columns, texts = (Matcher(market.schema, index="scan") for _ in range(2))
    columns.subscribe_many(market.alerts(0, 2_000))
    texts.subscribe_many(market.alert_texts(0, 2_000))
    ticks = market.ticks(0, 300)
    one, two = columns.match_batch(ticks), texts.match_batch(ticks)
    assert one.counts.sum() > 1_000
    pairs = [set(zip(r.event.tolist(), r.subscription.tolist(), strict=True)) for r in (one, two)]
    assert pairs[0] == pairs[1]


def test_odd_alerts_compile_and_match() -> None:
    market = MarketWorkload(symbols=20)
    matcher = Matcher(market.schema, index="scan")
    matcher.subscribe_many(market.odd_texts(0, 500))
    assert len(matcher) == 500
    assert matcher.count_batch(market.ticks(0, 500)).sum() > 100
