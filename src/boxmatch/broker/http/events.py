"""Routes for events: published, and read from the log.

Publishing is where the load is, so that route reads the request itself.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi import FastAPI, Query, Request
from fastapi.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from boxmatch.broker.http.authentication import Name, Reader, check_name, context_of
from boxmatch.broker.http.bodies import BodyBudget, decode, media_type, read_body
from boxmatch.broker.http.problems import respond
from boxmatch.broker.http.routing import (
    ALWAYS,
    WITH_BODY,
    Router,
    answer,
    describe_json,
    describe_problems,
)
from boxmatch.errors import BoxmatchError
from boxmatch.wire import responses
from boxmatch.wire.cloudevent_bodies import are_cloudevents, read_cloudevents
from boxmatch.wire.codec import stored
from boxmatch.wire.event_bodies import read_events
from boxmatch.wire.http import ARROW, CLOUDEVENT, CLOUDEVENTS, MOST_SEQUENCE, NAME_PATTERN, NDJSON
from boxmatch.wire.problems import Problem, misplaced
from boxmatch.wire.responses import Fault

if TYPE_CHECKING:
    from boxmatch.broker.settings import Limits
    from boxmatch.broker.store import LoggedEvent
    from boxmatch.broker.subscribers.directory import FeedEntry
    from boxmatch.wire.event_bodies import Events

MOST_EVENTS: Final = 10_000
"""In one answer."""
MOST_BYTES: Final = 8 << 20
"""Of events after which an answer ends early. What is read at once is bounded by the store, to
about as much."""
_CHUNK: Final = 1_000
_CLOUDEVENT: Final = "#/components/schemas/CloudEvent"
_KEY_LENGTH: Final = 256
_PATH: Final = re.compile(r"/feeds/([^/]+)/events")
_log = logging.getLogger("boxmatch.broker.http")

router = Router(tags=["events"])

_PUBLISH: Final[dict[str, Any]] = {
    "parameters": [
        {
            "name": "feed",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": NAME_PATTERN, "maxLength": 128},
        },
        {
            "name": "wait",
            "in": "query",
            "description": "`durable`: the answer comes when the events are on disk. `received`: "
            "as soon as they are checked; they have no numbers yet.",
            "schema": {"type": "string", "enum": ["durable", "received"], "default": "durable"},
        },
        {
            "name": "Idempotency-Key",
            "in": "header",
            "description": "Events that are sent again with the same key within a day are not "
            "published again; the answer is that of the first time. CloudEvents need no key: those "
            "with a `source` and `id` that the feed has had within a day are not published again.",
            "schema": {
                "type": "string",
                "minLength": 1,
                "maxLength": _KEY_LENGTH,
                "pattern": "^[!-~]+$",
            },
        },
    ],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        {"type": "object"},
                        {"type": "array", "items": {"type": "object"}, "minItems": 1},
                    ]
                }
            },
            NDJSON: {"schema": {"type": "string", "description": "One object a line."}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
            CLOUDEVENT: {"schema": {"$ref": _CLOUDEVENT}},
            CLOUDEVENTS: {"schema": {"type": "array", "items": {"$ref": _CLOUDEVENT}}},
            "*/*": {
                "schema": {
                    "type": "string",
                    "format": "binary",
                    "description": "With headers that begin with `ce-`: the data of a CloudEvent "
                    "in binary mode.",
                }
            },
        },
    },
}


@router.post(
    "/feeds/{feed}/events",
    responses={
        200: describe_json(responses.Receipt),
        202: {**describe_json(responses.Receipt), "description": "Received, and not yet durable"},
        **describe_problems(*ALWAYS, *WITH_BODY, 404, 409),
    },
    openapi_extra=_PUBLISH,
)
async def publish(request: Request) -> Response:
    """Publish events. All of a request are stored, or none."""
    caller = context_of(request).admit(request)
    feed = check_name("feed", request.path_params["feed"])
    caller.must("publish", feed)
    wait = _wait(request)
    key = _idempotency_key(request)
    limits = caller.limits
    broker = caller.broker
    entry = broker.directory.feed(feed)  # before a large body is read for nothing
    broker.pipeline.check_room(entry.feed)
    # The body without a name, so that it goes soon.
    events = await decode(
        await read_body(request, limits.body_bytes, caller.grant.id),
        lambda body: _events(body, request, entry, limits),
    )
    caller.take_events(len(events.rows))
    receipt = await broker.pipeline.publish(feed, events, wait=wait, key=key)
    return answer(receipt, 200 if wait else 202)


def _events(body: bytes, request: Request, entry: FeedEntry, limits: Limits) -> Events:
    kind, most = media_type(request), limits.events_per_request
    headers, schema = request.scope["headers"], entry.feed.spec.schema
    if are_cloudevents(headers, kind):
        return read_cloudevents(body, headers, kind, schema, most=most)
    events = read_events(body, kind, most=most, most_bytes=limits.body_bytes)
    if kind == ARROW and any(one.type == "json" for one in schema):
        # Only the values of JSON are those of documents: a time is a string in what is stored.
        return events._replace(rows=list(map(orjson.loads, events.bodies)))
    return events


def _wait(request: Request) -> bool:
    if request.scope["query_string"] in (b"", b"wait=durable"):  # nearly all: not taken apart
        return True
    wait = request.query_params.get("wait", "durable")
    if wait not in ("durable", "received"):
        raise misplaced("parameters", [Fault("query.wait", "must be durable or received")])
    return wait == "durable"


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= _KEY_LENGTH or not all("!" <= letter <= "~" for letter in key):
        said = f"must be 1 to {_KEY_LENGTH} visible ASCII letters"
        raise misplaced("parameters", [Fault("header.idempotency-key", said)])
    return key


class _PublishRequest(Request):
    """A request whose headers are looked up as those of a dict. The first of a name counts."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        super().__init__(scope, receive)
        self._by_name = {
            name.decode("latin-1"): value.decode("latin-1")
            for name, value in reversed(scope["headers"])
        }

    @property
    def headers(self) -> Mapping[str, str]:  # type: ignore[override]  # without its raw form
        return self._by_name


