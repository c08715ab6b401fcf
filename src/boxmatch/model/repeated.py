"""Lists in events: the keys and the values of their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from boxmatch.arrays import BoolArray, Int64Array
from boxmatch.errors import AttributeValueError
from boxmatch.model.axis import ABSENT
from boxmatch.model.columns import Refused, check_type, scalar_key
from boxmatch.model.keys import NO_PLACE, is_absent, is_nan
from boxmatch.model.nested import (
    NotNestedError,
    Path,
    by_chunk,
    field_array,
    field_values,
    find_value,
    path_to,
)
from boxmatch.model.points import ListKeys
from boxmatch.model.schema import Attribute
from boxmatch.model.strings import StringAxis
from boxmatch.model.typed_arrays import nulls_of, python_value
from boxmatch.model.values import arrow_column, check_texts, column_keys, plain_value

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.nested import Column

T = TypeVar("T")


class ListReader:
    """Reads a repeated attribute, one list or a column of them."""

    def __init__(self, attribute: Attribute, axis: StringAxis | None) -> None:
        self.attribute = attribute
        self.axis = axis
        self.is_struct = attribute.type == "struct"
        names = {field.name for field in attribute.fields}
        # Named as errors should name them.
        self.fields: list[tuple[str, Attribute, Path]] = [
            (
                field.name,
                replace(field, name=f"{attribute.name}.{field.name}"),
                path_to(field.name, names),
            )
            for field in attribute.fields
        ]
        self.element = attribute if self.is_struct else replace(attribute, repeated=False)

    # One list

    def keys(self, value: object) -> list[int]:
        """The keys of one list's elements, without nulls; all elements of a struct are checked."""
        elements = self._elements(value)
        if elements is None:
            return []
        if self.is_struct:
            for element in elements:
                self._struct(element)
            return []
        keys = []
        known: Mapping[str, int] = {}
        if self.axis is not None and self.attribute.type == "string":
            known = self.axis.labels
        for element in elements:
            key = known.get(element) if type(element) is str else None
            if key is None and element is not None:
                key = scalar_key(self.element, self.axis, element)
            if key is not None and key != ABSENT:
                keys.append(key)
        return keys

    def values(self, value: object) -> list[Any] | None:
        """One list's elements as expressions see them."""
        elements = self._elements(value)
        if elements is None:
            return None
        if self.is_struct:
            return list(map(self._struct, elements))
        return [plain_value(self.element, element) for element in elements]

    def _elements(self, value: object) -> Sequence[object] | None:
        if isinstance(value, (list, tuple)):
            return value
        if value is None:
            return None
        if isinstance(value, np.ndarray) and value.ndim == 1:
            listed: list[object] = value.tolist() if value.dtype.kind != "M" else list(value)
            return listed
        if is_absent(value) and not is_nan(value):
            return None
        raise AttributeValueError(self.attribute.name, value, self._no_list(value))

    def _struct(self, element: object) -> dict[str, Any] | None:
        if element is None:
            return None
        if not isinstance(element, Mapping):
            raise AttributeValueError(self.attribute.name, element, "is not a mapping")
        values = {}
        for name, field, path in self.fields:
            try:
                value = find_value(element, path)
            except NotNestedError as error:
                raise AttributeValueError(field.name, error.value, error.reason) from None
            if value is not None:
                scalar_key(field, None, value)
            values[name] = plain_value(field, value)
        return values

    def _no_list(self, value: object) -> str:
        if is_nan(value):
            return NO_PLACE
        if isinstance(value, (Mapping, set, frozenset, np.ndarray)) and not self.is_struct:
            return "is not a list"
        return f"is not a list; write it as one: {{{self.attribute.name!r}: [{value!r:.40}]}}"

    # A column of lists

    def read(self, column: Column | None, length: int, *, nan_is_null: bool) -> ListColumn:
        """A column of lists; None is one of nulls. Raises `Refused`."""
        if column is None:
            return ListColumn(self, np.zeros(length + 1, np.int64), np.ones(length, np.bool_), [])
        if isinstance(column, tuple):
            return self._read_arrow(column, length)
        lengths = np.zeros(length, np.int64)
        nulls = np.zeros(length, np.bool_)
        flat: list[object] = []
        for row, value in enumerate(column):
            try:
                elements = None if nan_is_null and is_nan(value) else self._elements(value)
            except AttributeValueError as error:
                raise Refused(row, value, error.reason) from None
            if elements is None:
                nulls[row] = True
            else:
                lengths[row] = len(elements)
                flat += elements
        return ListColumn(self, _starts(lengths), nulls, flat, nan_is_null=nan_is_null)

    def _read_arrow(self, chunks: tuple[pa.Array[Any], ...], length: int) -> ListColumn:
        lengths = np.zeros(length, np.int64)
        nulls = np.zeros(length, np.bool_)
        flat = []
        row = 0
        for chunk in chunks:
            rows = slice(row, row + len(chunk))
            if chunk.null_count == len(chunk):
                nulls[rows] = True
            else:
                self._check_list(chunk, row)
                array: Any = chunk
                lengths[rows] = array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
                missing = nulls_of(chunk)
                if missing is not None:
                    nulls[rows] = missing
                flat.append(array.flatten())
            row += len(chunk)
        return ListColumn(self, _starts(lengths), nulls, tuple(flat))

    def check_type(self, column: Column | None) -> None:
        """Refuse a column of a type that the attribute cannot be read from."""
        row = 0
        for chunk in column if isinstance(column, tuple) else ():
            if chunk.null_count < len(chunk):
                self._check_list(chunk, row)
                lists = self._read_arrow((chunk,), len(chunk))
                elements: Any = lists.elements[0]
                try:
                    if self.is_struct:
                        _check_struct_type(elements)
                    else:
                        check_type(self.element, elements)
                except Refused as refused:
                    inner = lists.at(refused)
                    raise Refused(row + inner.row, inner.value, inner.reason) from None
            row += len(chunk)

    def _check_list(self, chunk: pa.Array[Any], row: int) -> None:
        if not is_list(chunk.type):
            nulls = nulls_of(chunk)
            first = 0 if nulls is None else int(np.argmin(nulls))
            value = python_value(chunk, first)
            reason = f"(Arrow type {chunk.type}) {self._no_list(value)}"
            raise Refused(row + first, value, reason)


