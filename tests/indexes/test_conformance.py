"""Every index gives the answers of plain Python."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from box_oracle import (
    KINDS,
    NEVER,
    Case,
    cases,
    check_answers,
    check_order,
    holders,
    holders_of_many,
    large_case,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import Index, Matches
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes

every_index = pytest.mark.parametrize("name", index_names())


def build(name: str, boxes: Boxes, **parameters: Any) -> tuple[Index, list[int]]:
    index = index_class(name)(boxes.dimensions, **parameters)
    return index, check_order(index, boxes, index.build(boxes))


def check_large(name: str, case: Case, seed: int, **parameters: Any) -> Index:
    index, order = build(name, case.boxes, **parameters)
    expected = holders_of_many(case.boxes, case.points)
    check_answers(index, order, case.points, expected)
    rng = np.random.default_rng(seed)
    check_answers(index, order, case.points, expected, rng.random(case.boxes.count) < 0.7)
    return index


# --- answers ---------------------------------------------------------------------------------


@every_index
@settings(max_examples=120)
@given(case=cases(), data=st.data())
def test_small_batches(name: str, case: Case, data: st.DataObject) -> None:
    index, order = build(name, case.boxes)
    rows = [case.boxes.row(row) for row in range(case.boxes.count)]
    expected = holders(rows, case.points.tolist())
    check_answers(index, order, case.points, expected)
    alive = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    check_answers(index, order, case.points, expected, np.array(alive, bool))


@every_index
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4)
@given(
    count=st.sampled_from([0, 1, 15, 511, 512, 513, 1500, 5000]),
    events=st.sampled_from([1, 63, 64, 65, 255, 256, 300]),
    seed=st.integers(0, 2**32 - 1),
    odd=st.sampled_from([0.0, 0.02, 0.5]),
)
def test_large_batches(
    name: str, kind: str, count: int, events: int, seed: int, odd: float
) -> None:
    check_large(name, large_case(kind, count, events, seed, odd), seed)


@every_index
@pytest.mark.parametrize("kind", ["equality", "dense"])
@pytest.mark.parametrize("events", [2047, 2049, 2148, 4096 + 37])
def test_batches_of_more_events_than_a_block(name: str, kind: str, events: int) -> None:
    check_large(name, large_case(kind, 600, events, seed=events), seed=1)


@pytest.mark.parametrize("cells", [8, 120])
@pytest.mark.parametrize("kind", ["uniform", "equality", "sizes"])
def test_tile_with_other_numbers_of_cells(kind: str, cells: int) -> None:
    check_large("tile", large_case(kind, 2000, 100, seed=cells), seed=2, cells=cells)


@every_index
def test_many_matches_outgrow_the_first_buffers(name: str) -> None:
    boxes = Boxes.of(1, [[]] * 5000)
    index, order = build(name, boxes)
    points = np.array([[ABSENT], [0], [LAST]])
    check_answers(index, order, points, [set(range(5000))] * 3)


@every_index
def test_more_tiles_than_a_line_of_the_directory(name: str) -> None:
    count = 513 * 512 + 7
    low = np.arange(count) // 3
    boxes = Boxes(1, np.arange(count + 1), np.zeros(count, np.uint16), low, low + 1)
    index = index_class(name)(1)
    order = index.build(boxes)
    rows = np.arange(count) if order is None else order
    assert np.array_equal(np.sort(rows), np.arange(count))
    points = np.array([[ABSENT], [-1], [0], [1], [count // 6], [count // 3], [count // 3 + 2]])
    for alive_lines in (None, np.full((count // 512 + 1, 8), 2**64 - 1, np.uint64)):
        found = index.match(points, alive_lines)
        ends = np.cumsum(found.counts)
        for event, key in enumerate(points[:, 0].tolist()):
            expected = np.flatnonzero((low <= key) & (key <= low + 1))
            mine = found.positions[ends[event] - found.counts[event] : ends[event]]
            assert np.array_equal(np.sort(rows[mine]), expected)
            one = index.match_one(points[event : event + 1], alive_lines)
            assert np.array_equal(np.sort(rows[one]), expected)


@every_index
def test_the_ends_of_the_axis(name: str) -> None:
    """Every pair of ends that can be told apart there, against every key."""
    keys = [ABSENT, FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST]
    rows = [[(0, low, high)] for low in keys for high in keys if low <= high]
    rows += [[(0, *NEVER)], []]
    index, order = build(name, Boxes.of(1, rows))
    points = np.array([[key] for key in keys])
    check_answers(index, order, points, holders(rows, points.tolist()))
    many = np.tile(points, (40, 1))
    check_answers(index, order, many, holders(rows, many.tolist()))


@every_index
def test_nothing_to_search_and_nothing_to_find(name: str) -> None:
    empty = Boxes.empty(3)
    index, order = build(name, empty)
    check_answers(index, order, np.zeros((5, 3), np.int64), [set()] * 5)
    check_answers(index, order, np.zeros((300, 3), np.int64), [set()] * 300)
    some, order = build(name, Boxes.of(3, [[(1, 0, 5)]]))
    check_answers(some, order, np.zeros((0, 3), np.int64), [])
    dense, order = build(name, Boxes.of(3, [[(1, FIRST, LAST)]] * 40))
    check_answers(dense, order, np.zeros((0, 3), np.int64), [])


@every_index
def test_nobody_is_alive(name: str) -> None:
    case = large_case("dense", 700, 300, seed=5)
    index, order = build(name, case.boxes)
    expected = holders_of_many(case.boxes, case.points)
    check_answers(index, order, case.points, expected, np.zeros(700, bool))


@every_index
def test_boxes_with_very_many_predicates(name: str) -> None:
    """More predicates in a tile than fit into 22 bits, and enough events for a sweep."""
    dimensions, count, events = 9_000, 480, 500
    low = np.zeros(count * dimensions, np.int64)
    high = np.full(count * dimensions, LAST)
    for attribute in (0, 4000, dimensions - 1):
        low[attribute::dimensions] = np.arange(count)
        high[attribute::dimensions] = np.arange(count) + 20
    boxes = Boxes(
        dimensions,
        np.arange(0, len(low) + 1, dimensions),
        np.tile(np.arange(dimensions, dtype=np.uint16), count),
        low,
        high,
    )
    index = index_class(name)(dimensions)
    order = index.build(boxes)
    rows = np.arange(count) if order is None else order
    points = np.repeat(np.arange(events), dimensions).reshape(events, dimensions)
    found = index.match(points)
    ends = np.cumsum(found.counts)
    for event in range(events):
        mine = found.positions[ends[event] - found.counts[event] : ends[event]]
        assert set(rows[mine].tolist()) == set(range(max(0, event - 20), min(event + 1, count)))


# --- the paths of the tile index -------------------------------------------------------------


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which ways the answers came: by `lines`, by a `sweep`, or one by one (`single`)."""
    from boxmatch.indexes.tile import index as module

    taken: set[str] = set()
    batch, one, sweep = module.search_batch, module.search_one, module.order_events

    def by_batch(*arguments: Any) -> Any:
        if len(arguments[3]) == 0:
            taken.add("lines")
        return batch(*arguments)

    def by_sweep(*arguments: Any) -> Any:
        taken.add("sweep")
        return sweep(*arguments)

    def by_one(*arguments: Any) -> Any:
        taken.add("single")
        return one(*arguments)

    monkeypatch.setattr(module, "search_batch", by_batch)
    monkeypatch.setattr(module, "order_events", by_sweep)
    monkeypatch.setattr(module, "search_one", by_one)
    return taken