class FastPublish:
    """An ASGI application in front of the framework's, whose layers cost more than the rest of
    publishing. The route is declared like the others and would be answered in the same way there.
    """

    def __init__(self, app: FastAPI, bodies: BodyBudget) -> None:
        self.app = app
        self._bodies = bodies
        self._route = next(one for one in router.routes if getattr(one, "name", "") == "publish")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app: ASGIApp = self.app
        try:
            if scope["type"] == "http" and scope["method"] == "POST":
                found = _PATH.fullmatch(scope["path"])
                if found is not None:
                    scope.update(app=app, route=self._route, path_params={"feed": found[1]})
                    app = await self._answer(_PublishRequest(scope, receive))
            await app(scope, receive, send)
        finally:
            self._bodies.give_back(scope)

    async def _answer(self, request: Request) -> Response:
        try:
            return await publish(request)
        except Exception as error:
            if not isinstance(error, (Problem, BoxmatchError)):  # the framework would log it too
                _log.error("in POST %s", request.url.path, exc_info=error)
            return await respond(request, error)


@router.serve("GET /feeds/{feed}/events", 404)
async def read_log(
    feed: Name,
    caller: Reader,
    after: Annotated[int, Query(ge=0, le=MOST_SEQUENCE)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 1_000,
    through: Annotated[int, Query(ge=0, le=MOST_SEQUENCE)] = MOST_SEQUENCE,
) -> responses.EventPage:
    """Events from the log, after a sequence number. `next` is where to go on: `after` of the
    next request. It grows also when other feeds had the numbers in between.
    """
    broker = caller.broker
    # Before reading: what comes meanwhile is for the next request.
    last = broker.store.next_sequence - 1
    first = broker.feeds.first_sequence(feed)
    position, size, ended = after, 0, False
    parts: list[responses.LoggedEvent] = []
    while len(parts) < limit and size < MOST_BYTES and not ended:
        count = min(_CHUNK, limit - len(parts))
        events = await broker.feeds.read_log(feed, position, count, through)
        ended = not events  # fewer than asked for may also mean that they are large
        if events:
            position = events[-1].sequence
            parts += map(event_response, events)
            size += sum(len(one.body) for one in events)
    if ended:
        position = max(position, min(last, through))
    return responses.EventPage(parts, position, last, first)


def event_response(one: LoggedEvent) -> responses.LoggedEvent:
    """An event of the log, with its JSON as it is."""
    return responses.LoggedEvent(one.sequence, one.at, stored(one.body))
