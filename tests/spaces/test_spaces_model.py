"""Regions, overlap, filters, transitions and errors, one thing at a time."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, product
from typing import Any

import numpy as np
import pandas as pd
import pytest
from space_model import overlap

import boxmatch as bm
from boxmatch import Interval
from boxmatch.spaces.endpoints import cell_of
from boxmatch.spaces.members import Members
from boxmatch.spaces.region_filter import compile_region_filter, holds, holds_by_rows

ONE = {"space": bm.Schema({"d": "float"})}


def notified(transitions: Any) -> list[tuple[str, Any, Any]]:
    return sorted((n.kind, n.publication, n.subscription) for n in transitions)


@pytest.mark.parametrize(
    "kind", ["float", "int", "timestamp", "string", "decimal(4, 1)", "decimal(30, 9)"]
)
def test_overlap_with_every_combination_of_endpoints(kind: str) -> None:
    """Two intervals that meet in a point, lie apart, or overlap; open, closed and unbounded."""
    numbers: dict[str, list[Any]] = {
        "float": [1.0, 2.0, 3.0],
        "int": [10, 20, 30],
        "timestamp": [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)],
        "string": ["a", "b", "c"],
        "decimal(4, 1)": [Decimal("-1.5"), Decimal(0), Decimal("100.2")],
        "decimal(30, 9)": [Decimal("-1e20"), Decimal("1e-9"), Decimal("1e20")],
    }
    a, b, c = numbers[kind]
    endpoints = [(None, b), (a, b), (b, c), (b, None), (a, c), (b, b), (a, a), (None, None)]
    made = []
    for (low, high), low_open, high_open in product(endpoints, (False, True), (False, True)):
        if low is not None and low == high and (low_open or high_open):
            continue
        made.append(Interval(low, high, low_open, high_open))
    spaces = bm.Spaces({"space": bm.Schema({"d": kind})})
    for number, interval in enumerate(made):
        spaces.subscribe(number, {"d": interval})
    for number, interval in enumerate(made):
        found = spaces.publish(number, {"d": interval}).subscription.tolist()
        expected = [other for other, theirs in enumerate(made) if overlap(interval, theirs)]
        assert sorted(found) == expected, str(interval)


def test_the_papers_dimension_index() -> None:
    """The regions of Figure 6: which object regions overlap which interest regions."""
    spaces = bm.Spaces(ONE)
    interests = {"i1": Interval(100), "i2": Interval(None, 100, high_open=True), "i3": (60, 100)}
    objects = {"o1": 100, "o2": Interval(60, 120, True, True), "o3": Interval(60)}
    for name, interval in interests.items():
        spaces.subscribe(name, {"d": interval})
    found = {
        name: sorted(spaces.publish(name, {"d": interval}).subscription)
        for name, interval in objects.items()
    }
    assert found == {"o1": ["i1", "i3"], "o2": ["i1", "i2", "i3"], "o3": ["i1", "i2", "i3"]}
    # The ends are where the figure has them: low ones at 60 and 100, high ones at 100 and 120.
    lists = spaces._state.subscriptions.endpoints, spaces._state.publications.endpoints
    assert sum(int(endpoints.low.size.sum()) for endpoints in lists) == 5
    assert sum(int(endpoints.high.size.sum()) for endpoints in lists) == 4


def test_free_dimensions_are_any_value_unlike_absent_attributes() -> None:
    schema = bm.Schema({"x": "int", "y": "int"})
    spaces = bm.Spaces({"plane": schema})
    spaces.subscribe("s", {"x": 1, "y": 2})
    assert notified(spaces.publish("p", {"x": 1})) == [("enter", "p", "s")]
    matcher = bm.Matcher(schema)
    matcher.subscribe("s", {"x": 1, "y": 2})
    assert matcher.match({"x": 1}) == []


def test_transitions_only() -> None:
    spaces = bm.Spaces(ONE)
    assert notified(spaces.subscribe("s", {"d": (10, 20)})) == []
    assert notified(spaces.publish("p", {"d": 5})) == []
    assert notified(spaces.update_publication("p", {"d": 15})) == [("enter", "p", "s")]
    assert notified(spaces.update_publication("p", {"d": 16})) == []
    assert notified(spaces.update_publication("p", {"d": 25})) == [("leave", "p", "s")]
    assert notified(spaces.update_subscription("s", {"d": (10, 30)})) == [("enter", "p", "s")]
    assert notified(spaces.retract("p")) == [("deleted", "p", "s")]
    assert notified(spaces.unsubscribe("s")) == []
    quiet = bm.Spaces(ONE, leave=False)
    quiet.subscribe("s", {"d": (10, 20)})
    quiet.publish("p", {"d": 15})
    assert notified(quiet.update_publication("p", {"d": 25})) == []
    assert notified(quiet.update_publication("p", {"d": 12})) == [("enter", "p", "s")]


def test_publishers_choose_their_audience_too() -> None:
    spaces = bm.Spaces({"car": bm.Schema({"engine": "int", "lat": "float"})})
    spaces.subscribe("fan", regions={"power": {"engine": (200, None)}})
    spaces.subscribe("near", regions={"power": {"engine": (200, None)}, "here": {"lat": (40, 50)}})
    found = spaces.publish(
        "truck",
        regions={"motor": {"engine": 300}, "place": {"lat": 45.0}},
        region_filter="motor AND place",
    )
    # A free dimension overlaps everything: both regions find a partner in either.
    assert notified(found) == [("enter", "truck", "fan"), ("enter", "truck", "near")]
    away = spaces.update_publication("truck", regions={"place": {"lat": 60.0}})
    assert notified(away) == []
    only_here = spaces.update_publication("truck", regions={"place": None}, region_filter="motor")
    assert notified(only_here) == []
    moved = spaces.update_publication("truck", regions={"motor": {"lat": 60.0}}, region_filter=None)
    assert notified(moved) == [("leave", "truck", "near")]


def test_expiry() -> None:
    now = [1000.0]
    spaces = bm.Spaces(ONE, clock=lambda: now[0])
    spaces.subscribe("s", {"d": (0, 10)})
    spaces.subscribe("brief", {"d": (0, 10)}, ttl=50)
    spaces.publish("p", {"d": 5}, ttl=10)
    spaces.publish("q", {"d": 6}, ttl=10)
    spaces.update_publication("q", ttl=100)
    now[0] += 9
    assert notified(spaces.expire()) == []
    now[0] += 2
    assert notified(spaces.expire()) == [("deleted", "p", "brief"), ("deleted", "p", "s")]
    with pytest.raises(bm.UnknownMemberError):
        spaces.retract("p")
    now[0] += 45
    # What an operation that fails has found to be expired is returned by the next one.
    with pytest.raises(bm.RegionError):
        spaces.publish("r", {"e": 1})
    done = spaces.publish("r", {"d": 1})
    assert notified(done) == [("enter", "r", "s"), ("leave", "q", "brief")]
    assert done.sequence.tolist() == list(range(done.first, done.first + 2))
    spaces.update_publication("q", ttl=None)
    now[0] += 1000
    assert list(spaces.publications()) == ["q", "r"]
    assert notified(spaces.expire()) == []
    with pytest.raises(bm.RegionError, match="seconds above 0"):
        spaces.publish("t", {"d": 1}, ttl=0)
    assert "t" not in set(spaces.publications())


def test_times_are_kept_of_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    spaces = bm.Spaces(ONE, clock=lambda: now[0])
    spaces.subscribe("s", {"d": (0, 10)})
    spaces.publish("p", {"d": 5}, ttl=10)

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Members, "find_matches", fail)
        with pytest.raises(MemoryError):
            spaces.publish("q", {"d": 6}, ttl=10)
        now[0] += 20
        assert spaces.due() == [("publication", "p")]  # and not one that never came
        with pytest.raises(MemoryError):
            spaces.expire()
    assert notified(spaces.expire()) == [("deleted", "p", "s")]
    assert spaces.due() == []


def test_what_is_stored() -> None:
    spaces = bm.Spaces({"s": bm.Schema({"x": "int", "name": "string", "at": "timestamp"})})
    noon = datetime(2026, 1, 5, 12, tzinfo=UTC)
    given = {
        "x": Interval(3, 7, low_open=True),
        "name": Interval("a", "b", high_open=True),
        "at": Interval(noon),
    }
    spaces.publish("p", given)
    stored = spaces.get_publication("p")
    assert stored == ("p", {"region": given}, None, None)
    spaces.subscribe("s", regions={"a": {"x": 5}, "b": {"name": "x"}}, region_filter="a OR b")
    assert spaces.get_subscription("s").region_filter == "a OR b"
    assert (spaces.publication_count, spaces.subscription_count) == (1, 1)
    assert str(Interval(3, None, low_open=True)) == "(3, ∞)"


@pytest.mark.parametrize("kind", ["int", "float", "string"])
@pytest.mark.parametrize("low_open", [False, True])
@pytest.mark.parametrize("high_open", [False, True])
def test_a_range_in_any_form(kind: str, low_open: bool, high_open: bool) -> None:
    """As a mapping it survives JSON."""
    values: list[Any] = {"int": [1, 5], "float": [0.5, 2.5], "string": ["a", "c"]}[kind]
    spaces = bm.Spaces({"line": bm.Schema({"x": kind})})
    for low, high in product([None, values[0]], [None, values[1]]):
        wanted = Interval(low, high, low_open, high_open)
        spaces.subscribe(f"{low} {high} interval", {"x": wanted})
        given = {"x": json.loads(json.dumps(vars(wanted)))}
        spaces.subscribe(f"{low} {high} mapping", given)
        stored = [spaces.get_subscription(f"{low} {high} {one}") for one in ("interval", "mapping")]
        assert stored[0].regions == stored[1].regions
        spaces.publish(f"{low} {high}", given)
        spaces.update_publication(f"{low} {high}", given)
    if not low_open and not high_open:
        short = {"x": {"low": values[0]}}
        spaces.update_publication("None None", short)
        assert spaces.get_publication("None None").regions["region"]["x"] == Interval(values[0])


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"low": 1, "top": 2},
        {"high_open": True},
        {"low": 1, "low_open": "yes"},
        (1, 2, 3),
        [1, 2],
    ],
)
def test_ranges_that_make_no_sense(given: Any) -> None:
    spaces = bm.Spaces({"line": bm.Schema({"x": "float", "s": "string"})})
    for name in ("x", "s"):
        with pytest.raises(bm.RegionError, match=f"dimension '{name}': .* (is not|must say) "):
            spaces.publish("p", {name: given})


@pytest.mark.parametrize(
    ("dimension", "value"),
    [
        ("x", math.nan),
        ("x", np.float32("nan")),
        ("x", (math.nan, 5)),
        ("x", (5, math.nan)),
        ("x", Interval(math.nan)),
        ("n", math.nan),
        ("s", math.nan),
        ("t", pd.NaT),
        ("t", np.datetime64("NaT", "ns")),
        ("t", (None, pd.NaT)),
        ("x", pd.NA),
    ],
)
def test_nan_and_nat_are_refused(dimension: str, value: Any) -> None:
    """They would constrain nothing, so that everybody would be notified."""
    schema = bm.Schema({"x": "float", "n": "int", "s": "string", "t": "timestamp"})
    spaces = bm.Spaces({"all": schema})
    spaces.subscribe("far", {"x": 100.0, "n": 100, "s": "z", "t": "2020-01-01"})
    spaces.publish("v", {"x": 1.0, "n": 1, "s": "a", "t": "2021-01-01"})
    given = {dimension: value}
    for operation, *arguments in (
        (spaces.update_publication, "v", given),
        (spaces.update_subscription, "far", given),
        (spaces.publish, "w", given),
        (spaces.subscribe, "k", given),
        (spaces.changes_between, None, given),
    ):
        with pytest.raises(bm.RegionError, match=f"dimension '{dimension}': .*(no place|string)"):
            operation(*arguments)
    with pytest.raises(bm.RegionError, match=f"publication 'w': dimension '{dimension}'"):
        spaces.load(publications={"w": given})
    assert spaces.matches_of_publication("v") == []
    assert (spaces.publication_count, spaces.subscription_count) == (1, 1)


def test_infinity_is_a_value() -> None:
    spaces = bm.Spaces({"line": bm.Schema({"x": "float"})})
    spaces.subscribe("from 5", {"x": (5, None)})
    spaces.subscribe("finite", {"x": Interval(5, math.inf, high_open=True)})
    spaces.publish("far", {"x": math.inf})
    assert spaces.matches_of_publication("far") == ["from 5"]
    spaces.update_publication("far", {"x": 1e308})
    assert sorted(spaces.matches_of_publication("far")) == ["finite", "from 5"]


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_are_not_copied(way: Callable[[Any], Any]) -> None:
    spaces = bm.Spaces({"line": bm.Schema({"x": "float"})})
    with pytest.raises(bm.StorageError, match=r"cannot be copied or pickled: .*Spaces.open"):
        way(spaces)


def test_warming_up_changes_nothing() -> None:
    spaces = bm.Spaces(ONE)
    spaces.subscribe("s", {"d": (1, 3)})
    spaces.warmup()
    assert (spaces.publication_count, spaces.subscription_count) == (0, 1)
    assert notified(spaces.publish("p", {"d": 2})) == [("enter", "p", "s")]
    assert next(spaces.transitions()).sequence.tolist() == [1]


def test_changes_between_stores_nothing() -> None:
    spaces = bm.Spaces(ONE)
    for number in range(20):
        spaces.subscribe(number, {"d": (number, number + 3)})
    entered, gone = spaces.changes_between({"d": 5}, {"d": 7})
    assert (sorted(entered), sorted(gone)) == ([6, 7], [2, 3])
    entered, gone = spaces.changes_between(None, {"d": 5})
    assert (sorted(entered), sorted(gone)) == ([2, 3, 4, 5], [])
    entered, gone = spaces.changes_between({"d": 5}, None)
    assert (sorted(entered), sorted(gone)) == ([], [2, 3, 4, 5])
    assert spaces.publication_count == 0


def test_changes_between_strings_that_nobody_mentioned() -> None:
    """They are compared with what is stored, and then forgotten."""
    names = ["b", "d", "f"]
    texts = ["", "a", "b", "c", "cc", "d", "e", "f", "g"]
    endpoints = [(None, None), *((t, None) for t in names), *((None, t) for t in names), ("b", "d")]
    stored = [
        Interval(low, high, low_open, high_open)
        for low, high in endpoints
        for low_open, high_open in product((False, True), repeat=2)
    ]
    spaces = bm.Spaces({"s": bm.Schema({"name": "string"})})
    for number, interval in enumerate(stored):
        spaces.subscribe(number, {"name": interval})
    asked = [Interval(t, t) for t in texts]
    asked += [Interval(low, high, a, b) for low, high in zip(texts, texts[2:], strict=False)
              for a, b in product((False, True), repeat=2)]  # fmt: skip
    for one in asked:
        entered, _ = spaces.changes_between(None, {"name": one})
        assert sorted(entered) == [n for n, other in enumerate(stored) if overlap(one, other)]
    assert len(spaces._state.dimensions._axes[0]) == len(names)


def test_room_that_is_left_is_used_again() -> None:
    rng = np.random.default_rng(1)
    spaces = bm.Spaces({"s": bm.Schema(dict.fromkeys("abc", "int"))})
    spaces.subscribe(0, {"a": (0, 5)})
    for _ in range(500):
        names = rng.choice(list("abc"), rng.integers(1, 4), replace=False).tolist()
        spaces.publish(1, dict.fromkeys(names, 3))
        spaces.retract(1)
    assert len(spaces._state.publications.side.constraint) < 200


def test_all_at_one_value_and_away_again() -> None:
    """Enough at one value that a cell has several buckets, and these have to move."""
    count = 3_000
    spaces = bm.Spaces({"s": bm.Schema(dict.fromkeys("ab", "int"))})
    spaces.load(
        publications={number: {"a": number, "b": number % 2} for number in range(count)},
        subscriptions={"all": {"b": (0, 1)}, "one": {"a": 7}, "two": {"a": (8, 9), "b": 1}},
    )
    for target in (7, 9):
        for number in range(count):
            spaces.update_publication(number, {"b": target % 2, "a": (target, target)})
        matching = {name: sorted(spaces.matches_of_subscription(name)) for name in ("one", "two")}
        everybody = list(range(count))
        assert matching == {
            "one": everybody if target == 7 else [],
            "two": everybody if target == 9 else [],
        }
        spaces.subscribe("late", {"a": (target - 1, target), "b": target % 2})
        assert len(spaces.matches_of_subscription("late")) == count
        notified = spaces.update_subscription("late", {"a": target + 1})
        assert sorted(notified.publication.tolist()) == everybody
        assert set(notified.kind) == {"leave"}
        spaces.unsubscribe("late")
    members = spaces._state.publications
    shares = members.endpoints.shares
    members.endpoints = members._fit_endpoints()
    assert members.endpoints.shares > shares
    for number in range(count):
        spaces.update_publication(number, {"a": number})
    assert [spaces.matches_of_subscription("one"), len(spaces.matches_of_subscription("two"))] == [
        [7],
        2,
    ]


LOWEST = -(2**63) + 1  # the first of all keys


@pytest.mark.parametrize(
    "other",
    [
        lambda spaces: spaces.publish(50, {"a": (3, 4)}),
        lambda spaces: spaces.publish(50, {"a": LOWEST}),
        lambda spaces: spaces.publish(50, {"a": Interval(7)}),
        lambda spaces: spaces.update_publication(5, {"a": (3, 4)}),
        lambda spaces: spaces.update_publication(5, {"a": LOWEST}),
        lambda spaces: spaces.update_publication(5, {"a": Interval(None, 2)}),
        lambda spaces: spaces.update_publication(5, {"b": (3, 4)}),
        lambda spaces: spaces.update_publications([4, 5, 6], [{"a": 2}, {"a": LOWEST}, {"a": 2}]),
        lambda spaces: spaces.load(publications={50: {"a": (3, 4)}}),
    ],
)
def test_a_side_of_points_gets_another_region(other: Callable[[bm.Spaces], Any]) -> None:
    spaces = bm.Spaces({"s": bm.Schema(dict.fromkeys("ab", "int"))})
    spaces.load(publications={number: {"a": number % 10} for number in range(50)})
    members = spaces._state.publications
    assert members.endpoints.points
    spaces.update_publication(1, {"a": 9})
    spaces.publish(51, {"a": 1})
    spaces.retract(2)
    assert members.endpoints.points
    assert spaces.subscribe(-1, {"a": (-5, 5)}).publication.tolist()
    other(spaces)
    assert not members.endpoints.points
    wanted = [(LOWEST, 2), (LOWEST, LOWEST), (LOWEST + 1, 0), (3, 4), (5, 9), (4, 2**63 - 1)]
    for number, (low, high) in enumerate(wanted):
        found = spaces.subscribe(number, {"a": (low, high), "b": 7}).publication.tolist()
        expected = [one for one in spaces.publications() if _meets(spaces, one, low, high)]
        assert sorted(found) == sorted(expected)
        spaces.update_publication(3, {"a": 3 + number})
        assert (3 in spaces.matches_of_subscription(number)) == (low <= 3 + number <= high)
    for number in range(1, len(wanted)):  # to where the one before it was
        spaces.update_subscription(number, {"a": wanted[number - 1]})
        expected = [
            one for one in spaces.publications() if _meets(spaces, one, *wanted[number - 1])
        ]
        assert sorted(spaces.matches_of_subscription(number)) == sorted(expected)


def _meets(spaces: bm.Spaces, publication: int, low: int, high: int) -> bool:
    (region,) = spaces.get_publication(publication).regions.values()
    b = region.get("b")
    return overlap(region["a"], Interval(low, high)) and (b is None or overlap(b, Interval(7, 7)))


@pytest.mark.parametrize("points_until", [0, 500, 1_500])
@pytest.mark.parametrize("seed", range(2))
def test_many_of_each(seed: int, points_until: int) -> None:
    """Enough to move buckets, to cut cells anew and to close gaps; against plain comparison.

    Up to some step all publications are points.
    """
    rng = np.random.default_rng(seed)
    dimensions = [f"d{i}" for i in range(6)]
    spaces = bm.Spaces({"s": bm.Schema(dict.fromkeys(dimensions, "int"))})
    state: dict[str, dict[int, dict[str, tuple[int, int]]]] = {"p": {}, "s": {}}

    def region(*, point: bool) -> dict[str, tuple[int, int]]:
        chosen = rng.choice(dimensions, rng.integers(1, 4), replace=False).tolist()
        endpoints = np.sort(rng.integers(0, 60, (len(chosen), 2)), axis=1)
        if point:
            endpoints[:, 1] = endpoints[:, 0]
        endpoints = endpoints.tolist()
        return {name: (low, high) for name, (low, high) in zip(chosen, endpoints, strict=True)}

    def meets(one: dict[str, tuple[int, int]], other: dict[str, tuple[int, int]]) -> bool:
        both = one.keys() & other.keys()
        return all(one[d][0] <= other[d][1] and other[d][0] <= one[d][1] for d in both)

    for step in range(1_500):
        which, others = ("p", "s") if rng.random() < 0.5 else ("s", "p")
        point = which == "p" and step < points_until
        number = int(rng.integers(0, 300))
        own = state[which]
        before = {o for o, r in state[others].items() if number in own and meets(own[number], r)}
        if number not in own:
            own[number] = region(point=point)
            act = spaces.publish if which == "p" else spaces.subscribe
            done = act(number, own[number])
        elif rng.random() < 0.3:
            del own[number]
            done = spaces.retract(number) if which == "p" else spaces.unsubscribe(number)
        else:
            other = (7, 7 if point else 9)
            few = rng.random() < 0.5
            change = region(point=point) if few else dict.fromkeys(own[number], other)
            own[number] = {**own[number], **change}
            act = spaces.update_publication if which == "p" else spaces.update_subscription
            done = act(number, change)
        after = {o for o, r in state[others].items() if number in own and meets(own[number], r)}
        side = done.subscription if which == "p" else done.publication
        codes = done.code.tolist()
        entered = {o for o, code in zip(side.tolist(), codes, strict=True) if code == 0}
        gone = {o for o, code in zip(side.tolist(), codes, strict=True) if code > 0}
        removed_quietly = which == "s" and number not in own
        assert entered == after - before, step
        assert gone == (set() if removed_quietly else before - after), step
        if which == "p" and number in own:
            assert spaces._state.publications.endpoints.points == (step < points_until)
    for number in list(state["p"]):
        found = spaces.matches_of_publication(number)
        assert set(found) == {o for o, r in state["s"].items() if meets(state["p"][number], r)}


@pytest.mark.parametrize("wanted", [{"region_filter": "region"}, {}])
def test_all_of_many_that_need_a_closer_look_match(wanted: dict[str, str]) -> None:
    """A filter on either side, or several regions, and no room to spare in the arrays."""
    spaces = bm.Spaces(ONE)
    several = {"one": {"d": 1}, "two": {"d": (2, 3)}}
    for count in range(1, 150):
        spaces.subscribe(count, {"d": (0, 5)}, **wanted)
        entered = spaces.publish("p", regions=several)
        assert sorted(entered.subscription) == list(range(1, count + 1))
        assert len(spaces.retract("p")) == count


def test_strings_that_come_in_between() -> None:
    """So many between the same two that labels have to be spread anew."""
    spaces = bm.Spaces({"s": bm.Schema({"name": "string"})})
    names = ["a" * count + "b" for count in range(1, 120)]
    for number, name in enumerate(names):
        spaces.subscribe(number, {"name": (name, None)})
        spaces.publish(number, {"name": name})
    for number, name in enumerate(names):
        expected = [n for n, other in enumerate(names) if other <= name]
        assert sorted(spaces.matches_of_publication(number)) == expected


def test_cells_begin_at_their_edges() -> None:
    edges = np.array([[-100, 1, 5, 5, 9]])
    places = {-100: 0, 0: 0, 1: 1, 4: 1, 5: 3, 8: 3, 9: 4, 99: 4}
    assert {key: cell_of(edges, 0, key) for key in places} == places


@pytest.mark.parametrize(
    ("text", "true_for"),
    [
        (None, [7]),
        ("a", [1, 3, 5, 7]),
        ("a AND (b OR c)", [3, 5, 7]),
        ("a and b or c", [3, 4, 5, 6, 7]),
        ("a AND NOT b", [1, 5]),
        ('"c"', [4, 5, 6, 7]),
        ("NOT NOT a", [1, 3, 5, 7]),
        ("(((a)))", [1, 3, 5, 7]),
    ],
)
def test_region_filters(text: str | None, true_for: list[int]) -> None:
    code = compile_region_filter(text, ("a", "b", "c"))
    found = [m for m in range(8) if holds(code, 0, len(code), np.uint64(m), 3)]
    assert found == true_for


@pytest.mark.parametrize(
    ("text", "message", "position"),
    [
        ("", "incomplete", 0),
        ("a AND", "incomplete", 5),
        ("a b", "'b' is not expected here", 2),
        ("(a", "not closed", 0),
        ("a AND )", "a region is expected, not ')'", 6),
        ("a AND d", "no region is named 'd'; there are 'a', 'b'", 6),
        ("a & b", "'&' is not understood", 2),
        ("NOT a", "holds even if no region has a partner", 0),
        ("a OR NOT b", "holds even if no region has a partner", 0),
        ("SAME(NOT a)", "holds even if no region has a partner", 0),
        ("b OR NOT SAME(a)", "holds even if no region has a partner", 0),
        ("b AND SAME (a OR same(b))", "SAME cannot be inside another SAME", 17),
        ("b AND SAME(a", "not closed", 10),
        ("SAME()", "a region is expected, not ')'", 5),
        ("SAME a", "no region is named 'SAME'", 0),
        ('"SAME"(a)', "no region is named 'SAME'", 1),
    ],
)
def test_filters_that_make_no_sense(text: str, message: str, position: int) -> None:
    with pytest.raises(bm.RegionFilterError) as caught:
        compile_region_filter(text, ("a", "b"))
    assert message in caught.value.reason
    assert caught.value.position == position


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("SAME(a AND b)", lambda rows: any(row & 3 == 3 for row in rows)),
        ("c or same (a and not b)", lambda rows: any(row & 4 or row & 3 == 1 for row in rows)),
        (
            "SAME(a AND b) AND NOT SAME(b AND c) AND (c OR SAME(a AND b))",
            lambda rows: any(row & 3 == 3 for row in rows) and all(row & 6 != 6 for row in rows),
        ),
        (
            "c AND SAME(NOT (a OR c))",
            lambda rows: any(row & 4 for row in rows) and any(row & 5 == 0 for row in rows),
        ),
    ],
)
def test_what_one_region_overlaps(text: str, meaning: Callable[[tuple[int, ...]], bool]) -> None:
    """For all ways in which up to three regions of the other side can overlap three."""
    code = compile_region_filter(text, ("a", "b", "c"))
    for rows in chain.from_iterable(product(range(8), repeat=count) for count in (1, 2, 3)):
        found = holds_by_rows(code, 0, len(code), np.array(rows, np.uint64), 3)
        assert found == meaning(rows), rows


def test_the_papers_filters() -> None:
    """P(o₁, o₂): one object overlaps i₁ and i₂, another or the same one overlaps i₃."""
    spaces = bm.Spaces(ONE)
    interests = {"i1": {"d": (0, 10)}, "i2": {"d": (8, 20)}, "i3": {"d": (30, 40)}}
    spaces.subscribe("s", regions=interests, region_filter="SAME(i1 AND i2) AND i3")
    objects = {"o1": {"d": 5}, "o2": {"d": 12}, "o3": {"d": 35}}
    either = "o1 OR o2 OR o3"
    assert notified(spaces.publish("p", regions=objects, region_filter=either)) == []
    moved = spaces.update_publication("p", regions={"o2": {"d": 9}})
    assert notified(moved) == [("enter", "p", "s")]
    assert notified(spaces.update_publication("p", regions={"o1": {"d": 50}})) == []
    apart = spaces.update_subscription("s", regions={"i2": {"d": (10, 20)}})
    assert notified(apart) == [("leave", "p", "s")]
    # A publication can want the same of an interest.
    spaces.update_publication("p", region_filter="SAME(o2 AND o3)")
    assert notified(spaces.subscribe("parts", {"d": (34, 36)})) == []
    assert notified(spaces.subscribe("all", {"d": (0, 40)})) == [("enter", "p", "all")]


def test_a_region_may_be_called_same() -> None:
    code = compile_region_filter("same AND SAME(same AND b)", ("same", "b"))
    assert holds_by_rows(code, 0, len(code), np.array([3], np.uint64), 2)
    assert not holds_by_rows(code, 0, len(code), np.array([1, 2], np.uint64), 2)


def test_as_many_as_there_are_bits() -> None:
    names = tuple(f"r{number}" for number in range(63))
    twice = "SAME(r0 AND r62) AND (r1 OR SAME(r0 AND r62))"
    code = compile_region_filter(twice, names)
    assert holds_by_rows(code, 0, len(code), np.array([1 << 62 | 1], np.uint64), 63)
    assert not holds_by_rows(code, 0, len(code), np.array([1 << 62, 3], np.uint64), 63)
    with pytest.raises(bm.RegionFilterError, match=r"64 regions and SAME together, .* 63 regions"):
        compile_region_filter("SAME(r0 AND r1) OR SAME(r0 AND r2)", names)


def test_deep_filters() -> None:
    text = "a AND (" * 70 + "a" + ")" * 70
    with pytest.raises(bm.RegionFilterError, match="too deeply"):
        compile_region_filter(text, ("a",))


@pytest.mark.parametrize(("before", "after"), [("(", ")"), ("NOT ", "")])
def test_depth_is_refused_in_its_place(before: str, after: str) -> None:
    assert len(compile_region_filter(before * 100 + "a" + after * 100, ("a",)))
    for count in (101, 500, 30_000):
        with pytest.raises(bm.RegionFilterError, match="too deeply") as caught:
            compile_region_filter(before * count + "a" + after * count, ("a",))
        assert caught.value.position == 100 * len(before)
    side_by_side = " AND ".join([f"{before * 2}a{after * 2}"] * 200)
    assert len(compile_region_filter(side_by_side, ("a",))) >= 399


class TestErrors:
    @pytest.fixture
    def spaces(self) -> bm.Spaces:
        dimensions = {"x": "int", "side": ["buy", "sell"], "y": "float", "t": "timestamp"}
        spaces = bm.Spaces({"s": bm.Schema(dimensions)})
        spaces.publish("p", {"x": 1})
        spaces.subscribe("s", {"x": 1})
        return spaces

    @pytest.mark.parametrize(
        ("region", "message"),
        [
            ({}, "constrains no dimension"),
            ({"z": 1}, r"no space has a dimension 'z'; there are x, side, y, t"),
            ({"x": "one"}, "dimension 'x': 'one' is not an int"),
            ({"x": (5, 3)}, r"no value is in \[5, 3\]"),
            ({"x": Interval(5, 6, True, True)}, r"no value is in \(5, 6\)"),
            ({"side": "hold"}, "'hold' is not one of"),
            ({"y": 2**53 + 1}, "dimension 'y': 9007199254740993 cannot be held exactly by a float"),
            (
                {"y": (Decimal("0.3000000000000000001"), None)},
                "exactly by a float .*nearest is 0.3",
            ),
            ({"t": (None, np.datetime64(1, "ns"))}, "dimension 't': .* fraction of a microsecond"),
            ({"x": (1, 2, 3)}, r"is not a range: that is \(low, high\)"),
            ([("x", 1)], "is a mapping of dimensions"),
        ],
    )
    def test_regions(self, spaces: bm.Spaces, region: Any, message: str) -> None:
        for operation in (spaces.publish, spaces.subscribe):
            with pytest.raises(bm.RegionError, match=message):
                operation("new", region)
        if region:
            with pytest.raises(bm.RegionError, match=message):
                spaces.update_publication("p", region)
        assert (spaces.publication_count, spaces.subscription_count) == (1, 1)
        assert spaces.get_publication("p").regions == {"region": {"x": Interval(1, 1)}}

    def test_members(self, spaces: bm.Spaces) -> None:
        with pytest.raises(bm.DuplicateMemberError, match="a publication with id 'p' already"):
            spaces.publish("p", {"x": 2})
        with pytest.raises(bm.UnknownMemberError, match="no subscription with id 't'"):
            spaces.unsubscribe("t")
        with pytest.raises(bm.SubscriptionIdError, match="ids of publications are of kind string"):
            spaces.publish(1, {"x": 2})
        with pytest.raises(bm.RegionError, match="one region, or several by name"):
            spaces.publish("q", {"x": 1}, regions={"a": {"x": 1}})
        with pytest.raises(bm.RegionError, match="has no region"):
            spaces.publish("q")
        with pytest.raises(bm.RegionError, match="take away all regions"):
            spaces.update_publication("p", regions={"region": None})
        with pytest.raises(bm.RegionError, match="no region 'other' to take away"):
            spaces.update_publication("p", regions={"other": None})
        many = {f"r{n}": {"x": n} for n in range(65)}
        with pytest.raises(bm.RegionError, match="there can be 1 to 64 regions, not 65"):
            spaces.publish("q", regions=many)
        spaces.publish("q", regions=dict(list(many.items())[:64]))
        with pytest.raises(bm.RegionError, match="say which region changes"):
            spaces.update_publication("q", {"x": 1})

    def test_spaces(self) -> None:
        with pytest.raises(bm.SchemaError, match="at least one space"):
            bm.Spaces({})
        wrong: Any = bm.Schema({"x": "int"})
        with pytest.raises(bm.SchemaError, match="spaces are a mapping of names to schemas, not"):
            bm.Spaces(wrong)
        with pytest.raises(bm.SchemaError, match=r"space 'b': .* 'y'.*'integer'"):
            bm.Spaces({"a": {"x": "int"}, "b": {"y": "integer"}})
        wrong = {"a": "int"}
        with pytest.raises(bm.SchemaError, match="space 'a': a schema is made from a mapping"):
            bm.Spaces(wrong)
        schema = bm.Schema({"x": "int"})
        assert bm.Spaces({"a": {"x": "int"}}).schemas == bm.Spaces({"a": schema}).schemas
        with pytest.raises(bm.SchemaError, match="dimension 'x' is not the same in spaces 'a'"):
            bm.Spaces({"a": bm.Schema({"x": "int"}), "b": bm.Schema({"x": "float"})})
        one = bm.Schema({"x": "int"})
        with pytest.raises(bm.SchemaError, match="there can be 64 spaces, not 65"):
            bm.Spaces({f"s{n}": one for n in range(65)})
        assert (
            bm.Spaces({f"s{n}": one for n in range(64)}).publish("p", {"x": 1}).to_arrow().num_rows
            == 0
        )
