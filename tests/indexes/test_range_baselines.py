"""What is peculiar to `siena`, `tama`, `htree` and `opindex`."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from box_oracle import KEYS, NEVER, build, check_answers, check_large, holders_of_many, large_case

from boxmatch.errors import IndexConfigError, IndexTooLargeError
from boxmatch.indexes import updatable
from boxmatch.indexes.base import Index
from boxmatch.indexes.papers import htree, siena, tama
from boxmatch.indexes.papers.parts import constraints
from boxmatch.indexes.papers.parts.portions import predicates_of
from boxmatch.indexes.registry import index_class
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

NAMES = ["siena", "tama", "htree", "opindex"]
INTERVALS = [(low, high) for low, high in product(KEYS, KEYS) if low <= high] + [NEVER]


def arrays_of(index: Index) -> dict[str, Any]:
    return {name: array.copy() for name, array in index.to_arrays().items()}


def same(before: dict[str, Any], after: dict[str, Any]) -> bool:
    return before.keys() == after.keys() and all(
        np.array_equal(before[name], after[name]) for name in before
    )


def found_rows(index: Index, points: Any) -> list[set[int]]:
    found = index.match(points)
    ends = np.cumsum(found.counts)[:-1]
    return [set(rows.tolist()) for rows in np.split(found.positions, ends)]


# --- updates ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("siena", {"cells": 3}),
        ("tama", {"level": 3}),
        ("tama", {"level": 16}),
        ("htree", {"cells": 3, "indexed": 3}),
        ("opindex", {}),
    ],
)
@pytest.mark.parametrize("kind", ["uniform", "equality", "edges", "attributes"])
def test_adds_and_removes_in_random_order(
    name: str, parameters: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(updatable, "_FITTED_AT_LEAST", 100)
    case = large_case(kind, 1500, 60, seed=3, odd=0.1)
    holds = holders_of_many(case.boxes, case.points)
    rng = np.random.default_rng(4)
    index, _ = build(name, case.boxes.take(np.arange(150)), **parameters)
    living, given = set(range(150)), 150
    while given < 1500:
        size = min(int(rng.choice([1, 7, 160])), 1500 - given)
        index.add(case.boxes.take(np.arange(given, given + size)))
        living |= set(range(given, given + size))
        given += size
        gone = rng.permutation(sorted(living))[: int(rng.choice([0, 1, 5, 90]))]
        index.remove(gone)
        living -= set(gone.tolist())
        if given % 3 == 0 or given == 1500:
            check_answers(
                index,
                list(range(given)),
                case.points,
                [rows & living for rows in holds],
                singles=2,
            )


@pytest.mark.parametrize("name", NAMES)
def test_removing_leaves_what_never_coming_would(name: str) -> None:
    """Not only the answers: buckets keep no trace and no disorder."""
    case = large_case("dense", 600, 1, seed=2, odd=0.1)
    first, more = case.boxes.take(np.arange(300)), case.boxes.take(np.arange(300, 600))
    index, _ = build(name, first)
    before = contents(index)
    index.add(more)
    assert contents(index) != before
    index.remove(np.random.default_rng(0).permutation(np.arange(300, 600)))
    assert contents(index) == before


def contents(index: Index) -> list[Any]:
    """The items of all buckets that have any, in their order."""
    arrays = index.to_arrays()
    items = []
    for start in sorted(name for name in arrays if name.endswith("_start") and name[:3] != "box"):
        part = start.removesuffix("_start")
        box, key = arrays[f"{part}_box"], arrays[f"{part}_key"]
        for number, (begin, size) in enumerate(
            zip(arrays[start].tolist(), arrays[f"{part}_size"].tolist(), strict=True)
        ):
            if size:
                span = slice(begin, begin + size)
                items.append((part, number, box[span].tolist(), key[span].tolist()))
    return items


@pytest.mark.parametrize("name", ["siena", "tama", "htree"])
def test_portions_do_not_show(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    boxes = large_case("sizes", 200, 1, seed=6, odd=0.1).boxes
    first, more = boxes.take(np.arange(120)), boxes.take(np.arange(120, 200))

    def history() -> list[Any]:
        index, _ = build(name, first, **({"indexed": 3} if name == "htree" else {}))
        built = contents(index)
        index.add(more)
        index.remove(np.arange(0, 200, 3)[::-1])
        return [built, contents(index)]

    whole = history()
    for module in (siena, tama, htree):
        monkeypatch.setattr(module, "PORTION", 100)
    assert history() == whole


# --- constraints -----------------------------------------------------------------------------


def test_constraints_say_what_the_interval_says() -> None:
    meets = {
        constraints.AT_LEAST: lambda value, key: value != ABSENT and value >= key,
        constraints.AT_MOST: lambda value, key: value != ABSENT and value <= key,
        constraints.EQUAL: lambda value, key: value != ABSENT and value == key,
        constraints.ABSENT_OR_AT_MOST: lambda value, key: value == ABSENT or value <= key,
    }
    boxes = Boxes.of(3, [[(2, *interval)] for interval in INTERVALS])
    owned = predicates_of(boxes, np.arange(100, 100 + boxes.count, dtype=np.int32))
    group = np.arange(boxes.count) % 7
    found = constraints.constraints_of(owned, group)
    parts: list[list[tuple[int, int]]] = [[] for _ in INTERVALS]
    for code, key, box in zip(*(column.tolist() for column in found), strict=True):
        assert code >> constraints.GROUP_BITS == group[box - 100]
        assert (code >> 2) % 2**16 == 2
        parts[box - 100].append((code % constraints.OPERATORS, key))
    assert constraints.count_constraints(*boxes[1:2], *boxes[3:]).tolist() == [
        len(p) for p in parts
    ]
    for (low, high), part in zip(INTERVALS, parts, strict=True):
        assert len(part) == (low > ABSENT and high < LAST and low < high and low > KEYS[1]) + (
            (low, high) != (ABSENT, LAST)
        )
        for value in KEYS:
            assert all(meets[o](value, key) for o, key in part) == (low <= value <= high)


# --- tama ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", range(1, 17))
def test_tama_is_exact_on_every_level(level: int) -> None:
    for kind in ("uniform", "clustered", "edges"):
        check_large("tama", large_case(kind, 900, 60, seed=level), seed=level, level=level)


@pytest.mark.parametrize("level", range(1, 17))
def test_tama_is_off_by_less_than_a_cell(level: int) -> None:
    case = large_case("uniform", 3000, 80, seed=level, odd=0.0)
    attribute, low, high = case.boxes[2:]
    least, most = np.full(20, LAST), np.full(20, ABSENT)
    np.minimum.at(least, attribute, low)
    np.maximum.at(most, attribute, high)
    # Beyond the ends of all predicates there are no more cells.
    points = np.where(case.points == ABSENT, ABSENT, np.clip(case.points, least, most))
    index, _ = build("tama", case.boxes, level=level, exact=False)
    truth = holders_of_many(case.boxes, points)
    found = found_rows(index, points)
    assert all(map(set.issuperset, found, truth))
    assert index.count(points).tolist() == [len(rows) for rows in found]
    cell = ((most - least) // 2**level)[attribute]
    wider = case.boxes._replace(low=low - cell, high=high + cell)
    assert all(map(set.issubset, found, holders_of_many(wider, points)))
    if level < 12:
        assert found != truth


def test_tama_finds_fewer_wrong_ones_with_more_levels() -> None:
    case = large_case("uniform", 3000, 60, seed=1, odd=0.0)
    counts = [
        int(build("tama", case.boxes, level=level, exact=False)[0].count(case.points).sum())
        for level in (1, 3, 6, 13)
    ]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)


def test_tama_stands_in_the_fewest_cells() -> None:
    intervals = [(low, high) for low in range(32) for high in range(low, 32)]
    boxes = Boxes.of(1, [[(0, *interval)] for interval in intervals])
    index, _ = build("tama", boxes, level=5, exact=False)

    def fewest(low: int, high: int, first: int = 0, size: int = 32) -> int:
        """Cells for `low … high` within the cell of `size` keys from `first` on."""
        if high < first or low >= first + size:
            return 0
        if low <= first and first + size - 1 <= high:
            return 1
        half = size // 2
        return fewest(low, high, first, half) + fewest(low, high, first + half, half)

    arrays = index.to_arrays()
    stored = np.zeros(len(intervals), np.int64)
    for start, size in zip(
        arrays["state_covered_start"], arrays["state_covered_size"], strict=True
    ):
        np.add.at(stored, arrays["state_covered_box"][start : start + size], 1)
    assert stored.tolist() == [fewest(*interval) for interval in intervals]
    # With one key to a cell, what is approximate is exact.
    points = np.arange(32).reshape(-1, 1)
    check_answers(index, list(range(len(intervals))), points, holders_of_many(boxes, points))


# --- htree -----------------------------------------------------------------------------------


def test_htree_with_fewer_attributes_than_levels() -> None:
    rows = [[(0, *interval)] for interval in INTERVALS]
    rows += [
        [(0, *one), (1, *other)] for one, other in zip(INTERVALS, INTERVALS[::-1], strict=True)
    ]
    boxes = Boxes.of(2, rows)
    points = np.array(list(product(KEYS, KEYS)))
    for indexed in (1, 2, 3, 30):
        index, order = build("htree", boxes, cells=4, indexed=indexed)
        assert len(index.to_arrays()["state_indexed"]) == min(indexed, 2)
        check_answers(index, order, points, holders_of_many(boxes, points), singles=2)


def test_htree_indexes_the_most_frequent_attributes() -> None:
    rows = [[(a, 0, 9) for a in (1, 4, 6) if number % (8 - a) == 0] for number in range(60)]
    index, _ = build("htree", Boxes.of(8, rows), indexed=2)
    assert index.to_arrays()["state_indexed"].tolist() == [6, 4]


def tree_bytes(index: Index) -> int:
    return index.nbytes["leaves"]


def test_htree_refuses_what_would_take_too_much_memory() -> None:
    case = large_case("dense", 400, 50, seed=1)
    index, _ = build("htree", case.boxes, cells=4, indexed=4)
    needed = tree_bytes(index) - 8  # one number says where the pool ends
    enough, order = build("htree", case.boxes, cells=4, indexed=4, memory_limit=needed)
    check_answers(enough, order, case.points, holders_of_many(case.boxes, case.points))
    scarce = index_class("htree")(
        case.boxes.dimensions, cells=4, indexed=4, memory_limit=needed - 1
    )
    with pytest.raises(IndexTooLargeError, match=rf"{needed:,} bytes.*{needed - 1:,}"):
        scarce.build(case.boxes)
    # An index that was built before still is what it was.
    few = case.boxes.take(np.arange(40))
    scarce.build(few)
    before = arrays_of(scarce)
    with pytest.raises(IndexTooLargeError):
        scarce.build(case.boxes)
    assert same(before, scarce.to_arrays())
    check_answers(scarce, list(range(40)), case.points, holders_of_many(few, case.points))


def test_htree_refuses_leaves_that_it_could_not_even_number() -> None:
    index = index_class("htree")(30, cells=10_000, indexed=30)
    with pytest.raises(MemoryError, match="memory_limit"):
        index.build(Boxes.empty(30))


@pytest.mark.parametrize("fitted_at_least", [1_000_000, 0])
def test_htree_takes_all_of_an_addition_or_nothing(
    fitted_at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the boxes would go into the leaves that there are, or all leaves are made anew."""
    case = large_case("dense", 1300, 50, seed=2)
    parameters = {"cells": 4, "indexed": 3}
    first, second, rest = (
        case.boxes.take(np.arange(*span)) for span in ((0, 500), (500, 510), (510, 1300))
    )
    limit = tree_bytes(build("htree", case.boxes.take(np.arange(1100)), **parameters)[0])
    index, _ = build("htree", first, **parameters, memory_limit=limit)
    index.add(second)
    index.remove(np.array([3, 505]))
    monkeypatch.setattr(updatable, "_FITTED_AT_LEAST", fitted_at_least)
    before = arrays_of(index)
    for _ in range(2):
        with pytest.raises(IndexTooLargeError, match=f"{limit:,}"):
            index.add(rest)
        assert same(before, index.to_arrays())
    living = set(range(510)) - {3, 505}
    truth = holders_of_many(case.boxes, case.points)
    expected = [rows & living for rows in truth]
    check_answers(index, list(range(510)), case.points, expected)
    added = index.add(rest.take(np.arange(40)))
    assert added.tolist() == list(range(510, 550))
    expected = [rows & (living | set(range(510, 550))) for rows in truth]
    check_answers(index, list(range(550)), case.points, expected)


