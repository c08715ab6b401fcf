"""Finding the boxes that hold a point with sets of keys on some axes.

As `search` does it, where each set stands for the union of what the directory, or a line, has for
its keys. Endpoints, rows and blocks know points of one key per axis only. Where tiles have
postings, the boxes come from there.
"""

from __future__ import annotations

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
)
from boxmatch.indexes.base import Query
from boxmatch.indexes.tile.candidates import add_counts, append_by_event, collect, list_bits
from boxmatch.indexes.tile.layout import TileState, unpack
from boxmatch.indexes.tile.postings import ListPlan, unpack_plan
from boxmatch.indexes.tile.ranks import locate
from boxmatch.indexes.tile.search import live_events, transpose_live
from boxmatch.indexes.tile.sets import (
    Unverified,
    entries_of,
    locate_sets,
    mark_live,
    most_keys,
    no_unverified,
    pass_lines,
    settle,
    verify,
)
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    any_bit,
    count_bits,
    load_line,
    or_lines,
    store_line,
    trailing_zeros,
)
from boxmatch.kernels.box_lists import append, is_alive, longer
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.points import ListKeys

_BLOCK = 2_048
"""Events that pass a tile together."""

_TILES_AHEAD = 4
_LINES_AHEAD = 16
"""For one event: how many live tiles ahead to fetch, and how many of their lines."""

_MOST_UNVERIFIED = 16_384
"""Unverified boxes that are collected before any is looked at."""


