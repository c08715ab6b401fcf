"""Giving memory back, and not looking through all of it for nothing."""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


def available_memory() -> int | None:
    """Bytes that can be taken without swapping; None where the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                name, _, rest = line.partition(":")
                if name == "MemAvailable":
                    return int(rest.split()[0]) * 1024
    except OSError:  # not Linux
        pass
    return None


_NEVER = 1_000_000_000
_pausing = threading.Lock()
_paused = 0
_threshold: tuple[int, ...] = ()


@contextmanager
def pausing_full_collections() -> Iterator[None]:
    """Have Python collect young garbage only, in all threads, while many objects are made.

    A full collection looks at every object there is and stops all threads, for a quarter of a
    second where a hundred thousand filters are being compiled; and it would find nothing, since
    these are alive.
    """
    global _paused, _threshold
    with _pausing:
        if _paused == 0:
            _threshold = gc.get_threshold()
            gc.set_threshold(*_threshold[:2], _NEVER)
        _paused += 1
    try:
        yield
    finally:
        with _pausing:
            _paused -= 1
            if _paused == 0:
                gc.set_threshold(*_threshold)


@cache
def _of_glibc(name: str) -> Any:
    try:
        return getattr(ctypes.CDLL(None), name)
    except (AttributeError, OSError, TypeError):  # not glibc
        return None
