"""How the commands that talk to a broker are told where it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from boxmatch.errors import ClientError

if TYPE_CHECKING:
    from boxmatch.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"

Url = Annotated[
    str, typer.Option(envvar="BOXMATCH_URL", metavar="URL", help="Where the broker is.")
]
Key = Annotated[str | None, typer.Option(envvar="BOXMATCH_KEY", metavar="KEY", help="An API key.")]
Trust = Annotated[
    Path | None,
    typer.Option(exists=True, dir_okay=False, help="Certificates to trust, if not the usual."),
]


def connect(url: str, key: str | None, trust: Path | None) -> Client:
    """A client with these options."""
    try:
        from boxmatch.client import Client
    except ModuleNotFoundError as error:
        raise ClientError(f"{error}: pip install 'boxmatch[client]'") from None
    return Client(url, key, verify=True if trust is None else trust)
