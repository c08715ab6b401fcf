"""Removed positions of a store, as of any moment."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from boxmatch.arrays import BitLines
from boxmatch.kernels.bit_lines import filled_lines
from boxmatch.kernels.pieces import pieces

_FEW = 32
"""Positions that are marked one by one as quickly as all at once."""


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
        if known > length or known_rows > rows:
            known, bits = 0, filled_lines(rows)
        elif known_rows < rows:
            bits = _grown(bits, known_rows, rows)
        elif known < length:
            bits = bits.copy()
        else:
            return bits
        words = bits.reshape(-1)
        gone = self.log[known:length]
        if len(gone) <= _FEW:
            for position in gone:
                words[position >> 6] &= ~np.uint64(1 << (position & 63))
        else:
            places = np.array(gone, np.uint64)
            marks = ~(np.uint64(1) << (places & np.uint64(63)))
            np.bitwise_and.at(words, places >> np.uint64(6), marks)
        self._latest = length, rows, bits
        return bits


def _grown(bits: BitLines, rows: int, more: int) -> BitLines:
    """The bits of the first `rows` positions, followed by those of positions that are all left."""
    grown = filled_lines(more)
    old, new = bits.reshape(-1), grown.reshape(-1)
    whole, rest = divmod(rows, 64)
    new[:whole] = old[:whole]
    if rest:
        known = np.uint64((1 << rest) - 1)
        new[whole] = (old[whole] & known) | (new[whole] & ~known)
    return grown
