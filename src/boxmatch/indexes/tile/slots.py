"""Slots, their lines (which boxes of a tile could hold a point, cell by cell) and endpoints."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.tile.layout import RankedPredicates
from boxmatch.indexes.tile.ranks import cell_of, shifts_for
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, count_bits, load_line
from boxmatch.kernels.jit import kernel
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


@kernel
def _cells(predicates: RankedPredicates, p: Int, shift: Int, whole: bool) -> tuple[Int, Int]:
    """First and last cell that a predicate touches or, if `whole`, covers."""
    if not whole:
        return cell_of(predicates.low[p], shift), cell_of(predicates.high[p], shift)
    low = predicates.sure_low[p]
    high = predicates.sure_high[p]
    first = cell_of(low, shift)
    last = cell_of(high, shift)
    if first > 0 and ((first - 1) << shift) + 1 < low:
        first += 1
    if last > 0 and (last << shift) > high:
        last -= 1
    return first, last


@kernel
def fill_lines(
    slots: TileSlots,
    predicates: RankedPredicates,
    lines: BitLines,
) -> None:
    """Draw the lines: a box has its bit in every cell that its predicate touches."""
    slot_start, slot_attribute, slot_line = slots.start, slots.attribute, slots.line
    cell_shift, cell_count, step = slots.cell_shift, slots.cell_count, slots.step
    start, attribute = predicates.start, predicates.attribute
    dimensions = len(cell_shift)
    count = len(start) - 1
    slot_of = np.full(dimensions, -1, np.int64)
    for tile in range(len(slot_start) - 1):
        first_box = tile * LINE_BITS
        last_box = min(count, first_box + LINE_BITS)
        for s in range(slot_start[tile], slot_start[tile + 1]):
            slot_of[slot_attribute[s]] = s
            # Every box passes the whole axis, until a predicate says otherwise.
            for box in range(first_box, last_box):
                bit = box - first_box
                lines[slot_line[s], bit >> 6] |= np.uint64(1) << np.uint64(bit & 63)
        for box in range(first_box, last_box):
            word = (box - first_box) >> 6
            bit_mask = np.uint64(1) << np.uint64((box - first_box) & 63)
            for p in range(start[box], start[box + 1]):
                a = attribute[p]
                s = slot_of[a]
                if s < 0:
                    continue
                first, last = _cells(predicates, p, cell_shift[a], False)
                base = slot_line[s]
                # Bits that change from one cell to the next; running them up gives the lines.
                if first > last:
                    lines[base, word] ^= bit_mask
                    continue
                if first > 0:
                    lines[base, word] ^= bit_mask
                    lines[base + first * step[a], word] ^= bit_mask
                if last + 1 < cell_count[a]:
                    lines[base + (last + 1) * step[a], word] ^= bit_mask
        for s in range(slot_start[tile], slot_start[tile + 1]):
            a = slot_attribute[s]
            slot_of[a] = -1
            line = slot_line[s]
            for _ in range(1, cell_count[a]):
                for word in range(LINE_WORDS):
                    lines[line + step[a], word] ^= lines[line, word]
                line += step[a]


@kernel
def order_slots(slots: TileSlots, lines: BitLines, slot_depth: UInt16Array) -> None:
    """Put each tile's most selective slots first, and say how many leave few boxes."""
    attribute, line = slots.attribute, slots.line
    passing = np.empty(len(slots.cell_shift), np.float64)
    for tile in range(len(slots.start) - 1):
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


