"""Filters as they were written, by position: compressed, and read a block at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK: Final = 4_096
"""Texts that are compressed together."""


class FilterTexts:
    """The texts of a segment's filters: one of the positions of a subscription has its text.

    `file` is an Arrow file whose batches are compressed, in memory or mapped.
    """

    def __init__(self, file: pa.Buffer, known: BoolArray) -> None:
        self.file = file
        self.known = known
        """Marks the positions that have a text."""

    @classmethod
    def of(cls, texts: pa.Array[Any]) -> FilterTexts | None:
        """From a text or null by position; None if there is no text at all."""
        import pyarrow as pa

        if texts.null_count == len(texts):
            return None
        table = pa.table({"text": texts})
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(sink, table.schema, options=options) as file:
            file.write_table(table, max_chunksize=_BLOCK)
        return cls(sink.getvalue(), texts.is_valid().to_numpy(zero_copy_only=False))

    @property
    def nbytes(self) -> int:
        return int(self.file.size) + self.known.nbytes

    @cached_property
    def _reader(self) -> pa.RecordBatchFileReader:
        import pyarrow as pa

        return pa.ipc.open_file(self.file)

    def at(self, positions: Sequence[int]) -> str | None:
        """The text of the subscription that has these positions."""
        for position in positions:
            if self.known[position]:
                block, place = divmod(position, _BLOCK)
                text: str = self._reader.get_batch(block).column(0)[place].as_py()
                return text
        return None

    def take(self, positions: Int64Array) -> pa.Array[Any]:
        """The text, or null, at each of some positions."""
        texts = self._reader.read_all().column(0)
        return texts.take(positions).combine_chunks()


def texts_by_row(texts: pa.ChunkedArray[Any], owner: Int64Array) -> pa.Array[Any] | None:
    """The text of each subscription at the first of its boxes, which are `owner`'s rows; None if
    there is no text at all.
    """
    import pyarrow as pa

    column = texts.combine_chunks()
    if column.null_count == len(column):
        return None
    if len(owner) == len(column):
        return column
    first = np.diff(owner, prepend=-1) != 0
    return column.take(pa.array(owner, pa.int64(), mask=~first))


def no_texts(count: int) -> pa.Array[Any]:
    """What stands for the texts of rows that have none."""
    import pyarrow as pa

    return pa.nulls(count, pa.large_string())
