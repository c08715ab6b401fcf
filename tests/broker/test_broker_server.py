from __future__ import annotations

import asyncio
import signal
import socket
import time
from contextlib import closing, suppress
from pathlib import Path

import httpx
import pytest
import websockets
from small_server import (
    Application,
    Served,
    in_server,
    lines,
)

from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.server.process import ServerOptions, Signals, serve_app
from boxmatch.broker.server.protocols import Timeouts
from boxmatch.broker.server.sockets import bind, raise_file_limit
from boxmatch.broker.settings import Settings

POST = b"POST /echo HTTP/1.1\r\nHost: x\r\n"


def test_requests_are_served_and_counted(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        answer = await server.get("/echo", method="POST", content=b"x" * 300_000)
        assert (answer.status_code, answer.text) == (200, "300000")
        assert "server" not in answer.headers
        broken = await server.get("/broken")
        assert broken.status_code == 500
        assert "fault" not in broken.text
        found = lines(server.metrics)
        name = "boxmatch_http_requests_total"
        assert found[name + '{method="POST",route="",status="200"}'] == 1
        assert found[name + '{method="GET",route="",status="0"}'] == 1

    in_server(tmp_path, scenario)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [b"G"],
        [b"\r\n"] * 100,
        [bytes([byte]) for byte in POST * 10],
        [POST, *[b"X-%d: 1\r\n" % number for number in range(100)]],
    ],
    ids=["silence", "one byte", "empty lines", "byte by byte", "a header now and then"],
)
def test_slow_headers_are_cut(tmp_path: Path, parts: list[bytes]) -> None:
    async def scenario(server: Served) -> None:
        began = time.monotonic()
        answer = await server.send(*parts, gap=0.05)
        assert 0.2 < time.monotonic() - began < 5
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the headers took too long" in answer

    in_server(tmp_path, scenario)


@pytest.mark.parametrize(
    "head",
    [POST + b"Content-Length: 1000\r\n\r\n", POST + b"Transfer-Encoding: chunked\r\n\r\n"],
    ids=["length", "chunked"],
)
def test_slow_bodies_are_cut(tmp_path: Path, head: bytes) -> None:
    async def scenario(server: Served) -> None:
        chunk = b"1\r\nx\r\n" if b"chunked" in head else b"x"
        answer = await server.send(head, *[chunk] * 100, gap=0.05)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"the body took too long" in answer
        await asyncio.sleep(0.1)
        assert server.app.disconnected

    in_server(tmp_path, scenario)


