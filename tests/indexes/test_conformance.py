"""Every index gives the answers of plain Python, on everything that it declares to support."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import numpy as np
import pytest
from box_oracle import (
    BOOLEAN_KINDS,
    KINDS,
    NEVER,
    Case,
    boolean_cases,
    build,
    cases,
    check_answers,
    check_large,
    check_order,
    holders,
    holders_of_many,
    large_boolean_case,
    large_case,
    list_cases,
    listed,
    names_of_indexes,
    with_lists,
    with_sets,
    without,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from boxmatch.errors import IndexConfigError
from boxmatch.indexes.base import Capabilities, Index, Matches
from boxmatch.indexes.registry import index_class, index_names
from boxmatch.indexes.scan import FAILURE, rank_failures, scan_over
from boxmatch.indexes.scan import NEVER as NEVER_RANK
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from property_examples import examples

every_index = pytest.mark.parametrize("name", index_names())
every_index_of_ranges = pytest.mark.parametrize("name", names_of_indexes(ranges=True))
every_index_of_lists = pytest.mark.parametrize("name", names_of_indexes(lists=True))
every_index_of_booleans = pytest.mark.parametrize("name", names_of_indexes(booleans=True))


def check_small(name: str, case: Case, data: st.DataObject) -> None:
    index, order = build(name, case.boxes)
    rows = [case.boxes.row(row) for row in range(case.boxes.count)]
    expected = holders(rows, with_sets(case))
    check_answers(index, order, case.points, expected, lists=case.lists)
    alive = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
    check_answers(index, order, case.points, expected, np.array(alive, bool), lists=case.lists)


def some_case(name: str, count: int, events: int, seed: int) -> Case:
    """A large case that the index declares to support."""
    if index_class(name).capabilities.ranges:
        return large_case("dense", count, events, seed)
    return large_boolean_case("light", count, events, seed)


# --- ranges ----------------------------------------------------------------------------------


@every_index_of_ranges
@settings(max_examples=examples(60))
@given(case=cases(), data=st.data())
def test_small_batches(name: str, case: Case, data: st.DataObject) -> None:
    check_small(name, case, data)


@every_index_of_ranges
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(10))
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


@every_index_of_ranges
@pytest.mark.parametrize("kind", ["equality", "dense"])
def test_batches_of_more_events_than_a_block(name: str, kind: str) -> None:
    # Those that the tile index makes; for the others, a large number.
    many, sizes = (600, (2047, 2049, 4133)) if name == "tile" else (200, (2049,))
    case = large_case(kind, many, sizes[-1], seed=1)
    for events in sizes:
        check_large(name, Case(case.boxes, case.points[:events]), seed=events)


@every_index_of_ranges
def test_many_boxes_of_one_attribute(name: str) -> None:
    # The lines of one line of the tile index's directory, and some more.
    count = 513 * 512 + 7 if name == "tile" else 20_000
    low = np.arange(count) // 3
    boxes = Boxes(1, np.arange(count + 1), np.zeros(count, np.uint16), low, low + 1)
    index, order = build(name, boxes)
    points = np.array([[ABSENT], [-1], [0], [1], [count // 6], [count // 3], [count // 3 + 2]])
    expected = holders_of_many(boxes, points)
    check_answers(index, order, points, expected)
    check_answers(index, order, points, expected, np.ones(count, bool))


@every_index_of_ranges
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


@every_index_of_ranges
def test_boxes_with_very_many_predicates(name: str) -> None:
    # For the tile index, more in a tile than fit into 22 bits, and enough events for a block.
    dimensions, count, events = (9_000, 480, 500) if name == "tile" else (700, 120, 150)
    low = np.zeros(count * dimensions, np.int64)
    high = np.full(count * dimensions, LAST)
    for attribute in (0, 300, dimensions - 1):
        low[attribute::dimensions] = np.arange(count)
        high[attribute::dimensions] = np.arange(count) + 20
    boxes = Boxes(
        dimensions,
        np.arange(0, len(low) + 1, dimensions),
        np.tile(np.arange(dimensions, dtype=np.uint16), count),
        low,
        high,
    )
    index, order = build(name, boxes)
    points = np.repeat(np.arange(events), dimensions).reshape(events, dimensions)
    expected = [set(range(max(0, event - 20), min(event + 1, count))) for event in range(events)]
    check_answers(index, order, points, expected, singles=3)


@every_index_of_ranges
def test_values_that_every_box_or_no_box_takes(name: str) -> None:
    rows = [[(0, FIRST, LAST)], [(0, ABSENT, LAST)], [(0, *NEVER)], [(0, ABSENT, ABSENT)]]
    boxes = Boxes.of(2, [*rows, *rows] * 100)
    index, order = build(name, boxes)
    points = np.array([[ABSENT, 0], [0, ABSENT], [FIRST, LAST], [LAST, FIRST]])
    check_answers(index, order, points, holders_of_many(boxes, points))


# --- booleans --------------------------------------------------------------------------------


@every_index_of_booleans
@settings(max_examples=examples(40))
@given(case=boolean_cases(), data=st.data())
def test_small_batches_of_booleans(name: str, case: Case, data: st.DataObject) -> None:
    check_small(name, case, data)


@every_index_of_booleans
@pytest.mark.parametrize("kind", BOOLEAN_KINDS)
@settings(max_examples=examples(10))
@given(
    count=st.sampled_from([0, 1, 511, 512, 513, 3000]),
    events=st.sampled_from([1, 64, 255, 300]),
    seed=st.integers(0, 2**32 - 1),
)
def test_large_batches_of_booleans(
    name: str, kind: str, count: int, events: int, seed: int
) -> None:
    check_large(name, large_boolean_case(kind, count, events, seed), seed)


# --- sets of keys ----------------------------------------------------------------------------


@every_index_of_lists
@settings(max_examples=examples(60))
@given(case=list_cases(), data=st.data())
def test_small_batches_with_sets(name: str, case: Case, data: st.DataObject) -> None:
    check_small(name, case, data)


@every_index_of_lists
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(10))
@given(
    count=st.sampled_from([0, 1, 513, 1500]),
    events=st.sampled_from([0, 1, 65, 150]),
    axes=st.sets(st.integers(0, 3), max_size=3),
    most=st.sampled_from([0, 1, 5, 40]),
    seed=st.integers(0, 2**32 - 1),
)
def test_large_batches_with_sets(
    name: str, kind: str, count: int, events: int, axes: set[int], most: int, seed: int
) -> None:
    case = large_case(kind, count, events, seed)
    axes = {axis for axis in axes if axis < case.boxes.dimensions}
    check_large(name, with_lists(case, sorted(axes), most, seed), seed)


@every_index_of_lists
def test_skipping_predicates_on_sets_loses_nothing(name: str) -> None:
    case = with_lists(large_case("uniform", 1200, 80, seed=3), [0, 2, 3], 3, seed=3)
    index, order = build(name, case.boxes)
    expected = holders_of_many(*case)
    for skipped in (np.arange(case.boxes.dimensions) % 3 == 0, np.arange(20) == 2):
        marks = np.resize(skipped, case.boxes.dimensions)
        most = holders_of_many(without(case.boxes, marks), case.points, case.lists)
        found = listed(index.match(case.points, None, marks, lists=case.lists))
        for event, positions in enumerate(found):
            rows = {order[position] for position in positions}
            assert expected[event] <= rows <= most[event]
            part = case.lists.part(event, event + 1)
            one = index.match_one(case.points[event : event + 1], None, marks, lists=part)
            assert expected[event] <= {order[p] for p in one.tolist()} <= most[event]


def test_ranks_of_boxes_for_a_point_with_sets() -> None:
    case = with_lists(large_case("edges", 200, 12, seed=8), [0, 2], 3, seed=8)
    rows = [case.boxes.row(row) for row in range(200)]
    for event, point in enumerate(with_sets(case)):
        ranks = np.empty(200, np.int64)
        lists = case.lists.part(event, event + 1)
        rank_failures(*case.boxes[1:], case.points[event], ranks, lists)
        for row, rank in zip(rows, ranks.tolist(), strict=True):
            failed = sum(not holders([[predicate]], [point])[0] for predicate in row)
            never = any(low > high for _, low, high in row)
            assert rank == (
                NEVER_RANK if never else failed * FAILURE + FAILURE - 1 - len(row) + failed
            )


def test_a_scan_over_the_first_rows_takes_sets() -> None:
    case = with_lists(large_case("edges", 200, 12, seed=9), [0, 2], 3, seed=9)
    expected = [{row for row in rows if row < 90} for rows in holders_of_many(*case)]
    index = scan_over(case.boxes, 90)
    check_answers(index, list(range(90)), case.points, expected, lists=case.lists)


@every_index
def test_sets_are_refused_by_those_that_do_not_take_them(name: str) -> None:
    case = with_lists(some_case(name, 60, 5, seed=2), [1], 2, seed=2)
    index, _ = build(name, case.boxes)
    lists, first = case.lists, case.lists.part(0, 1)
    if index.capabilities.lists:
        assert (
            len(index.match_one(case.points[:1], lists=first))
            == index.count(case.points, lists=lists)[0]
        )
        return
    message = f"index '{name}' does not take repeated values; tile and scan do"
    for ask in (
        lambda: index.match(case.points, lists=lists),
        lambda: index.match_one(case.points[:1], lists=first),
        lambda: index.count(case.points, lists=lists),
    ):
        with pytest.raises(IndexConfigError, match=re.escape(message)):
            ask()


# --- nothing, everything, at the same time ---------------------------------------------------


@every_index
def test_many_matches_outgrow_the_first_buffers(name: str) -> None:
    boxes = Boxes.of(1, [[]] * 5000)
    index, order = build(name, boxes)
    points = np.array([[ABSENT], [0], [1], [LAST]])
    check_answers(index, order, points, [set(range(5000))] * 4)


@every_index
def test_nothing_to_search_and_nothing_to_find(name: str) -> None:
    index, order = build(name, Boxes.empty(3))
    check_answers(index, order, np.zeros((5, 3), np.int64), [set()] * 5)
    check_answers(index, order, np.zeros((300, 3), np.int64), [set()] * 300)
    some, order = build(name, Boxes.of(3, [[(1, 1, 1)]] * 40))
    check_answers(some, order, np.zeros((0, 3), np.int64), [])
    check_answers(some, order, np.zeros((5, 3), np.int64), [set()] * 5)


@every_index_of_ranges
def test_no_events_for_boxes_that_take_any_value(name: str) -> None:
    dense, order = build(name, Boxes.of(3, [[(1, FIRST, LAST)]] * 40))
    check_answers(dense, order, np.zeros((0, 3), np.int64), [])


@every_index
def test_nobody_is_alive(name: str) -> None:
    case = some_case(name, 700, 300, seed=5)
    index, order = build(name, case.boxes)
    expected = holders_of_many(case.boxes, case.points)
    check_answers(index, order, case.points, expected, np.zeros(700, bool))


@every_index
def test_life_beyond_the_last_box_means_nothing(name: str) -> None:
    case = some_case(name, 700, 30, seed=6)
    index, order = build(name, case.boxes)
    everybody = np.full((2, 8), 2**64 - 1, np.uint64)
    found = [{order[position] for position in row} for row in listed(index.match(case.points))]
    assert [
        {order[position] for position in row} for row in listed(index.match(case.points, everybody))
    ] == found
    assert index.count(case.points, everybody).tolist() == [len(rows) for rows in found]


@every_index
def test_building_again_starts_afresh(name: str) -> None:
    first, second = (some_case(name, count, 60, seed=count) for count in (900, 300))
    index, _ = build(name, first.boxes)
    order = check_order(index, second.boxes, index.build(second.boxes))
    check_answers(index, order, second.points, holders_of_many(second.boxes, second.points))


@every_index
def test_searching_in_several_threads(name: str) -> None:
    case = some_case(name, 2000, 60, seed=3)
    index, order = build(name, case.boxes)
    expected = holders_of_many(case.boxes, case.points)
    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(check_answers, index, order, case.points[part:], expected[part:])
            for part in range(12)
        ]
        for one in running:
            one.result()


@every_index
def test_searching_changes_nothing(name: str) -> None:
    case = some_case(name, 1000, 60, seed=4)
    index, _ = build(name, case.boxes)
    before = {key: array.copy() for key, array in index.to_arrays().items()}
    index.match(case.points)
    index.match_one(case.points[:1])
    index.count(case.points)
    after = index.to_arrays()
    assert before.keys() == after.keys()
    assert all(np.array_equal(before[key], after[key]) for key in before)


# --- the interface ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *product(names_of_indexes(ranges=True), ["edges", "dense", "attributes"]),
        *product(names_of_indexes(booleans=True), ["light"]),
    ],
)
def test_arrays_round_trip(name: str, kind: str) -> None:
    make = large_boolean_case if kind == "light" else large_case
    case = make(kind, 1200, 260, seed=11)
    index, order = build(name, case.boxes)
    arrays = {key: array.copy() for key, array in index.to_arrays().items()}
    again = index_class(name).from_arrays(case.boxes.dimensions, {}, arrays)
    assert again.nbytes == index.nbytes
    assert check_order(again, case.boxes, np.array(order)) == order
    check_answers(again, order, case.points, holders_of_many(case.boxes, case.points))
    for key, array in again.to_arrays().items():
        assert np.array_equal(array, index.to_arrays()[key])


@every_index
def test_arrays_are_all_that_is_held(name: str) -> None:
    index, _ = build(name, some_case(name, 1200, 1, seed=1).boxes)
    arrays = index.to_arrays()
    assert all(isinstance(array, np.ndarray) for array in arrays.values())
    assert sum(index.nbytes.values()) == sum(array.nbytes for array in arrays.values())


@every_index
def test_building_leaves_the_boxes_alone(name: str) -> None:
    case = some_case(name, 700, 1, seed=2)
    before = [np.copy(column) for column in case.boxes[1:]]
    build(name, case.boxes)
    assert all(map(np.array_equal, before, case.boxes[1:]))


@every_index
def test_results_have_the_declared_types(name: str) -> None:
    index, _ = build(name, Boxes.of(2, [[(0, 1, 1)], []]))
    points = np.array([[1, ABSENT]])
    found = index.match(points)
    assert isinstance(found, Matches)
    assert found.counts.dtype == np.int64
    assert found.positions.dtype == np.int32
    assert index.match_one(points).dtype == np.int32
    assert index.count(points).dtype == np.int64


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
            assert _called_with(getattr(kind, verb)) == _called_with(base), verb
    constructor = inspect.signature(kind).parameters
    assert [p.kind for p in constructor.values()] == [
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_KEYWORD,
    ]


def _called_with(verb: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """Its parameters, whatever it says of their types: that is for the type checker."""
    return [(p.name, p.kind, p.default) for p in inspect.signature(verb).parameters.values()]


@every_index
def test_capabilities_are_declared_and_kept(name: str) -> None:
    kind = index_class(name)
    assert type(kind.capabilities) is Capabilities
    assert kind.capabilities.ranges or kind.capabilities.booleans
    own = {verb for verb in ("add", "remove") if getattr(kind, verb) is not getattr(Index, verb)}
    assert own == ({"add", "remove"} if kind.capabilities.updates else set())


@every_index
def test_no_public_verbs_of_its_own(name: str) -> None:
    own = {verb for verb in vars(index_class(name)) if not verb.startswith("_")}
    assert own <= {*dir(Index), "name"}


# --- the cases themselves --------------------------------------------------------------------


def test_both_oracles_agree() -> None:
    case = large_case("edges", 300, 40, seed=9)
    rows = [case.boxes.row(row) for row in range(300)]
    assert holders(rows, case.points.tolist()) == holders_of_many(case.boxes, case.points)
    assert any(holders_of_many(case.boxes, case.points))


@pytest.mark.parametrize("kind", KINDS + BOOLEAN_KINDS)
def test_large_cases_have_matches_and_misses(kind: str) -> None:
    """A generator whose events match nothing would prove nothing."""
    make = large_case if kind in KINDS else large_boolean_case
    case = make(kind, 3000, 100, seed=4)
    counts = np.array([len(rows) for rows in holders_of_many(case.boxes, case.points)])
    assert np.count_nonzero(counts) > 20
    assert counts.max() < 3000
