"""Removed positions of a store, as of any moment."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from boxmatch.arrays import BitLines
from boxmatch.kernels.bit_lines import filled_lines
from boxmatch.kernels.pieces import pieces


class Removals:
    """A log of removed positions.

    Writers append; a reader knows how long the log was when its snapshot was taken, and asks for
    the bits as of then. One writer at a time; any number of readers.
    """

    def __init__(self) -> None:
        self.log: list[int] = []
        self._gone: set[int] = set()
        self._latest: tuple[int, int, BitLines] = (0, 0, filled_lines(0))

    def __len__(self) -> int:
        return len(self.log)

    def __contains__(self, position: int) -> bool:
        return position in self._gone

    def add(self, positions: Iterable[int]) -> None:
        new = list(positions)
        for piece in pieces(len(new)):
            self._gone.update(new[piece])
        self.log.extend(new)

    def alive(self, length: int, rows: int) -> BitLines | None:
        """Bits of the positions below `rows` that are left after `length` removals."""
        if length == 0:
            return None
        known, known_rows, bits = self._latest
        if known_rows != rows or known > length:
            known, bits = 0, filled_lines(rows)
        elif known < length:
            bits = bits.copy()
        else:
            return bits
        words = bits.reshape(-1)
        for position in self.log[known:length]:
            words[position >> 6] &= ~np.uint64(1 << (position & 63))
        self._latest = length, rows, bits
        return bits
