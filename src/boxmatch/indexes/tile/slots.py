"""Slots, their lines (which boxes of a tile could hold a point, cell by cell) and endpoints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.tile.layout import RankedPredicates
from boxmatch.indexes.tile.ranks import INEXACT, RANK, cell_of, shifts_for
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    count_bits,
    load_line,
    store_line,
    xor_lines,
)
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.threads import each
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

_FEWEST_CELLS = 8
_MOST_CELLS = 120

_FINER_IN_ROWS = 4
"""How much finer cells are where lines lie in rows: comparing endpoints is what costs."""

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
    shift = np.where(ranks <= 2 * wanted, 0, shifts_for(ranks, wanted))
    count = ((ranks + (1 << shift) - 1 >> shift) + 1).astype(np.int64)
    # A tile of few boxes would otherwise have no lines at all.
    fullest = constrained.max(axis=1, initial=0)
    enough = np.minimum(least, np.maximum(1, fullest))
    tile, attribute = np.nonzero(constrained >= enough[:, None])
    start = np.zeros(len(constrained) + 1, np.int32)
    np.cumsum(np.bincount(tile, minlength=len(constrained)), out=start[1:])
    if in_rows:
        line, step, rows = _in_rows(tile, attribute, count)
    else:
        line = np.cumsum(count[attribute]) - count[attribute]
        step = np.ones_like(count)
        rows = Rows(*(np.zeros(0, np.int32) for _ in range(3)))
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
    tile: Int64Array, attribute: Int64Array, count: Int64Array
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
    rows = Rows(*(part.astype(np.int32) for part in (first, start, tile[by_attribute])))
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
    slots: TileSlots, lines: BitLines, first_tile: Int, last_tile: Int, slot_depth: UInt16Array
) -> None:
    """Put some tiles' most selective slots first, and say how many leave few boxes."""
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


LineEndpoints = tuple[Int64Array, Int64Array, Int32Array]
"""Where each line's endpoints begin, their keys in ascending order, and whose they are."""


def no_endpoints() -> LineEndpoints:
    return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)


def collect_endpoints(
    boxes: Boxes,
    predicates: RankedPredicates,
    slots: TileSlots,
    line_count: int,
    tiles: list[tuple[int, int]],
) -> LineEndpoints:
    """The endpoints of predicates, line by line: what settles every doubt that a line leaves."""
    start = np.zeros(line_count + 1, np.int64)
    bounds = boxes.low, boxes.high
    room = room_of_tile(slots)
    most = each(lambda part: _count_endpoints(slots, predicates, bounds, room, *part, start), tiles)
    np.cumsum(start, out=start)
    keys = np.empty(start[-1], np.int64)
    owner = np.empty(start[-1], np.int32)
    sizes = room, max(most)
    each(
        lambda part: _list_endpoints(slots, predicates, bounds, sizes, *part, start, keys, owner),
        tiles,
    )
    return start, keys, owner


@kernel
def _enter_tile(slots: TileSlots, tile: int, cell_of_slot: Int64Array) -> Int:
    """Number the cells of a tile's slots, one slot after the other; returns how many there are."""
    used = 0
    for s in range(slots.start[tile], slots.start[tile + 1]):
        cell_of_slot[slots.attribute[s]] = used
        used += slots.cell_count[slots.attribute[s]]
    return used


@kernel
def _leave_tile(slots: TileSlots, tile: int, cell_of_slot: Int64Array) -> None:
    for s in range(slots.start[tile], slots.start[tile + 1]):
        cell_of_slot[slots.attribute[s]] = -1


