"""Counting the boxes that hold many points at once, where a good part of all boxes match.

Lines leave doubt in each cell, and when most candidates survive, settling it costs more than all
else. A sweep has no doubt: along one attribute, the events of a block and the endpoints of a tile's
predicates are passed in order, a line is kept that flips one bit at each end, and every event gets
the line as it stands when its turn comes. Listing boxes instead of counting them would scatter
them over memory: for that, events are taken one by one, through rows.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import BitLines, Int32Array, Int64Array
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.ranks import cell_of, locate
from boxmatch.kernels.bit_lines import (
    LINE_WORDS,
    and_lines,
    any_bit,
    count_bits,
    load_line,
    store_line,
)
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch

SWEEP_EVENTS = 256
"""Fewer events do not pay for passing all the endpoints, nor for asking whether they do."""

SWEEP_BLOCK = 4_096
"""Events that are swept together."""

_PROBED_EVENTS = 32
_PROBED_TILES = 64

# Relative costs, measured: settling one candidate, and passing one slot in a sweep.
_CANDIDATE_COST = 5.0
_SLOT_COST = 1.0


@kernel
def sweeping_pays(state: TileState, keys: Int64Array) -> bool:
    """Would these events leave so many candidates that sweeping is cheaper than settling them?

    Looks at a few events in a few tiles.
    """
    events = min(_PROBED_EVENTS, len(keys))
    tiles = len(state.unsettled)
    probed = min(_PROBED_TILES, tiles)
    sample = np.empty((events, keys.shape[1]), np.int64)
    for e in range(events):
        for a in range(keys.shape[1]):
            sample[e, a] = keys[e * len(keys) // events, a]
    ranks = np.empty(sample.shape, np.uint16)
    cells = np.empty(sample.shape, np.uint8)
    locate(state, sample, ranks, cells)
    slots = 0
    candidates = 0
    for i in range(probed):
        tile = i * tiles // probed
        unsettled = load_line(state.unsettled, tile)
        slots += state.slot_start[tile + 1] - state.slot_start[tile]
        for e in range(events):
            line = unsettled
            for s in range(state.slot_start[tile], state.slot_start[tile + 1]):
                cell = np.int64(cells[e, state.slot_attribute[s]])
                cell *= state.line_step[state.slot_attribute[s]]
                line = and_lines(line, load_line(state.lines, state.slot_line[s] + cell))
                if not any_bit(line):
                    break
            candidates += count_bits(line)
    return candidates * _CANDIDATE_COST > slots * events * _SLOT_COST


def order_events(keys: Int64Array) -> tuple[Int32Array, Int64Array]:
    """For each attribute, the events in ascending order of their keys, and those keys."""
    columns = np.ascontiguousarray(keys.T)
    order = np.argsort(columns, axis=1)
    # Narrow, because all of it passes through the cache for every tile.
    return order.astype(np.int32), np.take_along_axis(columns, order, axis=1)


@kernel
def sweep_tile(
    state: TileState,
    tile: int,
    alive: BitLines,
    order: Int32Array,
    ordered: Int64Array,
    matches: BitLines,
) -> None:
    """One line per event: the boxes of the tile that hold it, as far as slots can tell."""
    endpoint_start = state.endpoint_start
    endpoint_key, endpoint_box = state.endpoint_key, state.endpoint_box
    base = load_line(alive if len(alive) else state.filled, tile)
    size = order.shape[1]
    first_slot = state.slot_start[tile]
    if first_slot == state.slot_start[tile + 1]:
        for e in range(size):
            store_line(matches, e, base)
    current = np.empty((1, LINE_WORDS), np.uint64)
    for s in range(first_slot, state.slot_start[tile + 1]):
        a = state.slot_attribute[s]
        step = np.int64(state.line_step[a])
        row = np.int64(state.slot_line[s])
        ranks = np.int64(state.cut_start[a + 1] - state.cut_start[a])
        # Cell 0 is "absent", below every end.
        line = load_line(state.lines, row)
        store_line(current, 0, line)
        i = 0
        for cell in range(cell_of(ranks, state.cell_shift[a]) + 1):
            # The endpoints of the cells to come lie far away.
            if cell + 3 <= cell_of(ranks, state.cell_shift[a]):
                prefetch(endpoint_start, row + 4 * step)
                ahead = endpoint_start[row + 2 * step]
                prefetch(endpoint_key, ahead)
                prefetch(endpoint_box, ahead)
            for at in range(endpoint_start[row], endpoint_start[row + 1]):
                while i < size and ordered[a, i] < endpoint_key[at]:
                    place = np.int64(order[a, i])
                    before = base if s == first_slot else load_line(matches, place)
                    store_line(matches, place, and_lines(before, line))
                    i += 1
                box = endpoint_box[at] ^ (endpoint_box[at] >> 31)
                word = (box >> 6) & (LINE_WORDS - 1)
                current[0, word] ^= np.uint64(1) << np.uint64(box & 63)
                line = load_line(current, 0)
            row += step
        while i < size:
            place = np.int64(order[a, i])
            before = base if s == first_slot else load_line(matches, place)
            store_line(matches, place, and_lines(before, line))
            i += 1
