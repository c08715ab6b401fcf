"""A subscriber's notifications over a WebSocket, with acknowledgements, which also control the
flow.

The broker sends `ready`, then `notifications`; the client sends `acknowledge`. At most `window`
notifications are under way: sent, and not acknowledged. If the subscriber shares its
notifications, they are acknowledged by their numbers, and there are `reject` and `extend`, too. A
browser cannot send a header with its key, so the key may also come in a first message, `hello`.

Under the subprotocol of CloudEvents all that the broker sends are CloudEvents, one a message.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import orjson
from fastapi import APIRouter
from msgspec import ValidationError, convert
from msgspec.structs import replace
from starlette.websockets import WebSocket, WebSocketDisconnect

from boxmatch.broker.delivery import cloudevents
from boxmatch.broker.delivery.notifications import NotificationStream
from boxmatch.broker.delivery.shared_inbox import WINDOW, SharedStream
from boxmatch.broker.http.authentication import Caller, check_name, context_of
from boxmatch.broker.http.notifications import encode_batches
from boxmatch.broker.http.problems import problem_of, response_of
from boxmatch.broker.server.protocols import TEXT
from boxmatch.broker.store.rows import Notification
from boxmatch.errors import AccessError, BoxmatchError
from boxmatch.wire.cloudevents import SUBPROTOCOL
from boxmatch.wire.codec import encode, faults, stored
from boxmatch.wire.http import MOST_SEQUENCE
from boxmatch.wire.problems import Problem, misplaced
from boxmatch.wire.requests import Extension, Rejection, Settled
from boxmatch.wire.responses import Fault, Frame, Ready, Refusal

T = TypeVar("T")

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
        asked = _number(websocket, "window", None, least=1, most=MOST_SEQUENCE)
        window = None if asked is None else min(most, asked)
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
        async with context.broker.notifications.stream(subscriber, after=after) as stream:
            bare = chosen is not None
            socket: _NotificationSocket
            if isinstance(stream, SharedStream):
                window = stream.window = window or min(most, WINDOW)
                socket = _SharedSocket(websocket, caller, stream, window=window, bare=bare)
            else:
                window = window or most
                socket = _CursorSocket(
                    websocket, caller, stream, window=window, bare=bare, after=after
                )
            await socket.run()
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
        stream: NotificationStream | SharedStream,
        *,
        window: int,
        bare: bool,
    ) -> None:
        self._websocket = websocket
        self._write_text = websocket.scope.get("extensions", {}).get(TEXT)
        self._caller = caller
        self._stream = stream
        self._window = window
        self._bare = bare
        """Whether messages are CloudEvents alone."""

    async def run(self) -> None:
        """Returns when the client has gone, or the broker stops."""
        if not self._bare:
            await self._send(encode(self._ready()))
        sending = asyncio.create_task(self._send_notifications())
        receiving = asyncio.create_task(self._receive())
        try:
            done, _ = await asyncio.wait((sending, receiving), return_when=asyncio.FIRST_COMPLETED)
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

    def _ready(self) -> Ready:
        return Ready(self._stream.cursor, self._window, self._stream.subscriber.dropped)

    async def _send_notifications(self) -> None:
        while notifications := await self._take():
            self._caller.recheck()
            for message in self._messages(notifications):
                await self._send(message)
            self._caller.broker.metrics.delivered("socket", notifications)

    async def _take(self) -> Sequence[Notification]:
        """What is sent next; nothing at the end."""
        return await self._stream.take(self._window)

    def _messages(self, notifications: Sequence[Notification]) -> Iterator[bytes]:
        if self._bare:
            yield from map(cloudevents.to_json, notifications)
            return
        for batch in encode_batches(notifications, FRAME_BYTES):
            yield encode(Frame([stored(part) for part in batch]))

    async def _send(self, frame: bytes) -> None:
        if self._write_text is None:  # another server than ours
            await self._websocket.send_text(frame.decode())
            return
        try:
            await self._write_text(frame)
        except OSError:
            raise WebSocketDisconnect(1006) from None

    async def _receive(self) -> None:
        while True:
            message = _read(await self._websocket.receive())
            if message["type"] != "hello":  # nobody is hurt by a key that was not needed
                await self._handle(message["type"], message)

    async def _handle(self, kind: str, message: dict[str, Any]) -> None:
        raise Problem(422, "message", f"there are no messages of type {kind!r:.80}")


class _CursorSocket(_NotificationSocket):
    """One that acknowledges all up to a number."""

    _stream: NotificationStream

    def __init__(self, *args: Any, after: int | None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sent: deque[int] = deque()
        """Sequence numbers of notifications under way."""
        self._known = max(after or 0, self._stream.cursor)
        """The highest sequence number that the client can have seen."""
        self._room = asyncio.Event()

    def _ready(self) -> Ready:
        return replace(super()._ready(), after=self._stream.position)

    async def _take(self) -> Sequence[Notification]:
        while len(self._sent) >= self._window:
            self._room.clear()
            await self._room.wait()
        notifications = await self._stream.take(self._window - len(self._sent))
        # Before they are sent: the acknowledgement may be there before `send` returns.
        self._sent.extend([notification.sequence for notification in notifications])
        if notifications:
            self._known = max(self._known, notifications[-1].sequence)
        return notifications

    async def _handle(self, kind: str, message: dict[str, Any]) -> None:
        if kind != "acknowledge":
            await super()._handle(kind, message)
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
        subscriber = self._stream.subscriber.name
        await self._caller.broker.notifications.acknowledge(subscriber, sequence, wait=False)


class _SharedSocket(_NotificationSocket):
    """One of those that share the notifications of their subscriber."""

    _stream: SharedStream

    def _ready(self) -> Ready:
        settings = self._stream.inbox.book.settings
        return replace(super()._ready(), ack_seconds=settings.ack_seconds)

    async def _handle(self, kind: str, message: dict[str, Any]) -> None:
        self._caller.recheck()
        match kind:
            case "acknowledge":
                self._stream.acknowledge(_parse(message, Settled).sequences)
            case "reject":
                rejection = _parse(message, Rejection)
                if rejection.begun:
                    self._stream.reject(rejection.sequences, rejection.reason, rejection.delay)
                else:
                    self._stream.take_back(rejection.sequences)
            case "extend":
                extension = _parse(message, Extension)
                self._stream.extend(extension.sequences, extension.seconds)
            case _:
                await super()._handle(kind, message)


def _parse(message: dict[str, Any], kind: type[T]) -> T:
    """What a message says beside its type."""
    said = {name: value for name, value in message.items() if name != "type"}
    try:
        return convert(said, kind)
    except ValidationError:
        raise misplaced("message", list(islice(faults(said, kind, "message"), 20))) from None


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
        await websocket.send_denial_response(response_of(problem))
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
