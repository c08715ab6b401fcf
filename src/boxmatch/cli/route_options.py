"""Options that the commands of `boxmatch route` share: where NATS is, and a file of settings.

An option is taken from the command line, else from its variable, else from the file.
"""

from __future__ import annotations

import asyncio
import os
import tomllib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from boxmatch.cli.help import Command
from boxmatch.errors import RouteError, did_you_mean
from boxmatch.extras import requires

if TYPE_CHECKING:
    from nats.aio.client import Client

    from boxmatch.nats.connection import Connection

T = TypeVar("T")

_FEEDS = "feeds"
_FILE = "settings"
_OPTION = f"--{_FILE}"
_VARIABLE = "BOXMATCH_ROUTE_SETTINGS"


class FileCommand(Command):
    """A command whose options may stand in a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # Before options are looked at: those of the file are their defaults.
        if "--help" not in args and not ctx.resilient_parsing:
            path = _given(args) or os.environ.get(_VARIABLE)
            if path:
                _read_file(ctx, Path(path))
        return super().parse_args(ctx, args)


def _given(args: list[str]) -> str | None:
    for word, following in zip_longest(args, args[1:]):
        if word == _OPTION:
            return following
        if word.startswith(f"{_OPTION}="):
            return word.partition("=")[2]
    return None


def _read_file(ctx: Any, path: Path) -> None:
    """Have the options of a file be defaults of this command, as far as it has them."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RouteError(f"{path} is not TOML: {error}") from None
    commands = [ctx.command] if ctx.parent is None else ctx.parent.command.commands.values()
    known = {str(one.name) for command in commands for one in command.params} - {_FILE, "help"}
    for name in document:
        if name not in known | {_FEEDS}:
            raise RouteError(f"{path}: there is no setting {name!r}{did_you_mean(name, known)}")
    ctx.default_map = {name: value for name, value in document.items() if name != _FEEDS}
    ctx.obj = document.get(_FEEDS)


File = Annotated[
    Path | None,
    typer.Option(
        _OPTION,
        metavar="FILE",
        envvar=_VARIABLE,
        help="TOML: options by name, with _ for -, and tables feeds.NAME.",
    ),
]
Route = Annotated[
    str, typer.Option("--route", envvar="BOXMATCH_ROUTE", metavar="NAME", help="The route.")
]


@dataclass(frozen=True)
class ConnectionOptions:
    """Where the cluster is, and who connects."""

    server: Annotated[
        list[str] | None,
        typer.Option(envvar="NATS_URL", metavar="URL", help="A server of the cluster. Repeatable."),
    ] = None
    creds: Annotated[
        Path | None,
        typer.Option(envvar="NATS_CREDS", metavar="FILE", help="Credentials, as nsc writes them."),
    ] = None
    nkey: Annotated[
        Path | None, typer.Option(envvar="NATS_NKEY", metavar="FILE", help="An NKey seed.")
    ] = None
    user: Annotated[str | None, typer.Option(envvar="NATS_USER", help="Name of a user.")] = None
    password: Annotated[str | None, typer.Option(envvar="NATS_PASSWORD", help="Its password.")] = (
        None
    )
    token: Annotated[str | None, typer.Option(envvar="NATS_TOKEN", help="A token, instead.")] = None
    trust: Annotated[
        Path | None,
        typer.Option(
            envvar="NATS_CA",
            exists=True,
            dir_okay=False,
            help="CA certificates (PEM), instead of the default ones.",
        ),
    ] = None
    certificate: Annotated[
        Path | None, typer.Option(envvar="NATS_CERT", help="Certificate of this client (PEM).")
    ] = None
    private_key: Annotated[
        Path | None,
        typer.Option(envvar="NATS_KEY", help="Its private key, if not in the same file."),
    ] = None

    def connection(self) -> Connection:
        """What connects by them. `MissingExtraError`: nats-py is not installed."""
        with requires("nats", "boxmatch route"):
            from boxmatch.nats.connection import DEFAULT_SERVER, Connection

        urls = [url for one in self.server or [DEFAULT_SERVER] for url in one.split(",") if url]
        return Connection(
            servers=tuple(urls),
            credentials=self.creds,
            nkey=self.nkey,
            user=self.user,
            password=self.password,
            token=self.token,
            trust=self.trust,
            certificate=self.certificate,
            private_key=self.private_key,
        )


DEFAULT_CONNECTION = ConnectionOptions()


def with_connection(connection: Connection, work: Callable[[Client], Awaitable[T]]) -> T:
    """Do something over a connection. What NATS says about it becomes a `RouteError`."""
    import nats.errors

    async def connected() -> T:
        client = await connection.open("boxmatch route")
        try:
            return await work(client)
        finally:
            await client.close()

    try:
        return asyncio.run(connected())
    except (nats.errors.Error, TimeoutError) as error:
        said = str(error) or "no answer: is JetStream enabled, and has it a leader?"
        raise RouteError(f"NATS: {said.removeprefix('nats: ')}") from None
