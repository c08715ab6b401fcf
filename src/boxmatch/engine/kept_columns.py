"""Columns of the events that a result of `match_batch` has beside its matches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.arrays import Int64Array
from boxmatch.errors import EventError, did_you_mean
from boxmatch.model.schema import Schema
from boxmatch.model.tables import ColumnTable, as_table

if TYPE_CHECKING:
    import pyarrow as pa

_OWN = ("event", "subscription")
"""The columns that a result has anyway."""


class KeptColumns:
    """Columns of a batch of events, read when they are looked up."""

    def __init__(self, schema: Schema, events: Any, keep: Iterable[str]) -> None:
        """Raises `EventError` for a name that is no column.

        In a list of dicts that is one that neither the schema nor any of the dicts has.
        """
        if isinstance(keep, str):
            raise EventError(f"keep is a list of columns, not the text {keep!r}")
        self.names = tuple(keep)
        self._schema = schema
        table = as_table(events)
        if table is not None:
            events = table
        elif isinstance(events, Iterable) and not isinstance(
            events, (str, bytes, Mapping, np.ndarray)
        ):
            events = list(events)
        self.events = events
        """What to match: those that were given may be readable only once."""
        for name in self.names:
            self._check(name)

    def _check(self, name: str) -> None:
        if name in _OWN:
            raise EventError(f"keep: the result has a column {name!r} of its own; rename the other")
        events = self.events
        known: Sequence[object] = self._schema.names
        if isinstance(events, ColumnTable):
            known = events.names
            if list(known).count(name) > 1:
                raise EventError(f"keep: the table has two columns named {name!r}")
        elif isinstance(events, list) and (
            not events or any(isinstance(one, Mapping) and name in one for one in events)
        ):
            return
        if name not in known:
            raise EventError(f"keep: the events have no column {name!r}{did_you_mean(name, known)}")

    def take(self, event: Int64Array) -> dict[str, pa.ChunkedArray[Any]]:
        """The values of all columns for events in any order, any number of times."""
        import pyarrow as pa

        taken = {}
        for name in self.names:
            try:
                taken[name] = pa.chunked_array(self._chunks(name)).take(event)
            except (pa.ArrowException, TypeError) as error:
                raise EventError(f"keep: column {name!r} cannot be read: {error}") from None
        return taken

    def _chunks(self, name: str) -> Sequence[pa.Array[Any]]:
        import pyarrow as pa

        events = self.events
        if isinstance(events, np.ndarray):
            return [pa.array(np.ascontiguousarray(events[:, self._schema.index[name]]))]
        if isinstance(events, ColumnTable):
            column = events.column(list(events.names).index(name))
            if isinstance(column, tuple):
                return column
            return [pa.array(column, from_pandas=True)]  # where NaN is how a NULL looks
        return [pa.array([one.get(name) for one in events])]
