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


_THRESHOLDS = 10_000, 20, 10
"""Of the garbage collector. Seldom: most of what is allocated belongs to a request, and is gone
with it. Not too seldom: what a request leaves behind in a cycle may hold all of its events."""


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


def tune_memory() -> None:
    """For a process that is a server, when it has read what it has.

    The garbage collector no longer looks through what is there, which is likely to stay. It holds
    up all threads while it works, and a hundred thousand subscriptions take it a good part of a
    second: too long for an event that is to be delivered in milliseconds.
    """
    gc.set_threshold(*_THRESHOLDS)
    gc.freeze()
    limit_malloc_arenas()


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
