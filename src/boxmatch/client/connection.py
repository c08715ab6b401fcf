"""How the broker is reached: addresses, TLS, and what an error of a connection means."""

from __future__ import annotations

import selectors
import ssl
import threading
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import httpx
import websockets.exceptions

from boxmatch import __version__
from boxmatch.client.exchange import Request, Unanswered, base_url
from boxmatch.client.listener import Connect, Lost
from boxmatch.errors import ClientError
from boxmatch.wire.http import retry_after

Verify = bool | str | Path | ssl.SSLContext
_MOST_MESSAGE = 1 << 28
_LOOK_AGAIN = 0.2


class Address:
    """Where the broker is and how it is talked to."""

    def __init__(self, url: str, key: str | None, timeout: float, verify: Verify) -> None:
        self.url = base_url(url)
        self.timeout = timeout
        self.headers = {"User-Agent": f"boxmatch/{__version__}"}
        if key:
            if not key.isascii() or not key.isprintable():
                raise ClientError("the key has characters that no key has")
            self.headers["Authorization"] = f"Bearer {key}"
        self.tls = self._socket_tls = None
        if urlsplit(self.url).scheme == "https":
            self.tls, self._socket_tls = _tls(verify), _tls(verify)
            if self._socket_tls is not verify:  # a context that is given is not ours to change
                self._socket_tls.sslsocket_class = _TurnsSocket

    def http_options(self) -> dict[str, Any]:
        """For the constructor of an httpx client."""
        return {
            "base_url": self.url,
            "headers": self.headers,
            "timeout": self.timeout,
            "verify": self.tls or False,
        }

    def request_options(self, request: Request) -> dict[str, Any]:
        """For an httpx client's `request`."""
        return {
            "method": request.method,
            "url": request.path,
            "params": dict(request.query) or None,
            "content": request.body,
            "headers": request.headers,
            "timeout": httpx.Timeout(self.timeout, read=self.timeout + request.wait),
        }

    def socket_options(self, step: Connect) -> dict[str, Any]:
        """For `connect` of websockets."""
        query = f"?{urlencode(step.query)}" if step.query else ""
        headers = dict(self.headers)
        return {
            "uri": "ws" + self.url.removeprefix("http") + step.path + query,
            "user_agent_header": headers.pop("User-Agent"),
            "additional_headers": headers,
            "ssl": self._socket_tls,
            "open_timeout": self.timeout,
            "close_timeout": min(self.timeout, 2.0),
            "max_size": _MOST_MESSAGE,
            "compression": None,
        }


class _TurnsSocket(ssl.SSLSocket):
    """TLS that one thread reads and another writes, as websockets does.

    OpenSSL wants them to take turns. And a read must not wait inside of it: what made the socket
    readable may have been for TLS alone, and whoever closes the connection waits for the reader.
    """

    @property
    def _turn(self) -> threading.Lock:
        turn: threading.Lock = self.__dict__.setdefault("_lock", threading.Lock())
        return turn

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        while True:
            with self._turn:
                timeout = self.gettimeout()
                self.settimeout(0)
                try:
                    return super().recv(buflen, flags)
                except ssl.SSLWantReadError:
                    pass
                finally:
                    if self.fileno() >= 0:
                        self.settimeout(timeout)
            with selectors.DefaultSelector() as waiting:
                waiting.register(self, selectors.EVENT_READ)
                while not waiting.select(_LOOK_AGAIN):
                    if self.fileno() < 0:
                        raise OSError("the connection was closed")

    def sendall(self, data: Any, flags: int = 0) -> None:
        with self._turn:
            super().sendall(data, flags)


def _tls(verify: Verify) -> ssl.SSLContext:
    if isinstance(verify, ssl.SSLContext):
        return verify
    if isinstance(verify, (str, Path)):
        try:
            return ssl.create_default_context(cafile=str(verify))
        except (OSError, ssl.SSLError) as error:
            raise ClientError(f"no certificates in {verify}: {error}") from None
    context = ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def unanswered(error: httpx.TransportError) -> Unanswered:
    """What an error of the connection means for the request."""
    before = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    reason = str(error) or type(error).__name__
    return Unanswered(reason, sent=not before, hopeless=_is_certificate(error))


def lost(error: Exception) -> Lost:
    """What an error of a WebSocket means for listening."""
    if isinstance(error, websockets.exceptions.InvalidStatus):
        response = error.response
        headers = {name.lower(): value for name, value in response.headers.raw_items()}
        return Lost(
            str(error),
            status=response.status_code,
            body=bytes(response.body or b""),
            retry_after=retry_after(headers),
        )
    if isinstance(error, websockets.exceptions.ConnectionClosed):
        code = error.rcvd.code if error.rcvd is not None else 1006
        return Lost(str(error), code=code)
    return Lost(str(error) or type(error).__name__, hopeless=_is_certificate(error))


LOSSES = (OSError, EOFError, TimeoutError, websockets.exceptions.WebSocketException)
"""What can go wrong with a WebSocket."""


def _is_certificate(error: BaseException | None) -> bool:
    """Whether the other side is not whom it should be: trying again is of no use."""
    while error is not None:
        if isinstance(error, ssl.SSLCertVerificationError):
            return True
        error = error.__cause__ or error.__context__
    return False
