"""A subscriber's notifications over a WebSocket, with acknowledgements, which also control the
flow.

The broker sends `ready`, then `notifications`; the client sends `acknowledge`. At most `window`
notifications are under way: sent, and not acknowledged. A browser cannot send a header with its
key, so the key may also come in a first message, `hello`.

Under the subprotocol of CloudEvents all that the broker sends are CloudEvents, one a message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import orjson
from fastapi import APIRouter
from starlette.websockets import WebSocket, WebSocketDisconnect

from boxmatch.broker.delivery import cloudevents
from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.http.authentication import Caller, check_name, context_of
from boxmatch.broker.http.notifications import encode_batches
from boxmatch.broker.http.problems import Problem, misplaced, problem_of
from boxmatch.broker.store.rows import Notification
from boxmatch.errors import AccessError, BoxmatchError
from boxmatch.wire.cloudevents import SUBPROTOCOL
from boxmatch.wire.codec import encode, stored
from boxmatch.wire.http import MOST_SEQUENCE
from boxmatch.wire.responses import Fault, Frame, Ready, Refusal

HELLO_SECONDS: Final = 5.0
FRAME_BYTES: Final = 512 * 1024
"""Notifications for a larger frame are sent in several: many clients refuse messages over a
megabyte.
"""

POLICY: Final = 1008
INTERNAL: Final = 1011
RESTART: Final = 1012

router = APIRouter()


@router.websocket("/subscribers/{subscriber}/notifications/socket")
async def notification_socket(websocket: WebSocket) -> None:
    context = context_of(websocket)
    try:
        subscriber = check_name("subscriber", websocket.path_params["subscriber"])
        after = _number(websocket, "after", None, least=0, most=MOST_SEQUENCE)
        most = context.broker.settings.window
        window = min(most, _number(websocket, "window", most, least=1, most=MOST_SEQUENCE) or most)
        caller = None
        if "authorization" in websocket.headers or not context.keys.any():
            caller = context.admit(websocket)
            caller.must("subscribe", subscriber)
    except (Problem, BoxmatchError) as error:
        await _deny(websocket, problem_of(error))
        return
    offered = websocket.scope.get("subprotocols", ())
    chosen = SUBPROTOCOL if SUBPROTOCOL in offered else None
    await websocket.accept(chosen)
    try:
        if caller is None:
            caller = context.admit(websocket, await _wait_for_key(websocket))
            caller.must("subscribe", subscriber)
        await _NotificationSocket(
            websocket, caller, subscriber, window=window, after=after, bare=chosen is not None
        ).run()
    except WebSocketDisconnect:
        pass
    except (Problem, BoxmatchError) as error:
        await _refuse(websocket, problem_of(error), bare=chosen is not None)


async def no_socket(websocket: WebSocket) -> None:
    """For every other path; the framework would say 403."""
    path = websocket.url.path
    await _deny(websocket, Problem(404, "no-such-path", f"there is no WebSocket at {path}"))


async def _wait_for_key(websocket: WebSocket) -> str:
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            message = _read(await websocket.receive())
    except TimeoutError:
        raise AccessError("no hello with a key came in time", unknown=True) from None
    key = message.get("key")
    if message["type"] != "hello" or type(key) is not str:
        raise AccessError('the first message must be {"type":"hello","key":…}', unknown=True)
    return key


class _NotificationSocket:
    """One connection, from `ready` on."""

    def __init__(
        self,
        websocket: WebSocket,
        caller: Caller,
        subscriber: str,
        *,
        window: int,
        after: int | None,
        bare: bool,
    ) -> None:
        self._websocket = websocket
        self._caller = caller
        self._subscriber = subscriber
        self._window = window
        self._after = after
        self._bare = bare
        """Whether messages are CloudEvents alone."""
        self._sent: deque[int] = deque()
        """Sequence numbers of notifications under way."""
        self._known = after or 0
        """The highest sequence number that the client can have seen."""
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Returns when the client has gone, or the broker stops."""
        async with self._caller.broker.notifications.stream(
            self._subscriber, after=self._after
        ) as stream:
            self._known = max(self._known, stream.cursor)
            if not self._bare:
                ready = Ready(
                    stream.cursor, self._window, stream.subscriber.dropped, stream.position
                )
                await self._send(encode(ready))
            sending = asyncio.create_task(self._send_notifications(stream))
            receiving = asyncio.create_task(self._receive())
            try:
                done, _ = await asyncio.wait(
                    (sending, receiving), return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                sending.cancel()
                receiving.cancel()
                ended = await asyncio.gather(sending, receiving, return_exceptions=True)
        if sending in done and ended[0] is None:
            await self._websocket.close(RESTART, "come again")
            return
        for result in ended:
            if isinstance(result, Exception):
                raise result

    async def _send_notifications(self, stream: NotificationStream) -> None:
        while True:
            while len(self._sent) >= self._window:
                self._room.clear()
                await self._room.wait()
            notifications = await stream.take(self._window - len(self._sent))
            if not notifications:
                return
            self._caller.recheck()
            # Before they are sent: the acknowledgement may be there before `send` returns.
            self._sent.extend([notification.sequence for notification in notifications])
            self._known = max(self._known, notifications[-1].sequence)
            for message in self._messages(notifications):
                await self._send(message)
            self._caller.broker.metrics.delivered("socket", notifications)

    def _messages(self, notifications: Sequence[Notification]) -> Iterator[bytes]:
        if self._bare:
            yield from map(cloudevents.to_json, notifications)
            return
        for batch in encode_batches(notifications, FRAME_BYTES):
            yield encode(Frame([stored(part) for part in batch]))

    async def _send(self, frame: bytes) -> None:
        await self._websocket.send({"type": "websocket.send", "text": frame.decode()})

    async def _receive(self) -> None:
        while True:
            message = _read(await self._websocket.receive())
            match message["type"]:
                case "acknowledge":
                    await self._acknowledge(message)
                case "hello":  # nobody is hurt by a key that was not needed
                    pass
                case other:
                    raise Problem(422, "message", f"there are no messages of type {other!r:.80}")

    async def _acknowledge(self, message: dict[str, Any]) -> None:
        sequence = message.get("sequence")
        if type(sequence) is not int or sequence < 0:
            raise Problem(422, "message", "acknowledge needs a sequence number")
        if sequence > self._known:
            raise Problem(
                422,
                "message",
                f"notification {sequence} was not sent, so it cannot be acknowledged",
            )
        self._caller.recheck()
        sent = self._sent
        while sent and sent[0] <= sequence:
            sent.popleft()
        self._room.set()
        await self._caller.broker.notifications.acknowledge(self._subscriber, sequence, wait=False)


def _read(event: Any) -> dict[str, Any]:
    """A message of the client: an object with a `type`."""
    if event["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(event.get("code") or 1005, event.get("reason"))
    text = event.get("text")
    if text is None:
        raise Problem(415, "message", "messages are JSON in text frames")
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem(400, "message", f"a message is not JSON: {error}") from None
    if type(message) is not dict or type(message.get("type")) is not str:
        raise Problem(422, "message", "a message is an object with a type")
    return message


def _number(
    websocket: WebSocket, name: str, default: int | None, *, least: int, most: int
) -> int | None:
    text = websocket.query_params.get(name)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) <= 19 else -1
    if not least <= number <= most:
        said = f"must be a whole number from {least} to {most}"
        raise misplaced("parameters", [Fault(f"query.{name}", said)])
    return number


async def _deny(websocket: WebSocket, problem: Problem) -> None:
    """Answer the handshake as any other request."""
    if "websocket.http.response" in websocket.scope.get("extensions", {}):
        await websocket.send_denial_response(problem.response())
    else:
        await websocket.close(POLICY, problem.kind)


async def _refuse(websocket: WebSocket, problem: Problem, *, bare: bool) -> None:
    """Say what is wrong, and close."""
    told = problem.as_dict()
    refusal = Refusal(code=problem.kind, message=told["detail"])
    try:
        if not bare:
            await websocket.send_text(encode(refusal).decode())
        await websocket.close(POLICY if problem.status < 500 else INTERNAL, problem.kind)
    except (WebSocketDisconnect, RuntimeError):  # it has gone already
        pass
