"""Files of events or subscriptions: JSON, NDJSON, CSV, Parquet and Arrow, by their names."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.errors import EventError

if TYPE_CHECKING:
    import pyarrow as pa

    from boxmatch.model.schema import Schema

Format = Literal["json", "ndjson", "arrow", "csv", "parquet"]
SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".parquet": "parquet",
}
STANDARD = "-"
Nulls = Annotated[
    list[str] | None,
    typer.Option(
        "--null",
        metavar="TEXT",
        help="A text, such as NA, that means a missing value in CSV, as an empty field does. "
        "Repeatable.",
    ),
]
_CHUNK = 1 << 20


class FileError(EventError):
    """A file that is not in its format; `open_input` adds the name."""


def format_of(file: str, given: Format | None = None, *, option: str = "--format") -> Format:
    """The format of a file: as given, or by its name; standard input is NDJSON."""
    if given is not None:
        return given
    if file == STANDARD:
        return "ndjson"
    try:
        return SUFFIXES[Path(file).suffix.lower()]
    except KeyError:
        raise typer.BadParameter(
            f"{file}: its name does not say what it is ({', '.join(SUFFIXES)}); "
            f"say so with {option}"
        ) from None


@contextlib.contextmanager
def open_input(file: str) -> Iterator[IO[bytes]]:
    """The file, or standard input, which stays open. Errors name it."""
    name = display_name(file)
    if file == STANDARD and sys.stdin.isatty():
        typer.echo("Type events, one JSON object a line; Ctrl-D ends.", err=True)
    try:
        source = sys.stdin.buffer if file == STANDARD else open(file, "rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise EventError(f"{name}: {error.strerror}") from None
    try:
        yield source
    except FileError as error:
        raise EventError(f"{name}: {error}") from None
    finally:
        if file != STANDARD:
            source.close()


def display_name(file: str) -> str:
    """The name of a file for messages."""
    return "standard input" if file == STANDARD else file


def csv_types(schema: Schema) -> dict[str, pa.DataType]:
    """The types that columns of a CSV file have if they are attributes of this schema."""
    import pyarrow as pa

    from boxmatch.model.schema import Schema

    typed = [one for one in schema if one.type != "json"]
    return {
        field.name: pa.string() if pa.types.is_dictionary(field.type) else field.type
        for field in (Schema(typed).to_arrow() if typed else ())
        if not pa.types.is_nested(field.type)  # there are no lists in CSV
    }


def lines_as_they_come(
    source: IO[bytes], loads: Callable[[bytes], Any] = json.loads
) -> Iterator[list[Any]]:
    """The values of NDJSON, in lists of what has arrived together.

    A slow source does not wait for a full batch, and a fast one gets large batches.
    """
    read: Callable[[int], bytes] = getattr(source, "read1", source.read)
    rest, number = b"", 0
    while chunk := read(_CHUNK):
        *lines, rest = (rest + chunk).split(b"\n")
        if values := list(_parse_lines(lines, number, loads)):
            yield values
        number += len(lines)
    if values := list(_parse_lines([rest], number, loads)):
        yield values


def _parse_lines(lines: list[bytes], before: int, loads: Callable[[bytes], Any]) -> Iterator[Any]:
    for number, line in enumerate(lines, before + 1):
        if line and not line.isspace():
            try:
                value = loads(line)
            except (ValueError, RecursionError) as error:
                raise FileError(f"line {number} is not JSON: {error}") from None
            # Tools such as `curl` send an array on one line.
            yield from value if isinstance(value, list) else (value,)


def document(text: bytes, loads: Callable[[bytes], Any] = json.loads) -> Any:
    """The value of a JSON file."""
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"this is not JSON: {error}") from None


def tables(
    kind: Literal["arrow", "csv", "parquet"],
    source: IO[bytes],
    types: Mapping[str, pa.DataType],
    nulls: Sequence[str] = (),
) -> pa.RecordBatchReader:
    """A file of columns as batches.

    Columns of CSV have the types given; in these an empty field is null, and so are `nulls`.
    """
    import pyarrow as pa

    with translate_errors(kind):
        if kind == "parquet":
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(_seekable(source))
            return pa.RecordBatchReader.from_batches(parquet.schema_arrow, parquet.iter_batches())
        if kind == "csv":
            return _csv(source, types, nulls)
        return _arrow(source)


@contextlib.contextmanager
def translate_errors(kind: Format) -> Iterator[None]:
    """Turn what Arrow raises on a bad file into an error of ours."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        first = str(error).partition("\n")[0]
        raise FileError(f"this is not {kind}: {first}") from None


def _csv(
    source: IO[bytes], types: Mapping[str, pa.DataType], nulls: Sequence[str]
) -> pa.RecordBatchReader:
    import pyarrow.csv

    options = pyarrow.csv.ConvertOptions(
        column_types=dict(types), null_values=["", *nulls], strings_can_be_null=True
    )
    return pyarrow.csv.open_csv(source, convert_options=options)


def _arrow(source: IO[bytes]) -> pa.RecordBatchReader:
    """An IPC stream, or a file of the kind with a footer (Feather)."""
    import pyarrow as pa

    whole = _seekable(source)
    if whole.read(6) == b"ARROW1":
        whole.seek(0)
        return pa.ipc.open_file(whole).read_all().to_reader()
    whole.seek(0)
    return pa.ipc.open_stream(whole)


def _seekable(source: IO[bytes]) -> Any:
    import pyarrow as pa

    return source if source.seekable() else pa.BufferReader(source.read())
