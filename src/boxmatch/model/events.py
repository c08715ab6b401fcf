"""Events to points: one row of keys per event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.columns import (
    PYTHON_TYPES,
    Refused,
    arrow_keys,
    check_domain,
    check_type,
    object_keys,
    scalar_key,
)
from boxmatch.model.keys import LARGEST_WHOLE, NO_PLACE, float_key, null_key
from boxmatch.model.numeric_arrays import array_keys
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
from boxmatch.model.tables import ColumnTable, as_table
from boxmatch.model.typed_arrays import float_keys

# How `_fill` treats an attribute: by the one type that its values nearly always have.
_FLOAT: Final = 0
_LOOKUP: Final = 1
_INT: Final = 2
_BOOL: Final = 3
_OTHER: Final = 4

_INT64: Final = np.dtype(np.int64)

_MANY: Final = 64
"""So many events are read column by column, if they have all attributes: it pays from 40 on."""
_ROWS: Final = 4_096
"""And no more at a time, so that their values are still near."""


class EventEncoder:
    """Turns events into keys, d of them per event, in schema order.

    Reads the axes as they are at the time of each call, so strings that are added to them later
    count from then on. Attributes that the schema does not know are payload and ignored. Any
    number of threads may share an encoder.
    """

    def __init__(self, schema: Schema, axes: Mapping[int, StringAxis]) -> None:
        self.schema = schema
        self._axes: list[StringAxis | None] = [None] * len(schema)
        self._table: dict[str, tuple[int, int, Any]] = {}
        for position, attribute in enumerate(schema):
            kind = _OTHER
            known: Mapping[str, int] | None = None
            if attribute.labelled:
                # Without an axis no filter names a string: all of them are alike.
                axis = axes[position] if position in axes else StringAxis()
                self._axes[position] = axis
                if attribute.type == "string":
                    kind, known = _LOOKUP, axis.labels
            elif attribute.type == "enum":
                kind, known = _LOOKUP, attribute.positions
            elif attribute.domain is None:
                kind = {"float": _FLOAT, "int": _INT, "bool": _BOOL}.get(attribute.type, _OTHER)
            self._table[attribute.name] = position, kind, known
        self._numeric = {
            kind: [place for place, attribute in enumerate(schema) if attribute.type == name]
            for name, kind in PYTHON_TYPES.items()
        }
        names = schema.names
        # Of a single name it would give the value alone.
        self._values_of = itemgetter(*names, *names[:1] * (len(names) == 1))
        self._blank = np.full(len(schema), ABSENT).tobytes()

    def one(self, event: Mapping[str, object]) -> Int64Array:
        """The keys of one event. Raises `AttributeValueError` or `EventError`."""
        buffer = bytearray(self._blank)
        view = memoryview(buffer)
        self._fill(event, view.cast("q"), view.cast("d"), 0)
        return np.frombuffer(buffer, _INT64)

    def batch(self, events: Any, needed: BoolArray | None = None) -> Int64Array:
        """The keys of many events, n × d.

        Takes dicts, Arrow tables and record batches, whatever has `__arrow_c_stream__`, pandas
        and polars frames, and n × d arrays of numbers in schema order, where bools are 0 or 1 and
        timestamps are microseconds since 1970 in UTC. NaN and NaT are absent in tables and arrays;
        in dicts they are refused.

        Columns that are not `needed` may be left absent; of those only the type is checked.
        """
        if isinstance(events, np.ndarray):
            return array_keys(self.schema, self._axes, events)
        table = as_table(events)
        if table is not None:
            return self._from_table(table, needed)
        if isinstance(events, Mapping):
            raise EventError(
                "a batch of events is a list of dicts or a table, not one dict; "
                "for a dict of columns pass pyarrow.table(…)"
            )
        if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
            raise EventError(
                f"a batch of events cannot be read from a {type(events).__name__}; pass a list "
                "of dicts, an Arrow, pandas or polars table, or an n × d array"
            )
        return self._from_dicts(list(events))

    def _fill(
        self,
        event: Mapping[str, object],
        ints: memoryview[int],
        floats: memoryview[float],
        start: int,
    ) -> None:
        """Write the keys of an event from place `start`, through two views of one memory."""
        try:
            items = event.items()
        except AttributeError:
            raise EventError(
                f"an event is a mapping from attribute names to values, not {event!r:.80}"
            ) from None
        find_attribute = self._table.get
        for name, value in items:
            entry = find_attribute(name)
            if entry is None:
                continue
            position, kind, known = entry
            place = start + position
            if kind == _FLOAT:
                if type(value) is float:
                    # The bits of a positive float are its key already.
                    if value > 0.0:
                        floats[place] = value
                    elif value < 0.0:
                        floats[place] = -value
                        ints[place] = -ints[place]
                    elif value == 0.0:
                        ints[place] = 0
                    else:
                        null_key(self.schema.attributes[position], value)
                    continue
                if type(value) is int and -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
                    ints[place] = float_key(float(value))
                    continue
            elif kind == _LOOKUP:
                if type(value) is str:
                    key = known.get(value)
                    if key is not None:
                        ints[place] = key
                        continue
                    # If no filter names a string here, all that are text are alike.
                    if not known and value.isascii():
                        ints[place] = FIRST
                        continue
            elif (kind == _INT and type(value) is int and FIRST <= value <= LAST) or (
                kind == _BOOL and type(value) is bool
            ):
                ints[place] = value
                continue
            if value is not None:
                attribute = self.schema.attributes[position]
                ints[place] = scalar_key(attribute, self._axes[position], value)

    def _from_dicts(self, events: list[Mapping[str, object]]) -> Int64Array:
        dimensions = len(self.schema)
        keys = np.full((len(events), dimensions), ABSENT)
        if len(events) >= _MANY and set(map(type, events)) == {dict}:
            try:
                for first in range(0, len(events), _ROWS):
                    rows = slice(first, first + _ROWS)
                    keys[rows] = self._by_column(events[rows])
                return keys
            except (KeyError, OverflowError, Refused):  # which event it is in is seen below
                keys[:] = ABSENT
        if not events:
            return keys
        view = keys.reshape(-1).data.cast("B")
        ints, floats = view.cast("q"), view.cast("d")
        for row, event in enumerate(events):
            try:
                self._fill(event, ints, floats, row * dimensions)
            except AttributeValueError as error:
                raise AttributeValueError(
                    error.attribute, error.value, error.reason, row=row
                ) from None
            except EventError as error:
                raise EventError(f"row {row}: {error}", row=row) from None
        return keys

    def _by_column(self, events: list[Mapping[str, object]]) -> Int64Array:
        """The keys of events that have all attributes; `KeyError` if one has not.

        Raises `Refused` or `OverflowError` for a value that its attribute cannot take.
        """
        columns = list(zip(*map(self._values_of, events), strict=True))
        keys = np.empty((len(self.schema), len(events)), np.int64)
        others = set(range(len(columns)))
        for kind, positions in self._numeric.items():
            same = [place for place in positions if set(map(type, columns[place])) == {kind}]
            if not same:
                continue
            # All columns of a type at once: for a hundred events, the calls are most of the time.
            numbers: npt.NDArray[Any] = np.array([columns[place] for place in same], kind)
            found = float_keys(numbers)[0] if kind is float else numbers.astype(np.int64)
            if found.min() == ABSENT:
                raise Refused(0, None, NO_PLACE)
            keys[same] = found
            others.difference_update(same)
        for position, attribute in enumerate(self.schema):
            if position in others:
                axis = self._axes[position]
                keys[position] = object_keys(attribute, axis, columns[position], nan_is_null=False)
            elif attribute.domain is not None:
                check_domain(attribute, keys[position])
        return keys.T

    def _from_table(self, table: ColumnTable, needed: BoolArray | None) -> Int64Array:
        keys = np.full((table.length, len(self.schema)), ABSENT)
        places: dict[object, int] = {}
        for place, name in enumerate(table.names):
            if isinstance(name, str) and name in self.schema:
                if name in places:
                    raise EventError(f"the table has two columns named {name!r}")
                places[name] = place
        for position, attribute in enumerate(self.schema):
            found = places.get(attribute.name)
            if found is None:
                continue
            wanted = needed is None or bool(needed[position])
            axis = self._axes[position]
            column = table.column(found)
            row = 0
            try:
                if isinstance(column, list):
                    if wanted:
                        keys[:, position] = object_keys(attribute, axis, column)
                    continue
                for chunk in column:
                    if wanted:
                        keys[row : row + len(chunk), position] = arrow_keys(attribute, axis, chunk)
                    else:
                        check_type(attribute, chunk)
                    row += len(chunk)
            except Refused as refused:
                raise refused.at(attribute, row) from None
        return keys
