"""Who wants an event and who comes nearest, against `explain` of every subscription."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from filter_oracle import events, to_sql, trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.model.explanation import Explanation
from property_examples import examples

SCHEMA = bm.Schema(
    {"s": "string", "n": "int", "f": "float", "b": "bool", "e": ["low", "mid", "high"]}
)
PLAIN = bm.Schema({"symbol": "string", "price": "float"})


def failures(explanation: Explanation) -> int:
    return sum(not one.satisfied for one in explanation.predicates)


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(150))
@given(data=st.data())
def test_against_explaining_all(data: st.DataObject) -> None:
    drawn = data.draw(st.lists(trees(SCHEMA), min_size=1, max_size=12))
    m = bm.Matcher(SCHEMA, keep_texts=False)  # what is nearest goes by boxes
    for number, tree in enumerate(drawn):
        m.subscribe(number, to_sql(SCHEMA, tree, random.Random(number)))
        if data.draw(st.integers(0, 5)) == 0:
            m.compact()
    for number in data.draw(st.sets(st.integers(0, len(drawn) - 1))):
        if data.draw(st.booleans()):
            m.unsubscribe(number)
        else:
            m.subscribe(number, "n > 2 OR f > 1 OR s = 'a'")
    chosen = data.draw(st.none() | st.sets(st.integers(0, len(drawn))))
    limit = data.draw(st.integers(0, 15))
    event = data.draw(events(SCHEMA, drawn[0]))

    among = None if chosen is None else lambda ids: np.isin(ids, list(chosen))
    found = m.nearest(event, limit=limit, among=among)
    ids = [id for id in range(len(drawn)) if id in m and (chosen is None or id in chosen)]
    told = {id: m.explain(event, id) for id in ids}
    assert sorted(found.matched.tolist()) == [id for id in ids if told[id].matched]
    assert found.missed == len(ids) - len(found.matched)
    missing = {id: one for id, one in told.items() if not one.matched and not one.never}
    distances = sorted(failures(one) for one in missing.values())
    assert [miss.failed for miss in found.misses] == distances[:limit]
    assert len({miss.subscription for miss in found.misses}) == len(found.misses)
    for miss in found.misses:
        explained = missing[int(miss.subscription)]
        assert miss.failed == failures(explained)
        assert miss.predicates in explained.alternatives
        assert miss.failed == sum(not one.satisfied for one in miss.predicates)


def test_of_two_as_near_the_one_with_more_that_holds_comes_first() -> None:
    m = bm.Matcher(PLAIN)
    m.subscribe("one", "price > 5")
    m.subscribe("two", "price > 5 AND symbol = 'IBM'")
    m.subscribe("far", "price > 5 AND symbol = 'T'")
    m.subscribe("all", {})
    for _ in range(2):
        found = m.nearest({"symbol": "IBM", "price": 3.0})
        assert found.matched.tolist() == ["all"]
        assert [(miss.subscription, miss.failed) for miss in found.misses] == [
            ("two", 1),
            ("one", 1),
            ("far", 2),
        ]
        assert [str(one) for one in found.misses[0].predicates] == [
            "✓ symbol = 'IBM'   got 'IBM'",
            "✗ price > 5   got 3.0",
        ]
        m.compact()


def test_what_can_never_match_is_counted_but_not_near() -> None:
    m = bm.Matcher(PLAIN)
    m.subscribe("never", "price > 5 AND price < 3")
    found = m.nearest({})
    assert (len(found.matched), found.missed, found.misses) == (0, 1, [])
    m.subscribe("near", "price > 5")
    assert [one.subscription for one in m.nearest({}).misses] == ["near"]


def test_a_limit_below_zero() -> None:
    with pytest.raises(ValueError, match="negative"):
        bm.Matcher(PLAIN).nearest({}, limit=-1)


def test_without_subscriptions() -> None:
    found = bm.Matcher(PLAIN).nearest({"price": 1.0})
    assert (len(found.matched), found.missed, found.misses) == (0, 0, [])


@pytest.mark.parametrize("event", [{"price": "dear"}, {"symbol": 5}])
def test_a_wrong_event(event: dict[str, Any]) -> None:
    with pytest.raises(bm.AttributeValueError):
        bm.Matcher(PLAIN).nearest(event)


@pytest.mark.parametrize("index", ["tile", "rein", "hem"])
def test_many(index: str) -> None:
    rng = np.random.default_rng(4)
    count, width = 5_000, 6
    lows = rng.uniform(0, 1, (count, width))
    highs = lows + rng.uniform(0, 0.5, (count, width))
    free = rng.uniform(0, 1, (count, width)) < 0.5
    lows[free] = highs[free] = np.nan
    m = bm.Matcher(bm.Schema({f"a{n}": "float" for n in range(width)}), index=index)
    m.subscribe_boxes(np.arange(count), lows, highs)
    for id in range(0, count, 7):
        m.unsubscribe(id)
    point = rng.uniform(0, 1, width)
    failed = (((point < lows) | (point > highs)) & ~free).sum(axis=1)
    left = np.arange(count) % 7 > 0
    found = m.nearest({f"a{n}": float(point[n]) for n in range(width)}, limit=50)
    assert sorted(found.matched.tolist()) == np.flatnonzero(left & (failed == 0)).tolist()
    assert found.missed == (left & (failed > 0)).sum()
    assert [one.failed for one in found.misses] == sorted(failed[left & (failed > 0)])[:50]
    assert all(failed[one.subscription] == one.failed for one in found.misses)
