"""Boxes that share attributes lie together where that leaves events fewer tiles to look at."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from boxmatch.indexes.base import Matches
from boxmatch.indexes.scan import ScanIndex
from boxmatch.indexes.tile import order as tile_order
from boxmatch.indexes.tile.groups import regroup
from boxmatch.indexes.tile.index import TileIndex
from boxmatch.indexes.tile.layout import TileState
from boxmatch.model.boxes import Boxes
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


@pytest.mark.parametrize("seed", range(6))
def test_every_box_stays_whatever_the_groups(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other orders do not pay, there are few boxes, and some want nothing."""
    rng = np.random.default_rng(seed)
    monkeypatch.setattr(tile_order, "regroup", partial(regroup, least_tiles=1, worth=float("inf")))
    dimensions = int(rng.integers(2, 9))
    wanted = rng.random((int(rng.integers(500, 9_000)), dimensions)) < rng.random(dimensions)
    low = np.where(wanted, rng.integers(0, 50, wanted.shape), -(1 << 60))
    high = np.where(wanted, low + rng.integers(0, 30, wanted.shape), 1 << 60)
    rows = [
        [(a, low[i, a], high[i, a]) for a in np.flatnonzero(wanted[i])] for i in range(len(wanted))
    ]
    index = TileIndex(dimensions)
    order = index.build(Boxes.of(dimensions, rows))
    assert sorted(order.tolist()) == list(range(len(rows)))
    points = rng.integers(0, 80, (40, dimensions))
    inside = ((low <= points[:, None]) & (points[:, None] <= high)).all(axis=2)
    assert pairs(index.match(points), order) == set(zip(*np.nonzero(inside), strict=True))


def test_boxes_that_share_nothing_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def recorded(*arguments: Any) -> Any:
        order = regroup(*arguments)
        kept.append(order is arguments[4])
        return order

    monkeypatch.setattr(tile_order, "regroup", recorded)
    for predicates, width in ((1, 0.01), (2, 0.05)):
        TileIndex(20).build(workload(predicates=predicates, width=width).boxes())
    assert kept == [True, True]
    # Nor are groups looked for where lines lie in rows.
    index = TileIndex(20)
    index.build(workload(predicates=1).boxes())
    assert len(index._state.row_line) > 0
    assert len(kept) == 2
