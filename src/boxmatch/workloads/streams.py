"""Random numbers that depend on the seed and the row, never on how rows are chunked.

Rows are made in blocks of fixed size. Each block has its own Philox stream, keyed by the seed,
the purpose of the numbers and the block's number, so that any range of rows can be made alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar
from zlib import crc32

import numpy as np
import numpy.typing as npt

BLOCK = 16_384
"""Rows per block. Changing it changes every workload."""

T = TypeVar("T")
Scalar = TypeVar("Scalar", bound=np.generic)


def generator(seed: int, purpose: str, block: int) -> np.random.Generator:
    """The stream of one block of rows; `purpose` keeps uses of the same rows independent."""
    words = (seed % 2**64, (crc32(purpose.encode()) << 32) + block)
    return np.random.Generator(np.random.Philox(key=np.array(words, np.uint64)))


def blocks(
    seed: int,
    purpose: str,
    start: int,
    stop: int,
    make: Callable[[np.random.Generator, int], T],
) -> Iterator[tuple[T, slice]]:
    """What `make(generator, rows)` gives for each block that touches rows `start:stop`.

    Every block is made whole; the slice says which of its rows belong to the range.
    """
    if not 0 <= start <= stop:
        raise ValueError(f"rows {start}:{stop} are not a range")
    if start == stop:  # still one block, of which no row is taken: callers get typed arrays
        yield make(generator(seed, purpose, start // BLOCK), BLOCK), slice(0, 0)
        return
    for block in range(start // BLOCK, -(-stop // BLOCK)):
        first = block * BLOCK
        rows = slice(max(start - first, 0), min(stop - first, BLOCK))
        yield make(generator(seed, purpose, block), BLOCK), rows


def columns(
    seed: int,
    purpose: str,
    start: int,
    stop: int,
    make: Callable[[np.random.Generator, int], dict[str, npt.NDArray[Scalar]]],
) -> dict[str, npt.NDArray[Scalar]]:
    """Columns for rows `start:stop`, from a function that makes the columns of one block."""
    parts = [
        {name: column[rows] for name, column in made.items()}
        for made, rows in blocks(seed, purpose, start, stop, make)
    ]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
