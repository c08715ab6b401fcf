"""What was found: from bits to boxes, and from tile by tile to event by event."""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, Int, Int32Array, Int64Array
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS
from boxmatch.kernels.box_lists import list_word, longer
from boxmatch.kernels.jit import kernel


@kernel
def list_bits(line: BitLines, row: Int, tile: Int, boxes: Int32Array, at: Int) -> Int:
    """Write the boxes whose bits are set to `boxes[at:]`; return where the list then ends."""
    for word in range(LINE_WORDS):
        at = list_word(line[row, word], tile * LINE_BITS + word * 64, boxes, at)
    return at


@kernel
def add_counts(event: Int32Array, size: Int, counts: Int64Array) -> None:
    """Add matches to the counts of their events."""
    for i in range(size):
        counts[event[i]] += 1


@kernel
def collect(
    event: Int32Array,
    box: Int32Array,
    size: Int,
    found_event: Int32Array,
    found_box: Int32Array,
    found: Int,
) -> tuple[Int32Array, Int32Array, Int]:
    """Add matches to those that were found."""
    if found + size > len(found_box):
        found_event = longer(found_event, 2 * found + size)
        found_box = longer(found_box, 2 * found + size)
    for i in range(size):
        found_event[found + i] = event[i]
        found_box[found + i] = box[i]
    return found_event, found_box, found + size


@kernel
def append_by_event(
    result: Int32Array, event: Int32Array, box: Int32Array, counts: Int64Array
) -> Int32Array:
    """`result` followed by the boxes, grouped by event."""
    cursor = np.empty(len(counts), np.int64)
    end = len(result)
    for e in range(len(counts)):
        cursor[e] = end
        end += counts[e]
    grown = longer(result, end)
    for i in range(len(box)):
        grown[cursor[event[i]]] = box[i]
        cursor[event[i]] += 1
    return grown
