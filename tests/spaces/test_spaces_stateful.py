"""All operations, in any order, against the model that recomputes the whole relation."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from space_model import Model, Rows, Thing, empty, intervals  # in this folder

import boxmatch as bm
from property_examples import examples

SPACES = {
    "air": bm.Schema({"x": "int", "y": "float", "kind": "string"}),
    "road": bm.Schema({"y": "float", "z": "int"}),
    "sea": bm.Schema({"depth": "int"}),
}
VALUES = {
    "x": st.integers(0, 6),
    "y": st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    "z": st.integers(0, 3),
    "kind": st.sampled_from(["", "a", "b", "ba", "c"]),
    "depth": st.integers(0, 3),
}
TABLE = pa.schema(
    {
        "x": pa.int64(),
        "y": pa.float64(),
        "z": pa.int8(),
        "kind": pa.string(),
        "depth": pa.int64(),
    }
)
Truth = Callable[[Rows, dict[str, bool] | None], bool]
"""Whether an expression is true; inside `SAME` for one region of the other side, a row."""


def _name(name: str) -> tuple[str, Truth]:
    return name, lambda rows, row: any(one[name] for one in ([row] if row else rows))


def _not(inner: tuple[str, Truth]) -> tuple[str, Truth]:
    return f"NOT {inner[0]}", lambda rows, row: not inner[1](rows, row)


def _and(left: tuple[str, Truth], right: tuple[str, Truth]) -> tuple[str, Truth]:
    both = lambda rows, row: left[1](rows, row) and right[1](rows, row)  # noqa: E731
    return f"({left[0]} AND {right[0]})", both


def _or(left: tuple[str, Truth], right: tuple[str, Truth]) -> tuple[str, Truth]:
    either = lambda rows, row: left[1](rows, row) or right[1](rows, row)  # noqa: E731
    return f"({left[0]} OR {right[0]})", either


def _same(inner: tuple[str, Truth]) -> tuple[str, Truth]:
    return f"SAME({inner[0]})", lambda rows, _: any(inner[1](rows, one) for one in rows)


def _connected(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.builds(_not, inner) | st.builds(_and, inner, inner) | st.builds(_or, inner, inner)
        ),
        max_leaves=4,
    )


def filters(names: Iterable[str]) -> st.SearchStrategy[tuple[str | None, Any]]:
    """Filters over these regions, and what they mean; None wants a partner for each of them."""
    name = st.sampled_from(sorted(names)).map(_name)
    some = _connected(name | st.builds(_same, _connected(name)))
    nothing = [dict.fromkeys(names, False)]  # for which no filter may hold
    sensible = some.map(lambda one: _not(one) if one[1](nothing, None) else one)
    return st.just((None, None)) | sensible.map(
        lambda one: (one[0], lambda rows: one[1](rows, None))
    )


@st.composite
def interval(draw: st.DrawFn, dimension: str) -> Any:
    if draw(st.booleans()):
        return draw(VALUES[dimension])
    endpoints = sorted(draw(st.tuples(VALUES[dimension], VALUES[dimension])))
    low, high = (draw(st.sampled_from([end, None])) for end in endpoints)
    low_open, high_open = draw(st.booleans()), draw(st.booleans())
    high_open = high_open and high != ""  # before which there is no string
    if empty(low, high, low_open, high_open) or _no_integer(low, high, low_open, high_open):
        return bm.Interval(low, high)
    return bm.Interval(low, high, low_open, high_open)


def _no_integer(low: Any, high: Any, low_open: bool, high_open: bool) -> bool:
    """Between open ends that are next to each other there is no whole number."""
    whole = isinstance(low, int) and isinstance(high, int)
    return whole and low_open and high_open and high - low == 1


@st.composite
def regions(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    made = {}
    for name in draw(st.sampled_from([["one"], ["one", "two"], ["one", "two", "three"]])):
        dimensions = draw(
            st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True)
        )
        made[name] = {dimension: draw(interval(dimension)) for dimension in dimensions}
    return made


@st.composite
def points(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.sets(st.sampled_from(sorted(VALUES))))
    return {name: draw(VALUES[name] | st.none()) for name in names}


@st.composite
def overlapping(draw: st.DrawFn) -> dict[str, dict[str, Any]]:
    """Regions of one dimension, in which one often overlaps several of the other side."""
    names = ["one", "two", "three"][: draw(st.integers(2, 3))]
    ends = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(lambda ends: tuple(sorted(ends)))
    return {name: {"x": draw(ends)} for name in names}


@settings(max_examples=examples(100))
@given(data=st.data())
def test_what_the_same_region_overlaps(data: Any) -> None:
    """A few of each side, whose filters say so, against the model; regions move one at a time."""
    spaces, model = bm.Spaces({"line": bm.Schema({"x": "int"})}), Model({"line": {"x"}})
    members = [(which, id) for which in model.things for id in ("a", "b")]
    steps = [*members, *data.draw(st.lists(st.sampled_from(members), max_size=4))]
    for which, id in steps:
        things, old = model.things[which], model.things[which].get(id)
        named = data.draw(overlapping())
        if old is None:
            operation = spaces.publish if which == "publication" else spaces.subscribe
            filter, meaning = data.draw(filters(named))
            change: dict[str, Any] = {"regions": named, "region_filter": filter}
            thing = Thing({name: intervals(spec) for name, spec in named.items()}, meaning)
        else:
            publication = which == "publication"
            operation = spaces.update_publication if publication else spaces.update_subscription
            change = {"regions": {"two": named["two"]}}
            thing = Thing({**old.regions, "two": intervals(named["two"])}, old.filter)
        expected = model.transitions(partial(things.__setitem__, id, thing))
        found = {(one.kind, one.publication, one.subscription) for one in operation(id, **change)}
        assert found == expected


WHICH = st.sampled_from(["publication", "subscription"])
IDS = st.sampled_from(["a", "b", "c", "d"])


class SpacesMachine(RuleBasedStateMachine):
    def open(self) -> bm.Spaces:
        return bm.Spaces(SPACES)

    @initialize()
    def start(self) -> None:
        self.spaces = self.open()
        self.model = Model({name: set(schema.names) for name, schema in SPACES.items()})
        self.sequence = 1
        self.history: list[Any] = []

    def notified(self, transitions: Any) -> set[Any]:
        listed = list(transitions)
        self.history += listed
        numbers = [one.sequence for one in listed]
        assert numbers == list(range(self.sequence, self.sequence + len(listed)))
        self.sequence += len(listed)
        notified = {(one.kind, one.publication, one.subscription) for one in listed}
        assert len(notified) == len(listed)
        return notified

    @rule(which=WHICH, id=IDS, given=regions(), data=st.data())
    def add(self, which: str, id: str, given: dict[str, Any], data: Any) -> None:
        things = self.model.things[which]
        filter, meaning = data.draw(filters(given))
        operation = self.spaces.publish if which == "publication" else self.spaces.subscribe
        if id in things:
            with pytest.raises(bm.DuplicateMemberError, match=f"{which} with id '{id}'"):
                operation(id, regions=given, region_filter=filter)
            return
        thing = Thing({n: intervals(spec) for n, spec in given.items()}, meaning)
        expected = self.model.transitions(lambda: things.__setitem__(id, thing))
        assert self.notified(operation(id, regions=given, region_filter=filter)) == expected

    @rule(given=st.dictionaries(st.tuples(WHICH, IDS), regions(), max_size=4), data=st.data())
    def load(self, given: dict[tuple[str, str], dict[str, Any]], data: Any) -> None:
        """Many at once, of whom nobody is notified."""
        both: dict[str, dict[Any, Any]] = {"publication": {}, "subscription": {}}
        meanings = {}
        for (which, id), named in given.items():
            filter, meanings[which, id] = data.draw(filters(named))
            both[which][id] = bm.Stored(id, named, filter)
        twins = [id for which, id in given if id in self.model.things[which]]
        loaded = {f"{which}s": specs for which, specs in both.items()}
        if twins:
            with pytest.raises(bm.DuplicateMemberError):
                self.spaces.load(**loaded)
            return
        self.spaces.load(**loaded)
        for which, specs in both.items():
            for id, stored in specs.items():
                named = {name: intervals(spec) for name, spec in stored.regions.items()}
                self.model.things[which][id] = Thing(named, meanings[which, id])

    @rule(which=WHICH, id=IDS, given=regions(), free=st.booleans(), data=st.data())
    def update(self, which: str, id: str, given: dict[str, Any], free: bool, data: Any) -> None:
        things = self.model.things[which]
        operation = (
            self.spaces.update_publication
            if which == "publication"
            else self.spaces.update_subscription
        )
        if id not in things:
            with pytest.raises(bm.UnknownMemberError, match=f"no {which} with id"):
                operation(id, regions=given)
            return
        old = things[id]
        changes: dict[str, dict[str, Any]] = {
            n: dict(s) for n, s in given.items() if n in old.regions
        }
        new = {name: dict(region) for name, region in old.regions.items()}
        for name, spec in changes.items():
            new[name] |= intervals(spec)
            if free and len(new[name]) > 1:
                gone = data.draw(st.sampled_from(sorted(new[name])))
                del new[name][gone]
                spec[gone] = None
        thing = Thing(new, old.filter)
        expected = self.model.transitions(lambda: things.__setitem__(id, thing))
        assert self.notified(operation(id, regions=changes)) == expected

    @rule(moves=st.lists(st.tuples(IDS, points()), max_size=5), as_table=st.booleans())
    def move_many(self, moves: list[tuple[str, dict[str, Any]]], as_table: bool) -> None:
        """Many at once is one after the other, or nothing at all."""
        things = self.model.things["publication"]
        ids, rows = [id for id, _ in moves], [row for _, row in moves]
        given = rows
        if as_table:  # which names all dimensions in every row
            given = pa.Table.from_pylist(rows, schema=TABLE)
            rows = given.to_pylist()
        after = {}
        possible = all(id in things and len(things[id].regions) == 1 for id in ids)
        steps = []
        for id, row in zip(ids, rows, strict=True) if possible else ():
            ((name, region),) = after.get(id, things[id].regions).items()
            region = region | intervals({d: one for d, one in row.items() if one is not None})
            for d, one in row.items():
                if one is None:
                    region.pop(d, None)
            after[id] = {name: region}
            steps.append((id, Thing(after[id], things[id].filter)))
            possible = possible and bool(region)
        if not possible:
            with pytest.raises((bm.UnknownMemberError, bm.RegionError)):
                self.spaces.update_publications(ids, given)
            return
        expected = [
            self.model.transitions(partial(things.__setitem__, id, thing)) for id, thing in steps
        ]
        notified = iter(self.spaces.update_publications(ids, given))
        for one in expected:
            assert self.notified(islice(notified, len(one))) == one
        assert list(notified) == []

    @rule(which=WHICH, id=IDS, given=regions(), data=st.data())
    def reshape(self, which: str, id: str, given: dict[str, Any], data: Any) -> None:
        """Add the region `two`, or take it away; filters change with it."""
        things = self.model.things[which]
        if id not in things:
            return
        operation = (
            self.spaces.update_publication
            if which == "publication"
            else self.spaces.update_subscription
        )
        old = things[id]
        if "two" in old.regions:
            change = {"two": None}
            named = {name: region for name, region in old.regions.items() if name != "two"}
        else:
            change = {"two": given["one"]}
            named = {**old.regions, "two": intervals(given["one"])}
        filter, meaning = data.draw(filters(named))
        thing = Thing(named, meaning)
        expected = self.model.transitions(lambda: things.__setitem__(id, thing))
        assert self.notified(operation(id, regions=change, region_filter=filter)) == expected

    @rule(id=IDS)
    def retract(self, id: str) -> None:
        things = self.model.things["publication"]
        if id not in things:
            with pytest.raises(bm.UnknownMemberError):
                self.spaces.retract(id)
            return
        expected = self.model.transitions(lambda: void(things.pop(id)), deleted=id)
        assert self.notified(self.spaces.retract(id)) == expected

    @rule(id=IDS)
    def unsubscribe(self, id: str) -> None:
        things = self.model.things["subscription"]
        if id not in things:
            with pytest.raises(bm.UnknownMemberError):
                self.spaces.unsubscribe(id)
            return
        assert self.model.transitions(lambda: void(things.pop(id))) == set()
        self.spaces.unsubscribe(id)

    @rule(since=st.integers(0, 30))
    def read_again(self, since: int) -> None:
        again = [one for batch in self.spaces.transitions(since) for one in batch]
        assert again == [one for one in self.history if one.sequence >= since]

    @invariant()
    def reads_agree(self) -> None:
        if not hasattr(self, "spaces"):
            return
        relation = self.model.relation()
        publications, subscriptions = (
            self.model.things[w] for w in ("publication", "subscription")
        )
        assert set(self.spaces.publications()) == set(publications)
        assert set(self.spaces.subscriptions()) == set(subscriptions)
        for p in publications:
            found = self.spaces.matches_of_publication(p)
            assert sorted(found) == sorted(s for one, s in relation if one == p)
        for s, thing in subscriptions.items():
            found = self.spaces.matches_of_subscription(s)
            assert sorted(found) == sorted(p for p, one in relation if one == s)
            assert self.spaces.get_subscription(s).regions.keys() == thing.regions.keys()


def void(_: object) -> None:
    """What a change returns is of no interest."""


class TestSpaces(SpacesMachine.TestCase):
    settings = settings(max_examples=examples(60), stateful_step_count=30)


class DurableMachine(SpacesMachine):
    """The same on disk, closed and opened again at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = TemporaryDirectory()

    def open(self) -> bm.Spaces:
        return bm.Spaces.open(Path(self.folder.name, "spaces"), SPACES, sync="normal")

    @rule(since=st.integers(0, 30))
    def reopen(self, since: int) -> None:
        self.spaces.close()
        self.spaces = bm.Spaces.open(Path(self.folder.name, "spaces"))
        self.read_again(since)

    def teardown(self) -> None:
        if hasattr(self, "spaces"):
            self.spaces.close()
        self.folder.cleanup()


class TestDurableSpaces(DurableMachine.TestCase):
    settings = settings(max_examples=examples(30), stateful_step_count=25)
