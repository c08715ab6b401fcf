"""The indexes of the RAPIDMatch paper: its sets, blocks and orders, and how the trees behave."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np
import pytest
from box_oracle import (
    Case,
    build,
    check_answers,
    check_large,
    holders,
    holders_of_many,
    large_boolean_case,
    large_case,
)

from boxmatch.errors import IndexTooLargeError
from boxmatch.indexes.base import Index
from boxmatch.indexes.papers import tree
from boxmatch.indexes.papers.parts import walk
from boxmatch.indexes.papers.parts.edges import (
    BEGIN,
    HEAD,
    LENGTH,
    SIZE,
    START,
    TARGET,
    slot_of_edge,
)
from boxmatch.indexes.papers.parts.forest import paths_held
from boxmatch.indexes.papers.parts.predicates import ALWAYS
from boxmatch.indexes.papers.rapid import RapidIndex
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes

Row = list[tuple[int, int, int]]

with_trees = pytest.mark.parametrize("name", ["tree", "rapid"])


def asking(text: str) -> Row:
    """A subscription in the paper's notation, such as `10*`."""
    return [(a, int(wanted), int(wanted)) for a, wanted in enumerate(text) if wanted != "*"]


# --- sets and blocks -------------------------------------------------------------------------


class Place(NamedTuple):
    """A tree that a box is in, and the attributes that it asks for there, in order."""

    ones: int
    block: int
    attributes: list[int]


FALL_BACK = (-1, -1)


def trees_of(index: RapidIndex) -> list[tuple[int, int]]:
    """The number of ones and the block of each tree, by root."""
    most = min(index.chosen["most_ones"], index.dimensions - 1)
    return [(ones, block) for ones in range(most + 1) for block in range(ones + 1)] + [FALL_BACK]


def places(dimensions: int, rows: list[Row], **parameters: Any) -> list[list[Place]]:
    """Where each box is."""
    boxes = Boxes.of(dimensions, rows)
    index = RapidIndex(dimensions, **parameters)
    index.build(boxes)
    paths = index._paths(boxes, np.arange(len(rows), dtype=np.int32))
    assert paths_held(index._state.forest) == len(paths.root)
    attribute = index._state.predicates.attribute
    found: list[list[Place]] = [[] for _ in rows]
    for root, box, begin, length in zip(*(column.tolist() for column in paths), strict=True):
        asked = attribute[index._state.rows[begin : begin + length]]
        found[box].append(Place(*trees_of(index)[root], asked.tolist()))
    return found


def tree_for(index: RapidIndex, point: list[int]) -> tuple[int, int]:
    return trees_of(index)[index._choose_roots(np.array([point], np.int64))[0]]


def test_a_subscription_is_in_the_sets_between_its_ones_and_its_ones_and_stars() -> None:
    """Definition 5: `110***00` asks for two ones and has three stars, so S_2 to S_5."""
    (found,) = places(8, [asking("110***00")], most_ones=7)
    assert {place.ones for place in found} == {2, 3, 4, 5}
    (found,) = places(8, [asking("110***00")], most_ones=4)
    assert {place.ones for place in found} == {2, 3, 4, -1}, "five ones are more than c"


def test_a_subscription_is_in_the_blocks_where_it_asks_for_no_one() -> None:
    # Blocks of two: 1*, 0*, *0, and the last one asks for a one.
    (found,) = places(8, [asking("1*0**01*")], most_ones=3)
    assert [place for place in found if place.ones == 3] == [
        Place(3, 1, [5, 6, 0]),
        Place(3, 2, [6, 0, 2]),
    ]
    assert [place for place in found if place.ones == 2] == [Place(2, 1, [5, 6, 0])]
    assert [place for place in found if place.ones < 0] == [Place(*FALL_BACK, [0, 2, 5, 6])]
    assert len(found) == 4


def test_an_order_begins_after_its_block_and_goes_round() -> None:
    (found,) = places(6, [asking("000000")], most_ones=2)
    assert found == [Place(0, 0, [])]
    (found,) = places(6, [asking("0*0*00")], most_ones=2)
    assert found == [
        Place(0, 0, []),
        Place(1, 0, [4, 5]),
        Place(1, 1, [0, 2]),
        Place(2, 0, [2, 4, 5]),
        Place(2, 1, [4, 5, 0]),
        Place(2, 2, [0, 2]),
    ]


