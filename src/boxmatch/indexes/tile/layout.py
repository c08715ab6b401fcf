"""What a tile index is made of: arrays only, so that kernels, files and tests can share it."""

from __future__ import annotations

from typing import NamedTuple

from boxmatch.arrays import (
    BitLines,
    Int32Array,
    Int64Array,
    UInt8Array,
    UInt16Array,
    UInt16Table,
)
from boxmatch.kernels.packing import packing

BLOCK_TILES = 1_024
"""Tiles that one event passes together, in rows: lines and endpoints are read in long runs, while
64 kB of candidates stay in the second-level cache."""


class RankedPredicates(NamedTuple):
    """The predicates of boxes as ranks.

    Box `b` has those in `start[b]:start[b + 1]`. A predicate touches the ranks `low … high`; the
    highest bit of either says that it covers a part of that rank only (`ranks.INEXACT`).
    """

    start: Int64Array
    attribute: UInt16Array
    low: UInt16Array
    high: UInt16Array


class TileState(NamedTuple):
    """A tile index over boxes in clustered order; tile `t` holds boxes `512 t … 512 t + 511`.

    Ranks. The cuts of attribute `a` are `cuts[cut_start[a]:cut_start[a + 1]]`; the rank of a key
    is the number of cuts at or below it; `guess` says where to look. Rank 0 is "absent". A coarser
    cell of shift `s` joins `2 ** s` ranks and leaves rank 0 alone.

    Directory. For the attributes in `top_attribute`, one row of bits per cell says which tiles
    could hold a point there: `top_row` is the first row, `top_shift` the shift. Row 0 has all.

    Lines. A tile has slots, one per attribute that a good part of its boxes constrain, most
    selective first. Slot `s` has one line per cell of its attribute, from `lines[slot_line[s]]` in
    steps of `line_step[attribute]`: which boxes could hold a point in this cell. A tile's lines lie
    together, from `tile_line` on, and the step is 1.
    Boxes outside `unsettled` are decided by the lines alone; those in `unlined` have predicates
    without a slot. `filled` has the boxes that exist, and `slot_depth` how many slots leave, as a
    rule, no box of the tile.

    Endpoints. Where a good part of all boxes match, the endpoints of predicates that have lines are
    in groups, by attribute, cell, block of tiles, side and rank (`endpoints._group`, from
    `endpoint_base[a]` on). Group `g` has `endpoint_start[g]:endpoint_start[g + 1]`: the first or
    the last key with which a predicate holds, and its box, counted from the block's first.

    Those of other predicates of attribute `a` are in `rare_start[a]:rare_start[a + 1]`, lower and
    upper ones each in the order of their keys.

    Rows. Where there are endpoints, the lines of one attribute and cell lie together instead, so
    that one event can pass all tiles in the order of memory. Attribute `a` has lines in the tiles
    `row_tile[row_start[a]:row_start[a + 1]]`, from `lines[row_line[a]]`. With `n` blocks of tiles,
    those of block `b` begin at `row_block[a * (n + 1) + b]` of `row_tile`, and `row_rules` says, by
    cell of all attributes and block, what rules boxes of it out, if anything (`endpoints`).

    Boxes. Box `b` has the predicates `box_start[b]:box_start[b + 1]`. `box_ranks` has the ranks of
    both their ends, as `RankedPredicates` has them, side by side: most boxes are decided by these,
    which take a quarter of the memory of the bounds.
    """

    cuts: Int64Array
    cut_start: Int32Array
    guess: UInt16Table
    guess_shift: UInt8Array
    top_attribute: UInt16Array
    top_shift: UInt8Array
    top_row: Int32Array
    top: BitLines
    cell_shift: UInt8Array
    tile_line: Int32Array
    slot_start: Int32Array
    slot_depth: UInt16Array
    slot_attribute: UInt16Array
    slot_line: Int32Array
    line_step: Int32Array
    row_line: Int32Array
    row_start: Int32Array
    row_tile: Int32Array
    row_block: Int32Array
    row_rules: UInt8Array
    lines: BitLines
    endpoint_base: Int64Array
    endpoint_start: Int64Array
    endpoint_key: Int64Array
    endpoint_box: Int32Array
    rare_start: Int64Array
    rare_low: Int64Array
    rare_low_box: Int32Array
    rare_high: Int64Array
    rare_high_box: Int32Array
    unsettled: BitLines
    unlined: BitLines
    filled: BitLines
    box_start: Int64Array
    box_attribute: UInt16Array
    box_ranks: UInt16Table
    box_low: Int64Array
    box_high: Int64Array


pack, unpack = packing(TileState)
"""As one small array, and back inside a kernel."""
