"""Routes for events: published, and read from the log.

Publishing is where the load is, so that route reads the request itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import orjson
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from boxmatch.broker.http import shapes
from boxmatch.broker.http.authentication import Caller, Name, Reader, check_name, context_of
from boxmatch.broker.http.bodies import media_type, read_body
from boxmatch.broker.http.event_bodies import ARROW, NDJSON, read_events
from boxmatch.broker.http.problems import Problem
from boxmatch.broker.http.responses import answer_bytes, problems
from boxmatch.broker.messages import Receipt
from boxmatch.wire.http import MOST_SEQUENCE, NAME_PATTERN

if TYPE_CHECKING:
    from boxmatch.broker.store import LoggedEvent

MOST_EVENTS: Final = 10_000
"""In one answer."""
MOST_BYTES: Final = 8 << 20
"""Of events after which an answer ends early. What is read at once is bounded by the store, to
about as much."""
_CHUNK: Final = 1_000
_KEY_LENGTH: Final = 256

router = APIRouter(tags=["events"])

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
            "published again; the answer is that of the first time.",
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
            NDJSON[0]: {"schema": {"type": "string", "description": "One object a line."}},
            ARROW: {"schema": {"type": "string", "format": "binary"}},
        },
    },
}


@router.post(
    "/feeds/{feed}/events",
    response_model=shapes.Published,
    responses={
        **problems(404, 409, body=True),
        202: {"model": shapes.Published, "description": "Received, and not yet durable"},
    },
    openapi_extra=_PUBLISH,
)
async def publish(request: Request) -> Response:
    """Publish events. All of a request are stored, or none."""
    context = context_of(request)
    caller = Caller(context.admit(request), context)
    feed = check_name("feed", request.path_params["feed"])
    caller.must_publish(feed)
    wait = _wait(request)
    key = _idempotency_key(request)
    limits = caller.limits
    context.broker.directory.feed(feed)  # before a large body is read for nothing
    context.broker.pipeline.check_room()
    events = read_events(
        await read_body(request, limits.body_bytes),  # without a name, so that it goes soon
        media_type(request),
        most=limits.events_per_request,
        most_bytes=limits.body_bytes,
    )
    context.meter.take_events(caller.grant, len(events.rows))
    receipt = await context.broker.pipeline.publish(feed, events, wait=wait, key=key)
    return answer_bytes(receipt_json(receipt), 200 if wait else 202)


def receipt_json(receipt: Receipt) -> bytes:
    return orjson.dumps(receipt)


def _wait(request: Request) -> bool:
    if not request.scope["query_string"]:
        return True
    wait = request.query_params.get("wait", "durable")
    if wait not in ("durable", "received"):
        raise Problem(
            422, "parameters", "query.wait: must be durable or received",
            errors=[{"in": "query.wait", "message": "must be durable or received"}],
        )  # fmt: skip
    return wait == "durable"


def _idempotency_key(request: Request) -> str | None:
    key = request.headers.get("idempotency-key")
    if key is None:
        return None
    if not 0 < len(key) <= _KEY_LENGTH or not all("!" <= letter <= "~" for letter in key):
        said = f"must be 1 to {_KEY_LENGTH} visible ASCII letters"
        raise Problem(
            422, "parameters", f"header.idempotency-key: {said}",
            errors=[{"in": "header.idempotency-key", "message": said}],
        )  # fmt: skip
    return key


@router.get("/feeds/{feed}/events", response_model=shapes.LoggedEvents, responses=problems(404))
async def read_log(
    feed: Name,
    caller: Reader,
    after: Annotated[int, Query(ge=0, le=MOST_SEQUENCE)] = 0,
    limit: Annotated[int, Query(ge=1, le=MOST_EVENTS)] = 1_000,
    through: Annotated[int, Query(ge=0, le=MOST_SEQUENCE)] = MOST_SEQUENCE,
) -> Response:
    """Events from the log, after a sequence number. `next` is where to go on: `after` of the
    next request. It grows also when other feeds had the numbers in between.
    """
    broker = caller.broker
    last = (
        broker.store.next_sequence - 1
    )  # before reading: what comes meanwhile is for the next request
    first = broker.feeds.first_sequence(feed)
    position, size, ended = after, 0, False
    parts: list[bytes] = []
    while len(parts) < limit and size < MOST_BYTES and not ended:
        count = min(_CHUNK, limit - len(parts))
        events = await broker.feeds.read_log(feed, position, count, through)
        ended = not events  # fewer than asked for may also mean that they are large
        if events:
            position = events[-1].sequence
            parts += events_json(events)
            size += sum(len(one.body) for one in events)
    if ended:
        position = max(position, min(last, through))
    head = {"next": position, "first": first, "last": last}
    return answer_bytes(b'{"events":[%b],%b' % (b",".join(parts), orjson.dumps(head)[1:]))


def events_json(events: Sequence[LoggedEvent]) -> list[bytes]:
    """Events of the log as JSON each, with the bodies as they are."""
    return [
        b'{"sequence":%d,"at":%b,"event":%b}' % (one.sequence, orjson.dumps(one.at), one.body)
        for one in events
    ]
