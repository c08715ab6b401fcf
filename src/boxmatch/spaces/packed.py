"""All arrays of one side as one small array of addresses.

Handing fifty arrays from Python to a kernel takes a fifth of the time of a small update. Their
addresses travel in one array instead.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from boxmatch.engine.ids import IdArray
from boxmatch.indexes.addresses import addresses_of, column_at, table_at
from boxmatch.indexes.parts.buckets import Buckets
from boxmatch.jit import kernel
from boxmatch.model.boxes import Int64Array
from boxmatch.spaces.ends import Ends
from boxmatch.spaces.layout import Scratch, Side, UInt64Array


class Parts(NamedTuple):
    """What there is of one side."""

    side: Side
    ends: Ends
    spaces: UInt64Array
    """The spaces of each dimension."""
    scratch: Scratch
    ids: IdArray
    """By owner. If they are strings, kernels see none."""


def pack(parts: Parts) -> Int64Array:
    """The addresses of all arrays, and the numbers. The parts must outlive what is packed."""
    side, ends, spaces, scratch, ids = parts
    numbers = ids if ids.dtype == np.int64 else ids[:0]
    arrays = addresses_of([*side, ends.edges, *ends.low, *ends.high, spaces, *scratch, numbers])
    return np.vstack([arrays, [ends.shares, ends.points, 0]])


@kernel
def unpack(packed: Int64Array) -> Parts:
    """The parts that were packed."""
    return Parts(
        Side(
            table_at(packed[0], np.int64),  # header
            column_at(packed[1], np.int32),  # owner
            column_at(packed[2], np.uint64),  # valid
            table_at(packed[3], np.int64),  # constraint
            column_at(packed[4], np.int32),  # first
            column_at(packed[5], np.int32),  # number
            column_at(packed[6], np.int32),  # code_start
            column_at(packed[7], np.int32),  # code_length
            column_at(packed[8], np.int16),  # code
        ),
        Ends(
            table_at(packed[9], np.int64),  # edges
            packed[29, 0],
            packed[29, 1] != 0,
            _buckets(packed[10:16]),  # low
            _buckets(packed[16:22]),  # high
        ),
        column_at(packed[22], np.uint64),
        Scratch(
            column_at(packed[23], np.uint64),  # left
            column_at(packed[24], np.uint8),  # seen
            column_at(packed[25], np.uint64),  # own
            column_at(packed[26], np.uint64),  # partners
            column_at(packed[27], np.int32),  # found
        ),
        column_at(packed[28], np.int64),
    )


@kernel
def _buckets(packed: Int64Array) -> Buckets:
    return Buckets(
        column_at(packed[0], np.int64),  # start
        column_at(packed[1], np.int64),  # size
        column_at(packed[2], np.int64),  # room
        column_at(packed[3], np.int64),  # used
        column_at(packed[4], np.int32),  # box
        column_at(packed[5], np.int64),  # key
    )
