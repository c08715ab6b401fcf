"""Commands that talk to a broker: `subscribe`, `publish`, `listen`, `replay` and `share`."""

from __future__ import annotations

import json
from itertools import chain
from typing import IO, TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.connection import (
    DEFAULT_URL,
    FeedName,
    From,
    Key,
    SubscriberName,
    Trust,
    Url,
    connect,
    feed_names,
)
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
from boxmatch.cli.help import examples
from boxmatch.cli.schemas import Dialect, given_filter
from boxmatch.cli.terminal import AsJson, print_json, show_count
from boxmatch.cli.text_columns import infer_types, read_text

if TYPE_CHECKING:
    from boxmatch.client import Client, Notification, Receipt


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


@examples(
    "boxmatch share workers",
    "boxmatch share workers --ack-seconds 300 --max-deliveries 3",
    "boxmatch share workers --cancel",
)
def share(
    subscriber: SubscriberName,
    ack_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="What is not acknowledged by then is handed out again.",
            show_default="30",
        ),
    ] = None,
    max_deliveries: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="How often a notification is handed out before it is a dead letter.",
            show_default="8",
        ),
    ] = None,
    max_in_flight: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many may be handed out at a time.", show_default="1000"
        ),
    ] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Share no more.")] = False,
    url: Url = DEFAULT_URL,
    key: Key = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Share the notifications of a subscriber among its connections.

    Each goes to one of them, and is acknowledged by itself. Settings that are not given are the
    defaults.
    """
    settings = {
        "ack_seconds": ack_seconds, "max_deliveries": max_deliveries, "max_in_flight": max_in_flight
    }  # fmt: skip
    given: dict[str, Any] = {name: one for name, one in settings.items() if one is not None}
    if cancel and given:
        raise typer.BadParameter("settings make no sense with --cancel")
    with connect(url, key, trust) as client:
        if cancel:
            client.unshare(subscriber)
            shown = client.subscriber(subscriber)
        else:
            shown = client.share(subscriber, **given)
    if as_json:
        from msgspec.structs import asdict

        sharing = None if shown.sharing is None else asdict(shown.sharing)
        print_json({"subscriber": subscriber, "mode": shown.mode, "sharing": sharing})
    elif shown.sharing is None:
        typer.echo(f"{subscriber} has a cursor; it goes on after {shown.cursor}.")
    else:
        typer.echo(
            f"{subscriber} shares its notifications: acknowledged within "
            f"{shown.sharing.ack_seconds:g} s, handed out {shown.sharing.max_deliveries} times, "
            f"{shown.sharing.max_in_flight:,} at a time."
        )


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