@kernel
def mark_unsettled(
    slots: TileSlots,
    predicates: RankedPredicates,
    unsettled: BitLines,
    unlined: BitLines,
) -> None:
    """A box is settled if each of its predicates has lines that lose nothing of it."""
    cell_shift = slots.cell_shift
    start, attribute = predicates.start, predicates.attribute
    line_of = np.full(len(cell_shift), -1, np.int32)
    count = len(start) - 1
    for tile in range(len(slots.start) - 1):
        first_box = tile * LINE_BITS
        _enter_tile(slots, tile, line_of)
        for box in range(first_box, min(count, first_box + LINE_BITS)):
            settled = True
            lined = True
            for p in range(start[box], start[box + 1]):
                a = attribute[p]
                has_slot = line_of[a] >= 0
                lined = lined and has_slot
                touched = _cells(predicates, p, cell_shift[a], False)
                covered = _cells(predicates, p, cell_shift[a], True)
                settled = settled and has_slot and touched == covered
            bit = box - first_box
            unsettled[tile, bit >> 6] |= np.uint64(not settled) << np.uint64(bit & 63)
            unlined[tile, bit >> 6] |= np.uint64(not lined) << np.uint64(bit & 63)
        _leave_tile(slots, tile, line_of)


LineEndpoints = tuple[Int64Array, Int64Array, Int32Array]
"""Where each line's endpoints begin, their keys in ascending order, and whose they are."""


def no_endpoints() -> LineEndpoints:
    return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)


def collect_endpoints(
    boxes: Boxes, predicates: RankedPredicates, slots: TileSlots, line_count: int
) -> LineEndpoints:
    """The endpoints of predicates, line by line: what settles every doubt that a line leaves."""
    start = np.zeros(line_count + 1, np.int64)
    no_keys, no_owner = no_endpoints()[1:]
    _list_endpoints(slots, predicates, boxes.low, boxes.high, start[1:], no_keys, no_owner)
    np.cumsum(start, out=start)
    keys = np.empty(start[-1], np.int64)
    owner = np.empty(start[-1], np.int32)
    _list_endpoints(slots, predicates, boxes.low, boxes.high, start[:-1].copy(), keys, owner)
    _sort_endpoints(start, keys, owner)
    return start, keys, owner


@kernel
def _enter_tile(slots: TileSlots, tile: int, line_of: Int32Array) -> None:
    for s in range(slots.start[tile], slots.start[tile + 1]):
        line_of[slots.attribute[s]] = slots.line[s]


@kernel
def _leave_tile(slots: TileSlots, tile: int, line_of: Int32Array) -> None:
    for s in range(slots.start[tile], slots.start[tile + 1]):
        line_of[slots.attribute[s]] = -1


@kernel
def _list_endpoints(
    slots: TileSlots,
    predicates: RankedPredicates,
    low: Int64Array,
    high: Int64Array,
    cursor: Int64Array,
    keys: Int64Array,
    owner: Int32Array,
) -> None:
    """Write each line's endpoints from its cursor on, which moves; without keys, count them."""
    boxes = len(predicates.start) - 1
    line_of = np.full(len(slots.cell_shift), -1, np.int32)
    for tile in range(len(slots.start) - 1):
        _enter_tile(slots, tile, line_of)
        for box in range(tile * LINE_BITS, min(boxes, (tile + 1) * LINE_BITS)):
            for p in range(predicates.start[box], predicates.start[box + 1]):
                a = predicates.attribute[p]
                if line_of[a] < 0:
                    continue
                for is_high in (False, True):
                    is_open = high[p] == LAST if is_high else low[p] == ABSENT
                    if is_open:
                        continue
                    rank = predicates.high[p] if is_high else predicates.low[p]
                    cell = cell_of(rank, slots.cell_shift[a])
                    line = line_of[a] + cell * np.int64(slots.step[a])
                    at = cursor[line]
                    cursor[line] += 1
                    if len(keys) > 0:
                        keys[at] = high[p] + 1 if is_high else low[p]
                        owner[at] = ~box if is_high else box
        _leave_tile(slots, tile, line_of)


@kernel
def _sort_endpoints(start: Int64Array, keys: Int64Array, owner: Int32Array) -> None:
    """Shell's sort in each line, which has a handful of endpoints as a rule."""
    for line in range(len(start) - 1):
        first, last = start[line], start[line + 1]
        for gap in (301, 57, 10, 1):
            for i in range(first + gap, last):
                key, box = keys[i], owner[i]
                j = i
                while j >= first + gap and keys[j - gap] > key:
                    keys[j], owner[j] = keys[j - gap], owner[j - gap]
                    j -= gap
                keys[j], owner[j] = key, box
