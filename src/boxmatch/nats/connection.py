"""How a NATS cluster is reached."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors

from boxmatch.errors import RouteError

if TYPE_CHECKING:
    from collections.abc import Callable

    from nats.aio.client import Client

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
    """CA certificates (PEM), instead of the default ones."""
    certificate: Path | None = None
    private_key: Path | None = None
    seconds: float = 10.0
    """How long the first connection may take."""

    async def open(
        self, name: str = "boxmatch", on_error: Callable[[Exception], None] | None = None
    ) -> Client:
        """A connection that is kept up. `RouteError`: why there is none."""
        reason: Exception | None = None

        async def failed(error: Exception) -> None:
            nonlocal reason
            # A server that refuses a client hangs up, and what it said may not arrive each time.
            if reason is None or _is_answer(error) or not _is_answer(reason):
                reason = error
            if on_error is not None:
                on_error(error)

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
        where = ", ".join(self.servers)
        try:
            async with asyncio.timeout(self.seconds):
                while True:
                    client = await nats.connect(**options)
                    if client.is_connected:
                        return client
                    await client.close()  # a server that hung up, which nats-py overlooks
        except (nats.errors.Error, OSError, TimeoutError, ValueError) as error:
            raise RouteError(
                f"cannot connect to NATS at {where}: {_say(reason or error)}"
            ) from None

    def _identity(self) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for name, path in (("user_credentials", self.credentials), ("nkeys_seed", self.nkey)):
            if path is not None:
                if not path.is_file():
                    raise RouteError(f"there is no file {path}")
                given[name] = str(path)
        texts = {"user": self.user, "password": self.password, "token": self.token}
        given |= {name: text for name, text in texts.items() if text is not None}
        if self.trust is not None or self.certificate is not None:
            try:
                context = ssl.create_default_context(cafile=self.trust)
                if self.certificate is not None:
                    context.load_cert_chain(self.certificate, self.private_key)
            except OSError as error:  # an SSLError is one
                raise RouteError(f"the certificates cannot be read: {error}") from None
            given["tls"] = context
        return given


def _is_answer(error: Exception) -> bool:
    """Whether a server said this, rather than nothing."""
    silence = (TimeoutError, nats.errors.StaleConnectionError)  # which an unexpected end is
    return isinstance(error, nats.errors.Error) and not isinstance(error, silence)


def _say(error: Exception) -> str:
    if isinstance(error, TimeoutError) or not str(error):
        return "no answer"
    return str(error).removeprefix("nats: ").strip("'")
