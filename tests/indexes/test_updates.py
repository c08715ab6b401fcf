"""Boxes added and removed in any order, against a dict of boxes in plain Python."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from box_oracle import (
    KEYS,
    build,
    check_answers,
    holders,
    holders_of_many,
    intervals,
    large_boolean_case,
    large_case,
    names_of_indexes,
)
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from odd_parameters import ODD

from boxmatch.errors import IndexConfigError
from boxmatch.indexes import updatable
from boxmatch.indexes.base import Index
from boxmatch.indexes.registry import index_class
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from property_examples import examples

UPDATABLE = names_of_indexes(updates=True)
AROUND = sorted({near for key in KEYS for near in (key - 1, key, key + 1) if FIRST <= near <= LAST})

Row = list[tuple[int, int, int]]


def rows_of(domain: str, dimensions: int) -> st.SearchStrategy[list[Row]]:
    """A few rows, or many that repeat a few."""
    interval = {
        "ranges": intervals(),
        # Later boxes then lie far outside of what an index was built with.
        "narrow": st.tuples(st.integers(0, 3), st.integers(3, 6)),
        "booleans": st.sampled_from([(0, 0), (1, 1)]),
    }[domain]
    row = st.dictionaries(st.integers(0, dimensions - 1), interval, max_size=4).map(
        lambda asked: [(a, *ends) for a, ends in sorted(asked.items())]
    )
    few = st.lists(row, max_size=6)
    times = st.sampled_from([1, 1, 1, 2, 90])
    return st.tuples(few, times).map(lambda drawn: drawn[0] * drawn[1])


def points_of(domain: str, dimensions: int) -> st.SearchStrategy[np.ndarray[Any, Any]]:
    key = st.sampled_from([0, 0, 0, 1, ABSENT, 2] if domain == "booleans" else [ABSENT, *AROUND])
    point = st.tuples(*[key] * dimensions)
    return st.lists(point, min_size=1, max_size=5).map(lambda drawn: np.array(drawn, np.int64))


def arrays_of(index: Index) -> dict[str, Any]:
    return {key: array.copy() for key, array in index.to_arrays().items()}


class Updates(RuleBasedStateMachine):
    """An index beside the boxes that it should hold, by position."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.patches = pytest.MonkeyPatch()
        self.held: dict[int, Row] = {}
        self.given = 0

    def teardown(self) -> None:
        self.patches.undo()

    @initialize(data=st.data(), dimensions=st.sampled_from([1, 2, 3, 5]))
    def choose(self, data: st.DataObject, dimensions: int) -> None:
        capabilities = index_class(self.name).capabilities
        domains = ["ranges"] * capabilities.ranges + ["booleans"] * capabilities.booleans
        self.dimensions = dimensions
        self.domain = data.draw(st.sampled_from(domains))
        self.parameters = data.draw(st.sampled_from([{}, *ODD.get(self.name, [])]))
        # A small one lets structures be fitted anew after a few boxes.
        self.patches.setattr(updatable, "_FITTED_AT_LEAST", data.draw(st.sampled_from([1000, 5])))
        self.index = index_class(self.name)(dimensions, **self.parameters)
        narrow = data.draw(st.booleans()) and self.domain == "ranges"
        self.build(data, data.draw(rows_of("narrow" if narrow else self.domain, dimensions)))

    def build(self, data: st.DataObject, rows: list[Row]) -> None:
        order = self.index.build(Boxes.of(self.dimensions, rows))
        numbers = range(len(rows)) if order is None else order.tolist()
        self.held = {position: rows[row] for position, row in enumerate(numbers)}
        self.given = len(rows)

    @rule(data=st.data())
    def build_anew(self, data: st.DataObject) -> None:
        self.build(data, data.draw(rows_of(self.domain, self.dimensions)))

    @rule(data=st.data())
    def add(self, data: st.DataObject) -> None:
        rows = data.draw(rows_of(self.domain, self.dimensions))
        positions = self.index.add(Boxes.of(self.dimensions, rows))
        assert positions.dtype == np.int64
        assert positions.tolist() == list(range(self.given, self.given + len(rows)))
        self.held.update(zip(positions.tolist(), rows, strict=True))
        self.given += len(rows)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        living = sorted(self.held)
        few = st.lists(st.sampled_from(living), unique=True, max_size=4)
        half = st.integers(0, 1).map(lambda odd: living[odd::2])
        gone = data.draw(st.one_of(few, half))
        self.index.remove(np.array(gone, np.int64))
        for position in gone:
            del self.held[position]

    @rule()
    def remove_all(self) -> None:
        self.index.remove(np.array(list(self.held), np.int64))
        self.held = {}

    @rule(data=st.data())
    def fail_to_remove(self, data: st.DataObject) -> None:
        gone = sorted(set(range(self.given)) - set(self.held))
        wrong = data.draw(st.sampled_from([-1, self.given, 2**40, -(2**63), *gone[:5]]))
        good = (
            data.draw(st.lists(st.sampled_from(sorted(self.held)), max_size=2, unique=True))
            if self.held
            else []
        )
        before = arrays_of(self.index)
        with pytest.raises(IndexConfigError):
            self.index.remove(np.array([*good, wrong], np.int64))
        if good:
            with pytest.raises(IndexConfigError):
                self.index.remove(np.array([*good, good[0]], np.int64))
        after = self.index.to_arrays()
        assert all(np.array_equal(before[key], after[key]) for key in before.keys() | after.keys())

    @rule()
    def save_and_load(self) -> None:
        kind = index_class(self.name)
        self.index = kind.from_arrays(self.dimensions, self.parameters, arrays_of(self.index))

    @rule(data=st.data(), seed=st.integers(0, 9))
    def match(self, data: st.DataObject, seed: int) -> None:
        points = data.draw(points_of(self.domain, self.dimensions))
        numbers = list(self.held)
        expected = [
            {numbers[row] for row in rows}
            for rows in holders(list(self.held.values()), points.tolist())
        ]
        check_answers(self.index, list(range(self.given)), points, expected)
        some = np.random.default_rng(seed).random(self.given) < 0.6
        check_answers(self.index, list(range(self.given)), points, expected, some, singles=1)
        fresh, order = build(
            self.name, Boxes.of(self.dimensions, list(self.held.values())), **self.parameters
        )
        check_answers(fresh, [numbers[row] for row in order], points, expected, singles=1)

    @invariant()
    def same_boxes(self) -> None:
        boxes = self.index.boxes
        assert boxes.count == self.given
        numbers = list(self.held)[-3:]
        assert [boxes.row(position) for position in numbers] == [self.held[n] for n in numbers]


