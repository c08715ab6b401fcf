"""How a NATS cluster is reached."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats.errors
from nats.aio.client import Client

from boxmatch.errors import RouteError

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_SERVER: Final = "nats://127.0.0.1:4222"


@dataclass(frozen=True, kw_only=True)
class Connection:
    """Servers and credentials."""

    servers: tuple[str, ...] = (DEFAULT_SERVER,)
    credentials: Path | None = None
    """A file with a JWT and an NKey, as `nsc` writes it."""
    nkey: Path | None = None
    """A file with the seed of an NKey."""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    trust: Path | None = None
    """CA certificates (PEM), instead of the default ones.

    With it, a certificate, or a URL that begins with tls://, only a server with TLS will do.
    """
    certificate: Path | None = None
    private_key: Path | None = None
    seconds: float = 10.0
    """How long the first connection may take."""

    async def open(
        self, name: str = "boxmatch", on_error: Callable[[Exception], None] | None = None
    ) -> Client:
        """A connection that is kept up. `RouteError`: why there is none.

        Tries for `seconds`, or until each of the servers has refused it.
        """
        reason: Exception | None = None
        refusals: int | None = 0  # None once there is a connection

        async def failed(error: Exception) -> None:
            nonlocal reason, refusals
            # A server that refuses a client hangs up, and what it said may not arrive each time.
            if reason is None or _is_refusal(error) or not _is_refusal(reason):
                reason = error
            if on_error is not None:
                on_error(error)
            if refusals is not None and _is_refusal(error):
                refusals += 1
                if refusals >= len(self.servers):
                    raise error  # which ends `connect`

        options: dict[str, Any] = {
            "servers": list(self.servers),
            "name": name,
            "error_cb": failed,
            "max_reconnect_attempts": -1,
            "reconnect_time_wait": 0.25,
            "connect_timeout": 2,
            # A server that is suspended keeps its connections: only missing pongs tell.
            "ping_interval": 2,
            "max_outstanding_pings": 2,
            **self._identity(),
        }
        wants_tls = "tls" in options or any(one.startswith("tls:") for one in self.servers)
        where = ", ".join(self.servers)
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    client = SecureClient() if wants_tls else Client()
                    try:
                        await client.connect(**options)
                    finally:
                        if not client.is_connected:  # also if the server hung up, unnoticed
                            await _close(client)
                    if client.is_connected:
                        refusals = None
                        return client
        except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
            raise RouteError(
                f"cannot connect to NATS at {where}: {_say(reason or error)}"
            ) from None

    def _identity(self) -> dict[str, Any]:
        files = (self.credentials, self.nkey, self.trust, self.certificate, self.private_key)
        for path in files:
            if path is not None and not path.is_file():
                raise RouteError(f"there is no file {path}")
        texts = {
            "user_credentials": self.credentials,
            "nkeys_seed": self.nkey,
            "user": self.user,
            "password": self.password,
            "token": self.token,
        }
        given: dict[str, Any] = {
            name: str(text) for name, text in texts.items() if text is not None
        }
        if self.private_key is not None and self.certificate is None:
            raise RouteError("a private key needs a certificate")
        if self.trust is not None or self.certificate is not None:
            try:
                context = ssl.create_default_context(cafile=self.trust)
                if self.certificate is not None:
                    context.load_cert_chain(self.certificate, self.private_key)
            except OSError as error:  # an SSLError is one
                raise RouteError(f"the certificates cannot be read: {error}") from None
            given["tls"] = context
        return given


class SecureClient(Client):
    """Tells only a server with TLS who it is, on which nats-py does not insist (2.16)."""

    def _connect_command(self) -> bytes:
        if not self._server_info.get("tls_required"):
            raise nats.errors.SecureConnWantedError
        return super()._connect_command()


async def _close(client: Client) -> None:
    """Close what did not connect: its streams may never say that they are closed (Python 3.11)."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await client.close()


def _is_refusal(error: Exception) -> bool:
    """Whether a server, or its certificate, is what keeps us out, rather than silence."""
    if isinstance(error, (ssl.SSLError, nats.errors.SecureConnWantedError)):
        return True
    return str(error).startswith("nats: '")  # what a server says stands in quotes


def _say(error: Exception) -> str:
    if isinstance(error, TimeoutError) or not str(error):
        return "no answer"
    return str(error).removeprefix("nats: ").strip("'")
