"""A broker that does as it is told: answers are queued for it, and it remembers what it got."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

Script = Callable[[WebSocket, "Session"], Awaitable[None]]


@dataclass
class Got:
    """A request that came."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    def events(self) -> list[Any]:
        return [json.loads(line) for line in self.body.split(b"\n")]


@dataclass
class Session:
    """A WebSocket that was opened, and what was acknowledged on it."""

    broker: ScriptedBroker
    query: dict[str, str]
    headers: dict[str, str]
    acknowledged: list[int] = field(default_factory=list)
    closed: threading.Event = field(default_factory=threading.Event)


class ScriptedBroker:
    server: uvicorn.Server

    def __init__(self, url: str) -> None:
        self.url = url
        self.requests: list[Got] = []
        self.sessions: list[Session] = []
        self.confirmed: list[int] = []
        """What those who listened acknowledged at the end, by a request."""
        self.scripts: deque[Script] = deque()
        self._answers: dict[tuple[str, str], deque[Response | Exception]] = defaultdict(deque)

    def forget(self) -> None:
        """Be as new."""
        self.requests.clear()
        self.sessions.clear()
        self.confirmed.clear()
        self.scripts.clear()
        self._answers.clear()

    def answer(self, method: str, path: str, *answers: Response | Exception) -> None:
        """Queue answers; the last one is given again and again."""
        self._answers[method, path].extend(answers)

    def plan(self, *scripts: Script) -> None:
        """Queue what happens on the next WebSockets; the last one is played again and again."""
        self.scripts.extend(scripts)

    def tear(self, connection: HTTPConnection) -> None:
        """Break a connection without a word."""
        for protocol in list(self.server.server_state.connections):
            if protocol.transport.get_extra_info("peername") == tuple(connection.scope["client"]):
                protocol.transport.abort()

    async def handle(self, request: Request) -> Response:
        got = Got(
            request.method,
            request.url.path,
            dict(request.query_params),
            dict(request.headers),
            await request.body(),
        )
        if got.path.endswith("/acknowledge") and self.sessions:
            self.confirmed.append(got.json()["sequence"])
            return JSONResponse({"cursor": self.confirmed[-1]})
        self.requests.append(got)
        queue = self._answers[got.method, got.path]
        if not queue:
            return problem(404, "no answer was planned")
        answer = queue.popleft() if len(queue) > 1 else queue[0]
        if isinstance(answer, Exception):  # it was received, but nobody will know
            self.tear(request)
            return Response(status_code=500)
        return answer

    async def handle_socket(self, websocket: WebSocket) -> None:
        session = Session(self, dict(websocket.query_params), dict(websocket.headers))
        self.sessions.append(session)
        script = self.scripts.popleft() if len(self.scripts) > 1 else self.scripts[0]
        try:
            await script(websocket, session)
        except WebSocketDisconnect:
            pass
        finally:
            session.closed.set()


def problem(
    status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any
) -> Response:
    document = {"type": "about:blank", "title": "A title", "status": status, "detail": detail}
    return JSONResponse(
        document | more, status, headers=headers, media_type="application/problem+json"
    )


def notification(sequence: int, **more: Any) -> dict[str, Any]:
    return {
        "sequence": sequence,
        "feed": "ticks",
        "at": 1_700_000_000.5,
        "subscriptions": ["cheap"],
        "rate": 0.0,
        "event": {"price": sequence},
    } | more


async def let_in(websocket: WebSocket, cursor: int = 0, **more: Any) -> None:
    await websocket.accept()
    await websocket.send_json(
        {"type": "ready", "cursor": cursor, "window": 100, "dropped": 0} | more
    )


async def send(websocket: WebSocket, *sequences: int) -> None:
    await websocket.send_json(
        {"type": "notifications", "notifications": [notification(one) for one in sequences]}
    )


async def until_acknowledged(websocket: WebSocket, session: Session, sequence: int) -> None:
    while not session.acknowledged or session.acknowledged[-1] < sequence:
        said = await websocket.receive_json()
        assert said["type"] == "acknowledge"
        session.acknowledged.append(said["sequence"])


async def until_closed(websocket: WebSocket, session: Session) -> None:
    await until_acknowledged(websocket, session, 1 << 62)


def sends(
    *batches: list[int], cursor: int = 0, break_after: int | None = None, **more: Any
) -> Script:
    """Let the client in and send it these notifications; then stay, or break off after a number is
    acknowledged.
    """

    async def script(websocket: WebSocket, session: Session) -> None:
        await let_in(websocket, cursor, **more)
        for batch in batches:
            await send(websocket, *batch)
        if break_after is None:
            await until_closed(websocket, session)
        elif break_after:
            await until_acknowledged(websocket, session, break_after)
        else:
            await asyncio.sleep(0.05)
        session.broker.tear(websocket)

    return script


def closes(code: int, *, message: str | None = None) -> Script:
    async def script(websocket: WebSocket, session: Session) -> None:
        await let_in(websocket)
        if message is not None:
            await websocket.send_json({"type": "error", "code": "told", "message": message})
        await websocket.close(code)

    return script


def denies(answer: Response) -> Script:
    async def script(websocket: WebSocket, session: Session) -> None:
        await websocket.send_denial_response(answer)

    return script


@contextmanager
def scripted_broker(certificate: Path | None = None) -> Iterator[ScriptedBroker]:
    """Starting one takes a while: share it, and let it `forget`.

    `certificate` is a file with a private key and its chain, for TLS.
    """
    listening = socket.create_server(("127.0.0.1", 0))
    scheme = "http" if certificate is None else "https"
    broker = ScriptedBroker(f"{scheme}://127.0.0.1:{listening.getsockname()[1]}")
    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    app = Starlette(
        routes=[
            WebSocketRoute("/subscribers/{subscriber}/notifications/socket", broker.handle_socket),
            Route("/{path:path}", broker.handle, methods=methods),
        ]
    )
    config = uvicorn.Config(
        app,
        log_config=None,
        lifespan="off",
        ws="websockets-sansio",
        loop="asyncio",
        ssl_certfile=certificate,
    )
    server = broker.server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield broker
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listening.close()
        assert not thread.is_alive()
