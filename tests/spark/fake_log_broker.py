"""A broker of a hundred lines, with real sockets: what Spark reads and writes, kept in lists."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

KEY = "bm_test"
Json = dict[str, Any]


class FakeBroker:
    """Its log and its inboxes can be looked at and changed between requests."""

    url = ""

    def __init__(self) -> None:
        self.feeds: dict[str, Json] = {}
        self.log: list[tuple[int, str, float, Json]] = []
        self.inboxes: dict[str, list[Json]] = {}
        self.cursors: dict[str, int] = {}
        self.dropped_through = 0
        self.last = 0
        self.keys: dict[str, tuple[int, int]] = {}
        self.publishes = 0
        self.lose_answer_of: set[int] = set()
        """Publishing requests, by number, that are carried out and answered by an error."""

    def create(self, name: str, schema: Json, **more: Any) -> None:
        self.feeds[name] = {"name": name, "kind": "events", "unknown": "refuse", "schema": schema}
        self.feeds[name] |= more

    def add(self, feed: str, *events: Json, at: float = 1_700_000_000.25) -> None:
        for event in events:
            self.last += 1
            self.log.append((self.last, feed, at, event))

    def notify(self, subscriber: str, feed: str, event: Json, *subscriptions: str) -> None:
        self.add(feed, event)
        notification = {"sequence": self.last, "feed": feed, "at": 1_700_000_000.0, "event": event}
        self.inboxes.setdefault(subscriber, []).append(
            notification | {"subscriptions": list(subscriptions)}
        )

    def forget(self, through: int) -> None:
        """What retention does."""
        self.log = [one for one in self.log if one[0] > through]

    def events_of(self, feed: str) -> list[Json]:
        return [event for _, name, _, event in self.log if name == feed]

    # Routes

    async def show_all(self, request: Request) -> Response:
        return JSONResponse({"feeds": [*self.feeds.values()]})

    async def show(self, request: Request) -> Response:
        feed = self.feeds.get(request.path_params["feed"])
        if feed is None:
            return _problem(404, f"there is no feed {request.path_params['feed']!r}")
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return _problem(401, "unknown key")
        return JSONResponse(feed)

    async def read(self, request: Request) -> Response:
        name = request.path_params["feed"]
        after, limit = (int(request.query_params[key]) for key in ("after", "limit"))
        through = int(request.query_params.get("through", 2**62))
        found = [
            {"sequence": sequence, "at": at, "event": event}
            for sequence, feed, at, event in self.log
            if feed == name and after < sequence <= through
        ][:limit]
        following = found[-1]["sequence"] if found else after
        first = min((n for n, feed, *_ in self.log if feed == name), default=self.last + 1)
        return JSONResponse({"events": found, "next": following, "last": self.last, "first": first})

    async def publish(self, request: Request) -> Response:
        name = request.path_params["feed"]
        with pa.ipc.open_stream(await request.body()) as stream:
            rows = stream.read_all().to_pylist()
        events = [{k: v for k, v in row.items() if v is not None} for row in rows]
        key = request.headers["idempotency-key"]
        self.publishes += 1
        repeated = key in self.keys
        if not repeated:
            self.add(name, *json.loads(json.dumps(events, default=str)))
            self.keys[key] = (self.last - len(events) + 1, self.last)
        if self.publishes in self.lose_answer_of:
            return _problem(500, "lost on the way")
        first, last = self.keys[key]
        return JSONResponse(
            {"first": first, "last": last, "count": len(events), "durable": True}
            | {"repeated": repeated}
        )

    async def subscriber(self, request: Request) -> Response:
        name = request.path_params["subscriber"]
        return JSONResponse(
            {"subscriber": name, "cursor": self.cursors.get(name, 0)}
            | {"dropped_through": self.dropped_through}
        )

    async def notifications(self, request: Request) -> Response:
        name = request.path_params["subscriber"]
        after, limit = (int(request.query_params[key]) for key in ("after", "limit"))
        found = [n for n in self.inboxes.get(name, []) if n["sequence"] > after][:limit]
        following = found[-1]["sequence"] if found else after
        return JSONResponse(
            {
                "notifications": found,
                "cursor": self.cursors.get(name, 0),
                "next": following,
                "dropped": 0,
            }
        )

    async def acknowledge(self, request: Request) -> Response:
        name = request.path_params["subscriber"]
        self.cursors[name] = max(self.cursors.get(name, 0), (await request.json())["sequence"])
        return JSONResponse({"cursor": self.cursors[name]})

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/feeds", self.show_all),
                Route("/feeds/{feed}", self.show),
                Route("/feeds/{feed}/events", self.read),
                Route("/feeds/{feed}/events", self.publish, methods=["POST"]),
                Route("/subscribers/{subscriber}", self.subscriber),
                Route("/subscribers/{subscriber}/notifications", self.notifications),
                Route("/subscribers/{subscriber}/acknowledge", self.acknowledge, methods=["POST"]),
            ]
        )


@contextmanager
def running(broker: FakeBroker) -> Iterator[FakeBroker]:
    """The broker on a free port, in a thread."""
    server = uvicorn.Server(uvicorn.Config(broker.app(), port=0, log_level="error", ws="none"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    broker.url = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    try:
        yield broker
    finally:
        server.should_exit = True
        thread.join()


def _problem(status: int, detail: str) -> Response:
    return JSONResponse({"status": status, "detail": detail}, status)
