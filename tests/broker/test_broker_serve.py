from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import ssl
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
import websockets
from broker_server import RunningBroker, storm
from small_server import (
    Certificate,
    new_certificate,
)

from boxmatch.broker.access import Keys
from boxmatch.broker.backup import back_up
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.server.sockets import ADDRESS, bind
from boxmatch.broker.store import Store
from boxmatch.errors import StorageError
from boxmatch.model.schema import Schema
from command_line import Command

KEY = "bm_abcd1234_" + "s3cret" * 7 + "x"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return new_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_broker_serves_though_its_output_cannot_be_written(tmp_path: Path) -> None:
    """As when its log is on the disk that is full, and somebody wants to delete something."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # A folder in the way: there is no room for the file that says where it is either.
    (tmp_path / "data" / (ADDRESS + ".partial")).mkdir(parents=True)
    command = [sys.executable, "-m", "boxmatch", "serve", "--data", str(tmp_path / "data")]
    with open("/dev/full", "wb") as full:
        process = subprocess.Popen([*command, "--port", str(port)], stdout=full, stderr=full)
    try:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{port}", transport=httpx.HTTPTransport(retries=10)
        ) as http:
            while (answer := http.get("/readyz")).status_code != 200:
                assert answer.json()["type"] == "urn:boxmatch:problem:not-ready"
                time.sleep(0.02)
        process.terminate()
        assert process.wait(30) == 0
    finally:
        process.kill()


def test_serve_from_start_to_end(tmp_path: Path, certificate: Certificate) -> None:
    data = tmp_path / "data"
    options = ["--certificate", str(certificate.both), "--log-requests"]
    trusted = ssl.create_default_context()
    certificate.authority.configure_trust(trusted)
    with RunningBroker(data, options) as broker:
        address = json.loads((data / ADDRESS).read_text())
        assert address["process"] == broker.pid
        assert address["url"] == broker.url
        with httpx.Client(base_url=broker.url, verify=trusted) as client:
            assert client.get("/readyz").status_code == 200
            schema = {"name": "trades", "schema": {"price": "float"}}
            assert client.post("/feeds", json=schema).is_success
            body = [{"price": 1.5}, {"price": 2.5}]
            sent = client.post("/feeds/trades/events", params={"key": KEY}, json=body)
            assert sent.json()["count"] == 2
            text = client.get("/metrics").text
        assert 'boxmatch_events_committed_total{feed="trades"} 2.0' in text
        assert 'boxmatch_subscriptions{feed="trades"} 0.0' in text
        assert "boxmatch_storage_bytes" in text
        assert "boxmatch_scrape_failed 0.0" in text
        route = 'method="POST",route="/feeds/{feed}/events",status="200"'
        assert f"boxmatch_http_requests_total{{{route}}} 1.0" in text
        for file in data.iterdir():
            assert not file.stat().st_mode & 0o077, file
        refused = refusals(data)
        assert broker.stop() == 0
    assert f"{data} is open already" in refused
    assert not (data / ADDRESS).exists()
    log = broker.log()
    assert f"Boxmatch listens on {broker.url}\nDocumentation: {broker.url}/docs\n" in log
    assert "s3cret" not in log
    told = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    events = [line["event"] for line in told]
    assert events[0] == "listening"
    assert events[-2:] == ["stopping", "stopped"]
    request = next(line for line in told if line.get("path") == "/feeds/trades/events")
    assert request["method"] == "POST"
    assert request["status"] == 200
    assert request["client"] == "127.0.0.1"


def test_a_broker_that_is_stopped_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"

    async def publish(client: httpx.AsyncClient) -> int:
        acknowledged = 0
        with suppress(httpx.TransportError):
            while True:
                answer = await client.post("/feeds/trades/events", json=[{"price": 1.0}] * 10)
                if answer.status_code != 200:
                    break
                acknowledged += 10
        return acknowledged

    async def scenario(broker: RunningBroker) -> int:
        async with httpx.AsyncClient(base_url=broker.url, timeout=20) as client:
            schema = {"name": "trades", "schema": {"price": "float"}}
            assert (await client.post("/feeds", json=schema)).is_success
            notifications = "/subscribers/ann/notifications"
            polling = asyncio.create_task(client.get(notifications, params={"wait": 30}))
            publishing = [asyncio.create_task(publish(client)) for _ in range(4)]
            async with (
                client.stream("GET", notifications + "/stream") as stream,
                websockets.connect(broker.socket_url + notifications + "/socket") as connection,
            ):
                assert json.loads(await connection.recv())["type"] == "ready"
                await asyncio.sleep(0.5)
                await asyncio.to_thread(back_up, data, copy)
                assert await asyncio.to_thread(broker.stop) == 0
                await stream.aread()
                with pytest.raises(websockets.ConnectionClosed) as closed:
                    await connection.recv()
                assert closed.value.rcvd is not None
                assert closed.value.rcvd.code == 1012
            assert (await polling).status_code in (200, 503)
            return sum(await asyncio.gather(*publishing))

    with RunningBroker(data, ["--shutdown-seconds", "20"]) as broker:
        began = time.monotonic()
        acknowledged = asyncio.run(scenario(broker))
        assert time.monotonic() - began < 15
    assert 0 < acknowledged <= events_in(data) <= acknowledged + 40
    assert 0 < events_in(copy) <= events_in(data)
    assert "Traceback" not in broker.log()
    assert '"level": "error"' not in broker.log()


SOCKET = (
    b"Host: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /feeds HTTP/1.1\r\n" + SOCKET + b"Content-Length: 2\r\n\r\n{}",
        b"GET /subscribers/ann/notifications/socket HTTP/1.1\r\n"
        + SOCKET
        + b"X: a\r\n" * 200
        + b"\r\n",
        b"GET /subscribers/ann/notifications/socket HTTP/1.1\r\n" + SOCKET + b"\r\n",
    ],
    ids=["a handshake with a body", "a handshake that is too large", "a socket"],
)
def test_a_connection_does_not_break_the_stop(tmp_path: Path, raw: bytes) -> None:
    with (
        RunningBroker(tmp_path / "data") as broker,
        socket.create_connection(("127.0.0.1", broker.port), timeout=10) as client,
    ):
        client.sendall(raw)
        assert client.recv(1)  # it is answered, and stays as it is
        assert broker.stop() == 0
    assert "Traceback" not in broker.log()


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGTERM], id="SIGTERM", marks=pytest.mark.slow),
        pytest.param([signal.SIGINT], id="SIGINT", marks=pytest.mark.slow),
        pytest.param([signal.SIGHUP, signal.SIGINT, signal.SIGTERM], id="all"),
    ],
)
def test_any_number_of_signals_ends_in_a_clean_stop(
    tmp_path: Path, numbers: list[signal.Signals]
) -> None:
    data = tmp_path / "data"
    with (
        RunningBroker(data, ["--shutdown-seconds", "60"]) as broker,
        httpx.Client(base_url=broker.url, timeout=20) as http,
        socket.create_connection(("127.0.0.1", broker.port), timeout=10) as slow,
    ):
        # A request that is never complete is waited for, unless a second signal comes.
        slow.sendall(b"POST /feeds HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{")
        assert http.post("/feeds", json={"name": "trades", "schema": {"price": "float"}}).is_success
        for _ in range(50):
            path = "/feeds/trades/events"
            answer = http.post(path, params={"wait": "received"}, json=[{"price": 1.0}] * 100)
            assert answer.status_code == 202, answer.text
        assert broker.storm(*numbers) == 0
    assert events_in(data) == 5_000
    assert "Boxmatch listens" in broker.log()
    assert '"event": "stopped"' in broker.log()


def test_a_signal_while_it_starts_leaves_the_data_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    written(data, 500)
    command = [sys.executable, "-m", "boxmatch", "serve", "--data", str(data), "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL) as starting:
        wait_for(data / "keys.sqlite")
        assert storm(starting, signal.SIGTERM) in (-signal.SIGTERM, 0)
    with RunningBroker(data) as broker:
        assert broker.stop() == 0
    assert events_in(data) == 500


def test_a_hang_up_while_it_starts_is_for_later(tmp_path: Path) -> None:
    broker = RunningBroker(tmp_path / "data")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(broker.start)
        wait_for(broker.data / "keys.sqlite")
        while not starting.done():
            os.kill(broker.pid, signal.SIGHUP)
            time.sleep(0.01)
        starting.result()
    assert broker.stop() == 0


def wait_for(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def refusals(data: Path, *options: str) -> str:
    """The one line that says why a broker cannot be started."""
    done = subprocess.run(
        [sys.executable, "-m", "boxmatch", "serve", "--data", str(data), "--port", "0", *options],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("boxmatch: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_serve_refuses_in_one_line(
    run_boxmatch: Command, tmp_path: Path, certificate: Certificate, quiet_logs: None
) -> None:
    data = tmp_path / "data"

    def refusal(*options: str) -> str:
        ended = run_boxmatch("serve", "--data", str(data), *options)
        assert ended.code == 2
        assert ended.out == ""
        assert ended.err.startswith("boxmatch: ")
        assert ended.err.count("\n") == 1, ended.err
        return ended.err

    with closing(bind("127.0.0.1", 0)) as taken:
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port} on 127.0.0.1 is taken" in refusal("--port", port)
    assert "no keys" in refusal("--host", "0.0.0.0", "--port", "0")
    chain, key = str(certificate.certificate), str(certificate.private_key)
    assert "cannot read the certificate" in refusal("--certificate", str(tmp_path / "no.pem"))
    assert "without a certificate" in refusal("--private-key", key)
    other = new_certificate(tmp_path)
    mismatch = refusal("--certificate", chain, "--private-key", str(other.private_key))
    assert "does not belong" in mismatch
    data = other.both / "data"
    assert "cannot make the directory" in refusal()


def written(data: Path, events: int) -> None:
    store = Store.open(data)
    try:
        spec = FeedSpec(name="trades", spaces={"trades": Schema({"price": "float"})})
        feed = store.write(lambda transaction: transaction.put_feed(spec)).result()
        bodies = [b'{"price":1.5}'] * events
        store.write(lambda transaction: transaction.append(feed, 1.0, bodies)).result()
    finally:
        store.close()


def events_in(data: Path) -> int:
    store = Store.open(data)
    try:
        ((feed, _),) = store.reader.feeds()
        return len(store.reader.events(feed, 0, 1_000_000))
    finally:
        store.close()


def test_backup_of_a_stopped_broker(run_boxmatch: Command, tmp_path: Path) -> None:
    data, target = tmp_path / "data", tmp_path / "copies" / "one"
    data.mkdir()
    written(data, 500)
    with Keys.open(data) as keys:
        _, text = keys.create("mine", admin=True)
    done = run_boxmatch("backup", "--data", str(data), str(target))
    assert done.code == 0, done.err
    assert "complete and verified" in done.out
    assert sorted(file.name for file in target.iterdir()) == ["broker.sqlite", "keys.sqlite"]
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert stat.S_IMODE((target / "keys.sqlite").stat().st_mode) == 0o600
    assert events_in(target) == 500
    with Keys.open(target) as keys:
        assert keys.authenticate(text).label == "mine"
    again = run_boxmatch("backup", "--data", str(data), str(target))
    assert again.code == 2
    assert "is there already" in again.err
    assert [path.name for path in target.parent.iterdir()] == ["one"]


def test_backup_while_a_broker_writes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    written(data, 20_000)
    store = Store.open(data, sync="normal")
    stop = threading.Event()
    acknowledged = [20_000]

    def write() -> None:
        while not stop.is_set():
            store.write(lambda t: t.append(1, 2.0, [b'{"price":2.5}'] * 10)).result()
            acknowledged[0] += 10

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen: list[tuple[str, float]] = []
        before = acknowledged[0]
        back_up(data, tmp_path / "copy", lambda name, share: seen.append((name, share)))
        after = acknowledged[0]
    finally:
        stop.set()
        writer.join()
        store.close()
    assert seen[-1] == ("broker.sqlite", 1.0)
    assert before <= events_in(tmp_path / "copy") <= after + 10
    assert events_in(data) == acknowledged[0]


def test_backup_refusals(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with pytest.raises(StorageError, match="holds no broker"):
        back_up(data, tmp_path / "copy")
    data.mkdir()
    written(data, 20_000)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    with pytest.raises(StorageError, match="is there already"):
        back_up(data, tmp_path / "full")
    with pytest.raises(StorageError, match="cannot back up"):
        back_up(data, tmp_path / "full" / "file" / "copy")
    (tmp_path / "empty").mkdir()
    back_up(data, tmp_path / "empty")
    assert events_in(tmp_path / "empty") == 20_000

    file = data / "broker.sqlite"
    content = bytearray(file.read_bytes())
    for page in range(1, len(content) // 4096, 3):
        content[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(content)
    with pytest.raises(StorageError, match=r"damaged|malformed"):
        back_up(data, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert not list(tmp_path.glob("*.partial"))
