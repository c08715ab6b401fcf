"""The tile index on a card gives the answers of plain Python."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from box_oracle import (
    Case,
    bits,
    holders_of_many,
    large_boolean_case,
    large_case,
    listed,
)

from boxmatch.indexes.base import Matches
from boxmatch.indexes.tile.index import TileIndex
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes

SIMULATED = os.environ.get("NUMBA_ENABLE_CUDASIM") == "1"
on_a_card_only = pytest.mark.skipif(SIMULATED, reason="the simulator runs one kernel at a time")
NARROW, WHOLE = "narrow", "whole"


def built(boxes: Boxes, path: str | None = None) -> tuple[TileIndex, npt.NDArray[np.int64]]:
    """An index that is searched on the card, by one of its two paths."""
    index = TileIndex(boxes.dimensions)
    index.device = "cuda"
    order = index.build(boxes)
    if path is not None:
        rows = np.zeros(int(path == WHOLE), np.int32)
        index._hold(index._state._replace(row_line=rows))
    return index, order


def check(
    case: Case, path: str | None = None, alive: npt.NDArray[np.bool_] | None = None
) -> TileIndex:
    index, order = built(case.boxes, path)
    lines = None if alive is None else bits(alive)
    living = set(order.tolist()) if alive is None else set(order[alive].tolist())
    expected = [rows & living for rows in holders_of_many(case.boxes, case.points)]
    found = index.match(case.points, lines)
    for event, positions in enumerate(listed(found)):
        assert len(set(positions)) == len(positions), f"event {event}: a position twice"
        assert set(order[positions].tolist()) == expected[event], f"event {event}"
    assert index.count(case.points, lines).tolist() == [len(rows) for rows in expected]
    assert index.nbytes["card"] > 0
    return index


def some_alive(count: int) -> npt.NDArray[np.bool_]:
    return np.random.default_rng(1).random(count) < 0.7


@pytest.mark.parametrize("path", [NARROW, WHOLE])
@pytest.mark.parametrize("kind", ["uniform", "equality", "edges", "sizes", "attributes"])
def test_each_path_finds_the_boxes_of_each_event(kind: str, path: str) -> None:
    count, events = (30, 6) if SIMULATED else (3_000, 600)
    case = large_case(kind, count, events, seed=3, odd=0.1)
    check(case, path, some_alive(count))
    if not SIMULATED:
        check(case, path)


def test_several_tiles_and_more_events_than_a_word() -> None:
    count, events = (600, 34) if SIMULATED else (60_000, 5_000)
    check(large_case("uniform", count, events, seed=4), NARROW, some_alive(count))


def test_booleans() -> None:
    count, events = (30, 6) if SIMULATED else (5_000, 700)
    check(large_boolean_case("patchy", count, events, seed=2))


def test_the_ends_of_the_axis() -> None:
    keys = [ABSENT, FIRST, FIRST + 1, -1, 0, 1, LAST - 1, LAST]
    rows = [[(0, low, high)] for low in keys for high in keys if low <= high]
    rows += [[(0, 1, 0)], []]
    case = Case(Boxes.of(1, rows), np.array([[key] for key in keys]))
    check(case, NARROW)
    check(case, WHOLE)


@pytest.mark.parametrize("counts", [(0, 3), (3, 0), (1, 1)])
def test_few_boxes_and_few_events(counts: tuple[int, int]) -> None:
    boxes, events = counts
    case = large_case("sizes", boxes, events, seed=1)
    index, _ = built(case.boxes)
    assert [set(one) for one in listed(index.match(case.points))] == holders_of_many(*case)
    assert len(index.count(case.points)) == events


def test_all_boxes_match_where_few_were_expected() -> None:
    # More words of boxes are left by lines than a block keeps in shared memory.
    count, events = (512, 34) if SIMULATED else (5_000, 300)
    boxes = Boxes(
        1,
        np.arange(count + 1),
        np.zeros(count, np.uint16),
        np.zeros(count, np.int64),
        np.full(count, 9),
    )
    check(Case(boxes, np.full((events, 1), 5)), NARROW)


def test_room_for_what_is_found_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    from boxmatch.indexes.tile.cuda import search

    monkeypatch.setattr(search, "_FEWEST_FOUND", 4)
    monkeypatch.setattr(search, "_FOUND_EACH", 1)
    case = large_case("sizes", 30, 6, seed=7)
    check(case, NARROW)


def test_where_lines_leave_too_much_all_boxes_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from boxmatch.indexes.tile.cuda import search

    monkeypatch.setattr(search, "_most_found", lambda events, boxes: 2)
    check(large_case("dense", 20, 6, seed=5), NARROW)


def test_batches_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from boxmatch.indexes.tile.cuda import search

    monkeypatch.setattr(search, "_CHUNK", 5)
    check(large_case("uniform", 30, 8, seed=6), NARROW)


def test_a_batch_again_is_the_same() -> None:
    """The third time, launches are replayed; then with other events and removals."""
    count, events = (40, 5) if SIMULATED else (4_000, 500)
    case = large_case("uniform", count, 2 * events, seed=8)
    index, order = built(case.boxes, NARROW)
    expected = holders_of_many(*case)
    alive = some_alive(count)
    living = set(order[alive].tolist())
    for turn in range(2 if SIMULATED else 6):
        first = turn % 2 * events
        part = slice(first, first + events)
        lines = bits(alive) if turn % 3 == 2 else None
        found = listed(index.match(case.points[part], lines))
        rows = [set(order[positions].tolist()) for positions in found]
        assert rows == [r & living if turn % 3 == 2 else r for r in expected[part]]


@on_a_card_only
def test_several_threads() -> None:
    case = large_case("uniform", 20_000, 4_000, seed=9)
    index, order = built(case.boxes)
    expected = holders_of_many(case.boxes, case.points[:200])

    def search(seed: int) -> Iterator[tuple[Matches, list[int]]]:
        rng = np.random.default_rng(seed)
        for _ in range(5):
            rows = rng.integers(0, 200, int(rng.integers(1, 400)))
            yield index.match(case.points[rows]), rows.tolist()

    with ThreadPoolExecutor(8) as pool:
        for found in pool.map(lambda seed: list(search(seed)), range(8)):
            for matches, rows in found:
                for positions, row in zip(listed(matches), rows, strict=True):
                    assert set(order[positions].tolist()) == expected[row]


@on_a_card_only
def test_memory_is_given_back() -> None:
    from numba import cuda

    def free() -> Any:
        return cuda.current_context().get_memory_info().free

    case = large_case("uniform", 200_000, 2_000, seed=1)
    check_once, _ = built(case.boxes)
    check_once.match(case.points)  # so that kernels are there
    del check_once
    before = free()
    index, _ = built(case.boxes)
    index.match(case.points)
    held = before - free()
    assert held >= index.nbytes["card"] // 2 > 0
    del index
    assert before - free() < held // 2


def test_bits_beyond_the_last_box_mean_nothing() -> None:
    case = large_case("uniform", 20, 5, seed=2)
    for path in (NARROW, WHOLE):
        index, order = built(case.boxes, path)
        found = listed(index.match(case.points, np.full((1, 8), ~np.uint64(0))))
        assert [set(order[one].tolist()) for one in found] == holders_of_many(*case)
