"""What a graphics card gives: its kernels, whole calls, and from how many events it pays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from boxmatch.engine.box_stores import IndexedSegment
from boxmatch.engine.matcher import Matcher
from boxmatch.indexes.base import Index
from boxmatch.indexes.tile.index import TileIndex
from boxmatch_bench.answers import by_event, compare
from boxmatch_bench.cases import Case
from boxmatch_bench.options import MatcherOptions
from boxmatch_bench.timing import Figures, took

_SIZES = (8, 16, 32, 64, 128, 256, 512, 1_024, 4_096, 16_384, 65_536)
_MOST_MATCHES = 20_000_000
_PROCESSOR_SECONDS = 2.0


def measure_card(matcher: Matcher, case: Case, options: MatcherOptions) -> Figures:
    """Batches of several sizes on the card and on the processor, whose answers are compared."""
    events = case.events(0, max(_SIZES))
    with _on_the_processor(matcher):
        mean = float(matcher.count_batch(events[:64], threads=options.threads).mean())
    rows: list[Figures] = []
    pays_from = None
    for size in _SIZES:
        if size * mean > _MOST_MATCHES:
            break
        batch = events[:size]
        found = matcher.match_batch(batch, threads=options.threads)
        call = min(
            took(lambda batch=batch: matcher.match_batch(batch, threads=options.threads))
            for _ in range(2 + options.repeats)
        )
        row: Figures = {"events": size, "call_microseconds": 1e6 * call / size}
        with _on_the_processor(matcher):
            if not rows or rows[-1]["processor_seconds"] < _PROCESSOR_SECONDS:
                plain = matcher.match_batch(batch, threads=options.threads)
                seconds = min(
                    took(lambda batch=batch: matcher.match_batch(batch, threads=options.threads))
                    for _ in range(2)
                )
                compare("the card differs", by_event(found, size), by_event(plain, size))
                row |= {
                    "processor_seconds": seconds,
                    "processor_microseconds": 1e6 * seconds / size,
                }
                if seconds <= call:
                    pays_from = None
                elif pays_from is None:
                    pays_from = size
            else:
                row["processor_seconds"] = rows[-1]["processor_seconds"]
        points = matcher.snapshot.batch(batch).points.keys
        kernels = sum(_kernels(index, points, options.repeats) for index in _indexes(matcher))
        rows.append(row | {"kernel_microseconds": 1e6 * kernels / size})
    return {"device": options.device, "batches": rows, "pays_from": pays_from}


def _indexes(matcher: Matcher) -> Iterator[Index]:
    for view in matcher.snapshot.views:
        if isinstance(view.store, IndexedSegment):
            yield view.store.index


def _kernels(index: Index, points: np.ndarray, repeats: int) -> float:
    if not isinstance(index, TileIndex):
        return 0.0
    return index._on_card.prepared().kernel_seconds(points, repeats)


@contextmanager
def _on_the_processor(matcher: Matcher) -> Iterator[None]:
    indexes = list(_indexes(matcher))
    devices = [index.device for index in indexes]
    try:
        for index in indexes:
            index.device = "cpu"
        yield
    finally:
        for index, device in zip(indexes, devices, strict=True):
            index.device = device
