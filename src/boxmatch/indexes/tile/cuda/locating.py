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
    """The ranks of all keys, and their cells, eight to a word. Sets counts and cursor to 0."""
    ruler = Ruler(cuts, cut_start, guess, guess_shift)
    dimensions = keys.shape[1]
    words = cells.shape[1]
    if cuda.grid(1) == 0:
        cursor[0] = 0
    for i in range(cuda.grid(1), counts.size, cuda.gridsize(1)):
        counts[i] = 0
    for i in range(cuda.grid(1), keys.shape[0] * words, cuda.gridsize(1)):
        event = i // words
        word = np.uint64(0)
        for b in range(8):
            a = (i % words) * 8 + b
            if a < dimensions:
                rank = _rank_of(ruler, a, keys[event, a])
                ranks[event, a] = rank
                word |= np.uint64(_cell_among(rank, scale[a])) << np.uint64(8 * b)
        cells[event, i % words] = word


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
    rows = cuda.shared.array(_PLACES, np.int32)
    thread, threads = np.int32(cuda.threadIdx.x), np.int32(cuda.blockDim.x)
    first_event = np.int32(cuda.blockIdx.x) * 32
    first_word = np.int32(cuda.blockIdx.y) * TILE_GROUPS
    if first_event >= ranks.shape[0]:
        return
    events = min(np.int32(ranks.shape[0]) - first_event, np.int32(32))
    words = min(np.int32(TILE_GROUPS), np.int32(width) - first_word)
    for i in range(thread, 32 * TILE_GROUPS, threads):
        word = first_word + (i & _LAST_GROUP)
        mark = np.uint32(0)
        if (i >> _GROUP_BITS) < events and (i & _LAST_GROUP) < words:
            mark = top[word]
        marks[(i >> _GROUP_BITS) * (TILE_GROUPS + 1) + (i & _LAST_GROUP)] = mark
    for first in range(0, ruling, RULING):
        cuda.syncthreads()
        for i in range(thread, 32 * RULING, threads):
            event, t = i >> _RULING_BITS, first + (i & (RULING - 1))
            if event < events and t < ruling:
                rank = ranks[first_event + event, top_attribute[t]]
                cell = np.int32(_cell_of(rank, np.int64(top_shift[t])))
                rows[i] = (np.int32(top_row[t]) + cell) * np.int32(width) + first_word
        cuda.syncthreads()
        for i in range(thread, events * TILE_GROUPS, threads):
            word = i & _LAST_GROUP
            if word < words:
                event = i >> _GROUP_BITS
                mark = marks[event * (TILE_GROUPS + 1) + word]
                ask = relevant[first >> _RULING_BITS, first_word + word]
                while ask != 0 and mark != 0:
                    t = np.int32(cuda.ffs(ask)) - 1
                    mark &= top[rows[event * RULING + t] + word]
                    ask &= ask - np.uint32(1)
                marks[event * (TILE_GROUPS + 1) + word] = mark
    cuda.syncthreads()
    for i in range(thread, 32 * words, threads):
        tile = (first_word + (i >> 5)) * 32 + (i & 31)
        if tile < tiles:
            bits = np.uint32(0)
            for event in range(32):
                mark = marks[event * (TILE_GROUPS + 1) + (i >> 5)]
                bits |= ((mark >> np.uint32(i & 31)) & np.uint32(1)) << np.uint32(event)
            waiting[tile, cuda.blockIdx.x] = bits
