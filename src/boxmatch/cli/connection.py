"""How commands reach a broker: its address, a key, and what they all name there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from boxmatch.cli.help import filter_by_prefix
from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.client import Client

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
