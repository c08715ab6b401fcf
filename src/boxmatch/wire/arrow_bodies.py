"""Events in an Arrow IPC stream, read with suspicion.

Arrow can say very much in few bytes: compressed buffers, one long text that all rows refer to,
lists of a billion nulls. What could grow like that is refused before it is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from boxmatch.wire.codec import plain
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.problems import Problem

_ROWS_AT_ONCE: Final = 256
_UNREADABLE: Final = (
    pa.ArrowException,
    OSError,
    ValueError,
    ArithmeticError,  # numbers that Python cannot hold, and decimals that Arrow cannot read
    NotImplementedError,
    KeyError,  # a time zone that nobody knows
    struct.error,
)


def rows_of(body: bytes, check_count: Callable[[int], None], most_bytes: int) -> Events:
    """The rows of all record batches. `most_bytes` is for what they are as JSON."""
    try:
        _check_messages(body)
        return _rows_of(body, check_count, most_bytes)
    except _UNREADABLE as error:
        raise Problem(400, "arrow", f"the body is not an Arrow IPC stream: {error}") from None


def _rows_of(body: bytes, check_count: Callable[[int], None], most_bytes: int) -> Events:
    rows: list[dict[str, Any]] = []
    bodies: list[bytes] = []
    room = most_bytes
    with pa.ipc.open_stream(pa.BufferReader(body)) as reader:
        _check_columns(reader.schema)
        for batch in reader:
            batch.validate(full=True)  # offsets and text that would lead the reader astray
            check_count(len(rows) + batch.num_rows)
            _check_size(batch, most_bytes)
            for first in range(0, batch.num_rows, _ROWS_AT_ONCE):
                for row in batch.slice(first, _ROWS_AT_ONCE).to_pylist():
                    # Null is absent, as in every other batch of events.
                    present = {name: value for name, value in row.items() if value is not None}
                    text = _as_json(present, len(rows))
                    room -= len(text)
                    if room < 0:
                        raise _too_large()
                    rows.append(present)
                    bodies.append(text)
    check_count(len(rows))
    return Events(rows, bodies)


def _check_columns(schema: pa.Schema) -> None:
    names = schema.names
    if len(set(names)) < len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise Problem(400, "arrow", f"the stream has two columns named {repeated!r}")
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if pa.types.is_nested(kind) or str(kind) in ("string_view", "binary_view"):
            raise Problem(
                422, "arrow", f"column {field.name!r} is of type {kind}: send such events as JSON",
                attribute=field.name,
            )  # fmt: skip
        if pa.types.is_run_end_encoded(kind) or isinstance(kind, pa.BaseExtensionType):
            raise Problem(
                422, "arrow", f"column {field.name!r}: {kind} is not read", attribute=field.name
            )


def _check_size(batch: pa.RecordBatch, most_bytes: int) -> None:
    size = batch.nbytes
    for column in batch.columns:
        if isinstance(column, pa.DictionaryArray):
            # Every row that refers to a long text becomes that text.
            try:
                lengths = pc.call_function("binary_length", [column.dictionary])
            except pa.ArrowNotImplementedError:  # numbers, all of them short
                continue
            size += pc.sum(pc.take(lengths.cast(pa.int64()), column.indices)).as_py() or 0
    if size > most_bytes:
        raise _too_large()


def _too_large() -> Problem:
    return Problem(413, "body-size", "the events are too large once they are unpacked")


def _as_json(row: dict[str, Any], index: int) -> bytes:
    for name, value in row.items():
        if type(value) is float and value - value != 0.0:
            raise Problem(
                422, "value", f"attribute {name!r} in row {index}: {value} has no form in JSON; "
                "leave it out", index=index, attribute=name,
            )  # fmt: skip
    try:
        return _dumped(row)
    except TypeError:
        for name, value in row.items():
            try:
                _dumped(value)
            except TypeError as error:
                raise Problem(
                    422, "value", f"attribute {name!r} in row {index}: {error.__cause__ or error}",
                    index=index, attribute=name,
                ) from None  # fmt: skip
        raise


def _dumped(value: object) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_UTC_Z, default=plain)


def _check_messages(body: bytes) -> None:
    """Refuse compressed buffers, whose true size is only known once they are unpacked."""
    with pa.BufferReader(body) as source:
        messages = pa.ipc.MessageReader.open_stream(source)
        while True:
            try:
                message = messages.read_next_message()
            except StopIteration:
                return
            if message.type in ("record batch", "dictionary"):
                _check_plain(message.metadata.to_pybytes(), message.type == "dictionary")


def _check_plain(metadata: bytes, is_dictionary: bool) -> None:
    # Flatbuffers, as in Arrow's Message.fbs: the header is field 2 of a Message, the record batch
    # field 1 of a DictionaryBatch, the compression field 3 of a RecordBatch.
    (root,) = struct.unpack_from("<I", metadata)
    batch = _child(metadata, root, 2)
    if is_dictionary:
        batch = _child(metadata, batch, 1)
    if _field(metadata, batch, 3):
        raise Problem(
            415, "encoding", "the Arrow buffers are compressed; send them without compression"
        )


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it has none."""
    (back,) = struct.unpack_from("<i", data, table)
    vtable = table - back
    (size,) = struct.unpack_from("<H", data, vtable)
    place = 4 + 2 * number
    if place + 2 > size:
        return 0
    (offset,) = struct.unpack_from("<H", data, vtable + place)
    return table + int(offset) if offset else 0


def _child(data: bytes, table: int, number: int) -> int:
    place = _field(data, table, number)
    if not place:
        raise ValueError("a message without its content")
    (offset,) = struct.unpack_from("<I", data, place)
    return place + int(offset)