@pytest.mark.parametrize("name", UPDATABLE)
def test_any_sequence_of_changes(name: str) -> None:
    limits = settings(max_examples=examples(40), stateful_step_count=25)
    run_state_machine_as_test(lambda: Updates(name), settings=limits)


# --- large cases, by seed --------------------------------------------------------------------


def moved(keys: np.ndarray[Any, Any], by: int) -> np.ndarray[Any, Any]:
    """The keys somewhere else on the axis; those at its ends stay where they are."""
    return np.where((keys > -(2**62)) & (keys < 2**62), keys + by, keys)


class History:
    """An index of many boxes, beside all that it was ever given and which of them are left."""

    def __init__(self, name: str, boxes: Boxes, points: np.ndarray[Any, Any]) -> None:
        self.name, self.boxes, self.points = name, boxes, points
        self.index, order = build(name, boxes)
        assert order == list(range(boxes.count))
        self.living = np.ones(boxes.count, bool)

    def add(self, boxes: Boxes) -> None:
        positions = self.index.add(boxes)
        assert positions.tolist() == list(range(self.boxes.count, self.boxes.count + boxes.count))
        self.boxes = Boxes.concatenate([self.boxes, boxes])
        self.living = np.concatenate([self.living, np.ones(boxes.count, bool)])

    def remove(self, positions: np.ndarray[Any, Any]) -> None:
        self.index.remove(positions)
        self.living[positions] = False

    def save_and_load(self) -> None:
        arrays = arrays_of(self.index)
        self.index = index_class(self.name).from_arrays(self.boxes.dimensions, {}, arrays)

    def check(self) -> None:
        stored = self.index.boxes
        assert all(map(np.array_equal, stored[1:], self.boxes[1:]))
        left = np.flatnonzero(self.living)
        expected = [
            set(left[list(rows)].tolist())
            for rows in holders_of_many(self.boxes.take(left), self.points)
        ]
        everywhere = list(range(self.boxes.count))
        check_answers(self.index, everywhere, self.points, expected)
        some = np.random.default_rng(0).random(self.boxes.count) < 0.6
        check_answers(self.index, everywhere, self.points, expected, some, singles=3)
        fresh, order = build(self.name, self.boxes.take(left))
        numbers = [int(left[row]) for row in order]
        check_answers(fresh, numbers, self.points, expected, singles=3)


