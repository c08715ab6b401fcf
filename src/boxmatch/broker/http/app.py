"""The HTTP application of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, FastAPI
from starlette.routing import WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

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
from boxmatch.broker.http.problems import add_handlers, not_ready, response_of

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

PROBES: Final = frozenset({"/healthz", "/readyz"})
"""What is answered while the broker starts."""

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
    openapi.router,
    pages.router,
)
"""Their routes are tried in order, so those with the load come first."""


class WhenReady:
    """An ASGI application that nobody but probes gets to before the broker is ready."""

    def __init__(self, app: ASGIApp, broker: Broker) -> None:
        self._app = app
        self._broker = broker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if not self._broker.ready and scope["path"] not in PROBES:
            app = response_of(not_ready(self._broker))
        await app(scope, receive, send)


def make_app(broker: Broker, keys: Keys) -> WhenReady:
    """The ASGI application. The broker is loaded, started and stopped by the caller."""
    # The framework's own pages load scripts from elsewhere, so they are off.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    bodies = BodyBudget(MOST_BODIES * broker.settings.limits.body_bytes)
    app.state.context = Context(broker, keys, Meter(), bodies)
    add_handlers(app)
    # Side by side, which is quicker than routers in routers.
    for router in ROUTERS:
        app.router.routes.extend(router.routes)
    app.router.routes.append(WebSocketRoute("/{path:path}", socket.no_socket))
    return WhenReady(events.FastPublish(app, bodies), broker)
