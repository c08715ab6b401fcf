from __future__ import annotations

import asyncio
import signal
import ssl
from contextlib import closing
from pathlib import Path

import httpx
import pytest
import websockets
from small_server import (
    Certificate,
    Served,
    in_server,
    new_certificate,
)

from boxmatch.broker.server.protocols import Timeouts
from boxmatch.broker.server.sockets import Listening, bind, tls_context
from boxmatch.errors import BrokerError


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return new_certificate(tmp_path_factory.mktemp("certificate"))


def test_tls(tmp_path: Path, certificate: Certificate) -> None:
    trusted = ssl.create_default_context()
    certificate.authority.configure_trust(trusted)

    async def scenario(server: Served) -> None:
        url = server.listening.url
        assert url.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=trusted) as client:
            answer = await client.post(url + "/echo", content=b"abc")
            assert answer.text == "3"
        async with websockets.connect(url.replace("http", "ws"), ssl=trusted) as connection:
            await connection.send("hello")
            assert await connection.recv() == "hello"
        async with httpx.AsyncClient() as stranger:
            with pytest.raises(httpx.ConnectError):
                await stranger.get(url + "/echo")
        old = ssl.create_default_context()
        certificate.authority.configure_trust(old)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        async with httpx.AsyncClient(verify=old) as client:
            assert (await client.get(url + "/echo")).status_code == 200

    in_server(
        tmp_path,
        scenario,
        certificate=certificate.certificate,
        private_key=certificate.private_key,
        timeouts=Timeouts(),
    )


@pytest.mark.parametrize("raw", [b"", b"\x16\x03\x01"], ids=["silence", "half a handshake"])
def test_a_handshake_that_does_not_come_is_cut(
    tmp_path: Path, certificate: Certificate, raw: bytes
) -> None:
    async def scenario(server: Served) -> None:
        await server.send(raw)  # fails if it is not closed in time

    in_server(tmp_path, scenario, certificate=certificate.both)


async def disconnect(server: Served) -> None:
    """Send SIGHUP, and wait until it was looked at."""
    signal.raise_signal(signal.SIGHUP)
    async with asyncio.timeout(10):
        while server.signals.renew:
            await asyncio.sleep(0.01)


def test_a_new_certificate_is_read_on_sighup(tmp_path: Path, certificate: Certificate) -> None:
    used = tmp_path / "used.pem"
    used.write_bytes(certificate.both.read_bytes())
    second = new_certificate(tmp_path)
    trusted = ssl.create_default_context()
    second.authority.configure_trust(trusted)

    async def scenario(server: Served) -> None:
        url = server.listening.url + "/echo"
        async with httpx.AsyncClient(verify=trusted) as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
            used.write_text("nonsense")
            await disconnect(server)
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
            used.write_bytes(second.both.read_bytes())
            await disconnect(server)
            assert (await client.get(url)).status_code == 200

    in_server(tmp_path, scenario, certificate=used, timeouts=Timeouts())


def test_certificates_that_do_not_serve(tmp_path: Path, certificate: Certificate) -> None:
    other = new_certificate(tmp_path)
    cases: list[tuple[Path | None, Path | None, str]] = [
        (None, certificate.private_key, "a private key without a certificate"),
        (tmp_path / "no.pem", None, "cannot read the certificate .*no.pem: No such file"),
        (certificate.certificate, tmp_path / "no.pem", "cannot read the private key .*no.pem"),
        (tmp_path, None, "cannot read the certificate .*: Is a directory"),
        (certificate.certificate, other.private_key, "key.pem does not belong to the certificate"),
        (certificate.certificate, None, "does not hold a certificate and its private key"),
        (certificate.private_key, certificate.certificate, "are not a certificate and a private"),
    ]
    for chain, key, message in cases:
        with pytest.raises(BrokerError, match=message) as refused:
            tls_context(chain, key)
        assert "\n" not in str(refused.value)
    assert tls_context(None, None) is None
    assert tls_context(certificate.both, None) is not None


def test_ports_that_do_not_serve() -> None:
    with closing(bind("127.0.0.1", 0)) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(BrokerError, match=f"port {port} on 127.0.0.1 is taken"):
            bind("127.0.0.1", port)
    with pytest.raises(BrokerError, match="no such address"):
        bind("no-such-host.invalid", 0)
    with pytest.raises(BrokerError, match=r"cannot listen on 192\.0\.2\.1:0"):
        bind("192.0.2.1", 0)


def test_where_a_server_listens() -> None:
    with closing(bind("0.0.0.0", 0)) as listener:
        port = listener.getsockname()[1]
        assert Listening.on(listener, "0.0.0.0", tls=False).url == f"http://127.0.0.1:{port}"
        assert Listening.on(listener, "::", tls=True).url == f"https://[::1]:{port}"
