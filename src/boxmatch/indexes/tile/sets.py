"""Points with sets of keys on some axes: their cells, their lines, and the keys they look up.

Each set stands for the union of what the directory, or a line, has for its keys.
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
from boxmatch.indexes.tile.candidates import list_bits
from boxmatch.indexes.tile.layout import TileState
from boxmatch.indexes.tile.postings import ListPlan, find_entry
from boxmatch.indexes.tile.ranks import Ruler, cell_of, rank_of
from boxmatch.kernels.bit_lines import (
    LINE_BITS,
    LINE_WORDS,
    and_lines,
    and_not_line,
    any_bit,
    load_line,
    or_lines,
    store_line,
    trailing_zeros,
)
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.prefetch import prefetch
from boxmatch.model.box_kernels import keep_holders
from boxmatch.model.points import ListKeys


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
def no_unverified(size: Int) -> Unverified:
    return Unverified(np.empty(size, np.int32), np.empty(size, np.int32), np.empty(size, np.int32))


@kernel
def locate_sets(state: TileState, lists: ListKeys, list_of: Int32Array) -> Sets:
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
def mark_live(
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
def pass_lines(
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
def settle(
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
def verify(
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
def entries_of(
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
def most_keys(lists: ListKeys) -> Int:
    """The most keys that an event has, and four more."""
    width, list_start = len(lists.axes), lists.start
    longest = np.int64(0)
    for at in range(0, len(list_start) - width, width):
        longest = max(longest, list_start[at + width] - list_start[at])
    return longest + 4
