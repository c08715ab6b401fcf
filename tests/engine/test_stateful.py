"""Any sequence of changes, against a dict of filters evaluated in plain Python."""

from __future__ import annotations

import random
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from filter_oracle import Tree, events, to_sql, trees, truth, values_held
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import boxmatch as bm
from boxmatch.engine import compaction, stores
from boxmatch.model import strings
from boxmatch.model.filters import compile_filter
from property_examples import examples

SCHEMA = bm.Schema(
    {
        "s": "string",
        "n": "int",
        "f": "float",
        "b": "bool",
        "e": ["low", "mid", "high"],
        "d": "decimal(5, 1)",
        "w": "decimal(20, 2)",
    }
)
KEYS = st.integers(0, 14)


@st.composite
def dict_filters(draw: st.DrawFn) -> tuple[dict[str, Any], Tree]:
    """A filter in dict form, and what it means."""
    wanted: dict[str, Any] = {}
    meaning: list[Tree] = []
    for name in draw(st.lists(st.sampled_from(SCHEMA.names), unique=True, max_size=3)):
        values = values_held(SCHEMA[name])
        match draw(st.sampled_from(["none", "value", "range", "list"])):
            case "none":
                wanted[name] = None
                meaning.append(("isnull", name))
            case "value":
                wanted[name] = draw(values)
                meaning.append(("compare", name, "=", wanted[name]))
            case "range":
                wanted[name] = draw(values), draw(values)
                meaning.append(("between", name, *wanted[name]))
            case "list":
                wanted[name] = draw(st.lists(values, min_size=1, max_size=3))
                meaning.append(("in", name, wanted[name]))
    return wanted, ("and", meaning) if meaning else ("true",)


text_filters = st.tuples(trees(SCHEMA), st.integers(0, 99)).map(
    lambda drawn: (to_sql(SCHEMA, drawn[0], random.Random(drawn[1])), drawn[0])
)


@st.composite
def overlapping_filters(draw: st.DrawFn) -> tuple[str, Tree]:
    """Wide ranges of several attributes, which overlap: to be reported once all the same."""
    ends = {"n": [-6, -1, 3, 6], "f": [-3.0, 0.0, 1.0, 3.0], "s": ["", "a", "b", "é"]}
    tree: Tree = (
        "or",
        [
            ("between", name, *(values[draw(st.integers(place, place + 1))] for place in (0, 2)))
            for name, values in ends.items()
        ],
    )
    return to_sql(SCHEMA, tree, random.Random(draw(st.integers(0, 9)))), tree


filters = st.one_of(text_filters, dict_filters(), overlapping_filters())


