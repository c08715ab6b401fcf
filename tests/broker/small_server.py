"""The broker's server around an application that does next to nothing, and certificates."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import trustme
import uvicorn
import uvloop

from boxmatch.broker.monitoring.metrics import Metrics
from boxmatch.broker.server.process import ServerOptions, Signals, serve_app
from boxmatch.broker.server.protocols import Timeouts
from boxmatch.broker.server.sockets import Listening, bind, tls_context
from boxmatch.broker.settings import Settings


def lines(metrics: Metrics) -> dict[str, float]:
    found = {}
    for line in metrics.render().decode().splitlines():
        if not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            found[name] = float(value)
    return found


IMPATIENT = Timeouts(
    header_seconds=0.3,
    header_bytes=8 * 1024,
    body_seconds=0.3,
    body_rate=1e6,
    stalled_seconds=0.3,
    check_seconds=0.1,
)


class Connections(set[Any]):
    """Those of a server, and whether there was ever one."""

    used = False

    def add(self, connection: Any) -> None:
        self.used = True
        super().add(connection)


class WatchedSignals(Signals):
    """Those of a server, whose connections can be looked at."""

    def attach(self, server: uvicorn.Server) -> None:
        self.connections = server.server_state.connections = Connections()
        super().attach(server)


class Application:
    """/echo answers with the length of the body, /early without it, /large at length; /wait waits,
    /stream and /flood do not end.

    A WebSocket is an echo too; at /denied it is refused, at /undecided not answered, at /flood sent
    more than anybody reads, and at /closed closed at once.
    """

    def __init__(self) -> None:
        self.release = asyncio.Event()
        self.waiting = asyncio.Event()
        self.disconnected = False

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            await self.socket(scope["path"], receive, send)
            return
        if scope["path"] == "/wait":
            self.waiting.set()
            await self.release.wait()
        elif scope["path"] in ("/stream", "/flood"):
            await send({"type": "http.response.start", "status": 200, "headers": []})
            chunk = b"x" * (1 << 20 if scope["path"] == "/flood" else 10)
            while not self.disconnected:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                self.waiting.set()
                if scope["path"] == "/stream":
                    await asyncio.sleep(10)
                else:
                    await asyncio.sleep(0)
        elif scope["path"] in ("/early", "/large"):
            body = b"x" * (8 << 20 if scope["path"] == "/large" else 10)
            length = (b"content-length", str(len(body)).encode())
            await send({"type": "http.response.start", "status": 200, "headers": [length]})
            await send({"type": "http.response.body", "body": body})
            return
        elif scope["path"] == "/broken":
            raise ValueError("a fault")
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.disconnected = True
                return
            size += len(message["body"])
            if not message["more_body"]:
                break
        body = str(size).encode()
        length = (b"content-length", str(len(body)).encode())
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    async def socket(self, path: str, receive: Any, send: Any) -> None:
        await receive()
        if path == "/undecided":
            await self.release.wait()
            return
        if path == "/denied":
            await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
            await send({"type": "websocket.http.response.body", "body": b"x" * (8 << 20)})
            return
        await send({"type": "websocket.accept"})
        if path == "/closed":
            await send({"type": "websocket.close"})
            return
        while path == "/flood":
            await send({"type": "websocket.send", "text": "x" * (1 << 20)})
            await asyncio.sleep(0)
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                self.disconnected = True
                return
            await send({"type": "websocket.send", "text": message["text"]})


@dataclass
class Served:
    app: Application
    metrics: Metrics
    listening: Listening
    task: asyncio.Task[None]
    signals: WatchedSignals

    @property
    def connections(self) -> Connections:
        return self.signals.connections

    async def send(self, *parts: bytes, gap: float = 0.0) -> bytes:
        """Send raw bytes, with pauses between them, and read until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listening.port)
        reading = asyncio.create_task(reader.read())
        try:
            for part in parts:
                if reading.done():
                    break
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(gap)
            return await asyncio.wait_for(reading, 10)
        except ConnectionError:
            return b""
        finally:
            reading.cancel()
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def held(self, seconds: float = 10.0) -> set[int]:
        """Waits until there is no connection any more; the ports of clients that still have one."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.connections or not self.connections.used:
                    await asyncio.sleep(0.01)
        return {connection.client[1] for connection in self.connections}

    async def get(self, path: str, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.listening.url) as client:
            return await client.request(options.pop("method", "GET"), path, **options)


@asynccontextmanager
async def served(tmp_path: Path, **changes: Any) -> AsyncIterator[Served]:
    settings = Settings(
        data=tmp_path,
        port=0,
        shutdown_seconds=changes.pop("shutdown_seconds", 2.0),
        certificate=changes.pop("certificate", None),
        private_key=changes.pop("private_key", None),
    )
    options = ServerOptions(**{"timeouts": IMPATIENT, **changes})
    context = tls_context(settings.certificate, settings.private_key)
    listener = bind(settings.host, 0)
    app, metrics, started, signals = Application(), Metrics(), asyncio.Event(), WatchedSignals()
    with signals.record(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        task = asyncio.create_task(
            serve_app(app, metrics, settings, options, context, listener, signals, started.set)
        )
        await asyncio.wait_for(started.wait(), 10)
        try:
            listening = Listening.on(listener, settings.host, tls=context is not None)
            yield Served(app, metrics, listening, task, signals)
        finally:
            if not task.done():
                app.release.set()
                signal.raise_signal(signal.SIGTERM)
            await asyncio.wait_for(task, 10)


def in_server(
    tmp_path: Path, scenario: Callable[[Served], Awaitable[None]], **changes: Any
) -> None:
    async def main() -> None:
        async with served(tmp_path, **changes) as server:
            await scenario(server)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


@dataclass
class Certificate:
    authority: trustme.CA
    certificate: Path
    private_key: Path
    both: Path


def new_certificate(folder: Path) -> Certificate:
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    made = Certificate(authority, folder / "cert.pem", folder / "key.pem", folder / "both.pem")
    issued.cert_chain_pems[0].write_to_path(made.certificate)
    issued.private_key_pem.write_to_path(made.private_key)
    issued.private_key_and_cert_chain_pem.write_to_path(made.both)
    return made
