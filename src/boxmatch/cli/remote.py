"""Commands that talk to a broker: `feeds`, `subscribe`, `publish`, `listen` and `replay`."""

from __future__ import annotations

import json
import os
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.files import (
    Format,
    Nulls,
    csv_types,
    document,
    format_of,
    lines_as_they_come,
    open_input,
    tables,
    translate_errors,
)
from boxmatch.cli.help import Command, command_group, examples, filter_by_prefix
from boxmatch.cli.schemas import Attributes, Dialect, SchemaFile, given_filter, given_schema
from boxmatch.cli.terminal import AsJson, output, print_json, show_count
from boxmatch.cli.text_columns import infer_types, read_text
from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.client import Client, Feed, Notification, Receipt

DEFAULT_URL = "http://127.0.0.1:8080"
_CONNECT_SECONDS = 5.0
_COMPLETION_SECONDS = 0.5

Url = Annotated[
    str, typer.Option(envvar="BOXMATCH_URL", metavar="URL", help="Address of the broker.")
]
Key = Annotated[str | None, typer.Option(envvar="BOXMATCH_KEY", metavar="KEY", help="An API key.")]
Trust = Annotated[
    Path | None,
    typer.Option(
        exists=True, dir_okay=False, help="CA certificates (PEM), instead of the default ones."
    ),
]