@pytest.mark.parametrize(
    ("kind", "events", "expected"),
    [
        ("uniform", 300, "lines"),
        ("equality", 300, "lines"),
        ("dense", 63, "lines"),
    ],
)
def test_which_way_the_answers_come(paths: set[str], kind: str, events: int, expected: str) -> None:
    # Without odd predicates, since those that rule nothing out are themselves dense.
    check_large("tile", large_case(kind, 3000, events, seed=7, odd=0.0), seed=7)
    assert paths == {expected, "single"}


@pytest.mark.parametrize("events", [64, 4096 + 37])
@pytest.mark.parametrize("kind", ["dense", "sizes", "edges", "attributes"])
def test_sweeping_whether_it_pays_or_not(
    paths: set[str], monkeypatch: pytest.MonkeyPatch, kind: str, events: int
) -> None:
    from boxmatch.indexes.tile import index as module

    monkeypatch.setattr(module, "sweeping_pays", lambda state, points: True)
    # Half of the predicates odd makes any kind dense.
    odd = 0.02 if kind == "dense" else 0.5
    index = check_large("tile", large_case(kind, 700, events, seed=8, odd=odd), seed=8)
    assert ("sweep" in paths) == (len(index.to_arrays()["end_key"]) > 0)
    assert "sweep" in paths or kind != "dense"


def test_large_cases_reach_every_structure() -> None:
    """Ends, boxes without lines, doubt and none, tiles that the directory tells apart."""
    states = {}
    for kind in KINDS:
        case = large_case(kind, 3000, 1, seed=7, odd=0.0)
        index = index_class("tile")(case.boxes.dimensions)
        index.build(case.boxes)
        states[kind] = index.to_arrays()
    with_ends = {kind for kind, state in states.items() if len(state["end_key"])}
    assert "dense" in with_ends
    assert "equality" not in with_ends
    assert "attributes" in {kind for kind, state in states.items() if state["unlined"].any()}
    assert "uniform" in {kind for kind, state in states.items() if state["unsettled"].any()}
    assert any(not np.array_equal(s["unsettled"], s["filled"]) for s in states.values())
    assert "zipf" in {kind for kind, state in states.items() if len(state["top_attribute"])}
    assert all(len(state["filled"]) == 6 for state in states.values())


