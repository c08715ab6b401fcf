"""One event against a snapshot, in as few steps as there can be.

Of the microseconds that a small event takes, most go to Python: to every call, array and argument.
Searches are therefore prepared, and what an event needs memory for is used again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from boxmatch.arrays import BoolArray
from boxmatch.engine.box_stores import StoreView
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
        self, views: Sequence[StoreView], encoder: PointEncoder, used: BoolArray | None
    ) -> None:
        """`used` are the axes that need keys; None if those of the schema are all there is."""
        self._views = views
        self._encoder = encoder
        self._used = used
        self._write = encoder.base.write
        # Whoever searches takes one, or makes one: it is never in two hands, not even if reading
        # an event makes the same thread match another one. After an error it is not put back.
        self._free: list[_Buffers] = []

    def match(self, event: Mapping[str, Any], skipped: BoolArray | None) -> list[SubscriptionId]:
        """The ids of the subscriptions that want the event."""
        buffers = self._take()
        points, values = self._read(event, buffers)
        room = buffers.room
        ids: list[SubscriptionId] = []
        for view in self._views:
            search = view.search or view.prepare()
            if search is None or skipped is not None or not _suits(view, points):
                ids += view.match_one(points, values, skipped).tolist()
                continue
            positions = search(points.keys, True, room)
            if positions is not None:
                ids += view.store.ids[positions].tolist()
            elif count := buffers.found[0]:
                if view.store.ids.dtype == np.int64:
                    ids += buffers.found[1 : count + 1].tolist()
                else:
                    ids += view.store.ids[room[1 : count + 1]].tolist()
        self._free.append(buffers)
        return ids

    def count(self, event: Mapping[str, Any], skipped: BoolArray | None) -> int:
        """How many subscriptions want the event."""
        buffers = self._take()
        points, values = self._read(event, buffers)
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
            return _Buffers(len(self._encoder.schema))

    def _read(self, event: Mapping[str, Any], buffers: _Buffers) -> tuple[Points, Values | None]:
        """The event as a point, and its values if they are needed."""
        if self._used is not None:
            return self._encoder.one(event, self._used)
        self._write(event, buffers.ints, buffers.floats)
        return buffers.points, None


def _suits(view: StoreView, points: Points) -> bool:
    """Whether a prepared search can take the point as it is."""
    return points.lists is None and points.keys.shape[1] <= view.dimensions
