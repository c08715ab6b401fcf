"""Events to points over all axes of a matcher, those of expressions included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.model.axis import ABSENT
from boxmatch.model.axis_table import Axes, Finder
from boxmatch.model.columns import arrow_keys
from boxmatch.model.decimals import label_text, unscaled
from boxmatch.model.document_reader import (
    DocumentReader,
    More,
    Reading,
    join_strings,
    part_of_axis,
)
from boxmatch.model.documents import ROOT
from boxmatch.model.encoded import EncodedEvents, EventChoices
from boxmatch.model.events import EventEncoder
from boxmatch.model.expressions.nodes import Node
from boxmatch.model.expressions.scalar import compile_scalar
from boxmatch.model.filters.scope import DerivedAxis
from boxmatch.model.keys import float_key
from boxmatch.model.points import ListKeys, Points
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import float_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.expressions.batch import Batch

Encoded: TypeAlias = EncodedEvents | EventChoices

Values = Mapping[str, Any]
"""Of one event, by attribute, as expressions take them."""

_PLAIN: Final = ("int", "bool", "timestamp", "interval", "months")
"""Types whose values are their keys."""


class PointEncoder:
    """Turns events into points over the axes of one moment. Any number of threads may share it."""

    def __init__(self, axes: Axes, before: PointEncoder | None = None) -> None:
        """Of the encoder `before` it takes over what is the same: all of the schema's part."""
        self.axes = axes
        self.schema = axes.schema
        self.base: EventEncoder = (
            EventEncoder(axes.schema, axes.strings) if before is None else before.base
        )
        known = {} if before is None else {one.position: one for one in before._derived}
        self._derived: list[_AxisReader] = []
        """Of the axes that are not read from documents, or of which only texts are."""
        for position, axis in enumerate(axes.derived, len(axes.schema)):
            if axis is not None and (axis.has_finder or part_of_axis(axis) is None):
                reader = known.get(position)
                if reader is None or not reader.reads(axis, axes):
                    reader = _AxisReader(position, axis, axes)
                self._derived.append(reader)
        # The latest one: most changes of subscriptions leave it as it is.
        self._reader: tuple[tuple[bytes | None, tuple[Node, ...]], DocumentReader] | None = None
        self._has_lists = any(attribute.repeated for attribute in axes.schema)

    def with_axes(self, axes: Axes) -> PointEncoder:
        """One for other axes of expressions, and the same strings of the schema."""
        return PointEncoder(axes, self)

    @property
    def is_plain(self) -> bool:
        """Whether a point is no more than one key for each attribute."""
        return not self._has_lists and all(axis is None for axis in self.axes.derived)

    def reader(self, used: BoolArray | None, tests: Iterable[Node] = ()) -> DocumentReader:
        """What reads the axes about documents that are `used`, for points of which the `tests`
        are evaluated, too.
        """
        key = None if used is None else used.tobytes(), tuple(tests)
        known = self._reader
        if known is None or known[0] != key:
            known = self._reader = key, DocumentReader(self.axes, used, key[1])
        return known[1]

    def is_direct(self, reader: DocumentReader, used: BoolArray) -> bool:
        """Whether all keys of events are those that a reader writes for the whole event."""
        return (
            self.schema.names == (ROOT,)
            and reader.columns == (ROOT,)
            and not any(used[one.position] and not one.is_read for one in self._derived)
        )

    def with_sets(self, points: Points, more: More) -> Points:
        """A point with sets of keys, of what a reader has left."""
        lists: dict[int, list[int]] = {}
        finders = {one.position: one for one in self._derived if one.is_read}
        for position, found in more.items():
            finder = finders.get(position)
            if finder is None:
                lists[position] = [*dict.fromkeys(found)]
            else:
                lists[position] = finder.found_in_text(join_strings(found))
        return Points(points.keys, _more_lists_of_one(None, lists))

    def one(
        self,
        event: Mapping[str, object],
        reader: DocumentReader,
        used: BoolArray | None = None,
    ) -> list[tuple[Points, Values]]:
        """One event as a point, and its values for expressions.

        Only axes that are `used` need have keys, or all of them (None). There are several points
        if elements of lists have to be chosen: the event is matched by what matches one of them.
        """
        needed = None if used is None else used[: len(self.schema)]
        points, values = self.base.encode_one(event, needed)
        if self.axes.width == len(self.schema) and not reader.columns:
            return [(points, values)]
        keys = np.full((1, self.axes.width), ABSENT)
        keys[0, : len(self.schema)] = points.keys[0]
        if not reader.columns:
            return [self._finished(Points(keys, points.lists), values, used)]
        read = reader.read([[values[name]] for name in reader.columns], keys)
        found = []
        lists = None if not read.more else read.lists()
        for row in range(len(read.keys)):
            own: Values = values
            if read.owners is not None:
                documents = zip(reader.columns, read.columns, strict=True)
                chosen = {name: column[row] for name, column in documents}
                own = {**values, **chosen}
            point = Points(read.keys[row : row + 1], points.lists)
            found.append(self._finished(point, own, used, lists, row))
        return found

    def batch(
        self, events: Any, used: BoolArray, reader: DocumentReader, *, lazy: bool = False
    ) -> PointBatch:
        """Many events; see `EventEncoder.encode`. Only axes that are `used` need have keys."""
        simple = self.axes.width == len(self.schema) and not reader.columns
        encoded = self.base.encode(events, used[: len(self.schema)], lazy=lazy and simple)
        if self.axes.width == len(self.schema) and not reader.columns:
            return PointBatch(encoded.points, encoded)
        keys = np.full((len(encoded), self.axes.width), ABSENT)
        keys[:, : len(self.schema)] = encoded.points.keys
        lists = encoded.points.lists
        more: dict[int, tuple[Int64Array, Int64Array]] = {}
        owners: Int64Array | None = None
        values: Encoded = encoded
        read: Reading | None = None
        if reader.columns:
            columns = [encoded.column(name).to_pylist() for name in reader.columns]
            read = reader.read(columns, keys)
            keys, owners, more = read.keys, read.owners, read.lists()
            if owners is not None:
                documents = zip(reader.columns, read.columns, strict=True)
                values = EventChoices(encoded, owners, dict(documents))
                lists = None if lists is None else lists.take(owners)
        evaluator = _evaluator(values, 0, len(values))
        for one in self._derived:
            if used[one.position]:
                if one.is_read and read is not None:
                    more[one.position] = one.found_in(_as_texts(read.texts(one.position)))
                    continue
                value = evaluator.evaluate(one.axis.node)
                if not one.axis.repeated:
                    keys[:, one.position] = one.keys(value)
                else:
                    more[one.position] = one.found_in(value)
        if more:
            lists = _more_lists(lists, dict(sorted(more.items())), len(values))
        return PointBatch(Points(keys, lists), values, evaluator, owners=owners)

    def _finished(
        self,
        points: Points,
        values: Values,
        used: BoolArray | None,
        read: Mapping[int, tuple[Int64Array, Int64Array]] | None = None,
        row: int = 0,
    ) -> tuple[Points, Values]:
        """A point with the keys of all axes that are not read from documents.

        `read` are sets of keys that were, by axis and by `row`.
        """
        lists: dict[int, list[int]] = {}
        for position, (start, flat) in (read or {}).items():
            lists[position] = flat[start[row] : start[row + 1]].tolist()
        for reader in self._derived:
            if used is not None and not used[reader.position]:
                continue
            if not reader.axis.repeated:
                points.keys[0, reader.position] = reader.key(values)
            else:
                lists[reader.position] = reader.found(values)
        return Points(points.keys, _more_lists_of_one(points.lists, lists)), values


