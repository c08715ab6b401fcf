"""A `TileState` as one small array of addresses.

Handing some thirty arrays from Python to a kernel takes longer than matching one event against a
hundred thousand subscriptions. Their addresses travel in one array instead.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from boxmatch.indexes.addresses import array_at
from boxmatch.indexes.tile.layout import Int64Array, TileState
from boxmatch.jit import kernel


def pack(state: TileState) -> Int64Array:
    """Address, rows and columns of each field. The state must outlive what is packed."""
    return np.array(
        [(field.ctypes.data, len(field), field.size // max(1, len(field))) for field in state],
        np.int64,
    )


@kernel
def _column(field: Int64Array, dtype: Any) -> npt.NDArray[Any]:
    return array_at(field[0], (field[1],), dtype)


@kernel
def _table(field: Int64Array, dtype: Any) -> npt.NDArray[Any]:
    return array_at(field[0], (field[1], field[2]), dtype)


@kernel
def unpack(packed: Int64Array) -> TileState:
    """The state that was packed."""
    return TileState(
        _column(packed[0], np.int64),  # cuts
        _column(packed[1], np.int32),  # cut_start
        _table(packed[2], np.uint16),  # guess
        _column(packed[3], np.uint8),  # guess_shift
        _column(packed[4], np.uint16),  # top_attribute
        _column(packed[5], np.uint8),  # top_shift
        _column(packed[6], np.int32),  # top_row
        _table(packed[7], np.uint64),  # top
        _column(packed[8], np.uint8),  # cell_shift
        _column(packed[9], np.int32),  # tile_line
        _column(packed[10], np.int32),  # slot_start
        _column(packed[11], np.uint16),  # slot_depth
        _column(packed[12], np.uint16),  # slot_attribute
        _column(packed[13], np.int32),  # slot_line
        _column(packed[14], np.int32),  # line_step
        _column(packed[15], np.int32),  # row_line
        _column(packed[16], np.int32),  # row_start
        _column(packed[17], np.int32),  # row_tile
        _table(packed[18], np.uint64),  # lines
        _column(packed[19], np.int64),  # end_start
        _column(packed[20], np.int64),  # end_key
        _column(packed[21], np.int32),  # end_box
        _table(packed[22], np.uint64),  # unsettled
        _table(packed[23], np.uint64),  # unlined
        _table(packed[24], np.uint64),  # filled
        _column(packed[25], np.int64),  # box_start
        _column(packed[26], np.uint16),  # box_attribute
        _column(packed[27], np.int64),  # box_low
        _column(packed[28], np.int64),  # box_high
    )