def test_htree_keeps_to_its_limit() -> None:
    """Boxes come until it refuses; by then it takes no more than it said it would."""
    case = large_case("uniform", 4000, 1, seed=5)
    limit = 60_000
    index, _ = build(
        "htree", case.boxes.take(np.arange(100)), cells=3, indexed=4, memory_limit=limit
    )
    given = 100
    refused = False
    while not refused and given < 4000:
        try:
            index.add(case.boxes.take(np.arange(given, given + 30)))
            given += 30
        except IndexTooLargeError:
            refused = True
        assert tree_bytes(index) - 8 <= limit
    assert 200 < given < 4000
    assert index.boxes.count == given


@pytest.mark.parametrize(
    "parameters", [{"cells": 0}, {"indexed": 31}, {"memory_limit": 0}, {"memory_limit": 1e9}]
)
def test_htree_parameters_out_of_range(parameters: dict[str, Any]) -> None:
    with pytest.raises(IndexConfigError, match=next(iter(parameters))):
        index_class("htree")(3, **parameters)


# --- opindex ---------------------------------------------------------------------------------


def test_opindex_finds_boxes_whose_attributes_are_absent() -> None:
    """Attribute 2 is the rarest, and events lack it."""
    rows = [[(0, 1, 5), (1, 0, 9)]] * 6 + [
        [(0, 1, 5), (2, ABSENT, ABSENT)],
        [(0, 1, 5), (2, ABSENT, 7)],
        [(2, ABSENT, 7)],
        [(1, ABSENT, 3), (2, ABSENT, ABSENT)],
        [(0, 1, 5), (2, 1, 7)],
        [(2, ABSENT, LAST)],
        [],
    ]
    boxes = Boxes.of(3, rows)
    index, order = build("opindex", boxes)
    points = np.array(list(product([ABSENT, 0, 4], [ABSENT, 2, 8], [ABSENT, 7, 8])))
    check_answers(index, order, points, holders_of_many(boxes, points))
    pivots = set((index.to_arrays()["state_code"] >> constraints.GROUP_BITS).tolist())
    assert pivots == {0, 1, 2, 3}


