"""`boxmatch serve`: run a broker."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from boxmatch.cli.help import examples
from boxmatch.cli.options import LogFormat, LogLevel
from boxmatch.cli.problems import discard_unwritable_output
from boxmatch.extras import requires

if TYPE_CHECKING:
    from boxmatch.broker.server.sockets import Listening


@examples(
    "boxmatch serve --data data",
    "boxmatch serve --data data --port 9000 --retention-days 30 --log-format json",
    "boxmatch admin keys create operations --admin --data data   # for --host",
    "boxmatch serve --data data --host 0.0.0.0 --certificate certificate.pem",
)
def serve(
    data: Annotated[
        Path, typer.Option(file_okay=False, help="Data directory; created if missing.")
    ],
    host: Annotated[
        str, typer.Option(help="Address to listen on; other addresses than loopback need keys.")
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port; 0 chooses a free one, see DATA/address.json."),
    ] = 8080,
    certificate: Annotated[
        Path | None, typer.Option(help="TLS certificate chain, as PEM. SIGHUP reloads it.")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(help="Private key, if not in the same file.")
    ] = None,
    sync: Annotated[
        Literal["full", "normal"],
        typer.Option(help="'normal' is faster; a power failure may lose the last moments."),
    ] = "full",
    retention_days: Annotated[
        float, typer.Option(min=0.0, help="How many days to keep events.")
    ] = 7.0,
    retention_gb: Annotated[
        float, typer.Option(min=0.0, help="How many GB of events to keep.")
    ] = 10.0,
    keep_free_mb: Annotated[
        float,
        typer.Option(
            min=0.0,
            help="While less disk is free, remove the oldest events that were delivered; of a "
            "small disk at most a sixteenth.",
        ),
    ] = 512.0,
    backlog: Annotated[
        int,
        typer.Option(
            min=1, help="Notifications that may wait per subscriber before the oldest are dropped."
        ),
    ] = 100_000,
    replay_rate: Annotated[
        float,
        typer.Option(min=1.0, help="Events per second that all replays together may match."),
    ] = 20_000.0,
    body_mb: Annotated[
        float, typer.Option(min=0.001, help="Maximum size of a request body.")
    ] = 16.0,
    connections: Annotated[
        int, typer.Option(min=1, help="Maximum number of connections.")
    ] = 10_000,
    allow_private_webhooks: Annotated[
        bool,
        typer.Option(
            "--allow-private-webhooks",
            help="Allow webhooks to loopback and private addresses.",
        ),
    ] = False,
    shutdown_seconds: Annotated[
        float, typer.Option(min=0.0, help="How long to wait for open requests at shutdown.")
    ] = 10.0,
    log_level: LogLevel = "info",
    log_format: LogFormat = "auto",
    log_requests: Annotated[
        bool, typer.Option("--log-requests", help="Log every request, not only failed ones.")
    ] = False,
) -> None:
    """Run a broker until Ctrl-C or SIGTERM."""
    with requires("broker", "a broker"):
        from boxmatch.broker.server.process import ServerOptions, run
        from boxmatch.logs import LogSettings
    from boxmatch.broker.settings import Limits, Retention, Settings

    settings = Settings(
        data=data,
        host=host,
        port=port,
        certificate=certificate,
        private_key=private_key,
        sync=sync,
        replay_rate=replay_rate,
        allow_private_webhooks=allow_private_webhooks,
        shutdown_seconds=shutdown_seconds,
        limits=Limits(body_bytes=round(body_mb * (1 << 20))),
        retention=Retention(
            seconds=retention_days * 86400.0,
            nbytes=round(retention_gb * (1 << 30)),
            free_bytes=round(keep_free_mb * (1 << 20)),
            backlog=backlog,
        ),
    )
    options = ServerOptions(
        logs=LogSettings(level=log_level, format=log_format, requests=log_requests),
        connections=connections,
    )
    try:
        run(settings, options=options, on_listening=_announce)
    except KeyboardInterrupt:  # while it was starting
        raise typer.Exit(130) from None


def _announce(listening: Listening) -> None:
    try:
        typer.echo(f"Boxmatch listens on {listening.url}")
        typer.echo(f"Documentation: {listening.url}/docs")
    except OSError:  # a full disk or a closed pipe is no reason not to serve
        discard_unwritable_output(sys.stdout)
