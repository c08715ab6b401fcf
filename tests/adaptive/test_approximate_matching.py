"""`max_false_positive_rate`: never a match too few, and not more false ones than asked for."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.indexes.base import Capabilities
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.indexes.scan import ScanIndex
from boxmatch.workloads.ranges import RangeWorkload

APPROXIMATE = [name for name in index_names() if index_class(name).capabilities.approximate]


def test_those_that_must_can() -> None:
    assert {"scan", "tile"} <= set(APPROXIMATE)


def pairs(result: bm.MatchResult) -> set[tuple[int, int]]:
    found = list(zip(result.event.tolist(), result.subscription.tolist(), strict=True))
    assert len(set(found)) == len(found), "no subscription is named twice for an event"
    return set(found)


@st.composite
def changes(draw: st.DrawFn) -> tuple[int, dict[int, str], list[int]]:
    """A seed, filters to subscribe one by one, and ids to take away."""
    filters = st.sampled_from(
        [
            "a0 IN (1, 5) AND a1 < 8",
            "a0 < 3 OR a1 > 6",
            "a3 IS NULL",
            "a2 = 4 AND a2 = 5",
            "a4 BETWEEN 2 AND 7 AND (a5 = 1 OR a5 = 3)",
            "a1 >= 2",
        ]
    )
    singles = draw(st.dictionaries(st.integers(40, 70), filters, max_size=12))
    return draw(st.integers(0, 10_000)), singles, draw(st.lists(st.integers(0, 60), max_size=10))


def mixed_matcher(index: str, seed: int, singles: dict[int, str], gone: list[int]) -> bm.Matcher:
    """Subscriptions of one box and of several, in segments and in the tail, some removed."""
    rng = np.random.default_rng(seed)
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(6)}), index=index)
    lows = rng.integers(0, 8, (60, 6)).astype(float)
    highs = lows + rng.integers(0, 8, (60, 6))
    absent = rng.random((60, 6)) < np.array([0.1, 0.2, 0.85, 0.9, 0.93, 0.95])
    lows[absent] = highs[absent] = np.nan
    m.subscribe_boxes(np.arange(60), lows, highs)
    many = ["a5 IN (1, 4) AND a0 > 1", "a0 < 3 OR a5 < 5", "a5 > 9 AND a5 < 3"]
    m.subscribe_many([{"id": 100 + i, "filter": text} for i, text in enumerate(many)])
    for number, text in singles.items():
        m.subscribe(number, text)
    for number in gone:
        if number in m:
            m.unsubscribe(number)
    return m


@pytest.mark.parametrize("index", APPROXIMATE)
@settings(max_examples=30)
@given(change=changes(), rate=st.sampled_from([0.05, 0.1, 0.3, 0.9, 0.99]))
def test_never_too_few(
    index: str, change: tuple[int, dict[int, str], list[int]], rate: float
) -> None:
    m = mixed_matcher(index, *change)
    events = np.random.default_rng(change[0] + 1).integers(0, 12, (40, 6)).astype(float)
    events[events == 11] = np.nan
    exact = m.match_batch(events)
    loose = m.match_batch(events, max_false_positive_rate=rate)
    assert exact.skipped_attributes == ()
    assert pairs(exact) <= pairs(loose)
    # What was added is what one gets by brute force without the skipped predicates, or less.
    obvious = mixed_matcher("scan", *change).match_batch(events, max_false_positive_rate=rate)
    assert loose.skipped_attributes == obvious.skipped_attributes
    assert pairs(loose) <= pairs(obvious)
    if not loose.skipped_attributes:
        assert pairs(loose) == pairs(exact)
    counts = m.count_batch(events, max_false_positive_rate=rate)
    assert (m.count_batch(events) <= counts).all()
    assert (counts <= obvious.counts).all()
    for row in range(3):
        event = {f"a{i}": int(v) for i, v in enumerate(events[row]) if not np.isnan(v)}
        one = m.match(event, max_false_positive_rate=rate)
        assert len(set(one)) == len(one)
        wanted = {s for e, s in pairs(exact) if e == row}
        assert wanted <= set(one) <= {s for e, s in pairs(obvious) if e == row}


def test_the_property_above_is_not_empty() -> None:
    m = mixed_matcher("scan", 4, {}, [])
    events = np.random.default_rng(2).integers(0, 11, (200, 6))
    found = [m.match_batch(events, max_false_positive_rate=rate) for rate in (0.0, 0.1, 0.3, 0.99)]
    names = [set(result.skipped_attributes) for result in found]
    matches = [pairs(result) for result in found]
    assert names[0] < names[1] < names[2] <= names[3]
    assert matches[0] < matches[1] < matches[2] <= matches[3]


def test_counts_are_those_of_the_list() -> None:
    m = mixed_matcher("scan", 3, {41: "a0 IN (1, 5)", 42: "a0 < 3 OR a1 > 6"}, [7, 8])
    events = np.random.default_rng(4).integers(0, 11, (200, 6))
    for rate in (0.0, 0.5, 0.99):
        listed = m.match_batch(events, max_false_positive_rate=rate)
        counts = m.count_batch(events, max_false_positive_rate=rate)
        assert counts.tolist() == listed.counts.tolist()


def test_boxes_of_one_subscription_that_meet_once_predicates_go() -> None:
    rows = [{"id": f"s{i}", "filter": f"y BETWEEN {i} AND {i + 500}"} for i in range(1_000)]
    rows.append({"id": "both", "filter": "x IN (1, 5) AND y > 0"})
    m = bm.Matcher(bm.Schema({"x": "int", "y": "int"}), index="scan")
    m.subscribe_many(rows)
    m.subscribe("late", "x IN (2, 6) AND y > 0")
    events = [{"x": 1, "y": 1_600}, {"x": 3, "y": 1_600}]
    loose = m.match_batch(events, max_false_positive_rate=0.1)
    assert loose.skipped_attributes == ("x",)
    assert pairs(loose) == {(0, "both"), (0, "late"), (1, "both"), (1, "late")}
    assert sorted(m.match(events[1], max_false_positive_rate=0.1)) == ["both", "late"]
    assert m.count_batch(events, max_false_positive_rate=0.1).tolist() == [2, 2]
    assert pairs(m.match_batch(events)) == {(0, "both")}


@cache
def table_ii_matcher(index: str, seed: int) -> tuple[bm.Matcher, np.ndarray]:
    """Table II's setting with a fiftieth of its subscriptions, and 1,000 events."""
    return table_ii(seed, index=index), table_ii_workload(seed).events(0, 1_000)


