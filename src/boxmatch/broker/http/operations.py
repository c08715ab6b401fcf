"""Routes for those who run the broker: is it alive, is it ready, what is it doing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from fastapi.responses import Response

from boxmatch.broker.http.authentication import Admin, context_of
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer, gives, problems
from boxmatch.broker.monitoring.metrics import CONTENT_TYPE
from boxmatch.wire import answers

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

router = APIRouter(tags=["operations"])
_GIVEN: Final = gives(answers.Health)
_HEALTH: Final[dict[int | str, dict[str, Any]]] = {one: _GIVEN[one] for one in (200, 503)}


@router.get("/healthz", responses=_HEALTH)
async def health(request: Request) -> Response:
    """Whether the process works. If not, it should be started again."""
    _check_failure(context_of(request).broker)
    return answer(answers.Health("ok"))


@router.get("/readyz", responses=_HEALTH)
async def readiness(request: Request) -> Response:
    """Whether requests are served: not while the broker starts or stops, nor while nothing can be
    stored. Reading goes on then.
    """
    broker = context_of(request).broker
    _check_failure(broker)
    if not broker.ready:
        raise Problem(503, "not-ready", "the broker is starting or stopping")
    if (reason := broker.store.failure) is not None:
        raise Problem(503, "storage", f"nothing can be stored: {reason}")
    return answer(answers.Health("ready"))


@router.get(
    "/metrics",
    responses={
        **problems(404),
        200: {
            "description": "Prometheus' text format.",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
    },
    response_class=Response,
)
async def metrics(caller: Admin) -> Response:
    """Counters, queue depths and latencies. Subscribers are named in it, so it takes an admin's
    key.
    """
    measured = caller.context.metrics
    if measured is None:
        raise Problem(404, "no-metrics", "this broker keeps no metrics")
    # It reads the database.
    return Response(await asyncio.to_thread(measured.render), media_type=CONTENT_TYPE)


def _check_failure(broker: Broker) -> None:
    if broker.failure is not None:
        raise Problem(503, "failed", broker.failure)
