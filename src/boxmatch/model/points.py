"""Points: events as keys on axes, where an axis of repeated values has a set of keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from boxmatch.arrays import BoolArray, Float64Array, Int32Array, Int64Array, UInt8Array


class ListKeys(NamedTuple):
    """The keys of points on axes where a point has a set of them.

    Point `e` has `keys[start[e * len(axes) + j]:start[e * len(axes) + j + 1]]` on `axes[j]`, none
    of them `ABSENT`, in any order. A predicate on such an axis holds if one of them is inside.
    """

    axes: Int32Array
    """Positions of the axes, ascending."""
    start: Int64Array
    keys: Int64Array

    @classmethod
    def of(cls, axes: Sequence[int], columns: Sequence[tuple[Int64Array, Int64Array]]) -> ListKeys:
        """From the sets on each axis: where those of each point begin, and their keys."""
        lengths = np.stack([np.diff(start) for start, _ in columns], axis=1)
        start = np.zeros(lengths.size + 1, np.int64)
        np.cumsum(lengths.reshape(-1), out=start[1:])
        if len(columns) == 1:
            return cls(np.array(axes, np.int32), start, columns[0][1])
        keys = np.empty(start[-1], np.int64)
        for place, (own, found) in enumerate(columns):
            shift = start[:-1].reshape(lengths.shape)[:, place] - own[:-1]
            keys[np.repeat(shift, lengths[:, place]) + np.arange(len(found))] = found
        return cls(np.array(axes, np.int32), start, keys)

    def column(self, place: int, count: int) -> tuple[Int64Array, Int64Array]:
        """The sets on `axes[place]` as `of` takes them."""
        shape = count, len(self.axes)
        lengths = np.diff(self.start).reshape(shape)[:, place]
        start = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=start[1:])
        shift = self.start[:-1].reshape(shape)[:, place] - start[:-1]
        return start, self.keys[np.repeat(shift, lengths) + np.arange(start[-1])]

    def take(self, points: Int64Array) -> ListKeys:
        """Those of some points."""
        count = (len(self.start) - 1) // len(self.axes)
        columns = []
        for place in range(len(self.axes)):
            own, keys = self.column(place, count)
            lengths = np.diff(own)[points]
            start = np.zeros(len(points) + 1, np.int64)
            np.cumsum(lengths, out=start[1:])
            shift = own[:-1][points] - start[:-1]
            columns.append((start, keys[np.repeat(shift, lengths) + np.arange(start[-1])]))
        return ListKeys.of(self.axes.tolist(), columns)

    def part(self, first: int, end: int) -> ListKeys:
        """Those of neighbouring points. Shares memory."""
        width = len(self.axes)
        start = self.start[first * width : end * width + 1]
        return ListKeys(self.axes, start - start[0], self.keys[start[0] : start[-1]])


@dataclass(slots=True, eq=False)  # frozen, each would take half a microsecond longer to make
class Points:
    """Keys of events, n × d, and their sets of keys on the axes that have them. Never changed.

    What `keys` has on an axis of `lists` means nothing.
    """

    keys: Int64Array
    lists: ListKeys | None = None

    def __len__(self) -> int:
        return len(self.keys)

    def part(self, first: int, end: int) -> Points:
        """Neighbouring points. Shares memory."""
        lists = None if self.lists is None else self.lists.part(first, end)
        return Points(self.keys[first:end], lists)

    def narrow(self, dimensions: int) -> Points:
        """Their first axes alone, for an index that knows no others."""
        if dimensions == self.keys.shape[1]:
            return self
        keys = np.ascontiguousarray(self.keys[:, :dimensions])
        lists = self.lists
        if lists is not None and len(lists.axes) and lists.axes[-1] >= dimensions:
            lists = _select(lists, lists.axes < dimensions, len(keys))
        return Points(keys, lists)


class FloatTable(NamedTuple):
    """Events as floats, n × d, NaN where there is no value; `whole` marks the axes of ints."""

    values: Float64Array
    whole: UInt8Array


class FloatPoints(Points):
    """Points of a table of floats, whose keys are made when somebody asks for them.

    Values may be among them that their attributes refuse, which is found out when keys are made.
    """

    __slots__ = ("_keys", "_make", "table")

    def __init__(self, table: FloatTable, make: Callable[[], Int64Array]) -> None:
        self.table = table
        self.lists = None
        self._make = make
        self._keys: Int64Array | None = None

    @property
    def keys(self) -> Int64Array:  # type: ignore[override]
        """The keys; raises `AttributeValueError` for a value that is refused."""
        if self._keys is None:
            self._keys = self._make()
        return self._keys

    def __len__(self) -> int:
        return len(self.table.values)

    def part(self, first: int, end: int) -> FloatPoints:
        """Neighbouring points. Shares memory, also of keys."""
        table = self.table._replace(values=self.table.values[first:end])
        return FloatPoints(table, lambda: self.keys[first:end])


def _select(lists: ListKeys, kept: BoolArray, count: int) -> ListKeys | None:
    axes = lists.axes[kept]
    if not len(axes):
        return None
    lengths = np.diff(lists.start).reshape(count, len(lists.axes))
    marks = np.repeat(np.broadcast_to(kept, lengths.shape).reshape(-1), lengths.reshape(-1))
    start = np.zeros(count * len(axes) + 1, np.int64)
    np.cumsum(lengths[:, kept].reshape(-1), out=start[1:])
    return ListKeys(axes, start, lists.keys[marks])
