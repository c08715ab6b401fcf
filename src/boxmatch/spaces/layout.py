"""The arrays of publications and subscriptions that kernels read."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import Int32Array, Int64Array, Int64Table, UInt16Array, UInt64Array
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.packing import packing
from boxmatch.model.axis import FIRST, LAST
from boxmatch.spaces.endpoints import EndpointCells
from boxmatch.spaces.region_filter import Code


class Actor(NamedTuple):
    """The member of an operation. Region `i` has the constraints `start[i] : start[i + 1]`."""

    start: Int64Array
    dimension: UInt16Array
    low: Int64Array
    high: Int64Array
    valid: UInt64Array
    """The spaces in which each region is valid."""
    code: Code
    """What must have a partner."""


class Side(NamedTuple):
    """All publications, or all subscriptions, and their regions.

    Region `r` has the constraints `start : start + length`, each a dimension, its low and its high
    end; those of owner `o` are regions `first[o] : first[o] + number[o]`. Above the 16 bits of a
    dimension are the bits of the endpoints that are open, which no search reads.

    A header is one cache line with what most comparisons need, since regions are read in no
    order and most of the time goes into fetching them: the start; the length and the first two
    dimensions, 16 bits each; the valid spaces; the owner, which is `~owner` if it has several
    regions or a filter; the endpoints of the first two constraints.
    """

    header: Int64Table
    owner: Int32Array
    valid: UInt64Array
    constraint: Int64Table
    first: Int32Array
    number: Int32Array
    code_start: Int32Array
    code_length: Int32Array
    code: Code


class Scratch(NamedTuple):
    """Room to work in. All but the first and the last are 0 between two calls."""

    left: UInt64Array  # by region: the spaces that are left
    seen: npt.NDArray[np.uint8]  # by region
    own: UInt64Array  # by owner: the actor's regions that have a partner there
    partners: UInt64Array  # by owner: its regions that have a partner
    found: Int32Array  # regions or owners


class SideArrays(NamedTuple):
    """All that kernels read of one side."""

    side: Side
    endpoints: EndpointCells
    spaces: UInt64Array
    """The spaces of each dimension."""
    scratch: Scratch
    ids: Int64Array
    """By owner; empty if ids are strings."""


pack, unpack = packing(SideArrays)


@kernel
def describe(
    header: Int64Array,
    constraint: Int64Array,
    regions: Int64Array,
    start: Int64Array,
    length: Int64Array,
) -> None:
    """Write into the headers of regions where their constraints are, and the first two of them."""
    for at in range(len(regions)):
        line, begin = header[regions[at]], start[at]
        line[0] = begin
        line[1] = length[at]
        for p in range(2):
            if p < length[at]:
                line[1] |= np.int64(np.uint16(constraint[begin + p, 0])) << (16 * (p + 1))
                line[4 + 2 * p] = constraint[begin + p, 1]
                line[5 + 2 * p] = constraint[begin + p, 2]
            else:
                line[4 + 2 * p] = FIRST
                line[5 + 2 * p] = LAST
