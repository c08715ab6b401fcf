"""The ways in which the tile index comes to its answers, each of them taken and compared."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from box_oracle import (
    KINDS,
    Case,
    build,
    check_answers,
    check_large,
    holders_of_many,
    large_case,
    listed,
    with_lists,
)

from boxmatch.indexes.registry import index_class
from boxmatch.indexes.tile.index import TileIndex
from boxmatch.indexes.tile.layout import BLOCK_TILES
from boxmatch.indexes.tile.ranks import locate, mark_live
from boxmatch.kernels.bit_lines import LINE_BITS, zero_lines
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.boxes import Boxes
from boxmatch.workloads import BooleanWorkload, RangeWorkload


@pytest.fixture
def paths(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Which ways the answers came: by `lines`, by `blocks`, or by rows of ends for a `few` events.

    Or one by one (`single`).
    """
    from boxmatch.indexes.tile import index as module

    taken: set[str] = set()
    batch, few, block_search = module.search_batch, module.search_few, module.BlockSearch

    def by_batch(*arguments: Any) -> Any:
        taken.add("lines")
        return batch(*arguments)

    def by_few(*arguments: Any) -> Any:
        taken.add("few" if len(arguments[5]) > 1 else "single")
        return few(*arguments)

    def by_blocks(*arguments: Any) -> Any:
        taken.add("blocks")
        return block_search(*arguments)

    monkeypatch.setattr(module, "search_batch", by_batch)
    monkeypatch.setattr(module, "search_few", by_few)
    monkeypatch.setattr(module, "BlockSearch", by_blocks)
    return taken


@pytest.mark.parametrize(
    ("kind", "events", "expected"),
    [
        ("uniform", 40, "lines"),
        ("equality", 300, "lines"),
        ("dense", 63, "few"),
    ],
)
def test_which_way_the_answers_come(paths: set[str], kind: str, events: int, expected: str) -> None:
    # Without odd predicates, since those that rule nothing out are themselves dense.
    check_large("tile", large_case(kind, 3000, events, seed=7, odd=0.0), seed=7)
    assert paths == {expected, "single"}


@pytest.mark.parametrize(
    "workload",
    [
        BooleanWorkload(subscriptions=10_000),
        RangeWorkload(subscriptions=20_000, attributes=900, predicates=10, width=0.5),
    ],
)
def test_lines_where_most_candidates_fail_at_once_or_keys_are_many(
    paths: set[str], workload: BooleanWorkload | RangeWorkload
) -> None:
    boxes = workload.boxes()
    points = workload.event_keys(0, 500)
    index = TileIndex(boxes.dimensions)
    index.build(boxes)
    index.match(points)
    index.count(points)
    assert paths == {"lines"}


@pytest.mark.parametrize("pays", [True, False])
@pytest.mark.parametrize("events", [64, 256, 1024 + 37])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_whether_they_pay_or_not(
    paths: set[str], monkeypatch: pytest.MonkeyPatch, kind: str, events: int, pays: bool
) -> None:
    from boxmatch.indexes.tile import index as module

    monkeypatch.setattr(module, "blocks_pay", lambda state, points, listing, in_rows: pays)
    check_large("tile", large_case(kind, 700, events, seed=8), seed=8)
    assert ("blocks" in paths) == pays


@pytest.mark.parametrize("distinct", [1, 2, 9, 600])
def test_blocks_of_events_with_equal_keys(monkeypatch: pytest.MonkeyPatch, distinct: int) -> None:
    """More events than are compared at once lie between two cuts, absent ones among them."""
    from boxmatch.indexes.tile import index as module

    monkeypatch.setattr(module, "blocks_pay", lambda state, points, listing, in_rows: True)
    rng = np.random.default_rng(distinct)
    values = rng.integers(-(2**40), 2**40, distinct)
    values[0] = ABSENT
    points = rng.choice(values, (600, 3))
    low = rng.choice(np.append(values, [ABSENT, FIRST, LAST, 0]), (900, 3))
    high = np.maximum(low, rng.choice(np.append(values, [FIRST, LAST, 0]), (900, 3)))
    check_large("tile", Case(Boxes.from_dense(low, high), points), seed=distinct)