def test_ends_decide_when_many_boxes_are_in_doubt(paths: set[str]) -> None:
    """Small batches of a dense workload, with boxes among them that have too rare attributes."""
    rng = np.random.default_rng(3)
    rows = []
    for number in range(1500):
        low = int(rng.integers(0, 200_000))
        row = [(0, low, low + 700_000), (1, low // 2, 900_000 - low)]
        if number % 40 == 0:
            row.append((int(rng.integers(2, 60)), 0, 500_000))
        rows.append(row)
    boxes = Boxes.of(60, rows)
    points = rng.integers(0, 1_000_000, (60, 60))
    points[::2, :2] = rng.integers(200_000, 700_000, (30, 2))
    state = check_large("tile", Case(boxes, points), seed=1).to_arrays()
    assert len(state["end_key"]) > 0
    assert state["unlined"].any()
    assert paths == {"lines", "single"}
    # The same through a sweep, which has to settle the unlined ones too.
    check_large("tile", Case(boxes, np.tile(points, (3, 1))), seed=2)
    assert "sweep" in paths


# --- the interface ---------------------------------------------------------------------------


@every_index
@pytest.mark.parametrize("kind", ["edges", "dense", "attributes"])
def test_arrays_round_trip(name: str, kind: str) -> None:
    case = large_case(kind, 1200, 260, seed=11)
    index, order = build(name, case.boxes)
    arrays = {key: array.copy() for key, array in index.to_arrays().items()}
    again = index_class(name).from_arrays(case.boxes.dimensions, {}, arrays)
    assert check_order(again, case.boxes, np.array(order)) == order
    check_answers(again, order, case.points, holders_of_many(case.boxes, case.points))
    assert again.nbytes == index.nbytes
    for key, array in again.to_arrays().items():
        assert np.array_equal(array, index.to_arrays()[key])


@every_index
def test_arrays_are_all_that_is_held(name: str) -> None:
    index, _ = build(name, large_case("dense", 1200, 1, seed=1).boxes)
    arrays = index.to_arrays()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert sum(index.nbytes.values()) == sum(array.nbytes for array in arrays.values())


@every_index
def test_building_leaves_the_boxes_alone(name: str) -> None:
    case = large_case("edges", 700, 1, seed=2)
    before = [np.copy(column) for column in case.boxes[1:]]
    build(name, case.boxes)
    assert all(map(np.array_equal, before, case.boxes[1:]))


@every_index
def test_results_have_the_declared_types(name: str) -> None:
    index, _ = build(name, Boxes.of(2, [[(0, 1, 5)], []]))
    points = np.array([[3, ABSENT]])
    found = index.match(points)
    assert isinstance(found, Matches)
    assert found.counts.dtype == np.int64
    assert found.positions.dtype == np.int32
    assert index.match_one(points).dtype == np.int32
    assert index.count(points).dtype == np.int64


@every_index
def test_unknown_parameters_are_refused(name: str) -> None:
    with pytest.raises(IndexConfigError, match="colour"):
        index_class(name)(3, colour=1)


@pytest.mark.parametrize("cells", [7, 121, 16.0, "64", None, True])
def test_cells_out_of_range_are_refused(cells: object) -> None:
    with pytest.raises(IndexConfigError, match="cells"):
        index_class("tile")(3, cells=cells)


def test_unknown_indexes_are_refused() -> None:
    with pytest.raises(IndexConfigError, match=r"'cube'.*scan.*tile"):
        index_class("cube")


@every_index
def test_signatures_are_those_of_the_base_class(name: str) -> None:
    kind = index_class(name)
    assert issubclass(kind, Index)
    assert kind.name == name
    for verb, base in inspect.getmembers(Index):
        if verb.startswith("_"):
            continue
        found = inspect.getattr_static(kind, verb)
        if isinstance(inspect.getattr_static(Index, verb), property):
            assert isinstance(found, property), verb
        elif callable(base):
            expected = inspect.signature(base).parameters
            assert inspect.signature(getattr(kind, verb)).parameters == expected, verb
    constructor = inspect.signature(kind).parameters
    assert [p.kind for p in constructor.values()] == [
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_KEYWORD,
    ]


@every_index
def test_no_public_verbs_of_its_own(name: str) -> None:
    own = {verb for verb in vars(index_class(name)) if not verb.startswith("_")}
    assert own <= {*dir(Index), "name"}


def test_both_oracles_agree() -> None:
    case = large_case("edges", 300, 40, seed=9)
    rows = [case.boxes.row(row) for row in range(300)]
    assert holders(rows, case.points.tolist()) == holders_of_many(case.boxes, case.points)
    assert any(holders_of_many(case.boxes, case.points))


@pytest.mark.parametrize("kind", KINDS)
def test_large_cases_have_matches_and_misses(kind: str) -> None:
    """A generator whose events match nothing would prove nothing."""
    case = large_case(kind, 3000, 100, seed=4)
    counts = np.array([len(rows) for rows in holders_of_many(case.boxes, case.points)])
    assert np.count_nonzero(counts) > 20
    assert counts.max() < 3000
