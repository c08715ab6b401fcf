"""Many events against boxes of which a good part match, box by box.

Lines leave doubt in each cell, and where most candidates survive, settling it costs more than all
else. Here the roles are swapped: 512 events make a block, and a box gets a line with a bit for each
event. Along an attribute, the events that a predicate holds are neighbours once the events are in
the order of their keys, so the bits are those before its upper end less those before its lower end:
two lines out of a table of 513, found by rank. What a box costs depends on its predicates only, not
on how many events it holds. For counts, the lines of boxes are added up in bit planes. For lists,
the lines of a tile are transposed, which gives every event its boxes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from boxmatch.arrays import (
    BitLines,
    Int,
    Int32Array,
    Int64Array,
    UInt16Array,
    UInt16Table,
    UInt64Array,
)
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import INEXACT, RANK, Ruler, locate, mark_live, rank_of
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    count_below,
    count_bits,
    full_line,
    load_line,
    or_lines,
    shift_left,
    shift_right,
    store_line,
    trailing_zeros,
    word_line,
    xor_lines,
    zero_lines,
)
from boxmatch.kernels.box_lists import SPARE, is_alive, list_line
from boxmatch.kernels.jit import inlined, kernel
from boxmatch.model.axis import LAST

BLOCK_EVENTS = LINE_BITS

LEAST_EVENTS = 64
"""Fewer do not pay for looking at all boxes, nor for asking whether they do."""

_PROBED_EVENTS = 32
_PROBED_TILES = 64

# Costs of one event, measured, about nanoseconds: of a line of a tile, and where lines lie in rows;
# of a tile in which some box is left, of a candidate that lines do not settle, and of each of its
# predicates up to one that does not hold; of a slot, if events pass the rows one by one. For a
# block, that of a key, and of a predicate; and for one event that of listing its boxes in a tile.
_LINE_COST = 1.0
_ROW_LINE_COST = 8.0
_LEFT_COST = 43.0
_CANDIDATE_COST = 4.5
_CHECK_COST = 1.2
_ROW_SLOT_COST = 3.0
_KEY_COST = 25.0
_PREDICATE_COST = 6.0
_TILE_COST = 20.0

_COMPARED = 8
"""Events that are compared with a bound at once: as a rule, all that have its rank."""

_PLANES = 32
"""A count has at most so many bits."""


@kernel
def blocks_pay(state: TileState, keys: Int64Array, listing: bool, in_rows: bool) -> bool:
    """Would these events leave so many candidates by lines that blocks are cheaper?

    `in_rows`: else they would pass the rows one by one.
    """
    by_lines = len(state.slot_line) * _ROW_SLOT_COST if in_rows else _cost_by_lines(state, keys)
    blocks = (len(keys) + BLOCK_EVENTS - 1) // BLOCK_EVENTS
    by_blocks = _PREDICATE_COST * len(state.box_low) * blocks / len(keys)
    by_blocks += _KEY_COST * keys.shape[1]
    if listing:
        by_blocks += _TILE_COST * len(state.unsettled)
    return bool(by_lines > by_blocks)


@kernel
def _cost_by_lines(state: TileState, keys: Int64Array) -> float:
    """For one event, from a look at a few of them in a few tiles."""
    events = min(_PROBED_EVENTS, len(keys))
    tiles = len(state.unsettled)
    start, attribute = state.box_start, state.box_attribute
    probed = min(_PROBED_TILES, tiles)
    sample = np.empty((events, keys.shape[1]), np.int64)
    for e in range(events):
        for a in range(keys.shape[1]):
            sample[e, a] = keys[e * len(keys) // events, a]
    ranks = np.empty(sample.shape, np.uint16)
    cells = np.empty(sample.shape, np.uint8)
    live = np.empty((events * ((tiles + LINE_BITS - 1) // LINE_BITS), LINE_WORDS), np.uint64)
    locate(state, sample, ranks, cells)
    mark_live(state, ranks, live)
    words = live.reshape(events, -1)
    candidates = np.empty((1, LINE_WORDS), np.uint64)
    lines = 0
    left = 0
    checks = 0.0
    for i in range(probed):
        tile = i * tiles // probed
        for e in range(events):
            if not (words[e, tile >> 6] >> np.uint64(tile & 63)) & np.uint64(1):
                continue
            line = load_line(state.filled, tile)
            first = np.int64(state.slot_start[tile])
            for s in range(first, state.slot_start[tile + 1]):
                if s - first >= state.slot_depth[tile] and not any_bit(line):
                    break
                cell = np.int64(cells[e, state.slot_attribute[s]])
                cell *= state.line_step[state.slot_attribute[s]]
                line = and_lines(line, load_line(state.lines, state.slot_line[s] + cell))
                lines += 1
            left += any_bit(line)
            line = and_lines(line, load_line(state.unsettled, tile))
            if any_bit(line):
                store_line(candidates, 0, line)
                box = tile * LINE_BITS + _first_bit(candidates)
                cost = _cost_of_check(start, attribute, state.box_ranks, ranks[e], box)
                checks += count_bits(line) * cost
    line_cost = _ROW_LINE_COST if len(state.row_line) > 0 else _LINE_COST
    by_lines = lines * line_cost + left * _LEFT_COST + checks
    return by_lines * tiles / max(1, probed * events)


@kernel
def _first_bit(line: BitLines) -> Int:
    word = 0
    while line[0, word] == 0:
        word += 1
    return word * 64 + trailing_zeros(line[0, word])


@kernel
def _cost_of_check(
    start: Int64Array, attribute: UInt16Array, ends: UInt16Table, ranks: UInt16Array, box: Int
) -> float:
    """Of one candidate: until a predicate does not hold."""
    cost = _CANDIDATE_COST
    for p in range(start[box], start[box + 1]):
        cost += _CHECK_COST
        rank = ranks[attribute[p]]
        if rank < ends[p, 0] & RANK or rank > ends[p, 1] & RANK:
            break
    return cost


class EventBlock(NamedTuple):
    """The events of a block by attribute, in the order of their keys.

    `place[a, r]` is how many events have a rank below `r`, `ordered[a]` their keys followed by
    some that no bound lies above, and `before[a, i]` has the bits of the first `i` events.
    """

    size: int
    place: UInt16Array
    ordered: Int64Array
    before: UInt64Array


class BlockSearch:
    """Searches an index by blocks of events."""

    def __init__(self, state: TileState) -> None:
        self._state = state
        self._ruler = Ruler(state.cuts, state.cut_start, state.guess, state.guess_shift)
        self._ranks = int(np.diff(state.cut_start).max(initial=0)) + 2

    def count(self, points: Int64Array, alive: BitLines, counts: Int64Array) -> None:
        """Set the counts of all points."""
        for first in range(0, len(points), BLOCK_EVENTS):
            block = self._block(points[first : first + BLOCK_EVENTS])
            planes = zero_lines(_PLANES)
            _count(*self._boxes, self._state.box_ranks, block, alive, zero_lines(LINE_BITS), planes)
            bits = np.unpackbits(planes.view(np.uint8), axis=1, bitorder="little")[:, : block.size]
            weights = np.int64(1) << np.arange(_PLANES)
            counts[first : first + block.size] = weights @ bits

    def list(self, points: Int64Array, alive: BitLines, counts: Int64Array) -> Int32Array:
        """Set the counts of all points, and return the boxes that hold them, point by point."""
        found = []
        size = min(BLOCK_EVENTS, len(points))
        tiles = len(self._state.unsettled)
        by_event = zero_lines(size * tiles)
        for first in range(0, len(points), BLOCK_EVENTS):
            block = self._block(points[first : first + BLOCK_EVENTS])
            block_counts = counts[first : first + block.size]
            lines = zero_lines(LINE_BITS)
            _hold(*self._boxes, self._state.box_ranks, block, alive, lines, by_event, block_counts)
            total = int(block_counts.sum())
            boxes = np.empty(total + SPARE, np.int32)
            _list(by_event, block.size, tiles, boxes)
            found.append(boxes[:total])
        return found[0] if len(found) == 1 else np.concatenate(found)

    @property
    def _boxes(self) -> tuple[Int64Array, UInt16Array, Int64Array, Int64Array]:
        state = self._state
        return state.box_start, state.box_attribute, state.box_low, state.box_high

    def _block(self, points: Int64Array) -> EventBlock:
        size, dimensions = points.shape
        order = np.argsort(points.T, axis=1)
        block = EventBlock(
            size,
            np.empty((dimensions, self._ranks), np.uint16),
            np.empty((dimensions, size + _COMPARED), np.int64),
            zero_lines(dimensions * (size + 1)).reshape(dimensions, size + 1, LINE_WORDS),
        )
        _place_events(self._ruler, points, order, block.place, block.ordered, block.before)
        return block


@kernel
def _place_events(
    ruler: Ruler,
    keys: Int64Array,
    order: Int64Array,
    place: UInt16Array,
    ordered: Int64Array,
    before: UInt64Array,
) -> None:
    """Fill in a block, given the order of its events by each attribute."""
    size = keys.shape[0]
    for a in range(keys.shape[1]):
        rank = 0
        for i in range(size):
            event = order[a, i]
            key = keys[event, a]
            ordered[a, i] = key
            for word in range(LINE_WORDS):
                before[a, i + 1, word] = before[a, i, word]
            before[a, i + 1, event >> 6] |= np.uint64(1) << np.uint64(event & 63)
            of_event = rank_of(ruler, a, key)
            while rank <= of_event:
                place[a, rank] = i
                rank += 1
        for i in range(size, ordered.shape[1]):
            ordered[a, i] = LAST
        while rank < place.shape[1]:
            place[a, rank] = size
            rank += 1


@kernel
def _first_from(ordered: Int64Array, first: Int, position: Int, size: Int, bound: Int) -> Int:
    """The first event, from a position on, whose key is not below the bound."""
    while position < size and ordered[first + position] < bound:
        position += 1
    return position


@kernel
def _box_lines(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    ranks: UInt16Table,
    block: EventBlock,
    alive: BitLines,
    tile: Int,
    lines: BitLines,
) -> None:
    """One line for each box of a tile: the events that it holds; lines without a box are empty."""
    place, ordered = block.place.reshape(-1), block.ordered.reshape(-1)
    before = block.before.reshape(-1)
    places = np.uint64(block.place.shape[1])
    keys = np.uint64(block.ordered.shape[1])
    positions = np.uint64(block.before.shape[1])
    first = tile * LINE_BITS
    last = min(len(start) - 1, first + LINE_BITS)
    p = np.uint64(start[first])
    for box in range(first, last):
        line = full_line()
        stop = np.uint64(start[box + 1])
        while p < stop:
            a = np.uint64(attribute[p])
            # The rank of the first key above: the next one, if the predicate has all keys of its.
            above = np.uint64(ranks[p, 1] & RANK) + np.uint64(ranks[p, 1] < INEXACT)
            begin = np.uint64(place[a * places + np.uint64(ranks[p, 0] & RANK)])
            end = np.uint64(place[a * places + above])
            # The bound after the last key is the smallest key, which no event is below of.
            below = np.uint64(count_below(ordered, np.int64(a * keys + begin), low[p]))
            up_to = np.uint64(count_below(ordered, np.int64(a * keys + end), high[p] + 1))
            begin += below
            end += up_to
            if (below | up_to) & np.uint64(_COMPARED):
                row = np.int64(a * keys)
                begin = np.uint64(_first_from(ordered, row, np.int64(begin), block.size, low[p]))
                if up_to == _COMPARED:
                    bound = high[p] + 1
                    end = np.uint64(_first_from(ordered, row, np.int64(end), block.size, bound))
            until = load_line(before, np.int64(a * positions + end))
            line = and_lines(
                line, and_not_line(until, load_line(before, np.int64(a * positions + begin)))
            )
            p += np.uint64(1)
        store_line(lines, box - first, line)
    empty = and_not_line(full_line(), full_line())
    if len(alive):
        for box in range(first, last):
            if not is_alive(alive, box):
                store_line(lines, box - first, empty)
    for i in range(last - first, LINE_BITS):
        store_line(lines, i, empty)


@inlined
def _add(left: Any, middle: Any, right: Any) -> tuple[Any, Any]:
    """Three lines as numbers of one bit: the sums, and what they carry."""
    differ = xor_lines(left, middle)
    return xor_lines(differ, right), or_lines(and_lines(left, middle), and_lines(differ, right))


@kernel
def _add_lines(lines: BitLines, planes: BitLines) -> None:
    """Add the bits of all lines to the counts in `planes`: plane `i` has their bits of 2 ** i."""
    ones, twos = load_line(planes, 0), load_line(planes, 1)
    fours = load_line(planes, 2)
    for i in range(0, LINE_BITS, 8):
        ones, two_a = _add(ones, load_line(lines, i), load_line(lines, i + 1))
        ones, two_b = _add(ones, load_line(lines, i + 2), load_line(lines, i + 3))
        twos, four_a = _add(twos, two_a, two_b)
        ones, two_a = _add(ones, load_line(lines, i + 4), load_line(lines, i + 5))
        ones, two_b = _add(ones, load_line(lines, i + 6), load_line(lines, i + 7))
        twos, four_b = _add(twos, two_a, two_b)
        fours, carry = _add(fours, four_a, four_b)
        plane = 3
        while any_bit(carry):
            sums = load_line(planes, plane)
            store_line(planes, plane, xor_lines(sums, carry))
            carry = and_lines(sums, carry)
            plane += 1
    store_line(planes, 0, ones)
    store_line(planes, 1, twos)
    store_line(planes, 2, fours)


@kernel
def _count(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    ranks: UInt16Table,
    block: EventBlock,
    alive: BitLines,
    lines: BitLines,
    planes: BitLines,
) -> None:
    """Add up, in `planes`, how many boxes hold each event."""
    for tile in range((len(start) - 1 + LINE_BITS - 1) // LINE_BITS):
        _box_lines(start, attribute, low, high, ranks, block, alive, tile, lines)
        _add_lines(lines, planes)


@kernel
def _transpose_squares(lines: BitLines) -> None:
    """Transpose each square of 64 lines by 64 bits, eight squares at a time."""
    for first in range(0, LINE_BITS, 64):
        step = np.int64(32)
        mask = np.uint64(0x00000000FFFFFFFF)
        while step > 0:
            keep = word_line(mask)
            k = np.int64(0)
            while k < 64:
                upper = load_line(lines, first + k)
                lower = load_line(lines, first + k + step)
                swap = and_lines(xor_lines(shift_right(upper, step), lower), keep)
                store_line(lines, first + k, xor_lines(upper, shift_left(swap, step)))
                store_line(lines, first + k + step, xor_lines(lower, swap))
                k = (k + step + 1) & ~step
            step >>= 1
            mask ^= mask << np.uint64(step)


@kernel
def _hold(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    ranks: UInt16Table,
    block: EventBlock,
    alive: BitLines,
    lines: BitLines,
    by_event: BitLines,
    counts: Int64Array,
) -> None:
    """For each event, a line per tile with the boxes that hold it; and how many do."""
    tiles = (len(start) - 1 + LINE_BITS - 1) // LINE_BITS
    counts[:] = 0
    for tile in range(tiles):
        _box_lines(start, attribute, low, high, ranks, block, alive, tile, lines)
        _transpose_squares(lines)
        for event in range(block.size):
            row = event * tiles + tile
            for group in range(LINE_WORDS):
                by_event[row, group] = lines[group * 64 + (event & 63), event >> 6]
            counts[event] += count_bits(load_line(by_event, row))


@kernel
def _list(by_event: BitLines, events: Int, tiles: Int, boxes: Int32Array) -> None:
    """Write the boxes of all events, one event after the other."""
    at: Int = np.int64(0)
    for event in range(events):
        for tile in range(tiles):
            at = list_line(by_event, event * tiles + tile, tile * LINE_BITS, boxes, at)