def table_ii_workload(seed: int) -> RangeWorkload:
    return RangeWorkload(
        subscriptions=20_000,
        attributes=1_000,
        predicates=4,
        event_size=1_000,
        width=0.5,
        attribute_choice="zipf",
        attribute_alpha=2.0,
        seed=seed,
    )


def table_ii(seed: int, **index: Any) -> bm.Matcher:
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(1_000)}), **index)
    m._subscribe_compressed(np.arange(20_000), table_ii_workload(seed).boxes())
    return m


def false_rates(m: bm.Matcher, events: np.ndarray, *rates: float) -> list[float]:
    """False matches for each true one, at each of the rates asked for."""
    exact = m.count_batch(events).sum()
    found = [m.count_batch(events, max_false_positive_rate=rate).sum() for rate in rates]
    return [float(one / exact) - 1 for one in found]


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3))]
)
def test_measured_rate_on_zipf_attributes(seed: int) -> None:
    """The engine's estimate of w is cautious enough to need no allowance for chance."""
    m, events = table_ii_matcher("scan", seed)
    rates = (0.001, 0.01, 0.1)
    for rate, found in zip(rates, false_rates(m, events, *rates), strict=True):
        assert 0.2 * rate < found <= rate


@pytest.mark.parametrize("index", [name for name in APPROXIMATE if name != "scan"])
def test_other_indexes_add_no_more_than_brute_force(index: str) -> None:
    m, events = table_ii_matcher(index, 1)
    obvious, _ = table_ii_matcher("scan", 1)
    some = events[:100]
    loose = m.match_batch(some, max_false_positive_rate=0.05)
    most = obvious.match_batch(some, max_false_positive_rate=0.05)
    assert len(loose.skipped_attributes) > 200
    assert loose.skipped_attributes == most.skipped_attributes
    assert pairs(m.match_batch(some)) <= pairs(loose) <= pairs(most)


def test_measured_rate_where_attributes_occur_together() -> None:
    """The rare attributes are all in the same hundred boxes: losing four of them costs 16-fold."""
    rng = np.random.default_rng(9)
    rows = np.array([rng.choice(6, 4, replace=False) for _ in range(10_000)])
    rows[:100] = [6, 7, 8, 9]
    lows = np.full((10_000, 10), np.nan)
    np.put_along_axis(lows, rows, rng.integers(0, 500_000, rows.shape), axis=1)
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(10)}), index="scan")
    m.subscribe_boxes(np.arange(10_000), lows, lows + 499_999)
    rates = (0.01, 0.05, 0.1, 0.55)
    found = false_rates(m, rng.integers(0, 1_000_000, (2_000, 10)), *rates)
    assert (np.array(found) <= rates).all()
    assert found[-1] > 0.1


