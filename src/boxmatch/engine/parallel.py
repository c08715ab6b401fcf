"""Running a kernel over chunks of events on several threads. Kernels hold no GIL."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from boxmatch.arrays import Int64Array

Result = TypeVar("Result")

_SMALL = 128
"""Events per thread below which another thread costs more than it gives."""


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def by_chunks(
    work: Callable[[Int64Array], Result], points: Int64Array, threads: int | None
) -> list[Result]:
    """`work` on consecutive chunks of `points`, one per thread, results in order."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    wanted = min(threads or cores(), len(points) // _SMALL)
    if wanted <= 1:
        return [work(points)]
    size = -(-len(points) // wanted)
    chunks = [points[first : first + size] for first in range(0, len(points), size)]
    return list(_pool(os.getpid(), max(wanted, cores())).map(work, chunks))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # By process: a forked child has the pool, but not its threads. Batches that are too small for
    # all cores share it with the others: a pool for each number would keep all of their threads.
    return ThreadPoolExecutor(threads, thread_name_prefix="boxmatch")
