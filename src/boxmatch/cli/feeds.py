"""`boxmatch feeds`: create and list the feeds of a broker, and limit their logs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.connection import DEFAULT_URL, FeedName, Key, Trust, Url, connect
from boxmatch.cli.help import Command, command_group, examples
from boxmatch.cli.schemas import Attributes, SchemaFile, Unknown, given_schema
from boxmatch.cli.terminal import AsJson, output, print_json

if TYPE_CHECKING:
    from boxmatch.client import Feed


feeds = command_group(
    "Create and list feeds.",
    "boxmatch feeds create ticks --attribute symbol=string --attribute price=float",
    "boxmatch feeds list",
)


Days = Annotated[
    float | None, typer.Option(min=0.0, help="Days to keep events, instead of the broker's.")
]
Gigabytes = Annotated[
    float | None, typer.Option(min=0.001, help="GB of events to keep, at the most.")
]
Newest = Annotated[int | None, typer.Option(min=1, help="Newest events to keep.")]


def _retention(days: float | None, gigabytes: float | None, events: int | None) -> Any:
    """What was given of it; None if nothing."""
    nbytes = None if gigabytes is None else round(gigabytes * (1 << 30))
    given = {"days": days, "bytes": nbytes, "events": events}
    return {name: value for name, value in given.items() if value is not None} or None


@feeds.command(cls=Command)
@examples(
    "boxmatch feeds create ticks --attribute symbol=string --attribute price=float",
    "boxmatch feeds create orders --schema schema.json --unknown carry",
    "boxmatch feeds create ec2   # events of any structure",
)
def create(
    name: Annotated[str, typer.Argument(metavar="FEED", help="Name of the feed.")],
    schema: SchemaFile = None,
    attribute: Attributes = None,
    unknown: Unknown = "refuse",
    retention_days: Days = None,
    retention_gb: Gigabytes = None,
    retention_events: Newest = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Create a feed of events.

    Without a schema events may have any attributes.
    """
    known = given_schema(schema, attribute or [])
    with connect(url, key, trust) as client:
        retention = _retention(retention_days, retention_gb, retention_events)
        made = client.create_feed(name, known, unknown=unknown, retention=retention)
    if as_json:
        print_json(_feed_document(made))
    else:
        shape = f"with {', '.join(made.schema.names)}" if known is not None else "without a schema"
        typer.echo(f"Created feed {made.name} {shape}.")


@feeds.command(cls=Command)
@examples(
    "boxmatch feeds retain ticks --days 30",
    "boxmatch feeds retain ticks --gb 2 --events 1000000",
    "boxmatch feeds retain ticks   # as the broker keeps all feeds",
)
def retain(
    name: FeedName,
    days: Days = None,
    gb: Gigabytes = None,
    events: Newest = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Set how long the log of a feed is kept.

    What is not given is as the broker keeps all feeds.
    """
    with connect(url, key, trust) as client:
        changed = client.retain_feed(name, _retention(days, gb, events))
    if as_json:
        print_json(_feed_document(changed))
        return
    limits = _limits(changed)
    typer.echo(
        f"Feed {name} keeps {limits}." if limits else f"Feed {name} has no limits of its own."
    )


def _limits(feed: Feed) -> str:
    kept = feed.retention
    if kept is None:
        return ""
    parts = [
        None if kept.days is None else f"{kept.days:g} days",
        None if kept.bytes is None else f"{kept.bytes / (1 << 30):g} GB",
        None if kept.events is None else f"{kept.events:,} events",
    ]
    return ", ".join(part for part in parts if part)


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

    from boxmatch.model.documents import ROOT

    table = Table("feed", "kind", box=None)
    table.add_column("subscriptions", justify="right")
    table.add_column("last sequence", justify="right")
    table.add_column("attributes")
    for feed in found:
        attributes = ", ".join(
            "any" if attribute.name == ROOT else f"{attribute.name} {attribute.type_name}"
            for schema in feed.spaces.values()
            for attribute in schema
        )
        row = (feed.name, feed.kind, f"{feed.subscriptions:,}", f"{feed.last_sequence:,}")
        table.add_row(*map(Text, (*row, attributes)))
    output().print(table)


def _feed_document(feed: Feed) -> dict[str, Any]:
    """As the broker itself describes it."""
    from msgspec.structs import asdict

    spaces = {name: json.loads(schema.to_json()) for name, schema in feed.spaces.items()}
    shape = {"schema": spaces[feed.name]} if feed.kind == "events" else {"spaces": spaces}
    return {
        "name": feed.name,
        "kind": feed.kind,
        **shape,
        "unknown": feed.unknown,
        "retention": None if feed.retention is None else asdict(feed.retention),
        "subscriptions": feed.subscriptions,
        "publications": feed.publications,
        "last_sequence": feed.last_sequence,
    }