def feed_names(ctx: Any, incomplete: str) -> list[str]:
    """Feeds of the broker that the command would talk to, to complete a name.

    It offers none if they cannot be listed at once: completion must neither print nor fail.
    """
    import urllib.request

    url = ctx.params.get("url") or os.environ.get("BOXMATCH_URL") or DEFAULT_URL
    key = ctx.params.get("key") or os.environ.get("BOXMATCH_KEY")
    if not url.startswith(("http://", "https://")):
        return []
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{url.rstrip('/')}/feeds", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_COMPLETION_SECONDS) as response:
            names = [str(feed["name"]) for feed in json.load(response)["feeds"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return filter_by_prefix(names, incomplete)


FeedName = Annotated[
    str, typer.Argument(metavar="FEED", help="The feed.", autocompletion=feed_names)
]
From = Annotated[
    str | None,
    typer.Option(
        "--from", metavar="START", help="A sequence number, or a time such as 2026-03-01T09:30Z."
    ),
]
SubscriberName = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber.")]


def connect(url: str, key: str | None, trust: Path | None) -> Client:
    """A client with these options; `ClientError` if no broker listens there.

    The client itself retries for a minute. That suits a broker that restarts, but is too long to
    wait for one that was never started.
    """
    from boxmatch.client import Client

    client = Client(url, key, verify=True if trust is None else trust)
    try:
        _check_listening(url)
    except ClientError:
        client.close()
        raise
    return client


def _check_listening(url: str) -> None:
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    where = urlsplit(url)
    if where.scheme in getproxies() or where.hostname is None:
        return
    port = where.port or (443 if where.scheme == "https" else 80)
    try:
        socket.create_connection((where.hostname, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        raise ClientError(
            f"there is no broker at {url} ({error.strerror or error}): start one with "
            "boxmatch serve, or give its address with --url or BOXMATCH_URL"
        ) from None


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
    unknown: Annotated[
        Literal["refuse", "carry"],
        typer.Option(help="Refuse, or carry along, attributes that the schema lacks."),
    ] = "refuse",
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


@examples(
    """boxmatch subscribe alice cheap ticks "symbol = 'IBM' AND price < 30\"""",
    """boxmatch subscribe alice large ticks '{"volume": {"low": 5000}}'""",
    "boxmatch subscribe alice big ticks 'price * volume > 1e6'",
    "boxmatch subscribe alice large ticks 'volume >= 5000' --dry-run",
    "boxmatch subscribe alice big ticks 'volume > 5000' --from 1   # and the log",
    """boxmatch subscribe ops a ec2 '{"state": ["off"]}' --dialect eventbridge""",
)
def subscribe(
    subscriber: SubscriberName,
    id_: Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")],
    feed: FeedName,
    filter_: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help="A SQL WHERE expression, a JSON object, or what the dialect has.",
        ),
    ],
    dialect: Dialect = None,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Always match exactly, even if the feed is adaptive.")
    ] = False,
    try_: Annotated[
        bool, typer.Option("--dry-run", help="Only count how many of the last events match.")
    ] = False,
    from_: From = None,
    as_json: AsJson = False,
) -> None:
    """Create or replace a subscription.

    A subscription with the same id is replaced. With --from, matching events of the log are
    delivered, too.
    """
    wanted = given_filter(filter_, dialect)
    with connect(url, key, trust) as client:
        if try_:
            tried = client.dry_run(feed, wanted, dialect=dialect)
            if as_json:
                document = {"matches": tried.matches, "events": tried.events, "cost": tried.cost}
                print_json(document | ({"warning": tried.warning} if tried.warning else {}))
            else:
                if tried.matches is None or tried.events is None:
                    typer.echo("The filter is valid; this key may not read the events of the feed")
                else:
                    typer.echo(f"Matches {tried.matches:,} of the last {tried.events:,} events")
                _warn(tried.warning)
            return
        made = client.subscribe(
            subscriber,
            id_,
            feed,
            wanted,
            dialect=dialect,
            exact=exact,
            replay_from=_start(from_),
        )
    if as_json:
        named = {"subscriber": made.subscriber, "id": made.id, "feed": feed, "filter": wanted}
        print_json(named | ({"dialect": made.dialect} if made.dialect else {}))
    else:
        typer.echo(f"Subscribed {made.subscriber}/{made.id} to {feed}: {filter_}")
    _warn(made.warning)


def _start(text: str | None) -> int | str | None:
    """A number, or a time as the broker reads it."""
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


@examples(
    "boxmatch replay alice --from 1 --feed ticks",
    "boxmatch replay alice --from 2026-03-01T09:30Z --through 2026-03-01T10:00Z",
    "boxmatch replay alice --cancel",
)
def replay(
    subscriber: SubscriberName,
    from_: From = None,
    through: Annotated[
        str | None,
        typer.Option(metavar="END", help="The last number, or a time; the newest event if none."),
    ] = None,
    feed: Annotated[
        str | None,
        typer.Option(metavar="FEED", help="Only events of this feed.", autocompletion=feed_names),
    ] = None,
    subscription: Annotated[
        str | None, typer.Option(metavar="ID", help="Only for this subscription.")
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="End all replays instead.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Deliver events of the log to a subscriber again.

    They are matched against its subscriptions as they are now.
    """
    if cancel == (from_ is not None):
        raise typer.BadParameter("give --from START, or --cancel")
    with connect(url, key, trust) as client:
        if cancel:
            cursor = client.cancel_replay(subscriber)
            if as_json:
                print_json({"cursor": cursor})
            else:
                typer.echo(f"Replay cancelled; {subscriber} goes on after {cursor}.")
            return
        begun = client.replay_events(
            subscriber,
            _start(from_) or 0,
            through=_start(through),
            feed=feed,
            subscription=subscription,
        )
    if as_json:
        from msgspec.structs import asdict

        print_json(asdict(begun))
    else:
        typer.echo(f"Replaying to {subscriber} from {begun.after + 1} through {begun.through}.")


def _warn(warning: str | None) -> None:
    if warning is not None:
        typer.echo(f"boxmatch: {warning}", err=True)


@examples(
    "boxmatch publish ticks ticks.ndjson",
    "boxmatch publish ticks ticks.csv --url https://broker.example:8080",
    "boxmatch publish ticks ticks.parquet --idempotency-key monday   # only once",
    """echo '{"symbol": "IBM", "price": 24.5}' | boxmatch publish ticks""",
)
def publish(
    feed: FeedName,
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
    null: Nulls = None,
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
        events = _events(kind, source, client, feed, null or [])
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


def _events(kind: Format, source: IO[bytes], client: Client, feed: str, nulls: list[str]) -> Any:
    import orjson

    if kind == "ndjson":
        return chain.from_iterable(lines_as_they_come(source, orjson.loads))
    if kind == "json":
        return document(source.read(), orjson.loads)
    if kind != "csv":
        return tables(kind, source, {}, nulls)
    from boxmatch.model.documents import ROOT

    schema = client.feed(feed).schema
    if ROOT in schema:
        with translate_errors(kind):
            return infer_types(read_text(source, nulls)).table
    # Columns have the types of the feed's schema.
    return tables(kind, source, csv_types(schema), nulls)


@examples(
    "boxmatch listen alice",
    "boxmatch listen alice --count 10 --json",
    "boxmatch listen alice --after 0 --idle 5   # everything that is kept",
    "boxmatch listen alice --shared   # what others who listen do not get",
)
def listen(
    subscriber: SubscriberName,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    after: Annotated[
        int | None,
        typer.Option(min=0, help="Start after this sequence number instead of the cursor."),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many notifications.")
    ] = None,
    idle: Annotated[
        float | None,
        typer.Option(min=0, help="Stop after this many seconds without a notification."),
    ] = None,
    shared: Annotated[
        bool,
        typer.Option(
            "--shared", help="Share the notifications with others, one by one; not with --after."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the notifications of a subscriber as they arrive.

    Acknowledges each notification after printing it. Stop it with Ctrl-C.
    """
    if shared and after is not None:
        raise typer.BadParameter("shared notifications have no place to start after")
    with connect(url, key, trust) as client:
        if not client.subscriber(subscriber).subscriptions:  # a name that is misspelt, or too early
            typer.echo(f"boxmatch: subscriber {subscriber!r} has no subscriptions yet", err=True)
        listener = (
            client.work(subscriber, idle=idle)
            if shared
            else client.listen(subscriber, after=after, idle=idle)
        )
        with listener as notifications:
            for number, notification in enumerate(notifications, 1):
                print(_line(notification, as_json=as_json), flush=True)
                if number == count:
                    break


def _line(notification: Notification, *, as_json: bool) -> str:
    if as_json:
        from boxmatch.wire.codec import encode

        return encode(notification).decode()
    names = ", ".join(notification.subscriptions)
    body = json.dumps(notification.body, ensure_ascii=False)
    head = f"{notification.sequence}  {notification.time:%H:%M:%S}  {notification.feed}"
    return f"{head}  {names}  {body}"
