"""Indexes that name candidates by another index, and compare those with the event."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from boxmatch.arrays import BitLines, BoolArray, Int32Array, Int64Array, UInt16Array
from boxmatch.indexes.base import NO_IDS, NO_LINES, NO_MARKS, NO_OWNERS, Capabilities, Query, Search
from boxmatch.indexes.scan import ScanIndex
from boxmatch.kernels.box_lists import is_alive
from boxmatch.kernels.jit import kernel
from boxmatch.model.box_kernels import holds


class CandidateIndex(ScanIndex):
    """Built once. What it names may be more than what matches, but never less."""

    capabilities = Capabilities()

    @abstractmethod
    def _candidates(self, point: Int64Array) -> Int32Array:
        """Boxes that may hold the single point in an array of shape (1, d), each once."""

    def prepare(
        self,
        alive: BitLines = NO_LINES,
        skipped: BoolArray = NO_MARKS,
        ids: Int64Array = NO_IDS,
        owners: Int32Array = NO_OWNERS,
    ) -> Search | None:
        return None

    def _search(self, query: Query) -> Int32Array:
        parts = []
        for event in range(len(query.points)):
            candidates = self._candidates(query.points[event : event + 1])
            count = _keep(*self._boxes[1:], query, event, candidates)
            query.counts[event] = count
            if query.listing:
                parts.append(candidates[:count])
        return np.concatenate(parts) if parts else np.zeros(0, np.int32)


@kernel
def _keep(
    start: Int64Array,
    attribute: UInt16Array,
    low: Int64Array,
    high: Int64Array,
    query: Query,
    event: int,
    candidates: Int32Array,
) -> int:
    """Move the candidates that hold the event to the front; return how many they are."""
    points, alive, skipped, _, _ = query
    kept = 0
    for i in range(len(candidates)):
        box = candidates[i]
        if len(alive) and not is_alive(alive, box):
            continue
        if holds(start, attribute, low, high, box, points, event, skipped):
            candidates[kept] = box
            kept += 1
    return kept
