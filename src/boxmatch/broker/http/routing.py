"""How routes are declared: by the signatures of the functions that serve them.

The body that a route takes and the answer that it gives are structs of `boxmatch.wire`, and stand
in the signature; so does the permission that it needs, as the type of `caller`. Checking, encoding
and the description of the API follow from that.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar, get_args, get_type_hints

from fastapi import APIRouter, Request
from fastapi.responses import Response
from msgspec import Struct

from boxmatch.broker.http.bodies import read_request
from boxmatch.wire import requests
from boxmatch.wire.codec import encode_line
from boxmatch.wire.http import JSON, PROBLEM

Serve = TypeVar("Serve", bound=Callable[..., Awaitable[Any]])

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
ALWAYS: Final = (401, 403, 422, 429, 503)
"""Problems of all routes that need a key."""
WITH_BODY: Final = (400, 413, 415)


def answer(value: Struct | Mapping[str, Any], status: int = 200) -> Response:
    """What is answered, as JSON."""
    return Response(encode_line(value), status, media_type=JSON)


class Router(APIRouter):
    """Routes with one subject."""

    def serve(
        self,
        operation: str,
        *problems: int,
        status: int = 200,
        always: tuple[int, ...] = ALWAYS,
        text: tuple[str, str] | None = None,
        also: Mapping[str, Any] | None = None,
    ) -> Callable[[Serve], Serve]:
        """Serve an operation, such as `GET /feeds/{feed}`, by a function.

        `problems` are the statuses that it may answer with, apart from those that follow from the
        key and the body. `text`: the media type and the description of an answer that the function
        makes itself; None from a function that returns nothing is 204. `also`: schemas of other
        media types that it may answer with.
        """
        method, path = operation.split()

        def declare(serve: Serve) -> Serve:
            hints = get_type_hints(serve, include_extras=True)
            gives = _described(hints.pop("return"))
            success = 204 if gives is type(None) else status
            statuses = {*always, *problems}
            more: dict[str, Any] = {}
            body = next((name for name, kind in hints.items() if _is_body(kind)), None)
            if body is not None:
                statuses.update(WITH_BODY)
                more = {"requestBody": {"required": True, **describe_json(hints[body])}}
            responses = describe_problems(*statuses)
            if text is not None:
                responses[200] = {"description": text[1], **_content(text[0], {"type": "string"})}
            elif success != 204:
                responses[success] = describe_json(gives)
                for media_type, schema in (also or {}).items():
                    responses[success]["content"][media_type] = {"schema": schema}
            self.add_api_route(
                path,
                _endpoint(serve, hints, body, success),
                methods=[method],
                status_code=success,
                responses=responses,
                openapi_extra=more,
                response_class=Response,
            )
            return serve

        return declare


def _endpoint(
    serve: Callable[..., Awaitable[Any]], hints: dict[str, Any], body: str | None, status: int
) -> Callable[..., Awaitable[Response]]:
    """What the framework calls: with all but the body, which is read up to the key's limit."""

    async def endpoint(http_request: Request, **given: Any) -> Response:
        if body is not None:
            caller = given["caller"]
            most, holder = caller.limits.body_bytes, caller.grant.id
            given[body] = await read_request(http_request, hints[body], most, holder)
        found = await serve(**given)
        if isinstance(found, Response):
            return found
        return Response(status_code=status) if found is None else answer(found, status)

    own = inspect.Parameter("http_request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    parameters = [
        one.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
        for name, one in inspect.signature(serve).parameters.items()
        if name != body
    ]
    described: Any = endpoint
    described.__name__, described.__doc__ = serve.__name__, serve.__doc__
    described.__signature__ = inspect.Signature([own, *parameters])
    return endpoint


def _described(gives: Any) -> Any:
    """The struct that a route answers with, where it may also make the response itself."""
    return next((one for one in get_args(gives) if one is not Response), gives)


def _is_body(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, requests.RequestBody)


def describe_json(kind: type[Struct]) -> dict[str, Any]:
    """A JSON body, for the description of the API."""
    return _content(JSON, {"$ref": f"#/components/schemas/{kind.__name__}"})


def describe_problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with, for the description of the API."""
    content = _content(PROBLEM, {"$ref": "#/components/schemas/Problem"})
    return {one: {"description": _SAID[one], **content} for one in sorted(statuses)}


def _content(media_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"content": {media_type: {"schema": schema}}}
