"""A `TileState` as one small array of addresses.

Handing some thirty arrays from Python to a kernel takes longer than matching one event against a
hundred thousand subscriptions. Their addresses travel in one array instead.
"""

from __future__ import annotations

import numpy as np

from boxmatch.indexes.addresses import addresses_of, column_at, table_at
from boxmatch.indexes.tile.layout import Int64Array, TileState
from boxmatch.jit import kernel


def pack(state: TileState) -> Int64Array:
    """The addresses of all fields. The state must outlive what is packed."""
    return addresses_of(state)


@kernel
def unpack(packed: Int64Array) -> TileState:
    """The state that was packed."""
    return TileState(
        column_at(packed[0], np.int64),  # cuts
        column_at(packed[1], np.int32),  # cut_start
        table_at(packed[2], np.uint16),  # guess
        column_at(packed[3], np.uint8),  # guess_shift
        column_at(packed[4], np.uint16),  # top_attribute
        column_at(packed[5], np.uint8),  # top_shift
        column_at(packed[6], np.int32),  # top_row
        table_at(packed[7], np.uint64),  # top
        column_at(packed[8], np.uint8),  # cell_shift
        column_at(packed[9], np.int32),  # tile_line
        column_at(packed[10], np.int32),  # slot_start
        column_at(packed[11], np.uint16),  # slot_depth
        column_at(packed[12], np.uint16),  # slot_attribute
        column_at(packed[13], np.int32),  # slot_line
        column_at(packed[14], np.int32),  # line_step
        column_at(packed[15], np.int32),  # row_line
        column_at(packed[16], np.int32),  # row_start
        column_at(packed[17], np.int32),  # row_tile
        table_at(packed[18], np.uint64),  # lines
        column_at(packed[19], np.int64),  # end_start
        column_at(packed[20], np.int64),  # end_key
        column_at(packed[21], np.int32),  # end_box
        table_at(packed[22], np.uint64),  # unsettled
        table_at(packed[23], np.uint64),  # unlined
        table_at(packed[24], np.uint64),  # filled
        column_at(packed[25], np.int64),  # box_start
        column_at(packed[26], np.uint16),  # box_attribute
        column_at(packed[27], np.int64),  # box_low
        column_at(packed[28], np.int64),  # box_high
    )
