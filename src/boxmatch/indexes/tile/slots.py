"""Slots and their lines: which boxes of a tile could hold a point, cell by cell."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.tile.layout import BLOCK_TILES, RankedPredicates
from boxmatch.indexes.tile.ranks import INEXACT, RANK, shifts_for
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    count_bits,
    full_line,
    load_line,
    store_line,
    xor_lines,
)
from boxmatch.kernels.jit import kernel

_FEWEST_CELLS = 8
_MOST_CELLS = 240
"""Besides that of absent keys; the numbers of cells have eight bits."""

_FINER_IN_ROWS = 16
"""How much finer cells are where lines lie in rows: taking boxes out one by one is what costs."""

_LEFT_AT_DEPTH = 0.5
"""Boxes of a tile expected to pass the slots that every event is tried on."""


class TileSlots(NamedTuple):
    """Tile `t` has the slots in `start[t]:start[t + 1]`; see `TileState`."""

    start: Int32Array
    attribute: UInt16Array
    line: Int32Array
    step: Int32Array
    cell_shift: UInt8Array
    cell_count: Int64Array
    """Cells of each attribute; a slot has one line for each."""


class Rows(NamedTuple):
    """The lines by attribute and cell; see `TileState`. Empty where tiles keep theirs together."""

    line: Int32Array
    start: Int32Array
    tile: Int32Array
    block: Int32Array

    @property
    def blocks(self) -> int:
        """Blocks of tiles."""
        return len(self.block) // (len(self.start) - 1) - 1


def choose_slots(
    constrained: UInt16Array,
    cut_start: Int32Array,
    boxes: int,
    cells: int,
    least: int,
    in_rows: bool,
) -> tuple[TileSlots, Rows, int]:
    """Slots for attributes that at least `least` boxes of a tile constrain, and how many lines.

    An attribute gets cells in proportion to how often it is constrained: eight bytes of lines for
    each predicate, if one that all boxes constrain has 64.
    """
    ranks = np.diff(cut_start).astype(np.int64)
    frequency = constrained.sum(axis=0, dtype=np.int64) / max(1, boxes)
    most = min(_FINER_IN_ROWS * cells, _MOST_CELLS) if in_rows else cells
    wanted = np.ceil((_FINER_IN_ROWS if in_rows else 1) * cells * frequency)
    wanted = np.clip(wanted, _FEWEST_CELLS, most).astype(np.int64)
    # Ranks that are nearly few enough stay whole: exact lines need no check.
    shift = np.where(ranks <= np.minimum(2 * wanted, _MOST_CELLS), 0, shifts_for(ranks, wanted))
    count = ((ranks + (1 << shift) - 1 >> shift) + 1).astype(np.int64)
    # A tile of few boxes would otherwise have no lines at all.
    fullest = constrained.max(axis=1, initial=0)
    enough = np.minimum(least, np.maximum(1, fullest))
    tile, attribute = np.nonzero(constrained >= enough[:, None])
    start = np.zeros(len(constrained) + 1, np.int32)
    np.cumsum(np.bincount(tile, minlength=len(constrained)), out=start[1:])
    if in_rows:
        line, step, rows = _in_rows(tile, attribute, count, len(constrained))
    else:
        line = np.cumsum(count[attribute]) - count[attribute]
        step = np.ones_like(count)
        rows = Rows(*(np.zeros(0, np.int32) for _ in range(4)))
    slots = TileSlots(
        start,
        attribute.astype(np.uint16),
        line.astype(np.int32),
        step.astype(np.int32),
        shift.astype(np.uint8),
        count,
    )
    return slots, rows, int(count[attribute].sum())


def _in_rows(
    tile: Int64Array, attribute: Int64Array, count: Int64Array, tiles: int
) -> tuple[Int64Array, Int64Array, Rows]:
    """The first line of each slot, the step of each attribute, and the rows."""
    by_attribute = np.argsort(attribute, kind="stable")
    step = np.bincount(attribute, minlength=len(count))
    start = np.concatenate([[0], np.cumsum(step)])
    first = np.cumsum(count * step) - count * step
    line = np.empty(len(tile), np.int64)
    line[by_attribute] = first[attribute[by_attribute]] + (
        np.arange(len(tile)) - start[attribute[by_attribute]]
    )
    places = tile[by_attribute]
    # Where each block begins among the tiles of each attribute.
    firsts = np.append(np.arange(0, tiles, BLOCK_TILES), tiles)
    wanted = (np.arange(len(count)) * (tiles + 1))[:, None] + firsts
    block = np.searchsorted(attribute[by_attribute] * (tiles + 1) + places, wanted.reshape(-1))
    rows = Rows(*(part.astype(np.int32) for part in (first, start, places, block)))
    return line, step, rows


def room_of_tile(slots: TileSlots) -> int:
    """Lines of a tile, and one more for each of its slots, at most."""
    before = np.concatenate([[0], np.cumsum(slots.cell_count[slots.attribute] + 1)])
    return int(np.diff(before[slots.start]).max(initial=0))


@kernel
def fill_lines(
    slots: TileSlots,
    predicates: RankedPredicates,
    room: Int,
    first_tile: Int,
    last_tile: Int,
    lines: BitLines,
    unsettled: BitLines,
    unlined: BitLines,
) -> None:
    """Draw the lines of some tiles: a box has its bit in every cell that its predicate touches.

    A box is settled if each of its predicates has lines that lose nothing of it.
    """
    start, attribute = predicates.start, predicates.attribute
    low_rank, high_rank = predicates.low, predicates.high
    cell_shift, cell_count = slots.cell_shift, slots.cell_count
    count = len(start) - 1
    one = np.uint64(1)
    # The bits that change from one cell to the next: here, since lines may lie far apart.
    change = np.zeros((room, LINE_WORDS), np.uint64)
    change_of = np.full(len(cell_shift), -1, np.int64)
    for tile in range(first_tile, last_tile):
        first_box = tile * LINE_BITS
        last_box = min(count, first_box + LINE_BITS)
        used = 0
        for s in range(slots.start[tile], slots.start[tile + 1]):
            a = slots.attribute[s]
            change_of[a] = used
            # Every box passes the whole axis, until a predicate says otherwise.
            for bit in range(0, last_box - first_box, 64):
                size = min(64, last_box - first_box - bit)
                change[used, bit >> 6] = ~np.uint64(0) >> np.uint64(64 - size)
            used += cell_count[a] + 1
        for box in range(first_box, last_box):
            word = np.uint64((box - first_box) >> 6)
            bit_mask = one << np.uint64((box - first_box) & 63)
            exact = True
            lined = True
            for p in range(np.uint64(start[box]), np.uint64(start[box + 1])):
                a = attribute[p]
                if change_of[a] < 0:
                    lined = False
                    continue
                base = np.uint64(change_of[a])
                shift = np.uint64(cell_shift[a])
                less = (one << shift) - one
                low = np.uint64(low_rank[p]) & np.uint64(RANK)
                high = np.uint64(high_rank[p]) & np.uint64(RANK)
                first = (low + less) >> shift
                last = (high + less) >> shift
                # Nothing is lost where a predicate begins and ends with whole cells.
                exact = exact and (
                    ((low_rank[p] | high_rank[p]) & INEXACT) == 0
                    and (first == 0 or low == ((first - one) << shift) + one)
                    and (last == 0 or high == last << shift)
                )
                change[base, word] ^= bit_mask
                if first <= last:
                    change[base + first, word] ^= bit_mask
                    change[base + last + one, word] ^= bit_mask
            if not (exact and lined):
                unsettled[tile, word] |= bit_mask
            if not lined:
                unlined[tile, word] |= bit_mask
        for s in range(slots.start[tile], slots.start[tile + 1]):
            a = slots.attribute[s]
            line = load_line(change, change_of[a])
            store_line(lines, slots.line[s], line)
            for cell in range(1, cell_count[a]):
                line = xor_lines(line, load_line(change, change_of[a] + cell))
                store_line(lines, slots.line[s] + cell * np.int64(slots.step[a]), line)
            change_of[a] = -1
        change[:used] = 0


@kernel
def order_slots(
    slots: TileSlots,
    lines: BitLines,
    zero: UInt16Array,
    first_tile: Int,
    last_tile: Int,
    slot_depth: UInt16Array,
) -> None:
    """Put some tiles' most selective slots first, and say how many leave few boxes.

    `zero` is that of `order.ranks_of_zero`.
    """
    attribute, line = slots.attribute, slots.line
    passing = np.empty(len(slots.cell_shift), np.float64)
    for tile in range(first_tile, last_tile):
        first, last = slots.start[tile], slots.start[tile + 1]
        for s in range(first, last):
            cells = slots.cell_count[attribute[s]]
            bits = np.int64(0)
            # Not cell 0, which is what an event without the attribute sees.
            for cell in range(1, cells):
                bits += count_bits(load_line(lines, line[s] + cell * slots.step[attribute[s]]))
            share = bits / (LINE_BITS * max(1, cells - 1))
            # Insertion sort: a tile has a few dozen slots.
            place = s
            its_attribute, its_line = attribute[s], line[s]
            while place > first and passing[place - 1 - first] > share:
                passing[place - first] = passing[place - 1 - first]
                attribute[place], line[place] = attribute[place - 1], line[place - 1]
                place -= 1
            passing[place - first] = share
            attribute[place], line[place] = its_attribute, its_line
        depth = 0
        expected = float(LINE_BITS)
        while depth < last - first and expected > _LEFT_AT_DEPTH:
            expected *= passing[depth]
            depth += 1
        slot_depth[tile] = depth
        if len(zero) > 0:
            _cover_by_zeros(slots, lines, zero, tile, slot_depth)


@kernel
def _cover_by_zeros(
    slots: TileSlots, lines: BitLines, zero: UInt16Array, tile: Int, slot_depth: UInt16Array
) -> None:
    """Put those slots first that together leave no box to an event of zeros, if there are such.

    Nearly all values of such axes are zeros, and boxes that ask for the same one are neighbours: a
    few of a hundred axes rule out all that the others would.
    """
    first, last = slots.start[tile], slots.start[tile + 1]
    attribute, line = slots.attribute[first:last].copy(), slots.line[first:last].copy()
    chosen = np.zeros(len(attribute), np.bool_)
    depth: Int = 0
    left = full_line()
    count: Int = np.int64(LINE_BITS)
    while count > 0 and depth < slot_depth[tile]:
        best: Int = -1
        for s in range(len(attribute)):
            a = attribute[s]
            if zero[a] < RANK:
                at = line[s] + np.int64(zero[a]) * slots.step[a]
                passing = count_bits(and_lines(left, load_line(lines, at)))
                if passing < count:
                    best, best_line, count = s, at, passing
        if best < 0:
            break
        left = and_lines(left, load_line(lines, best_line))
        slots.attribute[first + depth] = attribute[best]
        slots.line[first + depth] = line[best]
        chosen[best] = True
        depth += 1
    if count > 0:
        depth = 0
        chosen[:] = False
    else:
        slot_depth[tile] = depth
    place = first + depth
    for s in range(len(attribute)):
        if not chosen[s]:
            slots.attribute[place], slots.line[place] = attribute[s], line[s]
            place += 1
