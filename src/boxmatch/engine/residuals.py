"""What boxes cannot express of filters: checked for the events that lie in the boxes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from boxmatch.arrays import BoolArray, Int32Array, Int64Array
from boxmatch.indexes.base import Matches
from boxmatch.kernels.pieces import repeat
from boxmatch.model.expressions.nodes import Node, columns_of
from boxmatch.model.point_encoder import PointBatch, Values

if TYPE_CHECKING:
    from boxmatch.model.expressions.batch import Batch

NONE: Final = -1
"""The number of a box whose filter has no residual."""

_FEW: Final = 8
"""Up to so many events are evaluated one by one: columns cost more to set up."""

_MOST: Final = 2
"""All events of a batch are evaluated if one in so many is a candidate."""


class Residual:
    """Conditions all of which must be true. There is one object for each combination of them."""

    def __init__(self, nodes: tuple[Node, ...]) -> None:
        self.nodes = nodes

    @cached_property
    def columns(self) -> frozenset[str]:
        """The attributes that they read."""
        return frozenset().union(*map(columns_of, self.nodes))

    @cached_property
    def _tests(self) -> list[Callable[[Values], Any]]:
        from boxmatch.model.expressions.scalar import compile_scalar

        return [compile_scalar(node) for node in self.nodes]

    def holds(self, values: Values) -> bool:
        """Whether all are true of one event."""
        return all(test(values) is True for test in self._tests)

    def hold(self, batch: PointBatch, rows: Int64Array) -> BoolArray:
        """Whether all are true, for some rows of a batch, which are distinct and ascend."""
        if len(rows) <= _FEW:
            found = (self.holds(batch.values(row, self.columns)) for row in rows.tolist())
            return np.fromiter(found, bool, len(rows))
        if len(rows) * _MOST >= len(batch):
            return self._hold(batch.evaluator)[rows]
        return self._hold(batch.evaluator_of(rows))

    def _hold(self, evaluator: Batch) -> BoolArray:
        found: BoolArray | None = None
        for node in self.nodes:
            truth = evaluator.evaluate(node).fill_null(False).to_numpy(zero_copy_only=False)
            found = truth if found is None else found & truth
        if found is None:
            raise ValueError("a residual has at least one condition")
        return found


_known: weakref.WeakValueDictionary[tuple[Node, ...], Residual] = weakref.WeakValueDictionary()
_interning = threading.Lock()


def residual_of(nodes: tuple[Node, ...]) -> Residual:
    """The residual of these conditions."""
    with _interning:
        found = _known.get(nodes)
        if found is None:
            found = _known[nodes] = Residual(nodes)
        return found


class Residuals:
    """The residuals of boxes by position: a number for each box, and what the numbers mean.

    One writer at a time appends; any number of readers use the positions that they know of.
    """

    def __init__(self, numbers: Int32Array, distinct: Iterable[Residual] = ()) -> None:
        self.numbers = numbers
        self.distinct = list(distinct)
        self._number = {residual: number for number, residual in enumerate(self.distinct)}

    @classmethod
    def of(cls, residuals: Sequence[Residual | None]) -> Residuals:
        """From the residual of each box, or None."""
        column = cls(np.empty(len(residuals), np.int32))
        for position, residual in enumerate(residuals):
            column.numbers[position] = column.number(residual)
        return column

    def number(self, residual: Residual | None) -> int:
        """The number of a residual, which is a new one if need be."""
        if residual is None:
            return NONE
        found = self._number.get(residual)
        if found is None:
            found = self._number[residual] = len(self.distinct)
            self.distinct.append(residual)
        return found

    def at(self, position: int) -> Residual | None:
        number = int(self.numbers[position])
        return None if number == NONE else self.distinct[number]

    def take(self, positions: Int64Array) -> list[Residual | None]:
        """The residuals at some positions."""
        table = [*self.distinct, None]  # the last one is that of `NONE`
        return [table[number] for number in self.numbers[positions].tolist()]

    def keep_one(self, positions: Int32Array, values: Values) -> Int32Array:
        """Of the boxes that hold one event, those whose residual is true as well."""
        numbers = self.numbers[positions]
        held = {
            number: number == NONE or self.distinct[number].holds(values)
            for number in np.unique(numbers).tolist()
        }
        marks = np.fromiter(map(held.__getitem__, numbers.tolist()), bool, len(numbers))
        kept: Int32Array = positions[marks]
        return kept

    def keep(self, found: Matches, batch: PointBatch) -> Matches:
        """The same for many events: each residual is evaluated once for an event."""
        numbers = self.numbers[found.positions].astype(np.int64)
        event = repeat(np.arange(len(found.counts)), found.counts)
        marks = numbers == NONE
        open_places = np.flatnonzero(~marks)
        pairs, back = np.unique(
            numbers[open_places] * len(found.counts) + event[open_places], return_inverse=True
        )
        number, rows = np.divmod(pairs, max(len(found.counts), 1))
        held = np.empty(len(pairs), bool)
        ends = np.flatnonzero(np.diff(number, append=-2)) + 1
        first = 0
        for end in ends.tolist():
            held[first:end] = self.distinct[number[first]].hold(batch, rows[first:end])
            first = end
        marks[open_places] = held[back]
        counts = np.bincount(event[marks], minlength=len(found.counts))
        return Matches(counts, found.positions[marks])
