"""Skipped predicates: never a match less, and more only where a skipped predicate failed."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from box_oracle import (
    Case,
    bits,
    build,
    check_answers,
    holders_of_many,
    large_case,
    listed,
    names_of_indexes,
    without,
)

from boxmatch.errors import IndexConfigError
from boxmatch.model.boxes import Boxes

APPROXIMATE = names_of_indexes(approximate=True)
LEAVE_OUT_WHAT_THEY_MAY = [name for name in APPROXIMATE if name != "tile"]
"""All predicates of skipped attributes; `tile` checks some where that costs nothing."""

Marks = npt.NDArray[np.bool_]


def choices(dimensions: int) -> list[Marks]:
    """Each single attribute (of the first few), halves, and all of them."""
    rng = np.random.default_rng(dimensions)
    single = [np.arange(dimensions) == a for a in range(min(dimensions, 4))]
    halves = [rng.random(dimensions) < share for share in (0.2, 0.5, 0.9)]
    return [*single, *halves, np.ones(dimensions, bool)]


def answers(index: Any, case: Case, alive: npt.NDArray[np.bool_], skipped: Marks) -> list[set[int]]:
    """What `match` finds; `count` and `match_one` have to say the same."""
    lines = bits(alive)
    found = listed(index.match(case.points, lines, skipped))
    assert all(len(set(positions)) == len(positions) for positions in found)
    assert index.count(case.points, lines, skipped).tolist() == [len(one) for one in found]
    for event in range(0, len(found), 7):
        one = index.match_one(case.points[event : event + 1], lines, skipped)
        assert sorted(one.tolist()) == sorted(found[event])
    return [set(positions) for positions in found]


@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.parametrize("kind", ["uniform", "dense", "edges", "attributes", "equality"])
@pytest.mark.parametrize("events", [40, 200])
def test_skipped_predicates(name: str, kind: str, events: int) -> None:
    case = large_case(kind, 700, events, seed=events)
    index, order = build(name, case.boxes)
    position = np.argsort(order)
    alive = np.random.default_rng(1).random(700) < 0.8
    extra = 0

    def living(found: list[set[int]]) -> list[set[int]]:
        return [{int(position[row]) for row in rows if alive[position[row]]} for rows in found]

    truth = living(holders_of_many(case.boxes, case.points))
    for skipped in choices(case.boxes.dimensions):
        most = living(holders_of_many(without(case.boxes, skipped), case.points))
        found = answers(index, case, alive, skipped)
        if name in LEAVE_OUT_WHAT_THEY_MAY:
            assert found == most
        assert all(map(set.issubset, truth, found))
        assert all(map(set.issubset, found, most))
        extra += sum(map(len, found)) - sum(map(len, truth))
    # What is dense, `tile` settles by looking up ends, which tells all of the truth.
    assert extra > 0 or (name == "tile" and kind in ("dense", "edges"))


@pytest.mark.parametrize("name", APPROXIMATE)
@pytest.mark.parametrize("kind", ["uniform", "dense", "edges"])
def test_nothing_skipped_is_exact(name: str, kind: str) -> None:
    case = large_case(kind, 700, 100, seed=3)
    index, order = build(name, case.boxes)
    nothing = np.zeros(case.boxes.dimensions, bool)
    found = answers(index, case, np.ones(700, bool), nothing)
    assert [{order[position] for position in positions} for positions in found] == holders_of_many(
        case.boxes, case.points
    )


@pytest.mark.parametrize("name", names_of_indexes(approximate=True, updates=True))
def test_skipping_after_updates(name: str) -> None:
    case = large_case("uniform", 3000, 60, seed=4)
    index, _ = build(name, case.boxes.take(np.arange(300)))
    index.add(case.boxes.take(np.arange(300, 900)))
    index.remove(np.arange(0, 900, 3))
    index.add(case.boxes.take(np.arange(900, 3000)))
    left = np.array([row for row in range(3000) if row >= 900 or row % 3])
    for skipped in choices(case.boxes.dimensions):
        rows = holders_of_many(without(case.boxes.take(left), skipped), case.points)
        expected = [set(left[list(some)].tolist()) for some in rows]
        assert answers(index, case, np.ones(3000, bool), skipped) == expected


@pytest.mark.parametrize("name", names_of_indexes(approximate=False))
def test_exact_indexes_refuse_to_skip(name: str) -> None:
    index, order = build(name, Boxes.of(2, [[(0, 1, 1)], [(1, 0, 0)]]))
    points = np.array([[1, 1]])
    for skipped in (np.array([True, False]), np.zeros(2, bool)):
        for verb in (index.match, index.match_one, index.count):
            with pytest.raises(IndexConfigError, match=name):
                verb(points, None, skipped)
    check_answers(index, order, points, [{0}])
