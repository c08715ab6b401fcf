"""The shards that a worker has open, and matching events against them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.spark.segments import Array, Segment, living, open_segment


@dataclass(frozen=True)
class OpenShard:
    """The segments of a shard, and which of their rows are valid; None means all."""

    segments: Sequence[Segment]
    alive: Sequence[BoolArray | None]

    def find(self, events: pa.RecordBatch, threads: int) -> Iterator[tuple[Int64Array, Array]]:
        """Matches as rows of the batch and ids, side by side, in several pieces."""
        for segment, alive in zip(self.segments, self.alive, strict=True):
            if segment.matcher is None:
                continue
            found = segment.matcher.match_batch(events, threads=threads)
            rows, positions = found.event, np.asarray(found.subscription)
            if alive is not None:
                valid = alive[positions]
                rows, positions = rows[valid], positions[valid]
            if len(rows):
                yield rows, segment.ids.take(pa.array(positions))

    def count(self, events: pa.RecordBatch, threads: int) -> Int64Array:
        """How many subscriptions want each event."""
        total = np.zeros(events.num_rows, np.int64)
        for segment, alive in zip(self.segments, self.alive, strict=True):
            if segment.matcher is None:
                continue
            if alive is None:
                total += segment.matcher.count_batch(events, threads=threads)
            else:
                found = segment.matcher.match_batch(events, threads=threads)
                valid = alive[np.asarray(found.subscription)]
                total += np.bincount(found.event[valid], minlength=events.num_rows)
        return total


_open: OrderedDict[tuple[str, ...], OpenShard] = OrderedDict()


def open_shards(path: str, shards: Sequence[Sequence[str]]) -> list[OpenShard]:
    """Open shards, given as the names of their segments, once for all tasks of this worker.

    Those that nobody asked for this time are let go, so that a worker holds one version of an
    index, and one shard of an index that is too large for a machine.
    """
    opened = []
    for names in shards:
        key = (path, *names)
        shard = _open.pop(key, None) or _opened(path, names)
        _open[key] = shard
        opened.append(shard)
    while len(_open) > len(shards):
        _open.popitem(last=False)
    return opened


def _opened(path: str, names: Sequence[str]) -> OpenShard:
    # A segment that other versions of the shard share is not opened twice.
    known = {s.folder.name: s for shard in _open.values() for s in shard.segments}
    segments = [known.get(name) or open_segment(path, name) for name in names]
    return OpenShard(segments, living(segments))