@kernel
def search_lists(
    packed: Int64Array, packed_plan: Int64Array, query: Query, lists: ListKeys
) -> Int32Array:
    """Set the counts to each event's matches; if listing, return their boxes, event by event."""
    state = unpack(packed)
    plan = unpack_plan(packed_plan)
    keys, alive, skipped, listing, counts = query
    list_of = plan.list_of
    places = len(lists.axes)
    tiles = len(state.unsettled)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    block = max(64, min(_BLOCK, (len(keys) + 63) // 64 * 64))
    live = np.zeros((block * width, LINE_WORDS), np.uint64)
    transposed = np.zeros((width * LINE_BITS, block // 64), np.uint64)
    ranks = np.empty((block, keys.shape[1]), np.uint16)
    cells = np.empty((block, keys.shape[1]), np.uint8)
    events = np.arange(block + 1)
    candidates = np.empty((block + 1, LINE_WORDS), np.uint64)
    unverified = no_unverified(_MOST_UNVERIFIED)
    found_event = np.empty(64 * block if listing else 0, np.int32)
    found_box = np.empty(64 * block if listing else 0, np.int32)
    result = np.empty(0, np.int32)
    counts[:] = 0
    for first in range(0, len(keys), block):
        size = min(block, len(keys) - first)
        block_keys = keys[first : first + size]
        block_counts = counts[first : first + size]
        start = lists.start[first * places : (first + size) * places + 1]
        block_lists = ListKeys(lists.axes, start, lists.keys)
        locate(state, block_keys, ranks, cells)
        sets = locate_sets(state, block_lists, list_of)
        mark_live(state, plan, ranks[:size], block_lists, sets, live)
        transpose_live(live.reshape(block, width * LINE_WORDS), size, tiles, transposed)
        found: Int = np.int64(0)
        open_count: Int = np.int64(0)
        # One more than the tiles: the boxes that are looked up by key.
        for tile in range(tiles + 1):
            count: Int = np.int64(0)
            if tile < tiles:
                count = live_events(transposed, tile, events)
                if count > 0:
                    count = pass_lines(
                        state, tile, alive, cells, sets, list_of, places, events, count, candidates
                    )
            settled: Int = np.int64(0)
            while settled < count or tile == tiles:
                if open_count + LINE_BITS > _MOST_UNVERIFIED or tile == tiles:
                    kept = verify(
                        state, block_keys, block_lists, list_of, skipped, unverified, open_count
                    )
                    add_counts(unverified.event, kept, block_counts)
                    if listing:
                        found_event, found_box, found = collect(
                            unverified.event, unverified.box, kept, found_event, found_box, found
                        )
                    open_count = np.int64(0)
                if tile == tiles:
                    break
                before = settled
                settled, open_count = settle(
                    state, tile, events, settled, count, candidates, unverified, open_count
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
        if len(plan.entry_key) > 0:
            found_event, found_box, found = _look_up(
                state,
                plan,
                Query(block_keys, alive, skipped, listing, block_counts),
                block_lists,
                unverified,
                found_event,
                found_box,
                found,
            )
        if listing:
            result = append_by_event(result, found_event[:found], found_box[:found], block_counts)
    return result


@kernel
def _look_up(
    state: TileState,
    plan: ListPlan,
    query: Query,
    lists: ListKeys,
    unverified: Unverified,
    found_event: Int32Array,
    found_box: Int32Array,
    found: Int,
) -> tuple[Int32Array, Int32Array, Int]:
    """Add the matches of the tiles with postings."""
    keys, alive, skipped, listing, counts = query
    axes, list_of = lists.axes, plan.list_of
    entry_start, entry_place, entry_box = plan.entry_start, plan.entry_place, plan.entry_box
    open_event, open_box, open_certain = unverified.event, unverified.box, unverified.certain
    most = most_keys(lists)
    entries = np.empty(most, np.int64)
    table = np.empty(4 * most, np.int32)
    end: Int = np.int64(0)
    for e in range(len(keys)):
        for i in range(entries_of(plan, lists, e, entries, table)):
            entry = entries[i]
            at, stop = entry_start[entry], entry_start[entry + 1]
            axis = axes[entry_place[entry]]
            certain = plan.entry_certain[entry]
            if certain and listing and found + stop - at > len(found_box):
                found_event = longer(found_event, 2 * found + stop - at)
                found_box = longer(found_box, 2 * found + stop - at)
            for b in range(at, stop):
                box = entry_box[b]
                if len(alive) and not is_alive(alive, box):
                    continue
                if certain:
                    counts[e] += 1
                    if listing:
                        found_event[found] = e
                        found_box[found] = box
                        found += 1
                    continue
                open_event[end] = e
                open_box[end] = box
                open_certain[end] = axis
                end += 1
                if end == len(open_box):
                    kept = verify(state, keys, lists, list_of, skipped, unverified, end)
                    add_counts(open_event, kept, counts)
                    if listing:
                        found_event, found_box, found = collect(
                            open_event, open_box, kept, found_event, found_box, found
                        )
                    end = np.int64(0)
    kept = verify(state, keys, lists, list_of, skipped, unverified, end)
    add_counts(open_event, kept, counts)
    if listing:
        found_event, found_box, found = collect(
            open_event, open_box, kept, found_event, found_box, found
        )
    return found_event, found_box, found


@kernel
def search_one_with_lists(
    packed: Int64Array,
    packed_plan: Int64Array,
    keys: Int64Array,
    lists: ListKeys,
    alive: BitLines,
    skipped: BoolArray,
) -> Int32Array:
    """The boxes that hold one point."""
    state = unpack(packed)
    plan = unpack_plan(packed_plan)
    list_of = plan.list_of
    tiles = len(state.unsettled)
    width = (tiles + LINE_BITS - 1) // LINE_BITS
    ranks = np.empty(keys.shape, np.uint16)
    cells = np.empty(keys.shape, np.uint8)
    live = np.empty((width, LINE_WORDS), np.uint64)
    locate(state, keys, ranks, cells)
    sets = locate_sets(state, lists, list_of)
    mark_live(state, plan, ranks, lists, sets, live)
    waiting = np.empty(tiles + _TILES_AHEAD, np.int64)
    live_tiles: Int = 0
    for word in range(width * LINE_WORDS):
        bits = live[word >> 3, word & 7]
        while bits != 0:
            waiting[live_tiles] = word * 64 + trailing_zeros(bits)
            bits &= bits - np.uint64(1)
            live_tiles += 1
    for i in range(_TILES_AHEAD):
        waiting[live_tiles + i] = 0
    lines, slot_start = state.lines, state.slot_start
    slot_line, slot_attribute, line_step = state.slot_line, state.slot_attribute, state.line_step
    exists = alive if len(alive) else state.filled
    candidates = np.empty((1, LINE_WORDS), np.uint64)
    event = np.zeros(1, np.int64)
    unverified = no_unverified(2 * LINE_BITS)
    open_count: Int = np.int64(0)
    found = np.empty(2 * LINE_BITS, np.int32)
    end: Int = np.int64(0)
    for i in range(live_tiles):
        # Live tiles are scattered over memory: ask for the first lines of one ahead.
        ahead = slot_start[waiting[i + _TILES_AHEAD]]
        stop = min(ahead + _LINES_AHEAD, slot_start[waiting[i + _TILES_AHEAD] + 1])
        for s in range(ahead, stop):
            # Of axes with sets, cell 0: it is near, and not worth telling apart.
            a = slot_attribute[s]
            prefetch(lines, slot_line[s] + np.int64(cells[0, a]) * line_step[a])
        tile = waiting[i]
        line = load_line(exists, tile)
        for s in range(slot_start[tile], slot_start[tile + 1]):
            a = slot_attribute[s]
            if list_of[a] < 0:
                cell = np.int64(cells[0, a]) * line_step[a]
                line = and_lines(line, load_line(lines, slot_line[s] + cell))
                if not any_bit(line):
                    break
        if not any_bit(line):
            continue
        for s in range(slot_start[tile], slot_start[tile + 1]):
            a = slot_attribute[s]
            place = np.int64(list_of[a])
            if place >= 0:
                first = sets.start[place]
                row = np.int64(slot_line[s])
                cell = np.int64(sets.cell[first]) * line_step[a]
                union = load_line(lines, row + cell)
                for k in range(first + 1, sets.start[place + 1]):
                    cell = np.int64(sets.cell[k]) * line_step[a]
                    union = or_lines(union, load_line(lines, row + cell))
                line = and_lines(line, union)
        if not any_bit(line):
            continue
        store_line(candidates, 0, line)
        _, open_count = settle(
            state, tile, event, np.int64(0), np.int64(1), candidates, unverified, open_count
        )
        if end + LINE_BITS > len(found):
            found = longer(found, 2 * len(found) + LINE_BITS)
        end = list_bits(candidates, np.int64(0), tile, found, end)
        if open_count > LINE_BITS:
            kept = verify(state, keys, lists, list_of, skipped, unverified, open_count)
            found, end = append(found, end, unverified.box, kept)
            open_count = np.int64(0)
    kept = verify(state, keys, lists, list_of, skipped, unverified, open_count)
    found, end = append(found, end, unverified.box, kept)
    if len(plan.entry_key) > 0:
        query = Query(keys, alive, skipped, True, np.zeros(1, np.int64))
        _, found, end = _look_up(state, plan, query, lists, unverified, found.copy(), found, end)
    return found[:end]