class Changes(RuleBasedStateMachine):
    """A matcher with tiny limits beside its model."""

    index = "tile"
    in_background = False

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(stores, "_TAIL_ROWS", 4)
        self.patches.setattr(stores, "_WAITING_TAILS", 2)
        self.patches.setattr(compaction, "_FEW_ROWS", 3)
        # Labels for some hundred strings: a few unlucky ones in a row exhaust a gap.
        self.patches.setattr(strings, "_SPREAD", 2**10)
        self.patches.setattr(strings, "_STRIDE", 2**4)
        self.patches.setattr(strings, "_LOWEST", -(2**10) - 40)
        self.patches.setattr(strings, "_HIGHEST", 2**10 + 40)
        if not self.in_background:
            self.patches.setattr(compaction.Compactor, "wake", lambda self: None)
        respread = stores.Stores._respread

        def counted(self: stores.Stores) -> None:
            event("labels were spread anew")
            respread(self)

        self.patches.setattr(stores.Stores, "_respread", counted)
        self.folder = Path(tempfile.mkdtemp())
        self.matcher = bm.Matcher(SCHEMA, index=self.index)
        self.model: dict[str | int, Tree] = {}
        self.as_id: Any = int

    def teardown(self) -> None:
        self.patches.undo()
        shutil.rmtree(self.folder)

    @initialize(text_ids=st.booleans())
    def choose_ids(self, text_ids: bool) -> None:
        self.as_id = (lambda key: f"id{key}") if text_ids else int

    @rule(key=KEYS, filter=filters)
    def subscribe(self, key: int, filter: tuple[Any, Tree]) -> None:
        id, (given, tree) = self.as_id(key), filter
        done = self.matcher.subscribe(id, given)
        assert (done.subscriptions, done.replaced) == (1, id in self.model)
        self.model[id] = tree

    @rule(key=KEYS)
    def unsubscribe(self, key: int) -> None:
        id = self.as_id(key)
        if id in self.model:
            self.matcher.unsubscribe(id)
            del self.model[id]
        else:
            with pytest.raises(bm.UnknownSubscriptionError):
                self.matcher.unsubscribe(id)

    @rule(load=st.dictionaries(KEYS, filters, max_size=8))
    def load_many(self, load: dict[int, tuple[Any, Tree]]) -> None:
        records = [{"id": self.as_id(key), "filter": given} for key, (given, _) in load.items()]
        done = self.matcher.subscribe_many(records)
        assert done.subscriptions == len(load)
        assert done.replaced == sum(record["id"] in self.model for record in records)
        self.model.update({self.as_id(key): tree for key, (_, tree) in load.items()})

    @rule(keys=st.lists(KEYS, unique=True, max_size=6), data=st.data())
    def load_bounds(self, keys: list[int], data: st.DataObject) -> None:
        whole = st.lists(st.integers(-6, 6) | st.just(np.nan), min_size=2, max_size=2)
        bounds = [data.draw(whole) for _ in keys]
        lows, highs = np.full((2, len(keys), len(SCHEMA)), np.nan)
        for row, (low, high) in enumerate(bounds):
            lows[row, 1], highs[row, 1] = low, high
        ids = [self.as_id(key) for key in keys]
        self.matcher.subscribe_boxes(ids, lows, highs)
        for id, (low, high) in zip(ids, bounds, strict=True):
            ends: list[Tree] = []
            if low == low:
                ends.append(("compare", "n", ">=", int(low)))
            if high == high:
                ends.append(("compare", "n", "<=", int(high)))
            self.model[id] = ("and", ends) if ends else ("true",)

    @rule(keys=st.lists(KEYS, min_size=1, max_size=3))
    def fail_to_load(self, keys: list[int]) -> None:
        records = [{"id": self.as_id(key), "filter": "s > 'zz'"} for key in keys]
        with pytest.raises((bm.FilterError, bm.DuplicateSubscriptionError)):
            self.matcher.subscribe_many([*records, {"id": records[0]["id"], "filter": "n >"}])

    @rule()
    def compact(self) -> None:
        self.matcher.compact()

    @rule()
    def merge_what_needs_it(self) -> None:
        rounds = 0
        while self.matcher._stores.merge_once():
            rounds += 1
            assert rounds < 50, "merging does not come to an end"

    @rule()
    def save_and_load(self) -> None:
        self.matcher.save(self.folder / "saved")
        self.matcher = bm.Matcher.load(self.folder / "saved")

    @rule()
    def save(self) -> None:
        self.matcher.save(self.folder / "saved")

    @rule()
    def spread_labels(self) -> None:
        self.matcher._stores._respread()

    @rule(data=st.data())
    def match(self, data: st.DataObject) -> None:
        mentioned: Tree = ("and", list(self.model.values()))
        batch = data.draw(st.lists(events(SCHEMA, mentioned), min_size=1, max_size=6))
        wanted = [
            sorted(id for id, tree in self.model.items() if truth(SCHEMA, tree, one) is True)
            for one in batch
        ]
        assert [sorted(self.matcher.match(one)) for one in batch] == wanted
        assert [self.matcher.count(one) for one in batch] == [len(ids) for ids in wanted]
        found = self.matcher.match_batch(batch)
        ends = np.cumsum(found.counts)
        assert [
            sorted(found.subscription[end - count : end].tolist())
            for end, count in zip(ends, found.counts, strict=True)
        ] == wanted
        assert self.matcher.count_batch(batch).tolist() == [len(ids) for ids in wanted]

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def look_at_one(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model)))
        tree = self.model[id]
        shown = self.matcher.filter_of(id, as_written=False)
        wanted = compile_filter(SCHEMA, to_sql(SCHEMA, tree, random.Random(0)))
        assert set(compile_filter(SCHEMA, shown).boxes) == set(wanted.boxes)
        one = data.draw(events(SCHEMA, tree))
        assert self.matcher.explain(one, id).matched == (truth(SCHEMA, tree, one) is True)

    @invariant()
    def same_ids(self) -> None:
        assert len(self.matcher) == len(self.model)
        assert all(
            (self.as_id(key) in self.matcher) == (self.as_id(key) in self.model)
            for key in range(15)
        )


class ChangesOfScan(Changes):
    index = "scan"


class ChangesInBackground(Changes):
    in_background = True


LIMITS = settings(
    deadline=None,
    max_examples=examples(30),
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestTile = Changes.TestCase
TestTile.settings = LIMITS
TestScan = ChangesOfScan.TestCase
TestScan.settings = settings(LIMITS, max_examples=10)
TestInBackground = ChangesInBackground.TestCase
TestInBackground.settings = settings(LIMITS, max_examples=10)


@settings(deadline=None, max_examples=10)
@given(overlapping_filters())
def test_overlapping_filters_do_overlap(filter: tuple[str, Tree]) -> None:
    assert not compile_filter(SCHEMA, filter[0]).disjoint


@pytest.mark.parametrize("way", ["one by one", "filters", "bounds"])
def test_labels_are_spread_anew_when_they_run_out(
    monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Each string falls between the same two neighbours, which halves their gap every time."""
    monkeypatch.setattr(strings, "_RUN", 1000)  # else the axis sees through it
    spreads = []
    respread = stores.Stores._respread
    monkeypatch.setattr(
        stores.Stores, "_respread", lambda self: (spreads.append(1), respread(self))[1]
    )
    m = bm.Matcher(SCHEMA)
    m.subscribe("a", "s = 'a'")
    m.subscribe("below", "s < 'b'")
    m.subscribe("above", "s >= 'b'")
    m.subscribe("gone", "s = 'a'")
    m.compact()
    m.unsubscribe("gone")
    names = ["a" + "0" * zeros + "1" for zeros in range(100)]  # each right after "a"
    for name in names:
        if way == "one by one":
            m.subscribe(name, {"s": name})
        elif way == "filters":
            m.subscribe_many([{"id": name, "filter": f"s = '{name}'"}])
        else:
            import pyarrow as pa

            m.subscribe_many(pa.table({"id": [name], "s": [name]}))
        assert sorted(m.match({"s": name})) == sorted([name, "below"])
    assert spreads
    for name in names:
        assert sorted(m.match({"s": name})) == sorted([name, "below"])
        assert m.match({"s": name + "x"}) == ["below"]
    assert sorted(m.match({"s": "a"})) == ["a", "below"]
    assert m.match({"s": "b"}) == ["above"]
    assert m.filter_of(names[50]) == f"s = '{names[50]}'"
    assert len(m) == 103
