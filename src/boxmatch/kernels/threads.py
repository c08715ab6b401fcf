"""Threads for kernels, which hold no GIL."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def split(
    count: int, threads: int | None, *, least: int, multiple: int = 1
) -> list[tuple[int, int]]:
    """Where consecutive parts of `count` items begin and end: one for each thread, or core.

    A part has at least `least` items, and begins at a multiple of `multiple`.
    """
    wanted = min(threads or cores(), count // least)
    if wanted <= 1:
        return [(0, count)]
    size = -(-count // wanted // multiple) * multiple
    return [(first, min(first + size, count)) for first in range(0, count, size)]


def each(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """`work` on every item, at once if there are several; results in order."""
    if len(items) == 1:
        return [work(items[0])]
    # Not with the threads that match: events would wait for whole phases of a build.
    return list(pool(os.getpid(), max(len(items), cores()), "boxmatch-build").map(work, items))


@cache
def pool(process: int, threads: int, name: str) -> ThreadPoolExecutor:
    """Threads that are kept. By process: a forked child has the pool, but not its threads."""
    return ThreadPoolExecutor(threads, thread_name_prefix=name)
