"""The HTTP application of a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI
from fastapi.responses import Response
from starlette.routing import WebSocketRoute

from boxmatch.broker.access import Keys, Meter
from boxmatch.broker.http import (
    dashboard,
    events,
    feeds,
    notifications,
    openapi,
    operations,
    overview,
    socket,
    state,
    subscriptions,
    webhooks,
)
from boxmatch.broker.http.authentication import Context
from boxmatch.broker.http.body_budget import BodyBudget
from boxmatch.broker.http.fast_publish import FastPublish
from boxmatch.broker.http.problems import add_handlers
from boxmatch.broker.http.responses import answer
from boxmatch.broker.settings import Settings

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker
    from boxmatch.broker.monitoring.metrics import Metrics

MOST_BODIES: Final = 4
"""Of the largest size, in memory at a time."""


def make_app(
    broker: Broker, keys: Keys, settings: Settings, metrics: Metrics | None = None
) -> FastPublish:
    """The ASGI application. The broker is started and stopped by the caller."""
    # The framework's own pages load scripts from elsewhere, so they are off.
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False)
    bodies = BodyBudget(MOST_BODIES * settings.limits.body_bytes)
    app.state.context = Context(broker, keys, settings, metrics, Meter(), bodies)
    add_handlers(app)
    # Routes are tried in order, so those with the load come first; and side by side, which is
    # quicker than routers in routers.
    for module in (
        *(events, notifications, socket, subscriptions, state, feeds, webhooks),
        *(overview, operations, openapi, dashboard),
    ):
        app.router.routes.extend(module.router.routes)
    app.router.routes.append(WebSocketRoute("/{path:path}", socket.no_socket))
    described: list[dict[str, Any]] = []

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi_json() -> Response:
        if not described:
            described.append(openapi.describe(app))
        return answer(described[0])

    return FastPublish(app, bodies)
