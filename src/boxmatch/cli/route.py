"""`boxmatch route`: events of a NATS JetStream stream to the subjects of their subscribers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from boxmatch.cli.help import command_group, examples
from boxmatch.cli.options import LogFormat, LogLevel, with_options
from boxmatch.cli.route_options import (
    DEFAULT_CONNECTION,
    ConnectionOptions,
    File,
    FileCommand,
    Route,
    with_connection,
)
from boxmatch.cli.schemas import (
    Attributes,
    Dialect,
    SchemaFile,
    Unknown,
    given_filter,
    given_schema,
)
from boxmatch.cli.terminal import AsJson, print_json
from boxmatch.errors import RouteError

if TYPE_CHECKING:
    from nats.aio.client import Client

    from boxmatch.nats.router import Router
    from boxmatch.nats.settings import RouteSettings

_SWITCH = 0.0005
"""Seconds after which the thread that matches lets the event loop go on."""

route = command_group(
    "Route events by content on NATS JetStream.",
    "boxmatch route run --local   # a server, a route and a worker, to try it out",
    "boxmatch route init --feed ticks --attribute symbol=string",
    """boxmatch route subscribe alice cheap "price < 30\"""",
)

DEFAULT_ROUTE = "boxmatch"
_LOCAL_FEED = "events"


@route.command(cls=FileCommand)
@examples(
    "boxmatch route init --feed ticks --attribute symbol=string",
    "boxmatch route init --settings route.toml --replicas 3",
    "boxmatch route init --feed orders --stream ORDERS --subject 'orders.>'",
)
@with_options
def init(
    ctx: typer.Context,
    settings: File = None,
    route: Route = DEFAULT_ROUTE,
    feed: Annotated[
        str | None, typer.Option(metavar="NAME", help="A feed; several stand in a file.")
    ] = None,
    subject: Annotated[
        str, typer.Option(help="Subject of its events; ROUTE.in.FEED if none is given.")
    ] = "",
    schema: SchemaFile = None,
    attribute: Attributes = None,
    unknown: Unknown = "refuse",
    format_: Annotated[
        Literal["json", "ndjson", "cloudevents", "cloudevents-batch", "arrow"],
        typer.Option("--format", help="Of messages without a Content-Type."),
    ] = "json",
    stream: Annotated[
        str, typer.Option(help="A stream that has the events already; else one is made.")
    ] = "",
    start: Annotated[
        Literal["new", "all"], typer.Option(help="Which events of it are the first.")
    ] = "new",
    shards: Annotated[int, typer.Option(min=1, help="Parts into which subscribers are cut.")] = 1,
    ordered: Annotated[
        bool,
        typer.Option("--ordered", help="One message at a time: in order, whatever fails."),
    ] = False,
    ack_seconds: Annotated[
        float, typer.Option(min=1.0, help="After which another worker gets what one has not done.")
    ] = 30.0,
    max_deliver: Annotated[
        int,
        typer.Option(min=1, help="Deliveries after which a message is matched alone, once more."),
    ] = 5,
    replicas: Annotated[int, typer.Option(min=1, max=5, help="Servers that have each stream.")] = 1,
    window_seconds: Annotated[
        float, typer.Option(min=1.0, help="For which no notification is stored twice.")
    ] = 120.0,
    retention_days: Annotated[
        float, typer.Option(min=0.001, help="How many days to keep events and notifications.")
    ] = 7.0,
    retention_gb: Annotated[
        float, typer.Option(min=0.0, help="How many GB of each to keep; 0 is no limit.")
    ] = 0.0,
    when_full: Annotated[
        Literal["drop-oldest", "wait"],
        typer.Option(help="Of notifications beyond it: drop the oldest, or route no more."),
    ] = "drop-oldest",
    cluster: ConnectionOptions = DEFAULT_CONNECTION,
    as_json: AsJson = False,
) -> None:
    """Make a route, or change it: streams, bucket and consumers.

    What it has already stays: events, notifications and subscriptions. Workers notice the change.
    """
    connection = cluster.connection()
    from boxmatch.nats.routes import Storage, create_route

    known = given_schema(schema, attribute or [])
    one = {
        "subject": subject,
        "schema": None if known is None else json.loads(known.to_json()),
        "unknown": unknown,
        "format": format_,
    }
    wanted = _settings(
        {
            "feeds": _feeds(ctx.obj, feed, one),
            "stream": stream,
            "shards": shards,
            "ordered": ordered,
            "ack_seconds": ack_seconds,
            "max_deliver": max_deliver,
        },
        settings,
    )
    storage = Storage(
        replicas=replicas,
        window_seconds=window_seconds,
        days=retention_days,
        most_bytes=round(retention_gb * (1 << 30)) or -1,
        when_full=when_full,
        start=start,
    )

    async def make(client: Client) -> None:
        await create_route(client.jetstream(), route, wanted, storage)

    with_connection(connection, make)
    if as_json:
        print_json({"route": route, **json.loads(wanted.encode())})
        return
    from boxmatch.nats.messages import FeedSubjects
    from boxmatch.nats.names import Names

    names = Names.of(route)
    typer.echo(f"Route {route}:")
    for name, subject_ in FeedSubjects(names, wanted.feeds).of_feed.items():
        typer.echo(f"  publish events of {name} to {subject_}")
    typer.echo(f"  subscribers read {names.out('SUBSCRIBER')}, in the stream {names.notifications}")