@pytest.mark.parametrize("width", [0.5, 0.9])
def test_measured_rate_with_boxes_of_many_sizes(width: float) -> None:
    """Too low an estimate of w (wide ranges) makes long boxes seem to count for little."""
    rng = np.random.default_rng(11)
    lows = np.full((4_000, 29), np.nan)
    lows[:2_000, :2] = 0
    lows[2_000:, :9] = 0
    lows[np.arange(2_000, 4_000), rng.integers(9, 29, 2_000)] = 0
    low = rng.integers(0, int((1 - width) * 1_000_000), lows.shape)
    lows[lows == 0] = low[lows == 0]
    m = bm.Matcher(bm.Schema({f"a{i}": "int" for i in range(29)}), index="scan")
    m.subscribe_boxes(np.arange(4_000), lows, lows + width * 1_000_000)
    # Events share most of what decides them, so it takes many for a mean within 1 %.
    events = rng.integers(0, 1_000_000, (10_000, 29))
    found = false_rates(m, events, 0.01, 0.03)
    assert 0 < found[0] <= 0.01
    assert found[0] < found[1] <= 0.03


def test_filters_that_never_match_are_not_let_in() -> None:
    """They match every event once their predicate goes, so that attribute is not skipped."""
    m = bm.Matcher(bm.Schema({"rare": "int", "x": "int", "odd": "int"}), index="scan")
    rows = [{"id": i, "filter": f"x BETWEEN {i} AND {i + 1_000}"} for i in range(2_000)]
    rows += [{"id": 2_000 + i, "filter": "rare > 5 AND rare < 3"} for i in range(100)]
    rows += [{"id": 3_000 + i, "filter": f"x > {i} AND odd < {i}"} for i in range(120)]
    m.subscribe_many(rows)
    events = np.random.default_rng(12).integers(0, 3_000, (500, 3))
    loose = m.match_batch(events, max_false_positive_rate=0.1)
    assert loose.skipped_attributes == ()
    assert false_rates(m, events, 0.2)[0] <= 0.2


def test_removed_subscriptions_leave_no_allowance_behind() -> None:
    """Broad subscriptions have most true matches; without them the same skipping is too much."""
    m = bm.Matcher(bm.Schema({"x": "int", "y": "int", "rare": "int"}), index="scan")
    count = 1_000
    rng = np.random.default_rng(13)
    lows = np.full((count, 3), np.nan)
    lows[:, :2] = rng.integers(0, 900, (count, 2))
    highs = lows + 100
    lows[:300, :2], highs[:300, :2] = np.nan, np.nan  # match every event
    lows[300:350, 2] = rng.integers(0, 500, 50)
    highs[300:350, 2] = lows[300:350, 2] + 500
    m.subscribe_boxes(np.arange(count), lows, highs)
    events = rng.integers(0, 1_000, (2_000, 3))
    before = m.match_batch(events, max_false_positive_rate=0.01)
    assert before.skipped_attributes == ("rare",)
    for number in range(300):
        m.unsubscribe(number)
    after = m.match_batch(events, max_false_positive_rate=0.01)
    assert after.skipped_attributes == ()
    assert false_rates(m, events, 0.01)[0] <= 0.01
    m.compact()
    compacted = m.match_batch(events, max_false_positive_rate=0.01)
    assert compacted.skipped_attributes == ()


def test_new_subscriptions_are_heeded_before_they_are_indexed() -> None:
    m = bm.Matcher(bm.Schema({"x": "int", "rare": "int"}), index="scan")
    lows = np.full((1_000, 2), np.nan)
    lows[:, 0] = np.random.default_rng(14).integers(0, 500, 1_000)
    lows[:5, 1] = 3
    m.subscribe_boxes(np.arange(1_000), lows, lows + 500)
    events = [{"x": 400, "rare": 1}]
    before = m.match_batch(events, max_false_positive_rate=0.02)
    assert before.skipped_attributes == ("rare",)
    for number in range(1_000, 1_300):
        m.subscribe(number, "x > 10 AND rare = 7")
    after = m.match_batch(events, max_false_positive_rate=0.02)
    assert after.skipped_attributes == ()
    assert pairs(after) == pairs(m.match_batch(events))


