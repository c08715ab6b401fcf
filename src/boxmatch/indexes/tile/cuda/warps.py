"""What the lanes of a warp do together, and how the simulator does without warps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba import config, cuda

SIMULATED: Final = bool(config.ENABLE_CUDASIM)
"""Whether kernels run as Python threads (`NUMBA_ENABLE_CUDASIM=1`), which know no warps."""

FULL: Final = 0xFFFFFFFF

TEAM: Final = 1 if SIMULATED else 4
"""Lanes that check a box together."""


def device_function(function: Callable[..., Any]) -> Any:
    """A kernel of the processor, or a plain function, for kernels of the card to call."""
    return cuda.jit(device=True)(getattr(function, "py_func", function))


def _lookup(table: Any, place: Any, held: Any, cell: Any, there: Any) -> Any:
    """The item `cell & 31` of the 32 from `place` on, of which each lane holds its own.

    A shuffle reads 32 items for 32 lanes in one step, whichever they want; shared memory takes
    three or four, since lanes want items of the same bank.
    """
    return np.uint32(cuda.shfl_sync(FULL, np.int32(held), np.int32(cell)))


def _pick_bytes(word: Any, other: Any, choice: Any) -> Any:
    """Four bytes of two words, each by four bits of `choice`: 0 to 3 of the one, then the other."""
    return np.uint32(libdevice.byte_perm(np.int32(word), np.int32(other), np.int32(choice)))


def _all_of_team(verdict: Any) -> Any:
    """Whether the verdict of all lanes of a team is True; all lanes of the warp must ask."""
    votes = cuda.ballot_sync(FULL, verdict)
    mine = np.uint32((1 << TEAM) - 1) << np.uint32(cuda.laneid & (32 - TEAM))
    return (votes & mine) == mine


def _simulated_lookup(table: Any, place: Any, held: Any, cell: Any, there: Any) -> Any:
    return table[int(place) + (int(cell) & 31)] if there else held


def _simulated_pick_bytes(word: Any, other: Any, choice: Any) -> Any:
    eight = int(word) | int(other) << 32
    picked = [eight >> (8 * (int(choice) >> (4 * b) & 7)) & 255 for b in range(4)]
    return np.uint32(int.from_bytes(bytes(picked), "little"))


def _simulated_all_of_team(verdict: Any) -> Any:
    return verdict


lookup: Any
pick_bytes: Any
all_of_team: Any
if SIMULATED:
    lookup, pick_bytes = _simulated_lookup, _simulated_pick_bytes
    all_of_team = _simulated_all_of_team
else:
    from numba.cuda import libdevice

    lookup, pick_bytes, all_of_team = map(
        cuda.jit(device=True), (_lookup, _pick_bytes, _all_of_team)
    )
