"""Routes for a subscriber's notifications: by polling, and as Server-Sent Events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Final

from fastapi import Header, Query
from fastapi.responses import Response
from msgspec import UnsetType
from starlette.types import Receive, Scope, Send

from boxmatch.broker.delivery import cloudevents
from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.delivery.shared_inbox import WINDOW, SharedStream
from boxmatch.broker.http.authentication import AsSubscriber, Caller, Name
from boxmatch.broker.http.routing import Router
from boxmatch.broker.store.rows import Notification
from boxmatch.errors import AccessError
from boxmatch.wire import requests, responses
from boxmatch.wire.codec import stored
from boxmatch.wire.http import CLOUDEVENTS, MOST_SEQUENCE
from boxmatch.wire.problems import misplaced

MOST_NOTIFICATIONS: Final = 1_000
MOST_WAIT: Final = 60.0
MOST_BYTES: Final = 16 << 20
"""Of notifications in one answer, roughly."""
HEARTBEAT_SECONDS: Final = 15.0
"""Proxies close connections on which nothing happens, most of them after a minute."""
_NOTIFICATIONS_AT_ONCE: Final = 200

After = Annotated[
    int | None,
    Query(ge=0, le=MOST_SEQUENCE, description="Without it, from the cursor on."),
]

Window = Annotated[
    int,
    Query(
        ge=1,
        le=MOST_NOTIFICATIONS,
        description="Of shared notifications, how many this connection has at most.",
    ),
]

Format = Annotated[
    requests.NotificationFormat,
    Query(description="`cloudevents`: each is a CloudEvent, with extensions `boxmatch…`."),
]

router = Router(tags=["notifications"])


@router.serve(
    "GET /subscribers/{subscriber}/notifications",
    409,
    also={CLOUDEVENTS: {"type": "array", "items": {"$ref": "#/components/schemas/CloudEvent"}}},
)
async def poll(
    subscriber: Name,
    caller: AsSubscriber,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=MOST_NOTIFICATIONS)] = 100,
    wait: Annotated[
        float, Query(ge=0, le=MOST_WAIT, description="Seconds to wait if there is nothing.")
    ] = 0.0,
    format: Format = "notifications",
) -> responses.NotificationPage | Response:
    """Notifications after a sequence number. Nothing is acknowledged by this; `next` is where to go
    on. CloudEvents are an array, and the rest of the page is in headers, such as `Boxmatch-Next`.
    A subscriber that shares its notifications gets some that nobody else has, without `after`.
    """
    notifications = await caller.broker.notifications.poll(
        subscriber, after=after, limit=limit, wait=wait
    )
    parts = next(encode_batches(notifications, MOST_BYTES, encoder(format)), [])
    if parts:
        caller.broker.metrics.delivered("poll", notifications[: len(parts)])
    now = caller.broker.subscribers.get(subscriber)
    if now.shared is not None:
        now.shared.take_back(one.sequence for one in notifications[len(parts) :])
    start = now.position if after is None else after
    following = notifications[len(parts) - 1].sequence if parts else start
    if format == "cloudevents":
        headers = {
            "Boxmatch-Cursor": str(now.position),
            "Boxmatch-Next": str(following),
            "Boxmatch-Dropped": str(now.dropped),
        }
        body = cloudevents.to_batch(parts) + b"\n"
        return Response(body, headers=headers, media_type=CLOUDEVENTS)
    page = [stored(part) for part in parts]
    return responses.NotificationPage(page, now.position, following, now.dropped)


def encoder(format: requests.NotificationFormat) -> Callable[[Notification], bytes]:
    """What writes notifications in a format."""
    return cloudevents.to_json if format == "cloudevents" else Notification.to_json


def encode_batches(
    notifications: Sequence[Notification],
    most_bytes: int,
    encode: Callable[[Notification], bytes] = Notification.to_json,
) -> Iterator[list[bytes]]:
    """Notifications as JSON, in batches of at most so many bytes, and at least one in each."""
    batch: list[bytes] = []
    size = 0
    for notification in notifications:
        part = encode(notification)
        if batch and size + len(part) > most_bytes:
            yield batch
            batch, size = [], 0
        batch.append(part)
        size += len(part)
    if batch:
        yield batch


@router.serve("POST /subscribers/{subscriber}/acknowledge", 409)
async def acknowledge(
    subscriber: Name, asked: requests.Acknowledgement, caller: AsSubscriber
) -> responses.Cursor:
    """All notifications up to a sequence number are dealt with; of a subscriber that shares them,
    those of `sequences`, whoever has them now. The cursor never goes back, and all of it is on disk
    when this is answered.
    """
    match asked.sequence, asked.sequences:
        case int(sequence), UnsetType():
            return responses.Cursor(
                await caller.broker.notifications.acknowledge(subscriber, sequence)
            )
        case UnsetType(), list(sequences):
            count = await caller.broker.shared.acknowledge(subscriber, sequences)
            return _counted(caller, subscriber, count)
    raise misplaced("body", [responses.Fault("body", "give either sequence or sequences")])


@router.serve("POST /subscribers/{subscriber}/reject", 409)
async def reject(
    subscriber: Name, asked: requests.Rejection, caller: AsSubscriber
) -> responses.Cursor:
    """Notifications are not dealt with, and are handed out again, or become dead letters if that
    was their last delivery. Counts those that somebody had.
    """
    inbox = caller.broker.shared.get(subscriber)
    if asked.begun:
        count = inbox.reject(asked.sequences, asked.reason, asked.delay)
    else:
        count = inbox.take_back(asked.sequences)
    return _counted(caller, subscriber, count)


@router.serve("POST /subscribers/{subscriber}/extend", 409)
async def extend(
    subscriber: Name, asked: requests.Extension, caller: AsSubscriber
) -> responses.Cursor:
    """Notifications take longer: their deadline is so many seconds from now. Counts those that
    somebody had.
    """
    count = caller.broker.shared.get(subscriber).extend(asked.sequences, asked.seconds)
    return _counted(caller, subscriber, count)


def _counted(caller: Caller, subscriber: str, count: int) -> responses.Cursor:
    return responses.Cursor(caller.broker.subscribers.get(subscriber).cursor, count)


@router.serve(
    "GET /subscribers/{subscriber}/notifications/stream",
    409,
    text=(
        "text/event-stream",
        "Events: `id` is the sequence number and `data` the notification, or the CloudEvent.",
    ),
)
async def stream_notifications(
    subscriber: Name,
    caller: AsSubscriber,
    after: After = None,
    last_event_id: Annotated[
        int | None,
        Header(
            ge=0,
            le=MOST_SEQUENCE,
            description="Acknowledges all up to this number, and goes on after it.",
        ),
    ] = None,
    format: Format = "notifications",
    window: Window = WINDOW,
) -> Response:
    """Notifications as they come, as Server-Sent Events. A browser's EventSource reconnects by
    itself, and says by that which notifications it has; of a subscriber that shares them, that
    means nothing.
    """
    if caller.broker.subscribers.get(subscriber).shared is not None:
        last_event_id = None
    if last_event_id is not None:
        await caller.broker.notifications.acknowledge(subscriber, last_event_id, wait=False)
        after = last_event_id
    return _EventStream(caller, subscriber, after, encoder(format), window)


class _EventStream(Response):
    """A response that goes on until the client leaves or the broker stops."""

    media_type = "text/event-stream"

    def __init__(
        self,
        caller: Caller,
        subscriber: str,
        after: int | None,
        encode: Callable[[Notification], bytes],
        window: int,
    ) -> None:
        # Some proxies would collect what is sent until a buffer is full.
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._caller = caller
        self._subscriber = subscriber
        self._after = after
        self._encode = encode
        self._window = window

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._caller.broker.notifications.stream(
            self._subscriber, after=self._after
        ) as stream:
            if isinstance(stream, SharedStream):
                stream.window = self._window
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

    async def _next(self, stream: NotificationStream | SharedStream) -> bytes | None:
        caller = self._caller
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                notifications = await stream.take(_NOTIFICATIONS_AT_ONCE)
        except TimeoutError:
            caller.recheck()
            return b":\n\n"
        if not notifications:
            return None
        caller.recheck()
        caller.broker.metrics.delivered("sse", notifications)
        return b"".join(
            b"id: %d\ndata: %b\n\n" % (notification.sequence, self._encode(notification))
            for notification in notifications
        )


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
