"""Events on the card: keys, ranks, cells, and the tiles that are live for each."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
from numba import cuda

from boxmatch.indexes.tile.cuda.compiled import card_kernel
from boxmatch.indexes.tile.cuda.tables import cell_among
from boxmatch.indexes.tile.cuda.warps import device_function
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import Ruler, cell_of, rank_of
from boxmatch.model.axis import ABSENT

_GROUP_BITS: Final = 6
TILE_GROUPS: Final = 1 << _GROUP_BITS
"""Words of 32 tiles that a block marks."""

_MARKS: Final = 32 * (TILE_GROUPS + 1)
_LAST_GROUP: Final = TILE_GROUPS - 1
_RULING_BITS: Final = 5
RULING: Final = 1 << _RULING_BITS
"""Attributes of the directory at a time."""

_PLACES: Final = 32 * RULING
_LIMIT: Final = 2.0**63

_rank_of = device_function(rank_of)
_cell_of = device_function(cell_of)
_cell_among = device_function(cell_among)


def relevant(state: TileState) -> npt.NDArray[np.uint32]:
    """Which attributes of the directory, by bits, rule out some of each 32 tiles.

    Only those do that all boxes of a tile want, and then an event without them is ruled out.
    """
    top = state.top.view(np.uint32).reshape(-1, (len(state.unsettled) + 511) // 512 * 16)
    parts = (len(state.top_row) + RULING - 1) // RULING
    bits = np.zeros((parts, top.shape[1]), np.uint32)
    for t, row in enumerate(state.top_row.tolist()):
        rules_out = (top[row] != top[0]).astype(np.uint32)
        bits[t // RULING] |= rules_out << np.uint32(t % RULING)
    return bits


@card_kernel()
def keys_of_floats(values: Any, whole: Any, keys: Any, refused: Any) -> None:
    """The keys of a table of floats, NaN absent; marks what an axis of ints refuses."""
    for i in range(cuda.grid(1), values.size, cuda.gridsize(1)):
        event, a = i // whole.size, i % whole.size
        value = values[event, a]
        key = np.int64(ABSENT)
        if value == value:
            if whole[a] != 0:
                if -_LIMIT < value < _LIMIT and value == np.float64(np.int64(value)):
                    key = np.int64(value)
                else:
                    refused[0] = 1
            else:
                bits = np.float64(abs(value)).view(np.int64)
                key = -bits if value < 0.0 else bits
        keys[event, a] = key


@card_kernel()
def find_cells(
    keys: Any,
    cuts: Any,
    cut_start: Any,
    guess: Any,
    guess_shift: Any,
    scale: Any,
    ranks: Any,
    cells: Any,
    counts: Any,
    cursor: Any,
) -> None:
    """The ranks of all keys, and their cells. Sets counts and cursor to 0."""
    ruler = Ruler(cuts, cut_start, guess, guess_shift)
    dimensions = keys.shape[1]
    if cuda.grid(1) == 0:
        cursor[0] = 0
    for i in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        counts[i] = 0
    for i in range(cuda.grid(1), keys.size, cuda.gridsize(1)):
        event, a = i // dimensions, i % dimensions
        rank = _rank_of(ruler, a, keys[event, a])
        ranks[event, a] = rank
        cells[event, a] = _cell_among(rank, scale[a])


@card_kernel()
def mark_waiting(
    ranks: Any,
    top: Any,
    width: Any,
    top_attribute: Any,
    top_shift: Any,
    top_row: Any,
    relevant: Any,
    ruling: Any,
    tiles: Any,
    waiting: Any,
) -> None:
    """For each tile the events for which it is live, as bits of 32.

    Block (32 events, 2,048 tiles). `top` has the rows of the directory as `width` words of 32
    tiles, for so many `ruling` attributes; `relevant` says by bits which rule out tiles of a word.
    """
    marks = cuda.shared.array(_MARKS, np.uint32)
    rows = cuda.shared.array(_PLACES, np.uint32)
    thread, threads = np.uint32(cuda.threadIdx.x), np.uint32(cuda.blockDim.x)
    first_event = np.uint32(cuda.blockIdx.x) * np.uint32(32)
    first_word = np.uint32(cuda.blockIdx.y) * np.uint32(TILE_GROUPS)
    if first_event >= np.uint32(ranks.shape[0]):
        return
    events = min(np.uint32(ranks.shape[0]) - first_event, np.uint32(32))
    all_words = np.uint32(width)
    words = min(np.uint32(TILE_GROUPS), all_words - first_word)
    for i in range(thread, np.uint32(32 * TILE_GROUPS), threads):
        event, word = i >> np.uint32(_GROUP_BITS), i & np.uint32(_LAST_GROUP)
        mark = np.uint32(0)
        if event < events and word < words:
            mark = top[first_word + word]
        marks[event * np.uint32(TILE_GROUPS + 1) + word] = mark
    for first in range(np.uint32(0), np.uint32(ruling), np.uint32(RULING)):
        cuda.syncthreads()
        for i in range(thread, np.uint32(32 * RULING), threads):
            event, t = i >> np.uint32(_RULING_BITS), first + (i & np.uint32(RULING - 1))
            if event < events and t < np.uint32(ruling):
                rank = ranks[first_event + event, np.uint32(top_attribute[t])]
                cell = np.uint32(_cell_of(rank, np.int64(top_shift[t])))
                rows[i] = (np.uint32(top_row[t]) + cell) * all_words + first_word
        cuda.syncthreads()
        for i in range(thread, events * np.uint32(TILE_GROUPS), threads):
            word = i & np.uint32(_LAST_GROUP)
            if word < words:
                event = i >> np.uint32(_GROUP_BITS)
                own = event * np.uint32(TILE_GROUPS + 1) + word
                mark = marks[own]
                ask = relevant[first >> np.uint32(_RULING_BITS), first_word + word]
                while ask != 0 and mark != 0:
                    t = np.uint32(cuda.ffs(ask)) - np.uint32(1)
                    mark &= top[rows[event * np.uint32(RULING) + t] + word]
                    ask &= ask - np.uint32(1)
                marks[own] = mark
    cuda.syncthreads()
    for i in range(thread, np.uint32(32) * words, threads):
        word, bit = i >> np.uint32(5), i & np.uint32(31)
        tile = (first_word + word) * np.uint32(32) + bit
        if tile < np.uint32(tiles):
            bits = np.uint32(0)
            for event in range(32):
                mark = marks[word + np.uint32(event * (TILE_GROUPS + 1))]
                bits |= ((mark >> bit) & np.uint32(1)) << np.uint32(event)
            waiting[tile, np.uint32(cuda.blockIdx.x)] = bits
