"""`boxmatch publish`: events from a file or a pipe into a feed."""

from __future__ import annotations

from itertools import chain
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.completion import feed_names
from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.cli.files import (
    Format,
    csv_types,
    document,
    format_of,
    lines_as_they_come,
    open_input,
    tables,
)
from boxmatch.cli.help import examples
from boxmatch.cli.terminal import AsJson, print_json, show_count

if TYPE_CHECKING:
    from boxmatch.client import Client, Receipt


@examples(
    "boxmatch publish ticks ticks.ndjson",
    "boxmatch publish ticks ticks.csv --url https://broker.example:8080",
    "boxmatch publish ticks ticks.parquet --idempotency-key monday   # only once",
    """echo '{"symbol": "IBM", "price": 24.5}' | boxmatch publish ticks""",
)
def publish(
    feed: Annotated[
        str, typer.Argument(metavar="FEED", help="The feed.", autocompletion=feed_names)
    ],
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="The events; '-' is standard input.")
    ] = "-",
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", help="Format of the file, if its name does not tell."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Events per request.")] = 5_000,
    idempotency_key: Annotated[
        str | None,
        typer.Option(help="Publish the file only once under this key, even if repeated."),
    ] = None,
    wait: Annotated[
        Literal["durable", "received"],
        typer.Option(help="Wait until the events are on disk, or only received."),
    ] = "durable",
    as_json: AsJson = False,
) -> None:
    """Publish the events of a file to a feed.

    Formats: JSON, NDJSON, CSV, Parquet or Arrow, by file name; NDJSON from standard input.
    """
    kind = format_of(file, format_)
    with (
        connect(url, key, trust) as client,
        open_input(file) as source,
        show_count("events") as count,
    ):
        events = _events(kind, source, client, feed)
        receipt = client.publish(
            feed,
            events,
            key=idempotency_key,
            wait=wait,
            batch=batch,
            on_receipt=lambda receipt: count(receipt.count),
        )
    if as_json:
        from msgspec.structs import asdict

        print_json(asdict(receipt))
    else:
        typer.echo(_summary(receipt))


def _summary(receipt: Receipt) -> str:
    if receipt.count == 0:
        return "No events."
    text = f"{receipt.count:,} event{'s' * (receipt.count > 1)}"
    if receipt.first is not None:
        text += f", sequence numbers {receipt.first} to {receipt.last}"
    return text + (" (already published under this key)" if receipt.repeated else "")


def _events(kind: Format, source: IO[bytes], client: Client, feed: str) -> Any:
    import orjson

    if kind == "ndjson":
        return chain.from_iterable(lines_as_they_come(source, orjson.loads))
    if kind == "json":
        return document(source.read(), orjson.loads)
    # Columns of a CSV file have the types of the feed's schema.
    types = csv_types(client.feed(feed).schema) if kind == "csv" else None
    return tables(kind, source, types)