def _feeds(tables: Any, feed: str | None, one: dict[str, Any]) -> Any:
    """The feeds of a file, or that of the options."""
    if feed is None:
        if tables is None:
            raise RouteError("a route needs a feed: give --feed, or tables feeds.NAME in a file")
        return tables
    if tables is not None:
        raise RouteError("give --feed, or feeds in a file, not both")
    return {feed: one}


def _settings(given: dict[str, Any], path: Path | None) -> RouteSettings:
    from boxmatch.nats.settings import read_settings

    return read_settings(given, "the route" if path is None else str(path))


@route.command(cls=FileCommand)
@examples(
    "boxmatch route run",
    "boxmatch route run --local --data nats-data",
    "boxmatch route run --settings route.toml --metrics-port 9100",
    "boxmatch route run --shard 1   # of a route with shards",
)
@with_options
def run(
    ctx: typer.Context,
    settings: File = None,
    route: Route = DEFAULT_ROUTE,
    shard: Annotated[
        int, typer.Option(envvar="BOXMATCH_ROUTE_SHARD", min=0, help="Which part of subscribers.")
    ] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Messages that are fetched together.")] = 500,
    name: Annotated[
        str | None, typer.Option(help="Name of this worker, which no other one has.")
    ] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Start a NATS server here, with a route if it has none.")
    ] = False,
    data: Annotated[
        Path, typer.Option(file_okay=False, help="Data of the local server; made if missing.")
    ] = Path("nats-data"),
    port: Annotated[
        int, typer.Option(min=-1, max=65535, help="Its port; -1 chooses a free one.")
    ] = 4222,
    metrics_host: Annotated[
        str, typer.Option(help="Address for /metrics, /healthz and /readyz.")
    ] = "127.0.0.1",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar="BOXMATCH_ROUTE_METRICS_PORT",
            min=0,
            max=65535,
            help="Port for them; without one there are none.",
        ),
    ] = None,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
    cluster: ConnectionOptions = DEFAULT_CONNECTION,
) -> None:
    """Run a worker until Ctrl-C or SIGTERM.

    Any number of workers share the events of a route, on any number of machines.
    """
    connection = cluster.connection()
    from boxmatch.logs import LogSettings, configure_logs
    from boxmatch.nats.local import LocalServer
    from boxmatch.nats.monitoring import MonitoringServer
    from boxmatch.nats.router import Router

    sys.setswitchinterval(_SWITCH)
    configure_logs(LogSettings(level=log_level, format=log_format))
    with contextlib.ExitStack() as held:
        if local:
            from dataclasses import replace

            here = held.enter_context(LocalServer(data, port))
            connection = replace(connection, servers=(here.url,))
            typer.echo(f"NATS listens on {here.url}")
            with_connection(connection, lambda client: _make_local(client, route, ctx.obj))
        worker = Router(connection, route, shard=shard, batch=batch, name=name)
        if metrics_port is not None:
            monitored = MonitoringServer(metrics_host, metrics_port, worker.metrics, worker.health)
            typer.echo(f"Metrics: {held.enter_context(monitored).url}/metrics")
        _run_worker(worker)


async def _make_local(client: Client, route: str, feeds: Any) -> None:
    """A route with the feeds of a file, or with one that takes any events, if there is none."""
    from boxmatch.nats.names import Names
    from boxmatch.nats.routes import create_route, find_settings

    js = client.jetstream()
    if feeds is None:
        with contextlib.suppress(RouteError):
            await find_settings(js, Names.of(route))
            return
    wanted = _settings({"feeds": feeds or {_LOCAL_FEED: {}}}, None)
    await create_route(js, route, wanted)


