"""Where a webhook may go to, and a connection that goes there and nowhere else.

Whoever may set a webhook can make the broker send requests. So that they cannot reach what only
the broker can (its own machine, the network around it, a cloud's metadata service), the name is
resolved here, every address is checked, and the connection is made to a checked address, not
to the name: a second look-up could answer differently (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import httpx
from msgspec import structs

from boxmatch.errors import TargetError
from boxmatch.wire import responses
from boxmatch.wire.codec import faults
from boxmatch.wire.requests import NewWebhook

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses, as text; raises OSError."""

MAX_URL = 2048
MAX_ANSWER = 64 * 1024
"""Bytes that are read of an answer's body; only its status matters."""
KEEP_ALIVE = 2.0
"""Seconds. Shorter than what servers do, or requests would meet connections about to close."""
ADDRESSES_TRIED = 4

_HOST = re.compile(r"[0-9A-Za-z_][0-9A-Za-z_.-]*|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*")
"""A name or an IPv4 address, or an IPv6 address without a zone."""

_CLOSED_V4 = [
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this host: connects to loopback on Linux
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared by customers of a provider (CGNAT)
        "127.0.0.0/8",
        "168.63.129.16/32",  # looks public, but is the inside of Azure's hosts
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
]
_OPEN_V6 = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_CLOSED_V6 = [
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments; Teredo has an IPv4 address inside
        "2001:db8::/32",
        "2002::/16",  # 6to4: an IPv4 address inside
        "3fff::/20",
    )
]


def is_public(address: str) -> bool:
    """Whether anybody on the internet could reach this address.

    `ipaddress.is_global` is not asked alone: what it says changed between patch releases, and
    it knows nothing of IPv4 addresses inside IPv6 ones.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.scope_id is not None:
            return False
        if ip in _NAT64:  # the way to IPv4 from networks that have IPv6 only
            return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF)))
        # Outside global unicast are loopback, link-local, unique local, multicast, v4-mapped, …
        return ip in _OPEN_V6 and not any(ip in closed for closed in _CLOSED_V6)
    return ip.is_global and not any(ip in closed for closed in _CLOSED_V4)


@dataclass(frozen=True)
class WebhookTarget:
    """A URL that was looked at: http or https, a host, no credentials."""

    url: httpx.URL
    host: str
    """ASCII: names in other scripts as Punycode."""
    port: int

    @classmethod
    def parse(cls, text: str, *, allow_private: bool = False) -> WebhookTarget:
        """Look at a URL without resolving it. Raises TargetError."""
        if len(text) > MAX_URL:
            raise TargetError(f"the URL of a webhook may have {MAX_URL} characters")
        # What is checked is what is requested: one parser for both.
        try:
            url = httpx.URL(text)
            host = url.raw_host.decode("ascii")
        except (httpx.InvalidURL, UnicodeError, ValueError) as error:
            raise TargetError(f"not a URL: {error}") from None
        if url.scheme not in ("http", "https"):
            raise TargetError("the URL of a webhook begins with http:// or https://")
        if url.userinfo:
            raise TargetError("the URL of a webhook may not hold credentials")
        if not _HOST.fullmatch(host):
            raise TargetError("the URL of a webhook has to name a host")
        port = (443 if url.scheme == "https" else 80) if url.port is None else url.port
        if not 0 < port < 65536:
            raise TargetError("the port of a webhook is between 1 and 65535")
        target = cls(url, host, port)
        literal = target.literal
        if literal is not None and not allow_private and not is_public(literal):
            raise TargetError(
                f"{literal} is not a public address; "
                "boxmatch serve --allow-private-webhooks would allow it"
            )
        return target

    @property
    def literal(self) -> str | None:
        """The host, if it is an address in the usual form."""
        try:
            return str(ipaddress.ip_address(self.host))
        except ValueError:
            return None

    async def addresses(self, resolve: Resolver, *, allow_private: bool) -> list[str]:
        """Addresses that may be connected to. Raises TargetError if one of them may not.

        One bad address spoils all: which of them is taken must not be left to chance.
        """
        literal = self.literal
        found = [literal] if literal is not None else await self._resolved(resolve)
        if not allow_private:
            for address in found:
                if not is_public(address):
                    raise TargetError(f"{self.host} is at {address}, not a public address")
        return found

    async def _resolved(self, resolve: Resolver) -> list[str]:
        try:
            found = list(dict.fromkeys(await resolve(self.host, self.port)))
        except (OSError, UnicodeError) as error:
            raise TargetError(f"{self.host} cannot be resolved: {error}") from None
        if not found:
            raise TargetError(f"{self.host} has no address")
        return found


class Webhook(NewWebhook, frozen=True, kw_only=True):
    """Where a subscriber's notifications are posted to."""

    secret: str

    def described(self, last_error: str | None = None) -> responses.Webhook:
        """What others may know of it: all but the secret."""
        return responses.Webhook(
            url=self.url,
            timeout=self.timeout,
            attempts=self.attempts,
            batch=self.batch,
            cloudevents=self.cloudevents,
            paused=self.paused,
            last_error=last_error,
        )