def test_what_is_not_indexed_is_matched_exactly() -> None:
    m = bm.Matcher(bm.Schema({"x": "int"}))
    for number in range(50):
        m.subscribe(number, f"x > {number}")
    loose = m.match_batch([{"x": 20}], max_false_positive_rate=0.99)
    assert loose.skipped_attributes == ()
    assert pairs(loose) == {(0, number) for number in range(20)}


def test_an_index_that_cannot_approximate_answers_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = mixed_matcher("scan", 5, {45: "a0 IN (1, 5)"}, [])
    events = np.random.default_rng(6).integers(0, 11, (200, 6))
    exact = pairs(m.match_batch(events))
    assert m.match_batch(events, max_false_positive_rate=0.99).skipped_attributes
    monkeypatch.setattr(ScanIndex, "capabilities", Capabilities())
    m = mixed_matcher("scan", 5, {45: "a0 IN (1, 5)"}, [])
    result = m.match_batch(events, max_false_positive_rate=0.99)
    assert result.skipped_attributes == ()
    assert pairs(result) == exact


@pytest.mark.parametrize(
    "index", [name for name in index_names() if not index_class(name).capabilities.approximate]
)
def test_exact_indexes_say_so(index: str) -> None:
    """Booleans, which every index knows."""
    rng = np.random.default_rng(7)
    m = bm.Matcher(bm.Schema({f"a{i}": "bool" for i in range(6)}), index=index)
    lows = np.where(rng.random((300, 6)) < 0.4, rng.integers(0, 2, (300, 6)), np.nan)
    m.subscribe_boxes(np.arange(300), lows, lows)
    events = rng.integers(0, 2, (50, 6))
    result = m.match_batch(events, max_false_positive_rate=0.99)
    assert result.skipped_attributes == ()
    assert pairs(result) == pairs(m.match_batch(events))
    assert m.count_batch(events, max_false_positive_rate=0.99).tolist() == result.counts.tolist()


@pytest.mark.parametrize("rate", [-0.1, 1, 1.0, 2, float("inf"), float("nan"), True, "0.1"])
def test_impossible_rates_are_refused(rate: Any) -> None:
    m = bm.Matcher(bm.Schema({"x": "int"}))
    for verb in (m.match, m.match_batch, m.count_batch):
        with pytest.raises(bm.IndexConfigError, match="max_false_positive_rate must be from 0"):
            verb({} if verb == m.match else [{}], max_false_positive_rate=rate)


def test_an_index_with_a_rate_of_its_own_follows_it_unless_told() -> None:
    obvious, events = table_ii_matcher("scan", 1)
    some = events[:50]
    own = table_ii(1, index="ada-rein", rate=0.05)
    loose = own.match_batch(some)
    told = own.match_batch(some, max_false_positive_rate=0.05)
    assert loose.skipped_attributes == told.skipped_attributes != ()
    assert pairs(loose) == pairs(told)
    exact = own.match_batch(some, max_false_positive_rate=0)
    assert exact.skipped_attributes == ()
    assert pairs(exact) == pairs(obvious.match_batch(some)) < pairs(told)


def test_names_in_the_place_of_a_rate() -> None:
    """What is skipped can be chosen elsewhere, for many matchers, from sums over all of them."""
    halves = [mixed_matcher("rein", seed, {50: "a1 >= 2"}, [3, 40]) for seed in (1, 2)]
    events = np.random.default_rng(3).integers(0, 12, (40, 6)).astype(float)
    for m in halves:
        m.compact()
        chosen = m.match_batch(events, max_false_positive_rate=0.3)
        assert chosen.skipped_attributes
        named = m.match_batch(events, skipped_attributes=chosen.skipped_attributes)
        assert named.skipped_attributes == chosen.skipped_attributes
        assert pairs(named) == pairs(chosen)
        counts = m.count_batch(events, skipped_attributes=chosen.skipped_attributes)
        assert counts.tolist() == chosen.counts.tolist()
        assert pairs(m.match_batch(events, skipped_attributes=())) == pairs(m.match_batch(events))
        kept = np.arange(200) % 2 == 0
        cases = m.estimate_selectivity()
        whole, parts = m.count_excess(cases), [m.count_excess(cases, k) for k in (kept, ~kept)]
        assert (sum(frequency for frequency, _ in parts) == whole[0]).all()
        np.testing.assert_allclose(parts[0][1].true + parts[1][1].true, whole[1].true)
    with pytest.raises(bm.IndexConfigError, match="no attribute 'nosuch'"):
        halves[0].match_batch(events, skipped_attributes=["nosuch"])
    with pytest.raises(bm.IndexConfigError, match="not both"):
        halves[0].match_batch(events, skipped_attributes=["a1"], max_false_positive_rate=0.1)