class PointBatch:
    """Points of many events, and the events' values for what boxes cannot tell."""

    def __init__(
        self,
        points: Points,
        encoded: Encoded,
        evaluator: Batch | None = None,
        first: int = 0,
        owners: Int64Array | None = None,
    ) -> None:
        self.points = points
        self.owners = owners
        """The event of each point, if some have several; see `PointEncoder.one`."""
        self._encoded = encoded
        self._evaluator = evaluator
        self._first = first

    def __len__(self) -> int:
        return len(self.points)

    @property
    def events(self) -> int:
        """Number of events."""
        if self.owners is None:
            return len(self)
        return int(self.owners[-1] - self.owners[0]) + 1 if len(self.owners) else 0

    def of_events(self, first: int, end: int) -> PointBatch:
        """The points of neighbouring events."""
        if self.owners is None:
            return self.part(first, end)
        rows = np.searchsorted(self.owners, (first, end)).tolist()
        return self.part(*rows)

    def part(self, first: int, end: int) -> PointBatch:
        """Neighbouring points."""
        if first == 0 and end == len(self):
            return self
        owners = None if self.owners is None else self.owners[first:end]
        points = self.points.part(first, end)
        return PointBatch(points, self._encoded, None, self._first + first, owners)

    @cached_property
    def evaluator(self) -> Batch:
        """What works out expressions for all of the events, each of them once."""
        if self._evaluator is not None:
            return self._evaluator
        return _evaluator(self._encoded, self._first, len(self))

    def evaluator_of(self, rows: Int64Array) -> Batch:
        """What works out expressions for some of the events."""
        from boxmatch.model.expressions.batch import Batch

        chosen = rows + self._first
        return Batch(lambda name: self._encoded.column(name).take(chosen), len(rows))

    def values(self, row: int, names: Iterable[str]) -> dict[str, Any]:
        """The values of one event, as `compile_scalar` takes them."""
        place = row + self._first
        return {name: self._encoded.value(name, place) for name in names}


def _as_texts(texts: list[str | None]) -> pa.Array[Any]:
    """Texts as a column of Arrow."""
    import pyarrow as pa

    column: pa.Array[Any] = pa.array(texts, pa.large_string())
    return column


def _evaluator(encoded: Encoded, first: int, length: int) -> Batch:
    # Imported when it is needed, as all that takes Arrow's functions along.
    from boxmatch.model.expressions.batch import Batch

    return Batch(lambda name: encoded.column(name).slice(first, length), length)


