"""From boxes to a tile index: cuts, order, directory, lines."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import (
    BitLines,
    Float64Array,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt16Table,
    UInt64Array,
)
from boxmatch.indexes.tile.endpoints import (
    collect_endpoints,
    collect_rare_endpoints,
    find_ruling,
    no_endpoints,
    no_rare_endpoints,
)
from boxmatch.indexes.tile.layout import RankedPredicates, TileState
from boxmatch.indexes.tile.order import cluster, ranks_of_zero
from boxmatch.indexes.tile.ranks import (
    RANK,
    Ruler,
    cell_of,
    choose_cuts,
    make_rank_table,
    make_ruler,
    rank_predicates,
    shifts_for,
)
from boxmatch.indexes.tile.slots import (
    choose_slots,
    fill_lines,
    order_slots,
    room_of_tile,
)
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, filled_lines, zero_lines
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.kernels.threads import each, split
from boxmatch.model.boxes import Boxes

_PART = 65_536
"""Predicates for each thread, at least."""

_TILES = 16
"""The same for tiles."""

_NEAR: Final = np.uint64(12)
_FAR: Final = np.uint64(24)
"""Positions ahead at which the bounds of a box, and where they begin, are fetched."""

_SLOT_BOXES = 16
"""An attribute gets lines in a tile if at least so many of its boxes constrain it."""

_DENSE_SLOT_BOXES = 2
"""The same, where many boxes match and checking them one by one is what costs."""

_TRIAL_EVENTS = 128
_TRIAL_BOXES = 1_024

_EVENT_SIZE = 4

_DIRECTORY_CELLS = 4_096
"""Cells of an attribute, at most, that the directory tells apart."""

_DENSE = 4.0
_DENSE_IF_FULL = 16.0
"""Matches per tile and event from which on an index is made for many matches; and of events that
have all attributes, which may never come.
"""


def build_tiles(
    boxes: Boxes, cells: int, attributes: int, threads: int | None = 1
) -> tuple[TileState, Int64Array]:
    """The index, and the row of `boxes` that each of its positions holds.

    All but the first `attributes` axes are of expressions, which nearly always have a value. With
    `threads` None there is one for each core.
    """
    ruler = make_ruler(*choose_cuts(boxes, _quantiles(boxes.count), threads))
    boxes, order, ends, constrained, dense = _arrange(boxes, ruler, attributes, threads)
    predicates = RankedPredicates(boxes.start, boxes.attribute, ends[:, 0], ends[:, 1])
    cut_start = ruler.cut_start
    top_attribute, top_shift, top_row, top = _make_directory(
        predicates, cut_start, constrained, threads
    )
    least = _DENSE_SLOT_BOXES if dense else _SLOT_BOXES
    slots, rows, line_count = choose_slots(
        constrained, cut_start, boxes.count, cells, least, in_rows=dense
    )
    lines = zero_lines(line_count)
    unsettled = zero_lines(len(constrained))
    unlined = zero_lines(len(constrained))
    filled = filled_lines(boxes.count)
    tiles = split(len(constrained), threads, least=_TILES)
    room = room_of_tile(slots)
    each(lambda part: fill_lines(slots, predicates, room, *part, lines, unsettled, unlined), tiles)
    # Where lines lie in rows, a tile has none that lie together.
    tile_line = np.append(slots.line, line_count)[slots.start].astype(np.int32) * (not dense)
    slot_depth = np.empty(len(constrained), np.uint16)
    zero = ranks_of_zero(ruler)
    each(lambda part: order_slots(slots, lines, zero, *part, slot_depth), tiles)
    endpoints, rare, row_rules = no_endpoints(), no_rare_endpoints(), np.zeros(0, np.uint8)
    if dense:
        endpoints = collect_endpoints(boxes, predicates, slots, threads)
        rare = collect_rare_endpoints(boxes, predicates, slots)
        row_rules = np.zeros(int(slots.cell_count.sum()) * rows.blocks, np.uint8)
        find_ruling(slots, rows, endpoints, lines, filled, row_rules)
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
        row_block=rows.block,
        row_rules=row_rules,
        lines=lines,
        endpoint_base=endpoints.base,
        endpoint_start=endpoints.start,
        endpoint_key=endpoints.key,
        endpoint_box=endpoints.box,
        rare_start=rare.start,
        rare_low=rare.low,
        rare_low_box=rare.low_box,
        rare_high=rare.high,
        rare_high_box=rare.high_box,
        unsettled=unsettled,
        unlined=unlined,
        filled=filled,
        box_start=boxes.start,
        box_attribute=boxes.attribute,
        box_ranks=ends,
        box_low=boxes.low,
        box_high=boxes.high,
    )
    return state, order.astype(np.int64)


def _quantiles(count: int) -> int:
    """Cuts for an attribute with many distinct endpoints: more boxes deserve a finer directory."""
    return int(np.clip(1 << (max(count, 1) // 64).bit_length(), 64, 1024))


Ranks = tuple[UInt16Array, UInt16Array]
"""Those of the low and of the high end of each predicate."""


def _arrange(
    boxes: Boxes, ruler: Ruler, attributes: int, threads: int | None
) -> tuple[Boxes, Int32Array, UInt16Table, UInt16Array, bool]:
    """The boxes in clustered order, that order, the ranks of their predicates, how many boxes of
    each tile constrain each attribute, and whether the index is made for many matches.
    """
    size = len(boxes.attribute)
    ranks = np.empty(size, np.uint16), np.empty(size, np.uint16)
    table = make_rank_table(ruler, size)

    def rank(part: tuple[int, int], into: Ranks = ranks) -> Int64Array:
        width = np.zeros(boxes.dimensions, np.int64)
        keys = boxes.attribute, boxes.low, boxes.high
        rank_predicates(ruler.cuts, table, keys, *part, into, width)
        return width

    width = np.sum(each(rank, split(size, threads, least=_PART)), axis=0)
    ranked = RankedPredicates(boxes.start, boxes.attribute, *ranks)
    expected = _expected_matches(ranked, ruler.cut_start)
    dense = bool((expected > (_DENSE_IF_FULL, _DENSE)).any())
    order = cluster(boxes, attributes, ruler, ranked, width, threads, grouped=not dense)
    start = np.zeros(boxes.count + 1, np.int64)
    np.cumsum(np.diff(boxes.start)[order], out=start[1:])
    tiles = (boxes.count + LINE_BITS - 1) // LINE_BITS
    constrained = np.zeros((tiles, boxes.dimensions), np.uint16)
    parts = split(boxes.count, threads, least=_TILES * LINE_BITS, multiple=LINE_BITS)
    moves = boxes.start, order, start
    # Ranks before bounds, which take most of the memory, so that the old ranks are gone by then.
    attribute, ends = np.empty(size, np.uint16), np.empty((size, 2), np.uint16)

    def gather_ranks(part: tuple[int, int], old: Ranks = ranks) -> None:
        _gather_ranks(*moves, *part, (boxes.attribute, *old), attribute, ends, constrained)

    each(gather_ranks, parts)
    del ranks, ranked, rank, gather_ranks
    long = np.empty(size, np.int64), np.empty(size, np.int64)
    each(lambda part: _gather_bounds(*moves, *part, (boxes.low, boxes.high), long), parts)
    gathered = Boxes(boxes.dimensions, start, attribute, *long)
    return gathered, order, ends, constrained, dense


@kernel
def _gather_ranks(
    start: Int64Array,
    order: Int32Array,
    start_out: Int64Array,
    first: Int,
    last: Int,
    columns: tuple[UInt16Array, UInt16Array, UInt16Array],
    attribute_out: UInt16Array,
    ends_out: UInt16Table,
    constrained: UInt16Array,
) -> None:
    """Copy attributes and ranks of the boxes at the positions from `first` to `last`."""
    attribute, low, high = columns
    one = np.uint64(1)
    for here in range(np.uint64(first), np.uint64(last)):
        # Rows come from all over memory: ask for those a little ahead.
        if here + _FAR < np.uint64(last):
            prefetch(start, np.int64(order[here + _FAR]))
        if here + _NEAR < np.uint64(last):
            ahead = start[order[here + _NEAR]]
            prefetch(attribute, ahead)
            prefetch(low, ahead)
            prefetch(high, ahead)
        row = np.uint64(order[here])
        begin = np.uint64(start[row])
        size = np.uint64(start[row + one]) - begin
        target = np.uint64(start_out[here])
        for i in range(size):
            ends_out[target + i, 0] = low[begin + i]
            ends_out[target + i, 1] = high[begin + i]
        tile = here // np.uint64(LINE_BITS)
        for i in range(size):
            attribute_out[target + i] = attribute[begin + i]
            constrained[tile, attribute[begin + i]] += 1


@kernel
def _gather_bounds(
    start: Int64Array,
    order: Int32Array,
    start_out: Int64Array,
    first: Int,
    last: Int,
    columns: tuple[Int64Array, Int64Array],
    columns_out: tuple[Int64Array, Int64Array],
) -> None:
    """The same for bounds."""
    low, high = columns
    low_out, high_out = columns_out
    one = np.uint64(1)
    for here in range(np.uint64(first), np.uint64(last)):
        if here + _FAR < np.uint64(last):
            prefetch(start, np.int64(order[here + _FAR]))
        if here + _NEAR < np.uint64(last):
            row = np.uint64(order[here + _NEAR])
            for p in range(start[row], start[row + one] + 7, 8):
                prefetch(low, p)
                prefetch(high, p)
        row = np.uint64(order[here])
        begin = np.uint64(start[row])
        size = np.uint64(start[row + one]) - begin
        target = np.uint64(start_out[here])
        for i in range(size):
            low_out[target + i] = low[begin + i]
        for i in range(size):
            high_out[target + i] = high[begin + i]


def _make_directory(
    predicates: RankedPredicates,
    cut_start: Int32Array,
    constrained: UInt16Array,
    threads: int | None,
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
    short = shift.astype(np.uint8)
    each(
        lambda part: _fill_directory(
            predicates, mandatory, place, attributes, short, row, cells, *part, top
        ),
        # Tiles whose bits are in the same word are for the same thread.
        split(tiles, threads, least=64, multiple=64),
    )
    return attributes, short, row, top.reshape(rows * width, LINE_WORDS)


@kernel
def _fill_directory(
    predicates: RankedPredicates,
    mandatory: npt.NDArray[np.bool_],
    place: Int32Array,
    attributes: UInt16Array,
    shift: UInt8Array,
    row: Int32Array,
    cells: Int64Array,
    first_tile: Int,
    last_tile: Int,
    top: BitLines,
) -> None:
    start, attribute = predicates.start, predicates.attribute
    count = len(start) - 1
    # The bits of 64 tiles that change from one cell to the next, by row of the directory.
    change = np.zeros(len(top) + 1, np.uint64)
    # By row: the last cell up to which a predicate that begins here reaches.
    reach = np.full(len(top), -1, np.int32)
    lowest = np.empty(len(cells), np.int64)
    highest = np.empty(len(cells), np.int64)
    for tile in range(first_tile, last_tile):
        bit = np.uint64(1) << np.uint64(tile & 63)
        lowest[:] = len(top)
        highest[:] = -1
        for box in range(tile * LINE_BITS, min(count, (tile + 1) * LINE_BITS)):
            for p in range(np.uint64(start[box]), np.uint64(start[box + 1])):
                a = attribute[p]
                if not mandatory[tile, a]:
                    continue
                own = np.uint64(place[a])
                low = cell_of(predicates.low[p] & RANK, shift[own])
                high = cell_of(predicates.high[p] & RANK, shift[own])
                if low <= high:
                    at = np.uint64(row[own] + low)
                    reach[at] = max(reach[at], np.int32(high))
                    lowest[own] = min(lowest[own], low)
                    highest[own] = max(highest[own], low)
        for i in range(len(cells)):
            if not mandatory[tile, attributes[i]]:
                _toggle(change, row[i], cells[i], 0, cells[i] - 1, bit)
                continue
            cell = lowest[i]
            while cell <= highest[i]:
                begin = cell
                end = np.int64(reach[row[i] + cell])
                while cell <= min(end, highest[i]):
                    end = max(end, np.int64(reach[row[i] + cell]))
                    reach[row[i] + cell] = -1
                    cell += 1
                _toggle(change, row[i], cells[i], begin, end, bit)
                while cell <= highest[i] and reach[row[i] + cell] < 0:
                    cell += 1
        if tile & 63 == 63 or tile == last_tile - 1:
            for i in range(len(cells)):
                word = np.uint64(0)
                for r in range(row[i], row[i] + cells[i]):
                    word ^= change[r]
                    top[r, tile >> 6] = word
            change[:] = 0


@kernel
def _toggle(
    change: UInt64Array, row: Int, cells: Int, first: Int, last: Int, bit: np.uint64
) -> None:
    """Have `bit` set in the cells from `first` to `last` of an attribute with so many."""
    change[row + first] ^= bit
    if last + 1 < cells:
        change[row + last + 1] ^= bit


@kernel
def _expected_matches(predicates: RankedPredicates, cut_start: Int32Array) -> Float64Array:
    """Boxes of a tile that an event matches, estimated on a sample of made-up events.

    Half of their values lie in the middle of some predicate, since people ask for what happens;
    the other half anywhere. Returns what events match that have all attributes, and what those do
    that have a few times as many as a box constrains.
    """
    start, attribute = predicates.start, predicates.attribute
    low, high = predicates.low, predicates.high
    boxes = len(start) - 1
    dimensions = len(cut_start) - 1
    if len(attribute) == 0:
        return np.full(2, float(LINE_BITS))
    present = _EVENT_SIZE * len(attribute) / boxes / dimensions
    state = np.uint64(88172645463325252)
    event = np.empty(dimensions, np.int64)
    matched = np.zeros(2, np.float64)
    for trial in range(_TRIAL_EVENTS):
        for a in range(dimensions):
            state = _next_random(state)
            event[a] = 1 + np.int64(state >> np.uint64(33)) % (cut_start[a + 1] - cut_start[a])
        for _ in range(dimensions):
            state = _next_random(state)
            some = np.int64(state >> np.uint64(1)) % len(attribute)
            middle = np.int64(low[some] & RANK) + np.int64(high[some] & RANK) + 1
            event[attribute[some]] = middle >> 1
        for a in range(dimensions):
            state = _next_random(state)
            if trial & 1 and np.int64(state >> np.uint64(33)) > present * 2.0**31:
                event[a] = 0
        for _ in range(_TRIAL_BOXES):
            state = _next_random(state)
            box = np.int64(state >> np.uint64(1)) % boxes
            holds = True
            for p in range(start[box], start[box + 1]):
                rank = event[attribute[p]]
                if rank < low[p] & RANK or rank > high[p] & RANK:
                    holds = False
                    break
            matched[trial & 1] += int(holds)
    matched *= 2.0 * LINE_BITS / (_TRIAL_EVENTS * _TRIAL_BOXES)
    return matched


@kernel
def _next_random(state: np.uint64) -> np.uint64:
    """Xorshift: the same estimate for the same boxes, whatever else draws random numbers."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state
