"""Giving memory back."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

_ARENA_MAX, _MMAP_THRESHOLD = -8, -3
_ARENAS = 2
_LARGE = 256 * 1024


def release_free_memory() -> None:
    """Hand what was freed back to the system.

    Building an index frees arrays of some ten megabytes each, which glibc keeps for later: at a
    million boxes that is half as much again as the index itself.
    """
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        trim(0)


def limit_malloc_arenas() -> None:
    """Have threads take from the same free memory; for a process that runs for long.

    glibc gives each its own, and in time comes to keep large blocks as well: what one thread has
    freed after a burst is then of no use to the others.
    """
    option = _of_glibc("mallopt")
    if option is not None:
        option(_ARENA_MAX, _ARENAS)
        option(_MMAP_THRESHOLD, _LARGE)


@cache
def _of_glibc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # not glibc
        return None