def test_slow_second_request_is_cut(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        first = POST + b"Content-Length: 3\r\n\r\nabc"
        answer = await server.send(first, *[bytes([byte]) for byte in POST], gap=0.05)
        assert answer.count(b"HTTP/1.1 200 OK") == 1
        assert b"HTTP/1.1 408 " in answer

    in_server(tmp_path, scenario)


def test_a_large_body_at_a_fair_rate_is_not_cut(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        head = POST + b"Connection: close\r\nContent-Length: 1000000\r\n\r\n"
        answer = await server.send(head, *[b"x" * 100_000] * 10, gap=0.08)
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert answer.endswith(b"1000000")

    in_server(tmp_path, scenario)


def test_a_request_that_waits_for_us_is_not_cut(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        waiting = asyncio.create_task(server.get("/wait", method="POST", content=b"abc"))
        await asyncio.sleep(0.8)
        assert not waiting.done()
        server.app.release.set()
        assert (await waiting).text == "3"

    in_server(tmp_path, scenario)


def test_large_headers_are_refused(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        answer = await server.send(POST, *[b"X-Filler: " + b"x" * 1000 + b"\r\n"] * 100, gap=0.001)
        assert answer.startswith(b"HTTP/1.1 431 ")
        answer = await server.send(POST + b"X: ", *[b"y" * 5000] * 100, gap=0.001)
        assert answer.startswith(b"HTTP/1.1 431 ")

    in_server(tmp_path, scenario)


@pytest.mark.parametrize("piece", [b"X-Trailer: yes\r\n" * 50, b"y" * 1000], ids=["many", "long"])
def test_large_trailers_are_refused(tmp_path: Path, piece: bytes) -> None:
    async def scenario(server: Served) -> None:
        close = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        head = POST + close + b"1\r\na\r\n0\r\nX: "
        answer = await server.send(head, *[piece] * 100, gap=0.001)
        assert answer.startswith(b"HTTP/1.1 431 ")
        answer = await server.send(head + b"y\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200 ")

    in_server(tmp_path, scenario)


def test_requests_in_a_row_are_answered_up_to_a_number(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        get = b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"
        last = b"GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        # More of them than headers may have bytes; cut anywhere.
        many = get * 600 + last
        answer = await server.send(many[:9_990], many[9_990:])
        assert answer.count(b"HTTP/1.1 200 ") == 601
        first = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
        answer = await server.send(first + get * 2_000)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    in_server(tmp_path, scenario)


def test_readers_that_take_nothing_are_cut(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        with closing(socket.create_connection(("127.0.0.1", server.listening.port))) as client:
            client.sendall(b"GET /flood HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await server.held() == set()
            taken = 0
            with suppress(ConnectionResetError):  # or the end, after what the system holds
                while chunk := await asyncio.to_thread(client.recv, 1 << 20):
                    taken += len(chunk)
                    assert taken < 100e6
            server.app.disconnected = True

    in_server(tmp_path, scenario)


@pytest.mark.parametrize(
    "raw",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        POST + b"Content-Length: -1\r\n\r\n",
        POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nabcde",
        b"GET /\xc3\xa4 HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=["tls", "version", "path", "length", "two lengths", "socket path", "no socket key"],
)
def test_what_is_not_http_is_refused(tmp_path: Path, raw: bytes) -> None:
    async def scenario(server: Served) -> None:
        answer = await server.send(raw)
        assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 408", b"HTTP/1.1 4"))
        assert (await server.get("/echo")).status_code == 200

    in_server(tmp_path, scenario)


def test_connections_are_limited(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        port = server.listening.port
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        answer = await server.send(b"GET /echo HTTP/1.1\r\nHost: x\r\n\r\n")
        assert answer == b"" or answer.startswith(b"HTTP/1.1 503 ")
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.1)
        assert (await server.get("/echo")).status_code == 200

    in_server(tmp_path, scenario, connections=3, timeouts=Timeouts())


def test_file_limit_is_raised() -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, before[1]))
        assert raise_file_limit(400) == 400
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 600
        assert raise_file_limit(10) == 10
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_stopping_ends_reads_and_finishes_writes(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        url = server.listening.url
        polling = asyncio.create_task(server.get("/wait"))
        writing = asyncio.create_task(server.get("/wait", method="POST", content=b"12345"))
        async with (
            httpx.AsyncClient() as client,
            client.stream("GET", url + "/stream") as stream,
            websockets.connect(url.replace("http", "ws") + "/socket") as connection,
        ):
            await connection.send("hello")
            assert await connection.recv() == "hello"
            await server.app.waiting.wait()
            signal.raise_signal(signal.SIGTERM)
            assert (await polling).status_code == 503
            # Not cut off in the middle: the client sees a proper end.
            assert (await stream.aread()).startswith(b"xxxxxxxxxx")
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                await connection.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
            assert server.app.disconnected
            with pytest.raises(httpx.ConnectError):
                await server.get("/echo")
            assert not writing.done()
            server.app.release.set()
            assert (await writing).text == "5"
        await asyncio.wait_for(server.task, 5)

    in_server(tmp_path, scenario, timeouts=Timeouts(), shutdown_seconds=8.0)


def test_stopping_does_not_wait_for_ever(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        writing = asyncio.create_task(server.get("/wait", method="POST", content=b"12345"))
        await server.app.waiting.wait()
        began = time.monotonic()
        signal.raise_signal(signal.SIGTERM)
        await asyncio.wait_for(server.task, 5)
        assert 0.5 < time.monotonic() - began < 4
        with pytest.raises((httpx.HTTPError, AssertionError)):
            assert (await writing).status_code == 200

    in_server(tmp_path, scenario, shutdown_seconds=1.0)


def test_a_second_signal_hurries(tmp_path: Path) -> None:
    async def scenario(server: Served) -> None:
        writing = asyncio.create_task(server.get("/wait", method="POST", content=b"12345"))
        await server.app.waiting.wait()
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
        signal.raise_signal(signal.SIGINT)
        await asyncio.wait_for(server.task, 2)
        server.app.release.set()
        await asyncio.wait([writing])

    in_server(tmp_path, scenario, shutdown_seconds=60.0)


def test_a_signal_before_it_listens_is_enough(tmp_path: Path) -> None:
    async def main() -> None:
        signals, settings = Signals(), Settings(data=tmp_path, port=0)
        with signals.record(signal.SIGTERM), closing(bind(settings.host, 0)) as listener:
            signal.raise_signal(signal.SIGTERM)
            serving = serve_app(
                Application(), Metrics(), settings, ServerOptions(), None, listener, signals,
                lambda: pytest.fail("it listens"),
            )  # fmt: skip
            await asyncio.wait_for(serving, 10)

    asyncio.run(main())
