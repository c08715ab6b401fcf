"""`boxmatch feeds`: make feeds of a broker, and see which there are."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.connect import DEFAULT_URL, Key, Trust, Url, connect
from boxmatch.cli.help import Command, Group, examples
from boxmatch.cli.schemas import Attributes, SchemaFile, given_schema
from boxmatch.cli.terminal import AsJson, output, print_json

if TYPE_CHECKING:
    from boxmatch.client import Feed

feeds = typer.Typer(
    cls=Group,
    help="Create and list feeds.",
    epilog="boxmatch feeds create ticks --attribute symbol=string --attribute price=float\n"
    "boxmatch feeds list",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@feeds.command(cls=Command)
@examples(
    "boxmatch feeds create ticks --attribute symbol=string --attribute price=float",
    "boxmatch feeds create orders --schema schema.json --unknown carry",
)
def create(
    name: Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")],
    schema: SchemaFile = None,
    attribute: Attributes = None,
    unknown: Annotated[
        Literal["refuse", "carry"],
        typer.Option(help="Refuse, or carry along, attributes that the schema lacks."),
    ] = "refuse",
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Create a feed of events."""
    known = given_schema(schema, attribute or [])
    if known is None:
        raise typer.BadParameter("give the schema with --schema FILE or --attribute NAME=TYPE")
    with connect(url, key, trust) as client:
        made = client.create_feed(name, known, unknown=unknown)
    if as_json:
        print_json(_feed_document(made))
    else:
        typer.echo(f"Created feed {made.name} with {', '.join(made.schema.names)}.")


@feeds.command("list", cls=Command)
@examples("boxmatch feeds list", "boxmatch feeds list --json")
def list_feeds(
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """List the feeds that the key may see."""
    with connect(url, key, trust) as client:
        found = client.feeds()
    if as_json:
        for feed in found:
            print_json(_feed_document(feed))
        return
    if not found:
        typer.echo("There are no feeds yet: boxmatch feeds create --help")
        return
    from rich.table import Table
    from rich.text import Text

    table = Table("feed", "kind", box=None)
    table.add_column("subscriptions", justify="right")
    table.add_column("last sequence", justify="right")
    table.add_column("attributes")
    for feed in found:
        attributes = ", ".join(
            f"{attribute.name} {attribute.type}"
            for schema in feed.spaces.values()
            for attribute in schema
        )
        row = (feed.name, feed.kind, f"{feed.subscriptions:,}", f"{feed.last_sequence:,}")
        table.add_row(*map(Text, (*row, attributes)))
    output().print(table)


def _feed_document(feed: Feed) -> dict[str, Any]:
    """As the broker itself describes it."""
    spaces = {name: json.loads(schema.to_json()) for name, schema in feed.spaces.items()}
    shape = {"schema": spaces[feed.name]} if feed.kind == "events" else {"spaces": spaces}
    return {
        "name": feed.name,
        "kind": feed.kind,
        **shape,
        "unknown": feed.unknown,
        "subscriptions": feed.subscriptions,
        "publications": feed.publications,
        "last_sequence": feed.last_sequence,
    }
