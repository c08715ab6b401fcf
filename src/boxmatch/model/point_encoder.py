"""Events to points over all axes of a matcher, those of expressions included."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.model.axis import ABSENT
from boxmatch.model.axis_table import Axes, Finder
from boxmatch.model.columns import arrow_keys
from boxmatch.model.decimals import label_text, unscaled
from boxmatch.model.encoded import EncodedEvents
from boxmatch.model.events import EventEncoder
from boxmatch.model.expressions.scalar import compile_scalar
from boxmatch.model.filters.scope import DerivedAxis
from boxmatch.model.keys import float_key
from boxmatch.model.points import ListKeys, Points
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import float_keys

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.expressions.batch import Batch

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
        for position, axis in enumerate(axes.derived, len(axes.schema)):
            if axis is not None:
                reader = known.get(position)
                if reader is None or not reader.reads(axis, axes):
                    reader = _AxisReader(position, axis, axes)
                self._derived.append(reader)
        self._has_lists = any(attribute.repeated for attribute in axes.schema)

    def with_axes(self, axes: Axes) -> PointEncoder:
        """One for other axes of expressions, and the same strings of the schema."""
        return PointEncoder(axes, self)

    @property
    def is_plain(self) -> bool:
        """Whether a point is no more than one key for each attribute."""
        return not (self._derived or self._has_lists)

    def one(
        self, event: Mapping[str, object], used: BoolArray | None = None
    ) -> tuple[Points, Values]:
        """One event as a point, and its values for expressions.

        Only axes that are `used` need have keys, or all of them (None).
        """
        needed = None if used is None else used[: len(self.schema)]
        encoded = self.base.encode_one(event, needed)
        points, values = encoded
        if not self._derived:
            return points, values
        keys = np.full((1, self.axes.width), ABSENT)
        keys[0, : len(self.schema)] = points.keys[0]
        lists: dict[int, list[int]] = {}
        for reader in self._derived:
            if used is not None and not used[reader.position]:
                continue
            if reader.finder is None:
                keys[0, reader.position] = reader.key(values)
            else:
                lists[reader.position] = reader.found(values)
        return Points(keys, _more_lists_of_one(points.lists, lists)), values

    def batch(self, events: Any, used: BoolArray) -> PointBatch:
        """Many events; see `EventEncoder.encode`. Only axes that are `used` need have keys."""
        encoded = self.base.encode(events, used[: len(self.schema)])
        if self.axes.width == len(self.schema):
            return PointBatch(encoded.points, encoded)
        evaluator = _evaluator(encoded, 0, len(encoded))
        keys = np.full((len(encoded), self.axes.width), ABSENT)
        keys[:, : len(self.schema)] = encoded.points.keys
        lists = encoded.points.lists
        more: dict[int, tuple[Int64Array, Int64Array]] = {}
        for reader in self._derived:
            if used[reader.position]:
                value = evaluator.evaluate(reader.axis.node)
                if reader.finder is None:
                    keys[:, reader.position] = reader.keys(value)
                else:
                    more[reader.position] = reader.found_in(value)
        if more:
            lists = _more_lists(lists, more, len(encoded))
        return PointBatch(Points(keys, lists), encoded, evaluator)


class PointBatch:
    """Points of many events, and the events' values for what boxes cannot tell."""

    def __init__(
        self, points: Points, encoded: EncodedEvents, evaluator: Batch | None = None, first: int = 0
    ) -> None:
        self.points = points
        self._encoded = encoded
        self._evaluator = evaluator
        self._first = first

    def __len__(self) -> int:
        return len(self.points.keys)

    def part(self, first: int, end: int) -> PointBatch:
        """Neighbouring events."""
        if first == 0 and end == len(self):
            return self
        return PointBatch(self.points.part(first, end), self._encoded, None, self._first + first)

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
        return {name: self._encoded.column(name)[place].as_py() for name in names}


def _evaluator(encoded: EncodedEvents, first: int, length: int) -> Batch:
    # Imported when it is needed, as all that takes Arrow's functions along.
    from boxmatch.model.expressions.batch import Batch

    return Batch(lambda name: encoded.column(name).slice(first, length), length)


class _AxisReader:
    """The keys of an expression's axis."""

    def __init__(self, position: int, axis: DerivedAxis, axes: Axes) -> None:
        self.position = position
        self.axis = axis
        self.finder: Finder | None = axes.finders.get(position)
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
        """The keys of the strings that are found in the text of one event."""
        text = self.value(values)
        if text is None:
            return []
        numbers = np.array(self._ready().find_one(text), np.int64)
        keys: list[int] = self._labels_of(numbers).tolist()
        return keys

    def found_in(self, texts: pa.Array[Any]) -> tuple[Int64Array, Int64Array]:
        """The same for many texts: where those of each begin, and the keys."""
        start, numbers = self._ready().find(texts)
        return start, self._labels_of(numbers)

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
    for position, found in more.items():
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
