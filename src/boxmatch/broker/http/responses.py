"""Answers, and how routes declare them: what they take and which problems they may answer with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi.responses import Response
from msgspec import Struct

from boxmatch.wire import answers
from boxmatch.wire.codec import encode
from boxmatch.wire.http import JSON, PROBLEM

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


def answer(value: Struct | Mapping[str, Any], status: int = 200) -> Response:
    """What is answered, as JSON."""
    return Response(encode(value), status, media_type=JSON)


def gives(
    kind: type[Struct], *statuses: int, body: bool = False, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """Declares what a route answers with: this, or a problem."""
    found: dict[str, Any] = {"content": {JSON: {"schema": _reference(kind)}}}
    return {status: found, **problems(*statuses, body=body)}


def problems(*statuses: int, body: bool = False) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, apart from those that every route has."""
    content = {PROBLEM: {"schema": _reference(answers.Problem)}}
    known = sorted({*_ALWAYS, *statuses, *(_WITH_BODY if body else ())})
    return {status: {"description": _SAID[status], "content": content} for status in known}


def takes(kind: type[Struct]) -> dict[str, Any]:
    """Declares a JSON body that the route reads itself, up to the limit of the key."""
    return {"requestBody": {"required": True, "content": {JSON: {"schema": _reference(kind)}}}}


def _reference(kind: type[Struct]) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{kind.__name__}"}
