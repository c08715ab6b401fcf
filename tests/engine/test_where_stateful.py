"""Any sequence of changes to filters of every kind, against the same filters in plain Python."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from where_oracle import ATTRIBUTES, Filter, Maker, arrow_table, make_event, nested, schema_of

import boxmatch as bm
from boxmatch.engine import compaction, stores
from boxmatch.engine.snapshot import Snapshot
from boxmatch.model import axis_table, strings
from property_examples import examples

NAMES = [name for name in ATTRIBUTES if name not in ("times", "rates", "costs", "x", "m")]
SCHEMA = schema_of(NAMES)
KEYS = st.integers(0, 14)
SEEDS = st.integers(0, 2**32)

# Each has a word of its own, so that strings fall between others on the axes of needles.
_WORDS = st.text("ab", min_size=1, max_size=6)


def filter_of(seed: int) -> Filter:
    return Maker(Random(seed), NAMES).filter(Random(seed).randint(0, 2))


def needle(word: str) -> Filter:
    return Filter(
        f"s LIKE '%{word}%'", 3, lambda one: None if one["s"] is None else word in one["s"]
    )


def equal(word: str) -> Filter:
    return Filter(
        f"LOWER(s) = '{word}'",
        3,
        lambda one: None if one["s"] is None else one["s"].lower() == word,
    )


filters = st.one_of(
    SEEDS.map(filter_of), SEEDS.map(filter_of), _WORDS.map(needle), _WORDS.map(equal)
)


class Changes(RuleBasedStateMachine):
    """A matcher with tiny limits beside its model."""

    index = "tile"
    expressions = 12

    def __init__(self) -> None:
        super().__init__()
        self.patches = pytest.MonkeyPatch()
        self.patches.setattr(stores, "_TAIL_ROWS", 6)
        self.patches.setattr(stores, "_WAITING_TAILS", 2)
        self.patches.setattr(compaction, "_FEW_ROWS", 3)
        self.patches.setattr(axis_table, "MOST_EXPRESSIONS", self.expressions)
        self.patches.setattr(strings, "_SPREAD", 2**10)
        self.patches.setattr(strings, "_STRIDE", 2**4)
        self.patches.setattr(strings, "_LOWEST", -(2**10) - 40)
        self.patches.setattr(strings, "_HIGHEST", 2**10 + 40)
        self.patches.setattr(compaction.Compactor, "wake", lambda self: None)
        respread = stores.Stores._respread

        def counted(self: stores.Stores) -> None:
            event("labels were spread anew")
            respread(self)

        self.patches.setattr(stores.Stores, "_respread", counted)
        forget = axis_table.AxisTable.forget_unused

        def forgot(self: axis_table.AxisTable, used: Any) -> None:
            before = len(self.positions)
            forget(self, used)
            event(f"axes were forgotten: {len(self.positions) < before}")

        self.patches.setattr(axis_table.AxisTable, "forget_unused", forgot)
        self.folder = Path(tempfile.mkdtemp())
        self.matcher = bm.Matcher(SCHEMA, index=self.index)
        self.model: dict[int, Filter] = {}
        self.held: list[tuple[Snapshot, dict[int, Filter]]] = []

    def teardown(self) -> None:
        self.patches.undo()
        shutil.rmtree(self.folder)

    @rule(key=KEYS, filter=filters)
    def subscribe(self, key: int, filter: Filter) -> None:
        try:
            done = self.matcher.subscribe(key, filter.sql)
        except bm.FilterTooLargeError as error:
            if "different expressions" not in str(error):
                raise
            event("too many expressions")
            return
        assert done.replaced == (key in self.model)
        self.model[key] = filter

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        self.matcher.unsubscribe(key)
        del self.model[key]

    @rule(load=st.dictionaries(KEYS, filters, max_size=6))
    def load_many(self, load: dict[int, Filter]) -> None:
        records = [{"id": key, "filter": filter.sql} for key, filter in load.items()]
        try:
            self.matcher.subscribe_many(records)
        except bm.FilterTooLargeError as error:
            if "different expressions" not in str(error):
                raise
            return
        self.model.update(load)

    @rule(keys=st.sets(KEYS, min_size=1, max_size=5), longer=st.booleans())
    def take_over(self, keys: set[int], longer: bool) -> None:
        """Into a matcher of their own, as a shard does, whose schema may have more attributes."""
        found = [key for key in sorted(keys) if key in self.model]
        more = bm.Schema({"added": "string", "more": "float"}) if longer else ()
        other = bm.Matcher(bm.Schema([*bm.Schema(SCHEMA), *more]), index=self.index)
        renamed = np.full(15, -1, np.int64)
        renamed[found] = np.array(found, np.int64) + 100
        other.subscribe_from([(self.matcher, renamed)])
        self.compare(other, {key + 100: self.model[key] for key in found}, Random(len(keys)))

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
    def spread_labels(self) -> None:
        self.matcher._stores._respread()

    @rule()
    def hold(self) -> None:
        """Keep what a reader would see who began now."""
        self.held = [*self.held[-2:], (self.matcher._stores.snapshot, dict(self.model))]

    @rule(seed=SEEDS)
    def match_what_was(self, seed: int) -> None:
        random = Random(seed)
        for snapshot, model in self.held:
            one = make_event(random, NAMES)
            event = nested(one, random)
            [(points, values)] = snapshot.encoder.one(event, snapshot.reader)
            found = [view.match_one(points, values).tolist() for view in snapshot.views]
            wanted = sorted(key for key, filter in model.items() if filter.truth(one) is True)
            assert sorted(key for keys in found for key in keys) == wanted
            assert sorted(snapshot.single.match(nested(one, random), None)) == wanted

    @rule(seed=SEEDS)
    def match(self, seed: int) -> None:
        self.compare(self.matcher, self.model, Random(seed))

    def compare(self, matcher: bm.Matcher, model: dict[int, Filter], random: Random) -> None:
        batch = [make_event(random, NAMES) for _ in range(10)]
        plain = [nested(one, random) for one in batch]
        wanted = [
            sorted(key for key, filter in model.items() if filter.truth(one) is True)
            for one in batch
        ]
        assert [sorted(matcher.match(one)) for one in plain[:3]] == wanted[:3]
        assert [matcher.count(one) for one in plain[6:]] == [len(ids) for ids in wanted[6:]]
        for given in (plain, arrow_table(batch, NAMES)):
            found = matcher.match_batch(given)
            ends = np.cumsum(found.counts)
            assert [
                sorted(found.subscription[end - count : end].tolist())
                for end, count in zip(ends, found.counts, strict=True)
            ] == wanted
            assert matcher.count_batch(given).tolist() == [len(ids) for ids in wanted]

    @precondition(lambda self: self.model)
    @rule(seed=SEEDS, data=st.data())
    def look_at_one(self, seed: int, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.model)))
        random = Random(seed)
        one = make_event(random, NAMES)
        wanted = self.model[key].truth(one) is True
        plain = nested(one, random)
        assert self.matcher.explain(plain, key).matched == wanted
        other = bm.Matcher(SCHEMA)
        other.subscribe(key, self.matcher.filter_of(key, as_written=False))
        assert list(other.match(plain)) == [key] * wanted

    @invariant()
    def same_ids(self) -> None:
        assert len(self.matcher) == len(self.model)
        assert all((key in self.matcher) == (key in self.model) for key in range(15))


class ChangesWithoutLists(Changes):
    index = "rein"


class ChangesWithRoom(Changes):
    expressions = 60


LIMITS = settings(
    deadline=None,
    max_examples=examples(20),
    stateful_step_count=30,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # filters do not shrink, they are seeds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

TestFewExpressions = Changes.TestCase
TestFewExpressions.settings = LIMITS
TestWithRoom = ChangesWithRoom.TestCase
TestWithRoom.settings = LIMITS
TestWithoutLists = ChangesWithoutLists.TestCase
TestWithoutLists.settings = settings(LIMITS, max_examples=examples(10))
