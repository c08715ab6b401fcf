"""The HTTP application of a broker.

Events are published past the framework, whose layers cost more than the rest of it. The route is
declared like the others and would be answered in the same way there.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute

from boxmatch.broker.access import Keys, Meter
from boxmatch.broker.http import (
    events,
    feeds,
    notifications,
    openapi,
    overview,
    pages,
    socket,
    subscribers,
)
from boxmatch.broker.http.authentication import Context
from boxmatch.broker.http.bodies import BodyBudget
from boxmatch.broker.http.problems import Problem, add_handlers, respond
from boxmatch.broker.http.routing import answer
from boxmatch.errors import BoxmatchError

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

MOST_BODIES: Final = 4
"""Of the largest size, in memory at a time."""

ROUTERS: Final[tuple[APIRouter, ...]] = (
    events.router,
    notifications.router,
    socket.router,
    subscribers.router,
    feeds.publications,
    feeds.router,
    subscribers.webhooks,
    overview.router,
    overview.operations,
    pages.router,
)
"""Their routes are tried in order, so those with the load come first."""

_log = logging.getLogger("boxmatch.broker.http")
_PUBLISH: Final = re.compile(r"/feeds/([^/]+)/events")


def make_app(broker: Broker, keys: Keys) -> FastPublish:
    """The ASGI application. The broker is started and stopped by the caller."""
    # The framework's own pages load scripts from elsewhere, so they are off.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    bodies = BodyBudget(MOST_BODIES * broker.settings.limits.body_bytes)
    app.state.context = Context(broker, keys, Meter(), bodies)
    add_handlers(app)
    # Side by side, which is quicker than routers in routers.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.router.routes.append(WebSocketRoute("/{path:path}", socket.no_socket))
    described: list[dict[str, Any]] = []

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json() -> Response:
        if not described:
            described.append(openapi.describe(app))
        return answer(described[0])

    return FastPublish(app, bodies)


class FastPublish:
    """An ASGI application in front of the framework's."""

    def __init__(self, app: FastAPI, bodies: BodyBudget) -> None:
        self.app = app
        self._bodies = bodies
        self._route: BaseRoute = next(
            route
            for route in app.router.routes
            if getattr(route, "endpoint", None) is events.publish
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        finally:
            self._bodies.give_back(scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PUBLISH.fullmatch(scope["path"])
            if found is not None:
                scope["app"] = self.app
                scope["route"] = self._route
                scope["path_params"] = {"feed": found[1]}
                response = await self._answer(Request(scope, receive))
                await response(scope, receive, send)
                return
        await self.app(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        try:
            return await events.publish(request)
        except Exception as error:
            if not isinstance(error, (Problem, BoxmatchError)):  # the framework would log it too
                _log.error("in POST %s", request.url.path, exc_info=error)
            return await respond(request, error)
