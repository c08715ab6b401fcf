"""Events cut into the bodies of requests: NDJSON of dicts, Arrow IPC streams of tables, unless
these have nested columns.

The same events are always cut in the same way, so that publishing them again under the same key
finds each part again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from boxmatch.client.documents import find_not_finite
from boxmatch.errors import EventError
from boxmatch.wire.codec import plain
from boxmatch.wire.http import ARROW, NDJSON

if TYPE_CHECKING:
    import pyarrow as pa

BATCH: Final = 5_000
"""Events in one request, unless the caller wants another number."""
NBYTES: Final = 4 << 20
"""Bytes in one request, about."""


_ROWS_AT_ONCE: Final = 1_024


class BatchPart:
    """The events of one request: lines of JSON, or rows of a table."""

    def __init__(self, events: list[bytes] | pa.Table) -> None:
        self._events: Any = events
        self.content_type = NDJSON if isinstance(events, list) else ARROW
        self.count = len(events)

    def body(self) -> bytes:
        """The events as the body of a request."""
        if self.content_type == NDJSON:
            return b"\n".join(self._events)
        import pyarrow as pa

        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self._events.schema) as writer:
            writer.write_table(self._events)
        return sink.getvalue().to_pybytes()

    def halves(self) -> tuple[BatchPart, BatchPart]:
        """For a broker that takes less at once."""
        middle = self.count // 2
        return BatchPart(self._events[:middle]), BatchPart(self._events[middle:])


def parts(events: Any, *, batch: int = BATCH, nbytes: int = NBYTES) -> Iterator[BatchPart]:
    """Cut one event, an iterable of events, or a table. An iterable is read as it is needed."""
    if batch < 1:
        raise EventError(f"a batch has at least one event, not {batch}")
    if isinstance(events, Mapping):
        return iter([BatchPart([encode(events, 0)])])
    tables = _tables(events)
    if tables is not None:
        return _rows(tables, batch, nbytes)
    if isinstance(events, (str, bytes)) or not isinstance(events, Iterable):
        raise EventError(
            f"events are a dict, an iterable of dicts or a table, not {type(events).__name__}"
        )
    return _lines(events, batch, nbytes)


def _lines(events: Iterable[Any], batch: int, nbytes: int) -> Iterator[BatchPart]:
    lines: list[bytes] = []
    size = 0
    for index, event in enumerate(events):
        line = encode(event, index)
        if lines and (len(lines) == batch or size + len(line) > nbytes):
            yield BatchPart(lines)
            lines, size = [], 0
        lines.append(line)
        size += len(line) + 1
    if lines:
        yield BatchPart(lines)


def encode(event: Any, index: int) -> bytes:
    """One event as JSON. What JSON cannot say is refused: NaN, NaT and infinities."""
    import orjson

    if not isinstance(event, Mapping):
        raise EventError(f"event {index} is a {type(event).__name__}, not a dict")
    options = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z
    try:
        line = orjson.dumps(event, default=plain, option=options)
    except TypeError as error:
        raise EventError(f"event {index}: {error.__cause__ or error}") from None
    if b"null" in line and (found := find_not_finite(event)) is not None:
        raise EventError(f"event {index}: {found}")
    return line


def _tables(source: Any) -> Iterator[pa.Table] | None:
    """The source as tables of Arrow; None if it is no table."""
    package = type(source).__module__.partition(".")[0]
    frame = package in ("pandas", "polars")
    if not frame and not any(
        hasattr(source, name) for name in ("__arrow_c_stream__", "__arrow_c_array__")
    ):
        return None
    import pyarrow as pa

    try:
        if frame:
            from boxmatch.model.tables import as_table

            if as_table(source) is None:  # which says what would do, where it can
                raise EventError(f"a {package} {type(source).__name__} is not a table")
            if package == "pandas":
                return iter([pa.Table.from_pandas(source, preserve_index=False)])
            return iter([source.to_arrow()])
        if isinstance(source, pa.Table):
            return iter([source])
        if hasattr(source, "__arrow_c_stream__"):
            return _streamed(pa.RecordBatchReader.from_stream(source))
        return iter([pa.Table.from_batches([pa.record_batch(source)])])
    except (pa.ArrowException, TypeError) as error:
        raise EventError(f"a {type(source).__name__} is not a table: {error}") from None


def _streamed(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    import pyarrow as pa

    with reader:
        for one in reader:
            yield pa.Table.from_batches([one])


def _rows(tables: Iterator[pa.Table], batch: int, nbytes: int) -> Iterator[BatchPart]:
    for whole in tables:
        if not whole.num_rows:
            continue
        table = _without_nan(whole)
        if any(_is_nested(field.type) for field in table.schema):
            yield from _lines(_dicts(table), batch, nbytes)  # such columns go as JSON alone
            continue
        fitting = table.num_rows * nbytes // max(table.nbytes, 1)
        step = max(1, min(batch, fitting))
        for start in range(0, table.num_rows, step):
            yield BatchPart(table.slice(start, step))


def _is_nested(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_nested(kind)


def _dicts(table: pa.Table) -> Iterator[dict[str, Any]]:
    for rows in table.to_batches(max_chunksize=_ROWS_AT_ONCE):
        for row in rows.to_pylist():
            yield {name: value for name, value in row.items() if value is not None}


def _without_nan(table: pa.Table) -> pa.Table:
    """NaN as null: both are absent, but only one of them can be sent on as JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for place, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):
            column = table.column(place)
            nan = pc.is_nan(column)
            if pc.any(nan).as_py():
                cleared = pc.if_else(nan, pa.scalar(None, field.type), column)
                table = table.set_column(place, field.with_nullable(True), cleared)
    return table
