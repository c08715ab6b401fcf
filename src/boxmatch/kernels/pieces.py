"""Operations on many objects in pieces, for calls that hold the GIL until they return.

Other threads, such as one with an event loop, get a turn between pieces. NumPy releases the GIL by
itself in arithmetic, sorting and indexing, but not in `repeat`, `tolist`, or for arrays of objects.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import AnyArray, Int, Int32Array, Int64Array
from boxmatch.kernels.background import Stage, background
from boxmatch.kernels.jit import kernel
from boxmatch.kernels.threads import each, split

if TYPE_CHECKING:
    import pyarrow as pa

_TURN = 1e-6
"""Seconds; some fifty times as long in fact."""

_OFTEN = 1e-3
"""Seconds after which others get a turn."""

PIECE = 1 << 12
"""Objects in a piece: two milliseconds where each is somewhere else in memory, a tenth of one where
they are not.
"""


_LARGE = PIECE // 8
"""Objects that have many others, such as filters, in a piece."""

_FREED = 16 * PIECE
"""Strings that are freed, or only referred to less often, in a piece."""


def pieces(count: int, size: int | None = None) -> Iterator[slice]:
    """Slices of at most `size`, or `PIECE`, that make up `count`; in between, others can have the
    GIL.
    """
    size = size or PIECE
    turn = time.perf_counter()
    for first in range(0, count, size):
        if time.perf_counter() - turn > _OFTEN:
            # A thread is given the GIL after 5 ms, counted anew whenever it is let go of for an
            # instant, as NumPy does to copy numbers. So it has to be let go of for longer.
            time.sleep(_TURN)
            turn = time.perf_counter()
        yield slice(first, min(first + size, count))


def repeat(values: Int64Array, counts: Int64Array) -> Int64Array:
    """`np.repeat` of numbers with a count each."""
    if len(counts) == 1:
        return np.full(counts[0], values[0])
    used = np.flatnonzero(counts)
    ends = np.cumsum(counts[used])
    steps = np.empty(ends[-1] if len(ends) else 0, np.int64)
    steps[:] = 0  # not by `np.zeros`, whose memory is cleared when a few steps are written, below
    steps[ends - counts[used]] = np.diff(values[used], prepend=0)
    return np.cumsum(steps)


LONG = 2_000
"""From here on NumPy, which first makes all places int64, takes three times as long as a kernel."""


_SHARED = 1 << 16
"""Numbers for each thread, at least."""


@kernel
def _gather(
    values: Int64Array, places: Int32Array, gathered: Int64Array, first: Int, last: Int
) -> None:
    for i in range(first, last):
        gathered[np.uint64(i)] = values[np.uint32(places[np.uint64(i)])]


def take(values: AnyArray, places: AnyArray, threads: int | None = 1) -> AnyArray:
    """`values[places]`."""
    is_plain = values.dtype == np.int64 and places.dtype == np.int32
    if is_plain and len(places) > LONG and background.has(Stage.INDEX):
        numbers = np.empty(len(places), np.int64)
        parts = split(len(places), threads, least=_SHARED)
        each(lambda part: _gather(values, places, numbers, *part), parts)
        return numbers
    if values.dtype != object or len(places) <= PIECE:
        return values[places]
    taken = np.empty(len(places), object)
    for piece in pieces(len(places)):
        taken[piece] = values[places[piece]]
    return taken


def concatenate(arrays: Sequence[AnyArray]) -> AnyArray:
    """`np.concatenate` of arrays of one type."""
    if arrays[0].dtype != object:
        return np.concatenate(arrays)
    joined = np.empty(sum(map(len, arrays)), object)
    begin = 0
    for array in arrays:
        for piece in pieces(len(array)):
            joined[begin + piece.start : begin + piece.stop] = array[piece]
        begin += len(array)
    return joined


def equal(left: AnyArray, right: AnyArray) -> npt.NDArray[np.bool_]:
    """`left == right` of arrays of the same length."""
    same = np.empty(len(left), bool)
    for piece in pieces(len(left)):
        same[piece] = left[piece] == right[piece]
    return same


def listed(array: AnyArray) -> list[Any]:
    """`array.tolist()`."""
    values: list[Any] = []
    for piece in pieces(len(array)):
        values += array[piece].tolist()
    return values


def update(
    known: dict[Any, Any], keys: Sequence[Any] | AnyArray, values: Sequence[Any] | AnyArray
) -> None:
    """`known.update` with a value for each key."""
    for piece in pieces(len(keys)):
        some, theirs = keys[piece], values[piece]
        known.update(
            zip(
                some.tolist() if isinstance(some, np.ndarray) else some,
                theirs.tolist() if isinstance(theirs, np.ndarray) else theirs,
                strict=True,
            )
        )


def drop(values: list[Any]) -> None:
    """Empty a list that is not needed any more; its objects go one piece after the other."""
    for piece in pieces(len(values), _LARGE):
        del values[piece.start - piece.stop :]


def let_go(
    held: dict[str, Any], name: str, *, finalizing: Callable[[], bool] = sys.is_finalizing
) -> None:
    """Free an array of objects that is held under a name, unless somebody else has it too.

    `finalizing` is an argument because modules may be empty when Python ends.
    """
    array = held.pop(name, None)
    if finalizing() or array is None or array.dtype != object:
        return
    with suppress(ValueError):  # what NumPy says then
        for piece in pieces(len(array), _FREED):
            array.resize(len(array) - (piece.stop - piece.start))


def to_texts(values: Any, kind: Any) -> pa.ChunkedArray[Any]:
    """Strings, or None, as an Arrow column of a type of text."""
    import pyarrow as pa

    return pa.chunked_array([pa.array(values[one], kind) for one in pieces(len(values))], kind)


def from_texts(column: pa.ChunkedArray[Any]) -> npt.NDArray[np.object_]:
    """The strings of an Arrow column, or None where it is null."""
    texts = np.empty(len(column), object)
    for piece in pieces(len(column)):
        texts[piece] = column.slice(piece.start, piece.stop - piece.start).to_numpy()
    return texts