class ListColumn:
    """A column of lists: all elements in a row, and where each list starts."""

    def __init__(
        self,
        reader: ListReader,
        start: Int64Array,
        nulls: BoolArray,
        elements: Column,
        *,
        nan_is_null: bool = True,
    ) -> None:
        self.start = start
        self.elements = elements
        self._reader = reader
        self._nulls = nulls
        self._nan_is_null = nan_is_null
        self._keys: Int64Array | None = None

    def keys(self) -> Int64Array:
        """The keys of all elements, `ABSENT` for nulls. Raises `Refused`."""
        if self._keys is None:
            try:
                self._keys = column_keys(
                    self._reader.element,
                    self._reader.axis,
                    self.elements,
                    nan_is_null=self._nan_is_null,
                )
            except Refused as refused:
                raise self.at(refused) from None
        return self._keys

    def check(self) -> None:
        """Refuse elements that the attribute cannot take."""
        reader = self._reader
        if reader.is_struct:
            self._check_structs()
            for _, field, path in reader.fields:
                self._of_field(field, path, self._check)
            return
        try:
            self._check(reader.element, self.elements)
        except Refused as refused:
            raise self.at(refused) from None

    def _check(self, attribute: Attribute, column: Column) -> None:
        if attribute.type == "string" and not isinstance(column, tuple):
            check_texts(attribute, column, nan_is_null=self._nan_is_null)
        else:
            column_keys(attribute, None, column, nan_is_null=self._nan_is_null)

    def to_arrow(self) -> pa.Array[Any]:
        """The lists as expressions see them. Raises `Refused`."""
        import pyarrow as pa

        reader = self._reader
        if reader.is_struct:
            values = self._structs()
        else:
            try:
                values = arrow_column(reader.element, reader.axis, self.elements, self._keys)
            except Refused as refused:
                raise self.at(refused) from None
        mask = pa.array(self._nulls) if self._nulls.any() else None
        start: Any = pa.array(self.start)
        lists: pa.Array[Any] = pa.LargeListArray.from_arrays(start, values, mask=mask)
        return lists

    def _check_structs(self) -> None:
        """Refuse elements that are no mappings."""
        try:
            if isinstance(self.elements, tuple):
                by_chunk(self.elements, _check_struct_type)
                return
            for place, element in enumerate(self.elements):
                if not isinstance(element, Mapping) and not is_absent(element):
                    raise Refused(place, element, "is not a mapping")
        except Refused as refused:
            raise self.at(refused) from None

    def _structs(self) -> pa.Array[Any]:
        import pyarrow as pa

        self._check_structs()
        columns = [
            self._of_field(field, path, lambda one, column: arrow_column(one, None, column, None))
            for _, field, path in self._reader.fields
        ]
        nulls: list[Any] = (
            [chunk.is_null() for chunk in self.elements]
            if isinstance(self.elements, tuple)
            else [pa.array([is_absent(element) for element in self.elements], pa.bool_())]
        )
        mask: Any = pa.concat_arrays(nulls) if nulls else pa.array([], pa.bool_())
        names = [name for name, _, _ in self._reader.fields]
        return pa.StructArray.from_arrays(columns, names, mask=mask)

    def _of_field(self, field: Attribute, path: Path, work: Callable[[Attribute, Column], T]) -> T:
        parent = self._reader.attribute.name
        try:
            if isinstance(self.elements, tuple):
                return work(field, by_chunk(self.elements, lambda e: field_array(e, path, parent)))
            return work(field, field_values(self.elements, path, parent))
        except Refused as refused:
            raise self.at(refused, field.name) from None

    def at(self, refused: Refused, name: str | None = None) -> Refused:
        """The refusal of an element as one in the row of its list."""
        row = int(np.searchsorted(self.start, refused.row, side="right")) - 1
        return Refused(row, refused.value, refused.reason, name)


def _check_struct_type(array: pa.Array[Any]) -> None:
    import pyarrow.types as t

    if not t.is_struct(array.type) and array.null_count < len(array):
        nulls = nulls_of(array)
        row = 0 if nulls is None else int(np.argmin(nulls))
        reason = f"(Arrow type {array.type}) is not a mapping"
        raise Refused(row, python_value(array, row), reason)


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is one of lists."""
    import pyarrow.types as t

    return bool(
        t.is_list(kind)
        or t.is_large_list(kind)
        or t.is_fixed_size_list(kind)
        or t.is_list_view(kind)
        or t.is_large_list_view(kind)
    )


def list_keys(columns: Mapping[int, ListColumn]) -> ListKeys:
    """The keys of columns of lists, by the places of their axes, which ascend."""
    parts = []
    for column in columns.values():
        keys = column.keys()
        present = keys != ABSENT
        count = np.zeros(len(keys) + 1, np.int64)
        np.cumsum(present, out=count[1:])
        parts.append((_starts(np.diff(count[column.start])), keys[present]))
    return ListKeys.of(list(columns), parts)


def _starts(lengths: Int64Array) -> Int64Array:
    start = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=start[1:])
    return start
