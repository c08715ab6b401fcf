"""Random filters of every kind against plain Python, by every way into and out of a matcher."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from where_oracle import (
    ATTRIBUTES,
    Event,
    Filter,
    Maker,
    arrow_table,
    make_event,
    nested,
    schema_of,
)

import boxmatch as bm
from boxmatch.model.filters import compile_filter, render
from property_examples import examples

SOME = settings(
    deadline=None,
    max_examples=examples(60),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # filters do not shrink, they are seeds
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


class World:
    """Some attributes, filters over them, and events."""

    def __init__(self, random: Random, filters: int, events: int, depth: int = 3) -> None:
        names = random.sample(list(ATTRIBUTES), random.randint(2, 6))
        self.random = random
        self.names = names
        self.schema = schema_of(names)
        maker = Maker(random, names)
        self.filters: list[Filter] = [
            maker.filter(random.randint(0, depth)) for _ in range(filters)
        ]
        self.events: list[Event] = [make_event(random, names) for _ in range(events)]
        self.plain = [nested(event, random) for event in self.events]
        self.wanted = [
            sorted(i for i, one in enumerate(self.filters) if one.truth(event) is True)
            for event in self.events
        ]

    def check(self, matcher: bm.Matcher) -> None:
        for event, wanted in zip(self.plain, self.wanted, strict=True):
            found = sorted(matcher.match(event))
            assert found == wanted, self.trouble(found, wanted, event)
        for batch in (self.plain, arrow_table(self.events, self.names)):
            result = matcher.match_batch(batch)
            found_in: list[list[Any]] = [[] for _ in self.events]
            for event, id in zip(result.event.tolist(), result.subscription.tolist(), strict=True):
                found_in[event].append(id)
            for found, wanted, event in zip(found_in, self.wanted, self.plain, strict=True):
                assert sorted(found) == wanted, self.trouble(found, wanted, event)
            counts = matcher.count_batch(batch).tolist()
            assert counts == [len(wanted) for wanted in self.wanted]

    def trouble(self, found: list[int], wanted: list[int], event: Any) -> str:
        wrong = set(found) ^ set(wanted)
        texts = "\n".join(f"{i in wanted}: {self.filters[i].sql}" for i in sorted(wrong))
        return f"{texts}\n{event}"


worlds = st.integers(0, 2**40).map(Random)


def matcher_of(world: World, **options: Any) -> bm.Matcher:
    matcher = bm.Matcher(world.schema, **options)
    for i, one in enumerate(world.filters):
        matcher.subscribe(i, one.sql)
    return matcher


@SOME
@given(worlds)
def test_one_by_one_and_compacted(random: Random) -> None:
    world = World(random, filters=6, events=12)
    matcher = matcher_of(world)
    world.check(matcher)
    matcher.compact()
    world.check(matcher)


@SOME
@given(worlds, st.sampled_from(["tile", "scan", "rein"]))
def test_all_at_once(random: Random, index: str) -> None:
    world = World(random, filters=6, events=12)
    matcher = bm.Matcher(world.schema, index=index)
    matcher.subscribe_many([{"id": i, "filter": one.sql} for i, one in enumerate(world.filters)])
    world.check(matcher)


@SOME
@given(worlds, st.sampled_from(["tile", "rein"]))
def test_what_is_shown_means_the_same(random: Random, index: str) -> None:
    world = World(random, filters=4, events=10)
    lists = index == "tile"
    matcher = bm.Matcher(world.schema, index=index)
    again = bm.Matcher(world.schema, index=index)
    for i, one in enumerate(world.filters):
        compiled = compile_filter(world.schema, one.sql, lists=lists)
        matcher.subscribe(i, one.sql)
        shown = matcher.filter_of(i, as_written=False)
        text = render(world.schema, compiled.boxes, compiled.axes, compiled.residual)
        parsed = compile_filter(world.schema, text, lists=lists)
        # With a residual the boxes are only necessary, and those of its text may be others.
        if not compiled.residual:
            assert parsed == compiled, (one.sql, text)
        again.subscribe(i, shown)
    world.check(again)


@SOME
@given(worlds, st.booleans())
def test_explanations_agree(random: Random, compact: bool) -> None:
    world = World(random, filters=5, events=5)
    matcher = matcher_of(world)
    if compact:
        matcher.compact()
    for event, wanted in zip(world.plain, world.wanted, strict=True):
        for i, one in enumerate(world.filters):
            found = matcher.explain(event, i)
            assert found.matched == (i in wanted), one.sql
        nearest = matcher.nearest(event, limit=10)
        assert sorted(nearest.matched.tolist()) == wanted
        assert nearest.missed == len(world.filters) - len(wanted)


@pytest.mark.parametrize("index", ["tile", "rein"])
@settings(SOME, max_examples=examples(8))
@given(random=worlds)
def test_many_events_on_several_threads(random: Random, index: str) -> None:
    world = World(random, filters=8, events=300, depth=2)
    world.check(matcher_of(world, index=index))
