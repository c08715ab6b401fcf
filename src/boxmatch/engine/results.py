"""Batches: chunks of events on several threads, and their matches as columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsIndex, TypeVar

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.engine.ids import IdArray
from boxmatch.indexes.base import Matches
from boxmatch.kernels.pieces import concatenate, pieces, repeat, take, to_texts
from boxmatch.kernels.threads import cores, pool

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]  # unless its stubs are installed
    import polars as pl
    import pyarrow as pa

    from boxmatch.engine.kept_columns import KeptColumns
    from boxmatch.model.point_encoder import PointBatch

Result = TypeVar("Result")

_SMALL = 128
"""Events per thread below which another thread costs more than it gives."""


class MatchResult:
    """Matches of a batch of events, ordered by event.

    `event` and `subscription` are parallel: row `i` says that subscription `subscription[i]` wants
    event `event[i]`. Within an event the order of subscriptions means nothing.

    By event, `result[i]` has the ids of event `i`, and a loop gives `(i, ids)` for every event,
    matched or not; ids are parts of `subscription`, not copies. `len` is the number of events. A
    result without any match is false.

    It is a table, too: other libraries read it through `__arrow_c_stream__`. Columns of the events
    that `match_batch` was told to `keep` are in the table.

    `skipped_attributes` names the attributes whose predicates were not checked, for the sake of a
    rate of false matches; if there are none, the matches are as exact as the index is.
    """

    def __init__(
        self,
        counts: Int64Array,
        subscription: IdArray,
        skipped_attributes: tuple[str, ...] = (),
        kept: KeptColumns | None = None,
    ) -> None:
        self.counts = counts
        self.subscription = subscription
        self.skipped_attributes = skipped_attributes
        self._kept = kept

    @cached_property
    def event(self) -> Int64Array:
        """The event's row in the batch, for each match."""
        return repeat(np.arange(len(self.counts)), self.counts)

    @cached_property
    def _start(self) -> Int64Array:
        """Where the matches of each event start, and the end of all."""
        start = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts, out=start[1:])
        return start

    def __len__(self) -> int:
        """Number of events."""
        return len(self.counts)

    def __bool__(self) -> bool:
        """Whether there is any match."""
        return len(self.subscription) > 0

    def __getitem__(self, event: SupportsIndex) -> IdArray:
        """The ids of one event."""
        place = index(event)
        if not -len(self) <= place < len(self):
            raise IndexError(f"there is no event {place}: the batch has {len(self):,}")
        first, end = self._start[place % len(self)], self._start[place % len(self) + 1]
        return self.subscription[first:end]

    def __iter__(self) -> Iterator[tuple[int, IdArray]]:
        """Every event's row, with its ids."""
        ids = self.subscription
        for event, (first, end) in enumerate(pairwise(self._start.tolist())):
            yield event, ids[first:end]

    def __repr__(self) -> str:
        return f"<MatchResult: {len(self.subscription):,} matches of {len(self):,} events>"

    def pairs(self) -> tuple[Int64Array, IdArray]:
        """The columns `event` and `subscription`."""
        return self.event, self.subscription

    def to_arrow(self) -> pa.Table:
        """Columns `event` and `subscription`, and those of the events that were kept.

        Numbers are not copied.
        """
        import pyarrow as pa

        ids: Any
        if self.subscription.dtype == np.int64:
            ids = pa.array(self.subscription)
        else:
            ids = to_texts(self.subscription, pa.string())
        columns: dict[str, Any] = {"event": pa.array(self.event), "subscription": ids}
        if self._kept is not None:
            columns |= self._kept.take(self.event)
        return pa.table(columns)

    def to_pandas(self) -> pd.DataFrame:
        """The same as a pandas frame; pandas must be installed."""
        import pandas as pd

        # Not from Arrow, which would make all strings anew without letting go of the GIL.
        ids = concatenate([self.subscription])
        columns: dict[str, Any] = {"event": self.event.copy(), "subscription": ids}
        if self._kept is not None:
            import pyarrow as pa

            kept = pa.table(self._kept.take(self.event)).to_pandas()
            columns |= {name: kept[name] for name in kept}
        return pd.DataFrame(columns, copy=False)

    def to_polars(self) -> pl.DataFrame:
        """The same as a polars frame; polars must be installed."""
        import polars as pl

        return pl.DataFrame(self.to_arrow())

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The same for any library that reads Arrow streams."""
        table: Any = self.to_arrow()  # whose stubs have no types for this
        stream: object = table.__arrow_c_stream__(requested_schema)
        return stream


def join_parts(
    found: Sequence[tuple[Matches, IdArray]], events: int, dtype: type, threads: int | None = 1
) -> MatchResult:
    """One result from the matches of several parts, each with its ids by position."""
    found = [(matches, ids) for matches, ids in found if len(matches.positions)]
    if len(found) == 1:
        (counts, positions), ids = found[0]
        return MatchResult(counts, take(ids, positions, threads))
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


def join_positions(
    chunks: Sequence[Sequence[Matches]], ids: Sequence[IdArray], events: int
) -> MatchResult:
    """One result from the matches of each part in consecutive chunks of a batch, for string ids.

    These are looked up last, since to copy and to free arrays of them holds the GIL.
    """
    parts = [
        Matches(*(np.concatenate(columns) for columns in zip(*matches, strict=True)))
        for matches in zip(*chunks, strict=True)
    ]
    return join_parts(list(zip(parts, ids, strict=True)), events, object)


def join_chunks(
    results: Sequence[MatchResult],
    skipped_attributes: tuple[str, ...] = (),
    kept: KeptColumns | None = None,
) -> MatchResult:
    """One result from the results of consecutive chunks of a batch."""
    if len(results) == 1:
        counts, subscription = results[0].counts, results[0].subscription
    else:
        counts = np.concatenate([result.counts for result in results])
        subscription = np.concatenate([result.subscription for result in results])
    return MatchResult(counts, subscription, skipped_attributes, kept)


def fold_events(result: MatchResult, owners: Int64Array, events: int) -> MatchResult:
    """The result by event, of one by points of which some events have several."""
    owner = owners[result.event]
    _, ids = np.unique(result.subscription, return_inverse=True)
    _, first = np.unique(owner * (len(ids) + 1) + ids, return_index=True)
    counts = np.bincount(owner[first], minlength=events)
    kept = take(result.subscription, first)
    return MatchResult(counts, kept, result.skipped_attributes, result._kept)


class Divisible(Protocol):
    """What can be worked on in parts."""

    def __len__(self) -> int: ...

    def part(self, first: int, end: int) -> Self: ...


Whole = TypeVar("Whole", bound=Divisible)


class Searched:
    """A batch of which some stores, by number, have been searched already, all at once."""

    def __init__(self, batch: PointBatch, found: Mapping[int, Matches]) -> None:
        self.batch = batch
        self._found = found

    @cached_property
    def _starts(self) -> dict[int, Int64Array]:
        """Where the matches of each event start, and the end of all, by store."""
        return {
            number: np.concatenate([[0], np.cumsum(matches.counts)])
            for number, matches in self._found.items()
        }

    def __len__(self) -> int:
        return len(self.batch)

    def part(self, first: int, end: int) -> Searched:
        """Neighbouring events."""
        found = {}
        for number, (counts, positions) in self._found.items():
            start = self._starts[number]
            found[number] = Matches(counts[first:end], positions[start[first] : start[end]])
        return Searched(self.batch.part(first, end), found)

    def found(self, number: int) -> Matches | None:
        """The matches of a store, if it has been searched."""
        return self._found.get(number)


def checked(threads: int | None) -> int | None:
    """How many threads to use, if that can be."""
    if threads is not None and threads < 1:
        raise ValueError(f"threads must be at least 1, not {threads}")
    return threads


def by_chunks(work: Callable[[Whole], Result], points: Whole, threads: int | None) -> list[Result]:
    """`work` on consecutive chunks of `points`, one per thread, results in order.

    Kernels hold no GIL.
    """
    wanted = min(checked(threads) or cores(), len(points) // _SMALL)
    if wanted <= 1:
        return [work(points)]
    size = -(-len(points) // wanted)
    count = len(points)
    chunks = [points.part(first, min(first + size, count)) for first in range(0, count, size)]
    # Batches that are too small for all cores share the threads with the others: a pool for each
    # number would keep all of their threads.
    return list(pool(os.getpid(), max(wanted, cores()), "boxmatch").map(work, chunks))