class _AxisReader:
    """The keys of an expression's axis."""

    def __init__(self, position: int, axis: DerivedAxis, axes: Axes) -> None:
        self.position = position
        self.axis = axis
        self.finder: Finder | None = axes.finders.get(position)
        self.is_read = part_of_axis(axis) is not None
        """Whether its texts are read from documents."""
        self._strings = axes.strings[position] if axis.attribute.labelled else StringAxis()
        self._labels = np.empty(0, np.int64)

    def reads(self, axis: DerivedAxis, axes: Axes) -> bool:
        """Whether it reads this axis, with the strings that it has there."""
        strings = axes.strings.get(self.position, self._strings)
        return self.axis == axis and strings is self._strings

    @cached_property
    def value(self) -> Callable[[Values], Any]:
        """What works out the expression for one event."""
        return compile_scalar(self.axis.node)

    @cached_property
    def _key_of(self) -> Callable[[Any], int]:
        attribute = self.axis.attribute
        kind = self.axis.node.type.name
        if kind == "float":
            return float_key
        if kind == "string":
            return self._strings.key
        if kind == "decimal":
            scale = attribute.scale
            if attribute.labelled:
                return lambda value: self._strings.key(label_text(unscaled(value, scale)))
            return lambda value: unscaled(value, scale)
        return int

    def key(self, values: Values) -> int:
        """The key of one event."""
        value = self.value(values)
        return ABSENT if value is None else self._key_of(value)

    def keys(self, values: pa.Array[Any]) -> Int64Array:
        """The keys of many values."""
        kind = self.axis.node.type.name
        if kind in _PLAIN:
            import pyarrow as pa

            keys = values.cast(pa.int64()).fill_null(ABSENT).to_numpy(zero_copy_only=False)
            return np.asarray(keys, np.int64)
        if kind == "float":
            return float_keys(values.fill_null(float("nan")).to_numpy(zero_copy_only=False))[0]
        if kind == "null":
            return np.full(len(values), ABSENT)
        return arrow_keys(self.axis.attribute, self._strings, values)

    def found(self, values: Values) -> list[int]:
        """The keys of the strings that are found in the text of one event, or of its elements."""
        text = self.value(values)
        if text is not None and self.axis.kind == "elements":
            return [*dict.fromkeys(map(self._strings.key, text))]
        return self.found_in_text(text)

    def found_in_text(self, text: str | None) -> list[int]:
        """The keys of the strings that are found in a text."""
        if text is None:
            return []
        numbers = np.array(self._ready().find_one(text), np.int64)
        keys: list[int] = self._labels_of(numbers).tolist()
        return keys

    def found_in(self, texts: pa.Array[Any]) -> tuple[Int64Array, Int64Array]:
        """The same for many texts: where those of each begin, and the keys."""
        if self.axis.kind == "elements":
            return self._elements(texts)
        start, numbers = self._ready().find(texts)
        return start, self._labels_of(numbers)

    def _elements(self, lists: pa.Array[Any]) -> tuple[Int64Array, Int64Array]:
        listed = [[*dict.fromkeys(one or ())] for one in lists.to_pylist()]
        start = np.zeros(len(listed) + 1, np.int64)
        np.cumsum([len(one) for one in listed], out=start[1:])
        keys = [self._strings.key(text) for one in listed for text in one]
        return start, np.array(keys, np.int64)

    def _ready(self) -> Finder:
        """The finder, which knows all strings of the axis, by the order in which they came."""
        if self.finder is None:
            raise TypeError("only an axis of strings has a finder")
        if len(self.finder) < len(self._strings):
            self.finder.add(list(self._strings.labels))
        return self.finder

    def _labels_of(self, numbers: Int64Array) -> Int64Array:
        """The keys of strings by their numbers; others may have added strings in the meantime."""
        labels = self._labels
        if int(numbers.max(initial=-1)) >= len(labels):
            labels = self._labels = np.array(list(self._strings.labels.values()), np.int64)
        return labels[numbers]


def _more_lists_of_one(lists: ListKeys | None, more: dict[int, list[int]]) -> ListKeys | None:
    """The sets of keys of one point, with those on further axes."""
    if not more:
        return lists
    axes: list[int] = []
    lengths: list[int] = []
    keys: list[int] = []
    if lists is not None:
        axes += lists.axes.tolist()
        lengths += np.diff(lists.start).tolist()
        keys += lists.keys.tolist()
    for position, found in sorted(more.items()):
        axes.append(position)
        lengths.append(len(found))
        keys += found
    start = np.zeros(len(axes) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return ListKeys(np.array(axes, np.int32), start, np.array(keys, np.int64))


def _more_lists(
    lists: ListKeys | None, more: dict[int, tuple[Int64Array, Int64Array]], count: int
) -> ListKeys:
    """The sets of keys of points, with those on further axes, which follow."""
    if lists is None:
        return ListKeys.of([*more], [*more.values()])
    known = [lists.column(place, count) for place in range(len(lists.axes))]
    return ListKeys.of([*lists.axes.tolist(), *more], [*known, *more.values()])
