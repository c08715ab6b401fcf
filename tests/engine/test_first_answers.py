"""Answers while the kernels of the index are compiled, and the switch to the index."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import boxmatch as bm
from boxmatch.engine import stores
from boxmatch.engine.box_stores import IndexedSegment
from boxmatch.indexes.base import Query
from boxmatch.indexes.plain_scan import scan_plainly
from boxmatch.indexes.scan import scan_over
from boxmatch.kernels.background import ALL, Background, Stage, background
from boxmatch.kernels.bit_lines import filled_lines
from boxmatch.model.boxes import Boxes
from boxmatch.model.points import ListKeys

ALPHABET = "abc"


@pytest.fixture
def helper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Background]:
    """As if a helper compiled kernels that are not there: `_reach` says that they are."""
    monkeypatch.setattr(background, "_stage", Stage.NOTHING)
    monkeypatch.setattr(background, "_running", True)
    yield background
    background._reach(ALL)


class Model:
    """A matcher, and what it should answer by plain Python."""

    def __init__(self, matcher: bm.Matcher, seed: int = 1) -> None:
        self.matcher = matcher
        self.random = np.random.default_rng(seed)
        self.wanted: dict[int, dict[str, Any]] = {}

    def subscribe(self, count: int, *, bulk: bool) -> None:
        first = max(self.wanted, default=-1) + 1
        new = {first + n: self._filter() for n in range(count)}
        if bulk:
            self.matcher.subscribe_many([{"id": id, "filter": new[id]} for id in new])
        else:
            for id, filter in new.items():
                self.matcher.subscribe(id, filter)
        self.wanted |= new

    def unsubscribe(self, count: int) -> None:
        for id in self.random.choice([*self.wanted], count, replace=False).tolist():
            self.matcher.unsubscribe(id)
            del self.wanted[id]

    def check(self) -> None:
        events = [self._event() for _ in range(40)]
        right = [{id for id, f in self.wanted.items() if _matches(f, e)} for e in events]
        found = self.matcher.match_batch(events)
        pairs = list(zip(found.event.tolist(), found.subscription.tolist(), strict=True))
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == {(n, id) for n, ids in enumerate(right) for id in ids}
        assert self.matcher.count_batch(events).tolist() == [len(ids) for ids in right]
        for event, ids in zip(events[:5], right[:5], strict=True):
            assert sorted(self.matcher.match(event)) == sorted(ids)
            loose = self.matcher.match(event, max_false_positive_rate=0.3)
            assert ids <= set(loose)

    def _filter(self) -> dict[str, Any]:
        low = self.random.integers(0, 50, 2).tolist()
        options: dict[str, Any] = {"x": (low[0], low[0] + 20), "y": (low[1], low[1] + 9.5)}
        options |= {"s": str(self.random.choice([*ALPHABET]))}
        return {name: one for name, one in options.items() if self.random.random() < 0.6}

    def _event(self) -> dict[str, Any]:
        x, y = self.random.integers(0, 70, 2).tolist()
        event = {"x": x, "y": y / 2, "s": str(self.random.choice([*ALPHABET]))}
        return {name: value for name, value in event.items() if self.random.random() < 0.9}


def _matches(filter: dict[str, Any], event: dict[str, Any]) -> bool:
    for name, asked in filter.items():
        value = event.get(name)
        if value is None:
            return False
        if value != asked if name == "s" else not asked[0] <= value <= asked[1]:
            return False
    return True


def _interim(matcher: bm.Matcher) -> list[bool]:
    segments = [view.store for view in matcher.snapshot.views]
    return [one.interim for one in segments if isinstance(one, IndexedSegment)]


def _wait_for_index(matcher: bm.Matcher) -> None:
    until = time.monotonic() + 60
    while any(_interim(matcher)):
        assert time.monotonic() < until
        time.sleep(0.01)


SCHEMA = {"x": "int", "y": "float", "s": "string"}


def test_answers_before_during_and_after_the_switch(helper: Background) -> None:
    model = Model(bm.Matcher(SCHEMA))
    model.subscribe(700, bulk=True)
    model.check()
    assert _interim(model.matcher) == [True]
    for stage in (Stage.NOTHING, Stage.SCAN):
        helper._reach(stage)
        model.subscribe(1500, bulk=False)  # compaction moves them from the tail to a segment
        model.unsubscribe(300)
        model.subscribe(200, bulk=True)
        model.check()
        model.matcher.compact()
        assert all(_interim(model.matcher))
        model.unsubscribe(20)
        model.check()
    helper._reach(Stage.INDEX)
    model.unsubscribe(50)  # perhaps while the index is built
    model.check()
    _wait_for_index(model.matcher)
    assert _interim(model.matcher)
    model.check()
    model.subscribe(100, bulk=True)
    assert not any(_interim(model.matcher))
    model.check()


def test_changes_while_the_index_is_built(
    helper: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(bm.Matcher(SCHEMA))
    model.subscribe(500, bulk=True)
    merge, building, changed = stores.merge, threading.Event(), threading.Event()

    def slow_merge(*arguments: Any) -> Any:
        merged = merge(*arguments)
        building.set()
        assert changed.wait(60)
        return merged

    monkeypatch.setattr(stores, "merge", slow_merge)
    helper._reach(Stage.INDEX)
    assert building.wait(60)
    model.unsubscribe(100)
    model.subscribe(50, bulk=False)
    model.check()
    assert _interim(model.matcher) == [True]
    changed.set()
    _wait_for_index(model.matcher)
    model.check()


def test_lists_and_texts_are_searched_without_kernels(helper: Background) -> None:
    matcher = bm.Matcher({"tags": "list of string", "n": "list of int", "s": "string"})
    filters = ["'a' = ANY(tags)", "ANY(n) > 5", "s LIKE '%ab%'", "tags @> ARRAY['a', 'b']"]
    matcher.subscribe_many([{"id": id, "filter": filters[id % 4]} for id in range(400)])
    event = {"tags": ["b", "a"], "n": [2, 5], "s": "cab"}
    other = {"tags": ["b"], "n": [7, 1], "s": "cb"}
    for stage in (Stage.NOTHING, Stage.SCAN, Stage.INDEX, Stage.LISTS):
        helper._reach(stage)
        found = matcher.match_batch([event, other] * 30)
        assert found.counts.tolist() == [300, 100] * 30
        assert {id % 4 for id in matcher.match(event)} == {0, 2, 3}
        assert {id % 4 for id in matcher.match(other)} == {1}
    _wait_for_index(matcher)
    assert {id % 4 for id in matcher.match(event)} == {0, 2, 3}


def test_saving_waits_for_the_index(helper: Background, tmp_path: Path) -> None:
    model = Model(bm.Matcher(SCHEMA))
    model.subscribe(300, bulk=True)
    saving = threading.Thread(target=model.matcher.save, args=(tmp_path,))
    saving.start()
    saving.join(0.2)
    assert saving.is_alive()
    helper._reach(ALL)
    saving.join(60)
    model.matcher = bm.Matcher.load(tmp_path)
    assert _interim(model.matcher) == [False]
    model.check()


def test_a_durable_matcher_does_not_wait(helper: Background, tmp_path: Path) -> None:
    with bm.Matcher.open(tmp_path, SCHEMA) as matcher:
        model = Model(matcher)
        model.subscribe(300, bulk=True)
        model.subscribe(20, bulk=False)
        model.check()
    with bm.Matcher.open(tmp_path) as model.matcher:
        assert all(_interim(model.matcher))
        model.check()
        helper._reach(ALL)
        _wait_for_index(model.matcher)
        model.check()


def test_a_saved_index_is_searched_without_its_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(bm.Matcher(SCHEMA))
    model.subscribe(300, bulk=True)
    model.matcher.save(tmp_path)
    monkeypatch.setattr(background, "_stage", Stage.NOTHING)
    monkeypatch.setattr(background, "_running", True)
    model.matcher = bm.Matcher.load(tmp_path)
    [view] = model.matcher.snapshot.views
    monkeypatch.setattr(type(view._index), "_search", None)
    model.check()


def test_a_large_batch_waits_for_the_index(
    helper: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Model(bm.Matcher(SCHEMA))
    model.subscribe(300, bulk=True)
    monkeypatch.setattr(stores, "MUCH", 300 * 39)
    checking = threading.Thread(target=model.check)
    checking.start()
    checking.join(0.2)
    assert checking.is_alive()
    helper._reach(ALL)
    checking.join(60)
    assert _interim(model.matcher) == [False]
    model.check()


@given(data=st.data())
def test_the_plain_scan_finds_what_the_kernels_find(data: st.DataObject) -> None:
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dimensions, count = int(random.integers(1, 5)), int(random.integers(0, 80))
    rows = [
        [
            (a, *sorted(random.integers(-9, 9, 2).tolist()))
            for a in range(dimensions)
            if random.random() < 0.5
        ]
        for _ in range(count)
    ]
    seen = int(random.integers(0, count + 1))  # the arrays may be longer than what is asked for
    boxes = Boxes.of(dimensions, rows)  # type: ignore[arg-type]
    events = int(random.integers(0, 9))
    points = random.integers(-9, 9, (events, dimensions))
    lists = None
    if data.draw(st.booleans()):
        starts = np.concatenate(([0], np.cumsum(random.integers(0, 4, events))))
        keys = random.integers(-9, 9, int(starts[-1]))
        lists = ListKeys.of([dimensions - 1], [(starts, keys)])
    alive = np.zeros((0, 8), np.uint64)
    if data.draw(st.booleans()):
        alive = filled_lines(seen) & random.integers(0, 2**63, filled_lines(seen).shape, np.uint64)
    skipped = random.random(dimensions) < 0.3 if data.draw(st.booleans()) else np.zeros(0, bool)
    for listing in (True, False):
        query = Query(points, alive, skipped, listing, np.empty(events, np.int64))
        found = scan_plainly(boxes, seen, query, lists)
        scan = scan_over(boxes, seen)
        known = (alive if len(alive) else None, skipped if len(skipped) else None)
        right = scan.match(points, *known, lists=lists)
        assert query.counts.tolist() == right.counts.tolist()
        assert found.tolist() == (right.positions.tolist() if listing else [])
