"""The worked examples of the papers, on every index that they apply to."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from box_oracle import build, check_answers, holders, names_of_indexes
from odd_parameters import ODD

from boxmatch.indexes.papers.hem import HemIndex, mark_only
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes

Rows = list[list[tuple[int, int, int]]]

of_ranges = pytest.mark.parametrize("name", names_of_indexes(ranges=True))
of_booleans = pytest.mark.parametrize("name", names_of_indexes(booleans=True))


def matched(
    name: str, dimensions: int, rows: Rows, point: list[int], **parameters: Any
) -> set[int]:
    """The rows that hold the point, by all verbs of the index and by plain Python alike."""
    index, order = build(name, Boxes.of(dimensions, rows), **parameters)
    expected = holders(rows, [point])
    check_answers(index, order, np.array([point], np.int64), expected)
    return expected[0]


# --- REIN: Table I, Figures 5 and 6 ----------------------------------------------------------

REIN_TABLE_1 = [
    ((0, 1), (7, 9)),
    ((2, 6), (4, 6)),
    ((3, 5), (8, 10)),
    ((1, 3), (3, 5)),
    ((4, 8), (1, 2)),
    ((6, 9), (4, 8)),
    ((5, 7), (6, 7)),
    ((8, 9), (3, 5)),
    ((7, 9), (2, 3)),
    ((9, 10), (0, 1)),
]
REIN_EVENT = [3, 5]


@of_ranges
def test_rein_table_1(name: str) -> None:
    rows = [[(0, *first), (1, *second)] for first, second in REIN_TABLE_1]
    for parameters in [{}, *ODD.get(name, [])]:
        assert matched(name, 2, rows, REIN_EVENT, **parameters) == {1, 3}


def test_rein_with_the_four_buckets_of_its_figure() -> None:
    rows = [[(0, *first), (1, *second)] for first, second in REIN_TABLE_1]
    assert matched("rein", 2, rows, REIN_EVENT, cells=4) == {1, 3}


@of_ranges
@pytest.mark.parametrize("factor", [1, 2])  # 2: the paper's doubled domain
@pytest.mark.parametrize(
    ("attribute", "side", "marked"),
    [
        (0, "high", {0}),  # left of the event
        (0, "low", {4, 5, 6, 7, 8, 9}),  # right
        (1, "low", {0, 2, 6}),  # above
        (1, "high", {4, 8, 9}),  # below
    ],
)
def test_rein_what_each_side_marks(
    name: str, factor: int, attribute: int, side: str, marked: set[int]
) -> None:
    """Boxes that have only that one side fail exactly where the paper marks."""
    rows: Rows = []
    for intervals in REIN_TABLE_1:
        low, high = (factor * end for end in intervals[attribute])
        ends = (low, LAST) if side == "low" else (FIRST, high)
        rows.append([(attribute, *ends)])
    event = [factor * value for value in REIN_EVENT]
    assert set(range(10)) - matched(name, 2, rows, event) == marked


# --- HEM: Table 1, Figure 2 ------------------------------------------------------------------


def hem_table_1(scale: int) -> Rows:
    """The values of the paper have two places; `scale` makes them whole."""
    table = [
        {0: (0.9, 0.95), 1: (0.8, 0.9)},
        {0: (0.0, 0.3), 1: (0.5, 0.7)},
        {0: (0.63, 0.69), 1: (0.1, 0.2)},
        {0: (0.38, 0.76)},
        {1: (0.4, 0.57)},
    ]
    return [
        [(a, round(low * scale), round(high * scale)) for a, (low, high) in row.items()]
        for row in table
    ]


@of_ranges
def test_hem_table_1(name: str) -> None:
    for parameters in [{}, *ODD.get(name, [])]:
        assert matched(name, 2, hem_table_1(100), [64, 32], **parameters) == {3}


def test_hem_with_the_cells_and_groups_of_its_figure() -> None:
    assert matched("hem", 2, hem_table_1(100), [64, 32], cells=16, groups=4) == {3}


@pytest.mark.parametrize(
    ("groups", "marks"),
    [
        (4, 1),  # S5, in the cell next to the event's
        (1, 3),  # S1, S3 and S5, which lie within half of the domain
        (16, 0),
    ],
)
def test_hem_marks_one_by_one_what_its_groups_leave(groups: int, marks: int) -> None:
    """In the paper's own cells: a box over the whole domain makes them sixteenths of it."""
    rows = [*hem_table_1(1600), [(0, 0, 1599), (1, 0, 1599)]]
    event = [1024, 512]
    assert matched("hem", 2, rows, event, cells=16, groups=groups) == {3, 5}
    index = HemIndex(2, cells=16, groups=groups)
    index.build(Boxes.of(2, rows))
    assert mark_only(index, np.array([event])) == marks


