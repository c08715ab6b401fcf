"""From boxes to a tile index: cuts, order, directory, lines."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.tile.layout import RankedPredicates, TileState
from boxmatch.indexes.tile.order import cluster
from boxmatch.indexes.tile.ranks import (
    Ruler,
    cell_of,
    choose_cuts,
    make_ruler,
    rank_predicates,
    shifts_for,
)
from boxmatch.indexes.tile.slots import (
    choose_slots,
    collect_endpoints,
    fill_lines,
    mark_unsettled,
    no_endpoints,
    order_slots,
)
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, filled_lines, zero_lines
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

_SLOT_BOXES = 16
"""An attribute gets lines in a tile if at least so many of its boxes constrain it."""

_DENSE_SLOT_BOXES = 2
"""The same, where many boxes match and checking them one by one is what costs."""

_TRIAL_EVENTS = 64
_TRIAL_BOXES = 1_024

_EVENT_SIZE = 4

_DIRECTORY_CELLS = 4_096
"""Cells of an attribute, at most, that the directory tells apart."""

_DENSE = 4.0
"""Matches per tile and event from which on an index is made for many matches."""


def build_tiles(boxes: Boxes, cells: int, attributes: int) -> tuple[TileState, Int64Array]:
    """The index, and the row of `boxes` that each of its positions holds.

    All but the first `attributes` axes are of expressions, which nearly always have a value.
    """
    ruler = make_ruler(*choose_cuts(boxes, _quantiles(boxes.count)))
    boxes, order, predicates = _arrange(boxes, ruler, attributes)
    cut_start = ruler.cut_start
    dense = _expected_matches(predicates, cut_start) > _DENSE
    constrained = _constrained(boxes.start, boxes.attribute, boxes.dimensions)
    top_attribute, top_shift, top_row, top = _make_directory(predicates, cut_start, constrained)
    least = _DENSE_SLOT_BOXES if dense else _SLOT_BOXES
    slots, rows, line_count = choose_slots(
        constrained, cut_start, boxes.count, cells, least, in_rows=dense
    )
    lines = zero_lines(line_count)
    fill_lines(slots, predicates, lines)
    # Where lines lie in rows, a tile has none that lie together.
    tile_line = np.append(slots.line, line_count)[slots.start].astype(np.int32) * (not dense)
    slot_depth = np.empty(len(constrained), np.uint16)
    order_slots(slots, lines, slot_depth)
    endpoints = collect_endpoints(boxes, predicates, slots, line_count) if dense else no_endpoints()
    unsettled = zero_lines(len(constrained))
    unlined = zero_lines(len(constrained))
    mark_unsettled(slots, predicates, unsettled, unlined)
    state = TileState(
        **ruler._asdict(),
        top_attribute=top_attribute,
        top_shift=top_shift,
        top_row=top_row,
        top=top,
        cell_shift=slots.cell_shift,
        tile_line=tile_line,
        slot_start=slots.start,
        slot_depth=slot_depth,
        slot_attribute=slots.attribute,
        slot_line=slots.line,
        line_step=slots.step,
        row_line=rows.line,
        row_start=rows.start,
        row_tile=rows.tile,
        lines=lines,
        endpoint_start=endpoints[0],
        endpoint_key=endpoints[1],
        endpoint_box=endpoints[2],
        unsettled=unsettled,
        unlined=unlined,
        filled=filled_lines(boxes.count),
        box_start=boxes.start,
        box_attribute=boxes.attribute,
        box_low=boxes.low,
        box_high=boxes.high,
    )
    return state, order


def _quantiles(count: int) -> int:
    """Cuts for an attribute with many distinct endpoints: more boxes deserve a finer directory."""
    return int(np.clip(1 << (max(count, 1) // 64).bit_length(), 64, 1024))


def _arrange(
    boxes: Boxes, ruler: Ruler, attributes: int
) -> tuple[Boxes, Int64Array, RankedPredicates]:
    """The boxes in clustered order, that order, and their predicates as ranks."""
    low = np.empty(len(boxes.attribute), np.uint16)
    high = np.empty(len(boxes.attribute), np.uint16)
    rank_predicates(ruler, boxes.attribute, boxes.low, boxes.high, low, high)
    order = cluster(boxes, attributes, ruler.cut_start, low, high)
    boxes, low, high = _gather(boxes, low, high, order)
    sure_low = np.empty(len(low), np.int32)
    sure_high = np.empty(len(low), np.int32)
    predicates = RankedPredicates(boxes.start, boxes.attribute, low, high, sure_low, sure_high)
    _fill_sure(ruler, predicates, boxes.low, boxes.high)
    return boxes, order, predicates


def _gather(
    boxes: Boxes, low_rank: UInt16Array, high_rank: UInt16Array, order: Int64Array
) -> tuple[Boxes, UInt16Array, UInt16Array]:
    """The boxes, and the ranks of their predicates, in the given order."""
    start = np.zeros(boxes.count + 1, np.int64)
    np.cumsum(np.diff(boxes.start)[order], out=start[1:])
    size = len(boxes.attribute)
    gathered = Boxes(
        boxes.dimensions,
        start,
        np.empty(size, np.uint16),
        np.empty(size, np.int64),
        np.empty(size, np.int64),
    )
    ranks = np.empty(size, np.uint16), np.empty(size, np.uint16)
    _gather_predicates(
        boxes.start,
        (boxes.attribute, low_rank, high_rank),
        (boxes.low, boxes.high),
        order,
        (gathered.attribute, *ranks),
        (gathered.low, gathered.high),
    )
    return gathered, *ranks


@kernel
def _gather_predicates(
    start: Int64Array,
    short: tuple[UInt16Array, ...],
    long: tuple[Int64Array, ...],
    order: Int64Array,
    short_out: tuple[UInt16Array, ...],
    long_out: tuple[Int64Array, ...],
) -> None:
    attribute, low_rank, high_rank = short
    low, high = long
    attribute_out, low_rank_out, high_rank_out = short_out
    low_out, high_out = long_out
    count = len(order)
    target = 0
    for position in range(count):
        # Rows come from all over memory: ask for those a little ahead.
        if position + 24 < count:
            prefetch(start, order[position + 24])
        if position + 12 < count:
            ahead = start[order[position + 12]]
            prefetch(attribute, ahead)
            prefetch(low_rank, ahead)
            prefetch(high_rank, ahead)
            prefetch(low, ahead)
            prefetch(low, ahead + 7)
            prefetch(high, ahead)
            prefetch(high, ahead + 7)
        row = order[position]
        for p in range(start[row], start[row + 1]):
            attribute_out[target] = attribute[p]
            low_rank_out[target] = low_rank[p]
            high_rank_out[target] = high_rank[p]
            low_out[target] = low[p]
            high_out[target] = high[p]
            target += 1


@kernel
def _fill_sure(
    ruler: Ruler, predicates: RankedPredicates, low: Int64Array, high: Int64Array
) -> None:
    """Set the ranks that each predicate covers as a whole."""
    cuts, cut_start = ruler.cuts, ruler.cut_start
    attribute, low_rank, high_rank = predicates.attribute, predicates.low, predicates.high
    sure_low, sure_high = predicates.sure_low, predicates.sure_high
    for p in range(len(attribute)):
        a = attribute[p]
        first = cut_start[a]
        ranks = cut_start[a + 1] - first
        r = np.int32(low_rank[p])
        whole = low[p] == ABSENT or (r > 0 and cuts[first + r - 1] == low[p])
        sure_low[p] = r if whole else r + 1
        r = np.int32(high_rank[p])
        whole = high[p] == LAST if r == ranks else cuts[first + r] == high[p] + 1
        sure_high[p] = r if whole else r - 1


@kernel
def _constrained(start: Int64Array, attribute: UInt16Array, dimensions: int) -> UInt16Array:
    """How many boxes of each tile constrain each attribute."""
    count = len(start) - 1
    tiles = (count + LINE_BITS - 1) // LINE_BITS
    table = np.zeros((tiles, dimensions), np.uint16)
    for box in range(count):
        for p in range(start[box], start[box + 1]):
            table[box // LINE_BITS, attribute[p]] += 1
    return table


def _make_directory(
    predicates: RankedPredicates, cut_start: Int32Array, constrained: UInt16Array
) -> tuple[UInt16Array, UInt8Array, Int32Array, BitLines]:
    """The attributes that rule out tiles, their shifts and first rows, and the rows.

    Where every box of a tile constrains an attribute, an event that is outside all of them, or
    lacks the attribute, need not look at the tile. `constrained` says how many boxes of each tile
    constrain each attribute.
    """
    tiles, dimensions = constrained.shape
    sizes = np.full(tiles, LINE_BITS)
    sizes[-1:] = len(predicates.start) - 1 - (tiles - 1) * LINE_BITS
    mandatory = constrained == sizes[:, None]
    tiles_ruled = np.count_nonzero(mandatory, axis=0)
    attributes = np.nonzero(tiles_ruled)[0].astype(np.uint16)
    ranks = np.diff(cut_start)[attributes].astype(np.int64)
    # Cells in proportion to the tiles that they can tell apart.
    shift = shifts_for(ranks, np.clip(4 * tiles_ruled[attributes], 16, _DIRECTORY_CELLS))
    cells = (ranks + (1 << shift) - 1 >> shift) + 1
    # Row 0 has all tiles, for events that no attribute rules anything out for.
    row = (1 + np.cumsum(cells) - cells).astype(np.int32)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    rows = 1 + int(cells.sum())
    top = zero_lines(rows * width).reshape(rows, width * LINE_WORDS)
    top[0] = filled_lines(tiles).reshape(-1)
    place = np.full(dimensions, -1, np.int32)
    place[attributes] = np.arange(len(attributes))
    _fill_directory(predicates, mandatory, place, shift.astype(np.uint8), row, cells, top)
    return attributes, shift.astype(np.uint8), row, top.reshape(rows * width, LINE_WORDS)


@kernel
def _fill_directory(
    predicates: RankedPredicates,
    mandatory: npt.NDArray[np.bool_],
    place: Int32Array,
    shift: UInt8Array,
    row: Int32Array,
    cells: Int64Array,
    top: BitLines,
) -> None:
    tiles, dimensions = mandatory.shape
    start, attribute = predicates.start, predicates.attribute
    count = len(start) - 1
    widest = np.int64(0)
    for i in range(len(cells)):
        widest = max(widest, cells[i])
    change = np.zeros((len(cells), widest + 1), np.int32)
    for tile in range(tiles):
        word = tile >> 6
        bit = np.uint64(1) << np.uint64(tile & 63)
        change[:] = 0
        for box in range(tile * LINE_BITS, min(count, (tile + 1) * LINE_BITS)):
            for p in range(start[box], start[box + 1]):
                if mandatory[tile, attribute[p]]:
                    i = place[attribute[p]]
                    change[i, cell_of(predicates.low[p], shift[i])] += 1
                    change[i, cell_of(predicates.high[p], shift[i]) + 1] -= 1
        for a in range(dimensions):
            i = place[a]
            if i < 0:
                continue
            open_boxes = 0
            for cell in range(cells[i]):
                open_boxes += change[i, cell]
                if open_boxes > 0 or not mandatory[tile, a]:
                    top[row[i] + cell, word] |= bit


@kernel
def _expected_matches(predicates: RankedPredicates, cut_start: Int32Array) -> float:
    """Boxes of a tile that an event matches, estimated on a sample of made-up events.

    Half of their values lie in the middle of some predicate, since people ask for what happens;
    the other half anywhere. An event has a few times as many attributes as a box constrains.
    """
    start, attribute = predicates.start, predicates.attribute
    low, high = predicates.low, predicates.high
    boxes = len(start) - 1
    dimensions = len(cut_start) - 1
    if len(attribute) == 0:
        return float(LINE_BITS)
    present = _EVENT_SIZE * len(attribute) / boxes / dimensions
    state = np.uint64(88172645463325252)
    event = np.empty(dimensions, np.int64)
    matched = 0
    for _ in range(_TRIAL_EVENTS):
        for a in range(dimensions):
            state = _next_random(state)
            event[a] = 1 + np.int64(state >> np.uint64(33)) % (cut_start[a + 1] - cut_start[a])
        for _ in range(dimensions):
            state = _next_random(state)
            some = np.int64(state >> np.uint64(1)) % len(attribute)
            event[attribute[some]] = (np.int64(low[some]) + np.int64(high[some]) + 1) >> 1
        for a in range(dimensions):
            state = _next_random(state)
            if np.int64(state >> np.uint64(33)) > present * 2.0**31:
                event[a] = 0
        for _ in range(_TRIAL_BOXES):
            state = _next_random(state)
            box = np.int64(state >> np.uint64(1)) % boxes
            holds = True
            for p in range(start[box], start[box + 1]):
                rank = event[attribute[p]]
                if rank < low[p] or rank > high[p]:
                    holds = False
                    break
            matched += int(holds)
    return LINE_BITS * matched / (_TRIAL_EVENTS * _TRIAL_BOXES)


@kernel
def _next_random(state: np.uint64) -> np.uint64:
    """Xorshift: the same estimate for the same boxes, whatever else draws random numbers."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state
