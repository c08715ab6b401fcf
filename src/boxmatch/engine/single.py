"""One event against a snapshot, in as few steps as there can be.

Of the microseconds that a small event takes, most go to Python: to every call, array and argument.
Searches are therefore prepared, and what an event needs memory for is used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from boxmatch.arrays import BoolArray
from boxmatch.engine.box_stores import StoreView
from boxmatch.engine.ids import IdArray
from boxmatch.kernels.pieces import concatenate, take
from boxmatch.model.document_reader import DocumentReader
from boxmatch.model.ids import SubscriptionId
from boxmatch.model.point_encoder import PointEncoder, Values
from boxmatch.model.points import Points

_ROOM: Final = 1 + 1_024
"""A count, and ids; more ids than that are returned as an array of their own."""


class _Buffers:
    """What one search writes to: the keys of the event, and what is found."""

    __slots__ = ("floats", "found", "ints", "points", "room")

    def __init__(self, width: int) -> None:
        self.points = Points(np.empty((1, width), np.int64))
        keys = self.points.keys.reshape(-1).data.cast("B")
        self.ints, self.floats = keys.cast("q"), keys.cast("d")
        self.room = np.empty(_ROOM, np.int64)
        self.found = self.room.data.cast("B").cast("q")


class SingleSearch:
    """Finds the subscriptions that want one event. Any number of threads may share it."""

    def __init__(
        self,
        views: Sequence[StoreView],
        encoder: PointEncoder,
        reader: DocumentReader | None,
        used: BoolArray,
    ) -> None:
        """`used` are the axes that need keys; those of the schema are all there is without a
        `reader` of documents.
        """
        self._views = views
        self._encoder = encoder
        self._reader = reader
        self._used = used
        self._write = encoder.base.write
        # Documents alone, whose keys are all that is needed, are read without further ado.
        self._direct = reader if reader is not None and encoder.is_direct(reader, used) else None
        self._keeps_values = any(view.residuals is not None for view in views)
        width = len(encoder.schema) if self._direct is None else encoder.axes.width
        self._width = width
        # Whoever searches takes one, or makes one: it is never in two hands, not even if reading
        # an event makes the same thread match another one. After an error it is not put back.
        self._free: list[_Buffers] = []

    def match(self, event: Mapping[str, Any], skipped: BoolArray | None) -> list[SubscriptionId]:
        """The ids of the subscriptions that want the event."""
        buffers = self._take()
        found = self._read(event, buffers)
        if len(found) == 1:
            ids = self._match(*found[0], buffers, skipped)
        else:
            each = (self._match(*one, buffers, skipped) for one in found)
            ids = list(dict.fromkeys(chain.from_iterable(each)))
        self._free.append(buffers)
        return ids

    def find(self, event: Mapping[str, Any]) -> IdArray | None:
        """The same as an array; None if elements of lists in the event have to be chosen."""
        buffers = self._take()
        found = self._read(event, buffers)
        ids = None
        if len(found) == 1:
            parts = []
            for view in self._views:
                part = self._find(view, *found[0], buffers, None)
                # The next search writes to the same buffers.
                parts.append(part if isinstance(part, np.ndarray) else np.array(part))
            ids = parts[0] if len(parts) == 1 else concatenate(parts) if parts else None
        self._free.append(buffers)
        return ids

    def _match(
        self, points: Points, values: Values | None, buffers: _Buffers, skipped: BoolArray | None
    ) -> list[SubscriptionId]:
        ids: list[SubscriptionId] = []
        for view in self._views:
            ids += self._find(view, points, values, buffers, skipped).tolist()
        return ids

    def _find(
        self,
        view: StoreView,
        points: Points,
        values: Values | None,
        buffers: _Buffers,
        skipped: BoolArray | None,
    ) -> IdArray | memoryview:
        """The ids in one store. They may be those in the buffers."""
        search = view.search or view.prepare()
        if search is None or skipped is not None or not _suits(view, points):
            return view.match_one(points, values, skipped)
        positions = search(points.keys, True, buffers.room)
        if positions is not None:
            return take(view.store.ids, positions)
        end = buffers.found[0] + 1
        if view.store.ids.dtype == np.int64:
            return buffers.found[1:end]
        return view.store.ids[buffers.room[1:end]]

    def count(self, event: Mapping[str, Any], skipped: BoolArray | None) -> int:
        """How many subscriptions want the event."""
        buffers = self._take()
        found = self._read(event, buffers)
        if len(found) > 1:
            self._free.append(buffers)
            return len(self.match(event, skipped))
        [(points, values)] = found
        total = 0
        for view in self._views:
            search = view.search or view.prepare()
            if search is None or skipped is not None or not _suits(view, points):
                total += view.count_one(points, values, skipped)
            else:
                search(points.keys, False, buffers.room)
                total += buffers.found[0]
        self._free.append(buffers)
        return total

    def _take(self) -> _Buffers:
        try:
            return self._free.pop()
        except IndexError:
            return _Buffers(self._width)

    def _read(
        self, event: Mapping[str, Any], buffers: _Buffers
    ) -> Sequence[tuple[Points, Values | None]]:
        """The event as a point, or as several, and its values if they are needed."""
        if self._direct is not None and type(event) is dict:
            buffers.ints[:] = self._direct.blank
            more = self._direct.read_one((event,), buffers.ints)
            if more is not None:
                values = self._encoder.base.values(event) if self._keeps_values else None
                points = buffers.points
                if more:
                    points = self._encoder.with_sets(points, more)
                return ((points, values),)
        if self._reader is not None:
            return self._encoder.one(event, self._reader, self._used)
        self._write(event, buffers.ints, buffers.floats)
        return ((buffers.points, None),)


def _suits(view: StoreView, points: Points) -> bool:
    """Whether a prepared search can take the point as it is."""
    return points.lists is None and points.keys.shape[1] <= view.dimensions
