"""Routes for an owner's notes: by polling, and as Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from boxmatch.broker.delivery.stream import NoteStream
from boxmatch.broker.http import shapes
from boxmatch.broker.http.answers import answer, answer_bytes, problems, takes
from boxmatch.broker.http.bodies import read_model
from boxmatch.broker.http.callers import MOST_SEQUENCE, AsOwner, Caller, Name
from boxmatch.broker.messages import Note
from boxmatch.errors import AccessError

MOST_NOTES: Final = 1_000
MOST_WAIT: Final = 60.0
MOST_BYTES: Final = 16 << 20
"""Of notes in one answer, roughly."""
HEARTBEAT_SECONDS: Final = 15.0
"""Proxies close connections on which nothing happens, most of them after a minute."""
_NOTES_AT_ONCE: Final = 200

After = Annotated[
    int | None,
    Query(ge=0, le=MOST_SEQUENCE, description="Without it, from the cursor on."),
]

router = APIRouter(tags=["notes"])


@router.get("/owners/{owner}/notes", response_model=shapes.Notes, responses=problems())
async def poll(
    owner: Name,
    caller: AsOwner,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=MOST_NOTES)] = 100,
    wait: Annotated[
        float, Query(ge=0, le=MOST_WAIT, description="Seconds to wait if there is nothing.")
    ] = 0.0,
) -> Response:
    """Notes after a sequence number. Nothing is acknowledged by this; `next` is where to go on."""
    notes = await caller.broker.notes(owner, after=after, limit=limit, wait=wait)
    parts = _some(notes)
    caller.context.delivered("poll", notes[: len(parts)])
    now = caller.broker.standing(owner)
    start = now.cursor if after is None else after
    following = notes[len(parts) - 1].sequence if parts else start
    rest = {"cursor": now.cursor, "next": following, "dropped": now.dropped}
    return answer_bytes(b'{"notes":[%b],%b' % (b",".join(parts), orjson.dumps(rest)[1:]))


def _some(notes: Sequence[Note]) -> list[bytes]:
    """As many as fit into one answer, and at least one."""
    parts: list[bytes] = []
    size = 0
    for note in notes:
        part = note.to_json()
        size += len(part)
        if parts and size > MOST_BYTES:
            break
        parts.append(part)
    return parts


@router.post(
    "/owners/{owner}/acknowledge",
    response_model=shapes.Cursor,
    responses=problems(409, body=True),
    openapi_extra=takes(shapes.Acknowledgement),
)
async def acknowledge(owner: Name, request: Request, caller: AsOwner) -> Response:
    """All notes up to a sequence number are dealt with. The cursor never goes back, and is on disk
    when this is answered.
    """
    asked = await read_model(request, shapes.Acknowledgement, caller.limits.body_bytes)
    return answer({"cursor": await caller.broker.acknowledge(owner, asked.sequence)})


@router.get(
    "/owners/{owner}/notes/stream",
    responses={
        **problems(),
        200: {
            "description": "Events whose `id` is the sequence number and whose `data` is the note.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
    },
    response_class=Response,
)
async def stream_notes(
    owner: Name,
    caller: AsOwner,
    after: After = None,
    last_event_id: Annotated[
        int | None,
        Header(
            ge=0,
            le=MOST_SEQUENCE,
            description="Acknowledges all up to this number, and goes on after it.",
        ),
    ] = None,
) -> Response:
    """Notes as they come, as Server-Sent Events. A browser's EventSource reconnects by itself, and
    says by that which notes it has.
    """
    if last_event_id is not None:
        await caller.broker.acknowledge(owner, last_event_id, wait=False)
        after = last_event_id
    return _EventStream(caller, owner, after)


class _EventStream(Response):
    """A response that goes on until the client leaves or the broker stops."""

    media_type = "text/event-stream"

    def __init__(self, caller: Caller, owner: str, after: int | None) -> None:
        # Some proxies would collect what is sent until a buffer is full.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._caller = caller
        self._owner = owner
        self._after = after

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._caller.broker.stream(self._owner, after=self._after) as stream:
            await send(
                {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
            )
            await send({"type": "http.response.body", "body": b": ready\n\n", "more_body": True})
            leaving = asyncio.create_task(_disconnected(receive))
            leaving.add_done_callback(lambda _: stream.close())
            try:
                while (body := await self._next(stream)) is not None:
                    await send({"type": "http.response.body", "body": body, "more_body": True})
            except AccessError:
                pass  # the key was revoked; when the client comes again it is told so
            finally:
                leaving.cancel()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _next(self, stream: NoteStream) -> bytes | None:
        context = self._caller.context
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                notes = await stream.take(_NOTES_AT_ONCE)
        except TimeoutError:
            context.keys.recheck(self._caller.grant)
            return b":\n\n"
        if not notes:
            return None
        context.keys.recheck(self._caller.grant)
        context.delivered("sse", notes)
        return b"".join(b"id: %d\ndata: %b\n\n" % (note.sequence, note.to_json()) for note in notes)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