async def _tune(worker: Router) -> None:
    from boxmatch.engine.memory import tune_memory

    await worker.wait_ready()
    tune_memory()


def _run_worker(worker: Router) -> None:
    async def routing() -> None:
        loop = asyncio.get_running_loop()
        work = asyncio.ensure_future(worker.run())
        tuning = asyncio.ensure_future(_tune(worker))

        def stop() -> None:
            if worker.is_stopping:  # the second time: at once
                work.cancel()
            worker.stop()

        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, stop)
            except NotImplementedError:  # on Windows Ctrl-C ends the process
                break
        with contextlib.suppress(asyncio.CancelledError):
            await work
        tuning.cancel()

    try:
        import uvloop
    except ImportError:  # there is none for Windows
        asyncio.run(routing())
    else:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(routing())


@route.command(cls=FileCommand)
@examples("boxmatch route status", "boxmatch route status --json")
@with_options
def status(
    settings: File = None,
    route: Route = DEFAULT_ROUTE,
    cluster: ConnectionOptions = DEFAULT_CONNECTION,
    as_json: AsJson = False,
) -> None:
    """Show what a route has, and how far its workers are."""
    connection = cluster.connection()
    from boxmatch.nats.operations import status as look

    found = with_connection(connection, lambda client: look(client, route=route))
    if as_json:
        shards = [one._asdict() for one in found.shards]
        print_json(
            {
                "route": route,
                **found._asdict(),
                "settings": json.loads(found.settings.encode()),
                "shards": shards,
            }
        )
        return
    typer.echo(f"Route {route}: feeds {', '.join(found.settings.feeds)}")
    typer.echo(
        f"  {found.keys:,} keys of subscriptions at revision {found.revision}, "
        f"{found.events:,} messages of events, {found.notifications:,} notifications, "
        f"{found.dead_letters:,} dead letters"
    )
    for one in found.shards:
        typer.echo(
            f"  {one.consumer}: {one.waiting:,} messages wait, workers have {one.in_hand:,}"
            + (f", {one.redelivered:,} of them redelivered" if one.redelivered else "")
        )


Subscriber = Annotated[str, typer.Argument(metavar="SUBSCRIBER", help="The subscriber.")]
SubscriptionId = Annotated[str, typer.Argument(metavar="ID", help="The subscription's id.")]


@route.command(cls=FileCommand)
@examples(
    """boxmatch route subscribe alice cheap "symbol = 'IBM' AND price < 30\"""",
    "boxmatch route subscribe alice big 'volume > 5000' --feed ticks",
)
@with_options
def subscribe(
    subscriber: Subscriber,
    id_: SubscriptionId,
    filter_: Annotated[
        str,
        typer.Argument(
            metavar="FILTER",
            help="A SQL WHERE expression, a JSON object, or what the dialect has.",
        ),
    ],
    feed: Annotated[str | None, typer.Option(help="The feed, if the route has several.")] = None,
    dialect: Dialect = None,
    settings: File = None,
    route: Route = DEFAULT_ROUTE,
    cluster: ConnectionOptions = DEFAULT_CONNECTION,
    as_json: AsJson = False,
) -> None:
    """Create or replace a subscription in the route's bucket.

    Events that are published from then on are matched by it.
    """
    connection = cluster.connection()
    from boxmatch.nats.operations import subscribe as put

    wanted = given_filter(filter_, dialect)
    revision = with_connection(
        connection,
        lambda client: put(
            client, subscriber, id_, wanted, feed=feed, dialect=dialect, route=route
        ),
    )
    if as_json:
        print_json({"subscriber": subscriber, "id": id_, "revision": revision})
    else:
        typer.echo(f"Subscribed {subscriber}/{id_} at revision {revision}: {filter_}")


@route.command(cls=FileCommand)
@examples("boxmatch route unsubscribe alice cheap")
@with_options
def unsubscribe(
    subscriber: Subscriber,
    id_: SubscriptionId,
    settings: File = None,
    route: Route = DEFAULT_ROUTE,
    cluster: ConnectionOptions = DEFAULT_CONNECTION,
    as_json: AsJson = False,
) -> None:
    """Remove a subscription, if it is there."""
    connection = cluster.connection()
    from boxmatch.nats.operations import unsubscribe as remove

    revision = with_connection(
        connection, lambda client: remove(client, subscriber, id_, route=route)
    )
    if as_json:
        print_json({"subscriber": subscriber, "id": id_, "revision": revision})
    else:
        typer.echo(f"Removed {subscriber}/{id_} at revision {revision}.")