def test_opindex_lists_only_what_occurs() -> None:
    """Thousands of attributes, of which few meet; more pairs of them come with later boxes."""
    rng = np.random.default_rng(7)
    dimensions = 3000

    def some(count: int) -> Boxes:
        rows = []
        for _ in range(count):
            low = int(rng.integers(50))
            chosen = np.sort(rng.choice(dimensions, 3, replace=False)).tolist()
            rows.append([(a, low, low + 30) for a in chosen])
        return Boxes.of(dimensions, rows)

    boxes = some(200)
    index, _ = build("opindex", boxes)
    lists = len(index.to_arrays()["state_code"])
    assert lists <= 200 * 3 * 2
    for _ in range(3):
        more = some(50)
        index.add(more)
        boxes = Boxes.concatenate([boxes, more])
    arrays = index.to_arrays()
    assert lists < len(arrays["state_code"]) <= 350 * 3 * 2
    assert np.all(np.diff(arrays["state_code"]) > 0)
    assert sorted(arrays["state_place"].tolist()) == list(range(len(arrays["state_code"])))
    points = rng.integers(0, 80, (40, dimensions))
    points[rng.random(points.shape) < 0.5] = ABSENT
    check_answers(index, list(range(350)), points, holders_of_many(boxes, points), singles=3)