@kernel
def _count_endpoints(
    slots: TileSlots,
    predicates: RankedPredicates,
    bounds: tuple[Int64Array, Int64Array],
    room: Int,
    first_tile: Int,
    last_tile: Int,
    start: Int64Array,
) -> Int:
    """Set `start[line + 1]` to the endpoints of each line; returns how many a tile has at most."""
    low, high = bounds
    boxes = len(predicates.start) - 1
    first_cell = np.full(len(slots.cell_shift), -1, np.int64)
    counts = np.zeros(room, np.int64)
    most: Int = np.int64(0)
    for tile in range(first_tile, last_tile):
        used = _enter_tile(slots, tile, first_cell)
        counts[:used] = 0
        total: Int = np.int64(0)
        begin = np.uint64(predicates.start[tile * LINE_BITS])
        for p in range(begin, np.uint64(predicates.start[min(boxes, (tile + 1) * LINE_BITS)])):
            a = predicates.attribute[p]
            if first_cell[a] >= 0:
                shift = slots.cell_shift[a]
                low_cell = first_cell[a] + cell_of(predicates.low[p] & RANK, shift)
                high_cell = first_cell[a] + cell_of(predicates.high[p] & RANK, shift)
                has_low, has_high = low[p] != ABSENT, high[p] != LAST
                counts[np.uint64(low_cell)] += has_low
                counts[np.uint64(high_cell)] += has_high
                total += np.int64(has_low) + np.int64(has_high)
        for s in range(slots.start[tile], slots.start[tile + 1]):
            a = slots.attribute[s]
            for cell in range(slots.cell_count[a]):
                line = slots.line[s] + cell * np.int64(slots.step[a])
                start[line + 1] = counts[first_cell[a] + cell]
        _leave_tile(slots, tile, first_cell)
        most = max(most, total)
    return most


@kernel
def _list_endpoints(
    slots: TileSlots,
    predicates: RankedPredicates,
    bounds: tuple[Int64Array, Int64Array],
    sizes: tuple[Int, Int],
    first_tile: Int,
    last_tile: Int,
    start: Int64Array,
    keys: Int64Array,
    owner: Int32Array,
) -> None:
    """Write the endpoints of some tiles' lines, ascending.

    They are put in order tile by tile, since a tile's lines may lie far apart.
    """
    low, high = bounds
    room, most = sizes
    boxes = len(predicates.start) - 1
    first_cell = np.full(len(slots.cell_shift), -1, np.int64)
    cursor = np.empty(room + 1, np.int64)
    found_keys = np.empty(most, np.int64)
    found_owner = np.empty(most, np.int32)
    for tile in range(first_tile, last_tile):
        _enter_tile(slots, tile, first_cell)
        total = np.int64(0)
        for s in range(slots.start[tile], slots.start[tile + 1]):
            a = slots.attribute[s]
            for cell in range(slots.cell_count[a]):
                line = slots.line[s] + cell * np.int64(slots.step[a])
                cursor[first_cell[a] + cell] = total
                total += start[line + 1] - start[line]
        for box in range(tile * LINE_BITS, min(boxes, (tile + 1) * LINE_BITS)):
            for p in range(np.uint64(predicates.start[box]), np.uint64(predicates.start[box + 1])):
                a = predicates.attribute[p]
                if first_cell[a] < 0:
                    continue
                shift = slots.cell_shift[a]
                if low[p] != ABSENT:
                    into = np.uint64(first_cell[a] + cell_of(predicates.low[p] & RANK, shift))
                    found_keys[np.uint64(cursor[into])] = low[p]
                    found_owner[np.uint64(cursor[into])] = box
                    cursor[into] += 1
                if high[p] != LAST:
                    into = np.uint64(first_cell[a] + cell_of(predicates.high[p] & RANK, shift))
                    found_keys[np.uint64(cursor[into])] = high[p] + 1
                    found_owner[np.uint64(cursor[into])] = ~box
                    cursor[into] += 1
        for s in range(slots.start[tile], slots.start[tile + 1]):
            a = slots.attribute[s]
            for cell in range(slots.cell_count[a]):
                line = slots.line[s] + cell * np.int64(slots.step[a])
                size = start[line + 1] - start[line]
                end = cursor[first_cell[a] + cell]
                _sort_endpoints(found_keys, found_owner, end - size, end)
                for i in range(size):
                    keys[start[line] + i] = found_keys[end - size + i]
                    owner[start[line] + i] = found_owner[end - size + i]
        _leave_tile(slots, tile, first_cell)


@kernel
def _sort_endpoints(keys: Int64Array, owner: Int32Array, first: Int, last: Int) -> None:
    """Shell's sort of a line's endpoints, a handful as a rule."""
    for gap in (301, 57, 10, 1):
        for i in range(first + gap, last):
            key, box = keys[i], owner[i]
            j = i
            while j >= first + gap and keys[j - gap] > key:
                keys[j], owner[j] = keys[j - gap], owner[j - gap]
                j -= gap
            keys[j], owner[j] = key, box
