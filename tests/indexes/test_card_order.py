"""The order of tiles, and of boxes within a tile, that a card takes them in."""

from __future__ import annotations

import numpy as np
from box_oracle import large_case

from boxmatch.indexes.tile.build import build_tiles
from boxmatch.indexes.tile.cuda.order import arrange_boxes, busiest_first
from boxmatch.indexes.tile.layout import TileState
from boxmatch.kernels.bit_lines import LINE_BITS
from boxmatch.model.boxes import Boxes

_PART = 64


def state_of(boxes: Boxes) -> TileState:
    return build_tiles(boxes, 64, boxes.dimensions)[0]


def arranged(state: TileState, dimensions: int) -> np.ndarray:
    tiles = len(state.unsettled)
    attribute = np.tile(np.arange(dimensions, dtype=np.uint16), (tiles, 1))
    order = arrange_boxes(state, np.full(tiles, dimensions, np.uint8), attribute)
    return order.reshape(tiles, LINE_BITS)


def test_every_box_of_a_tile_has_one_place() -> None:
    for order in arranged(state_of(large_case("uniform", 1_700, 0, seed=1).boxes), 20):
        assert sorted(order.tolist()) == list(range(LINE_BITS))


def test_a_tile_that_is_not_full_stays_as_it_is() -> None:
    order = arranged(state_of(large_case("uniform", 700, 0, seed=2).boxes), 20)
    assert order[1].tolist() == list(range(LINE_BITS))


def test_boxes_of_a_part_want_near_values() -> None:
    # Every box wants both attributes; sorted by either alone, parts would be slices.
    rng = np.random.default_rng(3)
    low = rng.integers(0, 1_000, (LINE_BITS, 2))
    state = state_of(Boxes.from_dense(low, low + 10))
    (order,) = arranged(state, 2)
    extents = []
    for part in order.reshape(-1, _PART):
        rows = np.stack([state.box_low[state.box_start[part] + a] for a in range(2)])
        extents.append(np.ptp(rows, axis=1))
    # Eight parts of a square: four by two.
    assert np.prod(extents, axis=1).mean() < 1_000 * 1_000 / 6
    assert np.median(extents) < 600


def test_tiles_that_more_events_ask_for_come_first() -> None:
    low = np.zeros((3 * LINE_BITS, 1), np.int64)
    # Wide boxes, narrow ones, and some in between, tile by tile.
    for tile, width in enumerate((10, 900, 200)):
        rows = slice(tile * LINE_BITS, (tile + 1) * LINE_BITS)
        low[rows, 0] = tile * 1_000 + np.arange(LINE_BITS) % width
    state = state_of(Boxes.from_dense(low, low))
    first = state.box_low[state.box_start[busiest_first(state).astype(np.int64) * LINE_BITS]]
    assert (first // 1_000).tolist() == [1, 2, 0]
