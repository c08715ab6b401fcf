"""What can reach a broker that asks for no key: programs on this machine, and nothing else."""

from __future__ import annotations

import ipaddress
import logging
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from boxmatch.errors import AccessError, BrokerError

if TYPE_CHECKING:
    from boxmatch.broker.access.keys import Keys

_LOG = logging.getLogger("boxmatch.broker")

ALLOWED_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""What a request may call the broker while there are no keys."""

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(:[0-9]{1,5})?")


def check_exposure(host: str, keys: Keys, certificate: Path | None) -> None:
    """Refuse to listen where others can reach the broker while it asks nobody for a key.

    With keys but no certificate it may listen, since a proxy may do the TLS, but it says so.
    """
    if is_loopback(host):
        return
    if not keys.any():
        raise BrokerError(
            f"others could reach {host or 'every address of this machine'}, and there are no keys, "
            f"so anyone could do anything: make one first (boxmatch admin keys create LABEL "
            f"--admin --data DIR), or listen on 127.0.0.1"
        )
    if certificate is None:
        _LOG.warning(
            "listening on %s without a certificate: keys and events cross the network in the "
            "clear, unless a proxy in front adds TLS",
            host or "every address",
        )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach what listens on `host`; all that it stands for counts."""
    name = host.strip().removeprefix("[").removesuffix("]")
    if not name:  # every interface
        return False
    try:
        found = {str(entry[4][0]) for entry in socket.getaddrinfo(name, None)}
    except (OSError, UnicodeError):  # nothing can listen there either; that will be said later
        return False
    return bool(found) and all(_is_loopback_address(address) for address in found)


def _is_loopback_address(text: str) -> bool:
    address = ipaddress.ip_address(text.partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def is_allowed_host(header: str | None) -> bool:
    """Whether a `Host` header names this machine, at any port.

    A web page can point a name of its own at 127.0.0.1 (DNS rebinding) and so have a browser on
    this machine talk to the broker; but then the header has that name.
    """
    found = _HOST.fullmatch(header or "")
    return found is not None and found["name"].lower() in ALLOWED_HOSTS


def check_local_request(host: str | None, origin: str | None) -> None:
    """Let a request without a key pass if it is from this machine and not from a foreign web page.

    The `Origin` matters as well as the `Host`: any page may send a simple POST, or open a
    WebSocket, to http://localhost.
    """
    if not is_allowed_host(host):
        raise AccessError(
            "this broker has no keys, so it only answers to localhost, 127.0.0.1 and [::1]"
        )
    if origin is not None and not _is_local_origin(origin):
        raise AccessError("this broker has no keys, so it does not answer to other web pages")


def _is_local_origin(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and is_allowed_host(parts.netloc)
