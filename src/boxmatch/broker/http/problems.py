"""What is said when a request fails: application/problem+json (RFC 9457), with the place."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.routing import Match

from boxmatch.errors import (
    AccessError,
    AttributeValueError,
    BoxmatchError,
    BrokerError,
    DuplicateMemberError,
    EventError,
    FeedExistsError,
    FilterError,
    LimitError,
    OverloadError,
    StorageError,
    TargetError,
    UnknownEventError,
    UnknownFeedError,
    UnknownMemberError,
    UnknownSubscriptionError,
)
from boxmatch.wire.codec import encode_line
from boxmatch.wire.http import PROBLEM
from boxmatch.wire.problems import MOST_FAULTS, Problem, misplaced
from boxmatch.wire.responses import Fault, StartProgress

if TYPE_CHECKING:
    from boxmatch.broker.broker import Broker

_log = logging.getLogger("boxmatch.broker.http")

_STATUS: Final[tuple[tuple[type[BoxmatchError], int, str], ...]] = (
    # The first that fits counts, so the narrow ones come first.
    (UnknownFeedError, 404, "unknown-feed"),
    (UnknownEventError, 404, "unknown-event"),
    (UnknownSubscriptionError, 404, "unknown-subscription"),
    (UnknownMemberError, 404, "unknown-publication"),
    (FeedExistsError, 409, "feed-exists"),
    (DuplicateMemberError, 409, "publication-exists"),
    (StorageError, 503, "storage"),
    (FilterError, 422, "filter"),
    (AttributeValueError, 422, "value"),
    (TargetError, 422, "webhook"),
    (BrokerError, 409, "conflict"),
    (BoxmatchError, 422, "invalid"),
)


def response_of(problem: Problem) -> Response:
    """The answer that says it."""
    body = encode_line(problem.as_dict())
    return Response(body, problem.status, problem.headers, media_type=PROBLEM)


def not_ready(broker: Broker) -> Problem:
    """While a broker starts: how far it is."""
    startup = broker.startup
    step = startup.step
    seconds = round(startup.elapsed, 1)
    progress = StartProgress(step.name, step.feed, step.done, step.total, seconds)
    detail = f"the broker is starting or stopping ({step}, after {seconds} s)"
    return Problem(503, "not-ready", detail, headers={"Retry-After": "1"}, progress=progress)


def problem_of(error: Problem | BoxmatchError) -> Problem:
    """How an error is answered."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, AccessError):
        if error.unknown:
            headers = {"WWW-Authenticate": 'Bearer realm="boxmatch"'}
            return Problem(401, "unauthorized", str(error), headers=headers)
        return Problem(403, "forbidden", str(error))
    if isinstance(error, LimitError):
        return _limit_problem(error)
    status, kind = next((s, k) for one, s, k in _STATUS if isinstance(error, one))
    more: dict[str, Any] = {}
    if isinstance(error, FilterError) and error.position is not None:
        more["position"] = error.position
    if isinstance(error, AttributeValueError):
        more["attribute"] = error.attribute
    if isinstance(error, (AttributeValueError, EventError)) and error.row is not None:
        more["index"] = error.row
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Problem(status, kind, str(error), headers=headers, **more)


def _limit_problem(error: LimitError) -> Problem:
    wait = error.retry_after
    headers = {} if wait is None else {"Retry-After": str(max(1, math.ceil(wait)))}
    if isinstance(error, OverloadError):
        return Problem(503, "overload", str(error), headers=headers or {"Retry-After": "1"})
    if wait is None:  # waiting does not help
        return Problem(403, "limit", str(error))
    return Problem(429, "rate-limit", str(error), headers=headers, retry_after=wait)


def add_handlers(app: FastAPI) -> None:
    """Every failure of a request is a problem, also those of the framework."""
    for kind in (Problem, BoxmatchError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, respond)


async def respond(request: Request, error: Exception) -> Response:
    """The answer to a request that failed."""
    match error:
        case Problem() | BoxmatchError():
            problem = problem_of(error)
            if isinstance(error, StorageError):
                _log.error("storage: %s", error)
        case RequestValidationError():
            places = [(".".join(map(str, one["loc"])), str(one["msg"])) for one in error.errors()]
            problem = misplaced("parameters", [Fault(*one) for one in places[:MOST_FAULTS]])
        case HTTPException():
            problem = _framework_problem(request, error)
        case _:
            # What went wrong inside is nobody's business outside. The server closes the
            # connection after this, so the next request must not be sent on it.
            detail = "an error inside the broker; its log says more"
            problem = Problem(500, "bug", detail, headers={"Connection": "close"})
    return response_of(problem)


def _framework_problem(request: Request, error: HTTPException) -> Problem:
    path, headers = request.url.path, dict(error.headers or {})
    if error.status_code == 404:
        return Problem(404, "no-such-path", f"there is nothing at {path}", headers=headers)
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods_at(request))
        detail = f"{request.method} is not possible at {path}"
        return Problem(405, "method", detail, headers=headers)
    return Problem(error.status_code, "http", str(error.detail), headers=headers)


def _methods_at(request: Request) -> list[str]:
    """What is possible at a path, over all of its routes; the framework only looks at the first."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)
