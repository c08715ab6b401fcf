"""The directory: which tiles could hold a point at all.

Where every box of a tile constrains an attribute, an event that is outside all of them, or lacks
the attribute, need not look at the tile.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BitLines, Int32Array, Int64Array, UInt8Array, UInt16Array
from boxmatch.indexes.tile.layout import Predicates
from boxmatch.indexes.tile.ranks import cell_of, shifts_for
from boxmatch.kernels.bit_lines import LINE_BITS, LINE_WORDS, filled_lines, zero_lines
from boxmatch.kernels.jit import kernel

_MOST_CELLS = 4_096


def make_directory(
    predicates: Predicates, cut_start: Int32Array, constrained: UInt16Array
) -> tuple[UInt16Array, UInt8Array, Int32Array, BitLines]:
    """The attributes that rule out tiles, their shifts and first rows, and the rows.

    `constrained` says how many boxes of each tile constrain each attribute.
    """
    tiles, dimensions = constrained.shape
    sizes = np.full(tiles, LINE_BITS)
    sizes[-1:] = len(predicates.start) - 1 - (tiles - 1) * LINE_BITS
    mandatory = constrained == sizes[:, None]
    tiles_ruled = np.count_nonzero(mandatory, axis=0)
    attributes = np.nonzero(tiles_ruled)[0].astype(np.uint16)
    ranks = np.diff(cut_start)[attributes].astype(np.int64)
    # Cells in proportion to the tiles that they can tell apart.
    shift = shifts_for(ranks, np.clip(4 * tiles_ruled[attributes], 16, _MOST_CELLS))
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
    predicates: Predicates,
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
