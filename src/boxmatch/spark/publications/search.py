"""Which subscriptions of an index match the states of publications."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.engine.residuals import NONE
from boxmatch.engine.results import by_chunks
from boxmatch.errors import SparkError
from boxmatch.indexes.base import Matches
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.axis_table import Axes
from boxmatch.model.points import Points
from boxmatch.spark.publications.states import States
from boxmatch.spark.segments import ID_TYPES, Array, OpenShard, Segment


class Subscriptions:
    """All subscriptions of a version, by number: those of a segment follow those of another."""

    def __init__(self, shards: Sequence[OpenShard], id_type: str) -> None:
        self._parts = [
            (segment, alive)
            for shard in shards
            for segment, alive in zip(shard.segments, shard.alive, strict=True)
        ]
        for segment, alive in self._parts:
            require_boxes(segment, alive)
        kind = ID_TYPES[id_type]
        ids: Any = pa.chunked_array([part.ids.cast(kind) for part, _ in self._parts], kind)
        self.ids: Array = ids.combine_chunks()
        """Their ids by number, also of those that are no more."""

    @property
    def alive(self) -> BoolArray:
        """Which numbers are subscriptions now, whether anything can match them or not."""
        marks = [
            np.ones(len(segment.ids), bool) if alive is None else alive
            for segment, alive in self._parts
        ]
        return np.concatenate([np.empty(0, bool), *marks])

    def find(self, states: States, threads: int = 1) -> tuple[Int64Array, Int64Array]:
        """The numbers that match each state: where those of each begin, and all of them."""
        pieces: list[tuple[Int64Array, Int64Array]] = []
        constrained = states.constrained
        first = 0
        for segment, alive in self._parts:
            for rows, numbers in _find(segment, states, constrained, threads):
                if alive is not None:
                    valid = alive[numbers]
                    rows, numbers = rows[valid], numbers[valid]
                pieces.append((rows, numbers + first))
            first += len(segment.ids)
        return _by_state(pieces, len(states))


def require_boxes(segment: Segment, alive: BoolArray | None) -> None:
    """Raise an error if a subscription wants what the region of a publication does not say."""
    matcher = segment.matcher
    if matcher is None:
        return
    schema = matcher.schema
    reasons = [f"{one.name} is a {one.type_name}" if one.repeated else "" for one in schema]
    for view in matcher.snapshot.views:
        boxes, residuals = view.store.boxes, view.store.residuals
        rows = np.asarray(view.store.ids)
        box = np.repeat(np.arange(boxes.count), np.diff(boxes.start))
        axis = boxes.attribute.astype(np.int64)
        open_lists = np.array([bool(reason) for reason in reasons])
        beyond = axis >= len(schema)
        beyond[~beyond] = open_lists[axis[~beyond]]
        wrong = np.zeros(boxes.count, bool)
        wrong[box[beyond]] = True
        if residuals is not None:
            wrong |= residuals.numbers[: boxes.count] != NONE
        if alive is not None:
            wrong &= alive[rows]
        if wrong.any():
            at = int(wrong.argmax())
            one = segment.ids[int(rows[at])].as_py()
            lists = [reasons[a] for a in axis[box == at].tolist() if a < len(schema) and reasons[a]]
            reason = lists[0] if lists else f"its filter is {matcher.filter_of(int(rows[at]))}"
            raise SparkError(
                f"subscription {one!r}: {reason}, which no region of a publication can be compared "
                "with: transitions take ranges and values of attributes alone; match takes the rest"
            )


def _by_state(
    pieces: Sequence[tuple[Int64Array, Int64Array]], states: int
) -> tuple[Int64Array, Int64Array]:
    counts = np.zeros(states, np.int64)
    for rows, _ in pieces:
        counts += np.bincount(rows, minlength=states)
    start = np.concatenate([[0], np.cumsum(counts)])
    if len(pieces) == 1:
        return start, pieces[0][1]
    found = np.empty(int(start[-1]), np.int64)
    cursor = start[:-1].copy()
    for rows, numbers in pieces:  # each in the order of states
        own = np.bincount(rows, minlength=states)
        begin = np.cumsum(own) - own
        found[cursor[rows] + np.arange(len(rows)) - begin[rows]] = numbers
        cursor += own
    return start, found


def _find(
    segment: Segment, states: States, constrained: BoolArray, threads: int
) -> Iterator[tuple[Int64Array, Int64Array]]:
    """Matches of a segment as rows of states and numbers of subscriptions."""
    matcher = segment.matcher
    if matcher is None:
        return
    snapshot = matcher.snapshot
    low, high = (_keys(ends, states, snapshot.axes) for ends in (states.low, states.high))
    used = snapshot.used.copy()
    used[len(snapshot.axes.schema) :] = False  # of subscriptions that are no more
    # Where an end is free the keys are alike as well, but no key of a value.
    at_point = ((low == high) & (low != ABSENT))[:, used].all(axis=1)
    points = np.flatnonzero(constrained & at_point)
    if len(points):
        keys = low[points]
        for view in snapshot.views:
            parts = by_chunks(view.match_boxes, Points(keys), threads)
            yield from _rows(parts, points, view.store.ids)
    regions = np.flatnonzero(constrained & ~at_point)
    if len(regions):
        low, high = low[regions], high[regions]
        low[low == ABSENT] = FIRST
        high[high == ABSENT] = LAST
        for overlaps, ids in segment.overlaps:
            yield from _rows([overlaps.find(low, high)], regions, ids)


def _keys(ends: Int64Array, states: States, axes: Axes) -> Int64Array:
    """Ends on all axes of a matcher; codes of texts as the keys that they have there."""
    keys = np.full((len(ends), axes.width), ABSENT)
    keys[:, : ends.shape[1]] = ends
    for d, texts in states.texts.items():
        if d in axes.strings and len(texts):
            given = ends[:, d] != ABSENT
            known: list[Any] = texts.to_pylist()
            labels = np.array(axes.strings[d].between(known), np.int64)
            keys[given, d] = labels[ends[given, d]]
    return keys


def _rows(
    parts: Sequence[Matches], rows: Int64Array, ids: Any
) -> Iterator[tuple[Int64Array, Int64Array]]:
    first = 0
    for counts, positions in parts:
        own = rows[first : first + len(counts)]
        first += len(counts)
        if len(positions):
            yield np.repeat(own, counts), np.asarray(ids)[positions]
