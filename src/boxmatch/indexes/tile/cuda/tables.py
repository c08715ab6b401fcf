"""The tables of a tile index for a card, drawn by the processor: lines of 32 cells a slot.

A warp holds a line of 32 boxes in its registers, a cell to a lane. So an attribute has 32 cells
here, that of absent values among them, and boxes whose bits lines leave are all checked: lines may
say yes too often, never no.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import (
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt64Array,
)
from boxmatch.indexes.tile.cuda.order import arrange_boxes
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import Ruler, rank_of
from boxmatch.kernels.bit_lines import LINE_BITS
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.threads import each, split

UInt32Array = npt.NDArray[np.uint32]

CELLS: Final = 32
SLOTS: Final = 20
"""Attributes of a tile, at most, that have lines; boxes are checked for the others."""

TILE_WORDS: Final = 16
"""Of 32 boxes."""

SLOT_LINES: Final = TILE_WORDS * CELLS
_LAST_CELL: Final = CELLS - 1
_TILES: Final = 16


class CellTables(NamedTuple):
    """Lines of 32 boxes by tile, slot, word and cell.

    Tile `t` has `depth[t]` slots, whose attributes are `attribute[t]`, and their lines from
    `line[t]` on. If `attribute` has one dimension, those of all tiles are the first ones in order.
    `order` says which of its boxes is at each place of a tile.
    """

    depth: UInt8Array
    attribute: UInt16Array
    line: Int64Array
    lines: UInt32Array
    order: UInt16Array


@kernel
def cell_among(rank: Int, scale: np.uint64) -> Int:
    """The cell of a rank; rank 0, "absent", has one of its own. `scale` is that of `scales`."""
    if rank == 0:
        return 0
    return np.int64((np.uint64(rank - 1) * scale) >> np.uint64(32)) + 1


def scales(cut_start: Int32Array) -> UInt64Array:
    """By attribute: cells for a rank, in units of 2 ** -32. Few ranks have a cell each."""
    ranks = np.maximum(1, np.diff(cut_start)).astype(np.uint64)
    return (np.minimum(ranks, np.uint64(_LAST_CELL)) << np.uint64(32)) // ranks


def draw_tables(state: TileState, threads: int | None = None) -> CellTables:
    """The lines of all tiles: of all attributes in order, or of the most selective slots."""
    tiles = len(state.unsettled)
    dimensions = len(state.cut_start) - 1
    attribute = np.zeros((tiles, SLOTS), np.uint16)
    if dimensions <= SLOTS:
        depth = np.full(tiles, dimensions, np.uint8)
        attribute[:] = np.arange(SLOTS, dtype=np.uint16)
    else:
        slots = np.diff(state.slot_start)
        depth = np.minimum(slots, SLOTS).astype(np.uint8)
        for slot in range(SLOTS):
            has = slots > slot
            attribute[has, slot] = state.slot_attribute[state.slot_start[:-1][has] + slot]
    end = np.cumsum(depth, dtype=np.int64) * SLOT_LINES
    first = end - depth * np.int64(SLOT_LINES)
    lines = np.empty(int(end[-1]) if tiles else 0, np.uint32)
    order = arrange_boxes(state, depth, attribute, threads)
    ruler = Ruler(state.cuts, state.cut_start, state.guess, state.guess_shift)
    scale = scales(state.cut_start)
    boxes = state.box_start, state.box_attribute, state.box_low, state.box_high
    each(
        lambda part: _draw(ruler, scale, *boxes, depth, attribute, first, lines, order, *part),
        split(tiles, threads, least=_TILES),
    )
    if dimensions <= SLOTS:
        attribute = attribute[:1].ravel()
    return CellTables(depth, attribute, first, lines, order)


@kernel
def _draw(
    ruler: Ruler,
    scale: UInt64Array,
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    depth: UInt8Array,
    slot_attribute: UInt16Array,
    first_line: Int64Array,
    lines: UInt32Array,
    order: UInt16Array,
    first_tile: Int,
    last_tile: Int,
) -> None:
    slot_of = np.full(len(ruler.cut_start) - 1, -1, np.int64)
    for tile in range(first_tile, last_tile):
        begin = first_line[tile]
        for s in range(depth[tile]):
            slot_of[slot_attribute[tile, s]] = s
            # First the bits that change from one cell to the next: all boxes pass cell 0 on.
            for word in range(TILE_WORDS):
                for cell in range(CELLS):
                    lines[begin + s * SLOT_LINES + word * CELLS + cell] = (
                        np.uint32(0xFFFFFFFF) if cell == 0 else np.uint32(0)
                    )
        for place in range(LINE_BITS):
            box = tile * LINE_BITS + order[tile * LINE_BITS + place]
            if box >= len(start) - 1:
                break
            bit = np.uint32(1) << np.uint32(place & 31)
            word = place >> 5
            for p in range(start[box], start[box + 1]):
                a = attribute[p]
                s = slot_of[a]
                if s < 0:
                    continue
                at = begin + s * SLOT_LINES + word * CELLS
                lines[at] ^= bit
                if low[p] > high[p]:
                    continue  # nothing is inside
                lines[at + cell_among(rank_of(ruler, a, low[p]), scale[a])] ^= bit
                after = cell_among(rank_of(ruler, a, high[p]), scale[a]) + 1
                if after < CELLS:
                    lines[at + after] ^= bit
        for s in range(depth[tile]):
            slot_of[slot_attribute[tile, s]] = -1
            for word in range(TILE_WORDS):
                at = begin + s * SLOT_LINES + word * CELLS
                for cell in range(1, CELLS):
                    lines[at + cell] ^= lines[at + cell - 1]


class Runs(NamedTuple):
    """Predicates of 32 boxes together, attribute by attribute.

    Word `w` has the runs `start[w]:start[w + 1]`; run `r` is about `attribute[r]` and has the
    predicates `first[r]:first[r + 1]`: `low`, how many keys follow that are inside too, and the
    bit of the box. Boxes that nothing is inside of are only in `never`, as bits.
    """

    start: Int64Array
    attribute: UInt16Array
    first: Int64Array
    low: Int64Array
    more: npt.NDArray[np.uint64]
    bit: UInt32Array
    never: UInt32Array


def make_runs(state: TileState, threads: int | None = None) -> Runs:
    """The predicates of all boxes in this order."""
    words = len(state.unsettled) * TILE_WORDS
    size = len(state.box_attribute)
    dimensions = len(state.cut_start) - 1
    counts = np.zeros(words + 1, np.int64)
    runs = np.empty(size, np.uint16)
    firsts = np.empty(size + 1, np.int64)
    low, more = np.empty(size, np.int64), np.empty(size, np.uint64)
    bit = np.empty(size, np.uint32)
    never = np.zeros(words, np.uint32)
    boxes = state.box_start, state.box_attribute, state.box_low, state.box_high
    each(
        lambda part: _group(*boxes, dimensions, *part, counts, runs, firsts, low, more, bit, never),
        split(words, threads, least=_TILES * TILE_WORDS),
    )
    return Runs(*_close_up(boxes[0], counts, runs, firsts), low, more, bit, never)


@kernel
def _group(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    dimensions: Int,
    first_word: Int,
    last_word: Int,
    counts: Int64Array,
    runs: UInt16Array,
    firsts: Int64Array,
    low_out: Int64Array,
    more: npt.NDArray[np.uint64],
    bit: UInt32Array,
    never: UInt32Array,
) -> None:
    """Sort the predicates of each word; its runs begin where its predicates do."""
    boxes = len(start) - 1
    places = np.zeros(dimensions, np.int64)
    for word in range(first_word, last_word):
        first, last = min(boxes, word * 32), min(boxes, word * 32 + 32)
        begin, end = start[first], start[last]
        for p in range(begin, end):
            places[attribute[p]] += 1
        at = begin
        for a in range(dimensions):
            if places[a] > 0:
                runs[begin + counts[word + 1]] = a
                firsts[begin + counts[word + 1]] = at
                counts[word + 1] += 1
                at += places[a]
                places[a] = at - places[a]
        for box in range(first, last):
            mask = np.uint32(1) << np.uint32(box & 31)
            for p in range(start[box], start[box + 1]):
                place = places[attribute[p]]
                places[attribute[p]] += 1
                low_out[place] = low[p]
                more[place] = np.uint64(high[p]) - np.uint64(low[p])
                bit[place] = mask
                if low[p] > high[p]:
                    never[word] |= mask
        for p in range(begin, end):
            places[attribute[p]] = 0


@kernel
def _close_up(
    box_start: Int64Array, counts: Int64Array, runs: UInt16Array, firsts: Int64Array
) -> tuple[Int64Array, UInt16Array, Int64Array]:
    """The runs one after the other."""
    boxes = len(box_start) - 1
    at = 0
    for word in range(len(counts) - 1):
        begin = box_start[min(boxes, word * 32)]
        count = counts[word + 1]
        for i in range(count):
            runs[at + i] = runs[begin + i]
            firsts[at + i] = firsts[begin + i]
        at += count
        counts[word + 1] = at
    firsts[at] = box_start[boxes]
    return counts, runs[:at].copy(), firsts[: at + 1].copy()
