"""Answers, and how routes declare them: what they take and which problems they may answer with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson
from fastapi.responses import Response
from pydantic import BaseModel

from boxmatch.broker.http.problems import MEDIA_TYPE

_SAID: Final[Mapping[int, str]] = {
    400: "The request cannot be read",
    401: "The key is missing or unknown",
    403: "The key may not do this",
    404: "There is no such thing",
    409: "It is not possible as things are",
    413: "Too large",
    415: "A media type or encoding that is not accepted",
    422: "The request can be read, but makes no sense",
    429: "Too many requests or events; `Retry-After` says when to come again",
    503: "The broker cannot take it now; `Retry-After` says when to come again",
}
_ALWAYS: Final = (401, 403, 422, 429, 503)
_WITH_BODY: Final = (400, 413, 415)


def answer(value: Any, status: int = 200) -> Response:
    """A value as JSON."""
    return Response(orjson.dumps(value, default=str), status, media_type="application/json")


def answer_bytes(body: bytes, status: int = 200) -> Response:
    """JSON that was put together by hand."""
    return Response(body, status, media_type="application/json")


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, apart from those that every route has."""
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    known = sorted({*_ALWAYS, *statuses, *(_WITH_BODY if body else ())})
    return {status: {"description": _SAID[status], "content": content} for status in known}


def takes(model: type[BaseModel]) -> dict[str, Any]:
    """Declares a JSON body that the route reads itself, up to the limit of the key."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
