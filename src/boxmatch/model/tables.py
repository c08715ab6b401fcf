"""One view of the tables that events and schemas come from: Arrow, pandas, polars and their kind.

Columns are opened one at a time, so that payload which Boxmatch cannot read does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING, Any

import numpy as np

from boxmatch.arrays import BoolArray
from boxmatch.errors import AttributeValueError, EventError
from boxmatch.kernels.pieces import from_texts, pieces

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.schema import Attribute

# Below this many rows to a chunk, looping over chunks costs more than joining them.
_SMALL_CHUNK = 4096


@dataclass(frozen=True)
class ColumnTable:
    """A table by columns.

    `column(i)` opens the one that is named `names[i]`: the chunks of an Arrow column, or a list
    of plain Python values where there is no type to go by.
    """

    length: int
    names: Sequence[object]
    column: Callable[[int], tuple[pa.Array[Any], ...] | list[object]]

    def part(self, start: int, stop: int) -> ColumnTable:
        """Some neighbouring rows, of columns that are open."""
        return self._apply(
            stop - start,
            lambda values: values[start:stop],
            lambda array: array.slice(start, stop - start),
        )

    def keep(self, marks: BoolArray) -> ColumnTable:
        """The rows that are marked, of columns that are open."""
        return self._apply(
            int(marks.sum()),
            lambda values: list(compress(values, marks)),
            lambda array: array.filter(marks),
        )

    def _apply(
        self,
        length: int,
        of_values: Callable[[list[object]], list[object]],
        of_array: Callable[[Any], Any],
    ) -> ColumnTable:
        import pyarrow as pa

        columns: list[tuple[pa.Array[Any], ...] | list[object]] = []
        for place in range(len(self.names)):
            column = self.column(place)
            if isinstance(column, list):
                columns.append(of_values(column))
            else:
                columns.append(tuple(of_array(pa.chunked_array(column)).chunks))
        return ColumnTable(length, self.names, columns.__getitem__)


def as_table(source: Any) -> ColumnTable | None:
    """The source as a table; None if it is not one. Raises `EventError` for near misses."""
    if isinstance(source, ColumnTable):
        return source
    kind = type(source)
    package = kind.__module__.partition(".")[0]
    if package == "pandas":
        if kind.__name__ != "DataFrame" and not hasattr(source, "iloc"):
            return None
        if source.ndim != 2:
            raise EventError(f"a pandas {kind.__name__} is not a table; pass a DataFrame")
        return _from_pandas(source)
    if package == "polars":
        if kind.__name__ != "DataFrame":
            hint = "call .collect() first" if kind.__name__ == "LazyFrame" else "pass a DataFrame"
            raise EventError(f"a polars {kind.__name__} is not a table; {hint}")
        return _from_polars(source)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
        return _from_arrow(source)
    return None


def _from_arrow(source: Any) -> ColumnTable:
    import pyarrow as pa

    if isinstance(source, (pa.Table, pa.RecordBatch)):
        table = source
    else:
        try:
            if hasattr(source, "__arrow_c_stream__"):
                table = pa.RecordBatchReader.from_stream(source).read_all()
            else:
                table = pa.record_batch(source)
        except (pa.ArrowException, TypeError) as error:
            raise EventError(f"a {type(source).__name__} is not a table: {error}") from None

    def column(place: int) -> tuple[pa.Array[Any], ...]:
        found: Any = table.column(place)
        if isinstance(found, pa.Array):
            return (found,)
        if found.num_chunks > 1 and len(found) < _SMALL_CHUNK * found.num_chunks:
            found = found.combine_chunks()
            if isinstance(found, pa.Array):
                return (found,)
        return tuple(found.chunks) or (pa.nulls(0, found.type),)

    return ColumnTable(table.num_rows, table.schema.names, column)


def _from_pandas(frame: Any) -> ColumnTable:
    import pyarrow as pa

    def column(place: int) -> tuple[pa.Array[Any], ...] | list[object]:
        series = frame.iloc[:, place]
        values: list[object]
        if series.dtype == object:
            values = series.tolist()
            return values
        try:
            # Plain NumPy data need not be searched for NaN here, only when they become keys.
            plain = type(series.dtype).__module__.startswith("numpy")
            array: Any = pa.array(series.to_numpy() if plain else series, from_pandas=not plain)
        except (pa.ArrowException, TypeError, ValueError):
            values = series.tolist()
            return values
        return tuple(array.chunks) if isinstance(array, pa.ChunkedArray) else (array,)

    return ColumnTable(len(frame), list(frame.columns), column)


def _from_polars(frame: Any) -> ColumnTable:
    import polars
    import pyarrow as pa

    def column(place: int) -> tuple[pa.Array[Any], ...] | list[object]:
        series = frame.to_series(place)
        try:
            return (series.to_arrow(),)
        except (pa.ArrowException, TypeError, ValueError, polars.exceptions.PolarsError):
            values: list[object] = series.to_list()  # Python objects, 128-bit integers
            return values

    return ColumnTable(frame.height, frame.columns, column)


def strings_of(
    rows: ColumnTable | Sequence[Mapping[str, object]], attribute: Attribute
) -> Iterable[str]:
    """What a labelled attribute's axis must know of the values in its column, if there is one.

    They are distinct. Values of another type are left out: whoever reads the rows refuses them.
    """
    from boxmatch.model.keys import axis_text, is_absent

    name = attribute.name
    columns: Sequence[Any] = []
    if not isinstance(rows, ColumnTable):
        columns = [[row.get(name) for row in rows]]
    elif name in rows.names:
        column = rows.column(list(rows.names).index(name))
        if attribute.type == "string" and not isinstance(column, list):
            texts_here = _distinct_texts(column)
            if texts_here is not None:
                return texts_here
        columns = (
            [column]
            if isinstance(column, list)
            else [as_column(chunk.unique()) for chunk in column]
        )
    if attribute.type == "string":
        return {value for values in columns for value in values if isinstance(value, str)}
    texts = set()
    for value in chain.from_iterable(columns):
        if not is_absent(value):
            with suppress(AttributeValueError):
                texts.add(axis_text(attribute, value))
    return texts


def _distinct_texts(chunks: Sequence[pa.Array[Any]]) -> Iterable[str] | None:
    """The strings of a column as an array; None if it is not one of plain strings."""
    import pyarrow as pa

    kinds = {chunk.type for chunk in chunks}
    if not kinds or not kinds <= {pa.string(), pa.large_string()}:
        return None
    column: Any = pa.chunked_array([chunk.cast(pa.large_string()) for chunk in chunks])
    return from_texts(pa.chunked_array([column.unique().drop_null()]))


def as_column(values: Any) -> Any:
    """One column as a NumPy array of numbers or a list of Python values."""
    if isinstance(values, (list, tuple, np.ndarray)):
        return values
    if hasattr(values, "__arrow_c_stream__") or hasattr(values, "__arrow_c_array__"):
        import pyarrow as pa

        column: Any = pa.chunked_array(values)
        if pa.types.is_integer(column.type) and column.null_count == 0:
            return column.to_numpy()
        listed: list[Any] = []
        for piece in pieces(len(column)):
            listed += column[piece].to_pylist()
        return listed
    if hasattr(values, "to_numpy"):
        return values.to_numpy()
    return list(values)
