"""Types of CSV columns, which are text: a column has a type if all of its values are written so.

`TRUE` among tickers is no bool, `007` is no number, and `NA` is not missing: only an empty field
is, or what the user says.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

_BOOL = "^(true|false|True|False|TRUE|FALSE)$"
_INT = "^(0|-?[1-9][0-9]*)$"
_FLOAT = r"^-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"
_LONG_INT = "^-?[0-9]{16,}$"
"""Such a number may lie between two floats."""
_TIME = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T][0-9]{2}:[0-9]{2}.*)?$"


class TypedTable(NamedTuple):
    """A table of CSV, and what may surprise about the types of its columns."""

    table: pa.Table
    remarks: tuple[str, ...]


def read_text(source: IO[bytes], nulls: Sequence[str] = ()) -> pa.Table:
    """A CSV file with all columns as text; an empty field, or one of `nulls`, is null."""
    import pyarrow as pa
    import pyarrow.csv

    text = source.read()
    names = pyarrow.csv.open_csv(BytesIO(text)).schema.names
    options = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        null_values=["", *nulls],
        strings_can_be_null=True,
    )
    return pyarrow.csv.read_csv(BytesIO(text), convert_options=options)


def infer_types(table: pa.Table, keep: Collection[str] = ()) -> TypedTable:
    """The table with columns of the types that they are written in, but `keep` as text."""
    import pyarrow as pa

    columns, remarks = [], []
    for name, column in zip(table.column_names, table.columns, strict=True):
        typed = column if name in keep else _typed(column)
        columns.append(typed)
        if typed is column and name not in keep and (odd := _odd_number(column)) is not None:
            remarks.append(f"{name} is text because of {odd!r:.40}")
    return TypedTable(pa.Table.from_arrays(columns, table.column_names), tuple(remarks))


def _typed(column: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    def all_match(pattern: str) -> bool:
        return bool(pc.all(pc.match_substring_regex(column, pattern)).as_py())

    if column.null_count == len(column):  # nothing says what it is
        return pa.chunked_array([pa.nulls(len(column))])
    kinds: list[pa.DataType] = []
    if all_match(_BOOL):
        kinds = [pa.bool_()]
    elif all_match(_INT):
        kinds = [pa.int64()]
    elif all_match(_FLOAT) and not pc.any(pc.match_substring_regex(column, _LONG_INT)).as_py():
        kinds = [pa.float64()]
    elif all_match(_TIME):
        kinds = [pa.timestamp("us"), pa.timestamp("us", "UTC")]
    for kind in kinds:
        try:
            typed = column.cast(kind)
        except pa.ArrowInvalid:  # an integer of too many digits, a day that is none
            continue
        if kind != pa.float64() or pc.all(pc.is_finite(typed)).as_py():
            return typed
    return column


def _odd_number(column: pa.ChunkedArray[Any]) -> str | None:
    """The first value that is no number, in a column where most are."""
    import pyarrow.compute as pc

    numbers = pc.match_substring_regex(column, _FLOAT)
    others = column.filter(pc.invert(numbers))
    present = len(column) - column.null_count
    if not 0 < len(others) < present / 2:
        return None
    odd: str = others[0].as_py()
    return odd