def test_the_first_block_without_ones_is_chosen() -> None:
    """Figure 1: six blocks for five ones; the third and the fifth have none."""
    index = RapidIndex(30, most_ones=8)
    point = [0] * 30
    for one in (2, 7, 16, 17, 28):
        point[one] = 1
    assert tree_for(index, point) == (5, 2)
    point[12] = 1
    # Seven blocks now, which end at 4, 8, 12, 17, 21, 25 and 30.
    assert tree_for(index, point) == (6, 2)
    assert tree_for(index, [0] * 30) == (0, 0)
    assert tree_for(index, [1] * 8 + [0] * 22) == (8, 3)
    assert tree_for(index, [1] * 9 + [0] * 21) == FALL_BACK


def test_every_key_but_zero_is_a_one() -> None:
    index = RapidIndex(4, most_ones=3)
    assert tree_for(index, [0, ABSENT, 0, 0]) == (1, 1)
    assert tree_for(index, [LAST, 0, 0, 0]) == (1, 1)
    assert tree_for(index, [0, 0, -1, FIRST]) == (2, 0)
    assert tree_for(index, [7, 7, 7, ABSENT]) == FALL_BACK


def test_what_predicates_ask_for() -> None:
    ones = [(1, 5), (FIRST, -1), (ABSENT, ABSENT), (LAST, LAST), (FIRST, ABSENT)]
    stars = [(0, 1), (-1, 0), (FIRST, LAST), (ABSENT, 0), (ABSENT, LAST)]
    rows = [[(1, *ends)] for ends in [*ones, *stars, (0, 0)]]
    found = [[place[:2] for place in places] for places in places(2, rows, most_ones=1)]
    assert found[:5] == [[(1, 0), FALL_BACK]] * 5
    assert found[5:10] == [[(0, 0), (1, 0), (1, 1), FALL_BACK]] * 5
    # It admits one one, which is no more than c.
    assert found[10] == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize(("dimensions", "most_ones"), [(1, 3), (4, 0), (4, 2), (5, 9), (6, 3)])
