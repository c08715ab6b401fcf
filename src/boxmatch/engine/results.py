"""Batches: chunks of events on several threads, and their matches as columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.ids import IdArray
from boxmatch.indexes.base import Matches
from boxmatch.kernels.pieces import concatenate, pieces, repeat, take

if TYPE_CHECKING:
    import pyarrow as pa

Result = TypeVar("Result")

_SMALL = 128
"""Events per thread below which another thread costs more than it gives."""


class MatchResult:
    """Matches of a batch of events, ordered by event.

    `event` and `subscription` are parallel: row `i` says that subscription `subscription[i]` wants
    event `event[i]`. Within an event the order of subscriptions means nothing.
    `skipped_attributes` names the attributes whose predicates were not checked, for the sake of a
    rate of false matches; if there are none, the matches are as exact as the index is.
    """

    def __init__(
        self,
        counts: Int64Array,
        subscription: IdArray,
        skipped_attributes: tuple[str, ...] = (),
    ) -> None:
        self.counts = counts
        self.subscription = subscription
        self.skipped_attributes = skipped_attributes

    @cached_property
    def event(self) -> Int64Array:
        """The event's row in the batch, for each match."""
        return repeat(np.arange(len(self.counts)), self.counts)

    def __len__(self) -> int:
        """Number of matches."""
        return len(self.subscription)

    def __repr__(self) -> str:
        return f"<MatchResult: {len(self):,} matches of {len(self.counts):,} events>"

    def to_arrow(self) -> pa.Table:
        """Columns `event` and `subscription`."""
        import pyarrow as pa

        kind = pa.int64() if self.subscription.dtype == np.int64 else pa.string()
        chunks = [pa.array(self.subscription[piece], kind) for piece in pieces(len(self))]
        return pa.table({"event": self.event, "subscription": pa.chunked_array(chunks, kind)})


def join_parts(found: Sequence[tuple[Matches, IdArray]], events: int, dtype: type) -> MatchResult:
    """One result from the matches of several parts, each with its ids by position."""
    found = [(matches, ids) for matches, ids in found if len(matches.positions)]
    if len(found) == 1:
        (counts, positions), ids = found[0]
        return MatchResult(counts, take(ids, positions))
    total = np.zeros(events, np.int64)
    for matches, _ in found:
        total += matches.counts
    subscription: IdArray = np.empty(int(total.sum()), dtype)
    # Where the next match of each event goes.
    cursor = np.cumsum(total) - total
    for (counts, positions), ids in found:
        own = np.cumsum(counts) - counts
        target = np.arange(len(positions)) + repeat(cursor - own, counts)
        for piece in pieces(len(positions)):
            subscription[target[piece]] = ids[positions[piece]]
        cursor += counts
    return MatchResult(total, subscription)


def join_chunks(
    results: Sequence[MatchResult], skipped_attributes: tuple[str, ...] = ()
) -> MatchResult:
    """One result from the results of consecutive chunks of a batch."""
    if len(results) == 1:
        counts, subscription = results[0].counts, results[0].subscription
    else:
        counts = np.concatenate([result.counts for result in results])
        subscription = concatenate([result.subscription for result in results])
    return MatchResult(counts, subscription, skipped_attributes)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Divisible(Protocol):
    """What can be worked on in parts."""

    def __len__(self) -> int: ...

    def part(self, first: int, end: int) -> Self: ...


Whole = TypeVar("Whole", bound=Divisible)


def by_chunks(work: Callable[[Whole], Result], points: Whole, threads: int | None) -> list[Result]:
    """`work` on consecutive chunks of `points`, one per thread, results in order.

    Kernels hold no GIL.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    wanted = min(threads or cores(), len(points) // _SMALL)
    if wanted <= 1:
        return [work(points)]
    size = -(-len(points) // wanted)
    count = len(points)
    chunks = [points.part(first, min(first + size, count)) for first in range(0, count, size)]
    return list(_pool(os.getpid(), max(wanted, cores())).map(work, chunks))


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    # By process: a forked child has the pool, but not its threads. Batches that are too small for
    # all cores share it with the others: a pool for each number would keep all of their threads.
    return ThreadPoolExecutor(threads, thread_name_prefix="boxmatch")
