"""Where the broker is: options of all commands that talk to one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
_SECONDS = 5.0

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


def connect(url: str, key: str | None, trust: Path | None) -> Client:
    """A client with these options; `ClientError` if nobody listens there.

    The client itself tries again for a minute, which is right for a broker that is restarted,
    and too long for one that was never started.
    """
    from boxmatch.client import Client

    client = Client(url, key, verify=True if trust is None else trust)
    try:
        _knock(url)
    except ClientError:
        client.close()
        raise
    return client


def _knock(url: str) -> None:
    import socket
    from urllib.parse import urlsplit
    from urllib.request import getproxies

    where = urlsplit(url)
    if where.scheme in getproxies() or where.hostname is None:
        return
    port = where.port or (443 if where.scheme == "https" else 80)
    try:
        socket.create_connection((where.hostname, port), timeout=_SECONDS).close()
    except OSError as error:
        raise ClientError(
            f"there is no broker at {url} ({error.strerror or error}): start one with "
            "boxmatch serve, or give its address with --url or BOXMATCH_URL"
        ) from None