def test_opindex_keeps_its_lists_in_order() -> None:
    case = large_case("zipf", 900, 40, seed=3, odd=0.1)  # many equal keys
    index, _ = build("opindex", case.boxes.take(np.arange(500)))
    rng = np.random.default_rng(2)
    for first in range(500, 900, 80):
        index.add(case.boxes.take(np.arange(first, first + 80)))
        index.remove(rng.permutation(np.arange(first - 500, first - 420))[:60])
        ordered = index.to_arrays()["state_ordered"]
        for _, number, box, key in contents(index):
            pairs = list(zip(key, box, strict=True))
            first = pairs[: ordered[number]]
            assert first == sorted(set(first))
            # What came later is put in order before it is much.
            assert len(pairs) - len(first) <= 64 + len(pairs) ** 0.5
            assert len(set(pairs)) == len(pairs)


def test_opindex_finds_what_came_late() -> None:
    case = large_case("zipf", 900, 40, seed=4, odd=0.1)
    index, _ = build("opindex", case.boxes.take(np.arange(500)))
    for row in range(500, 900):
        index.add(case.boxes.take(np.array([row])))
    late = index.to_arrays()["state_ordered"] < index.to_arrays()["state_lists_size"]
    assert late.any()
    gone = np.arange(0, 900, 7)
    index.remove(gone)
    holds = holders_of_many(case.boxes, case.points)
    assert found_rows(index, case.points) == [rows - set(gone.tolist()) for rows in holds]
