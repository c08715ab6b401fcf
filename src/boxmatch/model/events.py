"""Events to points: one row of keys per event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.model.axis import ABSENT, FIRST, LAST
from boxmatch.model.columns import PYTHON_TYPES, Refused, check_domain, object_keys, scalar_key
from boxmatch.model.encoded import EncodedEvent, EncodedEvents, EventSource, EventValues, Layout
from boxmatch.model.json_texts import read_events, table_rows
from boxmatch.model.keys import LARGEST_WHOLE, NO_PLACE, float_key, null_key
from boxmatch.model.nested import NotNestedError, find_column, find_value, path_to
from boxmatch.model.numeric_arrays import array_keys, float_points
from boxmatch.model.points import FloatPoints, ListKeys, Points
from boxmatch.model.repeated import ListColumn, ListReader, list_keys
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
from boxmatch.model.tables import ColumnTable, as_table
from boxmatch.model.typed_arrays import float_keys
from boxmatch.model.values import check_column, check_texts, column_keys

if TYPE_CHECKING:
    from boxmatch.model.nested import Column

# How `_fill` treats an attribute: by the one type that its values nearly always have.
_FLOAT: Final = 0
_LOOKUP: Final = 1
_INT: Final = 2
_BOOL: Final = 3
_OTHER: Final = 4

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
        # Without the repeated attributes, which have readers of their own.
        self._table: dict[str, tuple[int, int, Any]] = {}
        lists: dict[int, ListReader] = {}
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
            if attribute.repeated:
                lists[position] = ListReader(attribute, self._axes[position])
            elif attribute.type != "json":
                self._table[attribute.name] = position, kind, known
        paths = [path_to(name, schema.index) for name in schema.names]
        self._layout = Layout(schema, self._axes, paths, lists)
        single = [
            place
            for place, attribute in enumerate(schema)
            if not attribute.repeated and attribute.type != "json"
        ]
        self._plain = [place for place in single if len(paths[place]) == 1]
        self._nested = [place for place in single if len(paths[place]) > 1]
        self._numeric = {
            kind: [
                place
                for place, attribute in enumerate(schema)
                if attribute.type == name and not attribute.repeated
            ]
            for name, kind in PYTHON_TYPES.items()
        }
        names = [schema.names[place] for place in self._plain]
        # Of a single name it would give the value alone.
        self._values_of = itemgetter(*names, *names[:1] * (len(names) == 1)) if names else None
        self._absent = np.full(len(schema), ABSENT).data.cast("B").cast("q")

    def one(self, event: Mapping[str, object]) -> Int64Array:
        """The keys of one event, without those of lists.

        Raises `AttributeValueError` or `EventError`.
        """
        keys = self._keys_of(event)
        if self._layout.lists:
            self._lists_of(event)
        return keys

    def _keys_of(self, event: Mapping[str, object]) -> Int64Array:
        keys = np.empty(len(self.schema), np.int64)
        view = keys.data.cast("B")
        self.write(event, view.cast("q"), view.cast("d"))
        return keys

    def write(
        self, event: Mapping[str, object], ints: memoryview[int], floats: memoryview[float]
    ) -> None:
        """Write what `one` returns to two views of the same memory, and look at no lists."""
        ints[:] = self._absent
        self._fill(event, ints, floats, 0)

    def values(self, event: Mapping[str, object]) -> EventValues:
        """The values of an event of which the schema knows no types."""
        return EventValues(self._layout, event, np.empty(0, np.int64))

    def encode_one(
        self, event: Mapping[str, object], needed: BoolArray | None = None
    ) -> EncodedEvent:
        """One event as a point, with the lists of attributes that are `needed`, and its values."""
        keys = self._keys_of(event)
        found = self._lists_of(event) if self._layout.lists else {}
        wanted = [
            place
            for place in found
            if self.schema.attributes[place].type != "struct" and (needed is None or needed[place])
        ]
        lists = None
        if wanted:
            start, flat = [0], []
            for place in wanted:
                flat += found[place]
                start.append(len(flat))
            lists = ListKeys(
                np.array(wanted, np.int32), np.array(start, np.int64), np.array(flat, np.int64)
            )
        points = Points(keys.reshape(1, -1), lists)
        return EncodedEvent(points, EventValues(self._layout, event, keys))

    def _lists_of(self, event: Mapping[str, object]) -> dict[int, list[int]]:
        """The keys of the elements of all lists, which are checked by that."""
        layout = self._layout
        return {
            place: reader.keys(layout.raw(event, place)) for place, reader in layout.lists.items()
        }

    def batch(self, events: Any, needed: BoolArray | None = None) -> Int64Array:
        """The keys of many events, n × d, without those of lists; see `encode`."""
        return self.encode(events, needed).points.keys

    def encode(
        self, events: Any, needed: BoolArray | None = None, *, lazy: bool = False
    ) -> EncodedEvents:
        """Many events as points, with the lists of attributes that are `needed`, and their values.

        Takes dicts, Arrow tables and record batches, whatever has `__arrow_c_stream__`, pandas
        and polars frames, and n × d arrays of numbers in schema order, where bools are 0 or 1 and
        timestamps are microseconds since 1970 in UTC. NaN and NaT are absent in tables and arrays;
        in dicts they are refused.

        Columns that are not `needed` may be left absent; of those in tables only the type is
        checked. If `lazy`, the points of an array of floats may be `FloatPoints`.
        """
        if isinstance(events, np.ndarray):
            make = partial(array_keys, self.schema, self._axes, events, needed)
            points = float_points(self.schema, events, make) if lazy else None
            numbers = _Numbers(self._layout, events)
            return self._encoded(make() if points is None else points, numbers, needed)
        table = as_table(events)
        if table is not None:
            columns = _Table(self._layout, table)
            return self._encoded(self._from_table(columns, needed), columns, needed)
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
        dicts = _Dicts(self._layout, read_events(list(events)))
        return self._encoded(self._from_dicts(dicts.events, needed), dicts, needed)

    def _encoded(
        self, keys: Int64Array | FloatPoints, source: EventSource, needed: BoolArray | None
    ) -> EncodedEvents:
        lists: dict[int, ListColumn] = {}
        wanted: dict[int, ListColumn] = {}
        for place, reader in self._layout.lists.items():
            with_keys = not reader.is_struct and (needed is None or bool(needed[place]))
            try:
                if source.nan_is_null and not with_keys:  # a table
                    reader.check_type(source.find(place))
                    continue
                lists[place] = source.lists(place)
                if with_keys:
                    lists[place].keys()
                    wanted[place] = lists[place]
                else:
                    lists[place].check()
            except Refused as refused:
                raise refused.at(reader.attribute) from None
        points: Points
        if isinstance(keys, FloatPoints):
            points = keys
        else:
            points = Points(keys, list_keys(wanted) if wanted else None)
        known = None if source.all_keyed else needed
        return EncodedEvents(self._layout, points, source, known, lists)

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
        if self._nested:
            items = self._with_nested(event).items()
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

    def _with_nested(self, event: Mapping[str, object]) -> dict[str, object]:
        """The event with what is inside mappings under the names of the schema."""
        flat = dict(event)
        for position in self._nested:
            name = self.schema.names[position]
            if name not in flat:
                flat[name] = self._layout.raw(event, position)
        return flat

    def _from_dicts(
        self, events: list[Mapping[str, object]], needed: BoolArray | None
    ) -> Int64Array:
        dimensions = len(self.schema)
        keys = np.full((len(events), dimensions), ABSENT)
        if len(events) >= _MANY and set(map(type, events)) == {dict}:
            try:
                for first in range(0, len(events), _ROWS):
                    rows = slice(first, first + _ROWS)
                    keys[rows] = self._by_column(events[rows], needed)
                return keys
            except (KeyError, OverflowError, Refused, NotNestedError):
                keys[:] = ABSENT  # which event it is in is seen below
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

    def _by_column(
        self, events: list[Mapping[str, object]], needed: BoolArray | None
    ) -> Int64Array:
        """The keys of events that have all attributes; `KeyError` if one has not.

        Raises `Refused` or `OverflowError` for a value that its attribute cannot take.
        """
        columns = self._columns(events)
        keys = np.full((len(self.schema), len(events)), ABSENT)
        others = {*self._plain, *self._nested}
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
                if attribute.type == "string" and needed is not None and not needed[position]:
                    check_texts(attribute, columns[position])
                    continue
                axis = self._axes[position]
                keys[position] = object_keys(attribute, axis, columns[position], nan_is_null=False)
            elif attribute.domain is not None:
                check_domain(attribute, keys[position])
        return keys.T

    def _columns(self, events: list[Mapping[str, object]]) -> list[Sequence[object]]:
        """The values of events by position, those of lists left out."""
        columns: list[Sequence[object]] = []
        if self._values_of is not None:
            columns = list(zip(*map(self._values_of, events), strict=True))
        if len(self._plain) == len(self.schema):
            return columns
        placed: list[Sequence[object]] = [()] * len(self.schema)
        for position, column in zip(self._plain, columns, strict=False):
            placed[position] = column
        for position in self._nested:
            path = self._layout.paths[position]
            placed[position] = [find_value(event, path) for event in events]
        return placed

    def _from_table(self, table: _Table, needed: BoolArray | None) -> Int64Array:
        keys = np.full((table.length, len(self.schema)), ABSENT)
        for position, attribute in enumerate(self.schema):
            if attribute.repeated or attribute.type == "json":
                continue
            try:
                column = table.find(position)
                if column is None:
                    continue
                if needed is None or needed[position]:
                    keys[:, position] = column_keys(attribute, self._axes[position], column)
                else:
                    check_column(attribute, column)
            except Refused as refused:
                raise refused.at(attribute) from None
        return keys


class _Dicts(EventSource):
    nan_is_null = False
    all_keyed = True

    def __init__(self, layout: Layout, events: list[Mapping[str, object]]) -> None:
        super().__init__(layout, len(events))
        self.events = events

    def rows(self) -> Sequence[Mapping[str, object]]:
        return self.events

    def find(self, position: int) -> Column | None:
        path = self.layout.paths[position]
        if len(path) == 1:
            name = path[0][0]
            return [event.get(name) for event in self.events]
        values: list[object] = []
        for row, event in enumerate(self.events):
            try:
                values.append(find_value(event, path))
            except NotNestedError as error:
                raise Refused(row, error.value, error.reason) from None
        return values


class _Table(EventSource):
    def __init__(self, layout: Layout, table: ColumnTable) -> None:
        super().__init__(layout, table.length)
        self._table = table
        wanted = {key for path in layout.paths for key, _, _ in path}
        self._places: dict[object, int] = {}
        for place, name in enumerate(table.names):
            if isinstance(name, str) and name in wanted:
                if name in self._places:
                    raise EventError(f"the table has two columns named {name!r}")
                self._places[name] = place
        self._opened: dict[int, Column] = {}

    def find(self, position: int) -> Column | None:
        return find_column(self._places, self._open, self.layout.paths[position])

    def rows(self) -> Sequence[Mapping[str, object]]:
        return table_rows(self._table)

    def _open(self, place: int) -> Column:
        if place not in self._opened:
            self._opened[place] = self._table.column(place)
        return self._opened[place]


class _Numbers(EventSource):
    def __init__(self, layout: Layout, values: npt.NDArray[Any]) -> None:
        super().__init__(layout, len(values))
        self._values = values
        self.all_keyed = values.dtype != object

    def find(self, position: int) -> Column | None:
        column: list[object] = self._values[:, position].tolist()
        return column

    def keys(self, position: int) -> Int64Array:
        schema = Schema([self.layout.schema.attributes[position]])
        keys = array_keys(schema, [self.layout.axes[position]], self._values[:, [position]])
        return keys[:, 0]