def test_large_cases_reach_every_structure() -> None:
    """Ends, boxes without lines, doubt and none, tiles that the directory tells apart."""
    states = {}
    for kind in KINDS:
        case = large_case(kind, 3000, 1, seed=7, odd=0.0)
        index = index_class("tile")(case.boxes.dimensions)
        index.build(case.boxes)
        states[kind] = index.to_arrays()
    with_ends = {kind for kind, state in states.items() if len(state["endpoint_key"])}
    assert "dense" in with_ends
    assert "equality" not in with_ends
    assert "attributes" in {kind for kind, state in states.items() if state["unlined"].any()}
    assert "uniform" in {kind for kind, state in states.items() if state["unsettled"].any()}
    assert any(not np.array_equal(s["unsettled"], s["filled"]) for s in states.values())
    assert "zipf" in {kind for kind, state in states.items() if len(state["top_attribute"])}
    assert all(len(state["filled"]) == 6 for state in states.values())


def test_endpoints_decide_when_many_boxes_are_unverified(paths: set[str]) -> None:
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
    assert len(state["endpoint_key"]) > 0
    assert state["unlined"].any()
    assert paths == {"few", "single"}
    check_large("tile", Case(boxes, np.tile(points, (5, 1))), seed=2)
    assert "blocks" in paths