@pytest.mark.parametrize("groups", [1, 3, 16])
def test_hem_bit_sets_stay_true(groups: int) -> None:
    """Boxes that came and went leave no marks, and those that stay keep theirs."""
    table = hem_table_1(1600)
    index = HemIndex(2, cells=16, groups=groups)
    index.build(Boxes.of(2, table))
    arrays = index.to_arrays()
    low, high = arrays["state_low_marks"].copy(), arrays["state_high_marks"].copy()
    assert low.any()
    assert high.any()
    more = index.add(Boxes.of(2, [*table, [(0, ABSENT, 700)], [(1, ABSENT, ABSENT)]] * 100))
    assert np.count_nonzero(index.to_arrays()["state_low_marks"]) > np.count_nonzero(low)
    index.remove(more)
    arrays = index.to_arrays()
    for before, after in ((low, arrays["state_low_marks"]), (high, arrays["state_high_marks"])):
        assert np.array_equal(after[:, : before.shape[1]], before)
        assert not after[:, before.shape[1] :].any()


# --- RAPIDMatch: definitions -----------------------------------------------------------------

SPORTS, POLITICS, ARTS = range(3)


def asking(text: str) -> list[tuple[int, int, int]]:
    """A subscription in the paper's notation, such as `10*`."""
    return [(a, int(wanted), int(wanted)) for a, wanted in enumerate(text) if wanted != "*"]


@of_booleans
def test_rapidmatch_newspaper(name: str) -> None:
    """Interest in sports and none in politics, against articles."""
    rows = [asking("10*")]
    assert matched(name, 3, rows, [0, 1, 1]) == set()
    assert matched(name, 3, rows, [1, 0, 0]) == {0}
    assert matched(name, 3, rows, [1, 0, 1]) == {0}
    assert matched(name, 3, rows, [1, 1, 0]) == set()


@of_booleans
@pytest.mark.parametrize("properties", [1, 2, 4, 5])
def test_every_subscription_and_every_event(name: str, properties: int) -> None:
    """All 3 ** k subscriptions against all 2 ** k events: every set, every block, every order."""
    rows = [asking("".join(text)) for text in product("01*", repeat=properties)]
    points = np.array(list(product([0, 1], repeat=properties)))
    for parameters in [{}, *ODD.get(name, [])]:
        index, order = build(name, Boxes.of(properties, rows), **parameters)
        # A point fixes the key of each property, which leaves two choices for each.
        expected = holders(rows, points.tolist())
        assert {len(found) for found in expected} == {2**properties}
        check_answers(index, order, points, expected, singles=len(points))


@of_booleans
def test_many_subscriptions_that_ask_for_the_last_property(name: str) -> None:
    """The paper's example of where counting does much for nothing."""
    rows = [asking("*" * 9 + "1")] * 300
    assert matched(name, 10, rows, [0] * 10) == set()
    assert matched(name, 10, rows, [0] * 9 + [1]) == set(range(300))


@of_booleans
def test_a_subscription_is_found_by_events_with_more_ones_than_it_asks_for(name: str) -> None:
    """One that asks for i ones and has j stars matches events of i to i + j ones."""
    rows = [
        asking("11****00"),
        asking("1*0*0*0*"),
        asking("*" * 8),
        asking("1" * 8),
        asking("0" * 8),
    ]
    index, order = build(name, Boxes.of(8, rows))
    points = np.array(list(product([0, 1], repeat=8)))
    expected = holders(rows, points.tolist())
    check_answers(index, order, points, expected)
    ones = [
        {int(point.sum()) for point, found in zip(points, expected, strict=True) if row in found}
        for row in range(5)
    ]
    assert ones == [{2, 3, 4, 5, 6}, {1, 2, 3, 4, 5}, set(range(9)), {8}, {0}]


# --- subject spaces: the regions of its section on data structures ---------------------------

INTEREST_REGIONS: Rows = [[(0, 100, LAST)], [(0, FIRST, 99)], [(0, 60, 100)]]


@of_ranges
def test_subject_space_regions_at_a_point(name: str) -> None:
    """Object region o1 is a point. The others are not, so that no event stands for them."""
    assert matched(name, 1, INTEREST_REGIONS, [100]) == {0, 2}
    assert matched(name, 1, INTEREST_REGIONS, [ABSENT]) == set()


@of_ranges
def test_subject_space_regions_that_an_update_enters_and_leaves(name: str) -> None:
    """As in Figure 5, from two matches: what is new has been entered, what is gone was left."""
    before, after = (matched(name, 1, INTEREST_REGIONS, [value]) for value in (100, 99))
    assert (after - before, before - after) == ({1}, {0})
