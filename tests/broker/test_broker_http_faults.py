"""What a broker in trouble answers. A fake one: a real one is seldom in trouble on request."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fake_broker import FakeBroker

from boxmatch.broker.access import Keys
from boxmatch.broker.broker import Broker
from boxmatch.broker.feeds.spec import FeedSpec
from boxmatch.broker.http import bodies, make_app
from boxmatch.broker.http import notifications as notifications
from boxmatch.broker.settings import Settings
from boxmatch.errors import BrokerError, LimitError, OverloadError, StorageError
from boxmatch.model.schema import Schema
from boxmatch.wire.event_bodies import Events
from boxmatch.wire.responses import Receipt

Call = Callable[[httpx.AsyncClient], Awaitable[httpx.Response]]


@pytest.fixture
def keys(tmp_path: Path) -> Iterator[Keys]:
    with Keys.open(tmp_path) as keys:
        yield keys


def ask(broker: FakeBroker, keys: Keys, call: Call) -> httpx.Response:
    app = make_app(broker, keys)  # type: ignore[arg-type]

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            return await call(http)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("error", "status", "kind", "wait"),
    [
        (OverloadError("50,000 events wait", retry_after=2.5), 503, "overload", "3"),
        (OverloadError("50,000 events wait"), 503, "overload", "1"),
        (StorageError("the disk is full"), 503, "storage", "1"),
        (LimitError("too fast", retry_after=0.1), 429, "rate-limit", "1"),
        (LimitError("too many"), 403, "limit", None),
        (BrokerError("it is stopping"), 409, "conflict", None),
        (ZeroDivisionError("a secret"), 500, "bug", None),
    ],
)
def test_errors_of_the_broker(
    keys: Keys, error: Exception, status: int, kind: str, wait: str | None
) -> None:
    broker = FakeBroker()
    broker.error = error
    answer = ask(broker, keys, lambda http: http.post("/feeds/trades/events", json={"price": 1}))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("retry-after") == wait
    assert answer.json()["type"] == f"urn:boxmatch:problem:{kind}"
    assert "secret" not in answer.text


def test_large_bodies_wait_for_each_other(keys: Keys, monkeypatch: Any) -> None:
    monkeypatch.setattr(bodies, "PATIENCE", 0.2)
    release = asyncio.Event()

    class Busy(FakeBroker):
        async def publish(
            self, feed: str, events: Events, *, wait: bool = True, key: str | None = None
        ) -> Receipt:
            await release.wait()
            return await super().publish(feed, events, wait=wait, key=key)

    async def call(http: httpx.AsyncClient) -> httpx.Response:
        def post(size: int) -> asyncio.Task[httpx.Response]:
            body = b'{"price": 1%s}' % (b" " * size)
            return asyncio.create_task(http.post("/feeds/trades/events", content=body))

        largest = Settings(data=Path("unused")).limits.body_bytes - 100
        large = [post(largest) for _ in range(4)]
        await asyncio.sleep(0.05)
        refused = await post(largest)
        small = post(1_000)  # is not kept waiting by large ones
        await asyncio.sleep(0.05)
        assert len(broker.published) == 0
        release.set()
        assert [(await one).status_code for one in (*large, small)] == [200] * 5
        assert (await post(largest)).status_code == 200
        return refused

    broker = Busy()
    answer = ask(broker, keys, call)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"


def test_a_broker_that_is_not_ready_says_so(keys: Keys) -> None:
    broker = FakeBroker()
    broker.ready = False
    assert ask(broker, keys, lambda http: http.get("/readyz")).status_code == 503
    assert ask(broker, keys, lambda http: http.get("/healthz")).status_code == 200
    broker.ready, broker.store.failure = True, "the disk is full"
    answer = ask(broker, keys, lambda http: http.get("/readyz"))
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:boxmatch:problem:storage"
    assert "the disk is full" in answer.json()["detail"]
    assert ask(broker, keys, lambda http: http.get("/healthz")).status_code == 200
    broker.failure = "a matching thread has ended"
    answer = ask(broker, keys, lambda http: http.get("/healthz"))
    assert answer.status_code == 503
    assert answer.json()["detail"] == broker.failure


def end_thread(_: object = None) -> None:
    raise SystemExit  # which nothing in the thread handles


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("ending", ["matching", "writes"])
def test_a_broker_without_one_of_its_threads_is_not_healthy(
    keys: Keys, tmp_path: Path, ending: str
) -> None:
    async def main() -> None:
        broker = Broker.open(Settings(data=tmp_path, sync="normal"))
        await broker.start()
        transport = httpx.ASGITransport(make_app(broker, keys))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            assert (await http.get("/healthz")).status_code == 200
            if ending == "matching":
                await broker.feeds.create(FeedSpec(name="f", spaces={"f": Schema({"x": "int"})}))
                broker.pipeline.call_soon(broker.directory.feed("f").feed, end_thread)
            else:
                broker.store.write(end_thread)
            async with asyncio.timeout(30):
                while (answer := await http.get("/healthz")).status_code == 200:
                    await asyncio.sleep(0.01)
        assert answer.status_code == 503
        assert ending in answer.json()["detail"]
        await broker.stop()

    asyncio.run(main())


class Exchange:
    """A request at the level of ASGI, for what takes long: what was sent, and what is said next."""

    def __init__(self, broker: FakeBroker, keys: Keys, kind: str, path: str) -> None:
        self.app = make_app(broker, keys)  # type: ignore[arg-type]
        self.scope: dict[str, Any] = {
            "type": kind, "method": "GET", "path": path, "query_string": b"",
            "headers": [(b"host", b"localhost")], "root_path": "", "scheme": "http",
            "extensions": {"websocket.http.response": {}}, "subprotocols": [],
        }  # fmt: skip
        self.said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.heard: asyncio.Queue[Any] = asyncio.Queue()

    async def __aenter__(self) -> Exchange:
        first = "websocket.connect" if self.scope["type"] == "websocket" else "http.request"
        self.said.put_nowait({"type": first})
        self.task = asyncio.create_task(
            self.app(self.scope, self.said.get, self.heard.put)  # type: ignore[arg-type]
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def next(self) -> Any:
        return await asyncio.wait_for(self.heard.get(), 5)


def test_an_idle_event_stream_has_a_heartbeat(keys: Keys, monkeypatch: Any) -> None:
    monkeypatch.setattr(notifications, "HEARTBEAT_SECONDS", 0.02)
    broker = FakeBroker()

    async def run() -> None:
        async with Exchange(
            broker, keys, "http", "/subscribers/ann/notifications/stream"
        ) as exchange:
            assert (await exchange.next())["status"] == 200
            assert (await exchange.next())["body"] == b": ready\n\n"
            assert (await exchange.next())["body"] == b":\n\n"
            broker.offer(4, 5)
            while (said := (await exchange.next())["body"]) == b":\n\n":
                pass
            assert said.startswith(b'id: 4\ndata: {"sequence":4,')
            assert said.count(b"\n\n") == 2
            exchange.said.put_nowait({"type": "http.disconnect"})
            await asyncio.wait_for(exchange.task, 5)
            assert not broker.known.streams

    asyncio.run(run())


def test_a_socket_is_told_that_the_broker_stops_or_fails(keys: Keys) -> None:
    broker = FakeBroker()

    async def connected(exchange: Exchange) -> None:
        assert (await exchange.next())["type"] == "websocket.accept"
        assert json.loads((await exchange.next())["text"])["type"] == "ready"

    async def run() -> None:
        async with Exchange(
            broker, keys, "websocket", "/subscribers/ann/notifications/socket"
        ) as exchange:
            await connected(exchange)
            for stream in tuple(broker.known.streams):
                stream.close()
            closed = await exchange.next()
            assert (closed["type"], closed["code"]) == ("websocket.close", 1012)
        broker.error = StorageError("a damaged page")
        broker.known.place(9)  # so that notifications are read from the disk
        async with Exchange(
            broker, keys, "websocket", "/subscribers/ann/notifications/socket"
        ) as exchange:
            await connected(exchange)
            assert json.loads((await exchange.next())["text"])["code"] == "storage"
            assert (await exchange.next())["code"] == 1011
        assert not broker.known.streams

    asyncio.run(run())


def test_acknowledgements_may_come_before_a_send_returns(keys: Keys) -> None:
    """A client on the same machine can be that quick."""
    broker = FakeBroker()

    async def run() -> None:
        async with Exchange(
            broker, keys, "websocket", "/subscribers/ann/notifications/socket"
        ) as exchange:
            await exchange.next()
            await exchange.next()
            broker.offer(1, 2, 3)
            sent = json.loads((await exchange.next())["text"])
            assert [one["sequence"] for one in sent["notifications"]] == [1, 2, 3]
            text = '{"type":"acknowledge","sequence":3}'
            exchange.said.put_nowait({"type": "websocket.receive", "text": text})
            while not broker.acknowledged:
                await asyncio.sleep(0)
            assert broker.acknowledged == [3]

    asyncio.run(run())
