"""What a server needs before it can listen: a certificate, a port, enough open files."""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from boxmatch import __version__
from boxmatch.errors import BrokerError

ADDRESS = "address.json"
_DRAFT = f"{ADDRESS}.partial"
_SPARE_FILES = 200
"""File descriptors that are not for connections: databases, webhooks, libraries."""
_ALL = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}
"""Nobody can connect to "all addresses": what works instead, from here."""


@dataclass(frozen=True)
class Listening:
    """Where a server listens."""

    url: str
    host: str
    port: int

    @classmethod
    def on(cls, listener: socket.socket, host: str, *, tls: bool) -> Listening:
        port = int(listener.getsockname()[1])
        host = _ALL.get(host, host)
        shown = f"[{host}]" if ":" in host else host
        return cls(url=f"{'https' if tls else 'http'}://{shown}:{port}", host=host, port=port)


def tls_context(certificate: Path | None, private_key: Path | None) -> ssl.SSLContext | None:
    """What TLS is spoken with; None without a certificate."""
    if certificate is None:
        if private_key is not None:
            raise BrokerError("a private key without a certificate: give --certificate too")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    load_certificate(context, certificate, private_key)
    return context


def load_certificate(context: ssl.SSLContext, certificate: Path, private_key: Path | None) -> None:
    """Read the files into a context; connections that are made from now on use them."""
    for what, path in (("certificate", certificate), ("private key", private_key)):
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            raise BrokerError(f"cannot read the {what} {path}: {error.strerror}") from error
    try:
        # If no password were given, OpenSSL would ask for one on the terminal, and wait.
        context.load_cert_chain(certificate, private_key, password=lambda: "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            source = private_key or certificate
            reason = f"the private key in {source} does not belong to the certificate {certificate}"
        elif private_key is None:
            reason = f"{certificate} does not hold a certificate and its private key, as PEM"
        else:
            reason = (
                f"{certificate} and {private_key} are not a certificate and a private key "
                "without a password, as PEM"
            )
        raise BrokerError(reason) from error


def bind(host: str, port: int) -> socket.socket:
    """A socket that does not listen yet. `BrokerError`: the port is taken, or no such address."""
    try:
        found = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except (socket.gaierror, UnicodeError) as error:
        raise BrokerError(f"cannot listen on {host!r}: there is no such address") from error
    family, kind, protocol, _, address = found[0]
    listener = socket.socket(family, kind, protocol)
    try:
        if os.name == "posix":  # elsewhere it would let two listen on one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise listening_error(error, host, port) from error
    return listener


def listening_error(error: OSError, host: str, port: int) -> BrokerError:
    """Why one cannot listen there."""
    if error.errno == errno.EADDRINUSE:
        return BrokerError(
            f"port {port} on {host} is taken by another process; choose one with --port "
            "(0 finds a free one)"
        )
    return BrokerError(f"cannot listen on {host}:{port}: {error.strerror}")


def draft_address(data: Path, listening: Listening) -> None:
    """Write down where the broker is, for `publish_address`."""
    content = {
        "url": listening.url,
        "host": listening.host,
        "port": listening.port,
        "process": os.getpid(),
        "version": __version__,
    }
    (data / _DRAFT).write_text(json.dumps(content) + "\n", encoding="utf-8")


def publish_address(data: Path) -> None:
    """Tell others on this machine where the broker is; port 0 would be hard to find otherwise.
    Takes no room on the disk.
    """
    (data / _DRAFT).replace(data / ADDRESS)


def raise_file_limit(connections: int) -> int:
    """Allow as many open files as the system lets us; how many connections that is enough for."""
    try:
        import resource
    except ImportError:  # not a Unix system
        return connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return connections
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    return min(connections, max(soft - _SPARE_FILES, soft // 2))