RANGES = ["uniform", "clustered", "equality", "attributes", "edges"]
BOOLEANS = ["light", "few"]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(
            name, kind, marks=pytest.mark.slow if kind in ("uniform", "attributes") else ()
        )
        for name, kind in [
            *product(names_of_indexes(updates=True, ranges=True), RANGES),
            *product(names_of_indexes(updates=True, booleans=True), BOOLEANS),
        ]
    ],
)
def test_large_histories(name: str, kind: str) -> None:
    """From a few hundred boxes to thousands, which are fitted anew, to half of them, to none."""
    make, by = (large_case, 7_000_000) if kind in RANGES else (large_boolean_case, 0)
    first, more = (make(kind, *sizes, seed=8) for sizes in ((400, 40), (3000, 60)))
    points = np.concatenate([first.points, moved(more.points, by), more.points[:20]])
    history = History(name, first.boxes, points)
    far = more.boxes._replace(low=moved(more.boxes.low, by), high=moved(more.boxes.high, by))
    rng = np.random.default_rng(8)
    done = 0
    for size in (0, 1, 2, 110, 800):
        history.add(far.take(np.arange(done, done + size)))
        done += size
    history.check()
    history.remove(rng.permutation(1313)[:300])
    history.check()
    history.add(far.take(np.arange(done, 3000)))  # more than twice as many
    history.check()
    left = np.flatnonzero(history.living)
    history.remove(rng.permutation(left)[: len(left) // 2])
    history.save_and_load()
    history.check()
    history.add(first.boxes.take(np.arange(200)))
    history.remove(rng.permutation(np.flatnonzero(history.living))[:500])
    history.check()
    history.remove(np.flatnonzero(history.living))
    history.check()
    history.add(first.boxes)
    history.check()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(names_of_indexes(updates=True, ranges=True), ["zipf"]),
        *product(names_of_indexes(updates=True, booleans=True), ["coins"]),
    ],
)
def test_boxes_that_come_and_go(name: str, kind: str) -> None:
    """Always some two hundred, and in the end none of those there at first."""
    make = large_case if kind == "zipf" else large_boolean_case
    case = make(kind, 2200, 60, seed=9)
    history = History(name, case.boxes.take(np.arange(200)), case.points)
    rng = np.random.default_rng(9)
    for number in range(50):
        left = np.flatnonzero(history.living)
        gone = left[:40] if number % 2 else rng.permutation(left)[:40]
        history.remove(gone)
        history.add(case.boxes.take(np.arange(200 + 40 * number, 240 + 40 * number)))
        if number % 16 == 0:
            history.check()
    history.check()
    assert not history.living[:200].any()


@pytest.mark.parametrize("name", UPDATABLE)
def test_boxes_one_by_one(name: str) -> None:
    """More than two lines of them, from nothing to nothing."""
    boxes = Boxes.of(
        2, [[(0, row % 2, row % 2)] + [(1, 1, 1)] * (row % 3 == 0) for row in range(1100)]
    )
    points = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [ABSENT, 1]])
    history = History(name, Boxes.empty(2), points)
    for row in range(1100):
        history.add(boxes.take(np.arange(row, row + 1)))
    history.check()
    for position in np.random.default_rng(1).permutation(1100).tolist():
        if position != 700:
            history.remove(np.array([position]))
    history.check()
    history.remove(np.array([700]))
    history.check()


# --- the interface ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", UPDATABLE)
def test_what_was_given_is_left_alone(name: str) -> None:
    first, more = (large_boolean_case("light", count, 1, seed=3).boxes for count in (200, 2500))
    gone = np.arange(0, 2000, 3)
    before = [array.copy() for array in (*first[1:], *more[1:], gone)]
    index, _ = build(name, first)
    seen = index.boxes
    index.add(more)
    index.remove(gone)
    index.add(more)
    assert all(map(np.array_equal, before, (*first[1:], *more[1:], gone)))
    assert all(map(np.array_equal, seen[1:], first[1:]))


@pytest.mark.parametrize("name", UPDATABLE)
@pytest.mark.parametrize(
    "wrong",
    [[-1], [3], [2**40], [-(2**63)], [1], [0, 0], [0, 2, 0], [0, 1], [2, 3]],
    ids=str,
)
def test_boxes_that_are_not_there(name: str, wrong: list[int]) -> None:
    index, _ = build(name, Boxes.of(1, [[(0, 1, 1)]] * 3))
    index.remove(np.array([1]))
    before = arrays_of(index)
    with pytest.raises(IndexConfigError, match=r"position"):
        index.remove(np.array(wrong))
    after = index.to_arrays()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)
    check_answers(index, [0, 1, 2], np.array([[1], [0]]), [{0, 2}, set()])


@pytest.mark.parametrize("name", names_of_indexes(updates=False))
def test_indexes_without_updates_say_so(name: str) -> None:
    index, order = build(name, Boxes.of(1, [[(0, 1, 1)]]))
    with pytest.raises(IndexConfigError, match=name):
        index.add(Boxes.of(1, [[(0, 1, 1)]]))
    with pytest.raises(IndexConfigError, match=name):
        index.remove(np.array([0]))
    check_answers(index, order, np.array([[1], [0]]), [{0}, set()])
