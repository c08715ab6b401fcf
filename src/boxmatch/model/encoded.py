"""Events as an index and as expressions see them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError
from boxmatch.model.columns import Refused
from boxmatch.model.documents import ROOT, Documents
from boxmatch.model.json_texts import document_values
from boxmatch.model.nested import NotNestedError, Path, find_value
from boxmatch.model.points import Points
from boxmatch.model.repeated import ListColumn, ListReader
from boxmatch.model.schema import Schema
from boxmatch.model.strings import StringAxis
from boxmatch.model.values import (
    arrow_decimals,
    arrow_texts,
    arrow_values,
    column_keys,
    plain_value,
    value_of_key,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.nested import Column


class Layout(NamedTuple):
    """How the attributes of a schema are read, by position."""

    schema: Schema
    axes: Sequence[StringAxis | None]
    paths: Sequence[Path]
    lists: Mapping[int, ListReader]
    """Of the repeated attributes, in ascending order."""

    def raw(self, event: Mapping[str, object], position: int) -> Any:
        """The value of an attribute as the event has it, None if it has none."""
        if self.schema.names[position] == ROOT:
            return event
        try:
            return find_value(event, self.paths[position])
        except NotNestedError as error:
            name = self.schema.names[position]
            raise AttributeValueError(name, error.value, error.reason) from None


class EventSource:
    """Many events by columns, in the order of the schema."""

    nan_is_null = True
    """Whether NaN and NaT are how a NULL looks; in dicts they are refused."""
    all_keyed = False
    """Whether attributes have keys that nobody needs, but for those that are labelled."""

    def __init__(self, layout: Layout, length: int) -> None:
        self.layout = layout
        self.length = length

    def find(self, position: int) -> Column | None:
        """An attribute's column, None if there is none. Raises `Refused`."""
        raise NotImplementedError

    def column(self, position: int) -> Column:
        """The same, of nulls if there is none."""
        found = self.find(position)
        return [None] * self.length if found is None else found

    def keys(self, position: int) -> Int64Array:
        """The keys of a column of single values. Raises `Refused`."""
        layout = self.layout
        return column_keys(
            layout.schema.attributes[position],
            layout.axes[position],
            self.column(position),
            nan_is_null=self.nan_is_null,
        )

    def documents(self, position: int) -> Documents:
        """A column of documents. Raises `Refused`."""
        if self.layout.schema.names[position] == ROOT:
            return Documents(self.rows())
        return Documents(document_values(self.column(position)))

    def rows(self) -> Sequence[Mapping[str, object]]:
        """The events as mappings."""
        raise NotImplementedError

    def lists(self, position: int) -> ListColumn:
        """A column of lists. Raises `Refused`."""
        reader = self.layout.lists[position]
        return reader.read(self.find(position), self.length, nan_is_null=self.nan_is_null)


class EncodedEvent(NamedTuple):
    """One event."""

    points: Points
    """A single one."""
    values: Mapping[str, Any]
    """By the attributes' names, in the Python form of `expressions.nodes`; made when read."""


class EventValues(Mapping[str, Any]):
    """The values of one event in their exact types, None for what is missing."""

    __slots__ = ("_event", "_keys", "_layout", "_read")

    def __init__(self, layout: Layout, event: Mapping[str, object], keys: Int64Array) -> None:
        self._layout = layout
        self._event = event
        self._keys = keys
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        try:
            return self._read[name]
        except KeyError:
            value = self._read[name] = self._value(self._layout.schema.index[name])
            return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._layout.schema.names)

    def __len__(self) -> int:
        return len(self._layout.schema)

    def _value(self, position: int) -> Any:
        layout = self._layout
        attribute = layout.schema.attributes[position]
        if attribute.repeated:
            return layout.lists[position].values(layout.raw(self._event, position))
        if attribute.type == "json":
            return layout.raw(self._event, position)
        if attribute.labelled:
            return plain_value(attribute, layout.raw(self._event, position))
        return value_of_key(attribute, int(self._keys[position]))


class EncodedEvents:
    """Many events: their keys, and their values for who asks.

    Values are made of keys where these are known, and of the events otherwise, so these must not
    change. Any number of threads may share it.
    """

    def __init__(
        self,
        layout: Layout,
        points: Points,
        source: EventSource,
        known: BoolArray | None,
        lists: Mapping[int, ListColumn],
    ) -> None:
        """`known` marks the attributes that have keys in `points` (None: all)."""
        self.points = points
        self._layout = layout
        self._source = source
        self._known = known
        self._lists = lists
        self._read: dict[str, pa.Array[Any]] = {}

    def __len__(self) -> int:
        return len(self.points)

    def value(self, name: str, row: int) -> Any:
        """The value of one event, in the Python form of `expressions.nodes`."""
        column = self.column(name)
        if isinstance(column, Documents):
            return column.to_pylist()[row]
        return column[row].as_py()

    def column(self, name: str) -> pa.Array[Any]:
        """The values of an attribute in the Arrow form of `expressions.nodes`.

        Raises `AttributeValueError` for what was not checked when the events were encoded.
        """
        found = self._read.get(name)
        if found is None:
            position = self._layout.schema.index[name]
            try:
                found = self._make(position)
            except Refused as refused:
                raise refused.at(self._layout.schema.attributes[position]) from None
            self._read[name] = found
        return found

    def _make(self, position: int) -> Any:
        layout, source = self._layout, self._source
        attribute = layout.schema.attributes[position]
        if attribute.repeated:
            lists = self._lists.get(position) or source.lists(position)
            return lists.to_arrow()
        if attribute.type == "json":
            return source.documents(position)
        if attribute.type == "string":
            return arrow_texts(attribute, source.column(position))
        if attribute.labelled:
            return arrow_decimals(attribute, source.column(position))
        if self._known is None or self._known[position]:
            return arrow_values(attribute, self.points.keys[:, position])
        return arrow_values(attribute, source.keys(position))


class EventChoices:
    """Events of which some are there several times, with other documents each."""

    def __init__(
        self, events: EncodedEvents, owners: Int64Array, documents: Mapping[str, Sequence[Any]]
    ) -> None:
        self._events = events
        self._owners = owners
        self._documents = {name: Documents(column) for name, column in documents.items()}

    def __len__(self) -> int:
        return len(self._owners)

    def value(self, name: str, row: int) -> Any:
        """See `EncodedEvents.value`."""
        if name in self._documents:
            return self._documents[name].to_pylist()[row]
        return self._events.value(name, int(self._owners[row]))

    def column(self, name: str) -> pa.Array[Any]:
        """See `EncodedEvents.column`."""
        found: Any = self._documents.get(name)
        rows: Any = self._owners
        return self._events.column(name).take(rows) if found is None else found
