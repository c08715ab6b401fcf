"""How a cluster is reached, and what is said when it cannot be."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import nats.errors
import pytest
import trustme
from jetstream import PATIENCE, running, until_true

from boxmatch.errors import RouteError
from boxmatch.nats import connection as connection_module
from boxmatch.nats.connection import Connection
from boxmatch.nats.local import LocalServer
from boxmatch.nats.router import Router
from boxmatch.nats.routes import create_route
from boxmatch.nats.settings import FeedSettings, RouteSettings
from command_line import Command


def refusal(**given: Any) -> str:
    """Why there is no connection."""
    with pytest.raises(RouteError) as caught:
        asyncio.run(Connection(seconds=PATIENCE, **given).open())
    return str(caught.value)


def test_credentials_that_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "server.conf"
    config.write_text('authorization { user: "ann", password: "right" }\n')
    with LocalServer(tmp_path / "data", config=config) as server:
        where = {"servers": (server.url,)}
        expected = f"cannot connect to NATS at {server.url}: Authorization Violation"
        assert refusal(**where) == expected
        assert refusal(**where, user="ann", password="wrong") == expected

        async def test() -> None:
            client = await Connection(**where, user="ann", password="right").open()
            assert client.is_connected
            await client.close()
            worker = Router(Connection(**where, user="ann", password="no"))
            work = asyncio.ensure_future(worker.run())
            await until_true(lambda: worker.metrics.look("errors_total", reason="route") > 0)
            assert worker.health.reason == expected
            worker.stop()
            await work

        asyncio.run(test())


@pytest.mark.parametrize("servers", [1, 2])
def test_what_a_server_said_outranks_that_it_hung_up(
    monkeypatch: pytest.MonkeyPatch, servers: int
) -> None:
    """And when each of them has said no, nobody is asked again."""

    class Refused(connection_module.Client):
        async def connect(
            self, error_cb: Callable[[Exception], Awaitable[None]], **_: object
        ) -> None:
            await error_cb(ConnectionRefusedError("not yet"))
            for _ in range(servers):
                await error_cb(nats.errors.Error("nats: 'Authorization Violation'"))
                await error_cb(ConnectionResetError("reset by peer"))
                await error_cb(nats.errors.TimeoutError())
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    monkeypatch.setattr(connection_module, "Client", Refused)
    names = ("nats://127.0.0.1:1", "nats://127.0.0.1:2")[:servers]
    assert refusal(servers=names).endswith(": Authorization Violation")


class Tls:
    """Certificates, and a server that asks its clients for theirs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        ours, others = trustme.CA(), trustme.CA()
        ours.cert_pem.write_to_path(folder / "ca.pem")
        others.cert_pem.write_to_path(folder / "other-ca.pem")
        for name, ca, identity in (
            ("server", ours, "127.0.0.1"),
            ("elsewhere", ours, "example.org"),
            ("ann", ours, "ann@example.org"),
            ("stranger", others, "ann@example.org"),
        ):
            made = ca.issue_cert(identity)
            made.private_key_pem.write_to_path(folder / f"{name}.key")
            made.cert_chain_pems[0].write_to_path(folder / f"{name}.pem")
            made.private_key_and_cert_chain_pem.write_to_path(folder / f"{name}-both.pem")

    def server(self, name: str) -> LocalServer:
        """Its certificate is that of this name."""
        config = self.folder / f"{name}.conf"
        both = self[f"{name}-both.pem"]
        config.write_text(
            f'tls {{ cert_file: "{both}", key_file: "{both}", ca_file: "{self["ca.pem"]}", '
            "verify: true }\n"
        )
        return LocalServer(self.folder / f"{name}-data", config=config)

    def __getitem__(self, name: str) -> Path:
        return self.folder / name


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return Tls(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def tls_url(tls: Tls) -> Iterator[str]:
    with tls.server("server") as server:
        yield server.url.replace("tls://", "nats://")


ANN = {"trust": "ca.pem", "certificate": "ann.pem", "private_key": "ann.key"}


@pytest.mark.parametrize("given", [ANN, {"trust": "ca.pem", "certificate": "ann-both.pem"}])
def test_both_sides_show_certificates(
    tls: Tls, tls_url: str, run_boxmatch: Command, given: dict[str, str]
) -> None:
    files = {name: tls[file] for name, file in given.items()}

    async def test() -> None:
        where = Connection(servers=(tls_url,), **files)  # type: ignore[arg-type]
        client = await where.open()
        await create_route(client.jetstream(), "tls", RouteSettings(feeds={"a": FeedSettings()}))
        async with running(Router(where, "tls")):
            pass
        await client.close()

    asyncio.run(test())
    words = [f"--{name.replace('_', '-')}={path}" for name, path in files.items()]
    done = run_boxmatch("route", "status", "--route", "tls", "--json", "--server", tls_url, *words)
    assert done.code == 0, done.err
    assert json.loads(done.out)["route"] == "tls"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "certificate verify failed: unable to get local issuer certificate"),
        (
            ANN | {"trust": "other-ca.pem"},
            "certificate verify failed: unable to get local issuer certificate",
        ),
        ({"trust": "ca.pem"}, "certificate required"),
        ({"trust": "ca.pem", "certificate": "stranger-both.pem"}, "unknown ca"),
        ({"trust": "none.pem"}, "there is no file .*none.pem"),
        (ANN | {"certificate": "none.pem"}, "there is no file .*none.pem"),
        (ANN | {"private_key": "none.key"}, "there is no file .*none.key"),
        ({"trust": "ann.key"}, "the certificates cannot be read: .*no certificate"),
        ({"trust": "ca.pem", "certificate": "ann.pem"}, "the certificates cannot be read: "),
        (ANN | {"private_key": "server.key"}, "the certificates cannot be read: .*mismatch"),
        ({"trust": "ca.pem", "private_key": "ann.key"}, "a private key needs a certificate"),
    ],
)
def test_certificates_that_will_not_do(
    tls: Tls, tls_url: str, given: dict[str, str], reason: str
) -> None:
    said = refusal(servers=(tls_url,), **{name: tls[file] for name, file in given.items()})
    assert re.search(reason, said)


def test_a_server_with_the_certificate_of_another(tls: Tls) -> None:
    with tls.server("elsewhere") as server:
        said = refusal(servers=(server.url,), trust=tls["ca.pem"])
    assert "certificate is not valid for '127.0.0.1'" in said


@pytest.mark.parametrize("scheme", ["nats", "tls"])
def test_nothing_is_told_to_a_server_without_tls(tls: Tls, url: str, scheme: str) -> None:
    """If the caller wants it: a password would be read on the way."""
    given = {"trust": tls["ca.pem"]} if scheme == "nats" else {}
    there = url.replace("nats", scheme, 1)
    said = refusal(servers=(there,), user="ann", password="secret", **given)
    assert said == f"cannot connect to NATS at {there}: secure connection not available"
