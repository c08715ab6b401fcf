"""The endpoints of predicates, line by line: what settles every doubt that a line leaves."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import Int, Int32Array, Int64Array
from boxmatch.indexes.tile.layout import Predicates
from boxmatch.indexes.tile.ranks import cell_of
from boxmatch.indexes.tile.slots import Slots
from boxmatch.kernels.bit_lines import LINE_BITS
from boxmatch.kernels.jit import kernel
from boxmatch.model.axis import ABSENT, LAST
from boxmatch.model.boxes import Boxes

Endpoints = tuple[Int64Array, Int64Array, Int32Array]


def no_endpoints() -> Endpoints:
    return np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int32)


def collect_endpoints(
    boxes: Boxes, predicates: Predicates, slots: Slots, line_count: int
) -> Endpoints:
    """Where each line's endpoints begin, their keys in ascending order, and whose they are."""
    start = np.zeros(line_count + 1, np.int64)
    _place_endpoints(slots, predicates, boxes.low, boxes.high, start)
    np.cumsum(start, out=start)
    keys = np.empty(start[-1], np.int64)
    owner = np.empty(start[-1], np.int32)
    _fill_endpoints(slots, predicates, boxes.low, boxes.high, start.copy(), keys, owner)
    _sort_endpoints(start, keys, owner)
    return start, keys, owner


@kernel
def _enter_tile(slots: Slots, tile: int, line_of: Int32Array) -> None:
    for s in range(slots.start[tile], slots.start[tile + 1]):
        line_of[slots.attribute[s]] = slots.line[s]


@kernel
def _leave_tile(slots: Slots, tile: int, line_of: Int32Array) -> None:
    for s in range(slots.start[tile], slots.start[tile + 1]):
        line_of[slots.attribute[s]] = -1


@kernel
def _line(slots: Slots, line_of: Int32Array, a: Int, rank: Int) -> Int:
    """The line of attribute `a` in the tile at hand that a rank belongs to."""
    line: Int = line_of[a] + cell_of(rank, slots.cell_shift[a]) * np.int64(slots.step[a])
    return line


@kernel
def _place_endpoints(
    slots: Slots, predicates: Predicates, low: Int64Array, high: Int64Array, counts: Int64Array
) -> None:
    """Count the endpoints in each line, one place further on."""
    boxes = len(predicates.start) - 1
    line_of = np.full(len(slots.cell_shift), -1, np.int32)
    for tile in range(len(slots.start) - 1):
        _enter_tile(slots, tile, line_of)
        first = predicates.start[tile * LINE_BITS]
        last = predicates.start[min(boxes, (tile + 1) * LINE_BITS)]
        for p in range(first, last):
            a = predicates.attribute[p]
            if line_of[a] >= 0:
                if low[p] != ABSENT:
                    counts[_line(slots, line_of, a, predicates.low[p]) + 1] += 1
                if high[p] != LAST:
                    counts[_line(slots, line_of, a, predicates.high[p]) + 1] += 1
        _leave_tile(slots, tile, line_of)


@kernel
def _fill_endpoints(
    slots: Slots,
    predicates: Predicates,
    low: Int64Array,
    high: Int64Array,
    cursor: Int64Array,
    keys: Int64Array,
    owner: Int32Array,
) -> None:
    boxes = len(predicates.start) - 1
    line_of = np.full(len(slots.cell_shift), -1, np.int32)
    for tile in range(len(slots.start) - 1):
        _enter_tile(slots, tile, line_of)
        for box in range(tile * LINE_BITS, min(boxes, (tile + 1) * LINE_BITS)):
            for p in range(predicates.start[box], predicates.start[box + 1]):
                a = predicates.attribute[p]
                if line_of[a] < 0:
                    continue
                if low[p] != ABSENT:
                    line = _line(slots, line_of, a, predicates.low[p])
                    keys[cursor[line]] = low[p]
                    owner[cursor[line]] = box
                    cursor[line] += 1
                if high[p] != LAST:
                    line = _line(slots, line_of, a, predicates.high[p])
                    keys[cursor[line]] = high[p] + 1
                    owner[cursor[line]] = ~box
                    cursor[line] += 1
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
