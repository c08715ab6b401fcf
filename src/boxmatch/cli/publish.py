"""`boxmatch publish`: events from a file or a pipe into a feed."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.errors import EventError

if TYPE_CHECKING:
    from boxmatch.client import Client, Receipt

Format = Literal["json", "ndjson", "arrow", "csv", "parquet"]
_SUFFIXES: dict[str, Format] = {
    ".json": "json",
    ".ndjson": "ndjson",
    ".jsonl": "ndjson",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".csv": "csv",
    ".parquet": "parquet",
}


def publish(
    feed: Annotated[str, typer.Argument(metavar="FEED", help="The feed.")],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The events; '-' is the standard input.")
    ] = "-",
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="What the file is, if its name does not say so."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Events in one request.")] = 5_000,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="Under the same key the same file is published once, however often."),
    ] = None,
    wait: Annotated[
        Literal["durable", "received"],
        typer.Option(help="Until when the broker is waited for."),
    ] = "durable",
    as_json: Annotated[bool, typer.Option("--json", help="Print the receipt as JSON.")] = False,
) -> None:
    """Publish the events of a file: JSON, NDJSON, Arrow, CSV or Parquet."""
    kind = format_ or _kind(file)
    with (
        connect(url, key, trust) as client,
        _opened(file) as source,
        _progress() as show,
    ):
        events = _events(kind, source, client, feed)
        receipt = client.publish(
            feed, events, key=idempotency_key, wait=wait, batch=batch, on_receipt=show
        )
    if as_json:
        typer.echo(json.dumps(vars(receipt)))
    else:
        typer.echo(_said(receipt))


def _said(receipt: Receipt) -> str:
    if receipt.count == 0:
        return "There are no events in it."
    text = f"{receipt.count:,} event{'s' * (receipt.count > 1)}"
    if receipt.first is not None:
        text += f", numbers {receipt.first} to {receipt.last}"
    return text + (" (published before, under the same key)" if receipt.repeated else "")


def _kind(file: str) -> Format:
    if file == "-":
        return "ndjson"
    try:
        return _SUFFIXES[Path(file).suffix.lower()]
    except KeyError:
        raise typer.BadParameter(f"{file}: say what it is with --format") from None


@contextlib.contextmanager
def _opened(file: str) -> Iterator[IO[bytes]]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        source = open(file, "rb")  # noqa: SIM115 - closed below, but its errors are not ours
    except OSError as error:
        raise typer.BadParameter(f"{file}: {error.strerror}") from None
    with source:
        yield source


def _events(kind: Format, source: IO[bytes], client: Client, feed: str) -> Any:
    if kind == "ndjson":
        return _lines(source)
    if kind == "json":
        return _document(source.read())
    import pyarrow as pa

    try:
        if kind == "parquet":
            import pyarrow.parquet as pq

            parquet = pq.ParquetFile(_seekable(source))
            return pa.RecordBatchReader.from_batches(parquet.schema_arrow, parquet.iter_batches())
        if kind == "csv":
            return _csv(source, client, feed)
        return _arrow(source)
    except (pa.ArrowException, OSError) as error:
        raise EventError(f"this is not {kind}: {error}") from None


def _lines(source: IO[bytes]) -> Iterator[Any]:
    import orjson

    for number, line in enumerate(source, 1):
        if not line.isspace():
            try:
                event = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise EventError(f"line {number} is not JSON: {error}") from None
            # An array on one line is what `curl` and the like hand over.
            yield from event if isinstance(event, list) else (event,)


def _document(text: bytes) -> Any:
    import orjson

    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise EventError(f"this is not JSON: {error}") from None


def _csv(source: IO[bytes], client: Client, feed: str) -> Any:
    """The columns have the types of the feed's schema; an empty field is absent."""
    import pyarrow as pa
    import pyarrow.csv

    types = {
        field.name: pa.string() if pa.types.is_dictionary(field.type) else field.type
        for field in client.feed(feed).schema.to_arrow()
    }
    return pyarrow.csv.open_csv(
        source,
        convert_options=pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=True),
    )


def _arrow(source: IO[bytes]) -> Any:
    """An IPC stream, or a file of the kind with a footer (Feather)."""
    import pyarrow as pa

    whole = _seekable(source)
    if whole.read(6) == b"ARROW1":
        whole.seek(0)
        return pa.ipc.open_file(whole).read_all()
    whole.seek(0)
    return pa.ipc.open_stream(whole)


def _seekable(source: IO[bytes]) -> Any:
    import pyarrow as pa

    return source if source.seekable() else pa.BufferReader(source.read())


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """What is to be called with each receipt. Shown only to somebody who looks at a terminal."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.completed:,.0f} events"),
        TimeElapsedColumn(),
        TextColumn("{task.speed:,.0f} a second", style="dim"),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        task = progress.add_task("", total=None)
        yield lambda receipt: progress.advance(task, receipt.count)