def test_the_propositions(dimensions: int, most_ones: int) -> None:
    """The tree chosen for an event has all that match, and only what its set and block allow."""
    texts = ["".join(text) for text in product("01*", repeat=dimensions)]
    rows = [asking(text) for text in texts]
    found = places(dimensions, rows, most_ones=most_ones)
    index = RapidIndex(dimensions, most_ones=most_ones)
    for point in product([0, 1], repeat=dimensions):
        chosen = tree_for(index, list(point))
        inside = {row for row, trees in enumerate(found) if chosen in [t[:2] for t in trees]}
        assert holders(rows, [list(point)])[0] <= inside
        if chosen == FALL_BACK:
            most = min(most_ones, dimensions - 1)
            assert sum(point) > most
            assert inside == {
                r for r, text in enumerate(texts) if dimensions - text.count("0") > most
            }
            continue
        ones, block = chosen
        assert ones == sum(point)
        cuts = [dimensions * part // (ones + 1) for part in range(ones + 2)]
        own = slice(cuts[block], cuts[block + 1])
        assert not any(point[own])
        assert inside == {
            row
            for row, text in enumerate(texts)
            if text.count("1") <= ones <= dimensions - text.count("0") and "1" not in text[own]
        }
        sizes = [last - first for first, last in pairwise(cuts)]
        assert min(sizes) >= 1
        assert max(sizes) - min(sizes) <= 1


# --- the trees -------------------------------------------------------------------------------


def check_trees(index: Any) -> int:
    """The rules that all trees keep; returns how many edges there are."""
    predicates, rows, forest = index._state
    roots = int(forest.used[0])
    paths, edges, nodes = 0, 0, 0
    waiting = list(range(roots))
    while waiting:
        node = waiting.pop()
        nodes += 1
        start, size, room = forest.nodes[node].tolist()
        assert size <= room
        assert size >= 2 or node < roots, "a node without a fork"
        seen = set()
        for edge in range(start, start + size):
            record = forest.edges[edge].tolist()
            begin, length, target = record[BEGIN], record[LENGTH], record[TARGET]
            asked = rows[begin : begin + length].tolist()
            assert record[:HEAD] == (asked + [ALWAYS] * HEAD)[:HEAD]
            assert all(0 < number < predicates.used[0] for number in asked)
            assert asked or target < 0
            key = asked[0] if asked else (ALWAYS, target)
            assert key not in seen, "two edges that begin alike"
            seen.add(key)
            slot = slot_of_edge(forest, np.int64(node), np.int64(edge))
            assert forest.slots[slot] == edge
            edges += 1
            if target < 0:
                paths += 1
            else:
                waiting.append(target)
    assert paths == paths_held(forest)
    assert np.count_nonzero(forest.slots >= 0) == edges
    assert nodes == forest.used[1] - forest.used[2]
    assert edges <= max(2 * paths - 1, 0) or roots > 1
    assert edges <= 2 * paths
    return edges


def test_boxes_that_begin_alike_share_edges() -> None:
    index, _ = build("tree", Boxes.of(5, [asking("01*1*"), asking("01*0*"), asking("01*0*")]))
    # 01 together, then 1 and 0, and below that the two that are the same.
    assert check_trees(index) == 5
    index.remove(np.array([1]))
    assert check_trees(index) == 3
    index.remove(np.array([2]))
    assert check_trees(index) == 1
    index.remove(np.array([0]))
    assert check_trees(index) == 0


def test_what_fails_for_all_is_tried_once() -> None:
    """The paper's example: `*…*1` over and over, of which a tree looks at one edge."""
    index, _ = build("tree", Boxes.of(10, [asking("*" * 9 + "1")] * 50))
    nodes = index.to_arrays()["state_forest_nodes"]
    assert nodes[0, SIZE] == 1
    assert nodes[1, SIZE] == 50
    assert nodes[1, START] == 1


@with_trees
@pytest.mark.parametrize("kind", ["few", "coins", "full", "edges", "zipf", "sizes"])
def test_trees_stay_in_shape(name: str, kind: str) -> None:
    """Boxes come and go at random; whole sets are compared on the way."""
    make = large_boolean_case if kind in ("few", "coins", "full") else large_case
    case = make(kind, 900, 40, seed=3)
    rng = np.random.default_rng(3)
    index, _ = build(name, case.boxes.take(np.arange(0)))
    expected = holders_of_many(case.boxes, case.points)
    living: set[int] = set()
    for start in range(0, 900, 60):
        index.add(case.boxes.take(np.arange(start, start + 60)))
        living |= set(range(start, start + 60))
        gone = rng.permutation(sorted(living))[: int(rng.integers(0, 60))]
        index.remove(gone)
        living -= set(gone.tolist())
        check_trees(index)
        wanted = [rows & living for rows in expected]
        check_answers(index, list(range(start + 60)), case.points, wanted, singles=2)
    index.remove(rng.permutation(sorted(living)))
    assert check_trees(index) == 0
    fresh, order = build(name, case.boxes)
    check_answers(fresh, order, case.points, expected, singles=2)
    check_trees(fresh)


@with_trees
def test_the_same_box_over_and_over_takes_no_more_memory(name: str) -> None:
    case = large_boolean_case("light", 1500, 20, seed=4)
    index, _ = build(name, case.boxes)
    before = index.nbytes
    again = case.boxes.take(np.array([7]))
    edges = check_trees(index)
    for _ in range(300):
        index.remove(index.add(again))
    assert check_trees(index) == edges
    assert index.nbytes["predicates"] == before["predicates"]
    assert index.nbytes["forest"] <= 2 * before["forest"]


@with_trees
def test_boxes_that_come_and_go_take_no_more_memory(name: str) -> None:
    """Always the last hundred of two thousand: what they leave behind is used again."""
    boxes = large_case("equality", 2000, 1, seed=5).boxes
    index, _ = build(name, boxes.take(np.arange(100)))
    largest = 0
    for start in range(100, 2000, 10):
        index.add(boxes.take(np.arange(start, start + 10)))
        index.remove(np.arange(start - 100, start - 90))
        largest = max(largest, index.nbytes["forest"])
    check_trees(index)
    fresh, _ = build(name, boxes.take(np.arange(1900, 2000)))
    assert largest <= 5 * fresh.nbytes["forest"]


@with_trees
@pytest.mark.parametrize("kind", ["light", "few", "equality", "uniform"])
def test_few_predicates_and_many(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to check predicates, whichever a workload would get."""
    make = large_boolean_case if kind in ("light", "few") else large_case
    case = make(kind, 400, 30, seed=6)
    original = walk._walk
    for few in (0, 10**6):
        monkeypatch.setattr(walk, "_walk", python_walk(original, few))
        check_large(name, Case(case.boxes, case.points[:8]), seed=6)


def python_walk(kernel: Any, few: int) -> Any:
    """The kernel as plain Python, with another number of predicates that are few, and no room."""
    plain = getattr(kernel, "py_func", kernel)
    scope = {name: getattr(value, "py_func", value) for name, value in vars(walk).items()}
    return type(plain)(plain.__code__, scope | {"_FEW": few, "_ROOM": 1}, plain.__name__)


# --- limits ----------------------------------------------------------------------------------


def arrays_of(index: Index) -> dict[str, Any]:
    return {key: array.copy() for key, array in index.to_arrays().items()}


def test_rapid_says_so_before_it_takes_too_much() -> None:
    case = large_boolean_case("light", 300, 30, seed=7)
    index, order = build("rapid", case.boxes, memory_limit=1_000_000)
    expected = holders_of_many(case.boxes, case.points)
    before = arrays_of(index)
    much = Boxes.concatenate([case.boxes] * 8)
    for verb in (index.add, index.build):
        with pytest.raises(IndexTooLargeError, match=r"\d,\d{3} bytes.*memory_limit is 1,000,000"):
            verb(much)
        after = index.to_arrays()
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[key], after[key]) for key in before)
        check_answers(index, order, case.points, expected)
    assert index.add(case.boxes.take(np.arange(9))).tolist() == list(range(300, 309))
    twice = [rows | {300 + row for row in rows if row < 9} for rows in expected]
    check_answers(index, list(range(309)), case.points, twice)
    fewer, order = build("rapid", much, memory_limit=1_000_000, most_ones=1)
    check_answers(fewer, order, case.points, holders_of_many(much, case.points), singles=2)


@pytest.mark.parametrize("kind", ["light", "coins", "few", "full", "edges", "sizes", "equality"])
@pytest.mark.parametrize("most_ones", [0, 3, 6])
def test_rapid_takes_no_more_than_it_says(kind: str, most_ones: int) -> None:
    make = large_boolean_case if kind in ("light", "coins", "few", "full") else large_case
    boxes = make(kind, 1000, 1, seed=8).boxes
    with pytest.raises(IndexTooLargeError) as refused:
        RapidIndex(boxes.dimensions, most_ones=most_ones, memory_limit=1).build(boxes)
    said = int(str(refused.value).split(" bytes")[0].split()[-1].replace(",", ""))
    index = RapidIndex(boxes.dimensions, most_ones=most_ones, memory_limit=said)
    index.build(boxes)
    assert index.nbytes["forest"] <= said
    with pytest.raises(IndexTooLargeError):
        RapidIndex(boxes.dimensions, most_ones=most_ones, memory_limit=said - 1).build(boxes)


@with_trees
def test_more_predicates_than_can_be_numbered(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = build(name, Boxes.of(2, [asking("01")] * 10))
    before = arrays_of(index)
    monkeypatch.setattr(tree, "MOST_PLACES", 80)
    with pytest.raises(IndexTooLargeError, match="predicates"):
        index.add(Boxes.of(2, [asking("01")] * 31))
    assert all(np.array_equal(before[key], array) for key, array in index.to_arrays().items())


# --- counting --------------------------------------------------------------------------------


def test_count_finds_values_and_tries_ranges() -> None:
    """Predicates of one value are listed by it; all others wait side by side."""
    rows: list[Row] = [[(0, 3, 3)], [(0, 3, 3), (1, 0, 9)], [(0, 4, 4)], [(1, ABSENT, ABSENT)]]
    index, order = build("count", Boxes.of(2, rows))
    arrays = index.to_arrays()
    assert sorted(arrays["state_equal_size"].tolist(), reverse=True)[:4] == [2, 1, 1, 0]
    assert arrays["state_low_size"].tolist() == [0, 1]
    points = np.array([[3, 5], [3, 10], [4, ABSENT], [ABSENT, ABSENT]])
    check_answers(index, order, points, [{0, 1}, {0}, {2, 3}, {3}])


def test_count_takes_values_that_it_has_never_seen() -> None:
    index, _ = build("count", Boxes.of(1, [[(0, 1, 1)]]))
    rows: list[Row] = [[(0, value, value)] for value in range(900)]
    for start in range(0, 900, 45):
        index.add(Boxes.of(1, rows[start : start + 45]))
    points = np.arange(-1, 901).reshape(-1, 1)
    expected = holders([[(0, 1, 1)], *rows], points.tolist())
    check_answers(index, list(range(901)), points, expected)
