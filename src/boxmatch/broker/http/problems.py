"""What is said when a request fails: application/problem+json (RFC 9457), with the place."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

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
from boxmatch.wire.answers import Fault
from boxmatch.wire.codec import encode
from boxmatch.wire.http import PROBLEM

MOST_DETAIL: Final = 2_000
"""Characters of a message that go out: it may quote what was sent, which can be long."""

MOST_FAULTS: Final = 20

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


class Problem(Exception):
    """A request that cannot be served, and why. `more` goes into the answer as it is."""

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **more: Any,
    ) -> None:
        self.status = status
        self.kind = kind
        self.detail = detail
        self.headers = dict(headers or {})
        self.more = more
        super().__init__(detail)

    def as_dict(self) -> dict[str, Any]:
        detail = self.detail
        if len(detail) > MOST_DETAIL:
            detail = detail[: MOST_DETAIL - 1] + "…"
        return {
            "type": f"urn:boxmatch:problem:{self.kind}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            # A message may quote a lone surrogate, which UTF-8 has no bytes for.
            "detail": detail.encode(errors="backslashreplace").decode(),
            **self.more,
        }

    def response(self) -> Response:
        return Response(encode(self.as_dict()), self.status, self.headers, media_type=PROBLEM)


def misplaced(kind: str, faults: Sequence[Fault]) -> Problem:
    """A request that can be read, with the places where it makes no sense."""
    detail = "; ".join(f"{one.place}: {one.message}" for one in faults)
    return Problem(422, kind, detail, errors=faults)


def problem_of(error: BoxmatchError) -> Problem:
    """How an error of the library is answered."""
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
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(BoxmatchError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(HTTPException, _on_http)
    app.add_exception_handler(Exception, _on_bug)


async def response_to(request: Request, error: Exception) -> Response:
    """The answer to a request that failed, as the framework would give it with these handlers."""
    if isinstance(error, Problem):
        return error.response()
    if isinstance(error, BoxmatchError):
        return await _on_error(request, error)
    _log.error("in %s %s", request.method, request.url.path, exc_info=error)
    return await _on_bug(request, error)


async def _on_problem(request: Request, error: Exception) -> Response:
    if not isinstance(error, Problem):
        raise error
    return error.response()


async def _on_error(request: Request, error: Exception) -> Response:
    if not isinstance(error, BoxmatchError):
        raise error
    problem = problem_of(error)
    if problem.kind == "storage":
        _log.error("storage: %s", error)
    return problem.response()


async def _on_parameters(request: Request, error: Exception) -> Response:
    if not isinstance(error, RequestValidationError):
        raise error
    faults = [Fault(".".join(map(str, one["loc"])), str(one["msg"])) for one in error.errors()]
    return misplaced("parameters", faults[:MOST_FAULTS]).response()


async def _on_http(request: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    kind = {404: "no-such-path", 405: "method"}.get(error.status_code, "http")
    detail = {
        404: f"there is nothing at {request.url.path}",
        405: f"{request.method} is not possible at {request.url.path}",
    }.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == 405:
        headers["Allow"] = ", ".join(_methods_at(request))
    return Problem(error.status_code, kind, detail, headers=headers).response()


def _methods_at(request: Request) -> list[str]:
    """What is possible at a path, over all of its routes; the framework only looks at the first."""
    found: set[str] = set()
    for route in request.app.routes:
        if route.matches(request.scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    return sorted(found)


async def _on_bug(request: Request, error: Exception) -> Response:
    # The framework logs the traceback; what went wrong inside is nobody's business outside.
    # The server closes the connection after this, so the next request must not be sent on it.
    headers = {"Connection": "close"}
    detail = "an error inside the broker; its log says more"
    return Problem(500, "bug", detail, headers=headers).response()
