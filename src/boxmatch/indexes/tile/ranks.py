"""Cuts and ranks: where on an attribute's axis memberships change, and on which side a key lies.

Cutting at the quantiles of the predicates' own endpoints makes hot spots and skew cost nothing.
Where an attribute has few distinct endpoints, every one of them becomes a cut and ranks lose
nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from boxmatch.arrays import (
    BitLines,
    Int,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt16Table,
    UInt64Array,
)
from boxmatch.indexes.tile.layout import TileState
from boxmatch.kernels.bit_lines import LINE_BITS, and_lines, load_line, store_line
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.radix import sorted_keys
from boxmatch.kernels.threads import each, split
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.box_kernels import count_attributes
from boxmatch.model.boxes import Boxes

EXACT_CUTS = 16_384
"""Up to so many distinct endpoints, an attribute gets a cut at each."""

GUESS_BITS = 10

_SAMPLE = 32_768
"""Predicates looked at per attribute when choosing its cuts."""


def choose_cuts(
    boxes: Boxes, quantiles: int, threads: int | None = 1
) -> tuple[Int64Array, Int32Array]:
    """Sorted cuts of all attributes one after the other, and where each attribute's begin."""
    counts = count_attributes(boxes.attribute, boxes.dimensions)
    strides = np.maximum(1, counts // _SAMPLE)
    sizes = 2 * ((counts + strides - 1) // strides)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    endpoints = np.empty(offsets[-1], np.int64)
    _sample_endpoints(
        boxes.attribute, boxes.low, boxes.high, strides, offsets[:-1].copy(), endpoints
    )

    def cut(span: tuple[int, int]) -> list[Int64Array]:
        return [_cuts_of(endpoints[offsets[a] : offsets[a + 1]], quantiles) for a in range(*span)]

    few = boxes.dimensions if offsets[-1] < _SAMPLE else 1
    found = each(cut, split(boxes.dimensions, threads, least=few))
    parts = [cuts for some in found for cuts in some]
    start = np.zeros(boxes.dimensions + 1, np.int32)
    np.cumsum([len(part) for part in parts], out=start[1:])
    return np.concatenate(parts).astype(np.int64), start


def _cuts_of(endpoints: Int64Array, quantiles: int) -> Int64Array:
    """The cuts of one attribute, from some of its endpoints."""
    sample = sorted_keys(endpoints)
    # Endpoints that fall on FIRST say nothing: that cut is always there.
    sample = sample[np.searchsorted(sample, FIRST, side="right") :]
    distinct = _distinct(sample)
    if len(distinct) > EXACT_CUTS:
        at = np.linspace(0, len(sample) - 1, quantiles).astype(np.int64)
        distinct = _distinct(sample[at])
    return np.concatenate([[FIRST], distinct])


def _distinct(ordered: Int64Array) -> Int64Array:
    keep = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=keep[1:])
    return ordered[keep]


@kernel
def _sample_endpoints(
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    strides: Int64Array,
    cursor: Int64Array,
    endpoints: Int64Array,
) -> None:
    wait = np.zeros(len(strides), np.int64)
    for p in range(len(attribute)):
        a = attribute[p]
        if wait[a] > 0:
            wait[a] -= 1
            continue
        wait[a] = strides[a] - 1
        endpoints[cursor[a]] = max(low[p], FIRST)
        # A predicate without an upper end says nothing above; repeat its low end.
        endpoints[cursor[a] + 1] = high[p] + 1 if high[p] < LAST else max(low[p], FIRST)
        cursor[a] += 2


class Ruler(NamedTuple):
    """The cuts of all attributes, with a table per attribute that says where to look.

    The stretch between an attribute's lowest and highest cut is divided into `2 ** GUESS_BITS`
    equal parts or fewer; `guess[a, part]` is the rank at which a part begins. Most searches end
    after a step or two.
    """

    cuts: Int64Array
    cut_start: Int32Array
    guess: UInt16Array
    guess_shift: UInt8Array


def make_ruler(cuts: Int64Array, cut_start: Int32Array) -> Ruler:
    dimensions = len(cut_start) - 1
    guess = np.zeros((dimensions, (1 << GUESS_BITS) + 1), np.uint16)
    shift = np.zeros(dimensions, np.uint8)
    _fill_guesses(cuts, cut_start, guess, shift)
    return Ruler(cuts, cut_start, guess, shift)


@kernel
def _fill_guesses(
    cuts: Int64Array, cut_start: Int32Array, guess: UInt16Array, guess_shift: UInt8Array
) -> None:
    parts = 1 << GUESS_BITS
    for a in range(len(cut_start) - 1):
        # The first cut is FIRST, which lies far from all others.
        first, last = cut_start[a] + 1, cut_start[a + 1]
        if first >= last:
            continue
        lowest = np.uint64(cuts[first])
        span = np.uint64(cuts[last - 1]) - lowest
        shift = 0
        while (span >> np.uint64(shift)) >= parts:
            shift += 1
        guess_shift[a] = shift
        cut = first
        for part in range(parts + 1):
            while cut < last and (np.uint64(cuts[cut]) - lowest) >> np.uint64(shift) < part:
                cut += 1
            guess[a, part] = cut - cut_start[a]


@kernel
def rank_of(ruler: Ruler, a: Int, key: Int) -> Int:
    """Number of cuts of attribute `a` at or below `key`."""
    cuts = ruler.cuts
    start = np.int64(ruler.cut_start[a])
    count = np.int64(ruler.cut_start[a + 1]) - start
    if key == ABSENT:
        return 0
    if key >= cuts[start + count - 1]:
        return count
    if key < cuts[start + 1]:
        return 1
    part = (np.uint64(key) - np.uint64(cuts[start + 1])) >> np.uint64(ruler.guess_shift[a])
    low = np.int64(ruler.guess[a, part])
    high = np.int64(ruler.guess[a, part + np.uint64(1)])
    while low < high:
        middle = (low + high) >> 1
        if cuts[start + middle] <= key:
            low = middle + 1
        else:
            high = middle
    return low


INEXACT: Final = 0x8000
"""Set in the rank of a predicate's end if the predicate covers a part of that rank only."""

RANK: Final = 0x7FFF
"""The bits of a rank."""

_SEVERAL: Final = 0x8000
_FEWEST_PARTS = 16
_MOST_PARTS = 2_048


class RankTable(NamedTuple):
    """What finds most ranks of many keys in one step, without a branch that could go either way.

    From `lowest[a]` on, the axis of attribute `a` is divided into equal parts of `2 ** shift[a]`
    keys; beyond them comes one more, for all that is above. `rank[a, part]` is the rank before the
    first cut of the part, or before the last cut of all if that is less, with a mark if several
    cuts fall into the part.
    """

    start: UInt64Array
    lowest: Int64Array
    shift: UInt64Array
    rank: UInt16Table


def make_rank_table(ruler: Ruler, predicates: int) -> RankTable:
    """With parts in proportion to the predicates of an attribute."""
    dimensions = len(ruler.cut_start) - 1
    parts = 1 << int(2 * predicates / max(1, dimensions)).bit_length()
    table = RankTable(
        ruler.cut_start.astype(np.uint64),
        np.full(dimensions, FIRST),
        np.zeros(dimensions, np.uint64),
        np.zeros((dimensions, min(max(parts, _FEWEST_PARTS), _MOST_PARTS) + 1), np.uint16),
    )
    _fill_rank_table(ruler.cuts, ruler.cut_start, table.lowest, table.shift, table.rank)
    return table


@kernel
def _fill_rank_table(
    cuts: Int64Array,
    cut_start: Int32Array,
    lowest: Int64Array,
    shifts: UInt64Array,
    ranks: UInt16Table,
) -> None:
    parts = ranks.shape[1] - 1
    for a in range(len(cut_start) - 1):
        first, last = cut_start[a] + 1, cut_start[a + 1]
        if first >= last:
            continue
        lowest[a] = cuts[first]
        base = np.uint64(cuts[first])
        span = np.uint64(cuts[last - 1]) - base
        shift = 0
        while (span >> np.uint64(shift)) >= parts:
            shift += 1
        shifts[a] = shift
        cut = first
        for part in range(parts + 1):
            before = cut
            while cut < last and (np.uint64(cuts[cut]) - base) >> np.uint64(shift) == part:
                cut += 1
            rank = min(before, last - 1) - cut_start[a]
            ranks[a, part] = rank | _SEVERAL if cut - before > 1 else rank


@kernel
def rank_predicates(
    cuts: Int64Array,
    table: RankTable,
    predicates: tuple[UInt16Array, Int64Array, Int64Array],
    first: Int,
    last: Int,
    ranks: tuple[UInt16Array, UInt16Array],
    width: Int64Array,
) -> None:
    """The ranks of both ends of the predicates from `first` to `last`, `INEXACT` added.

    Adds to `width` how many ranks those of each attribute touch.
    """
    start, lowest, shift, rank = table
    attribute, low, high = predicates
    low_rank, high_rank = ranks
    one = np.uint64(1)
    several = np.uint64(_SEVERAL)
    beyond = np.uint64(rank.shape[1] - 1)
    # Places are unsigned: for others Numba asks each time whether they count from the end.
    for p in range(np.uint64(first), np.uint64(last)):
        a = np.uint64(attribute[p])
        begin, end = start[a], start[a + one]
        base = lowest[a]
        low_key, high_key = low[p], high[p]
        low_part = min((np.uint64(max(low_key, base)) - np.uint64(base)) >> shift[a], beyond)
        high_part = min((np.uint64(max(high_key, base)) - np.uint64(base)) >> shift[a], beyond)
        bottom = np.uint64(rank[a, low_part])
        top = np.uint64(rank[a, high_part])
        if (bottom | top) & several:
            bottom = _cuts_up_to(cuts, begin, end, bottom & np.uint64(RANK), low_key)
            top = _cuts_up_to(cuts, begin, end, top & np.uint64(RANK), high_key)
        else:
            bottom += np.uint64(cuts[begin + bottom] <= low_key)
            top += np.uint64(cuts[begin + top] <= high_key)
        mark = np.uint64(0)
        if low_key == ABSENT:
            bottom = np.uint64(0)
        else:
            mark = np.uint64(cuts[begin + bottom - one] != low_key) << np.uint64(15)
        if high_key == ABSENT:
            top = np.uint64(0)
        width[a] += np.int64(top) - np.int64(bottom) + 1
        low_rank[p] = bottom | mark
        if begin + top == end:
            mark = np.uint64(high_key != LAST) << np.uint64(15)
        else:
            mark = np.uint64(cuts[begin + top] != high_key + 1) << np.uint64(15)
        high_rank[p] = top | mark


@kernel
def _cuts_up_to(
    cuts: Int64Array, begin: np.uint64, end: np.uint64, known: np.uint64, key: Int
) -> np.uint64:
    """How many of the cuts in `begin:end` are at or below a key; the first `known` of them are."""
    # In steps that double, since the rest of the part has few, then by halves.
    low = begin + known
    step = np.uint64(1)
    while low + step < end and cuts[low + step - np.uint64(1)] <= key:
        low += step
        step += step
    high = min(low + step, end)
    while low < high:
        middle = (low + high) >> np.uint64(1)
        if cuts[middle] <= key:
            low = middle + np.uint64(1)
        else:
            high = middle
    return low - begin


@kernel
def cell_of(rank: Int, shift: Int) -> Int:
    """The cell of a rank: rank 0, "absent", stays alone."""
    return (np.int64(rank) + (1 << shift) - 1) >> shift


def shifts_for(ranks: Int64Array, cells: Int64Array) -> Int64Array:
    """The smallest shifts that leave at most so many cells."""
    ratio = np.maximum(1.0, ranks / cells)
    return np.ceil(np.log2(ratio)).astype(np.int64)


@kernel
def locate(state: TileState, keys: Int64Array, ranks: UInt16Array, cells: UInt8Array) -> None:
    """Ranks and cells of points."""
    ruler = Ruler(state.cuts, state.cut_start, state.guess, state.guess_shift)
    cell_shift = state.cell_shift
    for e in range(keys.shape[0]):
        for a in range(keys.shape[1]):
            rank = rank_of(ruler, a, keys[e, a])
            ranks[e, a] = rank
            cells[e, a] = cell_of(rank, cell_shift[a])


@kernel
def mark_live(state: TileState, ranks: UInt16Array, live: BitLines) -> None:
    """For each event, the tiles that could hold a match, as bits."""
    top, top_attribute = state.top, state.top_attribute
    top_row, top_shift = state.top_row, state.top_shift
    width = (len(state.unsettled) + LINE_BITS - 1) // LINE_BITS
    for e in range(len(ranks)):
        for w in range(width):
            line = load_line(top, w)
            for i in range(len(top_attribute)):
                row = top_row[i] + cell_of(ranks[e, top_attribute[i]], top_shift[i])
                line = and_lines(line, load_line(top, row * width + w))
            store_line(live, e * width + w, line)
