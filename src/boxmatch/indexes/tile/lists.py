"""Finding the boxes that hold a point with sets of keys on some axes.

As `search` does it, where each set stands for the union of what the directory, or a line, has for
its keys. Endpoints, rows and sweeps know points of one key per axis only. Where tiles have
postings, the boxes come from there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.arrays import (
    BitLines,
    BoolArray,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
)
from boxmatch.indexes.base import Query
from boxmatch.indexes.tile.candidates import add_counts, append_by_event, collect, list_bits
from boxmatch.indexes.tile.layout import TileState, unpack
from boxmatch.indexes.tile.postings import ListPlan, find_entry, unpack_plan
from boxmatch.indexes.tile.ranks import Ruler, cell_of, locate, rank_of
from boxmatch.indexes.tile.search import live_events, transpose_live
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
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
from boxmatch.model.box_kernels import keep_holders
from boxmatch.model.points import ListKeys

_BLOCK = 2_048
"""Events that pass a tile together."""

_TILES_AHEAD = 4
_LINES_AHEAD = 16
"""For one event: how many live tiles ahead to fetch, and how many of their lines."""

_MOST_UNVERIFIED = 16_384
"""Unverified boxes that are collected before any is looked at."""


class Sets(NamedTuple):
    """Where the sets of keys of some events lie: set `i` has `cell[start[i]:start[i + 1]]`.

    Cells are distinct. A set without keys has cell 0, "absent": the lines of that cell have the
    boxes without a predicate, which are the only ones that it satisfies. `rank` has the ranks of
    all keys, in their order.
    """

    rank: UInt16Array
    start: Int64Array
    cell: UInt8Array


class Unverified(NamedTuple):
    """Boxes to compare with events, and the axis on which they are known to hold, or -1."""

    event: Int32Array
    box: Int32Array
    certain: Int32Array


@kernel
def _no_unverified(size: Int) -> Unverified:
    return Unverified(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32))


@kernel
def _locate_sets(state: TileState, lists: ListKeys, list_of: Int32Array) -> Sets:
    """Ranks and cells of sets of keys."""
    ruler = Ruler(state.cuts, state.cut_start, state.guess, state.guess_shift)
    axes, list_start, list_keys = lists.axes, lists.start, lists.keys
    cell_shift = state.cell_shift
    sets = len(list_start) - 1
    offset = list_start[0]
    keys = list_start[sets] - offset
    rank = np.empty(keys, np.uint16)
    start = np.empty(sets + 1, np.int64)
    cell = np.empty(keys + sets, np.uint8)
    seen = np.zeros(4, np.uint64)
    end = 0
    start[0] = 0
    for i in range(sets):
        a = axes[i % len(axes)]
        if list_of[a] >= 0:
            for at in range(list_start[i], list_start[i + 1]):
                r = rank_of(ruler, a, list_keys[at])
                rank[at - offset] = r
                c = cell_of(r, cell_shift[a])
                seen[c >> 6] |= np.uint64(1) << np.uint64(c & 63)
            if list_start[i] == list_start[i + 1]:
                seen[0] = np.uint64(1)
            for word in range(4):
                bits = seen[word]
                seen[word] = np.uint64(0)
                while bits != 0:
                    cell[end] = word * 64 + trailing_zeros(bits)
                    bits &= bits - np.uint64(1)
                    end += 1
        start[i + 1] = end
    return Sets(rank, start, cell)


@kernel
def _mark_live(
    state: TileState,
    plan: ListPlan,
    ranks: UInt16Array,
    lists: ListKeys,
    sets: Sets,
    live: BitLines,
) -> None:
    """For each event, the tiles without postings that could hold a match, as bits."""
    top, top_attribute = state.top, state.top_attribute
    top_row, top_shift = state.top_row, state.top_shift
    list_of, posted = plan.list_of, plan.posted
    places, list_start, key_rank = len(lists.axes), lists.start, sets.rank
    offset = list_start[0]
    width = (len(state.unsettled) + LINE_BITS - 1) // LINE_BITS
    for e in range(len(ranks)):
        for w in range(width):
            line = and_not_line(load_line(top, w), load_line(posted, w))
            if not any_bit(line):
                store_line(live, e * width + w, line)
                continue
            for i in range(len(top_attribute)):
                a = top_attribute[i]
                if list_of[a] < 0:
                    row = top_row[i] + cell_of(ranks[e, a], top_shift[i])
                    line = and_lines(line, load_line(top, row * width + w))
                    continue
                at = e * places + list_of[a]
                first, last = list_start[at], list_start[at + 1]
                # A set without keys is in cell 0.
                r = key_rank[first - offset] if first < last else np.uint16(0)
                union = load_line(top, (top_row[i] + cell_of(r, top_shift[i])) * width + w)
                for k in range(first + 1, last):
                    row = top_row[i] + cell_of(key_rank[k - offset], top_shift[i])
                    union = or_lines(union, load_line(top, row * width + w))
                line = and_lines(line, union)
            store_line(live, e * width + w, line)


@kernel
def _pass_lines(
    state: TileState,
    tile: Int,
    alive: BitLines,
    cells: UInt8Array,
    sets: Sets,
    list_of: Int32Array,
    places: Int,
    events: Int64Array,
    count: Int,
    candidates: BitLines,
) -> Int:
    """Keep the events that some box of the tile could hold, with those boxes as candidates."""
    lines = state.lines
    set_start, set_cell = sets.start, sets.cell
    first = state.slot_start[tile]
    slots = np.int64(state.slot_start[tile + 1] - first)
    slot_line = np.empty(slots, np.int64)
    slot_place = np.empty(slots, np.uint64)
    slot_step = np.empty(slots, np.int64)
    # Slots of one key first: they cost less and leave less.
    singles = np.int64(0)
    last = slots
    for s in range(slots):
        a = state.slot_attribute[first + s]
        single = list_of[a] < 0
        if not single:
            last -= 1
        to = singles if single else last
        slot_line[to] = state.slot_line[first + s]
        slot_place[to] = a if single else list_of[a]
        slot_step[to] = state.line_step[a]
        singles += single
    depth = min(np.int64(state.slot_depth[tile]), singles)
    base = load_line(alive if len(alive) else state.filled, tile)
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
            cell = np.int64(cells[e, slot_place[np.uint64(s)]]) * slot_step[np.uint64(s)]
            line = and_lines(line, load_line(lines, slot_line[np.uint64(s)] + cell))
        store_line(candidates, passed, line)
        events[passed] = e
        passed += any_bit(line)
    count = passed
    passed = 0
    for i in range(count):
        e = events[i]
        line = load_line(candidates, i)
        for s in range(depth, singles):
            cell = np.int64(cells[e, slot_place[np.uint64(s)]]) * slot_step[np.uint64(s)]
            line = and_lines(line, load_line(lines, slot_line[np.uint64(s)] + cell))
            if not any_bit(line):
                break
        for s in range(singles, slots):
            if not any_bit(line):
                break
            at = e * places + np.int64(slot_place[np.uint64(s)])
            row, row_step = slot_line[np.uint64(s)], slot_step[np.uint64(s)]
            k = set_start[at]
            union = load_line(lines, row + np.int64(set_cell[k]) * row_step)
            for other in range(k + 1, set_start[at + 1]):
                cell = np.int64(set_cell[other]) * row_step
                union = or_lines(union, load_line(lines, row + cell))
            line = and_lines(line, union)
        store_line(candidates, passed, line)
        events[passed] = e
        passed += any_bit(line)
    return passed


@kernel
def _settle(
    state: TileState,
    tile: Int,
    events: Int64Array,
    at: Int,
    count: Int,
    candidates: BitLines,
    unverified: Unverified,
    end: Int,
) -> tuple[Int, Int]:
    """Leave in the candidates of events `at … count` only boxes that are certain to hold them.

    The others are appended to the unverified ones. Stops when these are full; returns which event
    is next, and how many are unverified.
    """
    unsettled = load_line(state.unsettled, tile)
    open_event, open_box, certain = unverified.event, unverified.box, unverified.certain
    scratch = np.empty((1, LINE_WORDS), np.uint64)
    while at < count and end + LINE_BITS <= len(open_box):
        line = load_line(candidates, at)
        open_line = and_lines(line, unsettled)
        if any_bit(open_line):
            store_line(scratch, 0, open_line)
            before = end
            end = list_bits(scratch, np.int64(0), tile, open_box, end)
            for i in range(before, end):
                open_event[i] = events[at]
                certain[i] = -1
            store_line(candidates, at, and_not_line(line, open_line))
        at += 1
    return at, end


@kernel
def _check(
    state: TileState,
    keys: Int64Array,
    lists: ListKeys,
    list_of: Int32Array,
    skipped: BoolArray,
    unverified: Unverified,
    size: Int,
) -> Int:
    """Compare every predicate of the unverified boxes; keep those that hold, return how many."""
    return keep_holders(
        state.box_start,
        state.box_attribute,
        state.box_low,
        state.box_high,
        keys,
        lists,
        list_of,
        skipped,
        unverified.event,
        unverified.box,
        unverified.certain,
        size,
    )


@kernel
def _entries_of(
    plan: ListPlan, lists: ListKeys, event: Int, entries: Int64Array, table: Int32Array
) -> Int:
    """The entries of an event's keys, each once; returns how many.

    `table` is scratch space of a power of two, more than twice as long as `entries` will be.
    """
    axes, list_start, list_keys, list_of = lists.axes, lists.start, lists.keys, plan.list_of
    width = len(axes)
    first = list_start[event * width]
    last = list_start[(event + 1) * width]
    size = np.int64(4)
    while size < 2 * (last - first) + 1:
        size *= 2
    for i in range(size):
        table[i] = -1
    count = 0
    for place in range(width):
        if list_of[axes[place]] < 0:
            continue
        at = event * width + place
        for i in range(list_start[at], list_start[at + 1]):
            entry = find_entry(plan, list_keys[i], place)
            if entry < 0:
                continue
            spot = (entry * 5) & (size - 1)
            while table[spot] >= 0 and table[spot] != entry:
                spot = (spot + 1) & (size - 1)
            if table[spot] < 0:
                table[spot] = entry
                entries[count] = entry
                count += 1
    return count


@kernel
def _longest(lists: ListKeys) -> Int:
    """The most keys that an event has, and four more."""
    width, list_start = len(lists.axes), lists.start
    longest = np.int64(0)
    for at in range(0, len(list_start) - width, width):
        longest = max(longest, list_start[at + width] - list_start[at])
    return longest + 4


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
    unverified = _no_unverified(_MOST_UNVERIFIED)
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
        sets = _locate_sets(state, block_lists, list_of)
        _mark_live(state, plan, ranks[:size], block_lists, sets, live)
        transpose_live(live.reshape(block, width * LINE_WORDS), size, tiles, transposed)
        found: Int = np.int64(0)
        open_count: Int = np.int64(0)
        # One more than the tiles: the boxes that are looked up by key.
        for tile in range(tiles + 1):
            count: Int = np.int64(0)
            if tile < tiles:
                count = live_events(transposed, tile, events)
                if count > 0:
                    count = _pass_lines(
                        state, tile, alive, cells, sets, list_of, places, events, count, candidates
                    )
            settled: Int = np.int64(0)
            while settled < count or tile == tiles:
                if open_count + LINE_BITS > _MOST_UNVERIFIED or tile == tiles:
                    kept = _check(
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
                settled, open_count = _settle(
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
    longest = _longest(lists)
    entries = np.empty(longest, np.int64)
    table = np.empty(4 * longest, np.int32)
    end: Int = np.int64(0)
    for e in range(len(keys)):
        for i in range(_entries_of(plan, lists, e, entries, table)):
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
                    kept = _check(state, keys, lists, list_of, skipped, unverified, end)
                    add_counts(open_event, kept, counts)
                    if listing:
                        found_event, found_box, found = collect(
                            open_event, open_box, kept, found_event, found_box, found
                        )
                    end = np.int64(0)
    kept = _check(state, keys, lists, list_of, skipped, unverified, end)
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
    sets = _locate_sets(state, lists, list_of)
    _mark_live(state, plan, ranks, lists, sets, live)
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
    unverified = _no_unverified(2 * LINE_BITS)
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
        _, open_count = _settle(
            state, tile, event, np.int64(0), np.int64(1), candidates, unverified, open_count
        )
        if end + LINE_BITS > len(found):
            found = longer(found, 2 * len(found) + LINE_BITS)
        end = list_bits(candidates, np.int64(0), tile, found, end)
        if open_count > LINE_BITS:
            kept = _check(state, keys, lists, list_of, skipped, unverified, open_count)
            found, end = append(found, end, unverified.box, kept)
            open_count = np.int64(0)
    kept = _check(state, keys, lists, list_of, skipped, unverified, open_count)
    found, end = append(found, end, unverified.box, kept)
    if len(plan.entry_key) > 0:
        query = Query(keys, alive, skipped, True, np.zeros(1, np.int64))
        _, found, end = _look_up(state, plan, query, lists, unverified, found.copy(), found, end)
    return found[:end]