@pytest.mark.parametrize("domain", [9, 1_000_000])
def test_one_event_passes_several_blocks_of_tiles(paths: set[str], domain: int) -> None:
    """With few distinct ends cells have one rank each, with many of them several."""
    rng = np.random.default_rng(domain)
    count = BLOCK_TILES * LINE_BITS + 1_700
    low = rng.integers(0, domain // 2, (count, 3))
    high = low + rng.integers(0, domain, (count, 3))
    low[rng.random(low.shape) < 0.3] = ABSENT
    high[rng.random(high.shape) < 0.2] = LAST
    points = rng.integers(0, domain, (12, 3))
    points[rng.random(points.shape) < 0.2] = ABSENT
    points[0], points[1] = FIRST, LAST
    index = index_class("tile")(3)
    order = index.build(Boxes.from_dense(low, high))
    assert len(index.to_arrays()["row_tile"]) > BLOCK_TILES
    for point, found in zip(points, listed(index.match(points)), strict=True):
        wanted = np.flatnonzero(((low <= point) & (point <= high)).all(axis=1))
        assert sorted(order[found].tolist()) == wanted.tolist()
    assert paths == {"few"}


# --- sets of keys ----------------------------------------------------------------------------


def labelled_boxes(count: int, labels: int, *, second: int = 0) -> Boxes:
    """Boxes that ask for a label on axis 0 and, with `second`, for one of so many on axis 1."""
    rng = np.random.default_rng(count)
    label = (rng.integers(0, labels, count) - labels // 2) * 1_000_003
    columns = [label, rng.integers(0, second, count)] if second else [label]
    keys = np.stack(columns, axis=1).reshape(-1)
    axes = np.tile(np.arange(len(columns), dtype=np.uint16), count)
    start = np.arange(0, len(keys) + 1, len(columns))
    return Boxes(3, start, axes, keys, keys.copy())


def posted_tiles(index: Any) -> int:
    """Of the one plan that the index has."""
    [(plan, _)] = index._plans.values()
    return int(np.unpackbits(plan.posted.view(np.uint8)).sum())


@pytest.mark.parametrize(
    ("boxes", "posted"),
    [
        (labelled_boxes(3000, 700), True),
        (labelled_boxes(3000, 700, second=3), True),
        # Clustered by the other axis, which has more keys.
        (labelled_boxes(3000, 60, second=900), False),
        # Lines tell so few labels apart.
        (labelled_boxes(3000, 20), False),
    ],
)
def test_boxes_are_looked_up_where_lines_tell_nothing(boxes: Boxes, posted: bool) -> None:
    points = np.zeros((70, 3), np.int64)
    points[:, 1] = np.arange(70) % 4
    case = with_lists(Case(boxes, points), [0], 30, seed=4)
    index = check_large("tile", case, seed=4)
    assert (posted_tiles(index) > 0) is posted
    # Memory that is held beyond what is saved.
    saved = sum(array.nbytes for array in index.to_arrays().values())
    assert index.nbytes["postings"] == sum(index.nbytes.values()) - saved


def test_tiles_with_and_without_postings_in_one_index() -> None:
    """Labels on two axes, ranges, and boxes that do not ask for a label at all."""
    rng = np.random.default_rng(6)
    rows: list[list[tuple[int, int, int]]] = []
    for number in range(6000):
        label = int(rng.integers(0, 500)) * 7
        kind = number % 4
        if kind < 2:
            rows.append([(kind, label, label)])
        elif kind == 2:
            rows.append([(0, label, label), (1, label, label + 300), (2, label, label + 1500)])
        else:
            rows.append([(2, label, label + 90)])
    points = rng.integers(0, 3500, (90, 4))
    case = with_lists(Case(Boxes.of(4, rows), points), [0, 1, 3], 25, seed=6)
    index = check_large("tile", case, seed=6)
    assert 0 < posted_tiles(index) < len(index.to_arrays()["unsettled"])


def test_more_candidates_than_are_collected_at_once() -> None:
    boxes = labelled_boxes(30_000, 3000, second=2)
    points = np.zeros((40, 3), np.int64)
    every = with_lists(Case(boxes, points), [0], 0, seed=1).lists
    assert every is not None
    keys = np.unique(boxes.low[::2])
    lists = every._replace(start=np.arange(41) * len(keys), keys=np.tile(keys, 40))
    index, order = build("tile", boxes)
    wanted = set(np.flatnonzero(boxes.low[1::2] == 0).tolist())
    check_answers(index, order, points, [wanted] * 40, lists=lists)
    assert posted_tiles(index) > 0


@pytest.mark.parametrize("kind", ["uniform", "dense", "equality"])
def test_sets_in_more_events_than_a_block(kind: str) -> None:
    case = with_lists(large_case(kind, 700, 4133, seed=1), [0, 1], 2, seed=1)
    check_large("tile", case, seed=1)


def test_sets_on_axes_that_no_box_constrains_change_nothing(paths: set[str]) -> None:
    boxes = Boxes.of(3, [[(0, low, low + 50)] for low in range(900)])
    points = np.random.default_rng(1).integers(0, 900, (300, 3))
    index = check_large("tile", with_lists(Case(boxes, points), [1, 2], 3, seed=1), seed=1)
    assert paths == {"blocks", "single"}
    assert list(index._plans.values()) == [None]  # type: ignore[attr-defined]


def test_plans_for_many_combinations_of_axes() -> None:
    case = large_case("uniform", 600, 3, seed=2)
    index, order = build("tile", case.boxes)
    for mask in range(1, 24):
        axes = [axis for axis in range(5) if mask >> axis & 1]
        some = with_lists(case, axes, 3, seed=mask)
        assert some.lists is not None
        expected = holders_of_many(case.boxes, case.points, some.lists)
        check_answers(index, order, case.points, expected, lists=some.lists)


def test_boxes_of_booleans_lie_together_by_the_ones_that_they_want() -> None:
    # Half of the predicates want a zero. By these, most tiles could hold such an event.
    workload = BooleanWorkload(subscriptions=20_000, properties=20, zero=0.2, one=0.2, seed=3)
    index = TileIndex(workload.properties)
    index.build(workload.boxes())
    state = index._state
    event = np.zeros((1, workload.properties), np.int64)
    event[0, 7] = 1
    ranks = np.empty(event.shape, np.uint16)
    locate(state, event, ranks, np.empty(event.shape, np.uint8))
    live = zero_lines(1)
    mark_live(state, ranks, live)
    assert 1 <= int(np.bitwise_count(live).sum()) <= len(state.unsettled) // 2


def test_few_lines_rule_out_all_boxes_for_an_event_of_zeros() -> None:
    workload = BooleanWorkload(subscriptions=10_000)
    index = TileIndex(workload.properties)
    index.build(workload.boxes())
    state = index._state
    covered = 0
    for first, last, depth in zip(
        state.slot_start[:-1], state.slot_start[1:], state.slot_depth.tolist(), strict=True
    ):
        assert len(set(state.slot_attribute[first:last].tolist())) == last - first
        # Cuts are FIRST, 0 and 1, so that zeros are in the second cell.
        zeros = state.lines[state.slot_line[first : first + depth] + 2]
        covered += not np.bitwise_and.reduce(zeros).any()
    # The last tile has the boxes that want nothing but zeros.
    assert covered == len(state.slot_depth) - 1
    assert np.median(state.slot_depth) < 10 < np.diff(state.slot_start).min()
