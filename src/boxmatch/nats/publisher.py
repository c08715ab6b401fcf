"""Storing messages in JetStream, each once, until all are acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, NamedTuple

import nats.errors
import nats.js.errors
import orjson

from boxmatch.nats.messages import Outgoing

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

IN_FLIGHT: Final = 2_000
"""Messages that wait for their acknowledgement at a time."""
_PATIENCE: Final = 5.0
"""Seconds to wait for acknowledgements before messages are sent again."""
_SLOWEST: Final = 1.0
_TOO_LARGE: Final = 10054
_FULL: Final = 10077


Answer = bool | Exception
"""Of a message that is stored, whether it was before."""


class Published(NamedTuple):
    """What became of messages."""

    stored: int
    duplicates: int
    """Stored before, by this worker or by another one."""
    refused: list[tuple[Outgoing, str]]
    """Those that never can be, with the reason."""


class _Answers:
    """What came of messages that were sent together."""

    def __init__(self, count: int) -> None:
        self.of: list[Answer] = [nats.errors.TimeoutError()] * count
        self.missing = 1
        """And one more while they are being sent."""
        self.complete = asyncio.Event()

    def set(self, place: int, answer: Answer) -> None:
        self.of[place] = answer
        self.end()

    def end(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.complete.set()


class Publisher:
    """Publishes over one connection.

    Not by `publish_async` of nats-py, which drops the errors that JetStream answers with (2.16).
    """

    def __init__(self, connection: Client, on_error: Callable[[str, object], None]) -> None:
        self._connection = connection
        self._on_error = on_error
        self._inbox = connection.new_inbox()
        self._sent = 0
        self._waiting: dict[str, tuple[_Answers, int]] = {}
        self._answers: Subscription | None = None

    async def open(self) -> None:
        """Listen for acknowledgements."""
        self._answers = await self._connection.subscribe(f"{self._inbox}.*", cb=self._receive)

    async def close(self) -> None:
        if self._answers is not None and not self._connection.is_closed:
            await self._answers.unsubscribe()

    async def publish(self, messages: Sequence[Outgoing], *, ordered: bool = False) -> Published:
        """Have messages stored, with their ids; goes on until they are, or cannot be.

        Of each subject they are stored in this order, unless one has to be sent again. With
        `ordered` also then: the next of a subject goes out when the one before it is stored.
        """
        refused: list[tuple[Outgoing, str]] = []
        duplicates = stored = 0
        for part in _waves(messages) if ordered else _parts(messages):
            waiting: list[Outgoing] = part
            pause = 0.05
            while waiting:
                answers = await self._send(waiting)
                again: list[Outgoing] = []
                for message, answer in zip(waiting, answers, strict=True):
                    if not isinstance(answer, Exception):
                        stored += 1
                        duplicates += answer
                    elif (reason := _permanent(answer)) is not None:
                        refused.append((message, reason))
                    else:
                        again.append(message)
                        last = answer
                if again:
                    self._on_error(_kind(last), last)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _SLOWEST)
                waiting = again
        return Published(stored, duplicates, refused)

    async def _send(self, messages: Sequence[Outgoing]) -> list[Answer]:
        """Send each once; whether it was stored before, or the error."""
        answers = _Answers(len(messages))
        most = self._connection.max_payload
        tokens = []
        for place, message in enumerate(messages):
            headers = dict(message.headers)
            if message.id:
                headers["Nats-Msg-Id"] = message.id
            if len(message.data) + _size(headers) > most:  # the server would end the connection
                answers.of[place] = nats.errors.MaxPayloadError()
                continue
            self._sent += 1
            token = f"{self._inbox}.{self._sent}"
            self._waiting[token] = answers, place
            answers.missing += 1
            tokens.append(token)
            try:
                await self._connection.publish(
                    message.subject, message.data, token, headers or None
                )
            except nats.errors.Error as error:  # no connection, and no room to keep it
                answers.set(place, error)
        answers.end()
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await answers.complete.wait()
        for token in tokens:
            self._waiting.pop(token, None)
        return answers.of

    async def _receive(self, message: Msg) -> None:
        found = self._waiting.pop(message.subject, None)
        if found is None:
            return
        answers, place = found
        if message.headers and message.headers.get("Status") == "503":
            answers.set(place, nats.js.errors.NoStreamResponseError())
            return
        said = orjson.loads(message.data)
        if "error" in said:
            answers.set(place, nats.js.errors.APIError(**said["error"]))
        else:
            answers.set(place, bool(said.get("duplicate")))


def _size(headers: Mapping[str, str]) -> int:
    """About what headers take; not less."""
    return 64 + sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())


def _parts(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    return [list(messages[i : i + IN_FLIGHT]) for i in range(0, len(messages), IN_FLIGHT)]


def _waves(messages: Sequence[Outgoing]) -> list[list[Outgoing]]:
    """The first of each subject, the second of each, and so on."""
    by_subject: dict[str, list[Outgoing]] = {}
    for message in messages:
        by_subject.setdefault(message.subject, []).append(message)
    waves = [[one for one in wave if one] for wave in zip_longest(*by_subject.values())]
    return [part for wave in waves for part in _parts(wave)]


def _permanent(error: Exception) -> str | None:
    """Why a message never can be stored; None if it may be later."""
    if isinstance(error, nats.errors.MaxPayloadError):
        return "the message is larger than the server takes"
    if isinstance(error, nats.js.errors.APIError) and error.err_code == _TOO_LARGE:
        return "the message is larger than its stream takes"
    return None


def _kind(error: Exception) -> str:
    full = isinstance(error, nats.js.errors.APIError) and error.err_code == _FULL
    return "stream-full" if full else "publish"
