"""Boxes that share attributes lie together where that leaves events fewer tiles to look at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from boxmatch.indexes.base import Matches
from boxmatch.indexes.scan import ScanIndex
from boxmatch.indexes.tile import order as tile_order
from boxmatch.indexes.tile.groups import regroup
from boxmatch.indexes.tile.index import TileIndex
from boxmatch.indexes.tile.layout import TileState
from boxmatch.workloads import RangeWorkload

BOXES = 140_000


def workload(**parameters: Any) -> RangeWorkload:
    return RangeWorkload(subscriptions=BOXES, seed=5, **parameters)


def pairs(found: Matches, order: np.ndarray) -> set[tuple[int, int]]:
    events = np.repeat(np.arange(len(found.counts)), found.counts)
    return set(zip(events.tolist(), order[found.positions].tolist(), strict=True))


def live_tiles(state: TileState, points: np.ndarray) -> int:
    """Tiles whose bounds hold a point, counted from the boxes alone."""
    count = len(state.box_start) - 1
    row = np.repeat(np.arange(count), np.diff(state.box_start))
    shape = (-(-count // 512) * 512, points.shape[1])
    low, high = np.full(shape, -(1 << 60)), np.full(shape, 1 << 60)
    low[row, state.box_attribute], high[row, state.box_attribute] = state.box_low, state.box_high
    lowest = low.reshape(-1, 512, shape[1]).min(axis=1)
    highest = high.reshape(-1, 512, shape[1]).max(axis=1)
    return sum(int(((lowest <= point) & (point <= highest)).all(axis=1).sum()) for point in points)


@pytest.mark.parametrize(
    "parameters",
    [{"predicates": 8}, {"attribute_choice": "zipf"}, {"predicates": 8, "width_spread": 0.9}],
    ids=["uniform", "zipf", "widths"],
)
def test_fewer_tiles_and_the_same_matches(
    parameters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = workload(**parameters)
    boxes, points = made.boxes(), made.events(0, 100).astype(np.int64)
    scan = ScanIndex(boxes.dimensions)
    scan.build(boxes)
    expected = pairs(scan.match(points), np.arange(BOXES))
    grouped = TileIndex(boxes.dimensions)
    order = grouped.build(boxes)
    assert len(expected) > 50
    assert sorted(order.tolist()) == list(range(BOXES))
    assert pairs(grouped.match(points), order) == expected
    monkeypatch.setattr(tile_order, "regroup", lambda *arguments: arguments[4])
    plain = TileIndex(boxes.dimensions)
    plain.build(boxes)
    assert live_tiles(grouped._state, points) < 0.8 * live_tiles(plain._state, points)


def test_boxes_that_share_nothing_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def recorded(*arguments: Any) -> Any:
        order = regroup(*arguments)
        kept.append(order is arguments[4])
        return order

    monkeypatch.setattr(tile_order, "regroup", recorded)
    for predicates in (1, 3):
        TileIndex(20).build(workload(predicates=predicates).boxes())
    assert kept == [True, True]