def check_webhook(webhook: Webhook, *, allow_private: bool = False) -> None:
    """Whether a webhook makes sense, for when it is set. Raises TargetError.

    A name is not resolved here: what it resolves to counts when something is posted.
    """
    WebhookTarget.parse(webhook.url, allow_private=allow_private)
    for fault in faults(structs.asdict(webhook), NewWebhook, "webhook"):
        raise TargetError(f"{fault.place}: {fault.message}")


class SystemResolver:
    """The machine's resolver, in threads of its own.

    The event loop's default threads are few and others need them: names that take long to
    resolve must not hold up anything but webhooks.
    """

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="boxmatch-resolver")

    async def __call__(self, host: str, port: int) -> list[str]:
        look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, look_up)
        return [str(entry[4][0]) for entry in found]

    def close(self) -> None:
        # Look-ups cannot be interrupted; nobody waits for what is still under way.
        self._threads.shutdown(wait=False, cancel_futures=True)


class WebhookResponse(NamedTuple):
    """What a target said."""

    status: int
    headers: Mapping[str, str]


class WebhookConnection:
    """Posts to one target, over one connection that is kept while there is something to post.

    Not shared between targets: a connection whose certificate was checked for one name must
    not carry requests for another name at the same address.
    """

    def __init__(
        self, target: WebhookTarget, *, resolve: Resolver, tls: ssl.SSLContext, allow_private: bool
    ) -> None:
        self.target = target
        self._resolve = resolve
        self._tls = tls
        self._allow_private = allow_private
        self._transport: httpx.AsyncHTTPTransport | None = None

    async def post(
        self, body: bytes, headers: Mapping[str, str], *, turn: int = 0
    ) -> WebhookResponse:
        """Post once; the name is resolved and checked anew. Raises TargetError or httpx.HTTPError.

        No time limit of its own: the caller has one for all of it. Redirects are answers like
        any other. `turn` says which address comes first, so that a dead one is not always it.
        """
        addresses = await self.target.addresses(self._resolve, allow_private=self._allow_private)
        turn %= len(addresses)
        ordered = (addresses[turn:] + addresses[:turn])[:ADDRESSES_TRIED]
        for address in ordered[:-1]:
            try:
                return await self._post_to(address, body, headers)
            except httpx.ConnectError:
                continue  # nothing was sent
        return await self._post_to(ordered[-1], body, headers)

    async def _post_to(
        self, address: str, body: bytes, headers: Mapping[str, str]
    ) -> WebhookResponse:
        if self._transport is None:
            # The bare transport: a client would add cookies, proxies from the environment,
            # decompression, and a log line with the URL.
            self._transport = httpx.AsyncHTTPTransport(
                verify=self._tls,
                trust_env=False,
                limits=httpx.Limits(
                    max_connections=2, max_keepalive_connections=1, keepalive_expiry=KEEP_ALIVE
                ),
            )
        url = self.target.url
        request = httpx.Request(
            "POST",
            url.copy_with(host=address, fragment=None),
            headers={**headers, "Host": url.netloc.decode("ascii")},
            content=body,
            # The certificate has to be for the name, though the connection is to an address.
            extensions={"sni_hostname": self.target.host.rstrip(".")},
        )
        response = await self._transport.handle_async_request(request)
        try:
            size = 0
            async for chunk in response.aiter_raw():
                size += len(chunk)
                if size > MAX_ANSWER:
                    break
        finally:
            await response.aclose()
        return WebhookResponse(response.status_code, response.headers)

    async def disconnect(self) -> None:
        """Close the connection; the next post makes a new one."""
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()
