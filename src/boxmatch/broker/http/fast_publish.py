"""Publishing by the shortest way: past the framework, whose layers cost more than the rest of it.

The route is declared like the others and would be answered in the same way there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import BaseRoute

from boxmatch.broker.http.body_budget import BodyBudget
from boxmatch.broker.http.events import publish
from boxmatch.broker.http.problems import response_to

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_PATH: Final = re.compile(r"/feeds/([^/]+)/events")


class FastPublish:
    """An ASGI application in front of the framework's."""

    def __init__(self, app: FastAPI, bodies: BodyBudget) -> None:
        self.app = app
        self._bodies = bodies
        self._route: BaseRoute = next(
            route for route in app.router.routes if getattr(route, "endpoint", None) is publish
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._serve(scope, receive, send)
        finally:
            self._bodies.give_back(scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "POST":
            found = _PATH.fullmatch(scope["path"])
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
            return await publish(request)
        except Exception as error:
            return await response_to(request, error)
