"""Finding the boxes that hold a point, by lines.

A batch goes tile by tile: the directory gives every event its live tiles, the bit matrix is
transposed so that every tile gets its live events, and a tile's lines stay in the first-level
cache while those events pass. Kernels are called once per tile or block, never per event: handing
over a `TileState` costs more than matching one event in one tile.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt64Array,
)
from boxmatch.indexes.tile.candidates import (
    add_counts,
    append_by_event,
    check,
    collect,
    list_bits,
    settle,
)
from boxmatch.indexes.tile.layout import TileState, unpack
from boxmatch.indexes.tile.ranks import locate, mark_live
from boxmatch.indexes.tile.rows import ROWS_SHARE, search_rows
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    count_bits,
    load_line,
    store_line,
    trailing_zeros,
)
from boxmatch.kernels.box_lists import SPARE, append, hand_over, list_line, longer, once_per_owner
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch

_BLOCK = 2_048
"""Events that pass a tile together."""

_AHEAD = 3
_LINES_AHEAD = 128
"""For one event: how many live tiles ahead to fetch, and how many of their lines."""

_MOST_UNVERIFIED = 16_384
"""Unverified boxes that are collected before any is looked at."""


@kernel
def _transpose(square: UInt64Array) -> None:
    """Transpose 64 words of 64 bits in place."""
    step = np.int64(32)
    mask = np.uint64(0x00000000FFFFFFFF)
    while step > 0:
        k = np.int64(0)
        while k < 64:
            swap = (square[k] >> np.uint64(step) ^ square[k + step]) & mask
            square[k] ^= swap << np.uint64(step)
            square[k + step] ^= swap
            k = (k + step + 1) & ~step
        step >>= 1
        mask ^= mask << np.uint64(step)


@kernel
def transpose_live(live: BitLines, events: Int, tiles: Int, transposed: BitLines) -> None:
    """From tiles per event to events per tile."""
    square = np.empty(64, np.uint64)
    for word in range((tiles + 63) // 64):
        # Groups past the last event become empty: a block before this one may have been longer.
        for group in range(transposed.shape[1]):
            for i in range(64):
                event = group * 64 + i
                square[i] = live[event, word] if event < events else np.uint64(0)
            _transpose(square)
            for i in range(64):
                transposed[word * 64 + i, group] = square[i]


@kernel
def live_events(transposed: BitLines, tile: Int, events: Int64Array) -> Int:
    """The events for which the tile is live; returns how many."""
    count = 0
    for group in range(transposed.shape[1]):
        bits = transposed[tile, group]
        while bits != 0:
            events[count] = group * 64 + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            count += 1
    return count


@kernel
def _pass_lines(
    state: TileState,
    tile: Int,
    alive: BitLines,
    cells: UInt8Array,
    events: Int64Array,
    count: Int,
    candidates: BitLines,
) -> Int:
    """Keep the events that some box of the tile could hold, with those boxes as candidates."""
    lines = state.lines
    first = state.slot_start[tile]
    slots = np.int64(state.slot_start[tile + 1] - first)
    slot_line = np.empty(slots, np.int64)
    slot_attribute = np.empty(slots, np.uint64)
    slot_step = np.empty(slots, np.int64)
    for s in range(slots):
        slot_line[s] = state.slot_line[first + s]
        slot_attribute[s] = state.slot_attribute[first + s]
        slot_step[s] = state.line_step[state.slot_attribute[first + s]]
    depth = np.int64(state.slot_depth[tile])
    base = load_line(alive if len(alive) else state.filled, tile)
    # Most events die within `depth` lines. Not asking after each line, and packing the survivors
    # without a branch, keeps the processor from guessing wrong.
    # The next tile's lines come from far away: ask for some of them with every event.
    next_tile = min(tile + 1, len(state.slot_start) - 2)
    ahead, stop = state.tile_line[next_tile], state.tile_line[next_tile + 1]
    step = (stop - ahead) // count + 1
    passed = 0
    for i in range(count):
        for _ in range(min(step, stop - ahead)):
            prefetch(lines, ahead)
            ahead += 1
        e = events[i]
        line = base
        for s in range(depth):
            cell = np.int64(cells[e, slot_attribute[np.uint64(s)]]) * slot_step[np.uint64(s)]
            line = and_lines(line, load_line(lines, slot_line[np.uint64(s)] + cell))
        store_line(candidates, passed, line)
        events[passed] = e
        passed += any_bit(line)
    if depth == slots:
        return passed
    count = passed
    passed = 0
    for i in range(count):
        e = events[i]
        line = load_line(candidates, i)
        for s in range(depth, slots):
            cell = np.int64(cells[e, slot_attribute[np.uint64(s)]]) * slot_step[np.uint64(s)]
            line = and_lines(line, load_line(lines, slot_line[np.uint64(s)] + cell))
            if not any_bit(line):
                break
        store_line(candidates, passed, line)
        events[passed] = e
        passed += any_bit(line)
    return passed


@kernel
def search_batch(
    state: TileState,
    keys: Int64Array,
    alive: BitLines,
    skipped: BoolArray,
    listing: bool,
    counts: Int64Array,
) -> Int32Array:
    """Set `counts` to each event's matches; if `listing`, return their boxes, event by event.

    `alive` is empty, or has one line per tile: the boxes that still exist. `skipped` is empty, or
    marks attributes that are not worth a check.
    """
    dimensions = keys.shape[1]
    tiles = len(state.unsettled)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    block = max(64, min(_BLOCK, (len(keys) + 63) // 64 * 64))
    live = np.zeros((block * width, LINE_WORDS), np.uint64)
    transposed = np.zeros((width * LINE_BITS, block // 64), np.uint64)
    ranks = np.empty((block, dimensions), np.uint16)
    cells = np.empty((block, dimensions), np.uint8)
    events = np.arange(block + 1)
    candidates = np.empty((block + 1, LINE_WORDS), np.uint64)
    unverified_event = np.empty(_MOST_UNVERIFIED, np.int32)
    unverified_box = np.empty(_MOST_UNVERIFIED, np.int32)
    found_event = np.empty(64 * block if listing else 0, np.int32)
    found_box = np.empty(64 * block if listing else 0, np.int32)
    result = np.empty(0, np.int32)
    counts[:] = 0
    for first in range(0, len(keys), block):
        size = min(block, len(keys) - first)
        block_keys = keys[first : first + size]
        block_counts = counts[first : first + size]
        locate(state, block_keys, ranks, cells)
        mark_live(state, ranks[:size], live)
        transpose_live(live.reshape(block, width * LINE_WORDS), size, tiles, transposed)
        found: Int = np.int64(0)
        unverified: Int = np.int64(0)
        for tile in range(tiles):
            count: Int = live_events(transposed, tile, events)
            if count > 0:
                count = _pass_lines(state, tile, alive, cells, events, count, candidates)
            settled: Int = np.int64(0)
            while settled < count:
                if unverified + LINE_BITS > _MOST_UNVERIFIED:
                    kept = check(
                        state,
                        block_keys,
                        ranks,
                        skipped,
                        unverified_event,
                        unverified_box,
                        unverified,
                    )
                    add_counts(unverified_event, kept, block_counts)
                    if listing:
                        found_event, found_box, found = collect(
                            unverified_event, unverified_box, kept, found_event, found_box, found
                        )
                    unverified = np.int64(0)
                before = settled
                settled, unverified = settle(
                    state,
                    tile,
                    events,
                    settled,
                    count,
                    candidates,
                    unverified_event,
                    unverified_box,
                    unverified,
                )
                for i in range(before, settled):
                    matched = count_bits(load_line(candidates, i))
                    block_counts[events[i]] += matched
                    if listing and matched > 0:
                        if found + matched > len(found_box):
                            found_event = longer(found_event, 2 * found + LINE_BITS)
                            found_box = longer(found_box, 2 * found + LINE_BITS)
                        found_event[found : found + matched] = events[i]
                        found = list_bits(candidates, i, tile, found_box, found)
        kept = check(
            state, block_keys, ranks, skipped, unverified_event, unverified_box, unverified
        )
        add_counts(unverified_event, kept, block_counts)
        if listing:
            found_event, found_box, found = collect(
                unverified_event, unverified_box, kept, found_event, found_box, found
            )
            result = append_by_event(result, found_event[:found], found_box[:found], block_counts)
    return result


@kernel
def search_few(
    packed: Int64Array,
    alive: BitLines,
    skipped: BoolArray,
    ids: Int64Array,
    owners: Int32Array,
    keys: Int64Array,
    listing: bool,
    room: Int64Array,
) -> Int32Array | None:
    """Take the points one by one; see `Search`."""
    state = unpack(packed)
    found = np.empty(2 * LINE_BITS, np.int32)
    end: Int = np.int64(0)
    listed = listing or len(owners) > 0
    for e in range(len(keys)):
        found, after = _search_point(state, keys[e : e + 1], alive, skipped, listed, found, end)
        after = once_per_owner(owners, found, end, after)
        room[e] = after - end
        end = after if listing else np.int64(0)
    if hand_over(found, end, ids, room, len(keys)):
        return None
    return found[:end]


@kernel
def _search_point(
    state: TileState,
    keys: Int64Array,
    alive: BitLines,
    skipped: BoolArray,
    listing: bool,
    found: Int32Array,
    end: Int,
) -> tuple[Int32Array, Int]:
    """Write the boxes that hold one point to `found[end:]`, or only count them if not `listing`.

    Returns the list, a longer one if it was too short, and where it ends or would end.
    """
    tiles = len(state.unsettled)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    ranks = np.empty(keys.shape, np.uint16)
    cells = np.empty(keys.shape, np.uint8)
    live = np.empty((width, LINE_WORDS), np.uint64)
    waiting = np.empty(tiles + _AHEAD, np.int64)
    locate(state, keys, ranks, cells)
    mark_live(state, ranks, live)
    live_tiles: Int = 0
    for word in range(width * LINE_WORDS):
        bits = live[word >> 3, word & 7]
        while bits != 0:
            waiting[live_tiles] = word * 64 + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            live_tiles += 1
    for i in range(_AHEAD):
        waiting[live_tiles + i] = 0
    exists = alive if len(alive) else state.filled
    if len(state.row_line) > 0 and live_tiles * ROWS_SHARE > tiles:
        return search_rows(state, keys, ranks, cells, exists, skipped, listing, found, end)
    lines, slot_start = state.lines, state.slot_start
    slot_line, slot_attribute = state.slot_line, state.slot_attribute
    # How far the event's cell is from the first line of each slot of an attribute.
    offset = np.empty(keys.shape[1], np.int32)
    for a in range(keys.shape[1]):
        offset[a] = np.int32(cells[0, a]) * state.line_step[a]
    certain = np.empty((1, LINE_WORDS), np.uint64)
    doubtful = np.empty((1, LINE_WORDS), np.uint64)
    unverified_event = np.zeros(2 * LINE_BITS + SPARE, np.int32)
    unverified_box = np.empty(2 * LINE_BITS + SPARE, np.int32)
    unverified: Int = np.int64(0)
    for i in range(live_tiles):
        # Live tiles are scattered over memory: ask for the first lines of one ahead.
        ahead = np.uint64(slot_start[waiting[i + _AHEAD]])
        stop = min(ahead + np.uint64(_LINES_AHEAD), np.uint64(slot_start[waiting[i + _AHEAD] + 1]))
        for s in range(ahead, stop):
            prefetch(lines, np.int64(slot_line[s] + offset[slot_attribute[s]]))
        tile = waiting[i]
        line = load_line(exists, tile)
        for s in range(np.uint64(slot_start[tile]), np.uint64(slot_start[tile + 1])):
            line = and_lines(
                line, load_line(lines, np.int64(slot_line[s] + offset[slot_attribute[s]]))
            )
            if not any_bit(line):
                break
        if not any_bit(line):
            continue
        unsettled = and_lines(line, load_line(state.unsettled, tile))
        store_line(doubtful, 0, unsettled)
        unverified = list_line(doubtful, np.int64(0), tile * LINE_BITS, unverified_box, unverified)
        line = and_not_line(line, unsettled)
        if any_bit(line):
            if listing:
                if end + LINE_BITS + SPARE > len(found):
                    found = longer(found, 2 * len(found) + LINE_BITS + SPARE)
                store_line(certain, 0, line)
                end = list_line(certain, np.int64(0), tile * LINE_BITS, found, end)
            else:
                end += count_bits(line)
        if unverified >= LINE_BITS:
            kept = check(state, keys, ranks, skipped, unverified_event, unverified_box, unverified)
            if listing:
                found, end = append(found, end, unverified_box, kept)
            else:
                end += kept
            unverified = np.int64(0)
    kept = check(state, keys, ranks, skipped, unverified_event, unverified_box, unverified)
    if not listing:
        return found, end + kept
    return append(found, end, unverified_box, kept)
