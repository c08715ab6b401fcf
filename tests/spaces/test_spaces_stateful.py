"""All operations, in any order, against the model that recomputes the whole relation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from space_model import Model, Thing, empty, intervals  # in this folder

import boxmatch as bm

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
FILTERS: dict[str, Callable[[Mapping[str, bool]], bool]] = {
    "one": lambda has: has["one"],
    "one OR two": lambda has: has["one"] or has["two"],
    "one AND NOT two": lambda has: has["one"] and not has["two"],
    "(two OR one) AND (one OR NOT two)": lambda has: (
        (has["two"] or has["one"]) and (has["one"] or not has["two"])
    ),
}


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
    for name in draw(st.sampled_from([["one"], ["one"], ["one", "two"]])):
        dimensions = draw(
            st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=3, unique=True)
        )
        made[name] = {dimension: draw(interval(dimension)) for dimension in dimensions}
    return made


@st.composite
def points(draw: st.DrawFn) -> dict[str, Any]:
    names = draw(st.sets(st.sampled_from(sorted(VALUES))))
    return {name: draw(VALUES[name] | st.none()) for name in names}


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

    @rule(which=WHICH, id=IDS, given=regions(), filter=st.sampled_from([None, None, *FILTERS]))
    def add(self, which: str, id: str, given: dict[str, Any], filter: str | None) -> None:
        things = self.model.things[which]
        if "two" not in given:
            filter = filter if filter == "one" else None
        operation = self.spaces.publish if which == "publication" else self.spaces.subscribe
        if id in things:
            with pytest.raises(bm.DuplicateMemberError, match=f"{which} with id '{id}'"):
                operation(id, regions=given, filter=filter)
            return
        thing = Thing({n: intervals(spec) for n, spec in given.items()}, FILTERS.get(filter or ""))
        expected = self.model.transitions(lambda: things.__setitem__(id, thing))
        assert self.notified(operation(id, regions=given, filter=filter)) == expected

    @rule(given=st.dictionaries(st.tuples(WHICH, IDS), regions(), max_size=4))
    def load(self, given: dict[tuple[str, str], dict[str, Any]]) -> None:
        """Many at once, of whom nobody is notified."""
        both: dict[str, dict[Any, Any]] = {"publication": {}, "subscription": {}}
        for (which, id), named in given.items():
            both[which][id] = bm.Stored(id, named, "one OR two" if "two" in named else None)
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
                self.model.things[which][id] = Thing(named, FILTERS.get(stored.filter or ""))

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

    @rule(which=WHICH, id=IDS, given=regions())
    def reshape(self, which: str, id: str, given: dict[str, Any]) -> None:
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
            kept = {name: region for name, region in old.regions.items() if name != "two"}
            thing, change, filter = Thing(kept, None), {"two": None}, None
        else:
            added = given["one"]
            thing = Thing({**old.regions, "two": intervals(added)}, FILTERS["one OR two"])
            change, filter = {"two": added}, "one OR two"
        expected = self.model.transitions(lambda: things.__setitem__(id, thing))
        assert self.notified(operation(id, regions=change, filter=filter)) == expected

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
    settings = settings(max_examples=60, stateful_step_count=30)


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
    settings = settings(max_examples=30, stateful_step_count=25)
